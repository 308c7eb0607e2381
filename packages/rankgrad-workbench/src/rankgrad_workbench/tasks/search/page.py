"""The page of a search: the systems side by side, the verdict, and the best and worst queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from markupsafe import Markup

from ...report import tables
from ...report.content import Extent, RunContent, Section, read_common
from ...report.html.images import Images
from ...report.html.templates import render
from ...report.writing import write_report
from ...runs.folder import Run
from ...settings.kinds import TASKS
from .evaluation import BEFORE, SearchReport


@dataclass(frozen=True, eq=False)
class SearchContent(RunContent):
    """A run of a search, as a page shows it.

    Attributes:
        name, config, facts, curves, before, latest, notes, siblings: see `RunContent`.
        after: report of the trained model; None: the run is not finished.
    """

    after: SearchReport | None = None

    kind = "search"

    @property
    def headline(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(name for name in TASKS[self.kind].columns if name in self.values)

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(self.values)

    @classmethod
    def sections(cls, runs: Sequence[SearchContent], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """Results, systems with the verdict, and queries."""
        if extent != Extent():
            raise ValueError(
                "projection, queries, points and items are for retrieval runs, but these runs are searches"
            )
        finished = [run for run in runs if run.after is not None]
        made = [tables.results(runs)]
        for key, title in (("systems", "Beside other systems"), ("queries", "Best and worst queries")):
            body = render(f"tasks/search/{key}.html", runs=finished, several=len(runs) > 1)
            made.append(Section(key, title, body if finished else Markup()))
        return made, [*runs[0].after.verdict] if len(runs) == 1 and runs[0].after is not None else []


def write_page(run: Run, report: SearchReport, trust: Sequence[str] = ()) -> Path:
    """Write the page of a run that is about to be finished.

    Args:
        run: the folder.
        report: its report.
        trust: packages whose classes its settings may name.
    """
    return write_report(run.page, [read(run, report, trust=trust)])


def read(run: Run, report: SearchReport | None = None, *, trust: Sequence[str] = (), **other: Any) -> SearchContent:
    """Read the content of a run, finished or not. Notes name what is missing.

    Args:
        run: the folder.
        report: its report; None: in the folder, if the run is finished.
        trust: packages whose classes its settings may name.
        other: not used; see `report.retrieval.read`.
    """
    report = SearchReport.from_json(run.after) if report is None and run.finished else report
    common = read_common(run, report, trust)
    data = common["config"]["data"]
    common["config"]["data"] = {**data, "name": Path(data["root"]).stem}
    before = None
    if run.before.exists():
        found = report.systems.get(BEFORE, {}) if report is not None else {}
        intervals = {name: (low, high) for name, (low, high) in found.get("intervals", {}).items()}
        before = SimpleNamespace(values=run.read_untrained(), intervals=intervals, counts={}, settings={})
    return SearchContent(**common, before=before)
