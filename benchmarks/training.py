"""An epoch with each loss compared with one with cross-entropy, and the time of its stages."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from rankgrad import losses
from rankgrad_papers.timing.clocks import alternate
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

from .peers import pml_losses

STAGES = ("batch", "forward", "loss", "backward", "update")


def training(options: Options) -> Result:
    """An epoch with each loss, compared with an epoch with cross-entropy, and the parts of its time."""
    from rankgrad.losses.baselines import CrossEntropyLoss

    table, batches = _training_data(options)
    size = {"classes": len(table.class_names), "dim": 128}
    cross_entropy = CrossEntropyLoss(size["classes"], size["dim"])
    named: dict[str, nn.Module] = {"cross_entropy": cross_entropy}
    chosen = (
        ("roadmap",)
        if options.quick
        else ("roadmap", "supap", "smooth_ap", "pnp", "rambo_recall", "rambo_ap", "fastap")
    )
    named |= {name: losses.LOSSES[name]() for name in chosen}
    named |= {f"PML {name}": loss for name, loss in pml_losses().items() if name != "FastAPLoss"}
    epochs = {name: _Epoch(loss, table, batches, size["dim"]) for name, loss in named.items()}
    times = alternate(dict(epochs), options.rounds, "training")
    base = times["cross_entropy"]
    rows: list[list[Cell]] = []
    for name, mine in times.items():
        shares = epochs[name].shares()
        rows.append([name, mine.ms / batches, mine.wall_ms / batches, mine.over(base), *(100 * s for s in shares)])
    columns = ("loss", "processor ms per step", "wall ms per step", "x cross_entropy", *(f"{s} %" for s in STAGES))
    note = (
        f"Epochs of {batches} batches of 32 classes x 4 images of {table.name}, 28 x 28, random affine maps; convnet "
        "16-32-64-128, 128-d embeddings, AdamW. The shares are of processor time. 'Backward' is of model and loss."
    )
    title = "Training: processor time of a step"
    return Result(
        [ResultTable(title, columns, rows, note)],
        [Check("ROADMAP epoch over cross-entropy epoch", times["roadmap"].over(base), 1.15)],
    )


def _training_data(options: Options) -> tuple[Any, int]:
    """Table of training images with classes 0 .. C - 1, and batches per epoch."""
    from rankgrad_papers.datasets import load_omniglot
    from rankgrad_workbench.datasets import load_glyphs

    table = load_glyphs() if options.data_root is None else load_omniglot(options.data_root)
    table = table.select("train")
    present, label = torch.unique(table.label, return_inverse=True)
    table = replace(table, label=label, class_names=tuple(table.class_names[c] for c in present.tolist()))
    return table, 2 if options.quick else 21


class _Epoch:
    """A model in training. Every call is one epoch, and records the processor time of the stages."""

    def __init__(self, loss: nn.Module, table: Any, batches: int, dim: int) -> None:
        from torch.utils.data import DataLoader

        from rankgrad.batches.samplers import MPerClassBatchSampler
        from rankgrad_workbench.datasets import ImageSet
        from rankgrad_workbench.datasets.transforms import Collate, InkTrain
        from rankgrad_workbench.models.convnet import convnet

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = convnet(widths=(16, 32, 64, 128), embedding_size=dim)
        self.loss = loss
        parameters = [*self.model.parameters(), *loss.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=5e-3, weight_decay=1e-4)
        self.sampler = MPerClassBatchSampler(table.label, 32, 4, batches_per_epoch=batches)
        transform = InkTrain(degrees=10, scale=0.1, shear=0.1, shift=0.07, elastic=0, stroke=0)
        self.loader = DataLoader(ImageSet(table), batch_sampler=self.sampler, collate_fn=Collate(transform))
        self.spent = dict.fromkeys(STAGES, 0.0)
        self.epoch = 0

    def __call__(self) -> None:
        self.sampler.set_epoch(self.epoch)
        self.epoch += 1
        clock = time.process_time()

        def done(stage: str) -> None:
            nonlocal clock
            now = time.process_time()
            self.spent[stage] += now - clock
            clock = now

        for images, labels, _ in self.loader:
            done("batch")
            embeddings = self.model(images)
            done("forward")
            value = self.loss(embeddings, labels)
            done("loss")
            self.optimizer.zero_grad()
            value.backward()
            done("backward")
            self.optimizer.step()
            done("update")

    def shares(self) -> list[float]:
        """Fraction of each stage in the processor time so far."""
        total = sum(self.spent.values())
        return [spent / max(total, 1e-9) for spent in self.spent.values()]
