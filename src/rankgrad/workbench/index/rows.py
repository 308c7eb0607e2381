"""Vectors of a gallery in a file that is mapped into memory. The checksum of each vector is checked when it is read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt


def _record(dim: int) -> np.dtype[Any]:
    """One row of the file: a vector and its CRC-32."""
    return np.dtype([("vector", "<f4", (dim,)), ("crc32", "<u4")])


def write_rows(file: IO[bytes], blocks: Iterable[npt.NDArray[np.float32]], dim: int) -> None:
    """Write vectors, each with its checksum.

    Args:
        file: the open file to write to.
        blocks: the vectors in order, in blocks [row, dim].
        dim: number of values in a vector.
    """
    for block in blocks:
        records = np.empty(len(block), _record(dim))
        records["vector"] = block
        records["crc32"] = [zlib.crc32(vector) for vector in np.ascontiguousarray(block, "<f4")]
        file.write(records.tobytes())


class StoredRows:
    """The vectors of a file, mapped into memory and indexed by row numbers.

    Args:
        path: file of `write_rows`.
        count: number of vectors.
        dim: number of values in a vector.

    Raises:
        ValueError: the file has another size.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "rows")
    >>> with path.open("wb") as file:
    ...     write_rows(file, [np.eye(3, dtype=np.float32)], 3)
    >>> StoredRows(path, 3, 3)[np.array([2, 0])]
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """

    def __init__(self, path: Path, count: int, dim: int) -> None:
        size, needed = path.stat().st_size, count * _record(dim).itemsize
        if size != needed:
            raise ValueError(f"{path} is damaged: it has {size} bytes and should have {needed}. Write the index again")
        self.path, self._records = path, np.memmap(path, _record(dim), "r", shape=(count,))

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """[row, dim] vectors of these rows.

        Raises:
            ValueError: the checksum of a vector is wrong.
        """
        records = self._records[rows]
        vectors = np.ascontiguousarray(records["vector"])
        for row, vector, checksum in zip(rows.tolist(), vectors, records["crc32"].tolist(), strict=True):
            if zlib.crc32(vector) != checksum:
                raise ValueError(f"{self.path} is damaged: the checksum of row {row} is wrong. Write the index again")
        return vectors


__all__ = ["StoredRows", "write_rows"]
