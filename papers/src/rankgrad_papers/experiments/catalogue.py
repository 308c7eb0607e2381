"""All tables and figures of the four papers, with the data that each needs, its time, and how to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from rankgrad.common.checks import closest
from rankgrad.common.text import aligned
from rankgrad_workbench.settings import ConfigError

from ..analysis import FIGURES
from .grid import Grid, grids
from .outcome import group
from .standin import translate

How = Literal["runs", "computed", "bench", "figure", "examples", "detection"]

PAPERS = {
    "rambo": "RaMBO: Rolinek et al., CVPR 2020, arXiv:1912.03500",
    "auc": "AUC: Gajic et al., CVPR Workshops 2022, doi:10.1109/CVPRW56347.2022.00318",
    "pnp": "PNP: Li et al., AAAI 2022, arXiv:2102.04640",
    "roadmap": "ROADMAP: Ramzi et al., NeurIPS 2021, arXiv:2110.01445",
}
# How an entry is made -> explanation and command.
WAYS: Mapping[How, str] = {
    "runs": "training runs: rankgrad reproduce ID; a figure also from runs of yours, paper-figure ID --runs DIR",
    "computed": "computed or read from the settings: rankgrad reproduce ID",
    "bench": "measured: rankgrad reproduce ID",
    "figure": "drawn: rankgrad paper-figure ID (rankgrad reproduce ID: with its numbers)",
    "examples": "drawn from finished runs: rankgrad paper-figure ID --run RUN",
    "detection": "training runs of detectors: rankgrad reproduce ID",
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
# Time of a stand-in run on Omniglot on one EPYC core, including its start and an evaluation after each of 12 epochs.
SECONDS_PER_STAND_IN = 20


@dataclass(frozen=True)
class Entry:
    """A table or figure.

    Attributes:
        id: paper/table2, paper/fig4.
        title: what it shows.
        needs: data, weights, in practice a GPU; or "nothing".
        time: rough time.
        how: see `WAYS`.
        same_as: id of the entry with the same content, or None.
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
        """Whether `rankgrad reproduce` can make this table or figure."""
        return self.how in ("runs", "computed", "bench", "figure", "detection")

    @property
    def way(self) -> str:
        """`WAYS` with the id in its commands."""
        return WAYS[self.how].replace(" ID", f" {self.id}")


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, paper by paper."""
    runs, nothing = grids(), "nothing"

    def figure(name: str) -> Entry:
        study = FIGURES[name]
        return Entry(name, study.title, nothing, f"{study.seconds:g} s", "figure")

    def repeated(name: str, title: str, same_as: str) -> Entry:
        return Entry(name, title, nothing, "-", "figure", same_as)

    def shown(name: str, title: str) -> Entry:
        return Entry(name, title, "data, weights", "-", "examples")

    def table(*names: str) -> list[Entry]:
        return [_of_grid(runs[name]) for name in names]

    voc = "VOC, GPU"
    return (
        Entry("rambo/table1", "complexity of the methods, with measured growth", nothing, "1 min", "computed"),
        *table("rambo/table2", "rambo/table3", "rambo/table4"),
        Entry("rambo/table5", "AP50 of detectors on VOC", voc, "24 runs; stand-in 15 min", "detection"),
        Entry("rambo/table8", "detection: λ and margin", voc, "15 runs; stand-in 15 min", "detection"),
        Entry("rambo/table6", "time of the AP loss on long lists", nothing, "minutes", "bench"),
        *table("rambo/table7"),
        Entry("rambo/table9", "learning rate, margin and λ per data set", nothing, "seconds", "computed"),
        Entry("rambo/supp-table1", "= table 9", nothing, "seconds", "computed", "rambo/table9"),
        figure("rambo/fig1"),
        figure("rambo/fig5"),
        figure("rambo/fig6"),
        repeated("rambo/supp-fig1", "= figure 5", "rambo/fig5"),
        repeated("rambo/supp-fig2", "= figure 6", "rambo/fig6"),
        figure("rambo/fig2"),
        figure("rambo/fig3"),
        shown("rambo/fig4", "retrieved examples (the paper's: SOP)"),
        Entry("auc/slopes", FIGURES["auc/slopes"].title, nothing, "1 min", "computed"),
        *table("auc/table1", "auc/table2"),
        figure("pnp/fig1"),
        figure("pnp/fig3"),
        figure("pnp/fig5"),
        figure("pnp/fig2"),
        figure("pnp/fig4"),
        figure("pnp/fig6"),
        figure("pnp/fig6-ring"),
        *table(*(f"pnp/table{number}" for number in range(1, 8))),
        shown("pnp/fig7", "retrieved examples (the paper's: SOP, VehicleID, iNaturalist)"),
        *table("pnp/fig8"),
        figure("roadmap/fig1"),
        figure("roadmap/fig7"),
        figure("roadmap/fig8"),
        figure("roadmap/fig9"),
        figure("roadmap/fig10"),
        figure("roadmap/bounds"),
        figure("roadmap/fig2"),
        figure("roadmap/fig3"),
        figure("roadmap/fig11"),
        *table(*(f"roadmap/table{number}" for number in (1, 2, 3, 4, 6, 7, 8))),
        *table("roadmap/table5", "roadmap/fig4", "roadmap/fig5", "roadmap/fig12", "roadmap/table9"),
        shown("roadmap/fig6", "retrieved examples (the paper's: iNaturalist, -k 4)"),
        shown("roadmap/fig13", "retrieved examples (the paper's: CUB, -k 10)"),
        shown("roadmap/fig14", "retrieved examples (the paper's: SOP, -k 10)"),
        shown("roadmap/fig15", "retrieved examples (the paper's: iNaturalist, -k 10)"),
    )


def _of_grid(grid: Grid) -> Entry:
    data = list(dict.fromkeys(DATA[cell.dataset] for cell in grid.cells if cell.dataset))
    full = len({(cell.experiment, cell.settings, cell.full_only) for cell in grid.cells}) * len(grid.seeds)
    small = len(group(grid, {n: translate(c.settings, "omniglot") for n, c in enumerate(grid.cells)}, stand_in=True))
    minutes = small * len(stand_in_seeds(grid)) * SECONDS_PER_STAND_IN / 60
    time = f"{full} runs; stand-in {minutes:.0f} min"
    return Entry(grid.id, grid.title, f"{', '.join(data)}, GPU", time, "runs")


def stand_in_seeds(grid: Grid) -> tuple[int, ...]:
    """The seeds of the table, but at least three, since a run takes only seconds."""
    return grid.seeds if len(grid.seeds) > 1 else (0, 1, 2)


def find(name: str) -> Entry:
    """The entry with an id; if it repeats another entry, the other entry.

    Raises:
        ConfigError: the id is unknown.
    """
    known = {entry.id: entry for entry in entries()}
    if name not in known:
        raise ConfigError(f"no table or figure {name!r}{closest(name, known)} rankgrad reproduce lists them")
    entry = known[name]
    return known[entry.same_as] if entry.same_as else entry


def listing() -> str:
    """All entries as text, paper by paper."""
    shown = entries()
    cells = [(f"  {entry.id}", entry.how, entry.needs, entry.time, entry.title) for entry in shown]
    rows = aligned(cells, left=5).splitlines()
    lines = []
    for paper, title in PAPERS.items():
        lines += ["", title]
        lines += [row for entry, row in zip(shown, rows, strict=True) if entry.paper == paper]
    ways = aligned([(f"  {name}", text) for name, text in WAYS.items()], left=2)
    times = (
        "Times of stand-ins are for one core and the seeds of the table (at least three). Full-size runs: hours to "
        "days each on a GPU; not measured."
    )
    return "\n".join([*lines[1:], "", ways, "", times])
