"""Batches for losses that rank: every batch holds P classes with K images each.

A rank loss needs positives and negatives inside the batch; drawing images at random from thousands of classes gives
almost no positives. The batches of an epoch are a pure function of (labels, seed, epoch), so that a run that was
stopped in the middle of an epoch goes on with exactly the batches that were still to come.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Sampler

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


class MPerClassBatchSampler(Sampler[list[int]]):
    """Batches of exactly `classes_per_batch` distinct classes with exactly `samples_per_class` distinct images each.

    Classes are dealt like cards: shuffle all usable classes, deal them out, shuffle again. So at every moment of an
    epoch the visits to any two classes differ by at most one. Every class counts the same, whatever its size: what is
    learned has to serve classes never seen, and a few large classes would otherwise be in every batch. The images of a
    class are dealt in the same way over its visits within the epoch: none comes twice before all came once. Where a
    hand lies across two shuffles, its second part avoids what its first part holds.

    Batches depend on (labels, seed, epoch) only, and numpy keeps the stream of the generator used here fixed: the same
    on any machine.

    Args:
        labels: [image] integers, the class of each image; any values.
        classes_per_batch: P, >= 1. Losses need at least 2.
        samples_per_class: K, >= 1. Losses need at least 2.
        batches_per_epoch: >= 1; None is one pass in number, floor(usable images / (P K)), at least 1.
        seed: 0 .. 2**32 - 1.

    Attributes:
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
    ) -> None:
        for name, value, low in (
            ("classes_per_batch", classes_per_batch, 1),
            ("samples_per_class", samples_per_class, 1),
            ("batches_per_epoch", 1 if batches_per_epoch is None else batches_per_epoch, 1),
            ("seed", seed, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer; got {value!r}")
            if value < low:
                raise ValueError(f"{name} must be >= {low}; got {value}")
        if seed >= 2**32:
            raise ValueError(f"seed must be < 2**32; got {seed}")
        given = torch.as_tensor(labels)
        if given.dtype.is_floating_point or given.dtype.is_complex or given.dtype == torch.bool:
            if given.numel():  # an empty list becomes a float tensor; it gets the clearer message below
                raise TypeError(f"labels must be integers, one class per image; got dtype {given.dtype}")
        if given.ndim != 1:
            raise ValueError(
                f"labels must be [image], one class per image; got shape {tuple(given.shape)}. "
                "Multi-hot and hierarchical labels: give the column that the batches are to be balanced by."
            )
        array: IntArray = given.to(torch.int64).cpu().numpy()
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
                stacklevel=2,
            )
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.seed = seed
        self.epoch = 0
        self.start_batch = 0
        self._images = usable
        self._num_images = len(array)
        if batches_per_epoch is None:
            batches_per_epoch = max(1, sum(map(len, usable)) // (classes_per_batch * samples_per_class))
        self.batches_per_epoch = batches_per_epoch

    def __len__(self) -> int:
        """Batches of a whole epoch, also when the next iteration starts in its middle."""
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of `epoch` from `start_batch` on, then forget `start_batch`."""
        start, epoch = self.start_batch, self.epoch
        if not 0 <= start <= len(self):
            raise ValueError(f"start_batch must be 0 .. {len(self)}, the batches of an epoch; got {start}")
        self.start_batch = 0
        return (EpochList(batch, epoch) for batch in self.batches(epoch)[start:].tolist())

    def batches(self, epoch: int) -> IntArray:
        """[batch, P * K] image indices of a whole epoch; the K images of a class stand together."""
        per_batch, per_class = self.classes_per_batch, self.samples_per_class
        # RandomState and not default_rng: numpy promises never to change its stream
        rng = np.random.RandomState([self.seed, epoch])
        chosen = _deal(len(self._images), self.batches_per_epoch, per_batch, rng).reshape(-1)
        visits = np.bincount(chosen, minlength=len(self._images))
        by_class = np.argsort(chosen, kind="stable")  # visits of class 0 in time order, then of class 1, ...
        hands = np.empty((len(chosen), per_class), dtype=np.int64)
        done = 0
        for rows, count in zip(self._images, visits.tolist(), strict=True):
            if count:
                hands[by_class[done : done + count]] = rows[_deal(len(rows), count, per_class, rng)]
                done += count
        return hands.reshape(self.batches_per_epoch, per_batch * per_class)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; `start_batch` stays as it is."""
        if epoch < 0:
            raise ValueError(f"epoch must be >= 0; got {epoch}")
        self.epoch = epoch

    def state_dict(self, batches_done: int | None = None) -> dict[str, int]:
        """What `load_state_dict` needs to go on, all plain integers.

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


def _deal(cards: int, hands: int, size: int, rng: np.random.RandomState) -> IntArray:
    """[hand, size] cards 0 .. cards - 1: no card twice in a hand, and none much more often than another.

    Whole decks are dealt one after the other. A hand that the old deck cannot fill is filled from the new deck with the
    first cards that it does not hold yet; those it holds stay in the new deck.
    """
    needed = hands * size
    dealt = np.empty(needed + cards, dtype=np.int64)
    have = 0
    while have < needed:
        deck = rng.permutation(cards)
        held = have % size
        if held:
            in_hand = np.isin(deck, dealt[have - held : have])
            first = np.flatnonzero(~in_hand)[: size - held]
            deck = np.concatenate([deck[first], np.delete(deck, first)])
        dealt[have : have + cards] = deck
        have += cards
    return dealt[:needed].reshape(hands, size)
