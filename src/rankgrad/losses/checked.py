"""Checks of embeddings and labels that every loss makes before it computes, and the base class of the baselines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..common.checks import Numbers, dense, tensor
from ..ranks import computed
from ..ranks.lists import asynchronous, refuse_transforms
from ..ranks.relevance import Labels, as_labels, check_labels, words_of


@dataclass(frozen=True)
class Batch:
    """The checked input of a loss, as tensors. The queries are compared with the references, or with one another.

    Attributes:
        embeddings: [query, dim] float.
        labels: long [query], bool [query, class] or long [query, level]; None if the relevant pairs are given instead.
        indices_tuple: indices of pairs or triplets; the loss uses only these.
        ref_emb: [item, dim] references; None: the batch itself.
        ref_labels: labels of the references, of the same kind as `labels`.
        ids: [query] sample ids.
        ref_ids: [item] sample ids of the references.
        relevant: [query, item] bool, gains or levels, used instead of the labels.
        valid: [query, item] bool, False where an item is not in the list of a query.
    """

    embeddings: Tensor
    labels: Tensor | None = None
    indices_tuple: tuple[Tensor, ...] | None = None
    ref_emb: Tensor | None = None
    ref_labels: Tensor | None = None
    ids: Tensor | None = None
    ref_ids: Tensor | None = None
    relevant: Tensor | None = None
    valid: Tensor | None = None

    @property
    def items(self) -> Tensor:
        """[item, dim] what the queries are compared with."""
        return self.embeddings if self.ref_emb is None else self.ref_emb

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of queries and of items."""
        return len(self.embeddings), len(self.items)

    def detached(self) -> Batch:
        """The batch without graph."""
        ref_emb = None if self.ref_emb is None else self.ref_emb.detach()
        return replace(self, embeddings=self.embeddings.detach(), ref_emb=ref_emb)


class CheckedLoss(nn.Module):
    """Base of every loss of a batch. It checks the input.

    Attributes:
        check_finite: see `RetrievalLoss`.
    """

    check_finite: bool | None = None

    def checked(self, embeddings: Numbers, labels: Labels | None, **given: Any) -> Batch:
        """The input as tensors. Arrays and lists become tensors on the device of the embeddings.

        Args:
            embeddings: [query, dim] float.
            labels: labels of the queries.
            given: the other fields of `Batch`, as the user gave them.

        Raises:
            ValueError: a shape or dtype is wrong, the number of labels differs from the number of embeddings, or a
                value is NaN or infinite.
            TypeError: an argument does not hold numbers, or labels are floats.
        """
        refuse_transforms()
        embeddings = tensor(embeddings, "embeddings")
        device = embeddings.device
        ref_labels, pairs = given.pop("ref_labels", None), given.pop("indices_tuple", None)
        rest = {name: None if value is None else tensor_on(device, value, name) for name, value in given.items()}
        ref_emb = rest.get("ref_emb")
        _check_embeddings(embeddings, ref_emb)
        self._require_finite("embeddings", embeddings)
        if ref_emb is not None:
            self._require_finite("ref_emb", ref_emb)
        elif ref_labels is not None or rest.get("ref_ids") is not None:
            raise ValueError("ref_labels and ref_ids describe references: pass ref_emb, too")
        mine, theirs = labels_on(device, labels, ref_labels)
        if mine is not None and (ref_emb is None) != (theirs is None):
            raise ValueError("ref_emb and ref_labels go together; got only one of them")
        sides = (("labels", mine, embeddings), ("ref_labels", theirs, ref_emb))
        for name, labelled, rows in sides if mine is not None else ():
            if labelled is not None and rows is not None:
                check_labels(labelled, name)
                if len(labelled) != len(rows):
                    raise ValueError(f"{name} and embeddings differ in length; got {len(labelled)} and {len(rows)}")
        if pairs is not None:
            if any(rest.get(name) is not None for name in ("relevant", "ids", "ref_ids")):
                raise ValueError("indices_tuple lists all pairs to use: pass it without relevant, ids and ref_ids")
            pairs = tuple(tensor_on(device, index, "indices_tuple") for index in pairs)
        batch = Batch(embeddings, mine, pairs, ref_labels=theirs, **rest)
        valid = batch.valid
        if valid is not None and (valid.shape != batch.shape or valid.dtype != torch.bool):
            raise ValueError(f"valid must be bool {batch.shape}, [query, item]; got {valid.dtype} {tuple(valid.shape)}")
        return batch

    def _require_finite(self, name: str, values: Tensor) -> None:
        most = torch.finfo(values.dtype).max
        self._require_between(name, values, -most, most, "it holds NaN or infinity")

    def _require_no_overflow(self, costs: Tensor) -> None:
        """Raise if finite input gives an infinite loss: some steps, penalties and gains grow quickly."""
        if self.check_finite is False or costs.numel() == 0:
            return
        good, what = costs.detach().isfinite(), "the loss overflows: the scores or gains differ too much"
        if self.check_finite is None and asynchronous(costs):
            torch._assert_async(good.all(), what)
        elif not bool(good.all()):
            where = f", first in query {int((~good).nonzero()[0])}" if costs.ndim else ""
            raise ValueError(f"{what}{where}")

    def _require_between(self, name: str, values: Tensor, low: float, high: float, what: str, first: int = 0) -> None:
        """ValueError that names the first bad row, counted from `first`; an assertion on CUDA and in compiled code."""
        if self.check_finite is False or values.numel() == 0:
            return
        values = values.detach()
        least, most = torch.aminmax(values)  # one pass over the data; NaN propagates
        good = (least >= low) & (most <= high)
        if self.check_finite is None and asynchronous(values):
            torch._assert_async(good, f"{name}: {what}")
        elif not bool(good):
            row = int((~((values >= low) & (values <= high))).flatten(1).any(1).nonzero()[0])
            raise ValueError(f"{name}: {what}, first in row {first + row}")


class ClassLoss(CheckedLoss):
    """Base of the losses that read one class per row: the baselines, and the adapters to other libraries.

    A subclass computes the loss of a batch (`of_batch`). Computation is in float32 (float64 for float64 input), also
    inside autocast. The loss of an empty batch, or of a batch with empty references, is 0, attached to the graph.

    Attributes:
        hierarchies: whether the loss also reads long [row, level] labels, from coarse to fine.
    """

    hierarchies: bool = False

    def of_batch(self, batch: Batch) -> Tensor:
        """The loss, a scalar. Embeddings and references have the same precision and at least one row each."""
        raise NotImplementedError

    def forward(self, embeddings: Numbers, labels: Labels) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: [row, dim] float.
            labels: one class per row, long [row] or strings.

        Raises:
            ValueError, TypeError: see `CheckedLoss.checked`; also for labels of another kind.
        """
        return self._cost(embeddings, labels)

    def _cost(self, embeddings: Numbers, labels: Labels, **references: Any) -> Tensor:
        batch = self.checked(embeddings, labels, **references)
        if words_of(labels) is not None and next(self.parameters(), None) is not None:
            raise TypeError(
                f"{self.what} has weights for each class, so the labels must be integers: strings would get other "
                "numbers in each batch. Number them once, e.g. by numpy.unique(all_labels, return_inverse=True)[1]"
            )
        for given in (batch.labels, batch.ref_labels):
            if given is not None and (given.dtype == torch.bool or (given.ndim == 2 and not self.hierarchies)):
                what = "multi-hot labels" if given.dtype == torch.bool else "a hierarchy"
                raise ValueError(
                    f"{self.what} takes one class per row; got {what}. Use a loss of rankgrad.losses.LOSSES for that"
                )
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            rows = computed(batch.embeddings)
            items = None if batch.ref_emb is None else computed(batch.ref_emb)
            if items is not None:
                kind = torch.promote_types(rows.dtype, items.dtype)
                rows, items = rows.to(kind), items.to(kind)
            if not len(rows) or (items is not None and not len(items)):
                return 0 * rows.sum()
            value = self.of_batch(replace(batch, embeddings=rows, ref_emb=items))
        self._require_no_overflow(value)
        return value

    @property
    def what(self) -> str:
        """Name of the loss in messages."""
        return type(self).__name__


class ReferencedLoss(ClassLoss):
    """A `ClassLoss` that also compares a batch with references. It can use a memory."""

    def forward(
        self,
        embeddings: Numbers,
        labels: Labels,
        *,
        ref_emb: Numbers | None = None,
        ref_labels: Labels | None = None,
        ids: Numbers | None = None,
        ref_ids: Numbers | None = None,
    ) -> Tensor:
        """Loss of the batch, or of the batch against references.

        Args:
            embeddings: [row, dim] float.
            labels: one class per row, long [row] or strings.
            ref_emb: [item, dim] references, e.g. a memory.
            ref_labels: labels of the references.
            ids: [row] integer sample ids; no sample is compared with itself.
            ref_ids: [item] sample ids of the references.

        Raises:
            ValueError, TypeError: see `CheckedLoss.checked`; also for references without labels, and for ids of
                another length.
        """
        return self._cost(embeddings, labels, ref_emb=ref_emb, ref_labels=ref_labels, ids=ids, ref_ids=ref_ids)


@contextmanager
def held(module: nn.Module, name: str, value: object) -> Iterator[None]:
    """A context in which an attribute of a module, and of all modules inside it that have it, has this value."""
    parts = [part for part in module.modules() if name in vars(part)]
    before = [getattr(part, name) for part in parts]
    for part in parts:
        setattr(part, name, value)
    try:
        yield
    finally:
        for part, was in zip(parts, before, strict=True):
            setattr(part, name, was)


def tensor_on(device: torch.device, value: Numbers, name: str) -> Tensor:
    """A tensor unchanged; an array or a list as a tensor on this device."""
    return dense(value, name) if isinstance(value, Tensor) else tensor(value, name).to(device)


def labels_on(
    device: torch.device, labels: Labels | None, ref_labels: Labels | None
) -> tuple[Tensor | None, Tensor | None]:
    """Labels of any kind as tensors; lists and arrays become tensors on this device. See `relevance.as_labels`."""
    if labels is None or all(
        isinstance(side, Tensor) and side.dtype in (torch.long, torch.bool)
        for side in (labels, ref_labels)
        if side is not None
    ):  # nothing to convert: torch.compile skips the rest
        return cast("Tensor | None", labels), cast("Tensor | None", ref_labels)
    targets = [
        side if isinstance(given, Tensor) else side.to(device)
        for side, given in zip(as_labels(labels, ref_labels), (labels, ref_labels), strict=False)
    ]
    return targets[0], targets[1] if len(targets) > 1 else None


def _check_embeddings(embeddings: Tensor, ref_emb: Tensor | None) -> None:
    for name, rows in (("embeddings", embeddings), ("ref_emb", ref_emb)):
        if rows is not None and (rows.dim() != 2 or not rows.is_floating_point() or rows.dtype.itemsize == 1):
            cure = f". Pass {name}.float()" if rows.dtype.itemsize == 1 else ""
            raise ValueError(f"{name} must be a float tensor [row, dim]; got {rows.dtype} {tuple(rows.shape)}{cure}")
    if ref_emb is not None and ref_emb.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"embeddings have {embeddings.shape[1]} dimensions, ref_emb has {ref_emb.shape[1]}: was the head changed?"
        )
