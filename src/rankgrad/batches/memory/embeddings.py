"""A memory of the embeddings of earlier batches: they are further items of every list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...common.checks import Numbers, flag, integer, number, tensor
from ...losses.base import in_backward, still
from ...losses.checked import labels_on, tensor_on
from ...losses.sum import SumLoss, missing_references
from ...ranks.relevance import Labels, check_ids, check_labels, words_of

NO_ID = -1


class CrossBatchMemory(nn.Module):
    r"""A loss over the batch and the embeddings of earlier batches.

        loss(batch) + weight * loss(batch against memory)

    This is the memory of ROADMAP and of XBM's published code.

    The memory is a ring: new entries replace the oldest. A batch is written after its loss is computed, so the memory
    has earlier batches only. An entry with the id of a query is never in the list of that query. In eval mode nothing
    is written.

    The published code of XBM, and so ROADMAP's, writes the current batch first: each query is its own positive with
    score 1. RaMBO's memory is another one, `RowMemory`. Longer lists raise its lambda, which is for ranks divided by
    the length of the list: in a list four times as long, scores are perturbed four times as much.

    Args:
        loss: a rankgrad loss, or any module called as loss(embeddings, labels, ref_emb=, ref_labels=, ids=, ref_ids=).
        size: number of entries, >= 1, such as the whole training set (ROADMAP: 59 551 on SOP).
        weight: weight of the memory's term, >= 0.
        warmup: number of batches before the memory is filled and used. Embeddings drift fast at the start.
        dtype: dtype of the stored entries. bfloat16 halves the memory and rounds cosines to about 0.004. half(),
            double() and to(dtype) convert the entries and set the dtype of new ones. This also holds if an enclosing
            module is converted.
        need_ids: False: work without sample ids. Then older embeddings of a query are relevant items for it.

    Attributes:
        stats: the statistics of the loss for the batch, and these values of the last call. "memory_entries";
            "memory_age", mean age of the entries in batches; "memory_counted", fraction of queries with a relevant
            entry. With ids: "memory_drift", mean of 1 - cosine between a query and its own newest entry, NaN if no
            query has one.

    Raises:
        TypeError: the loss takes no references.
        ValueError: a size is out of range, ids are missing, or the dimension of the embeddings or the kind of labels
            differs from that of the entries.
        RuntimeError: torch.utils.checkpoint computes the loss again in the backward pass.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> memory = CrossBatchMemory(SmoothAPLoss(), size=6)
    >>> embeddings, labels = torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])
    >>> for step in range(2):
    ...     loss = memory(embeddings, labels, ids=torch.arange(4) + 4 * step)
    >>> memory.labels, int(memory.stats["memory_entries"])
    (tensor([1, 1, 1, 1, 0, 0]), 4)
    """

    stats: dict[str, Tensor]
    embeddings: Tensor
    labels: Tensor
    ids: Tensor
    written: Tensor
    clock: Tensor

    def __init__(
        self,
        loss: nn.Module,
        size: int,
        *,
        weight: float = 1.0,
        warmup: int = 0,
        dtype: torch.dtype = torch.float32,
        need_ids: bool = True,
    ) -> None:
        super().__init__()
        size = integer(size, "size is the number of entries", low=1)
        warmup = integer(warmup, "warmup is the number of batches before the memory is filled", low=0)
        number(weight, "weight is the weight of the memory's term", low=0)
        flag(need_ids, "need_ids")
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype must be a float dtype of torch; got {dtype!r}")
        parts = loss.losses.values() if isinstance(loss, SumLoss) else [loss]
        for part in parts:
            missing = missing_references(part)
            if missing:
                raise TypeError(f"{type(part).__name__} can't use a memory: its forward takes no {', '.join(missing)}")
        self.loss, self.size, self.weight, self.warmup = loss, size, weight, warmup
        self.need_ids = need_ids
        self.stats = {}
        self.register_buffer("embeddings", torch.empty(0, 0, dtype=dtype))
        self.reset()

    # ------------------------------------------------------------------ entries

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the stored entries."""
        return self.embeddings.dtype

    @property
    def filled(self) -> int:
        """Current number of entries."""
        return min(self._written, self.size)

    def reset(self) -> None:
        """Remove all entries and restart the warm-up. Call it after a change of data or model."""
        device = self.clock.device if hasattr(self, "clock") else None
        # the first batch, or a saved state, gives the dimension and the kind of labels
        self._allocate(torch.empty(0, 0, device=device), torch.empty(0, dtype=torch.long, device=device))
        self.register_buffer("clock", torch.zeros(2, dtype=torch.long, device=device))  # batches seen, entries written
        self._seen = self._written = 0  # copy of the clock on the host, because reading the buffer would wait for a GPU

    def _allocate(self, embeddings: Tensor, labels: Tensor) -> None:
        """Allocate buffers for entries of this dimension and kind of labels; none if the dimension is 0."""
        size = self.size if embeddings.shape[1] else 0
        device = embeddings.device
        self.register_buffer("embeddings", torch.zeros(size, embeddings.shape[1], dtype=self.dtype, device=device))
        self.register_buffer("labels", labels.new_zeros(size, *labels.shape[1:]))
        self.register_buffer("ids", torch.full((size,), NO_ID, device=device))
        self.register_buffer("written", torch.zeros(size, dtype=torch.long, device=device))  # batch number

    def summary(self) -> dict[str, float]:
        """Numbers for display: entries, their ages in batches, and with 1-d labels classes and entries per class.

        >>> from rankgrad.losses import SmoothAPLoss
        >>> CrossBatchMemory(SmoothAPLoss(), size=6).summary()
        {'entries': 0.0}
        """
        held = self.filled
        numbers = {"entries": float(held)}
        if held:
            age = (self._seen - self.written[:held]).double()
            numbers |= {"mean_age": float(age.mean()), "oldest": float(age.max())}
            if self.labels.dim() == 1:
                per_class = torch.unique(self.labels[:held], return_counts=True)[1]
                numbers |= {
                    "classes": float(len(per_class)),
                    "least_per_class": float(per_class.min()),
                    "most_per_class": float(per_class.max()),
                }
        return numbers

    # ------------------------------------------------------------------ the loss

    def forward(self, embeddings: Numbers, labels: Labels, *, ids: Numbers | None = None) -> Tensor:
        """Loss of a batch. In training mode, with gradients enabled, the batch is then written to the memory.

        Each argument may be a tensor, a numpy array or a list.

        Args:
            embeddings: [row, dim] float.
            labels: long [row], bool [row, class] or long [row, level]; the same kind in each call.
            ids: [row] integer sample ids >= 0. A sample must have the same id each time.
        """
        if words_of(labels) is not None:
            raise TypeError(
                "a memory compares labels of different batches, so labels must be integers: number the strings once, "
                "e.g. by numpy.unique(all_labels, return_inverse=True)[1]"
            )
        embeddings = tensor(embeddings, "embeddings")
        ids = None if ids is None else tensor_on(embeddings.device, ids, "ids")
        mine, _ = labels_on(embeddings.device, labels, None)
        assert mine is not None
        return self._loss(embeddings, mine, ids)

    def _loss(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None) -> Tensor:
        if self._learns() and in_backward():
            raise RuntimeError(
                "a memory can't be inside torch.utils.checkpoint: its loss would be computed again in the backward "
                "pass, when the memory has changed. Put only the model inside"
            )
        check_labels(labels)
        if ids is None and self.need_ids:
            raise ValueError(
                "a memory needs ids=..., the index of each sample in the training set, so that no query is compared "
                "with an older embedding of itself; need_ids=False turns this off"
            )
        if ids is not None:
            check_ids(ids, len(labels))
        self._check(embeddings, labels)
        active = self._seen >= self.warmup
        held = self.filled
        memory = self.embeddings[:held]
        if not getattr(self.loss, "normalize", False):
            memory = memory.clone()  # the graph must not keep the ring, which is overwritten before backward()
        value: Tensor = self.loss(embeddings, labels) if ids is None else self.loss(embeddings, labels, ids=ids)
        stats = dict(getattr(self.loss, "stats", {}))
        if active and held and self.weight:
            with still(self.loss):  # the batch already updated the running statistics of this step
                value = value + self.weight * self._against(embeddings, labels, ids, memory, self.labels[:held])
            stats["memory_counted"] = self._counted()
        stats |= self._statistics(embeddings, ids, held)
        self.stats = stats
        if self._learns():
            self._write(embeddings.detach(), labels, ids, active)
        return value

    def _learns(self) -> bool:
        """Whether this call changes the memory. Under no_grad a batch is a validation batch, also in training mode."""
        return self.training and torch.is_grad_enabled()

    def _against(
        self, embeddings: Tensor, labels: Tensor, ids: Tensor | None, memory: Tensor, memory_labels: Tensor
    ) -> Tensor:
        """The loss of the batch against the memory."""
        known = {} if ids is None else {"ids": ids.to(torch.long), "ref_ids": self.ids[: len(memory)]}
        value: Tensor = self.loss(embeddings, labels, ref_emb=memory, ref_labels=memory_labels, **known)
        return value

    def _counted(self) -> Tensor:
        stats: Mapping[str, Tensor] = getattr(self.loss, "stats", {})
        counted = stats.get("has_relevant", stats.get("counted"))
        return torch.tensor(torch.nan) if counted is None else counted.float().mean()

    @torch.no_grad()
    def _statistics(self, embeddings: Tensor, ids: Tensor | None, held: int) -> dict[str, Tensor]:
        age = (self._seen - self.written[:held]).float()
        stats = {"memory_entries": torch.tensor(float(held)), "memory_age": age.mean() if held else age.sum()}
        if ids is not None and held:
            mine = ids.unsqueeze(1) == self.ids[:held]
            newest, slot = torch.where(mine, self.written[:held] + 1, 0).max(1)
            cosine = F.cosine_similarity(embeddings.float(), self.embeddings[slot].float(), dim=1)
            there = newest > 0
            stats["memory_drift"] = ((1 - cosine) * there).sum() / there.sum()
        return stats

    # ------------------------------------------------------------------ the ring

    def _check(self, embeddings: Tensor, labels: Tensor) -> None:
        if embeddings.dim() != 2 or len(embeddings) != len(labels):
            raise ValueError(
                f"embeddings must be [row, dim], one label per row; got {tuple(embeddings.shape)}, {len(labels)} labels"
            )
        if not len(self.embeddings):
            with torch.inference_mode(False):  # else no later call could write to these buffers
                self._allocate(embeddings.detach()[:0], labels[:0])
        if embeddings.shape[1] != self.embeddings.shape[1]:
            raise ValueError(
                f"memory holds {self.embeddings.shape[1]}-d embeddings but got {embeddings.shape[1]}-d; was the head "
                "changed after resuming? reset() empties the memory"
            )
        if labels.shape[1:] != self.labels.shape[1:] or (labels.dtype == torch.bool) != (
            self.labels.dtype == torch.bool
        ):
            raise ValueError(
                f"memory holds labels {self.labels.dtype} {tuple(self.labels.shape)} but got {labels.dtype} "
                f"{tuple(labels.shape)}; reset() empties the memory"
            )

    @torch.no_grad()
    def _write(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None, active: bool) -> None:
        if active and len(embeddings):
            rows = embeddings[-self.size :]  # a batch larger than the memory: the last rows
            start = self._written + len(embeddings) - len(rows)
            place = (torch.arange(start, start + len(rows), device=rows.device)) % self.size
            self.embeddings[place] = rows.to(self.dtype)
            self.labels[place] = labels[-self.size :].to(self.labels.dtype)
            self.ids[place] = NO_ID if ids is None else ids[-self.size :].to(torch.long)
            self.written[place] = self._seen
            self._written += len(embeddings)
        self._seen += 1
        self.clock[0], self.clock[1] = self._seen, self._written

    # ------------------------------------------------------------------ saved and resumed

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved, labels = state_dict.get(f"{prefix}embeddings"), state_dict.get(f"{prefix}labels")
        clock = state_dict.get(f"{prefix}clock")
        if saved is None or labels is None or clock is None:
            super()._load_from_state_dict(state_dict, prefix, *rest)
            return
        if len(saved) not in (0, self.size):
            raise ValueError(
                f"the saved memory has size {len(saved)}, this one has size {self.size}: use the same size, or remove "
                "the memory from the saved state and start with an empty one"
            )
        device = self.clock.device
        self._allocate(saved[:0].to(device), labels[:0].to(device))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._seen, self._written = clock.tolist()

    def extra_repr(self) -> str:
        """The settings and the number of entries."""
        settings = f"size={self.size}, weight={self.weight}, warmup={self.warmup}"
        return f"{settings}, dtype={self.dtype}, need_ids={self.need_ids}, filled={self.filled}"
