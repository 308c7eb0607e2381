"""Checks of embeddings and labels that every loss makes before it computes, and the base class of the baselines."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..common.checks import Numbers, dense, tensor
from ..ranks import computed
from ..ranks.lists import asynchronous, refuse_transforms
from ..ranks.relevance import Labels, as_labels, check_labels, words_of


class Batch(NamedTuple):
    """The checked input of a loss, as tensors.

    Attributes:
        embeddings: [query, dim] float.
        labels: long [query], bool [query, class] or long [query, level]; None if the relevant pairs are given instead.
        ref_emb: [item, dim] references; None: the batch itself.
        ref_labels: labels of the references, of the same kind as `labels`.
        ids: [query] sample ids.
        ref_ids: [item] sample ids of the references.
    """

    embeddings: Tensor
    labels: Tensor | None
    ref_emb: Tensor | None
    ref_labels: Tensor | None
    ids: Tensor | None
    ref_ids: Tensor | None


class CheckedLoss(nn.Module):
    """Base of every loss of a batch. It checks the input.

    Attributes:
        check_finite: see `RetrievalLoss`.
    """

    check_finite: bool | None = None

    def checked(
        self,
        embeddings: Numbers,
        labels: Labels | None,
        ref_emb: Numbers | None = None,
        ref_labels: Labels | None = None,
        ids: Numbers | None = None,
        ref_ids: Numbers | None = None,
    ) -> Batch:
        """The input as tensors. Arrays and lists become tensors on the device of the embeddings.

        Raises:
            ValueError: a shape or dtype is wrong, the number of labels differs from the number of embeddings, or a
                value is NaN or infinite.
            TypeError: an argument does not hold numbers, or labels are floats.
        """
        refuse_transforms()
        embeddings = tensor(embeddings, "embeddings")
        device = embeddings.device
        ref_emb, ids, ref_ids = (
            None if value is None else tensor_on(device, value, name)
            for name, value in (("ref_emb", ref_emb), ("ids", ids), ("ref_ids", ref_ids))
        )
        _check_embeddings(embeddings, ref_emb)
        self._require_finite("embeddings", embeddings)
        if ref_emb is not None:
            self._require_finite("ref_emb", ref_emb)
        elif ref_labels is not None or ref_ids is not None:
            raise ValueError("ref_labels and ref_ids describe references: pass ref_emb, too")
        mine, theirs = labels_on(device, labels, ref_labels)
        if mine is not None and (ref_emb is None) != (theirs is None):
            raise ValueError("ref_emb and ref_labels go together; got only one of them")
        sides = (("labels", mine, embeddings), ("ref_labels", theirs, ref_emb))
        for name, given, rows in sides if mine is not None else ():
            if given is not None and rows is not None:
                check_labels(given, name)
                if len(given) != len(rows):
                    raise ValueError(f"{name} and embeddings differ in length; got {len(given)} and {len(rows)}")
        return Batch(embeddings, mine, ref_emb, theirs, ids, ref_ids)

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

    def _require_between(self, name: str, values: Tensor, low: float, high: float, what: str) -> None:
        """ValueError that names the first bad row; an asynchronous assertion on CUDA and in compiled code."""
        if self.check_finite is False or values.numel() == 0:
            return
        values = values.detach()
        least, most = torch.aminmax(values)  # one pass over the data; NaN propagates
        good = (least >= low) & (most <= high)
        if self.check_finite is None and asynchronous(values):
            torch._assert_async(good, f"{name}: {what}")
        elif not bool(good):
            row = int((~((values >= low) & (values <= high))).flatten(1).any(1).nonzero()[0])
            raise ValueError(f"{name}: {what}, first in row {row}")


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

    def _cost(
        self,
        embeddings: Numbers,
        labels: Labels,
        ref_emb: Numbers | None = None,
        ref_labels: Labels | None = None,
        ids: Numbers | None = None,
        ref_ids: Numbers | None = None,
    ) -> Tensor:
        batch = self.checked(embeddings, labels, ref_emb, ref_labels, ids, ref_ids)
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
            value = self.of_batch(batch._replace(embeddings=rows, ref_emb=items))
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
        return self._cost(embeddings, labels, ref_emb, ref_labels, ids, ref_ids)


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
