"""The trials of one loss, with Optuna: the settings of the next trial, pruning, and the best trial.

Trials are sampled one after the other, each by a sampler that is seeded with the trial's number. So the settings of a
trial depend only on the seed and on earlier results, and a study that was stopped continues as if without a stop.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import optuna
from omegaconf import DictConfig
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from rankgrad.common.checks import unknown
from rankgrad.common.files import open_file
from rankgrad.common.plugins import registered

from ..runs.compare import read_losses, read_seeds
from ..runs.folder import Run
from ..runs.provenance import joined
from ..settings import ConfigError
from ..settings.kinds import TaskRow, of_command
from ..settings.overrides import SEEDS
from ..settings.values import changed
from .space import Space, Value, settings_of

# Number of trials before TPE's model and the median pruner are used: the defaults, and random points.
DRAWN = 6
# Our attributes of a trial or a study in Optuna's storage.
FOLDS, ERROR, SPACE, METRIC = "folds", "error", "space", "metric"
STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


OURS = ("fold", "lean", "seed", "out", "resume", "evaluation.split")  # settings of runs that the search sets itself
K_MEANS = "NMI"  # a trial does not compute it


@dataclass(frozen=True)
class Plan:
    """The settings of a search.

    Attributes:
        losses: with the settings of their variants.
        trials: number of trials of each loss.
        folds: number of folds of each trial.
        seeds: of the comparison; empty: no comparison.
        metrics: the first of them that the runs compute is maximised.
        search_seed: of the search, and of its runs.
        space: setting -> values, which replace those of spaces.yaml.
        final: settings of the comparison only.
        rest: settings of all runs.
    """

    losses: tuple[str, ...]
    trials: int
    folds: int
    search_seed: int
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    space: Mapping[str, str]
    final: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def task(self) -> TaskRow:
        """The kind of the runs."""
        return of_command("train", self.rest)


def read_plan(settings: Sequence[str]) -> Plan:
    """Read a plan from KEY=VALUE arguments.

    Raises:
        ConfigError: no loss is given, or an argument is wrong.

    >>> plan = read_plan(["loss=supap,pnp", "trials=10", "space.loss.tau=log(0.01,0.1)", "recipe=small"])
    >>> plan.losses, plan.trials, plan.space, plan.rest
    (('supap', 'pnp'), 10, {'loss.tau': 'log(0.01,0.1)'}, ('recipe=small',))
    """
    row = of_command("train", settings)
    metrics = [name for name in row.columns if name != K_MEANS]
    metrics += [name for name in registered("metrics", metrics) if name not in metrics]
    own = {"loss": "", "trials": "30", "folds": "3", "search_seed": "0", "seeds": "0,1,2", "metric": ""}
    space: dict[str, str] = {}
    final, rest = [], []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.removeprefix("space.").removeprefix("final.") in OURS:
            raise ConfigError(
                f"{key}= is set by the search itself; set trials=, folds=, seeds=, metric= or search_seed= instead"
            )
        if key in own:
            own[key] = value
        elif key.startswith("space."):
            space[key.removeprefix("space.")] = value
        elif key.startswith("final."):
            final.append(setting.removeprefix("final."))
        else:
            rest.append(setting)
    losses, seeds, metric = read_losses(own["loss"]), own["seeds"], own["metric"]
    if not losses:
        raise ConfigError("no loss is given; name the losses, such as loss=supap,pnp,pml/multi_similarity")
    if metric and metric not in metrics:
        raise ConfigError(unknown("metric", metric, metrics))
    return Plan(
        tuple(losses),
        trials=_whole("trials", own["trials"], 1),
        folds=_whole("folds", own["folds"], 2),
        search_seed=_whole("search_seed", own["search_seed"], 0),
        seeds=() if seeds == "none" else tuple(read_seeds(seeds)),
        metrics=(metric,) if metric else row.mains,
        space=space,
        final=tuple(final),
        rest=tuple(rest),
    )


def _whole(key: str, value: str, low: int) -> int:
    if not value.isdecimal() or not low <= int(value) <= SEEDS:
        raise ConfigError(f"{key} must be an integer >= {low} and <= {SEEDS}; got {value!r}")
    return int(value)


class _Ours:
    """A journal lock that does nothing: `tune` locks the whole folder. Optuna's own lock remains if a process dies."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing."""


def storage(path: Path) -> JournalStorage:
    """Optuna's storage in one file, with a line for each event. An incomplete last line of a killed process is removed.

    Raises:
        ConfigError: the file is damaged.
    """
    if path.exists():
        with open_file(path) as file:
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(path, len(whole))
    else:
        whole = b""
    try:
        for line in whole.splitlines():  # Optuna notices a damaged last line only after it adds another one
            json.loads(line)
        kept = JournalStorage(JournalFileBackend(str(path), lock_obj=_Ours()))  # type: ignore[arg-type]
        kept.get_all_studies()
    except Exception as error:  # json and Optuna each raise their own
        raise ConfigError(
            f"{path} is damaged ({type(error).__name__}): copy it again, or choose another folder with --out"
        ) from None
    return kept


@dataclass(frozen=True)
class Tried:
    """A finished trial.

    Attributes:
        number: from 0, in the order of the search.
        state: "complete", "pruned" or "failed".
        value: mean over the trained folds; None: no fold was trained.
        folds: value of each fold.
        chosen: setting -> value in the space.
        settings: KEY=VALUE settings of the trial, in addition to those of all runs.
        steps: training steps, over all folds.
        seconds: training time, over all folds.
        made: commit and processor, see `runs.provenance`.
    """

    number: int
    state: str
    value: float | None
    folds: tuple[float, ...]
    chosen: dict[str, Value]
    settings: tuple[str, ...]
    steps: int
    seconds: float
    made: dict[str, str]


@dataclass
class _Open:
    """The trial that is being trained."""

    trial: Trial
    settings: list[str]
    told: set[int]  # folds whose mean was reported to Optuna, from 0
    started: set[int] = field(default_factory=set)  # started folds, from 1
    done: dict[int, float] = field(default_factory=dict)


class Study:
    """The search for one loss.

    Args:
        loss: its name, which is also the name of the study.
        settings: KEY=VALUE of all its runs.
        space: search space.
        base: the composed settings, see `space.settings_of`.
        kept: storage of all losses.
        folder: of its trials.
        plan: of the search.

    Raises:
        ConfigError: the folder holds a search of another space, or its journal is damaged.
    """

    def __init__(
        self,
        loss: str,
        settings: Sequence[str],
        space: Space,
        base: DictConfig,
        kept: JournalStorage,
        folder: Path,
        plan: Plan,
    ) -> None:
        self.loss, self.settings, self.space, self.base, self.folder = loss, list(settings), space, base, folder
        self.plan, self.folds, self.trials = plan, plan.folds, plan.trials
        self.open: _Open | None = None
        self.given_up = ""  # the error for which this loss was given up
        pruner = MedianPruner(n_startup_trials=DRAWN - 1)
        self.study = optuna.create_study(
            study_name=loss, storage=kept, direction="maximize", load_if_exists=True, pruner=pruner
        )
        texts = {name: str(values) for name, values in self.space.items()}
        there = self.study.user_attrs.get(SPACE, texts)
        if there != texts:
            told = ", ".join(changed(there, texts).values())
            raise ConfigError(f"{self.loss} was searched in another space: {told}. Choose another folder with --out")
        for trial in self._finished():
            if lacking := [name for name in self.space if name not in trial.params]:
                raise ConfigError(
                    f"the journal of the search is damaged: trial {trial.number} of {self.loss} has no {lacking[0]}. "
                    "Copy it again, or choose another folder with --out"
                )
        if not self.study.trials:  # the defaults come first, so that the best trial is at least as good on the folds
            self.study.set_user_attr(SPACE, texts)
            defaults = {name: values.default(name, self.base) for name, values in self.space.items()}
            self.study.enqueue_trial({name: value for name, value in defaults.items() if value is not None})

    def _finished(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=tuple(STATES))

    @property
    def metric(self) -> str | None:
        """The metric that is maximised; None: no run has ended yet."""
        found = self.study.user_attrs.get(METRIC)
        return None if found is None else str(found)

    # -------------------------------------------------------------------------------------------------- the next run

    @property
    def idle(self) -> bool:
        """Whether no fold is being trained."""
        return self.open is None or self.open.started == set(self.open.done)

    @property
    def ended(self) -> int:
        """Number of finished trials."""
        return len(self._finished())

    @property
    def runs_done(self) -> int:
        """Number of runs that are done or no longer needed, of folds x trials."""
        return self.ended * self.folds + (0 if self.open is None else len(self.open.done))

    def following(self) -> tuple[Path, list[str]] | None:
        """(folder, settings) of the next run; None: all runs are started, or this loss was given up."""
        while not self.given_up:
            if self.open is None:
                if self.ended >= self.trials:
                    return None
                self.open = self._next_trial()
            fold = next((f for f in range(1, self.folds + 1) if f not in self.open.started), None)
            if fold is None:
                return None
            self.open.started.add(fold)
            folder = self.folder_of(self.open.trial.number, fold)
            if not Run(folder).finished:
                return folder, [*self.settings, *self.open.settings, f"fold={fold}/{self.folds}"]
            self.run_ended(folder, None)
        return None

    def folder_of(self, number: int, fold: int) -> Path:
        """The folder of a run."""
        return self.folder / f"{number:03d}" / f"fold{fold}"

    def _next_trial(self) -> _Open:
        """The trial that was started before an interruption, or a new one."""
        begun = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        number = begun[0].number if begun else self.ended
        seed = int(np.random.SeedSequence([self.plan.search_seed, number]).generate_state(1)[0])
        self.study.sampler = TPESampler(n_startup_trials=DRAWN, seed=seed, constant_liar=False)
        trial = Trial(self.study, begun[0]._trial_id) if begun else self.study.ask()
        chosen = {name: values.suggest(name, trial) for name, values in self.space.items()}
        told = set(begun[0].intermediate_values) if begun else set()
        return _Open(trial, settings_of(self.space, chosen, self.base), told)

    # --------------------------------------------------------------------------------------------- results of a run

    def run_ended(self, folder: Path, error: str | None) -> None:
        """Record the result of a run.

        Args:
            folder: of the run.
            error: error message of a failed run; None: it succeeded.
        """
        now, fold = self.open, int(folder.name.removeprefix("fold"))
        if now is None or folder != self.folder_of(now.trial.number, fold):
            return  # its trial was pruned or failed in the meantime
        if error is not None:
            if self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)):
                now.trial.set_user_attr(ERROR, error)
                self._end(now, TrialState.FAIL, len(now.done))
            else:  # nothing has worked yet: give up, so that the same command tries it again
                self.given_up, self.open = f"trial {now.trial.number}, fold {fold}: {error}", None
            return
        values = Run(folder).read_values()
        wanted = self.plan.metrics if self.metric is None else (self.metric,)
        metric = next((name for name in wanted if name in values), None)
        if metric is None:
            raise ConfigError(f"the runs do not compute {' or '.join(wanted)}; give metric= one of {', '.join(values)}")
        if self.metric is None:
            self.study.set_user_attr(METRIC, metric)
        now.done[fold] = values[metric]
        for step in range(1, self.folds + 1):
            if step not in now.done:
                break
            if step - 1 not in now.told:
                now.told.add(step - 1)
                now.trial.report(statistics.mean(now.done[f] for f in range(1, step + 1)), step - 1)
            if step < self.folds and now.trial.should_prune():
                self._end(now, TrialState.PRUNED, step)
                return
        if len(now.done) == self.folds:
            self._end(now, TrialState.COMPLETE, self.folds)

    def _end(self, now: _Open, state: TrialState, counted: int) -> None:
        values = [now.done[fold] for fold in sorted(now.done)][:counted]
        now.trial.set_user_attr(FOLDS, values)
        self.study.tell(now.trial, statistics.mean(values) if state == TrialState.COMPLETE else None, state)
        self.open = None

    # --------------------------------------------------------------------------------------------------- the outcome

    def tried(self) -> list[Tried]:
        """All finished trials, in order."""
        return [self._tried(trial) for trial in self._finished()]

    def _tried(self, trial: FrozenTrial) -> Tried:
        folds = tuple(trial.user_attrs.get(FOLDS, ()))
        runs = [Run(self.folder_of(trial.number, fold)) for fold in range(1, self.folds + 1)]
        facts = [run.read_facts() for run in runs if run.finished]
        return Tried(
            trial.number,
            STATES[trial.state],
            statistics.mean(folds) if folds else None,
            folds,
            trial.params,
            tuple(settings_of(self.space, trial.params, self.base)),
            sum(fact["steps"] for fact in facts),
            sum(fact["train_seconds"] for fact in facts),
            joined(facts),
        )

    def best(self) -> Tried | None:
        """The best trial of those trained on all folds; the earliest of equal ones. None: there is none."""
        whole = [trial for trial in self.tried() if trial.state == "complete"]
        return max(whole, key=lambda trial: trial.value or 0.0, default=None)
