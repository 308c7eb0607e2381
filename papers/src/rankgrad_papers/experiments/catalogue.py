"""All tables and figures of the four papers, with the data that each needs, its time, and how to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import yaml

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
DATA = {"cub": "CUB", "sop": "SOP", "inshop": "In-shop", "inaturalist": "iNaturalist", "vehicleid": "VehicleID"}
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
    rows = yaml.safe_load(resources.files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8"))
    return tuple(Entry(**row) if isinstance(row, dict) else _named(row) for row in rows)


def _named(name: str) -> Entry:
    """The entry of a table of runs, or of a figure of `analysis`."""
    if name in grids():
        return _of_grid(grids()[name])
    return Entry(name, FIGURES[name].title, "nothing", f"{FIGURES[name].seconds:g} s", "figure")


def _of_grid(grid: Grid) -> Entry:
    data = list(dict.fromkeys(DATA[cell.dataset.partition("_")[0]] for cell in grid.cells if cell.dataset))
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
