"""Batches that are a function of the epoch: they can resume in the middle of an epoch, and processes share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from torch.utils.data import BatchSampler

from ..common.checks import integer
from .distributed import world

T = TypeVar("T")
SEED, LAST_SEED = "seed chooses the batches", 2**32 - 1


class EpochList(list[T]):
    """A list that stores the epoch it belongs to.

    The batch carries the epoch from the sampler through the DataLoader's worker to the augmentation. A persistent
    worker (`persistent_workers=True`) would not see an attribute that the main process sets.

    Args:
        items: the elements.
        epoch: 0, 1, ...

    >>> batch = EpochList([4, 7], epoch=3)
    >>> batch, batch.epoch
    ([4, 7], 3)
    """

    def __init__(self, items: Iterable[T] = (), epoch: int = 0) -> None:
        super().__init__(items)
        self.epoch = epoch


class EpochBatches(BatchSampler):
    """Base class of all samplers: it advances the epochs, splits batches over processes, and can resume in an epoch.

    A subclass defines the batches of an epoch (`batches`). The type is BatchSampler because some trainers check it
    (those of pytorch-metric-learning): they would treat the batches of another Sampler as indices.

    An iteration begins with its first batch and not with `iter()`, because a DataLoader with workers makes two
    iterators and reads one. Its epoch is the one given by `set_epoch` or `load_state_dict` since the last iteration
    began; otherwise it is the next epoch.

    Attributes:
        batch_size: images of the largest batch, over all processes.
        epoch: of the next iteration if it was set, else of the current or last iteration.
        start_batch: number of batches to skip at the start of the next iteration only.
    """

    batch_size: int

    def __init__(self, rank: int | None = None, world_size: int | None = None) -> None:
        # not BatchSampler's constructor: there is no sampler of single images
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"give both rank and world_size, or neither; got rank={rank}, world_size={world_size}. Without them, "
                "the values of torch.distributed are used"
            )
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.start_batch = 0
        self._named = True  # whether `epoch` is the epoch of the next iteration

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of a whole epoch, over all processes."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of batches of a whole epoch, also if the next iteration is shorter; the same on every process."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        """This process's part of the batches of an epoch from `start_batch` on. Resets `start_batch` to 0."""
        return _Iteration(self)

    def _numbered(self) -> Iterator[tuple[int, EpochList[int]]]:
        """Yield (number of batches of the epoch up to this one, this process's part of it)."""
        if not 0 <= self.start_batch <= len(self):
            raise ValueError(f"start_batch must be 0 .. {len(self)}, the batches of an epoch; got {self.start_batch}")
        rank, world_size = self._part()
        epoch, start = self.epoch if self._named else self.epoch + 1, self.start_batch
        self.epoch, self.start_batch, self._named = epoch, 0, False
        for number, batch in enumerate(self.batches(epoch)[start:], start + 1):
            yield number, EpochList(batch[rank::world_size], epoch)

    @property
    def sampler(self) -> EpochBatches:  # type: ignore[override]  # BatchSampler has an attribute of this name
        """This sampler itself. Lightning looks here for the `set_epoch` that it calls before each epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; `start_batch` does not change."""
        self.epoch, self._named = integer(epoch, "epoch counts epochs", low=0), True

    def state_dict(self, batches_done: int | None = None) -> dict[str, Any]:
        """Return the state for `load_state_dict`, as plain values; it is the same on every process.

        Args:
            batches_done: number of batches of this epoch that were trained on. The sampler does not know it, since a
                DataLoader requests batches ahead of time. None: the state before the next iteration.

        Raises:
            ValueError: an epoch has fewer than batches_done batches.
        """
        if batches_done is not None:
            done = integer(batches_done, "batches_done counts batches of this epoch", low=0, high=len(self))
            return {**self._identity(), "epoch": self.epoch, "start_batch": done}
        epoch = self.epoch if self._named else self.epoch + 1
        return {**self._identity(), "epoch": epoch, "start_batch": self.start_batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`: the next iteration starts at its epoch and batch.

        Raises:
            ValueError: if the state belongs to other data or settings, whose batches would be different.
        """
        mine = self._identity()
        needed = {*mine, "epoch", "start_batch"}
        if set(state) != needed:
            raise ValueError(f"a sampler state holds {sorted(needed)}; got {sorted(state)}")
        wrong = [f"{name}: saved {state[name]}, now {value}" for name, value in mine.items() if state[name] != value]
        if wrong:
            raise ValueError(
                "the sampler state belongs to other batches (" + "; ".join(wrong) + "). Resume with the same data and "
                "settings, or start a new epoch without loading the sampler."
            )
        self.set_epoch(int(state["epoch"]))
        self.start_batch = int(state["start_batch"])

    def _identity(self) -> dict[str, Any]:
        """Return everything that the batches depend on, except the labels and the epoch."""
        raise NotImplementedError

    def _part(self) -> tuple[int, int]:
        """(rank, world_size): the given values, else those of torch.distributed, else (0, 1)."""
        rank, world_size = self.rank, self.world_size
        if rank is None or world_size is None:
            return world()
        world_size = integer(world_size, "world_size is the number of processes", low=1)
        return integer(rank, "rank is the number of this process", low=0, high=world_size - 1), world_size


class _Iteration(Iterator[list[int]]):
    """An iteration over a sampler.

    torchdata's StatefulDataLoader saves its state and loads it. The state of the sampler alone would be the next epoch.
    """

    def __init__(self, sampler: EpochBatches) -> None:
        self._sampler, self._batches = sampler, sampler._numbered()
        self._epoch = self._done = 0

    def __next__(self) -> list[int]:
        self._done, batch = next(self._batches)
        self._epoch = batch.epoch
        return batch

    def state_dict(self) -> dict[str, Any]:
        if self._done in (0, len(self._sampler)):  # before the first batch and after the last one
            return self._sampler.state_dict()
        return {**self._sampler.state_dict(self._done), "epoch": self._epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)


class ShuffledBatches(EpochBatches):
    """Shuffled batches of equal size, a function of (seed, epoch). Can resume in the middle of an epoch.

    Images that do not fill the last batch are left out of this epoch. With n processes, each has every n-th image of
    the same batch.

    Args:
        images: number of images.
        batch_size: over all processes.
        seed: 0 .. 2**32 - 1.
        rank: number of this process; None: that of torch.distributed.
        world_size: number of processes; None: likewise. With 1, each process has whole batches.

    >>> batches = ShuffledBatches(images=5, batch_size=2)
    >>> len(batches), [len(batch) for batch in batches]
    (2, [2, 2])
    """

    def __init__(
        self, images: int, batch_size: int, seed: int = 0, rank: int | None = None, world_size: int | None = None
    ) -> None:
        super().__init__(rank, world_size)
        self.images = integer(images, "images is the number of rows", low=0)
        self.batch_size = integer(batch_size, "batch_size counts rows of the data", low=1, high=self.images)
        self.seed = integer(seed, SEED, low=0, high=LAST_SEED)
        self._part()  # raises for a wrong rank now, not when training starts

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return self.images // self.batch_size

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][image] rows of a whole epoch, over all processes."""
        order = np.random.RandomState([self.seed, epoch]).permutation(self.images)
        whole: list[list[int]] = order[: len(self) * self.batch_size].reshape(len(self), self.batch_size).tolist()
        return whole

    def _identity(self) -> dict[str, Any]:
        return {"images": self.images, "batch_size": self.batch_size, "seed": self.seed}

    def _part(self) -> tuple[int, int]:
        rank, processes = super()._part()
        if self.batch_size < processes:
            raise ValueError(f"{processes} processes cannot share a batch of {self.batch_size} rows: raise batch_size")
        return rank, processes
