r"""Average Precision of a detector's classifier as a loss. Each class ranks the proposals of all images.

A proposal has one score per class. A proposal is relevant for a class if it was matched to an object of that class. All
others, background and objects of other classes, are irrelevant. There are two kinds of rankings:

* per class: the proposals by their score for it. L_mAP is the mean of 1 - AP over the classes with a relevant proposal.
* of all classes: every (proposal, class) in one list. L_APC is 1 - AP of that list.

The loss is the weighted mean of both, 2 : 1 in RaMBO (Rolínek et al., CVPR 2020, arXiv:1912.03500, sections 4.6, 5.2).
It is AP over proposals before non-maximum suppression. So all proposals on the same object count as relevant, and an
object without a proposal costs nothing. This is close to the AP of a benchmark, but not equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad.common.checks import Numbers, flag, integer, number, one_of, tensor
from rankgrad.losses.base import in_backward
from rankgrad.losses.rank_loss import RankSource
from rankgrad.losses.score_memory import Scored, ScoreMemory
from rankgrad.metrics import average_precision
from rankgrad.ranks import Blackbox, Soft, computed
from rankgrad.ranks.lists import asynchronous, require
from rankgrad.ranks.relaxations import Heaviside, Sigmoid, SupStep
from rankgrad.ranks.types import PerQuery, Ranks

MemoryFor = Literal["map", "both"]
Background = Literal["first", "last"] | None


OPTIONS = ("weights", "memory_for")  # what every detection loss takes, beside memory


class DetectionRankLoss(nn.Module):
    r"""Loss of any ranks over proposals: w_1 (mean over classes of 1 - metric) + w_2 (1 - metric of one joint list).

    The loss uses all images of a batch at once. A class without a relevant proposal is left out of the mean. If no
    class has one, the loss is 0, attached to the graph. Computation is in float32 (float64 for float64 scores), also
    inside autocast. On several processes, `distributed.GlobalBatch(loss)` ranks the proposals of all processes.

    Args:
        ranks: computes the ranks: `ranks.Blackbox(...)` or `ranks.Soft(pos=..., neg=...)`. The weight of a term
            multiplies its blackbox perturbation.
        metric: Ranks -> [query] value in [0, 1], higher is better.
        memory: number of earlier batches whose scores are also ranked, without gradient, >= 0; RaMBO: 7. See
            `ScoreMemory`.
        weights: weights of the term of the classes and of the term of the one list, >= 0, not both 0. They are scaled
            to sum 1.
        memory_for: "map": the memory is added to the lists of the classes (published code). "both": it is also added to
            the one list (RaMBO's text).

    Attributes:
        stats: detached tensors of the last call: "map_loss" and "apc_loss" (without weights; only terms of weight > 0),
            "counted" [class] bool, "positives", "memory_rows".

    >>> loss = DetectionRankLoss(Soft(Sigmoid(0.1), Sigmoid(0.1)), memory=0)
    >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 3.0]])  # 3 proposals, 2 classes
    >>> targets = one_hot_targets(torch.tensor([1, 0, 2]), 2, background="first")
    >>> loss(scores, targets) < 1e-4  # each class has its own proposal first
    tensor(True)
    """

    stats: dict[str, Tensor]

    def __init__(
        self,
        ranks: RankSource,
        *,
        metric: Callable[[Ranks], PerQuery] = average_precision,
        memory: int = 7,
        weights: tuple[float, float] = (2, 1),
        memory_for: MemoryFor = "map",
    ) -> None:
        super().__init__()
        if not isinstance(weights, Sequence) or len(weights) != 2 or not any(weights):
            raise ValueError(f"weights must be two numbers >= 0, for L_mAP and L_APC, not both 0; got {weights!r}")
        for weight in weights:
            number(weight, "each entry of weights is the weight of a term", low=0)
        one_of(memory_for, "memory_for", ("map", "both"))
        self.ranks, self.metric, self.weights, self.memory_for = ranks, metric, tuple(weights), memory_for
        self.memory = ScoreMemory(memory)
        self.stats = {}

    # ------------------------------------------------------------------ what a user calls

    def forward(self, scores: Numbers, targets: Numbers, valid: Numbers | None = None) -> Tensor:
        """Loss of a batch. In training mode, with gradients enabled, its scores are then added to the memory.

        Each argument may be a tensor, a numpy array or a list.

        Args:
            scores: [row, class] float, one row per proposal of any image, without background; higher is more likely.
            targets: [row, class] bool; see `one_hot_targets`.
            valid: [row, class] bool; False removes a proposal from the list of a class. Leave out rows that are not
                valid for any class.

        Returns:
            Scalar.

        Raises:
            ValueError: shapes, dtypes or devices do not fit, a score is NaN or infinite, or the number of classes
                differs from that of the memory.
            RuntimeError: torch.utils.checkpoint computes the loss again in the backward pass.
        """
        learns = self.training and torch.is_grad_enabled()  # under no_grad a batch is one of validation
        if learns and self._remembers() and in_backward():
            raise RuntimeError(
                "a loss with a memory or a random margin can't be inside torch.utils.checkpoint: it would be computed "
                "again in the backward pass, when both have changed. Put only the model inside"
            )
        scores, targets = tensor(scores, "scores"), tensor(targets, "targets")
        valid = None if valid is None else tensor(valid, "valid")
        self._check(scores, targets, valid)
        with torch.autocast(scores.device.type, enabled=False):
            lists = computed(scores).T.contiguous(), targets.T.contiguous()
            batch = Scored(*lists, None if valid is None else valid.T.contiguous())
            loss = self._weighted(batch, self.memory.held())
        self.stats["positives"] = (targets if valid is None else targets & valid).sum()
        if learns:
            self.memory.write(batch)
        return loss

    def reset(self) -> None:
        """Empty the memory. Call it after a change of data or model."""
        self.memory.reset()

    # ------------------------------------------------------------------ how

    def _weighted(self, batch: Scored, held: list[Scored]) -> Tensor:
        """The weighted sum of both terms, for a batch and the batches of the memory."""
        self.stats = {"memory_rows": torch.tensor(sum(part.scores.shape[1] for part in held))}
        per_class, one_list = (weight / sum(self.weights) for weight in self.weights)
        terms = []
        if per_class:
            value, self.stats["counted"] = self._term(per_class, batch, held)
            self.stats["map_loss"] = value.detach()
            terms.append(per_class * value)
        if one_list:
            chosen = [_flat(part) for part in held] if self.memory_for == "both" else []
            value, _ = self._term(one_list, _flat(batch), chosen)
            self.stats["apc_loss"] = value.detach()
            terms.append(one_list * value)
        return torch.stack(terms).sum()

    def _term(self, weight: float, batch: Scored, held: list[Scored]) -> tuple[Tensor, Tensor]:
        """Mean of 1 - metric over the lists with a relevant entry, and a mask of these lists."""
        targets, valid = _masks([batch, *held])
        scores, *others = self.moved([batch, *held])
        if isinstance(self.ranks, Blackbox):
            # The gradient of w L is -(rk(y) - rk(y + lambda w g)) / lambda. This is w times the gradient of L with
            # lambda w, so the caller can multiply the value by w.
            box = replace(self.ranks, lambda_=self.ranks.lambda_ * weight)
            values, ranks = box.values(self._cost, scores, targets, valid, fixed=others)
        else:
            every = torch.cat([scores, *(part.to(scores.dtype) for part in others)], 1)
            ranks = self.ranks(every, targets, valid)
            values = self._cost(ranks)
        counted = ranks.counted
        mean = torch.where(counted, values, 0).sum() / counted.sum().clamp(min=1)
        # attach a constant loss to the graph, too
        return (mean if mean.requires_grad else mean + 0 * scores.sum()), counted.detach()

    def _cost(self, ranks: Ranks) -> PerQuery:
        return 1 - self.metric(ranks)

    def _remembers(self) -> bool:
        """Whether the loss of a batch depends on the batches before."""
        return self.memory.batches > 0

    def moved(self, parts: list[Scored]) -> list[Tensor]:
        """Scores of the batch and of the memory for ranking. A subclass may shift them."""
        return [part.scores for part in parts]

    def _check(self, scores: Tensor, targets: Tensor, valid: Tensor | None) -> None:
        if scores.dim() != 2 or not scores.is_floating_point():
            raise ValueError(f"scores must be a float tensor [row, class]; got {scores.dtype} {tuple(scores.shape)}")
        for name, mask in (("targets", targets), ("valid", valid)):
            if mask is None:
                continue
            if mask.shape != scores.shape or mask.dtype != torch.bool:
                raise ValueError(
                    f"{name} must be bool with the shape of scores {tuple(scores.shape)}; got {mask.dtype} "
                    f"{tuple(mask.shape)}. one_hot_targets(labels, num_classes, background) turns labels into targets"
                )
            if mask.device != scores.device:
                raise ValueError(f"{name} is on {mask.device} but scores are on {scores.device}; move one of them")
        self.memory.check(scores.device, classes=scores.shape[1])
        if not scores.numel():
            return
        least, most = torch.aminmax(scores.detach())  # one pass over the data; NaN propagates
        good = (least > -torch.inf) & (most < torch.inf)
        if asynchronous(scores):
            torch._assert_async(good, "scores: NaN or infinity")
        elif not bool(good):
            row = int((~scores.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"scores: NaN or infinity, first in row {row}")

    def extra_repr(self) -> str:
        """The constructor's arguments, as they appear in the printed loss."""
        named = inspect.signature(type(self).__init__).parameters.values()
        names = [p.name for p in named if p.name != "self" and p.kind is not p.VAR_KEYWORD]
        names = [name for name in dict.fromkeys([*names, *OPTIONS]) if name != "memory"]
        return ", ".join([*(f"{name}={getattr(self, name)!r}" for name in names), f"memory={self.memory.batches}"])

    def __getstate__(self) -> dict[str, object]:
        """Everything but the statistics of the last call."""
        return {**self.__dict__, "stats": {}}


class DetectionAPLoss(DetectionRankLoss):
    r"""RaMBO's detection loss: 2/3 L_mAP + 1/3 L_APC on blackbox ranks (eqs. 14, 21-23; sections 4.4, 4.6).

    First the margin shifts the scores (irrelevant + margin/2, relevant - margin/2). Both terms are 1 - mean over the
    relevant entries of rk^+ / rk. For the gradient see `ranks.Blackbox`; the weights are part of the perturbation.
    Three things differ from the published code: no epsilon is added to denominators, a class without a relevant
    proposal costs 0 instead of NaN, and the margin is constant unless `random_margin`.

    Args:
        lambda_: size of the perturbation, > 0, for ranks divided by the length of the list; RaMBO: 0.5.
        margin: alpha >= 0, in score units; RaMBO: 0.15.
        memory: see `DetectionRankLoss`.
        weights: see `DetectionRankLoss`.
        memory_for: see `DetectionRankLoss`.
        random_margin: multiply the shift of each entry by |z|, with a new standard normal z in each call, as the
            published code does. It helps while all scores are within the margin (docs/detection.md).
        normalized_ranks: False: lambda is for Algorithm 1 as printed; see `ranks.Blackbox`.
        both_ranks: differentiate both ranks of eq. 21, as it is printed; see `ranks.Blackbox`.
        prefilter: before ranking, drop irrelevant entries below all relevant entries of their list. The result is the
            same.
        seed: seed of the random margin, >= 0. A draw depends on it and on the number of batches so far, so it is the
            same on all processes and after resuming.

    >>> loss = DetectionAPLoss(memory=0)
    >>> scores = torch.tensor([[0.5], [0.9], [0.1]])
    >>> loss(scores, torch.tensor([[True], [False], [False]]))  # the relevant one is second
    tensor(0.5000)
    """

    def __init__(
        self,
        lambda_: float = 0.5,
        margin: float = 0.15,
        memory: int = 7,
        weights: tuple[float, float] = (2, 1),
        memory_for: MemoryFor = "map",
        random_margin: bool = False,
        *,
        normalized_ranks: bool = True,
        both_ranks: bool = False,
        prefilter: bool = True,
        seed: int = 0,
    ) -> None:
        ranks = Blackbox(lambda_, margin, normalized_ranks, prefilter, both_ranks)
        flag(random_margin, "random_margin")
        super().__init__(
            replace(ranks, margin=0.0) if random_margin else ranks,
            memory=memory,
            weights=weights,
            memory_for=memory_for,
        )
        self.lambda_, self.margin, self.random_margin = lambda_, margin, random_margin
        self.normalized_ranks, self.both_ranks, self.prefilter = normalized_ranks, both_ranks, prefilter
        self.seed = integer(seed, "seed is that of the random margin", low=0)

    def _remembers(self) -> bool:
        return self.random_margin or super()._remembers()

    def moved(self, parts: list[Scored]) -> list[Tensor]:
        """Scores for ranking, shifted by random margins with `random_margin`."""
        if not self.random_margin:
            return super().moved(parts)
        # torch's CPU generator uses 32 bits of a seed, so both numbers are hashed into 32 bits
        seed = int(np.random.SeedSequence((self.seed, self.memory.count)).generate_state(1)[0])
        generator = torch.Generator(parts[0].scores.device).manual_seed(seed)
        return [part.scores + self._shift(part, generator) for part in parts]

    def _shift(self, part: Scored, generator: torch.Generator) -> Tensor:
        scores = part.scores
        shift = torch.randn(scores.shape, generator=generator, dtype=scores.dtype, device=scores.device)
        shift = shift.abs_().mul_(self.margin / 2)
        return torch.where(part.targets, -shift, shift)


class DetectionSmoothAPLoss(DetectionRankLoss):
    r"""Smooth-AP over proposals: both comparisons relaxed by the same sigmoid.

    [ours: the paper is about retrieval.] For comparison with `DetectionAPLoss`: it has the same lists, weights and
    memory, but no margin.

    Args:
        tau: temperature in score units, > 0. 0.01 is for cosines; the scores of a detector spread over tens of units.
        common: see `DetectionRankLoss`.

    >>> loss = DetectionSmoothAPLoss(memory=0)
    >>> scores = torch.tensor([[5.0], [1.0], [-3.0]])
    >>> loss(scores, torch.tensor([[True], [False], [False]])) < 1e-6  # the relevant one is first
    tensor(True)
    """

    def __init__(self, tau: float = 0.1, **common: Any) -> None:
        step = Sigmoid(tau)
        super().__init__(Soft(step, step), **common)
        self.tau = tau


class DetectionSupAPLoss(DetectionRankLoss):
    r"""SupAP over proposals: an upper bound of the exact loss. Ranks among the relevant proposals are exact.

    [ours: the paper is about retrieval.]

    Args:
        tau: temperature of the sigmoid in score units.
        rho: slope of the linear part, per score unit.
        delta: score difference where the linear part begins. With 0.1, 10 and 0.5 the step is ROADMAP's, ten times
            wider.
        common: see `DetectionRankLoss`.

    >>> scores, targets = torch.tensor([[0.5], [0.9], [0.1]]), torch.tensor([[True], [False], [False]])
    >>> DetectionSupAPLoss(memory=0)(scores, targets) >= DetectionAPLoss(margin=0.0, memory=0)(scores, targets)
    tensor(True)
    """

    def __init__(self, tau: float = 0.1, rho: float = 10.0, delta: float = 0.5, **common: Any) -> None:
        super().__init__(Soft(Heaviside(), SupStep(tau, rho, delta)), **common)
        self.tau, self.rho, self.delta = tau, rho, delta


DETECTION_LOSSES: dict[str, type[DetectionRankLoss]] = {
    "ap": DetectionAPLoss,
    "smooth_ap": DetectionSmoothAPLoss,
    "supap": DetectionSupAPLoss,
}


def one_hot_targets(labels: Numbers, num_classes: int, background: Background) -> Tensor:
    """Class labels of proposals -> targets of the foreground classes. Background is a row of False.

    Args:
        labels: [row] integers; a tensor, a numpy array or a list.
        num_classes: number of foreground classes, >= 1.
        background: the label of background. "first": 0 (torchvision). "last": `num_classes` (mmdetection, Detectron2,
            DETR). None: there is no background label.

    Returns:
        [row, num_classes] bool.

    Raises:
        ValueError: a label is out of range (on CUDA: an asynchronous assertion).

    >>> one_hot_targets(torch.tensor([0, 2, 1]), 2, background="first").int()
    tensor([[0, 0],
            [0, 1],
            [1, 0]], dtype=torch.int32)
    """
    one_of(background, "background", ("first", "last", None))
    labels = tensor(labels, "labels")
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers [row]; got {labels.dtype} {tuple(labels.shape)}")
    labels = labels.long()  # torch cannot compare all unsigned integers
    integer(num_classes, "num_classes is the number of foreground classes", low=1)
    most = num_classes - (background is None)
    if len(labels):
        least, largest = torch.aminmax(labels)
        message = (
            f"labels must be 0 .. {most} ({num_classes} foreground classes, background={background!r}); first drop "
            "rows that should be ignored"
        )
        require((least >= 0) & (largest <= most), message)
    first = int(background == "first")
    return labels.unsqueeze(1) == torch.arange(first, first + num_classes, device=labels.device)


def _masks(parts: list[Scored]) -> tuple[Tensor, Tensor | None]:
    """Targets and validity of the lists of all parts."""
    if len(parts) == 1:
        return parts[0].targets, parts[0].valid
    valid = None
    if any(part.valid is not None for part in parts):
        masks = [torch.ones_like(part.targets) if part.valid is None else part.valid for part in parts]
        valid = torch.cat(masks, 1)
    return torch.cat([part.targets for part in parts], 1), valid


def _flat(part: Scored) -> Scored:
    """All classes in one list; the classes of a proposal are neighbours."""
    valid = None if part.valid is None else part.valid.T.reshape(1, -1)
    return Scored(part.scores.T.reshape(1, -1), part.targets.T.reshape(1, -1), valid)
