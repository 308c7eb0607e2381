"""Embeddings of queries and of their gallery, with names and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad.ranks.normalize import unit_rows

from ....datasets.vectors import embedding_columns
from ....runs.embeddings import joined_classes


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
        wanted = {"labels": queries, "names": queries, "item_labels": items, "item_names": items}
        wanted |= {"super_labels": queries} if self.super_labels is not None else {}
        wanted |= {"texts": queries, "item_texts": items} if self.texts else {}
        got = {name: 0 if getattr(self, name) is None else len(getattr(self, name)) for name in wanted}
        if wrong := {name: count for name, count in got.items() if count != wanted[name]}:
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

    def classes_of(self, labels: Tensor) -> list[str]:
        """The names of the classes of some rows."""
        return [self.class_names[label] for label in labels.tolist()]

    def same_gallery(self, other: Space) -> bool:
        """Whether both galleries have the same names with the same classes, in any order."""
        own, others = (
            Counter(zip(space.gallery[2], space.classes_of(space.gallery[1]), strict=True)) for space in (self, other)
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

    def text(self, row: int, *, item: bool = False) -> str | None:
        """The text of a query, or of an item; None if rows are not texts."""
        texts = self.item_texts if item and self.items is not None else self.texts
        return texts[row] if texts else None

    @classmethod
    def load(cls, path: Path) -> Space:
        """Read a file of `runs.embeddings.save_embeddings`, or any npz or parquet with embeddings and labels.

        Rows without names are named by their number. Labels may be texts, or integers with or without class_names.

        Raises:
            ValueError: the file lacks a column, or the lengths of its columns differ.
            OSError: the file cannot be read.
        """
        columns = embedding_columns(path, "embeddings", "labels")
        parts: dict[str, Any] = {}
        if columns["labels"].dtype.kind == "b" and columns["labels"].ndim == 2:
            called = _texts(columns, "class_names") or tuple(map(str, range(columns["labels"].shape[1])))
            for side, name in (("several", "labels"), ("item_several", "ref_labels")):
                if name in columns:
                    parts[side] = torch.from_numpy(columns[name])
                    columns[name] = np.array(joined_classes(columns[name], called))
        for side, ours in (("", "queries"), ("ref_", "items")):
            if f"{side}embeddings" in columns:
                parts[ours] = unit_rows(torch.from_numpy(columns[f"{side}embeddings"]).float())
                of = "item_" if side else ""
                rows = tuple(f"row {row}" for row in range(len(parts[ours])))
                parts |= {f"{of}names": _texts(columns, f"{side}names") or rows}
                parts |= {f"{of}texts": _texts(columns, f"{side}texts")}
        parts["class_names"], (parts["labels"], parts["item_labels"]) = _numbered(
            columns, "class_names", "labels", "ref_labels"
        )
        parts["super_names"], (parts["super_labels"],) = _numbered(columns, "super_names", "super_labels")
        return cls(**parts)


def _texts(columns: Mapping[str, npt.NDArray[Any]], name: str) -> tuple[str, ...]:
    return tuple(map(str, columns[name].tolist())) if name in columns else ()


def _numbered(
    columns: Mapping[str, npt.NDArray[Any]], names: str, *of: str
) -> tuple[tuple[str, ...], list[Tensor | None]]:
    """(names of the classes, numbers of the classes for each column of `of`; None if the file lacks it)."""
    given = [columns[name] for name in of if name in columns]
    known = _texts(columns, names)
    if given and not (known and given[0].dtype.kind in "iu"):
        values, flat = np.unique(np.concatenate(given), return_inverse=True)
        known = tuple(map(str, values.tolist()))
        given = np.split(flat.reshape(-1), np.cumsum([len(each) for each in given])[:-1])
    numbers: list[Tensor | None] = [torch.from_numpy(each.astype(np.int64)) for each in given]
    return known if given else (), numbers + [None] * (len(of) - len(numbers))
