"""Detection as a task: a detector, a rank loss or cross-entropy, and images with boxes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from rankgrad.batches.distributed import GlobalBatch, on_first
from rankgrad.common.checks import integer
from rankgrad.common.files import write_npz, write_text
from rankgrad.datasets.fingerprint import fingerprint
from rankgrad.losses.score_memory import ScoreMemory
from rankgrad.models.state_dicts import is_state_dict, misfits, no_larger_than, one_line, read_plain, write_plain
from rankgrad.workbench.config import ConfigError, load, make, packages, plain, section, typed
from rankgrad.workbench.runs.folder import Run, check_kind
from rankgrad.workbench.runs.warned import other_counts
from rankgrad.workbench.training import runner

from ._version import __version__
from .adapter import LossHandle, use_ap_loss
from .check import off_counts
from .coco_ap import coco_ap
from .data import DetectionData, DetectionSet
from .formats import AUTO, format_of, load_scenes
from .models import build_detector
from .page import write_page
from .scenes import Scenes
from .settings import DetectionImages, DetectorSettings
from .task import DETECTIONS
from .training import DetectorModule, detect
from .voc_ap import LEARNED, DetectionReport, Detections, check_ious, evaluate_voc, read_content, table


@dataclass(frozen=True)
class EvaluatedDetections:
    """AP, and the detections from which it was computed."""

    report: DetectionReport
    found: list[Detections]


class DetectionTask:
    """See `training.runner.Task`.

    Args:
        config: the run's settings, plain and nested.
        quiet: no progress bars.
        say: function that gets a text with the images and objects of each split.
    """

    settled: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, config: Mapping[str, Any], quiet: bool, say: runner.Say = runner.silent) -> None:
        settings = typed(DetectorSettings, config)
        self.config, self.settings, self.quiet, self.trust = config, settings, quiet, packages(config.get("trust"))
        data, train = settings.data, settings.train
        changed: dict[str, Any] = {"flip": train.flip, "vertical_flip": train.vertical_flip, "seed": settings.seed}
        changed |= {"difficult": train.difficult, "cache": data.cache}
        # check the settings before files are read, and before a long training
        if len(data.sides) != 2:
            raise ConfigError(f"data.sides must be two sides in pixels, shorter and longer; got {list(data.sides)}")
        with section("data.sides"):
            DetectionSet((), *data.sides)
        with section("train"):
            DetectionSet((), 1, 1, **changed)
        with section("evaluation"):
            check_ious(settings.evaluation.ious)
        integer(settings.evaluation.batch_size, "evaluation.batch_size counts images", low=1)
        integer(settings.evaluation.every, "evaluation.every counts epochs", low=0)
        kind = format_of(data.root, data.format)
        self.scenes = load_scenes(data.root, data.train, data.classes, kind)
        self.test = load_scenes(data.root, data.test, self.scenes.class_names, kind)
        say(f"train {self.scenes.summary()}\ntest  {self.test.summary()}\nboxes in files of {kind}")
        self.off_counts = " ".join(filter(None, map(off_counts, (self.scenes, self.test))))
        self.learned = _common(self.scenes, self.test)
        if self.learned:
            say(
                f"{self.learned} of the {len(self.test.scenes)} test images are also in {data.train}. Remove them from "
                "one of the lists, or expect lower numbers on other images"
            )
        for scenes, difficult in ((self.scenes, train.difficult), (self.test, False)):
            if not any(scenes.objects(difficult).values()):  # nothing to learn, or no AP
                raise ConfigError(
                    f"{scenes.name} has no object that counts: give another list of images, or complete it"
                )
        model, in_use = build(settings, len(self.scenes.class_names), self.trust)
        images = DetectionSet(self.scenes.scenes, *data.sides, **changed)
        self.data = DetectionData(images, train.batch_size, settings.seed, data.workers)
        optimizer = {**settings.optimizer, "extended": settings.extended}
        self.module = DetectorModule(model, optimizer, settings.seed, in_use)
        parts = self.module.named_modules()
        self.memories: Sequence[str] = [f"{name}." for name, part in parts if isinstance(part, ScoreMemory)]
        keep = data.cache and bool(settings.evaluation.every)
        self.test_images = DetectionSet(self.test.scenes, *data.sides, cache=keep)

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of both splits, with all boxes."""
        scenes = [*self.scenes.scenes, *self.test.scenes]
        objects = torch.cat([torch.cat([scene.boxes, scene.labels.unsqueeze(1)], 1) for scene in scenes])
        return fingerprint([scene.name for scene in scenes], objects, [scene.path for scene in scenes])

    def callbacks(self) -> list[Callback]:
        """No callbacks."""
        return []

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate a detector that was trained before. One with a new head finds nothing before it is trained."""
        if self.settings.init is not None and (fresh or not on_first(run.before.exists)):
            _, found = self.evaluate(trainer, self.trained())
            on_first(lambda: write_text(run.before, found.report.to_json()))

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedDetections]:
        """AP as VOC and as COCO measure it."""
        detections = detect(
            model,
            self.test_images,
            batch_size=self.settings.evaluation.batch_size,
            workers=self.settings.data.workers,
            progress=bool(self.settings.trainer["enable_progress_bar"]) and not self.quiet,
            device=trainer.strategy.root_device,
        )
        report = evaluate(detections, self.test, self.settings, self.learned)
        return report.values, EvaluatedDetections(report, detections)

    def trained(self) -> nn.Module:
        """The detector."""
        return self.module.model

    def write(self, run: Run, result: EvaluatedDetections, facts: dict[str, Any]) -> str:
        """Write weights, detections, facts and page, and return the report."""
        _save_model(run.weights, self.module.model, self.settings, self.scenes.class_names)
        save_detections(run.folder / DETECTIONS, result.found, self.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        write_page(run.page, self.config, result.report, result.found, self.test, run, self.trust)
        return result.report.to_json()


def build(settings: DetectorSettings, classes: int, trust: Sequence[str] = ()) -> tuple[nn.Module, LossHandle | None]:
    """The detector, and the loss that replaces its cross-entropy, if any."""
    options = dict(settings.model)
    with section("model"):
        loaded = settings.init is not None
        model = build_detector(options.pop("kind"), classes, settings.data.sides, loaded=loaded, **options)
    if settings.init is not None:
        source = Path(settings.init)
        state = _read(Run(source).weights if source.is_dir() else source)["state"]
        wrong = misfits(dict(model.state_dict()), state)
        if wrong:
            raise ConfigError(f"{source} does not hold the model of these settings: {'; '.join(wrong)}")
        model.load_state_dict(state)
    if settings.loss.get("_target_") is None:
        return model, None
    given = {key: value for key, value in settings.loss.items() if key != "name"}
    loss = make(given, slot="loss", trust=trust, where="loss")
    # ranks the proposals of all processes. It also wraps a single process, so a state fits any number of processes
    with section("ranking"):
        return model, use_ap_loss(model, GlobalBatch(loss), **asdict(settings.ranking))


def evaluate(
    detections: Sequence[Detections], test: Scenes, settings: DetectorSettings, learned: int
) -> DetectionReport:
    """Measure the AP of detections, with the evaluation settings of a run.

    Args:
        detections: one for each image.
        test: the images, with their objects.
        settings: of the run.
        learned: how many of the images the run was trained on; the report has the count if there are any.
    """
    said = {"data": settings.data.name, "split": test.name, "loss": settings.loss["name"], "seed": settings.seed}
    how = settings.evaluation
    report = evaluate_voc(detections, test.scenes, test.class_names, how.ious, how.inclusive, said)
    report = replace(report, coco=coco_ap(detections, test.scenes, test.class_names))
    return replace(report, counts={**report.counts, LEARNED: learned}) if learned else report


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
        folder: folder of a finished run.
        root: folder of other data; None: that of the run.
        split: name of the split; None: the run's test split.
        ious: thresholds of overlap; None: those of the run.
        inclusive: see `voc_ap`; None: the value of the run.
        page: file for a page about the evaluation; None: no page.
        progress: whether to show a progress bar.
        trust: packages whose classes the settings may name, see `config.load`.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: a threshold is out of range, or the run is of another kind.
    """
    run = Run(folder)
    check_kind(folder, "detection")
    if not run.weights.exists():
        raise FileNotFoundError(f"{run.weights} does not exist: give the folder of a finished run of a detector")
    config = plain(load(run.config, trust))
    settings = typed(DetectorSettings, config)
    data, how = settings.data, settings.evaluation
    if root is not None:
        data = replace(data, root=str(root.absolute()), format=AUTO)
    if ious is not None:
        how = replace(how, ious=tuple(ious))
    check_ious(how.ious)
    if inclusive is not None:
        how = replace(how, inclusive=inclusive)
    settings = replace(settings, data=data, evaluation=how)
    model, names = load_detector(run.weights)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    test = load_scenes(data.root, data.test if split is None else split, names, data.format)
    off_counts(test)
    images = DetectionSet(test.scenes, *data.sides)
    detections = detect(model, images, batch_size=how.batch_size, workers=data.workers, progress=progress)
    learned = 0 if root is not None else _learned(data, names, test)
    report = evaluate(detections, test, settings, learned)
    if page is not None:
        shown = {
            **config,
            "data": {**config["data"], "root": data.root, "format": data.format},
            "evaluation": {**config["evaluation"], **asdict(how)},
        }
        write_page(page, shown, report, detections, test)
    return report


def _learned(data: DetectionImages, names: Sequence[str], test: Scenes) -> int:
    """How many of these images the run was trained on."""
    try:
        return _common(load_scenes(data.root, data.train, names, data.format, []), test)
    except (OSError, ValueError):  # the images of the training are gone
        return 0


def _common(scenes: Scenes, test: Scenes) -> int:
    return len({scene.path for scene in scenes.scenes} & {scene.path for scene in test.scenes})


def load_detector(path: Path) -> tuple[nn.Module, tuple[str, ...]]:
    """A trained detector in evaluation mode, and its classes. `model([image])` takes float images of any size.

    Raises:
        ValueError: the file is not a detector of rankgrad.
    """
    saved = _read(path)
    options, names = dict(saved["model"]), tuple(saved["class_names"])
    try:
        with no_larger_than(saved["state"]):
            model = build_detector(options.pop("kind"), len(names), tuple(saved["sides"]), loaded=True, **options)
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
        raise ValueError(f"{path} is not a model of rankgrad detect train")
    kinds = {"state": dict, "model": dict, "class_names": list, "sides": list}
    wrong = [name for name, kind in kinds.items() if not isinstance(saved[name], kind)]
    if wrong or not isinstance(saved["model"].get("kind"), str) or not is_state_dict(saved["state"]):
        raise ValueError(f"{path} is damaged: {', '.join(wrong) or 'model and state'} not as rankgrad writes it")
    return saved


def _save_model(path: Path, model: nn.Module, settings: DetectorSettings, names: Sequence[str]) -> None:
    state = {key: value.cpu() for key, value in model.state_dict().items()}
    content = {
        "state": state,
        "model": dict(settings.model),
        "sides": list(settings.data.sides),
        "class_names": list(names),
        "version": __version__,
    }
    write_plain(path, content)


def save_detections(path: Path, detections: Sequence[Detections], test: Scenes) -> None:
    """Write one npz for numpy: image (index into names), boxes, labels, scores, names, class_names."""
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


TASK: runner.TaskType[EvaluatedDetections] = runner.TaskType(
    "detection",
    lambda config: f"{config.data.name}-{config.loss.name}",
    lambda config, quiet, say: DetectionTask(plain(config), quiet, say),
)


#: Train a detector, evaluate it and write the folder. It is `runner.train` with this task.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """AP per class as a table, and the paths of folder and page."""
    wrong = [f"! {warned}" for warned in other_counts(run)]
    return "\n".join([table(read_content(run.after)), "", f"run:    {run.folder}", f"report: {run.page}", *wrong])
