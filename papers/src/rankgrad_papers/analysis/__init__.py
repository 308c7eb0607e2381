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
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

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
        seconds: rough time of `compute` and `draw` on one core.
        compute: computes the numbers.
        draw: result of `compute` -> a figure.
        note: how it differs from the paper's figure; empty if it does not.
    """

    title: str
    sees: str
    seconds: float
    compute: Callable[[], Any]
    draw: Callable[[Any], Figure]
    note: str = ""


def _examples(*names: str) -> Callable[[], list[decomposability.Example]]:
    return partial(lambda chosen: [decomposability.example(name) for name in chosen], names)


def _ways() -> landscapes.Landscapes:
    from ..sodeep import load_sorter

    return landscapes.compute("6", sorters={"SoDeep": load_sorter(items=20)})


#: Name of a figure -> its functions; the words are in figures.yaml.
_FUNCTIONS: dict[str, tuple[Callable[[], Any], Callable[[Any], Figure]]] = {
    "rambo/fig1": (landscapes.compute, landscapes.draw),
    "rambo/fig5": (partial(landscapes.compute, "5"), landscapes.draw),
    "rambo/fig6": (_ways, landscapes.draw),
    "rambo/fig2": (batch_bias.compute, batch_bias.draw),
    "rambo/fig3": (margin_collapse.compute, margin_collapse.draw),
    "auc/slopes": (auc_slopes.compute, auc_slopes.draw),
    "pnp/fig1": (pnp_curves.compute, pnp_curves.draw_surface),
    "pnp/fig2": (schemes.pushes, schemes.draw_pushes),
    "pnp/fig3": (pnp_curves.compute, pnp_curves.draw_variants),
    "pnp/fig4": (schemes.clusters, schemes.draw_clusters),
    "pnp/fig5": (pnp_curves.compute, pnp_curves.draw_gradients),
    "pnp/fig6": (pnp_toy.compute, pnp_toy.draw),
    "pnp/fig6-ring": (partial(pnp_toy.compute, "ring"), pnp_toy.draw),
    "roadmap/fig1": (overview.compute, overview.draw),
    "roadmap/fig2": (schemes.path, schemes.draw_path),
    "roadmap/fig3": (gradients.steps, gradients.draw_steps),
    "roadmap/fig7": (gradients.toy, partial(gradients.draw_toy, names=("1 - AP", "Smooth-AP"))),
    "roadmap/fig8": (
        gradients.toy,
        partial(gradients.draw_toy, names=("1 - AP", "exact step among relevant", "SupAP")),
    ),
    "roadmap/fig9": (_examples("partly", "calibrated"), decomposability.draw_examples),
    "roadmap/fig10": (_examples("worst"), decomposability.draw_examples),
    "roadmap/bounds": (partial(decomposability.bounds, "unequal"), decomposability.draw_bounds),
    "roadmap/fig11": (gradients.steps, gradients.draw_delta),
}
WORDS = yaml.safe_load(resources.files(__package__).joinpath("figures.yaml").read_text(encoding="utf-8"))
FIGURES: dict[str, Study] = {
    name: Study(compute=compute, draw=draw, **WORDS[name]) for name, (compute, draw) in _FUNCTIONS.items()
}
