"""What is wrong with a run: the warnings of its training, and metrics that ended below those of the untrained network.

The summary of a run, its page and a comparison show the same warnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...common.files import AGAIN, read_json
from ..kinds import TASKS
from .folder import OFF_COUNTS, Run

# Training ended below the start if the main metric or this one did.
FIRST_HIT = "R@1"
BELOW = "below_before"  # name of the warning
SEEN = 5e-4  # a smaller difference is not seen in per cent with one decimal
OTHER_RATE = "Try optimizer.lr divided by 10, or another loss."
CURES = {
    "retrieval": f"{OTHER_RATE} Of a pretrained network, keep less of the training (held_out=0.1 train.average=best "
    "chooses how much on classes that are held out), train only a new head (frozen=true model.head=linear), or use the "
    "network as it is."
}
UNTRAINED = "untrained"  # row of a comparison
# Settings on which the untrained network and its evaluation depend.
BEGIN = ("model", "init", "frozen", "data", "evaluation")


@dataclass(frozen=True)
class RunWarning:
    """A warning about a run.

    Attributes:
        name: short name for programs: "collapsed", "below_before", ...
        text: what was measured.
        advice: what to do.
    """

    name: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}"


def warnings_of(run: Run, after: Mapping[str, float] | None = None) -> list[RunWarning]:
    """The warnings of a run: data without its published counts, a result below that of the untrained network, and
    those of `training.health`.

    Args:
        run: the folder.
        after: metrics after training, if they are not in the folder yet.

    Raises:
        ValueError: a file is damaged.
    """
    found = [*other_counts(run), *below_before(run, after)]
    if run.health.exists():
        findings = read_json(run.health, "findings")["findings"]
        try:
            of = [(each["name"], each["text"], each["advice"]) for each in findings if each["level"] == "warning"]
        except (KeyError, TypeError):
            raise ValueError(f"{run.health} is damaged: its findings have another format. {AGAIN}") from None
        found += [RunWarning(*map(str, each)) for each in of]
    return found


def other_counts(run: Run) -> list[RunWarning]:
    """A warning if the data of a run did not have its published counts; else []."""
    text = run.read_facts().get(OFF_COUNTS)
    return [RunWarning(OFF_COUNTS, text, "'rankgrad datasets check' says what to do")] if text else []


def below_before(run: Run, after: Mapping[str, float] | None = None) -> list[RunWarning]:
    """A warning if training made the network worse on the evaluated data; else [].

    Args:
        run: the folder.
        after: metrics after training, if they are not in the folder yet.
    """
    if after is None:
        after = run.read_values() if run.finished else {}
    before, row = run.read_untrained(), TASKS[run.kind]
    names = [name for name in dict.fromkeys((FIRST_HIT, *row.mains)) if name in before and name in after]
    lower = [name for name in names if after[name] < before[name] - SEEN]
    if not lower:
        return []
    told = " and ".join(f"{name} {100 * after[name]:.1f} (before training {100 * before[name]:.1f})" for name in lower)
    return [RunWarning(BELOW, f"training made the network worse: {told}", CURES.get(run.kind, OTHER_RATE))]


def untrained_groups(configs: Iterable[tuple[str, Mapping[str, object]]]) -> list[list[str]]:
    """The names of runs in groups with the same untrained network.

    Args:
        configs: name of a run, or of runs with several seeds, and its settings.

    >>> untrained_groups([("a", {"model": 1, "loss": 1}), ("b", {"model": 1, "loss": 2}), ("c", {"model": 2})])
    [['a', 'b'], ['c']]
    """
    groups: dict[str, list[str]] = {}
    for name, config in configs:
        key = json.dumps([config.get(part) for part in BEGIN], sort_keys=True, default=str)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def together(by_variant: Mapping[str, Mapping[int, Sequence[RunWarning]]]) -> list[str]:
    """The warnings of a comparison, one line for each variant and warning, with the numbers of the first seed.

    Args:
        by_variant: name of a variant -> seed -> its warnings.

    >>> warned = RunWarning("fast", "the rate is too high", "Lower it.")
    >>> together({"pnp": {0: [warned], 2: [warned]}, "supap": {0: []}})
    ['pnp, seeds 0, 2: the rate is too high. Lower it.']
    """
    lines = []
    for variant, by_seed in by_variant.items():
        for name in dict.fromkeys(each.name for found in by_seed.values() for each in found):
            of = {seed: each for seed, found in by_seed.items() for each in found if each.name == name}
            seeds = f"seed{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}"
            lines.append(f"{variant}, {seeds}: {next(iter(of.values()))}")
    return lines
