"""The settings `sampler.*` of a run: their checks, and their names in messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ..common.checks import integer, one_of
from ..common.defaults import SHORT_CLASSES

SamplesPerClass = int | Literal["all"]
ShortClasses = Literal["repeat", "fewer", "drop"]
PairOrder = Literal["shuffled", "consecutive"]

_NAMES = re.compile(
    r"(?<![\w.])((?:classes|super_labels)_per_batch|samples_per_class|short_classes|batches_per_(?:epoch|pair)|pair_order)\b"
)


def as_settings(message: str) -> str:
    """A message of a sampler with its arguments named as settings of a run.

    >>> as_settings("Raise classes_per_batch.")
    'Raise sampler.classes_per_batch.'
    """
    return _NAMES.sub(r"sampler.\1", message)


@contextmanager
def named_as_settings() -> Iterator[None]:
    """Context in which errors of a sampler name its arguments as settings of a run."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(as_settings(str(error))) from None


def check_settings(
    classes_per_batch: int = 1,
    samples_per_class: SamplesPerClass = 1,
    batches_per_epoch: int | None = None,
    *,
    short_classes: str = SHORT_CLASSES,
    batches_per_pair: int | None = None,
    pair_order: str = "shuffled",
    super_labels_per_batch: int = 2,
) -> None:
    """Raise if a setting of a sampler is out of range for any labels. A run calls this before it reads a file.

    `HierarchicalBatchSampler` explains the arguments.

    Args:
        classes_per_batch: P.
        samples_per_class: K or "all".
        batches_per_epoch: or None.
        short_classes: "repeat", "fewer" or "drop".
        batches_per_pair: None: no pairs.
        pair_order: "shuffled" or "consecutive".
        super_labels_per_batch: S.

    Raises:
        ValueError: naming the setting.
    """
    integer(classes_per_batch, "classes_per_batch counts classes", low=1)
    if samples_per_class != "all":
        integer(samples_per_class, 'samples_per_class counts rows, or is "all",', low=1)
    if batches_per_epoch is not None:
        integer(batches_per_epoch, "batches_per_epoch counts batches", low=1)
    one_of(short_classes, "short_classes", ("repeat", "fewer", "drop"))
    one_of(pair_order, "pair_order", ("shuffled", "consecutive"))
    integer(super_labels_per_batch, "super_labels_per_batch counts super-labels", low=1)
    if batches_per_pair is not None:
        integer(batches_per_pair, "batches_per_pair counts batches", low=1)
        if classes_per_batch < super_labels_per_batch:
            raise ValueError(
                f"classes_per_batch must be >= {super_labels_per_batch}, one class of each super-label; got "
                f"{classes_per_batch}"
            )
