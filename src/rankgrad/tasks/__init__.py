"""The kinds of runs, in one table for commands, settings, run folders and pages. This module imports nothing.

A new kind needs a row in this table, a root file of settings with `task: NAME`, a module that trains, and a module that
reads its runs for a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRow:
    """One kind of run.

    Attributes:
        command: command that trains and resumes a run.
        settings: name of its root file of settings, see `config.TREES`.
        trains: module with `train`, `check_data` and `TASK`, see `training.runner`.
        reads: module with `read`, which returns the content of a run's page, see `report.content`.
        result: file with the metrics. A run writes it last.
        files: files of a finished run, in addition to its state and its logs, by their names in `runs.folder.Run`.
        columns: metrics of a table that compares runs.
        mains: candidates for the main metric, which orders this table and is tested. It is the first one that the runs
            have. All runs have the last one.
        trial: settings of every run of a search. Such a run computes only metrics on held-out training rows.
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
        """The main metric of runs with these metrics.

        >>> TASKS["scores"].main_of(["AP", "P@100"])
        'AP'
        """
        known = {*measured}
        return next((name for name in self.mains if name in known), self.mains[-1])


TRIAL = (
    *("evaluation.split=val", "evaluation.bootstrap=0", "evaluation.every=0"),
    *("lean=true", "health=false", "loggers=[]", "trainer.enable_progress_bar=false"),
)

#: Kind of run, the value of `task:` in its settings -> its row.
TASKS: Mapping[str, TaskRow] = {
    "retrieval": TaskRow(
        command="train",
        settings="train",
        trains="rankgrad.tasks.retrieval.task",
        reads="rankgrad.tasks.retrieval.page.reading",
        result="after.json",
        files=("config", "before", "weights", "embeddings", "facts", "page", "after"),
        columns=("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "H-AP", "H-NDCG", "NMI"),
        mains=("mAP@R",),
        trial=(*TRIAL, "evaluation.clusters=none"),
    ),
    "scores": TaskRow(
        command="train",
        settings="scores",
        trains="rankgrad.tasks.scores.task",
        reads="rankgrad.tasks.scores.page",
        result="after.json",
        files=("config", "before", "weights", "scores", "facts", "page", "after"),
        columns=("NDCG@10", "AP", "ROC AUC", "ROC AUC@FPR=0.05", "P@100", "MRR", "P@10"),
        mains=("NDCG@10", "AP"),
        trial=TRIAL,
    ),
    "search": TaskRow(
        command="train",
        settings="search",
        trains="rankgrad.tasks.search.task",
        reads="rankgrad.tasks.search.page",
        result="after.json",
        files=("config", "before", "weights", "facts", "page", "after"),
        columns=("NDCG@10", "MRR@10", "Recall@100"),
        mains=("NDCG@10",),
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
    """The kind of run that a command trains. If the command trains several kinds, the setting `task=NAME` chooses.

    >>> of_command("train").settings, of_command("train", ["seed=1", "task=scores"]).settings
    ('train', 'scores')
    """
    rows = [row for row in TASKS.values() if row.command == command]
    named = [TASKS.get(word.removeprefix("task=")) for word in settings if word.startswith("task=")]
    return next((row for row in named if row in rows), rows[0])


__all__ = ["TASKS", "TaskRow", "of_command"]
