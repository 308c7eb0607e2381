"""Find common problems of a training, and say what to change. The results are in health.json of the run.

The loss alone does not show why a run learns nothing. So a Lightning callback measures about `SAMPLES` steps of every
run, however long it is. It looks at the embeddings of the batch (`measuring`), at the gradient, and at the change of
the weights. `diagnosis` turns these numbers into findings.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from torch import Tensor

from rankgrad.batches.distributed import world

from ..files import write_text
from .diagnosis import LEAST_SAMPLES, LEAST_STEPS, MANY_NO_POSITIVE, Facts, diagnose, texts
from .measuring import Sample
from .module import TrainedModule

SAMPLES = 200  # measured steps: enough for quarters of 50, and few enough to cost little in a long run
EVERY = 5  # smallest number of steps between two samples
WEIGHTS = 8192  # measured entries of each weight matrix


class HealthWarning(UserWarning):
    """A clear problem of a training that is still running."""


def report(samples: Sequence[Sample], facts: Facts) -> dict[str, Any]:
    """The content of health.json: a verdict, the findings, and the samples by column.

    The verdict is "healthy" or "ill". It is "too short" if there are no findings and too few steps to judge.
    """
    findings = diagnose(samples, facts)
    ill = any(finding.level == "warning" for finding in findings)
    short = facts.steps < LEAST_STEPS or len(samples) < LEAST_SAMPLES
    columns = {name: [getattr(sample, name) for sample in samples] for name in Sample.__dataclass_fields__}
    return {
        "verdict": "ill" if ill else "too short" if short else "healthy",
        "findings": [asdict(finding) for finding in findings],
        **asdict(facts),
        "sampled": len(samples),
        # JSON has no NaN
        "samples": {name: [x if math.isfinite(x) else None for x in column] for name, column in columns.items()},
    }


SHARES = ("wrong", "saturated", "no_positive", "update")  # shown in per cent


def as_text(report: Mapping[str, Any]) -> str:
    """A short table of a health.json, with advice for each finding."""
    lines = [
        f"health: {texts()['verdicts'][report['verdict']]} ({report['sampled']} of {report['steps']} steps measured)"
    ]
    for column, name in texts()["measurements"].items():
        values = [value for value in report["samples"][column] if value is not None]
        if values:
            count = max(len(values) // 5, 1)
            ends = [statistics.mean(values[:count]), statistics.mean(values[-count:])]
            start, end = (f"{100 * x:.2g} %" if column in SHARES else f"{x:.3g}" for x in ends)
            of = f"  of {report['dim']}" if column == "dimensions" else ""
            lines.append(f"  {name:34} {start:>9} -> {end:>9}{of}")
    for finding in report["findings"]:
        mark = "!" if finding["level"] == "warning" else "-"
        lines += [f"  {mark} {finding['text']}.", f"    {finding['advice']}"]
    return "\n".join(lines)


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
        self._every, self._dim = EVERY, 0
        self._warned: set[str] = set()
        self._now: dict[str, float] | None = None
        self._before: list[tuple[Tensor, Tensor]] = []

    # A resumed run keeps its earlier samples.
    def state_dict(self) -> dict[str, Any]:
        """The samples, and the warnings that were given."""
        samples = [asdict(sample) for sample in self.samples]
        return {"samples": samples, "warned": sorted(self._warned), "dim": self._dim}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the samples."""
        self.samples = [Sample(**sample) for sample in state_dict["samples"]]
        self._warned, self._dim = set(state_dict["warned"]), state_dict["dim"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Spread the samples over the run."""
        self._every = max(EVERY, int(trainer.estimated_stepping_batches) // SAMPLES)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Measure the gradient, and copy a part of the weights."""
        learned = [weight for weight in pl_module.parameters() if weight.grad is not None]
        if trainer.global_step % self._every or not learned:
            return
        gradients = [weight.grad for weight in learned if weight.grad is not None]
        norm = float(torch.stack([grad.norm() for grad in gradients]).norm())
        if not math.isfinite(norm) and trainer.precision == "16-mixed":
            return  # half precision adjusts its scale at such a step, and skips the update
        self._now = {"grad_norm": norm, "grad_rms": norm / math.sqrt(sum(grad.numel() for grad in gradients))}
        self._before = [(part, part.clone()) for part in (_part(weight) for weight in learned if weight.ndim > 1)]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure the rest, and warn of clear problems."""
        if self._now is None:
            return
        measured, self._now = self._now, None
        if self._before:
            moved = torch.stack([(part - old).norm() for part, old in self._before]).norm()
            measured["update"] = float(moved / torch.stack([old.norm() for _, old in self._before]).norm())
        module = cast(TrainedModule, pl_module)
        measured |= module.examine()
        self._dim = int(measured.pop("dim", 0))
        value = outputs["loss"] if isinstance(outputs, Mapping) else outputs
        loss = float(value) * trainer.accumulate_grad_batches
        self.samples.append(Sample(step=trainer.global_step - 1, loss=loss, **measured))
        self._warn(trainer)

    def _warn(self, trainer: L.Trainer) -> None:
        last, clear = self.samples[-1], set()
        if not (math.isfinite(last.loss) and math.isfinite(last.grad_norm)):
            clear.add("not_finite")
        if last.no_positive > MANY_NO_POSITIVE:
            clear.add("no_positive")
        if trainer.global_step >= LEAST_STEPS and len(self.samples) % 10 == 0:
            clear.add("fast")
            # embeddings of an untrained network may be alike
            if 2 * trainer.global_step >= trainer.estimated_stepping_batches:
                clear |= {"collapsed", "slow", "vanishing"}
        for finding in diagnose(self.samples, self._facts(trainer)) if clear - self._warned else ():
            if finding.name in clear - self._warned:
                self._warned.add(finding.name)
                if world()[0] == 0:
                    warnings.warn(f"{finding.text}. {finding.advice}", HealthWarning, stacklevel=2)

    def _facts(self, trainer: L.Trainer, failed: BaseException | None = None) -> Facts:
        clip = trainer.gradient_clip_val
        why = None if failed is None else (str(failed).strip() or type(failed).__name__).splitlines()[0]
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        gained = next((each.gained() for each in callbacks if hasattr(each, "gained")), None)
        return Facts(trainer.global_step, self._dim, None if clip is None else float(clip), why, gained)

    def finish(self, trainer: L.Trainer) -> None:
        """Write and print the results after training. A run that was killed at this point does it when it resumes."""
        self._finish(self._facts(trainer))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Write and print the results after an error. An interrupted run is not judged."""
        if isinstance(exception, Exception):
            self._finish(self._facts(trainer, exception))

    def _finish(self, facts: Facts) -> None:
        found = report(self.samples, facts)
        if world()[0] != 0:
            return
        if self.path is not None and self.path.parent.is_dir():
            write_text(self.path, json.dumps(found, indent=1))
        if self.show and self.samples:
            print(as_text(found), file=sys.stderr if facts.failed else sys.stdout, flush=True)


def _part(weight: Tensor) -> Tensor:
    """A view of the first rows of a weight matrix, with at most about `WEIGHTS` entries."""
    rows = max(1, WEIGHTS * len(weight) // weight.numel()) if weight.numel() else 0
    return weight.detach()[:rows]
