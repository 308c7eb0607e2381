"""Lists that are samples, with the log_q correction, and weights of relevant items."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from rankgrad.losses import InfoNCELoss, LambdaLoss, ListNetLoss, SLatKLoss, SmoothAPLoss

SUMS = [ListNetLoss(0.7), InfoNCELoss(tau=0.7), SLatKLoss(k=3, tau=0.7, tau_weight=0.5)]
WEIGHTED = [*SUMS, LambdaLoss(), LambdaLoss(k=3), *(LambdaLoss(name) for name in ("map", "mrr"))]


def lists(rows: int = 5, items: int = 9) -> tuple[Tensor, Tensor]:
    """Scores, and relevance with one to three relevant items."""
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, items, generator=g, dtype=torch.float64)
    relevant = torch.zeros(rows, items, dtype=torch.bool)
    for row in range(rows):
        relevant[row, torch.randperm(items, generator=g)[: 1 + row % 3]] = True
    return scores, relevant


@pytest.mark.parametrize("loss", SUMS[:2])
def test_in_the_mean_the_sum_over_a_sample_is_that_over_the_whole_list(loss):
    scores = torch.tensor([[0.3, 0.9, -0.4, 1.2, 0.1]], dtype=torch.float64)
    relevant = torch.tensor([[True, False, False, False, False]])
    q = torch.tensor([[1.0, 0.2, 0.5, 0.9, 0.4]], dtype=torch.float64)
    mean = 0.0
    for kept in itertools.product((True, False), repeat=4):  # every sample in which each item is drawn by itself
        drawn = torch.tensor([[True, *kept]])
        chance = torch.where(drawn, q, 1 - q).prod().item()
        value = loss.from_scores(scores, relevant, drawn, log_q=q.log())
        mean += chance * value.exp().item()  # of one relevant item: the sum over the list, over its own term
    assert mean == pytest.approx(loss.from_scores(scores, relevant).exp().item(), rel=1e-12)


@pytest.mark.parametrize("loss", SUMS)
def test_an_item_that_was_drawn_with_probability_one_third_counts_three_times(loss):
    scores, relevant = lists()
    leaf, log_q = scores.requires_grad_(), -math.log(3) * (~relevant).double()
    thrice = torch.cat([leaf, leaf, leaf], 1)
    there = torch.cat([torch.ones_like(relevant), ~relevant, ~relevant], 1)
    hits = torch.cat([relevant, relevant & False, relevant & False], 1)
    found = []
    for value in (loss.from_scores(leaf, relevant, log_q=log_q), loss.from_scores(thrice, hits, there)):
        found.append((value.detach(), torch.autograd.grad(value, leaf, retain_graph=True)[0]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", SUMS)
def test_with_probability_one_nothing_changes(loss):
    scores, relevant = lists()
    there = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1)) > 0.2
    for valid in (None, there):
        value = loss.from_scores(scores, relevant, valid, log_q=torch.zeros_like(scores))
        torch.testing.assert_close(value, loss.from_scores(scores, relevant, valid), rtol=1e-12, atol=0)


def test_weights_multiply_the_terms_of_the_cross_entropy():
    scores, relevant = lists()
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 9
    terms = -(relevant * weights * scores.div(0.7).log_softmax(1)).sum(1) / relevant.sum(1)
    torch.testing.assert_close(ListNetLoss(0.7).from_scores(scores, relevant, weights=weights), terms.mean())


@pytest.mark.parametrize("loss", WEIGHTED, ids=str)
def test_the_value_is_the_sum_of_weights_times_the_costs_of_the_relevant_items(loss):
    scores, relevant = lists()
    leaf = scores.requires_grad_()
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 9
    whole, total, parts = loss.from_scores(leaf, relevant, weights=weights), 0.0, 0.0
    for place in range(scores.shape[1]):
        alone = torch.zeros_like(weights)
        alone[:, place] = 1
        cost = loss.from_scores(leaf, relevant, weights=alone)
        assert cost >= 0
        parts += cost
        total += loss.from_scores(leaf, relevant, weights=alone * weights)
    for one, other in ((whole, total), (loss.from_scores(leaf, relevant), parts)):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)
        slopes = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for value in (one, other)]
        torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("loss", WEIGHTED, ids=str)
def test_the_cost_of_an_item_does_not_push_other_relevant_items_of_the_list(loss):
    scores, relevant = lists()
    if isinstance(loss, (ListNetLoss, SLatKLoss)):
        pytest.skip("their softmax is over all items")
    leaf, place = scores[2:3].requires_grad_(), relevant[2].nonzero().squeeze(1)
    weights = torch.zeros_like(leaf)
    weights[0, place[1]] = 1
    (slope,) = torch.autograd.grad(loss.from_scores(leaf, relevant[2:3], weights=weights), leaf)
    assert (slope[0, place] == 0).tolist() in ([True, False, True], [True, True, True])  # behind rank k: none


@pytest.mark.parametrize("loss", WEIGHTED, ids=str)
def test_rows_of_lists_give_what_a_matrix_gives(loss):
    scores, relevant = lists()
    g = torch.Generator().manual_seed(2)
    lengths = torch.tensor([9, 4, 7, 1, 6])
    there = torch.arange(9) < lengths.unsqueeze(1)
    given = {"weights": torch.rand(scores.shape, generator=g, dtype=torch.float64)}
    if "log_q" in loss.takes:
        given["log_q"] = -torch.rand(scores.shape, generator=g, dtype=torch.float64)
    query = torch.arange(5).repeat_interleave(lengths)
    rows = {name: each[there] for name, each in given.items()}
    found = loss.from_lists(scores[there], relevant[there], query, **rows)
    torch.testing.assert_close(found, loss.from_scores(scores, relevant, there, **given), rtol=1e-12, atol=0)


@pytest.mark.parametrize("loss", SUMS[:2], ids=str)
def test_gradients_with_both_are_those_of_the_value(loss):
    scores, relevant = lists(3, 5)
    g = torch.Generator().manual_seed(2)
    given = {
        "log_q": -torch.rand(scores.shape, generator=g, dtype=torch.float64),
        "weights": torch.rand(scores.shape, generator=g, dtype=torch.float64),
    }
    assert torch.autograd.gradcheck(lambda s: loss.from_scores(s, relevant, **given), scores.requires_grad_())


@pytest.mark.parametrize(
    ("loss", "given", "message"),
    [
        (SmoothAPLoss(), {"weights": torch.ones(1, 2)}, "SmoothAPLoss does not take weights"),
        (LambdaLoss(), {"log_q": torch.zeros(1, 2)}, "LambdaLoss does not take log_q"),
        (ListNetLoss(), {"log_q": torch.tensor([[0.0, -math.inf]])}, "log_q: it must be finite, first in row 0"),
        (ListNetLoss(), {"weights": torch.tensor([[0.0, -0.1]])}, "weights must be finite, >= 0"),
        (ListNetLoss(), {"weights": torch.tensor([0.0, 0.1])}, "weights must be floats with the shape of scores"),
        (ListNetLoss(), {"weights": torch.ones(1, 2).bool()}, "must be floats with the shape of scores"),
    ],
)
def test_what_cannot_be_is_named(loss, given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        loss.from_scores(torch.zeros(1, 2), torch.tensor([[True, False]]), **given)


@pytest.mark.parametrize("loss", [SUMS[0], SUMS[2]], ids=str)
def test_gains_that_are_learned_have_their_gradient(loss):
    scores, relevant = lists(3, 5)
    g = torch.Generator().manual_seed(2)
    gains = (relevant * torch.rand(scores.shape, generator=g, dtype=torch.float64)).requires_grad_()
    valid = torch.rand(scores.shape, generator=g) > 0.2
    given = {
        "valid": valid | relevant,
        "log_q": -torch.rand(scores.shape, generator=g, dtype=torch.float64),
        "weights": torch.rand(scores.shape, generator=g, dtype=torch.float64),
    }
    found = []
    for learned in (gains, gains.detach()):
        leaf = scores.clone().requires_grad_()
        value = loss.from_scores(leaf, learned, **given)
        found.append((value.detach(), torch.autograd.grad(value, leaf, retain_graph=True)[0]))
        if learned is gains:
            assert (torch.autograd.grad(value, gains)[0] != 0).any()
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-14)


def test_blocks_of_rows_give_the_same(monkeypatch):
    from rankgrad.losses import list_net

    scores, relevant = lists()
    found = []
    for block in (list_net.BLOCK, 20, 1):
        monkeypatch.setattr(list_net, "BLOCK", block)
        leaf = scores.clone().requires_grad_()
        value = SLatKLoss(k=3).from_scores(leaf, relevant, log_q=-leaf.detach().abs(), weights=leaf.detach().exp())
        value.backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(found[2], found[0], rtol=1e-14, atol=1e-15)


def test_a_relevance_that_changes_before_the_backward_pass_is_an_error():
    scores, relevant = lists()
    value = ListNetLoss().from_scores(scores.requires_grad_(), relevant)
    relevant.logical_not_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()
