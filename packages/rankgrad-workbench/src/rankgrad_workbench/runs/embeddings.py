"""The npz of embeddings of a run: writing it, and reading its columns for an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rankgrad.evaluation import Protocol
from rankgrad.ranks.normalize import unit_rows
from rankgrad.ranks.relevance import as_labels

from ..datasets.protocols import trials
from ..datasets.rows import Rows
from ..files import Pieces
from ..files.tables.written import write_vectors

# Columns of an npz that are arguments of `evaluation.evaluate`, besides embeddings and labels.
COLUMNS = ("super_labels", "class_names", "super_names", "ref_embeddings", "ref_labels")
OF_PROTOCOL = ("ids", "groups", "weights", "ref_ids", "ref_groups")


def evaluated_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `evaluation.evaluate` in the columns of an npz, except embeddings and labels.

    Args:
        columns: name -> array; labels are needed.

    >>> from rankgrad.evaluation import evaluate
    >>> columns = {"embeddings": np.eye(4)[[0, 0, 1, 1]], "labels": np.array([0, 0, 1, 1]), "ids": np.arange(4)}
    >>> report = evaluate(columns["embeddings"], columns["labels"], **evaluated_columns(columns))
    >>> report.values["R@1"]
    1.0
    """
    evaluated: dict[str, Any] = {name: columns[name] for name in COLUMNS if name in columns}
    evaluated["protocol"] = Protocol(**{name: columns[name] for name in OF_PROTOCOL if name in columns})
    for name, of in (("class_names", "labels"), ("super_names", "super_labels")):
        if name in evaluated and columns.get(of, columns["labels"]).dtype.kind in "US":
            del evaluated[name]  # labels that are strings are their own names
        elif name in evaluated:
            evaluated[name] = [str(text) for text in evaluated[name]]
    return evaluated


def by_levels(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns with labels [row, level], where level 0 is the super-label and level 1 the label; also ref_labels.

    Raises:
        ValueError: there are no super-labels, or rows have several labels.

    >>> by_levels({"labels": np.array([3, 4]), "super_labels": np.array(["a", "b"])})["labels"]
    array([[0, 3],
           [1, 4]])
    """
    sides = [side for side in ("", "ref_") if f"{side}labels" in columns]
    for side in sides:
        if f"{side}super_labels" not in columns or columns[f"{side}labels"].ndim != 1:
            why = "rows with several labels" if columns[f"{side}labels"].ndim != 1 else f"no {side}super_labels"
            raise ValueError(f"levels need one label and one super-label for each row, but this file has {why}")
    numbers = as_labels(*(columns[f"{side}super_labels"] for side in sides))
    by_level = dict(columns)
    for side, coarse in zip(sides, numbers, strict=True):
        fine = columns[f"{side}labels"]
        kind = str if fine.dtype.kind in "US" else np.int64  # both levels need the same dtype
        by_level[f"{side}labels"] = np.stack([coarse.numpy().astype(kind), fine], axis=1)
    return by_level


def joined_classes(several: npt.NDArray[np.bool_], names: Sequence[str]) -> list[str]:
    """The class names of each row, joined by commas: [row].

    >>> joined_classes(np.array([[True, False], [True, True]]), ["cat", "dog"])
    ['cat', 'cat, dog']
    """
    return [", ".join(names[at] for at in np.flatnonzero(row).tolist()) for row in several]


def save_embeddings(
    path: Path, embeddings: Tensor | Pieces, table: Rows, more: Mapping[str, Any] | None = None
) -> None:
    """Write a file of embeddings, labels, names, classes and super-labels, for `rankgrad evaluate` and for numpy.

    Rows have length 1 in every file, so that an inner product is the cosine by which a model was trained and measured.
    If the table has groups or texts, they are the columns `groups` and `texts`. If it has queries and a gallery, the
    gallery is in `ref_embeddings`, `ref_labels`, `ref_names`, and so on. If rows may have several classes, labels are
    bool [row, class].

    Args:
        path: npz or parquet to write, see `tables.written`; an existing file is replaced.
        embeddings: [row, dim]; or pieces of it, of length 1, if the table has no separate queries and gallery.
        table: the rows.
        more: further columns.

    >>> import tempfile, torch
    >>> from rankgrad_workbench.datasets import VectorTable
    >>> table = VectorTable("two", torch.tensor([0, 1]), ("a", "b"), ("test",) * 2, ("x", "y"), torch.eye(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_embeddings(Path(folder, "two.npz"), torch.eye(2), table)
    ...     with np.load(Path(folder, "two.npz")) as columns:
    ...         print(sorted(columns), columns["names"].tolist())
    ['class_names', 'embeddings', 'labels', 'names', 'texts'] ['x', 'y']
    """
    sides: dict[str, Any] = {"": slice(None)}
    if table.protocol == "query_gallery":
        (trial,) = trials(table)
        sides = {"": trial.query, "ref_": trial.gallery}
        if isinstance(embeddings, Pieces):
            raise ValueError(
                f"{table.name} has queries and a gallery; give its embeddings as one tensor, not in pieces"
            )
    of_rows = {
        **{"embeddings": unit_rows(embeddings) if isinstance(embeddings, Tensor) else None, "labels": table.truth},
        **{"names": table.names, "texts": table.captions, "groups": table.group, "super_labels": table.super_label},
    }
    columns = {
        f"{side}{name}": np.asarray(column)[rows]
        for side, rows in sides.items()
        for name, column in of_rows.items()
        if column is not None
    }
    columns |= {"embeddings": embeddings} if isinstance(embeddings, Pieces) else {}
    columns |= {"class_names": np.asarray(table.class_names)}
    columns |= {} if table.super_label is None else {"super_names": np.asarray(table.super_names)}
    write_vectors(path, {**(more or {}), **columns})


__all__ = ["save_embeddings", "evaluated_columns", "by_levels"]
