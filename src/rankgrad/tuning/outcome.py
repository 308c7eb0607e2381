"""What a search found: all trials as a csv file, the budget, the winners, and what the comparison of them says."""

from __future__ import annotations

import csv
import io
import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluation.statistics import holm, paired_t_test, spread
from ..files import read_json, write_text
from ..runs.compare import folders_of
from ..tables import markdown
from .plan import Plan
from .space import Space
from .study import Study, Tried

FINAL = "final"


@dataclass(frozen=True)
class Budget:
    """What the search of one loss took.

    Attributes:
        trials: that have ended: complete, pruned and failed ones.
        pruned: of these.
        failed: of these.
        steps: of training, those of pruned trials too.
        seconds: of training.
    """

    trials: int
    pruned: int
    failed: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class LossDifference:
    """A winner minus the first one, on the test classes.

    Attributes:
        loss: that is compared with the first one.
        mean: of the differences over the seeds.
        low: end of the 95 % interval.
        high: the other end.
        p: of a paired t-test; None where all differences are equal.
        corrected: the same by Holm, over all losses that are compared.
        seeds: that both have.
    """

    loss: str
    mean: float
    low: float
    high: float
    p: float | None
    corrected: float | None
    seeds: int


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        metric: that was maximised.
        trials: loss -> its trials.
        winners: loss -> the best of them, of the losses that have one.
        spaces: loss -> setting -> values.
        importances: loss -> setting -> its share in what came out; of losses with enough trials.
        budgets: loss -> what it took.
        final: loss -> metric -> values over the seeds, on the test classes.
        differences: of the metric that was maximised, from the first loss.
        runs: loss -> folders of the runs on the test classes.
    """

    metric: str
    trials: Mapping[str, Sequence[Tried]]
    winners: Mapping[str, Tried]
    spaces: Mapping[str, Space]
    importances: Mapping[str, Mapping[str, float]]
    budgets: Mapping[str, Budget]
    final: Mapping[str, Mapping[str, Sequence[float]]]
    differences: Sequence[LossDifference]
    runs: Mapping[str, Sequence[Path]]

    def text(self) -> str:
        """The tables, in Markdown."""
        parts = [
            f"Chosen by {self.metric} on held-out training classes, mean over the folds, per cent",
            markdown(self.chosen()),
        ]
        if self.winners:
            parts += ["The winners", *(f"    {loss}: {_words(trial.settings)}" for loss, trial in self.winners.items())]
        if self.final:
            parts += [
                "On the test classes: mean ± standard deviation over the seeds, per cent",
                markdown(self.tested()),
            ]
        if self.differences:
            first = next(iter(self.final))
            parts += [f"{self.metric} against {first}: paired t-tests, p corrected by Holm", markdown(self.compared())]
        return "\n\n".join(parts)

    def chosen(self) -> list[list[str]]:
        """Rows of a table: the best trial of each loss, and what its search took."""
        head = ["loss", "best", "first trial", "trials", "pruned", "failed", "steps", "minutes"]
        rows = []
        for loss, budget in self.budgets.items():
            first = next((trial.value for trial in self.trials[loss] if trial.number == 0), None)
            best = self.winners[loss].value if loss in self.winners else None
            counts = [budget.trials, budget.pruned, budget.failed, budget.steps]
            rows.append([loss, _percent(best), _percent(first), *map(str, counts), f"{budget.seconds / 60:.1f}"])
        return [head, *rows]

    def tested(self) -> list[list[str]]:
        """Rows of a table: the winners on the test classes, the best one first."""
        columns = list(dict.fromkeys(name for values in self.final.values() for name in values))
        ordered = sorted(self.final, key=lambda loss: -statistics.mean(self.final[loss].get(self.metric, [0.0])))
        rows = [[loss, *(_spread(self.final[loss].get(name, ())) for name in columns)] for loss in ordered]
        return [["loss", *columns], *rows]

    def compared(self) -> list[list[str]]:
        """Rows of a table: each winner against that of the first loss."""
        head = ["loss", "difference", "95 % interval", "p", "p (Holm)", "seeds"]
        rows = [
            [each.loss, f"{each.mean:+.2f}", f"{each.low:+.2f} to {each.high:+.2f}", _p(each.p), _p(each.corrected)]
            + [str(each.seeds)]
            for each in self.differences
        ]
        return [head, *rows]


def write_outcome(out: Path, plan: Plan, studies: Sequence[Study]) -> Outcome:
    """Write trials.csv, tune.json and tune.md below `out`, and return what they hold.

    Args:
        out: folder of the search.
        plan: of the search.
        studies: one for each loss.
    """
    trials = {study.loss: study.tried() for study in studies}
    best = {study.loss: study.best() for study in studies}
    winners = {loss: trial for loss, trial in best.items() if trial is not None}
    final = _final(out, plan, winners)
    outcome = Outcome(
        plan.metric,
        trials,
        winners,
        {study.loss: study.space for study in studies},
        {study.loss: study.importances() for study in studies},
        {loss: _budget(trial) for loss, trial in trials.items()},
        final,
        _differences(final, plan.metric),
        {loss: folders_of([final_name(loss, winners[loss])], plan.seeds, out / FINAL).popitem()[1] for loss in final},
    )
    write_text(out / "trials.csv", _csv(outcome, plan.folds))
    write_text(out / "tune.json", json.dumps(_plain(outcome), indent=1))
    write_text(out / "tune.md", outcome.text() + "\n")
    return outcome


def final_name(loss: str, winner: Tried) -> str:
    """What a winner is called in the comparison: a longer search may have another one."""
    return f"{loss} #{winner.number}"


def _final(out: Path, plan: Plan, winners: Mapping[str, Tried]) -> dict[str, dict[str, list[float]]]:
    """The values of the comparison, if that is of these winners, in the order of loss=."""
    path = out / FINAL / "compare.json"
    if not path.exists() or len(winners) < len(plan.losses):
        return {}
    values = read_json(path, "values")["values"]
    names = {loss: final_name(loss, winners[loss]) for loss in plan.losses}
    if not all(name in values for name in names.values()):
        return {}
    return {loss: values[name] for loss, name in names.items()}


def _differences(final: Mapping[str, Mapping[str, Sequence[float]]], metric: str) -> list[LossDifference]:
    values = {loss: columns[metric] for loss, columns in final.items() if metric in columns}
    first = next(iter(values), None)
    if first is None or any(len(each) != len(values[first]) or len(each) < 2 for each in values.values()):
        return []  # runs are missing: no pairs
    tests = {loss: paired_t_test(each, values[first]) for loss, each in values.items() if loss != first}
    told = [test.p for test in tests.values() if test.p is not None]
    corrected = iter(holm(told))
    return [
        LossDifference(loss, t.mean, t.low, t.high, t.p, None if t.p is None else next(corrected), t.n)
        for loss, t in tests.items()
    ]


def _budget(trials: Sequence[Tried]) -> Budget:
    states = [trial.state for trial in trials]
    steps, seconds = sum(trial.steps for trial in trials), sum(trial.seconds for trial in trials)
    return Budget(len(trials), states.count("pruned"), states.count("failed"), steps, seconds)


def _csv(outcome: Outcome, folds: int) -> str:
    names = list(dict.fromkeys(name for space in outcome.spaces.values() for name in space))
    head = ["loss", "trial", "state", outcome.metric, *(f"fold{fold}" for fold in range(1, folds + 1))]
    rows: list[list[object]] = [[*head, "steps", "seconds", *names]]
    for loss, trials in outcome.trials.items():
        for trial in trials:
            values = [*trial.folds, *[""] * (folds - len(trial.folds))]
            value = "" if trial.value is None else trial.value
            chosen = [trial.chosen.get(name, "") for name in names]
            rows.append(
                [loss, trial.number, trial.state, value, *values, trial.steps, round(trial.seconds, 1), *chosen]
            )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "metric": outcome.metric,
        "spaces": {loss: {name: str(of) for name, of in space.items()} for loss, space in outcome.spaces.items()},
        "importances": outcome.importances,
        "budget": {loss: vars(budget) for loss, budget in outcome.budgets.items()},
        "winners": {
            loss: {"trial": w.number, "value": w.value, "folds": w.folds, "settings": w.settings}
            for loss, w in outcome.winners.items()
        },
        "final": outcome.final,
        "differences": [vars(each) for each in outcome.differences],
    }


def _words(settings: Sequence[str]) -> str:
    return shlex.join(settings) or "(the defaults)"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, deviation = spread(values)
    return f"{mean:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
