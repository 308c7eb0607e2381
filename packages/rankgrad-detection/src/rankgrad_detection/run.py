"""Detection as a task: a detector, a rank loss or cross-entropy, and images with boxes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from rankgrad.batches.distributed import GlobalBatch, on_first
from rankgrad.batches.epochs import ShuffledBatches
from rankgrad.common.checks import integer, one_of
from rankgrad.evaluation.json_report import fits
from rankgrad.losses.score_memory import ScoreMemory
from rankgrad_workbench.datasets.fingerprint import fingerprint
from rankgrad_workbench.files import write_npz, write_text
from rankgrad_workbench.models import state_dicts
from rankgrad_workbench.report.content import read_common
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.runs.folder import Run, check_kind
from rankgrad_workbench.runs.run_warnings import other_counts
from rankgrad_workbench.settings import ConfigError, load, make, packages, plain, section, typed
from rankgrad_workbench.training import runner
from rankgrad_workbench.training.data import EpochData
from rankgrad_workbench.training.module import check_optimizer

from ._version import __version__
from .adapter import check_ranking, use_ap_loss
from .check import off_counts
from .coco_ap import coco_ap
from .data import DetectionSet, as_lists
from .formats import AUTO, FORMATS, format_of, load_scenes
from .models import build_detector
from .page import described
from .scenes import Scene, Scenes
from .settings import DetectionImages, DetectorSettings
from .task import DETECTIONS
from .training import DetectorModule, detect
from .voc_ap import LEARNED, DetectionReport, Detections, check_ious, evaluate_voc, read_report

Evaluated = tuple[DetectionReport, list[Detections]]  # AP, and the detections from which it was computed


@dataclass(frozen=True, eq=False)
class DetectionTask:
    """See `training.runner.Task`. `build` makes one from the settings of a run.

    Attributes:
        settings: those that a run reads.
        train: images for training.
        test: images for the evaluation.
        learned: how many of the test images are also trained on.
        off_counts: a sentence if an official set has other counts than published; else empty.
        module: what is trained: the detector and its losses.
        data: the training batches.
        test_images: `test`, resized.
        progress: show a bar during an evaluation.
        trust: packages whose classes the settings may name.
    """

    settings: DetectorSettings
    train: Scenes
    test: Scenes
    learned: int
    off_counts: str
    module: DetectorModule
    data: EpochData
    test_images: DetectionSet
    progress: bool
    trust: Sequence[str] = ()

    settled: ClassVar[Mapping[str, Any]] = {}  # no setting follows from the data

    @property
    def memories(self) -> Sequence[str]:
        """The buffers of memories."""
        parts = self.module.named_modules()
        return [f"{name}." for name, part in parts if isinstance(part, ScoreMemory)]

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of both splits, with all boxes."""
        scenes = [*self.train.scenes, *self.test.scenes]
        objects = torch.cat([torch.cat([scene.boxes, scene.labels.unsqueeze(1)], 1) for scene in scenes])
        return fingerprint([scene.name for scene in scenes], objects, [scene.path for scene in scenes])

    def callbacks(self) -> list[Callback]:
        """No callbacks."""
        return []

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate a detector that was trained before. One with a new head finds nothing before it is trained."""
        if self.settings.init is not None and (fresh or not on_first(run.before.exists)):
            _, (report, _) = self.evaluate(trainer, self.trained())
            on_first(lambda: write_text(run.before, report.to_json()))

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], Evaluated]:
        """AP as VOC and as COCO measure it."""
        detections = detect(
            model,
            self.test_images,
            batch_size=self.settings.evaluation.batch_size,
            workers=self.settings.data.workers,
            progress=self.progress,
            device=trainer.strategy.root_device,
        )
        report = evaluate(detections, self.test, self.settings, self.learned)
        return report.values, (report, detections)

    def trained(self) -> nn.Module:
        """The detector."""
        return self.module.model

    def write(self, run: Run, result: Evaluated, facts: dict[str, Any]) -> str:
        """Write weights, detections, facts and page, and return the report."""
        report, found = result
        content = {
            "state": {key: value.cpu() for key, value in self.module.model.state_dict().items()},
            "model": dict(self.settings.model),
            "sides": list(self.settings.data.sides),
            "class_names": list(self.test.class_names),
            "version": __version__,
        }
        state_dicts.write_plain(run.weights, content)
        save_detections(run.folder / DETECTIONS, found, self.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        write_report(run.page, [described(found, self.test, read_common(run, report, self.trust))])
        return report.to_json()


def build(config: Mapping[str, Any], quiet: bool = False, say: runner.Say = runner.silent) -> DetectionTask:
    """The task of a run: its settings are checked, then its images are read, and detector and batches are built.

    Args:
        config: settings of the run.
        quiet: show no progress bars.
        say: function that prints a text: the images and objects of each split.
    """
    settings, trust = typed(DetectorSettings, plain(config)), packages(config.get("trust"))
    loss, data = check_settings(settings, trust), settings.data
    kind = format_of(data.root, data.format)
    train = load_scenes(data.root, data.train, data.classes, kind)
    test = load_scenes(data.root, data.test, train.class_names, kind)
    off, learned = " ".join(filter(None, map(off_counts, (train, test)))), _common(train, test)
    say(f"train {train.summary()}\ntest  {test.summary()}\nboxes in files of {kind}")
    if learned:
        say(
            f"{learned} of the {len(test)} test images are also in {data.train}. Remove them from one of the lists, or "
            "expect lower numbers on other images"
        )
    for split, difficult in ((train, settings.difficult), (test, False)):
        if not any(split.objects(difficult).values()):
            raise ConfigError(f"{split.name} has no object that counts: give another list of images, or complete it")
    model = detector_of(settings, len(train.class_names))
    in_use = None
    if loss is not None:
        # ranks the proposals of all processes. It also wraps a single process, so a state fits any number of processes
        in_use = use_ap_loss(model, GlobalBatch(loss), **settings.ranking)
    module = DetectorModule(model, {**settings.optimizer, "extended": settings.extended}, settings.seed, in_use)
    images = _train_images(settings, train.scenes)
    order = ShuffledBatches(len(images), settings.sampler["batch_size"], settings.seed)
    test_images = DetectionSet(test.scenes, *data.sides, cache=data.cache and bool(settings.evaluation.every))
    bars = bool(settings.trainer["enable_progress_bar"]) and not quiet
    batches = EpochData(images, order, as_lists, data.workers)
    return DetectionTask(settings, train, test, learned, off, module, batches, test_images, bars, trust)


def _train_images(settings: DetectorSettings, scenes: Sequence[Scene]) -> DetectionSet:
    names = ("difficult", "flip", "vertical_flip", "seed")
    flips = {name: getattr(settings, name) for name in names}
    return DetectionSet(scenes, *settings.data.sides, **flips, cache=settings.data.cache)


def check_settings(settings: DetectorSettings, trust: Sequence[str] = ()) -> nn.Module | None:
    """The loss that replaces cross-entropy, if any, from settings that can work. No file is read.

    Raises:
        ConfigError: the settings cannot work.
    """
    sides, how = settings.data.sides, settings.evaluation
    if len(sides) != 2:
        raise ConfigError(f"data.sides must be two sides in pixels, shorter and longer; got {list(sides)}")
    with section("data.sides"):
        DetectionSet((), *sides)
    _train_images(settings, ())
    with section("evaluation"):
        check_ious(how.ious)
    integer(settings.sampler["batch_size"], "sampler.batch_size counts images", low=1)
    with section("ranking"):
        check_ranking(**settings.ranking)
    _check_model(settings)
    integer(how.batch_size, "evaluation.batch_size counts images", low=1)
    integer(how.every, "evaluation.every counts epochs", low=0)
    integer(how.pictures, "evaluation.pictures counts pictures", low=0)
    integer(settings.data.workers, "data.workers counts processes", low=0)
    one_of(settings.data.format, "data.format", (AUTO, *FORMATS))
    check_optimizer(settings.optimizer)
    if settings.loss.get("_target_") is None:
        return None
    given = {key: value for key, value in settings.loss.items() if key != "name"}
    loss: nn.Module = make(given, slot="loss", trust=trust, where="loss")
    return loss


def _check_model(settings: DetectorSettings) -> None:
    """Build the model for one class and without weights, as a test, and look for the files of weights."""
    weights = settings.model.get("weights")
    with torch.random.fork_rng(devices=[]):
        _built(settings, 1, loaded=bool(settings.init or settings.model.get("pretrained") or weights))
    if weights is not None and not Path(weights).is_file():
        raise ConfigError(f"model.weights={weights} does not exist, or is no file")
    if settings.init is not None:
        _read(Path(settings.init))


def _built(settings: DetectorSettings, classes: int, loaded: bool) -> nn.Module:
    options = dict(settings.model)
    with section("model"):
        model: nn.Module = build_detector(options.pop("kind"), classes, settings.data.sides, loaded=loaded, **options)
    return model


def detector_of(settings: DetectorSettings, classes: int) -> nn.Module:
    """The detector, with the weights that `init` names.

    Args:
        settings: of the run.
        classes: number of classes, without background.

    Raises:
        ConfigError: the settings of the model cannot work, or the weights do not fit.
    """
    model = _built(settings, classes, loaded=settings.init is not None)
    if settings.init is not None:
        state = _read(Path(settings.init))["state"]
        if wrong := state_dicts.misfits(dict(model.state_dict()), state):
            raise ConfigError(f"{settings.init} does not hold the model of these settings: {'; '.join(wrong)}")
        model.load_state_dict(state)
    return model


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
    report = report.with_coco(coco_ap(detections, test.scenes, test.class_names))
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
    config = plain(load(run.config, trust))
    settings = typed(DetectorSettings, config)
    own, how = settings.data, settings.evaluation
    data = own if root is None else replace(own, root=str(root.absolute()), format=AUTO)
    given: dict[str, Any] = {"ious": ious and tuple(ious), "inclusive": inclusive}
    how = replace(how, **{name: value for name, value in given.items() if value is not None})
    check_ious(how.ious)
    settings = replace(settings, data=data, evaluation=how)
    model, names = load_detector(run.weights)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    test = load_scenes(data.root, data.test if split is None else split, names, data.format)
    off_counts(test)
    images = DetectionSet(test.scenes, *data.sides)
    detections = detect(model, images, batch_size=how.batch_size, workers=data.workers, progress=progress)
    report = evaluate(detections, test, settings, _learned(own, names, test))
    if page is not None:
        config |= {"data": asdict(data), "evaluation": asdict(how)}
        common = {"name": f"{test.name}, {settings.loss['name']}", "config": config, "after": report}
        write_report(page, [described(detections, test, common)])
    return report


def _learned(data: DetectionImages, names: Sequence[str], test: Scenes) -> int:
    """How many of these images the run was trained on."""
    try:
        return _common(load_scenes(data.root, data.train, names, data.format, []), test)
    except (OSError, ValueError):  # the images of the training are gone
        return 0


def _common(scenes: Scenes, test: Scenes) -> int:
    one, other = ({os.path.realpath(scene.path) for scene in each.scenes} for each in (scenes, test))
    return len(one & other)


def load_detector(path: Path) -> tuple[nn.Module, tuple[str, ...]]:
    """A trained detector in evaluation mode, and its classes. `model([image])` takes float images of any size.

    Raises:
        ValueError: the file is not a detector of rankgrad.
    """
    saved = _read(path)
    options, names = dict(saved["model"]), tuple(saved["class_names"])
    try:
        with state_dicts.no_larger_than(saved["state"]):
            model = build_detector(options.pop("kind"), len(names), tuple(saved["sides"]), loaded=True, **options)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} describes a detector that can't be built: {state_dicts.one_line(error)}") from error
    if wrong := state_dicts.misfits(model.state_dict(), saved["state"]):
        raise ValueError(f"{path} does not fit the detector that it describes: {'; '.join(wrong)}")
    model.load_state_dict(saved["state"])
    return model.eval(), names


def _read(path: Path) -> dict[str, Any]:
    """The content of model.pt, which may be named by its run's folder."""
    path = Run(path).weights if path.is_dir() else path
    saved = state_dicts.read_plain(path)
    shapes = {"state": dict, "model": {"kind": str}, "class_names": [str], "sides": [int]}
    if not fits(saved, shapes) or not state_dicts.is_state_dict(saved["state"]):
        raise ValueError(f"{path} is not a model of rankgrad detect train, or it is damaged")
    return dict(saved)


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


TASK: runner.TaskType[Evaluated] = runner.TaskType("detection", lambda c: f"{c.data.name}-{c.loss.name}", build)


#: Train a detector, evaluate it and write the folder. It is `runner.train` with this task.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """AP per class as a table, and the paths of folder and page."""
    wrong = [f"! {warned}" for warned in other_counts(run)]
    return "\n".join([str(read_report(run.after)), "", f"run:    {run.folder}", f"report: {run.page}", *wrong])
