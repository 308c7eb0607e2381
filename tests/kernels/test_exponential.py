"""Sums of an exponential step in linear time are those of all pairs."""

from __future__ import annotations

import pytest
import torch

from rankgrad.losses import InfoNCELoss, RankLoss
from rankgrad.losses.penalties import Log
from rankgrad.ranks import Soft, blocks
from rankgrad.ranks.relaxations import Exponential, Heaviside


@pytest.fixture
def counted(monkeypatch):
    """Value and gradient of both ways, and which of them was taken."""
    taken = []
    product = blocks.Blocks.product
    monkeypatch.setattr(blocks.Blocks, "product", lambda self, *given: taken.append(product(self, *given)) or taken[-1])

    def both(loss, scores, *lists):
        found = []
        for worth in (1, 2**60):
            monkeypatch.setattr(blocks, "WORTH_A_LOOK", worth)
            leaf = scores.clone().requires_grad_()
            value = loss.from_scores(leaf, *lists)
            value.backward()
            found.append((value.detach(), leaf.grad))
        assert taken[-1] is None
        return taken[-2] is not None, found

    return both


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_give_the_sums_of_pairs(counted, dtype, graded):
    g = torch.Generator().manual_seed(0)
    scores = (2 * torch.rand(30, 200, generator=g, dtype=torch.float64) - 1).to(dtype)
    scores[7] = 0.5  # ties
    relevant, valid = torch.rand(30, 200, generator=g) > 0.95, torch.rand(30, 200, generator=g) > 0.2
    relevant[3], relevant[5], valid[9] = False, True, False
    gains = relevant * (1 + torch.arange(200) % 3).to(dtype) if graded else relevant
    for mask in (None, valid):
        taken, (products, pairs) = counted(InfoNCELoss(), scores, gains, mask)
        assert taken
        for one, other in zip(products, pairs, strict=True):
            tolerance = 1e-6 if dtype == torch.float32 else 1e-13
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * float(other.abs().max()))


def test_beyond_the_cap_and_when_pairs_are_asked_for_every_pair_is_computed(counted):
    far, relevant = torch.tensor([[0.0, 70.0, 1.0]]), torch.tensor([[True, False, False]])
    assert counted(InfoNCELoss(tau=1.0), far / 2, relevant)[0]
    assert not counted(InfoNCELoss(tau=1.0), far, relevant)[0]
    # the lowest relevant item decides
    two = torch.tensor([[0.0, 70.0, 1.0, 69.0]]), torch.tensor([[True, False, False, True]])
    taken, (one, other) = counted(InfoNCELoss(tau=1.0), *two)
    assert not taken and torch.equal(one[0], other[0])
    slow = RankLoss(Soft(Heaviside(), Exponential(1.0), method="pairs"), penalty=Log())
    assert not counted(slow, far / 2, relevant)[0]
