"""What tells a data set from another one, or from an earlier state of itself, without reading its images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torch import Tensor


def fingerprint(
    names: Sequence[str], labels: Tensor, paths: Sequence[Path] | None = None, pixels: Tensor | None = None
) -> dict[str, int | str]:
    """Number of images, and a hash each of their names, their labels, and the sizes and times of their files.

    The times tell that an image was replaced by another one of the same size. Of data without files the pixels are
    hashed instead.

    Args:
        names: of the images.
        labels: [image] long, or any tensor that says what is in them.
        paths: their files; None: there are none.
        pixels: of data without files.

    >>> import torch
    >>> sorted(fingerprint(["a", "b"], torch.tensor([0, 1])))
    ['images', 'labels', 'names']
    """
    found: dict[str, int | str] = {
        "images": len(names),
        "names": _hash(name.encode("utf-8", "surrogateescape") + b"\0" for name in names),
        "labels": _hash([_bytes(labels)]),
    }
    if paths is not None:
        stats = [os.stat(path) for path in paths]
        number: Callable[[int], bytes] = lambda value: value.to_bytes(16, "big", signed=True)  # noqa: E731
        found["sizes"] = _hash(number(stat.st_size) for stat in stats)
        found["times"] = _hash(number(stat.st_mtime_ns) for stat in stats)
    elif pixels is not None:
        found["pixels"] = _hash([_bytes(pixels)])
    return found


def _bytes(values: Tensor) -> bytes:
    return values.detach().cpu().contiguous().numpy().tobytes()


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


__all__ = ["fingerprint"]
