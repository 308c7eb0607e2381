"""The text of a file in UTF-8, gzipped or not."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rankgrad.common.text import shown

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})  # words for a missing value, in any capitals
PACKED = {  # first bytes of files that are no text
    b"\x1f\x8b": "a gzip file: its name must end in .gz",
    b"PK\x03\x04": "a zip file, as an .xlsx is: unpack it, or save the sheet as a csv",
    b"BZh91AY&SY": "a bzip2 file: unpack it",
    b"\xfd7zXZ\x00": "an xz file: unpack it",
    b"\x28\xb5\x2f\xfd": "a zstandard file: unpack it",
    b"PAR1": "a parquet: its name must end in .parquet",
    b"7z\xbc\xaf'\x1c": "a 7z file: unpack it",
    b"Rar!\x1a\x07": "a rar file: unpack it",
}


def kind_of(path: Path) -> str:
    """The ending of a file in lower case, without that of gzip.

    >>> kind_of(Path("a.CSV")), kind_of(Path("b.jsonl.gz"))
    ('.csv', '.jsonl')
    """
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def stem_of(path: Path) -> str:
    """The name of a file without its ending, nor that of gzip."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).stem


def number_in(text: str) -> float | None:
    """The number in a text; None if it is not a number. 1_000 is not a number here, although Python reads it."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unzipped if its name ends in .gz.

    Raises:
        ValueError: it is no file of gzip, or it is damaged; or it is packed in another way.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            head = file.peek(512)
            what = next((what for start, what in PACKED.items() if head.startswith(start)), None)
            if what is not None or head[257:262] == b"ustar":
                raise ValueError(f"{shown(path)} is {what or 'a tar file: unpack it'}")
            yield file  # type: ignore[misc]  # a GzipFile reads bytes as any other
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{shown(path)} is damaged or not a gzip file: {error}") from None


def text_of(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        ValueError: the file has another encoding; naming the line.
    """
    with opened(path) as file:
        raw = file.read()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{shown(path)} is UTF-16 (it has such a byte order mark); save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def lines_of(path: Path) -> list[str]:
    """The lines of a file in UTF-8. `str.splitlines` would also end a line at characters that a text may have."""
    return io.StringIO(text_of(path), newline=None).readlines()


@contextmanager
def opened_text(path: Path) -> Iterator[IO[str]]:
    """The text of a file in UTF-8, part by part, with the ends of its lines as they are. Raises as `text_of`."""
    with opened(path) as file:
        try:
            yield io.TextIOWrapper(file, "utf-8-sig", newline="")
        except UnicodeDecodeError:
            text_of(path)  # names the line
            raise
