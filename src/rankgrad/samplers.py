"""An earlier place of these names, kept for code and saved settings that use it: now `datasets.samplers`."""

from .datasets.samplers import ClassBatches as ClassBatchSampler
from .datasets.samplers import (
    EpochList,
    HierarchicalBatchSampler,
    MPerClassBatchSampler,
    ShuffledBatches,
)

__all__ = ["ClassBatchSampler", "EpochList", "HierarchicalBatchSampler", "MPerClassBatchSampler", "ShuffledBatches"]
