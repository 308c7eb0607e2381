"""An AP loss in torchvision's Faster and Mask R-CNN, in the place of cross-entropy.

torchvision offers no place for another classification loss. Nothing of its code is copied here: hooks read the logits
and the labels of the sampled proposals where they pass, let torchvision compute what it always does, and replace the
entry "loss_classifier" of its losses. Layers, weights, the keys of the state_dict and inference are untouched, and
whatever else a model learns (boxes, masks, key points, proposals) goes on as before.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..ranks import computed
from .loss import one_hot_targets

Score = Literal["log_softmax", "logits"]


def use_ap_loss(
    model: nn.Module,
    loss: nn.Module,
    weight: float = 1.0,
    *,
    score: Score = "log_softmax",
    warmup: int = 0,
    fade: int = 0,
    keep: float = 0.0,
) -> LossHandle:
    """Train the classifier of a torchvision detector by a loss over all proposals of a batch.

    The model is changed in place: in training mode, `model(images, targets)["loss_classifier"]` is from now on

        share * cross-entropy + (1 - share) * weight * loss,

    with a share of cross-entropy of 1 for `warmup` steps, then falling linearly to `keep` within `fade` steps. A step
    is a forward pass in training mode with gradients enabled. Cross-entropy at first helps where ranks give little
    gradient: scores of a fresh head are all within the margin (docs/detection.md).

    Args:
        model: `FasterRCNN`, `MaskRCNN`, `KeypointRCNN` of torchvision >= 0.21, or another with its `RoIHeads`.
        loss: called as loss(scores [proposal, class], targets [proposal, class]) -> scalar, e.g. `DetectionAPLoss()`,
            or `distributed.GlobalBatch` around it.
        weight: factor of the loss.
        score: what is ranked. "log_softmax": logarithms of the probabilities that torchvision ranks by at inference:
            trains the background logit too. "logits": the logits of the classes; the background logit learns nothing
            from the loss.
        warmup: steps with cross-entropy alone, >= 0. The loss is computed in them too, so that its memory fills.
        fade: steps from there to `keep`, >= 0.
        keep: share of cross-entropy in the end, 0 .. 1.

    Returns:
        The handle: statistics, the step, `remove()`. It is a module that holds the loss, but not the model, and no part
        of the model: keep it beside the model and save its state_dict (memory of the loss, step) with the model's.

    Raises:
        TypeError: the model has no `RoIHeads`.
        ValueError: numbers out of range.
        RuntimeError: an AP loss is in use there already. Later, from a training step in which the loss was not used.
    """
    return LossHandle(model, loss, weight, score=score, warmup=warmup, fade=fade, keep=keep)


class LossHandle(nn.Module):
    """A loss in the place of cross-entropy in a torchvision detector; see `use_ap_loss`, which makes it.

    Attributes:
        loss: the loss; its memory is part of this module's state_dict.
        step: buffer, training steps seen.
        stats: detached tensors of the last training step: "loss" (before `weight`), "cross_entropy", "share".
    """

    step: Tensor

    def __init__(
        self, model: nn.Module, loss: nn.Module, weight: float, *, score: Score, warmup: int, fade: int, keep: float
    ) -> None:
        super().__init__()
        for name, steps in (("warmup", warmup), ("fade", fade)):
            if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
                raise ValueError(f"{name} is a number of training steps, an integer >= 0; got {steps!r}")
        if not weight >= 0 or not 0 <= keep <= 1:
            raise ValueError(f"weight must be >= 0 and keep within 0 .. 1; got weight={weight}, keep={keep}")
        if score not in ("log_softmax", "logits"):
            raise ValueError(f"score must be 'log_softmax' or 'logits'; got {score!r}")
        heads = _roi_heads(model)
        self.loss, self.weight, self.score = loss, weight, score
        self.warmup, self.fade, self.keep = warmup, fade, keep
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self._steps = 0  # the same on the host
        self.stats: dict[str, Tensor] = {}
        self._seen: dict[str, Any] = {}  # of the forward pass that is running
        # in a tuple: the model is no part of this module, nor this module of the model
        self._model: tuple[nn.Module, Any] = (model, heads)
        self._select = heads.select_training_samples
        heads.select_training_samples = self._select_and_see
        self._hooks = [
            model.register_forward_pre_hook(self._start),
            heads.box_predictor.register_forward_hook(self._see_logits),
            heads.register_forward_hook(self._replace),
            model.register_forward_hook(self._end),
        ]

    @property
    def share(self) -> float:
        """Share of cross-entropy in the next step."""
        left = self.warmup + self.fade - self._steps
        if left <= 0:
            return self.keep
        return 1.0 if left > self.fade else self.keep + (1 - self.keep) * left / (self.fade + 1)

    @property
    def removed(self) -> bool:
        """Whether the model has its own loss again."""
        return not self._hooks

    def remove(self) -> None:
        """Give the model its cross-entropy back. A second call does nothing."""
        if self.removed:
            return
        heads = self._model[1]
        if vars(heads).get("select_training_samples") != self._select_and_see:
            raise RuntimeError(
                "roi_heads.select_training_samples was replaced after use_ap_loss: undo that first, then remove()"
            )
        del heads.select_training_samples
        if heads.select_training_samples != self._select:  # it had been replaced before, too
            heads.select_training_samples = self._select
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Not to be called: the loss is part of the model's own forward pass."""
        raise RuntimeError("call the model: its losses contain this one")

    # ------------------------------------------------------------------ what happens within a forward pass

    def _start(self, model: nn.Module, args: Any) -> None:
        self._seen = {}

    def _select_and_see(self, proposals: Any, targets: Any) -> Any:
        selected = self._select(proposals, targets)
        self._seen["labels"] = torch.cat(list(selected[2]))
        return selected

    def _see_logits(self, predictor: nn.Module, args: Any, output: Any) -> None:
        if self._model[1].training:
            self._seen["logits"] = output[0]

    def _replace(self, heads: nn.Module, args: Any, output: Any) -> Any:
        if not heads.training:
            return None
        missing = [name for name in ("labels", "logits") if name not in self._seen]
        detections, losses = output
        if missing or "loss_classifier" not in losses:
            raise RuntimeError(
                f"the loss is not in use: no {' and '.join(missing) or 'loss_classifier'} passed by. Was box_predictor "
                "or select_training_samples replaced after use_ap_loss? Call remove() and use_ap_loss again"
            )
        cross_entropy = losses["loss_classifier"]
        value = self._value(self._seen.pop("logits"), self._seen.pop("labels"), cross_entropy)
        self._seen["used"] = True
        return detections, {**losses, "loss_classifier": value}

    def _end(self, model: nn.Module, args: Any, output: Any) -> None:
        used = self._seen.pop("used", False)
        if model.training and not used:
            raise RuntimeError(
                "the loss is not in use: the model was trained without it. Was roi_heads replaced after use_ap_loss, "
                "or is it in evaluation mode? Then call remove() and use_ap_loss again, or model.train()"
            )

    def _value(self, logits: Tensor, labels: Tensor, cross_entropy: Tensor) -> Tensor:
        if len(labels) != len(logits) or logits.dim() != 2 or logits.shape[1] < 2:
            raise RuntimeError(
                f"box_predictor gave logits {tuple(logits.shape)} for {len(labels)} sampled proposals; needed are "
                "[proposal, 1 + class], background first"
            )
        # In training mode without gradients somebody measures: that is no step, and enters no memory.
        learning = torch.is_grad_enabled()
        if learning and not self.loss.training:
            raise RuntimeError("the loss is in evaluation mode while the model trains; call loss.train()")
        share = self.share
        scores = computed(logits)
        scores = scores.log_softmax(1)[:, 1:] if self.score == "log_softmax" else scores[:, 1:]
        targets = one_hot_targets(labels, scores.shape[1], background="first")
        before = self.loss.training
        self.loss.train(learning)
        try:
            with torch.set_grad_enabled(learning and share < 1):
                ap: Tensor = self.loss(scores, targets)
        finally:
            self.loss.train(before)
        if learning:
            self._steps += 1
            self.step += 1
        self.stats = {
            "loss": ap.detach(),
            "cross_entropy": cross_entropy.detach(),
            "share": torch.tensor(share),
        }
        if share == 1:
            return cross_entropy
        value = (1 - share) * self.weight * ap
        return value if share == 0 else value + share * cross_entropy

    # ------------------------------------------------------------------ saved and resumed

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._steps = int(self.step)

    def extra_repr(self) -> str:
        """The settings, and where the schedule stands."""
        schedule = f"warmup={self.warmup}, fade={self.fade}, keep={self.keep}, step={self._steps}"
        return f"weight={self.weight}, score={self.score!r}, {schedule}" + ", removed" * self.removed


def _roi_heads(model: nn.Module) -> Any:
    """The model's `RoIHeads`, checked for what is needed of them."""
    heads: Any = getattr(model, "roi_heads", None)
    needed = ("select_training_samples", "box_predictor")
    if heads is None or not all(hasattr(heads, name) for name in needed):
        raise TypeError(
            f"{type(model).__name__} has no torchvision RoIHeads: use_ap_loss is for FasterRCNN, MaskRCNN and "
            "KeypointRCNN. In any other detector call DetectionAPLoss()(scores, targets) where the classification loss "
            "is computed; docs/detection.md shows how"
        )
    if isinstance(getattr(heads.select_training_samples, "__self__", None), LossHandle):
        raise RuntimeError("a loss is in use in this model already; remove() that one first")
    return heads
