"""No loss has second derivatives: every way to ask for them is one error, and the first ones do not change."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from rankgrad import blackbox_rank, distributed, losses
from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import LOSSES
from rankgrad.ranks import soft_ranks
from rankgrad.ranks.relaxations import AutogradStep, Heaviside, Sigmoid

REFUSED = pytest.raises(RuntimeError, match="create_graph=True")


def remembered(loss: torch.nn.Module, given) -> CrossBatchMemory:
    """A memory that holds the references, and takes no more."""
    memory = CrossBatchMemory(loss, size=20, need_ids=False)
    memory(given.ref_emb, given.ref_labels)
    return memory.eval()


def rows(loss, given):
    """As lists: the similarities of the first item to the others."""
    hits = given.labels[1:] == given.labels[0]
    return lambda e: loss().from_lists(e[1:] @ e[0], hits)


# Every way from embeddings e to a loss.
PATHS = {
    "batch": lambda make, b: lambda e: make()(e, b.labels),
    "references": lambda make, b: lambda e: make()(e, b.labels, ref_emb=b.ref_emb, ref_labels=b.ref_labels),
    "hierarchy": lambda make, b: lambda e: make()(e, torch.stack([b.labels // 2, b.labels], 1)),
    "each query": lambda make, b: lambda e: torch.linspace(0.5, 2, 10).double() @ make(reduction="none")(e, b.labels),
    "dot products": lambda make, b: lambda e: make(normalize=False)(e / 4, b.labels),
    "memory": lambda make, b: partial(remembered(make(), b), labels=b.labels),
    "lists": rows,
    "sum of losses": lambda make, b: (
        lambda e: losses.SumLoss({"one": make(), "two": make()}, {"one": 1.0, "two": 2.0})(e, b.labels)
    ),
    "batch in parts": lambda make, b: lambda e: make()(embed_in_parts(torch.nn.Identity(), e, 5), b.labels),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", LOSSES)
def test_every_path_to_every_loss_refuses_a_graph_of_its_gradient(batch, name, path):
    given = batch(1)
    leaf = given.embeddings.clone().requires_grad_()
    value = PATHS[path](LOSSES[name], given)(leaf)
    with REFUSED:
        torch.autograd.grad(value, leaf, create_graph=True)
    (gradient,) = torch.autograd.grad(PATHS[path](LOSSES[name], given)(leaf), leaf)
    assert gradient.isfinite().all()
    assert not gradient.requires_grad


def test_a_penalty_that_also_reaches_the_input_another_way_is_refused_too(batch):
    given = batch(1)
    leaf = given.embeddings.clone().requires_grad_()
    value = losses.SmoothAPLoss()(leaf, given.labels) + leaf.square().sum()
    with REFUSED:
        torch.autograd.grad(value, leaf, create_graph=True)


def test_the_advice_of_the_error_works(batch):
    given = batch(1)
    loss = losses.SmoothAPLoss(tau=0.1)

    def gradient(at: Tensor) -> Tensor:
        leaf = at.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, given.labels), leaf)[0]

    g = torch.Generator().manual_seed(0)
    one, two = (torch.randn(given.embeddings.shape, generator=g, dtype=torch.float64) for _ in range(2))

    def product(direction: Tensor) -> Tensor:
        step = 1e-5
        return (
            (gradient(given.embeddings + step * direction) - gradient(given.embeddings - step * direction)) / 2 / step
        )

    # the Hessian is symmetric, so both orders agree
    torch.testing.assert_close((two * product(one)).sum(), (one * product(two)).sum(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "ranks",
    [
        lambda s, r: soft_ranks(s, r, pos=Heaviside(), neg=Sigmoid(0.1)).rank,
        lambda s, r: soft_ranks(s, r, pos=Sigmoid(0.1), neg=AutogradStep(torch.tanh)).rank,
        lambda s, r: blackbox_rank(s, 1.0),
    ],
    ids=["soft", "own step", "blackbox"],
)
def test_ranks_alone_refuse_it(problem, ranks):
    scores, relevant, _ = problem(1)
    scores.requires_grad_()
    with REFUSED:
        torch.autograd.grad(ranks(scores, relevant).square().sum(), scores, create_graph=True)
    torch.autograd.grad(ranks(scores, relevant).square().sum(), scores)


def test_gradient_across_processes_is_refused(monkeypatch):
    monkeypatch.setattr(distributed, "_all_rows", lambda rows, sizes: rows.detach().clone())
    rows = torch.rand(2, 3, requires_grad=True)
    gathered = distributed._GatherRows.apply(rows, [2])
    with REFUSED:
        torch.autograd.grad(gathered.square().sum(), rows, create_graph=True)
