"""Thresholds of the calibration that follow the scores: running quantiles, kept in the state, the same in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankgrad import losses
from rankgrad.batches.distributed import GlobalBatch
from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import AdaptiveROADMAPLoss, CalibrationLoss, ROADMAPLoss, SumLoss, SupAPLoss, roadmap

G = torch.Generator().manual_seed(0)
SCORES = torch.rand(6, 20, generator=G, dtype=torch.float64)
RELEVANT = torch.rand(6, 20, generator=G) < 0.3
VALID = torch.rand(6, 20, generator=G) < 0.8


def adaptive(a=0.5, b=0.9, **options):
    return CalibrationLoss(quantiles=(a, b), **options).double()


@pytest.mark.parametrize("quantiles", [(0.5, 0.9), (0.0, 1.0), (0.37, 0.81)])
def test_thresholds_are_numpys_quantiles_of_the_valid_pairs(quantiles):
    loss = adaptive(*quantiles)
    value = loss.from_scores(SCORES, RELEVANT, VALID)
    s, positive, rest = SCORES.numpy(), (RELEVANT & VALID).numpy(), (~RELEVANT & VALID).numpy()
    expected = [np.quantile(s[positive], quantiles[0]), np.quantile(s[rest], quantiles[1])]
    np.testing.assert_allclose(loss.running.numpy(), expected, rtol=1e-12)
    alpha, beta = loss.running.tolist()
    beta = min(beta, alpha - 0.1)  # the margin
    torch.testing.assert_close(value, CalibrationLoss(alpha, beta).from_scores(SCORES, RELEVANT, VALID))
    by_hand = [
        np.maximum(alpha - row[p], 0).mean() * p.any() + np.maximum(row[n] - beta, 0).mean()
        for row, p, n in zip(s, positive, rest, strict=True)
    ]
    assert float(value) == pytest.approx(np.mean(by_hand), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_quantiles_by_selection_on_a_cpu_are_those_by_sorting_elsewhere(share, dtype, monkeypatch):
    for scores in (SCORES.to(dtype), SCORES.to(dtype).T.contiguous().T, (SCORES * 3).round().to(dtype)):
        for pairs in (RELEVANT, torch.zeros_like(RELEVANT), torch.arange(20).expand(6, 20) == 3):
            before = scores.clone()
            selected = roadmap._quantile(scores, pairs, share)
            with monkeypatch.context() as patch:
                patch.setattr(roadmap, "on_host", lambda scores: False)
                by_sorting = roadmap._quantile(scores, pairs, share)
            assert selected.dtype == dtype and torch.equal(scores, before)
            assert torch.equal(selected.nan_to_num(-9), by_sorting.nan_to_num(-9))


def test_the_highest_pair_is_found_among_more_than_float32_can_number():
    count = 2**24 + 2
    scores = torch.zeros(1, count + 1)
    scores[0, 5], scores[0, 0] = 0.5, 0.9
    relevant = torch.arange(count + 1).unsqueeze(0) == 0
    loss = CalibrationLoss(quantiles=(0.5, 1.0))
    loss.from_scores(scores, relevant)
    assert loss.running.tolist() == pytest.approx([0.9, 0.5])


# ------------------------------------------------------------------------------------------- when thresholds move

ROWS = torch.randn(4, 12, 5, generator=G, dtype=torch.float64)  # batches
LABELS = torch.arange(12) // 3


def running(loss: nn.Module) -> Tensor:
    """The thresholds of the one adaptive loss in a module."""
    (found,) = (part.running.clone() for part in loss.modules() if isinstance(part, CalibrationLoss))
    return found


def moved(steps: int, loss: AdaptiveROADMAPLoss | None = None) -> Tensor:
    """The thresholds after so many batches, each of which moved them once."""
    loss = AdaptiveROADMAPLoss() if loss is None else loss
    for rows in ROWS[:steps]:
        loss(rows, LABELS)
    return running(loss)


class Scored(nn.Module):
    """A model with an adaptive loss inside: what a row costs, as its one output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.loss = nn.Linear(5, 5).double(), AdaptiveROADMAPLoss(reduction="none")

    def forward(self, rows: Tensor) -> Tensor:
        value: Tensor = self.loss(self.layer(rows), torch.arange(len(rows)) // 2)
        return value.unsqueeze(1)


@pytest.mark.parametrize("reads", [torch.no_grad, torch.inference_mode])
def test_thresholds_stay_where_there_are_no_gradients(reads):
    loss = AdaptiveROADMAPLoss()
    before = moved(2, loss)
    with reads():
        loss(ROWS[2], LABELS)
    assert torch.equal(running(loss), before)


@pytest.mark.parametrize("mode", ["eval", "training without gradients"])
def test_before_any_training_the_thresholds_are_the_batchs_own(mode):
    loss, fresh = (AdaptiveROADMAPLoss() for _ in range(2))
    with torch.no_grad():
        value = loss.train(mode != "eval")(ROWS[0], LABELS)
    assert value == fresh(ROWS[0], LABELS) > 0 and loss.stats["alpha"] == fresh.stats["alpha"] != 0
    assert running(loss).isnan().all()


def test_a_loss_that_was_first_called_in_inference_mode_can_be_trained():
    loss = AdaptiveROADMAPLoss()
    with torch.inference_mode():
        loss(ROWS[0], LABELS)  # float64, and thresholds are made in float32
    assert torch.equal(moved(1, loss), moved(1))


def test_checkpointing_moves_thresholds_once_and_has_the_same_gradient():
    found = []
    for again in (False, True):
        loss, leaf = AdaptiveROADMAPLoss(), ROWS[1].clone().requires_grad_()
        moved(1, loss)
        value = checkpoint(loss, leaf, LABELS, use_reentrant=False) if again else loss(leaf, LABELS)
        value.backward()
        found.append((running(loss), leaf.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_old_checkpointing_has_no_forward_pass_with_gradients_and_moves_nothing():
    loss, leaf = AdaptiveROADMAPLoss(), ROWS[1].clone().requires_grad_()
    before = moved(1, loss)
    checkpoint(loss, leaf, LABELS, use_reentrant=True).backward()
    assert torch.equal(running(loss), before) and leaf.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "wrapped",
    [
        GlobalBatch,
        lambda loss: SumLoss({"ours": loss, "other": SupAPLoss()}, {"ours": 0.5, "other": 0.5}),
        lambda loss: CrossBatchMemory(loss, size=100, dtype=torch.float64),
        lambda loss: GlobalBatch(CrossBatchMemory(SumLoss({"ours": loss}, {"ours": 1.0}), size=20)),
    ],
    ids=["of all processes", "sum", "memory", "all of them"],
)
def test_thresholds_move_once_a_step_inside_other_losses_and_by_the_batch_alone(wrapped):
    loss = wrapped(AdaptiveROADMAPLoss())
    for step, rows in enumerate(ROWS):
        loss(rows, LABELS, ids=torch.arange(12) + 12 * step)
    assert torch.equal(running(loss), moved(len(ROWS)))


def test_parts_of_a_batch_move_no_thresholds():
    model = Scored()
    before = running(model)
    embed_in_parts(model, ROWS[0], 4).sum().backward()
    assert running(model).isnan().all() and before.isnan().all() and model.layer.weight.grad.abs().sum() > 0


def test_a_batch_that_is_refused_moves_no_thresholds():
    class Steep(CalibrationLoss):
        def per_query(self, scores, relevant, valid):
            cost, counted = super().per_query(scores, relevant, valid)
            return cost * 1e300 * 1e300, counted

    loss, steep = AdaptiveROADMAPLoss(positives=2), Steep(quantiles=(0.5, 0.9))
    before = moved(1, loss)
    for wrong in ((torch.full_like(ROWS[1], torch.nan), LABELS), (ROWS[1], LABELS // 2), (ROWS[1], LABELS[:5])):
        with pytest.raises(ValueError, match="NaN|positives|differ in length"):
            loss(*wrong)
    with pytest.raises(ValueError, match="overflows"):
        steep(ROWS[1], LABELS)
    assert torch.equal(running(loss), before) and running(steep).isnan().all()


def test_they_run_in_training_mode_alone():
    loss = adaptive(momentum=0.8)
    loss.from_scores(SCORES, RELEVANT)
    first = loss.running.clone()
    loss.eval().from_scores(SCORES + 1, RELEVANT)
    assert torch.equal(loss.running, first)
    loss.train().from_scores(SCORES + 1, RELEVANT)
    torch.testing.assert_close(loss.running, first + 0.2)


def test_a_batch_without_such_pairs_changes_nothing_and_costs_nothing():
    loss = adaptive()
    nothing = torch.zeros_like(RELEVANT)
    value = loss.from_scores(SCORES, nothing)
    assert loss.running[0].isnan() and not loss.running[1].isnan() and value >= 0
    loss.from_scores(SCORES, ~nothing)
    assert not loss.running.isnan().any()


def test_the_state_holds_them():
    loss, other = adaptive(), adaptive()
    loss.from_scores(SCORES, RELEVANT)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.running, loss.running) and not CalibrationLoss().state_dict()
    both = ROADMAPLoss(quantiles=[0.5, 0.9]).double()
    both.from_scores(SCORES, RELEVANT)
    assert torch.equal(both.calibration.running, loss.running)
    alpha = loss.running[0]
    assert (both.stats["alpha"], both.stats["beta"]) == (alpha, alpha - 0.1)  # for the log of a run


def test_a_new_loss_gets_the_saved_thresholds_unrounded_and_goes_on_as_the_old_one():
    loss, again = AdaptiveROADMAPLoss(), AdaptiveROADMAPLoss()
    moved(2, loss)
    again.load_state_dict(loss.state_dict())
    assert torch.equal(running(again), running(loss)) and running(again).dtype == torch.float64
    assert torch.equal(again(ROWS[2], LABELS), loss(ROWS[2], LABELS)) and torch.equal(running(again), running(loss))
    with pytest.raises(RuntimeError, match="running"):
        again.load_state_dict({"calibration.running": torch.zeros(3)})


def test_thresholds_keep_the_margin_and_no_more():
    apart, relevant = torch.tensor([[0.9, 0.2, 0.1]]), torch.tensor([[True, False, False]])
    for margin, beta in ((0.5, 0.2), (0.8, 0.1)):
        loss = CalibrationLoss(quantiles=(0.5, 1.0), margin=margin)
        loss.from_scores(apart, relevant)
        torch.testing.assert_close(loss.stats["beta"], torch.tensor(beta))
    loss.running.copy_(torch.tensor([torch.nan, 0.2]))  # no relevant pair yet: there is nothing to keep apart from
    loss.eval().from_scores(apart, torch.zeros_like(relevant))
    assert loss.stats["beta"] == torch.tensor(0.2)


def test_gradients_are_those_of_fixed_thresholds():
    loss = adaptive().eval()
    loss.running.copy_(torch.tensor([0.7, 0.4]))
    fixed = CalibrationLoss(0.7, 0.4)
    x = SCORES.clone().requires_grad_()
    grads = [torch.autograd.grad(each.from_scores(x, RELEVANT, VALID), x)[0] for each in (loss, fixed)]
    assert torch.equal(*grads) and grads[0].abs().sum() > 0


@pytest.mark.parametrize("quantiles", [(0.5,), (0.5, 1.2), (-0.1, 0.5), 0.5, ("a", "b")])
def test_what_are_no_quantiles_is_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles"):
        CalibrationLoss(quantiles=quantiles)


def test_adaptive_roadmap_is_supap_and_these_thresholds():
    loss, thresholds = AdaptiveROADMAPLoss(tau=0.02, weight=0.25).double(), adaptive(0.5, 0.99)
    for step in range(3):
        value = loss.from_scores(SCORES + step, RELEVANT, VALID)
        expected = 0.75 * SupAPLoss(tau=0.02).from_scores(SCORES + step, RELEVANT, VALID)
        expected += 0.25 * thresholds.from_scores(SCORES + step, RELEVANT, VALID)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    assert eval(repr(loss).split("\n")[0] + repr(loss).split("\n")[1] + ")", vars(losses)).weight == 0.25
