"""Texts with classes: a file of rows (csv, tsv, jsonl, parquet) -> `TextTable`; what is wrong is named with its row.

And two public sets of sentences with intents, CLINC150 and BANKING77, divided by intents: the test asks for classes
that training never saw.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..files import shown
from .division import divide, need_fractions
from .fingerprint import of_texts
from .rows import Listed, Rows, numbered, numbered_several, several_classes
from .tabular import (
    AUTO,
    Row,
    as_split,
    need_split_of_several,
    need_two_splits,
    read_columns,
    read_rows,
    require_one,
    text_of,
    word,
)
from .transforms import Collate

Validation = Literal["apart", "train"]
LINES = ".txt"  # a text per line, for what needs no classes
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
        return f" (median length: {statistics.median(map(len, self.texts)):.0f} characters)"

    @property
    def distracting(self) -> TextTable | None:
        """The distractors as rows of their own."""
        rows = len(self.distractors)
        if not rows:
            return None
        names = tuple(f"distractor {row}" for row in range(rows))
        no_class = torch.zeros(rows, dtype=torch.long)
        return TextTable(self.name, no_class, ("",), ("test",) * rows, names, self.distractors)

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
    separator: str | None = None,
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
        split: column with train, val and test, or what else `division.CALLED` knows; "auto": the column split, if there
            is one; None: there is none.
        group: column of what a relevant text may not share with its query; "auto": the column group, if there is one.
        separator: between the classes of a text that has several in its label, such as "|": relevant is then what
            shares a class. Needs a column with the split. None: each text has one class.
        delimiter: of a csv, a backslash and t for a tab; None: the comma, or the tab of a tsv.
        test_fraction: of the classes, 0 .. 1; not used with a split.
        val_fraction: of the classes, 0 .. 1; not used with a split.
        seed: of the division, see `division.divide`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, a text or label is empty, a row has other fields than the header, the file is
            not UTF-8, all rows are of one split, a text stands in two splits or under two labels that are divided, a
            class in two super-labels; naming the row.
    """
    path = Path(root)
    need_fractions(test_fraction, val_fraction)
    wanted = {"text": text, "label": label, "super_label": super_label, "split": split, "group": group}
    read = read_columns(path, wanted, delimiter)
    found, columns, places = read.values, read.names, read.places
    labels, supers = found["label"], found.get("super_label")
    several = None if separator is None else several_classes(labels, separator, places)
    need_split_of_several(several, "split" in found, path)
    if "split" in found:
        splits = [as_split(value, place) for value, place in zip(found["split"], places, strict=True)]
        need_two_splits(set(splits), path)
        _require_apart(found["text"], splits, places)
    else:
        of_class = divide(set(labels), test_fraction, val_fraction, seed)
        splits = [of_class[name] for name in labels]
        if test_fraction + val_fraction > 0:
            _require_one_label(found["text"], labels, places)
    if supers is not None and several is None:
        require_one(labels, supers, places, columns["super_label"])
    said = [f"{role.replace('_', '-')} = {shown(name)}" for role, name in columns.items()]
    if "split" not in columns and test_fraction + val_fraction > 0:
        said.append("divided by class")
    return _table(
        path.stem,
        found["text"],
        labels,
        splits,
        read.rows,
        supers,
        found.get("group"),
        f"{path.name} is understood as {', '.join(said)}",
        several,
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
    lines = _plain_lines(path) if path.suffix.lower() == LINES and path.is_file() else None
    read = read_columns(path, {"text": text, "label": label}, delimiter, lines)
    texts = read.values["text"]
    return _table(path.stem, texts, read.values.get("label", [""] * len(texts)), ["test"] * len(texts), read.rows)


def _plain_lines(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if line.strip():
            yield f"{shown(path)}, line {number}", {"text": line.strip()}


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
        for place, row in read_rows(root / name, None):
            if not {"text", "category"} <= set(row):
                raise ValueError(f"{place} is not of BANKING77: its columns are text and category")
            rows.append((word(row["text"], "text", place), word(row["category"], "category", place)))
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
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown(path)} is no JSON, or it is damaged: {error}") from None


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


def _require_one_label(texts: Sequence[str], labels: Sequence[str], places: Sequence[str]) -> None:
    """Raise if a text stands under two labels: where classes are divided, it would be trained on and tested."""
    first: dict[str, int] = {}
    wrong = [(first[text], row) for row, text in enumerate(texts) if labels[first.setdefault(text, row)] != labels[row]]
    if wrong:
        before, row = wrong[0]
        more = f", and {len(wrong) - 1} more rows are like it" if wrong[1:] else ""
        raise ValueError(
            f"{places[row]} has the text of {places[before]} under another label: {shown(texts[row][:NAMED])!r} is "
            f"{shown(labels[row])!r} here and {shown(labels[before])!r} there{more}. Classes are divided into train "
            "and test, and a text must not be in both: leave one of the rows out, or add a column split"
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
    classes: Sequence[Sequence[str]] | None = None,
) -> TextTable:
    class_names, label, several = (*numbered(labels), None) if classes is None else numbered_several(classes)
    super_names, super_label = ((), None) if supers is None else numbered(supers)
    return TextTable(
        name=name,
        label=label,
        class_names=class_names,
        split=tuple(splits),
        names=tuple(names),
        texts=tuple(texts),
        several=several,
        super_label=super_label,
        super_names=super_names,
        group=None if groups is None else tuple(groups),
        understood=understood,
    )
