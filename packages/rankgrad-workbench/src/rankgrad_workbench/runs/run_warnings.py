"""What training changed, tested on the same queries, and what is wrong with a run.

The summary of a run, its page and a comparison show the same warnings: those of its training, and metrics that ended
below those of the network before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from rankgrad.evaluation.json_report import DIFFERENCE, NUMBERS
from rankgrad.evaluation.report import Report
from rankgrad.evaluation.statistics import FEWEST, PairedDifference, paired_over_groups

from ..files.defaults import trained_before
from ..settings import plain
from ..settings.kinds import TASKS
from .folder import OFF_COUNTS, REMARKS, Run, read_parts

LEVEL = 0.05
# Shapes of what is read of a report.
SHAPES: Mapping[str, Any] = {
    **{name: Report.shapes[name] for name in ("values", "intervals", "per_query", "without_relevant")},
    "per_class": (Report.shapes["per_class"], {}),  # a detector's is an object
    **{"counts": NUMBERS, "settings": {}, "tests": [DIFFERENCE]},
}
ALIKE = 0.05  # share of the gallery that one network, and not the other, gives the embedding of an earlier item


def at_size(word: str, settings: Mapping[str, object]) -> str:
    """A word for a network, and the size of the images in these settings of an evaluation, if it is known.

    >>> at_size("before", {"size": 224}), at_size("before", {})
    ('before, 224 px', 'before')
    """
    return f"{word}, {settings['size']} px" if "size" in settings else word


def before_training(run: Run, called: str) -> dict[str, dict[str, float]]:
    """Name of the network before training at each size at which it was measured -> its metrics.

    Args:
        run: the folder.
        called: name of this network.
    """
    shapes, found = {"values": NUMBERS, "settings": {}}, dict[str, dict[str, float]]()
    for path in (run.before, run.untouched):
        if path.exists():
            content = read_parts(path, shapes, "values")
            found[at_size(called, content.get("settings", {}))] = content["values"]
    return found or {called: {}}


@dataclass(frozen=True)
class Change:
    """A metric after training minus the same before training.

    Attributes:
        metric: its name.
        before, after: its values.
        found: the paired difference; None: there are no values of single queries, or too few.
        over: what was paired: "classes" or "queries".
    """

    metric: str
    before: float
    after: float
    found: PairedDifference | None
    over: str = ""

    @property
    def p(self) -> float | None:
        """The p-value; None: there is no test."""
        return None if self.found is None else self.found.p

    @property
    def certain(self) -> bool:
        """Whether the test finds a difference."""
        return self.p is not None and self.p <= LEVEL

    def __str__(self) -> str:
        test = "" if self.found is None or self.p is None else f"; p {self.p:.2g} over {self.found.n:,} {self.over}"
        return f"{self.metric} {100 * self.after:.1f} (before training {100 * self.before:.1f}{test})"


def change(before: Mapping[str, Any], after: Mapping[str, Any], metric: str) -> Change | None:
    """What training changed in a metric. The test is over classes, or over queries if there are fewer than six classes.

    Args:
        before: content of the report of the network before training: "values", and if it has them "per_query",
            "per_class", "without_relevant", "settings".
        after: likewise, after training; a search has "tests".
        metric: name of a metric.

    Returns:
        None if one of the two has no such metric.

    >>> queries = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    >>> before, after = ({"values": {"AP": x}, "per_query": {"AP": [x * q for q in queries]}} for x in (0.5, 1.0))
    >>> print(change(before, after, "AP"))
    AP 100.0 (before training 50.0; p 0.031 over 6 queries)
    """
    was, now = (each["values"].get(metric) for each in (before, after))
    if was is None or now is None:
        return None
    return Change(metric, was, now, *_paired(before, after, metric))


def _paired(before: Mapping[str, Any], after: Mapping[str, Any], metric: str) -> tuple[PairedDifference | None, str]:
    """The paired difference, and what was paired."""
    for test in after.get("tests", ()):
        if (test["run"], test["other"], test["metric"]) == ("trained", "before training", metric):
            parts = {name: test[name] for name in ("mean", "low", "high", "better", "worse")}
            count = int(after.get("counts", {}).get("queries", 0))
            return PairedDifference(p=test["corrected"], n=count, detectable=None, **parts), "queries"
    reports = (after, before)
    if any(each.get("settings", {}).get("weights") or isinstance(each.get("per_class"), dict) for each in reports):
        return None, ""  # the metrics are weighted means, or those of a detector
    one, other = (
        {row.get("class", row["name"]): row for row in each.get("per_class", ()) if row.get(metric) is not None}
        for each in reports
    )
    both = [name for name in one if name in other]
    counts = [one[name]["counted"] for name in both]
    # with several classes for a row, these are no groups
    if len(both) >= FEWEST and sum(counts) == after.get("counts", {}).get("counted"):
        means = [[of[name][metric] for name in both] for of in (one, other)]
        return paired_over_groups(means[0], means[1], weight=counts), "classes"
    queries = [np.array(each.get("per_query", {}).get(metric, ()), dtype=np.float64) for each in reports]
    for values, each in zip(queries, reports, strict=True):
        values[np.asarray(each.get("without_relevant", ()), dtype=np.int64)] = np.nan
    if len(queries[0]) == len(queries[1]):
        known = ~np.isnan(queries).any(0)
        if known.sum() >= FEWEST:
            return paired_over_groups(queries[0][known], queries[1][known]), "queries"
    return None, ""


def told(before: Mapping[str, Any], after: Mapping[str, Any], metric: str, network: str) -> str:
    """A remark on a change that no test confirms; empty if it is certain, or nothing can be said.

    Args:
        before: see `change`.
        after: likewise.
        metric: name of the main metric.
        network: "untouched" or "untrained".
    """
    found = change(before, after, metric)
    if found is None:
        return ""
    if alike := blind(before, after):
        return (
            f"The {network} network gives {alike:,} items of the gallery the embedding of another item: it cannot tell "
            "these data apart, so it is no baseline"
        )
    said, gain = found.found, 100 * (found.after - found.before)
    if said is None or found.p is None or found.certain:
        few = 0 < after.get("counts", {}).get("counted", 0) < FEWEST
        return f"{metric} {gain:+.1f} by training: too few queries to tell this from chance" if few else ""
    return (
        f"No measurable difference by training: {metric} {gain:+.1f} ({100 * said.low:+.1f} to {100 * said.high:+.1f}, "
        f"p {found.p:.2g} over {said.n:,} {found.over})"
    )


def blind(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Number of items that only the network before training gives the embedding of another item or no direction; 0 if
    they are few. Such a network could not work, so being better than it says nothing.
    """
    counts, then = before.get("counts", {}), after.get("counts", {})
    more = sum(counts.get(name, 0) - then.get(name, 0) for name in ("duplicates", "zero_vectors"))
    return int(more) if more > ALIKE * counts.get("gallery", 0) > 0 else 0


def network(config: Mapping[str, Any]) -> str:
    """What the network of a run is before training: "untouched" if it was trained before, else "untrained".

    >>> network({"model": {"kind": "timm", "pretrained": True}}), network({"model": {"kind": "convnet"}})
    ('untouched', 'untrained')
    """
    model = config.get("model")
    trained = isinstance(model, Mapping) and "kind" in model and trained_before(model)
    return "untouched" if trained or config.get("init") else "untrained"


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
class Finding:
    """A problem of a run.

    Attributes:
        name: short name for programs: "collapsed", "below_before", ...
        text: what was measured, with the number.
        advice: what to do.
        level: "warning", or "note" if it may be intended.
    """

    name: str
    text: str
    advice: str
    level: str = "warning"

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}"


def warnings_of(run: Run, after: object | None = None) -> list[Finding]:
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
    return found + [Finding(f["name"], f["text"], f["advice"]) for f in findings if f["level"] == "warning"]


def other_counts(run: Run) -> list[Finding]:
    """A warning if the data of a run did not have its published counts; else []."""
    text = run.read_facts().get(OFF_COUNTS)
    return [Finding(OFF_COUNTS, text, "'rankgrad datasets check' says what to do")] if text else []


def below_before(run: Run, after: object | None = None) -> list[Finding]:
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
    if not worse:
        return []
    said, advice = f"training made the network worse: {' and '.join(worse)}", CURES.get(run.kind, OTHER_RATE)
    size, trained_at = before.get("settings", {}).get("size"), settings_in(run).get("data", {}).get("size")
    if size and trained_at and trained_at < size:
        advice = f"Before training it was measured at {size} pixels: train with data.size={size}. {advice}"
    return [Finding(BELOW, said, advice)]


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


def together(by_variant: Mapping[str, Mapping[int, Sequence[Finding | str]]]) -> list[str]:
    """The warnings or remarks of a comparison. What all runs share stands once; other lines name variant and seeds, and
    have the numbers of the first seed.

    Args:
        by_variant: name of a variant -> seed -> its warnings or remarks.

    >>> warned = Finding("fast", "the rate is too high", "Lower it.")
    >>> together({"pnp": {0: [warned], 2: [warned]}, "supap": {0: []}})
    ['pnp, seeds 0, 2: the rate is too high. Lower it.']
    >>> together({"pnp": {0: ["one image twice"], 1: ["one image twice", "few queries"]}})
    ['one image twice', 'pnp, seed 1: few queries']
    """
    runs = [[*map(str, said)] for by_seed in by_variant.values() for said in by_seed.values()]
    shared = [text for text in (runs[0] if runs else []) if all(text in said for said in runs)]
    lines = [*shared]
    for variant, by_seed in by_variant.items():
        found: dict[str, dict[int, str]] = {}
        for seed, said in by_seed.items():
            for each in said:
                if str(each) not in shared:
                    found.setdefault(getattr(each, "name", str(each)), {})[seed] = str(each)
        for of in found.values():
            lines.append(f"{variant}, seed{'s' * (len(of) > 1)} {', '.join(map(str, of))}: {next(iter(of.values()))}")
    return lines
