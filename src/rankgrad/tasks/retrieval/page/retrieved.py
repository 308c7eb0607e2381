"""The data of a retrieval run for a page: its evaluations, its embeddings and their images."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ....common.files import inside
from ....datasets.vectors import embedding_columns
from ....evaluation import Report
from ....evaluation.measures import MAIN
from ....losses import CalibrationLoss, ROADMAPLoss
from ....ranks.normalize import unit_rows
from ....workbench.html.images import THUMBNAIL
from ....workbench.report.content import RunContent
from ....workbench.runs.embeddings import joined_classes

if TYPE_CHECKING:
    from ....datasets.rows import Rows


@dataclass(frozen=True, eq=False)
class Space:
    """Embeddings of the queries and of the gallery.

    Attributes:
        queries: [query, dim] float, rows of length 1.
        labels: [query] long, index of the class in class_names.
        names: [query] name of the image.
        class_names: of all classes.
        items: [item, dim] the gallery; None: leave-one-out, each query against all others.
        item_labels: [item] long.
        item_names: [item].
        super_labels: [query] long, index in super_names; or None.
        super_names: of all super-labels.
        texts: [query] the texts of the rows; empty if the rows are not texts.
        item_texts: [item] likewise.
        several: [query, class] bool, if rows have several classes; rows that share a class are relevant to each other.
            Each entry of `class_names` then joins the names of all classes of a row.
        item_several: [item, class] likewise.
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
    texts: tuple[str, ...] = ()
    item_texts: tuple[str, ...] = ()
    several: Tensor | None = None
    item_several: Tensor | None = None

    def __post_init__(self) -> None:
        queries, items = len(self.queries), 0 if self.items is None else len(self.items)
        lengths = {"labels": len(self.labels), "names": len(self.names)}
        if self.super_labels is not None:
            lengths["super_labels"] = len(self.super_labels)
        if self.texts:
            lengths["texts"] = len(self.texts)
        wrong = {name: count for name, count in lengths.items() if count != queries}
        if len(self.item_names) != items or (0 if self.item_labels is None else len(self.item_labels)) != items:
            wrong["item_labels, item_names"] = len(self.item_names)
        if self.texts and len(self.item_texts) != items:
            wrong["item_texts"] = len(self.item_texts)
        if wrong:
            raise ValueError(f"embeddings of {queries} queries and {items} items do not fit {wrong}")

    @property
    def leave_one_out(self) -> bool:
        """Whether the queries are their own gallery."""
        return self.items is None

    @property
    def gallery(self) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """(embeddings, labels, names) of the gallery."""
        if self.items is None or self.item_labels is None:
            return self.queries, self.labels, self.names
        return self.items, self.item_labels, self.item_names

    def same_gallery(self, other: Space) -> bool:
        """Whether both galleries have the same names with the same classes, in any order."""
        own, others = (
            Counter(zip(space.gallery[2], map(space.class_names.__getitem__, space.gallery[1].tolist()), strict=True))
            for space in (self, other)
        )
        return own == others

    @property
    def truth(self) -> tuple[Tensor, Tensor]:
        """Classes of queries and gallery: long labels; or bool [row, class], where rows may have several classes."""
        if self.several is None:
            return self.labels, self.gallery[1]
        return self.several, self.several if self.item_several is None else self.item_several

    def relevant(self, rows: Tensor, items: Tensor) -> Tensor:
        """Whether items are relevant to queries: rows [row] long, items [row, ...] long -> bool, shape of items."""
        asked, items_truth = (side[at] for side, at in zip(self.truth, (rows, items), strict=True))
        asked = asked.reshape(len(rows), *(1,) * (items.ndim - 1), *asked.shape[1:])
        return asked == items_truth if self.several is None else (asked & items_truth).any(-1)

    @property
    def noun(self) -> str:
        """Plural noun for the rows: texts, images, or rows (if only their names are known)."""
        if not self.texts:
            return "images"
        return "rows" if self.texts == self.names else "texts"

    def by_name(self) -> Space:
        """The same embeddings with names in place of texts, for rows without text and picture."""
        return replace(self, texts=self.names, item_texts=self.item_names)

    def text(self, row: int) -> str | None:
        """The text of a query; None if rows are not texts."""
        return self.texts[row] if self.texts else None

    def item_text(self, item: int) -> str | None:
        """The text of an item; None if rows are not texts."""
        texts = self.texts if self.items is None else self.item_texts
        return texts[item] if texts else None

    @classmethod
    def load(cls, path: Path) -> Space:
        """Read a file of `runs.embeddings.save_embeddings`, or any npz or parquet with embeddings and labels.

        Rows without names are named by their number. Labels may be texts, or integers with or without class_names.

        Raises:
            ValueError: the file lacks a column, or the lengths of its columns differ.
            OSError: the file cannot be read.
        """
        columns = embedding_columns(path, "embeddings", "labels")
        items = columns.get("ref_embeddings")

        def texts(name: str, called: int = 0) -> tuple[str, ...]:
            given = tuple(map(str, columns[name].tolist())) if name in columns else ()
            return given or tuple(f"row {row}" for row in range(called))

        def numbers(names: str, *of: str) -> tuple[tuple[str, ...], list[Tensor | None]]:
            """(names of the classes, numbers of the classes for each column of `of`, or None)."""
            given = [columns[name] for name in of if name in columns]
            if not given:
                return (), [None] * len(of)
            if names in columns and given[0].dtype.kind in "iu":
                known, places = texts(names), [each.astype(np.int64) for each in given]
            else:
                values, flat = np.unique(np.concatenate(given), return_inverse=True)
                known = tuple(map(str, values.tolist()))
                places = np.split(flat.reshape(-1).astype(np.int64), [len(given[0])])[: len(given)]
            spaces: list[Tensor | None] = [torch.from_numpy(place) for place in places]
            return known, spaces + [None] * (len(of) - len(spaces))

        several: list[Tensor | None] = [None, None]
        if columns["labels"].dtype.kind == "b" and columns["labels"].ndim == 2:
            called = texts("class_names") or tuple(map(str, range(columns["labels"].shape[1])))
            for side, name in enumerate(("labels", "ref_labels")):
                if name in columns:
                    several[side] = torch.from_numpy(columns[name])
                    columns[name] = np.array(joined_classes(columns[name], called))
        class_names, (labels, item_labels) = numbers("class_names", "labels", "ref_labels")
        super_names, (super_labels,) = numbers("super_names", "super_labels")
        assert labels is not None
        return cls(
            queries=unit_rows(torch.from_numpy(columns["embeddings"]).float()),
            labels=labels,
            names=texts("names", len(columns["embeddings"])),
            class_names=class_names,
            items=None if items is None else unit_rows(torch.from_numpy(items).float()),
            item_labels=item_labels,
            item_names=texts("ref_names", 0 if items is None else len(items)),
            super_labels=super_labels,
            super_names=super_names,
            texts=texts("texts"),
            item_texts=texts("ref_texts"),
            several=several[0],
            item_several=several[1],
        )


class FolderPictures:
    """Images of a folder, by their names relative to it.

    Args:
        folder: the folder.

    Attributes:
        failed: name of each image that could not be read -> the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: dict[str, str] = {}

    def get(self, name: str) -> Tensor | None:
        """The image as a thumbnail; None: it cannot be read."""
        from ....datasets.images import read_image

        try:
            return read_image(inside(self.folder, name), 3, THUMBNAIL, True)
        except (OSError, ValueError) as error:
            self.failed[name] = str(error)
            return None


class Pictures:
    """The images of an evaluated split, by their names.

    Attributes:
        failed: name of each image that could not be read -> the reason.
    """

    def __init__(self, table: Rows) -> None:
        self.table = table
        times = Counter(table.names)
        # a repeated name is not used: no picture is better than a wrong one
        self._row = {name: row for row, name in enumerate(table.names) if times[name] == 1}
        self.failed: dict[str, str] = {}

    def get(self, name: str) -> Tensor | None:
        """The image, uint8 [channel, height, width], a thumbnail if read from a file; None: it cannot be read."""
        row = self._row.get(name)
        if row is None:
            self.failed.setdefault(name, "the data set has no row with this name, or several")
            return None
        try:
            return self.table.picture(row, THUMBNAIL)
        except OSError as error:
            self.failed[name] = str(error)
            return None


@dataclass(frozen=True, eq=False)
class RetrievalRun(RunContent):
    """A retrieval run, as a page shows it.

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
    pictures: Pictures | FolderPictures | None = None

    kind = "retrieval"

    @property
    def headline(self) -> tuple[str, ...]:
        """Metrics of the tiles, see `RunContent`."""
        return ("R@1", "mAP@R", "AP")

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return MAIN

    @property
    def thresholds(self) -> tuple[float, float] | None:
        """(alpha, beta) of the calibration loss; None: the loss has no calibration, or its thresholds are unknown.

        If the thresholds adapt during training, these are the last logged values.
        """
        loss = self.config.get("loss", {})
        logged = [self.curves.get(name) for name in ("alpha", "beta")]
        if logged[0] and logged[1]:
            return logged[0][-1][1], logged[1][-1][1]
        own = {ROADMAPLoss.__name__, CalibrationLoss.__name__}
        if self.loss in own and {"alpha", "beta"} <= set(loss):
            return float(loss["alpha"]), float(loss["beta"])
        return None
