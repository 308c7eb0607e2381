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
import warnings
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..common.checks import integer, unmasked
from ..common.defaults import CLASSES_PER_BATCH, SAMPLES_PER_CLASS, SHORT_CLASSES
from .dealing import IntArray, deal, hands
from .epochs import LAST_SEED, SEED, EpochBatches, EpochList, ShuffledBatches
from .sampler_settings import PairOrder, SamplesPerClass, ShortClasses, check_settings, named_as_settings

Labels = Tensor | npt.NDArray[Any] | Sequence[int] | Sequence[str]
MOST_SETS = 1_000_000  # largest allowed number of combinations of super-labels


class SmallClassWarning(UserWarning):
    """There are too few classes, or some have too few images: batches are not as requested."""


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
        self.seed = integer(seed, SEED, low=0, high=LAST_SEED)
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
            needed = min(classes_per_batch, 2)
            sizes = np.sort(np.bincount(self._labels))[-needed:]
            largest = int(sizes[0]) if len(sizes) == needed else 0  # with so many rows of a class there is a batch
            lower = (
                f", lower samples_per_class to {largest}, or take short_classes=fewer" if 1 < largest < enough else ""
            )
            raise ValueError(
                f"a batch needs {needed} classes{such}; of {usable + left_out} classes ({rows} rows) {usable} can be "
                f"used. Add rows{' to these' if left_out else ' of other'} classes"
                + (lower if 1 < largest < enough else "")
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
    long-tailed data set (papers/results/short-classes.md) and is the default.

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
        return deal(len(self._images), sizes, rng).reshape(-1, self.classes_per_batch)


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
            raise ValueError(f"super_labels need one entry per row ({len(self._labels)}); got {len(of_image)}")
        for rows in self._images:
            several = np.unique(of_image[rows])
            if len(several) > 1:
                raise ValueError(
                    f"a class has one super-label, but class {self._labels[rows[0]]} has rows of the super-labels "
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
            chosen[place] = classes[deal(len(classes), mine[mine > 0], rng)]
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
    ValueError: sampler.classes_per_batch counts classes and must be an integer >= 1; got 0
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


def _labels(name: str, labels: Labels) -> npt.NDArray[Any]:
    """[image] int64, or strings."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(unmasked(labels, name))
    if array.dtype.kind in "OU":  # a column of a data frame holds objects, and numpy makes strings of a mixed list
        values = np.asarray(labels, dtype=object)
        mixed = len({isinstance(value, str) for value in values.flat}) > 1
        array = values if mixed else np.asarray(values.tolist())
    if array.size == 0:  # an empty list becomes an array of floats; a later check has a clearer message for it
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuU":
        raise TypeError(f"{name} must be integers or strings, one class per row; got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be [row], one class per row; got shape {tuple(array.shape)}. "
            "For multi-hot and hierarchical labels, give the column by which the batches are balanced."
        )
    return array


__all__ = [
    "MPerClassBatchSampler",
    "HierarchicalBatchSampler",
    "ShuffledBatches",
    "ClassBatches",
    "EpochBatches",
    "EpochList",
    "SmallClassWarning",
]
