"""The Lightning module of a retrieval run: a model, a loss, an optimiser and its schedule."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from ..distributed import GlobalBatch, gather_objects, world
from ..large_batch import embed_in_parts
from ..memory import memory_buffers
from ..models.embedding_model import EmbeddingModel, parameter_groups

OPTIMIZERS = ("adamw", "adam", "sgd")


class RetrievalModule(L.LightningModule):
    """A model and a loss, trained with a warm-up and a schedule of the rate.

    The loss is that of the batches of all processes together (`distributed.GlobalBatch`).

    Args:
        model: images -> embeddings.
        loss: (embeddings, labels) -> scalar; if it takes `ids`, it is also given the numbers of the images.
        optimizer: name, lr, weight_decay, momentum, head_lr_factor, loss_lr_factor, warmup, and optionally schedule,
            milestones (epochs) and factor, see `Schedule`.
        sub_batch: images embedded at once, see `large_batch`; None: all.
        even: all processes have equally many images in every batch.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        optimizer: Mapping[str, Any],
        sub_batch: int | None = None,
        even: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.settings, self.sub_batch = model, dict(optimizer), sub_batch
        self.loss = GlobalBatch(loss, even=even)
        self._takes_ids = "ids" in inspect.signature(loss.forward).parameters  # a repeated image never matches itself
        self.kept: dict[str, Any] = {}  # settings to be found again in a saved state
        self.last_batch: tuple[Tensor, Tensor] | None = None  # embeddings and labels, for callbacks that look at them
        self._rng: dict[str, Any] | None = None
        # memories are equal on all processes: sending them around before every step would only take time
        self._ddp_params_and_buffers_to_ignore = memory_buffers(self)
        if self.settings["name"] not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer.name {self.settings['name']!r}; known: {', '.join(OPTIMIZERS)}")
        if sub_batch is not None and (not isinstance(sub_batch, int) or sub_batch < 1):
            raise ValueError(f"train.sub_batch is a number of images, an integer >= 1, or null; got {sub_batch!r}")
        if self.settings.get("schedule", "cosine") not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise ValueError(f"unknown optimizer.schedule {self.settings['schedule']!r}; known: {known}")
        if not 0 <= self.settings["warmup"] <= 1:
            raise ValueError(f"optimizer.warmup is a share of all steps, 0 .. 1; got {self.settings['warmup']}")

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        """Loss of a batch; logged with the share of queries that count."""
        images, labels, ids = batch
        size = self.sub_batch
        embeddings = self.model(images) if size is None else embed_in_parts(self.model, images, size)
        self.last_batch = embeddings.detach(), labels
        loss: Tensor = self.loss(embeddings, labels, ids=ids if self._takes_ids else None)
        self.log("loss", loss, prog_bar=True)
        for name, value in self.loss.stats.items():
            if name in ("supap", "calibration") or name.startswith("memory_"):
                self.log(name, value)
            elif name == "counted":
                self.log(name, value.float().mean())
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the length of the gradient: 0 or exploding is the first sign of trouble."""
        every = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and (self.trainer.global_step + 1) % every == 0:  # the steps that Lightning writes down
            grads = [p.grad.norm() for p in self.model.parameters() if p.grad is not None]
            if grads:
                self.log("grad_norm", torch.stack(grads).norm())

    def configure_optimizers(self) -> Any:
        """The optimiser by name, its groups, and the schedule per step."""
        s = self.settings
        if isinstance(self.model, EmbeddingModel):
            groups = parameter_groups(self.model, s["lr"], s["head_lr_factor"], s["weight_decay"])
        else:
            groups = [{"params": list(self.model.parameters()), "lr": s["lr"], "weight_decay": s["weight_decay"]}]
        extra = list(self.loss.parameters())
        if extra:
            rate = s["lr"] * s["loss_lr_factor"]
            groups.append({"params": extra, "lr": rate, "weight_decay": s["weight_decay"], "name": "loss"})
        name = s["name"]
        if name == "sgd":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(groups, momentum=s["momentum"])
        else:
            optimizer = (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(groups)
        steps = int(self.trainer.estimated_stepping_batches)
        milestones: list[int] = []
        if s.get("milestones"):
            per_epoch = steps / max(self.trainer.max_epochs or 1, 1)
            milestones = [round(epoch * per_epoch) for epoch in s["milestones"]]
        factor = Schedule(steps, s["warmup"], s.get("schedule", "cosine"), milestones, s.get("factor", 0.1))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning keeps all but the random state (dropout needs it)."""
        mine = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            mine["cuda"] = torch.cuda.get_rng_state(self.device)
        checkpoint["rng"], checkpoint["kept"] = gather_objects(mine), self.kept

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the random state until training starts: loading draws numbers of its own."""
        states, rank = checkpoint["rng"], world()[0]
        # a run may go on with more processes than it had: the new ones start as they are
        self._rng = states[rank] if rank < len(states) else None

    def on_train_start(self) -> None:
        """Restore the random state of the checkpoint."""
        if self._rng is not None:
            torch.set_rng_state(self._rng["cpu"])
            if "cuda" in self._rng and self.device.type == "cuda":
                torch.cuda.set_rng_state(self._rng["cuda"], self.device)


SCHEDULES = ("cosine", "constant", "steps")


class Schedule:
    """Factor of the learning rate at a step: rises linearly over a share of all steps, then follows a schedule.

    Args:
        steps: of the whole training.
        warmup: share of all steps, 0 .. 1.
        name: "cosine": to 0 at the end; "constant"; "steps": times `factor` at each milestone.
        milestones: steps done at which the rate falls, for "steps".
        factor: of each fall.

    >>> rate = Schedule(steps=10, warmup=0.2)
    >>> [round(rate(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    >>> rate = Schedule(steps=10, name="steps", milestones=(4, 8), factor=0.1)
    >>> [round(rate(step), 3) for step in (0, 3, 4, 8)]
    [1.0, 1.0, 0.1, 0.01]
    """

    def __init__(
        self,
        steps: int,
        warmup: float = 0.0,
        name: str = "cosine",
        milestones: Sequence[int] = (),
        factor: float = 0.1,
    ) -> None:
        self.steps, self.warmup = max(steps, 1), round(warmup * steps)
        self.name, self.milestones, self.factor = name, tuple(milestones), factor

    def __call__(self, step: int) -> float:
        """Factor in 0 .. 1."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.name == "cosine":
            share = (step - self.warmup) / max(self.steps - self.warmup, 1)
            return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        fallen = sum(step >= milestone for milestone in self.milestones) if self.name == "steps" else 0
        return self.factor**fallen
