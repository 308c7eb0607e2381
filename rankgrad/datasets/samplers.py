"""Batches for losses that rank: every batch holds P classes with K images each.

A rank loss needs positives and negatives inside the batch; drawing images at random from thousands of classes gives
almost no positives. The batches of an epoch are a pure function of (labels, seed, epoch), so that a run that was
stopped in the middle of an epoch goes on with exactly the batches that were still to come.

With several processes each takes its part of the same batch: `batch[rank::world_size]`. A loss that gathers the parts
sees what it would see on one process.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import BatchSampler

from ..distributed import world

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]


class SmallClassWarning(UserWarning):
    """Some classes have fewer images than a batch needs of each class; they are left out of training."""


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


class ClassBatchSampler(BatchSampler):
    """What the samplers below share: usable classes, images dealt to classes, parts for processes, going on later.

    A sampler says which classes its batches hold (`choose`); the rest is here. It is a BatchSampler by type alone:
    trainers that look at the type (pytorch-metric-learning's do) would take another Sampler's batches for indices.

    Args:
        labels: [image] integers.
        classes_per_batch: P.
        samples_per_class: K.
        batches_per_epoch: None is one pass in number, floor(usable images / (P K)), at least 1.
        seed: 0 .. 2**32 - 1.
        rank: of this process; with world_size, or None.
        world_size: processes that share each batch; None asks torch.distributed when an iteration starts.
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        classes_per_batch: int,
        samples_per_class: int,
        batches_per_epoch: int | None,
        seed: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        # not BatchSampler's constructor: there is no sampler of single images
        _need_integer("classes_per_batch", classes_per_batch, 1)
        _need_integer("samples_per_class", samples_per_class, 1)
        _need_integer("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch, 1)
        _need_integer("seed", seed, 0)
        if seed >= 2**32:
            raise ValueError(f"seed must be < 2**32; got {seed}")
        array = _labels("labels", labels)
        order = np.argsort(array, kind="stable")
        sizes = np.unique(array, return_counts=True)[1]
        images = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
        usable = [rows for rows in images if len(rows) >= samples_per_class]
        self.left_out = len(images) - len(usable)
        if len(usable) < classes_per_batch:
            raise ValueError(
                f"a batch needs {classes_per_batch} classes with at least {samples_per_class} images each; of "
                f"{len(images)} classes ({len(array)} images) {len(usable)} have that many. "
                "Lower classes_per_batch or samples_per_class, or add images."
            )
        if self.left_out:
            lost = len(array) - sum(map(len, usable))
            warnings.warn(
                f"{self.left_out} of {len(images)} classes ({lost} of {len(array)} images) have fewer than "
                f"samples_per_class={samples_per_class} images and are left out of the batches",
                SmallClassWarning,
                stacklevel=3,
            )
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.batch_size = classes_per_batch * samples_per_class
        self.seed = seed
        self.epoch = 0
        self.start_batch = 0
        self._images = usable
        self._num_images = len(array)
        if batches_per_epoch is None:
            batches_per_epoch = max(1, sum(map(len, usable)) // self.batch_size)
        self.batches_per_epoch = batches_per_epoch
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together; got rank={rank}, world_size={world_size}. Without both, they are "
                "torch.distributed's"
            )
        self.rank, self.world_size = rank, world_size
        if rank is not None:
            self._part()  # a mistake is named now, not when training starts

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] numbers of the usable classes in each batch of an epoch, distinct within a batch."""
        raise NotImplementedError

    @property
    def even(self) -> bool:
        """Whether all processes get equally many images of each batch; if not, sizes differ by one."""
        return self.batch_size % self._part()[1] == 0

    def __len__(self) -> int:
        """Batches of a whole epoch, also when the next iteration starts in its middle; the same on every process."""
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's part of the batches of `epoch` from `start_batch` on, then forget `start_batch`."""
        start, epoch = self.start_batch, self.epoch
        if not 0 <= start <= len(self):
            raise ValueError(f"start_batch must be 0 .. {len(self)}, the batches of an epoch; got {start}")
        rank, world_size = self._part()
        self.start_batch = 0
        return (EpochList(batch, epoch) for batch in self.batches(epoch)[start:, rank::world_size].tolist())

    def batches(self, epoch: int) -> IntArray:
        """[batch, P * K] image indices of a whole epoch, all processes; the K images of a class stand together."""
        # RandomState and not default_rng: numpy promises never to change its stream
        rng = np.random.RandomState([self.seed, epoch])
        chosen = self.choose(rng).reshape(-1)
        visits = np.bincount(chosen, minlength=len(self._images))
        by_class = np.argsort(chosen, kind="stable")  # visits of class 0 in time order, then of class 1, ...
        hands = np.empty((len(chosen), self.samples_per_class), dtype=np.int64)
        done = 0
        for rows, count in zip(self._images, visits.tolist(), strict=True):
            if count:
                dealt = _deal(len(rows), np.full(count, self.samples_per_class), rng)
                hands[by_class[done : done + count]] = rows[dealt].reshape(count, -1)
                done += count
        return hands.reshape(-1, self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; `start_batch` stays as it is."""
        if epoch < 0:
            raise ValueError(f"epoch must be >= 0; got {epoch}")
        self.epoch = epoch

    def state_dict(self, batches_done: int | None = None) -> dict[str, int]:
        """What `load_state_dict` needs to go on, all plain integers; the same on every process and for any number.

        Args:
            batches_done: batches of this epoch that were trained on. The caller knows this number; the sampler does
                not, since a DataLoader asks for batches ahead of time. None stands for the current `start_batch`.
        """
        start = self.start_batch if batches_done is None else batches_done
        return {**self._identity(), "epoch": self.epoch, "start_batch": start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
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

    def _identity(self) -> dict[str, int]:
        return {
            "seed": self.seed,
            "classes_per_batch": self.classes_per_batch,
            "samples_per_class": self.samples_per_class,
            "batches_per_epoch": self.batches_per_epoch,
            "num_images": self._num_images,
            "num_classes": len(self._images),
        }

    def _part(self) -> tuple[int, int]:
        """(rank, world_size): as given, else those of torch.distributed, else (0, 1)."""
        rank, world_size = self.rank, self.world_size
        if rank is None or world_size is None:
            rank, world_size = world()
        _need_integer("world_size", world_size, 1)
        _need_integer("rank", rank, 0)
        if rank >= world_size:
            raise ValueError(f"rank must be 0 .. world_size - 1 = {world_size - 1}; got {rank}")
        if world_size > self.batch_size:
            raise ValueError(
                f"{world_size} processes cannot share a batch of {self.classes_per_batch} x {self.samples_per_class} = "
                f"{self.batch_size} images: it is the batch of all processes together. Raise classes_per_batch."
            )
        return rank, world_size


class MPerClassBatchSampler(ClassBatchSampler):
    """Batches of exactly `classes_per_batch` distinct classes with exactly `samples_per_class` distinct images each.

    Classes are dealt like cards: shuffle all usable classes, deal them out, shuffle again. So at every moment of an
    epoch the visits to any two classes differ by at most one. Every class counts the same, whatever its size: what is
    learned has to serve classes never seen, and a few large classes would otherwise be in every batch. The images of a
    class are dealt in the same way over its visits within the epoch: none comes twice before all came once. Where a
    hand lies across two shuffles, its second part avoids what its first part holds.

    Batches depend on (labels, seed, epoch) only, and numpy keeps the stream of the generator used here fixed: the same
    on any machine.

    Every process yields every `world_size`-th image of the same batch, beginning with its `rank`: nearly all classes
    are in each part, so that batch norm which is not synchronised sees a fair sample, and a run goes on with any other
    number of processes.

    Args:
        labels: [image] integers, the class of each image; any values.
        classes_per_batch: P, >= 1. Losses need at least 2.
        samples_per_class: K, >= 1. Losses need at least 2.
        batches_per_epoch: >= 1; None is one pass in number, floor(usable images / (P K)), at least 1.
        seed: 0 .. 2**32 - 1.
        rank: number of this process, 0 .. world_size - 1; None: torch.distributed's if it is initialised when an
            iteration starts, else 0.
        world_size: number of processes, at most P K; None likewise, else 1.

    Attributes:
        batch_size: P K, images of a whole batch, on all processes together.
        left_out: number of classes with fewer than K images; they never appear (`SmallClassWarning` says so once).
        epoch: the epoch whose batches come next; change it with `set_epoch`.
        start_batch: batches to leave out at the start of the next iteration, and of that one only.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if an argument is out of range or fewer than P classes have K images.

    Each batch is an `EpochList` (a list of int with an attribute `epoch`).

    >>> sampler = MPerClassBatchSampler([0, 0, 0, 1, 1, 2, 2], classes_per_batch=2, samples_per_class=2)
    >>> len(sampler), [len(batch) for batch in sampler]
    (1, [4])
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        classes_per_batch: int = 32,
        samples_per_class: int = 4,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(labels, classes_per_batch, samples_per_class, batches_per_epoch, seed, rank, world_size)

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] classes, dealt from one pack."""
        sizes = np.full(self.batches_per_epoch, self.classes_per_batch)
        return _deal(len(self._images), sizes, rng).reshape(-1, self.classes_per_batch)


class HierarchicalBatchSampler(ClassBatchSampler):
    """Batches of P classes x K images from two super-labels each: classes of one kind are told apart, not kinds.

    Every unordered pair of super-labels gets `batches_per_pair` batches per epoch, in random order. Half of the
    classes of a batch come from each super-label; of an odd number, they take turns in giving the larger half. Within
    a super-label classes are dealt like cards over its batches, and images over the visits of their class, as
    `MPerClassBatchSampler` does; P, K, distinct classes and images, seeds, parts of processes and going on later are
    the same, too.

    Source: Cakir et al., FastAP, CVPR 2019; the pairs of RaMBO (Rolínek et al., CVPR 2020) and ROADMAP (Ramzi et al.,
    NeurIPS 2021): 10 batches per pair and K = 4 on Stanford Online Products, 4 and K = 8 on In-shop, 128 images each.
    What the papers leave open is ours: a super-label with fewer classes than its half gives all it has, and the other
    one gives the rest, so that every batch is whole (published code makes it smaller); a pair with fewer than P classes
    in all is left out; a class with fewer than K images is left out (published code repeats its images, which then
    match themselves).

    Args:
        labels: [image] integers, the class of each image; any values.
        super_labels: [image] integers, the super-label of each image; one for all images of a class.
        classes_per_batch: P, >= 2.
        samples_per_class: K, >= 1. Losses need at least 2.
        batches_per_pair: batches of each pair of super-labels in a round, >= 1.
        batches_per_epoch: >= 1; None is one round: the pairs times batches_per_pair. Another number cuts the round
            short, or goes on with another one.
        seed: 0 .. 2**32 - 1.
        rank: see `MPerClassBatchSampler`.
        world_size: see `MPerClassBatchSampler`.

    Attributes:
        batch_size: P K, images of a whole batch, on all processes together.
        left_out: classes with fewer than K images; they never appear (`SmallClassWarning` says so once).
        pairs: [pair, 2] super-labels of each pair that has batches.
        pairs_left_out: pairs with fewer than P usable classes (`SmallClassWarning` says so once).
        epoch: the epoch whose batches come next; change it with `set_epoch`.
        start_batch: batches to leave out at the start of the next iteration, and of that one only.

    Raises:
        TypeError: if labels or super-labels are not integers.
        ValueError: if an argument is out of range, a class has several super-labels, or no pair has P classes with K
            images.

    >>> labels = torch.arange(8).repeat_interleave(3)  # eight classes of three images
    >>> sampler = HierarchicalBatchSampler(labels, labels // 4, 4, 3, batches_per_pair=2)
    >>> [sorted({int(labels[i]) // 4 for i in batch}) for batch in sampler]
    [[0, 1], [0, 1]]
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        super_labels: Tensor | Sequence[int],
        classes_per_batch: int = 32,
        samples_per_class: int = 4,
        batches_per_pair: int = 10,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        _need_integer("batches_per_pair", batches_per_pair, 1)
        super().__init__(labels, classes_per_batch, samples_per_class, batches_per_epoch, seed, rank, world_size)
        if classes_per_batch < 2:
            raise ValueError(f"classes_per_batch must be >= 2, one class of each super-label; got {classes_per_batch}")
        names, of_image = np.unique(_labels("super_labels", super_labels), return_inverse=True)
        if len(of_image) != self._num_images:
            raise ValueError(f"super_labels need one entry per image ({self._num_images}); got {len(of_image)}")
        for rows in self._images:
            found = np.unique(of_image[rows])
            if len(found) > 1:
                raise ValueError(
                    f"a class has one super-label, but class {int(torch.as_tensor(labels)[int(rows[0])])} has images "
                    f"of the super-labels {', '.join(str(names[i]) for i in found)}. Correct them, or number the "
                    "combinations of class and super-label as classes."
                )
        of_class = np.array([of_image[rows[0]] for rows in self._images])
        self._members = [np.flatnonzero(of_class == i) for i in range(len(names))]
        all_pairs = list(itertools.combinations(range(len(names)), 2))
        held = [len(self._members[a]) + len(self._members[b]) for a, b in all_pairs]
        # two super-labels, also where one of them alone has classes enough
        whole = [
            pair
            for pair, classes in zip(all_pairs, held, strict=True)
            if classes >= classes_per_batch and all(len(self._members[i]) for i in pair)
        ]
        if not whole:
            raise ValueError(
                f"no two of {len(names)} super-labels have {classes_per_batch} classes with at least "
                f"{samples_per_class} images each; the best pair has {max(held, default=0)}. Lower classes_per_batch "
                "or samples_per_class, or use MPerClassBatchSampler."
            )
        self._pairs = np.array(whole, dtype=np.int64)
        self.pairs: IntArray = names[self._pairs]
        self.pairs_left_out = len(all_pairs) - len(whole)
        if self.pairs_left_out:
            warnings.warn(
                f"{self.pairs_left_out} of {len(all_pairs)} pairs of super-labels have fewer than "
                f"classes_per_batch={classes_per_batch} classes with {samples_per_class} images, or all of them on one "
                "side, and get no batches",
                SmallClassWarning,
                stacklevel=2,
            )
        self.batches_per_pair = batches_per_pair
        if batches_per_epoch is None:
            self.batches_per_epoch = len(self._pairs) * batches_per_pair

    def choose(self, rng: np.random.RandomState) -> IntArray:
        """[batch, P] classes, those of the first super-label of the batch's pair before those of the second."""
        one_round = np.repeat(np.arange(len(self._pairs)), self.batches_per_pair)
        rounds = -(-self.batches_per_epoch // len(one_round))
        pair = np.concatenate([rng.permutation(one_round) for _ in range(rounds)])[: self.batches_per_epoch]
        first, second = self._pairs[pair].T
        members = np.array([len(classes) for classes in self._members])
        by_pair = np.argsort(pair, kind="stable")
        visit = np.empty_like(pair)  # how often the pair came before
        visit[by_pair] = np.arange(len(pair)) - np.searchsorted(pair[by_pair], pair[by_pair])
        of_first = np.minimum((self.classes_per_batch + visit % 2) // 2, members[first])
        of_second = np.minimum(self.classes_per_batch - of_first, members[second])
        of_first = self.classes_per_batch - of_second
        chosen = np.empty((len(pair), self.classes_per_batch), dtype=np.int64)
        column = np.arange(self.classes_per_batch)
        for number, classes in enumerate(self._members):
            mine = np.where(first == number, of_first, np.where(second == number, of_second, 0))
            left = np.where(first == number, 0, of_first)
            place = (column >= left[:, None]) & (column < (left + mine)[:, None])  # row by row: in time order
            chosen[place] = classes[_deal(len(classes), mine[mine > 0], rng)]
        return chosen

    def _identity(self) -> dict[str, int]:
        return {
            **super()._identity(),
            "batches_per_pair": self.batches_per_pair,
            "num_pairs": len(self._pairs),
        }


class ShuffledBatches(BatchSampler):
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
        # not BatchSampler's constructor: there is no sampler of single images
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= images:
            raise ValueError(f"batch_size must be 1 .. {images}, the number of images; got {batch_size!r}")
        if batch_size < world()[1]:
            raise ValueError(f"{world()[1]} processes cannot share a batch of {batch_size} images: raise batch_size")
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self.epoch = 0
        self.start_batch = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.images // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's part of the batches from `start_batch` on, then forget `start_batch`."""
        start, epoch = self.start_batch, self.epoch
        self.start_batch = 0
        order = np.random.RandomState([self.seed, epoch]).permutation(self.images)
        whole = order[: len(self) * self.batch_size].reshape(len(self), self.batch_size)
        rank, processes = world()
        return (EpochList(batch, epoch) for batch in whole[start:, rank::processes].tolist())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        self.epoch = epoch

    def state_dict(self, batches_done: int) -> dict[str, int]:
        """What `load_state_dict` needs to go on after so many batches of this epoch."""
        return {**self._identity(), "epoch": self.epoch, "start_batch": batches_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            ValueError: the state is of other batches.
        """
        wrong = [f"{k}: saved {state.get(k)}, now {v}" for k, v in self._identity().items() if state.get(k) != v]
        if wrong:
            raise ValueError(f"the saved state belongs to other batches ({'; '.join(wrong)}); was the data changed?")
        self.epoch, self.start_batch = int(state["epoch"]), int(state["start_batch"])

    def _identity(self) -> dict[str, int]:
        return {"images": self.images, "batch_size": self.batch_size, "seed": self.seed}


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


def _labels(name: str, labels: Tensor | Sequence[int]) -> IntArray:
    given = torch.as_tensor(labels)
    if given.dtype.is_floating_point or given.dtype.is_complex or given.dtype == torch.bool:
        if given.numel():  # an empty list becomes a float tensor; it gets a clearer message later
            raise TypeError(f"{name} must be integers, one class per image; got dtype {given.dtype}")
    if given.ndim != 1:
        raise ValueError(
            f"{name} must be [image], one class per image; got shape {tuple(given.shape)}. "
            "Multi-hot and hierarchical labels: give the column that the batches are to be balanced by."
        )
    array: IntArray = given.to(torch.int64).cpu().numpy()
    return array


def _need_integer(name: str, value: int, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be >= {low}; got {value}")
