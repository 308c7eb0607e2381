"""Trainings whose values go to a csv file: those that the file lacks are trained, measured and removed.

A run adds its values to the file when it ends; then its folder is removed. If the command is interrupted, run it again
and it continues.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankgrad.config import ConfigError
from rankgrad.runs.compare import shared, train_in_turn
from rankgrad.runs.folder import Run

from .values import append, cells


@dataclass(frozen=True)
class Training:
    """A run, and the place of its values in the file: see `values.append`.

    Attributes:
        name: of the folder, unlike all others. What is no letter, digit or one of _.,=+- becomes a -.
        setting: column -> text.
        settings: KEY=VALUE of this run alone.
        unit: "" if the file has none.
        seed: "" if the file has none.
    """

    name: str
    setting: Mapping[str, str]
    settings: Sequence[str]
    unit: str = ""
    seed: str = ""

    @property
    def cell(self) -> tuple[tuple[tuple[str, str], ...], str, str]:
        """As `values.cells` lists it."""
        return tuple(self.setting.items()), self.unit, self.seed

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return re.sub(r"[^\w.,=+-]+", "-", self.name)


def train_missing(
    trainings: Sequence[Training],
    values: Path,
    work: Path,
    words: Sequence[str],
    measure: Callable[[Run], Mapping[str, float]],
    *,
    jobs: int = 1,
    command: str = "train",
    if_failed: Mapping[str, float] | None = None,
) -> None:
    """Train what the file does not have yet.

    Args:
        trainings: in their order.
        values: the file.
        work: folder of the runs.
        words: settings of all trainings.
        measure: metric -> value of a finished run.
        jobs: trainings at a time.
        command: training command of rankgrad.
        if_failed: values of a run that fails; its folder stays. None: it has no values.

    Raises:
        ConfigError: runs failed, and `if_failed` is None. The others were trained before it is raised.
    """
    values.parent.mkdir(parents=True, exist_ok=True)
    there = cells(values)
    left = {work / each.folder: each for each in trainings if each.cell not in there}
    failed: list[str] = []

    def ended(folder: Path, error: str | None) -> None:
        if error is not None:
            failed.append(f"{folder}: {error}")
            if if_failed is None:
                return
        its, numbers = left[folder], measure(Run(folder)) if error is None else if_failed or {}
        append(values, its.setting, numbers, unit=its.unit, seed=its.seed)
        if error is None:
            shutil.rmtree(folder, ignore_errors=True)
        text = ", ".join(f"{metric} {number:.4g}" for metric, number in numbers.items())
        print(f"{work.name}, {its.name}: {text}", flush=True)

    def unfinished() -> Iterator[tuple[Path, Sequence[str]]]:
        for folder, its in left.items():
            if Run(folder).finished:  # the command was interrupted before it was measured
                ended(folder, None)
            else:
                yield folder, [*words, *its.settings]

    if not left:
        return
    waiting = unfinished()
    with shared(work, words):
        train_in_turn(lambda: next(waiting, None), ended, work, jobs, command, many=True)
    if failed and if_failed is None:
        raise ConfigError("\n".join(["these runs failed; the same command tries them again:", *failed]))
