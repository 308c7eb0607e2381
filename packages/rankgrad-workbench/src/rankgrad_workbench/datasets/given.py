"""Labelled data from Python: tensors, arrays, lists or a torch Dataset -> `GivenTable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from rankgrad.common.checks import number, renamed, unmasked
from rankgrad.common.text import shown
from rankgrad.ranks.relevance import as_labels, words_of

from .division import divide
from .fingerprint import of_texts, of_values
from .images import not_an_image, read_image
from .rows import Listed, Rows, numbered_several
from .transforms import Collate, Collated

Given = Any  # a Dataset of (input, label) pairs, or a pair of inputs and labels


@dataclass(frozen=True, eq=False)
class GivenTable(Rows):
    """A labelled set of any inputs of a model; one row per input. `Rows` has the columns of every table.

    Attributes:
        inputs: a tensor, an array, a list, or a torch Dataset; read by index.
        place: [row] its index in `inputs`.
        collate: list of inputs -> batch for the model; None: torch's default_collate.
        paths: [row] image files of the inputs, shown on pages; None: unknown.
    """

    inputs: Any
    place: tuple[int, ...]
    _: KW_ONLY
    collate: Callable[[list[Any]], Any] | None = None
    paths: tuple[Path, ...] | None = None

    takes = "inputs"
    per_row = ("place", "paths")

    def dataset(self) -> Dataset[tuple[Any, int, int]]:
        """See `Rows`."""
        return Listed(Subset(self.inputs, self.place), self.label)

    def batches(self, transform: Callable[[Any, Tensor, int], Any]) -> Collate:
        """See `Rows`."""
        return Collate(transform if self.collate is None else Collated(self.collate))

    def content(self) -> Mapping[str, str]:
        """Hashes of tensors and texts. A Dataset has none: its items may differ at each access."""
        if isinstance(self.inputs, Tensor):
            return of_values("content", self.inputs)
        return {} if self.captions is None else of_texts("content", self.captions)

    def described(self) -> str:
        """Shape of one input, where the inputs are one tensor."""
        return f" (each {list(self.inputs.shape[1:])})" if isinstance(self.inputs, Tensor) else ""

    @property
    def captions(self) -> tuple[str, ...] | None:
        """[row] the inputs, if they are texts; else None."""
        texts = isinstance(self.inputs, list) and all(isinstance(text, str) for text in self.inputs)
        return tuple(self.inputs[at] for at in self.place) if texts else None

    def picture(self, row: int, side: int) -> Tensor | None:
        """See `Rows`. Inputs [1 or 3, height, width] become images; floats are scaled from their minimum to maximum."""
        if self.paths is not None:
            return read_image(self.paths[row], 3, side, draft=True)
        if not isinstance(self.inputs, Tensor) or self.inputs.ndim != 4 or self.inputs.shape[1] not in (1, 3):
            return None
        image = self.inputs[self.place[row]]
        low, high = image.min(), image.max()
        scaled = image if image.dtype == torch.uint8 else 255 * (image.float() - low) / (high - low).clamp(min=1e-12)
        return scaled.round().to(torch.uint8)


class _Inputs(Dataset[Any]):
    """The inputs of a Dataset of (input, label) pairs."""

    def __init__(self, pairs: Any) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, row: int) -> Any:
        return self.pairs[row][0]


def given_table(
    data: Given,
    test: Given | float | None = None,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    seed: int = 0,
) -> GivenTable:
    """A table of data that a Python program holds.

    Args:
        data: training data. Either a pair (inputs, labels) or a Dataset of (input, label) pairs. Inputs are a tensor
            [row, ...], an array, a list (such as of texts) or a Dataset. Labels are one integer or string per row; or
            bool [row, class], where a row may have several classes. The labels of a Dataset are its attribute `targets`
            or `labels`, as in torchvision, and its `classes` are their names; `samples` or `imgs` give the files that a
            page shows. These are also found inside of Subset and ConcatDataset. If a Dataset has no labels, every pair
            is read once.
        test: test data of the same kinds; or a fraction of the classes of `data`, which are then not trained on. None:
            the training rows are evaluated, too.
        collate: list of inputs -> batch for the model; None: torch's default_collate.
        seed: of the choice of test classes.

    Raises:
        TypeError, ValueError: an argument is of another kind; the message names it.

    >>> table = given_table((torch.eye(4), ["b", "b", "a", "a"]), test=(torch.eye(4)[:2], ["b", "c"]))
    >>> table.splits, table.class_names, table.select("test").label.tolist()
    (('train', 'test'), ('a', 'b', 'c'), [1, 2])
    """
    inputs, labels, paths = _sides(data, "data")
    names = _names(labels, "data")
    splits = ["train"] * len(names)
    if isinstance(test, (int, float)) and not isinstance(test, bool):
        share = number(test, "test is data, or a fraction of the classes", above=0, high=1)
        if any(len(of_row) > 1 for of_row in names):
            raise ValueError(f"rows of several classes cannot be divided by class: give test data instead of {test}")
        with renamed(test_fraction="test"):
            of_class = divide({name for (name,) in names}, share, 0.0, seed, "test=(inputs, labels)")
        splits = [of_class[name] for (name,) in names]
    elif test is not None:
        test_inputs, test_labels, test_paths = _sides(test, "test")
        paths = None if paths is None or test_paths is None else [*paths, *test_paths]
        more = _names(test_labels, "test")
        inputs, names, splits = _both(inputs, test_inputs), [*names, *more], [*splits, *["test"] * len(more)]
    class_names, label, several = numbered_several(names, _order)
    return GivenTable(
        name="fit",
        label=label,
        class_names=class_names,
        several=several if any(len(of_row) > 1 for of_row in names) else None,
        split=tuple(splits),
        names=tuple(f"row {row}" for row in range(len(names))) if paths is None else tuple(map(shown, paths)),
        inputs=inputs,
        place=tuple(range(len(names))),
        collate=collate,
        paths=None if paths is None else tuple(map(Path, paths)),
    )


def load_given() -> GivenTable:
    """Raise: the data of this run came from Python, and its settings cannot load it again.

    Raises:
        ValueError: always.
    """
    raise ValueError("the data of this run is in no file: call rankgrad.fit with the same data again")


def _sides(data: Any, what: str) -> tuple[Any, Any, list[str] | None]:
    """(inputs, labels, image files) of `data`; inputs are read by index. None: the files are not known."""
    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], (str, tuple)):
        inputs, labels = data
        unmasked(inputs, f"inputs of {what}")
        if hasattr(inputs, "iloc"):  # of pandas, whose rows are not read by their place
            inputs = inputs.tolist() if np.ndim(inputs) == 1 else np.asarray(inputs)
        if isinstance(inputs, np.ndarray):
            inputs = torch.from_numpy(np.ascontiguousarray(inputs))
        elif isinstance(inputs, tuple):
            inputs = list(inputs)
        if hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__"):
            if len(inputs) != len(labels):
                raise ValueError(
                    f"{what} needs one label for each input; got {len(inputs)} inputs, {len(labels)} labels"
                )
            return inputs, labels, None
    elif isinstance(data, Dataset) and hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        labels, paths = _known(data)
        return _Inputs(data), [_label(data, row) for row in range(len(data))] if labels is None else labels, paths
    raise TypeError(
        f"{what} is a pair (inputs, labels), whose inputs are a tensor, an array, a list or a sized Dataset, or "
        f"a sized Dataset of (input, label) pairs; got {type(data).__name__}"
    )


def _known(data: Any) -> tuple[list[Any] | None, list[str] | None]:
    """(labels, image files) that a Dataset knows without reading its items, as those of torchvision do; None: unknown.

    Labels are the names of the classes where the Dataset has them: the same number means another class in the Dataset
    of another folder.
    """
    if isinstance(data, Subset):
        of_all, rows = _known(data.dataset), [int(row) for row in data.indices]
        chosen = [None if column is None else [column[row] for row in rows] for column in of_all]
        return chosen[0], chosen[1]
    if isinstance(data, ConcatDataset):
        parts = [_known(part) for part in data.datasets]
        joined = [
            None if any(part[side] is None for part in parts) else [each for part in parts for each in part[side] or ()]
            for side in (0, 1)
        ]
        return joined[0], joined[1]
    given: Any = next((getattr(data, name) for name in ("targets", "labels", "_labels") if hasattr(data, name)), None)
    pairs = next((getattr(data, name) for name in ("samples", "imgs") if hasattr(data, name)), None)
    pairs = pairs if isinstance(pairs, list) and len(pairs) == len(data) and all(map(_names_a_file, pairs)) else None
    if not hasattr(given, "__len__") or len(given) != len(data):
        # it may give the items of another Dataset with the same labels, such as one that transforms images
        inner: Any = getattr(data, "dataset", None)
        some_rows = {0, len(data) // 2, len(data) - 1} if len(data) else set()
        same = hasattr(inner, "__len__") and len(inner) == len(data)
        same = same and all(_label(data, row) == _label(inner, row) for row in some_rows)
        return _known(inner) if same else (None, None)
    labels: Any = list(given.tolist() if isinstance(given, (Tensor, np.ndarray)) else given)
    names = getattr(data, "classes", None)
    if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        whole = all(isinstance(number, int) and 0 <= number < len(names) for number in labels)
        labels = [names[number] for number in labels] if whole and len(set(names)) == len(names) else labels
    return labels, None if pairs is None else [str(pair[0]) for pair in pairs]


def _names_a_file(pair: Any) -> bool:
    """Whether an entry of `samples` is (file, class) of an image."""
    named = isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], (str, Path))
    return named and not_an_image(Path(pair[0])) is None


def _label(data: Any, row: int) -> Any:
    pair = data[row]
    if not isinstance(pair, (tuple, list)) or len(pair) < 2:
        raise TypeError(f"item {row} of a Dataset must be a pair (input, label); got {type(pair).__name__}")
    return pair[1].item() if isinstance(pair[1], Tensor) and pair[1].ndim == 0 else pair[1]


def _names(labels: Any, what: str) -> list[list[str]]:
    """[row] its classes, as texts."""
    (numbers,) = as_labels(labels, names=(f"the labels of {what}",))
    if numbers.dtype == torch.bool and numbers.ndim == 2:
        without = (~numbers.any(1)).nonzero().flatten().tolist()
        if without:
            raise ValueError(f"row {without[0]} of {what} has no class ({len(without)} such rows): remove such rows")
        return [[str(at) for at in row.nonzero().flatten().tolist()] for row in numbers]
    if numbers.ndim != 1 or numbers.dtype == torch.bool:
        raise ValueError(
            f"{what} needs one class for each input, or bool [row, class]; got {numbers.dtype} {[*numbers.shape]}"
        )
    words = words_of(labels)
    return [[str(value)] for value in (numbers.tolist() if words is None else words[numbers.numpy()].tolist())]


def _order(name: str) -> tuple[int, int, str]:
    """Sorts whole numbers by their value, before all other names."""
    return (0, int(name), "") if name.removeprefix("-").isdigit() else (1, 0, name)


def _both(first: Any, second: Any) -> Any:
    """The inputs of data and test, one after the other."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.shape[1:] != second.shape[1:]:
            raise ValueError(
                f"inputs of data and test have different shapes: {list(first.shape)} and {list(second.shape)}"
            )
        return torch.cat([first, second])
    return [*first, *second] if isinstance(first, list) and isinstance(second, list) else ConcatDataset([first, second])
