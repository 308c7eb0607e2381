"""The result of a search: all trials as a csv file, the budget, the best trials, and their comparison on the test."""

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

from ...common.files import read_json, write_text
from ...evaluation.statistics import FEWEST, PairedDifference, caution, holm, paired_t_test
from ...tables import markdown
from ..config import plain
from ..report.content import data_name
from ..runs.compare import difference_cells, folders_of, mean_text
from ..runs.made import MADE
from .plan import Plan
from .space import Space
from .study import Study, Tried

FINAL = "final"


@dataclass(frozen=True)
class Budget:
    """The cost of the search for one loss.

    Attributes:
        trials: number of finished trials: complete, pruned or failed.
        pruned: number of pruned trials.
        failed: number of failed trials.
        steps: training steps of all trials, including pruned ones.
        seconds: training time of all trials.
    """

    trials: int
    pruned: int
    failed: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class LossDifference:
    """The best trial of a loss minus that of the first loss, on the test data.

    Attributes:
        loss: the loss that is compared with the first one.
        mean: of the differences over the seeds.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        p: p-value of a paired t-test; None for fewer than six seeds, and if all differences are equal.
        corrected: p-value with Holm's correction over all compared losses; None if p is None.
        seeds: number of common seeds.
        detectable: size of a difference that these seeds can tell apart, see `statistics.detectable`.
    """

    loss: str
    mean: float
    low: float
    high: float
    p: float | None
    corrected: float | None
    seeds: int
    detectable: float | None


@dataclass(frozen=True)
class Outcome:
    """The result of a search.

    Attributes:
        metric: the metric that was maximised.
        trials: loss -> its trials.
        winners: loss -> its best trial, if it has one.
        spaces: loss -> setting -> values.
        importances: loss -> setting -> its importance for the metric; only for losses with enough trials.
        budgets: loss -> cost of its search.
        final: loss -> metric -> values over the seeds, on the test data.
        untrained: row of an untrained network -> metric -> values over the seeds, on the test data.
        differences: in the maximised metric, from the first loss.
        runs: loss -> folders of the runs on the test data.
        data: its name.
    """

    metric: str
    trials: Mapping[str, Sequence[Tried]]
    winners: Mapping[str, Tried]
    spaces: Mapping[str, Space]
    importances: Mapping[str, Mapping[str, float]]
    budgets: Mapping[str, Budget]
    final: Mapping[str, Mapping[str, Sequence[float]]]
    untrained: Mapping[str, Mapping[str, Sequence[float]]]
    differences: Sequence[LossDifference]
    runs: Mapping[str, Sequence[Path]]
    data: str

    def text(self) -> str:
        """The tables, in Markdown."""
        parts = [
            f"Chosen by {self.metric} on held-out training data, mean over the folds, per cent",
            markdown(self.chosen()),
        ]
        if self.winners:
            parts += ["The winners", *(f"    {loss}: {_words(trial.settings)}" for loss, trial in self.winners.items())]
        if self.final:
            parts += [
                "On the test data: mean ± standard deviation over the seeds, per cent",
                markdown(self.tested()),
            ]
        if self.differences:
            first = next(iter(self.final))
            parts += [f"{self.metric} against {first}, paired by seed", markdown(self.compared())]
            parts += [self.caution] if self.caution else []
        return "\n\n".join(parts)

    def chosen(self) -> list[list[str]]:
        """Rows of a table: the best trial of each loss, and the cost of its search."""
        head = ["loss", "best", "first trial", "trials", "pruned", "failed", "steps", "minutes"]
        rows = []
        for loss, budget in self.budgets.items():
            first = next((trial.value for trial in self.trials[loss] if trial.number == 0), None)
            best = self.winners[loss].value if loss in self.winners else None
            counts = [budget.trials, budget.pruned, budget.failed, budget.steps]
            rows.append([loss, _percent(best), _percent(first), *map(str, counts), f"{budget.seconds / 60:.1f}"])
        return [head, *rows]

    def tested(self) -> list[list[str]]:
        """Rows of a table: the best trials on the test data, best first."""
        columns = list(dict.fromkeys(name for values in self.final.values() for name in values))
        values = {**self.final, **self.untrained}
        ordered = sorted(values, key=lambda loss: -statistics.mean(values[loss].get(self.metric, [0.0])))
        rows = [[loss, *(mean_text(values[loss].get(name, ())) for name in columns)] for loss in ordered]
        return [["loss", *columns], *rows]

    def compared(self) -> list[list[str]]:
        """Rows of a table: differences of each loss from the first loss, with p-values if there are any."""
        heads, cells = difference_cells(
            [PairedDifference(d.mean, d.p, d.low, d.high, d.seeds, d.detectable) for d in self.differences]
        )
        rows = [["loss", *heads], *([each.loss, *of] for each, of in zip(self.differences, cells, strict=True))]
        if "p" in heads:
            place = rows[0].index("p") + 1
            corrected = ["p (Holm)", *(_p(each.corrected) for each in self.differences)]
            rows = [[*row[:place], p, *row[place:]] for row, p in zip(rows, corrected, strict=True)]
        return rows

    @property
    def caution(self) -> str:
        """What the differences cannot show; "" if they have enough seeds."""
        return caution(min((each.seeds for each in self.differences), default=FEWEST))


def write_outcome(out: Path, plan: Plan, studies: Sequence[Study]) -> Outcome:
    """Write trials.csv, tune.json and tune.md below `out`, and return their content.

    Args:
        out: folder of the search.
        plan: of the search.
        studies: one for each loss.
    """
    trials = {study.loss: study.tried() for study in studies}
    best = {study.loss: study.best() for study in studies}
    winners = {loss: trial for loss, trial in best.items() if trial is not None}
    final, untrained, seeds = _final(out, plan, winners)
    metric = next((study.metric for study in studies if study.metric is not None), plan.metrics[-1])
    outcome = Outcome(
        metric,
        trials,
        winners,
        {study.loss: study.space for study in studies},
        {study.loss: study.importances() for study in studies},
        {loss: _budget(trial) for loss, trial in trials.items()},
        final,
        untrained,
        _differences(final, metric, len(set(seeds))),
        {loss: folders_of([final_name(loss, winners[loss])], seeds, out / FINAL).popitem()[1] for loss in final},
        data_name(plain(studies[0].base)),
    )
    write_text(out / "trials.csv", _csv(outcome, plan.folds))
    write_text(out / "tune.json", json.dumps(_plain(outcome), indent=1))
    write_text(out / "tune.md", outcome.text() + "\n")
    return outcome


def final_name(loss: str, winner: Tried) -> str:
    """Name of a best trial in the comparison, with its number, since a longer search may find a better trial."""
    return f"{loss} #{winner.number}"


def _final(
    out: Path, plan: Plan, winners: Mapping[str, Tried]
) -> tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, list[float]]], list[int]]:
    """The values of the comparison in the order of loss=, those of the untrained networks, and its seeds.

    There are no values without these winners. With seeds=none, the comparison may be that of an earlier command.
    """
    path = out / FINAL / "compare.json"
    if not path.exists() or len(winners) < len(plan.losses):
        return {}, {}, []
    content = read_json(path, "values", "seeds")
    values, seeds = content["values"], content["seeds"]
    names = {loss: final_name(loss, winners[loss]) for loss in plan.losses}
    if not all(name in values for name in names.values()):
        return {}, {}, seeds
    return {loss: values[name] for loss, name in names.items()}, content.get("untrained", {}), seeds


def _differences(final: Mapping[str, Mapping[str, Sequence[float]]], metric: str, seeds: int) -> list[LossDifference]:
    values = {loss: columns[metric] for loss, columns in final.items() if metric in columns}
    first = next(iter(values), None)
    if first is None or seeds < 2 or any(len(each) != seeds for each in values.values()):
        return []  # runs are missing: the values are not of the same seeds, so there are no pairs
    tests = {loss: paired_t_test(each, values[first]) for loss, each in values.items() if loss != first}
    corrected = holm([test.p for test in tests.values()])
    return [
        LossDifference(loss, t.mean, t.low, t.high, t.p, p, t.n, t.detectable)
        for (loss, t), p in zip(tests.items(), corrected, strict=True)
    ]


def _budget(trials: Sequence[Tried]) -> Budget:
    states = [trial.state for trial in trials]
    steps, seconds = sum(trial.steps for trial in trials), sum(trial.seconds for trial in trials)
    return Budget(len(trials), states.count("pruned"), states.count("failed"), steps, seconds)


def _csv(outcome: Outcome, folds: int) -> str:
    names = list(dict.fromkeys(name for space in outcome.spaces.values() for name in space))
    head = ["loss", "trial", "state", outcome.metric, *(f"fold{fold}" for fold in range(1, folds + 1))]
    rows: list[list[object]] = [[*head, "steps", "seconds", *MADE, *names]]
    for loss, trials in outcome.trials.items():
        for trial in trials:
            values = [*trial.folds, *[""] * (folds - len(trial.folds))]
            value = "" if trial.value is None else trial.value
            chosen = [trial.chosen.get(name, "") for name in names]
            took = [trial.steps, round(trial.seconds, 1), *trial.made.values()]
            rows.append([loss, trial.number, trial.state, value, *values, *took, *chosen])
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
        "untrained": outcome.untrained,
        "differences": [vars(each) for each in outcome.differences],
    }


def _words(settings: Sequence[str]) -> str:
    return shlex.join(settings) or "(the defaults)"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
