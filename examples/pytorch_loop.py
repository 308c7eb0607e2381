"""A rank loss, class batches and exact numbers in a plain PyTorch loop: seconds on a CPU."""

import torch

from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import evaluate
from rankgrad.losses import SmoothAPLoss

torch.manual_seed(0)
labels = torch.arange(40).repeat_interleave(8)
inputs = torch.randn(40, 64)[labels] + 3 * torch.randn(320, 64)
model, loss = torch.nn.Linear(64, 16), SmoothAPLoss(tau=0.05)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
batches = MPerClassBatchSampler(labels, classes_per_batch=8, samples_per_class=4)
for epoch in range(5):
    batches.set_epoch(epoch)
    for rows in batches:
        optimizer.zero_grad()
        loss(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    print(epoch, evaluate(model(inputs).detach(), labels, intervals=0).values["mAP@R"])
