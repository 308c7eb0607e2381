"""PNP: penalise negatives that rank before positives (Li et al., AAAI 2022, arXiv:2102.04640)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from ..ranks import Soft
from ..ranks.relaxations import Heaviside, Sigmoid
from .base import Common
from .penalties import Identity, Log, Penalty, Power, Rational, XLog
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PNPLoss(RankLoss):
    r"""Mean over relevant i of f(R_i), R_i = sum over irrelevant j of sigmoid((s_j - s_i) / tau).

    | variant | f(R)                       | f'(R)              | weight of far-off items |
    |---------|----------------------------|--------------------|-------------------------|
    | O       | R                          | 1                  | all alike               |
    | Iu      | (1 + R) log(1 + R)         | 1 + log(1 + R)     | grows, unbounded        |
    | Ib      | (b R - log(1 + b R)) / b^2 | R / (1 + b R)      | grows, bounded          |
    | Ds      | log(1 + R)                 | 1 / (1 + R)        | falls slowly            |
    | Dq      | 1 - (1 + R)^-alpha         | alpha (1 + R)^-(alpha + 1) | falls quickly   |

    The D variants barely move relevant items that have many irrelevant items above them: a class may keep several
    clusters. Two things differ from the published code: the query is not in its own list (`include_self=True` counts it
    as a relevant item, as the code does), and any batch composition works.

    Args:
        variant: a name of the table, or a callable f(R) with f >= 0.
        tau: temperature in score units, > 0.
        alpha: alpha of Dq, > 0; 4 in the authors' published run. 1 is the default of their code, and better at small
            scale.
        b: b of Ib, > 0.
        common: see `RetrievalLoss`.

    >>> import torch
    >>> PNPLoss("O").from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(1.)
    """

    optimises: ClassVar[str] = "irrelevant items above a relevant one (five variants)"
    source: ClassVar[str] = "Li et al., AAAI 2022, [2102.04640](https://arxiv.org/abs/2102.04640)"

    def __init__(
        self,
        variant: Literal["Dq", "Ds", "Ib", "Iu", "O"] | Penalty = "Dq",
        tau: float = 0.01,
        alpha: float = 4.0,
        b: float = 2.0,
        **common: Unpack[Common],
    ) -> None:
        known: dict[str, Penalty] = {"Dq": Power(alpha), "Ds": Log(), "Ib": Rational(b), "Iu": XLog(), "O": Identity()}
        if variant not in known if isinstance(variant, str) else not callable(variant):
            raise ValueError(f"unknown PNP variant {variant!r}; known: {', '.join(known)}, or a callable f(R)")
        penalty = known[variant] if isinstance(variant, str) else variant
        super().__init__(Soft(Heaviside(), Sigmoid(tau)), penalty=penalty, **common)
        self.variant, self.tau, self.alpha, self.b = variant, tau, alpha, b
