"""Rows and queries that are in two parts of the data: what was trained on is no test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas
from torch import Tensor

if TYPE_CHECKING:
    from .table import ScoreTable

Array = npt.NDArray[Any]
DISTINCT = 0.9  # share of the training rows that are like no other; with fewer, two equal rows are no sign of a copy


def marks_of(rows: pandas.DataFrame | Tensor) -> npt.NDArray[np.uint64]:
    """[row] a hash of each row: of its columns, or of its encoded values."""
    frame = pandas.DataFrame(rows.numpy()) if isinstance(rows, Tensor) else rows
    marks: npt.NDArray[np.uint64] = pandas.util.hash_pandas_object(frame, index=False).to_numpy().copy()
    return marks


def copies_of(marks: Array, query: Array | None, trained: Array) -> npt.NDArray[np.bool_]:
    """[row] bool, whether a row was trained on; with queries: whether half of the rows of its query were.

    If many training rows are equal to each other, an equal row says nothing, and none is named.

    Args:
        marks: [row] hashes of the rows.
        query: [row] ids from 0 on; None: all rows are one list.
        trained: hashes of the training rows.
    """
    known = np.isin(marks, trained)
    if len(np.unique(trained)) < DISTINCT * len(trained):
        return np.full(len(marks), False)
    return known if query is None else (2 * np.bincount(query, known) >= np.bincount(query))[query]


def without_copies(table: ScoreTable, of_files: bool) -> ScoreTable:
    """The table without the queries of val and test that are in an earlier split, too, with their number in a note.

    Copies of single rows of one list stay, and are counted.

    Args:
        table: the rows, with a split or without one.
        of_files: whether each split has a file of its own: then a query is known by its rows, as files may number their
            queries anew.
    """
    if table.split is None:
        return table
    marks = marks_of(table.features) if of_files or table.query is None else np.empty(0)
    query = None if table.query is None else table.query.numpy()
    stays, notes = np.full(len(table), True), list(table.notes)
    for split, earlier in (("val", ["train"]), ("test", ["train", "val"])):
        here, before = table.split == split, np.isin(table.split, earlier)
        if not here.any() or not before.any():
            continue
        known = here.copy()
        if query is not None and not of_files:
            known &= np.isin(query, query[before])
        else:
            known[here] = copies_of(
                marks[here], None if query is None else np.unique(query[here], return_inverse=True)[1], marks[before]
            )
        if not known.any():
            continue
        where = " or ".join(each for each in earlier if (table.split == each).any())
        if query is None:
            notes.append(f"{known.sum()} of {here.sum()} rows of {split} equal a row of {where} in all features.")
            continue
        count, all_here = len(np.unique(query[known])), len(np.unique(query[here]))
        if count == all_here:
            raise ValueError(
                f"{table.name}: all {count} queries of {split} are in {where}, too, so nothing new would be measured. "
                "Give each query to one split"
            )
        notes.append(f"{count} of {all_here} queries of {split} are in {where}, too, and are left out of {split}.")
        stays &= ~known
    return replace(table if stays.all() else table.subset(stays), notes=tuple(notes))


__all__ = ["copies_of", "marks_of", "without_copies"]
