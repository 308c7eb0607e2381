"""The settings of a search: losses, trials, folds, spaces; read from the arguments of the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankgrad.common.checks import unknown
from rankgrad.common.plugins import registered

from ..runs.compare import read_losses, read_seeds
from ..settings import ConfigError
from ..settings.checking import SEEDS
from ..settings.kinds import TASKS, TaskRow, of_command

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
    trials: int = 30
    folds: int = 3
    seeds: tuple[int, ...] = (0, 1, 2)
    metrics: tuple[str, ...] = TASKS["retrieval"].mains
    search_seed: int = 0
    space: Mapping[str, str] = field(default_factory=dict)
    final: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()

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
    metrics = tuple(name for name in row.columns if name != K_MEANS)
    plan = Plan((), metrics=row.mains)
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.removeprefix("space.").removeprefix("final.") in OURS:
            raise ConfigError(
                f"{key}= is set by the search itself; set trials=, folds=, seeds=, metric= or search_seed= instead"
            )
        if key == "loss":
            plan = replace(plan, losses=tuple(read_losses(value)))
        elif key == "trials":
            plan = replace(plan, trials=_whole(key, value, 1))
        elif key == "folds":
            plan = replace(plan, folds=_whole(key, value, 2))
        elif key == "search_seed":
            plan = replace(plan, search_seed=_whole(key, value, 0, SEEDS))
        elif key == "seeds":
            seeds = () if value == "none" else tuple(read_seeds(value))
            plan = replace(plan, seeds=seeds)
        elif key == "metric":
            known = (*metrics, *registered("metrics", metrics))
            if value not in known:
                raise ConfigError(unknown("metric", value, known))
            plan = replace(plan, metrics=(value,))
        elif key.startswith("space."):
            plan = replace(plan, space={**plan.space, key.removeprefix("space."): value})
        elif key.startswith("final."):
            plan = replace(plan, final=(*plan.final, setting.removeprefix("final.")))
        else:
            plan = replace(plan, rest=(*plan.rest, setting))
    if not plan.losses:
        raise ConfigError("no loss is given; name the losses, such as loss=supap,pnp,pml/multi_similarity")
    return plan


def _whole(key: str, value: str, low: int, high: int | None = None) -> int:
    limits = f">= {low}" + ("" if high is None else f" and <= {high}")
    if not value.isdecimal() or int(value) < low or (high is not None and int(value) > high):
        raise ConfigError(f"{key} must be an integer {limits}; got {value!r}")
    return int(value)
