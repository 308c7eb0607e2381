"""Texts with classes: a file of rows (csv, tsv, jsonl, parquet) -> `TextTable`; what is wrong is named with its row.

And two public sets of sentences with intents, CLINC150 and BANKING77, divided by intents: the test asks for classes
that training never saw.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..checks import closest
from ..files import shown
from .base import SPLITS

Row = Mapping[str, Any]
Validation = Literal["apart", "train"]
DELIMITERS = (",", "\t", ";", "|")
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
NAMED = 60  # characters of a text that a message shows


@dataclass(frozen=True, eq=False)
class TextTable:
    """A labelled set of texts; one row per text.

    Attributes:
        name: of the data set.
        texts: [row].
        label: [row] long, 0 .. C - 1 counted over the whole table, all splits together.
        class_names: C names, all different, sorted.
        split: [row] "train", "val" or "test".
        super_label: [row] long, the coarser class, or None.
        super_names: names of the super-labels; empty if there are none.
        group: [row] what a relevant text may not share with its query (a customer, a conversation), or None.
        distractors: texts of no class, for galleries.
    """

    name: str
    texts: tuple[str, ...]
    label: Tensor
    class_names: tuple[str, ...]
    split: tuple[str, ...]
    super_label: Tensor | None = None
    super_names: tuple[str, ...] = ()
    group: tuple[str, ...] | None = None
    distractors: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.texts)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a text, in the order train, val, test."""
        return tuple(split for split in SPLITS if split in set(self.split))

    def select(self, split: str) -> TextTable:
        """Rows of one split; labels and names stay those of the whole table.

        Raises:
            ValueError: there are no rows of that split.
        """
        rows = [row for row, of in enumerate(self.split) if of == split]
        if not rows:
            raise ValueError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        return replace(
            self,
            texts=tuple(self.texts[row] for row in rows),
            label=self.label[rows],
            split=tuple(self.split[row] for row in rows),
            super_label=None if self.super_label is None else self.super_label[rows],
            group=None if self.group is None else tuple(self.group[row] for row in rows),
        )


def load_text(
    path: str | Path,
    text: str = "text",
    label: str = "label",
    super_label: str | None = None,
    split: str | None = None,
    group: str | None = None,
    delimiter: str | None = None,
) -> TextTable:
    """Read a file of texts with classes.

    Args:
        path: csv or tsv with a header, jsonl (an object per line), or parquet; UTF-8, with or without a byte order
            mark.
        text: column of the texts.
        label: column of the classes, strings or integers.
        super_label: column of coarser classes, one for all texts of a class.
        split: column with train, val (or validation, dev) and test; None: everything is "train".
        group: column of what a relevant text may not share with its query.
        delimiter: of a csv; None: the comma, or the tab of a tsv.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, a text or label is empty, a row has other fields than the header, the file is
            not UTF-8, a text stands in two splits, a class in two super-labels; naming the row.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    wanted = {"text": text, "label": label, "super_label": super_label, "split": split, "group": group}
    columns = {role: name for role, name in wanted.items() if name is not None}
    found: dict[str, list[str]] = {role: [] for role in columns}
    places: list[str] = []
    for place, row in _rows(path, delimiter):
        for role, name in columns.items():
            if name not in row:
                known = [str(column) for column in row if column is not None]
                raise ValueError(
                    f"{place} has no column {name!r}{closest(name, known)} It has {', '.join(map(shown, known))}. Say "
                    f"which one it is: {role}=..." + _delimiter_hint(known)
                )
            found[role].append(_word(row[name], name, place))
        places.append(place)
    if not places:
        raise ValueError(f"{shown(path)} has no rows")
    splits = [_split(value, place) for value, place in zip(found["split"], places, strict=True)] if split else []
    splits = splits or ["train"] * len(places)
    _require_apart(found["text"], splits, places)
    supers = found.get("super_label")
    if supers is not None:
        _require_one(found["label"], supers, places, super_label or "")
    return _table(path.stem, found["text"], found["label"], splits, supers, found.get("group"))


def load_clinc150(root: str | Path, validation: Validation = "apart") -> TextTable:
    """CLINC150: 22 500 sentences of 150 intents in 10 domains; super-label = domain; out-of-scope ones as distractors.

    Larson et al., An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction, EMNLP-IJCNLP 2019
    (CC BY 3.0). The official splits share their intents. Here intents are divided: those of a domain sorted by name,
    the domains sorted by name, number i of 0 .. 149: i % 3 == 2 is test (50), i % 6 == 0 val (25), the rest train (75);
    all sentences of the three official splits together.

    Args:
        root: folder with data_full.json and domains.json.
        validation: "apart", for choosing settings; "train": the 25 intents belong to training, for final numbers.
    """
    root = Path(root)
    data, domains = (_json(root / name, "CLINC150") for name in ("data_full.json", "domains.json"))
    order = [(domain, intent) for domain in sorted(domains) for intent in sorted(domains[domain])]
    of = {intent: (domain, _of_number(number, validation)) for number, (domain, intent) in enumerate(order)}
    rows = [(text, intent) for part in ("train", "val", "test") for text, intent in data[part]]
    lost = next((intent for _, intent in rows if intent not in of), None)
    if lost is not None:
        raise ValueError(f"domains.json of CLINC150 knows no intent {lost!r}: the two files do not belong together")
    table = _table(
        "clinc150",
        [text for text, _ in rows],
        [intent for _, intent in rows],
        [of[intent][1] for _, intent in rows],
        [of[intent][0] for _, intent in rows],
    )
    return replace(
        table, distractors=tuple(text for part in ("oos_train", "oos_val", "oos_test") for text, _ in data[part])
    )


def load_banking77(root: str | Path, validation: Validation = "apart") -> TextTable:
    """BANKING77: 13 083 questions to a bank, of 77 intents that are close to each other.

    Casanueva et al., Efficient Intent Detection with Dual Sentence Encoders, 2020, arXiv:2003.04807 (CC BY 4.0). Intents
    sorted by name, number i of 0 .. 76: i % 3 == 2 is test (25), i % 6 == 0 val (13), the rest train (39); the questions
    of train.csv and test.csv together.

    Args:
        root: folder with train.csv and test.csv.
        validation: as of `load_clinc150`.
    """  # noqa: E501
    root = Path(root)
    rows: list[tuple[str, str]] = []
    for name in ("train.csv", "test.csv"):
        if not (root / name).is_file():
            raise FileNotFoundError(f"{shown(root)} has no {name}: BANKING77 is a folder with train.csv and test.csv")
        for place, row in _rows(root / name, None):
            if not {"text", "category"} <= set(row):
                raise ValueError(f"{place} is not of BANKING77: its columns are text and category")
            rows.append((_word(row["text"], "text", place), _word(row["category"], "category", place)))
    intents = {intent: number for number, intent in enumerate(sorted({intent for _, intent in rows}))}
    splits = [_of_number(intents[intent], validation) for _, intent in rows]
    return _table("banking77", [text for text, _ in rows], [intent for _, intent in rows], splits)


def _of_number(number: int, validation: str) -> str:
    """The split of an intent by its number."""
    if validation not in ("apart", "train"):
        raise ValueError(f"validation must be 'apart' or 'train'; got {validation!r}")
    if number % 3 == 2:
        return "test"
    return "val" if number % 6 == 0 and validation == "apart" else "train"


def _json(path: Path, title: str) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{shown(path.parent)} has no {path.name}, which belongs to {title}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{shown(path)} is no JSON, or it is damaged: {error}") from None


# ------------------------------------------------------------------------------------------------------------ the rows


def _rows(path: Path, delimiter: str | None) -> Iterator[tuple[str, Row]]:
    """(where it stands, column -> value) of every row."""
    kind = path.suffix.lower()
    readers: dict[str, Callable[[], Iterator[tuple[str, Row]]]] = {
        ".csv": lambda: _delimited(path, delimiter or ","),
        ".tsv": lambda: _delimited(path, delimiter or "\t"),
        ".jsonl": lambda: _objects(path),
        ".parquet": lambda: _parquet(path),
    }
    if kind not in readers:
        raise ValueError(f"{shown(path)} must be a file of texts: {', '.join(FORMATS)}; got {kind or 'no ending'}")
    return readers[kind]()


def _lines(path: Path) -> str:
    """The text of a file in UTF-8."""
    raw = path.read_bytes()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{shown(path)} is UTF-16, by its byte order mark; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def _delimited(path: Path, delimiter: str) -> Iterator[tuple[str, Row]]:
    if len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character; got {delimiter!r}")
    reader = csv.reader(io.StringIO(_lines(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for fields in reader:
            place = f"{shown(path)}, line {reader.line_num}"
            if not fields:
                continue
            if header is None:
                header = fields
                twice = next((name for name in header if header.count(name) > 1), None)
                if twice is not None:
                    raise ValueError(f"{place}: the column {twice!r} stands there twice")
                continue
            if len(fields) != len(header):
                raise ValueError(
                    f"{place} has {len(fields)} fields, the header {len(header)}: a text that holds a {delimiter!r} or "
                    "a line break must stand in double quotes" + _delimiter_hint(header)
                )
            yield place, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise ValueError(f"{shown(path)}, line {reader.line_num}: {error}") from None


def _objects(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(_lines(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{shown(path)}, line {number} is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{shown(path)}, line {number} must be an object with columns; got {type(row).__name__}")
        yield f"{shown(path)}, line {number}", row


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ModuleNotFoundError:
        from ..extras import missing

        raise ModuleNotFoundError(missing("pyarrow"), name="pyarrow") from None
    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:
        raise ValueError(f"{shown(path)} is no parquet file, or it is damaged: {error}") from None
    for number, row in enumerate(table.to_pylist(), 1):
        yield f"{shown(path)}, row {number}", row


def _delimiter_hint(columns: Sequence[str]) -> str:
    """What to say where one column's name looks like several."""
    other = next((sign for sign in DELIMITERS if len(columns) == 1 and sign in columns[0]), None)
    return "" if other is None else f". The columns seem to be divided by {other!r}: delimiter={other!r}"


def _word(value: Any, column: str, place: str) -> str:
    """A text or name of a row; numbers that are whole are names, too."""
    empty = value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()
    if empty or str(value).strip().lower() == "nan":
        raise ValueError(f"{place}: {column!r} is empty; give it a value or leave the row out")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ValueError(f"{place}: {column!r} must be a text or a whole number; got {value!r}")
    return str(value)


# ------------------------------------------------------------------------------------------------------------ the table


def _split(value: str, place: str) -> str:
    name = {"validation": "val", "dev": "val"}.get(value.strip().lower(), value.strip().lower())
    if name not in SPLITS:
        raise ValueError(f"{place}: a split is train, val (validation, dev) or test; got {value!r}")
    return name


def _require_apart(texts: Sequence[str], splits: Sequence[str], places: Sequence[str]) -> None:
    """Raise if a text stands in two splits: what is tested was then trained on."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        before = first.setdefault(text, row)
        if splits[before] != splits[row]:
            raise ValueError(
                f"{places[row]} ({splits[row]}) has the text of {places[before]} ({splits[before]}): "
                f"{shown(text[:NAMED])!r}. A text belongs to one split"
            )


def _require_one(labels: Sequence[str], supers: Sequence[str], places: Sequence[str], column: str) -> None:
    """Raise if a class has two super-labels."""
    first: dict[str, int] = {}
    for row, label in enumerate(labels):
        before = first.setdefault(label, row)
        if supers[before] != supers[row]:
            raise ValueError(
                f"{places[row]}: the class {label!r} has {column} {supers[row]!r} here and {supers[before]!r} in "
                f"{places[before]}; a class has one"
            )


def _table(
    name: str,
    texts: Sequence[str],
    labels: Sequence[str],
    splits: Sequence[str],
    supers: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
) -> TextTable:
    classes, numbers = _numbered(labels)
    super_names, super_numbers = ((), None) if supers is None else _numbered(supers)
    return TextTable(
        name,
        tuple(texts),
        numbers,
        classes,
        tuple(splits),
        super_numbers,
        super_names,
        None if groups is None else tuple(groups),
    )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Names in order, and the number of each row's."""
    known = tuple(sorted(set(names)))
    number = {name: at for at, name in enumerate(known)}
    return known, torch.tensor([number[name] for name in names], dtype=torch.long)
