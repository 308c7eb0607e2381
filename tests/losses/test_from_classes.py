"""A classifier's logits cost the mean over its classes of what each class's ranking of the rows costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rankgrad import detection
from rankgrad.losses import LOSSES, RaMBOAPLoss, RankLoss, SmoothAPLoss, SupAPLoss
from rankgrad.metrics import average_precision
from rankgrad.ranks import exact_ranks

EXACT = RankLoss(exact_ranks, metric=average_precision)


def given(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, targets and known labels of 12 rows and 5 classes; one class has no positive, one no known positive."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 5, generator=g, dtype=torch.float64).to(dtype)
    targets, valid = torch.rand(12, 5, generator=g) > 0.6, torch.rand(12, 5, generator=g) > 0.2
    targets[:, 3] = False
    valid[:, 1] &= ~targets[:, 1]
    return logits, targets, valid


@pytest.mark.parametrize("loss", [SmoothAPLoss(tau=0.1), SupAPLoss()], ids=["smooth_ap", "supap"])
def test_many_classes_of_many_positives_are_the_lists_of_the_transposed_scores(loss):
    g = torch.Generator().manual_seed(0)
    logits = torch.rand(250, 350, generator=g, dtype=torch.float64)
    targets = (torch.arange(250).unsqueeze(1) + torch.arange(350)) % 10 > 0  # as many in each class
    one, other = logits.clone().requires_grad_(), logits.T.contiguous().requires_grad_()
    loss.from_classes(one, targets).backward()
    loss.from_scores(other, targets.T.contiguous()).backward()
    torch.testing.assert_close(one.grad, other.grad.T)


def test_eq_6_is_the_mean_of_ap_over_the_classes_that_have_a_positive():
    logits, targets, valid = given()
    known = [valid[:, c] for c in range(5)]
    each = [
        average_precision(logits[rows, c].unsqueeze(0), targets[rows, c].unsqueeze(0))
        for c, rows in enumerate(known)
        if targets[rows, c].any()
    ]
    assert len(each) == 3
    torch.testing.assert_close(EXACT.from_classes(logits, targets, valid), 1 - torch.cat(each).mean())
    torch.testing.assert_close(
        EXACT.from_classes(logits, targets, valid, one_list=True),
        1 - average_precision(logits[valid].unsqueeze(0), targets[valid].unsqueeze(0)).squeeze(),
    )


@pytest.mark.parametrize("one_list", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_the_transposed_scores(name, one_list):
    logits, targets, valid = given()
    loss, found = LOSSES[name](reduction="none").eval(), []
    shape = (1, 60) if one_list else (5, 12)
    for transposed in (False, True):
        leaf = logits.clone().requires_grad_()
        if transposed:
            value = loss.from_scores(*(each.T.reshape(shape) for each in (leaf, targets, valid)))
        else:
            value = loss.from_classes(leaf, targets, valid, one_list=one_list)
        value.sum().backward()
        found.append((value.detach(), leaf.grad))
    assert found[0][0].shape == shape[:1]
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("one_list", [False, True])
def test_it_is_the_loss_of_a_detector_that_has_this_weight_alone(one_list):
    logits, targets, valid = given()
    options = {"memory": 0, "weights": (0, 1) if one_list else (1, 0)}
    for mine, theirs in (
        (RaMBOAPLoss(lambda_=0.5, margin=0.15), detection.DetectionAPLoss(lambda_=0.5, margin=0.15, **options)),
        (SupAPLoss(0.1, 10.0, 0.5), detection.DetectionSupAPLoss(0.1, 10.0, 0.5, **options)),
    ):
        first, second = (logits.clone().requires_grad_() for _ in range(2))
        mine.from_classes(first, targets, valid, one_list=one_list).backward()
        theirs(second, targets, valid).backward()
        torch.testing.assert_close(first.grad, second.grad)


def test_targets_of_any_dtype_and_anything_where_a_label_is_missing():
    logits, targets, valid = given()
    wanted = EXACT.from_classes(logits, targets, valid)
    for dtype in (torch.uint8, torch.long, torch.float16, torch.float64):
        numbers = targets.to(dtype)
        if numbers.is_floating_point():
            numbers[~valid] = torch.nan
        assert EXACT.from_classes(logits, numbers, valid) == wanted
    assert EXACT.from_classes(logits.tolist(), targets.long().tolist(), valid.tolist()) == pytest.approx(wanted)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (0, 0)])
def test_without_rows_classes_or_positives_the_loss_is_0_and_attached(shape):
    leaf = torch.zeros(shape).requires_grad_()
    for one_list in (False, True):
        value = SmoothAPLoss().from_classes(leaf, torch.zeros(shape, dtype=torch.bool), one_list=one_list)
        value.backward()
        assert value == 0 and not leaf.grad.any()


def test_half_precision_is_computed_in_float32():
    logits, targets, valid = given(torch.float16)
    value = SupAPLoss().from_classes(logits, targets, valid)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, SupAPLoss().from_classes(logits.float(), targets, valid))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(4)}, r"logits must be a float tensor \[row, class\]; got torch.float32 \(4,\)"),
        ({"logits": torch.tensor([[0.0, 0.0], [0.0, torch.nan]])}, "logits: .*row 1"),
        ({"targets": torch.tensor([0, 1])}, r"targets must have the shape of logits \(2, 2\).*one_hot"),
        ({"targets": torch.tensor([[0, 1], [2, 0]])}, "targets must be 0 or 1.*valid"),
        ({"targets": torch.tensor([[0, 1], [torch.nan, 0]])}, "targets must be 0 or 1.*valid"),
        ({"valid": torch.ones(2, 2)}, "valid must be bool"),
        ({"valid": torch.ones(2, 3).bool()}, "valid must have the shape of logits"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    arguments = {"logits": torch.zeros(2, 2), "targets": torch.ones(2, 2).bool(), **change}
    with pytest.raises(ValueError, match=message):
        SmoothAPLoss().from_classes(**arguments)
