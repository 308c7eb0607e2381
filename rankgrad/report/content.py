"""What a page reads off a run: settings, curves, evaluations, embeddings, and where its images are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..evaluation import Report
from ..losses import CalibrationLoss, ROADMAPLoss
from ..normalize import unit_rows
from ..runs.folder import Run
from ..runs.history import curves, evaluations
from ..runs.log import TEST
from .images import THUMBNAIL

if TYPE_CHECKING:
    from ..datasets.base import Table

Curves = Mapping[str, Sequence[tuple[float, float]]]
ALPHA, BETA = 0.9, 0.6  # CalibrationLoss's defaults, for losses that have no such thresholds


@dataclass(frozen=True, eq=False)
class Space:
    """Embeddings that are asked, and embeddings that are searched.

    Attributes:
        queries: [query, dim] float, rows of length 1.
        labels: [query] long, place of the class in class_names.
        names: [query] what a person calls the image.
        class_names: of all classes.
        items: [item, dim] the gallery; None: leave-one-out, each query against all others.
        item_labels: [item] long.
        item_names: [item].
        super_labels: [query] long, place in super_names; or None.
        super_names: of all super-labels.
    """

    queries: Tensor
    labels: Tensor
    names: tuple[str, ...]
    class_names: tuple[str, ...]
    items: Tensor | None = None
    item_labels: Tensor | None = None
    item_names: tuple[str, ...] = ()
    super_labels: Tensor | None = None
    super_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        queries, items = len(self.queries), 0 if self.items is None else len(self.items)
        lengths = {"labels": len(self.labels), "names": len(self.names)}
        if self.super_labels is not None:
            lengths["super_labels"] = len(self.super_labels)
        wrong = {name: found for name, found in lengths.items() if found != queries}
        if len(self.item_names) != items or (0 if self.item_labels is None else len(self.item_labels)) != items:
            wrong["item_labels, item_names"] = len(self.item_names)
        if wrong:
            raise ValueError(f"embeddings of {queries} queries and {items} items do not fit {wrong}")

    @property
    def leave_one_out(self) -> bool:
        """Are the queries their own gallery?"""
        return self.items is None

    @property
    def gallery(self) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """Embeddings, labels and names of what is searched."""
        if self.items is None or self.item_labels is None:
            return self.queries, self.labels, self.names
        return self.items, self.item_labels, self.item_names

    @classmethod
    def load(cls, path: Path) -> Space:
        """Read what `training.save_embeddings` has written.

        Raises:
            ValueError: the file lacks a column, or its columns are out of step.
            OSError: the file cannot be read.
        """
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
        lacking = [name for name in ("embeddings", "labels", "names", "class_names") if name not in columns]
        if lacking:
            raise ValueError(f"{path} has no {', '.join(lacking)}; a run writes them")

        def texts(name: str) -> tuple[str, ...]:
            return tuple(columns[name].tolist()) if name in columns else ()

        def numbers(name: str) -> Tensor | None:
            return torch.from_numpy(columns[name].astype(np.int64)) if name in columns else None

        labels, items = numbers("labels"), columns.get("ref_embeddings")
        assert labels is not None
        return cls(
            queries=unit_rows(torch.from_numpy(columns["embeddings"]).float()),
            labels=labels,
            names=texts("names"),
            class_names=texts("class_names"),
            items=None if items is None else unit_rows(torch.from_numpy(items).float()),
            item_labels=numbers("ref_labels"),
            item_names=texts("ref_names"),
            super_labels=numbers("super_labels"),
            super_names=texts("super_names"),
        )


class Pictures:
    """The images of an evaluated split, by their names; those that cannot be read are counted.

    Attributes:
        failed: name -> why it could not be read.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        times = Counter(table.names)
        # a name that stands for several images stands for none: a wrong picture is worse than no picture
        self._row = {name: row for row, name in enumerate(table.names) if times[name] == 1}
        self.failed: dict[str, str] = {}

    def get(self, name: str) -> Tensor | None:
        """The image, uint8 [channel, height, width], small where it comes from a file; None: it is not to be had."""
        from ..datasets.base import ImageSet, read_image

        row = self._row.get(name)
        if row is None:
            self.failed.setdefault(name, "the data set has no image of this name, or several")
            return None
        table = self.table
        try:
            if table.paths is None or table.pixels is not None:
                return ImageSet(table)[row][0]
            return read_image(table.paths[row], table.channels, THUMBNAIL, True, table.box_of(row))
        except OSError as error:
            self.failed[name] = str(error)
            return None


@dataclass(frozen=True, eq=False)
class Content:
    """A run as the page shows it.

    Attributes:
        name: what the page calls the run.
        config: its settings, plain and nested.
        facts: steps, seconds, versions.
        curves: name -> (step, value) pairs.
        before: evaluation of the untrained network, or None.
        after: evaluation of the trained network; None: the run is not finished.
        latest: (steps done, test metrics) of the last evaluation during training, if it is not finished; or None.
        space: embeddings of the evaluated split, or None.
        pictures: images of the same split, or None.
        notes: what a reader must know first.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    before: Report | None = None
    after: Report | None = None
    latest: tuple[int, Mapping[str, float]] | None = None
    space: Space | None = None
    pictures: Pictures | None = None
    notes: tuple[str, ...] = ()

    @property
    def loss(self) -> str:
        """Class of the loss; of a wrapped one, the class inside."""
        return loss_name(self.config)

    @property
    def thresholds(self) -> tuple[float, float, bool]:
        """(alpha, beta) of the calibration, and whether they are the run's own or ROADMAP's defaults."""
        found = self.config.get("loss", {})
        own = {ROADMAPLoss.__name__, CalibrationLoss.__name__}
        if self.loss in own and {"alpha", "beta"} <= set(found):
            return float(found["alpha"]), float(found["beta"]), True
        return ALPHA, BETA, False


def loss_name(config: Mapping[str, Any]) -> str:
    """Class of the loss of a configuration.

    >>> loss_name({"loss": {"_target_": "rankgrad.baselines.PMLLoss", "loss": {"_target_": "pml.losses.TripletLoss"}}})
    'TripletLoss'
    """
    loss = config.get("loss")
    if not isinstance(loss, Mapping):
        return str(loss or "")
    inner = loss.get("loss")
    return loss_name(loss) if isinstance(inner, Mapping) else str(loss.get("_target_", "")).rpartition(".")[2]


def read_runs(folders: Sequence[Path]) -> list[Content]:
    """Read several runs; those that see the same images share them, and each has a name of its own.

    Raises:
        FileNotFoundError: a folder is no run.
        ValueError: the same folder twice.
    """
    places = [folder.resolve() for folder in folders]
    twice = [str(folder) for folder, times in Counter(places).items() if times > 1]
    if twice:
        raise ValueError(f"a run is compared with others, not with itself: {twice[0]} is given more than once")
    known: dict[str, Pictures | str] = {}
    found = [read_run(Run(folder), known=known) for folder in folders]
    return [replace(content, name=name) for content, name in zip(found, short_names(places), strict=True)]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart, without the words between hyphens that all begin or end with.

    >>> short_names([Path("a/x/run"), Path("a/y/run")]), short_names([Path("a/pnp-seed0"), Path("a/auc-seed0")])
    (['x/run', 'y/run'], ['pnp', 'auc'])
    """
    names = [str(folder) for folder in folders]
    for parts in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            break
    words = [name.split("-") for name in names]
    for end in (0, -1):
        while len(words) > 1 and min(map(len, words)) > 1 and len({each[end] for each in words}) == 1:
            for each in words:
                del each[end]
    return ["-".join(each) for each in words]


def read_run(
    run: Run, *, after: Report | None = None, table: Table | None = None, known: dict[str, Pictures | str] | None = None
) -> Content:
    """What is there of a run, finished or not. What is missing is said in the notes.

    Args:
        run: the folder.
        after: evaluation of the trained network, if it is not written yet.
        table: the evaluated split, if it is at hand.
        known: images that earlier calls have found (or the reason why they could not), by their settings.

    Raises:
        FileNotFoundError: the folder is no run.
    """
    from omegaconf import OmegaConf

    from ..config import load

    if not run.config.exists():
        raise FileNotFoundError(f"{run.folder} is no run: it has no config.yaml. Give the folder that a training made")
    config: Any = OmegaConf.to_container(load(run.config), resolve=True)
    if after is None and run.finished:
        after = Report.from_json(run.after)
    logged = curves(run)
    facts_file, embeddings = run.folder / "facts.json", run.folder / "embeddings.npz"
    facts = json.loads(facts_file.read_text(encoding="utf-8")) if facts_file.exists() else {}
    notes = []
    latest = None
    if after is None:
        tested = evaluations(run)
        latest = (max(tested), tested[max(tested)]) if tested else None
        notes.append(_how_far(run, logged, latest))
    notes += _findings(run)
    space = None
    if embeddings.exists():
        try:
            space = Space.load(embeddings)
        except (ValueError, OSError) as error:
            notes.append(f"No pictures, histograms and map: {embeddings.name} cannot be read ({error}).")
    elif after is not None:
        notes.append(f"No pictures, histograms and map: the run has no {embeddings.name} any more.")
    pictures = None if table is None else Pictures(table)
    if space is not None and pictures is None:
        known = {} if known is None else known
        data = json.dumps([config.get("data"), config.get("evaluation", {}).get("split")], sort_keys=True, default=str)
        if data not in known:
            known[data] = _images(run)
        held = known[data]
        if isinstance(held, str):
            notes.append(f"No pictures: the images of the run cannot be read ({held}).")
        else:
            pictures = held
    if pictures is not None and pictures.table.skipped:
        notes.append(f"{len(pictures.table.skipped)} files could not be read and were left out.")
    if after is not None and str(after.settings.get("protocol", "")).startswith("one-gallery"):
        notes.append(
            "The metrics are means over drawn galleries of one image per class; pictures, histograms, map and the "
            "precision-recall curve rank every image against all others."
        )
    return Content(
        name=run.folder.resolve().name,
        config=config,
        facts=facts,
        curves=_with_last(logged, after),
        before=Report.from_json(run.before) if run.before.exists() else None,
        after=after,
        latest=latest,
        space=space,
        pictures=pictures,
        notes=tuple(notes),
    )


def _images(run: Run) -> Pictures | str:
    """The images of the evaluated split of a run, or why they cannot be had."""
    from ..config import load, make

    config = load(run.config)
    try:
        table: Table = make(config.data.load)
        return Pictures(table.select(config.evaluation.split))
    except (OSError, ValueError, MemoryError) as error:
        return str(error)


def _findings(run: Run) -> list[str]:
    """What the look at training found to be wrong, with what helps."""
    if not run.health.exists():
        return []
    findings = json.loads(run.health.read_text(encoding="utf-8"))["findings"]
    return [f"{found['text']}. {found['advice']}" for found in findings if found["level"] == "warning"]


def _how_far(run: Run, logged: Curves, latest: tuple[int, Mapping[str, float]] | None) -> str:
    steps = max((step for points in logged.values() for step, _ in points), default=None)
    reached = "nothing is logged yet" if steps is None else f"it has logged {steps:.0f} steps"
    shown = f", and the numbers are of the evaluation after {latest[0]:,} steps" if latest else ""
    return (
        f"This run is not finished: {reached}{shown}. Pictures, tables and histograms come with the evaluation after "
        f"training; rankgrad train resume={run.folder} goes on with it."
    )


def _with_last(logged: dict[str, list[tuple[float, float]]], after: Report | None) -> Curves:
    """The curves of test metrics go on to the result, which is not logged."""
    if after is None:
        return logged
    last = max((step for points in logged.values() for step, _ in points), default=0.0)
    for name, points in logged.items():
        value = after.values.get(name.removeprefix(TEST))
        if name.startswith(TEST) and value is not None:
            points.append((last, value))
    return logged
