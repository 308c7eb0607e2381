"""One detector: from a configuration to a folder with the model, its AP and a page."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from omegaconf import DictConfig, OmegaConf
from torch import nn

from .._version import __version__
from ..config import ConfigError, load, make, packages, plain
from ..distributed import GlobalBatch, on_first, world
from ..files import read_json, replacing, write_text
from ..models.state_dicts import _misfits, one_line, read_plain
from ..runs.folder import Run, curves
from ..training import launch
from ..training.callbacks import EvaluateEvery
from ..training.data import SetEpoch
from ..training.runner import _begin, _calm, _fit, _loggers
from ..training.state import SaveState
from .adapter import LossInUse, use_ap_loss
from .data import DetectionData, DetectionSet
from .memory import ScoreMemory
from .models import build_detector
from .page import flat, write_page
from .pictures import marks, thresholds
from .training import DetectorModule, detect
from .voc import Scenes, load_voc
from .voc_ap import DetectionReport, Detections, evaluate_voc, table

METRICS = "metrics.json"  # the last file of a run: it is finished
# What training depends on: a run goes on with these as they were when its state was saved.
FIXED = (
    *("seed", "model", "loss", "ranking", "train", "optimizer"),
    *("data.train", "data.classes", "data.sides", "trainer.max_epochs", "trainer.precision"),
)


class DetectorRun(Run):
    """The folder of a detector's run."""

    @property
    def after(self) -> Path:
        """AP of the trained model; its presence means that the run is finished."""
        return self.folder / METRICS


def open_run(config: DictConfig) -> tuple[DetectorRun, DictConfig]:
    """The run to train and its configuration: a new one, or the one to resume as it was made. Writes nothing.

    Raises:
        ConfigError: the folder to resume is no run of a detector, or the new folder holds a run.
    """
    if config.resume is not None:
        run = DetectorRun(Path(config.resume))
        if not run.config.exists():
            raise ConfigError(f"nothing to resume: {run.config} does not exist. resume= takes the folder of a run")
        made = load(run.config, packages(config.get("trust")))
        if "ranking" not in made:
            raise ConfigError(f"{run.folder} is no detector's run: continue it with rankgrad train resume={run.folder}")
        made.trust = config.trust
        return run, made
    if config.out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        config.out = str(Path("runs") / f"{config.data.name}-{config.loss.name}-{stamp}")
    run = DetectorRun(Path(config.out))
    if run.config.exists():
        raise ConfigError(f"{run.folder} holds a run already: continue it with resume={run.folder}, or choose out=")
    return run, config


def load_scenes(config: DictConfig, split: str) -> Scenes:
    """The images of a split of a configuration's data."""
    return load_voc(config.data.root, split, plain(config.data.classes))


def build(config: DictConfig, classes: int) -> tuple[nn.Module, LossInUse | None]:
    """The detector, and the loss that is in the place of its cross-entropy, if any."""
    options = dict(plain(config.model))
    model = build_detector(options.pop("kind"), classes, (config.data.sides[0], config.data.sides[1]), **options)
    if config.init is not None:
        source = Path(config.init)
        state = _read(Run(source).weights if source.is_dir() else source)["state"]
        misfits = _misfits(dict(model.state_dict()), state)
        if misfits:
            raise ConfigError(f"{source} holds another model than these settings describe: {'; '.join(misfits)}")
        model.load_state_dict(state)
    if config.loss.get("_target_") is None:
        return model, None
    given = OmegaConf.create({key: value for key, value in config.loss.items() if key != "name"})
    loss = make(given, slot="loss", trust=packages(config.get("trust")), where="loss")
    # over the proposals of all processes; wrapped for one process, too, so that a state fits any number
    return model, use_ap_loss(model, GlobalBatch(loss), **plain(config.ranking))


def train(config: DictConfig, *, quiet: bool = False, started: Callable[[Path], object] | None = None) -> DetectorRun:
    """Train a detector, evaluate it, write the folder; returns it. Resumes if `config.resume` names a run.

    Args:
        config: composed by `config.compose(..., "detect")`.
        quiet: no progress bars.
        started: told the folder as soon as it is known.
    """
    with launch.joined(config):
        return _train(config, quiet, started)


def _train(config: DictConfig, quiet: bool, started: Callable[[Path], object] | None) -> DetectorRun:
    run, config = on_first(lambda: open_run(config))
    if on_first(lambda: run.finished):
        return run
    first = world()[0] == 0
    _calm()
    if config.threads is not None:
        if not (isinstance(config.threads, int) and config.threads >= 1):
            raise ConfigError(f"threads must be an integer >= 1, or null for all cores; got {config.threads!r}")
        torch.set_num_threads(config.threads)
    scenes, test = load_scenes(config, config.data.train), load_scenes(config, config.data.test)
    if first:
        print(f"train {scenes.summary()}\ntest  {test.summary()}", flush=True)
    L.seed_everything(config.seed, verbose=False)
    model, in_use = build(config, len(scenes.class_names))
    images = DetectionSet(scenes.scenes, *_sides(config), **_training_options(config), seed=config.seed)
    data = DetectionData(images, config.train.batch_size, config.seed, config.data.workers)
    module = DetectorModule(model, plain(config.optimizer), config.seed, in_use)
    test_images = DetectionSet(test.scenes, *_sides(config), cache=config.data.cache and bool(config.evaluation.every))

    def evaluated(current: nn.Module) -> tuple[DetectionReport, list[Detections]]:
        found = detect(
            current,
            test_images,
            batch_size=config.evaluation.batch_size,
            workers=config.data.workers,
            progress=bool(config.trainer.enable_progress_bar) and not quiet,
            device=device,
        )
        return evaluate(found, test, config), found

    trainer = _trainer(run, config, quiet or not first, lambda current: evaluated(current)[0])
    device = trainer.strategy.root_device
    resumed = run.state if on_first(lambda: run.state.exists()) else None
    if resumed is not None:
        on_first(lambda: _check_state(run, config, module))
    on_first(lambda: _begin(run, config))
    if started is not None and first:
        started(run.folder)
    module.kept = _fixed(load(run.config, packages(config.get("trust"))))
    start, used = time.monotonic(), time.process_time()
    _fit(trainer, module, data, resumed)  # type: ignore[arg-type]
    seconds, used = time.monotonic() - start, time.process_time() - used
    report, found = evaluated(model)
    facts = {
        "train_seconds": round(seconds, 1) if resumed is None else None,
        "train_cpu_seconds": round(used, 1) if resumed is None else None,
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
        _save_model(run.weights, model, config, scenes.class_names)
        save_detections(run.folder / "detections.npz", found, test)
        write_text(run.folder / "facts.json", json.dumps(facts, indent=1))
        _page(run.folder / "report.html", config, report, found, test, run, facts)
        write_text(run.after, report.to_json())

    on_first(write)
    return run


def _trainer(
    run: DetectorRun, config: DictConfig, quiet: bool, evaluated: Callable[[nn.Module], DetectionReport]
) -> L.Trainer:
    bar = config.trainer.enable_progress_bar and not quiet
    callbacks: list[Callback] = [SetEpoch(), SaveState(run.state, config.checkpoint_minutes)]
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


def evaluate(found: Sequence[Detections], test: Scenes, config: DictConfig) -> DetectionReport:
    """AP of detections by the settings of a run."""
    settings = {"data": config.data.name, "split": test.name, "loss": config.loss.name, "seed": config.seed}
    return evaluate_voc(
        found, test.scenes, test.class_names, config.evaluation.ious, config.evaluation.inclusive, settings
    )


def evaluate_run(
    folder: Path,
    *,
    root: Path | None = None,
    split: str | None = None,
    ious: Sequence[float] | None = None,
    inclusive: bool | None = None,
    page: Path | None = None,
    progress: bool = False,
    trust: Sequence[str] = (),
) -> DetectionReport:
    """AP of the model of a run on a split of its data, or of other data with the same classes.

    Args:
        folder: of a finished run.
        root: of other data; None: that of the run.
        split: None: the run's test split.
        ious: thresholds of overlap; None: those of the run.
        inclusive: see `voc_ap`; None: as the run has it.
        page: also write a page about it.
        progress: show a progress bar.
        trust: packages whose classes the settings may name, see `config.load`.

    Raises:
        FileNotFoundError: there is no model.
    """
    run = DetectorRun(folder)
    if not run.weights.exists():
        raise FileNotFoundError(f"{run.weights} does not exist: give the folder of a finished run of a detector")
    config = load(run.config, trust)
    if root is not None:
        config.data.root = str(root.absolute())
    if ious is not None:
        config.evaluation.ious = list(ious)
    if inclusive is not None:
        config.evaluation.inclusive = inclusive
    model, names = load_detector(run.weights)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    test = load_voc(config.data.root, split or config.data.test, names)
    images = DetectionSet(test.scenes, *_sides(config))
    found = detect(
        model, images, batch_size=config.evaluation.batch_size, workers=config.data.workers, progress=progress
    )
    report = evaluate(found, test, config)
    if page is not None:
        _page(page, config, report, found, test, None, {})
    return report


def load_detector(path: Path) -> tuple[nn.Module, tuple[str, ...]]:
    """A trained detector in evaluation mode, and its classes; `model([image])` takes float images of any size.

    Raises:
        ValueError: the file is no detector of ours.
    """
    saved = _read(path)
    options = (
        {**saved["model"], "pretrained": False, "weights": None} if "backbone" in saved["model"] else saved["model"]
    )
    options = dict(options)
    kind = options.pop("kind")
    if kind == "faster_rcnn":
        options |= {"trainable_stages": 5}
    names = tuple(saved["class_names"])
    try:
        model = build_detector(kind, len(names), tuple(saved["sides"]), **options)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} describes a detector that can't be built: {one_line(error)}") from error
    misfits = _misfits(model.state_dict(), saved["state"])
    if misfits:
        raise ValueError(f"{path} does not fit the detector that it describes: {'; '.join(misfits)}")
    model.load_state_dict(saved["state"])
    return model.eval(), names


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a run's folder, or its model.pt")
    saved = read_plain(path)
    if not isinstance(saved, dict) or not {"state", "model", "class_names", "sides"} <= set(saved):
        raise ValueError(f"{path} is no model of rankgrad detect train")
    kinds = {"state": dict, "model": dict, "class_names": list, "sides": list}
    wrong = [name for name, kind in kinds.items() if not isinstance(saved[name], kind)]
    if wrong or not isinstance(saved["model"].get("kind"), str) or not _tensors(saved["state"]):
        raise ValueError(f"{path} is damaged: {', '.join(wrong) or 'model and state'} not as rankgrad writes it")
    return saved


def _tensors(state: dict[str, Any]) -> bool:
    return all(isinstance(value, torch.Tensor) for value in state.values())


def _save_model(path: Path, model: nn.Module, config: DictConfig, names: Sequence[str]) -> None:
    state = {key: value.cpu() for key, value in model.state_dict().items()}
    content = {
        "state": state,
        "model": plain(config.model),
        "sides": plain(config.data.sides),
        "class_names": list(names),
        "version": __version__,
    }
    with replacing(path) as temporary:
        torch.save(content, temporary)


def save_detections(path: Path, found: Sequence[Detections], test: Scenes) -> None:
    """One npz that numpy reads: image (row of names), boxes, labels, scores, names, class_names."""
    counts = [len(each.scores) for each in found]
    columns: dict[str, Any] = {
        "image": np.repeat(np.arange(len(found)), counts),
        "boxes": torch.cat([each.boxes for each in found]).numpy(),
        "labels": torch.cat([each.labels for each in found]).numpy(),
        "scores": torch.cat([each.scores for each in found]).numpy(),
        "names": np.array([scene.name for scene in test.scenes]),
        "class_names": np.array(test.class_names),
    }
    with replacing(path, ".npz") as temporary:
        np.savez(temporary, **columns)


def _page(
    path: Path,
    config: DictConfig,
    report: DetectionReport,
    found: Sequence[Detections],
    test: Scenes,
    run: DetectorRun | None,
    facts: dict[str, Any],
) -> None:
    first = next(iter(report.by_iou))
    marked = marks(found, test.scenes, test.class_names, thresholds(report, first), first, report.inclusive)
    notes = []
    if test.left_out:
        notes.append(f"{len(test.left_out)} boxes without area were left out of the test images.")
    if report.inclusive:
        notes.append("A pixel was added to widths and heights before overlaps were taken.")
    write_page(
        path,
        title=f"{config.data.name}, {test.name}: {config.model.kind}, {config.loss.name}, seed {config.seed}",
        report=report,
        scenes=test.scenes,
        marked=marked,
        curves={} if run is None else curves(run),
        settings=flat({**plain(config), "facts": facts}),
        notes=notes,
        pictures=config.evaluation.pictures,
        seed=config.seed,
    )


def _sides(config: DictConfig) -> tuple[int, int]:
    shorter, longer = config.data.sides
    return shorter, longer


def _training_options(config: DictConfig) -> dict[str, Any]:
    train = config.train
    return {"difficult": train.difficult, "flip": train.flip, "upend": train.upend, "cache": config.data.cache}


def _fixed(config: DictConfig) -> dict[str, Any]:
    """The settings of `FIXED`, dotted."""
    found: dict[str, Any] = {}
    for name in FIXED:
        value = plain(OmegaConf.select(config, name))
        found |= flat({name: value}) if isinstance(value, dict) else {name: value}
    return found


def _check_state(run: DetectorRun, config: DictConfig, module: DetectorModule) -> None:
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
    memories = [name for name, part in module.named_modules() if isinstance(part, ScoreMemory)]
    here, then = (
        {key: value for key, value in state.items() if not key.startswith(tuple(f"{m}." for m in memories))}
        for state in (module.state_dict(), weights)
    )
    misfits = _misfits(here, then)
    if misfits:
        raise ConfigError(f"{run.state} holds another model than {run.config} describes: {'; '.join(misfits)}")


def summary(run: DetectorRun) -> str:
    """AP per class as a table, and where to look."""
    content = read_json(run.after)
    return "\n".join([table(content), "", f"run:    {run.folder}", f"report: {run.folder / 'report.html'}"])
