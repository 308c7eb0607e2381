r"""RaMBO, Figs. 1, 5, 6: a linear function of ranks over a plane of score space, and its differentiable versions.

f(w) = a . rk(w) / n is piecewise constant. The gradient of Algorithm 1 is that of the interpolation (Vlastelica et al.,
ICLR 2020), with y = rk(w) / n, y_lambda = rk(w + lambda a) / n and c(w, y) = w . y:
    f_lambda(w) = a . y_lambda - (1 / lambda) [c(w, y) - c(w, y_lambda)]
                = (1 / lambda) [min_y {w . y + lambda a . y} - min_y w . y].
It is never above f and never below the minimum of f. Other versions replace the ranks: FastAP's soft bins, a trained
sorter.

The papers give neither seed nor scale. Ours are n = 20, w0 = n U(0, 1)^n (mean gap 1), a ~ N(0, 1)^n, two orthonormal
random directions, both coordinates in [-5, 5]. Planes differ: f_0.5 is .067 below f on average over the plane of seed
0, and between .11 and .33 over those of seeds 1 to 19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from rankgrad.losses.histogram import soft_histogram
from rankgrad.ranks import blackbox_rank

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# scores [point, item] -> ranks [point, item]: 1 for the largest score, n for the lowest
Sorter = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Plane:
    """A section through score space, and the function on it.

    Attributes:
        scores: [point, item] float64, w at the points of the grid; the second coordinate runs fastest.
        weights: [item] a.
        axis: [tick] values of both coordinates.
    """

    scores: Tensor
    weights: Tensor
    axis: Tensor

    @property
    def items(self) -> int:
        """Number of scores, n."""
        return len(self.weights)

    @property
    def lowest(self) -> float:
        """Minimum of f over all rankings: the largest weight gets the best rank."""
        places = torch.arange(1, self.items + 1, dtype=torch.float64) / self.items
        return float(self.weights.sort(descending=True).values @ places)


@dataclass(frozen=True, eq=False)
class Landscapes:
    """Surfaces over one plane.

    Attributes:
        plane: the plane.
        surfaces: name -> [tick, tick] values; the first is the exact function.
    """

    plane: Plane
    surfaces: dict[str, Tensor]

    def __str__(self) -> str:
        """Mean difference of each surface from the exact one, and its range."""
        first = next(iter(self.surfaces.values()))
        return "\n".join(
            f"{name:<18} below the exact one by {float((first - values).mean()):+.3f}; "
            f"range {float(values.max() - values.min()):.3f}"
            for name, values in self.surfaces.items()
        )


def plane(items: int = 20, *, ticks: int = 121, reach: float = 5.0, seed: int = 0) -> Plane:
    """A random plane and a random function.

    Args:
        items: n.
        ticks: of the grid along each coordinate.
        reach: largest coordinate, in mean gaps between scores.
        seed: of all random numbers.
    """
    rng = np.random.default_rng(seed)
    origin, weights = (torch.from_numpy(drawn) for drawn in (items * rng.random(items), rng.standard_normal(items)))
    directions = torch.linalg.qr(torch.from_numpy(rng.standard_normal((items, 2))))[0]
    axis = torch.linspace(-reach, reach, ticks, dtype=torch.float64)
    return Plane(origin + torch.cartesian_prod(axis, axis) @ directions.T, weights, axis)


def exact(scores: Tensor, weights: Tensor) -> Tensor:
    """[point] f(w) = a . rk(w) / n."""
    return blackbox_rank(scores, 1.0, normalized=True) @ weights


def interpolated(scores: Tensor, weights: Tensor, lambda_: float) -> Tensor:
    """[point] f_lambda(w); lambda is for normalised ranks.

    >>> w, a = torch.tensor([[0.0, 1.0], [0.0, 9.0]]), torch.tensor([1.0, -1.0])
    >>> exact(w, a).tolist(), interpolated(w, a, 1.0).tolist()  # lambda a closes a gap of 1, and not one of 9
    ([0.5, 0.5], [0.0, 0.5])
    """
    if not lambda_ > 0:
        raise ValueError(f"lambda_ is the size of the perturbation and must be > 0; got {lambda_}")
    here = blackbox_rank(scores, 1.0, normalized=True)
    there = blackbox_rank(scores + lambda_ * weights, 1.0, normalized=True)
    return there @ weights - ((here - there) * scores).sum(-1) / lambda_


def soft_bin_ranks(scores: Tensor, bins: int, low: float | None = None, high: float | None = None) -> Tensor:
    r"""[point, item] ranks by FastAP's soft bins: sum_l delta_l(w_i) sum_{m >= l} sum_j delta_m(w_j).

    delta_l(x) = max(0, 1 - |x - z_l| / D) around bins + 1 centres z_l from low to high, D apart. It equals the exact
    rank if all scores are at different centres.

    Args:
        scores: [point, item].
        bins: number of bins between low and high.
        low: lowest centre; None: the lowest score anywhere.
        high: highest centre; None: the highest score anywhere.

    >>> soft_bin_ranks(torch.tensor([[0.0, 1.0, 2.0]]), 2)
    tensor([[3., 2., 1.]])
    """
    low = float(scores.min()) if low is None else low
    high = float(scores.max()) if high is None else high
    if not (low < high and bins >= 1):
        raise ValueError(f"need bins >= 1 and low < high; got bins={bins}, low={low}, high={high}")
    position = (high - scores).clamp(0, high - low) * (bins / (high - low))  # best scores first
    counts = soft_histogram(position, torch.ones_like(scores), bins + 1).cumsum(1)
    first = position.floor().clamp(max=bins - 1)
    share = position - first
    index = first.long()
    return (1 - share) * counts.gather(1, index) + share * counts.gather(1, index + 1)


def surfaces(
    over: Plane, *, lambdas: Sequence[float] = (), bins: Sequence[int] = (), sorters: Mapping[str, Sorter] | None = None
) -> Landscapes:
    """The exact function and relaxations of it.

    Args:
        over: the plane.
        lambdas: of the interpolations.
        bins: numbers of FastAP's bins over the range of the scores on the whole plane.
        sorters: name -> function from scores to ranks, e.g. a trained sorter (SoDeep). It maps the scores to its
            training range by itself, and returns ranks 1 .. n, not divided by n.
    """
    by_function = {"exact": exact(over.scores, over.weights)}
    for lambda_ in lambdas:
        by_function[f"blackbox, λ={lambda_:g}"] = interpolated(over.scores, over.weights, lambda_)
    others: dict[str, Sorter] = dict(sorters or {})
    for number in bins:
        others[f"soft bins, {number}"] = partial(soft_bin_ranks, bins=number)
    for name, sorter in others.items():
        ranks = sorter(over.scores)
        if ranks.shape != over.scores.shape:
            raise ValueError(
                f"sorter {name!r} must give a rank for each of {tuple(over.scores.shape)} scores [point, item]; "
                f"got {tuple(ranks.shape)}"
            )
        by_function[name] = ranks.detach().to(over.scores.dtype) / over.items @ over.weights
    ticks = len(over.axis)
    return Landscapes(over, {name: values.reshape(ticks, ticks) for name, values in by_function.items()})


def learned(items: int = 20) -> Mapping[str, Sorter]:
    """{"SoDeep": sorter} for lists of `items` scores, if it is stored (`rankgrad sodeep train --items 20`); else {}."""
    from ..sodeep.store import read_sorter, sorter_file
    from ..sodeep.training import Recipe

    sorter = read_sorter(sorter_file(Recipe(items)))
    return {} if sorter is None else {"SoDeep": sorter}


def compute(
    which: Literal["1", "5", "6"] = "1",
    *,
    sorters: Mapping[str, Sorter] | None = None,
    items: int = 20,
    ticks: int = 121,
    seed: int = 0,
) -> Landscapes:
    """The surfaces of one of RaMBO's figures.

    Args:
        which: "1": the function, lambda .5 and 2; "5": lambda .2, .5, 1, 2 and 5, 10, 20, 40 bins; "6": the function,
            lambda .5, the sorters if any, 10 bins.
        sorters: learned sorters for "6", see `surfaces`.
        items: n.
        ticks: of the grid along each coordinate.
        seed: of the plane.
    """
    contents: dict[str, tuple[Sequence[float], Sequence[int]]] = {
        "1": ((0.5, 2.0), ()),
        "5": ((0.2, 0.5, 1.0, 2.0), (5, 10, 20, 40)),
        "6": ((0.5,), (10,)),
    }
    if which not in contents:
        raise ValueError(f"which must be one of the figures {', '.join(contents)}; got {which!r}")
    if sorters and which != "6":
        raise ValueError(f"only figure 6 shows learned sorters; got sorters for figure {which}")
    lambdas, bins = contents[which]
    return surfaces(plane(items, ticks=ticks, seed=seed), lambdas=lambdas, bins=bins, sorters=sorters)


COLUMNS = 5  # of a figure; with more surfaces, those that are no interpolations start a second row


@style.styled
def draw(results: Landscapes) -> Figure:
    """The surfaces side by side with one scale; each is shifted so that its minimum is 0."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    lowered = {name: values - values.min() for name, values in results.surfaces.items()}
    top = max(float(values.max()) for values in lowered.values())
    names = list(lowered)
    rows = [names]
    if len(names) > COLUMNS:
        inner = [name for name in names if name == "exact" or name.startswith("blackbox")]
        rows = [inner, [name for name in names if name not in inner]]
    columns = max(len(row) for row in rows)
    drawing = style.figure(style.TWO, min(style.TWO / columns, 2.0) * 0.98 * len(rows) + 0.1)
    x, y = (grid.numpy() for grid in torch.meshgrid(results.plane.axis, results.plane.axis, indexing="ij"))
    letter = iter("abcdefghijklmnopqrstuvwxyz")
    colours = ScalarMappable(Normalize(0, top), style.SURFACE)
    steep = len(x) / max(top, 1e-12) / 3
    for line, row in enumerate(rows):
        for column, name in enumerate(row, columns - len(row)):  # aligned to the right
            axes = drawing.add_subplot(len(rows), columns, line * columns + column + 1, projection="3d")
            height = lowered[name].numpy()
            lit = _lit(colours.to_rgba(height)[..., :3], height * steep)
            axes.plot_surface(
                x,
                y,
                height,
                facecolors=lit,
                shade=False,
                linewidth=0,
                antialiased=False,
                rcount=len(x),
                ccount=len(x),
                rasterized=True,  # 14 000 polygons are no use as vectors
            )
            axes.view_init(35, -60)
            axes.set_box_aspect((4, 4, 3), zoom=1.25)
            axes.set(xticks=[], yticks=[], zticks=[], zlim=(0, top))
            axes.set_title(f"({next(letter)}) {name}", loc="center", fontsize=7.5 if columns > 3 else 8.5)
    if len(rows) > 1:
        corner = drawing.add_subplot(len(rows), columns, columns + 1)
        corner.set_axis_off()
        bar = drawing.colorbar(colours, cax=corner.inset_axes((0.15, 0.45, 0.7, 0.07)), orientation="horizontal")
        bar.set_ticks([0, top], labels=["0", f"{top:.1f}"])
        bar.set_label("above the\nsurface's minimum", fontsize=style.SMALL)
    return drawing


def _lit(colours: Any, height: Any) -> Any:
    """Shade colours with light from the left, so that plateaus and cliffs are visible; level parts keep their colour.

    Args:
        colours: [row, column, 3] 0 .. 1.
        height: [row, column] in units of the grid.
    """
    along_x, along_y = np.gradient(height)
    normal = np.stack([-along_x, -along_y, np.ones_like(height)], axis=-1)
    light = np.array([-0.5, -0.5, 0.7])
    shine = normal @ light / np.linalg.norm(normal, axis=-1) / np.linalg.norm(light)
    strength = np.clip(shine / (light[2] / np.linalg.norm(light)), 0.6, 1.25)[..., None]
    return np.clip(colours * strength, 0, 1)
