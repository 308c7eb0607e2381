"""The label of each row -> its relevance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor

from rankgrad.common.checks import setting
from rankgrad.common.text import shown
from rankgrad.scores.rows import JudgedRows

from ...files.tables.text import number_in
from .reading import TRUTH

Array = npt.NDArray[Any]
LARGEST = 1e9  # extremes of types stand for missing values, and float32 has to tell grades apart
MOST_GRADES = 32  # whole numbers of a label; with more it is a quantity


def not_judged(words: Array) -> npt.NDArray[np.bool_]:
    """[row] bool. In LETOR's files -1 is a grade beside 0, 1, ...: the row was not judged. Elsewhere it is a class.

    Args:
        words: [row] labels, None for a missing one.
    """
    grades = {_number(word) for word in pandas.unique(words) if word is not None}
    judged = {grade for grade in grades if grade is not None and grade != -1}
    letor = grades == judged | {-1.0} and min(judged, default=1) == 0 < max(judged)
    return np.array([letor and word is not None and _number(word) == -1 for word in words.tolist()])


def _number(word: str) -> float | None:
    """The number of a label; true and false are 1 and 0. None: it has none."""
    return TRUTH.get(word.lower(), number_in(word))


def graded(rows: JudgedRows, words: Array, name: str, positive: str | float | None) -> tuple[Tensor, list[str]]:
    """[row] float32 relevance, and remarks on the labels.

    Args:
        rows: the rows, for messages.
        words: [row] their labels, None for an empty one.
        name: name of the column.
        positive: the label of the relevant rows; None: labels are 0 and 1, or grades.

    Raises:
        ValueError: a label is missing, negative, infinite or too large, or all are alike; or `positive` is none of
            them. The message has the row.
    """
    codes, kinds = pandas.factorize(words, sort=True)
    for row in np.flatnonzero(codes < 0)[:1]:
        raise ValueError(f"{rows.place(row)}: the label {name!r} is empty; give it a value or leave the row out")
    numbers = [_number(word) for word in kinds]
    some = ", ".join(map(shown, kinds[:5])) + (", ..." if len(kinds) > 5 else "")
    name_it = f"Name the label that is relevant: {setting('positive', kinds[np.bincount(codes).argmin()])}"
    if len({word if number is None else number for word, number in zip(kinds, numbers, strict=True)}) == 1:
        raise ValueError(
            f"all {len(words)} rows of {rows.name} have the label {name!r} = {kinds[0]}; at least two different labels "
            f"are needed. If another column is the label, name it: {setting('label', 'NAME')}"
        )
    if positive is not None:
        given = str(positive).strip()
        relevant = [word == given for word in kinds]
        if not any(relevant) and _number(given) is not None:
            relevant = [number == _number(given) for number in numbers]
        if not any(relevant):
            raise ValueError(f"no row of {rows.name} has the label {given!r}; {name!r} has {some}. {name_it}")
        return torch.from_numpy(np.array(relevant, np.float32)[codes]), []
    if None in numbers:
        raise ValueError(f"the label {name!r} of {rows.name} has words: {some}. {name_it}")
    grades = np.array(numbers, np.float64)[codes]
    for row in np.flatnonzero(~((grades >= 0) & (grades <= LARGEST)))[:1]:
        raise ValueError(
            f"{rows.place(row)}: the label {name!r} is {grades[row]:g}; grades must be in 0 .. {LARGEST:g}. Correct "
            f"it, or name the label that is relevant: {setting('positive', 1)}"
        )
    if rows.query is None and grades.min() > 0:
        raise ValueError(
            f"each row of {rows.name} is relevant: the label {name!r} has {some}, and only 0 is irrelevant. {name_it}"
        )
    return torch.from_numpy(grades.astype(np.float32)), _remarks(rows, grades, name, name_it)


def _remarks(rows: JudgedRows, grades: Array, name: str, name_it: str) -> list[str]:
    """A sentence if the label is a quantity, or if most rows of one list have the relevant one of two labels."""
    values, relevant = np.unique(grades), int((grades > 0).sum())
    if (values != np.round(values)).any() or len(values) > MOST_GRADES:
        return [
            f"{name!r} has {len(values)} different values, such as {values[-1]:g}, so it looks like a quantity and not "
            f"like grades. Each value above 0 counts as relevant in AP, ROC AUC, MRR and P@k: {relevant} of "
            f"{len(grades)} rows. If another column is the label, name it: {setting('label', 'NAME')}"
        ]
    if rows.query is not None or 2 * relevant <= len(grades) or len(values) > 2:
        return []
    return [f"{relevant} of {len(grades)} rows are relevant. Is the rarer label the one to find? {name_it}"]


__all__ = ["graded", "not_judged"]
