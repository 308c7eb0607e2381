"""ROADMAP (Ramzi et al., NeurIPS 2021, arXiv:2110.01445): SupAP plus a calibration loss on absolute scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import number, one_of
from ..ranks.kernels.host import on_host
from ..ranks.lists import asynchronous, both_kinds, has_kinds
from ..ranks.types import Mask, PerQuery, Scores
from .average_precision import SupAPLoss
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

Thresholds = tuple[Tensor | float, Tensor | float]


class CalibrationLoss(RetrievalLoss):
    r"""Penalise relevant scores below alpha and irrelevant scores above beta, for all queries alike (ROADMAP eq. 7).

        L = 1/M sum_q [ mean_{j in P_q} (alpha - s_qj)_+  +  mean_{j in N_q} (s_qj - beta)_+ ]

    The mean of an empty set is 0, and every query counts. With this loss, the AP of a batch is closer to the AP of the
    whole set (decomposability).

    Args:
        alpha: threshold of relevant scores (cosine).
        beta: threshold of irrelevant scores, <= alpha.
        aggregation: "query": as above. "avg_non_zero": as in the published code, the mean over all relevant pairs of
            the batch with a non-zero term, plus the same mean of irrelevant pairs. This loss is not continuous: it
            jumps when the term of a pair becomes 0.
        quantiles: adaptive thresholds, which are in no paper. (a, b), both 0 .. 1: alpha is a running mean of the
            a-quantile of the relevant scores of a batch, and beta a running mean of the b-quantile of the irrelevant
            scores. The arguments alpha and beta are then not used. However narrow the range of the scores is, some
            pairs are always on the wrong side. None: fixed thresholds.
        momentum: weight of the old value in the running means, 0 .. 0.9999. The first batch sets the value.
        margin: least difference alpha - beta of adaptive thresholds, in score units, >= 0. If the quantiles are closer,
            or in the wrong order, beta is alpha - margin. On hard data most relevant scores are no higher than
            irrelevant scores. Then the quantiles alone would pull half of the relevant pairs but push only one per cent
            of the irrelevant pairs, and all embeddings would become equal. With a margin, the harder the data, the more
            irrelevant pairs are pushed, up to all of them.
        common: see `RetrievalLoss`.

    Attributes:
        running: [2] running alpha and beta of `quantiles`; part of the state_dict. NaN until a batch has such a pair. A
            call in training mode with gradients enabled first updates them with its own scores. Other calls use them
            unchanged, or the batch's own quantiles where they are NaN: calls in eval mode or without gradients, repeats
            by checkpointing, and the term of a memory. `stats` has the thresholds that were used.

    >>> CalibrationLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5500)
    """

    optimises: ClassVar[str] = "common thresholds for all queries"
    source: ClassVar[str] = "Ramzi et al., NeurIPS 2021, eq. 7, [2110.01445](https://arxiv.org/abs/2110.01445)"
    graded: ClassVar[bool] = False
    running: Tensor

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        aggregation: Literal["query", "avg_non_zero"] = "query",
        quantiles: Sequence[float] | None = None,
        momentum: float = 0.9,
        margin: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(alpha, "alpha is the threshold of relevant scores")
        number(beta, "beta is the threshold of irrelevant scores")
        if not beta <= alpha:
            raise ValueError(f"beta (irrelevant below) must not exceed alpha (relevant above); got {beta} > {alpha}")
        self.alpha, self.beta = alpha, beta
        self.aggregation = one_of(aggregation, "aggregation", ("query", "avg_non_zero"))
        self.quantiles, self.momentum = None, number(momentum, "momentum is that of the thresholds", low=0, high=0.9999)
        self.margin = number(margin, "margin is the least difference alpha - beta", low=0)
        if quantiles is not None:
            if not isinstance(quantiles, Sequence) or len(quantiles) != 2:
                raise ValueError(f"quantiles must be two numbers: of relevant and irrelevant scores; got {quantiles!r}")
            self.quantiles = tuple(number(each, "quantiles", low=0, high=1) for each in quantiles)
            self.register_buffer("running", torch.full((2,), torch.nan))
        self.separate = aggregation == "query" and quantiles is None

    @property
    def by_parts(self) -> bool:
        """True: thresholds and counts of the whole batch come from `tiles`."""
        return True

    def thresholds(self, scores: Scores, relevant: Mask, rest: Mask) -> Thresholds:
        """Alpha and beta of this call."""
        if self.quantiles is None:
            return self.alpha, self.beta
        moves, tiles = self.moves, self.tiles

        def followed() -> Tensor:
            return self._followed(scores.detach(), relevant, rest, moves)

        self._latest = followed() if tiles is None else tiles.once((self, "thresholds"), followed)
        alpha, beta = self._latest
        # with only one kind of pairs the other quantile is NaN, and fmin ignores it
        beta = torch.fmin(beta, alpha - self.margin).nan_to_num()
        alpha = alpha.nan_to_num()  # without such pairs there is nothing to compare
        self.stats["alpha"], self.stats["beta"] = alpha, beta
        return alpha, beta

    def _followed(self, scores: Scores, relevant: Mask, rest: Mask, moves: bool) -> Tensor:
        """[2] the running quantiles, updated with this batch if it `moves` them; NaN if no batch had such a pair."""
        assert self.quantiles is not None
        old = self.running.to(scores)
        if moves:
            self.running = old  # like a loss without state, it need not be moved to the device first
        if not moves and not asynchronous(old) and not bool(old.isnan().any()):
            return old  # sorting the scores of a long memory takes time: do it only if needed
        if self.tiles is None:
            sides = zip((relevant, rest), self.quantiles, strict=True)
            own = torch.stack([_quantile(scores, *side) for side in sides])
        else:
            own = self.tiles.quantiles(self.quantiles)
        mixed = torch.lerp(own, old, self.momentum) if moves else old
        return torch.where(old.isnan(), own, torch.where(own.isnan(), old, mixed))

    def remember(self) -> None:
        """Store the quantiles of the last call as the running quantiles."""
        if self.quantiles is not None:
            self.running.copy_(self._latest)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}running")
        if self.quantiles is not None and isinstance(saved, Tensor):
            self.running = self.running.to(saved.dtype)  # torch would round the saved values to the dtype of a new loss
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Both parts; every query counts."""
        kinds = both_kinds(relevant, valid)
        total, thresholds = scores.new_zeros(len(scores)), self.thresholds(scores, *kinds)
        active = None
        if self.aggregation == "avg_non_zero":
            active = self.over_batch("active", partial(_active, thresholds), relevant, valid, scores)
        for kind, (short, pairs) in enumerate(zip(_short(scores, thresholds), kinds, strict=True)):
            cost = short.masked_fill(~(pairs & (short > 0)), 0).sum(1)
            if active is None:
                total = total + cost / pairs.sum(1).clamp(min=1)
            else:  # scaled so that the mean over the queries is the mean over the active pairs
                total = total + cost * self.queries(scores) / active[kind].clamp(min=1)
        return total, torch.ones(len(scores), dtype=torch.bool, device=scores.device)


def _short(scores: Scores, thresholds: Thresholds) -> tuple[Tensor, Tensor]:
    """By how much a relevant score is too low, and an irrelevant score too high."""
    return thresholds[0] - scores, scores - thresholds[1]


def _active(thresholds: Thresholds, relevant: Tensor, valid: Mask | None, scores: Scores) -> Tensor:
    """[kind] number of relevant and of irrelevant pairs with a cost."""
    sides = zip(both_kinds(relevant, valid), _short(scores, thresholds), strict=True)
    return torch.stack([(pairs & (short > 0)).sum() for pairs, short in sides])


def _quantile(scores: Tensor, pairs: Mask, share: float) -> Tensor:
    """[] float, quantile of the scores of the pairs, by linear interpolation; NaN without pairs."""
    if on_host(scores) and scores.dtype in (torch.float32, torch.float64):
        chosen = scores.numpy()[pairs.numpy()]
        place = share * (chosen.size - 1)
        if not chosen.size:
            return scores.new_full((), torch.nan)
        ends = [int(place), min(int(place) + 1, chosen.size - 1)]
        chosen.partition(ends)  # linear time, a tenth of the time of a sort
        below, above = torch.from_numpy(chosen[ends])
        value: Tensor = below + (above - below) * (place - ends[0])
        return value
    if scores.numel() == 0:
        return scores.new_full((), torch.nan)
    flat = torch.where(pairs, scores, torch.inf).flatten().sort().values  # the pairs come first
    count = pairs.sum()
    places = share * (count - 1).clamp(min=0).double()  # float32 cannot tell 2^24 from 2^24 + 1
    low = places.floor().long()
    # indexing would wait for the GPU
    below, above = flat.gather(0, torch.stack([low, torch.minimum(low + 1, (count - 1).clamp(min=0))]))
    return torch.where(count > 0, below + (above - below) * (places - low).to(scores.dtype), torch.nan)


def _with_relevant(relevant: Tensor, valid: Mask | None) -> Tensor:
    """Number of queries with a relevant item."""
    return has_kinds(relevant, valid)[0].sum()


class ROADMAPLoss(RetrievalLoss):
    r"""(1 - weight) SupAP + weight calibration (ROADMAP eq. 2).

    The published training code adds both with weight 1: twice this value at weight = 0.5. SupAP is a mean over the
    queries that have a relevant item, calibration a mean over all queries. So with reduction="none" every query counts.
    `stats` has both parts, and with `quantiles` also the thresholds.

    Args:
        tau: see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        offset: see `SupAPLoss`.
        start: see `SupAPLoss`.
        tie: see `SupAPLoss`.
        alpha: see `CalibrationLoss`.
        beta: see `CalibrationLoss`.
        aggregation: of the calibration, see `CalibrationLoss`.
        weight: lambda of eq. 2, 0 .. 1.
        quantiles: adaptive thresholds, see `CalibrationLoss`.
        margin: least difference of adaptive thresholds, see `CalibrationLoss`.
        common: see `RetrievalLoss`.

    >>> ROADMAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.7617)
    """

    optimises: ClassVar[str] = "SupAP + calibration"
    source: ClassVar[str] = "Ramzi et al., NeurIPS 2021, [2110.01445](https://arxiv.org/abs/2110.01445)"
    graded: ClassVar[bool] = False

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        alpha: float = 0.9,
        beta: float = 0.6,
        aggregation: Literal["query", "avg_non_zero"] = "query",
        weight: float = 0.5,
        quantiles: Sequence[float] | None = None,
        margin: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(weight, "weight is ROADMAP's lambda (0: SupAP alone, 1: calibration alone)", low=0, high=1)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
        self.alpha, self.beta, self.aggregation, self.weight = alpha, beta, aggregation, weight
        self.quantiles, self.margin = quantiles, margin
        self.supap = SupAPLoss(tau, rho, delta, offset, start, tie, positives=self.positives)
        self.calibration = CalibrationLoss(alpha, beta, aggregation, quantiles, margin=margin)

    @property
    def by_parts(self) -> bool:
        """True: SupAP is separate, and calibration asks for what it needs."""
        return True

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """The weighted sum. Every query counts, so SupAP is rescaled from the queries with a relevant item to all."""
        calibration, counted = self.calibration.per_query(scores, relevant, valid)
        supap, has_relevant = self.supap.per_query(scores, relevant, valid)
        found = self.over_batch("found", _with_relevant, relevant, valid)
        supap = torch.where(has_relevant, supap, 0) * self.queries(scores) / found.clamp(min=1)
        self.stats["supap"], self.stats["calibration"] = supap.detach().mean(), calibration.detach().mean()
        if self.quantiles is not None:
            for name in ("alpha", "beta"):
                self.stats[name] = self.calibration.stats[name]
        return (1 - self.weight) * supap + self.weight * calibration, counted

    def remember(self) -> None:
        """Update the thresholds of the calibration with the last call."""
        self.calibration.remember()

    def components(self) -> dict[str, Tensor]:
        """Both parts of the last value, multiplied by their weights."""
        weights = {"supap": 1 - self.weight, "calibration": self.weight}
        return {name: weight * self.stats[name] for name, weight in weights.items()}


class AdaptiveROADMAPLoss(ROADMAPLoss):
    r"""ROADMAP with adaptive thresholds, for training from scratch. It is in no paper.

        (1 - weight) SupAP + weight mean_q [ mean_{j in P_q} (a - s_qj)_+  +  mean_{j in N_q} (s_qj - b)_+ ]

    a is a running median of the relevant scores. b is the running 99 % quantile of the irrelevant scores, but at most
    a - margin. Fixed thresholds must fit the scores of the network: if they are too strict, they dominate the loss; if
    they are too loose, they have no effect. Adaptive thresholds always pull the worse half of the relevant pairs and
    push the closest one per cent of the irrelevant pairs, or more of them if relevant and irrelevant scores do not
    differ yet.

    Args:
        tau: see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        weight: weight of the calibration, 0 .. 1. Measured: .75 is better than 0 and than 1.
        quantiles: quantiles of the relevant and of the irrelevant scores, see `CalibrationLoss`.
        margin: least difference a - b in score units, see `CalibrationLoss`. Measured: .1 and .2 give equal results, .3
            is worse.
        common: see `RetrievalLoss`.

    >>> AdaptiveROADMAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.4308)
    """

    optimises: ClassVar[str] = "SupAP + calibration that follows the scores"
    source: ClassVar[str] = "this library; [results](../papers/docs/results.md#leave-one-alphabet-out-omniglot)"

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        weight: float = 0.75,
        quantiles: Sequence[float] = (0.5, 0.99),
        margin: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(tau, rho, delta, weight=weight, quantiles=quantiles, margin=margin, **common)
