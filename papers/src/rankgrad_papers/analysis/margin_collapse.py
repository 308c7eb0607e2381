r"""RaMBO, Fig. 3: a rank loss is 0 for any gap, however small, so scores collapse unless they are shifted.

Gradient descent on the recall loss (eq. 20, weight "log") moves free scores on a line, with weight decay towards 0
[ours; the figure of the paper is a sketch]. Once the order is right, the loss is 0 and only the weight decay is left:
all scores collapse. With the shift of eq. 14 (irrelevant + alpha/2, relevant - alpha/2), the order is right only for
gaps of at least alpha, and the scores keep this gap.

Without the shift, the gap is below .01 for any weight decay. How much the scores collapse in the given number of steps
depends on the weight decay. With the default they collapse. With .02 a spread of .87 remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankgrad.losses import RaMBORecallLoss
from rankgrad.metrics import mean_average_precision

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Descent:
    """Scores during gradient descent.

    Attributes:
        margin: alpha, in score units.
        scores: [step, item] float64, including the start.
        relevant: [item] bool.
        disturbed_map: mAP of the final scores with noise (mean over many draws).
    """

    margin: float
    scores: Tensor
    relevant: Tensor
    disturbed_map: float

    @property
    def gap(self) -> Tensor:
        """[step] lowest relevant score - highest irrelevant score; > 0 if the order is right."""
        return self.scores[:, self.relevant].amin(1) - self.scores[:, ~self.relevant].amax(1)

    @property
    def spread(self) -> Tensor:
        """[step] highest score - lowest score."""
        return self.scores.amax(1) - self.scores.amin(1)


@dataclass(frozen=True, eq=False)
class MarginCollapse:
    """Two descents from the same start, with and without the shift.

    Attributes:
        without: alpha = 0.
        shifted: alpha > 0.
        noise: standard deviation of the noise of `disturbed_map`, score units.
    """

    without: Descent
    shifted: Descent
    noise: float

    def __str__(self) -> str:
        """Final gap, spread and mAP of both descents."""
        return "\n".join(
            f"margin {run.margin:g}: gap {run.gap[-1]:.2g}, spread {run.spread[-1]:.2g}, "
            f"mAP under noise of {self.noise:g}: {run.disturbed_map:.3f}"
            for run in (self.without, self.shifted)
        )


def compute(
    *,
    margin: float = 0.2,
    lambda_: float = 1.0,
    relevant: int = 5,
    irrelevant: int = 5,
    steps: int = 300,
    rate: float = 0.1,
    pull: float = 0.1,
    noise: float = 0.05,
    seed: int = 0,
) -> MarginCollapse:
    """Descend twice from one random start in [-1, 1].

    Args:
        margin: alpha of the shifted run, > 0, score units.
        lambda_: of the blackbox gradient, in normalised ranks.
        relevant: number of relevant scores.
        irrelevant: number of irrelevant scores.
        steps: of gradient descent.
        rate: its learning rate.
        pull: weight decay: pull * score is added to the gradient.
        noise: standard deviation of the noise on the final scores.
        seed: of start and noise.

    >>> result = compute(steps=100)
    >>> round(result.without.gap[-1].item(), 3), round(result.shifted.gap[-1].item(), 1)
    (0.0, 0.2)
    """
    if not margin > 0:
        raise ValueError(f"margin is the shift of the second run and must be > 0; got {margin}")
    g = torch.Generator().manual_seed(seed)
    start = 2 * torch.rand(relevant + irrelevant, generator=g, dtype=torch.float64) - 1
    mask = torch.arange(len(start)) < relevant
    disturbance = noise * torch.randn(1000, len(start), generator=g, dtype=torch.float64)

    def descend(alpha: float) -> Descent:
        loss = RaMBORecallLoss(lambda_, alpha, "log")
        path = [start]
        for _ in range(steps):
            leaf = path[-1].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss.from_scores(leaf.unsqueeze(0), mask.unsqueeze(0)), leaf)
            path.append(path[-1] - rate * (gradient + pull * path[-1]))
        seen = mean_average_precision(path[-1] + disturbance, mask.expand_as(disturbance))
        return Descent(alpha, torch.stack(path), mask, float(seen))

    return MarginCollapse(descend(0.0), descend(margin), noise)


@style.styled
def draw(results: MarginCollapse) -> Figure:
    """Scores against steps without the shift, with it, and the gaps of both."""
    drawing = style.figure(style.TWO, 2.3)
    without, shifted, gaps = drawing.subplots(1, 3, width_ratios=(1, 1, 0.85))
    without.sharey(shifted)
    _paths(without, results.without, "no shift", results.noise)
    _paths(shifted, results.shifted, rf"shift $\alpha$ = {results.shifted.margin:g}", results.noise)
    without.set_ylabel("score")
    low, high = without.get_ylim()
    without.set_ylim(low - 0.05 * (high - low), high + 0.12 * (high - low))  # room for the words
    without.legend(loc="upper right", ncols=2, borderaxespad=0, columnspacing=1)
    gaps.axhline(0, color=style.PALE, zorder=0)
    gaps.plot(results.without.gap, "--", color=style.BLUE, label="no shift")
    gaps.plot(results.shifted.gap, "-", color=style.PURPLE, label="with the shift")
    gaps.axhline(results.shifted.margin, color=style.GREY, linewidth=0.8, linestyle=":")
    gaps.annotate(r"$\alpha$", (len(results.shifted.gap), results.shifted.margin), va="bottom", color=style.GREY)
    gaps.set(xlabel="step", ylabel="lowest relevant −\nhighest irrelevant")
    gaps.legend(loc="lower right")
    style.letters([without, shifted, gaps])
    return drawing


def _paths(axes: Any, run: Descent, title: str, noise: float) -> None:
    """Trajectories of one run."""
    looks = {True: (style.RELEVANT, "-", "relevant"), False: (style.IRRELEVANT, (0, (4, 2)), "irrelevant")}
    for good, (colour, dash, name) in looks.items():
        lines = axes.plot(run.scores[:, run.relevant == good].numpy(), color=colour, linestyle=dash, linewidth=1.2)
        lines[0].set_label(name)
    axes.set(xlabel="step", title=title)
    axes.annotate(
        f"final gap {run.gap[-1]:.1g}\nmAP under noise of {noise:g}: {run.disturbed_map:.2f}",
        (0.98, 0.03),
        xycoords="axes fraction",
        ha="right",
        fontsize=style.SMALL,
    )
