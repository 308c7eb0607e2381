"""The log of a run (which `training.log` writes): its curves, its evaluations, and its best evaluation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal

from rankgrad.common.files import AGAIN, read_text

from .folder import TABLE, Run


def curves(run: Run) -> dict[str, list[tuple[float, float]]]:
    r"""The logged values: name -> (step, value).

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     run.logs.mkdir()
    ...     _ = (run.logs / "metrics.csv").write_text("step,loss\n0,0.9\n9,0.5\n19,0.4\n")
    ...     print(curves(run))
    {'loss': [(0.0, 0.9), (9.0, 0.5), (19.0, 0.4)]}
    """
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in read_rows(run.logs):
        for name, value in row.items():
            if name not in ("step", "epoch"):
                curves.setdefault(name, []).append((float(row["step"]), float(value)))
    return curves


def evaluations(run: Run) -> dict[int, dict[str, float]]:
    r"""Steps done -> test metrics of the evaluations during training (`evaluation.every`) and of the final one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     run.logs.mkdir()
    ...     _ = (run.logs / "metrics.csv").write_text("step,test/R@1\n9,0.75\n19,0.7\n")
    ...     print(evaluations(run))
    {10: {'R@1': 0.75}, 20: {'R@1': 0.7}}
    """
    by_step: dict[int, dict[str, float]] = {}
    for name, points in curves(run).items():
        if name.startswith(TEST):
            for step, value in points:
                by_step.setdefault(int(step) + 1, {})[name.removeprefix(TEST)] = value
    if run.finished:
        by_step[int(run.read_facts()["steps"])] = dict(run.read_values())
    return dict(sorted(by_step.items()))


# Split on which the best evaluation is chosen -> metric that chooses it.
CHOSEN_BY = {"test": "R@1", "val": "val/R@1"}
Chooser = Literal["test", "val"]


def best(run: Run, metric: str = "R@1") -> tuple[int, dict[str, float]]:
    r"""(steps done, metrics) of the evaluation that is best by one metric; the earliest of equals.

    Papers on CUB, SOP and In-shop report the best of regular evaluations on the test set, so they select on the test
    set. The metrics after the last epoch avoid this, and so does the metric "val/R@1": the R@1 of classes held out of
    training, which is logged with `evaluation.keep_best=val`.

    Raises:
        ValueError: there is no evaluation yet, or none with this metric.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     run.logs.mkdir()
    ...     _ = (run.logs / "metrics.csv").write_text("step,test/R@1\n9,0.75\n19,0.7\n")
    ...     print(best(run))
    (10, {'R@1': 0.75})
    """
    known = {step: values for step, values in evaluations(run).items() if metric in values}
    if not known:
        raise ValueError(f"{run.folder} has no value of {metric}; perhaps the run is not finished")
    step = max(known, key=lambda s: (known[s][metric], -s))
    return step, known[step]


TEST = "test/"  # prefix of the test metrics


def read_rows(folder: Path) -> list[dict[str, str]]:
    r"""The rows of a table, in the order of their steps; [] if there is no table.

    Raises:
        ValueError: the table is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / TABLE).write_text("step,loss\n0,0.9\n9,0.5\n")
    ...     read_rows(Path(folder))
    [{'step': '0', 'loss': '0.9'}, {'step': '9', 'loss': '0.5'}]
    """
    path = folder / TABLE
    if not path.exists():
        return []
    try:
        lines = read_text(path).splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]  # the process died while it wrote this line
        rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(lines)]
        for row in rows:
            list(map(float, row.values()))
    except (ValueError, TypeError, csv.Error) as error:  # TypeError: surplus cells of a row are a list
        raise ValueError(f"{path} is damaged ({error}). {AGAIN}") from None
    return [row for row in rows if "step" in row]
