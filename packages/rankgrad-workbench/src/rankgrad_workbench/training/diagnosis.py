"""Measurements of a training -> findings, each with what to change (their texts are in findings.yaml).

Every threshold below has a name and a reason. We chose the values so that the runs of papers/docs/results.md pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ..runs.run_warnings import Finding
from .measuring import Sample

# Share of queries without a relevant item. Such a query has no loss, so reading and embedding its image was wasted.
# From 5 % on there is a finding. From 50 % on the batches are wrong, and the warning comes at once.
NO_POSITIVE, MANY_NO_POSITIVE = 0.05, 0.5
# Collapse: items of different classes are at least this similar, and items of one class are hardly more similar. A gap
# of 0.05 is 5 temperatures of a step with temperature 0.01.
ALIKE, GAP = 0.9, 0.05
# Participation ratio of the batch's embeddings. Good runs on the glyphs have 5 to 10. Below 2 the embeddings lie on a
# line, which has room for few classes only. Models of up to 4 dimensions are not judged.
DIMENSIONS, SMALL_MODEL = 2.0, 4
# Saturation: share of the pairs in the wrong order at which the step is flat. Flat means a slope below 1 % of the slope
# at a tie (for a sigmoid: more than 6 temperatures away). Such pairs get no gradient. Smooth-AP on the glyphs, 180
# steps: with temperature 0.01 the share is 65 % and mAP@R ends at 32 %, with 0.001 it is 94 % and 23 %, with 0.0001
# 99 % and 11 %.
SATURATED = 0.9
# Below this share of pairs in the wrong order a batch counts as solved. A small gradient or a flat loss is then normal.
SOLVED = 0.005
# Root mean square of a gradient's entries. Adam divides by it plus 1e-8, so below 1e-8 the steps of Adam shrink. Those
# of SGD are far too small then.
VANISHING = 1e-8
# Growth of the gradient from the first to the last quarter. In a healthy run it stays within a factor of about ten.
EXPLODING = 100.0
# From this share of clipped gradients on, the clip value acts as a learning rate.
CLIPPED = 0.9
# Change of the weight matrices in a step, relative to their norm. At 0.1, ten steps can replace the weights. A usual
# value is 0.001. The small network on the glyphs changes by 0.03 at most with its best rate (mAP@R 32 %), and by 0.13
# with twenty times that rate (21 %). With batch norm the weights grow until the relative change is small again, so the
# largest changes are judged.
FAST = 0.1
# At this value, a thousand steps change the weights by a thousandth.
SLOW = 1e-6
# Drift of a memory: distance of old and new embeddings of the same images, relative to the gap between classes
# (similarity of relevant items minus that of irrelevant items).
DRIFT = 0.5
# Share of embeddings that are zero and so have no direction.
ZERO = 0.01
# Progress: from the first to the last third of the samples, the loss or the share of pairs in the wrong order fell by
# more than two standard errors, or by this fraction.
FELL = 0.1
# Still improving: in the last quarter of the steps the best value of the validation rows rose by this much; without
# such rows, the share of pairs in the wrong order, or the loss, fell by this fraction.
ROSE, STILL_FELL = 0.01, 0.2
# With fewer steps or samples, no trend is judged.
LEAST_STEPS, LEAST_SAMPLES = 40, 8


@dataclass(frozen=True)
class Facts:
    """Facts of a training, beside its samples.

    Attributes:
        steps: number of steps done.
        dim: dimension of the embeddings; 0 if there are none.
        clip: value that gradients are clipped to; None: no clipping.
        failed: the error that ended the training; None: no error.
        gained: rise of the best value of the validation rows in the last quarter of the steps; None: unknown.
    """

    steps: int
    dim: int
    clip: float | None = None
    failed: str | None = None
    gained: float | None = None


@cache
def texts() -> dict[str, Any]:
    """The words of findings.yaml."""
    read: dict[str, Any] = yaml.safe_load(resources.files(__package__).joinpath("findings.yaml").read_text())
    return read


def _found(name: str, **values: Any) -> Finding:
    row = texts()["findings"][name]
    return Finding(name, row["text"].format(**values), row["advice"].format(**values), row.get("level", "warning"))


def diagnose(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    """Find the problems of a training, warnings first; [] if there are none.

    Args:
        samples: samples of its steps, in order.
        facts: facts of the whole training.
    """
    if not samples:
        return []
    every = pd.DataFrame([asdict(sample) for sample in samples])
    bad = every.step[~np.isfinite(every[["loss", "grad_norm"]]).all(axis=1)].tolist()
    every = every.where(np.isfinite(every))
    alone = every.no_positive.mean()
    found = [_found("no_positive", share=100 * alone)] if alone > NO_POSITIVE else []
    if bad or "NaN or infinity" in (facts.failed or ""):
        found.append(_found("not_finite", where=f"at step {bad[0]}" if bad else f"after step {samples[-1].step}"))
    elif facts.steps >= LEAST_STEPS and len(every) >= LEAST_SAMPLES and not alone > MANY_NO_POSITIVE:
        found += [*_of_embeddings(every, facts), *_of_gradients(every, facts), *_of_progress(every)]
        if {"rising", "no_progress"}.isdisjoint(finding.name for finding in found):
            found += _of_end(every, facts)
    return sorted(found, key=lambda finding: finding.level != "warning")


def _quarter(every: pd.DataFrame, number: int) -> pd.DataFrame:
    return every[round(len(every) * number / 4) : round(len(every) * (number + 1) / 4)]


def _of_embeddings(every: pd.DataFrame, facts: Facts) -> Iterator[Finding]:
    last = _quarter(every, 3)
    positive, negative, dimensions = last[["positive", "negative", "dimensions"]].median()
    if negative > ALIKE and not positive - negative >= GAP:
        yield _found("collapsed", negative=negative, positive=positive)
    elif dimensions < DIMENSIONS and facts.dim > SMALL_MODEL:
        yield _found("few_dimensions", dimensions=dimensions, dim=facts.dim)
    if last.zero.mean() > ZERO:
        yield _found("zero_embeddings", share=100 * last.zero.mean())
    if every.saturated.mean() > SATURATED and every.wrong.mean() > SOLVED:
        yield _found("saturated", share=100 * every.saturated.mean())
    gap, drift = positive - negative, last.drift.median()
    if drift > DRIFT * max(gap, 0.0):
        yield _found("memory_drift", drift=drift, gap=gap)


def _of_gradients(every: pd.DataFrame, facts: Facts) -> Iterator[Finding]:
    first, last = (_quarter(every, number).median() for number in (0, 3))
    if last.grad_rms < VANISHING and last.wrong > SOLVED:
        yield _found("vanishing", size=last.grad_rms, wrong=100 * last.wrong)
    growth = last.grad_norm / max(first.grad_norm, 1e-30)
    if growth > EXPLODING and first.grad_rms > VANISHING:
        yield _found("exploding", growth=growth)
    clipped = (every.grad_norm > facts.clip).mean() if facts.clip else 0.0
    if clipped > CLIPPED:
        yield _found("clipped", share=100 * clipped, clip=facts.clip, norm=every.grad_norm.median())
    changes = every["update"].nlargest(2)
    if len(changes) == 2 and changes.iloc[1] > FAST:  # the second largest, because the largest may be an outlier
        yield _found("fast", change=100 * changes.iloc[1])
    elif len(changes) == 2 and changes.iloc[1] < SLOW:
        yield _found("slow", change=changes.iloc[1])


def _of_progress(every: pd.DataFrame) -> Iterator[Finding]:
    """Judge the loss together with the order of pairs. The loss alone may rise when a memory starts to be used."""
    count = len(every) // 3
    first, last = every[:count], every[-count:]
    rise, sure = _change(first.loss, last.loss)
    worse, clear = _change(first.wrong, last.wrong)
    if last.wrong.mean() <= SOLVED or np.isnan(worse):  # there are no relevant items: "no_positive"
        return
    loss = f"the loss is {first.loss.mean():.3g} at the start and {last.loss.mean():.3g} at the end"
    if rise > sure and worse >= -clear:
        yield _found("rising", loss=loss)
    elif not (rise < -min(sure, FELL * abs(first.loss.mean())) or worse < -min(clear, FELL * first.wrong.mean())):
        yield _found("no_progress", loss=loss, before=100 * first.wrong.mean(), after=100 * last.wrong.mean())


def _of_end(every: pd.DataFrame, facts: Facts) -> Iterator[Finding]:
    """Judge whether more steps would help."""
    before, last = _quarter(every, 2), _quarter(every, 3)
    if facts.gained is not None:
        improving = facts.gained > ROSE
        how = f"the best value of the validation rows rose by {100 * facts.gained:.1f} points"
    else:
        by_order = not np.isnan(last.wrong.mean())
        name = "wrong" if by_order else "loss"
        start, end = before[name].mean(), last[name].mean()
        fell, error = _change(before[name], last[name])
        improving = fell < -max(error, STILL_FELL * abs(start)) and not last.wrong.mean() <= SOLVED
        how = (
            f"the share of pairs in the wrong order fell from {100 * start:.2g} % to {100 * end:.2g} %"
            if by_order
            else f"the loss fell from {start:.3g} to {end:.3g}"
        )
    if improving:
        yield _found("still_improving", how=how)


def _change(before: pd.Series, after: pd.Series) -> tuple[float, float]:
    """(growth of the mean, two standard errors of this difference)."""
    error = np.sqrt(before.var() / before.count() + after.var() / after.count())
    return after.mean() - before.mean(), 2 * error
