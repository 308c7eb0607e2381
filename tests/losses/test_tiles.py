"""By tiles, a loss is that of the whole score matrix: value, gradient, statistics and state."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import (
    LOSSES,
    CalibrationLoss,
    InfoNCELoss,
    RaMBORecallLoss,
    RankLoss,
    RecallAtKLoss,
    RetrievalLoss,
    ROADMAPLoss,
    SmoothAPLoss,
    SpearmanLoss,
    SumLoss,
    SupAPLoss,
    tiles,
)
from rankgrad.metrics import average_precision
from rankgrad.ranks import soft_ranks
from rankgrad.ranks.lists import both_kinds
from rankgrad.ranks.relaxations import Heaviside, Sigmoid

QUERIES, ITEMS, DIM = 37, 53, 8
OPTIONS = {
    "pooled": lambda **common: RaMBORecallLoss(aggregation="pooled", **common),
    "rank_query": lambda **common: RecallAtKLoss(rank_query=True, **common),
    "avg_non_zero": lambda **common: ROADMAPLoss(alpha=0.5, beta=0.2, aggregation="avg_non_zero", **common),
    "adaptive, non_zero": lambda **common: CalibrationLoss(quantiles=(0.3, 1), aggregation="avg_non_zero", **common),
    "gains": lambda **common: SpearmanLoss(**common),
}
MAKERS = {**LOSSES, **OPTIONS}


@pytest.fixture
def small(monkeypatch):
    """Both ways of the same call; a tile has 7 rows or fewer."""
    monkeypatch.setattr(tiles, "TILE", 300)

    def ways(make, call, *leaves: Tensor):
        found = []
        for worth in (2**60, 1):
            monkeypatch.setattr(tiles, "WORTH", worth)
            loss, given = make(), [leaf.clone().requires_grad_() for leaf in leaves]
            value = call(loss, *given)
            weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
            stats = dict(loss.stats)
            (3 * weights * value).sum().backward()
            assert loss.stats.keys() == stats.keys()  # the backward pass leaves them alone
            found.append((loss, stats, value.detach(), *(leaf.grad for leaf in given)))
        return found

    return ways


def rows(number: int, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Vectors of a few classes with noise: no loss is saturated."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(12, DIM, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    each = centres[torch.arange(number) % 11] + torch.randn(number, DIM, generator=g, dtype=torch.float64)
    return each.to(dtype)


def labels(number: int) -> Tensor:
    return torch.arange(number) % 11


def near(whole, tiled, tolerance: float) -> None:
    """The same numbers; gradients are measured by their largest entry."""
    assert "tiles" not in whole[1] and int(tiled[1]["tiles"]) > 4
    assert whole[1].keys() == tiled[1].keys() - {"tiles"}
    for name, seen in whole[1].items():
        torch.testing.assert_close(tiled[1][name], seen, rtol=tolerance, atol=0, equal_nan=True)
    for one, other in zip(whole[2:], tiled[2:], strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=tolerance * float(one.abs().max()) + 1e-15)
    for state, other in zip(whole[0].state_dict().values(), tiled[0].state_dict().values(), strict=True):
        torch.testing.assert_close(state, other, rtol=tolerance, atol=0, equal_nan=True)
    for name, part in getattr(whole[0], "components", dict)().items():
        torch.testing.assert_close(tiled[0].components()[name], part, rtol=tolerance, atol=0, equal_nan=True)


REFERENCES = {"ref_labels": labels(ITEMS), "ids": torch.arange(QUERIES), "ref_ids": torch.arange(ITEMS) + 30}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_batch_by_tiles_is_the_batch_at_once(small, name, reduction):
    def make():
        return MAKERS[name](reduction=reduction)

    whole, tiled = small(make, lambda loss, e: loss(e, labels(QUERIES)), rows(QUERIES))
    if name == "auc" and reduction == "none":  # each query has a gradient by the scores of all others
        assert "tiles" not in tiled[1]
        return
    near(whole, tiled, 1e-12)
    against = small(
        make, lambda loss, e, r: loss(e, labels(QUERIES), ref_emb=r, **REFERENCES), rows(QUERIES), rows(ITEMS, 1)
    )
    near(*against, 1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_single_precision_with_ties_is_the_same_but_for_the_order_of_sums(small, name):
    # products of these numbers are exact: matrix products of other shapes round cosines in another way
    exact = (rows(QUERIES, 2) * 2).round().clamp(-3, 3).float() / 8
    whole, tiled = small(lambda: MAKERS[name](normalize=False), lambda loss, e: loss(e, labels(QUERIES)), exact)
    near(whole, tiled, 1e-6)


KINDS = {
    "hierarchy": {"labels": torch.stack([torch.arange(QUERIES) % 3, torch.arange(QUERIES) % 9], 1)},
    "multi-hot": {
        "labels": torch.eye(QUERIES, dtype=torch.bool)[:, :6] | torch.eye(6, dtype=torch.bool)[labels(QUERIES) % 6]
    },
    "ids": {"labels": labels(QUERIES), "ids": torch.arange(QUERIES) // 2},
    "valid": {"labels": labels(QUERIES), "valid": (torch.arange(QUERIES**2) % 3 > 0).view(QUERIES, QUERIES)},
    "relevant": {"relevant": (torch.arange(QUERIES**2) % 5 == 0).view(QUERIES, QUERIES)},
    "nothing": {"labels": torch.arange(QUERIES)},
}


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_relevance_is_cut_into_parts(small, kind, include_self):
    for name in ("h_ap", "supndcg", "adaptive_roadmap", "spearman", "rambo_ap"):

        def make(name=name):
            return LOSSES[name](include_self=include_self)

        near(*small(make, lambda loss, e: loss(e, **KINDS[kind]), rows(QUERIES)), 1e-12)


def test_gains_are_cut_and_pairs_are_computed_at_once(small):
    gains = (torch.arange(QUERIES**2) % 5).view(QUERIES, QUERIES).double()
    for name in ("lambda", "list_net", "spearman", "rambo_recall"):
        near(*small(LOSSES[name], lambda loss, e: loss(e, relevant=gains), rows(QUERIES)), 1e-12)
    pairs = tuple(torch.tensor(each) for each in ([0, 1], [2, 3], [0, 1], [4, 5]))
    whole, tiled = small(SupAPLoss, lambda loss, e: loss(e, indices_tuple=pairs), rows(QUERIES))
    assert "tiles" not in tiled[1] and torch.equal(whole[2], tiled[2])


def test_only_what_needs_a_gradient_gets_one_and_a_frozen_side_none(small):
    fixed = rows(ITEMS, 1)
    near(
        *small(SmoothAPLoss, lambda loss, e: loss(e, labels(QUERIES), ref_emb=fixed, **REFERENCES), rows(QUERIES)),
        1e-12,
    )
    near(
        *small(
            SmoothAPLoss, lambda loss, r: loss(rows(QUERIES), labels(QUERIES), ref_emb=r, **REFERENCES), rows(ITEMS, 1)
        ),
        1e-12,
    )


@pytest.mark.parametrize("name", [name for name, kind in LOSSES.items() if kind().state_dict()])
def test_thresholds_follow_the_scores_step_by_step(small, name):
    def three_steps(loss, e):
        for step in range(2):
            loss(e + step, labels(QUERIES))
        return loss(e, labels(QUERIES))

    near(*small(LOSSES[name], three_steps, rows(QUERIES)), 1e-12)
    near(*small(lambda: LOSSES[name]().eval(), lambda loss, e: loss(e, labels(QUERIES)), rows(QUERIES)), 1e-12)


def test_a_sum_and_a_memory_go_by_tiles(small, monkeypatch):
    parts = lambda: SumLoss({"rank": SupAPLoss(), "level": CalibrationLoss()}, {"rank": 0.5, "level": 2.0})  # noqa: E731
    whole, tiled = small(parts, lambda loss, e: loss(e, labels(QUERIES)), rows(QUERIES))
    for one, other in zip(whole[2:], tiled[2:], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-15)
    assert "tiles" in tiled[0].losses["rank"].stats

    def twice(memory, e):
        memory(e.detach() + 0.1, labels(QUERIES), ids=torch.arange(QUERIES))
        return memory(e, labels(QUERIES), ids=torch.arange(QUERIES))

    memory = small(lambda: CrossBatchMemory(InfoNCELoss(), size=64), twice, rows(QUERIES))
    for one, other in zip(memory[0][2:], memory[1][2:], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-15)


def test_half_precision_and_autocast_are_computed_in_single_precision(small):
    def call(loss, e):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(e, labels(QUERIES))

    whole, tiled = small(SmoothAPLoss, call, rows(QUERIES).bfloat16())
    assert tiled[2].dtype == torch.float32 and tiled[3].dtype == torch.bfloat16
    torch.testing.assert_close(tiled[2], whole[2], rtol=1e-6, atol=0)
    torch.testing.assert_close(tiled[3], whole[3], rtol=0.01, atol=1e-3)


def test_without_gradients_there_is_no_graph_and_the_value_is_the_same(small, monkeypatch):
    monkeypatch.setattr(tiles, "WORTH", 1)
    loss = SmoothAPLoss()
    with torch.no_grad():
        value = loss(rows(QUERIES), labels(QUERIES))
    assert not value.requires_grad and int(loss.stats["tiles"]) == 5
    assert not loss(rows(QUERIES), labels(QUERIES)).requires_grad
    monkeypatch.setattr(tiles, "WORTH", 2**60)
    torch.testing.assert_close(value, loss(rows(QUERIES), labels(QUERIES)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_there_are_no_second_derivatives_and_a_graph_can_be_used_twice(small, monkeypatch, reduction):
    monkeypatch.setattr(tiles, "WORTH", 1)
    leaf = rows(QUERIES).requires_grad_()
    value = SmoothAPLoss(reduction=reduction)(leaf, labels(QUERIES)).sum()
    one, two = (torch.autograd.grad(value, leaf, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(value, leaf, create_graph=True)


def test_an_error_names_the_row_of_the_batch(small, monkeypatch):
    monkeypatch.setattr(tiles, "WORTH", 1)
    large = rows(QUERIES, dtype=torch.float32)
    large[20] = 1e30
    with pytest.raises(ValueError, match="first in row 20"):
        SmoothAPLoss(normalize=False)(large, labels(QUERIES), ref_emb=10 * torch.eye(DIM), ref_labels=labels(DIM))
    with pytest.raises(ValueError, match="positives=2 promises"):
        SmoothAPLoss(positives=2)(rows(QUERIES), labels(QUERIES))


class Noisy(RetrievalLoss):
    """A loss with random numbers, whose queries are computed on their own."""

    separate = True

    def per_query(self, scores, relevant, valid):
        return (scores * torch.rand_like(scores)).sum(1), relevant.any(1)


def test_the_second_pass_of_single_costs_draws_the_random_numbers_of_the_first(small, monkeypatch):
    monkeypatch.setattr(tiles, "WORTH", 1)
    items, leaf = torch.eye(DIM, dtype=torch.float64), rows(QUERIES).requires_grad_()
    loss = Noisy(reduction="none", normalize=False)
    torch.manual_seed(1)
    value = loss(leaf, labels(QUERIES), ref_emb=items, ref_labels=labels(DIM))
    torch.rand(3)
    before = torch.get_rng_state()
    value.sum().backward()
    torch.testing.assert_close((leaf * leaf.grad).sum(1), value)  # linear in the scores, so in the rows
    assert torch.equal(before, torch.get_rng_state())


def test_a_gradient_by_something_else_needs_the_whole_matrix(small):
    def make():
        loss = RankLoss(
            lambda s, r, v: soft_ranks(s, r, v, pos=Heaviside(), neg=Sigmoid(0.1)), metric=average_precision
        )
        loss.separate = True
        loss.scale = torch.nn.Parameter(torch.ones(()))
        return loss

    whole, tiled = small(make, lambda loss, e: loss(e, labels(QUERIES)), rows(QUERIES))
    assert "tiles" not in tiled[1]
    outside = torch.ones(QUERIES, QUERIES, dtype=torch.float64)
    for reduction in ("mean", "none"):
        whole, tiled = small(
            lambda reduction=reduction: LOSSES["list_net"](reduction=reduction),
            lambda loss, e, weights: loss(e, relevant=weights * KINDS["relevant"]["relevant"]),
            rows(QUERIES),
            outside,
        )
        assert "tiles" not in tiled[1]
        assert all(torch.equal(one, other) for one, other in zip(whole[2:], tiled[2:], strict=True))


def test_losses_whose_queries_depend_on_each_other_in_unknown_ways_are_computed_at_once(small):
    own = RankLoss(lambda s, r, v: soft_ranks(s, r, v, pos=Heaviside(), neg=Sigmoid(0.1)), metric=average_precision)
    assert not own.by_parts
    assert not SpearmanLoss(ranks=lambda scores, valid: -scores).by_parts
    assert all(kind().by_parts for kind in LOSSES.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_by_counting_are_those_of_the_sorted_scores(monkeypatch, dtype):
    monkeypatch.setattr(tiles, "TILE", 100)
    loss = CalibrationLoss(quantiles=(0.5, 0.9), normalize=False)
    given = {
        "spread": torch.linspace(-3, 3, 40, dtype=dtype).unsqueeze(1),
        "ties": torch.tensor([1.0, -2.0], dtype=dtype).repeat(20).unsqueeze(1),
        "zeros": torch.tensor([0.0, -0.0, 1e-30, -1e-30], dtype=dtype).repeat(10).unsqueeze(1),
        "equal": torch.full((40, 1), 0.3, dtype=dtype),
    }
    for embeddings in given.values():
        batch = loss.prepared(loss.checked(embeddings, torch.arange(40) // 4))
        scores, relevant, valid = loss.score_rows(batch)
        for shares in ((0.0, 1.0), (0.5, 0.99), (0.31, 0.003)):
            parts = tiles.Tiles(loss, batch)
            found = parts.quantiles(shares)
            torch.testing.assert_close(parts.quantiles_by_bits(shares), found, rtol=0, atol=0)
            for share, kind, value in zip(shares, both_kinds(relevant, valid), found, strict=True):
                expected = torch.quantile(scores[kind].double(), share).to(dtype)
                torch.testing.assert_close(value, expected, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0)
    alone = loss.prepared(loss.checked(given["spread"], torch.arange(40)))
    assert tiles.Tiles(loss, alone).quantiles((0.5, 0.5)).isnan().tolist() == [True, False]
