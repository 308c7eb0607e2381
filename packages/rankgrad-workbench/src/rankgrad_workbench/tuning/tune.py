"""Tunes several losses with the same budget on held-out training data, then compares the best trials on the test."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import optuna
from omegaconf import DictConfig

from rankgrad.common.progress import bar

from ..runs.compare import (
    JOURNAL,
    compare_variants,
    own_settings,
    shared,
    train_in_turn,
    with_threads,
)
from ..runs.launchers import LOCAL, Launcher, read_launcher
from ..settings import ConfigError, check_paths, compose
from ..settings.kinds import TASKS
from .outcome import FINAL, Outcome, final_name, with_comparison, write_outcome
from .space import settings_of, space_of
from .study import Plan, Study, read_plan, storage


def tune(settings: Sequence[str], out: Path, jobs: int = 1) -> Outcome:
    """Search the settings of every loss with the same budget, and compare the best trials on the test data.

    A trial has one training run for each of several folds of the training classes (`datasets.folds`). Its value is the
    mean of a metric on the held-out classes. A trial is pruned if its mean over the first folds is below the median of
    earlier trials; pruned trials count as trials. If the command is interrupted, run it again and it continues.

    Args:
        settings: see `Plan`. launcher=submitit or launcher=ray trains on other machines, see `runs.launchers`.
        out: folder of all files.
        jobs: number of runs at a time.

    Raises:
        ConfigError: a setting is wrong; the folder holds another search; all trials of a loss failed.
        FileNotFoundError, ValueError: the data does not exist, cannot be read, or has too few classes for the folds.
        LockedError: another process uses the folder.
    """
    launcher, settings = read_launcher(settings)
    plan = read_plan(settings)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rest = with_threads(plan.rest, jobs, launcher)
    all_runs, tree = [*rest, *plan.task.trial, f"seed={plan.search_seed}"], plan.task.settings
    own = {loss: own_settings(loss, rest, tree) for loss in plan.losses}
    bases = {loss: compose([*rest, *own[loss]], tree) for loss in plan.losses}
    spaces = {loss: space_of(loss, [*rest, *own[loss]], bases[loss], plan.space, tree) for loss in plan.losses}
    for name in plan.space:
        if not any(name in space for space in spaces.values()):
            raise ConfigError(f"unknown setting in space.{name}: none of {', '.join(plan.losses)} has it")
    finals = [*rest, *plan.final]
    for loss in plan.losses if plan.final else ():
        compose([*finals, *own[loss]], tree)  # a misspelt setting fails here, before the search
    if not (out / JOURNAL).exists():
        _check_data(compose([*all_runs, *own[plan.losses[0]], f"fold={plan.folds}/{plan.folds}"], tree))
    same = [f"folds={plan.folds}", f"metric={','.join(plan.metrics)}", f"search_seed={plan.search_seed}"]
    words = [word for word in plan.rest if not word.startswith("threads=")]
    with shared(out, [*words, *same, *(f"space.{name}={text}" for name, text in plan.space.items())]):
        kept = storage(out / JOURNAL)
        studies = [
            Study(
                *(loss, [*all_runs, *own[loss]], spaces[loss], bases[loss], kept),
                *(out / "trials" / loss.replace("/", "-"), plan),
            )
            for loss in plan.losses
        ]
        try:
            search(studies, out, jobs, launcher)
        finally:
            outcome = write_outcome(out, plan, studies)
        errors = [f"{study.loss}: {study.given_up}" for study in studies if study.given_up]
        if errors:
            raise ConfigError("\n".join(["these losses were given up, because all their trials failed:", *errors]))
        if plan.seeds:
            winners = {}
            for loss, trial in outcome.winners.items():
                of_finals = [*finals, *own[loss]]  # `times` multiplies their values
                chosen = settings_of(spaces[loss], trial.chosen, compose(of_finals, tree))
                winners[final_name(loss, trial)] = [*own[loss], *chosen]
            compared = compare_variants(winners, plan.seeds, finals, out / FINAL, jobs, launcher=launcher)
            outcome = with_comparison(out, plan, outcome, compared)
    return outcome


def _check_data(config: DictConfig) -> None:
    """Raise if the data of a trial cannot be read or divided into folds. Otherwise the first trials would fail."""
    check_paths(config)
    import_module(TASKS[config.task].trains).check_data(config)


def search(studies: Sequence[Study], out: Path, jobs: int, launcher: Launcher = LOCAL) -> None:
    """Train the trials of all studies below `out`, `jobs` runs at a time. The study with the fewest trials comes first.

    With more jobs than losses, the folds of a trial are trained in parallel. The trials do not depend on `jobs`.
    """
    total = sum(study.trials * study.folds for study in studies)
    done = sum(study.runs_done for study in studies)
    owner: dict[Path, Study] = {}
    with bar(total=max(total, done), initial=done, delay=0, desc="search", unit="run") as shown:

        def following() -> tuple[Path, Sequence[str]] | None:
            for study in sorted(studies, key=lambda study: (not study.idle, study.ended)):  # idle studies first
                if (task := study.following()) is not None:
                    owner[task[0]] = study
                    return task
            return None

        def ended(folder: Path, error: str | None) -> None:
            owner[folder].run_ended(folder, error)
            shown.update(sum(study.runs_done for study in studies) - shown.n)

        train_in_turn(following, ended, out, jobs, launcher=launcher, shown=shown)


__all__ = ["Plan", "read_plan", "search", "tune"]
