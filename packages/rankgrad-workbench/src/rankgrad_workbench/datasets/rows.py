"""The base class of all data sets: rows with a class and a split. Each kind of row is a subclass.

Images are `base.Table`, texts are `text.TextTable`, precomputed embeddings are `vectors.VectorTable`. Training,
evaluation, report and the commands use the methods of this class and do not depend on the kind of row.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.batches.epochs import EpochList
from rankgrad.common.checks import one_of
from rankgrad.common.text import aligned, brief, shown

from .fingerprint import fingerprint
from .images import Skipped, skipped_lines, some
from .transforms import Collate

SPLITS = ("train", "val", "test")
ROLES = ("query", "gallery", "")
PROTOCOLS = ("leave_one_out", "query_gallery", "one_gallery")

Self = TypeVar("Self", bound="Rows")


@dataclass(frozen=True, eq=False)
class Rows(ABC):
    """A labelled set of inputs, one per row.

    Attributes:
        name: of the data set.
        label: [row] long, class of each row, 0 .. C - 1, numbered over all splits.
        class_names: C names, all different.
        split: [row] "train", "val" or "test".
        names: [row] a name that people recognise, e.g. the name of its file.
        several: [row, class] bool, all classes of each row, if rows may have several. `label` is then the first of
            them; batches are drawn by it. None: each row has one class.
        super_label: [row] long, coarser class (alphabet, domain), or None.
        super_names: names of the super-labels; empty if there are none.
        group: [row] group id (a customer, a camera), or None. Items of the query's own group are not ranked for it.
        role: [row] "query", "gallery", or "" for a row that is neither (a training row); or None.
        copies: [row] bool, True for a copy that was made from another row for training, such as a letter turned by 90
            degrees. A held-out fold contains no copies. None: there are none.
        protocol: the evaluation protocol, see `protocols.trials`.
        skipped: (path, reason) of each file that cannot be used.
        remarks: further lines of the summary.
        understood: one sentence on how the loader understood its files. It is the first line of the summary.
        off_counts: a sentence if the counts differ from the published ones, so that results are not comparable with
            those of papers. Empty: they are equal, or none are published.
        takes: plural noun for the rows. It is also the kind of input of a model (`models.TAKES`).

    Raises:
        ValueError, TypeError: if the columns do not fit together.
    """

    name: str
    label: Tensor
    class_names: tuple[str, ...]
    split: tuple[str, ...]
    names: tuple[str, ...]
    _: KW_ONLY
    several: Tensor | None = None
    super_label: Tensor | None = None
    super_names: tuple[str, ...] = ()
    group: tuple[str, ...] | None = None
    role: tuple[str, ...] | None = None
    copies: Tensor | None = None
    protocol: str = "leave_one_out"
    skipped: Skipped = ()
    remarks: tuple[str, ...] = ()
    understood: str = ""
    off_counts: str = ""

    takes: ClassVar[str]
    per_row: ClassVar[tuple[str, ...]] = ()  # columns of the subclass with an entry for each row

    # ------------------------------------------------------------------------------------- what each subclass defines

    @abstractmethod
    def dataset(self) -> Dataset[tuple[Any, int, int]]:
        """The rows as a torch Dataset: item i is (input, label, i)."""

    @abstractmethod
    def content(self) -> Mapping[str, str]:
        """Name -> hash of the content of the rows, for `fingerprint`."""

    @abstractmethod
    def described(self) -> str:
        """A few words about the rows, for the summary."""

    @property
    def asks(self) -> Mapping[str, int]:
        """Arguments that `models.build_model` needs for these rows, such as the number of channels."""
        return {}

    def batches(self, transform: Any) -> Callable[[Any], Any]:
        """Return the `collate_fn` of a DataLoader: list of items -> (batch for the model, labels, index).

        Args:
            transform: for training or for evaluation, see `transforms`.
        """
        return Collate(transform)

    @property
    def captions(self) -> tuple[str, ...] | None:
        """[row] a text that shows the row to people; None: rows have no text."""
        return None

    def picture(self, row: int, side: int) -> Tensor | None:
        """A picture of a row, uint8 [channel, height, width]; None: the row is not an image.

        Args:
            row: number of the row.
            side: wanted pixels of the shorter side; the result may be larger or smaller.

        Raises:
            OSError: the file cannot be read.
        """
        return None

    # ----------------------------------------------------------------------------------------- what all tables share

    @property
    def noun(self) -> str:
        """Singular noun for one row."""
        return self.takes.removesuffix("s")

    def __post_init__(self) -> None:
        rows, noun, classes = len(self.label), self.noun, len(self.class_names)
        self.need("label", self.label, torch.int64, rows)
        self.need("super_label", self.super_label, torch.int64, rows)
        self.need("several", self.several, torch.bool, rows, classes)
        self.need("copies", self.copies, torch.bool, rows)
        for name, numbers, names in (
            ("label", self.label, self.class_names),
            ("super_label", self.super_label, self.super_names),
        ):
            if numbers is not None and not ((numbers >= 0) & (numbers < len(names))).all():
                raise ValueError(
                    f"{name} must be 0 .. {len(names) - 1}, one of its {len(names)} names, for each {noun}"
                )
        if self.several is not None and not self.several.gather(1, self.label.unsqueeze(1)).all():
            raise ValueError(f"label must be, for each {noun}, one of its classes in several")
        repeated = sorted(name for name, count in Counter(self.class_names).items() if count > 1)
        if repeated:
            raise ValueError(f"class_names must all be different; got {repeated} more than once")
        for name in ("split", "names", "role", "group", *self.per_row):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise ValueError(f"{name} needs one entry per {noun} ({rows}); got {len(column)}")
        for name, words, known in (("split", self.split, SPLITS), ("role", self.role or (), ROLES)):
            unknown = sorted(set(words) - set(known))
            if unknown:
                raise ValueError(f"{name} must be one of {known} for each {noun}; got {unknown}")
        one_of(self.protocol, "protocol", PROTOCOLS)
        if self.protocol == "query_gallery" and self.role is None:
            raise ValueError(
                f"protocol 'query_gallery' needs the queries and the gallery of the {self.takes}: give role="
            )

    def need(self, name: str, column: Tensor | None, dtype: torch.dtype | None, *shape: int | None) -> None:
        """Raise unless a column has this type and shape, in which None is any; or is None itself.

        Raises:
            ValueError: naming the column.
        """
        if column is None:
            return
        lengths = len(shape) == column.ndim and all(map(lambda a, b: a in (None, b), shape, column.shape))
        if dtype not in (None, column.dtype) or not lengths:
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise ValueError(f"{name} must be {dtype or 'numbers'} [{wanted}]; got {column.dtype} {list(column.shape)}")

    @property
    def truth(self) -> Tensor:
        """The classes that define relevance: the class of each row, long [row]; or its classes, bool [row, class]."""
        return self.label if self.several is None else self.several

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.label)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have rows, in the order train, val, test."""
        present = set(self.split)
        return tuple(split for split in SPLITS if split in present)

    def select(self: Self, split: str) -> Self:
        """Rows of one split. Class numbers, class names and `skipped` are those of the whole table.

        Raises:
            ValueError: if the table has no row of that split.
        """
        if split not in self.splits:
            there = ", ".join(self.splits) or "none"
            raise ValueError(f"{self.name} has no {self.takes} of split {split!r}; it has {there}")
        return self.take([row for row, here in enumerate(self.split) if here == split])

    def take(self: Self, rows: Sequence[int]) -> Self:
        """The given rows in the given order. Class numbers, class names and `skipped` are those of the whole table."""
        where = torch.as_tensor(rows, dtype=torch.int64)
        own = ("label", "split", "names", "several", "super_label", "group", "role", "copies")
        columns: dict[str, Any] = {name: getattr(self, name) for name in (*own, *self.per_row)}
        for name, column in columns.items():
            if isinstance(column, Tensor):
                columns[name] = column[where]
            elif column is not None:
                columns[name] = column.take(rows) if hasattr(column, "take") else tuple(column[row] for row in rows)
        return replace(self, **columns)

    def fingerprint(self) -> dict[str, int | str]:
        """The number of rows, and hashes of their names, labels and content. It identifies the data of a run."""
        labels = self.label if self.super_label is None else torch.stack([self.label, self.super_label])
        labels = labels if self.several is None else self.several
        names = [f"{split}/{name}" for split, name in zip(self.split, self.names, strict=True)]
        return {**fingerprint(names, labels, what=self.takes), **self.content()}

    @property
    def shared_classes(self) -> list[str]:
        """A line for each pair of splits that have classes in common."""
        split, notes = np.array(self.split), []
        for pair in combinations(self.splits, 2):
            one, other = (set(self.label[torch.from_numpy(split == each)].tolist()) for each in pair)
            if shared := len(one & other):
                many = "1 class is" if shared == 1 else f"{shared} classes are"
                notes.append(f"{many} in both {pair[0]} and {pair[1]}: not a test on unseen classes")
        return notes

    @property
    def caveats(self) -> list[str]:
        """What matters for a number measured on these rows, as sentences: copies, and classes in two splits."""
        lines = "\n".join([*self.shared_classes, *self.remarks]).replace("\n  ", "; ").splitlines()
        return [f"{line[0].upper()}{line[1:]}." for line in lines]

    def summary(self) -> str:
        """A short text: how the data was understood, then a table of rows, classes and super-labels per split.

        Notes below the table name classes that occur in several splits (the test is then not on unseen classes),
        classes with a single row in a split (no other row there can match it), classes whose names differ only in case,
        spaces, invisible characters or how a letter is stored, and skipped files.
        """
        classes_in_all = len(torch.unique(self.label))
        head = f"{shown(self.name)}: {len(self)} {self.takes}, {classes_in_all} classes{self.described()}"
        lines = [shown(self.understood), head] if self.understood else [head]
        table = [["split", self.takes, "classes", f"{self.takes}/class"]]
        if self.super_label is not None:
            table[0].append("super-labels")
        notes: list[str] = []
        for split in self.splits:
            rows = torch.tensor([here == split for here in self.split])
            present, counts = torch.unique(self.label[rows], return_counts=True)
            low, high = int(counts.min()), int(counts.max())
            spread = str(low) if low == high else f"{low}-{high}"
            table.append([split, str(int(rows.sum())), str(len(present)), spread])
            if self.super_label is not None:
                table[-1].append(str(len(torch.unique(self.super_label[rows]))))
            single = present[counts == 1].tolist()
            if single:
                which = "1 class has" if len(single) == 1 else f"{len(single)} classes have"
                names = some([brief(self.class_names[row]) for row in single])
                notes.append(f"{split}: {which} one {self.noun} only ({names}): nothing in {split} can match it")
        notes += self.shared_classes
        present = torch.unique(self.label) if self.several is None else self.several.any(0).nonzero().flatten()
        of_classes = [self.class_names[row] for row in present.tolist()]
        for what, of_what in (("classes", of_classes), ("super-labels", self.super_names), ("groups", self.group)):
            alike: dict[str, list[str]] = {}
            for name in sorted(set(of_what or ())):
                alike.setdefault(_seen(name), []).append(brief(ascii(name)))
            twins = [" / ".join(names) for names in alike.values() if len(names) > 1]
            if twins:
                notes.append(f"{what} whose names look alike, and count as different: {some(twins)}")
        if self.protocol != "leave_one_out":
            roles, words = self.role or (), (("query", "queries"), ("gallery", "in the gallery"))
            told = [f"{roles.count(role)} {word}" for role, word in words if role in roles]
            notes.append(", ".join([f"evaluated as {self.protocol}", *told]))
        notes += [*self.remarks, *skipped_lines(self.skipped)]
        return "\n".join([*lines, aligned(table), *notes])


def _seen(name: str) -> str:
    """A name as a reader sees it, in any case: without invisible characters, one spelling of letters and whole numbers.

    >>> _seen("cafe\u0301\u200b") == _seen("caf\u00e9"), _seen("\uff23\uff21\uff34"), _seen("1.0 ")
    (True, 'cat', '1')
    """
    escaped = r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"  # by `shown`, in the name of a folder
    plain = unicodedata.normalize("NFKC", re.sub(escaped, "", name)).casefold()
    plain = " ".join("".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Cc")).split())
    return re.sub(r"(?<=\d)\.0+$", "", plain)


class Listed(Dataset[tuple[Any, int, int]]):
    """Objects in memory, one per row, as a torch Dataset: item i is (object, label, i).

    The items of an `EpochList` of indices are an `EpochList` of the same epoch (see `epochs`).

    Args:
        things: [row] objects of any type.
        label: [row] long.

    >>> Listed(["one", "two"], torch.tensor([3, 4]))[1]
    ('two', 4, 1)
    """

    def __init__(self, things: Any, label: Tensor) -> None:
        self.things, self.label = things, label.tolist()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.label)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        """(object, label, index)."""
        return self.things[index], self.label[index], index

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, int, int]]:
        """Items of a batch."""
        items = [self[index] for index in indices]
        return EpochList(items, indices.epoch) if isinstance(indices, EpochList) else items


def numbered(names: Sequence[str], key: Callable[[str], Any] = str) -> tuple[tuple[str, ...], Tensor]:
    """The different names, sorted by the key, and the number of each row's name.

    >>> numbered(["dog", "cat", "dog"])
    (('cat', 'dog'), tensor([1, 0, 1]))
    """
    known = tuple(sorted(set(names), key=key))
    number = {name: at for at, name in enumerate(known)}
    return known, torch.tensor([number[name] for name in names], dtype=torch.long)


def numbered_several(
    classes: Sequence[Sequence[str]], key: Callable[[str], Any] = str
) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """The different names, sorted; the number of each row's first class; all classes of each row, bool [row, class].

    Args:
        classes: [row] names of its classes.
        key: of the sort.

    >>> numbered_several([["dog", "cat"], ["cat"]])
    (('cat', 'dog'), tensor([1, 0]), tensor([[ True,  True],
            [ True, False]]))
    """
    names, flat = numbered([name for of_row in classes for name in of_row], key)
    counts = torch.tensor([*map(len, classes)], dtype=torch.long)
    several = torch.zeros(len(classes), len(names), dtype=torch.bool)
    several[torch.arange(len(classes)).repeat_interleave(counts), flat] = True
    return names, flat[counts.cumsum(0) - counts], several


def class_columns(
    labels: Sequence[str],
    supers: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    classes: Sequence[Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The columns of a table for classes, super-labels and groups. Classes are numbered in the order of their names.

    Args:
        labels: [row].
        supers: [row] super-labels; None: there are none.
        groups: [row]; None: there are none.
        classes: [row] all classes; None: each row has its label only.

    >>> class_columns(["dog", "cat"])["label"]
    tensor([1, 0])
    """
    class_names, label, several = (*numbered(labels), None) if classes is None else numbered_several(classes)
    columns = {"label": label, "class_names": class_names, "several": several}
    if supers is not None:
        columns["super_names"], columns["super_label"] = numbered(supers)
    return columns | {"group": None if groups is None else tuple(groups)}
