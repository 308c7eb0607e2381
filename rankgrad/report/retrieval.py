"""Runs that retrieve, as their page shows them: embeddings, the images they are of, and what is measured of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..evaluation import Report
from ..files import read_npz
from ..html.images import THUMBNAIL, Images
from ..losses import CalibrationLoss, ROADMAPLoss
from ..normalize import unit_rows
from ..runs.folder import Run
from .content import Extent, RunContent, Section, read_common

if TYPE_CHECKING:
    from ..datasets.base import Table

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
        """Read what `runs.embeddings.save_embeddings` has written.

        Raises:
            ValueError: the file lacks a column, or its columns are out of step.
            OSError: the file cannot be read.
        """
        columns = read_npz(path, "embeddings", "labels", "names", "class_names")

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
class Content(RunContent):
    """A run that retrieves, as a page shows it.

    Attributes:
        name, config, facts, curves, latest, notes, siblings: see `RunContent`.
        before: evaluation of the untrained network, or None.
        after: evaluation of the trained network; None: the run is not finished.
        space: embeddings of the evaluated split, or None.
        pictures: images of the same split, or None.
    """

    before: Report | None = None
    after: Report | None = None
    space: Space | None = None
    pictures: Pictures | None = None

    kind = "retrieval"

    @property
    def headline(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return ("R@1", "mAP@R", "AP")

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return ("R@1", "R@4", "mAP@R", "AP", "NMI")

    @classmethod
    def sections(cls, runs: Sequence[Content], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """Paired differences, similarities, retrieved images, confused classes, tables of classes, a map."""
        from .sections import sections  # it draws what this file describes

        return sections(runs, images, extent)

    @property
    def thresholds(self) -> tuple[float, float, bool]:
        """(alpha, beta) of the calibration, and whether they are the run's own or ROADMAP's defaults."""
        found = self.config.get("loss", {})
        own = {ROADMAPLoss.__name__, CalibrationLoss.__name__}
        if self.loss in own and {"alpha", "beta"} <= set(found):
            return float(found["alpha"]), float(found["beta"]), True
        return ALPHA, BETA, False


def read(
    run: Run,
    *,
    after: Report | None = None,
    table: Table | None = None,
    known: dict[str, Any] | None = None,
    pictures: bool = True,
    trust: Sequence[str] = (),
) -> Content:
    """What is there of a run, finished or not. What is missing is said in the notes.

    Args:
        run: the folder.
        after: evaluation of the trained network, if it is not written yet.
        table: the evaluated split, if it is at hand.
        known: images that earlier calls have found (or the reason why they could not), by their settings.
        pictures: False: numbers and curves alone.
        trust: packages whose classes its settings may name.
    """
    if after is None and run.after.exists():
        after = Report.from_json(run.after)
    common = read_common(run, after, trust)
    config, notes = common["config"], list(common["notes"])
    embeddings, space = run.embeddings, None
    if pictures and embeddings.exists():
        try:
            space = Space.load(embeddings)
        except (ValueError, OSError) as error:
            notes.append(f"No pictures, histograms and map: {embeddings.name} cannot be read ({error}).")
    elif pictures and after is not None:
        notes.append(f"No pictures, histograms and map: the run has no {embeddings.name} any more.")
    held = None if table is None else Pictures(table)
    if space is not None and held is None:
        known = {} if known is None else known
        data = json.dumps([config.get("data"), config.get("evaluation", {}).get("split")], sort_keys=True, default=str)
        if data not in known:
            known[data] = _images(run, trust)
        if isinstance(known[data], str):
            notes.append(f"No pictures: the images of the run cannot be read ({known[data]}).")
        else:
            held = known[data]
    if held is not None and held.table.skipped:
        notes.append(f"{len(held.table.skipped)} files could not be read and were left out.")
    if after is not None and str(after.settings.get("protocol", "")).startswith("one-gallery"):
        notes.append(
            "The metrics are means over drawn galleries of one image per class; pictures, histograms, map and the "
            "precision-recall curve rank every image against all others."
        )
    before = Report.from_json(run.before) if run.before.exists() else None
    return Content(**{**common, "before": before, "space": space, "pictures": held, "notes": tuple(notes)})


def _images(run: Run, trust: Sequence[str]) -> Pictures | str:
    """The images of the evaluated split of a run, or why they cannot be had."""
    from ..config import load, make
    from ..datasets.folds import held_out

    config = load(run.config, trust)
    try:
        table: Table = held_out(make(config.data.load, slot="data", trust=trust), config.get("fold"))
        return Pictures(table.select(config.evaluation.split))
    except (OSError, ValueError, MemoryError) as error:
        return str(error)
