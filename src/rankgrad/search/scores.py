r"""Scores of queries against all references, a block of queries at a time. Equal scores stay exactly equal.

Scores are inner products (cosines, if the rows have length 1) or minus Euclidean distances. A floating-point matrix
product rounds: if the same numbers are added in another order, the sum may differ in the last bit, and a tie is broken
at random. Four cases in which ties are common are treated:

* Identical gallery rows may get different scores within one product, because different kernels compute their columns.
  So all duplicates get the score of the first one.
* Rows of length 1 that are integers divided by their length (codes of +-1, sets, counts) often have equal cosines. So
  the exact inner product p of the integers is computed, and then divided by the lengths: p |p| / n is an exact fraction
  rounded once, with n the sum of squares of an item. Equal cosines are equal fractions.
* Embeddings that are nearly alike have scores that differ by little more than their rounding in float32. They are
  computed in float64, and rounded to a grid that is coarser than the rounding of float64.
* Others have many scores within their rounding, such as those of classes that collapsed to a point each. Products of
  another number of rows add in another order, so such scores are computed in tiles: a query always has the same place
  in a product of the same shape, and its scores do not depend on the block.

All other scores are exactly those of the plain product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..common.checks import dense, one_of

Similarity = Literal["inner product", "euclidean"]

SAMPLE = 64  # number of rows that are tested before all rows are
LARGEST, MOST = 1024, 16  # limits for the integers of a row: of the largest, and of the smallest that is not 0
PART = 4096  # number of rows that are compared together
PIECE = 2**17  # number of values processed together, which fit into the cache
ALIKE = 1 / 64  # if the scores of a query differ by less than this share of their size, embeddings are nearly alike
TILE = 32  # rows of a product, where scores within their rounding are common
TOP, CLOSE, COMMON = 64, 16, 0.01  # scores of a query that are compared; roundings between two that are close; share
GRID = 2.0**46  # steps of the grid of keys in the size of the largest one


class Scorer:
    """Computes keys that rank the references for some queries. The next call overwrites the keys.

    A call with rows (long, indices of queries) returns keys [row, item]: higher is closer, and only keys of the same
    row can be compared. `scores` turns keys into scores.

    Args:
        queries: [query, dim] float.
        references: [item, dim] float, same device; may be the queries.
        similarity: "inner product", or "euclidean": minus the distance.

    Attributes:
        dtype: dtype of keys and scores: float64 if queries or references are, or if rows are nearly alike; else
            float32.
        device: device of queries and references.
        items: number of references.

    >>> scorer = Scorer(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0], [6.0, 8.0], [3.0, 5.0]]), "euclidean")
    >>> scorer.scores(scorer(torch.tensor([0])), torch.tensor([0]))
    tensor([[-5., -5., -1.]])
    """

    def __init__(self, queries: Tensor, references: Tensor, similarity: Similarity = "inner product") -> None:
        check_embeddings("queries", queries)
        if references is not queries:
            check_embeddings("references", references)
        if queries.shape[1] != references.shape[1] or queries.device != references.device:
            raise ValueError(
                f"queries and references must have the same width and device; got {queries.shape[1]} on "
                f"{queries.device} and {references.shape[1]} on {references.device}"
            )
        one_of(similarity, "similarity", ("inner product", "euclidean"))
        self.dtype = torch.promote_types(torch.promote_types(queries.dtype, references.dtype), torch.float32)
        self.device, self.items = queries.device, len(references)
        self._queries = queries.detach().to(self.dtype)
        self._references = self._queries if references is queries else references.detach().to(self.dtype)
        self._addend: Tensor | None = None  # [item] added to the product
        self._divisor: Tensor | None = None  # [item] p |p| is divided by this
        self._meant: Callable[[Tensor, Tensor], Tensor] | None = None
        self._copies = self._originals = torch.empty(0, dtype=torch.long, device=self.device)
        self._require_range(similarity)
        self._grid = 0.0
        exact = similarity == "inner product" and self._by_whole_numbers()
        # of two items one is mostly the query itself, and there is nothing to rank
        alike = not exact and self.items > 2 and self.dtype == torch.float32 and self._alike()
        if alike:
            same, self.dtype = self._references is self._queries, torch.float64
            self._queries = self._queries.double()
            self._references = self._queries if same else self._references.double()
        exact = self._by_distance() if similarity == "euclidean" else exact
        if not exact:
            self._copies, self._originals = duplicate_rows(self._references)
        if alike and not exact:
            size = sum(float(side.square().sum(1).amax()) for side in self._sides())  # no key is larger
            self._grid = 2.0 ** math.ceil(math.log2(size)) / GRID if size else 0.0
        self._tiled = not exact and self.items > 2 and (alike or self._close())
        self._buffer = torch.empty(0, dtype=self.dtype, device=self.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """[len(rows), item] keys; valid until the next call, and may be overwritten."""
        if len(self._buffer) < len(rows):
            self._buffer = torch.empty(len(rows), self.items, dtype=self.dtype, device=self.device)
        with torch.no_grad():
            queries, keys = self._queries[rows], self._buffer[: len(rows)]
            if self._tiled:
                for tile in sorted(set((rows // TILE).tolist())):
                    here = rows // TILE == tile
                    slots = rows[here] % TILE
                    padded = queries.new_zeros(TILE, queries.shape[1])
                    padded[slots] = queries[here]
                    keys[here] = self._product(padded, None)[slots]
            else:
                self._product(queries, keys)
            if len(self._copies):
                keys[:, self._copies] = keys[:, self._originals]
            if self._divisor is not None:
                for part in torch.split(keys, max(1, PIECE // self.items)):
                    part.mul_(part.abs()).div_(self._divisor)
            if self._grid:
                keys.div_(self._grid).round_().mul_(self._grid)
        return keys

    def scores(self, keys: Tensor, rows: Tensor) -> Tensor:
        """The cosines, inner products or minus distances of keys [row, ...] of these queries."""
        return keys if self._meant is None else self._meant(keys, rows)

    def _product(self, queries: Tensor, out: Tensor | None) -> Tensor:
        if self._addend is None:
            return torch.mm(queries, self._references.T, out=out)
        return torch.addmm(self._addend, queries, self._references.T, out=out)

    def _close(self) -> bool:
        """Whether many of the highest scores differ by no more than their rounding. Judged by some rows."""
        kept = torch.ones(self.items, dtype=torch.bool, device=self.device)
        kept[self._copies] = False
        others = kept.nonzero().squeeze(1)
        others = others[:: max(1, len(others) // PART)]
        queries = self._queries[:: max(1, len(self._queries) // TILE)][:TILE].double()
        references = self._references[others].double()
        size = queries.square().sum(1, keepdim=True).sqrt() * references.square().sum(1).sqrt().mean()
        keys = queries @ references.T
        if self._addend is not None:
            keys, size = keys + self._addend[others], size + self._addend[others].abs().mean()
        top = keys.topk(min(TOP, len(others))).values
        gaps = top[:, :-1] - top[:, 1:]
        return bool((gaps <= CLOSE * torch.finfo(self.dtype).eps * size).double().mean() > COMMON)

    def _alike(self) -> bool:
        """Whether the scores of most queries differ by little. Judged by some rows, evenly taken."""
        some, others = (side[:: max(1, len(side) // SAMPLE)][:SAMPLE].double() for side in self._sides())
        size = some.square().sum(1).sqrt() * others.square().sum(1).amax().sqrt()
        low, high = (some @ others.T).aminmax(dim=1)
        return bool(size.amin() > 0) and bool(((high - low) / size).median() < ALIKE)

    def _require_range(self, similarity: Similarity) -> None:
        """Raise if a score may overflow."""
        here, there = (max(-float(low), float(high)) for low, high in map(torch.aminmax, self._sides()))
        squared = here * there if similarity == "inner product" else (here + there) * (here + there)  # ** would raise
        if squared * self._queries.shape[1] > torch.finfo(self.dtype).max:
            what = "inner products" if similarity == "inner product" else "squared distances"
            raise ValueError(
                f"{what} may overflow {self.dtype}: entries reach {here:.3g} and {there:.3g}. "
                "Normalise the embeddings or pass float64."
            )

    def _sides(self) -> tuple[Tensor, Tensor]:
        return self._queries, self._references

    def _by_distance(self) -> bool:
        """Rank by key = q r - r^2 / 2; the distance is sqrt(q^2 - 2 key). True if this is exact."""
        whole = all(bool((side == side.round()).all()) for side in self._sides())
        squares = [side.square().sum(1) for side in self._sides()]
        exact = whole and float(squares[0].amax().sqrt() + squares[1].amax().sqrt()) ** 2 < _integers(self.dtype)
        if not exact:  # far from zero, rounding of the squares would hide the distances
            same, centre = self._references is self._queries, self._references.mean(0)
            self._queries = self._queries - centre
            self._references = self._queries if same else self._references - centre
            squares = [side.square().sum(1) for side in self._sides()]
        self._addend = squares[1].neg() / 2
        self._meant = lambda keys, rows: -(_column(squares[0][rows], keys) - 2 * keys).clamp(min=0).sqrt()
        return exact

    def _by_whole_numbers(self) -> bool:
        """Rank by exact cosines of integers, if all rows allow it; then equal cosines have equal keys."""
        mine = whole_rows(self._queries)
        theirs = mine if self._references is self._queries else None if mine is None else whole_rows(self._references)
        if mine is None or theirs is None:
            return False
        squares = [numbers.square().sum(1) for numbers in (mine, theirs)]
        low, high = (float(extreme) for extreme in torch.aminmax(squares[1]))
        # no partial sum exceeds |q| |r|; if the lengths differ, the square must be exact, too
        most = float(squares[0].amax()) * high
        if most > _integers(self.dtype) ** (2 if low == high else 1):
            return False
        self._queries, self._references = mine, theirs
        length = squares[0].clamp(min=1)
        if low == high:
            self._meant = lambda keys, rows: keys / (_column(length[rows], keys) * max(high, 1)).sqrt()
        else:
            self._divisor = squares[1].clamp(min=1)
            self._meant = lambda keys, rows: (keys.abs() / _column(length[rows], keys)).sqrt().copysign(keys)
        return True


def _integers(dtype: torch.dtype) -> float:
    """All integers up to this one are exact in this dtype."""
    return 2 / torch.finfo(dtype).eps


def _column(values: Tensor, like: Tensor) -> Tensor:
    """[row, 1, ...] values per row, to broadcast with `like`."""
    return values.view(-1, *[1] * (like.dim() - 1))


def whole_rows(rows: Tensor) -> Tensor | None:
    """Rows of small integers that are multiples of the given rows, if all rows have length 1 (or 0).

    The smallest such integers are returned, so multiples of a row give the same result. A few units in the last place
    are tolerated for the rounding of integers divided by their length.

    Args:
        rows: [row, dim] float32 or float64, finite.

    Returns:
        [row, dim] integers up to 1024; the smallest of a row that is not 0 is at most 16. None if this is not possible
        for a row.

    >>> whole_rows(torch.nn.functional.normalize(torch.tensor([[3.0, 0.0, -6.0], [1.0, 1.0, 1.0]])))
    tensor([[ 1.,  0., -2.],
            [ 1.,  1.,  1.]])
    >>> whole_rows(torch.tensor([[0.6, 0.8], [0.28, 0.9]]))  # not of length 1
    """
    if _as_whole(rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]) is None:
        return None
    numbers, start = torch.empty_like(rows), 0
    for part in torch.split(rows, max(1, PIECE // rows.shape[1])):
        whole = _as_whole(part)
        if whole is None:
            return None
        numbers[start : start + len(part)] = whole
        start += len(part)
    return numbers


def _as_whole(rows: Tensor) -> Tensor | None:
    eps = torch.finfo(rows.dtype).eps
    length = rows.double().square().sum(1).sqrt()
    if not bool(((length == 0) | ((length - 1).abs() <= 64 * eps)).all()):
        return None
    size = rows.abs()
    smallest = size.masked_fill(size == 0, torch.inf).amin(1, keepdim=True).clamp(max=1)
    numbers, todo, rest = rows, torch.arange(len(rows), device=rows.device), rows
    for steps in range(1, MOST + 1):
        unit = smallest[todo] / steps
        rounded = (rest / unit).round_()
        good = (rounded * unit).sub_(rest).abs_() <= rest.abs().mul_(4 * eps)
        fits = good.all(1) & (rounded.abs().amax(1) <= LARGEST)
        if steps == 1:
            numbers = rounded
        else:
            numbers[todo[fits]] = rounded[fits]
        todo = todo[~fits]
        if not len(todo):
            return numbers
        rest = rows[todo]
    return None


def of_one_byte(embeddings: Tensor) -> bool:
    """Whether numbers are int8, uint8 or float8, which save memory. In float32 they are exact."""
    return embeddings.dtype.itemsize == 1 and embeddings.dtype != torch.bool


def check_embeddings(name: str, embeddings: Tensor) -> None:
    """Raise unless embeddings are a non-empty, finite floating-point tensor [row, dim].

    Raises:
        TypeError: this is not a floating-point tensor.
        ValueError: the shape is wrong, there are no rows, or a value is NaN or infinite; the message has the first bad
            row.

    >>> check_embeddings("queries", torch.tensor([[1.0], [float("nan")]]))
    Traceback (most recent call last):
        ...
    ValueError: queries must be finite; row 1 (first of 1) holds nan. Look at the model's output for that sample.
    """
    if not isinstance(embeddings, Tensor) or not embeddings.dtype.is_floating_point or embeddings.dtype.itemsize == 1:
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        cure = f". Pass {name}.float()" if isinstance(embeddings, Tensor) else ""
        raise TypeError(f"{name} must be a floating-point tensor [row, dim] of 16 bits or more; got {kind}{cure}")
    dense(embeddings, name)
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(f"{name} must be a non-empty matrix [row, dim]; got shape {tuple(embeddings.shape)}")
    if not all(extreme.isfinite() for extreme in torch.aminmax(embeddings)):
        finite = embeddings.isfinite().all(1)
        bad = (~finite).nonzero().squeeze(1)
        row = int(bad[0])
        value = float(embeddings[row][~embeddings[row].isfinite()][0])
        raise ValueError(
            f"{name} must be finite; row {row} (first of {len(bad)}) holds {value}. "
            "Look at the model's output for that sample."
        )


def duplicate_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that equal an earlier row, and for each the first row that it equals.

    Args:
        matrix: [row, dim] float, finite; 0.0 and -0.0 are equal.

    Returns:
        (copies [n] long, originals [n] long).

    >>> duplicate_rows(torch.tensor([[1.0], [2.0], [1.0], [1.0]]))
    (tensor([2, 3]), tensor([0, 0]))
    """
    dim = matrix.shape[1]
    suspects = torch.arange(len(matrix), device=matrix.device)
    # a few columns already tell most rows apart; only rows that are equal there are compared in all columns
    for columns in (torch.linspace(0, dim - 1, min(8, dim), device="cpu").long(), torch.arange(dim, device="cpu")):
        key = _row_hash(matrix, suspects, columns.to(matrix.device))
        _, group, size = torch.unique(key, return_inverse=True, return_counts=True)
        suspects, group = suspects[size[group] > 1], group[size[group] > 1]
        if not len(suspects):
            return suspects, suspects
    first = suspects.new_full((len(size),), len(matrix)).scatter_reduce_(0, group, suspects, "amin")[group]
    later = suspects != first
    copies, originals = suspects[later], first[later]
    same = [
        (matrix[a] == matrix[b]).all(1)
        for a, b in zip(torch.split(copies, PART), torch.split(originals, PART), strict=True)  # hashes may collide
    ]
    equal = torch.cat(same) if same else later[:0]
    return copies[equal], originals[equal]


def _row_hash(matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """[row] long hash, equal for equal rows: a weighted sum of their bits with random odd weights, modulo 2**64."""
    bits = torch.int32 if matrix.dtype == torch.float32 else torch.int64
    generator = torch.Generator("cpu").manual_seed(0)
    weights = torch.randint(2**62, (len(columns),), generator=generator, device="cpu").mul_(2).add_(1).to(matrix.device)
    parts = []
    for part in torch.split(rows, PART):
        values = matrix[part.unsqueeze(1), columns] + 0.0  # -0.0 + 0.0 is 0.0
        parts.append((values.view(bits).long() * weights).sum(1))
    return torch.cat(parts)
