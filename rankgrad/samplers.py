"""An earlier place of these names, kept for code and saved settings that use it: now `datasets.samplers`."""

from .datasets.samplers import (  # noqa: F401
    ClassBatchSampler as ClassBatchSampler,
)
from .datasets.samplers import (
    EpochList as EpochList,
)
from .datasets.samplers import (
    HierarchicalBatchSampler as HierarchicalBatchSampler,
)
from .datasets.samplers import (
    MPerClassBatchSampler as MPerClassBatchSampler,
)
from .datasets.samplers import (
    ShuffledBatches as ShuffledBatches,
)
