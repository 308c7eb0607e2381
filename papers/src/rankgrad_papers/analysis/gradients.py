r"""ROADMAP, Figs. 1a, 7, 8 (gradients on three scores) and Figs. 3, 11 (the steps behind them).

The list has two relevant items with scores .50 and .51, below an irrelevant one with .64. Smooth-AP is below the exact
loss; its gradient pushes the two relevant items apart and does not move the irrelevant one. With the exact step among
relevant items, this push is gone, but nearly no gradient is left. SupAP bounds the exact loss from above, and its
gradient moves all items in the right direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankgrad.common.text import aligned
from rankgrad.losses import RankLoss, SmoothAPLoss, SupAPLoss
from rankgrad.metrics import average_precision
from rankgrad.ranks import Soft, exact_ranks
from rankgrad.ranks.relaxations import Heaviside, Sigmoid, Step, SupStep

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ------------------------------------------------------------------------------------------------- the list of three


@dataclass(frozen=True, eq=False)
class Toy:
    """Losses of one list, and their gradients.

    Attributes:
        scores: [item] float64.
        relevant: [item] bool.
        values: name of a loss -> value.
        gradients: name of a loss -> [item] d value / d score; gradient descent moves the scores against it.
    """

    scores: Tensor
    relevant: Tensor
    values: dict[str, float]
    gradients: dict[str, Tensor]

    def __str__(self) -> str:
        """A row per loss: value and gradient."""
        rows = []
        for name, value in self.values.items():
            gradient = "  ".join(f"{g:+.3g}" for g in self.gradients[name].tolist())
            rows.append((name, f"{value:.5f}", gradient))
        return aligned(rows, left=3)


def losses(tau: float = 0.01) -> dict[str, RankLoss]:
    """The four compared losses: exact, both steps relaxed, one step relaxed, and an upper bound."""
    return {
        "1 - AP": RankLoss(exact_ranks, metric=average_precision),
        "Smooth-AP": SmoothAPLoss(tau),
        "exact step among relevant": RankLoss(Soft(pos=Heaviside(), neg=Sigmoid(tau)), metric=average_precision),
        "SupAP": SupAPLoss(tau),
    }


def toy(
    scores: Sequence[float] = (0.50, 0.51, 0.64), relevant: Sequence[bool] = (True, True, False), *, tau: float = 0.01
) -> Toy:
    """Values and gradients of the four losses on one list, in float64.

    Args:
        scores: of the items.
        relevant: whether each item is relevant.
        tau: temperature of the sigmoids.

    >>> result = toy()
    >>> {name: round(value, 4) for name, value in result.values.items()}
    {'1 - AP': 0.4167, 'Smooth-AP': 0.4034, 'exact step among relevant': 0.4167, 'SupAP': 0.8723}
    """
    values, gradients = {}, {}
    mask = torch.tensor([list(relevant)])
    for name, loss in losses(tau).items():
        leaf = torch.tensor([list(scores)], dtype=torch.float64, requires_grad=True)
        value = loss.from_scores(leaf, mask)
        (gradient,) = torch.autograd.grad(value, leaf)
        values[name], gradients[name] = value.item(), gradient[0]
    return Toy(torch.tensor(list(scores), dtype=torch.float64), mask[0], values, gradients)


@style.styled
def draw_toy(results: Toy, names: Sequence[str] | None = None) -> Figure:
    """One row per loss: the scores on a line, and arrows where descent pushes them.

    All arrows have one scale; gradients below 1 % of the largest have none.

    Args:
        results: of `toy`.
        names: losses to draw; None: all. ROADMAP's Fig. 1a shows Smooth-AP and SupAP, Fig. 7 Smooth-AP, Fig. 8 the
            exact step among relevant items and SupAP.
    """
    shown = list(results.values) if names is None else list(names)
    drawing = style.figure(style.ONE, toy_height(len(shown)))
    toy_onto(drawing, results, shown)
    return drawing


def toy_height(rows: int) -> float:
    """Inches that `toy_onto` needs for this number of losses."""
    return 0.78 * rows + 0.65


def toy_onto(drawing: Any, results: Toy, shown: Sequence[str]) -> None:
    """Draw the losses on a figure, or on part of one."""
    rows = drawing.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    span = float(results.scores.max() - results.scores.min())
    largest = max(float(results.gradients[name].abs().max()) for name in shown)
    for axes, name in zip(rows, shown, strict=True):
        _row(axes, results, name, 0.3 * span / max(largest, 1e-12))
        axes.set_xlim(float(results.scores.min()) - 0.5 * span, float(results.scores.max()) + 0.5 * span)
    for axes in rows[:-1]:
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(bottom=False)
    rows[-1].set_xlabel("score (numbers: gradient; arrows: descent)")
    handles = [
        rows[0].plot([], [], "o", color=style.RELEVANT, label="relevant")[0],
        rows[0].plot([], [], "s", color=style.IRRELEVANT, markerfacecolor="white", label="irrelevant")[0],
    ]
    drawing.legend(handles=handles, loc="outside lower center", ncols=2)


def _row(axes: Any, results: Toy, name: str, scale: float) -> None:
    axes.axhline(0, color=style.PALE, zorder=0)
    gradient = results.gradients[name]
    for item, (score, good) in enumerate(zip(results.scores.tolist(), results.relevant.tolist(), strict=True)):
        colour = style.RELEVANT if good else style.IRRELEVANT
        face = colour if good else "white"
        axes.plot([score], [0], "o" if good else "s", color=colour, markerfacecolor=face, markersize=6, zorder=3)
        move = -float(gradient[item]) * scale
        # relevant items are so close that their arrows need different heights
        height = 0.2 + 0.16 * (item % 2)
        if abs(float(gradient[item])) >= 0.01 * float(max(g.abs().max() for g in results.gradients.values())):
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
            axes.plot([score, score], [0, height], color=colour, linewidth=0.7)
            axes.annotate("", (score + move, height), (score, height), arrowprops=arrow)
        axes.annotate(
            f"{gradient[item]:+.2g}".replace("-", "−") if gradient[item] else "0",
            (score, 0),
            (0, -5 - 9 * (item % 2)),
            textcoords="offset points",
            ha="center",
            va="top",
            color=colour,
            fontsize=7.5,
        )
    axes.set(ylim=(-0.8, 0.5), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.set_title(f"{name.replace('-', '−') if name == '1 - AP' else name}: loss {results.values[name]:.4f}")


# --------------------------------------------------------------------------------------------------------- the steps


@dataclass(frozen=True, eq=False)
class Steps:
    r"""The steps of ROADMAP against the score difference.

    Attributes:
        difference: [point] score of the other item minus that of the relevant one.
        values: name of a step -> [point] how much the other item counts as above.
        slopes: name of a step -> [point] its derivative; 0 for the exact step.
        tau: temperature.
        delta: tau ln((1 - eps) / eps), where the sigmoid has come within eps of 1 and its slope to
            eps (1 - eps) / tau (ROADMAP's Fig. 11).
        epsilon: eps.
    """

    difference: Tensor
    values: dict[str, Tensor]
    slopes: dict[str, Tensor]
    tau: float
    delta: float
    epsilon: float


def steps(tau: float = 0.01, rho: float = 100.0, epsilon: float = 0.01, *, points: int = 801) -> Steps:
    """Values and slopes of H (the same as H^+), the sigmoid and H^-.

    Args:
        tau: temperature of the sigmoid and of H^-.
        rho: slope of H^-'s linear part.
        epsilon: 1 - sigmoid at delta, in (0, 1/2).
        points: number of points of the grid, which is symmetric about 0; it contains 0 if the number is odd.

    >>> round(steps().delta, 5)
    0.04595
    """
    if not 0 < epsilon < 0.5:
        raise ValueError(f"epsilon is 1 - sigmoid at delta and must be in (0, 0.5); got {epsilon}")
    delta = tau * float(torch.logit(torch.tensor(1 - epsilon, dtype=torch.float64)))
    difference = torch.linspace(-12 * tau, 12 * tau, points, dtype=torch.float64)
    known: dict[str, Step] = {"H+ (exact)": Heaviside(), "sigmoid": Sigmoid(tau), "H-": SupStep(tau, rho, delta)}
    slopes = {name: step.slope(difference) for name, step in known.items()}
    return Steps(
        difference,
        {name: step(difference) for name, step in known.items()},
        {name: torch.zeros_like(difference) if slope is None else slope for name, slope in slopes.items()},
        tau,
        delta,
        epsilon,
    )


NAMES = {"H+ (exact)": r"$H^+$: exact, no gradient", "sigmoid": r"$\sigma$: Smooth-AP", "H-": r"$H^-$: SupAP"}


@style.styled
def draw_steps(results: Steps) -> Figure:
    """Fig. 3: the steps, and their slopes."""
    drawing = style.figure(style.TWO, 2.3)
    left, right = drawing.subplots(1, 2)
    # the widest first: H^- is the sigmoid below 0
    looks = {"H-": (style.ORANGE, "-", 3.5), "sigmoid": (style.BLUE, "-", 1.4), "H+ (exact)": (style.BLACK, "--", 1.1)}
    pictures: list[tuple[Any, dict[str, Tensor]]] = [(left, results.values), (right, results.slopes)]
    for axes, curves in pictures:
        for name, (colour, dash, width) in looks.items():
            axes.plot(
                results.difference, curves[name], color=colour, linestyle=dash, linewidth=width, label=NAMES[name]
            )
        axes.axvline(results.delta, color=style.GREY, linewidth=0.8, linestyle=":")
        axes.set_xlabel("score of the other item − score of the relevant item")
    left.legend(loc="upper left")
    left.set(ylabel="counts as above", ylim=(-0.15, 5))
    right.set(ylabel="slope")
    for axes, height in ((left, 0.0), (right, 2.0)):
        place = (results.delta, height)
        axes.annotate(r"$\delta$", place, (3, 2), textcoords="offset points", color=style.GREY, va="bottom")
    style.letters([left, right])
    return drawing


@style.styled
def draw_delta(results: Steps) -> Figure:
    """Fig. 11: the slope of the sigmoid, and delta, beyond which it is nearly 0."""
    drawing = style.figure(style.ONE, 2.2)
    axes = drawing.subplots()
    axes.plot(results.difference, results.slopes["sigmoid"], color=style.BLUE)
    axes.axvline(results.delta, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel="score of the other item − score of the relevant item", ylabel=r"slope of $\sigma$")
    axes.set_ylim(0, 1.08 * float(results.slopes["sigmoid"].max()))
    axes.annotate(
        rf"$\delta = \tau\,\ln\frac{{1-\epsilon}}{{\epsilon}}$ = {results.delta:.3f}"
        "\n" + f"slope there: {results.epsilon * (1 - results.epsilon) / results.tau:.2f}"
        "\n" + rf"($\tau$ = {results.tau:g}, $\epsilon$ = {results.epsilon:g})",
        (results.delta, 0.62),
        (5, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=7.5,
    )
    return drawing
