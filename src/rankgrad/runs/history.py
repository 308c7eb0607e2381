"""The course of a run: its curves, its evaluations, and its result by either rule of reporting."""

from __future__ import annotations

from typing import Literal

from .folder import Run
from .log import TEST, read_curves


def curves(run: Run) -> dict[str, list[tuple[float, float]]]:
    """What was logged: name -> (step, value)."""
    return read_curves(run.logs)


def evaluations(run: Run) -> dict[int, dict[str, float]]:
    """Steps done -> test metrics, of every evaluation during training (`evaluation.every`) and of the one after it."""
    by_step: dict[int, dict[str, float]] = {}
    for name, points in curves(run).items():
        if name.startswith(TEST):
            for step, value in points:
                by_step.setdefault(int(step) + 1, {})[name.removeprefix(TEST)] = value
    if run.finished:
        by_step[int(run.read_facts()["steps"])] = dict(run.read_values())
    return dict(sorted(by_step.items()))


# Where the evaluation to report is chosen -> the metric that chooses.
CHOSEN_BY = {"test": "R@1", "val": "val/R@1"}
Chooser = Literal["test", "val"]


def best(run: Run, metric: str = "R@1") -> tuple[int, dict[str, float]]:
    """(steps done, metrics) of the evaluation that is best by one metric, the earliest of equals.

    Papers on CUB, SOP and In-shop report this number: the best over regular evaluations on the test set. It selects
    on the test set; the numbers after the last epoch do not, nor those where "val/R@1" is best: that is R@1 of classes
    held out of training, and is there with `evaluation.keep_best=val`.

    Raises:
        ValueError: nothing was evaluated yet, or not by this metric.
    """
    known = {step: values for step, values in evaluations(run).items() if metric in values}
    if not known:
        raise ValueError(f"{run.folder} has no evaluation by {metric}; is the run finished?")
    step = max(known, key=lambda s: (known[s][metric], -s))
    return step, known[step]
