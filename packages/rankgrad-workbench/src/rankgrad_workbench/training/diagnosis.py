"""Measurements of a training -> findings, each with what to change. It does not depend on the training code.

Every threshold below has a name and a reason. We chose the values so that the runs of papers/docs/results.md pass.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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

Level = Literal["warning", "note"]


@dataclass(frozen=True)
class Finding:
    """A problem of a training.

    Attributes:
        name: short name for programs: "collapsed", "saturated", ...
        level: "warning", or "note" if it may be intended.
        text: what was measured, with the number.
        advice: what to do.
    """

    name: str
    level: Level
    text: str
    advice: str


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


def diagnose(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    """Find the problems of a training, warnings first; [] if there are none.

    Args:
        samples: samples of its steps, in order.
        facts: facts of the whole training.
    """
    if not samples:
        return []
    findings = [*_of_batches(samples), *_of_numbers(samples, facts)]
    obvious = any(finding.name == "not_finite" for finding in findings)
    obvious |= _mean(samples, "no_positive") > MANY_NO_POSITIVE  # all other problems would follow from this one
    if not obvious and facts.steps >= LEAST_STEPS and len(samples) >= LEAST_SAMPLES:
        findings += [*_of_embeddings(samples, facts), *_of_gradients(samples, facts), *_of_progress(samples)]
        learns = {"rising", "no_progress"}.isdisjoint(finding.name for finding in findings)
        findings += _of_end(samples, facts) if learns else []
    order: tuple[Level, ...] = ("warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _of_batches(samples: Sequence[Sample]) -> Iterator[Finding]:
    share = _mean(samples, "no_positive")
    if share > NO_POSITIVE:
        yield Finding(
            "no_positive",
            "warning",
            f"{100 * share:.0f} % of the queries have no other row of their class in the batch, so they have no loss",
            "A class of one row has no match: add rows to such classes, or draw two rows of each class and leave these "
            "classes out (sampler.samples_per_class=2 sampler.short_classes=drop).",
        )


def _of_numbers(samples: Sequence[Sample], facts: Facts) -> Iterator[Finding]:
    bad = [s for s in samples if not (math.isfinite(s.loss) and math.isfinite(s.grad_norm))]
    if bad or "NaN or infinity" in (facts.failed or ""):
        where = f"at step {bad[0].step}" if bad else f"after step {samples[-1].step}"
        yield Finding(
            "not_finite",
            "warning",
            f"loss, gradient or embeddings became infinite or NaN {where}",
            "Lower optimizer.lr by a factor of 10, lengthen optimizer.warmup, or clip (trainer.gradient_clip_val=1). "
            "If trainer.precision is 16-mixed, try bf16-mixed.",
        )


def _of_embeddings(samples: Sequence[Sample], facts: Facts) -> Iterator[Finding]:
    last = _quarters(samples)[-1]
    positive, negative, dimensions = (_median(last, name) for name in ("positive", "negative", "dimensions"))
    if negative > ALIKE and (math.isnan(positive) or positive - negative < GAP):
        yield Finding(
            "collapsed",
            "warning",
            f"all embeddings are alike: the mean cosine is {negative:.3f} between different classes, and "
            f"{positive:.3f} within a class",
            "Lower optimizer.lr and lengthen optimizer.warmup, or start from trained weights. Check that the "
            "network is not frozen. Check that the inputs differ (for images: rankgrad datasets ... --sheet "
            "sheet.png).",
        )
    elif dimensions < DIMENSIONS and facts.dim > SMALL_MODEL:
        yield Finding(
            "few_dimensions",
            "warning",
            f"the embeddings of a batch use only {dimensions:.1f} of {facts.dim} dimensions",
            "Lower optimizer.lr, use more classes per batch, or start from trained weights.",
        )
    zero = _mean(last, "zero")
    if zero > ZERO:
        yield Finding(
            "zero_embeddings",
            "warning",
            f"{100 * zero:.0f} % of the embeddings are zero",
            "Lower optimizer.lr. If the head ends in ReLU, use model.head=linear, because ReLU can set all outputs "
            "to zero.",
        )
    share, wrong = _mean(samples, "saturated"), _mean(samples, "wrong")
    if share > SATURATED and wrong > SOLVED:
        yield Finding(
            "saturated",
            "warning",
            f"{100 * share:.0f} % of the pairs in the wrong order get no gradient, because the loss is flat there",
            "Raise the temperature (loss.tau=0.05), or use a loss that is not flat there: loss=roadmap or loss=supap.",
        )
    gap, drift = positive - negative, _median(last, "drift")
    if drift > DRIFT * max(gap, 0.0):
        yield Finding(
            "memory_drift",
            "warning",
            f"the memory is out of date: the distance (1 - cosine) between old and new embeddings of a row is "
            f"{drift:.2f}, and the gap between classes is only {gap:.2f}",
            "Lengthen memory.warmup, shorten the memory (memory.batches=3), or lower optimizer.lr.",
        )


def _of_gradients(samples: Sequence[Sample], facts: Facts) -> Iterator[Finding]:
    quarters = _quarters(samples)
    first, last = quarters[0], quarters[-1]
    size, wrong = _median(last, "grad_rms"), _median(last, "wrong")
    if size < VANISHING and wrong > SOLVED:
        yield Finding(
            "vanishing",
            "warning",
            f"the gradient has vanished (root mean square {size:.1e} per weight), but {100 * wrong:.1f} % of the pairs "
            "are in the wrong order",
            "Check that the network is not frozen. Raise the loss's temperature (loss.tau), or use loss=roadmap.",
        )
    growth = _median(last, "grad_norm") / max(_median(first, "grad_norm"), 1e-30)
    if growth > EXPLODING and _median(first, "grad_rms") > VANISHING:
        yield Finding(
            "exploding",
            "warning",
            f"the gradient grew {growth:.0f}-fold during training",
            "Lower optimizer.lr, or clip (trainer.gradient_clip_val=1).",
        )
    clipped = sum(s.grad_norm > facts.clip for s in samples) / len(samples) if facts.clip else 0.0
    if clipped > CLIPPED:
        yield Finding(
            "clipped",
            "note",
            f"{100 * clipped:.0f} % of the gradients were clipped, so gradient_clip_val={facts.clip:g} acts as a "
            "learning rate",
            "If this is not intended, clip at a few times the usual norm of the gradient, "
            f"{_median(samples, 'grad_norm'):.2g}.",
        )
    change = _second_largest(samples, "update")
    if change > FAST:
        yield Finding(
            "fast",
            "warning",
            f"a step changes the weights by up to {100 * change:.0f} %, so the learning rate is too high",
            "Lower optimizer.lr by a factor of 10.",
        )
    elif change < SLOW:
        yield Finding(
            "slow",
            "warning",
            f"the weights hardly change: the relative change in a step is at most {change:.1e}",
            "Raise optimizer.lr, or check that the network is not frozen.",
        )


def _of_progress(samples: Sequence[Sample]) -> Iterator[Finding]:
    """Judge the loss together with the order of pairs. The loss alone may rise when a memory starts to be used."""
    count = len(samples) // 3
    first, last = samples[:count], samples[-count:]
    if _mean(last, "wrong") <= SOLVED:
        return
    rise, sure = _change(first, last, "loss")
    worse, clear = _change(first, last, "wrong")
    if math.isnan(worse):  # there are no relevant items; `_of_batches` reports that
        return
    values = f"the loss is {_mean(first, 'loss'):.3g} at the start and {_mean(last, 'loss'):.3g} at the end"
    if rise > sure and worse >= -clear:
        yield Finding(
            "rising",
            "warning",
            f"the loss rose: {values}",
            "Lower optimizer.lr by a factor of 10 and lengthen optimizer.warmup.",
        )
        return
    fell = rise < -min(sure, FELL * abs(_mean(first, "loss"))) or worse < -min(clear, FELL * _mean(first, "wrong"))
    if not fell:
        yield Finding(
            "no_progress",
            "warning",
            f"nothing was learned: {values}; {100 * _mean(first, 'wrong'):.1f} % and "
            f"{100 * _mean(last, 'wrong'):.1f} % of the pairs are in the wrong order",
            "Try optimizer.lr divided and multiplied by 10. Check the labels (rankgrad datasets ... --sheet "
            "sheet.png).",
        )


def _of_end(samples: Sequence[Sample], facts: Facts) -> Iterator[Finding]:
    """Judge whether more steps would help."""
    *_, before, last = _quarters(samples)
    name = "loss" if math.isnan(_mean(last, "wrong")) else "wrong"
    start, end = _mean(before, name), _mean(last, name)
    fell, error = _change(before, last, name)
    if facts.gained is not None:
        improving = facts.gained > ROSE
        text = f"the best value of the validation rows rose by {100 * facts.gained:.1f} points"
    else:
        improving = fell < -max(error, STILL_FELL * abs(start)) and not _mean(last, "wrong") <= SOLVED
        shown = [f"{100 * v:.2g} %" if name == "wrong" else f"{v:.3g}" for v in (start, end)]
        what = "the share of pairs in the wrong order" if name == "wrong" else "the loss"
        text = f"{what} fell from {shown[0]} to {shown[1]}"
    if improving:
        yield Finding(
            "still_improving",
            "note",
            f"the training was still improving when it ended: in the last quarter of its steps {text}",
            "Train longer: trainer.max_epochs=N with a larger N; with resume=RUN this run continues.",
        )


def _change(first: Sequence[Sample], last: Sequence[Sample], name: str) -> tuple[float, float]:
    """(growth of the mean, two standard errors of this difference)."""
    before, after = _values(first, name), _values(last, name)
    if len(before) < 2 or len(after) < 2:
        return math.nan, math.nan
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(after) / len(after))
    return statistics.mean(after) - statistics.mean(before), 2 * error


def _values(samples: Sequence[Sample], name: str) -> list[float]:
    return [value for sample in samples if math.isfinite(value := float(getattr(sample, name)))]


def _mean(samples: Sequence[Sample], name: str) -> float:
    values = _values(samples, name)
    return statistics.mean(values) if values else math.nan


def _median(samples: Sequence[Sample], name: str) -> float:
    values = _values(samples, name)
    return statistics.median(values) if values else math.nan


def _second_largest(samples: Sequence[Sample], name: str) -> float:
    """The second largest value, because the largest one may be an outlier; NaN for fewer than two."""
    values = sorted(_values(samples, name))
    return values[-2] if len(values) > 1 else math.nan


def _quarters(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    edges = [round(len(samples) * part / 4) for part in range(5)]
    return [samples[low:high] for low, high in itertools.pairwise(edges) if high > low]
