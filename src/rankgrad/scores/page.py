"""What the page of a model of scores shows: its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..html.images import Images
from ..report import tables, write_report
from ..report.content import Extent, RunContent, Section, read_common
from ..runs.folder import Run
from ..tasks import TASKS
from .evaluation import ScoreReport


@dataclass(frozen=True, eq=False)
class ScoresContent(RunContent):
    """A run of a model of scores, as a page shows it.

    Attributes:
        name, config, facts, curves, before, after, latest, notes, siblings: see `RunContent`.
    """

    kind = "scores"

    @property
    def headline(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(name for name in TASKS["scores"].columns if name in self.values)[:4]

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(self.values)

    @classmethod
    def sections(cls, runs: Sequence[ScoresContent], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """The table of results."""
        return [tables.results(runs)], []


def write_page(run: Run, report: ScoreReport, trust: Sequence[str] = ()) -> Path:
    """Write the page of a run that is about to be finished.

    Args:
        run: the folder.
        report: of its test rows.
        trust: packages whose classes its settings may name.
    """
    return write_report(run.page, [ScoresContent(**read_common(run, report, trust))])


def read(
    run: Run, *, known: dict[str, Any] | None = None, pictures: bool = True, trust: Sequence[str] = ()
) -> ScoresContent:
    """What is there of a run, finished or not. What is missing is said in the notes.

    Args:
        run: the folder.
        known: nothing that these runs share.
        pictures: False: numbers and curves of the training alone.
        trust: packages whose classes its settings may name.
    """
    after = ScoreReport.from_json(run.after) if run.finished else None
    return ScoresContent(**read_common(run, after, trust))
