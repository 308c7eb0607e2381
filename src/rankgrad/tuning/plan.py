"""What a search is asked for: losses, trials, folds, spaces, in the words of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..checks import unknown
from ..config import ConfigError
from ..plugins import registered
from ..runs.compare import read_losses, read_seeds
from ..tasks import TASKS, TaskRow, of_command

OURS = ("fold", "lean", "seed", "out", "resume", "evaluation.split")  # settings that a search gives its runs itself
K_MEANS = "NMI"  # a trial leaves it out


@dataclass(frozen=True)
class Plan:
    """What a command asks for.

    Attributes:
        losses: with the settings of their variants.
        trials: of each loss.
        folds: of each trial.
        seeds: of the comparison; empty: search only.
        metric: that is maximised.
        search_seed: of the search, and of its runs.
        space: setting -> values that replace those of the table.
        final: settings of the comparison alone.
        rest: settings of all runs.
    """

    losses: tuple[str, ...]
    trials: int = 30
    folds: int = 3
    seeds: tuple[int, ...] = (0, 1, 2)
    metric: str = TASKS["retrieval"].mains[-1]
    search_seed: int = 0
    space: Mapping[str, str] = field(default_factory=dict)
    final: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()

    @property
    def task(self) -> TaskRow:
        """The kind of the runs."""
        return of_command("train", self.rest)


def read_plan(settings: Sequence[str]) -> Plan:
    """The plan of KEY=VALUE words.

    Raises:
        ConfigError: no loss, or a word that does not fit.

    >>> plan = read_plan(["loss=supap,pnp", "trials=10", "space.loss.tau=log(0.01,0.1)", "recipe=small"])
    >>> plan.losses, plan.trials, plan.space, plan.rest
    (('supap', 'pnp'), 10, {'loss.tau': 'log(0.01,0.1)'}, ('recipe=small',))
    """
    row = of_command("train", settings)
    metrics = tuple(name for name in row.columns if name != K_MEANS)
    plan = Plan((), metric=row.mains[-1])
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "loss":
            plan = replace(plan, losses=tuple(read_losses(value)))
        elif key == "trials":
            plan = replace(plan, trials=_whole(key, value, 1))
        elif key == "folds":
            plan = replace(plan, folds=_whole(key, value, 2))
        elif key == "search_seed":
            plan = replace(plan, search_seed=_whole(key, value, 0))
        elif key == "seeds":
            plan = replace(plan, seeds=() if value == "none" else tuple(read_seeds(value)))
        elif key == "metric":
            known = (*metrics, *registered("metrics", metrics))
            if value not in known:
                raise ConfigError(unknown("metric", value, known))
            plan = replace(plan, metric=value)
        elif key.startswith("space."):
            plan = replace(plan, space={**plan.space, key.removeprefix("space."): value})
        elif key.startswith("final."):
            plan = replace(plan, final=(*plan.final, setting.removeprefix("final.")))
        elif key in OURS:
            raise ConfigError(
                f"{key}= is set by the search; its own are trials=, folds=, seeds=, metric=, search_seed="
            )
        else:
            plan = replace(plan, rest=(*plan.rest, setting))
    if not plan.losses:
        raise ConfigError("which losses? loss=supap,pnp,pml/multi_similarity")
    if len(set(plan.losses)) < len(plan.losses):
        raise ConfigError(f"a loss is named twice: {', '.join(plan.losses)}")
    return plan


def _whole(key: str, value: str, low: int) -> int:
    if not value.isdecimal() or int(value) < low:
        raise ConfigError(f"{key} is an integer >= {low}; got {value!r}")
    return int(value)
