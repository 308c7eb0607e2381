"""The page of a search: the best trials on the test data, the budget of every loss, and all its trials."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..html import charts
from ..html.page import write_page
from ..html.parallel import Across, Upright, parallel
from ..html.text import enumeration, number, percent
from .space import NumberRange

if TYPE_CHECKING:
    from .outcome import Outcome
    from .space import Values
    from .study import Tried

MOST_LINES = 8  # number of colours and dashes that readers can distinguish


def write_tuning(path: str | os.PathLike[str], outcome: Outcome) -> Path:
    """Write the page of a search. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        outcome: result of the search.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    notes = []
    if len(outcome.trials) > MOST_LINES:
        notes.append(f"The curves show the first {MOST_LINES} of {len(outcome.trials)} losses.")
    counts = {len(trials) for trials in outcome.trials.values()}
    if len(counts) > 1:
        notes.append("The losses have different numbers of trials, because the search was stopped.")
    return write_page(
        path,
        "workbench/tuning/page.html",
        styles=[
            "workbench/html/base.css",
            "workbench/html/sections.css",
            "workbench/report/page.css",
            "workbench/tuning/page.css",
        ],
        title=f"{outcome.data}, tuned with the same budget: {enumeration(list(outcome.trials), 4)}",
        facts=[("metric", outcome.metric), ("trials per loss", number(max(counts, default=0)))],
        notes=notes,
        metric=outcome.metric,
        first=next(iter(outcome.final), ""),
        tested=outcome.tested() if outcome.final else [],
        differences=outcome.compared() if outcome.differences else [],
        caution=outcome.caution,
        chosen=outcome.chosen(),
        curves=_curves(outcome),
        curved=list(outcome.trials)[:MOST_LINES],
        losses=[_loss(outcome, name) for name in outcome.trials],
    )


def _curves(outcome: Outcome) -> Markup:
    """The best value so far against the number of training steps so far."""
    series = []
    for kind, (name, trials) in enumerate(list(outcome.trials.items())[:MOST_LINES]):
        points, steps, best = [], 0, -math.inf
        for trial in trials:
            steps += trial.steps
            if trial.state == "complete" and trial.value is not None:
                best = max(best, trial.value)
            points.append((float(steps), 100 * best))
        series.append(charts.Series(name, points, kind))
    if not any(one.points for one in series):
        return Markup()
    return charts.lines(
        f"Best {outcome.metric} so far",
        series,
        "training steps, over all trials and folds",
        summary="",
        meaning="Only trials that were trained on all folds count. The first trial has the default settings.",
        size=charts.WIDE,
    )


def _loss(outcome: Outcome, name: str) -> dict[str, object]:
    """Variables of the template for one loss."""
    winner, space = outcome.winners.get(name), outcome.spaces[name]
    shares = outcome.importances.get(name, {})
    return {
        "name": name,
        "settings": "" if winner is None else shlex.join(winner.settings),
        "importance": [(key, str(space[key]), share) for key, share in shares.items()],
        "trials": _trials(outcome, name),
    }


def _trials(outcome: Outcome, name: str) -> Markup:
    """Parallel coordinates: an axis for each searched setting, and the last axis for the metric."""
    space, trials = outcome.spaces[name], [trial for trial in outcome.trials[name] if trial.value is not None]
    if not trials or not space:
        return Markup()
    values = [trial.value for trial in trials if trial.value is not None]
    low, high = min(values), max(values)
    outcomes = Upright(outcome.metric, tuple((percent(value), _share(value, low, high)) for value in {low, high}))
    axes = [*(Upright(key, _marks(of)) for key, of in space.items()), outcomes]
    ordered = sorted(trials, key=lambda trial: (trial is outcome.winners.get(name), trial.value))
    winner = outcome.winners.get(name)
    lines = [_line(trial, space, low, high, winner) for trial in ordered]
    meaning = (
        "Each line is a trial, from its settings to its value on the right. Thick: the best trial. Dashed: pruned."
    )
    return parallel("Trials", axes, lines, summary=f"{len(trials)} trials", meaning=meaning)


def _line(trial: Tried, space: Mapping[str, Values], low: float, high: float, winner: Tried | None) -> Across:
    assert trial.value is not None
    share = _share(trial.value, low, high)
    is_best = winner is not None and trial.number == winner.number
    kind = "best" if is_best else "pruned" if trial.state == "pruned" else ""
    places = [of.share(trial.chosen[key]) if key in trial.chosen else None for key, of in space.items()]
    told = f"trial {trial.number}, {trial.state}: {percent(trial.value)} with {' '.join(trial.settings)}"
    return Across((*places, share), 1.0 if is_best else 0.25 + 0.6 * share, kind, told)


def _share(value: float, low: float, high: float) -> float:
    return 0.5 if low == high else (value - low) / (high - low)


def _marks(of: Values) -> tuple[tuple[str, float], ...]:
    times = "× " if isinstance(of, NumberRange) and of.kind == "times" else ""
    return tuple(
        (f"{times}{end:g}" if isinstance(end, float) else end.partition(":")[0], of.share(end)) for end in of.ends()
    )
