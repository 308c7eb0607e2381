"""Every table and figure of the four papers: what it needs, how long it takes, and how it is made here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ..config import ConfigError
from .grid import Grid, grids
from .outcome import group
from .standin import translate

How = Literal["runs", "computed", "bench", "detection", "figure", "drawing"]

PAPERS = {
    "rambo": "RaMBO: Rolinek et al., CVPR 2020, arXiv:1912.03500",
    "auc": "AUC: Gajic et al., CVPR Workshops 2022, doi:10.1109/CVPRW56347.2022.00318",
    "pnp": "PNP: Li et al., AAAI 2022, arXiv:2102.04640",
    "roadmap": "ROADMAP: Ramzi et al., NeurIPS 2021, arXiv:2110.01445",
}
# What each way means, and whether it is there.
WAYS: Mapping[How, str] = {
    "runs": "training runs: rankgrad reproduce ID",
    "computed": "computed or read from the settings: rankgrad reproduce ID",
    "bench": "measured: rankgrad reproduce ID (rankgrad bench long_list)",
    "detection": "needs detection, which is not there yet",
    "figure": "needs a command for figures, which is not there yet",
    "drawing": "a drawing without numbers: nothing to reproduce",
}
DATA = {
    "cub": "CUB",
    "cub_cropped": "CUB",
    "sop": "SOP",
    "inshop": "In-shop",
    "inaturalist": "iNaturalist",
    "vehicleid": "VehicleID",
    "vehicleid_small": "VehicleID",
    "vehicleid_medium": "VehicleID",
    "vehicleid_large": "VehicleID",
}
# A stand-in run on Omniglot, with the start of its process and an evaluation after each of 12 epochs, on one EPYC core.
SECONDS_PER_STAND_IN = 20


@dataclass(frozen=True)
class Entry:
    """A table or figure.

    Attributes:
        id: paper/table2, paper/fig4.
        title: what it shows.
        needs: data, weights, a GPU in practice; or nothing.
        time: rough.
        how: see `WAYS`.
        same_as: id of the entry that has the same content, or None.
    """

    id: str
    title: str
    needs: str
    time: str
    how: How
    same_as: str | None = None

    @property
    def paper(self) -> str:
        """rambo, auc, pnp or roadmap."""
        return self.id.partition("/")[0]

    @property
    def there(self) -> bool:
        """Whether `rankgrad reproduce` can make it today."""
        return self.how in ("runs", "computed", "bench")


@cache
def entries() -> tuple[Entry, ...]:
    """All of them, paper by paper."""
    runs, nothing = grids(), "nothing"

    def figure(name: str, title: str, needs: str = nothing, how: How = "figure", same_as: str | None = None) -> Entry:
        return Entry(name, title, needs, "-", how, same_as)

    def table(*names: str) -> list[Entry]:
        return [_of_grid(runs[name]) for name in names]

    voc = "VOC, GPU"
    examples = "data, weights"
    return (
        Entry("rambo/table1", "complexity of the methods, with measured growth", nothing, "1 min", "computed"),
        *table("rambo/table2", "rambo/table3", "rambo/table4"),
        Entry("rambo/table5", "AP50 of detectors on VOC", voc, "-", "detection"),
        Entry("rambo/table8", "detection: λ and margin", voc, "-", "detection"),
        Entry("rambo/table6", "time of the AP loss on long lists", nothing, "minutes", "bench"),
        *table("rambo/table7"),
        Entry("rambo/table9", "learning rate, margin and λ per data set", nothing, "seconds", "computed"),
        Entry("rambo/supp-table1", "= table 9", nothing, "seconds", "computed", "rambo/table9"),
        figure("rambo/fig1", "a ranking loss and its interpolation over a plane of scores"),
        figure("rambo/fig5", "the same for several λ"),
        figure("rambo/fig6", "the same for other relaxations"),
        figure("rambo/supp-fig1", "= figure 5", same_as="rambo/fig5"),
        figure("rambo/supp-fig2", "= figure 6", same_as="rambo/fig6"),
        figure("rambo/fig2", "bias of the mean AP over batches"),
        figure("rambo/fig3", "the margin keeps scores apart"),
        figure("rambo/fig4", "retrieved examples of SOP", examples),
        Entry(
            "auc/slopes",
            "slope of the sigmoid by step (the paper's own table is not public)",
            nothing,
            "1 min",
            "computed",
        ),
        *table("auc/table1", "auc/table2"),
        figure("pnp/fig1", "surface of the AP loss"),
        figure("pnp/fig3", "the variants and their derivatives"),
        figure("pnp/fig5", "gradients of AP and PNP-D"),
        figure("pnp/fig2", "PNP in a drawing", how="drawing"),
        figure("pnp/fig4", "clusters of a class in a drawing", how="drawing"),
        figure("pnp/fig6", "a toy of classes with two clusters"),
        *table(*(f"pnp/table{number}" for number in range(1, 8))),
        figure("pnp/fig7", "retrieved examples", examples),
        *table("pnp/fig8"),
        figure("roadmap/fig1", "gradients of toy rankings, and the decomposability gap"),
        figure("roadmap/fig7", "gradients of toy rankings"),
        figure("roadmap/fig8", "gradients of toy rankings, continued"),
        figure("roadmap/fig9", "the decomposability gap on toy rankings"),
        figure("roadmap/fig10", "the bounds of the decomposability gap"),
        figure("roadmap/fig2", "the losses in a drawing", how="drawing"),
        figure("roadmap/fig3", "the steps H⁺, H⁻ and the sigmoid"),
        figure("roadmap/fig11", "gradient of the sigmoid, and δ"),
        *table(*(f"roadmap/table{number}" for number in (1, 2, 3, 4, 6, 7, 8))),
        *table("roadmap/table5", "roadmap/fig4", "roadmap/fig5", "roadmap/fig12", "roadmap/table9"),
        figure("roadmap/fig6", "retrieved examples", examples),
        figure("roadmap/fig13", "retrieved examples, CUB", examples),
        figure("roadmap/fig14", "retrieved examples, SOP", examples),
        figure("roadmap/fig15", "retrieved examples, iNaturalist", examples),
    )


def _of_grid(grid: Grid) -> Entry:
    data = list(dict.fromkeys(DATA[cell.dataset] for cell in grid.cells if cell.dataset))
    full = len({(cell.experiment, cell.settings, cell.full_only) for cell in grid.cells}) * len(grid.seeds)
    small = len(group(grid, {n: translate(c.settings, "omniglot") for n, c in enumerate(grid.cells)}, stand_in=True))
    minutes = small * len(stand_in_seeds(grid)) * SECONDS_PER_STAND_IN / 60
    time = f"{full} runs; stand-in {minutes:.0f} min"
    return Entry(grid.id, grid.title, f"{', '.join(data)}, GPU", time, "runs")


def stand_in_seeds(grid: Grid) -> tuple[int, ...]:
    """Those of the table, and at least three: runs of seconds can be repeated."""
    return grid.seeds if len(grid.seeds) > 1 else (0, 1, 2)


def find(name: str) -> Entry:
    """The entry of an id; one that only repeats another gives that.

    Raises:
        ConfigError: there is none.
    """
    known = {entry.id: entry for entry in entries()}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ConfigError(f"no table or figure {name!r}{hint} rankgrad reproduce lists them")
    entry = known[name]
    return known[entry.same_as] if entry.same_as else entry


def listing() -> str:
    """All entries as text, paper by paper."""
    shown = entries()
    widths = [max(len(getattr(entry, name)) for entry in shown) for name in ("id", "how", "needs", "time")]
    lines = []
    for paper, title in PAPERS.items():
        lines += ["", title]
        for entry in shown:
            if entry.paper == paper:
                cells = (entry.id, entry.how, entry.needs, entry.time)
                lines.append(f"  {'  '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))}  {entry.title}")
    ways = [f"  {name:{widths[1]}}  {text}" for name, text in WAYS.items()]
    times = (
        "Times of stand-ins are for one core and the seeds of the table (at least three). Full-size runs: hours to "
        "days each on a GPU; not measured."
    )
    return "\n".join([*lines[1:], "", *ways, "", times])
