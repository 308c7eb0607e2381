"""What is wrong with a run: the warnings of its training, and metrics that ended below those of the network before it.

The summary of a run, its page and a comparison show the same warnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from ..settings import plain
from ..settings.kinds import TASKS
from .change import SHAPES, Change, change, network, told
from .folder import OFF_COUNTS, REMARKS, Run, read_parts

# Training ended below the start if the main metric or this one did.
FIRST_HIT = "R@1"
BELOW = "below_before"  # name of the warning
SEEN = 5e-4  # a smaller difference is not seen in per cent with one decimal
OTHER_RATE = "Try optimizer.lr divided by 10, or another loss."
CURES = {
    "retrieval": f"{OTHER_RATE} Of a pretrained network, keep less training (held_out=0.1 optimizer.average=best "
    "chooses how much on classes that are held out), train only a new head (frozen=true model.head=linear), or use the "
    "network as it is."
}
HEALTH = {"findings": [{"name": str, "level": str, "text": str, "advice": str}]}
# Settings on which the network before training and its evaluation depend.
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


def warnings_of(run: Run, after: object | None = None) -> list[RunWarning]:
    """The warnings of a run: data without its published counts, a result below that of the network before training, and
    those of `training.health`.

    Args:
        run: the folder.
        after: report of the trained network, if it is not in the folder yet.

    Raises:
        ValueError: a file is damaged.
    """
    found = [*other_counts(run), *below_before(run, after)]
    findings = read_parts(run.health, HEALTH, "findings")["findings"] if run.health.exists() else []
    return found + [RunWarning(f["name"], f["text"], f["advice"]) for f in findings if f["level"] == "warning"]


def other_counts(run: Run) -> list[RunWarning]:
    """A warning if the data of a run did not have its published counts; else []."""
    text = run.read_facts().get(OFF_COUNTS)
    return [RunWarning(OFF_COUNTS, text, "'rankgrad datasets check' says what to do")] if text else []


def below_before(run: Run, after: object | None = None) -> list[RunWarning]:
    """A warning if training made the network worse on the evaluated data; else [].

    A paired test over classes or queries must find it (`change.Change`). Where there are no values of single queries,
    the value before training must lie above the interval of that after it.

    Args:
        run: the folder.
        after: report of the trained network, if it is not in the folder yet.
    """
    before, content = _both(run, after)
    names = dict.fromkeys((FIRST_HIT, *TASKS[run.kind].mains))
    changes = [found for name in names if (found := change(before, content, name)) is not None]
    worse = [str(each) for each in changes if each.after < each.before - SEEN and _surely(each, content)]
    said = f"training made the network worse: {' and '.join(worse)}"
    return [RunWarning(BELOW, said, CURES.get(run.kind, OTHER_RATE))] if worse else []


def _surely(found: Change, after: Mapping[str, Any]) -> bool:
    if found.found is not None:
        return found.certain
    around, queries = after.get("intervals", {}).get(found.metric), after.get("per_query", {})
    return not queries and (around is None or found.before > around[1])


def remarks_of(run: Run, after: object | None = None) -> list[str]:
    """What else matters for the numbers of a run: facts of its data, and a change by training that no test confirms.

    Args:
        run: the folder.
        after: report of the trained network, if it is not in the folder yet.
    """
    before, content = _both(run, after)
    said = told(before, content, TASKS[run.kind].main_of(content["values"]), network(settings_in(run)))
    return [*run.read_facts().get(REMARKS, []), *([f"{said}."] if said else [])]


def settings_in(run: Run) -> dict[str, Any]:
    """The settings of a run of one's own, plain and unchecked; {} if there are none."""
    return plain(OmegaConf.load(run.config)) if run.config.exists() else {}


def _both(run: Run, after: object | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The reports before and after training, as plain content; no values if one is missing."""
    if not run.before.exists() or (after is None and not run.finished):
        return {"values": {}}, {"values": {}}
    trained = read_parts(run.after, SHAPES, "values") if after is None else vars(after)
    return read_parts(run.before, SHAPES, "values"), trained


def begun_groups(configs: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, list[str]]:
    """Row of a network before training -> the names of the runs that began with it.

    Args:
        configs: name of a run, or of runs with several seeds, and its settings.

    >>> begun_groups([("a", {"model": 1, "loss": 1}), ("b", {"model": 1, "loss": 2}), ("c", {"init": "runs/x"})])
    {'untrained, a, b': ['a', 'b'], 'untouched, c': ['c']}
    """
    groups: dict[str, list[str]] = {}
    for name, config in configs:
        begin = json.dumps([config.get(part) for part in BEGIN], sort_keys=True, default=str)
        groups.setdefault(f"{network(config)}{begin}", []).append(name)
    words = {key: key.partition("[")[0] for key in groups}
    return {words[key] if len(groups) == 1 else f"{words[key]}, {', '.join(of)}": of for key, of in groups.items()}


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


def alike(by_variant: Mapping[str, Mapping[int, Sequence[str]]]) -> list[str]:
    """The remarks of a comparison. One that all runs share stands once; the others name their variant and seed.

    Args:
        by_variant: name of a variant -> seed -> its remarks.

    >>> alike({"pnp": {0: ["one image twice"], 1: ["one image twice", "few queries"]}})
    ['one image twice', 'pnp, seed 1: few queries']
    """
    runs = [(f"{name}, seed {seed}", said) for name, by_seed in by_variant.items() for seed, said in by_seed.items()]
    shared = [text for text in (runs[0][1] if runs else []) if all(text in said for _, said in runs)]
    own = [f"{name}: {text}" for name, said in runs for text in said if text not in shared]
    return [*shared, *own]
