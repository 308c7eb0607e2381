"""Texts with classes: a file of rows (csv, tsv, jsonl, parquet) -> `TextTable`; what is wrong is named with its row."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..files import shown
from .division import divide, need_fractions
from .fingerprint import of_texts
from .rows import Listed, Rows, class_columns
from .tabular import AUTO, Row, read_columns, several_classes_of, splits_of, text_of
from .transforms import Collate

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
        group: column of the group id; "auto": the column group, if there is one. Items of the query's own group are not
            ranked for it.
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
    texts, labels = read.values["text"], read.values["label"]
    classes = several_classes_of(read, separator, path)
    splits = splits_of(read, path)
    divided = splits is None and test_fraction + val_fraction > 0
    if splits is not None:
        _require_apart(texts, splits, read.places)
    else:
        of_class = divide(set(labels), test_fraction, val_fraction, seed)
        splits = [of_class[name] for name in labels]
        if divided:
            _require_one_label(texts, labels, read.places)
    return text_table(
        path.stem,
        texts,
        labels,
        splits,
        read.rows,
        read.values.get("super_label"),
        read.values.get("group"),
        read.understood(path, ["divided by class"] if divided else []),
        classes,
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
    return text_table(path.stem, texts, read.values.get("label", [""] * len(texts)), ["test"] * len(texts), read.rows)


def _plain_lines(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if line.strip():
            yield f"{shown(path)}, line {number}", {"text": line.strip()}


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


def text_table(
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
    """A table of what was read, its classes numbered by name.

    Args:
        name: of the data set.
        texts: of each row.
        labels: of each row.
        splits: of each row.
        names: of each row: where it stands, for messages.
        supers: super-label of each row; None: there are none.
        groups: of each row; None: there are none.
        understood: how the rows were divided, for the summary.
        classes: of each row all its classes; None: each has its label alone.
    """
    return TextTable(
        name=name,
        **class_columns(labels, supers, groups, classes),
        split=tuple(splits),
        names=tuple(names),
        texts=tuple(texts),
        understood=understood,
    )
