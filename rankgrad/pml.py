"""An earlier place of these names, kept for code and saved settings that use it: now `adapters.pml`."""

from .adapters.pml import (  # noqa: F401
    CrossBatchMemory as CrossBatchMemory,
)
from .adapters.pml import (
    PMLAdapter as PMLAdapter,
)
