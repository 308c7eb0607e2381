"""Replaces the cross-entropy of torchvision's Faster and Mask R-CNN by an AP loss.

torchvision has no option for another classification loss. We do not copy its code. Hooks read the logits and the labels
of the sampled proposals, let torchvision compute its own losses, and replace the entry "loss_classifier". Layers,
weights, the keys of the state_dict and inference do not change, nor do the other losses (boxes, masks, key points,
proposals).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from rankgrad.common.checks import integer, number, one_of
from rankgrad.ranks import computed

from .losses import one_hot_targets

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

    The model is changed in place. In training mode, the value of `model(images, targets)["loss_classifier"]` is then

        share * cross-entropy + (1 - share) * weight * loss.

    The share of cross-entropy is 1 for `warmup` steps, and then falls linearly to `keep` within `fade` steps. A step is
    a forward pass in training mode with gradients enabled. Cross-entropy helps at the beginning, when ranks give little
    gradient: all scores of a new head are within the margin (docs/detection.md).

    Args:
        model: `FasterRCNN`, `MaskRCNN`, `KeypointRCNN` of torchvision >= 0.21, or another model with its `RoIHeads`.
        loss: called as loss(scores [proposal, class], targets [proposal, class]) -> scalar, e.g. `DetectionAPLoss()`,
            or `distributed.GlobalBatch` around it.
        weight: factor of the loss.
        score: the scores to rank. "log_softmax": logarithms of the probabilities that torchvision uses at inference;
            the background logit is trained, too. "logits": the logits of the classes; the loss gives the background
            logit no gradient.
        warmup: number of steps with cross-entropy only, >= 0. The loss is computed in these steps, too, to fill its
            memory.
        fade: number of steps from there to `keep`, >= 0.
        keep: final share of cross-entropy, 0 .. 1.

    Returns:
        The handle: statistics, the step, `remove()`. It is a module that contains the loss, but it does not contain the
        model and is not part of it. Keep the handle, and save its state_dict (memory of the loss, step) with that of
        the model.

    Raises:
        TypeError: the model has no `RoIHeads`.
        ValueError: a number is out of range.
        RuntimeError: the model already has an AP loss. A training step also raises it if the loss was not used.

    >>> from rankgrad_detection.losses import DetectionAPLoss
    >>> from rankgrad_detection.models import small_rcnn
    >>> model = small_rcnn(num_classes=2, sides=(32, 32), widths=(4, 4, 4, 4), channels=4, hidden=4)
    >>> handle = use_ap_loss(model, DetectionAPLoss(), warmup=1)
    >>> truth = [{"boxes": torch.tensor([[4.0, 4.0, 20.0, 20.0]]), "labels": torch.tensor([1])}]
    >>> values = model.train()([torch.zeros(3, 32, 32)], truth)
    >>> bool(values["loss_classifier"] == handle.stats["cross_entropy"]), handle.share  # from now on the AP loss alone
    (True, 0.0)
    """
    return LossHandle(model, loss, weight, score=score, warmup=warmup, fade=fade, keep=keep)


def check_ranking(weight: float, *, score: str, warmup: int, fade: int, keep: float) -> None:
    """Raise unless these arguments of `use_ap_loss` are in their ranges.

    Raises:
        ValueError: naming the argument.
    """
    integer(warmup, "warmup is a number of training steps", low=0)
    integer(fade, "fade is a number of training steps", low=0)
    number(weight, "weight is a factor of the loss", low=0)
    number(keep, "keep is the last share of cross-entropy", low=0, high=1)
    one_of(score, "score", ("log_softmax", "logits"))


class LossHandle(nn.Module):
    """A loss instead of cross-entropy in a torchvision detector; made by `use_ap_loss`.

    Attributes:
        loss: the loss; its memory is part of this module's state_dict.
        step: buffer, number of training steps so far.
        stats: detached tensors of the last training step: "loss" (without `weight`), "cross_entropy", "share".
    """

    step: Tensor

    def __init__(
        self, model: nn.Module, loss: nn.Module, weight: float, *, score: Score, warmup: int, fade: int, keep: float
    ) -> None:
        super().__init__()
        check_ranking(weight, score=score, warmup=warmup, fade=fade, keep=keep)
        heads = _roi_heads(model)
        self.loss, self.weight, self.score = loss, weight, score
        self.warmup, self.fade, self.keep = warmup, fade, keep
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self._steps = 0  # copy of `step` on the host
        self.stats: dict[str, Tensor] = {}
        self._seen: dict[str, Any] = {}  # tensors of the current forward pass
        # in a tuple, so that the model is not a submodule
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

    def remove(self) -> None:
        """Restore the model's cross-entropy. A second call does nothing."""
        if not self._hooks:
            return
        heads = self._model[1]
        if vars(heads).get("select_training_samples") != self._select_and_see:
            raise RuntimeError(
                "roi_heads.select_training_samples was replaced after use_ap_loss: undo that first, then remove()"
            )
        del heads.select_training_samples
        if heads.select_training_samples != self._select:  # it was already replaced before use_ap_loss
            heads.select_training_samples = self._select
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ------------------------------------------------------------------ hooks of a forward pass

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
        detections, losses = output
        if not {"labels", "logits"} <= {*self._seen} or "loss_classifier" not in losses:
            return None
        value = self._value(self._seen.pop("logits"), self._seen.pop("labels"), losses["loss_classifier"])
        self._seen["used"] = True
        return detections, {**losses, "loss_classifier": value}

    def _end(self, model: nn.Module, args: Any, output: Any) -> None:
        used = self._seen.pop("used", False)
        if model.training and not used:
            raise RuntimeError(
                "the loss is not in use: the model was trained without it. Was roi_heads, its box_predictor or "
                "select_training_samples replaced after use_ap_loss, or is it in evaluation mode? Then call remove() "
                "and use_ap_loss again, or model.train()"
            )

    def _value(self, logits: Tensor, labels: Tensor, cross_entropy: Tensor) -> Tensor:
        # a pass in training mode without gradients is a measurement. It is no step, and the memory does not change
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
            # while only cross-entropy trains, the scores only fill the memory
            ap: Tensor = self.loss(scores if share < 1 else scores.detach(), targets)
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
        """The settings and the current step."""
        schedule = f"warmup={self.warmup}, fade={self.fade}, keep={self.keep}, step={self._steps}"
        return f"weight={self.weight}, score={self.score!r}, {schedule}" + ", removed" * (not self._hooks)


def _roi_heads(model: nn.Module) -> Any:
    """The model's `RoIHeads`; raise if they lack a needed part."""
    heads: Any = getattr(model, "roi_heads", None)
    needed = ("select_training_samples", "box_predictor")
    if heads is None or not all(hasattr(heads, name) for name in needed):
        raise TypeError(
            f"{type(model).__name__} has no torchvision RoIHeads: use_ap_loss is for FasterRCNN, MaskRCNN and "
            "KeypointRCNN. In any other detector call DetectionAPLoss()(scores, targets) where the classification loss "
            "is computed; docs/detection.md shows how"
        )
    if isinstance(getattr(heads.select_training_samples, "__self__", None), LossHandle):
        raise RuntimeError("this model already has an AP loss; remove() it first")
    return heads
