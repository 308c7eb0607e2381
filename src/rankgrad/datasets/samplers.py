"""Batches for rank losses: every batch holds P classes with K images each.

A rank loss needs positives and negatives inside the batch. Random images from thousands of classes contain almost no
positives. The batches of an epoch are a pure function of (labels, seed, epoch), so that a run that was stopped in the
middle of an epoch continues with exactly the remaining batches.

Without `set_epoch`, each iteration belongs to the next epoch, so that no loop trains on the same batches again and
again.

With several processes, each takes its part of the same batch: `batch[rank::world_size]`. A loss that gathers the parts
gets the same batch as on one process.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import BatchSampler

from ..checks import whole_number
from ..defaults import CLASSES_PER_BATCH, SAMPLES_PER_CLASS, SHORT_CLASSES
from ..distributed import world

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]
Labels = Tensor | npt.NDArray[Any] | Sequence[int] | Sequence[str]
SamplesPerClass = int | Literal["all"]
ShortClasses = Literal["repeat", "fewer", "drop"]
PairOrder = Literal["shuffled", "consecutive"]

SHORT_CLASS_RULES = ("repeat", "fewer", "drop")
PAIR_ORDERS = ("shuffled", "consecutive")
MOST_SETS = 1_000_000  # largest allowed number of combinations of super-labels


class SmallClassWarning(UserWarning):
    """There are too few classes, or some have too few images: batches are not as requested."""


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
        self.epoch, self._named = _integer("epoch", epoch, 0), True

    def state_dict(self, batches_done: int | None = None) -> dict[str, Any]:
        """Return the state for `load_state_dict`, as plain values; it is the same on every process.

        Args:
            batches_done: number of batches of this epoch that were trained on. The sampler does not know it, since a
                DataLoader requests batches ahead of time. None: the state before the next iteration.

        Raises:
            ValueError: an epoch has fewer than batches_done batches.
        """
        if batches_done is not None:
            done = _integer("batches_done", batches_done, 0)
            if done > len(self):
                raise ValueError(f"batches_done counts batches of this epoch, which has {len(self)}; got {done}")
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
        world_size, rank = _integer("world_size", world_size, 1), _integer("rank", rank, 0)
        if rank >= world_size:
            raise ValueError(f"rank must be 0 .. world_size - 1 = {world_size - 1}; got {rank}")
        return rank, world_size


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


class ClassBatches(EpochBatches):
    """Base class for batches of P classes with K images each.

    A subclass chooses the classes of each batch (`choose`). This class chooses the images of each class and handles
    classes with too few images.

    Args:
        labels: [image] integers or strings.
        classes_per_batch: P; if there are fewer classes, all of them.
        samples_per_class: K, or "all".
        batches_per_epoch: None: about one pass over the images, see `MPerClassBatchSampler`.
        seed: 0 .. 2**32 - 1.
        rank: of this process; give it together with world_size, or None.
        world_size: number of processes that share each batch; None: torch.distributed's when an iteration starts.
        short_classes: how to treat classes with fewer than K images, see `MPerClassBatchSampler`.

    Attributes:
        notes: one sentence for each way in which the batches are not as requested. Each is a `SmallClassWarning`, too.

    >>> class FirstClasses(ClassBatches):
    ...     def choose(self, rng):
    ...         return np.tile(np.arange(self.classes_per_batch), (self.batches_per_epoch, 1))
    >>> batches = FirstClasses([0, 0, 1, 1, 2, 2], 2, 2, 1, 0, None, None, "drop")
    >>> [sorted(batch) for batch in batches]
    [[0, 1, 2, 3]]
    """

    def __init__(
        self,
        labels: Labels,
        classes_per_batch: int,
        samples_per_class: SamplesPerClass,
        batches_per_epoch: int | None,
        seed: int,
        rank: int | None,
        world_size: int | None,
        short_classes: ShortClasses,
    ) -> None:
        super().__init__(rank, world_size)
        check_settings(classes_per_batch, samples_per_class, batches_per_epoch, short_classes=short_classes)
        # integers of numpy would be in the state, which holds plain values
        classes_per_batch = index(classes_per_batch)
        if samples_per_class != "all":
            samples_per_class = index(samples_per_class)
        if batches_per_epoch is not None:
            batches_per_epoch = index(batches_per_epoch)
        self.seed = _seed(seed)
        self.samples_per_class = samples_per_class
        self.short_classes = short_classes
        self._labels = _labels("labels", labels)
        by_class = _rows_by_class(self._labels)
        enough = 1 if samples_per_class == "all" else samples_per_class
        self._images = [rows for rows in by_class if len(rows) >= enough or short_classes != "drop"]
        self.left_out = len(by_class) - len(self._images)
        self.notes: tuple[str, ...] = ()
        for note in self._shortages(classes_per_batch, enough):
            self._note(note)
        self.classes_per_batch = min(classes_per_batch, len(self._images))
        sizes = np.array([len(rows) for rows in self._images])
        self._brought = _rows_brought(sizes, samples_per_class, short_classes)
        self.ragged = bool((self._brought > sizes).any() or (self._brought != self._brought[0]).any())
        by_size = np.sort(self._brought)
        self._smallest = int(by_size[: self.classes_per_batch].sum())
        self.batch_size = int(by_size[-self.classes_per_batch :].sum())
        if batches_per_epoch is None:
            # images / (P x mean number of rows that a class gives), in integers
            mean = self.classes_per_batch * int(self._brought.sum())
            batches_per_epoch = max(1, int(sizes.sum()) * len(sizes) // mean)
        self.batches_per_epoch = batches_per_epoch
        if rank is not None:
            self._part()  # raises for a wrong rank now, not when training starts

    def _shortages(self, classes_per_batch: int, enough: int) -> Iterator[str]:
        """Yields one sentence for each way in which the batches are not as requested.

        Args:
            classes_per_batch: as requested.
            enough: smallest number of rows of a class that is not short.

        Raises:
            ValueError: no batch can be made.
        """
        rows, usable, left_out = len(self._labels), len(self._images), self.left_out
        such = f" with at least {enough} rows each" if self.short_classes == "drop" else ""
        if usable < min(classes_per_batch, 2):  # with one class there is nothing to compare
            raise ValueError(
                f"a batch needs {min(classes_per_batch, 2)} classes{such}; of {usable + left_out} classes ({rows} "
                f"rows) {usable} can be used. Add rows of other classes"
                + (", lower samples_per_class, or take short_classes=fewer" if left_out else "")
            )
        if usable < classes_per_batch:
            yield f"batches have {usable} classes: there are no more{such} (classes_per_batch={classes_per_batch})"
        if left_out:
            lost = rows - sum(map(len, self._images))
            yield (
                f"{left_out} of {usable + left_out} classes ({lost} of {rows} rows) have fewer than "
                f"samples_per_class={self.samples_per_class} rows and are left out of the batches"
            )

    def _note(self, note: str, stacklevel: int = 4) -> None:
        self.notes += (note,)
        warnings.warn(note, SmallClassWarning, stacklevel=stacklevel)

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] numbers of the usable classes in each batch of an epoch, distinct within a batch."""
        raise NotImplementedError

    @property
    def even(self) -> bool:
        """Whether all processes get the same number of images of each batch."""
        return self._smallest == self.batch_size and self.batch_size % self._part()[1] == 0

    @property
    def positives(self) -> int | None:
        """Number of other images of its class that every image has in its batch; None if it differs or is 0.

        This is the value for `RetrievalLoss(positives=...)`. If `ragged`, it is None.
        """
        return None if self.ragged else int(self._brought[0]) - 1 or None

    def __len__(self) -> int:
        """Number of batches of a whole epoch, also if the next iteration is shorter; the same on every process."""
        return self.batches_per_epoch

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][image] rows of a whole epoch, over all processes; the images of a class follow each other."""
        # RandomState and not default_rng: numpy guarantees the numbers of RandomState
        rng = np.random.RandomState([self.seed, epoch])
        chosen = self.choose(rng).reshape(-1)
        brought = self._brought[chosen]
        ends = np.cumsum(brought)
        rows = np.empty(int(ends[-1]), dtype=np.int64)
        visits = np.bincount(chosen, minlength=len(self._images))
        by_class = np.argsort(chosen, kind="stable")  # visits of class 0 in time order, then of class 1, ...
        done = 0
        for number, count in enumerate(visits.tolist()):
            if count:
                mine = by_class[done : done + count]
                images, size = self._images[number], int(self._brought[number])
                place = (ends[mine] - size)[:, None] + np.arange(size)
                rows[place] = images[hands(len(images), count, size, rng)]
                done += count
        last = ends[self.classes_per_batch - 1 :: self.classes_per_batch]  # of each batch
        return [batch.tolist() for batch in np.split(rows, last[:-1])]

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "classes_per_batch": self.classes_per_batch,
            "samples_per_class": self.samples_per_class,
            "batches_per_epoch": self.batches_per_epoch,
            "num_images": len(self._labels),
            "num_classes": len(self._images),
            "short_classes": self.short_classes,
        }

    def _part(self) -> tuple[int, int]:
        """(rank, world_size). Raises if a process would get no image of a batch."""
        rank, world_size = super()._part()
        if world_size > self._smallest:
            raise ValueError(
                f"{world_size} processes cannot share a batch of {self.classes_per_batch} x {self.samples_per_class} = "
                f"{self._smallest} rows (one batch is split over all processes). Raise classes_per_batch."
                if self._smallest == self.batch_size
                else f"{world_size} processes cannot share batches of {self._smallest} to {self.batch_size} rows "
                "(one batch is split over all processes). Raise classes_per_batch."
            )
        return rank, world_size


class MPerClassBatchSampler(ClassBatches):
    """Batches of `classes_per_batch` distinct classes with `samples_per_class` images each.

    Classes are dealt like cards: all usable classes are shuffled, dealt to batches, and shuffled again. So at every
    moment of an epoch, the numbers of visits to any two classes differ by at most one. Every class has the same weight,
    whatever its size: the model has to work for unseen classes, and a few large classes would otherwise be in every
    batch. The images of a class are dealt to its visits within the epoch in the same way: no image comes twice before
    all came once. If a batch takes cards from two shuffles, the second part avoids the cards of the first part.

    A class with fewer than K images is *short*. "repeat": it gives K images; its images are repeated about equally
    often. Then pass the row numbers of the images to the loss (`ids=`), so that no image is its own match. "fewer": it
    gives the images that it has, and the batch is smaller. "drop": it is left out, and all batches have the same size.
    A class of one image never has a match: with "repeat" and "fewer" it only gives negatives. "fewer" was best on a
    long-tailed data set (docs/results/short-classes.md) and is the default.

    Batches depend on (labels, seed, epoch) only. They are the same on any machine, because numpy guarantees the numbers
    of the generator used here.

    Every process yields every `world_size`-th image of the same batch, beginning with its `rank`. So nearly all classes
    are in each part, which helps batch norm that is not synchronised, and a run can resume with another number of
    processes.

    Args:
        labels: [image] the class of each image: any integers, or strings; a tensor, an array, a list or a column of a
            data frame.
        classes_per_batch: P, >= 1. Losses need at least 2. If there are fewer classes, all of them
            (`SmallClassWarning`).
        samples_per_class: K, >= 1. Losses need at least 2. "all": every class gives all its images.
        batches_per_epoch: >= 1; None: about one pass over the images, floor(usable images / mean batch size), at least
            1.
        seed: 0 .. 2**32 - 1.
        rank: number of this process, 0 .. world_size - 1; None: torch.distributed's if it is initialised when an
            iteration starts, else 0.
        world_size: number of processes, at most the images of a batch; None: torch.distributed's likewise, else 1.
        short_classes: "repeat", "fewer" or "drop", see above.

    Attributes:
        batch_size: images of the largest batch, over all processes. It is P K if K is a number and no class is short.
        even: whether all processes get the same number of images of each batch.
        ragged: whether the number of other images of its class in the batch differs between images.
        positives: K - 1, the value for a loss; None if ragged.
        left_out: number of classes that are never used (one `SmallClassWarning` names it).
        epoch: see `EpochBatches`.
        start_batch: see `EpochBatches`.

    Raises:
        TypeError: if labels are neither integers nor strings.
        ValueError: if an argument is out of range or no two classes can be used.

    Each batch is an `EpochList` (a list of int with an attribute `epoch`).

    >>> sampler = MPerClassBatchSampler([0, 0, 0, 1, 1, 2, 2], classes_per_batch=2, samples_per_class=2)
    >>> len(sampler), [len(batch) for batch in sampler], sampler.positives
    (1, [4], 1)
    >>> labels = ["a", "a", "a", "b"]
    >>> [sorted(batch) for batch in MPerClassBatchSampler(labels, 2, 3, short_classes="repeat")]
    [[0, 1, 2, 3, 3, 3]]
    >>> [sorted(batch) for batch in MPerClassBatchSampler(labels, 2, 3, short_classes="fewer")]
    [[0, 1, 2, 3]]
    """

    def __init__(
        self,
        labels: Labels,
        classes_per_batch: int = CLASSES_PER_BATCH,
        samples_per_class: SamplesPerClass = SAMPLES_PER_CLASS,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        short_classes: ShortClasses = SHORT_CLASSES,
    ) -> None:
        super().__init__(
            labels, classes_per_batch, samples_per_class, batches_per_epoch, seed, rank, world_size, short_classes
        )

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] classes, dealt from one deck."""
        sizes = np.full(self.batches_per_epoch, self.classes_per_batch)
        return _deal(len(self._images), sizes, rng).reshape(-1, self.classes_per_batch)


class HierarchicalBatchSampler(ClassBatches):
    """Batches of P classes x K images from two super-labels each, so that negatives often share the super-label.

    Every unordered pair of super-labels gets `batches_per_pair` batches per epoch. Half of the classes of a batch come
    from each super-label; if P is odd, the two take turns in giving one more. Everything else is as in
    `MPerClassBatchSampler`: how classes and images are dealt, P, K, short classes, seeds, parts of processes, resuming.

    Source: Cakir et al., FastAP, CVPR 2019; the pairs of RaMBO (Rolínek et al., CVPR 2020, appendix A) and ROADMAP
    (Ramzi et al., NeurIPS 2021): 10 batches per pair and K = 4 on Stanford Online Products, 4 and K = 8 on In-shop, 128
    images each, the batches of a pair one after the other (pair_order="consecutive"). The papers leave three cases
    open. We decided: if a super-label has fewer classes than its half, it gives all of them and the others give the
    rest, so that every batch is full (in published code it is smaller). A pair with fewer than P classes is left out. A
    repeated image is never its own match (in published code it is).

    Args:
        labels: [image] the class of each image, as for `MPerClassBatchSampler`.
        super_labels: [image] the super-label of each image, likewise; all images of a class must have the same one.
        classes_per_batch: P, >= super_labels_per_batch.
        samples_per_class: K, >= 1, or "all". Losses need at least 2.
        batches_per_pair: number of batches of each pair of super-labels in a round, >= 1.
        batches_per_epoch: >= 1; None: one round, which is the number of pairs times batches_per_pair. A smaller number
            ends the round early; a larger one starts another round.
        seed: 0 .. 2**32 - 1.
        rank: see `MPerClassBatchSampler`.
        world_size: see `MPerClassBatchSampler`.
        short_classes: see `MPerClassBatchSampler`.
        pair_order: "shuffled": the batches of all pairs are mixed. "consecutive": pairs come in random order, each with
            all its batches, so that a memory of three batches holds hard negatives of the same two super-labels.
        super_labels_per_batch: 2 for pairs. Another number S, 1 .. all: every set of S super-labels replaces every
            pair, and each gives 1 / S of the classes.

    Attributes:
        batch_size: images of the largest batch, over all processes. For `even`, `ragged`, `positives` and
            `left_out` see `MPerClassBatchSampler`.
        pairs: [pair, 2] super-labels of each pair that has batches ([set, S]).
        pairs_left_out: number of pairs with fewer than P usable classes (one `SmallClassWarning` names it).
        epoch: see `EpochBatches`.
        start_batch: see `EpochBatches`.

    Raises:
        TypeError: if labels or super-labels are neither integers nor strings.
        ValueError: if an argument is out of range, a class has several super-labels, or no pair has P classes.

    >>> labels = np.repeat(np.arange(8), 3)  # eight classes of three images
    >>> sampler = HierarchicalBatchSampler(labels, labels // 4, 4, 3, batches_per_pair=2)
    >>> [sorted({int(labels[i]) // 4 for i in batch}) for batch in sampler]
    [[0, 1], [0, 1]]
    """

    def __init__(
        self,
        labels: Labels,
        super_labels: Labels,
        classes_per_batch: int = CLASSES_PER_BATCH,
        samples_per_class: SamplesPerClass = SAMPLES_PER_CLASS,
        batches_per_pair: int = 10,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        short_classes: ShortClasses = SHORT_CLASSES,
        pair_order: PairOrder = "shuffled",
        super_labels_per_batch: int = 2,
    ) -> None:
        check_settings(
            classes_per_batch,
            samples_per_class,
            batches_per_epoch,
            batches_per_pair=batches_per_pair,
            pair_order=pair_order,
            super_labels_per_batch=super_labels_per_batch,
        )
        super().__init__(
            labels, classes_per_batch, samples_per_class, batches_per_epoch, seed, rank, world_size, short_classes
        )
        names, super_label = self._super_label_of_each_class(super_labels)
        self._members = [np.flatnonzero(super_label == i) for i in range(len(names))]
        self._pairs, self.pairs_left_out = self._whole_pairs(super_labels_per_batch)
        self.pairs: npt.NDArray[Any] = names[self._pairs]
        if self.pairs_left_out:
            self._note(
                f"{self.pairs_left_out} of {self.pairs_left_out + len(self._pairs)} pairs of super-labels have fewer "
                f"than {self.classes_per_batch} classes with {samples_per_class} rows, or all of them in one "
                "super-label, and get no batches",
                stacklevel=3,
            )
        self.batches_per_pair, self.pair_order = index(batches_per_pair), pair_order
        self.super_labels_per_batch = index(super_labels_per_batch)
        if batches_per_epoch is None:
            self.batches_per_epoch = len(self._pairs) * self.batches_per_pair

    def _super_label_of_each_class(self, super_labels: Labels) -> tuple[npt.NDArray[Any], IntArray]:
        """(names of the super-labels, [usable class] number of its super-label)."""
        names, of_image = np.unique(_labels("super_labels", super_labels), return_inverse=True)
        if len(of_image) != len(self._labels):
            raise ValueError(f"super_labels need one entry per image ({len(self._labels)}); got {len(of_image)}")
        for rows in self._images:
            several = np.unique(of_image[rows])
            if len(several) > 1:
                raise ValueError(
                    f"a class has one super-label, but class {self._labels[rows[0]]} has images of the super-labels "
                    f"{', '.join(map(str, names[several]))}. Correct them, or number the combinations of class and "
                    "super-label as classes."
                )
        return names, of_image[[rows[0] for rows in self._images]]

    def _whole_pairs(self, together: int) -> tuple[IntArray, int]:
        """([pair, 2] the pairs of super-labels that fill a batch, number of pairs that do not); sets if S is not 2."""
        count = len(self._members)
        if math.comb(count, together) > MOST_SETS:
            raise ValueError(
                f"{count} super-labels give {math.comb(count, together):,} sets of {together}, and each set needs "
                "batches: lower super_labels_per_batch"
            )
        sets = np.array(list(itertools.combinations(range(count), together)), dtype=np.int64).reshape(-1, together)
        sizes = np.array([len(classes) for classes in self._members], dtype=np.int64)[sets]
        # each super-label must give a class, even if one of them alone has enough classes
        usable = (sizes.sum(1) >= self.classes_per_batch) & sizes.all(1)
        if not usable.any():
            most = int(sizes.sum(1).max(initial=0))
            raise ValueError(
                f"no {'two' if together == 2 else together} of {count} super-labels have {self.classes_per_batch} "
                f"classes with at least {self.samples_per_class} rows each; the best pair has {most}. "
                "Lower classes_per_batch or samples_per_class, or draw from all super-labels at once: "
                "batches_per_pair=null, in Python MPerClassBatchSampler."
            )
        return sets[usable], int((~usable).sum())

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] classes, those of the first super-label of the batch's pair before those of the second."""
        pair = self._order(rng)
        by_pair = np.argsort(pair, kind="stable")
        visit = np.empty_like(pair)  # number of earlier batches of the same pair
        visit[by_pair] = np.arange(len(pair)) - np.searchsorted(pair[by_pair], pair[by_pair])
        taken = self._shares(pair, visit)  # [batch, super-label of its pair]
        starts = np.cumsum(taken, axis=1) - taken
        chosen = np.empty((len(pair), self.classes_per_batch), dtype=np.int64)
        column = np.arange(self.classes_per_batch)
        for number, classes in enumerate(self._members):
            here = self._pairs[pair] == number
            mine, left = (taken * here).sum(1), (starts * here).sum(1)
            place = (column >= left[:, None]) & (column < (left + mine)[:, None])  # indexing goes in time order
            chosen[place] = classes[_deal(len(classes), mine[mine > 0], rng)]
        return chosen

    def _order(self, rng: np.random.RandomState) -> IntArray:
        """[batch] the pair of each batch."""
        pairs, each = len(self._pairs), self.batches_per_pair
        rounds = -(-self.batches_per_epoch // (pairs * each))
        if self.pair_order == "shuffled":
            one_round = np.repeat(np.arange(pairs), each)
            order = [rng.permutation(one_round) for _ in range(rounds)]
        else:
            order = [np.repeat(rng.permutation(pairs), each) for _ in range(rounds)]
        return np.concatenate(order)[: self.batches_per_epoch]

    def _shares(self, pair: IntArray, visit: IntArray) -> IntArray:
        """[batch, S] number of classes that each super-label of a batch gives: equal, as far as it has them."""
        classes, together = self.classes_per_batch, self.super_labels_per_batch
        place = np.arange(together)
        larger = (place - visit[:, None] - 1) % together < classes % together  # super-labels take turns
        room = np.array([len(members) for members in self._members])[self._pairs[pair]]
        taken = np.minimum(classes // together + larger, room)
        while (lacking := classes - taken.sum(1)).any():
            spare = taken < room
            taken += spare & (np.cumsum(spare, axis=1) <= lacking[:, None])
        shares: IntArray = taken
        return shares

    def _identity(self) -> dict[str, Any]:
        return {
            **super()._identity(),
            "batches_per_pair": self.batches_per_pair,
            "num_pairs": len(self._pairs),
            "pair_order": self.pair_order,
            "super_labels_per_batch": self.super_labels_per_batch,
        }


class ShuffledBatches(EpochBatches):
    """Shuffled batches of equal size, a function of (seed, epoch). Can resume in the middle of an epoch.

    Images that do not fill the last batch are left out of this epoch. With n processes, each has every n-th image of
    the same batch.

    Args:
        images: number of images.
        batch_size: over all processes.
        seed: 0 .. 2**32 - 1.

    >>> batches = ShuffledBatches(images=5, batch_size=2)
    >>> len(batches), [len(batch) for batch in batches]
    (2, [2, 2])
    """

    def __init__(self, images: int, batch_size: int, seed: int = 0) -> None:
        super().__init__()
        self.images, size = _integer("images", images, 0), whole_number(batch_size)
        if size is None or not 1 <= size <= self.images:
            raise ValueError(f"batch_size must be 1 .. {images}, the number of images; got {batch_size!r}")
        self.batch_size, self.seed = size, _seed(seed)
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
            raise ValueError(
                f"{processes} processes cannot share a batch of {self.batch_size} images: raise batch_size"
            )
        return rank, processes


def class_batches(
    labels: Labels,
    super_labels: Labels | None = None,
    *,
    seed: int = 0,
    batches_per_pair: int | None = None,
    pair_order: PairOrder = "shuffled",
    super_labels_per_batch: int = 2,
    **settings: Any,
) -> ClassBatches:
    """The sampler for the settings `sampler.*` of a run.

    Args:
        labels: [image] classes.
        super_labels: [image]; needed with batches_per_pair.
        seed: of the batches.
        batches_per_pair: None: `MPerClassBatchSampler`; a number: `HierarchicalBatchSampler`.
        pair_order: of `HierarchicalBatchSampler`.
        super_labels_per_batch: of `HierarchicalBatchSampler`.
        settings: of both samplers: classes_per_batch, samples_per_class, batches_per_epoch, short_classes.

    Raises:
        ValueError: batches_per_pair without super-labels; or an error of the sampler, which names its arguments as
            settings.

    >>> class_batches([0, 0, 1, 1], classes_per_batch=2, samples_per_class=2).batch_size
    4
    >>> class_batches([0, 0, 1, 1], classes_per_batch=0)
    Traceback (most recent call last):
        ...
    ValueError: sampler.classes_per_batch must be >= 1; got 0
    """
    with named_as_settings(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)  # the summary of a run prints these notes
        if batches_per_pair is None:
            return MPerClassBatchSampler(labels, seed=seed, **settings)
        if super_labels is None:
            raise ValueError("batches_per_pair needs super-labels, but this data has none")
        return HierarchicalBatchSampler(
            labels,
            super_labels,
            batches_per_pair=batches_per_pair,
            pair_order=pair_order,
            super_labels_per_batch=super_labels_per_batch,
            seed=seed,
            **settings,
        )


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
        short_classes: one of `SHORT_CLASS_RULES`.
        batches_per_pair: None: no pairs.
        pair_order: one of `PAIR_ORDERS`.
        super_labels_per_batch: S.

    Raises:
        TypeError, ValueError: naming the setting.
    """
    _integer("classes_per_batch", classes_per_batch, 1)
    if samples_per_class != "all":
        _integer("samples_per_class", samples_per_class, 1, ', or "all"')
    _integer("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch, 1)
    for name, value, known in (
        ("short_classes", short_classes, SHORT_CLASS_RULES),
        ("pair_order", pair_order, PAIR_ORDERS),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    _integer("super_labels_per_batch", super_labels_per_batch, 1)
    if batches_per_pair is not None:
        _integer("batches_per_pair", batches_per_pair, 1)
        if classes_per_batch < super_labels_per_batch:
            raise ValueError(
                f"classes_per_batch must be >= {super_labels_per_batch}, one class of each super-label; got "
                f"{classes_per_batch}"
            )


def _rows_by_class(labels: npt.NDArray[Any]) -> list[IntArray]:
    """[class] its rows; classes are sorted by label."""
    sizes = np.unique(labels, return_counts=True)[1]
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1]) if len(sizes) else []


def _rows_brought(sizes: IntArray, samples_per_class: SamplesPerClass, short_classes: ShortClasses) -> IntArray:
    """[class] number of rows that it gives to a batch; `sizes` is the number that it has."""
    if samples_per_class == "all":
        return sizes
    asked = np.full(len(sizes), samples_per_class)
    return np.minimum(asked, sizes) if short_classes == "fewer" else asked


def hands(cards: int, count: int, size: int, rng: np.random.RandomState) -> IntArray:
    """[hand, size] of cards 0 .. cards - 1. If size > cards, each card is in a hand about equally often."""
    decks, rest = divmod(size, cards) if size > cards else (0, size)
    parts = [np.tile(np.arange(cards), (count, decks))]
    if rest:
        parts.append(_deal(cards, np.full(count, rest), rng).reshape(count, rest))
    return np.concatenate(parts, axis=1)


def _deal(cards: int, sizes: IntArray, rng: np.random.RandomState) -> IntArray:
    """Hands of cards 0 .. cards - 1, concatenated. No hand holds a card twice, and all cards come about equally often.

    Whole decks are dealt one after the other. If the old deck does not fill a hand, the hand takes the first cards of
    the new deck that it does not hold yet. The cards that it skips stay in the new deck.

    Args:
        cards: size of the deck.
        sizes: [hand] size of each hand, 1 .. cards.
        rng: shuffles the decks.
    """
    ends = np.cumsum(sizes)
    needed = int(ends[-1]) if len(ends) else 0
    dealt = np.empty(needed + cards, dtype=np.int64)
    have = 0
    while have < needed:
        deck = rng.permutation(cards)
        hand = int(np.searchsorted(ends, have, side="right"))  # the first hand that is not full
        held = have - int(ends[hand] - sizes[hand])
        if held:
            in_hand = np.isin(deck, dealt[have - held : have])
            first = np.flatnonzero(~in_hand)[: int(sizes[hand]) - held]
            deck = np.concatenate([deck[first], np.delete(deck, first)])
        dealt[have : have + cards] = deck
        have += cards
    return dealt[:needed]


def _labels(name: str, labels: Labels) -> npt.NDArray[Any]:
    """[image] int64, or strings."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind in "OU":  # a column of a data frame holds objects, and numpy makes strings of a mixed list
        values = np.asarray(labels, dtype=object)
        mixed = len({isinstance(value, str) for value in values.flat}) > 1
        array = values if mixed else np.asarray(values.tolist())
    if array.size == 0:  # an empty list becomes an array of floats; a later check has a clearer message for it
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuU":
        raise TypeError(f"{name} must be integers or strings, one class per image; got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be [image], one class per image; got shape {tuple(array.shape)}. "
            "For multi-hot and hierarchical labels, give the column by which the batches are balanced."
        )
    return array


def _integer(name: str, value: object, low: int, more: str = "") -> int:
    number = whole_number(value)
    if number is None:
        raise TypeError(f"{name} must be an integer{more}; got {value!r}")
    if number < low:
        raise ValueError(f"{name} must be >= {low}{more}; got {number}")
    return number


def _seed(value: object) -> int:
    seed = _integer("seed", value, 0)
    if seed >= 2**32:
        raise ValueError(f"seed must be < 2**32; got {seed}")
    return seed


__all__ = [
    "MPerClassBatchSampler",
    "HierarchicalBatchSampler",
    "ShuffledBatches",
    "ClassBatches",
    "EpochBatches",
    "EpochList",
    "SmallClassWarning",
]
