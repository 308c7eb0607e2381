"""Files that are written as a whole or not at all; names of files as they may be shown and followed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, ending: str = "") -> Iterator[Path]:
    """Another path beside `path` to write to, which then takes its place: a reader finds the old file or the new one.

    On an error, Ctrl-C included, what was there stays as it was and nothing is left beside it.

    Args:
        path: the file; it need not exist, its folder must.
        ending: of the other path, for writers that go by it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [(file.name, file.read_text()) for file in folder.iterdir()]
    [('a.txt', 'whole')]
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{ending}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, in this way."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# What no terminal should get from the name of a file: control characters, ends of line, marks that turn the direction
# of writing, and bytes that are no text (Python keeps those as lone surrogates).
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(name: object) -> str:
    r"""A name as it may stand in a message or a table: what no terminal should get is written as an escape.

    >>> shown("caf\xe9\n\x1b[2J.png"), shown("\udcff.png")
    ('café\\n\\x1b[2J.png', '\\xff.png')
    """
    return _UNSHOWN.sub(_escaped, str(name))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode("ascii")


def inside(root: Path, name: str) -> Path:
    """The file of a name that was read from a file: below `root`, wherever the name would like to lead.

    Raises:
        ValueError: it is absolute, or goes up with "..".

    >>> inside(Path("photos"), "cat/1.png").as_posix()
    'photos/cat/1.png'
    >>> inside(Path("photos"), "../secret.png")
    Traceback (most recent call last):
        ...
    ValueError: '../secret.png' is no name below photos: it may not be absolute and not go up with '..'
    """
    path = Path(name)
    if path.is_absolute() or path.drive or ".." in path.parts:
        raise ValueError(
            f"{shown(name)!r} is no name below {shown(root)}: it may not be absolute and not go up with '..'"
        )
    return root / path
