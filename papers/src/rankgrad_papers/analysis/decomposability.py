r"""ROADMAP, Figs. 1b, 9, 10, eqs. 6, 8, 9 and table 9: the gap between AP inside batches and AP over all items.

Three studies. `example`: two batches that are each ranked perfectly, but whose union is not, and the effect of
calibrated scores. `bounds`: the gap of eq. 6 and its bounds, eqs. 8 and 9, over random draws. `gaps`: the gap of each
query of a test set; table 9 has the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.evaluation import evaluate
from rankgrad.metrics import average_precision, decomposability_bound, decomposability_gap
from rankgrad.ranks import computed

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# --------------------------------------------------------------------------------------- Figs. 1b, 9, 10: an example


@dataclass(frozen=True, eq=False)
class Example:
    """Batches of one query, and the AP of each and of all.

    Attributes:
        scores: [item] float64.
        relevant: [item] bool.
        batch: [item] long.
        batch_ap: AP inside each batch.
        ap: AP over all items.
        alpha: threshold; relevant scores should be above it.
        beta: threshold; irrelevant scores should be below it.
        bound: bound of the gap by eq. 8.
        calibrated_bound: bound of the gap by eq. 9.
    """

    scores: Tensor
    relevant: Tensor
    batch: Tensor
    batch_ap: tuple[float, ...]
    ap: float
    alpha: float
    beta: float
    bound: float
    calibrated_bound: float

    @property
    def gap(self) -> float:
        """Mean of the batches' AP - AP of all (eq. 6)."""
        return sum(self.batch_ap) / len(self.batch_ap) - self.ap

    def __str__(self) -> str:
        """AP of batches and of all, the gap and its bounds."""
        inside = ", ".join(f"{ap:.4f}" for ap in self.batch_ap)
        return (
            f"AP in the batches {inside}; of all {self.ap:.4f}; gap {self.gap:.4f}; "
            f"bounds {self.bound:.4f} (eq. 8), {self.calibrated_bound:.4f} (eq. 9)"
        )


# Scores of the relevant and of the irrelevant items of each batch. All three have AP 1 in both batches.
EXAMPLES: dict[str, tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]] = {
    # batches one behind the other: the bound of eq. 8 is attained
    "worst": (((0.95, 0.90, 0.85), (0.75, 0.70, 0.65)), ((0.45, 0.40, 0.35), (0.25, 0.20, 0.15))),
    # all but one relevant and one irrelevant score calibrated: the gap is small
    "partly": (((0.97, 0.94, 0.91), (0.83, 0.40, 0.20)), ((0.95, 0.92, 0.75), (0.55, 0.45, 0.25))),
    # relevant above alpha, irrelevant below beta: no gap
    "calibrated": (((0.97, 0.94, 0.91), (0.55, 0.40, 0.20)), ((0.98, 0.95, 0.92), (0.58, 0.45, 0.25))),
}


def example(which: str = "worst", *, alpha: float = 0.9, beta: float = 0.6) -> Example:
    """One of `EXAMPLES`: Fig. 1b and Fig. 10 show "worst", Fig. 9 "partly" and "calibrated".

    >>> worst = example("worst")
    >>> worst.batch_ap, round(worst.ap, 3), round(worst.gap, 3), round(worst.bound, 3)
    ((1.0, 1.0), 0.811, 0.189, 0.189)
    """
    if which not in EXAMPLES:
        raise ValueError(f"unknown example {which!r}; known: {', '.join(EXAMPLES)}")
    scores, relevant, batch = [], [], []
    for number, (good, bad) in enumerate(EXAMPLES[which]):
        scores += [*good, *bad]
        relevant += [True] * len(good) + [False] * len(bad)
        batch += [number] * (len(good) + len(bad))
    drawn = Batches(torch.tensor(scores, dtype=torch.float64), torch.tensor(relevant), torch.tensor(batch))
    inside = [drawn.batch == b for b in range(len(EXAMPLES[which]))]
    batch_ap = tuple(average_precision(drawn.scores[i][None], drawn.relevant[i][None]).item() for i in inside)
    ap = average_precision(drawn.scores[None], drawn.relevant[None]).item()
    return Example(
        drawn.scores,
        drawn.relevant,
        drawn.batch,
        batch_ap,
        ap,
        alpha,
        beta,
        drawn.bound(),
        drawn.calibrated_bound(alpha, beta),
    )


@style.styled
def draw_examples(results: Sequence[Example]) -> Figure:
    """A column per example: its batches on the axis of scores, and their union below."""
    drawing = style.figure(style.ONE if len(results) == 1 else style.TWO, examples_height(results))
    examples_onto(drawing, results)
    return drawing


def examples_height(results: Sequence[Example]) -> float:
    """Inches that `examples_onto` needs."""
    return 0.5 * max(len(r.batch_ap) for r in results) + 1.45


def examples_onto(drawing: Any, results: Sequence[Example]) -> None:
    """Draw the examples on a figure, or on part of one."""
    panels = []
    for axes, result in zip(drawing.subplots(1, len(results), squeeze=False)[0], results, strict=True):
        _columns(axes, result)
        panels.append(axes)
    if len(panels) > 1:
        style.letters(panels)
    handles = [
        axes.plot([], [], "o", color=style.RELEVANT, label="relevant")[0],
        axes.plot([], [], "s", color=style.IRRELEVANT, markerfacecolor="white", label="irrelevant")[0],
    ]
    drawing.legend(handles=handles, loc="outside lower center", ncols=2)


def _columns(axes: Any, result: Example) -> None:
    batches = len(result.batch_ap)
    everything = torch.ones_like(result.relevant)
    rows = [(f"batch {b + 1}: AP = {ap:.2f}", result.batch == b, batches - b) for b, ap in enumerate(result.batch_ap)]
    for text, members, height in [*rows, (f"all: AP = {result.ap:.2f}", everything, 0)]:
        axes.axhline(height, color=style.PALE, zorder=0)
        for good, marker in ((True, "o"), (False, "s")):
            x = result.scores[members & (result.relevant == good)]
            colour = style.RELEVANT if good else style.IRRELEVANT
            face = colour if good else "white"
            axes.plot(x, [height] * len(x), marker, color=colour, markerfacecolor=face, linestyle="none", markersize=5)
        axes.annotate(text, (0.01, height + 0.22))
    for value, name in ((result.alpha, r"$\alpha$"), (result.beta, r"$\beta$")):
        axes.axvline(value, color=style.GREY, linewidth=0.8, linestyle=":", zorder=0)
        place = (value, batches + 0.5)
        axes.annotate(name, place, (3, 0), textcoords="offset points", color=style.GREY)
    axes.set(xlim=(0, 1), ylim=(-0.4, batches + 0.8), yticks=[], xlabel="score")
    axes.spines["left"].set_visible(False)
    axes.set_title(f"gap {abs(result.gap):.2f}; bounds: eq. 8 {result.bound:.2f}, eq. 9 {result.calibrated_bound:.2f}")


# ------------------------------------------------------------------------------------------ eqs. 6, 8, 9: random draws


@dataclass(frozen=True, eq=False)
class Batches:
    """The items of one query, in batches.

    Attributes:
        scores: [item] float64.
        relevant: [item] bool.
        batch: [item] long, 0 .. K - 1.
    """

    scores: Tensor
    relevant: Tensor
    batch: Tensor

    def _counts(self, which: Tensor) -> list[int]:
        """How many of `which` are in each batch."""
        return torch.bincount(self.batch[which], minlength=int(self.batch.max()) + 1).tolist()

    def gap(self) -> float:
        """Eq. 6."""
        return float(decomposability_gap(self.scores[None], self.relevant[None], self.batch))

    def bound(self, order: Any = "worst") -> float:
        """Eq. 8."""
        return decomposability_bound(self._counts(self.relevant), self._counts(~self.relevant), order=order)

    def calibrated_bound(self, alpha: float, beta: float, order: Any = "worst") -> float:
        """Eq. 9."""
        good, wrong = self.relevant & (self.scores >= alpha), ~self.relevant & (self.scores > beta)
        return decomposability_bound(
            self._counts(self.relevant),
            self._counts(~self.relevant),
            above_alpha=self._counts(good),
            above_beta=self._counts(wrong),
            order=order,
        )


def perfect_batches(
    rng: np.random.Generator, sizes: Sequence[tuple[int, int]], thresholds: tuple[float, float] = (0.0, 1.0)
) -> Batches:
    """A query's scores with AP 1 in every batch, as eqs. 8 and 9 require [ours].

    Every batch has its own threshold. Its relevant scores are uniform between the threshold and 1, its irrelevant
    scores between 0 and the threshold. Bounds with the worst order hold for any draw. How often a given order violates
    them, and how often eq. 9 is tighter, depends on the distribution. This one was chosen among several, because its
    rates are similar to earlier results. With scores uniform in a random interval per batch, eq. 9 is tighter in only
    73 % (alpha .7, beta .5, equal batches).

    Args:
        rng: random generator.
        sizes: (relevant, irrelevant) items of each batch.
        thresholds: range of the thresholds. With a narrower range, the scores of the batches agree better.
    """
    scores, relevant, batch = [], [], []
    for number, (good, bad) in enumerate(sizes):
        threshold = rng.uniform(*thresholds)
        scores += [rng.uniform(threshold, 1, good), rng.uniform(0, threshold, bad)]
        relevant += [True] * good + [False] * bad
        batch += [number] * (good + bad)
    return Batches(torch.from_numpy(np.concatenate(scores)), torch.tensor(relevant), torch.tensor(batch))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Gaps and their bounds over random draws with AP 1 in every batch.

    Attributes:
        sizes: "equal": all batches have equally many relevant items; "unequal".
        gaps: [draw] eq. 6.
        bound: [draw] eq. 8, worst order of the batches.
        given: [draw] eq. 8, in the order drawn.
        calibrated: [draw] eq. 9, worst order.
        calibrated_given: [draw] eq. 9, in the order drawn.
    """

    sizes: str
    gaps: Tensor
    bound: Tensor
    given: Tensor
    calibrated: Tensor
    calibrated_given: Tensor

    @property
    def violations(self) -> dict[str, int]:
        """Number of gaps above each bound (by more than rounding)."""
        bounds = {
            "eq. 8, worst order": self.bound,
            "eq. 8, given order": self.given,
            "eq. 9, worst order": self.calibrated,
            "eq. 9, given order": self.calibrated_given,
        }
        return {name: int((self.gaps > bound + 1e-12).sum()) for name, bound in bounds.items()}

    @property
    def tighter(self) -> float:
        """Fraction of the draws in which eq. 9 is at most eq. 8, both with the worst order."""
        return float((self.calibrated <= self.bound + 1e-12).double().mean())

    def __str__(self) -> str:
        """Violations, and how tight the bounds are."""
        counts = "; ".join(f"{name}: {count}" for name, count in self.violations.items())
        return (
            f"{len(self.gaps)} draws, {self.sizes} batches. Above the bound: {counts}. Eq. 9 at most eq. 8 in "
            f"{self.tighter:.1%}. Means: gap {self.gaps.mean():.3f}, eq. 8 {self.bound.mean():.3f}, "
            f"eq. 9 {self.calibrated.mean():.3f}"
        )


def bounds(
    sizes: str = "equal",
    *,
    draws: int = 4000,
    batches: int = 3,
    alpha: float = 0.9,
    beta: float = 0.6,
    thresholds: tuple[float, float] = (0.0, 1.0),
    seed: int = 0,
) -> Bounds:
    """Draw random batches and compare their gaps with the bounds.

    No gap exceeds a bound with the worst order: this is a result. The other rates depend on the distribution.

    Args:
        sizes: 1 .. 6 relevant and 1 .. 10 irrelevant items; "equal": the same numbers in every batch; "unequal": drawn
            for each batch.
        draws: number of draws.
        batches: K, at most 7 (all orders are tried).
        alpha: of eq. 9.
        beta: of eq. 9, below alpha.
        thresholds: see `perfect_batches`.
        seed: of all random numbers.
    """
    if sizes not in ("equal", "unequal"):
        raise ValueError(f"sizes must be 'equal' or 'unequal'; got {sizes!r}")
    if not 1 <= batches <= 7:
        raise ValueError(f"batches must be 1 .. 7, since all their orders are tried; got {batches}")
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(draws):
        drawn = [(int(rng.integers(1, 7)), int(rng.integers(1, 11))) for _ in range(batches)]
        batch = perfect_batches(rng, drawn[:1] * batches if sizes == "equal" else drawn, thresholds)
        rows.append(
            (
                batch.gap(),
                batch.bound(),
                batch.bound("given"),
                batch.calibrated_bound(alpha, beta),
                batch.calibrated_bound(alpha, beta, "given"),
            )
        )
    return Bounds(sizes, *torch.tensor(rows, dtype=torch.float64).T)


@style.styled
def draw_bounds(results: Bounds) -> Figure:
    """Every draw as a point: the gap against eq. 8 and against eq. 9, both in their worst order."""
    drawing = style.figure(style.TWO, 3.4)
    panels = drawing.subplots(1, 2, sharex=True, sharey=True)
    for axes, bound, equation, colour in zip(
        panels, (results.bound, results.calibrated), (8, 9), (style.BLUE, style.PURPLE), strict=True
    ):
        name = f"eq. {equation}, worst order"
        top = float(torch.maximum(results.bound, results.calibrated).max()) * 1.05
        axes.plot([0, top], [0, top], color=style.BLACK, linewidth=0.9, linestyle="--")
        axes.plot(bound, results.gaps, ".", color=colour, markersize=3, alpha=0.35, rasterized=True)
        axes.set(xlabel=f"bound of eq. {equation}, worst order", aspect="equal")
        axes.set_title(f"{results.violations[name]} of {len(results.gaps)} above the bound")
    panels[0].set_ylabel("gap (eq. 6)")
    style.letters(panels)
    return drawing


# -------------------------------------------------------------------------------------- table 9: two sets of embeddings


def class_batches(labels: Tensor, batch_size: int = 64, per_class: int = 4, seed: int = 0) -> Tensor:
    """[image] number of its batch. Every image is in one batch, with `per_class` images of each class of the batch.

    Each class is divided into random groups of `per_class`. Its groups go to the emptiest batches, largest class first.
    So batches are equally full, and no batch has two groups of a class, unless a class has more groups than there are
    batches.

    >>> class_batches(torch.arange(4).repeat_interleave(4), batch_size=8).bincount()
    tensor([8, 8])
    """
    if per_class < 1 or batch_size < per_class or batch_size % per_class:
        raise ValueError(f"batch_size must be a multiple of per_class, both >= 1; got {batch_size}, {per_class}")
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels.cpu().numpy() == c) for c in torch.unique(labels).tolist()]
    groups = [-(-len(members) // per_class) for members in classes]
    load = np.zeros(-(-sum(groups) * per_class // batch_size), dtype=np.int64)
    batch = torch.empty(len(labels), dtype=torch.long)
    # ties, among classes and among batches, are broken at random
    for c in np.lexsort((rng.random(len(classes)), -np.array(groups))):
        emptiest = np.lexsort((rng.random(len(load)), load))
        target = np.resize(emptiest, groups[c])  # a class with more groups than batches starts again at the first
        np.add.at(load, target, 1)
        batch[rng.permutation(classes[c])] = torch.from_numpy(np.repeat(target, per_class)[: len(classes[c])])
    return batch


def gaps(embeddings: Tensor, labels: Tensor, batch: Tensor) -> Tensor:
    """[query] gap (eq. 6) of every image as a query; NaN if it has no relevant image, or none in any batch.

    The result equals `metrics.decomposability_gap` on the whole score matrix without the query itself. It is faster: a
    query is compared only with the batches that hold its class, and the AP over all images is computed in blocks.

    Args:
        embeddings: [image, dim] float.
        labels: [image] long.
        batch: [image] long.
    """
    return _inside(embeddings, labels, batch) - _over_all(embeddings, labels)


def _over_all(embeddings: Tensor, labels: Tensor) -> Tensor:
    report = evaluate(embeddings, labels, intervals=0)
    ap = torch.from_numpy(report.per_query["AP"]).clone()
    ap[torch.from_numpy(report.without_relevant)] = torch.nan
    return ap


def _inside(embeddings: Tensor, labels: Tensor, batch: Tensor) -> Tensor:
    """[query] mean AP over the batches that have a relevant image; NaN if none has."""
    unit = F.normalize(computed(embeddings.detach()), dim=1)
    labels, batch = labels.to(unit.device), batch.to(unit.device)
    order = labels.argsort(stable=True)
    sorted_labels = labels[order].contiguous()
    total = unit.new_zeros(len(labels), dtype=torch.float64)
    count = torch.zeros_like(labels)
    for members in torch.split(batch.argsort(stable=True), batch.bincount().tolist()):
        here = torch.unique(labels[members])
        low, high = torch.searchsorted(sorted_labels, here), torch.searchsorted(sorted_labels, here, right=True)
        queries = torch.cat([order[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)])
        relevant = labels[queries].unsqueeze(1) == labels[members]
        other = queries.unsqueeze(1) != members
        counted = (relevant & other).any(1)
        total[queries] += average_precision(unit[queries] @ unit[members].T, relevant, other)
        count[queries] += counted
    return torch.where(count > 0, total / count.clamp(min=1), torch.nan).cpu()
