"""An earlier place of these names, kept for code and saved settings that use it: now `index.embedder`."""

from .index.embedder import (  # noqa: F401
    Embedded as Embedded,
)
from .index.embedder import (
    Embedder as Embedder,
)
from .index.embedder import (
    Inverted as Inverted,
)
from .index.embedder import (
    Origin as Origin,
)
