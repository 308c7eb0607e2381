"""Inside pytorch-metric-learning: losses, memory and exact evaluation. See docs/pytorch-metric-learning.md."""

from .adapters.pml import AccuracyCalculator, CrossBatchMemory, PMLAdapter, SelfSupervisedLoss

__all__ = ["AccuracyCalculator", "CrossBatchMemory", "PMLAdapter", "SelfSupervisedLoss"]
