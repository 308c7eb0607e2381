"""Training a retrieval model: Lightning's loop around our data, model and loss. Wiring only.

Several processes (`launch`) train one run: the first one writes.

A run is a folder: config.yaml, state.ckpt (to resume), model.pt (weights), metrics.csv, before.json, after.json,
embeddings.npz and report.html. Everything random in it is a function of (seed, epoch, image), so a run that was killed
and resumed ends, on a CPU, with the numbers of one that was not.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lightning as L
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from .datasets.base import ImageSet, Table
from .datasets.protocols import Trial, over_draws, trials
from .distributed import GlobalBatch, gather_objects, gather_rows, on_first, world
from .evaluation import Report, evaluate
from .history import TEST
from .large_batch import embed_in_parts
from .memory import CrossBatchMemory, memory_buffers
from .models import EmbeddingModel, parameter_groups
from .replacing import replacing
from .samplers import (
    ClassBatchSampler,
    EpochList,
    HierarchicalBatchSampler,
    MPerClassBatchSampler,
    ShuffledBatches,
)
from .transforms import Collate

OPTIMIZERS = ("adamw", "adam", "sgd")


class RetrievalModule(L.LightningModule):
    """A model and a loss, trained with a warm-up and a schedule of the rate.

    The loss is that of the batches of all processes together (`distributed.GlobalBatch`).

    Args:
        model: images -> embeddings.
        loss: (embeddings, labels) -> scalar; a `CrossBatchMemory` is also given the numbers of the images.
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
        remembers = isinstance(self.loss.loss, CrossBatchMemory)
        loss: Tensor = self.loss(embeddings, labels, ids=ids if remembers else None)
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


class FeatureSet(Dataset[tuple[Tensor, int, int]]):
    """Features computed once, as (feature, label, index): what a head alone is trained on."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.features, self.labels = features, labels.tolist()

    def __len__(self) -> int:
        """Images."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        """Feature, label and index of an image."""
        return self.features[index], self.labels[index], index


class KeepFeatures:
    """The transform of features: none."""

    def __call__(self, images: list[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Stack them."""
        return torch.stack(list(images))


class EpochData(L.LightningDataModule):
    """Training batches by a sampler; knows where in an epoch it stands, so that a run resumes there.

    Args:
        dataset: what is asked for a batch of the sampler.
        sampler: with set_epoch, and the state of its place in an epoch.
        collate: samples -> batch.
        workers: of the DataLoader.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: ClassBatchSampler | ShuffledBatches,
        collate: Callable[[Any], Any],
        workers: int = 0,
    ) -> None:
        super().__init__()
        self.dataset, self.sampler, self.collate, self.workers = dataset, sampler, collate, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """One loader for all epochs; `SetEpoch` names the epoch before each."""
        return DataLoader(
            self.dataset,
            batch_sampler=_Once(self.sampler),
            collate_fn=self.collate,
            generator=torch.Generator(),  # a loader draws a number per epoch; the model's dropout must not notice
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def state_dict(self) -> dict[str, int]:
        """Epoch and batches done, from Lightning's own counters."""
        trainer = self.trainer
        assert trainer is not None
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch
        if done >= trainer.num_training_batches:
            epoch, done = epoch + 1, 0
        self.sampler.set_epoch(epoch)
        return self.sampler.state_dict(batches_done=done)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on in the middle of the epoch."""
        self.sampler.load_state_dict(state_dict)


class TrainingData(EpochData):
    """Batches of exactly P classes x K images.

    Args:
        dataset: gives (image, label, index).
        labels: [image] long, classes of the dataset.
        transform: see `transforms`.
        sampler: classes_per_batch, samples_per_class, batches_per_epoch, and batches_per_pair: None, or how often
            each pair of super-labels has a batch.
        seed: of the batches.
        workers: of the DataLoader.
        super_labels: [image] long, for batches_per_pair.
    """

    sampler: ClassBatchSampler

    def __init__(
        self,
        dataset: Dataset[Any],
        labels: Tensor,
        transform: Any,
        sampler: Mapping[str, Any],
        seed: int,
        workers: int = 0,
        super_labels: Tensor | None = None,
    ) -> None:
        settings = dict(sampler)
        per_pair = settings.pop("batches_per_pair", None)
        batches: ClassBatchSampler
        if per_pair is None:
            batches = MPerClassBatchSampler(labels, seed=seed, **settings)
        elif super_labels is None:
            raise ValueError("sampler.batches_per_pair draws from pairs of super-labels, but this data has none")
        else:
            batches = HierarchicalBatchSampler(labels, super_labels, batches_per_pair=per_pair, seed=seed, **settings)
        super().__init__(dataset, batches, Collate(transform), workers)


class _Once(Sampler[list[int]]):
    """The batches of a sampler that is asked for them once per epoch, however often a DataLoader asks.

    With workers a DataLoader makes two iterators at its start and reads the second; the first would take the sampler's
    `start_batch` with it. A generator does nothing until it is read.
    """

    def __init__(self, sampler: ClassBatchSampler | ShuffledBatches) -> None:
        self.batches = sampler

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches


class SetEpoch(L.Callback):
    """Names the epoch to the sampler, unless it has just been resumed inside one."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Called before the loader is iterated."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        data.sampler.set_epoch(trainer.current_epoch)


class SaveState(L.Callback):
    """Writes the state of the run after every epoch and every few minutes, atomically: never half a file.

    Args:
        path: file to write; replaced as a whole.
        minutes: longest time between two writes.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.seconds = path, 60 * minutes
        self.last = time.monotonic()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write if the last time is long ago; not between the parts of an accumulated gradient, which is not kept."""
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        # the end of the epoch writes by itself, after whatever else belongs to it
        if whole and not trainer.is_last_batch and self._due(batch_idx):
            self.write(trainer)

    def _due(self, batch_idx: int) -> bool:
        """Several processes write together, when the first says so; asking it takes time, so not after every batch."""
        late = time.monotonic() - self.last >= self.seconds
        if world()[1] == 1:
            return late
        return batch_idx % 20 == 19 and on_first(lambda: late)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write."""
        self.write(trainer)

    def write(self, trainer: L.Trainer) -> None:
        """To a temporary file beside, flushed, then renamed."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        trainer.save_checkpoint(temporary)  # called by all processes, written by the first
        if trainer.is_global_zero:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        self.last = time.monotonic()


class EvaluateEvery(L.Callback):
    """Evaluates each so many epochs and logs the values: see `history.evaluations`.

    Args:
        epochs: between two evaluations.
        run: model -> Report.
    """

    def __init__(self, epochs: int, run: Any) -> None:
        self.epochs, self.run = epochs, run

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log all metrics of this epoch; those after the last one are the run's result anyway."""
        epoch = trainer.current_epoch + 1
        if epoch % self.epochs == 0 and epoch != trainer.max_epochs:
            values = self.run(cast(RetrievalModule, pl_module).model).values
            found = {f"{TEST}{name}": value for name, value in values.items()}
            for logger in trainer.loggers:  # at once: `self.log` would come after this epoch's state is saved
                logger.log_metrics(found, step=trainer.global_step - 1)
                logger.save()


def embed(
    model: nn.Module,
    table: Table,
    transform: Any,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> Tensor:
    """[image, dim] float32 embeddings of a table, on the CPU, in eval mode; the model's mode is restored.

    Several processes embed a share each, and all get the whole.

    Args:
        model: images -> embeddings.
        table: the images.
        transform: of evaluation, see `transforms`.
        batch_size: images at once.
        workers: of the DataLoader.
        progress: show a progress bar.
        device: where to compute; None: where the model is.
    """
    rank, processes = world()
    mine = range(rank, len(table), processes)
    loader = DataLoader(
        ImageSet(table if processes == 1 else table.take(mine)),
        batch_size=batch_size,
        collate_fn=Collate(transform),
        num_workers=workers,
        generator=torch.Generator(),  # evaluating in the middle of training must not move torch's own
    )
    batches: Any = loader
    if progress and rank == 0:
        from tqdm import tqdm

        batches = tqdm(loader, desc="embedding", unit="batch", leave=False)
    where = torch.device(device) if device is not None else next(model.parameters()).device
    was_training = model.training
    model.to(where).eval()
    try:
        with torch.inference_mode():
            found = [model(images.to(where)).float().cpu() for images, _, _ in batches]
    finally:
        model.train(was_training)
    embeddings = torch.cat(found).clone()
    if processes == 1:
        return embeddings
    order = gather_rows(torch.tensor(mine))
    return torch.empty(len(table), embeddings.shape[1]).index_copy_(0, order, gather_rows(embeddings))


def evaluate_model(
    model: nn.Module,
    table: Table,
    transform: Any,
    settings: Mapping[str, Any],
    *,
    workers: int = 0,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Report, Tensor]:
    """Retrieval on a table by its protocol (`protocols.trials`): its Report and the embeddings.

    Several processes share the work.

    Args:
        model: images -> embeddings.
        table: test images.
        transform: of evaluation.
        settings: ks, batch_size, bootstrap, clusters.
        workers: of the DataLoader.
        seed: of bootstrap and k-means.
        device: where to compute; None: where the model is.
    """
    embeddings = embed(model, table, transform, batch_size=settings["batch_size"], workers=workers, device=device)
    reports = [
        _ranked(embeddings, table, trial, settings, seed=seed, device=device) for trial in trials(table, seed=seed)
    ]
    return _mean_report(reports), embeddings


def _ranked(
    embeddings: Tensor,
    table: Table,
    trial: Trial,
    settings: Mapping[str, Any],
    *,
    seed: int,
    device: torch.device | str | None,
) -> Report:
    """One evaluation: the queries of a trial against its gallery, or against one another."""
    query, gallery = trial.query, trial.gallery
    against: dict[str, Any] = {}
    if gallery is not None:
        against = {"ref_embeddings": embeddings[gallery], "ref_labels": table.label[gallery]}
    return evaluate(
        embeddings[query],
        table.label[query],
        **against,
        super_labels=None if table.super_label is None else table.super_label[query],
        class_names=table.class_names,
        super_names=table.super_names or None,
        ks=tuple(settings["ks"]),
        bootstrap=settings["bootstrap"],
        clusters=settings["clusters"],
        seed=seed,
        device=device,
        shared=True,
    )


def _mean_report(reports: Sequence[Report]) -> Report:
    """Of several drawn galleries the first one's report, with the means over all as values."""
    first = reports[0]
    if len(reports) == 1:
        return first
    over = over_draws([report.values for report in reports])
    spread = f"R@1 {100 * over['R@1'][0]:.1f} ± {100 * over['R@1'][1]:.1f} %" if "R@1" in over else "see values"
    note = f"values are means over {len(reports)} drawn galleries ({spread}); all else is of the first one."
    values = {name: mean for name, (mean, _) in over.items()}
    settings = {**first.settings, "protocol": f"one-gallery, {len(reports)} draws"}
    return replace(first, values=values, intervals={}, settings=settings, notes=(*first.notes, note))


def save_embeddings(path: Path, embeddings: Tensor, table: Table, more: Mapping[str, Any] | None = None) -> None:
    """One npz that `rankgrad evaluate` and anyone's numpy read: embeddings, labels, names, classes, super-labels.

    A division into queries and a gallery is kept: `ref_embeddings`, `ref_labels`, `ref_names`.

    Args:
        path: npz to write, replaced as a whole.
        embeddings: [image, dim].
        table: the images.
        more: further columns.
    """
    query: Any = slice(None)
    gallery: Tensor | None = None
    if table.protocol == "query_gallery":
        (trial,) = trials(table)
        query, gallery = trial.query, trial.gallery
    columns: dict[str, Any] = {
        **(more or {}),
        "embeddings": embeddings[query].numpy(),
        "labels": table.label[query].numpy(),
        "names": np.array(table.names)[query],
        "class_names": np.array(table.class_names),
    }
    if gallery is not None:
        columns["ref_embeddings"] = embeddings[gallery].numpy()
        columns["ref_labels"] = table.label[gallery].numpy()
        columns["ref_names"] = np.array(table.names)[gallery]
    if table.super_label is not None:
        columns["super_labels"] = table.super_label[query].numpy()
        columns["super_names"] = np.array(table.super_names)
    with replacing(path, ".npz") as temporary:
        np.savez(temporary, **columns)


def plain(config: DictConfig | Any) -> Any:
    """A configuration as plain Python values."""
    return OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config


__all__ = [
    "EpochList",
    "EvaluateEvery",
    "FeatureSet",
    "KeepFeatures",
    "RetrievalModule",
    "SaveState",
    "Schedule",
    "SetEpoch",
    "TrainingData",
    "embed",
    "evaluate_model",
    "plain",
    "save_embeddings",
]
