"""Class batches for the trainer of sentence-transformers: its arguments take the class of a batch sampler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers.base.sampler import DefaultBatchSampler

from ...batches.distributed import world
from ...batches.sampler_settings import ShortClasses
from ...common.checks import integer
from ..class_batches import batches_of_step

LABEL_COLUMNS = ("label", "labels", "score", "scores")  # columns that the library's collator takes for labels
FIRST_ROW = 120  # letters of the first row in a message


class ClassBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of exactly P classes with K texts each, for `batch_sampler=` of the training arguments.

    Pass the class itself (K = 4, P = batch size / 4), or `ClassBatchSampler.of(samples_per_class=8)`.
    `rankgrad.batches.samplers.MPerClassBatchSampler` describes how classes and texts are chosen. The batches depend
    only on (labels, seed, epoch), so a training that resumes from a checkpoint gets the same batches.

    With W processes, the batches of a step have W P classes together. Each class is in the batch of one process only.
    So a loss that gathers the batches ranks exactly W P x K texts.

    Args:
        dataset: a `datasets.Dataset` with a column of classes: integers, strings, or lists of integers (a hierarchy,
            balanced by its finest level).
        batch_size: texts per process, a multiple of K.
        drop_last: has no effect, because all batches are whole.
        valid_label_columns: possible names of the label column; the first one that exists is used.
        generator: not used.
        seed: 0 .. 2**32 - 1.
        samples_per_class: K, >= 2.
        short_classes: "drop" leaves out classes with fewer than K texts. With "fewer", they give the texts that they
            have, and their batches are smaller. This works with one process only: with several, Accelerate drops
            smaller batches.

    Raises:
        ValueError: there are no classes or too few, or the batch size is not a multiple of K.

    >>> from datasets import Dataset
    >>> data = Dataset.from_dict({"text": list("abcdefgh"), "label": [0, 1] * 4})
    >>> [sorted(batch) for batch in ClassBatchSampler(data, batch_size=8)]  # 2 classes with 4 texts each
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool = False,
        valid_label_columns: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        samples_per_class: int = 4,
        short_classes: ShortClasses = "drop",
    ) -> None:
        super().__init__(
            dataset,
            batch_size=batch_size,
            drop_last=drop_last,
            valid_label_columns=valid_label_columns,
            generator=generator,
            seed=seed,
        )
        self.samples_per_class = integer(samples_per_class, "samples_per_class counts texts of a class", low=2)
        self.classes_per_batch = batch_size // samples_per_class
        self.processes = world()[1]
        if short_classes == "repeat":
            raise ValueError(
                "short_classes='repeat' puts a text into a batch twice. The loss would need row numbers to keep it "
                "from being its own match, but this trainer does not pass them on. Use 'drop' or 'fewer'"
            )
        if short_classes == "fewer" and self.processes > 1:
            raise ValueError(
                "short_classes='fewer' makes batches of different sizes, and Accelerate drops some of them. Use 'drop'"
            )
        self._labels = _classes(dataset, valid_label_columns or LABEL_COLUMNS)
        self._steps = batches_of_step(self._labels, batch_size, samples_per_class, seed, short_classes, "texts")

    @classmethod
    def of(cls, **settings: Any) -> partial[ClassBatchSampler]:
        """The sampler with other settings: samples_per_class, short_classes.

        >>> ClassBatchSampler.of(samples_per_class=8).keywords
        {'samples_per_class': 8}
        """
        return partial(cls, **settings)

    def __len__(self) -> int:
        """Batches of an epoch, of all processes together."""
        return len(self._steps) * self.processes

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch. The batches of a step follow each other. Accelerate gives one to each process."""
        for step in self._steps.batches(self.epoch):
            of_row = self._labels[step]
            starts = np.flatnonzero(np.r_[True, of_row[1:] != of_row[:-1]])  # the texts of a class stand together
            for part in np.split(np.asarray(step), starts[self.classes_per_batch :: self.classes_per_batch]):
                yield part.tolist()


def _classes(dataset: Any, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """[row] classes of a data set, numbered from 0."""
    name = next((name for name in columns if name in dataset.column_names), None)
    if name is None:
        raise ValueError(
            f"class batches need a column of classes named {' or '.join(columns)}; {_named(dataset)} has "
            f"{', '.join(dataset.column_names)}. Rename its column of classes: rename_column('NAME', 'label')"
        )
    try:
        labels = np.asarray(dataset[name][:])
    except ValueError:
        labels = np.zeros((0, 0, 0))
    if labels.dtype.kind not in "iuU" or labels.ndim not in (1, 2):
        raise ValueError(
            f"column {name!r} must hold one class per text, an integer or a string, or a list of integers from coarse "
            f"to fine, in {_named(dataset)}; got {dataset.features[name]}"
        )
    numbers: npt.NDArray[np.int64] = np.unique(labels, axis=0, return_inverse=True)[1]
    return numbers.reshape(-1)


def _named(dataset: Any) -> str:
    """A data set in words: a trainer may have several, and its sampler does not get their names."""
    columns, rows = dataset.column_names, len(dataset)
    if "dataset_name" in columns and rows:  # the trainer adds this column for some losses
        name = dataset[0]["dataset_name"]
    else:
        name = getattr(getattr(dataset, "info", None), "dataset_name", None)
    split = getattr(dataset, "split", None)
    named = " ".join(["the data set", *([repr(name)] if name else []), *([f"(split {split})"] if split else [])])
    first = str(dataset[0]) if rows else ""
    begins = f" that begins with {first if len(first) <= FIRST_ROW else first[:FIRST_ROW] + '…'}" if first else ""
    return f"{named} of {rows:,} row{'' if rows == 1 else 's'}{begins}"
