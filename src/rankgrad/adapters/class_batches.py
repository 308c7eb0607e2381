"""Class batches for the trainers of transformers and of sentence-transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..batches.distributed import world
from ..batches.sampler_settings import ShortClasses
from ..batches.samplers import MPerClassBatchSampler


def batches_of_step(
    labels: npt.NDArray[Any],
    batch_size: int,
    samples_per_class: int,
    seed: int,
    short_classes: ShortClasses = "drop",
    noun: str = "rows",
) -> MPerClassBatchSampler:
    """A sampler whose batch is one training step: the batches of all processes together.

    Args:
        labels: [row] integers, the class of each row.
        batch_size: rows of one process, a multiple of samples_per_class.
        samples_per_class: rows of each class.
        seed: 0 .. 2**32 - 1.
        short_classes: "drop" or "fewer", see `MPerClassBatchSampler`.
        noun: plural noun for the rows, for messages.

    Raises:
        ValueError: the batch size does not fit samples_per_class, or there are too few classes.

    >>> sampler = batches_of_step(np.array([0, 1] * 4), batch_size=8, samples_per_class=4, seed=0)
    >>> [sorted(batch) for batch in sampler.batches(epoch=0)]
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """
    if batch_size % samples_per_class or batch_size < 2 * samples_per_class:
        raise ValueError(
            f"the batch size must be a multiple of samples_per_class={samples_per_class}, and at least "
            f"{2 * samples_per_class}; got {batch_size}. Change the batch size or samples_per_class"
        )
    processes = world()[1]
    wanted = batch_size // samples_per_class * processes
    sizes = np.unique(labels, return_counts=True)[1]
    usable = int((sizes >= (samples_per_class if short_classes == "drop" else 1)).sum())
    if usable < wanted:
        several = f" on each of {processes} processes" if processes > 1 else ""
        raise ValueError(
            f"batches of {batch_size} {noun}{several}, {samples_per_class} per class, need {wanted} classes with at "
            f"least {samples_per_class} {noun}, but only {usable} of {len(sizes)} classes have so many. Make the "
            "batches smaller or samples_per_class larger."
        )
    return MPerClassBatchSampler(
        labels, wanted, samples_per_class, seed=seed, rank=0, world_size=1, short_classes=short_classes
    )
