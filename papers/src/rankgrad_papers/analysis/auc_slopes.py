r"""AUC: the slope of the sigmoid for a given step between the thresholds.

`AUCLoss` counts by sigmoid(slope (score - t)) at thresholds t that are one step apart. A steep sigmoid is more
accurate, but has nearly no gradient between two thresholds. If the hardest irrelevant scores are spread evenly, a
hardest relevant score at a distance of x steps from a threshold has the gradient
    sum_m c s'(c (x - m)),    s the logistic function, c = slope * step,
whose mean over x is 1. The paper's table of slopes is not in its public parts. The library's default is c = 5.3: the
logistic function closest in least squares to the ramp by which the trapezoid rule spreads a score over one step [ours].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankgrad import metrics
from rankgrad.common.text import aligned
from rankgrad.losses import AUCLoss

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT = 5.3  # slope * step of `AUCLoss` without a slope


@dataclass(frozen=True, eq=False)
class Slopes:
    """Error of the estimated area, and gradient of a score between two thresholds.

    Attributes:
        steps: distances of the thresholds, score units.
        products: slope * step of the curves.
        errors: [product, step] float64, mean of |estimated - exact area|.
        position: [point] 0 .. 1, position of a score between two thresholds.
        push: [product, point] gradient of the score, 1 on average.
    """

    steps: tuple[float, ...]
    products: tuple[float, ...]
    errors: Tensor
    position: Tensor
    push: Tensor

    @property
    def evenness(self) -> Tensor:
        """[product] smallest push / largest push."""
        return self.push.amin(1) / self.push.amax(1)

    def __str__(self) -> str:
        """A row per product: evenness of the push, and the error at every step."""
        head = ["slope * step", "least/most push", *(f"error at {step:g}" for step in self.steps)]
        rows = [
            [f"{product:g}", f"{even:.2f}", *(f"{error:.4f}" for error in errors)]
            for product, even, errors in zip(self.products, self.evenness.tolist(), self.errors.tolist(), strict=True)
        ]
        return aligned([head, *rows], left=0)


def compute(
    steps: Sequence[float] = (0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01),
    products: Sequence[float] = (2.0, DEFAULT, 10.0, 20.0),
    *,
    batches: int = 20,
    size: int = 128,
    points: int = 201,
    seed: int = 0,
) -> Slopes:
    """Estimate the area of random batches with every slope and step.

    Args:
        steps: distances of the thresholds; each must divide the range -1 .. 1.
        products: slope * step, > 0.
        batches: of hardest scores, relevant and irrelevant, uniform over random intervals of [-0.5, 1].
        size: queries in a batch.
        points: of the curves of the push.
        seed: of the batches.

    >>> found = compute([0.1], [5.3], batches=3)
    >>> found.errors.shape, bool(found.errors[0, 0] < 0.04), round(found.evenness.item(), 2)
    (torch.Size([1, 1]), True, 0.48)
    """
    if not steps or not products or min(*steps, *products) <= 0:
        raise ValueError(f"steps and products must be > 0; got {list(steps)} and {list(products)}")
    generator = torch.Generator().manual_seed(seed)
    low = 1.5 * torch.rand(batches, 1, 2, generator=generator, dtype=torch.float64) - 0.5
    high = low + (1 - low) * torch.rand(batches, 1, 2, generator=generator, dtype=torch.float64)
    drawn = low + (high - low) * torch.rand(batches, size, 2, generator=generator, dtype=torch.float64)
    relevant = torch.tensor([True, False]).expand(size, 2)
    exact = [float(metrics.auc_hardest(pairs, relevant)) for pairs in drawn]

    def error(step: float, product: float) -> float:
        loss = AUCLoss(step=step, slope=product / step)
        off = [abs(1 - float(loss.from_scores(pairs, relevant)) - a) for pairs, a in zip(drawn, exact, strict=True)]
        return sum(off) / len(off)

    errors = [[error(step, product) for step in steps] for product in products]
    position = torch.linspace(0, 1, points, dtype=torch.float64)
    push = torch.stack([_push(position, product) for product in products])
    return Slopes(tuple(steps), tuple(products), torch.tensor(errors, dtype=torch.float64), position, push)


def _push(position: Tensor, product: float) -> Tensor:
    """The sum of the formula over the near thresholds; beyond 40 / c steps the terms are negligible."""
    reach = int(40 / product) + 2
    near = torch.sigmoid(product * (position - torch.arange(-reach, reach + 1).unsqueeze(1)))
    return product * (near * (1 - near)).sum(0)


@style.styled
def draw(results: Slopes) -> Figure:
    """Errors against the step, and the push between two thresholds."""
    drawing = style.figure(style.TWO, 2.3)
    left, right = drawing.subplots(1, 2)
    for row, product in enumerate(results.products):
        name = f"{product:g}, the default" if product == DEFAULT else f"{product:g}"
        look = {"color": style.CYCLE[row], "linestyle": style.DASHES[row], "label": name}
        left.plot(results.steps, results.errors[row], marker=style.MARKERS[row], **look)
        right.plot(results.position, results.push[row], **look)
    left.set(xscale="log", yscale="log", xlabel="step of the thresholds", ylabel="error of the area")
    left.legend(title="slope × step", title_fontsize=7.5, loc="lower right")
    right.set(xlabel="place between two thresholds, in steps", ylabel="push on a relevant score")
    right.set_ylim(0, None)
    style.letters([left, right])
    return drawing
