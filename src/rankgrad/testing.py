"""Checks for a loss of your own, the same as for our losses: `check_loss(loss)`. They need only the core."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .losses.base import RetrievalLoss

CLASSES, EACH, DIM = 4, 3, 8


def check_loss(loss: nn.Module, *, exact_gradient: bool = True) -> None:
    """Run all checks on a loss. The first check that fails raises an error.

    A loss is called as `loss(embeddings, labels)`. A subclass of `RetrievalLoss` (best `RankLoss`) is also called as
    `loss.from_scores(scores, relevant)`.

    Args:
        loss: the module. The checks use a copy, so its state (thresholds, weights) does not change.
        exact_gradient: False if the gradient is not that of the value, as for RaMBO or adaptive thresholds.

    Raises:
        AssertionError: a property does not hold; the message has the property and the numbers.

    >>> from rankgrad.losses import RaMBOAPLoss, SmoothAPLoss
    >>> check_loss(SmoothAPLoss(tau=0.1))
    >>> check_loss(RaMBOAPLoss(), exact_gradient=False)
    """
    for check in CHECKS_OF_EMBEDDINGS:
        check(copy.deepcopy(loss))
    if exact_gradient:
        gradient_is_that_of_the_value(copy.deepcopy(loss))
    if isinstance(loss, RetrievalLoss):
        for check_scores in CHECKS_OF_SCORES:
            check_scores(copy.deepcopy(loss))


def _batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat(EACH)
    centres = torch.randn(CLASSES, DIM, generator=g, dtype=torch.float64)
    rows = centres[labels] + 0.7 * torch.randn(len(labels), DIM, generator=g, dtype=torch.float64)
    return rows.to(dtype), labels


def _value(loss: nn.Module, *given: Tensor, **more: Any) -> Tensor:
    loss.eval()  # running statistics would differ between two calls
    torch.manual_seed(0)  # some losses use random numbers
    value = loss(*given, **more)
    assert isinstance(value, Tensor) and value.shape == (), f"{_name(loss)}: a loss must be a scalar; got {value!r}"
    return value


def _name(loss: nn.Module) -> str:
    return type(loss).__name__


def _near(loss: nn.Module, what: str, one: Tensor, other: Tensor, tolerance: float = 1e-6) -> None:
    far = float((one.double() - other.double()).abs().max()) if one.numel() else 0.0
    assert far <= tolerance * max(1.0, float(other.double().abs().max())), f"{_name(loss)}: {what}; off by {far:.3g}"


def value_and_gradient_are_finite(loss: nn.Module) -> None:
    """A batch of a few classes gives a finite scalar and a finite gradient."""
    rows, labels = _batch()
    rows.requires_grad_()
    value = _value(loss, rows, labels)
    assert value.isfinite(), f"{_name(loss)}: the value of a plain batch is {value.item()}"
    (gradient,) = torch.autograd.grad(value, rows)
    assert gradient.isfinite().all(), f"{_name(loss)}: the gradient of a plain batch holds NaN or infinity"


def order_of_the_batch_does_not_matter(loss: nn.Module) -> None:
    """The same rows in another order have the same loss."""
    rows, labels = _batch()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    other = _value(loss, rows[order], labels[order])
    _near(loss, "the loss changes with the order of the rows", other, _value(loss, rows, labels))


def half_precision_is_near(loss: nn.Module) -> None:
    """Half precision is computed in float32: the result is float32 and close to that of float64."""
    wanted = _value(loss, *_batch())
    for dtype in (torch.float16, torch.bfloat16):
        rows, labels = _batch(dtype)
        exact = _value(loss, rows.double(), labels)
        value = _value(loss, rows, labels)
        assert value.dtype == torch.float32, f"{_name(loss)}: {dtype} gives {value.dtype}; compute in float32"
        _near(loss, f"{dtype} differs too much from float64 of the same rows", value, exact, 1e-3)
    assert wanted.dtype == torch.float64, f"{_name(loss)}: float64 gives {wanted.dtype}"


def bad_input_is_refused(loss: nn.Module) -> None:
    """NaN, and a wrong number of labels, raise a ValueError."""
    rows, labels = _batch()
    broken = rows.clone()
    broken[2, 0] = math.nan
    for what, given in (("NaN", (broken, labels)), ("one label too few", (rows, labels[:-1]))):
        try:
            value = _value(loss, *given)
        except ValueError:
            continue
        raise AssertionError(f"{_name(loss)}: {what} must raise a ValueError; got {value.item()}")


def it_can_be_kept(loss: nn.Module) -> None:
    """A copy by pickle and a copy by state_dict have the same loss."""
    rows, labels = _batch()
    wanted = _value(loss, rows, labels)
    _near(loss, "a pickled copy has another loss", _value(pickle.loads(pickle.dumps(loss)), rows, labels), wanted)
    other = copy.deepcopy(loss)
    other.load_state_dict(loss.state_dict())
    _near(loss, "a copy by state_dict has another loss", _value(other, rows, labels), wanted)


def gradient_is_that_of_the_value(loss: nn.Module) -> None:
    """The gradient equals finite differences of the value, in float64."""
    rows, labels = _batch()
    rows.requires_grad_()
    value = _value(loss, rows, labels)
    (gradient,) = torch.autograd.grad(value, rows)
    direction = torch.randn(rows.shape, generator=torch.Generator().manual_seed(2), dtype=rows.dtype)
    step = 1e-6
    ahead, behind = (_value(loss, rows.detach() + sign * step * direction, labels) for sign in (1, -1))
    shown = (ahead - behind) / (2 * step)
    what = "the gradient does not equal finite differences of the value"
    _near(loss, what, (gradient * direction).sum(), shown, 1e-4)


def _lists(loss: RetrievalLoss) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    return torch.randn(5, 9, generator=g, dtype=torch.float64) / 2, torch.rand(5, 9, generator=g) > 0.6


def no_relevant_item_costs_nothing(loss: RetrievalLoss) -> None:
    """Lists without a relevant item have a finite loss with a graph; it is 0 for a loss with `differences_only`."""
    scores, relevant = _lists(loss)
    scores.requires_grad_()
    value = loss.eval().from_scores(scores, torch.zeros_like(relevant))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite() and gradient.isfinite().all(), f"{_name(loss)}: lists without a relevant item give NaN"
    if loss.differences_only:
        assert value == 0, f"{_name(loss)}: lists without a relevant item must have loss 0; got {value.item()}"


def a_constant_added_to_a_list_changes_nothing(loss: RetrievalLoss) -> None:
    """For a loss with `differences_only`, a constant added to a list does not change the loss."""
    if loss.differences_only:
        scores, relevant = _lists(loss)
        moved = loss.eval().from_scores(scores - 2, relevant)
        _near(loss, "a constant added to the scores changes the loss", moved, loss.from_scores(scores, relevant), 1e-9)


def items_that_are_not_valid_do_not_exist(loss: RetrievalLoss) -> None:
    """The score of an item that is not valid does not change the loss."""
    scores, relevant = _lists(loss)
    valid = torch.ones_like(relevant)
    valid[:, 4] = False
    other = scores.clone()
    other[:, 4] = 7
    one, two = (loss.eval().from_scores(each, relevant, valid) for each in (scores, other))
    _near(loss, "the score of an item that is not valid changes the loss", two, one, 1e-9)


def mean_of_the_rows_is_the_loss(loss: RetrievalLoss) -> None:
    """The mean over the counted rows of reduction="none" equals the scalar loss."""
    if loss.reduction != "mean":
        return
    scores, relevant = _lists(loss)
    relevant[0] = False
    wanted = loss.eval().from_scores(scores, relevant)
    loss.reduction = "none"
    rows = loss.from_scores(scores, relevant)
    counted = loss.stats["counted"].bool()
    _near(loss, "the mean over the counted rows is not the loss", rows[counted].mean(), wanted, 1e-9)


CHECKS_OF_EMBEDDINGS: tuple[Callable[[nn.Module], None], ...] = (
    value_and_gradient_are_finite,
    order_of_the_batch_does_not_matter,
    half_precision_is_near,
    bad_input_is_refused,
    it_can_be_kept,
)
CHECKS_OF_SCORES: tuple[Callable[[RetrievalLoss], None], ...] = (
    no_relevant_item_costs_nothing,
    a_constant_added_to_a_list_changes_nothing,
    items_that_are_not_valid_do_not_exist,
    mean_of_the_rows_is_the_loss,
)

__all__ = ["check_loss"]
