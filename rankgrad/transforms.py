"""An earlier place of these names, kept for code and saved settings that use it: now `datasets.transforms`."""

from .datasets.transforms import (  # noqa: F401
    Collate as Collate,
)
from .datasets.transforms import (
    InkEval as InkEval,
)
from .datasets.transforms import (
    InkTrain as InkTrain,
)
from .datasets.transforms import (
    PhotoEval as PhotoEval,
)
from .datasets.transforms import (
    PhotoTrain as PhotoTrain,
)
from .datasets.transforms import (
    Transform as Transform,
)
from .datasets.transforms import (
    warp as warp,
)
