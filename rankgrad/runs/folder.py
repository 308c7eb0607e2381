"""What a run has left behind: its files, what was logged, and its results by either rule of reporting."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

from ..evaluation import Report

STATE = "state.ckpt"
TEST = "test/"  # what evaluations are logged under


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        folder: where everything is.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """Configuration."""
        return self.folder / "config.yaml"

    @property
    def state(self) -> Path:
        """To resume."""
        return self.folder / STATE

    @property
    def weights(self) -> Path:
        """Model after training."""
        return self.folder / "model.pt"

    @property
    def before(self) -> Path:
        """Report of the untrained model."""
        return self.folder / "before.json"

    @property
    def after(self) -> Path:
        """Report of the trained model; its presence means that the run is finished."""
        return self.folder / "after.json"

    @property
    def health(self) -> Path:
        """What was seen of the training itself, see `health`."""
        return self.folder / "health.json"

    @property
    def finished(self) -> bool:
        """True once the last file is written: after.json, or of a detector metrics.json."""
        return self.after.exists() or (self.folder / "metrics.json").exists()


def _attempts(run: Run) -> list[Path]:
    """The files that were logged, first attempt first."""
    logs = run.folder / "logs"
    resumed = sorted(
        logs.glob("resumed-*/metrics.csv"), key=lambda path: int(path.parent.name.removeprefix("resumed-"))
    )
    return [path for path in (logs / "metrics.csv", *resumed) if path.exists()]


def curves(run: Run) -> dict[str, list[tuple[float, float]]]:
    """What was logged: name -> (step, value). Where a run was resumed, the later attempt counts."""
    rows: list[dict[str, str]] = []
    for path in _attempts(run):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]  # the process died while it wrote this one
        new = list(csv.DictReader(lines))
        if new:
            start = min(float(row["step"]) for row in new)
            rows = [row for row in rows if float(row["step"]) < start] + new
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if value and name not in ("step", "epoch"):
                found.setdefault(name, []).append((float(row["step"]), float(value)))
    return found


def evaluations(run: Run) -> dict[int, dict[str, float]]:
    """Steps done -> test metrics, of every evaluation during training (`evaluation.every`) and of the one after it."""
    found: dict[int, dict[str, float]] = {}
    logged = curves(run)
    for name, points in logged.items():
        if name.startswith(TEST):
            for step, value in points:
                found.setdefault(int(step) + 1, {})[name.removeprefix(TEST)] = value
    if run.finished:
        facts = json.loads((run.folder / "facts.json").read_text(encoding="utf-8"))
        found[int(facts["steps"])] = dict(Report.from_json(run.after).values)
    return dict(sorted(found.items()))


def best(run: Run, metric: str = "R@1") -> tuple[int, dict[str, float]]:
    """(steps done, metrics) of the evaluation that is best by one metric, the earliest of equals.

    Papers on CUB, SOP and In-shop report this number: the best over regular evaluations on the test set. It selects
    on the test set; the numbers after the last epoch do not.

    Raises:
        ValueError: nothing was evaluated yet, or not by this metric.
    """
    known = {step: values for step, values in evaluations(run).items() if metric in values}
    if not known:
        raise ValueError(f"{run.folder} has no evaluation by {metric}; is the run finished?")
    step = max(known, key=lambda s: (known[s][metric], -s))
    return step, known[step]
