r"""The papers' sketches, computed from numbers: PNP's Figs. 2 and 4, and ROADMAP's Fig. 2.

* PNP, Fig. 2: a ranked list. Every relevant item behind an irrelevant one pushes it back, with the strength of the
  variant's f'(R) at that relevant item: increasing for PNP-I, decreasing for PNP-D.
* PNP, Fig. 4: a class of two clusters with another class between them, as unit vectors in a plane. The force between
  two relevant items is f'(R), where R is the number of nearer irrelevant items. PNP-I pulls most across the other
  class, PNP-D within a cluster.
* ROADMAP, Fig. 2: from a query's scores to the loss. Irrelevant items are counted by H^-, relevant ones by H^+, and the
  calibration adds a cost of absolute scores.

The lists, angles and scores are ours; the papers give no numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankgrad.losses import CalibrationLoss, SupAPLoss
from rankgrad.losses.penalties import Penalty, Power, Rational
from rankgrad.ranks.relaxations import Heaviside, SupStep

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fig. 2: (a) to (f), best score first; (a) and (e) are irrelevant, and (f) is the relevant item at the end.
NAMES = "abcdef"
RELEVANT = (False, True, True, True, False, True)
VARIANTS: dict[str, Penalty] = {"PNP-Ib": Rational(2.0), "PNP-Dq": Power(2.0)}


@dataclass(frozen=True, eq=False)
class Pushes:
    """A ranked list and the forces of each variant on it.

    Attributes:
        relevant: [item] bool, best score first.
        behind: [item] number of relevant items behind an irrelevant one; 0 for relevant items.
        front: [item] number of irrelevant items in front of a relevant one; 0 for irrelevant items.
        pull: name of a variant -> [item] f'(R) of relevant items, the force that pulls them to the front.
        push: name of a variant -> [item] sum of f'(R) over the relevant items behind an irrelevant one.
    """

    relevant: Tensor
    behind: Tensor
    front: Tensor
    pull: dict[str, Tensor]
    push: dict[str, Tensor]

    def __str__(self) -> str:
        """A line per item."""
        lines = []
        for item, name in enumerate(NAMES):
            kind = "relevant" if self.relevant[item] else "irrelevant"
            forces = (self.pull if self.relevant[item] else self.push).items()
            numbers = ", ".join(f"{variant} {values[item]:.2f}" for variant, values in forces)
            lines.append(f"({name}) {kind:<10} {numbers}")
        return "\n".join(lines)


def pushes() -> Pushes:
    """PNP, Fig. 2.

    >>> found = pushes()
    >>> found.behind.tolist()    # (a) stands before all four relevant items, (e) before one
    [4, 0, 0, 0, 1, 0]
    """
    relevant = torch.tensor(RELEVANT)
    front = torch.where(relevant, (~relevant).cumsum(0), 0)
    behind = torch.where(relevant, 0, relevant.flip(0).cumsum(0).flip(0))
    pull, push = {}, {}
    for name, penalty in VARIANTS.items():
        count = front.double().requires_grad_()
        (slope,) = torch.autograd.grad(penalty(count).sum(), count)
        pull[name] = torch.where(relevant, slope, 0.0)
        push[name] = torch.where(relevant, 0.0, pull[name].flip(0).cumsum(0).flip(0))
    return Pushes(relevant, behind, front, pull, push)


@style.styled
def draw_pushes(results: Pushes) -> Figure:
    """The list, and under it a bar of each variant for every item."""
    drawing = style.figure(style.TWO, 2.5)
    panels = drawing.subplots(1, len(results.pull))
    places = torch.arange(len(NAMES))
    for axes, name in zip(panels, results.pull, strict=True):
        for item in range(len(NAMES)):
            good = bool(results.relevant[item])
            height = float((results.pull if good else results.push)[name][item])
            axes.bar(
                item,
                height if good else -height,
                color=style.RELEVANT if good else "none",
                edgecolor=style.RELEVANT if good else style.IRRELEVANT,
                linewidth=1.4,
                label=("relevant: to the front" if good else "irrelevant: to the back") if item < 2 else None,
            )
        axes.axhline(0, color=style.BLACK, linewidth=0.7)
        axes.set_xticks(places.tolist(), [f"({letter})" for letter in NAMES])
        axes.set(xlabel="ranked list, best score first", title=name)
        reach = max(abs(float(values.max())) for values in (results.pull[name], results.push[name]))
        axes.set_ylim(-1.15 * reach, 1.15 * reach)
    panels[0].set_ylabel("gradient of a count, $f'(R)$")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    style.letters(panels)
    return drawing


@dataclass(frozen=True, eq=False)
class Clusters:
    """Unit vectors in a plane, and the forces between relevant ones.

    Attributes:
        angle: [item] degrees from the middle.
        label: [item] 0: the class of two clusters; 1: the class between them.
        within: name of a variant -> mean f'(R) of relevant pairs in one cluster.
        across: name of a variant -> mean f'(R) of relevant pairs in different clusters.
    """

    angle: Tensor
    label: Tensor
    within: dict[str, float]
    across: dict[str, float]

    def __str__(self) -> str:
        """A line per variant."""
        return "\n".join(
            f"{name}: f'(R) {self.within[name]:.3f} within a cluster, {self.across[name]:.3f} across"
            for name in self.within
        )


def clusters(spread: float = 55.0, width: float = 6.0) -> Clusters:
    """PNP, Fig. 4: class b at both sides of class y.

    Args:
        spread: degrees from the middle to either cluster of b.
        width: degrees between neighbours of a cluster.

    >>> found = clusters()
    >>> found.across["PNP-Ib"] > found.within["PNP-Ib"], found.across["PNP-Dq"] < found.within["PNP-Dq"]
    (True, True)
    """
    offsets = width * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    angle = torch.cat([-spread + offsets, spread + offsets, torch.linspace(-24, 24, 9, dtype=torch.float64)])
    label = torch.tensor([0] * 6 + [1] * 9)
    own = angle[label == 0]
    apart = (own.unsqueeze(1) - own).abs()  # [query, relevant item]
    nearer = ((own.unsqueeze(1) - angle[label == 1]).abs().unsqueeze(1) < apart.unsqueeze(2)).sum(2)
    same = own.sign().unsqueeze(1) == own.sign()
    others = ~torch.eye(len(own), dtype=torch.bool)
    within, across = {}, {}
    for name, penalty in VARIANTS.items():
        count = nearer.double().requires_grad_()
        (slope,) = torch.autograd.grad(penalty(count).sum(), count)
        within[name], across[name] = float(slope[same & others].mean()), float(slope[~same].mean())
    return Clusters(angle, label, within, across)


@style.styled
def draw_clusters(results: Clusters) -> Figure:
    """An arc of the unit circle for each variant; the length of the arrows is the force between the clusters."""
    drawing = style.figure(style.TWO, 2.2)
    panels = drawing.subplots(1, len(results.across))
    x, y = torch.sin(results.angle * math.pi / 180), torch.cos(results.angle * math.pi / 180)
    for axes, name in zip(panels, results.across, strict=True):
        for label, colour, mark, face in ((0, style.BLUE, "o", style.BLUE), (1, style.ORANGE, "s", "none")):
            chosen = results.label == label
            what = "class b, two clusters" if label == 0 else "class y, between them"
            axes.scatter(x[chosen], y[chosen], s=26, marker=mark, facecolors=face, edgecolors=colour, label=what)
        strongest = max(results.within[name], results.across[name])
        across, within = results.across[name] / strongest, results.within[name] / strongest
        place, reach = float(x[1]), 0.55 * across
        for side in (1, -1):
            if reach > 0.02:
                arrow = {"arrowstyle": "-|>", "color": style.BLACK, "linewidth": 1.4}
                start = side * (place + 0.12)
                axes.annotate("", (start + side * reach, 0.52), (start, 0.52), arrowprops=arrow)
        text = f"across: {results.across[name]:.2g}\nwithin: {results.within[name]:.2g}"
        axes.text(0, 0.68, text, ha="center", va="center", fontsize=style.SMALL)
        if within > 0.02:
            for side in (1, -1):
                axes.text(side * place, 0.28, "kept\ntogether", ha="center", va="center", fontsize=style.SMALL)
        axes.set(title=f"{name}: $f'(R)$", xlim=(-1.15, 1.15), ylim=(0.12, 1.15), xticks=[], yticks=[])
        axes.set_aspect("equal")
        for edge in axes.spines.values():
            edge.set_visible(False)
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    style.letters(panels)
    return drawing


@dataclass(frozen=True, eq=False)
class Path:
    """From a query's scores to ROADMAP's loss.

    Attributes:
        scores: [item] cosines.
        relevant: [item] bool.
        diff: [point] score differences.
        steps: name -> [point] value of the step at a difference.
        cosine: [point] scores.
        costs: name -> [point] calibration cost of a score.
        supap, calibration: the two losses of the query.
    """

    scores: Tensor
    relevant: Tensor
    diff: Tensor
    steps: dict[str, Tensor]
    cosine: Tensor
    costs: dict[str, Tensor]
    supap: float
    calibration: float

    def __str__(self) -> str:
        """Both losses and their mean."""
        return (
            f"SupAP {self.supap:.3f}, calibration {self.calibration:.3f}; ROADMAP with λ = 0.5: "
            f"{(self.supap + self.calibration) / 2:.3f}"
        )


def path() -> Path:
    """ROADMAP, Fig. 2, with the losses' own defaults."""
    scores = torch.tensor([0.93, 0.84, 0.78, 0.66, 0.58, 0.41], dtype=torch.float64)
    relevant = torch.tensor([True, False, True, True, False, False])
    diff = torch.linspace(-0.12, 0.12, 241, dtype=torch.float64)
    cosine = torch.linspace(0.3, 1, 141, dtype=torch.float64)
    calibration = CalibrationLoss()
    costs = {
        "relevant": (calibration.alpha - cosine).clamp(min=0),
        "irrelevant": (cosine - calibration.beta).clamp(min=0),
    }
    steps = {"H⁺, relevant items": Heaviside()(diff), "H⁻, irrelevant items": SupStep()(diff)}
    both = [float(loss.from_scores(scores[None], relevant[None])) for loss in (SupAPLoss(), calibration)]
    return Path(scores, relevant, diff, steps, cosine, costs, *both)


@style.styled
def draw_path(results: Path) -> Figure:
    """The scores, the steps that count them, and their calibration costs."""
    drawing = style.figure(style.TWO, 2.2)
    first, second, third = drawing.subplots(1, 3)
    for good in (True, False):
        chosen = results.relevant == good
        colour = style.RELEVANT if good else style.IRRELEVANT
        look: dict[str, Any] = {"facecolors": colour if good else "none", "edgecolors": colour}
        name = "relevant" if good else "irrelevant"
        first.scatter(results.scores[chosen], [0] * int(chosen.sum()), s=40, label=name, **look)
    first.set(title="scores of a query", xlabel="cosine $s$", yticks=[], ylim=(-1, 1), xlim=(0.3, 1))
    first.legend(loc="upper left")
    for (name, values), colour, dash in zip(
        results.steps.items(), (style.RELEVANT, style.IRRELEVANT), style.DASHES, strict=False
    ):
        second.plot(results.diff, values, color=colour, linestyle=dash, label=name)
    second.set(title=f"counted: SupAP {results.supap:.2f}", xlabel="$s_j - s_k$", ylim=(-0.3, 13))
    second.legend(loc="upper left")
    for (name, values), colour, dash in zip(
        results.costs.items(), (style.RELEVANT, style.IRRELEVANT), style.DASHES, strict=False
    ):
        third.plot(results.cosine, values, color=colour, linestyle=dash, label=name)
    third.set(title=f"calibrated: {results.calibration:.2f}", xlabel="cosine $s$", ylabel="cost")
    third.legend(loc="upper right")
    style.letters([first, second, third])
    return drawing
