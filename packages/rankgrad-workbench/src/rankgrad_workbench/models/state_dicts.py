"""Read state dicts from a file without running code of the file. Say how two state dicts differ."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rankgrad.common.files import open_file
from rankgrad.common.text import shown

from ..files import atomic_write, check_archive, is_archive

MOST = 10_000  # tensors of a model; the time to load them grows with their square
# A file may hold tensors that share memory, such as tied weights, which then count several times. And some models make
# layers that they drop or replace while they are built.
SEVERAL = 4
SPARE = 1000, 2**23  # tensors, and the numbers in them: the classifier that a backbone drops has 2 million


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
        ValueError: the file would run code, is damaged, has another format, or holds tensors that `check_tensors`
            refuses.
    """
    if file is None and not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    if file is None and is_archive(path):
        check_unpacked(path)
    source: Any = path if file is None else file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about formats that it then refuses
            content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ValueError(f"{path} {why_unread(error)}") from error
    check_tensors(path, content)
    return content


def check_unpacked(path: Path) -> None:
    """Raise if a checksum in an archive of torch is wrong (torch itself checks none), or if its parts are larger than
    the archive, or too many to be read in seconds.

    Raises:
        ValueError: naming the sizes.
    """
    size = path.stat().st_size
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or has another format ({error})") from None
    unpacked = sum(part.file_size for part in parts)
    if unpacked > size or len(parts) > SEVERAL * MOST:
        raise ValueError(
            f"{path} has {size} bytes, and {len(parts)} parts of {unpacked} bytes. torch.save compresses nothing: do "
            "not use the file, or write it again with torch.save"
        )
    check_archive(path)


def check_tensors(path: Path, content: object) -> None:
    """Raise unless all tensors that were read from a file are dense numbers, and none is larger than its memory.

    Args:
        path: the file, for the message.
        content: tensors and plain values, nested in any way.

    Raises:
        ValueError: naming the first tensor that is sparse, quantised, nested, without values or expanded.

    >>> check_tensors(Path("a.pt"), {"weight": torch.zeros(1).expand(9)})
    Traceback (most recent call last):
        ...
    ValueError: a.pt holds weight without all of its values (sparse, quantised, nested or expanded): write it dense
    """
    claimed, stored = 0, {}
    for name, tensor in _tensors(content):
        dense = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
        if not dense or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise ValueError(
                f"{path} holds {name} without all of its values (sparse, quantised, nested or expanded): write it dense"
            )
        memory = tensor.untyped_storage()
        stored[memory.data_ptr()] = memory.nbytes()
        claimed += tensor.nbytes
    if claimed > SEVERAL * sum(stored.values()):
        raise ValueError(f"{path} holds tensors of {claimed} bytes, but only {sum(stored.values())} bytes of values")


def _tensors(content: object) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of all tensors in nested dictionaries, lists and tuples. A name is the last key on the way."""
    waiting: list[tuple[str, object]] = [("a tensor", content)]
    seen: set[int] = set()  # a file may hold a list that contains itself
    while waiting:
        name, part = waiting.pop()
        if isinstance(part, Tensor):
            yield name, part
        elif isinstance(part, (dict, list, tuple, set)) and id(part) not in seen:
            seen.add(id(part))
            inner = part.items() if isinstance(part, dict) else ((name, each) for each in part)
            waiting += [(shown(key)[:60], each) for key, each in inner]


@contextmanager
def no_larger_than(state: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which no model can be built that is several times as large as the weights in a file.

    A file can describe a model of any size. It is refused as soon as one layer is too large, or there are too many.

    Args:
        state: the state dict of the file.

    Raises:
        ValueError: the model is too large.
    """
    if len(state) > MOST:
        raise ValueError(f"it has {len(state)} tensors, and {MOST} are allowed")
    tensors = SEVERAL * len(state) + SPARE[0]
    numbers = SEVERAL * sum(value.numel() for value in state.values()) + SPARE[1]

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal tensors, numbers
        if parameter is not None:
            tensors, numbers = tensors - 1, numbers - parameter.numel()
        if min(tensors, numbers) < 0:
            raise ValueError("it has more weights than the file holds")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def is_state_dict(value: object) -> bool:
    """Whether it maps names to tensors."""
    return isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items()
    )


def not_finite(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors with a NaN or an infinity."""
    return [key for key, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all())]


DIVERGED = "as after a training that diverged. Train again with a smaller optimizer.lr"


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
    both = [key for key in expected if key in given]
    shapes = [
        f"{key} is {list(given[key].shape)} in the file and {list(expected[key].shape)} in the model"
        for key in both
        if given[key].shape != expected[key].shape
    ]
    counted = {
        "missing in the file": [key for key in expected if key not in given],
        "have no values, or whole or complex ones, in the file": [k for k in both if _unreal(given[k], expected[k])],
        "unknown to the model": [key for key in given if key not in expected],
    }
    more = [f"{len(shapes) - 4} more differ in shape"] * (len(shapes) > 4)
    return [*shapes[:4], *more, *(f"{len(keys)} {what}: {sample(keys)}" for what, keys in counted.items() if keys)]


def _unreal(given: Tensor, expected: Tensor) -> bool:
    """Whether a tensor has no values, or those of a kind that copying would turn into other numbers without a word."""
    whole = expected.is_floating_point() and not given.is_floating_point()
    return given.is_meta or given.is_complex() or whole
