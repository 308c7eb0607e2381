"""The page of a search: the best trials on the test data, the budget of every loss, and all its trials."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..html import charts
from ..html.templates import write_page
from ..html.text import enumeration, number, percent

if TYPE_CHECKING:
    from .outcome import Outcome

MOST_TRIALS = 20  # the json has all
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


def _trials(outcome: Outcome, name: str) -> list[tuple[str, str, str]]:
    """(value, state, settings) of the best trials, the best first."""
    tried = [trial for trial in outcome.trials[name] if trial.value is not None]
    tried.sort(key=lambda trial: (trial.state != "complete", -(trial.value or 0.0), trial.number))
    return [(percent(trial.value), trial.state, " ".join(trial.settings)) for trial in tried[:MOST_TRIALS]]
