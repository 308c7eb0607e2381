"""Near-linear sums of steps against all pairs in float64: values, gradients, and when they are used at all."""

from __future__ import annotations

import pickle

import pytest
import torch
from naming import stable
from torch import Tensor

from rankgrad import losses, metrics
from rankgrad.losses import RankLoss
from rankgrad.ranks import Soft, blocks, soft_ranks
from rankgrad.ranks.kernels import cells, counting
from rankgrad.ranks.kernels.cells import Cells, Line
from rankgrad.ranks.relaxations import Exponential, Heaviside, Sigmoid, SupStep
from rankgrad.ranks.types import Ranks

ROWS, ITEMS = 3, 600


def steps(tau: float) -> list:
    """All branches of both steps: joints before, within and far behind the bell; jumps; small and large slopes."""
    return [
        Sigmoid(tau),
        SupStep(tau),
        SupStep(tau, delta="auto", offset=1.0, start=0.0),
        SupStep(tau, rho=0.01 / tau, delta=0.0, offset=1.44, tie="official"),
        SupStep(tau, rho=5.0, delta=2 * tau),
    ]


def scores_of(kind: str, tau: float, generator: torch.Generator) -> Tensor:
    """[row, item] float64 scores that are exact in float32."""
    scores = torch.rand(ROWS, ITEMS, dtype=torch.float64, generator=generator) * 2 - 1
    if kind == "clustered":
        centres = torch.rand(ROWS, 5, dtype=torch.float64, generator=generator)
        scores = centres.repeat(1, ITEMS // 5) + 0.3 * tau * scores
    if kind == "tied":
        scores = (scores * 32).round() / 32
    if kind == "duplicated":
        scores = scores[:, : ITEMS // 6].repeat(1, 6)
    if kind == "one value":
        scores = scores[:, :1].expand(-1, ITEMS).clone()
    if kind == "wide":
        scores = 200 * tau * scores
    if kind == "outliers":
        scores[:, ::7] *= 1e5
        scores[:, 1::7] -= 1e5
    if kind == "tiny":
        scores = 1e-3 * tau * scores
    if kind == "shifted":
        scores = scores + torch.tensor([[-500.0], [0.0], [700.0]], dtype=torch.float64)
    return scores.float().double()


KINDS = ["random", "clustered", "tied", "duplicated", "one value", "wide", "outliers", "tiny", "shifted"]


def relevance_of(sizes: list[int], items: int, generator: torch.Generator) -> Tensor:
    relevant = torch.zeros(len(sizes), items, dtype=torch.bool)
    for row, size in zip(relevant, sizes, strict=True):
        row[torch.randperm(items, generator=generator)[:size]] = True
    return relevant


def ranks_and_gradient(
    scores: Tensor, relevant: Tensor, valid: Tensor | None, pos, neg, method: str, **options
) -> tuple[Ranks, Tensor]:
    leaf = scores.clone().requires_grad_()
    ranks = soft_ranks(leaf, relevant, valid, pos=pos, neg=neg, method=method, **options)
    # weights like those of 1 - AP, but the same for all methods
    weight = 1 / torch.arange(2, len(ranks.query) + 2, dtype=torch.float64)
    total = (weight * ranks.above_neg).sum()
    if not isinstance(pos, Heaviside):
        total = total + (weight.sqrt() * ranks.above_pos).sum()
    total.backward()
    return ranks, leaf.grad


def check(got: tuple[Ranks, Tensor], wanted: tuple[Ranks, Tensor]) -> None:
    """Values within 1e-6 of themselves (of the rank for the relevant ones), gradients of the largest one."""
    ranks, expected = got[0], wanted[0]
    assert ((ranks.above_neg - expected.above_neg).abs() <= 1e-6 * expected.above_neg).all()
    assert ((ranks.above_pos - expected.above_pos).abs() <= 1e-6 * (1 + expected.above_pos)).all()
    assert (got[1] - wanted[1]).abs().max() <= 1e-6 * wanted[1].abs().max()


# ------------------------------------------------------------------------------------------------------ same numbers


@pytest.mark.parametrize("tau", [1e-3, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_equal_pairs_in_float64(kind, tau):
    generator = torch.Generator().manual_seed(KINDS.index(kind))
    scores = scores_of(kind, tau, generator)
    relevant = relevance_of([1, 40, 7], ITEMS, generator)
    scores = torch.where(relevant, scores.clamp(-1, 1), scores) if kind == "outliers" else scores
    for neg in steps(tau):
        for pos in (Sigmoid(tau), Heaviside()):
            wanted = ranks_and_gradient(scores, relevant, None, pos, neg, "pairs")
            check(ranks_and_gradient(scores.float(), relevant, None, pos, neg, "cells"), wanted)
            check(ranks_and_gradient(scores, relevant, None, pos, neg, "cells"), wanted)


@pytest.mark.parametrize("step", steps(0.02), ids=stable)
@pytest.mark.parametrize("sizes", [[1, 1, 1], [300, 2, 0], [0, 5, 299], [600, 0, 30]], ids=str)
def test_any_number_of_relevant_items(sizes, step):
    generator = torch.Generator().manual_seed(1)
    scores = scores_of("random", 0.02, generator)
    relevant = relevance_of(sizes, ITEMS, generator)
    wanted = ranks_and_gradient(scores, relevant, None, step, step, "pairs")
    check(ranks_and_gradient(scores.float(), relevant, None, step, step, "cells"), wanted)


@pytest.mark.parametrize("step", steps(0.02), ids=stable)
def test_absent_items_count_nothing_and_get_no_gradient(step):
    generator = torch.Generator().manual_seed(2)
    scores = scores_of("random", 0.02, generator)
    relevant = relevance_of([9, 30, 4], ITEMS, generator)
    valid = torch.rand(scores.shape, generator=generator) < 0.6
    valid[2] = relevant[2]  # nothing irrelevant there
    wanted = ranks_and_gradient(scores, relevant, valid, step, step, "pairs")
    got = ranks_and_gradient(scores.float(), relevant, valid, step, step, "cells")
    check(got, wanted)
    assert (got[1][~valid] == 0).all() and (got[0].above_neg[got[0].query == 2] == 0).all()


@pytest.mark.parametrize("distance", [15, 40, 80])
def test_sum_of_many_tiny_steps_keeps_its_relative_accuracy(distance):
    generator = torch.Generator().manual_seed(3)
    scores = 0.03 * torch.rand(2, ITEMS, generator=generator, dtype=torch.float64).float().double()
    relevant = relevance_of([20, 3], ITEMS, generator)
    scores = torch.where(relevant, scores + 0.01 * distance, scores).float().double()
    for step in (Sigmoid(0.01), SupStep()):
        wanted = ranks_and_gradient(scores, relevant, None, Heaviside(), step, "pairs")
        assert wanted[0].above_neg.max() < 1e-2
        check(ranks_and_gradient(scores.float(), relevant, None, Heaviside(), step, "cells"), wanted)


SATURATED = {
    # in units of tau and of the distance; the first so many are relevant
    "one above": (1, [1, 0]),
    "one below": (1, [-1, 0]),
    "two, one on each side": (2, [1, -1, 0, 3, -3]),
    "level ones": (3, [1, 1, 1, 0]),
    "far from one another": (3, [1, 2, -1, 0, 0]),
}


@pytest.mark.parametrize(
    "distance", [5, pytest.param(8, marks=pytest.mark.slow), 10, pytest.param(17, marks=pytest.mark.slow), 30]
)
@pytest.mark.parametrize("kind", SATURATED)
def test_gradient_of_saturated_lists_keeps_its_relative_accuracy_in_cells_and_in_pairs(kind, distance):
    tau = 1 / 128  # so that no difference is rounded
    size, places = SATURATED[kind]
    scores = tau * distance * torch.tensor([places], dtype=torch.float64)
    relevant = torch.arange(len(places)).unsqueeze(0) < size
    for neg in (Sigmoid(tau), SupStep(tau, delta=5.5 * tau), SupStep(tau, delta=40 * tau)):
        for pos in (Sigmoid(tau), Heaviside()):
            wanted = ranks_and_gradient(scores, relevant, None, pos, neg, "pairs")
            for method, dtype in (("pairs", torch.float32), ("cells", torch.float32), ("cells", torch.float64)):
                check(ranks_and_gradient(scores.to(dtype), relevant, None, pos, neg, method), wanted)


def test_gradient_of_one_pair_eight_temperatures_apart():
    scores, relevant = torch.tensor([[0.08, 0.0]], dtype=torch.float64).float().double(), torch.tensor([[True, False]])
    wanted = ranks_and_gradient(scores, relevant, None, Sigmoid(), Sigmoid(), "pairs")
    check(ranks_and_gradient(scores.float(), relevant, None, Sigmoid(), Sigmoid(), "cells"), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("absent", [False, True])
def test_lists_long_enough_to_be_counted_by_table(absent, dtype):
    generator = torch.Generator().manual_seed(4)
    n = counting.CELLS_FROM + 77
    scores = (torch.randn(2, n, generator=generator) * 0.2).double()
    scores[:, ::3] = (scores[:, ::3] * 64).round() / 64
    relevant = relevance_of([30, 2], n, generator)
    valid = torch.rand(2, n, generator=generator) < 0.7 if absent else None
    for step in (Sigmoid(0.01), SupStep(delta=1 / 16)):
        wanted = ranks_and_gradient(scores, relevant, valid, Heaviside(), step, "pairs")
        check(ranks_and_gradient(scores.to(dtype), relevant, valid, Heaviside(), step, "cells"), wanted)


@pytest.mark.parametrize("tie", ["upper", "official"])
def test_items_on_a_tie_or_on_the_joint_take_the_same_branch(tie):
    step = SupStep(tau=1 / 64, delta=1 / 16, offset=3.0, tie=tie)  # jumps at both
    scores = (torch.arange(32, dtype=torch.float64) / 32).repeat(1, 3)
    relevant = torch.zeros(1, 96, dtype=torch.bool)
    relevant[0, [3, 20, 40, 70]] = True
    wanted = ranks_and_gradient(scores, relevant, None, Heaviside(), step, "pairs")
    check(ranks_and_gradient(scores.float(), relevant, None, Heaviside(), step, "cells"), wanted)
    # differences that are rounded, in float64 too: to the joint, or to one bit more or less
    decimals = ((torch.arange(600, dtype=torch.float64) % 300 - 150) / 100).unsqueeze(0)
    relevant = torch.zeros(1, 600, dtype=torch.bool)
    relevant[0, ::7] = True
    for delta in (0.05, 0.35):
        step = SupStep(delta=delta, offset=50.0, tie=tie)
        wanted = ranks_and_gradient(decimals, relevant, None, Heaviside(), step, "pairs")
        check(ranks_and_gradient(decimals, relevant, None, Heaviside(), step, "cells"), wanted)


@pytest.mark.parametrize("chunk", [1, 50, 1000, 10**8])
def test_chunks_change_neither_value_nor_gradient_of_cells(chunk):
    generator = torch.Generator().manual_seed(5)
    scores = scores_of("random", 0.1, generator)[:, :90]
    relevant = relevance_of([3, 17, 8], 90, generator)
    for step in (Sigmoid(0.1), SupStep(0.1)):
        one, whole = (ranks_and_gradient(scores, relevant, None, step, step, "cells", chunk=c) for c in (chunk, None))
        for name in ("above_pos", "above_neg"):
            torch.testing.assert_close(getattr(one[0], name), getattr(whole[0], name), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(one[1], whole[1], rtol=1e-11, atol=1e-11)


def test_line_of_more_nodes_than_a_block_and_than_the_sigmoid_reaches():
    tau, nodes = 0.01, 3 * cells.BLOCK
    generator = torch.Generator().manual_seed(6)
    width = nodes * cells.SPACING * cells.WIDTH * tau
    scores = (width * torch.rand(1, 400, generator=generator)).double()
    relevant = relevance_of([60], 400, generator)
    for step in (Sigmoid(tau), SupStep(tau)):
        wanted = ranks_and_gradient(scores, relevant, None, step, step, "pairs")
        check(ranks_and_gradient(scores.float(), relevant, None, step, step, "cells"), wanted)


def test_relevant_scores_too_wide_for_cells_are_compared_in_pairs():
    scores = torch.rand(2, 50) * 1e5
    relevant = torch.arange(50).expand(2, -1) < 9
    got, wanted = (ranks_and_gradient(scores, relevant, None, Heaviside(), Sigmoid(), m) for m in ("cells", "pairs"))
    assert torch.equal(got[0].above_neg, wanted[0].above_neg) and torch.equal(got[1], wanted[1])


def test_nan_comes_out_as_nan():
    scores = torch.rand(1, 50)
    scores[0, 3] = torch.nan
    ranks = soft_ranks(scores, torch.arange(50).expand(1, -1) < 9, pos=Heaviside(), neg=Sigmoid(), method="cells")
    assert ranks.above_neg.isnan().any()


def test_ranks_without_gradient_are_marked_so():
    scores = torch.rand(2, 50, generator=torch.Generator().manual_seed(0)).requires_grad_()
    relevant = torch.arange(50).expand(2, -1) < 9
    ranks = soft_ranks(scores, relevant, pos=Heaviside(), neg=Sigmoid(), method="cells")
    assert ranks.above_neg.requires_grad and not ranks.above_pos.requires_grad
    assert ranks.above_neg.dtype == ranks.above_pos.dtype == torch.float32
    ranks = soft_ranks(scores, relevant, pos=Sigmoid(), neg=Sigmoid(), method="cells")
    weight = torch.arange(18.0)  # a plain sum would be the number of pairs, whatever the scores
    (weight * ranks.above_pos).sum().backward()  # the gradient of only one of them
    assert (scores.grad[:, 9:] == 0).all() and (scores.grad[:, :9] != 0).any()


@pytest.mark.parametrize("name", ["smooth_ap", "supap"])
def test_losses_are_the_same_by_either_method(name):
    generator = torch.Generator().manual_seed(7)
    scores = (0.1 * torch.randn(8, 3000, generator=generator)).double()
    relevant = relevance_of([60] * 8, 3000, generator)
    scores = (scores + 0.2 * relevant).float().double()
    ready = losses.LOSSES[name]().ranks

    def run(method: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = scores.to(dtype, copy=True).requires_grad_()
        loss = RankLoss(Soft(ready.pos, ready.neg, method=method), metric=metrics.average_precision)
        value = loss.from_scores(leaf, relevant)
        value.backward()
        return value.detach(), leaf.grad

    wanted, gradient = run("pairs", torch.float64)
    for method, dtype in (("cells", torch.float32), ("cells", torch.float64), ("auto", torch.float32)):
        got, slope = run(method, dtype)
        assert abs(got - wanted) <= 1e-6 * wanted
        assert (slope - gradient).abs().max() <= 1e-6 * gradient.abs().max()


# --------------------------------------------------------------------------------------------------------- which way


@pytest.fixture
def used(monkeypatch) -> list[str]:
    """Steps whose sums were taken from cells."""
    seen: list[str] = []

    def counts(self: Cells, rows: slice, rest: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(type(self.step).__name__)
        return original(self, rows, rest)

    original = Cells.counts
    monkeypatch.setattr(Cells, "counts", counts)
    return seen


def long_lists(p: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(8)
    return 0.1 * torch.randn(2, 20_000, generator=generator).to(dtype), torch.arange(20_000).expand(2, -1) < p


@pytest.mark.parametrize("step", [Sigmoid(), SupStep()], ids=stable)
def test_auto_takes_cells_for_many_relevant_items_and_pairs_for_few(used, step):
    soft_ranks(*long_lists(3), pos=Heaviside(), neg=step)
    assert used == []
    soft_ranks(*long_lists(200), pos=Heaviside(), neg=step)
    assert used == [type(step).__name__]
    soft_ranks(*long_lists(200, torch.float16), pos=Heaviside(), neg=step)  # computed in float32
    assert len(used) == 2


def test_auto_decides_for_relevant_and_irrelevant_items_alone(used):
    scores, relevant = long_lists(4000)
    soft_ranks(scores, relevant, pos=Sigmoid(), neg=Sigmoid())
    assert used == ["Sigmoid", "Sigmoid"]
    soft_ranks(scores, relevant, pos=Sigmoid(), neg=Exponential())
    assert used == ["Sigmoid"] * 3


def test_auto_never_takes_cells_for_float64(used):
    soft_ranks(*long_lists(200, torch.float64), pos=Sigmoid(), neg=Sigmoid())
    losses.SupAPLoss().from_scores(*long_lists(200, torch.float64))
    assert used == []
    soft_ranks(*long_lists(200, torch.float64), pos=Sigmoid(), neg=Sigmoid(), method="cells")
    assert used == ["Sigmoid", "Sigmoid"]


def test_auto_takes_pairs_for_gains_other_steps_and_scores_spread_too_widely(used):
    scores, relevant = long_lists(200)
    soft_ranks(scores, relevant.float(), pos=Heaviside(), neg=SupStep())
    soft_ranks(scores[:, :4000], relevant[:, :4000], pos=Heaviside(), neg=Exponential())
    soft_ranks(1e4 * scores, relevant, pos=Heaviside(), neg=Sigmoid())
    assert used == []


def test_auto_takes_pairs_where_the_host_does_not_know_the_values(used, monkeypatch):
    monkeypatch.setattr(blocks, "on_host", lambda tensor: False)
    soft_ranks(*long_lists(200), pos=Heaviside(), neg=Sigmoid())
    assert used == []


def test_pairs_are_pairs_whatever_they_cost(used):
    soft_ranks(*long_lists(200), pos=Heaviside(), neg=Sigmoid(), method="pairs")
    assert used == []


def test_cells_for_what_they_do_not_know_are_an_error():
    scores, relevant = torch.rand(2, 9), torch.arange(9).expand(2, -1) < 3
    with pytest.raises(ValueError, match="cells.*bool relevance"):
        soft_ranks(scores, relevant.float(), pos=Heaviside(), neg=Sigmoid(), method="cells")
    with pytest.raises(ValueError, match="Sigmoid and SupStep .*neg=Exponential"):
        soft_ranks(scores, relevant, pos=Heaviside(), neg=Exponential(), method="cells")
    with pytest.raises(ValueError, match=r"cells.*rho > 0.*rho=0.0"):
        soft_ranks(scores, relevant, pos=Heaviside(), neg=SupStep(rho=0.0), method="cells")
    with pytest.raises(ValueError, match=r"cells.*pos=Exponential"):
        soft_ranks(scores, relevant, pos=Exponential(), neg=Sigmoid(), method="cells")
    with pytest.raises(ValueError, match="'auto', 'pairs' or 'cells'; got 'fast'"):
        soft_ranks(scores, relevant, pos=Heaviside(), neg=Sigmoid(), method="fast")


def test_soft_prints_its_method_only_where_it_was_chosen():
    assert "method" not in repr(Soft(Heaviside(), Sigmoid()))
    ranks = Soft(Heaviside(), Sigmoid(), method="cells")
    assert repr(ranks).endswith("pull=1.0, method='cells')") and eval(repr(ranks)) == ranks
    assert pickle.loads(pickle.dumps(ranks)) == ranks


# ---------------------------------------------------------------------------------------------------------- the line


def test_line_ends_where_others_no_longer_matter():
    own = torch.tensor([[0.0, 1.0], [0.5, torch.inf]])
    step = SupStep()
    far = Line.over(step, own, torch.full((2,), -1e9), torch.full((2,), 1e9))
    reach = 1 + 2 * cells.REACH * step.tau + step.joint
    assert far.cells == pytest.approx(reach / (cells.WIDTH * step.tau), abs=1 + cells.SPACING)
    near = Line.over(step, own, torch.tensor([0.2, 0.2]), torch.tensor([0.3, 0.6]))
    assert near.cells == pytest.approx(1 / (cells.WIDTH * step.tau), abs=1 + cells.SPACING)
    cell, offset = far.place(torch.tensor([[-torch.inf, -1e8, 1e8], [0.5, 0.6, 0.5]]))
    assert cell[0].tolist() == [0, 0, far.cells + 1]
    assert offset[0, 0] == 0 and (offset[1].abs() <= 0.5).all()


def test_line_that_would_be_endless_is_none():
    bounds = torch.zeros(1), torch.ones(1)
    assert Line.over(Sigmoid(), torch.tensor([[0.0, torch.nan]]), *bounds) is None
    assert Line.over(Sigmoid(), torch.tensor([[0.0, -torch.inf]]), *bounds) is None
