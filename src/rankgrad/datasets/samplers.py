"""Batches for losses that rank: every batch holds P classes with K images each.

A rank loss needs positives and negatives inside the batch; drawing images at random from thousands of classes gives
almost no positives. The batches of an epoch are a pure function of (labels, seed, epoch), so that a run that was
stopped in the middle of an epoch goes on with exactly the batches that were still to come.

An iteration that nobody numbers (`set_epoch`) belongs to the epoch after the last one, so that no loop trains on the
same batches for ever.

With several processes each takes its part of the same batch: `batch[rank::world_size]`. A loss that gathers the parts
sees what it would see on one process.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import BatchSampler

from ..defaults import CLASSES_PER_BATCH, SAMPLES_PER_CLASS, SHORT_CLASSES
from ..distributed import world

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]
Labels = Tensor | npt.NDArray[Any] | Sequence[int] | Sequence[str]
SamplesPerClass = int | Literal["all"]
ShortClasses = Literal["repeat", "fewer", "drop"]
PairOrder = Literal["shuffled", "consecutive"]

WHAT_BECOMES = ("repeat", "fewer", "drop")  # of short classes
PAIR_ORDERS = ("shuffled", "consecutive")
MOST_SETS = 1_000_000  # combinations of super-labels that are listed


class SmallClassWarning(UserWarning):
    """There are fewer classes than a batch was to have, or some have too few images: batches are smaller than asked."""


class EpochList(list[T]):
    """A list that remembers which epoch it belongs to.

    The epoch travels with the batch, from the sampler through the DataLoader's worker to the augmentation: a worker
    that outlives the epoch (`persistent_workers=True`) never sees an attribute that was set in the main process.

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
    """Base of all samplers: epochs that advance by themselves, parts for processes, going on in the middle.

    A sampler says what the batches of an epoch are (`batches`); the rest is here. It is a BatchSampler by type alone:
    trainers that look at the type (pytorch-metric-learning's do) would take another Sampler's batches for indices.

    An iteration begins when its first batch is asked for, and not with `iter()`: a DataLoader with workers makes two
    iterators and reads one. It belongs to the epoch that `set_epoch` or a state named since the last one began; if
    nobody named one, to the next epoch.

    Attributes:
        batch_size: images of the largest batch, on all processes together.
        epoch: of the iteration that began last, or that comes next if it has been named.
        start_batch: batches to leave out at the start of the next iteration, and of that one only.
    """

    def __init__(self, rank: int | None = None, world_size: int | None = None) -> None:
        # not BatchSampler's constructor: there is no sampler of single images
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together; got rank={rank}, world_size={world_size}. Without both, they are "
                "torch.distributed's"
            )
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.start_batch = 0
        self._named = True  # whether `epoch` is that of the next iteration

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of a whole epoch, all processes together."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Batches of a whole epoch, also when the next iteration starts in its middle; the same on every process."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's part of the batches of an epoch from `start_batch` on, then forget `start_batch`."""
        if not 0 <= self.start_batch <= len(self):
            raise ValueError(f"start_batch must be 0 .. {len(self)}, the batches of an epoch; got {self.start_batch}")
        rank, world_size = self._part()
        epoch, start = self.epoch if self._named else self.epoch + 1, self.start_batch
        self.epoch, self.start_batch, self._named = epoch, 0, False
        for batch in self.batches(epoch)[start:]:
            yield EpochList(batch[rank::world_size], epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; `start_batch` stays as it is."""
        if epoch < 0:
            raise ValueError(f"epoch must be >= 0; got {epoch}")
        self.epoch, self._named = epoch, True

    def state_dict(self, batches_done: int | None = None) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on, all plain values; the same on every process, however many.

        Args:
            batches_done: batches of this epoch that were trained on. The caller knows this number; the sampler does
                not, since a DataLoader asks for batches ahead of time. None: go on with the next iteration, as it
                would be now.
        """
        if batches_done is not None:
            return {**self._identity(), "epoch": self.epoch, "start_batch": batches_done}
        epoch = self.epoch if self._named else self.epoch + 1
        return {**self._identity(), "epoch": epoch, "start_batch": self.start_batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken: the next iteration starts at its epoch and batch.

        Raises:
            ValueError: if the state is of other data or other settings: the batches to come would be different ones.
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
        """Return what the batches depend on, beside the labels and the epoch."""
        raise NotImplementedError

    def _part(self) -> tuple[int, int]:
        """(rank, world_size): as given, else those of torch.distributed, else (0, 1)."""
        rank, world_size = self.rank, self.world_size
        if rank is None or world_size is None:
            return world()
        _need_integer("world_size", world_size, 1)
        _need_integer("rank", rank, 0)
        if rank >= world_size:
            raise ValueError(f"rank must be 0 .. world_size - 1 = {world_size - 1}; got {rank}")
        return rank, world_size


class ClassBatches(EpochBatches):
    """Batches of P classes with K images each: images dealt to visits of classes, classes that have too few.

    A sampler says which classes its batches hold (`choose`); the rest is here.

    Args:
        labels: [image] integers or strings.
        classes_per_batch: P; all of them, if there are fewer.
        samples_per_class: K, or "all".
        batches_per_epoch: None is one pass in number, see `MPerClassBatchSampler`.
        seed: 0 .. 2**32 - 1.
        rank: of this process; with world_size, or None.
        world_size: processes that share each batch; None asks torch.distributed when an iteration starts.
        short_classes: what becomes of classes with fewer than K images.

    Attributes:
        notes: where the batches are not what was asked for, a sentence each. `SmallClassWarning` says them once.
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
        _need_integer("seed", seed, 0)
        if seed >= 2**32:
            raise ValueError(f"seed must be < 2**32; got {seed}")
        self.seed = seed
        self.samples_per_class = samples_per_class
        self.short_classes = short_classes
        self._labels = _labels("labels", labels)
        every = _rows_by_class(self._labels)
        enough = 1 if samples_per_class == "all" else samples_per_class
        self._images = [rows for rows in every if len(rows) >= enough or short_classes != "drop"]
        self.short = sum(len(rows) < enough for rows in every)
        self.left_out = len(every) - len(self._images)
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
            # images / (P x the mean of what a class brings), in whole numbers
            mean = self.classes_per_batch * int(self._brought.sum())
            batches_per_epoch = max(1, int(sizes.sum()) * len(sizes) // mean)
        self.batches_per_epoch = batches_per_epoch
        if rank is not None:
            self._part()  # a mistake is named now, not when training starts

    def _shortages(self, classes_per_batch: int, enough: int) -> Iterator[str]:
        """Where batches are not what was asked for, a sentence each.

        Args:
            classes_per_batch: as asked for.
            enough: rows of a class that is not short.

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
        """Say whether all processes get equally many images of each batch; if not, sizes differ."""
        return self._smallest == self.batch_size and self.batch_size % self._part()[1] == 0

    @property
    def positives(self) -> int | None:
        """Other images of its class that every image finds in its batch; None where they differ, or there are none.

        It is what `RetrievalLoss(positives=...)` may be promised. With `ragged` there is no such number.
        """
        return None if self.ragged else int(self._brought[0]) - 1 or None

    def __len__(self) -> int:
        """Batches of a whole epoch, also when the next iteration starts in its middle; the same on every process."""
        return self.batches_per_epoch

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][image] rows of a whole epoch, all processes together; the images of a class stand together."""
        # RandomState and not default_rng: numpy promises never to change its stream
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
        """(rank, world_size); every process has an image of every batch."""
        rank, world_size = super()._part()
        if world_size > self._smallest:
            raise ValueError(
                f"{world_size} processes cannot share a batch of {self.classes_per_batch} x {self.samples_per_class} = "
                f"{self._smallest} rows: it is the batch of all processes together. Raise classes_per_batch."
                if self._smallest == self.batch_size
                else f"{world_size} processes cannot share batches of {self._smallest} to {self.batch_size} rows: "
                "they are those of all processes together. Raise classes_per_batch."
            )
        return rank, world_size


class MPerClassBatchSampler(ClassBatches):
    """Batches of `classes_per_batch` distinct classes, or all there are, with `samples_per_class` images each.

    Classes are dealt like cards: shuffle all usable classes, deal them out, shuffle again. So at every moment of an
    epoch the visits to any two classes differ by at most one. Every class counts the same, whatever its size: what is
    learned has to serve classes never seen, and a few large classes would otherwise be in every batch. The images of a
    class are dealt in the same way over its visits within the epoch: none comes twice before all came once. Where a
    hand lies across two shuffles, its second part avoids what its first part holds.

    A class with fewer than K images is *short*. "repeat": it brings all its images, some of them more often, so that
    there are K; none comes two times more than another. Give the loss the numbers of the images (`ids=`): then no image
    is its own match. "fewer": it brings what it has, and the batch is smaller. "drop": it never appears, and batches
    are all of one size. A class of one image has nothing to match in any case: with "repeat" and "fewer" it only gives
    negatives. On a long tail "fewer" did best (docs/results/short-classes.md), and is the default.

    Batches depend on (labels, seed, epoch) only, and numpy keeps the stream of the generator used here fixed: the same
    on any machine.

    Every process yields every `world_size`-th image of the same batch, beginning with its `rank`: nearly all classes
    are in each part, so that batch norm which is not synchronised sees a fair sample, and a run goes on with any other
    number of processes.

    Args:
        labels: [image] the class of each image: integers of any values, or strings; a tensor, an array or a list.
        classes_per_batch: P, >= 1. Losses need at least 2. All classes, if there are fewer (`SmallClassWarning`).
        samples_per_class: K, >= 1. Losses need at least 2. "all": every class brings all its images.
        batches_per_epoch: >= 1; None is one pass in number, floor(usable images / mean batch size), at least 1.
        seed: 0 .. 2**32 - 1.
        rank: number of this process, 0 .. world_size - 1; None: torch.distributed's if it is initialised when an
            iteration starts, else 0.
        world_size: number of processes, at most the images of a batch; None likewise, else 1.
        short_classes: "repeat", "fewer" or "drop", see above.

    Attributes:
        batch_size: images of the largest batch, on all processes together; P K unless samples_per_class is "all".
        even: whether all processes get equally many images of each batch.
        ragged: whether an image finds other numbers of its class's images in its batch than another does.
        positives: K - 1, or None where it is ragged: what a loss may be promised.
        short: number of classes with fewer than K images.
        left_out: number of classes that never appear (`SmallClassWarning` says so once).
        epoch: see `EpochBatches`, as the next.
        start_batch: batches to leave out at the start of the next iteration, and of that one only.

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
        """[batch, P] classes, dealt from one pack."""
        sizes = np.full(self.batches_per_epoch, self.classes_per_batch)
        return _deal(len(self._images), sizes, rng).reshape(-1, self.classes_per_batch)


class HierarchicalBatchSampler(ClassBatches):
    """Batches of P classes x K images from two super-labels each: classes of one kind are told apart, not kinds.

    Every unordered pair of super-labels gets `batches_per_pair` batches per epoch. Half of the classes of a batch come
    from each super-label; of an odd number, they take turns in giving the larger half. Within a super-label classes are
    dealt like cards over its batches, and images over the visits of their class, as `MPerClassBatchSampler` does; P, K,
    short classes, distinct classes, seeds, parts of processes and going on later are the same, too.

    Source: Cakir et al., FastAP, CVPR 2019; the pairs of RaMBO (Rolínek et al., CVPR 2020, appendix A) and ROADMAP
    (Ramzi et al., NeurIPS 2021): 10 batches per pair and K = 4 on Stanford Online Products, 4 and K = 8 on In-shop, 128
    images each, the batches of a pair one after the other (pair_order="consecutive"). What the papers leave open is
    ours: a super-label with fewer classes than its half gives all it has, and the others give the rest, so that every
    batch is whole (published code makes it smaller); a pair with fewer than P classes in all is left out; a repeated
    image is never its own match (in published code it is).

    Args:
        labels: [image] the class of each image, as for `MPerClassBatchSampler`.
        super_labels: [image] the super-label of each image, likewise; one for all images of a class.
        classes_per_batch: P, >= super_labels_per_batch.
        samples_per_class: K, >= 1, or "all". Losses need at least 2.
        batches_per_pair: batches of each pair of super-labels in a round, >= 1.
        batches_per_epoch: >= 1; None is one round: the pairs times batches_per_pair. Another number cuts the round
            short, or goes on with another one.
        seed: 0 .. 2**32 - 1.
        rank: see `MPerClassBatchSampler`.
        world_size: see `MPerClassBatchSampler`.
        short_classes: see `MPerClassBatchSampler`.
        pair_order: "shuffled": the batches of all pairs are mixed. "consecutive": pairs come in random order, each with
            all its batches, so that a memory of three batches holds hard negatives of the same two kinds.
        super_labels_per_batch: 2 for pairs; another number S, 1 .. all, takes every set of S super-labels in the place
            of every pair, and 1 / S of the classes from each.

    Attributes:
        batch_size: images of the largest batch, on all processes together; `even`, `ragged`, `positives`, `short` and
            `left_out` are those of `MPerClassBatchSampler`, too.
        pairs: [pair, 2] super-labels of each pair that has batches ([set, S]).
        pairs_left_out: pairs with fewer than P usable classes (`SmallClassWarning` says so once).
        epoch: see `EpochBatches`, as the next.
        start_batch: batches to leave out at the start of the next iteration, and of that one only.

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
                f"than {self.classes_per_batch} classes with {samples_per_class} rows, or all of them on one side, and "
                "get no batches",
                stacklevel=3,
            )
        self.batches_per_pair, self.pair_order = batches_per_pair, pair_order
        self.super_labels_per_batch = super_labels_per_batch
        if batches_per_epoch is None:
            self.batches_per_epoch = len(self._pairs) * batches_per_pair

    def _super_label_of_each_class(self, super_labels: Labels) -> tuple[npt.NDArray[Any], IntArray]:
        """Names of the super-labels, and [usable class] the place of its own among them."""
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
        """[pair, 2] the pairs of super-labels that fill a batch (sets, of another number), and how many do not."""
        count = len(self._members)
        if math.comb(count, together) > MOST_SETS:
            raise ValueError(
                f"{count} super-labels make {math.comb(count, together):,} sets of {together}, and each has batches: "
                "lower super_labels_per_batch"
            )
        every = list(itertools.combinations(range(count), together))
        room = np.array([len(classes) for classes in self._members])
        held = [int(room[list(one)].sum()) for one in every]
        # all its super-labels, also where one of them alone has classes enough
        whole = [
            one
            for one, classes in zip(every, held, strict=True)
            if classes >= self.classes_per_batch and room[list(one)].all()
        ]
        if not whole:
            raise ValueError(
                f"no {'two' if together == 2 else together} of {count} super-labels have {self.classes_per_batch} "
                f"classes with at least {self.samples_per_class} rows each; the best pair has {max(held, default=0)}. "
                "Lower classes_per_batch or samples_per_class, or draw from all super-labels at once: "
                "batches_per_pair=null, in Python MPerClassBatchSampler."
            )
        return np.array(whole, dtype=np.int64), len(every) - len(whole)

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] classes, those of the first super-label of the batch's pair before those of the second."""
        pair = self._order(rng)
        by_pair = np.argsort(pair, kind="stable")
        visit = np.empty_like(pair)  # how often the pair came before
        visit[by_pair] = np.arange(len(pair)) - np.searchsorted(pair[by_pair], pair[by_pair])
        taken = self._shares(pair, visit)  # [batch, super-label of its pair]
        starts = np.cumsum(taken, axis=1) - taken
        chosen = np.empty((len(pair), self.classes_per_batch), dtype=np.int64)
        column = np.arange(self.classes_per_batch)
        for number, classes in enumerate(self._members):
            here = self._pairs[pair] == number
            mine, left = (taken * here).sum(1), (starts * here).sum(1)
            place = (column >= left[:, None]) & (column < (left + mine)[:, None])  # row by row: in time order
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
        """[batch, S] classes that each super-label of a batch gives: equally many, as far as it has them."""
        classes, together = self.classes_per_batch, self.super_labels_per_batch
        place = np.arange(together)
        larger = (place - visit[:, None] - 1) % together < classes % together  # they take turns
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
    """Batches of an epoch, all of the same size, in an order that (seed, epoch) fix; can go on in the middle.

    Images that are left over after the last whole batch have their turn in another epoch. With several processes each
    has every n-th image of the same batch.

    Args:
        images: their number.
        batch_size: of all processes together.
        seed: 0 .. 2**32 - 1.

    >>> batches = ShuffledBatches(images=5, batch_size=2)
    >>> len(batches), [len(batch) for batch in batches]
    (2, [2, 2])
    """

    def __init__(self, images: int, batch_size: int, seed: int = 0) -> None:
        super().__init__()
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= images:
            raise ValueError(f"batch_size must be 1 .. {images}, the number of images; got {batch_size!r}")
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self._part()  # a mistake is named now, not when training starts

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.images // self.batch_size

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][image] rows of a whole epoch, all processes together."""
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
    """The sampler that the settings `sampler.*` of a run describe.

    Args:
        labels: [image] classes.
        super_labels: [image], for batches_per_pair.
        seed: of the batches.
        batches_per_pair: None: `MPerClassBatchSampler`; a number: `HierarchicalBatchSampler`.
        pair_order: of the latter.
        super_labels_per_batch: of the latter.
        settings: of both: classes_per_batch, samples_per_class, batches_per_epoch, short_classes.

    Raises:
        ValueError: batches_per_pair without super-labels, and as the samplers, whose arguments are named as settings.

    >>> class_batches([0, 0, 1, 1], classes_per_batch=2, samples_per_class=2).batch_size
    4
    >>> class_batches([0, 0, 1, 1], classes_per_batch=0)
    Traceback (most recent call last):
        ...
    ValueError: sampler.classes_per_batch must be >= 1; got 0
    """
    with named_as_settings(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)  # the summary of a run has the notes
        if batches_per_pair is None:
            return MPerClassBatchSampler(labels, seed=seed, **settings)
        if super_labels is None:
            raise ValueError("batches_per_pair draws from pairs of super-labels, but this data has none")
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
    """A message of a sampler for whoever knows its arguments as settings of a run.

    >>> as_settings("Raise classes_per_batch.")
    'Raise sampler.classes_per_batch.'
    """
    return _NAMES.sub(r"sampler.\1", message)


@contextmanager
def named_as_settings() -> Iterator[None]:
    """Errors of a sampler name its arguments as settings of a run."""
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
    """Raise if settings of a sampler are out of range, whatever the labels; a run asks before it reads any file.

    Args:
        classes_per_batch: see `HierarchicalBatchSampler`, as all others.
        samples_per_class: K or "all".
        batches_per_epoch: or None.
        short_classes: of `WHAT_BECOMES`.
        batches_per_pair: or None, for no pairs.
        pair_order: of `PAIR_ORDERS`.
        super_labels_per_batch: S.

    Raises:
        TypeError, ValueError: naming the setting.
    """
    _need_integer("classes_per_batch", classes_per_batch, 1)
    if samples_per_class != "all":
        _need_integer("samples_per_class", samples_per_class, 1, ', or "all"')
    _need_integer("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch, 1)
    for name, value, known in (
        ("short_classes", short_classes, WHAT_BECOMES),
        ("pair_order", pair_order, PAIR_ORDERS),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    _need_integer("super_labels_per_batch", super_labels_per_batch, 1)
    if batches_per_pair is not None:
        _need_integer("batches_per_pair", batches_per_pair, 1)
        if classes_per_batch < super_labels_per_batch:
            raise ValueError(
                f"classes_per_batch must be >= {super_labels_per_batch}, one class of each super-label; got "
                f"{classes_per_batch}"
            )


def _rows_by_class(labels: npt.NDArray[Any]) -> list[IntArray]:
    """[class] its rows; the classes in the order of their labels."""
    sizes = np.unique(labels, return_counts=True)[1]
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1]) if len(sizes) else []


def _rows_brought(sizes: IntArray, samples_per_class: SamplesPerClass, short_classes: ShortClasses) -> IntArray:
    """[class] how many rows it brings to a batch, of so many that it has."""
    if samples_per_class == "all":
        return sizes
    asked = np.full(len(sizes), samples_per_class)
    return np.minimum(asked, sizes) if short_classes == "fewer" else asked


def hands(cards: int, count: int, size: int, rng: np.random.RandomState) -> IntArray:
    """[hand, size] of cards 0 .. cards - 1; of fewer cards than a hand takes, each is in it about equally often."""
    decks, rest = divmod(size, cards) if size > cards else (0, size)
    parts = [np.tile(np.arange(cards), (count, decks))]
    if rest:
        parts.append(_deal(cards, np.full(count, rest), rng).reshape(count, rest))
    return np.concatenate(parts, axis=1)


def _deal(cards: int, sizes: IntArray, rng: np.random.RandomState) -> IntArray:
    """Hands of cards 0 .. cards - 1, one after the other: no card twice in a hand, none much more often than another.

    Whole decks are dealt one after the other. A hand that the old deck cannot fill is filled from the new deck with the
    first cards that it does not hold yet; those it holds stay in the new deck.

    Args:
        cards: in the deck.
        sizes: [hand] cards of each hand, 1 .. cards.
        rng: shuffles.
    """
    ends = np.cumsum(sizes)
    needed = int(ends[-1]) if len(ends) else 0
    dealt = np.empty(needed + cards, dtype=np.int64)
    have = 0
    while have < needed:
        deck = rng.permutation(cards)
        hand = int(np.searchsorted(ends, have, side="right"))  # the first that is not full
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
    if array.size == 0:  # an empty list becomes an array of floats; it gets a clearer message later
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuU":
        raise TypeError(f"{name} must be integers or strings, one class per image; got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be [image], one class per image; got shape {tuple(array.shape)}. "
            "Multi-hot and hierarchical labels: give the column that the batches are to be balanced by."
        )
    return array


def _need_integer(name: str, value: object, low: int, more: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer{more}; got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be >= {low}{more}; got {value}")
