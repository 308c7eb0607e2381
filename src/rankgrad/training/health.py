"""Is a training healthy, and if not, what to do: some of its steps are looked at; the run gets a health.json.

Losses fall slowly, jump, or sit still for many reasons, and a run that learns nothing looks busy until its end. So a
Lightning callback measures what usually goes wrong, on about `SAMPLES` steps however long the run is: the batch's
embeddings (are they all alike? which pairs stand in the wrong order, and does the loss's step still pull on them?), the
gradient, and how far the weights move. `diagnose` reads the numbers; it knows nothing of training.

Every threshold below is a named number with its reason. They are ours, set so that the runs of docs/results.md pass.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
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

SAMPLES = 200  # steps that are looked at: enough for quarters of 50, few enough to cost nothing in a long run
EVERY = 5  # at least so many steps apart
ROWS = 256  # images of a batch that are compared
PAIRS = 256  # relevant pairs whose rivals are counted
WEIGHTS = 8192  # entries of each weight matrix whose change is measured

# A query without a relevant item has no loss: its image was read and embedded for nothing. One in twenty is waste worth
# a word; with one in two the batches are made wrongly, which is said at once.
NO_POSITIVE, MANY_NO_POSITIVE = 0.05, 0.5
# All alike: items of other classes are this similar, and those of the same class hardly more. 0.05 is what a step of
# temperature 0.01 can tell apart (5 temperatures).
ALIKE, GAP = 0.9, 0.05
# Participation ratio of the batch's embeddings: 5 to 10 in good runs on the glyphs. Below 2 they lie on a line, and few
# classes have room there; models of up to 4 dimensions are let alone.
DIMENSIONS, SMALL_MODEL = 2.0, 4
# Of the pairs in the wrong order, those on which the step's slope is below 1 % of its slope at a tie (a sigmoid: more
# than 6 temperatures away). They can't be mended directly. Smooth-AP on the glyphs, 180 steps: with temperature 0.01
# there are 65 % of them and mAP@R ends at 32 %, with 0.001 it is 94 % and 23 %, with 0.0001 99 % and 11 %.
FLAT, SATURATED = 0.01, 0.9
# Pairs in the wrong order below which a batch counts as solved: a small gradient or a flat loss is then no illness.
SOLVED = 0.005
# Root mean square of a gradient's entries. Adam divides by it plus 1e-8: below that its steps shrink, and SGD's have
# long stopped.
VANISHING = 1e-8
# Growth of the gradient from the first to the last quarter; a healthy run's stays within a factor of about ten.
EXPLODING = 100.0
# Share of the steps whose gradient is cut, from which the clip value acts as a learning rate.
CLIPPED = 0.9
# Change of the weight matrices in a step, relative to their size. At 0.1 they are other matrices after ten steps. A
# usual value is 0.001. The small network of the glyphs moves by 0.03 at most with its best rate (mAP@R 32 %), and by
# 0.13 with twenty times that (21 %). Batch norm hides it: the weights grow until the steps are small again, so the
# fastest steps count.
FAST = 0.1
# With so little a thousand steps change the weights by a thousandth.
SLOW = 1e-6
# Old embeddings of the memory against new ones of the same images, in units of what tells classes apart (similarity of
# relevant less that of other items). From here on the memory's error is as large as half of it.
DRIFT = 0.5
# Embeddings of zeros have no direction.
ZERO = 0.01
# Progress: from the first to the last third of the samples the loss, or the share of pairs in the wrong order, fell by
# more than chance (two standard errors) or by a tenth.
FELL = 0.1
# Fewer steps or samples than these say nothing about a trend.
LEAST_STEPS, LEAST_SAMPLES = 40, 8

Level = Literal["warning", "note"]


class HealthWarning(UserWarning):
    """A training is clearly ill while it runs."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        name: short, for programs: "collapsed", "saturated", ...
        level: "warning", or "note" for what may be meant.
        text: what was seen, with the number.
        advice: what to do.
    """

    name: str
    level: Level
    text: str
    advice: str


@dataclass(frozen=True)
class Sample:
    """What was seen at one step; NaN where there is nothing to see.

    Attributes:
        step: number of the step, from 0.
        loss: its loss.
        no_positive: share of the queries without a relevant item, in batch and memory.
        positive: mean cosine of two images of a class.
        negative: mean cosine of images of different classes.
        dimensions: participation ratio (sum l)^2 / sum l^2 of the eigenvalues l of the embeddings' covariance.
        wrong: share of the (relevant, irrelevant) pairs that stand in the wrong order.
        saturated: of these, the share on which the loss's step is flat; NaN for losses without a step.
        zero: share of the embeddings that are zero.
        grad_norm: length of the gradient, before it is clipped.
        grad_rms: root mean square of its entries.
        update: length of the weights' change over that of the weights, of a part of each weight matrix.
        drift: of a memory, see `memory`.
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
    """What is known of a training beside its samples.

    Attributes:
        steps: done.
        dim: of the embeddings; 0 where there are none.
        clip: value that gradients are clipped to; None: they are not.
        failed: the error that ended it; None: none did.
    """

    steps: int
    dim: int
    clip: float | None = None
    failed: str | None = None


# ------------------------------------------------------------------------------------------------------ what is seen


@torch.no_grad()
def look(embeddings: Tensor, labels: Tensor, step: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
    """Numbers of one batch: those of `Sample` that embeddings and labels tell.

    Args:
        embeddings: [row, dim] float.
        labels: [row] long.
        step: the loss's step for irrelevant items, see `relaxations`; None: it has none.

    >>> seen = look(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> seen["positive"], seen["negative"], round(seen["no_positive"], 2), seen["wrong"]
    (0.0, 0.5, 0.33, 1.0)
    """
    if labels.dim() != 1:
        labels = torch.unique(labels, dim=0, return_inverse=True)[1]
    alone = torch.unique(labels, return_inverse=True, return_counts=True)
    no_positive = (alone[2][alone[1]] == 1).float().mean()
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
    if len(query) > PAIRS:  # spread over all queries, and no random number is drawn
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
    """The step that a loss counts irrelevant items with; None if it has none, as losses of pairs and blackbox ranks."""
    for module in loss.modules():  # inside a memory, several processes, ROADMAP
        ranks = getattr(module, "ranks", None)
        if isinstance(module, SumLoss):
            return None  # where the step of one part is flat, the others go on
        if isinstance(ranks, Soft):
            return ranks.neg
    return None


# ------------------------------------------------------------------------------------------------------ what it means


def diagnose(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    """What is wrong with a training, worst first; [] if nothing is.

    Args:
        samples: of its steps, in order.
        facts: of the whole.
    """
    if not samples:
        return []
    findings = [*_of_batches(samples), *_of_numbers(samples, facts)]
    obvious = any(finding.name == "not_finite" for finding in findings)
    obvious |= _mean(samples, "no_positive") > MANY_NO_POSITIVE  # whatever else is seen follows from that
    if not obvious and facts.steps >= LEAST_STEPS and len(samples) >= LEAST_SAMPLES:
        findings += [*_of_embeddings(samples, facts), *_of_gradients(samples, facts), *_of_progress(samples)]
    order: tuple[Level, ...] = ("warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.level))


def _of_batches(samples: Sequence[Sample]) -> list[Finding]:
    share = _mean(samples, "no_positive")
    if not share > NO_POSITIVE:
        return []
    return [
        Finding(
            "no_positive",
            "warning",
            f"{100 * share:.0f} % of the queries have no other row of their class in the batch: they teach nothing",
            "Draw K >= 2 rows of each class (sampler.samples_per_class=4), and leave out smaller classes "
            "(sampler.short_classes=drop).",
        )
    ]


def _of_numbers(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    bad = [s for s in samples if not (math.isfinite(s.loss) and math.isfinite(s.grad_norm))]
    if not bad and facts.failed is None:
        return []
    if not bad and "NaN or infinity" not in str(facts.failed):
        return []
    where = f"at step {bad[0].step}" if bad else f"after step {samples[-1].step}"
    return [
        Finding(
            "not_finite",
            "warning",
            f"loss, gradient or embeddings became infinite or NaN {where}",
            "Lower optimizer.lr by a factor of 10, lengthen optimizer.warmup, or clip (trainer.gradient_clip_val=1); "
            "with trainer.precision=16-mixed try bf16-mixed.",
        )
    ]


def _of_embeddings(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    last = _quarters(samples)[-1]
    positive, negative, wide = (_median(last, name) for name in ("positive", "negative", "dimensions"))
    findings = []
    if negative > ALIKE and (math.isnan(positive) or positive - negative < GAP):
        findings.append(
            Finding(
                "collapsed",
                "warning",
                f"all embeddings are alike: rows of different classes have cosine {negative:.3f}, of the same class "
                f"{positive:.3f}",
                "Lower optimizer.lr and lengthen optimizer.warmup; check that the network is not frozen and that the "
                "inputs differ (of images: rankgrad datasets ... --sheet sheet.png); start from trained weights.",
            )
        )
    elif wide < DIMENSIONS and facts.dim > SMALL_MODEL:
        findings.append(
            Finding(
                "few_dimensions",
                "warning",
                f"the embeddings of a batch fill {wide:.1f} of {facts.dim} dimensions: they lie on a line",
                "Lower optimizer.lr, take more classes per batch, or start from trained weights.",
            )
        )
    zero = _mean(last, "zero")
    if zero > ZERO:
        findings.append(
            Finding(
                "zero_embeddings",
                "warning",
                f"{100 * zero:.0f} % of the embeddings are zero, which has no direction",
                "Lower optimizer.lr; a head that ends in ReLU can die: use model.head=linear.",
            )
        )
    share, wrong = _mean(samples, "saturated"), _mean(samples, "wrong")
    if share > SATURATED and wrong > SOLVED:
        findings.append(
            Finding(
                "saturated",
                "warning",
                f"on {100 * share:.0f} % of the pairs in the wrong order the loss's step is flat: they get no gradient",
                "Raise the temperature (loss.tau=0.05), or take a step with a tail: loss=roadmap or loss=supap.",
            )
        )
    gap = positive - negative
    drift = _median(last, "drift")
    if drift > DRIFT * max(gap, 0.0):
        findings.append(
            Finding(
                "memory_drift",
                "warning",
                f"the memory is out of date: its embeddings are {drift:.2f} (1 - cosine) from the new ones of the same "
                f"rows, and classes differ by {gap:.2f}",
                "Lengthen memory.warmup, shorten the memory (memory.batches=3), or lower optimizer.lr.",
            )
        )
    return findings


def _of_gradients(samples: Sequence[Sample], facts: Facts) -> list[Finding]:
    quarters = _quarters(samples)
    first, last = quarters[0], quarters[-1]
    findings = []
    if _median(last, "grad_rms") < VANISHING and _median(last, "wrong") > SOLVED:
        findings.append(
            Finding(
                "vanishing",
                "warning",
                f"the gradient has vanished (root mean square {_median(last, 'grad_rms'):.1e} per weight), though "
                f"{100 * _median(last, 'wrong'):.1f} % of the pairs stand in the wrong order",
                "Check that the network is not frozen; raise the loss's temperature (loss.tau), or take loss=roadmap.",
            )
        )
    growth = _median(last, "grad_norm") / max(_median(first, "grad_norm"), 1e-30)
    if growth > EXPLODING and _median(first, "grad_rms") > VANISHING:
        findings.append(
            Finding(
                "exploding",
                "warning",
                f"the gradient grew {growth:.0f}-fold during training",
                "Lower optimizer.lr, or clip (trainer.gradient_clip_val=1).",
            )
        )
    if facts.clip:
        cut = sum(s.grad_norm > facts.clip for s in samples) / len(samples)
        if cut > CLIPPED:
            findings.append(
                Finding(
                    "clipped",
                    "note",
                    f"{100 * cut:.0f} % of the gradients were clipped: gradient_clip_val={facts.clip:g} now acts "
                    "as a learning rate",
                    "Fine if it is meant; else clip at a few times the usual length, "
                    f"{_median(samples, 'grad_norm'):.2g}.",
                )
            )
    moved = _high(samples, "update")
    if moved > FAST:
        findings.append(
            Finding(
                "fast",
                "warning",
                f"steps change the weights by up to {100 * moved:.0f} % of their size: the learning rate is too high",
                "Lower optimizer.lr by a factor of 10.",
            )
        )
    elif moved < SLOW:
        findings.append(
            Finding(
                "slow",
                "warning",
                f"the weights hardly move: a step changes them by no more than {moved:.1e} of their size",
                "Raise optimizer.lr, or check that the network is not frozen.",
            )
        )
    return findings


def _of_progress(samples: Sequence[Sample]) -> list[Finding]:
    """The loss alone may rise for good reasons (a memory that comes in), so the order of pairs has a say, too."""
    count = len(samples) // 3
    first, last = samples[:count], samples[-count:]
    if _mean(last, "wrong") <= SOLVED:
        return []
    rise, sure = _change(first, last, "loss")
    worse, clear = _change(first, last, "wrong")
    if math.isnan(worse):  # no relevant items: said elsewhere
        return []
    stands = f"loss {_mean(first, 'loss'):.3g} at the start and {_mean(last, 'loss'):.3g} at the end"
    if rise > sure and worse >= -clear:
        return [
            Finding(
                "rising",
                "warning",
                f"the loss rises: {stands}",
                "Lower optimizer.lr by a factor of 10 and lengthen optimizer.warmup.",
            )
        ]
    fell = rise < -min(sure, FELL * abs(_mean(first, "loss"))) or worse < -min(clear, FELL * _mean(first, "wrong"))
    if not fell:
        return [
            Finding(
                "no_progress",
                "warning",
                f"nothing was learned: {stands}, {100 * _mean(first, 'wrong'):.1f} % and "
                f"{100 * _mean(last, 'wrong'):.1f} % of the pairs in the wrong order",
                "Try another optimizer.lr (a tenth, and ten times); check the labels (rankgrad datasets ... --sheet "
                "sheet.png).",
            )
        ]
    return []


def _change(first: Sequence[Sample], last: Sequence[Sample], name: str) -> tuple[float, float]:
    """(by how much a mean grew, how much of that could be chance: two standard errors of the difference)."""
    one, other = _values(first, name), _values(last, name)
    if len(one) < 2 or len(other) < 2:
        return math.nan, math.nan
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    return statistics.mean(other) - statistics.mean(one), 2 * error


def _values(samples: Sequence[Sample], name: str) -> list[float]:
    return [value for sample in samples if math.isfinite(value := float(getattr(sample, name)))]


def _mean(samples: Sequence[Sample], name: str) -> float:
    values = _values(samples, name)
    return statistics.mean(values) if values else math.nan


def _median(samples: Sequence[Sample], name: str) -> float:
    values = _values(samples, name)
    return statistics.median(values) if values else math.nan


def _high(samples: Sequence[Sample], name: str) -> float:
    """The second largest: one sample alone may be an accident."""
    values = sorted(_values(samples, name))
    return values[-2] if len(values) > 1 else math.nan


def _quarters(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    edges = [round(len(samples) * part / 4) for part in range(5)]
    return [samples[low:high] for low, high in zip(edges, edges[1:], strict=False) if high > low]


# ------------------------------------------------------------------------------------------------------ how it is told


def report(samples: Sequence[Sample], facts: Facts) -> dict[str, Any]:
    """What health.json holds: a verdict, the findings, and every sample by column.

    The verdict is "healthy" or "ill", or "too short" where there were too few steps to judge and nothing obvious is
    wrong.
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
    """JSON knows no NaN."""
    return None if not math.isfinite(value) else value


def as_text(report: Mapping[str, Any]) -> str:
    """A short table of a health.json, with a sentence of advice for each finding."""
    columns = report["samples"]
    words = {
        "healthy": "nothing to worry about",
        "ill": "something is wrong, see below",
        "too short": "too few steps to judge",
    }
    lines = [f"health: {words[report['verdict']]} ({report['sampled']} of {report['steps']} steps looked at)"]
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
    ("length of the gradient", "grad_norm", "number"),
    ("change of the weights in a step", "update", "share"),
    ("drift of the memory", "drift", "number"),
)


def _shown(value: float, form: str) -> str:
    return (
        f"{100 * value:.2g} %"
        if form == "share" and value < 0.1
        else f"{100 * value:.0f} %"
        if form == "share"
        else f"{value:.3g}"
    )


# ------------------------------------------------------------------------------------------------------ while training


class Health(L.Callback):
    """Looks at some steps of a training, warns at once of a clear illness, and writes what it saw at the end.

    Needs a `training.TrainedModule`, which it asks to `examine` its last batch. Costs less than 1 % of a step of the
    smallest network here, and nothing worth measuring of a large one: see docs/training.md. Draws no random number and
    changes nothing. Under several processes all look at the whole batch, and the first one speaks.

    Args:
        path: health.json to write; None: nowhere.
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

    # Resumed runs go on with what was seen before.
    def state_dict(self) -> dict[str, Any]:
        """What was seen."""
        samples = [asdict(sample) for sample in self.samples]
        return {"samples": samples, "warned": sorted(self._warned), "dim": self._dim}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on."""
        self.samples = [Sample(**sample) for sample in state_dict["samples"]]
        self._warned = set(state_dict["warned"])
        self._dim = state_dict.get("dim", 0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Spread the samples over the run."""
        self._every = max(EVERY, int(trainer.estimated_stepping_batches) // SAMPLES)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradient, and keep a part of the weights."""
        if trainer.global_step % self._every:
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if not gradients:
            return
        norm = float(torch.stack([grad.norm() for grad in gradients]).norm())
        if not math.isfinite(norm) and trainer.precision == "16-mixed":
            return  # half precision finds its scale by such steps, and leaves them out
        self._now = {"grad_norm": norm, "grad_rms": norm / math.sqrt(sum(grad.numel() for grad in gradients))}
        parts = [_part(p) for p in pl_module.parameters() if p.ndim > 1 and p.grad is not None]
        self._before = [(part, part.clone()) for part in parts]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure the rest, and warn if it is clear that something is wrong."""
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
            if 2 * trainer.global_step >= trainer.estimated_stepping_batches:  # an untrained network's may be alike
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
        """Write and show, once training is over; also of a run that was killed just then."""
        self._finish(self._facts(trainer))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Write and show what was seen before it failed; an interrupted run is not judged."""
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
    """The first rows of a weight matrix, no more than about `WEIGHTS` entries: a view."""
    rows = max(1, WEIGHTS * len(weight) // weight.numel()) if weight.numel() else 0
    return weight.detach()[:rows]


__all__ = ["Facts", "Finding", "Health", "HealthWarning", "Sample", "as_text", "diagnose", "look", "report", "step_of"]
