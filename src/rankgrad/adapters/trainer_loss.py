"""The loss of a Trainer of transformers or of sentence-transformers: which modules it may be, and its saved state."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from ..batches.distributed import GlobalBatch
from ..batches.memory import Memory
from ..losses import RetrievalLoss, SumLoss
from ..losses.checked import CheckedLoss

LOSS_FILE = "rankgrad_loss.pt"  # in the folder of a checkpoint


def checked_loss(loss: nn.Module) -> CheckedLoss | SumLoss:
    """The loss, or that of a `GlobalBatch`, if a Trainer can call it as loss(embeddings, labels) and get one number.

    Raises:
        TypeError: a module of another kind, or a memory.
        ValueError: the loss gives one number per query.
    """
    inner = loss.loss if isinstance(loss, GlobalBatch) else loss
    parts = list(inner.modules()) if isinstance(inner, nn.Module) else []
    memory = next((part for part in parts if isinstance(part, Memory)), None)
    if memory is not None:
        raise TypeError(
            f"a {type(memory).__name__} needs the sample id of each row, so that no row is compared with its own older "
            "embedding, and this trainer does not pass ids on. Give the loss without the memory. rankgrad.fit and a "
            "loop of your own can use a memory"
        )
    if not isinstance(inner, (CheckedLoss, SumLoss)):
        what = type(loss).__name__ + (f" of a {type(inner).__name__}" if inner is not loss else "")
        raise TypeError(
            "loss must be a loss of rankgrad.losses, such as SmoothAPLoss(), a SumLoss, a loss of "
            f"rankgrad.losses.baselines, or a PMLLoss(...) of rankgrad.adapters.pml_losses; got {what}"
        )
    if any(isinstance(part, RetrievalLoss) and part.reduction != "mean" for part in parts):
        raise ValueError("the trainer needs one number from the loss; create it with reduction='mean'")
    return inner


class SavesLoss(Trainer):  # type: ignore[misc]  # the library is not followed by mypy
    """Base class that makes a Trainer save the state of its loss in every checkpoint, and read it when it resumes.

    The trainers save the model only. Some losses have a state, too: the running thresholds of AdaptiveROADMAPLoss,
    AdaptiveTripletLoss and CalibrationLoss(quantiles=...), and the weights of a baseline such as CrossEntropyLoss.
    Without this class they start anew when a training resumes. Put it in front of the trainer:

        class MyTrainer(SavesLoss, SentenceTransformerTrainer):
            pass

    `adapters.transformers.ClassBatchTrainer` does this already. The state is in the file `rankgrad_loss.pt` of the
    checkpoint. If several processes have different thresholds, because the loss does not gather their batches, the
    file has those of the first process.

    It takes the arguments of the Trainer.

    Raises:
        ValueError: when training resumes, if the checkpoint has the state of other losses.
    """

    def _losses(self) -> dict[str, nn.Module]:
        """Name -> each loss of ours with a state: the outermost modules, also inside a wrapper of the other library."""
        # sentence-transformers has a module, or one for each data set; transformers a function
        given: Any = getattr(self, "loss", None) or self.compute_loss_func
        if not isinstance(given, (nn.Module, dict)):
            given = getattr(given, "loss", None)
        if not isinstance(given, dict):
            given = {"loss": given}
        found: dict[str, nn.Module] = {}
        for first, module in given.items():
            inside: set[nn.Module] = set()
            for name, part in module.named_modules() if isinstance(module, nn.Module) else ():
                if isinstance(part, (CheckedLoss, SumLoss)) and part not in inside:
                    inside |= {*part.modules()}
                    if part.state_dict():
                        found[f"{first}.{name}"] = part
        return found

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        states = {name: loss.state_dict() for name, loss in self._losses().items()}
        if states and self.args.should_save:
            torch.save(states, os.path.join(output_dir, LOSS_FILE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        losses = self._losses()
        if checkpoint is None or not losses:
            return
        path = os.path.join(checkpoint, LOSS_FILE)
        if not os.path.isfile(path):
            kinds = ", ".join(type(loss).__name__ for loss in losses.values())
            warnings.warn(
                f"{checkpoint} has no {LOSS_FILE}, so the state of {kinds} is not restored and starts anew",
                stacklevel=2,
            )
            return
        states = torch.load(path, map_location="cpu", weights_only=True)
        if set(states) != set(losses):
            raise ValueError(
                f"{path} has the state of {', '.join(sorted(states))}, but the trainer has the losses "
                f"{', '.join(sorted(losses))}: give the loss with which the training began"
            )
        for name, loss in losses.items():
            loss.load_state_dict(states[name])


__all__ = ["SavesLoss"]
