"""Second derivatives are right or refused: gradient penalties against autograd alone, and against differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import pytest
import torch
from naming import stable
from torch import Tensor

from rankgrad import blackbox_rank, distributed, losses, metrics, penalties
from rankgrad.large_batch import embed_in_parts
from rankgrad.losses import LOSSES, RankLoss
from rankgrad.memory import CrossBatchMemory
from rankgrad.ranks import Soft
from rankgrad.relaxations import AutogradStep, Exponential, Heaviside, Sigmoid, Softplus, SupStep

BLACKBOX = [name for name, cls in LOSSES.items() if "lambda_" in inspect.signature(cls).parameters]
SMOOTH = [name for name in LOSSES if name not in BLACKBOX]
STEPS = [Sigmoid(0.1), SupStep(0.1, 5.0, 0.2), Exponential(0.2), Softplus(0.1), AutogradStep(torch.tanh)]


def penalty(loss: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Tensor]:
    """(gradient, half the gradient of its squared length) of a loss at a point."""
    leaf = point.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf, create_graph=True)
    if not gradient.requires_grad:  # constant
        return gradient, torch.zeros_like(leaf)
    (second,) = torch.autograd.grad(gradient.square().sum() / 2, leaf, allow_unused=True)
    return gradient.detach(), torch.zeros_like(leaf) if second is None else second


def differences(loss: Callable[[Tensor], Tensor], point: Tensor, step: float = 1e-6) -> Tensor:
    """The same second derivative by differences of the gradient along itself."""

    def gradient(at: Tensor) -> Tensor:
        leaf = at.detach().clone().requires_grad_()
        return torch.autograd.grad(loss(leaf).sum(), leaf)[0]

    along = gradient(point)
    size = step / along.abs().max().clamp(min=1e-30)
    return (gradient(point + size * along) - gradient(point - size * along)) / (2 * size)


def check(got: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    assert (got - wanted).abs().max() <= tolerance * wanted.abs().max() + 1e-12


# --------------------------------------------------------------------------------------------------- right, for all


def test_every_loss_is_swept_here():
    assert BLACKBOX == ["rambo_recall", "rambo_ap", "spearman"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_penalty_of_lists_has_the_gradient_that_differences_show(problem, name, seed):
    scores, relevant, valid = problem(seed)

    def loss(point: Tensor) -> Tensor:
        return LOSSES[name]().from_scores(point, relevant, valid)

    check(penalty(loss, scores)[1], differences(loss, scores), 1e-4)


@pytest.mark.parametrize("name", ["ndcg", "supndcg", "h_ap"])
def test_gradient_penalty_of_graded_lists_too(problem, name):
    scores, gains, valid = problem(1, graded=True)

    def loss(point: Tensor) -> Tensor:
        return LOSSES[name]().from_scores(point, gains, valid)

    check(penalty(loss, scores)[1], differences(loss, scores), 1e-4)


def remembered(loss: torch.nn.Module, given, combine: str) -> CrossBatchMemory:
    """A memory that holds the references, and takes no more."""
    memory = CrossBatchMemory(loss, size=20, need_ids=False, combine=combine)
    memory(given.ref_emb, given.ref_labels)
    return memory.eval()


# Every way from embeddings e to a loss.
PATHS = {
    "batch": lambda make, b: lambda e: make()(e, b.labels),
    "references": lambda make, b: lambda e: make()(e, b.labels, ref_emb=b.ref_emb, ref_labels=b.ref_labels),
    "both sides": lambda make, b: (
        lambda e: make()(e, b.labels, ref_emb=b.ref_emb + 0.1 * e.mean(0), ref_labels=b.ref_labels)
    ),
    "hierarchy": lambda make, b: lambda e: make()(e, torch.stack([b.labels // 2, b.labels], 1)),
    "each query": lambda make, b: lambda e: torch.linspace(0.5, 2, 10).double() @ make(reduction="none")(e, b.labels),
    "dot products": lambda make, b: lambda e: make(normalize=False)(e / 4, b.labels),
    "with itself": lambda make, b: lambda e: make(include_self=True)(e, b.labels),
    "memory": lambda make, b: partial(remembered(make(), b, "sum"), labels=b.labels),
    "one list with a memory": lambda make, b: partial(remembered(make(), b, "joint"), labels=b.labels),
    "scaled": lambda make, b: lambda e: 1e-3 * make()(e, b.labels),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", LOSSES)
def test_second_derivative_of_every_path_is_that_of_the_gradient_or_an_error(batch, name, path):
    given = batch(1)
    loss = PATHS[path](LOSSES[name], given)
    if name in BLACKBOX:
        with pytest.raises(RuntimeError, match="create_graph=True.*blackbox"):
            penalty(loss, given.embeddings)
        return
    second = penalty(loss, given.embeddings)[1]
    check(second, differences(loss, given.embeddings), 1e-4)


def test_weights_of_a_layer_get_the_gradient_of_a_penalty():
    torch.manual_seed(0)
    inputs, labels = torch.randn(12, 6, dtype=torch.float64), torch.arange(4).repeat_interleave(3)
    for name in SMOOTH:

        def loss(weight: Tensor, name: str = name) -> Tensor:
            return LOSSES[name]()(torch.nn.functional.linear(inputs, weight), labels)

        weight = torch.nn.Linear(6, 4, dtype=torch.float64).weight.detach()
        check(penalty(loss, weight)[1], differences(loss, weight), 1e-4)


# --------------------------------------------------------------------------------- steps, chunks, cells: ranks alone


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("neg", STEPS, ids=stable)
@pytest.mark.parametrize("pos", [Heaviside(), *STEPS], ids=stable)
def test_ranks_by_any_two_steps_have_second_derivatives(problem, pos, neg, graded):
    scores, relevant, valid = problem(2, graded=graded)
    loss = RankLoss(Soft(pos, neg), metric=metrics.hierarchical_ap)
    value = lambda s: loss.from_scores(s, relevant, valid)  # noqa: E731
    assert torch.autograd.gradgradcheck(value, scores.requires_grad_(), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_chunks_change_no_second_derivative(problem, chunk):
    for graded in (False, True):
        scores, relevant, valid = problem(0, graded=graded)

        def second(chunk: int | None, scores=scores, relevant=relevant, valid=valid) -> Tensor:
            loss = RankLoss(Soft(Sigmoid(0.1), SupStep(0.1), chunk=chunk), metric=metrics.ndcg)
            return penalty(lambda s: loss.from_scores(s, relevant, valid), scores)[1]

        check(second(chunk), second(None), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [(Sigmoid(0.05), Sigmoid(0.05)), (Heaviside(), SupStep(0.05))], ids=stable)
def test_cells_have_the_second_derivatives_of_pairs(steps, dtype):
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(3, 400, generator=g).double()
    relevant = torch.rand(3, 400, generator=g) < 0.1

    def both(method: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        loss = RankLoss(Soft(*steps, method=method), metric=metrics.average_precision)
        return penalty(lambda s: loss.from_scores(s, relevant), scores.to(dtype))

    for got, wanted in zip(both("cells", dtype), both("pairs", torch.float64), strict=True):
        check(got.double(), wanted, 1e-5 if dtype == torch.float32 else 1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_with_a_graph_is_bit_by_bit_the_one_without(problem, name):
    scores, relevant, valid = problem(1)
    scores = scores.float().requires_grad_()
    loss = LOSSES[name]()
    (with_graph,) = torch.autograd.grad(loss.from_scores(scores, relevant, valid), scores, create_graph=True)
    (without,) = torch.autograd.grad(loss.from_scores(scores, relevant, valid), scores)
    assert torch.equal(with_graph, without)


def test_half_of_the_graph_is_enough_where_scores_need_no_gradient(problem):
    scores, relevant, valid = problem(1)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    value = losses.SmoothAPLoss(tau=0.1).from_scores(scale * scores, relevant, valid)
    (first,) = torch.autograd.grad(value, scale, create_graph=True)
    (second,) = torch.autograd.grad(first, scale)
    assert torch.autograd.gradgradcheck(
        lambda c: losses.SmoothAPLoss(tau=0.1).from_scores(c * scores, relevant, valid), scale
    )
    assert second != 0


def test_penalty_of_batches_in_parts_is_that_of_the_batch():
    g = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(12, 6, generator=g, dtype=torch.float64), torch.arange(4).repeat_interleave(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4)).double()
    found = []
    for embed in (model, lambda x: embed_in_parts(model, x, 5)):
        value = losses.SmoothAPLoss(tau=0.1)(embed(inputs), labels)
        grads = torch.autograd.grad(value, list(model.parameters()), create_graph=True)
        length = sum(grad.square().sum() for grad in grads)
        found.append(torch.autograd.grad(length, list(model.parameters()), allow_unused=True))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


# ---------------------------------------------------------------------------------------------------------- refused


def test_blackbox_ranks_refuse_a_graph_of_their_gradient():
    scores = torch.rand(3, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="a blackbox gradient"):
        torch.autograd.grad(blackbox_rank(scores, 1.0).square().sum(), scores, create_graph=True)
    torch.autograd.grad(blackbox_rank(scores, 1.0).square().sum(), scores)


def test_third_derivatives_are_refused(problem):
    scores, relevant, valid = problem(1)
    scores.requires_grad_()
    value = losses.SmoothAPLoss(tau=0.1).from_scores(scores, relevant, valid)
    (first,) = torch.autograd.grad(value, scores, create_graph=True)
    with pytest.raises(RuntimeError, match="no third"):
        torch.autograd.grad(first.square().sum(), scores, create_graph=True)


def test_pull_is_refused_because_its_gradient_is_that_of_no_function(problem):
    scores, relevant, valid = problem(1)
    loss = RankLoss(Soft(Heaviside(), Exponential(), pull=0.9), penalty=penalties.Log())
    with pytest.raises(RuntimeError, match="pull=1 has second derivatives"):
        penalty(lambda s: loss.from_scores(s, relevant, valid), scores)


class Straight:
    """A step with a slope that torch can't follow."""

    def __call__(self, diff: Tensor) -> Tensor:
        return diff.clamp(min=0)

    def slope(self, diff: Tensor) -> Tensor:
        return (diff > 0).to(diff.dtype)

    def __repr__(self) -> str:
        return "Straight()"


class StraightWithGraph(Straight):
    def slope(self, diff: Tensor) -> Tensor:
        return (diff > 0).to(diff.dtype) + 0 * diff.clamp(min=0)


@pytest.mark.parametrize("place", ["pos", "neg"])
def test_slope_without_a_graph_is_refused_and_the_error_says_how_to_write_it(problem, place):
    scores, relevant, valid = problem(1)

    def loss(step):
        steps = {"pos": Sigmoid(0.1), "neg": Sigmoid(0.1)} | {place: step}
        return lambda s: RankLoss(Soft(**steps), metric=metrics.ndcg).from_scores(s, relevant, valid)

    with pytest.raises(RuntimeError, match=r"Straight\(\).*0 \* diff.clamp"):
        penalty(loss(Straight()), scores)
    assert torch.autograd.gradgradcheck(loss(StraightWithGraph()), scores.requires_grad_())


def test_step_of_any_function_has_the_second_derivative_of_that_function():
    points = torch.tensor([-0.3, 0.2, -torch.inf], dtype=torch.float64, requires_grad=True)
    slope = AutogradStep(torch.tanh).slope(points)
    (second,) = torch.autograd.grad(slope.sum(), points)
    tanh = torch.tanh(points.detach())
    wanted = torch.where(points > -torch.inf, -2 * tanh * (1 - tanh**2), 0)
    torch.testing.assert_close(second, wanted.detach())
    for constant in (lambda d: d.clamp(min=0), lambda d: 3 * d, lambda d: (d > 0).to(d.dtype)):
        slope = AutogradStep(constant).slope(points)
        assert (torch.autograd.grad(slope.sum(), points)[0] == 0).all()


def test_gradient_across_processes_is_refused(monkeypatch):
    monkeypatch.setattr(distributed, "_all_rows", lambda rows, sizes: rows.detach().clone())
    rows = torch.rand(2, 3, requires_grad=True)
    gathered = distributed._GatherRows.apply(rows, [2])
    with pytest.raises(RuntimeError, match="several processes"):
        torch.autograd.grad(gathered.square().sum(), rows, create_graph=True)
