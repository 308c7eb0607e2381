"""Hashes that identify a data set and detect changes of it, without reading its images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor


def fingerprint(
    names: Sequence[str], labels: Tensor, paths: Sequence[Path] | None = None, *, what: str = "images"
) -> dict[str, int | str]:
    """Number of rows, and hashes of their names, their labels, and the sizes and times of their files.

    Args:
        names: [row].
        labels: [row] long, or any other tensor of classes.
        paths: [row] files; None: there are none.
        what: plural noun for the rows, such as images.

    >>> import torch
    >>> sorted(fingerprint(["a", "b"], torch.tensor([0, 1])))
    ['images', 'labels', 'names']
    """
    of_names, of_labels = of_texts("names", names), of_values("labels", labels)
    return {what: len(names), **of_names, **of_labels, **({} if paths is None else of_files(paths))}


def of_texts(name: str, texts: Iterable[str]) -> dict[str, str]:
    """{name: hash of the texts}."""
    return {name: _hash(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)}


def of_values(name: str, values: Tensor | None) -> dict[str, str]:
    """{name: hash of the tensor}; empty for None."""
    return {} if values is None else {name: _hash([values.detach().cpu().contiguous().numpy().tobytes()])}


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Hashes of the sizes and of the times of files. The times reveal a file that was replaced by one of equal size."""
    stats = [os.stat(path) for path in paths]
    sizes, times = ([stat.st_size for stat in stats], [stat.st_mtime_ns for stat in stats])
    return {
        name: _hash(number.to_bytes(16, "big", signed=True) for number in numbers)
        for name, numbers in (("sizes", sizes), ("times", times))
    }


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]
