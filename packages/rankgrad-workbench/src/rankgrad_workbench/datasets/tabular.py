"""Files of rows with named columns (csv, tsv, jsonl, parquet). Errors name the row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from rankgrad.common.checks import setting
from rankgrad.common.text import brief, shown

from ..files.tables.delimited import other_delimiter
from ..files.tables.formats import Row, of_texts, read_rows
from ..files.tables.text import kind_of, stem_of
from .division import CALLED, divide, split_called
from .rows import SPLITS, class_columns

AUTO = "auto"  # use the column if it exists
ROLES = {"query": "query", "queries": "query", "gallery": "gallery", "galleries": "gallery"}  # in a column of splits


@dataclass(frozen=True)
class Columns:
    """The columns that were read from a file.

    Attributes:
        path: the file.
        values: role of a column -> [row] its values.
        names: role of a column -> its name in the file.
        places: [row] file and line, for messages.
    """

    path: Path
    values: Mapping[str, list[str]]
    names: Mapping[str, str]
    places: Sequence[str]

    def take(self, rows: Sequence[int]) -> Columns:
        """The given rows."""
        values = {role: [column[row] for row in rows] for role, column in self.values.items()}
        return Columns(self.path, values, self.names, [self.places[row] for row in rows])

    def table(
        self, separator: str | None = None, test_fraction: float = 0.0, val_fraction: float = 0.0, seed: int = 0
    ) -> dict[str, Any]:
        """The columns of a table of `Rows`: its name, rows' names, classes, super-labels, groups, splits and roles.

        Args:
            separator: between the classes of a row; None: each row has one class.
            test_fraction: fraction of the classes, without a column of splits.
            val_fraction: fraction of the classes, without a column of splits.
            seed: of the division, see `division.divide`.

        Raises:
            ValueError: a word means no split, all rows are of one split, rows of several classes have no split, or a
                class has two super-labels. Messages name the row.
        """
        labels, several = self.values["label"], None
        if separator is not None:
            several = self._several(separator)
            if "split" not in self.values:
                raise ValueError(
                    f"rows of several classes cannot be divided by class: {shown(self.path)} needs a column with train "
                    f"and test, called split or named by {setting('split', 'NAME')}"
                )
        elif "super_label" in self.values:
            self.need_one("label", "super_label", "All rows of a class must have the same one")
        roles: dict[str, Any] = {}
        further: list[str] = []
        if "split" in self.values:
            splits, roles = self._splits()
        else:
            of_class = divide(set(labels), test_fraction, val_fraction, seed)
            splits = [of_class[name] for name in labels]
            further = ["divided by class"] if test_fraction + val_fraction > 0 else []
        used = [f"{role.replace('_', '-')} = {shown(name)}" for role, name in self.names.items()]
        return {
            "name": stem_of(self.path),
            "names": tuple(place.rpartition(", ")[2] for place in self.places),
            "split": tuple(splits),
            "understood": f"{self.path.name} is understood as {', '.join([*used, *further])}",
            **class_columns(labels, self.values.get("super_label"), self.values.get("group"), several),
            **roles,
        }

    def _several(self, separator: str) -> list[list[str]]:
        """[row] the classes in its label."""
        if not separator:
            raise ValueError(f"{setting('separator')} is the text between the classes of a row, such as |; got none")
        per_row = [[name.strip() for name in field.split(separator)] for field in self.values["label"]]
        wrong = next((row for row, names in enumerate(per_row) if not all(names) or len({*names}) < len(names)), None)
        if wrong is not None:
            field = brief(self.values["label"][wrong])
            raise ValueError(f"{self.places[wrong]}: {field!r} has a repeated or an empty class")
        return per_row

    def _splits(self) -> tuple[list[str], dict[str, Any]]:
        """[row] train, val or test; and the columns role and protocol, if query and gallery stand in place of test."""
        words = self.values["split"]
        roles = tuple(ROLES.get(word.strip().casefold(), "") for word in words)
        splits = [
            "test" if role else as_split(word, place)
            for role, word, place in zip(roles, words, self.places, strict=True)
        ]
        if any(roles):  # queries and a gallery may also be evaluated alone
            there = {role or split for role, split in zip(roles, splits, strict=True) if split == "test"}
            if there != {"query", "gallery"}:
                raise ValueError(
                    f"{shown(self.path)} needs query and gallery, and no test; it has {', '.join(sorted(there))}"
                )
            return splits, {"role": roles, "protocol": "query_gallery"}
        found = [split for split in SPLITS if split in splits]
        if "train" not in found or len(found) == 1:
            raise ValueError(
                f"all rows of {shown(self.path)} are of split {' and '.join(found)}; rows of train and of test are "
                f"needed. Complete the column, or ignore it with {setting('split', None)}: whole classes are then "
                f"divided by {setting('test_fraction')}"
            )
        return splits, {}

    def need_one(self, role: str, other: str, todo: str) -> None:
        """Raise if two rows with the same value in one column have different values in another one.

        Args:
            role: of the one column.
            other: of the other column.
            todo: what is needed, for the message.
        """
        first: dict[str, int] = {}
        values = self.values[other]
        for row, value in enumerate(self.values[role]):
            before = first.setdefault(value, row)
            if values[before] != values[row]:
                raise ValueError(
                    f"{self.places[row]} has the same {role} as {self.places[before]}, {brief(value)!r}, but "
                    f"{self.names[other]} is {brief(values[row])!r} here and {brief(values[before])!r} there. {todo}"
                )


def read_columns(
    path: Path,
    wanted: Mapping[str, str | None],
    delimiter: str | None = None,
    rows: Iterator[tuple[str, Row]] | None = None,
) -> Columns:
    """Read some columns of a file as texts. Whole numbers are read as texts, too.

    Args:
        path: csv or tsv with a header, jsonl (an object per line), or parquet; UTF-8, with or without a byte order
            mark.
        wanted: role of a column -> its name in the file; "auto": the column with the name of the role, if it exists;
            None: not read.
        delimiter: of a csv; backslash and t for a tab; None: a comma, or a tab in a tsv.
        rows: rows to use instead of the file: (file and line, columns) of each.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column is missing, a value is empty, a row has more or fewer fields than the header, or the file
            is not UTF-8; naming the row.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {shown(path)}: needed is one of {', '.join(of_texts())}; a folder is for data=folder"
        )
    names: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    places: list[str] = []
    for place, row in read_rows(path, delimiter) if rows is None else rows:
        if not places:
            for role, given in wanted.items():
                name = given if given != AUTO else role if role in row else None
                if name is not None:
                    names[role], values[role] = name, []
        for role, name in names.items():
            if name not in row:
                known = [str(column) for column in row if column is not None]
                # all rows of a csv or a parquet have the same columns: blame the file and not this row
                where = place if kind_of(path) == ".jsonl" else shown(path)
                raise ValueError(no_columns(where, names, known))
            values[role].append(word(row[name], name, place))
        places.append(place)
    if not places:
        raise ValueError(f"{shown(path)} has no rows")
    return Columns(path, values, names, places)


def no_columns(place: str, wanted: Mapping[str, str], known: Sequence[str]) -> str:
    """The message for missing columns: their names, the columns of the file, and the settings that name them.

    Args:
        place: the file, or a line of it.
        wanted: role of a column -> its name.
        known: names of the columns of the file.

    >>> no_columns("a.csv", {"text": "text", "label": "label"}, ["text", "intent"])
    "a.csv has no column 'label'. It has text, intent. Say which to take: label='NAME'"
    """
    absent = {role: name for role, name in wanted.items() if name not in known}
    told = f"{place} has {' and '.join(f'no column {name!r}' for name in absent.values())}"
    told += f". It has {', '.join(map(brief, known)) or 'nothing'}"
    take = f". Say which to take: {' '.join(setting(role, 'NAME') for role in absent)}"
    return told + (other_delimiter(known) or take)


def word(value: Any, column: str, place: str) -> str:
    """A value of a column as a text. Whole numbers are accepted and become texts.

    Args:
        value: the value.
        column: name of the column, for the message.
        place: file and line, for the message.

    Raises:
        ValueError: the value is empty, neither a text nor a whole number, or cannot be written as UTF-8.
    """
    if value is None or value != value or str(value).strip().lower() in ("", "nan"):  # pandas writes nan
        raise ValueError(f"{place}: {column!r} is empty or nan; give it a value or remove the row")
    if isinstance(value, (float, Decimal)) and value == value // 1:
        return str(int(value))
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ValueError(f"{place}: {column!r} must be a text or a whole number; got {brief(repr(value))}")
    if not str(value).isascii() and re.search("[\ud800-\udfff]", str(value)):
        raise ValueError(
            f"{place}: {column!r} has a lone surrogate, half of a character that was cut; correct it or remove the row"
        )
    return str(value)


def as_split(value: str, place: str) -> str:
    """The split that a word means, see `division.CALLED`.

    Args:
        value: the word.
        place: file and line, for the message.

    Raises:
        ValueError: the word means no split.
    """
    split = split_called(value)
    if not split:
        known = ", ".join(names[0] + (f" ({', '.join(names[1:])})" if names[1:] else "") for names in CALLED.values())
        raise ValueError(f"{place}: a split must be {known}; got {brief(value)!r}")
    return split
