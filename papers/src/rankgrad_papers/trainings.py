"""Trainings whose values are kept in a csv file. Only trainings without values in the file are run.

A run adds its values to the file when it ends; then its folder is removed. If the command is interrupted, run it again
and it continues.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankgrad_workbench.runs.compare import shared, train_in_turn
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError

from .values import append, cells, made_of


@dataclass(frozen=True)
class Training:
    """A run, and the keys of its values in the file: see `values.append`.

    Attributes:
        name: unique name of the folder. Characters other than letters, digits and _.,=+- are replaced by -.
        setting: column -> text.
        settings: KEY=VALUE settings of this run only.
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
        """The key of its cell, in the form of `values.cells`."""
        return tuple(self.setting.items()), self.unit, self.seed

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return re.sub(r"[^\w.,=+-]+", "-", self.name)


def with_seeds(rows: Mapping[tuple[str, ...], Sequence[str]], seeds: Iterable[int], *columns: str) -> list[Training]:
    """Each row with each seed, all rows with one seed before the next seed.

    Args:
        rows: texts of the columns -> settings.
        seeds: the seeds.
        columns: those of the file of values that identify a row.
    """
    named = [(", ".join(row), dict(zip(columns, row, strict=True)), settings) for row, settings in rows.items()]
    return [
        Training(f"{name}, seed {seed}", setting, [*settings, f"seed={seed}"], seed=str(seed))
        for seed in seeds
        for name, setting, settings in named
    ]


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
    """Run the trainings that have no values in the file yet.

    Args:
        trainings: trainings in the order in which they start.
        values: file of the values.
        work: folder of the runs.
        words: KEY=VALUE settings of all trainings.
        measure: function from a finished run to its values by metric.
        jobs: number of trainings at the same time.
        command: training command of rankgrad.
        if_failed: values to write for a run that fails, whose folder is kept. None: no values are written.

    Raises:
        ConfigError: runs failed, and `if_failed` is None. It is raised after all other runs were trained.
    """
    there = cells(values)
    left = {work / each.folder: each for each in trainings if each.cell not in there}
    failed: list[str] = []

    def ended(folder: Path, error: str | None) -> None:
        if error is not None:
            failed.append(f"{folder}: {error}")
            if if_failed is None:
                return
        its, numbers = left[folder], measure(Run(folder)) if error is None else if_failed or {}
        made = made_of(folder) if error is None else None
        append(values, its.setting, numbers, unit=its.unit, seed=its.seed, made=made)
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
        train_in_turn(lambda: next(waiting, None), ended, work, jobs, command)
    if failed and if_failed is None:
        raise ConfigError("\n".join(["these runs failed; run the same command again to retry them:", *failed]))
