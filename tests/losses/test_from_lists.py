"""Rows with query ids cost what the lists cost when they are filled up by hand, whatever their lengths and order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rankgrad.losses import LOSSES, NDCGLoss, RankLoss, RecallAtKLoss, SmoothAPLoss, SupAPLoss, by_query
from rankgrad.losses.by_query import Rectangles
from rankgrad.metrics import average_precision
from rankgrad.ranks import exact_ranks

LENGTHS = {-7: 3, 0: 1, 2: 6, 9: 6, 10: 2, 2**62: 17, 2**62 + 1: 5}  # by query id


def rows_of(
    seed: int = 0, *, graded: bool = False, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with ties, relevance and query ids of mixed rows; one list has no hit, one nothing else."""
    g = torch.Generator().manual_seed(seed)
    query = torch.tensor([id_ for id_, length in LENGTHS.items() for _ in range(length)])
    query = query[torch.randperm(len(query), generator=g)]
    scores = (torch.rand(len(query), generator=g, dtype=torch.float64) * 16 - 8).round() / 8
    relevance = torch.randint(0, 4, query.shape, generator=g).to(dtype) / 4
    relevance[query == 10], relevance[query == -7] = 0, 0.5
    return scores.to(dtype), relevance if graded else relevance > 0.3, query


def filled_up(*rows: Tensor, query: Tensor) -> list[Tensor]:
    """[list, item] of each of the rows, and which entries are rows: one list after another, in plain loops."""
    ids = sorted(set(query.tolist()))
    longest = max((query == id_).sum() for id_ in ids)
    found = [each.new_zeros(len(ids), longest) for each in rows]
    valid = torch.zeros(len(ids), longest, dtype=torch.bool)
    for q, id_ in enumerate(ids):
        for column, row in enumerate((query == id_).nonzero().flatten()):
            for each, values in zip(found, rows, strict=True):
                each[q, column] = values[row]
            valid[q, column] = True
    return [*found, valid]


def value_and_gradient(call, scores: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    value = call(leaf)
    value.sum().backward()
    return value.detach(), leaf.grad


@pytest.fixture(params=[by_query.WORTH, 0], ids=["one rectangle", "several"])
def worth(request, monkeypatch) -> None:
    monkeypatch.setattr(by_query, "WORTH", request.param)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_the_lists_filled_up(name, reduction, graded, worth):
    loss = LOSSES[name](reduction=reduction).eval()
    scores, relevance, query = rows_of(graded=graded and loss.graded)
    value, gradient = value_and_gradient(lambda s: loss.from_lists(s, relevance, query), scores)
    counted = loss.stats["counted"]
    leaf = scores.clone().requires_grad_()
    wanted = loss.from_scores(*filled_up(leaf, relevance, query=query))
    wanted.sum().backward()
    torch.testing.assert_close(value, wanted.detach())
    torch.testing.assert_close(gradient, leaf.grad)
    assert torch.equal(counted, loss.stats["counted"])


@pytest.mark.parametrize("name", LOSSES)
def test_without_query_ids_all_rows_are_one_list(name):
    loss = LOSSES[name]().eval()
    scores, relevance, _ = rows_of()
    value, gradient = value_and_gradient(lambda s: loss.from_lists(s, relevance), scores)
    wanted, by_row = value_and_gradient(lambda s: loss.from_scores(s.unsqueeze(0), relevance.unsqueeze(0)), scores)
    assert torch.equal(value, wanted) and torch.equal(gradient, by_row)


@pytest.mark.parametrize("name", LOSSES)
def test_small_lists_have_a_finite_value_and_gradient(name):
    loss = LOSSES[name]().eval()
    for query, hits in (([], []), ([3], [True]), ([3], [False]), ([1, 2], [True, True]), ([5, 5, 5], [False] * 3)):
        leaf = torch.arange(len(hits)).float().requires_grad_()
        for ids in (torch.tensor(query, dtype=torch.long), None):
            value = loss.from_lists(leaf, torch.tensor(hits, dtype=torch.bool), ids)
            value.backward()
            assert value.shape == () and value.isfinite() and leaf.grad.isfinite().all()


def test_a_metric_of_exact_ranks_is_the_mean_over_lists_that_have_a_hit(worth):
    scores, hits, query = rows_of()
    lists = [query == id_ for id_ in sorted(LENGTHS) if (hits & (query == id_)).any()]
    each = [average_precision(scores[rows].unsqueeze(0), hits[rows].unsqueeze(0)) for rows in lists]
    value = RankLoss(exact_ranks, metric=average_precision).from_lists(scores, hits, query)
    torch.testing.assert_close(value, 1 - torch.cat(each).mean())


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "numpy", "list", "strings", "sorted"])
def test_query_ids_of_any_kind_and_order_mean_the_same(kind, worth):
    scores, hits, query = rows_of()
    query = torch.unique(query, return_inverse=True)[1]
    wanted = SmoothAPLoss().from_lists(scores, hits, query)
    if kind == "sorted":
        order = query.argsort(stable=True)
        scores, hits, ids = scores[order], hits[order], query[order]
    else:
        words = [f"query {id_}" for id_ in query.tolist()]
        others = {"numpy": query.numpy(), "list": query.tolist(), "strings": words}
        ids = others[kind] if kind in others else query.to(getattr(torch, kind))
    torch.testing.assert_close(SmoothAPLoss().from_lists(scores, hits, ids), wanted)


def test_half_precision_is_computed_in_float32(worth):
    scores, hits, query = rows_of(dtype=torch.float16)
    value, gradient = value_and_gradient(lambda s: SupAPLoss().from_lists(s, hits, query), scores)
    assert value.dtype == torch.float32 and gradient.dtype == torch.float16
    torch.testing.assert_close(value, SupAPLoss().from_lists(scores.float(), hits, query))


def test_one_long_list_among_many_short_ones_takes_no_more_room_than_its_rows():
    def shape(twos: int, ones: int, longest: int, separate: bool = True) -> Rectangles:
        query = torch.cat([torch.arange(twos), torch.arange(twos + ones), torch.full((longest,), twos + ones)])
        return Rectangles.of(query, separate)

    found = shape(50_000, 50_000, 100_000)
    assert found.shapes == [(1, 100_000), (50_000, 2), (50_000, 1)] and found.valid() == [None] * 3
    found = shape(40_000, 5_000, 2)  # 5,000 entries that stay empty are not worth a rectangle
    assert found.shapes == [(45_001, 2)] and int(found.valid()[0].sum()) == 85_002
    assert shape(50_000, 50_000, 100_000, separate=False).shapes == [(100_001, 100_000)]


def test_lists_of_one_length_in_order_are_not_copied():
    scores = torch.rand(12)
    shape = Rectangles.of(torch.arange(4).repeat_interleave(3), separate=True)
    assert shape.place is None and shape.valid() == [None] and shape.cut(scores)[0].data_ptr() == scores.data_ptr()


def test_k_of_published_recall_is_held_by_the_longest_list(worth):
    scores, hits, query = rows_of()
    loss = RecallAtKLoss(rank_query=True)
    torch.testing.assert_close(
        loss.from_lists(scores, hits, query), loss.from_scores(*filled_up(scores, hits, query=query))
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.zeros(4, 1)}, r"scores must be a float tensor \[row\]; got torch.float32 \(4, 1\)"),
        ({"scores": torch.zeros(4).long()}, r"scores must be a float tensor \[row\]; got torch.int64"),
        ({"scores": torch.tensor([0, 1, torch.nan, 0])}, "scores: .*row 2"),
        ({"relevance": torch.ones(3).bool()}, "relevance must have one entry for each of 4 scores"),
        ({"relevance": torch.tensor([0, 1, 0, 1])}, "relevance must be bool.*relevance.bool()"),
        ({"relevance": torch.tensor([0, 1, 0, -1.0])}, "relevance: gains.*row 3"),
        ({"query": torch.zeros(5).long()}, r"query must have one entry for each of 4 scores; got \(5,\)"),
        ({"query": torch.zeros(4)}, "query must"),
        ({"query": torch.zeros(4).bool()}, "query must be integers or strings"),
        ({"query": [1, 2, None, 2]}, "query"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    given = {"scores": torch.zeros(4), "relevance": torch.ones(4).bool(), "query": torch.zeros(4).long(), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        NDCGLoss().from_lists(**given)
