"""An earlier place of these names, kept for code and saved settings that use it: now `losses.baselines`."""

from .losses.baselines import (  # noqa: F401
    CrossEntropyLoss as CrossEntropyLoss,
)
from .losses.baselines import (
    HistogramLoss as HistogramLoss,
)
from .losses.baselines import (
    PMLBatchLoss as PMLBatchLoss,
)
from .losses.baselines import (
    PMLLoss as PMLLoss,
)
