"""The papers' studies that need no training of a large network: as numbers, and as figures.

A file per study. Each has a frozen record of what was found, a function that finds it (seeded, no drawing) and one
that draws it on a matplotlib `Figure`. `FIGURES` names them as the papers do:

    study = FIGURES["rambo/figure2"]
    found = study.compute()
    print(found)
    style.save(study.draw(found), Path("bias.pdf"))

Two need more than a default: `decomposability.relative_decrease` (ROADMAP's table 9) takes the embeddings of two
models, and `landscapes.compute("6", sorters=...)` a trained sorter for the panel of SoDeep, which is left out without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from . import batch_bias, decomposability, gradients, landscapes, margin_collapse, pnp_curves, pnp_toy, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Study:
    """One figure of a paper.

    Attributes:
        title: what it shows.
        compute: finds the numbers.
        draw: what `compute` found -> a figure.
        seconds: what `compute` takes on one core, roughly.
        note: what a reader must be told about it; empty if it is the paper's own.
    """

    title: str
    compute: Callable[[], Any]
    draw: Callable[[Any], Figure]
    seconds: float
    note: str = ""


def _examples(*names: str) -> Callable[[], list[decomposability.Example]]:
    return partial(lambda chosen: [decomposability.example(name) for name in chosen], names)


_PLANE = "The papers name neither seed nor scale of the plane; ours are in the docstring of `landscapes`."

FIGURES: dict[str, Study] = {
    "rambo/figure1": Study(
        "A function of ranks and its interpolations", landscapes.compute, landscapes.draw, 0.5, _PLANE
    ),
    "rambo/figure2": Study(
        "mAP inside random batches against their size",
        batch_bias.compute,
        batch_bias.draw,
        2,
        "Synthetic scores of ours; the construction is in the docstring of `batch_bias`.",
    ),
    "rambo/figure3": Study(
        "Scores collapse without a margin",
        margin_collapse.compute,
        margin_collapse.draw,
        1,
        "The paper's figure is a sketch; this is a descent on free scores.",
    ),
    "rambo/figure5a": Study(
        "Interpolations for several lambda", partial(landscapes.compute, "5a"), landscapes.draw, 0.5, _PLANE
    ),
    "rambo/figure5b": Study(
        "Soft bins for several numbers of bins", partial(landscapes.compute, "5b"), landscapes.draw, 0.5, _PLANE
    ),
    "rambo/figure6": Study(
        "Ways to make ranks differentiable",
        partial(landscapes.compute, "6"),
        landscapes.draw,
        0.5,
        _PLANE + " Without a trained sorter the panel of SoDeep is left out.",
    ),
    "pnp/figure1": Study("The loss of AP over both counts", pnp_curves.compute, pnp_curves.draw_surface, 0.1),
    "pnp/figure3": Study("PNP's losses and their derivatives", pnp_curves.compute, pnp_curves.draw_variants, 0.1),
    "pnp/figure5": Study("Gradient of AP's loss and of PNP-Dq", pnp_curves.compute, pnp_curves.draw_gradients, 0.1),
    "pnp/figure6": Study("Clusters of a class under PNP", pnp_toy.compute, pnp_toy.draw, 12, pnp_toy.CAPTION),
    "pnp/figure6_ring": Study(
        "Clusters of a class under PNP, second layout",
        partial(pnp_toy.compute, "ring"),
        pnp_toy.draw,
        7,
        pnp_toy.CAPTION,
    ),
    "roadmap/figure1a": Study(
        "Gradients on three scores: Smooth-AP and SupAP",
        gradients.toy,
        partial(gradients.draw_toy, names=("Smooth-AP", "SupAP")),
        0.1,
    ),
    "roadmap/figure1b": Study(
        "Two perfect batches whose union is not", _examples("worst"), decomposability.draw_examples, 0.1
    ),
    "roadmap/figure3": Study("The steps and their slopes", gradients.steps, gradients.draw_steps, 0.1),
    "roadmap/figure7": Study(
        "Gradients of Smooth-AP, and with the exact step among relevant items",
        gradients.toy,
        partial(gradients.draw_toy, names=("1 - AP", "Smooth-AP", "exact step among relevant")),
        0.1,
    ),
    "roadmap/figure8": Study(
        "Gradient of SupAP", gradients.toy, partial(gradients.draw_toy, names=("1 - AP", "SupAP")), 0.1
    ),
    "roadmap/figure9": Study(
        "Batches one behind the other attain the bound", _examples("worst"), decomposability.draw_examples, 0.1
    ),
    "roadmap/figure10": Study(
        "What calibrated scores change", _examples("partly", "calibrated"), decomposability.draw_examples, 0.1
    ),
    "roadmap/figure11": Study("Slope of the sigmoid, and delta", gradients.steps, gradients.draw_steps, 0.1),
    "roadmap/bounds": Study(
        "The gap against eqs. 8 and 9 over random draws",
        partial(decomposability.bounds, "unequal"),
        decomposability.draw_bounds,
        8,
        "Not in the paper; the draws are ours.",
    ),
}

__all__ = [
    "FIGURES",
    "Study",
    "batch_bias",
    "decomposability",
    "gradients",
    "landscapes",
    "margin_collapse",
    "pnp_curves",
    "pnp_toy",
    "style",
]
