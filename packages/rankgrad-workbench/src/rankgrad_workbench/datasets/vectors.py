"""Precomputed embeddings with classes: an npz or a parquet -> `VectorTable`. A head is trained on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.common.text import shown

from ..files import read_npz
from ..files.tables.formats import of_arrays, read_arrays
from ..files.tables.parts import need_whole
from ..files.tables.text import kind_of, opened
from .division import need_fractions
from .fingerprint import of_values
from .rows import Listed, Rows
from .tabular import AUTO, Columns, no_columns, word

Array = npt.NDArray[Any]
# Accepted names of each column; the first one that the file has is used.
NAMES = {
    "embeddings": ("embeddings", "embedding"),
    "label": ("labels", "label"),
    "super_label": ("super_labels", "super_label"),
    "split": ("split", "splits"),
    "group": ("groups", "group"),
    "name": ("names", "name"),
    "text": ("texts", "text"),
}
NEEDED = ("embeddings", "label")


@dataclass(frozen=True, eq=False)
class VectorTable(Rows):
    """A labelled set of vectors; one row per vector. `Rows` has the columns of every table.

    Attributes:
        vectors: [row, width] float32, finite.
        texts: [row] the texts that were embedded; None: unknown.

    >>> table = VectorTable("two", torch.tensor([0, 1]), ("a", "b"), ("train",) * 2, ("x", "y"), torch.eye(2))
    >>> table.asks, table.dataset()[1]
    ({'width': 2}, (tensor([0., 1.]), 1, 1))
    """

    vectors: Tensor
    _: KW_ONLY
    texts: tuple[str, ...] | None = None

    takes = "vectors"
    per_row = ("vectors", "texts")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need("vectors", self.vectors, torch.float32, len(self), None)

    @property
    def asks(self) -> Mapping[str, int]:
        """See `Rows`."""
        return {"width": self.vectors.shape[1]}

    def dataset(self) -> Dataset[tuple[Tensor, int, int]]:
        """See `Rows`."""
        return Listed(self.vectors, self.label)

    def content(self) -> Mapping[str, str]:
        """Hash of the vectors."""
        return of_values("content", self.vectors)

    def described(self) -> str:
        """Width of the vectors."""
        return f" ({self.vectors.shape[1]} numbers each)"

    @property
    def captions(self) -> tuple[str, ...]:
        """The embedded texts, if they are known; else the names of the rows."""
        return self.names if self.texts is None else self.texts


def load_table(
    root: str | Path,
    embeddings: str = AUTO,
    label: str | None = AUTO,
    super_label: str | None = AUTO,
    split: str | None = AUTO,
    group: str | None = AUTO,
    test_fraction: float = 0.0,
    val_fraction: float = 0.0,
    seed: int = 0,
) -> VectorTable:
    """A table of precomputed embeddings from an npz, or from a parquet with a list of numbers in each row.

    "auto" finds a column by its usual names (`NAMES`). Only embeddings and labels must exist. Files of `rankgrad embed`
    can be read without settings. If the file has no column of splits, all rows are training rows; with fractions > 0,
    whole classes are divided.

    Args:
        root: the file.
        embeddings: column of the vectors, [row, width] numbers.
        label: column of the classes, strings or integers (in an npz with class_names: indices into it). None: all rows
            are of one class, called "", which is enough to embed them.
        super_label: column of coarser classes; None: no such column.
        split: column of the splits, train, val and test or the other names in `division.CALLED`; query and gallery in
            place of test: queries are ranked against the gallery; None: no such column.
        group: column of the group id; None: no such column. Items of the query's own group are not ranked for it.
        test_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        val_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        seed: of the division, see `division.divide`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column is missing, or has a wrong type or length; a number is not finite (naming the row).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "words.npz"), embeddings=np.eye(4, dtype=np.float32), labels=["a", "a", "b", "b"])
    ...     table = load_table(Path(folder, "words.npz"))
    >>> table.class_names, table.label, table.vectors.shape
    (('a', 'b'), tensor([0, 0, 1, 1]), torch.Size([4, 4]))
    """
    path = Path(root)
    need_fractions(test_fraction, val_fraction)
    columns = _columns(path)
    given = {"embeddings": embeddings, "label": label, "super_label": super_label, "split": split, "group": group}
    named = _names(path, columns, given)
    vectors = _vectors(path, columns[named.pop("embeddings")])
    places = [f"{shown(path)}, row {row}" for row in range(len(vectors))]
    known = {"label": columns.get("class_names"), "super_label": columns.get("super_names")}
    values = {role: _words(places, name, columns[name], known.get(role)) for role, name in named.items()}
    texts, names = values.pop("text", None), values.pop("name", None)
    read = Columns(path, {"label": [""] * len(vectors), **values}, named, places)
    table = read.table(None, test_fraction, val_fraction, seed)
    table |= {"understood": "", **({"names": tuple(names)} if names else {})}
    return VectorTable(vectors=vectors, texts=tuple(texts) if texts else None, **table)


def embedding_columns(path: Path, *needed: str) -> dict[str, Array]:
    """The columns of a file of embeddings, npz or parquet, by the names that they have in an npz.

    Args:
        path: the file. Columns of a parquet with a singular name are renamed, such as label to labels.
        needed: columns that must exist.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another format, is damaged, or lacks a column.
    """
    need_whole(path)
    if path.suffix.lower() != ".parquet":
        return read_npz(path, *needed)
    columns = _columns(path)
    for plural, *others in NAMES.values():
        name = next((name for name in others if name in columns), None)
        if name is not None and plural not in columns:
            columns[plural] = columns.pop(name)
    if not set(needed) <= set(columns):
        there = ", ".join(map(shown, columns)) or "nothing"
        raise ValueError(f"{shown(path)} must hold {' and '.join(needed)}; it has {there}")
    return columns


def has_labels(root: str | Path) -> bool:
    """Whether a file of embeddings has a column of classes, by its usual names."""
    return any(name in NAMES["label"] for name in _columns(Path(root)))


def _columns(path: Path) -> dict[str, Array]:
    """The columns of a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    if kind_of(path) not in of_arrays():
        with opened(path):  # which names a packed file
            raise ValueError(
                f"{shown(path)} must be a file of embeddings: {', '.join(of_arrays())}; got extension "
                f"{path.suffix or 'none'}. For rows with a label, use task=scores"
            )
    return dict(read_arrays(path, lambda name: True, lambda name: True).values)


def _names(path: Path, columns: Mapping[str, Array], given: Mapping[str, str | None]) -> dict[str, str]:
    """Role -> the name of its column.

    Raises:
        ValueError: a column that is needed, or that a setting names, is missing.
    """
    names: dict[str, str] = {}
    for role, usual in NAMES.items():
        name = given.get(role, AUTO)
        if name == AUTO:
            name = next((name for name in usual if name in columns), usual[0] if role in NEEDED else None)
        if name is not None:
            names[role] = name
    if not set(names.values()) <= set(columns):
        raise ValueError(no_columns(shown(path), names, list(columns)))
    return names


def _vectors(path: Path, column: Array) -> Tensor:
    if column.ndim != 2 or column.dtype.kind not in "fiu" or 0 in column.shape:
        raise ValueError(
            f"embeddings in {shown(path)} must be numbers [row, width]; got {column.dtype} {tuple(column.shape)}"
        )
    with np.errstate(over="ignore"):  # too large for float32: told below
        vectors = torch.from_numpy(np.ascontiguousarray(column, np.float32))
    bad = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"{shown(path)}, row {bad[0]}: its embedding is not finite in float32 ({len(bad)} such rows)")
    return vectors


def _words(places: Sequence[str], name: str, column: Array, names: Array | None) -> list[str]:
    """A column as texts; integers are indices into `names`, if given."""
    if len(column) != len(places) or column.ndim != 1:
        raise ValueError(
            f"{name} must have a text or an integer for each of {len(places)} embeddings; got {[*column.shape]}"
        )
    if names is not None and column.dtype.kind in "iu":
        wrong = np.flatnonzero((column < 0) | (column >= len(names)))
        if len(wrong):
            raise ValueError(f"{places[wrong[0]]}: there is no name for {name} {column[wrong[0]]}, of {len(names)}")
        return [str(each) for each in names[column]]
    return [word(value, name, place) for place, value in zip(places, column.tolist(), strict=True)]
