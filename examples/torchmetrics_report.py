"""The report of an evaluation as a metric of torchmetrics, filled batch by batch."""

import torch

from rankgrad.adapters.torchmetrics import RetrievalReport

torch.manual_seed(0)
labels = torch.arange(50).repeat_interleave(6)
centres = torch.randn(50, 16)
embeddings = centres[labels] + torch.randn(300, 16)  # what a model makes of a validation set

metric = RetrievalReport(metrics=["R@1", "R@5", "mAP@R", "AP@10"], intervals=200)
for rows in torch.arange(300).split(64):
    metric.update(embeddings[rows], labels[rows])
for name, value in metric.compute().items():  # under torch.distributed: of all processes
    print(f"{name:12} {value:.4f}")
print(metric.report)  # the same with intervals
