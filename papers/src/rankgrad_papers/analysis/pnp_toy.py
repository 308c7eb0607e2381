r"""PNP, Fig. 6: a small network on points of the plane shows which PNP losses keep the clusters of a class apart.

A network 2-30-30-2 maps points to the unit circle. Training classes have two clusters each, test classes one. A loss
with a large gradient on every relevant item (O, Iu, Ib) pulls both clusters of a class together and so folds the plane.
A loss that ignores distant relevant items (Dq with a large alpha) need not do this, and unseen classes stay apart.

The paper gives no coordinates. The two layouts, "squares" and "ring", are ours; see figures.yaml.

All runs (variant x seed) are trained at once: their parameters are stacked and independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.common.text import aligned
from rankgrad.losses import PNPLoss
from rankgrad.losses.penalties import Identity, Log, Penalty, Power, Rational, XLog
from rankgrad.metrics import dists_intra, map_at_r, recall_at_k
from rankgrad.ranks import exact_ranks
from rankgrad.ranks.relevance import from_labels

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 150  # per class
SPREAD = 0.25  # standard deviation of a cluster
WIDTH = 30  # of the hidden layers


@dataclass(frozen=True)
class Layout:
    """The clusters of a layout, and its training settings.

    Attributes:
        name: "squares" or "ring".
        train: per class, the centres of its clusters.
        test: per class, the centre of its cluster.
        steps: of Adam.
        rate: its learning rate.
        per_class: points of each of the four classes in a batch.
    """

    name: str
    train: tuple[tuple[tuple[float, float], ...], ...]
    test: tuple[tuple[float, float], ...]
    steps: int
    rate: float
    per_class: int


def _on_circle(degrees: float, radius: float = 3.0) -> tuple[float, float]:
    return radius * math.cos(math.radians(degrees)), radius * math.sin(math.radians(degrees))


LAYOUTS = {
    # class c in a column of its own with a cluster above and one below; unseen classes at the corners of a square
    "squares": Layout(
        "squares",
        tuple(((x, 2.0), (x, -2.0)) for x in (-3.0, -1.0, 1.0, 3.0)),
        ((-2.0, -2.0), (-2.0, 2.0), (2.0, -2.0), (2.0, 2.0)),
        steps=300,
        rate=1e-2,
        per_class=16,
    ),
    # class c in two opposite clusters with the other classes in between; unseen classes in every second gap
    "ring": Layout(
        "ring",
        tuple((_on_circle(45 * c), _on_circle(45 * c + 180)) for c in range(4)),
        tuple(_on_circle(90 * c + 22.5) for c in range(4)),
        steps=400,
        rate=3e-3,
        per_class=8,
    ),
}


def variants(alpha: float = 4.0, b: float = 2.0) -> dict[str, Penalty]:
    """The losses that are compared."""
    return {
        "O": Identity(),
        "Iu": XLog(),
        "Ib": Rational(b),
        "Ds": Log(),
        "Dq, α=1": Power(1.0),
        f"Dq, α={alpha:g}": Power(alpha),
    }


@dataclass(frozen=True, eq=False)
class Toy:
    """The results of one layout.

    Attributes:
        layout: where the clusters are.
        variants: names of the losses.
        seeds: of points, first weights and batches.
        recall: [variant, seed] R@1 on the test classes.
        map_at_r: [variant, seed] mAP@R on the test classes.
        train_recall: [variant, seed] R@1 on the training classes.
        train_intra: [variant, seed] mean cosine distance inside a training class (`metrics.dists_intra`).
        test_intra: [variant, seed] the same on the test classes.
        points: "train" and "test" -> [class, point, 2] points of the first seed.
        angles: "train" and "test" -> [variant, class, point] angles of the first seed's embeddings, radians.
    """

    layout: Layout
    variants: tuple[str, ...]
    seeds: tuple[int, ...]
    recall: Tensor
    map_at_r: Tensor
    train_recall: Tensor
    train_intra: Tensor
    test_intra: Tensor
    points: dict[str, Tensor]
    angles: dict[str, Tensor]

    def __str__(self) -> str:
        """The table: mean and standard deviation over the seeds."""
        columns = {
            "test R@1": self.recall,
            "test mAP@R": self.map_at_r,
            "test intra": self.test_intra,
            "train R@1": self.train_recall,
            "train intra": self.train_intra,
        }
        rows = [[f"{self.layout.name}, {len(self.seeds)} seeds", *columns]]
        for row, name in enumerate(self.variants):
            cells = (f"{v[row].mean():.3f} ± {v[row].std(correction=0):.3f}" for v in columns.values())
            rows.append([f"PNP-{name}", *cells])
        return aligned(rows)


def compute(
    layout: str = "squares",
    *,
    seeds: Sequence[int] = tuple(range(10)),
    losses: Mapping[str, Penalty] | None = None,
    tau: float = 0.01,
    steps: int | None = None,
) -> Toy:
    """Train every variant with every seed, and measure the last network.

    Args:
        layout: a name in `LAYOUTS`.
        seeds: at least one.
        losses: name -> penalty of the irrelevant items above; `variants()` by default.
        tau: temperature of the sigmoid.
        steps: of Adam; the layout's own by default.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
    if not seeds:
        raise ValueError("at least one seed is needed")
    where = LAYOUTS[layout]
    losses = variants() if losses is None else losses
    drawn = [_draw(where, seed) for seed in seeds]
    train = torch.stack([d.train for d in drawn])  # [seed, class, point, 2]
    test = torch.stack([d.test for d in drawn])
    weights = [
        torch.stack([d.weights[k] for d in drawn]).repeat(len(losses), 1, 1).requires_grad_()  # [variant * seed, ...]
        for k in range(len(drawn[0].weights))
    ]
    batches = zip(*(d.batches(where.steps if steps is None else steps) for d in drawn), strict=True)
    _descend(weights, train, batches, list(losses.values()), where, tau)
    with torch.no_grad():
        embedded = {"train": _embed(weights, train, len(losses)), "test": _embed(weights, test, len(losses))}

    values = {
        split: torch.tensor([[_measure(run.flatten(0, 1)) for run in row] for row in runs], dtype=torch.float64)
        for split, runs in embedded.items()
    }
    first = {split: e[:, 0] for split, e in embedded.items()}
    return Toy(
        where,
        tuple(losses),
        tuple(seeds),
        recall=values["test"][..., 0],
        map_at_r=values["test"][..., 1],
        train_recall=values["train"][..., 0],
        train_intra=values["train"][..., 2],
        test_intra=values["test"][..., 2],
        points={"train": train[0], "test": test[0]},
        angles={split: torch.atan2(e[..., 1], e[..., 0]) for split, e in first.items()},
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Everything that one seed decides."""

    train: Tensor  # [class, point, 2]
    test: Tensor
    weights: list[Tensor]  # of each layer: matrix [in, out], offset [1, out]
    generator: torch.Generator
    per_class: int

    def batches(self, steps: int) -> Iterator[Tensor]:
        """[class, slot] distinct points of each class, once per step."""
        for _ in range(steps):
            noise = torch.rand(self.train.shape[:2], generator=self.generator)
            yield noise.topk(self.per_class, dim=1).indices


def _draw(layout: Layout, seed: int) -> _Drawn:
    g = torch.Generator().manual_seed(seed)

    def around(centres: Sequence[Sequence[float]]) -> Tensor:
        """[point, 2] as many points around each centre."""
        repeated = torch.tensor(centres).repeat_interleave(POINTS // len(centres), dim=0)
        return repeated + SPREAD * torch.randn(repeated.shape, generator=g)

    train = torch.stack([around(clusters) for clusters in layout.train])
    test = torch.stack([around([centre]) for centre in layout.test])
    weights = []
    for inputs, outputs in ((2, WIDTH), (WIDTH, WIDTH), (WIDTH, 2)):
        bound = 1 / math.sqrt(inputs)  # torch.nn.Linear's own start
        weights += [bound * (2 * torch.rand(rows, outputs, generator=g) - 1) for rows in (inputs, 1)]
    return _Drawn(train, test, weights, g, layout.per_class)


def _network(weights: Sequence[Tensor], points: Tensor) -> Tensor:
    """[run, point, 2] unit vectors of [run, point, 2] points."""
    hidden = points
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for depth, (matrix, offset) in enumerate(layers):
        hidden = torch.baddbmm(offset, hidden, matrix)
        if depth < len(layers) - 1:
            hidden = hidden.relu()
    return F.normalize(hidden, dim=-1)


def _embed(weights: Sequence[Tensor], points: Tensor, variants: int) -> Tensor:
    """[variant, seed, class, point, 2] embeddings of [seed, class, point, 2]."""
    runs = points.flatten(1, 2).repeat(variants, 1, 1)
    return _network(weights, runs).reshape(variants, *points.shape)


def _descend(
    weights: list[Tensor],
    points: Tensor,
    batches: Iterator[tuple[Tensor, ...]],
    penalties: Sequence[Penalty],
    layout: Layout,
    tau: float,
) -> None:
    """Adam on all runs at once. Adam is elementwise, so the runs are independent."""
    seeds, classes = points.shape[:2]
    size = classes * layout.per_class
    runs = len(penalties) * seeds
    relevant, valid = from_labels(torch.arange(classes).repeat_interleave(layout.per_class))
    assert valid is not None  # a batch against itself: the diagonal is left out
    relevant, valid = relevant.repeat(runs, 1), valid.repeat(runs, 1)
    source = PNPLoss(tau=tau)  # all variants have the same ranks
    optimizer = torch.optim.Adam(weights, lr=layout.rate)
    for chosen in batches:
        index = torch.stack(chosen).unsqueeze(-1).expand(-1, -1, -1, 2)  # [seed, class, slot, 2]
        inputs = points.gather(2, index).flatten(1, 2).repeat(len(penalties), 1, 1)
        embeddings = _network(weights, inputs)
        scores = embeddings @ embeddings.mT
        above = source.ranked(scores.flatten(0, 1), relevant, valid).above_neg.view(len(penalties), -1)
        # all queries have the same number of relevant items, so the mean of a run is the mean over its pairs
        costs = torch.stack([penalty(row).sum() for penalty, row in zip(penalties, above, strict=True)])
        loss = costs.sum() / (size * (layout.per_class - 1))
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        optimizer.step()


def _measure(embeddings: Tensor) -> tuple[float, float, float]:
    """R@1, mAP@R and the distance inside classes, of [point, 2] with `POINTS` points of each class."""
    labels = torch.arange(len(embeddings)) // POINTS
    ranks = exact_ranks(embeddings @ embeddings.T, *from_labels(labels), ties="index")
    return float(recall_at_k(ranks, 1).mean()), float(map_at_r(ranks).mean()), dists_intra(embeddings, labels)


# ----------------------------------------------------------------------------------------------------------- drawing

SEEN = (style.BLUE, style.VERMILION, style.GREEN, style.PURPLE)
UNSEEN = (style.BLACK, style.ORANGE, style.SKY, style.GREY)


@style.styled
def draw(results: Toy) -> Figure:
    """The points, and the first seed's embeddings on the circle: training classes inside, unseen classes outside.

    Each class has its own radius, so that classes at the same angle stay visible.
    """
    panels = 1 + len(results.variants)
    columns = min(panels, 4)
    rows = -(-panels // columns)
    drawing = style.figure(style.TWO * columns / 4, 2.15 * rows + 0.2)
    grid = drawing.subplots(rows, columns, squeeze=False).flatten()
    for axes in grid:
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set_visible(False)
    for split, colours in (("train", SEEN), ("test", UNSEEN)):
        look = _look(split)
        for points, colour in zip(results.points[split], colours, strict=False):
            grid[0].plot(points[:, 0], points[:, 1], color=colour, linestyle="none", **look)
    grid[0].set_title(f"points ({results.layout.name})", loc="center")
    if len(results.seeds) > 1:
        text = f"numbers: the seed drawn\n(mean ± std of {len(results.seeds)} seeds)"
        grid[0].set_xlabel(text, fontsize=style.SMALL, labelpad=1)
    for row, (axes, name) in enumerate(zip(grid[1:], results.variants, strict=False)):
        _circle(axes, results, row)
        # the drawing shows one seed, which may be far from the mean
        lines = (_both("test R@1", results.recall[row]), _both("train intra", results.train_intra[row]))
        axes.set_title(f"PNP-{name}", loc="center")
        axes.set_xlabel("\n".join(lines), fontsize=style.SMALL, labelpad=1)
    for axes in grid[panels:]:
        axes.set_visible(False)
    for letter, axes in zip("abcdefghijklmnopqrstuvwxyz", grid[:panels], strict=False):
        axes.set_title(f"({letter}) {axes.get_title(loc='center')}", loc="center")
    large = {"alpha": 1, "markersize": 5, "linestyle": "none", "color": style.GREY}
    handles = [
        grid[0].plot([], [], label=label, **(_look(split) | large))[0]
        for split, label in (("train", "training classes (inside the circle)"), ("test", "unseen classes (outside)"))
    ]
    drawing.legend(handles=handles, loc="outside lower center", ncols=2)
    return drawing


def _look(split: str) -> dict[str, Any]:
    face = {"markerfacecolor": "none"} if split == "test" else {}
    return {"marker": "^" if split == "test" else "o", "markersize": 2.0, "markeredgewidth": 0.4, "alpha": 0.55} | face


def _both(name: str, values: Tensor) -> str:
    """The value of the seed that is drawn and, if there are more, mean and standard deviation of all."""
    shown = f"{name} {values[0]:.2f}"
    return shown if len(values) < 2 else f"{shown} ({values.mean():.2f} ± {values.std(correction=0):.2f})"


def _circle(axes: Any, results: Toy, row: int) -> None:
    whole = torch.linspace(0, 2 * math.pi, 200)
    axes.plot(whole.cos(), whole.sin(), color=style.PALE, linewidth=1, zorder=0)
    for split, colours, radius, step in (("train", SEEN, 0.92, -0.09), ("test", UNSEEN, 1.08, 0.09)):
        for c, (angles, colour) in enumerate(zip(results.angles[split][row], colours, strict=False)):
            r = radius + c * step
            axes.plot(r * angles.cos(), r * angles.sin(), color=colour, linestyle="none", **_look(split))
    axes.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45))
