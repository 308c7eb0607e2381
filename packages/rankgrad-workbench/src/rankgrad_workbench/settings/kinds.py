"""The kinds of runs, in one table for commands, settings, run folders and pages.

A new kind needs a row in this table, a root file of settings with `task: NAME`, a module that trains, and a module that
reads its runs for a page. A plug-in registers its row by the entry point `rankgrad.tasks`. Every command reads the
table, so the module with the row of a plug-in imports this module alone. The table names modules of kinds by text:
nothing below the kinds imports one of them before a command needs it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rankgrad.common.plugins import PluginError, PluginWarning, registered

TRIAL = (
    *("evaluation.split=val", "evaluation.bootstrap=0", "evaluation.every=0"),
    *("lean=true", "health=false", "loggers=[]", "trainer.enable_progress_bar=false"),
)


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """One kind of run.

    Attributes:
        command: command that trains and resumes a run.
        settings: name of its root file of settings. It lies in the settings folder of rankgrad or of a plug-in; those
            of other kinds than retrieval in a folder of this name.
        groups: its groups of settings.
        trains: module with `train`, `check_data` and `TASK`, see `training.runner`.
        reads: module with `read`, which returns the content of a run's page, see `report.content`.
        result: file with the metrics. A run writes it last.
        files: files of a finished run, in addition to its state and its logs.
        columns: metrics of a table that compares runs.
        mains: candidates for the main metric, which orders this table and is tested. It is the first one that the runs
            have. All runs have the last one.
        kept: settings that every run has, beside those of the root file.
        places: settings that may name a class -> slot of `allowed.SLOTS`. No other setting may name one.
        own_losses: whether the losses of `loss=` are only those with a file, and not those of `rankgrad.losses`.
        evaluates: module with `evaluate_run`, which returns the report of a run. Its arguments, after the folder, are
            the options of `rankgrad evaluate` that it takes, and device, progress and trust if it needs them; each has
            a default. Empty: there is none.
        trial: settings of every run of a search. Such a run computes only metrics on held-out training rows.
    """

    settings: str
    trains: str
    reads: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    mains: tuple[str, ...]
    kept: tuple[str, ...]
    command: str = "train"
    groups: tuple[str, ...] = ("data", "model", "loss")
    result: str = "after.json"
    places: Mapping[str, str] = field(default_factory=lambda: {"loss": "loss"})
    own_losses: bool = False
    evaluates: str = ""
    trial: tuple[str, ...] = TRIAL

    def main_of(self, measured: Iterable[str]) -> str:
        """The main metric of runs with these metrics.

        >>> TASKS["scores"].main_of(["AP", "P@100"])
        'AP'
        """
        return next((name for name in self.mains if name in {*measured}), self.mains[-1])


_OWN: Mapping[str, TaskRow] = {
    "retrieval": TaskRow(
        settings="train",
        groups=("data", "model", "loss", "memory", "recipe", "experiment"),
        trains="rankgrad_workbench.tasks.retrieval.task",
        reads="rankgrad_workbench.tasks.retrieval.page.reading",
        evaluates="rankgrad_workbench.tasks.retrieval.saved",
        files=("config.yaml", "before.json", "model.pt", "embeddings.npz", "facts.json", "report.html", "after.json"),
        columns=("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "H-AP", "H-NDCG", "NMI"),
        mains=("mAP@R",),
        kept=(
            *("data.name", "data.load._target_", "data.train_transform._target_", "data.eval_transform._target_"),
            *("data.workers", "model.kind", "loss._target_"),
        ),
        places={
            **{"loss": "loss", "memory": "memory", "data.load": "data"},
            **{"data.train_transform": "transform", "data.eval_transform": "transform"},
        },
        trial=(*TRIAL, "evaluation.clusters=none"),
    ),
    "scores": TaskRow(
        settings="scores",
        trains="rankgrad_workbench.tasks.scores.task",
        reads="rankgrad_workbench.tasks.scores.page",
        evaluates="rankgrad_workbench.tasks.scores.saved",
        files=("config.yaml", "before.json", "model.pt", "scores.npz", "facts.json", "report.html", "after.json"),
        columns=("NDCG@10", "AP", "ROC AUC", "ROC AUC@FPR=0.05", "P@100", "MRR", "P@10"),
        mains=("NDCG@10", "AP"),
        kept=("data.name", "data.root", "data.load.label", "data.load.query", "model.kind", "loss._target_"),
    ),
    "search": TaskRow(
        settings="search",
        trains="rankgrad_workbench.tasks.search.task",
        reads="rankgrad_workbench.tasks.search.page",
        evaluates="rankgrad_workbench.tasks.search.saved",
        files=("config.yaml", "before.json", "model.pt", "facts.json", "report.html", "after.json"),
        columns=("NDCG@10", "MRR@10", "Recall@100"),
        mains=("NDCG@10",),
        kept=("data.name", "data.root", "data.load.corpus", "data.load.queries", "model.kind", "loss._target_"),
    ),
}


class _Tasks(Mapping[str, TaskRow]):
    """The rows of rankgrad, then those of plug-ins. A row that cannot be used is left out where all are listed."""

    def __getitem__(self, name: str) -> TaskRow:
        if name in _OWN:
            return _OWN[name]
        plugin = registered("tasks", _OWN)[name]
        row = plugin.load()
        if not isinstance(row, TaskRow):
            raise PluginError(
                f"the {plugin} must be a rankgrad_workbench.settings.kinds.TaskRow; got a {type(row).__name__}"
            )
        return row

    def __iter__(self) -> Iterator[str]:
        yield from _OWN
        for name in registered("tasks", _OWN):
            try:
                self[name]
            except PluginError as error:
                warnings.warn(str(error), PluginWarning, stacklevel=2)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Kind of run, the value of `task:` in its settings -> its row.
TASKS: Mapping[str, TaskRow] = _Tasks()


def of_command(command: str, settings: Iterable[str] = ()) -> TaskRow:
    """The kind of run that a command trains. If the command trains several kinds, the setting `task=NAME` chooses.

    >>> of_command("train").settings, of_command("train", ["seed=1", "task=scores"]).settings
    ('train', 'scores')
    """
    rows = [row for row in TASKS.values() if row.command == command]
    named = [TASKS.get(word.removeprefix("task=")) for word in settings if word.startswith("task=")]
    return next((row for row in named if row in rows), rows[0])


def of_settings(name: str) -> TaskRow:
    """The kind of run with this root file of settings.

    >>> of_settings("scores").groups
    ('data', 'model', 'loss')
    """
    return next(row for row in TASKS.values() if row.settings == name)


__all__ = ["TASKS", "TaskRow", "of_command", "of_settings"]
