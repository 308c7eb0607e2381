"""`JudgedRows`: what is known of the rows that scores rank: their relevance, and the query of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import Numbers, unmasked
from ..common.checks import tensor as as_tensor
from ..ranks.relevance import Labels

Array = npt.NDArray[Any]
Rows = TypeVar("Rows", bound="JudgedRows")


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows of one list, or of several queries. `JudgedRows.of` takes what is in memory.

    Attributes:
        relevance: [row] float32 >= 0: 0 and 1, or grades; None: unknown.
        query: [row] int64, ids from 0 on; None: all rows are one list.
        query_names: name of each query id.
        rows: [row] number of the row in its file.
        files: [row] the file, and the unit of the number: "train.csv, line".
        name: what messages call these rows.
    """

    relevance: Tensor | None = None
    query: Tensor | None = None
    query_names: tuple[str, ...] = ()
    rows: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    files: Array = field(default_factory=lambda: np.empty(0, dtype=object))
    name: str = "table"

    def __post_init__(self) -> None:
        count = self._count()
        if not len(self.rows):
            object.__setattr__(self, "rows", np.arange(count))
        if not len(self.files):
            object.__setattr__(self, "files", np.full(count, "row", dtype=object))
        for name in ("relevance", "query", "rows", "files"):
            column = getattr(self, name)
            if column is not None and len(column) != count:
                raise ValueError(f"{name} must have one entry for each of {count} rows; got {len(column)}")
        if self.query is not None and count:
            absent = np.flatnonzero(np.bincount(self.query.numpy()) == 0)
            if len(absent):
                raise ValueError(
                    f"query must number the queries from 0 on, but no row has {absent[0]}. "
                    f"{type(self).__name__}.of takes any ids"
                )
        if self.relevance is not None:
            bad = (~(self.relevance.isfinite() & (self.relevance >= 0))).nonzero()
            if len(bad):
                row = int(bad[0])
                raise ValueError(f"relevance must be finite and >= 0; that of row {row} is {self.relevance[row]:g}")

    def _count(self) -> int:
        if self.relevance is None:
            raise ValueError("rows need their relevance")
        return len(self.relevance)

    @classmethod
    def of(cls, relevance: Numbers, query: Labels | None = None, *, name: str = "table") -> JudgedRows:
        """Rows from arrays in memory.

        Args:
            relevance: [row] 0 and 1, bool, or grades >= 0.
            query: [row] integers or strings. Rows with the same id are a list; they may be in any order. None: all rows
                are one list.
            name: what messages call these rows.

        Raises:
            ValueError: a grade is negative, a query is missing, or the lengths differ.

        >>> rows = JudgedRows.of([False, True, False], query=["b", "a", "b"])
        >>> rows.query, rows.query_names
        (tensor([1, 0, 1]), ('a', 'b'))
        """
        ids, names = numbered_queries(query)
        return JudgedRows(as_tensor(relevance, "relevance").detach().cpu().float(), ids, names, name=name)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> str:
        """The place of a row in its file, for messages: "train.csv, line 12"."""
        return f"{self.files[row]} {self.rows[row]}"

    def subset(self: Rows, indices: Array | Tensor | list[int] | range) -> Rows:
        """Some of the rows. Query ids are numbered again from 0 on, in the same order.

        Args:
            indices: row numbers, or [row] bool.
        """
        chosen = np.asarray(indices)
        if chosen.dtype != bool:
            chosen = chosen.astype(np.int64)
        query, names = self.query, self.query_names
        if query is not None:
            ids, numbers = np.unique(query.numpy()[chosen], return_inverse=True)
            query = torch.from_numpy(numbers.reshape(-1))
            names = tuple(names[number] for number in ids) if names else ()
        return replace(
            self,
            relevance=None if self.relevance is None else torch.from_numpy(self.relevance.numpy()[chosen]),
            query=query,
            query_names=names,
            rows=self.rows[chosen],
            files=self.files[chosen],
            **self._columns(chosen),
        )

    def _columns(self, chosen: Array) -> dict[str, Any]:
        """The further columns of these rows; a class that adds columns names them here."""
        return {}


def numbered_queries(query: Labels | None) -> tuple[Tensor | None, tuple[str, ...]]:
    """[row] ids from 0 on in sorted order, and the name of each.

    Args:
        query: [row] integers or strings; None: there are none.

    Raises:
        ValueError: a query is missing; naming the row.

    >>> numbered_queries([7, 3, 7])
    (tensor([1, 0, 1]), ('3', '7'))
    """
    if query is None:
        return None, ()
    given: Any = query.detach().cpu().numpy() if isinstance(query, Tensor) else np.asarray(unmasked(query, "query"))
    if given.dtype == object and hasattr(query, "isna"):  # what pandas calls missing, such as NA, is None here
        given = given.copy()
        given[query.isna()] = None
    for row, value in enumerate(given.tolist()):
        if value is None or value != value:  # NaN
            raise ValueError(f"query of row {row} is missing; each row needs its query")
    kinds, ids = np.unique(given, return_inverse=True)
    return torch.from_numpy(ids.reshape(-1)), tuple(map(str, kinds.tolist()))


def has_order(relevance: Tensor, query: Tensor | None) -> bool:
    """Whether two rows of a query differ in relevance. Without queries: whether two rows do.

    >>> has_order(torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1]))
    False
    """
    grades = relevance.numpy()
    ids = np.zeros(len(grades), dtype=np.int64) if query is None else query.numpy()
    order = np.lexsort((grades, ids))
    return bool(((np.diff(ids[order]) == 0) & (np.diff(grades[order]) != 0)).any())


__all__ = ["JudgedRows", "has_order", "numbered_queries"]
