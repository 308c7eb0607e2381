"""AP with relaxed ranks: Smooth-AP and ROADMAP's SupAP."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from ..metrics import average_precision
from ..ranks import Soft
from ..ranks.relaxations import Heaviside, Sigmoid, SupStep
from .base import Common
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SmoothAPLoss(RankLoss):
    r"""Smooth-AP: 1 - AP with both comparisons relaxed by the same sigmoid (Brown et al., ECCV 2020, arXiv:2007.12163).

    The formula is ROADMAP's eq. 3 with H replaced by sigmoid(t / tau) in both ranks; both have a gradient. Two things
    differ from the authors' code. Here a query is not in its own list; there it is a relevant item
    (`include_self=True`). Here any number of samples per class works.

    Args:
        tau: temperature in score units, > 0.
        common: see `RetrievalLoss`.

    >>> import torch
    >>> SmoothAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "AP, sigmoid ranks"
    source: ClassVar[str] = "Brown et al., ECCV 2020, [2007.12163](https://arxiv.org/abs/2007.12163)"

    def __init__(self, tau: float = 0.01, **common: Unpack[Common]) -> None:
        step = Sigmoid(tau)
        super().__init__(Soft(step, step), metric=average_precision, **common)
        self.tau = tau


class SupAPLoss(RankLoss):
    r"""SupAP: an upper bound of 1 - AP (Ramzi et al., NeurIPS 2021, eqs. 4-5).

    rank^+ is exact and has no gradient, so no relevant item pushes another one down. rank^- counts with the step H^-
    (`relaxations.SupStep`), so an irrelevant item that is far above still has the gradient rho.

    Args:
        tau: temperature of the sigmoid, in score units.
        rho: slope of the linear part.
        delta: score difference where the linear part begins; "auto" = tau ln((1 - eps) / eps), eps = 0.01.
        offset: value where the linear part begins; None: H^- is continuous there (the paper). Published configurations:
            1.44; 1.0 for iNaturalist, with start = 0.
        start: added to the sigmoid for differences >= 0.
        tie: value of H^-(0): "upper" is 1 (the loss stays an upper bound with ties), "official" is 1/2.
        common: see `RetrievalLoss`.

    >>> import torch
    >>> SupAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.9733)
    """

    optimises: ClassVar[str] = "upper bound of 1 − AP"
    source: ClassVar[str] = "Ramzi et al., NeurIPS 2021, [2110.01445](https://arxiv.org/abs/2110.01445)"

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        **common: Unpack[Common],
    ) -> None:
        step = SupStep(tau, rho, delta, offset, start, tie)
        super().__init__(Soft(Heaviside(), step), metric=average_precision, **common)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
