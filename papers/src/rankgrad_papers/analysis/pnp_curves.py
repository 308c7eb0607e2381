r"""PNP, Figs. 1, 3, 5: how AP and the PNP losses depend on the irrelevant items in front.

For one relevant item with R_P relevant and R_N irrelevant items in front, AP's loss is (eq. 4)
    L_AP = 1 - (1 + R_P) / (1 + R_P + R_N),    dL_AP / dR_N = (1 + R_P) / (1 + R_P + R_N)^2.
It falls when more relevant items are in front (Fig. 1: its gradient rewards putting an item *behind* other relevant
items). PNP's losses f(R_N) do not depend on R_P; PNP-Dq with alpha = 1 is L_AP at R_P = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankgrad.losses.penalties import Identity, Log, Penalty, Power, Rational, XLog

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Curves:
    """Losses of one relevant item and their derivatives, against the irrelevant items in front.

    Attributes:
        above_neg: [point] R_N, from 0 to `most`.
        above_pos: [curve] R_P of AP's curves.
        ap_loss: [curve, point] L_AP.
        ap_slope: [curve, point] dL_AP / dR_N.
        losses: name of a PNP variant -> [point] f(R_N).
        slopes: name of a PNP variant -> [point] f'(R_N).
        shown: name of the variant that is compared with AP in Fig. 5.
    """

    above_neg: Tensor
    above_pos: Tensor
    ap_loss: Tensor
    ap_slope: Tensor
    losses: dict[str, Tensor]
    slopes: dict[str, Tensor]
    shown: str


def variants(b: float = 2.0, alpha: Sequence[float] = (1.0, 2.0, 4.0)) -> dict[str, Penalty]:
    """Name in the figure -> PNP's penalty."""
    fixed: dict[str, Penalty] = {"PNP-O": Identity(), "PNP-Iu": XLog(), f"PNP-Ib, b={b:g}": Rational(b)}
    return fixed | {"PNP-Ds": Log()} | {f"PNP-Dq, α={a:g}": Power(a) for a in alpha}


def compute(
    most: float = 10.0,
    *,
    above_pos: Sequence[int] = (0, 1, 2, 3),
    b: float = 2.0,
    alpha: Sequence[float] = (1.0, 2.0, 4.0),
    shown: float = 2.0,
    points: int = 201,
) -> Curves:
    """Values and derivatives on a grid of R_N.

    Args:
        most: largest R_N.
        above_pos: R_P of AP's curves (the paper's Fig. 5 has 0 .. 3).
        b: of PNP-Ib.
        alpha: of PNP-Dq's curves.
        shown: alpha of the curve that is compared with AP; 2 in the paper.
        points: of the grid.

    >>> curves = compute()
    >>> torch.allclose(curves.losses["PNP-Dq, α=1"], curves.ap_loss[0])
    True
    """
    if shown not in alpha:
        raise ValueError(f"the curve to compare with AP must be among alpha = {list(alpha)}; got {shown}")
    above_neg = torch.linspace(0, most, points, dtype=torch.float64)
    pos = torch.tensor(list(above_pos), dtype=torch.float64)
    front, rank = (1 + pos).unsqueeze(1), 1 + pos.unsqueeze(1) + above_neg
    losses, slopes = {}, {}
    for name, penalty in variants(b, alpha).items():
        leaf = above_neg.clone().requires_grad_()
        value = penalty(leaf)
        (slopes[name],) = torch.autograd.grad(value.sum(), leaf)
        losses[name] = value.detach()
    return Curves(above_neg, pos, 1 - front / rank, front / rank.square(), losses, slopes, f"PNP-Dq, α={shown:g}")


@style.styled
def draw_surface(results: Curves) -> Figure:
    """Fig. 1: L_AP over R_P and R_N, as a map with level lines."""
    most = float(results.above_neg.max())
    grid = torch.linspace(0, most, 201, dtype=torch.float64)
    loss = (1 - (1 + grid.unsqueeze(0)) / (1 + grid.unsqueeze(0) + grid.unsqueeze(1))).numpy()  # [R_N, R_P]
    ticks = grid.numpy()
    drawing = style.figure(style.ONE, 2.6)
    axes = drawing.subplots()
    mesh = axes.pcolormesh(ticks, ticks, loss, cmap=style.SURFACE, vmin=0, vmax=1, shading="gouraud", rasterized=True)
    lines = axes.contour(ticks, ticks, loss, levels=[0.1 * k for k in range(1, 10)], colors="white", linewidths=0.8)
    axes.clabel(lines, fontsize=style.SMALL, fmt="%.1f", manual=[_at(k / 10, 0.86 * most) for k in range(1, 9)])
    arrow = {"arrowstyle": "-|>", "color": "white", "linewidth": 1.6}
    axes.annotate("", (0.5 * most, 0.48 * most), (0.08 * most, 0.48 * most), arrowprops=arrow)
    axes.annotate(
        "the same $R_N$,\na lower loss",
        (0.29 * most, 0.52 * most),
        ha="center",
        va="bottom",
        color="white",
        fontsize=style.SMALL,
        bbox={"facecolor": style.BLACK, "alpha": 0.75, "linewidth": 0, "pad": 2},
    )
    axes.set(xlabel=r"$R_P$: relevant items in front", ylabel=r"$R_N$: irrelevant items in front")
    drawing.colorbar(mesh, ax=axes, label=r"$L_{AP}$ of one relevant item")
    return drawing


def _at(level: float, radius: float) -> tuple[float, float]:
    """(R_P, R_N) at this distance from the origin where L_AP has the value `level`."""
    steep = level / (1 - level)  # R_N = steep (1 + R_P)
    pos = (math.sqrt(radius**2 * (1 + steep**2) - steep**2) - steep**2) / (1 + steep**2)
    return pos, steep * (1 + pos)


@style.styled
def draw_variants(results: Curves) -> Figure:
    """Fig. 3: PNP's losses and their derivatives."""
    drawing = style.figure(style.TWO, 2.3)
    left, right = drawing.subplots(1, 2)
    _lines(left, results, results.losses)
    _lines(right, results, results.slopes)
    left.set(ylabel=r"loss $f(R)$", ylim=(-0.15, 6))
    right.set(ylabel=r"derivative $f'(R)$", ylim=(-0.1, 4.2))
    drawing.legend(*left.get_legend_handles_labels(), loc="outside right center")
    style.letters([left, right])
    return drawing


def _lines(axes: Any, results: Curves, curves: dict[str, Tensor]) -> None:
    for (name, values), colour, dash in zip(curves.items(), style.CYCLE, style.DASHES, strict=True):
        axes.plot(results.above_neg, values, color=colour, linestyle=dash, label=name)
    axes.set_xlabel(r"$R$: irrelevant items in front")


@style.styled
def draw_gradients(results: Curves) -> Figure:
    """Fig. 5: the derivative of AP's loss for several R_P, and that of PNP-Dq, which does not depend on R_P."""
    drawing = style.figure(style.ONE, 2.4)
    axes = drawing.subplots()
    for pos, slope, colour, dash in zip(
        results.above_pos.tolist(), results.ap_slope, style.CYCLE, style.DASHES, strict=False
    ):
        axes.plot(results.above_neg, slope, color=colour, linestyle=dash, label=rf"AP, $R_P$ = {pos:g}")
    axes.plot(results.above_neg, results.slopes[results.shown], color=style.BLACK, linewidth=2.2, label=results.shown)
    axes.set(xlabel=r"$R_N$: irrelevant items in front", ylabel="derivative of the loss")
    axes.legend()
    return drawing
