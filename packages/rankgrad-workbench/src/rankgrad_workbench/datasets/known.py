"""Finds rows that a model was trained on among other rows: the same file, picture, text or vector."""

from __future__ import annotations

from collections.abc import Iterable

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
    if isinstance(rows, TextTable) and isinstance(trained, TextTable):
        return _among(map(_plain, rows.texts), map(_plain, trained.texts))
    if isinstance(rows, VectorTable) and isinstance(trained, VectorTable):
        return _among(_bytes_of(rows.vectors), _bytes_of(trained.vectors))
    if not (isinstance(rows, Table) and isinstance(trained, Table)):
        raise TypeError(f"only images, texts and vectors are compared; got {rows.takes} and {trained.takes}")
    if rows.paths is None or trained.paths is None:
        if rows.images is None or trained.images is None:
            raise ValueError("images in memory cannot be compared with files")
        return _among(_bytes_of(rows.images), _bytes_of(trained.images))
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


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _bytes_of(values: Tensor) -> Iterable[bytes]:
    return (row.tobytes() for row in values.numpy())


def _among(marks: Iterable[str | bytes], trained: Iterable[str | bytes]) -> Tensor:
    there = set(trained)
    return torch.tensor([mark in there for mark in marks], dtype=torch.bool)


__all__ = ["known_rows"]
