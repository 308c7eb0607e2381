"""Dicts of weights: read from a file without running anything of it; where two do not fit each other, in words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from ..files import atomic_write, check_archive


def write_plain(path: Path, content: Any) -> None:
    """Write tensors and plain values with `torch.save`, as a whole or not at all.

    Raises:
        OSError: the disk is full, or the like; torch itself would make a RuntimeError of it that does not say so.
    """
    memory = BytesIO()
    torch.save(content, memory)
    with atomic_write(path) as file:
        file.write(memory.getbuffer())


def read_plain(path: Path, file: IO[bytes] | None = None) -> Any:
    """What `torch.save` has written, if it is tensors and plain values: nothing in it is run, its checksums are held.

    Args:
        path: the file.
        file: read from here instead; the path is for messages.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it asks for code to be run, or it is damaged, or another kind of file.
    """
    if file is None and not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    if file is None and is_zipfile(path):
        check_archive(path)  # torch itself looks at no checksum
    source: Any = path if file is None else file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are refused all the same
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ValueError(f"{path} {why_unread(error)}") from error


def why_unread(error: Exception) -> str:
    """What is wrong with a file that torch does not read as plain weights, in one line, without its advice."""
    asked = re.search(r"GLOBAL ([\w.]+)", str(error))
    if asked is not None:
        return f"is no weights file that can be read safely: it asks for {asked[1]} to be run. Nothing was run"
    reason = one_line(error) if isinstance(error, OSError) else type(error).__name__
    return f"is no weights file that can be read safely, or it is damaged ({reason}). Get it again where it is whole"


def one_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def sample(keys: Iterable[str]) -> str:
    """Join the first few of these names, for a message."""
    keys = list(keys)
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")


def misfits(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Sentences on what differs between a model's state and a file's, empty if they fit."""
    shapes = [
        f"{key} is {list(given[key].shape)} in the file and {list(expected[key].shape)} in the model"
        for key in expected
        if key in given and given[key].shape != expected[key].shape
    ]
    missing = [key for key in expected if key not in given]
    surplus = [key for key in given if key not in expected]
    sentences = shapes[:4] + ([f"{len(shapes) - 4} more differ in shape"] if len(shapes) > 4 else [])
    if missing:
        sentences.append(f"{len(missing)} missing in the file: {sample(missing)}")
    if surplus:
        sentences.append(f"{len(surplus)} unknown to the model: {sample(surplus)}")
    return sentences
