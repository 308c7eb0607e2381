"""Texts with classes: a file of rows (csv, tsv, jsonl, parquet) -> `TextTable`; what is wrong is named with its row.

And two public sets of sentences with intents, CLINC150 and BANKING77, divided by intents: the test asks for classes
that training never saw.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from torch.utils.data import Dataset

from ..checks import closest
from ..files import shown
from .division import divide, need_fractions
from .fingerprint import of_texts
from .rows import SPLITS, Listed, Rows, numbered
from .transforms import Collate

Row = Mapping[str, Any]
Validation = Literal["apart", "train"]
DELIMITERS = (",", "\t", ";", "|")
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
LINES = ".txt"  # a text per line, for what needs no classes
AUTO = "auto"  # a column that is used if it is there
NAMED = 60  # characters of a text that a message shows


@dataclass(frozen=True, eq=False)
class TextTable(Rows):
    """A labelled set of texts; one row per text. What all tables have is in `Rows`.

    Attributes:
        texts: [row].
        distractors: texts of no class, for galleries.
    """

    texts: tuple[str, ...]
    _: KW_ONLY
    distractors: tuple[str, ...] = ()

    takes = "texts"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need_columns({"texts": self.texts})

    @property
    def asks(self) -> Mapping[str, int]:
        """See `Rows`."""
        return {}

    def dataset(self) -> Dataset[tuple[str, int, int]]:
        """See `Rows`."""
        return Listed(self.texts, self.label)

    def batches(self, transform: Callable[[Any, Tensor, int], Any]) -> Collate:
        """See `Rows`."""
        return Collate(transform)

    def content(self) -> Mapping[str, str]:
        """The texts."""
        return of_texts("content", self.texts)

    def taken(self, rows: Sequence[int], where: Tensor) -> Mapping[str, Any]:
        """See `Rows`."""
        return {"texts": tuple(self.texts[row] for row in rows)}

    def described(self) -> str:
        """How long the texts are."""
        if not self.texts:
            return ""
        return f" ({statistics.median(map(len, self.texts)):.0f} characters in the middle)"

    @property
    def captions(self) -> tuple[str, ...]:
        """The texts themselves."""
        return self.texts


def load_text(
    root: str | Path,
    text: str = "text",
    label: str = "label",
    super_label: str | None = AUTO,
    split: str | None = AUTO,
    group: str | None = AUTO,
    delimiter: str | None = None,
    test_fraction: float = 0.0,
    val_fraction: float = 0.0,
    seed: int = 0,
) -> TextTable:
    """A table of texts with classes: a file of rows (csv, tsv, jsonl, parquet), a column each for text and class.

    Without a split in the file everything is training, unless fractions are given: then whole classes are divided.

    Args:
        root: the file: csv or tsv with a header, jsonl (an object per line), or parquet; UTF-8, with or without a byte
            order mark.
        text: column of the texts.
        label: column of the classes, strings or integers.
        super_label: column of coarser classes, one for all texts of a class; "auto": the column of the name
            super_label, if there is one; None: there is none.
        split: column with train, val (or validation, dev) and test; "auto": the column split, if there is one.
        group: column of what a relevant text may not share with its query; "auto": the column group, if there is one.
        delimiter: of a csv; None: the comma, or the tab of a tsv.
        test_fraction: of the classes, 0 .. 1; not used with a split.
        val_fraction: of the classes, 0 .. 1; not used with a split.
        seed: of the division, see `division.divide`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, a text or label is empty, a row has other fields than the header, the file is
            not UTF-8, a text stands in two splits, a class in two super-labels; naming the row.
    """
    path = Path(root)
    need_fractions(test_fraction, val_fraction)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    wanted = {"text": text, "label": label, "super_label": super_label, "split": split, "group": group}
    columns: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    places: list[str] = []
    for place, row in _rows(path, delimiter):
        if not places:
            columns = {role: name for role, given in wanted.items() if (name := _column(role, given, row)) is not None}
            found = {role: [] for role in columns}
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
    labels, supers = found["label"], found.get("super_label")
    if "split" in found:
        splits = [as_split(value, place) for value, place in zip(found["split"], places, strict=True)]
    else:
        of_class = divide(set(labels), test_fraction, val_fraction, seed)
        splits = [of_class[name] for name in labels]
    _require_apart(found["text"], splits, places)
    if supers is not None:
        _require_one(labels, supers, places, columns["super_label"])
    said = [f"{role.replace('_', '-')} = {shown(name)}" for role, name in columns.items()]
    if "split" not in columns and test_fraction + val_fraction > 0:
        said.append("divided by class")
    return _table(
        path.stem,
        found["text"],
        labels,
        splits,
        [place.rpartition(", ")[2] for place in places],
        supers,
        found.get("group"),
        f"{path.name} is understood as {', '.join(said)}",
    )


def read_texts(
    path: str | Path, text: str = "text", label: str | None = AUTO, delimiter: str | None = None
) -> TextTable:
    """A table of texts that may have no classes, to be embedded; all of it counts as test.

    Args:
        path: as `root` of `load_text`; or a .txt with a text per line, in which empty lines are left out.
        text: column of the texts.
        label: column of the classes; "auto": the column label, if there is one; None: no classes. Without classes all
            texts are of one, called "".
        delimiter: of a csv.

    Raises:
        FileNotFoundError, ValueError: as of `load_text`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    rows = _plain_lines(path) if path.suffix.lower() == LINES else _rows(path, delimiter)
    texts: list[str] = []
    labels: list[str] = []
    names: list[str] = []
    column: str | None = None
    for place, row in rows:
        column = column if names else _column("label", label, row)
        wanted = [name for name in (text, column) if name is not None]
        lacking = next((name for name in wanted if name not in row), None)
        if lacking is not None:
            known = [str(each) for each in row if each is not None]
            raise ValueError(
                f"{place} has no column {lacking!r}{closest(lacking, known)} It has {', '.join(map(shown, known))}"
                + _delimiter_hint(known)
            )
        texts.append(_word(row[text], text, place))
        labels.append("" if column is None else _word(row[column], column, place))
        names.append(place.rpartition(", ")[2])
    if not texts:
        raise ValueError(f"{shown(path)} has no rows")
    return _table(path.stem, texts, labels, ["test"] * len(texts), names)


def _plain_lines(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(_lines(path).splitlines(), 1):
        if line.strip():
            yield f"{shown(path)}, line {number}", {"text": line.strip()}


def _column(role: str, given: str | None, row: Row) -> str | None:
    """The column of a role; None: there is none."""
    if given != AUTO:
        return given
    return role if role in row else None


def load_clinc150(root: str | Path, validation: Validation = "apart") -> TextTable:
    """CLINC150: 22 500 sentences of 150 intents in 10 domains, divided by intents; super-label = domain.

    Larson et al., An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction, EMNLP-IJCNLP 2019
    (CC BY 3.0). The out-of-scope sentences are `distractors`. The official splits share their intents. Here intents are
    divided: those of a domain sorted by name, the domains sorted by name, number i of 0 .. 149: i % 3 == 2 is test
    (50), i % 6 == 0 val (25), the rest train (75); all sentences of the three official splits together.

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
        [f"{part} {number}" for part in ("train", "val", "test") for number in range(len(data[part]))],
        [of[intent][0] for _, intent in rows],
    )
    return replace(
        table, distractors=tuple(text for part in ("oos_train", "oos_val", "oos_test") for text, _ in data[part])
    )


def load_banking77(root: str | Path, validation: Validation = "apart") -> TextTable:
    """BANKING77: 13 083 questions to a bank, of 77 intents that are close to each other, divided by intents.

    Casanueva et al., Efficient Intent Detection with Dual Sentence Encoders, 2020, arXiv:2003.04807 (CC BY 4.0). Intents
    sorted by name, number i of 0 .. 76: i % 3 == 2 is test (25), i % 6 == 0 val (13), the rest train (39); the questions
    of train.csv and test.csv together.

    Args:
        root: folder with train.csv and test.csv.
        validation: as of `load_clinc150`.
    """  # noqa: E501
    root = Path(root)
    rows: list[tuple[str, str]] = []
    names: list[str] = []
    for name in ("train.csv", "test.csv"):
        if not (root / name).is_file():
            raise FileNotFoundError(f"{shown(root)} has no {name}: BANKING77 is a folder with train.csv and test.csv")
        for place, row in _rows(root / name, None):
            if not {"text", "category"} <= set(row):
                raise ValueError(f"{place} is not of BANKING77: its columns are text and category")
            rows.append((_word(row["text"], "text", place), _word(row["category"], "category", place)))
            names.append(f"{name} {place.rpartition(', ')[2]}")
    intents = {intent: number for number, intent in enumerate(sorted({intent for _, intent in rows}))}
    splits = [_of_number(intents[intent], validation) for _, intent in rows]
    return _table("banking77", [text for text, _ in rows], [intent for _, intent in rows], splits, names)


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
        ".parquet": lambda: parquet_rows(path),
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


def parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(where it stands, column -> value) of every row of a parquet.

    Raises:
        ValueError: the file is no parquet, or damaged.
        ModuleNotFoundError: pyarrow is not installed.
    """
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


def as_split(value: str, place: str) -> str:
    """The split that a word means.

    Args:
        value: the word.
        place: where it stands, for the message.

    Raises:
        ValueError: it means none.
    """
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
    names: Sequence[str],
    supers: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    understood: str = "",
) -> TextTable:
    class_names, label = numbered(labels)
    super_names, super_label = ((), None) if supers is None else numbered(supers)
    return TextTable(
        name=name,
        label=label,
        class_names=class_names,
        split=tuple(splits),
        names=tuple(names),
        texts=tuple(texts),
        super_label=super_label,
        super_names=super_names,
        group=None if groups is None else tuple(groups),
        understood=understood,
    )
