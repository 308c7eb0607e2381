"""Files that are parts of one table, by the numbers in their names; and whether a part is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rankgrad.common.text import shown

from .text import stem_of

# NAME-00001-of-00003, with a hash after it in older data sets of the hub; or NAME_2
_PART = re.compile(r"(?P<name>.+?)[-_.](?P<number>\d+)(?P<of>[-_]of[-_](?P<total>\d+)(-[0-9a-f]{8,})?)?$")
LARGEST = 999  # number of a part without the number of parts; a larger one may be a year
NAMED = 4  # missing parts that a message names


def called(file: Path) -> str:
    """The name of a file without its ending and the number of a part.

    >>> called(Path("corpus.jsonl.gz")), called(Path("test-00000-of-00002.parquet")), called(Path("corpus_2.csv"))
    ('corpus', 'test', 'corpus')
    """
    found = _PART.fullmatch(stem_of(file))
    return found["name"] if found else stem_of(file)


def is_part(file: Path) -> bool:
    """Whether the name of a file says that it is one of several parts."""
    found = _PART.fullmatch(stem_of(file))
    return bool(found and found["total"] and int(found["total"]) > 1)


def need_whole(file: Path) -> None:
    """Raise if a file says that it is one of several parts, and another part is not beside it.

    Raises:
        ValueError: naming the missing parts.
    """
    if is_part(file) and file.is_file():
        total = _PART.fullmatch(stem_of(file))["total"]  # type: ignore[index]
        ending = file.name.removeprefix(stem_of(file))
        beside = [each for each in file.parent.glob(f"*{ending}") if called(each) == called(file)]
        need_all(each for each in beside if f"of-{total}" in each.name.replace("_", "-"))


def need_all(files: Iterable[Path]) -> None:
    """Raise unless files that belong to one table are all its parts.

    Args:
        files: of one folder, with the same name but for the numbers.

    Raises:
        ValueError: a part is missing, or there are parts of two tables.
    """
    parts = {file: found for file in files if (found := _PART.fullmatch(stem_of(file)))}
    totals = {int(found["total"]) if found["total"] else 0: file for file, found in parts.items()}
    if len(totals) > 1:
        names = " and ".join(file.name for file in totals.values())
        raise ValueError(f"{shown(next(iter(parts)).parent)} holds parts of two tables, {names}; keep those of one")
    if not parts:
        return
    [(total, file)] = totals.items()
    numbers = {int(found["number"]) for found in parts.values()}
    if total:
        wanted = {*range(1, total + 1)} if total in numbers else {*range(total)}
    elif max(numbers) > LARGEST:
        return
    else:
        first = 0 if 0 in numbers else 1
        wanted = {*range(first, max(numbers) + 1)}
        whole = len([*parts]) < len([each for each in file.parent.iterdir() if called(each) == called(file)])
        wanted -= {first} if whole else set()  # NAME and NAME_2
    missing = sorted(wanted - numbers)
    if missing:
        start, end = parts[file].span("number")
        named = [f"{file.name[:start]}{number:0{end - start}}{file.name[end:]}" for number in missing[:NAMED]]
        more = f" and {len(missing) - NAMED:,} more" if missing[NAMED:] else ""
        raise ValueError(
            f"{shown(file.parent)} holds {len(numbers)} of {len(wanted | numbers)} parts of {called(file)!r}; missing: "
            f"{', '.join(named)}{more}. Download them, too. If they are not meant to be here, give the others names "
            "without numbers"
        )


__all__ = ["called", "is_part", "need_all", "need_whole"]
