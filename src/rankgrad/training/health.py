"""Find common problems of a training, and say what to change. The results are in health.json of the run.

The loss alone does not show why a run learns nothing. So a Lightning callback measures about `SAMPLES` steps of every
run, however long it is. It looks at the embeddings of the batch (are they all alike? which pairs are in the wrong
order, and do these pairs still get a gradient?), at the gradient, and at the change of the weights. `diagnose` turns
these numbers into findings. It does not depend on the training code.

Every threshold below has a name and a reason. We chose the values so that the runs of docs/results.md pass.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
from torch import Tensor, nn

from ..distributed import world
from ..files import write_text
from ..losses import SumLoss
from ..normalize import unit_rows
from ..ranks import Soft
from ..relaxations import as_step

SAMPLES = 200  # measured steps: enough for quarters of 50, and few enough to cost little in a long run
EVERY = 5  # smallest number of steps between two samples
ROWS = 256  # compared images of a batch
PAIRS = 256  # relevant pairs that are compared with the irrelevant items
WEIGHTS = 8192  # measured entries of each weight matrix

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
FLAT, SATURATED = 0.01, 0.9
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
# With fewer steps or samples, no trend is judged.
LEAST_STEPS, LEAST_SAMPLES = 40, 8

Level = Literal["warning", "note"]


class HealthWarning(UserWarning):
    """A clear problem of a training that is still running."""


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
class Sample:
    """Measurements of one step. A value is NaN if it cannot be measured.

    Attributes:
        step: number of the step, from 0.
        loss: loss of the step.
        no_positive: share of the queries without a relevant item, in batch and memory.
        positive: mean cosine of two images of one class.
        negative: mean cosine of images of different classes.
        dimensions: participation ratio (sum l)^2 / sum l^2 of the eigenvalues l of the embeddings' covariance.
        wrong: share of the (relevant, irrelevant) pairs in the wrong order.
        saturated: share of these pairs at which the loss's step is flat; NaN for losses without a step.
        zero: share of the embeddings that are zero.
        grad_norm: norm of the gradient, before clipping.
        grad_rms: root mean square of the gradient's entries.
        update: norm of the weights' change divided by the norm of the weights, for a part of each weight matrix.
        drift: drift of a memory, see `memory`.
    """

    step: int
    loss: float
    no_positive: float = math.nan
    positive: float = math.nan
    negative: float = math.nan
    dimensions: float = math.nan
    wrong: float = math.nan
    saturated: float = math.nan
    zero: float = math.nan
    grad_norm: float = math.nan
    grad_rms: float = math.nan
    update: float = math.nan
    drift: float = math.nan


@dataclass(frozen=True)
class Facts:
    """Facts of a training, beside its samples.

    Attributes:
        steps: number of steps done.
        dim: dimension of the embeddings; 0 if there are none.
        clip: value that gradients are clipped to; None: no clipping.
        failed: the error that ended the training; None: no error.
    """

    steps: int
    dim: int
    clip: float | None = None
    failed: str | None = None


# ------------------------------------------------------------------------------------------------------ measuring


@torch.no_grad()
def look(embeddings: Tensor, labels: Tensor, step: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
    """Measure one batch: the values of `Sample` that depend only on embeddings and labels.

    Args:
        embeddings: [row, dim] float.
        labels: [row] long.
        step: the loss's step for irrelevant items, see `relaxations`; None: the loss has none.

    >>> seen = look(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> seen["positive"], seen["negative"], round(seen["no_positive"], 2), seen["wrong"]
    (0.0, 0.5, 0.33, 1.0)
    """
    if labels.dim() != 1:
        labels = torch.unique(labels, dim=0, return_inverse=True)[1]
    _, number, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    no_positive = (sizes[number] == 1).float().mean()
    rows, labels = embeddings[:ROWS].float(), labels[:ROWS]
    zero = (rows == 0).all(1).float().mean()
    unit = unit_rows(rows)
    scores = unit @ unit.T
    same = labels.unsqueeze(1) == labels
    relevant = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    rest = ~same
    centred = unit - unit.mean(0)
    gram = centred @ centred.T
    dimensions = gram.trace().square() / gram.square().sum()
    query, item = relevant.nonzero(as_tuple=True)
    if len(query) > PAIRS:  # spread evenly over all queries, without random numbers
        chosen = torch.linspace(0, len(query) - 1, PAIRS, device=query.device).round().long()
        query, item = query[chosen], item[chosen]
    difference = scores[query] - scores[query, item].unsqueeze(1)
    rivals = rest[query]
    wrong = (difference >= 0) & rivals
    saturated = wrong.new_full((), torch.nan, dtype=torch.float32)
    slope = None if step is None else as_step(step).slope(difference)
    if step is not None and slope is not None:
        at_tie = as_step(step).slope(difference.new_zeros(1))
        assert at_tie is not None
        saturated = ((slope < FLAT * at_tie) & wrong).sum() / wrong.sum()  # NaN if nothing is wrong
    measured = {
        "no_positive": no_positive,
        "positive": (scores * relevant).sum() / relevant.sum(),
        "negative": (scores * rest).sum() / rest.sum(),
        "dimensions": dimensions,
        "wrong": wrong.sum() / rivals.sum(),
        "saturated": saturated,
        "zero": zero,
    }
    return dict(zip(measured, torch.stack([value.float() for value in measured.values()]).tolist(), strict=True))


def step_of(loss: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The step with which a loss counts irrelevant items. None for losses without one: losses of pairs, blackbox."""
    for module in loss.modules():  # the loss may be inside a memory, a GlobalBatch or ROADMAP
        ranks = getattr(module, "ranks", None)
        if isinstance(module, SumLoss):
            return None  # where the step of one part is flat, another part may have a gradient
        if isinstance(ranks, Soft):
            return ranks.neg
    return None


# ------------------------------------------------------------------------------------------------------ judging


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
    order: tuple[Level, ...] = ("warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _of_batches(samples: Sequence[Sample]) -> Iterator[Finding]:
    share = _mean(samples, "no_positive")
    if share > NO_POSITIVE:
        yield Finding(
            "no_positive",
            "warning",
            f"{100 * share:.0f} % of the queries have no other row of their class in the batch, so they have no loss",
            "Draw at least 2 rows of each class (sampler.samples_per_class=4), and leave out smaller classes "
            "(sampler.short_classes=drop).",
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
    return [samples[low:high] for low, high in zip(edges, edges[1:], strict=False) if high > low]


# ------------------------------------------------------------------------------------------------------ reporting


def report(samples: Sequence[Sample], facts: Facts) -> dict[str, Any]:
    """The content of health.json: a verdict, the findings, and the samples by column.

    The verdict is "healthy" or "ill". It is "too short" if there are no findings and too few steps to judge.
    """
    findings = diagnose(samples, facts)
    ill = any(finding.level == "warning" for finding in findings)
    short = facts.steps < LEAST_STEPS or len(samples) < LEAST_SAMPLES
    columns = {name: [_plain(getattr(s, name)) for s in samples] for name in Sample.__dataclass_fields__}
    return {
        "verdict": "ill" if ill else "too short" if short else "healthy",
        "findings": [asdict(finding) for finding in findings],
        **asdict(facts),
        "sampled": len(samples),
        "samples": columns,
    }


def _plain(value: float) -> float | None:
    """A value for JSON, which has no NaN."""
    return None if not math.isfinite(value) else value


def as_text(report: Mapping[str, Any]) -> str:
    """A short table of a health.json, with advice for each finding."""
    columns = report["samples"]
    words = {
        "healthy": "no problems found",
        "ill": "problems found, see below",
        "too short": "too few steps to judge",
    }
    lines = [f"health: {words[report['verdict']]} ({report['sampled']} of {report['steps']} steps measured)"]
    for name, column, form in _ROWS:
        values = [value for value in columns[column] if value is not None]
        if values:
            count = max(len(values) // 5, 1)
            start, end = statistics.mean(values[:count]), statistics.mean(values[-count:])
            of = f"  of {report['dim']}" if column == "dimensions" else ""
            lines.append(f"  {name:34} {_shown(start, form):>9} -> {_shown(end, form):>9}{of}")
    for finding in report["findings"]:
        mark = "!" if finding["level"] == "warning" else "-"
        lines += [f"  {mark} {finding['text']}.", f"    {finding['advice']}"]
    return "\n".join(lines)


_ROWS = (
    ("loss", "loss", "number"),
    ("pairs in the wrong order", "wrong", "share"),
    ("of these, without a gradient", "saturated", "share"),
    ("queries without a relevant item", "no_positive", "share"),
    ("cosine within a class", "positive", "number"),
    ("cosine between classes", "negative", "number"),
    ("effective dimensions", "dimensions", "number"),
    ("norm of the gradient", "grad_norm", "number"),
    ("change of the weights in a step", "update", "share"),
    ("drift of the memory", "drift", "number"),
)


def _shown(value: float, form: str) -> str:
    if form == "number":
        return f"{value:.3g}"
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


# ------------------------------------------------------------------------------------------------------ the callback


class Health(L.Callback):
    """Measures some steps of a training, warns at once of clear problems, and writes health.json at the end.

    It needs a `training.TrainedModule`, whose `examine` measures the last batch. It takes less than 1 % of the training
    time of the smallest network here, and even less with a large network: see docs/training.md. It draws no random
    numbers and does not change the training. With several processes, all measure the whole batch, and only the first
    one prints.

    Args:
        path: health.json to write; None: write no file.
        show: print the table at the end.
    """

    def __init__(self, path: Path | None = None, show: bool = True) -> None:
        self.path, self.show = path, show
        self.samples: list[Sample] = []
        self.found: dict[str, Any] = {}
        self._every = EVERY
        self._warned: set[str] = set()
        self._now: dict[str, float] | None = None
        self._before: list[tuple[Tensor, Tensor]] = []
        self._dim = 0

    # A resumed run keeps its earlier samples.
    def state_dict(self) -> dict[str, Any]:
        """The samples, and the warnings that were given."""
        samples = [asdict(sample) for sample in self.samples]
        return {"samples": samples, "warned": sorted(self._warned), "dim": self._dim}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the samples."""
        self.samples = [Sample(**sample) for sample in state_dict["samples"]]
        self._warned = set(state_dict["warned"])
        self._dim = state_dict.get("dim", 0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Spread the samples over the run."""
        self._every = max(EVERY, int(trainer.estimated_stepping_batches) // SAMPLES)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradient, and copy a part of the weights."""
        if trainer.global_step % self._every:
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if not gradients:
            return
        norm = float(torch.stack([grad.norm() for grad in gradients]).norm())
        if not math.isfinite(norm) and trainer.precision == "16-mixed":
            return  # half precision adjusts its scale at such a step, and skips the update
        self._now = {"grad_norm": norm, "grad_rms": norm / math.sqrt(sum(grad.numel() for grad in gradients))}
        parts = [_part(p) for p in pl_module.parameters() if p.ndim > 1 and p.grad is not None]
        self._before = [(part, part.clone()) for part in parts]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure the rest, and warn of clear problems."""
        if self._now is None:
            return
        measured, self._now = self._now, None
        moved = [((part - old).norm(), old.norm()) for part, old in self._before]
        self._before = []
        update = (
            torch.stack([a for a, _ in moved]).norm() / torch.stack([b for _, b in moved]).norm() if moved else None
        )
        examine: Any = pl_module.examine
        seen: dict[str, float] = examine()
        self._dim = int(seen.pop("dim", 0))
        value = outputs["loss"] if isinstance(outputs, Mapping) else outputs
        self.samples.append(
            Sample(
                step=trainer.global_step - 1,
                loss=float(value) * trainer.accumulate_grad_batches,
                update=math.nan if update is None else float(update),
                **measured,
                **seen,
            )
        )
        self._warn(trainer)

    def _warn(self, trainer: L.Trainer) -> None:
        last, clear = self.samples[-1], set()
        if not (math.isfinite(last.loss) and math.isfinite(last.grad_norm)):
            clear.add("not_finite")
        if last.no_positive > MANY_NO_POSITIVE:
            clear.add("no_positive")
        if trainer.global_step >= LEAST_STEPS and len(self.samples) % 10 == 0:
            clear |= {"fast"}
            # embeddings of an untrained network may be alike
            if 2 * trainer.global_step >= trainer.estimated_stepping_batches:
                clear |= {"collapsed", "slow", "vanishing"}
        if not clear - self._warned:
            return
        for finding in diagnose(self.samples, self._facts(trainer)):
            if finding.name in clear - self._warned:
                self._warned.add(finding.name)
                if world()[0] == 0:
                    warnings.warn(f"{finding.text}. {finding.advice}", HealthWarning, stacklevel=2)

    def _facts(self, trainer: L.Trainer, failed: BaseException | None = None) -> Facts:
        clip = trainer.gradient_clip_val
        why = None if failed is None else (str(failed).strip() or type(failed).__name__).splitlines()[0]
        return Facts(trainer.global_step, self._dim, None if clip is None else float(clip), why)

    def finish(self, trainer: L.Trainer) -> None:
        """Write and print the results after training. A run that was killed at this point does it when it resumes."""
        self._finish(self._facts(trainer))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Write and print the results after an error. An interrupted run is not judged."""
        if isinstance(exception, Exception):
            self._finish(self._facts(trainer, exception))

    def _finish(self, facts: Facts) -> None:
        self.found = report(self.samples, facts)
        if world()[0] != 0:
            return
        if self.path is not None and self.path.parent.is_dir():
            write_text(self.path, json.dumps(self.found, indent=1))
        if self.show and self.samples:
            print(as_text(self.found), file=sys.stderr if facts.failed else sys.stdout, flush=True)


def _part(weight: Tensor) -> Tensor:
    """A view of the first rows of a weight matrix, with at most about `WEIGHTS` entries."""
    rows = max(1, WEIGHTS * len(weight) // weight.numel()) if weight.numel() else 0
    return weight.detach()[:rows]


__all__ = ["Facts", "Finding", "Health", "HealthWarning", "Sample", "as_text", "diagnose", "look", "report", "step_of"]
