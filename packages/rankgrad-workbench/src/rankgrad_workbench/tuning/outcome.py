"""The result of a search: all trials as a csv file, the budget, the best trials, and their comparison on the test."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rankgrad.common.text import markdown

from ..files import write_text
from ..runs.compare import folders_of
from ..runs.provenance import MADE
from .study import Plan, Study, Tried

FINAL = "final"


@dataclass(frozen=True)
class Outcome:
    """The result of a search.

    Attributes:
        metric: the metric that was maximised.
        trials: loss -> its trials.
        winners: loss -> its best trial, if it has one.
        budgets: loss -> number of finished trials, of those that were pruned and that failed, and the steps and seconds
            of all trials, pruned ones included.
        compared: the tables of the comparison on the test data, in Markdown; empty: there was none.
        runs: loss -> folders of the runs of the comparison.
    """

    metric: str
    trials: Mapping[str, Sequence[Tried]]
    winners: Mapping[str, Tried]
    budgets: Mapping[str, Mapping[str, Any]]
    compared: str = ""
    runs: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    def text(self) -> str:
        """The tables, in Markdown."""
        parts = [
            f"Chosen by {self.metric} on held-out training data, mean over the folds, per cent",
            markdown(self.chosen()),
        ]
        if self.winners:
            chosen = {loss: shlex.join(trial.settings) for loss, trial in self.winners.items()}
            parts += ["The winners", *(f"    {loss}: {words or '(the defaults)'}" for loss, words in chosen.items())]
        if self.compared:
            parts += ["On the test data", self.compared]
        return "\n\n".join(parts)

    def chosen(self) -> list[list[str]]:
        """Rows of a table: the best trial of each loss, and the cost of its search."""
        head = ["loss", "best", "first trial", "trials", "pruned", "failed", "steps", "minutes"]
        rows = []
        for loss, budget in self.budgets.items():
            first = next((trial.value for trial in self.trials[loss] if trial.number == 0), None)
            best = self.winners[loss].value if loss in self.winners else None
            shares = ["-" if value is None else f"{100 * value:.2f}" for value in (best, first)]
            *counts, seconds = budget.values()
            rows.append([loss, *shares, *map(str, counts), f"{seconds / 60:.1f}"])
        return [head, *rows]


def write_outcome(out: Path, plan: Plan, studies: Sequence[Study]) -> Outcome:
    """Write trials.csv, tune.json and tune.md below `out`, and return their content.

    Args:
        out: folder of the search.
        plan: of the search.
        studies: one for each loss.
    """
    trials = {study.loss: study.tried() for study in studies}
    winners = {study.loss: trial for study in studies if (trial := study.best()) is not None}
    metric = next((study.metric for study in studies if study.metric is not None), plan.metrics[-1])
    budgets = {loss: _budget(of) for loss, of in trials.items()}
    outcome = Outcome(metric, trials, winners, budgets)
    table = pd.DataFrame([_row(loss, trial, metric) for loss, of in trials.items() for trial in of], dtype=object)
    names = dict.fromkeys(name for study in studies for name in study.space)
    columns = ["loss", "trial", "state", metric, *(f"fold{fold}" for fold in range(1, plan.folds + 1))]
    table = table.reindex(columns=[*columns, "steps", "seconds", *MADE, *names])
    write_text(out / "trials.csv", table.to_csv(index=False, lineterminator="\n"))
    content = {
        "metric": metric,
        "spaces": {study.loss: {name: str(of) for name, of in study.space.items()} for study in studies},
        "budget": budgets,
        "winners": {
            loss: {"trial": w.number, "value": w.value, "folds": w.folds, "settings": w.settings}
            for loss, w in winners.items()
        },
    }
    write_text(out / "tune.json", json.dumps(content, indent=1))
    write_text(out / "tune.md", outcome.text() + "\n")
    return outcome


def with_comparison(out: Path, plan: Plan, outcome: Outcome, compared: str) -> Outcome:
    """Add the tables of the comparison to an outcome, and to tune.md."""
    names = [final_name(loss, winner) for loss, winner in outcome.winners.items()]
    runs = dict(zip(outcome.winners, folders_of(names, plan.seeds, out / FINAL).values(), strict=True))
    outcome = replace(outcome, compared=compared, runs=runs)
    write_text(out / "tune.md", outcome.text() + "\n")
    return outcome


def final_name(loss: str, winner: Tried) -> str:
    """Name of a best trial in the comparison, with its number, since a longer search may find a better trial."""
    return f"{loss} #{winner.number}"


def _budget(trials: Sequence[Tried]) -> dict[str, Any]:
    counts = {state: sum(trial.state == state for trial in trials) for state in ("pruned", "failed")}
    return {"trials": len(trials), **counts} | {
        name: sum(getattr(trial, name) for trial in trials) for name in ("steps", "seconds")
    }


def _row(loss: str, trial: Tried, metric: str) -> dict[str, object]:
    """The row of a trial in trials.csv."""
    own = {"loss": loss, "trial": trial.number, "state": trial.state, metric: trial.value}
    folds = {f"fold{fold}": value for fold, value in enumerate(trial.folds, start=1)}
    return {**own, **folds, "steps": trial.steps, "seconds": round(trial.seconds, 1), **trial.made, **trial.chosen}
