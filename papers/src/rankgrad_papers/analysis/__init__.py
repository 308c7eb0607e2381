"""The papers' figures that need no large network: their numbers and their drawings.

One file per study. Each has a frozen record of results, a function that computes it (with a seed), and a function that
draws it on a matplotlib `Figure`. `FIGURES` has the same names as `rankgrad reproduce` and `rankgrad paper-figure`:

    study = FIGURES["rambo/fig2"]
    found = study.compute()
    print(found)
    style.save(study.draw(found), Path("bias.pdf"))

Two studies accept more than their default: `decomposability.gaps` (ROADMAP's table 9) takes the embeddings of any
model, and `landscapes.compute("6", sorters=...)` takes any sorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import figure_style as style
from . import (
    auc_slopes,
    batch_bias,
    decomposability,
    gradients,
    landscapes,
    margin_collapse,
    overview,
    pnp_curves,
    pnp_toy,
    schemes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Study:
    """One figure of a paper.

    Attributes:
        title: what it shows.
        sees: what to look for in it.
        compute: computes the numbers.
        draw: result of `compute` -> a figure.
        seconds: rough time of `compute` and `draw` on one core.
        note: how it differs from the paper's figure; empty if it does not.
    """

    title: str
    sees: str
    compute: Callable[[], Any]
    draw: Callable[[Any], Figure]
    seconds: float
    note: str = ""


def _examples(*names: str) -> Callable[[], list[decomposability.Example]]:
    return partial(lambda chosen: [decomposability.example(name) for name in chosen], names)


def _ways() -> landscapes.Landscapes:
    from ..sodeep import load_sorter

    return landscapes.compute("6", sorters={"SoDeep": load_sorter(items=20)})


_PLANE = (
    "The papers do not name the seed or the scale of the plane. Ours are in the docstring of `analysis.landscapes`."
)

FIGURES: dict[str, Study] = {
    "rambo/fig1": Study(
        "a function of ranks and its interpolations",
        "The function has plateaus and cliffs, so it has no useful slope (a). The interpolations "
        "have a slope everywhere. "
        "They are smoother with a larger λ (b, c).",
        landscapes.compute,
        landscapes.draw,
        3,
        _PLANE,
    ),
    "rambo/fig5": Study(
        "a function of ranks for several λ, and for several numbers of soft bins",
        "A small λ stays close to the function, and a large λ is smooth. Few bins lose its shape, and many bins "
        "ripple.",
        partial(landscapes.compute, "5"),
        landscapes.draw,
        6,
        _PLANE,
    ),
    "rambo/fig6": Study(
        "ways to make ranks differentiable",
        "The interpolation keeps the shape of the function. SoDeep and soft bins flatten it.",
        _ways,
        landscapes.draw,
        5,
        _PLANE + " SoDeep's sorter is trained at the first use, in some minutes on one core. Then it is kept.",
    ),
    "rambo/fig2": Study(
        "mAP inside random batches against their size",
        "Batches of 16 have a mAP of .60, and the whole set has .33. The smaller the batch, the better the mAP looks.",
        batch_bias.compute,
        batch_bias.draw,
        2,
        "The scores are synthetic and ours. Their construction is in the docstring of `analysis.batch_bias`.",
    ),
    "rambo/fig3": Study(
        "the margin keeps scores apart",
        "Without a shift, all scores become equal when their order is right, and a little noise "
        "destroys the order. With a "
        "shift they keep the distance α.",
        margin_collapse.compute,
        margin_collapse.draw,
        1,
        "The paper's figure is a sketch. This figure is a gradient descent on free scores.",
    ),
    "auc/slopes": Study(
        "slope of the sigmoid by step (the paper's own table is not public)",
        "A slope steeper than the default gains little accuracy (a). It does not move scores between two thresholds "
        "(b).",
        auc_slopes.compute,
        auc_slopes.draw,
        2,
        "The paper's table of slopes is not in its public parts. These batches are ours.",
    ),
    "pnp/fig1": Study(
        "the loss of AP over both counts",
        "Along the arrow only relevant items are added in front, and the loss of AP still falls.",
        pnp_curves.compute,
        pnp_curves.draw_surface,
        0.3,
        "The paper's arrows are paths of relevant items to a lower loss.",
    ),
    "pnp/fig2": Study(
        "what pushes an irrelevant item back",
        "Every relevant item behind an irrelevant item pushes it: four push (a), one pushes (e). "
        "PNP-Ib pulls hardest at "
        "the relevant item at the end (f). PNP-Dq leaves it alone.",
        schemes.pushes,
        schemes.draw_pushes,
        0.3,
        "The paper's figure is a sketch of images. The list is ours. The forces are the derivatives of the losses.",
    ),
    "pnp/fig3": Study(
        "PNP's losses and their derivatives",
        "O pushes all relevant items alike. I pushes those hardest that have many irrelevant items in front. D pushes "
        "these least.",
        pnp_curves.compute,
        pnp_curves.draw_variants,
        0.5,
    ),
    "pnp/fig4": Study(
        "two clusters of a class with another class between them",
        "PNP-Ib pulls the clusters together across the other class (arrows). PNP-Dq pulls only within each cluster.",
        schemes.clusters,
        schemes.draw_clusters,
        0.3,
        "The paper's figure is a sketch. The angles are ours. The forces are the derivatives of the losses.",
    ),
    "pnp/fig5": Study(
        "gradient of AP's loss and of PNP-Dq",
        "AP's gradient depends on the number of relevant items in front. PNP-Dq's gradient is one curve.",
        pnp_curves.compute,
        pnp_curves.draw_gradients,
        0.3,
    ),
    "pnp/fig6": Study(
        "clusters of a class under PNP",
        "O and I collapse both clusters of a class into one place, and unseen classes too. Dq with α = 4 does not.",
        pnp_toy.compute,
        pnp_toy.draw,
        12,
        pnp_toy.CAPTION,
    ),
    "pnp/fig6-ring": Study(
        "clusters of a class under PNP, second layout",
        "The same on a ring: each class has two opposite clusters, and unseen classes are in the gaps.",
        partial(pnp_toy.compute, "ring"),
        pnp_toy.draw,
        7,
        pnp_toy.CAPTION,
    ),
    "roadmap/fig1": Study(
        "gradients on three scores, and the gap between batches",
        "Smooth-AP pushes two relevant items apart, and SupAP raises both (a). The union of two "
        "perfect batches has an AP "
        "of .81 (b).",
        overview.compute,
        overview.draw,
        0.5,
    ),
    "roadmap/fig2": Study(
        "from a query's scores to the loss",
        "H⁻, which never stops growing, counts irrelevant items. The exact step counts relevant items (b). The "
        "calibration penalises scores on the wrong side of α or β (c).",
        schemes.path,
        schemes.draw_path,
        0.3,
        "The paper's figure is a diagram. The scores are ours. Counts and costs are computed by the losses.",
    ),
    "roadmap/fig3": Study(
        "the steps and their slopes",
        "Beyond δ the sigmoid stops growing and has no slope. H⁻ continues with a slope of ρ.",
        gradients.steps,
        gradients.draw_steps,
        0.5,
    ),
    "roadmap/fig7": Study(
        "gradients of Smooth-AP",
        "Smooth-AP lowers one relevant score, hardly moves the irrelevant one, and is below 1 − AP.",
        gradients.toy,
        partial(gradients.draw_toy, names=("1 - AP", "Smooth-AP")),
        0.5,
    ),
    "roadmap/fig8": Study(
        "gradients with the exact step among relevant items, and of SupAP",
        "With the exact step no relevant item is pushed down, and almost no gradient is left. With SupAP both relevant "
        "items move up and the irrelevant one moves down, and the loss bounds 1 − AP from above.",
        gradients.toy,
        partial(gradients.draw_toy, names=("1 - AP", "exact step among relevant", "SupAP")),
        0.5,
    ),
    "roadmap/fig9": Study(
        "the gap between batches and their union, and what calibrated scores change",
        "Both batches are ranked perfectly, and their union is not (a). If all scores are on the right side of α or β, "
        "the gap is 0 (b).",
        _examples("partly", "calibrated"),
        decomposability.draw_examples,
        0.3,
        "The scores are ours. Panel b is not in the paper.",
    ),
    "roadmap/fig10": Study(
        "batches one behind the other attain the bound",
        "Every relevant item of the second batch is ranked behind every irrelevant item of the first. The gap equals "
        "eq. 8.",
        _examples("worst"),
        decomposability.draw_examples,
        0.3,
    ),
    "roadmap/bounds": Study(
        "the gap against eqs. 8 and 9 over random draws",
        "No draw is above the diagonal. With eq. 9 the draws are closer to it.",
        partial(decomposability.bounds, "unequal"),
        decomposability.draw_bounds,
        8,
        "This figure is not in the paper. The draws are ours.",
    ),
    "roadmap/fig11": Study(
        "slope of the sigmoid, and δ",
        "From δ on the sigmoid has almost no slope. There H⁻ takes over.",
        gradients.steps,
        gradients.draw_delta,
        0.3,
    ),
}

__all__ = [
    "FIGURES",
    "Study",
    "auc_slopes",
    "batch_bias",
    "decomposability",
    "gradients",
    "landscapes",
    "margin_collapse",
    "overview",
    "pnp_curves",
    "pnp_toy",
    "schemes",
    "style",
]
