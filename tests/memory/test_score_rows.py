"""The memory of score rows: against rows put together by hand, against the loss without a memory, and misuse."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankgrad.batches.memory import RowMemory, memory_buffers
from rankgrad.losses import LOSSES, CalibrationLoss, RaMBOAPLoss, RaMBORecallLoss, RetrievalLoss, SmoothAPLoss, SumLoss

BATCHES, DIM = 3, 4


def batches(sizes: tuple[int, ...] = (12, 12, 12, 12, 12), seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, DIM, generator=g, dtype=torch.float64), torch.arange(n) % 4) for n in sizes]


def gradient(loss: nn.Module, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def filled(loss: RetrievalLoss, given: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Value and gradient of the last batch, with the batches before it in the memory."""
    memory = RowMemory(loss, BATCHES)
    return [gradient(memory, *batch) for batch in given][-1]


@pytest.mark.parametrize("sizes", [(12, 12, 12, 12, 12), (12, 6, 9, 12, 8)], ids=["equal", "of several lengths"])
@pytest.mark.parametrize("name", LOSSES)
def test_old_rows_join_the_mean_and_only_the_batch_has_a_gradient(name, sizes):
    if name in ("fastap", "softbin_ap"):
        made, other = (LOSSES[name](bins=5) for _ in range(2))
    else:
        made, other = LOSSES[name](), LOSSES[name]()
    given = batches(sizes)
    memory = RowMemory(made, BATCHES)
    longest = max(sizes)
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for embeddings, labels in given:
        leaf = embeddings.clone().requires_grad_()
        rows = nn.functional.normalize(leaf)
        scores, relevant = torch.zeros(len(leaf), longest).double(), torch.zeros(len(leaf), longest, dtype=torch.bool)
        valid = relevant.clone()
        scores = torch.cat([rows @ rows.T, scores[:, len(leaf) :]], 1)
        relevant[:, : len(leaf)] = labels[:, None] == labels
        valid[:, : len(leaf)] = ~torch.eye(len(leaf), dtype=torch.bool)
        if getattr(made, "levels", False):
            relevant = relevant.long()
        row = (scores, relevant, valid)
        value = other.from_scores(*(torch.cat(parts) for parts in zip(row, *kept[-BATCHES:][::-1], strict=True)))
        want = torch.autograd.grad(value, leaf)[0]
        got, slope = gradient(memory, embeddings, labels)
        torch.testing.assert_close(got, value.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(slope, want, rtol=0, atol=1e-12)
        kept.append((scores.detach(), relevant, valid))
    assert int(memory.stats["memory_entries"]) == sum(sizes[-1 - BATCHES : -1])
    assert len(memory.stats["counted"]) == sizes[-1]


# --------------------------------------------------------------------------- what it comes to, and the published code

WEIGHTS = {"log": lambda r: torch.log1p(r), "loglog": lambda r: torch.log1p(torch.log1p(r))}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_gradient_is_that_without_a_memory_with_a_smaller_lambda(weight):
    """The factor 1 / (tau + 1) of the mean perturbs the scores less, and is a factor of the gradient."""
    given = batches()
    _, got = filled(RaMBORecallLoss(1.0, weight=weight), given)
    _, same = gradient(RaMBORecallLoss(1.0 / (BATCHES + 1), weight=weight), *given[-1])
    torch.testing.assert_close(got * (BATCHES + 1), same, rtol=0, atol=1e-15)
    _, other = gradient(RaMBORecallLoss(1.0, weight=weight), *given[-1])
    assert not torch.allclose(other, same)


def test_a_loss_without_blackbox_ranks_has_the_gradient_divided_by_the_number_of_batches():
    given = batches()
    _, got = filled(SmoothAPLoss(tau=0.1), given)
    torch.testing.assert_close(got * (BATCHES + 1), gradient(SmoothAPLoss(tau=0.1), *given[-1])[1])


def published(scores: list[Tensor], relevant: Tensor, lambda_: float, margin: float, weight: str) -> Tensor:
    """Gradient for the first rows of RaMBO's published recall loss with a memory, as plain arithmetic.

    The rows of all batches are concatenated. Ranks are divided by the length of the list, and their difference is
    multiplied by the number of rows. The mean is over all relevant items. The scores have no diagonal.
    """
    every = torch.cat(scores)
    hits = relevant.repeat(len(scores), 1)
    shifted = every + torch.where(hits, -margin / 2, margin / 2)
    rows, length = every.shape

    def ranks(values: Tensor) -> Tensor:
        return (values.argsort(1, descending=True).argsort(1) + 1).double() / length

    among = torch.stack([((line[:, None] < line) & hit).sum(1) + 1.0 for line, hit in zip(shifted, hits, strict=True)])
    among /= length
    leaf = ranks(shifted).requires_grad_()
    r = rows * (leaf - among)
    loss = (WEIGHTS[weight](r) * hits).sum() / hits.sum()
    (g,) = torch.autograd.grad(loss, leaf)
    change = -(ranks(shifted) - ranks(shifted + lambda_ * g)) / lambda_
    return change[: len(scores[0])]


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_published_code_is_the_loss_without_a_memory_with_lambda_and_ranks_scaled(weight):
    """Two ways to its gradient: rows with W((tau + 1) r), and no memory with lambda / (tau + 1) as well."""
    g, size, margin, lambda_ = torch.Generator().manual_seed(1), 12, 0.02, 0.3
    scores = [torch.rand(size, size, generator=g, dtype=torch.float64) for _ in range(BATCHES + 1)]
    relevant = torch.rand(size, size, generator=g) < 0.3
    relevant[:, 0] = True
    want = published(scores, relevant, lambda_, margin, weight)
    many = BATCHES + 1

    def scaled(r: Tensor) -> Tensor:
        return WEIGHTS[weight](many * r)

    leaf = scores[0].clone().requires_grad_()
    loss = RaMBORecallLoss(lambda_, margin, scaled, aggregation="pooled")
    loss.from_scores(torch.cat([leaf, *scores[1:]]), relevant.repeat(many, 1)).backward()
    torch.testing.assert_close(leaf.grad, want, rtol=0, atol=1e-14)
    alone = scores[0].clone().requires_grad_()
    RaMBORecallLoss(lambda_ / many, margin, scaled, aggregation="pooled").from_scores(alone, relevant).backward()
    torch.testing.assert_close(alone.grad / many, want, rtol=0, atol=1e-14)
    assert want.abs().sum() > 0


def test_the_memory_divides_lambda_by_its_rows():
    """For ranks divided by the length n, lambda perturbs as lambda n does in Algorithm 1."""
    given = batches()
    _, rows = filled(RaMBOAPLoss(0.5), given)
    _, want = gradient(RaMBOAPLoss(0.5 * 11 / (BATCHES + 1), normalized_ranks=False), *given[-1])
    torch.testing.assert_close(rows * (BATCHES + 1), want, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------- saved, misused, trained


def test_a_saved_memory_goes_on_where_it_stopped():
    given = batches()
    whole = RowMemory(RaMBOAPLoss(), BATCHES)
    for batch in given[:3]:
        gradient(whole, *batch)
    again = RowMemory(RaMBOAPLoss(), BATCHES)
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    for batch in given[3:]:
        for one, two in zip(gradient(whole, *batch), gradient(again, *batch), strict=True):
            assert torch.equal(one, two)
    assert {name.partition(".")[0] for name in memory_buffers(whole)} == {"rows"}
    whole.reset()
    assert torch.equal(whole(*given[0]), RaMBOAPLoss()(*given[0]))


def test_nothing_is_written_in_validation():
    memory = RowMemory(SmoothAPLoss(), BATCHES)
    (batch, *_) = batches()
    with torch.no_grad():
        memory(*batch)
    memory.eval()(*batch)
    assert memory.rows.count == 0 and memory.stats["memory_entries"] == 0


def test_what_does_not_fit_is_refused_with_a_reason():
    for wrong in (nn.CrossEntropyLoss(), SumLoss({"a": SmoothAPLoss()}, {"a": 1.0})):
        with pytest.raises(TypeError, match=rf"takes rows of scores.*got {type(wrong).__name__}"):
            RowMemory(wrong, 3)
    with pytest.raises(ValueError, match="reduction='mean'; got 'none'"):
        RowMemory(SmoothAPLoss(reduction="none"), 3)
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match="number of earlier batches"):
            RowMemory(SmoothAPLoss(), wrong)
    memory = RowMemory(LOSSES["h_ap"](), 3)
    memory(torch.randn(4, 3).requires_grad_(), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match=r"kind of the labels has changed; reset\(\)"):
        memory(torch.randn(4, 3), torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2]]))
    with pytest.raises(ValueError, match="3 batches, this one 2"):
        RowMemory(LOSSES["h_ap"](), 2).load_state_dict(memory.state_dict())
    leaf = torch.randn(4, 3).requires_grad_()
    with pytest.raises(RuntimeError, match=r"can't be inside torch\.utils\.checkpoint"):
        checkpoint(RowMemory(CalibrationLoss(), 1), leaf, torch.tensor([0, 0, 1, 1]), use_reentrant=False).backward()


def test_no_query_is_compared_with_its_own_copy_in_the_batch():
    memory = RowMemory(SmoothAPLoss(), 2)
    for _ in range(2):
        value = memory(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]), ids=torch.tensor([5, 5, 7]))
    assert value == 0 and not memory.stats["counted"].any()
