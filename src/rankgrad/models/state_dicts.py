"""Read state dicts from a file without running code of the file. Say how two state dicts differ."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ..files import atomic_write, check_archive, is_archive


def write_plain(path: Path, content: Any) -> None:
    """Write tensors and plain values with `torch.save`, atomically.

    Raises:
        OSError: the file cannot be written, e.g. because the disk is full. (torch itself would raise a RuntimeError
            that does not name the cause.)
    """
    memory = BytesIO()
    torch.save(content, memory)
    with atomic_write(path) as file:
        file.write(memory.getbuffer())


def read_plain(path: Path, file: IO[bytes] | None = None) -> Any:
    """Read tensors and plain values that `torch.save` wrote. Checksums are checked; no code from the file is run.

    Args:
        path: the file.
        file: an open file to read instead; the path is then only for messages.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file would run code, is damaged, or has another format.
    """
    if file is None and not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    if file is None and is_archive(path):
        check_archive(path)  # torch itself checks no checksum
    source: Any = path if file is None else file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about formats that it then refuses
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ValueError(f"{path} {why_unread(error)}") from error


def why_unread(error: Exception) -> str:
    """One line that says why torch cannot read a file as plain weights. It leaves out torch's advice to allow code."""
    asked = re.search(r"GLOBAL ([\w.]+)", str(error))
    if asked is not None:
        return f"is not a weights file that can be read safely: it wants to run {asked[1]}. Nothing was run"
    reason = one_line(error) if isinstance(error, OSError) else type(error).__name__
    return f"is not a weights file that can be read safely, or it is damaged ({reason}). Download or copy it again"


def one_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def sample(keys: Iterable[str]) -> str:
    """The first four names, for a message."""
    keys = list(keys)
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")


def misfits(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Differences between the state dict of a model and that of a file, one text each; empty if they fit."""
    shapes = [
        f"{key} is {list(given[key].shape)} in the file and {list(expected[key].shape)} in the model"
        for key in expected
        if key in given and given[key].shape != expected[key].shape
    ]
    missing = [key for key in expected if key not in given]
    surplus = [key for key in given if key not in expected]
    unreal = [key for key in expected if key in given and (given[key].is_meta or given[key].is_complex())]
    sentences = shapes[:4] + ([f"{len(shapes) - 4} more differ in shape"] if len(shapes) > 4 else [])
    if missing:
        sentences.append(f"{len(missing)} missing in the file: {sample(missing)}")
    if unreal:
        sentences.append(f"{len(unreal)} have no values, or complex ones, in the file: {sample(unreal)}")
    if surplus:
        sentences.append(f"{len(surplus)} unknown to the model: {sample(surplus)}")
    return sentences
