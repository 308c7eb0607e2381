"""One training run: from a configuration to a folder with a model, its numbers and a page."""

from __future__ import annotations

import csv
import json
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from omegaconf import DictConfig, OmegaConf
from torch import nn

from . import training
from ._version import __version__
from .config import ConfigError, load, make
from .datasets.base import ImageSet, Table
from .datasets.folder import find_images
from .evaluation import Report
from .models import EmbeddingModel, build_model, extract_features, load_weights, save_weights
from .report.html import retrieval_gallery, write_report

# What before | after shows, as far as it was computed.
HEADLINE = ("R@1", "R@4", "mAP@R", "AP", "NMI")


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        folder: where everything is.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """Configuration."""
        return self.folder / "config.yaml"

    @property
    def state(self) -> Path:
        """To resume."""
        return self.folder / training.STATE

    @property
    def weights(self) -> Path:
        """Model after training."""
        return self.folder / "model.pt"

    @property
    def before(self) -> Path:
        """Report of the untrained model."""
        return self.folder / "before.json"

    @property
    def after(self) -> Path:
        """Report of the trained model; its presence means that the run is finished."""
        return self.folder / "after.json"

    @property
    def finished(self) -> bool:
        """True once the last file is written."""
        return self.after.exists()


def open_run(config: DictConfig) -> tuple[Run, DictConfig]:
    """The run to train and its configuration: a new one, or the one to resume as it was made. Writes nothing.

    Raises:
        ConfigError: the folder to resume is no run, or the new folder holds one.
    """
    if config.resume is not None:
        run = Run(Path(config.resume))
        if not run.config.exists():
            raise ConfigError(f"nothing to resume: {run.config} does not exist. resume= takes the folder of a run")
        return run, load(run.config)
    if config.out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        config.out = str(Path("runs") / f"{config.data.name}-{_loss_name(config)}-{stamp}")
    run = Run(Path(config.out))
    if run.config.exists():
        raise ConfigError(f"{run.folder} holds a run already: continue it with resume={run.folder}, or choose out=")
    return run, config


def _loss_name(config: DictConfig) -> str:
    return str(OmegaConf.select(config, "loss._target_")).rsplit(".", 1)[-1]


def load_table(config: DictConfig) -> Table:
    """The images of a configuration."""
    table: Table = make(config.data.load)
    return table


def build(config: DictConfig, table: Table) -> tuple[EmbeddingModel, nn.Module]:
    """Model and loss; `derived` is filled in for losses that need the number of classes."""
    if config.init is not None:
        source = Path(config.init)
        model, _ = load_weights(Run(source).weights if source.is_dir() else source)
        if model.in_channels != table.channels:
            raise ConfigError(
                f"{source} sees {model.in_channels}-channel images but {config.data.name} has {table.channels} channels"
            )
        model.train()
    else:
        options = dict(training.plain(config.model))
        model = build_model(options.pop("kind"), in_channels=table.channels, **options)
    classes = len(torch.unique(table.select("train").label))
    config.derived.num_classes = classes
    config.derived.embedding_size = model.embedding_size
    loss: nn.Module = make(config.loss)
    return model, loss


def train(config: DictConfig, *, quiet: bool = False, started: Callable[[Path], object] | None = None) -> Run:
    """Train, evaluate before and after, write the folder; returns it. Resumes if `config.resume` names a run.

    Args:
        config: composed by `config.compose`.
        quiet: no progress bars.
        started: told the folder as soon as it is known.
    """
    run, config = open_run(config)
    if run.finished:
        return run
    _calm()
    if config.threads:
        torch.set_num_threads(config.threads)
    L.seed_everything(config.seed, verbose=False)
    table = load_table(config)
    print(table.summary())
    test = table.select(config.evaluation.split)
    train_table = table.select("train")
    # classes counted 0 .. C - 1 over the training set, as classifiers need them
    labels = torch.unique(train_table.label, return_inverse=True)[1]
    model, loss = build(config, table)
    # what can be wrong with the settings has been found by now; from here on there is something to resume
    run.folder.mkdir(parents=True, exist_ok=True)
    if not run.config.exists():
        _write(run.config, OmegaConf.to_yaml(config, resolve=True))
    if started is not None:
        started(run.folder)
    eval_transform = make(config.data.eval_transform)
    settings = training.plain(config.evaluation)
    workers = config.data.workers

    def evaluated(current: nn.Module) -> tuple[Report, torch.Tensor]:
        return training.evaluate_model(current, test, eval_transform, settings, workers=workers, seed=config.seed)

    if not run.before.exists():
        report, _ = evaluated(model)
        _write(run.before, report.to_json())
    before = Report.from_json(run.before)

    to_train: nn.Module = model
    if config.frozen:
        data, to_train = _frozen(run, config, model, train_table, labels, eval_transform)
    else:
        rows = ImageSet(_relabelled(train_table, labels))
        transform = make(config.data.train_transform)
        data = training.TrainingData(rows, labels, transform, config.sampler, config.seed, workers)

    L.seed_everything(config.seed, verbose=False)  # what came before must not change what comes
    module = training.RetrievalModule(to_train, loss, training.plain(config.optimizer))
    save = training.SaveState(run.state, config.checkpoint_minutes)
    callbacks: list[Callback] = [training.SetEpoch(), save]
    if config.evaluation.every:
        if config.frozen:
            raise ConfigError("evaluation.every needs a whole model, but frozen=true trains a head alone")
        every = training.EvaluateEvery(config.evaluation.every, lambda current: evaluated(current)[0])
        callbacks.insert(0, every)
    bar = config.trainer.enable_progress_bar and not quiet
    if bar:
        callbacks.append(TQDMProgressBar(refresh_rate=5))
    trainer = L.Trainer(
        **{**training.plain(config.trainer), "enable_progress_bar": bar},
        default_root_dir=run.folder,
        logger=_loggers(run, config.loggers),
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    start = time.monotonic()
    resumed = run.state if run.state.exists() else None
    # our own file: the configuration inside is not needed, and everything else in it is plain
    trainer.fit(module, datamodule=data, ckpt_path=resumed, weights_only=False)
    if trainer.interrupted:
        raise KeyboardInterrupt
    seconds = time.monotonic() - start

    model = model.with_head(to_train) if config.frozen else model  # type: ignore[arg-type]
    after, embeddings = evaluated(model)
    save_weights(run.weights, model, {"data": training.plain(config.data), "version": __version__})
    training.save_embeddings(run.folder / "embeddings.npz", embeddings, test)
    facts = {
        "train_seconds": round(seconds, 1) if resumed is None else None,
        "steps": trainer.global_step,
        "rankgrad": __version__,
        "torch": torch.__version__,
        "lightning": L.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "device": str(trainer.strategy.root_device),
    }
    _write(run.folder / "facts.json", json.dumps(facts, indent=1))
    _page(run, config, before, after, embeddings, test, facts)
    _write(run.after, after.to_json())
    return run


def _frozen(
    run: Run, config: DictConfig, model: EmbeddingModel, table: Table, labels: torch.Tensor, transform: Any
) -> tuple[training.TrainingData, nn.Module]:
    """Features of the training images, computed once and kept in the run, and a new head for them."""
    from torch.utils.data import DataLoader

    from .models import head_only
    from .transforms import Collate

    if config.init is None:
        raise ConfigError("frozen=true trains a head on features of a trained network: say which one with init=RUN")
    cache = run.folder / "features.pt"
    if cache.exists():
        features = torch.load(cache, weights_only=True)
    else:
        loader = DataLoader(
            ImageSet(table),
            batch_size=config.evaluation.batch_size,
            collate_fn=Collate(transform),
            num_workers=config.data.workers,
        )
        features, _, _ = extract_features(model, loader, progress=bool(config.trainer.enable_progress_bar))
        temporary = cache.with_suffix(".tmp")
        torch.save(features, temporary)
        os.replace(temporary, cache)
    size = config.model.embedding_size
    head = head_only(features.shape[1], size, config.model.head)
    dataset = training.FeatureSet(features, labels)
    data = training.TrainingData(dataset, labels, training.KeepFeatures(), config.sampler, config.seed)
    return data, head


def _relabelled(table: Table, labels: torch.Tensor) -> Table:
    """The table with classes counted from 0, names kept."""
    from dataclasses import replace

    kept = torch.unique(table.label).tolist()
    return replace(table, label=labels, class_names=tuple(table.class_names[i] for i in kept))


def _loggers(run: Run, names: Any) -> list[Logger]:
    known: dict[str, type[CSVLogger] | type[TensorBoardLogger]] = {"csv": CSVLogger, "tensorboard": TensorBoardLogger}
    loggers: list[Logger] = []
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown logger {name!r}; known: {', '.join(known)}")
        loggers.append(known[name](run.folder, name="logs", version=""))
    return loggers


def curves(run: Run) -> dict[str, list[tuple[float, float]]]:
    """What was logged: name -> (step, value)."""
    found: dict[str, list[tuple[float, float]]] = {}
    path = run.folder / "logs" / "metrics.csv"
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                for name, value in row.items():
                    if value and name not in ("step", "epoch"):
                        found.setdefault(name, []).append((float(row["step"]), float(value)))
    return found


def _page(
    run: Run,
    config: DictConfig,
    before: Report,
    after: Report,
    embeddings: torch.Tensor,
    table: Table,
    facts: Mapping[str, object],
) -> None:
    images = ImageSet(table)
    gallery = retrieval_gallery(
        lambda row: images[row][0], embeddings, table.label, table.class_names, names=table.names, seed=config.seed
    )
    write_report(
        run.folder / "report.html",
        title=f"{config.data.name}: {_loss_name(config)}",
        config={**training.plain(config), "facts": dict(facts)},
        curves=curves(run),
        before=before,
        after=after,
        gallery=gallery,
        notes=[f"{len(table.skipped)} files could not be read and were left out."] if table.skipped else [],
    )


def embed_folder(
    source: Path, images: Path, out: Path, batch_size: int = 256
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Embed all images below a folder with the model of a run; returns (images, skipped files with reasons).

    The npz holds embeddings, names (paths relative to the folder), and labels with class_names: the sub-folder.

    Args:
        source: folder of a run, or its model.pt.
        images: the folder.
        out: npz to write.
        batch_size: images at once.
    """
    path = Run(source).weights if source.is_dir() else source
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a finished run, or its model.pt")
    model, extra = load_weights(path)
    paths, skipped = find_images(images)
    if not paths:
        raise ValueError(f"no readable image below {images}" + (f"; {len(skipped)} files skipped" if skipped else ""))
    names = [str(p.relative_to(images)) for p in paths]
    folders = [str(Path(name).parent) for name in names]
    classes = sorted(set(folders))
    table = Table(
        name=str(images),
        label=torch.tensor([classes.index(folder) for folder in folders]),
        class_names=tuple(classes),
        split=("test",) * len(paths),
        names=tuple(names),
        channels=model.in_channels,
        paths=paths,
        skipped=skipped,
    )
    transform = make(extra["data"]["eval_transform"])
    embeddings = training.embed(model, table, transform, batch_size=batch_size, progress=True)
    training.save_embeddings(out, embeddings, table)
    return len(paths), skipped


def summary(run: Run) -> str:
    """Before | after in per cent, and where to look."""
    before, after = Report.from_json(run.before), Report.from_json(run.after)
    lines = [f"{'':>8} {'before':>8} {'after':>8}   95% interval"]
    for name in (n for n in HEADLINE if n in after.values):
        low, high = after.intervals.get(name, (float("nan"), float("nan")))
        interval = f"{100 * low:5.1f} - {100 * high:5.1f}" if low == low else ""
        lines.append(f"{name:>8} {100 * before.values[name]:8.1f} {100 * after.values[name]:8.1f}   {interval}")
    return "\n".join([*lines, "", f"run:    {run.folder}", f"report: {run.folder / 'report.html'}"])


def _write(path: Path, text: str) -> None:
    """Atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _calm() -> None:
    """Silence Lightning's advertisements and advice that does not apply; errors and our own words stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (".*treespec, LeafSpec.*", ".*many workers.*", ".*Checkpoint directory.*", ".*logging interval.*"):
        warnings.filterwarnings("ignore", message=message)
