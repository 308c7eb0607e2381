"""The kinds of runs: one table, which commands, settings, run folders and pages read. It imports nothing.

A new kind is a row here, a root file of settings that says `task: NAME`, a module that trains and one that reads its
runs for a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRow:
    """One kind of run.

    Attributes:
        command: that trains one, and goes on with it.
        settings: name of its root file of settings, see `config.TREES`.
        trains: module with `train` and `TASK`, see `training.runner`.
        reads: module with `read`, which gives what a page shows of a run, see `report.content`.
        result: file of the numbers, which is written last.
        files: what a finished run holds beside its state and its logs, by the names in `runs.folder.Run`.
        columns: metrics of a table that compares runs.
        mains: the one of them that orders the table and is tested: the first that the runs have. All have the last.
        trial: settings of every run of a search: numbers on held-out training rows, and nothing else.
    """

    command: str
    settings: str
    trains: str
    reads: str
    result: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    mains: tuple[str, ...]
    trial: tuple[str, ...] = ()

    def main_of(self, measured: Iterable[str]) -> str:
        """The main metric of runs that have measured these.

        >>> TASKS["scores"].main_of(["AP", "P@100"])
        'AP'
        """
        known = {*measured}
        return next((name for name in self.mains if name in known), self.mains[-1])


TRIAL = (
    *("evaluation.split=val", "evaluation.bootstrap=0", "evaluation.every=0"),
    *("lean=true", "health=false", "loggers=[]", "trainer.enable_progress_bar=false"),
)

#: Kind of run, as its settings say it with `task:` -> what is its own.
TASKS: Mapping[str, TaskRow] = {
    "retrieval": TaskRow(
        command="train",
        settings="train",
        trains="rankgrad.training.retrieval",
        reads="rankgrad.report.retrieval",
        result="after.json",
        files=("config", "before", "weights", "embeddings", "facts", "page", "after"),
        columns=("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "H-AP", "H-NDCG", "NMI"),
        mains=("mAP@R",),
        trial=(*TRIAL, "evaluation.clusters=none"),
    ),
    "scores": TaskRow(
        command="train",
        settings="scores",
        trains="rankgrad.scores.task",
        reads="rankgrad.scores.page",
        result="after.json",
        files=("config", "weights", "scores", "facts", "page", "after"),
        columns=("NDCG@10", "AP", "ROC AUC", "ROC AUC@FPR=0.05", "P@100", "MRR", "P@10"),
        mains=("NDCG@10", "AP"),
        trial=TRIAL,
    ),
    "detection": TaskRow(
        command="detect train",
        settings="detect",
        trains="rankgrad.detection.run",
        reads="rankgrad.detection.page",
        result="metrics.json",
        files=("config", "weights", "detections", "facts", "page", "after"),
        columns=("AP50", "AP50_11", "AP75"),
        mains=("AP50",),
    ),
}


def of_command(command: str, settings: Iterable[str] = ()) -> TaskRow:
    """The kind of run that a command trains; `task=NAME` among its settings chooses, where it trains several.

    >>> of_command("train").settings, of_command("train", ["seed=1", "task=scores"]).settings
    ('train', 'scores')
    """
    rows = [row for row in TASKS.values() if row.command == command]
    named = [TASKS.get(word.removeprefix("task=")) for word in settings if word.startswith("task=")]
    return next((row for row in named if row in rows), rows[0])


__all__ = ["TASKS", "TaskRow", "of_command"]
