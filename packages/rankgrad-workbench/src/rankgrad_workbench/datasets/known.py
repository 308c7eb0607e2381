"""Finds rows that a model was trained on among other rows: the same file, picture, text or vector."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Table
from .folder import look_at
from .identical import identical_files, same_pictures
from .rows import Rows
from .text import TextTable
from .vectors import VectorTable


def known_rows(rows: Rows, trained: Rows) -> Tensor:
    """[row] bool, whether a row is among those of the training.

    An image is known by the content of its file, or by its picture in another size or format (`same_pictures`). A text
    is known in any case and spacing.

    Args:
        rows: the rows in question.
        trained: the rows of the training.

    >>> def texts(*them):
    ...     count = len(them)
    ...     return TextTable("", torch.zeros(count, dtype=torch.long), ("a",), ("train",) * count, them, them)
    >>> known_rows(texts("to be", "or not"), texts("To  be"))
    tensor([ True, False])
    """
    if type(rows) is not type(trained) or not isinstance(rows, (Table, TextTable, VectorTable)):
        raise TypeError(f"only images, texts and vectors are compared; got {rows.takes} and {trained.takes}")
    if not isinstance(rows, Table) or not isinstance(trained, Table) or rows.paths is None or trained.paths is None:
        there = set(_marks(trained))
        return torch.tensor([mark in there for mark in _marks(rows)], dtype=torch.bool)
    paths, before = [*trained.paths, *rows.paths], len(trained)
    known = torch.zeros(len(rows), dtype=torch.bool)
    for group in identical_files(paths):
        if group[0] < before:
            known[[row - before for row in group if row >= before]] = True
    reasons, small = look_at(paths)
    good = [row for row, reason in enumerate(reasons) if reason is None]
    for _, later in same_pictures([row < before for row in good], [small[row] for row in good]):
        known[good[later] - before] = True
    return known


def _marks(rows: Rows) -> list[str] | list[bytes]:
    """[row] a text in any case and spacing, or the bytes of a vector or of an image in memory."""
    if isinstance(rows, TextTable):
        return [" ".join(text.split()).casefold() for text in rows.texts]
    values = rows.vectors if isinstance(rows, VectorTable) else rows.images if isinstance(rows, Table) else None
    if values is None:
        raise ValueError("images in memory cannot be compared with files")
    return [row.tobytes() for row in values.numpy()]
