"""One training run: from a configuration to a folder with a model, its numbers and a page."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from omegaconf import DictConfig, OmegaConf
from torch import nn

from .._version import __version__
from ..config import ConfigError, load, make, named, packages, plain
from ..datasets.base import ImageSet, Table
from ..datasets.folder import find_images
from ..distributed import on_first, world
from ..evaluation import Report
from ..files import replacing, write_text
from ..index.embedder import Embedder, Origin, weights_of
from ..losses import RetrievalLoss
from ..memory import CrossBatchMemory, memory_buffers
from ..models.build import build_model
from ..models.embedding_model import EmbeddingModel, extract_features
from ..models.heads import head_only
from ..models.state_dicts import _misfits, read_plain
from ..models.weights import load_weights, save_weights
from ..report import read_run, write_report
from ..runs.embeddings import save_embeddings
from ..runs.folder import Run
from . import launch
from .callbacks import EvaluateEvery
from .data import FeatureSet, KeepFeatures, SetEpoch, TrainingData
from .health import Health
from .inference import embed
from .module import RetrievalModule
from .retrieval import evaluate_model
from .state import SaveState
from .tensorboard import Board

# What training depends on: a run goes on with these as they were when its state was saved.
FIXED = (
    *("seed", "frozen", "model", "loss", "memory", "sampler", "train", "optimizer", "derived"),
    *("data.train_transform", "data.load.shorter_side", "data.load.draft", "trainer.max_epochs", "trainer.precision"),
)

# What before | after shows, as far as it was computed.
HEADLINE = ("R@1", "R@4", "mAP@R", "AP", "NMI")


def open_run(config: DictConfig) -> tuple[Run, DictConfig]:
    """The run to train and its configuration: a new one, or the one to resume as it was made. Writes nothing.

    Raises:
        ConfigError: the folder to resume is no run, or the new folder holds one.
    """
    if config.resume is not None:
        run = Run(Path(config.resume))
        if not run.config.exists():
            raise ConfigError(f"nothing to resume: {run.config} does not exist. resume= takes the folder of a run")
        made = load(run.config, packages(config.get("trust")))
        made.trust = config.trust
        return run, made
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
    table: Table = make(config.data.load, slot="data", trust=packages(config.get("trust")))
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
        options = dict(plain(config.model))
        model = build_model(options.pop("kind"), in_channels=table.channels, **options)
    _check_pixels(config, model)
    classes = len(torch.unique(table.select("train").label))
    config.derived.num_classes = classes
    config.derived.embedding_size = model.embedding_size
    return model, _build_loss(config, images=len(table.select("train")))


def _build_loss(config: DictConfig, images: int) -> nn.Module:
    """The loss, with a memory if one is wanted; without, it is told that every batch is exactly P x K."""
    trust = packages(config.get("trust"))
    if config.get("memory"):
        return _remembering(config, make(config.loss, slot="loss", trust=trust), images)
    kind, promise = named(config.loss, slot="loss", trust=trust), {}
    if isinstance(kind, type) and issubclass(kind, RetrievalLoss):
        promise["positives"] = config.sampler.samples_per_class - 1 or None
    loss: nn.Module = make(config.loss, slot="loss", trust=trust, **promise)
    return loss


def _remembering(config: DictConfig, loss: nn.Module, images: int) -> nn.Module:
    """The loss with a memory, whose length is given in batches or images."""
    options = dict(plain(config.memory))
    options.pop("_target_")
    batches, size = options.pop("batches"), options.pop("size")
    if (batches is None) == (size is None):
        raise ConfigError(f"give memory.batches or memory.size, not both; got batches={batches}, size={size}")
    if batches is not None:
        size = batches * config.sampler.classes_per_batch * config.sampler.samples_per_class
    return CrossBatchMemory(loss, images if size == "auto" else size, **options)


def _check_pixels(config: DictConfig, model: EmbeddingModel) -> None:
    """Raise if the weights were trained on pixels of another mean and deviation than the data will have."""
    wanted = (tuple(model.pixel_mean), tuple(model.pixel_std))
    if wanted == ((0.0,) * len(wanted[0]), (1.0,) * len(wanted[1])):
        return  # nothing is asked for: no weights, or weights of our own
    given = tuple(OmegaConf.select(config, f"data.eval_transform.{name}") for name in ("mean", "std"))
    if None in given or all(
        torch.allclose(torch.tensor(a), torch.tensor(list(b)), atol=1e-3) for a, b in zip(wanted, given, strict=True)
    ):
        return
    mean, std = (str([round(v, 4) for v in values]).replace(" ", "") for values in wanted)
    raise ConfigError(
        f"these weights expect pixels of mean {mean} and deviation {std}; "
        f'add "data.train_transform.mean={mean}" "data.train_transform.std={std}"'
    )


def train(config: DictConfig, *, quiet: bool = False, started: Callable[[Path], object] | None = None) -> Run:
    """Train, evaluate before and after, write the folder; returns it. Resumes if `config.resume` names a run.

    Under torchrun each process calls this with the same configuration; the batch is divided between them.

    Args:
        config: composed by `config.compose`.
        quiet: no progress bars.
        started: told the folder as soon as it is known.
    """
    with launch.joined(config):
        return _train(config, quiet, started)


def _train(config: DictConfig, quiet: bool, started: Callable[[Path], object] | None) -> Run:
    run, config = on_first(lambda: open_run(config))
    if on_first(lambda: run.finished):
        return run
    first = world()[0] == 0
    _calm()
    if config.threads is not None:
        if not (isinstance(config.threads, int) and config.threads >= 1):
            raise ConfigError(f"threads must be an integer >= 1, or null for all cores; got {config.threads!r}")
        torch.set_num_threads(config.threads)
    L.seed_everything(config.seed, verbose=False)
    table = load_table(config)
    if first:
        print(table.summary(), flush=True)
    test = table.select(config.evaluation.split)
    train_table = table.select("train")
    # classes counted 0 .. C - 1 over the training set, as classifiers need them
    labels = torch.unique(train_table.label, return_inverse=True)[1]
    model, loss = build(config, table)
    trust = packages(config.get("trust"))
    eval_transform = make(config.data.eval_transform, slot="transform", trust=trust)
    settings = plain(config.evaluation)
    workers = config.data.workers
    data, to_train = _to_train(config, model, train_table, labels)
    optimizer, sub_batch = plain(config.optimizer), config.train.sub_batch
    module = RetrievalModule(to_train, loss, optimizer, sub_batch, data.sampler.even)

    def evaluated(current: nn.Module) -> tuple[Report, torch.Tensor]:
        return evaluate_model(current, test, eval_transform, settings, workers=workers, seed=config.seed, device=device)

    board = Board(test, config.seed) if "tensorboard" in (config.loggers or ()) else None

    def draw(report: Report, embeddings: torch.Tensor, values: bool = True) -> None:
        if board is not None:
            board.evaluated(trainer, report, embeddings, values=values)

    def during(current: nn.Module) -> Report:
        report, embeddings = evaluated(current)
        draw(report, embeddings, values=False)  # those are logged by `EvaluateEvery`
        return report

    trainer = _trainer(run, config, quiet or not first, during, [] if board is None else [board])
    device = trainer.strategy.root_device
    resumed = run.state if on_first(lambda: run.state.exists()) else None
    if resumed is not None:
        on_first(lambda: _check_state(run, config, module))
    # what can be wrong with the settings has been found by now; from here on there is something to resume
    fresh = on_first(lambda: _begin(run, config))
    if started is not None and first:
        started(run.folder)
    try:
        if fresh or not on_first(lambda: run.before.exists()):
            report, found = evaluated(model)
            on_first(lambda: write_text(run.before, report.to_json()))
            draw(report, found)
        if config.frozen:
            cache = run.folder / "features.pt"
            features = on_first(lambda: _features(cache, config, model, train_table, eval_transform, anew=fresh))
            data.dataset = FeatureSet(features, labels)
    except Exception:
        if fresh and first:
            run.config.unlink()  # nothing was trained: the folder stays free for settings that work
        raise

    module.kept = _fixed(load(run.config, trust))
    L.seed_everything(config.seed, verbose=False)  # what came before must not change what comes
    start = time.monotonic()
    _fit(trainer, module, data, resumed)
    seconds = time.monotonic() - start

    model = model.with_head(to_train) if config.frozen else model  # type: ignore[arg-type]
    after, embeddings = evaluated(model)
    draw(after, embeddings)
    if board is not None:
        board.finished(trainer, module.kept, after)
    facts = {
        "train_seconds": round(seconds, 1) if resumed is None else None,
        "steps": trainer.global_step,
        "rankgrad": __version__,
        "torch": torch.__version__,
        "lightning": L.__version__,
        "python": platform.python_version(),
        "processes": trainer.world_size,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }

    def write() -> None:
        save_weights(run.weights, model, {"data": plain(_absolute(config).data), "version": __version__})
        save_embeddings(run.folder / "embeddings.npz", embeddings, test)
        write_text(run.folder / "facts.json", json.dumps(facts, indent=1))
        write_report(run.folder / "report.html", [read_run(run, after=after, table=test, trust=trust)])
        write_text(run.after, after.to_json())

    on_first(write)
    return run


def _begin(run: Run, config: DictConfig) -> bool:
    """Make the folder and write the settings, unless a run is there to go on with; True if it is new."""
    fresh = not run.config.exists()
    run.folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        write_text(run.config, OmegaConf.to_yaml(_absolute(config), resolve=True))
    return fresh


def _absolute(config: DictConfig) -> DictConfig:
    """What a run keeps of its settings: paths are absolute, so that it can be resumed from any folder."""
    copy = config.copy()
    for key in ("init", "data.root", "data.cache_dir", "model.weights"):
        path = OmegaConf.select(copy, key)
        if path is not None:
            OmegaConf.update(copy, key, str(Path(path).absolute()))
    OmegaConf.set_struct(copy, False)
    copy.pop("trust", None)  # a folder that says itself what to trust would be trusted by whoever receives it
    return copy


def _to_train(
    config: DictConfig, model: EmbeddingModel, table: Table, labels: torch.Tensor
) -> tuple[TrainingData, nn.Module]:
    """Batches, and what learns from them: the model, or with frozen=true a new head for its features."""
    if not config.frozen:
        rows = ImageSet(_relabelled(table, labels))
        transform = make(config.data.train_transform, slot="transform", trust=packages(config.get("trust")))
        data = TrainingData(
            rows, labels, transform, config.sampler, config.seed, config.data.workers, table.super_label
        )
        return data, model
    if config.init is None:
        raise ConfigError("frozen=true trains a head on features of a trained network: say which one with init=RUN")
    if config.evaluation.every:
        raise ConfigError("evaluation.every needs a whole model, but frozen=true trains a head alone")
    head = head_only(model.feature_size, config.model.embedding_size, config.model.head)
    # the images stand in for their features until those are computed
    keep = KeepFeatures()
    data = TrainingData(ImageSet(table), labels, keep, config.sampler, config.seed, super_labels=table.super_label)
    return data, head


def _features(
    cache: Path, config: DictConfig, model: EmbeddingModel, table: Table, transform: Any, anew: bool
) -> torch.Tensor:
    """Features of the training images, computed once and kept in the run."""
    from torch.utils.data import DataLoader

    from ..datasets.transforms import Collate

    if cache.exists() and not anew:
        features: torch.Tensor = read_plain(cache)
        return features
    loader = DataLoader(
        ImageSet(table),
        batch_size=config.evaluation.batch_size,
        collate_fn=Collate(transform),
        num_workers=config.data.workers,
    )
    features, _, _ = extract_features(model, loader, progress=bool(config.trainer.enable_progress_bar))
    with replacing(cache) as temporary:
        torch.save(features, temporary)
    return features


def _trainer(
    run: Run, config: DictConfig, quiet: bool, evaluated: Callable[[nn.Module], Report], more: list[Callback]
) -> L.Trainer:
    bar = config.trainer.enable_progress_bar and not quiet
    callbacks: list[Callback] = [SetEpoch(), SaveState(run.state, config.checkpoint_minutes)]
    if config.get("health", True):  # a run of before there was such a setting has none
        callbacks.insert(0, Health(run.health, show=not quiet))  # before the state is saved: it is part of it
    callbacks[:0] = more
    if config.evaluation.every:
        callbacks.insert(0, EvaluateEvery(config.evaluation.every, evaluated))
    if bar:
        callbacks.append(TQDMProgressBar(refresh_rate=5))
    try:
        return L.Trainer(
            **{**plain(config.trainer), **launch.trainer_options(config), "enable_progress_bar": bar},
            default_root_dir=run.folder,
            logger=_loggers(run, config.loggers),
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
    except MisconfigurationException as error:
        raise ConfigError(f"trainer: {error}") from None


def _fit(trainer: L.Trainer, module: L.LightningModule, data: TrainingData, state: Path | None) -> None:
    """Train, from a saved state if there is one.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        # our own file: the configuration inside is not needed, and everything else in it is plain
        trainer.fit(module, datamodule=data, ckpt_path=state, weights_only=False)
    except SystemExit:  # what Lightning makes of both; the caller is to say how to go on
        raise KeyboardInterrupt from None
    finally:
        if trainer.interrupted and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, on_interrupt)  # Lightning leaves Ctrl-C switched off
    if trainer.interrupted:
        raise KeyboardInterrupt


def _fixed(config: DictConfig) -> dict[str, Any]:
    """The settings of `FIXED`, dotted."""
    found: dict[str, Any] = {}
    for name in FIXED:
        value = plain(OmegaConf.select(config, name))
        found |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _check_state(run: Run, config: DictConfig, module: RetrievalModule) -> None:
    """Raise if the saved state can't be read or belongs to other settings or another model; change nothing."""
    try:
        saved = torch.load(run.state, map_location="cpu", weights_only=False)
        kept, weights = saved["kept"], saved["state_dict"]
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ConfigError(
            f"{run.state} is damaged ({type(error).__name__}). Delete it, and resume= trains this run from its start"
        ) from None
    now = _fixed(config)
    changed = [f"{k} (then {kept.get(k)}, now {now.get(k)})" for k in {**kept, **now} if kept.get(k) != now.get(k)]
    if changed:
        raise ConfigError(
            f"{run.config} was changed since {run.state.name} was saved: {', '.join(changed)}. Change it back to "
            "resume, or start a new run with out="
        )
    memories = set(memory_buffers(module))  # they take the size of what is saved
    now_there, then_there = (
        {k: v for k, v in state.items() if k not in memories} for state in (module.state_dict(), weights)
    )
    misfits = _misfits(now_there, then_there)
    if misfits:
        raise ConfigError(f"{run.state} holds another model than {run.config} describes: {'; '.join(misfits)}")


def _relabelled(table: Table, labels: torch.Tensor) -> Table:
    """The table with classes counted from 0, names kept."""
    from dataclasses import replace

    kept = torch.unique(table.label).tolist()
    return replace(table, label=labels, class_names=tuple(table.class_names[i] for i in kept))


def _loggers(run: Run, names: Any) -> list[Logger]:
    known = ("csv", "tensorboard")
    if isinstance(names, str):
        raise ConfigError(f"loggers is a list such as loggers=[csv,tensorboard]; got {names!r}")
    loggers: list[Logger] = []
    for name in sorted(names):  # csv first: it wants its folder empty
        if name == "csv":
            # every attempt has its own file: the logger deletes what it finds
            logs = run.folder / "logs"
            attempt = len([*logs.glob("resumed-*")]) + logs.exists()
            loggers.append(CSVLogger(run.folder, name="logs", version=f"resumed-{attempt}" if attempt else ""))
        elif name == "tensorboard":
            loggers.append(TensorBoardLogger(run.folder, name="logs", version="tensorboard"))
        else:
            raise ConfigError(f"unknown logger {name!r}; known: {', '.join(known)}")
    return loggers


def embed_folder(
    source: Path,
    images: Path,
    out: Path | None = None,
    batch_size: int = 256,
    *,
    invert: bool = False,
    trust: Sequence[str] = (),
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Embed all images below a folder with the model of a run; returns (images, skipped files with reasons).

    The npz holds embeddings, names (paths relative to the folder), labels with class_names (the sub-folder), and what
    an index needs later: the absolute folder as `root`, `model` with its `sha256`, `invert`.

    Args:
        source: folder of a run, or its model.pt.
        images: the folder.
        out: npz to write; None: `embeddings_file(images)`.
        batch_size: images at once.
        invert: turn the images to their negatives first, see `embedding.Embedder`.
        trust: packages of your own classes, see `embedding.Embedder`.
    """
    weights_of(source)
    out = embeddings_file(images) if out is None else out
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: give a file in a folder that exists")
    embedder = Embedder.load(source, invert=invert, trust=trust)
    root = Path(os.path.abspath(images))  # without . and .., but links stay as they were named
    paths, skipped = find_images(root)
    if not paths:
        raise ValueError(f"no readable image below {images}" + (f"; {len(skipped)} files skipped" if skipped else ""))
    embedder.check_ground(paths)
    table = embedder.table(paths, root)
    embeddings = embed(embedder.model, table, embedder.transform, batch_size=batch_size, progress=True)
    origin = Origin(root, embedder.weights, embedder.sha256, invert)
    save_embeddings(out, embeddings, table, origin.columns())
    return len(paths), skipped


def embeddings_file(images: Path) -> Path:
    """Where the embeddings of a folder go if nobody says: NAME.npz in the folder you are in, NAME that of the images.

    >>> embeddings_file(Path("photos/birds/")).name
    'birds.npz'
    """
    return Path(f"{Path(os.path.abspath(images)).name or 'embeddings'}.npz")


def summary(run: Run) -> str:
    """Before | after in per cent, and where to look."""
    before, after = Report.from_json(run.before), Report.from_json(run.after)
    lines = [f"{'':>8} {'before':>8} {'after':>8}   95% interval"]
    for name in (n for n in HEADLINE if n in after.values):
        low, high = after.intervals.get(name, (float("nan"), float("nan")))
        interval = f"{100 * low:5.1f} - {100 * high:5.1f}" if low == low else ""
        lines.append(f"{name:>8} {100 * before.values[name]:8.1f} {100 * after.values[name]:8.1f}   {interval}")
    return "\n".join([*lines, "", f"run:    {run.folder}", f"report: {run.folder / 'report.html'}"])


def _calm() -> None:
    """Silence Lightning's advertisements and advice that does not apply; errors and our own words stay."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        *(".*treespec, LeafSpec.*", ".*many workers.*", ".*Checkpoint directory.*", ".*logging interval.*"),
        ".*your dataloader is not resumable.*",  # it is: the data module keeps the place
        ".*in eval mode at the start of training.*",  # model.freeze_batch_norm asks for it
    ):
        warnings.filterwarnings("ignore", message=message)
