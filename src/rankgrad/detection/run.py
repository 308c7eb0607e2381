"""Detection as a task: a detector, a loss that ranks or cross-entropy, and images in VOC's layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from torch import nn

from .._version import __version__
from ..config import ConfigError, load, make, packages, plain
from ..datasets.fingerprint import fingerprint
from ..distributed import GlobalBatch
from ..files import write_npz, write_text
from ..models.state_dicts import misfits, one_line, read_plain, write_plain
from ..runs.folder import Run
from ..training import runner
from .adapter import LossHandle, use_ap_loss
from .data import DetectionData, DetectionSet, training_options
from .memory import ScoreMemory
from .models import build_detector
from .page import write_page
from .training import DetectorModule, detect
from .voc import Scenes, load_voc
from .voc_ap import DetectionReport, Detections, evaluate_voc, read_content, table


@dataclass(frozen=True)
class EvaluatedDetections:
    """AP, and the detections that it was read off."""

    report: DetectionReport
    found: list[Detections]


class DetectionTask:
    """See `training.runner.Task`.

    Args:
        config: of the run.
        quiet: no progress bars.
        say: told images and objects by split.
    """

    def __init__(self, config: DictConfig, quiet: bool, say: runner.Say = runner.silent) -> None:
        self.config, self.quiet = config, quiet
        DetectionSet((), *_sides(config), **_training_options(config))  # its settings are checked before files are read
        self.scenes, self.test = load_scenes(config, config.data.train), load_scenes(config, config.data.test)
        say(f"train {self.scenes.summary()}\ntest  {self.test.summary()}")
        model, in_use = build(config, len(self.scenes.class_names))
        images = DetectionSet(self.scenes.scenes, *_sides(config), **_training_options(config), seed=config.seed)
        self.data = DetectionData(images, config.train.batch_size, config.seed, config.data.workers)
        optimizer = {**plain(config.optimizer), "extended": plain(config.get("extended"))}
        self.module = DetectorModule(model, optimizer, config.seed, in_use)
        parts = self.module.named_modules()
        self.memories: Sequence[str] = [f"{name}." for name, part in parts if isinstance(part, ScoreMemory)]
        keep = config.data.cache and bool(config.evaluation.every)
        self.test_images = DetectionSet(self.test.scenes, *_sides(config), cache=keep)

    def fingerprint(self) -> dict[str, Any]:
        """Take the fingerprint of both splits, with all boxes."""
        scenes = [*self.scenes.scenes, *self.test.scenes]
        objects = torch.cat([torch.cat([scene.boxes, scene.labels.unsqueeze(1)], 1) for scene in scenes])
        return fingerprint([scene.name for scene in scenes], objects, [scene.path for scene in scenes])

    def callbacks(self) -> list[Callback]:
        """None of its own."""
        return []

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """An untrained detector finds nothing worth a number."""

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedDetections]:
        """AP as VOC measures it."""
        detections = detect(
            model,
            self.test_images,
            batch_size=self.config.evaluation.batch_size,
            workers=self.config.data.workers,
            progress=bool(self.config.trainer.enable_progress_bar) and not self.quiet,
            device=trainer.strategy.root_device,
        )
        report = evaluate(detections, self.test, self.config)
        return report.values, EvaluatedDetections(report, detections)

    def trained(self) -> nn.Module:
        """The detector."""
        return self.module.model

    def write(self, run: Run, result: EvaluatedDetections, facts: dict[str, Any]) -> str:
        """Weights, detections, facts and page; the report comes last."""
        _save_model(run.weights, self.module.model, self.config, self.scenes.class_names)
        save_detections(run.detections, result.found, self.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        trust = packages(self.config.get("trust"))
        write_page(run.page, plain(self.config), result.report, result.found, self.test, run, trust)
        return result.report.to_json()


def load_scenes(config: DictConfig, split: str) -> Scenes:
    """The images of a split of a configuration's data."""
    return load_voc(config.data.root, split, plain(config.data.classes))


def build(config: DictConfig, classes: int) -> tuple[nn.Module, LossHandle | None]:
    """The detector, and the loss that is in the place of its cross-entropy, if any."""
    options = dict(plain(config.model))
    model = build_detector(options.pop("kind"), classes, (config.data.sides[0], config.data.sides[1]), **options)
    if config.init is not None:
        source = Path(config.init)
        state = _read(Run(source).weights if source.is_dir() else source)["state"]
        wrong = misfits(dict(model.state_dict()), state)
        if wrong:
            raise ConfigError(f"{source} holds another model than these settings describe: {'; '.join(wrong)}")
        model.load_state_dict(state)
    if config.loss.get("_target_") is None:
        return model, None
    given = OmegaConf.create({key: value for key, value in config.loss.items() if key != "name"})
    loss = make(given, slot="loss", trust=packages(config.get("trust")), where="loss")
    # over the proposals of all processes; wrapped for one process, too, so that a state fits any number
    return model, use_ap_loss(model, GlobalBatch(loss), **plain(config.ranking))


def evaluate(detections: Sequence[Detections], test: Scenes, config: DictConfig) -> DetectionReport:
    """AP of detections by the settings of a run."""
    settings = {"data": config.data.name, "split": test.name, "loss": config.loss.name, "seed": config.seed}
    return evaluate_voc(
        detections, test.scenes, test.class_names, config.evaluation.ious, config.evaluation.inclusive, settings
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
    run = Run(folder)
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
    detections = detect(
        model, images, batch_size=config.evaluation.batch_size, workers=config.data.workers, progress=progress
    )
    report = evaluate(detections, test, config)
    if page is not None:
        write_page(page, plain(config), report, detections, test)
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
    wrong = misfits(model.state_dict(), saved["state"])
    if wrong:
        raise ValueError(f"{path} does not fit the detector that it describes: {'; '.join(wrong)}")
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
    write_plain(path, content)


def save_detections(path: Path, detections: Sequence[Detections], test: Scenes) -> None:
    """One npz that numpy reads: image (row of names), boxes, labels, scores, names, class_names."""
    counts = [len(each.scores) for each in detections]
    columns: dict[str, Any] = {
        "image": np.repeat(np.arange(len(detections)), counts),
        "boxes": torch.cat([each.boxes for each in detections]).numpy(),
        "labels": torch.cat([each.labels for each in detections]).numpy(),
        "scores": torch.cat([each.scores for each in detections]).numpy(),
        "names": np.array([scene.name for scene in test.scenes]),
        "class_names": np.array(test.class_names),
    }
    write_npz(path, columns)


def _sides(config: DictConfig) -> tuple[int, int]:
    shorter, longer = config.data.sides
    return shorter, longer


def _training_options(config: DictConfig) -> dict[str, Any]:
    return {**training_options(config.train), "cache": config.data.cache}


TASK: runner.TaskType[EvaluatedDetections] = runner.TaskType(
    "detection", lambda config: f"{config.data.name}-{config.loss.name}", DetectionTask
)


def train(
    config: DictConfig,
    *,
    changes: Sequence[str] = (),
    quiet: bool = False,
    started: Callable[[Path], object] | None = None,
) -> Run:
    """Train a detector, evaluate it, write the folder; see `training.runner.train`.

    Args:
        config: composed by `config.compose(..., "detect")`.
        changes: settings of a resumed run that are to be others.
        quiet: no progress bars.
        started: told the folder as soon as there is something to go on with.
    """
    return runner.train(TASK, config, changes=changes, quiet=quiet, started=started)


def summary(run: Run) -> str:
    """AP per class as a table, and where to look."""
    return "\n".join([table(read_content(run.after)), "", f"run:    {run.folder}", f"report: {run.page}"])
