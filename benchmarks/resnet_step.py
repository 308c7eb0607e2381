"""The cost of a loss in a training step of a large network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad import losses
from rankgrad_papers.timing.clocks import alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

from .peers import pml_losses

NOTHING = "no loss"
PER_CLASS = 4
CHOSEN = ("roadmap", "supap", "smooth_ap", "pnp", "rambo_recall", "rambo_ap", "fastap")


def resnet_step(options: Options) -> Result:
    """Training steps of a ResNet-50 in bfloat16 on random images: the fraction of the loss."""
    name, batch, side = options.pick(quick=("resnet10t", 8, 32), cpu=("resnet18", 16, 64), gpu=("resnet50", 384, 224))
    network = _Network(name, batch, side, options.device)
    named: dict[str, Any] = {NOTHING: _total}
    for key in CHOSEN[:2] if options.quick else CHOSEN:
        named[key] = losses.LOSSES[key]()
        named[f"{key}, positives={PER_CLASS - 1}"] = losses.LOSSES[key](positives=PER_CLASS - 1)
    named |= {f"PML {key}": loss.to(options.device) for key, loss in pml_losses().items()}
    actions = {key: network.stepping(loss) for key, loss in named.items()}
    # the loss is also timed alone: the difference of two steps is too noisy to show 1%
    alone = {f"{key} alone": network.loss_alone(loss) for key, loss in named.items()}
    times = alternate(actions | alone, options.rounds, "resnet_step", clock_of(options.device))
    base = times[NOTHING]
    rows: list[list[Cell]] = []
    for key in actions:
        mine, part = times[key], times[f"{key} alone"]
        ratio = mine.over(base)
        rows.append(
            [key, mine.ms, mine.wall_ms, ratio, max(100 * (1 - 1 / ratio), 0.0), part.ms, 100 * part.over(mine)]
        )
    note = (
        f"{name}, random weights, {batch} random images of {side} x {side}, {PER_CLASS} per class, made on the device; "
        f"bfloat16 autocast, AdamW. '{NOTHING}': the sum of the embeddings is minimised. Share: of the step's time "
        "beyond that. Alone: the loss of embeddings that are there already, forward and backward to them, in a queue "
        "that holds nothing else: in a step the GPU may still be busy with the network while they are queued."
    )
    columns = (
        "loss",
        "ms per step",
        "wall ms per step",
        f"x {NOTHING}",
        "share of the loss %",
        "loss alone: ms",
        "alone, % of the step",
    )
    checks = [Check("ROADMAP step over a step without a loss", times["roadmap"].over(base), 1.05)]
    if options.device.type == "cuda":
        promised = f"roadmap, positives={PER_CLASS - 1}"
        share = 100 * times[f"{promised} alone"].over(times[promised])
        checks.append(Check(f"{promised}, alone, % of a {name} step at {batch}", share, 1.0))
    return Result([ResultTable("Training step", columns, rows, note)], checks)


def _total(embeddings: Tensor, labels: Tensor) -> Tensor:
    return embeddings.float().sum()


class _Network:
    """A network that is trained on one batch on the device."""

    def __init__(self, name: str, batch: int, side: int, device: torch.device) -> None:
        import timm

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: nn.Module = timm.create_model(name, pretrained=False, num_classes=512).to(device)
        self.images = torch.rand(batch, 3, side, side, device=device)
        self.labels = torch.arange(batch, device=device) // PER_CLASS
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.device = device

    def stepping(self, loss: Any) -> Any:
        """One training step with this loss, as an action."""

        def step() -> None:
            self.optimizer.zero_grad()
            with torch.autocast(self.device.type, torch.bfloat16):
                value = loss(F.normalize(self.model(self.images)), self.labels)
            value.backward()
            self.optimizer.step()

        return step

    def loss_alone(self, loss: Any) -> Any:
        """The loss of embeddings like those of the network, forward and backward to them, as an action."""
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16):
            embeddings = F.normalize(self.model(self.images))
        leaf = embeddings.detach().requires_grad_()

        def act() -> None:
            leaf.grad = None
            with torch.autocast(self.device.type, torch.bfloat16):
                value = loss(leaf, self.labels)
            value.backward()

        return act
