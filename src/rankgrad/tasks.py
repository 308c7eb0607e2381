"""The kinds of runs: one table, which commands, settings, run folders and pages read. It imports nothing.

A new kind is a row here, a root file of settings that says `task: NAME`, a module that trains and one that reads its
runs for a page.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        main: the one of them that orders the table and is tested.
    """

    command: str
    settings: str
    trains: str
    reads: str
    result: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    main: str


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
        main="mAP@R",
    ),
    "detection": TaskRow(
        command="detect train",
        settings="detect",
        trains="rankgrad.detection.run",
        reads="rankgrad.detection.page",
        result="metrics.json",
        files=("config", "weights", "detections", "facts", "page", "after"),
        columns=("AP50", "AP50_11", "AP75"),
        main="AP50",
    ),
}


def of_command(command: str) -> TaskRow:
    """The kind of run that a command trains.

    >>> of_command("detect train").main
    'AP50'
    """
    return next(row for row in TASKS.values() if row.command == command)


__all__ = ["TASKS", "TaskRow", "of_command"]
