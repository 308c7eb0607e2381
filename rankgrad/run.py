"""An earlier place of these names, kept for code and saved settings that use it: now `training.runner`."""

from .training.runner import (  # noqa: F401
    embed_folder as embed_folder,
)
from .training.runner import (
    open_run as open_run,
)
from .training.runner import (
    summary as summary,
)
from .training.runner import (
    train as train,
)
