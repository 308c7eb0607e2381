"""Exact metrics in a tester of pytorch-metric-learning, without faiss."""

import torch
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from torch.utils.data import TensorDataset

from rankgrad.adapters.pml import AccuracyCalculator

torch.manual_seed(0)
labels = torch.arange(50).repeat_interleave(6)
images = torch.randn(50, 16)[labels] + torch.randn(300, 16)
model = torch.nn.Linear(16, 8)

calculator = AccuracyCalculator(exclude=("NMI", "AMI"), metrics=["R@4", "NDCG"])
tester = GlobalEmbeddingSpaceTester(accuracy_calculator=calculator, dataloader_num_workers=0)
found = tester.test({"val": TensorDataset(images, labels)}, epoch=1, trunk_model=model)
for name, value in found["val"].items():
    print(f"{name:40} {value:.4f}")
print(calculator.report.worst_classes(1))
