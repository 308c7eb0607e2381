"""Where two dicts of weights do not fit each other, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor


def _sample(keys: Iterable[str]) -> str:
    keys = list(keys)
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")


def misfits(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """Sentences on what differs between a model's state and a file's, empty if they fit."""
    shapes = [
        f"{key} is {list(found[key].shape)} in the file and {list(expected[key].shape)} in the model"
        for key in expected
        if key in found and found[key].shape != expected[key].shape
    ]
    missing = [key for key in expected if key not in found]
    surplus = [key for key in found if key not in expected]
    sentences = shapes[:4] + ([f"{len(shapes) - 4} more differ in shape"] if len(shapes) > 4 else [])
    if missing:
        sentences.append(f"{len(missing)} missing in the file: {_sample(missing)}")
    if surplus:
        sentences.append(f"{len(surplus)} unknown to the model: {_sample(surplus)}")
    return sentences
