"""`rankgrad.testing.check_loss`: our losses pass, and each property has a loss that lacks it and is told."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from sweeps import ADAPTIVE
from torch import nn

from rankgrad.losses import LOSSES, SmoothAPLoss
from rankgrad.testing import check_loss


@pytest.mark.parametrize("name", LOSSES)
def test_our_losses_pass(name):
    own = inspect.signature(LOSSES[name]).parameters
    check_loss(LOSSES[name](), exact_gradient="lambda_" not in own and name not in ADAPTIVE)


class Broken(SmoothAPLoss):
    """Wrong in the way that it is told."""

    def __init__(self, how: str) -> None:
        super().__init__(tau=0.1)
        self.how = how

    def forward(self, embeddings, labels, *given, **more):
        if self.how == "order":
            embeddings = embeddings * torch.linspace(1, 0.2, len(embeddings), dtype=embeddings.dtype)[:, None] ** 3
            embeddings = embeddings + torch.arange(len(embeddings), dtype=embeddings.dtype)[:, None] / 9
        if self.how == "nan":
            embeddings = embeddings.nan_to_num()
        value = super().forward(embeddings, labels, *given, **more)
        wrong = {"infinite": value * math.inf, "half": value.to(embeddings.dtype), "rows": value.repeat(2)}
        if self.how == "gradient":
            return value.detach() + 2 * (value - value.detach())
        return wrong.get(self.how, value)

    def from_scores(self, scores, relevant, valid=None):
        value = super().from_scores(scores, relevant, valid)
        wrong = {
            "absolute": value + scores.mean(),
            "empty": value + 1,
            "valid": value + 1e-3 * (scores - scores.mean(1, keepdim=True)).abs().amax(),
        }
        return wrong.get(self.how, value)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("infinite", "the value of a plain batch is inf"),
        ("rows", "a loss must be a scalar"),
        ("order", "order of the rows"),
        ("half", "compute in float32"),
        ("nan", "NaN must raise a ValueError"),
        ("gradient", "not equal finite differences"),
        ("absolute", "a constant added to the scores|must have loss 0"),
        ("empty", "must have loss 0; got 1.0"),
        ("valid", "not valid changes the loss|must have loss 0"),
    ],
)
def test_a_loss_that_lacks_a_property_is_told_which(how, told):
    with pytest.raises(AssertionError, match=f"Broken: .*({told})"):
        check_loss(Broken(how))


class Spread(nn.Module):
    """Of embeddings alone, and no rank loss."""

    def forward(self, embeddings, labels):
        if not embeddings.isfinite().all() or len(labels) != len(embeddings):
            raise ValueError("bad input")
        rows = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        return (rows[:, None] - rows).square().mean()


def test_a_module_of_embeddings_alone_is_checked_as_far_as_it_goes():
    check_loss(Spread())
