"""Checks of the logits and targets of a classifier, before each class becomes a list."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ranks.lists import refuse_transforms, require


def checked_targets(logits: Tensor, targets: Tensor, valid: Tensor | None) -> Tensor:
    """The targets as [row, class] bool. Raise if the shapes do not fit or a valid target is neither 0 nor 1.

    Args:
        logits: [row, class] float.
        targets: [row, class] bool, or 0 and 1; ignored where `valid` is False.
        valid: [row, class] bool; None: all labels are known.
    """
    refuse_transforms()
    if logits.dim() != 2 or not logits.is_floating_point():
        raise ValueError(f"logits must be a float tensor [row, class]; got {logits.dtype} {tuple(logits.shape)}")
    for name, each in (("targets", targets), ("valid", valid)):
        if each is not None and each.shape != logits.shape:
            raise ValueError(
                f"{name} must have the shape of logits {tuple(logits.shape)}, [row, class]; got {tuple(each.shape)}. "
                "torch.nn.functional.one_hot turns class indices into targets"
            )
        if each is not None and each.device != logits.device:
            raise ValueError(f"{name} is on {each.device} but logits are on {logits.device}; move one of them")
    if valid is not None and valid.dtype != torch.bool:
        raise ValueError(f"valid must be bool, True where a label is known; got {valid.dtype}")
    if targets.dtype == torch.bool:
        return targets
    known = targets if valid is None else targets.masked_fill(~valid, 0)
    require(((known == 0) | (known == 1)).all(), "targets must be 0 or 1; set valid to False where a label is missing")
    return known == 1
