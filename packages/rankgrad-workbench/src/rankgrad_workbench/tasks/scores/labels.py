"""The label of each row -> its relevance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor

from rankgrad.common.checks import setting
from rankgrad.common.text import shown
from rankgrad.scores.rows import JudgedRows

from ...files.tables.text import MISSING, number_in
from .reading import TRUTH

Array = npt.NDArray[Any]
LARGEST = 1e9  # extremes of types stand for missing values, and float32 has to tell grades apart
MOST_GRADES = 32  # whole numbers of a label; with more it is a quantity


def not_judged(words: Array) -> npt.NDArray[np.bool_]:
    """[row] bool. In LETOR's files -1 is a grade beside 0, 1, ...: the row was not judged. Elsewhere it is a class.

    Args:
        words: [row] labels, None for a missing one.
    """
    numbers = _numbers([word for word in set(words.tolist()) if word is not None])
    negative = {number for number in numbers.values() if number is not None and number < 0}
    if negative != {-1.0} or None in numbers.values() or 0.0 not in numbers.values() or max(numbers.values()) <= 0:
        return np.full(len(words), False)
    return np.array([word is not None and numbers[word] == -1 for word in words.tolist()])


def _numbers(words: Sequence[str]) -> dict[str, Any]:
    """Label -> its number; true and false are 1 and 0. None: it has none."""
    return {word: TRUTH.get(word.lower(), number_in(word)) for word in words}


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
    given = None if positive is None else str(positive).strip()
    cells = np.array(["" if word is None else word for word in words.tolist()], dtype=object)
    codes, different = pandas.factorize(cells, sort=True)
    kinds: list[str] = different.tolist()
    for code, word in enumerate(kinds):
        if word.lower() in MISSING and (not word or given is None or word.lower() != given.lower()):
            what = f"{shown(word)!r}, a word for a missing value" if word else "empty"
            ours = f". If it is the label that is relevant: {setting('positive', shown(word))}" if word else ""
            raise ValueError(
                f"{rows.place(int((codes == code).argmax()))}: the label {name!r} is {what}; give it a value or leave "
                f"the row out{ours}"
            )
    numbers = _numbers(kinds)
    of_words = None in numbers.values()
    labels = np.array(kinds if of_words else [*numbers.values()], dtype=object if of_words else np.float64)[codes]
    _need_two(rows, labels, cells, name)
    notes: list[str] = []
    if given is not None:
        relevant, notes = _relevant_labels(kinds, codes, given, rows, cells, name)
        grades = np.isin(codes, relevant).astype(np.float64)
    elif of_words:
        raise ValueError(
            f"the label {name!r} of {rows.name} has words: {_some(cells)}. Name the one that is relevant: "
            f"{setting('positive', _rarest(cells))}"
        )
    else:
        grades = labels
    for wrong, what, must in (
        (np.isinf(grades), "infinite", "finite"),
        (grades < 0, "", ">= 0"),
        (grades > LARGEST, "", f"at most {LARGEST:g}"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{rows.place(row)}: the label {name!r} is {what or f'{grades[row]:g}'}; grades must be {must}. "
                f"Correct it, or name the label that is relevant: {setting('positive', 1)}"
            )
    _need_two(rows, grades, cells, name)
    if rows.query is None and grades.min() > 0:
        raise ValueError(
            f"each row of {rows.name} is relevant: the label {name!r} has {_some(cells)}, and only 0 is irrelevant. "
            f"Name the label that is relevant: {setting('positive', _rarest(cells))}"
        )
    notes += _remarks(rows, labels, cells, name) if given is None else []
    return torch.from_numpy(np.ascontiguousarray(grades, dtype=np.float32)), notes


def _relevant_labels(
    kinds: Sequence[str], codes: Array, given: str, rows: JudgedRows, cells: Array, name: str
) -> tuple[list[int], list[str]]:
    """The labels that `positive` names: as it is written, else as a number, else in other capitals; and a remark."""
    number = number_in(given)
    same = [code for code, word in enumerate(kinds) if word == given]
    same = same or [code for code, word in enumerate(kinds) if number is not None and number_in(word) == number]
    other = [code for code, word in enumerate(kinds) if word.lower() == given.lower() and code not in same]
    if len(same or other) == 0:
        raise ValueError(
            f"no row of {rows.name} has the label {given!r}; {name!r} has {_some(cells)}. Name the one that is "
            f"relevant: {setting('positive', _rarest(cells))}"
        )
    if not same and len(other) > 1:
        raise ValueError(
            f"the label {given!r} could be {' or '.join(shown(kinds[code]) for code in other)} in {name!r} of "
            f"{rows.name}; name one as it is written: {setting('positive', kinds[other[0]])}"
        )
    notes = [
        f"{_rows(codes == code)} the label {shown(kinds[code])!r}, which is not the relevant label "
        f"{shown(given)!r}. If both mean the same, write them alike."
        for code in (other if same else [])
    ]
    return same or other, notes


def _rows(which: Array) -> str:
    count = int(which.sum())
    return f"{count} row has" if count == 1 else f"{count} rows have"


def _remarks(rows: JudgedRows, labels: Array, cells: Array, name: str) -> list[str]:
    """A sentence if the label is a quantity, or if most rows of one list have the relevant one of two labels."""
    values, relevant = np.unique(labels), int((labels > 0).sum())
    if (values != np.round(values)).any() or len(values) > MOST_GRADES:
        return [
            f"{name!r} has {len(values)} different values, such as {values[-1]:g}, so it looks like a quantity and not "
            f"like grades. Each value above 0 counts as relevant in AP, ROC AUC, MRR and P@k: {relevant} of "
            f"{len(labels)} rows. If another column is the label, name it: {setting('label', 'NAME')}"
        ]
    if rows.query is not None or 2 * relevant <= len(labels) or len(values) > 2:
        return []
    return [
        f"{relevant} of {len(labels)} rows are relevant. If the rarer label is the one to find, name it: "
        f"{setting('positive', _rarest(cells))}"
    ]


def _need_two(rows: JudgedRows, values: Array, cells: Array, name: str) -> None:
    if (values == values[0]).all():
        raise ValueError(
            f"all {len(values)} rows of {rows.name} have the label {name!r} = {_some(cells[:1])}; at least two "
            f"different labels are needed. If another column is the label, name it: {setting('label', 'NAME')}"
        )


def _some(cells: Array) -> str:
    words = sorted(map(shown, {*cells.tolist()}))
    return ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")


def _rarest(cells: Array) -> str:
    kinds, counts = np.unique(cells.astype(str), return_counts=True)
    return str(kinds[counts.argmin()])


__all__ = ["graded", "not_judged"]
