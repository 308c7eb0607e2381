"""Losses with a teacher's scores or grades as targets, held to sentence-transformers' own and to their contracts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rankgrad import losses

SOFT = (losses.ListDistillationLoss, losses.MarginMSELoss)


def drawn(queries: int, items: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of queries and of the items of each, and a teacher's scores that put the first item first."""
    g = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(queries, 1 + items, 8, generator=g), dim=2)
    teacher = torch.randn(queries, items, generator=g) * 4 - 3
    teacher[:, 0] = teacher.amax(1) + 1
    return rows[:, 0], rows[:, 1:], teacher


@pytest.mark.parametrize("items", [2, 6])
def test_soft_losses_equal_those_of_sentence_transformers(items):
    theirs = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    query, documents, teacher = drawn(5, items)
    scores = (query.unsqueeze(1) * documents).sum(2)
    columns = [query, *documents.unbind(1)]
    margins = theirs.MarginMSELoss(torch.nn.Identity()).compute_loss_from_embeddings(columns, teacher)
    torch.testing.assert_close(losses.MarginMSELoss().from_scores(scores, teacher), margins, rtol=1e-6, atol=0)
    for tau, temperature in ((1.0, 1.0), (2.0, 2.0), (0.05, 1.0)):
        wanted = theirs.DistillKLDivLoss(
            torch.nn.Identity(), student_temperature=tau, teacher_temperature=temperature
        ).compute_loss_from_embeddings(columns, teacher)
        mine = losses.ListDistillationLoss(tau, temperature)
        torch.testing.assert_close(tau**2 * mine.from_scores(scores, teacher), wanted, rtol=1e-6, atol=1e-7)
        # the same lists as rows with a query id
        rows = mine.from_lists(scores.flatten(), teacher.flatten(), torch.arange(5).repeat_interleave(items))
        torch.testing.assert_close(tau**2 * rows, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", SOFT)
def test_targets_may_be_negative_and_only_their_differences_matter(kind):
    query, documents, teacher = drawn(4, 5)
    scores = ((query.unsqueeze(1) * documents).sum(2)).double()
    valid = torch.arange(5) < torch.tensor([[5], [4], [2], [1]])
    loss = kind(tau=0.5)
    value = loss.from_scores(scores, teacher.double(), valid)
    assert loss.stats["counted"].tolist() == [True, True, True, False]  # a list of one item has no order
    shifted = teacher.double() - torch.tensor([[0.0], [50.0], [-3.0], [1.0]])
    torch.testing.assert_close(loss.from_scores(scores, shifted, valid), value)
    loss.from_scores(scores, torch.full_like(scores, -2.0))
    assert not loss.stats["counted"].any()  # the teacher tells nothing apart


@pytest.mark.parametrize("kind", SOFT)
def test_teacher_gets_no_gradient_and_its_own_scores_cost_nothing(kind):
    teacher = drawn(3, 4)[2].requires_grad_()
    scores = teacher.detach().clone().requires_grad_()
    value = kind(tau=1.0).from_scores(scores, teacher)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-6) and scores.grad.abs().max() < 1e-6 and teacher.grad is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", SOFT)
def test_target_that_is_no_number_is_refused_with_its_row(kind, bad):
    with pytest.raises(ValueError, match=r"relevance: targets must be finite.*first in row 1"):
        kind().from_lists(torch.zeros(3), torch.tensor([0.0, bad, 1.0]))


@pytest.mark.parametrize("name", [name for name, kind in losses.LOSSES.items() if kind.graded and not kind.soft])
def test_other_losses_still_refuse_negative_gains(name):
    with pytest.raises(ValueError, match="row 0"):
        losses.LOSSES[name]().from_scores(torch.zeros(1, 2), torch.tensor([[-1.0, 1.0]]))


def test_grades_beyond_the_highest_are_refused_and_others_are_probabilities():
    scores, grades = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[3.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match=r"grades must lie in 0 .. highest = 1; set highest"):
        losses.GradeBCELoss(tau=1.0, center=0.0).from_scores(scores, grades)
    value = losses.GradeBCELoss(tau=1.0, center=0.0, highest=3).from_scores(scores, grades)
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(scores, grades / 3)
    torch.testing.assert_close(value, wanted)
    # True is certainly relevant, whatever the highest grade is
    hit = losses.GradeBCELoss(tau=1.0, center=0.0, highest=3).from_scores(scores, grades == 3)
    torch.testing.assert_close(hit, losses.GradeBCELoss(tau=1.0, center=0.0).from_scores(scores, (grades == 3).float()))


@pytest.mark.parametrize("scale", [1.0, 20.0, 50.0])
def test_info_nce_is_the_softmax_loss_of_sentence_transformers(scale):
    theirs = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    query, documents, _ = drawn(6, 2)
    columns = [query, documents[:, 0], documents[:, 1]]  # a positive and a hard negative for each query
    wanted = theirs.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=scale)
    wanted = wanted.compute_loss_from_embeddings(columns, None)
    mine = losses.InfoNCELoss(tau=1 / scale)(
        query, ref_emb=torch.cat(columns[1:]), relevant=torch.eye(6, 12, dtype=torch.bool)
    )
    torch.testing.assert_close(mine, wanted, rtol=1e-6, atol=1e-6)
