"""Lightning modules: what every task shares, and that of a retrieval model with its loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import lightning as L
import torch
from torch import Tensor, nn

from rankgrad.batches.distributed import GlobalBatch, gather_objects, gather_rows, world
from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory, Memory, memory_buffers
from rankgrad.common.checks import number
from rankgrad.losses import RetrievalLoss, SumLoss

from ..files.defaults import FACTOR, RESTART
from ..models.embedding_model import EmbeddingModel, parameter_groups
from .measuring import look, step_of

OPTIMIZERS = ("adamw", "adam", "sgd")


def check_optimizer(settings: Mapping[str, Any]) -> None:
    """Raise if settings of an optimiser and its schedule are out of range.

    Args:
        settings: see `TrainedModule`.

    Raises:
        TypeError, ValueError: naming the setting.
    """
    for name, known in (("name", OPTIMIZERS), ("schedule", SCHEDULES)):
        if (value := settings.get(name, known[0])) not in known:
            raise ValueError(f"unknown optimizer.{name} {value!r}; known: {', '.join(known)}")
    for name in ("warmup", "momentum"):
        number(settings.get(name, 0.0), f"optimizer.{name} is a fraction", low=0, high=1)
    for name in ("lr", "weight_decay", "head_lr_factor", "loss_lr_factor", "factor", "restart"):
        number(settings.get(name, 0.0), f"optimizer.{name} is a rate or a factor", low=0)
    for epoch in settings.get("milestones") or ():
        number(epoch, "each entry of optimizer.milestones is an epoch", low=0)


def is_logged(trainer: L.Trainer, step: int) -> bool:
    """Whether the numbers of a step, counted from 1, are logged: the first, then each `trainer.log_every_n_steps`th."""
    every = cast(Any, trainer).log_every_n_steps
    return bool(every) and (step == 1 or step % every == 0)


class TrainedModule(L.LightningModule):
    """Base module of all tasks: optimiser, learning rate schedule, and the extra content of a saved state.

    Args:
        model: the model to train.
        optimizer: name, lr, weight_decay, momentum, warmup, and optionally schedule, milestones (epochs) and factor;
            see `Schedule`.

    Attributes:
        kept: extra values of a saved state, by name.
        noted: numbers of the last step, for the log.
    """

    def __init__(self, model: nn.Module, optimizer: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.settings = model, dict(optimizer)
        self.kept: dict[str, Any] = {}
        self.noted: dict[str, Tensor] = {}
        self._rng: dict[str, Any] | None = None
        self._loaded: dict[str, Tensor] = {}
        check_optimizer(self.settings)

    def learned(self) -> list[dict[str, Any]]:
        """Parameter groups with their learning rates: all parameters of the model that are not frozen."""
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        return [{"params": weights, "lr": self.settings["lr"], "weight_decay": self.settings["weight_decay"]}]

    def examine(self) -> dict[str, float]:
        """Measurements of the last batch for `health.Health`, beside loss, gradient and weights."""
        return {}

    def note(self, loss: Tensor, values: Mapping[str, Tensor]) -> None:
        """Keep the numbers of a step, for the log and the progress bar.

        The values stay on their device. Lightning's own `log` would copy the loss at every step and wait for the GPU.
        """
        self.noted = {"loss": loss.detach(), **{name: value.detach() for name, value in values.items()}}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the length of the gradient: 0 or exploding is the first sign of trouble."""
        if is_logged(self.trainer, self.trainer.global_step + 1):
            grads = [p.grad.norm() for p in self.model.parameters() if p.grad is not None]
            if grads:
                self.noted["grad_norm"] = torch.stack(grads).norm()

    def configure_optimizers(self) -> Any:
        """Optimiser and learning rate schedule. The schedule moves at every step."""
        s = self.settings
        kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        optimizer = kinds[s["name"]](self.learned(), **({"momentum": s["momentum"]} if s["name"] == "sgd" else {}))
        steps = int(self.trainer.estimated_stepping_batches)

        def at(epochs: Sequence[int]) -> list[int]:
            return [round(epoch * steps / max(self.trainer.max_epochs or 1, 1)) for epoch in epochs]

        given = {name: s[name] for name in ("warmup", "factor", "restart") if name in s}
        milestones, ends = at(s.get("milestones") or ()), at(s.get("extended") or ())
        factor = Schedule(steps, name=s.get("schedule", "cosine"), milestones=milestones, ends=ends, **given)
        # a function, because torch would save the attributes of an object in the state and restore them
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the random state, which dropout needs. Lightning saves all the rest."""
        mine = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            mine["cuda"] = torch.cuda.get_rng_state(self.device)
        checkpoint["rng"] = gather_objects(mine)
        checkpoint.update(self.kept)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember until training starts what Lightning changes before: the random state and the exact weights."""
        if self.trainer.precision in ("64-true", "bf16-true", "16-true"):
            # Lightning converts the model to the precision after it has loaded it, and rounds both times
            self._loaded = checkpoint["state_dict"]
        states, rank = checkpoint.get("rng", ()), world()[0]
        # a resumed run may have more processes than before; new processes keep their own random state
        self._rng = states[rank] if rank < len(states) else None

    def on_train_start(self) -> None:
        """Restore the random state and the exact weights of the checkpoint."""
        for name, tensor in self.state_dict(keep_vars=True).items() if self._loaded else ():
            saved = self._loaded[name].to(tensor.device)
            if saved.dtype == tensor.dtype:
                tensor.data.copy_(saved)
            else:  # state that the loss keeps in a precision of its own
                tensor.data = saved
        self._loaded = {}
        if self._rng is not None:
            torch.set_rng_state(self._rng["cpu"])
            if "cuda" in self._rng and self.device.type == "cuda":
                torch.cuda.set_rng_state(self._rng["cuda"], self.device)


THRESHOLDS = ("alpha", "beta")  # thresholds of a calibration, if they follow the scores


class RetrievalModule(TrainedModule):
    """A model and a loss. The loss is computed over the batches of all processes together (`distributed.GlobalBatch`).

    Args:
        model: images, texts or vectors -> embeddings.
        loss: (embeddings, labels) -> scalar; if it has an argument `ids`, it also gets the row numbers.
        optimizer: as for `TrainedModule`, and head_lr_factor, loss_lr_factor.
        sub_batch: number of rows embedded at a time, see `large_batch`; None: all.
        even: whether all processes have the same number of rows in every batch.
        targets: [training row, ...] target of each row in place of its class: several classes (multi-hot), or
            hierarchical labels; None: the class.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        optimizer: Mapping[str, Any],
        sub_batch: int | None = None,
        even: bool = False,
        targets: Tensor | None = None,
    ) -> None:
        super().__init__(model, optimizer)
        self.sub_batch, self.targets = sub_batch, targets
        self.loss = GlobalBatch(loss, even=even)
        self._takes_ids = "ids" in inspect.signature(loss.forward).parameters  # an image must not match its own copy
        self.last_batch: tuple[Tensor, Tensor] | None = None  # embeddings and labels, for callbacks
        # memories are equal on all processes, so they need not be synchronised before every step
        self._ddp_params_and_buffers_to_ignore = memory_buffers(self)
        if sub_batch is not None and (not isinstance(sub_batch, int) or sub_batch < 1):
            raise ValueError(f"sub_batch must be a number of rows, an integer >= 1, or null; got {sub_batch!r}")

    def training_step(self, batch: tuple[Any, Tensor, Tensor], batch_idx: int) -> Tensor:
        """Compute the loss of a batch. The share of counted queries is logged, too."""
        given, labels, ids = batch
        size = self.sub_batch
        embeddings = self.model(given) if size is None else embed_in_parts(self.model, given, size)
        self.last_batch = embeddings.detach(), labels
        told = labels if self.targets is None else self.targets[ids.cpu()].to(labels.device)
        loss: Tensor = self.loss(embeddings, told, ids=ids if self._takes_ids else None)
        inner = self.loss.loss.loss if isinstance(self.loss.loss, Memory) else self.loss.loss
        terms = inner.components() if isinstance(inner, (RetrievalLoss, SumLoss)) else {}
        logged = {*terms, *THRESHOLDS, "counted"}
        stats = {n: value for n, value in self.loss.stats.items() if n in logged or n.startswith("memory_")}
        noted = {n: value.float().mean() if n == "counted" else value for n, value in stats.items()}
        self.note(loss, noted)
        return loss

    def learned(self) -> list[dict[str, Any]]:
        """Parameter groups of backbone, head and loss, each with its learning rate."""
        lr, decay = self.settings["lr"], self.settings["weight_decay"]
        if isinstance(self.model, EmbeddingModel):
            groups = parameter_groups(self.model, lr, self.settings["head_lr_factor"], decay)
        else:
            groups = [{"params": list(self.model.parameters()), "lr": lr, "weight_decay": decay}]
        if extra := list(self.loss.parameters()):
            rate = lr * self.settings["loss_lr_factor"]
            groups.append({"params": extra, "lr": rate, "weight_decay": decay, "name": "loss"})
        return groups

    def examine(self) -> dict[str, float]:
        """Statistics of the embeddings of the last batch, over all processes, and the drift of a memory."""
        assert self.last_batch is not None
        embeddings, labels = (gather_rows(rows) for rows in self.last_batch)
        loss = self.loss.loss
        seen = look(embeddings, labels, step_of(loss))
        stats: Mapping[str, Tensor] = getattr(loss, "stats", {})
        if isinstance(loss, CrossBatchMemory) and "memory_counted" in stats:
            seen["no_positive"] = min(seen["no_positive"], 1 - float(stats["memory_counted"]))  # the first if NaN
        return {**seen, "drift": float(stats.get("memory_drift", math.nan)), "dim": embeddings.shape[1]}


SCHEDULES = ("cosine", "constant", "steps")


class Schedule:
    """Factor of the learning rate at a step: a linear warm-up, then a schedule.

    Args:
        steps: number of steps of the training.
        warmup: fraction of all steps that warm up, 0 .. 1.
        name: "cosine": falls to 0 at the end; "constant"; "steps": multiplied by `factor` at each milestone.
        milestones: steps at which the rate falls, for "steps".
        factor: factor of the rate at each milestone.
        ends: steps at which the training ended before it was extended, in order. The first part warms up. With
            "cosine", each later part warms up again, to `restart` times the rate. The other schedules just continue.
        restart: fraction of the rate to which a later part warms up.

    >>> rate = Schedule(steps=10, warmup=0.2)
    >>> [round(rate(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    >>> rate = Schedule(steps=10, name="steps", milestones=(4, 8), factor=0.1)
    >>> [round(rate(step), 3) for step in (0, 3, 4, 8)]
    [1.0, 1.0, 0.1, 0.01]
    >>> rate = Schedule(steps=20, warmup=0.2, ends=(10,), restart=0.5)
    >>> [round(rate(step), 2) for step in (0, 1, 6, 9, 10, 11, 16, 20)]
    [0.5, 1.0, 0.5, 0.04, 0.25, 0.5, 0.25, 0.0]
    """

    def __init__(
        self,
        steps: int,
        warmup: float = 0.0,
        name: str = "cosine",
        milestones: Sequence[int] = (),
        factor: float = FACTOR,
        ends: Sequence[int] = (),
        restart: float = RESTART,
    ) -> None:
        self.warmup, self.restart = warmup, restart
        self.parts = [0, *ends, max(steps, 1)]
        self.name, self.milestones, self.factor = name, tuple(milestones), factor

    def __call__(self, step: int) -> float:
        """Factor in 0 .. 1."""
        part = sum(step >= end for end in self.parts[1:-1]) if self.name == "cosine" else 0
        start, end = self.parts[part : part + 2]
        step, steps, top = step - start, end - start, self.restart if part else 1.0
        warmup = round(self.warmup * steps)
        if step < warmup:
            return top * (step + 1) / warmup
        if self.name == "cosine":
            share = (step - warmup) / max(steps - warmup, 1)
            return top * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
        fallen = sum(step >= milestone for milestone in self.milestones) if self.name == "steps" else 0
        return self.factor**fallen
