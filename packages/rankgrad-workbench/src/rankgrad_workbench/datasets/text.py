"""Texts with classes: a file of rows (csv, tsv, jsonl, parquet) -> `TextTable`. Errors name the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset

from rankgrad.common.text import shown

from ..files.tables.formats import Row
from ..files.tables.parts import need_whole
from ..files.tables.text import kind_of, lines_of, stem_of
from .division import need_fractions
from .fingerprint import of_texts
from .rows import Listed, Rows, class_columns
from .tabular import AUTO, read_columns

LINES = ".txt"  # a text per line, without classes


@dataclass(frozen=True, eq=False)
class TextTable(Rows):
    """A labelled set of texts; one row per text. `Rows` has the columns of every table.

    Attributes:
        texts: [row].
    """

    texts: tuple[str, ...]

    takes = "texts"
    per_row = ("texts",)

    def dataset(self) -> Dataset[tuple[str, int, int]]:
        """See `Rows`."""
        return Listed(self.texts, self.label)

    def content(self) -> Mapping[str, str]:
        """Hash of the texts."""
        return of_texts("content", self.texts)

    def described(self) -> str:
        """Median length of the texts."""
        return f" (median length: {np.median([*map(len, self.texts)] or [0]):.0f} characters)"

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
    r"""A table of texts with classes, from a file (csv, tsv, jsonl, parquet) with a column each for text and class.

    If the file has no column of splits, all rows are training rows; with fractions > 0, whole classes are divided.

    Args:
        root: the file: csv or tsv with a header, jsonl (an object per line), or parquet; UTF-8, with or without a byte
            order mark.
        text: column of the texts.
        label: column of the classes, strings or integers.
        super_label: column of coarser classes; all texts of a class must have the same one. "auto": the column
            super_label, if it exists; None: no such column.
        split: column of the splits, train, val and test or the other names in `division.CALLED`; query and gallery in
            place of test: queries are ranked against the gallery; "auto": the column
            split, if it exists; None: no such column.
        group: column of the group id; "auto": the column group, if it exists; None: no such column. Items of the
            query's own group are not ranked for it.
        separator: between the classes in the label of a text with several classes, such as "|". Two texts are then
            relevant to each other if they share a class. Needs a column of splits. None: each text has one class.
        delimiter: of a csv; backslash and t for a tab; None: a comma, or a tab in a tsv.
        test_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        val_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        seed: of the division, see `division.divide`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: naming the row. A column is missing; a text or label is empty; a row has more or fewer fields than
            the header; the file is not UTF-8; all rows are of one split; a text is in two splits; classes are divided
            and a text has two labels; a class has two super-labels.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "questions.csv")
    ...     _ = file.write_text("text,label\nWhere is my card?,card\nMy card is lost.,card\nWhat is the fee?,fee\n")
    ...     table = load_text(file)
    >>> table.texts[0], table.class_names, table.label
    ('Where is my card?', ('card', 'fee'), tensor([0, 0, 1]))
    """
    need_fractions(test_fraction, val_fraction)
    wanted = {"text": text, "label": label, "super_label": super_label, "split": split, "group": group}
    read = read_columns(Path(root), wanted, delimiter)
    columns = read.table(separator, test_fraction, val_fraction, seed)
    if "split" in read.values:
        splits = replace(read, values={**read.values, "split": list(columns["split"])})
        splits.need_one("text", "split", "A text must be in one split only")
    elif test_fraction + val_fraction > 0:
        todo = "Classes are divided into train and test, and a text must not be in both: remove one of the rows, or add"
        read.need_one("text", "label", f"{todo} a column split")
    return TextTable(texts=tuple(read.values["text"]), **columns)


def read_texts(
    path: str | Path, text: str = "text", label: str | None = AUTO, delimiter: str | None = None
) -> TextTable:
    """A table of texts to embed, with or without classes. All rows have the split test.

    Args:
        path: as `root` of `load_text`; or a .txt with a text per line, whose empty lines are skipped.
        text: column of the texts.
        label: column of the classes; "auto": the column label, if it exists; None: no classes. Without classes all
            texts are of one class, called "".
        delimiter: of a csv.

    Raises:
        FileNotFoundError, ValueError: as in `load_text`.
    """
    path = Path(path)
    lines = plain_lines(path) if kind_of(path) == LINES and path.is_file() else None
    read = read_columns(path, {"text": text, "label": label}, delimiter, lines)
    texts = read.values["text"]
    names = [place.rpartition(", ")[2] for place in read.places]
    return text_table(stem_of(path), texts, read.values.get("label"), ["test"] * len(texts), names)


def plain_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """(file and line, text) of each line of a txt that is not empty."""
    need_whole(path)
    for number, line in enumerate(lines_of(path), 1):
        if line.strip():
            yield f"{shown(path)}, line {number}", {"text": line.strip()}


def text_table(
    name: str,
    texts: Sequence[str],
    labels: Sequence[str] | None,
    splits: Sequence[str],
    names: Sequence[str],
    supers: Sequence[str] | None = None,
) -> TextTable:
    """A table of texts. Classes are numbered in the order of their names.

    Args:
        name: of the data set.
        texts: [row].
        labels: [row]; None: all texts are of one class, called "".
        splits: [row].
        names: [row] such as "line 12".
        supers: [row] super-labels; None: there are none.
    """
    columns = class_columns([""] * len(texts) if labels is None else labels, supers)
    return TextTable(name=name, split=tuple(splits), names=tuple(names), texts=tuple(texts), **columns)
