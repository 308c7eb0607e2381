"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
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
