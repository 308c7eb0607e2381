"""The settings of a search: losses, trials, folds, spaces; read from the arguments of the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankgrad.common.checks import unknown
from rankgrad.common.plugins import registered

from ..runs.compare import read_losses, read_seeds
from ..settings import ConfigError
from ..settings.checking import SEEDS
from ..settings.kinds import TaskRow, of_command

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
    own: dict[str, str] = {}
    space: dict[str, str] = {}
    final, rest = [], []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.removeprefix("space.").removeprefix("final.") in OURS:
            raise ConfigError(
                f"{key}= is set by the search itself; set trials=, folds=, seeds=, metric= or search_seed= instead"
            )
        if key in ("loss", "trials", "folds", "search_seed", "seeds", "metric"):
            own[key] = value
        elif key.startswith("space."):
            space[key.removeprefix("space.")] = value
        elif key.startswith("final."):
            final.append(setting.removeprefix("final."))
        else:
            rest.append(setting)
    losses, seeds = read_losses(own.get("loss", "")), own.get("seeds", "0,1,2")
    if not losses:
        raise ConfigError("no loss is given; name the losses, such as loss=supap,pnp,pml/multi_similarity")
    if "metric" in own and own["metric"] not in metrics:
        raise ConfigError(unknown("metric", own["metric"], metrics))
    return Plan(
        tuple(losses),
        trials=_whole("trials", own.get("trials", "30"), 1),
        folds=_whole("folds", own.get("folds", "3"), 2),
        search_seed=_whole("search_seed", own.get("search_seed", "0"), 0),
        seeds=() if seeds == "none" else tuple(read_seeds(seeds)),
        metrics=(own["metric"],) if "metric" in own else row.mains,
        space=space,
        final=tuple(final),
        rest=tuple(rest),
    )


def _whole(key: str, value: str, low: int) -> int:
    if not value.isdecimal() or not low <= int(value) <= SEEDS:
        raise ConfigError(f"{key} must be an integer >= {low} and <= {SEEDS}; got {value!r}")
    return int(value)
