"""What tells a data set from another one, or from an earlier state of itself, without reading its images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torch import Tensor


def fingerprint(
    names: Sequence[str], labels: Tensor, paths: Sequence[Path] | None = None, *, what: str = "images"
) -> dict[str, int | str]:
    """Number of images, and a hash each of their names, their labels, and the sizes and times of their files.

    Args:
        names: of the images.
        labels: [image] long, or any tensor that says what is in them.
        paths: their files; None: there are none.
        what: images or what they are instead, in the plural.

    >>> import torch
    >>> sorted(fingerprint(["a", "b"], torch.tensor([0, 1])))
    ['images', 'labels', 'names']
    """
    of_names, of_labels = of_texts("names", names), of_values("labels", labels)
    return {what: len(names), **of_names, **of_labels, **({} if paths is None else of_files(paths))}


def of_texts(name: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the hash of texts under a name."""
    return {name: _hash(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)}


def of_values(name: str, values: Tensor | None) -> dict[str, str]:
    """Return the hash of a tensor under a name; nothing where there is none."""
    return {} if values is None else {name: _hash([_bytes(values)])}


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Hashes of the sizes and the times of files; the times tell that one was replaced by another of its size."""
    stats = [os.stat(path) for path in paths]
    number: Callable[[int], bytes] = lambda value: value.to_bytes(16, "big", signed=True)  # noqa: E731
    return {
        "sizes": _hash(number(stat.st_size) for stat in stats),
        "times": _hash(number(stat.st_mtime_ns) for stat in stats),
    }


def _bytes(values: Tensor) -> bytes:
    return values.detach().cpu().contiguous().numpy().tobytes()


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


__all__ = ["fingerprint", "of_files", "of_texts", "of_values"]
