from __future__ import annotations

import math
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from allocations import Allocations
from torch import Tensor

from rankgrad import metrics, search
from rankgrad.common.progress import steps
from rankgrad.ranks import exact_ranks
from rankgrad.ranks.kernels import counting
from rankgrad.ranks.relevance import own_columns
from rankgrad.search import Candidates, duplicate_rows, rank_blocks, rank_relevant, topk

TIES = ("pessimistic", "optimistic", "index")


def whole(*shape: int, seed: int = 0, values: int = 3) -> Tensor:
    """Small whole numbers: their inner products are exact in any order of summation, and often tied."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-values, values + 1, shape, generator=generator).float()


def slow_ranks(scores: list[float], relevant: list[bool], own: int, ties: str) -> dict[int, tuple[int, int]]:
    """item -> (relevant, irrelevant items above it), by the definition."""

    def is_above(j: int, i: int) -> bool:
        if scores[j] == scores[i]:
            return ties == "pessimistic" or (ties == "index" and j < i)
        return scores[j] > scores[i]

    items = [i for i in range(len(scores)) if i != own]
    return {
        i: (
            sum(is_above(j, i) for j in items if j != i and relevant[j]),
            sum(is_above(j, i) for j in items if not relevant[j]),
        )
        for i in items
        if relevant[i]
    }


def check_against_slow(ranks: search.TiedRanks, scores: Tensor, relevant: Tensor, own: Tensor) -> None:
    for ties in TIES:
        found = getattr(ranks, ties)
        assert found.num_queries == len(scores)
        got = {
            (q, i): (p, n)
            for q, i, p, n in zip(
                *(t.tolist() for t in (found.query, found.item, found.above_pos, found.above_neg)), strict=True
            )
        }
        want = {
            (q, i): counts
            for q in range(len(scores))
            for i, counts in slow_ranks(scores[q].tolist(), relevant[q].tolist(), int(own[q]), ties).items()
        }
        assert got == want
        assert list(got) == sorted(got)


@pytest.fixture(params=["in plain form", "few compared", "by cells"])
def way(request, monkeypatch):
    """The ways of counting, which the shape of a block decides among."""
    monkeypatch.setattr(counting, "CELLS_FROM", 10**9 if request.param == "in plain form" else 1)
    monkeypatch.setattr(counting, "FEW", 100 if request.param == "few compared" else 0)
    monkeypatch.setattr(counting, "LONG", 1)
    monkeypatch.setattr(counting, "MAKING", 0)


@pytest.mark.parametrize("values", [1, 20])
def test_ranks_equal_plain_loops_under_every_reading_of_a_tie(values, way):
    x, labels = whole(40, 4, values=values), torch.arange(40) % 7 % 5
    found = rank_relevant(x, labels)
    check_against_slow(found, x @ x.T, labels[:, None] == labels, torch.arange(40))


def test_queries_against_a_gallery_leave_out_their_own_copy_by_id(way):
    gallery, labels = whole(30, 3, seed=1), torch.arange(30) % 4
    queries, query_labels = torch.cat([gallery[[4, 9]], whole(5, 3, seed=2)]), torch.tensor([0, 1, 0, 1, 2, 3, 9])
    ids, ref_ids = [104, 109, 1, 2, 3, 4, 5], list(range(100, 130))
    found = rank_relevant(queries, query_labels, gallery, labels, Candidates(ids, ref_ids))
    own = torch.tensor([4, 9, -1, -1, -1, -1, -1])
    check_against_slow(found, queries @ gallery.T, query_labels[:, None] == labels, own)
    assert 6 not in found.index.query.tolist()  # label 9 is not in the gallery


def test_multi_hot_labels_are_relevant_when_they_share_one(way):
    x, labels = whole(25, 3), torch.rand(25, 4, generator=torch.Generator().manual_seed(3)) > 0.7
    relevant = (labels[:, None] & labels).any(2)
    check_against_slow(rank_relevant(x, labels), x @ x.T, relevant, torch.arange(25))


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
@pytest.mark.parametrize("tile", [40, 600])
def test_any_block_and_tile_size_gives_the_same_ranks(block, tile, way, monkeypatch):
    x, labels = whole(50, 4, values=2), torch.arange(50) % 6
    want = rank_relevant(x, labels)
    monkeypatch.setattr(counting, "TILE", tile)
    got = rank_relevant(x, labels, block=block)
    for ties in TIES:
        for name in ("query", "item", "gain", "above_pos", "above_neg"):
            torch.testing.assert_close(getattr(getattr(got, ties), name), getattr(getattr(want, ties), name))


@pytest.mark.parametrize("ties", TIES)
def test_ranks_equal_exact_ranks_of_the_score_matrix(ties):
    x, labels = whole(30, 4), torch.arange(30) % 4
    want = exact_ranks(x @ x.T, labels[:, None] == labels, ~torch.eye(30, dtype=torch.bool), ties=ties)
    got = getattr(rank_relevant(x, labels), ties)
    for name in ("query", "item"):
        assert getattr(got, name).equal(getattr(want, name))
    for name in ("above_pos", "above_neg"):
        assert getattr(got, name).equal(getattr(want, name).double())


def test_no_relevant_item_ever_stands_above_itself_in_float32():
    # thresholds of another matrix product than the counts are off by an ulp: then R@1 of perfect data is not 1
    centre = torch.nn.functional.normalize(torch.randn(500, 96, generator=torch.Generator().manual_seed(0)))
    labels = torch.arange(500).repeat_interleave(2)
    noise = torch.randn(1000, 96, generator=torch.Generator().manual_seed(1))
    x = torch.nn.functional.normalize(centre[labels] + 1e-3 * noise)
    for ties in TIES:
        assert (getattr(rank_relevant(x, labels, block=100), ties).rank == 1).all()


@pytest.mark.parametrize(("count", "dim"), [(5, 7), (17, 7), (100, 33), (257, 64), (1001, 3)])
def test_identical_items_are_tied_although_matrix_products_round_them_differently(count, dim):
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(1, dim, generator=generator).expand(count, dim).contiguous()
    found = rank_relevant(x, torch.arange(count) % 2)
    assert (found.optimistic.rank == 1).all()
    assert (found.pessimistic.rank == count - 1).all()
    assert (found.index.rank == found.index.item + 1 - (found.index.item > found.index.query).long()).all()
    queries = torch.randn(9, dim, generator=generator)
    assert topk(queries, x, 4)[1].tolist() == [[0, 1, 2, 3]] * 9


def test_duplicates_are_found_whatever_the_sign_of_zero_and_nothing_else_is():
    rows = torch.cat([whole(40, 30, seed=5, values=9), torch.zeros(3, 30)])
    rows[41, 3] = -0.0
    rows[42, 17] = 1e-30  # equal to row 40 in the columns that are looked at first or nearly so
    again = torch.cat([rows, rows[[7, 3, 7]]])
    copies, originals = duplicate_rows(again)
    assert dict(zip(copies.tolist(), originals.tolist(), strict=True)) == {41: 40, 43: 7, 44: 3, 45: 7}
    copies, _ = duplicate_rows(again.double())
    assert sorted(copies.tolist()) == [41, 43, 44, 45]


def test_blocks_bring_every_query_with_a_relevant_item_once_and_the_extreme_scores():
    x, labels = whole(30, 3), torch.tensor([0] * 11 + [1] * 18 + [2])
    scores = (x @ x.T).fill_diagonal_(-torch.inf)
    seen = []
    for part in rank_blocks(x, labels, block=4):
        assert part.ranks.index.num_queries == len(part.rows) <= 4
        for row, low, high in zip(part.rows.tolist(), part.lowest_positive, part.highest_negative, strict=True):
            same = labels == labels[row]
            same[row] = False
            assert low == scores[row][same].min()
            assert high == scores[row][labels != labels[row]].max()
            seen.append(row)
    assert sorted(seen) == list(range(29))


def slow_topk(scores: Tensor, own: Tensor, k: int) -> list[list[int]]:
    return [
        sorted((i for i in range(scores.shape[1]) if i != int(own[q])), key=lambda i: (-float(scores[q, i]), i))[:k]
        for q in range(len(scores))
    ]


@pytest.mark.parametrize("k", [1, 3, 29, 30])
@pytest.mark.parametrize("block", [None, 1, 4])
def test_topk_is_the_head_of_a_stable_sort(k, block):
    queries, gallery = whole(9, 3, seed=1, values=1), whole(30, 3, values=1)
    scores, index = topk(queries, gallery, k, block=block)
    assert index.tolist() == slow_topk(queries @ gallery.T, torch.full((9,), -1), k)
    assert scores.equal((queries @ gallery.T).gather(1, index))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [5, 40, 3_000, 10**9])
@pytest.mark.parametrize("k", [1, 3])
def test_the_best_of_long_rows_are_the_head_of_a_stable_sort(k, values, dtype, monkeypatch):
    g = torch.Generator().manual_seed(0)
    scores = torch.randint(values, (7, search.WIDE * k + 11), generator=g).to(dtype) / 8
    scores[2, ::3] = -torch.inf
    scores[3] = 1.0  # all are tied
    scores[4, -5:] = 2e9  # the best are in no group of equal size
    wanted = scores.sort(dim=1, descending=True, stable=True)
    ways = [search._topk_above_bound(scores[[0, 1, 2, 4, 5]], k), search._topk_by_index(scores, k)]
    for found, rows in zip(ways, ([0, 1, 2, 4, 5], [*range(7)]), strict=True):
        if found is not None:
            assert torch.equal(found[0], wanted.values[rows, :k]) and torch.equal(found[1], wanted.indices[rows, :k])
    assert values < 3_000 or ways[0] is not None
    assert search._topk_above_bound(scores, k) is None  # because of the ties


@pytest.mark.parametrize("k", [1, 5, 29])
def test_topk_never_returns_the_own_copy(k):
    gallery = whole(30, 3, values=1)
    names = np.array([f"image {i}" for i in range(30)])
    _, index = topk(gallery, gallery, k, ids=names, ref_ids=names)
    assert index.tolist() == slow_topk(gallery @ gallery.T, torch.arange(30), k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_computed_in_float32_and_float64_stays(dtype):
    x = whole(10, 3).to(dtype)
    scores, _ = topk(x, x, 2)
    assert scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert rank_relevant(x, torch.arange(10) % 3).index.rank.equal(
        rank_relevant(x.double(), torch.arange(10) % 3).index.rank
    )


def test_a_set_without_any_relevant_pair_has_no_ranks():
    found = rank_relevant(whole(4, 2), torch.arange(4))
    assert len(found.index.query) == 0 and found.index.num_queries == 4


def test_one_item_alone_has_no_ranks():
    assert len(rank_relevant(whole(1, 2), torch.tensor([0])).index.query) == 0


def test_inputs_are_not_changed():
    x, labels = whole(12, 3), torch.arange(12) % 3
    before = x.clone()
    rank_relevant(x, labels)
    topk(x, x, 2)
    assert x.equal(before)


def test_progress_is_told_on_stderr_with_rate_and_time_left(capsys, monkeypatch):
    pytest.importorskip("tqdm", reason="without tqdm only the share done is told")
    monkeypatch.setattr("rankgrad.search.steps", partial(steps, delay=0))  # as if it took long
    topk(whole(6, 2), whole(6, 2), 1, block=2, progress=True)
    told = capsys.readouterr().err
    assert "searching: 100%" in told and "6/6" in told and "query/s" in told


def test_nothing_is_told_unless_asked_for(capsys):
    topk(whole(6, 2), whole(6, 2), 1)
    rank_relevant(whole(6, 2), torch.arange(6) % 2)
    assert capsys.readouterr().err == ""


def test_ranking_shares_of_the_queries_gives_every_query_once_as_ranking_all():
    x, labels = whole(40, 3), torch.tensor([0] * 11 + [1] * 18 + [2] + [3] * 10)

    def found(rows: Tensor | None) -> dict[int, list[float]]:
        ranks = {}
        for part in rank_blocks(x, labels, block=4, rows=rows):
            counts = torch.bincount(part.ranks.index.query).tolist()
            assert counts == sorted(counts)  # blocks of like queries, within a share too
            for place, row in enumerate(part.rows.tolist()):
                assert row not in ranks
                ranks[row] = part.ranks.index.rank[part.ranks.index.query == place].tolist()
        return ranks

    shares = [found(torch.tensor(rows, dtype=torch.long)) for rows in ([5, 39, 0, 29, 12], list(range(13, 29)), [])]
    everything = found(None)
    assert set(shares[0]) == {0, 5, 12, 39} and set(shares[1]) == set(range(13, 29)) and not shares[2]
    for share in shares:
        assert all(everything[row] == ranks for row, ranks in share.items())


def test_processes_that_take_turns_have_the_blocks_of_one_between_them():
    x, labels = torch.randn(40, 3), torch.arange(40) % 6

    def found(turn: tuple[int, int]) -> list[tuple[list[int], list[float]]]:
        parts = rank_blocks(x, labels, block=4, turn=turn)
        return [(part.rows.tolist(), part.ranks.index.above_neg.tolist()) for part in parts]

    whole_list = found((0, 1))
    assert len(whole_list) == 10
    assert [found((place, 3)) for place in range(3)] == [whole_list[place::3] for place in range(3)]


def test_searching_for_some_queries_equals_the_same_rows_of_a_whole_search():
    gallery, rows = whole(30, 3), torch.tensor([7, 2, 29])
    scores, index = topk(gallery, gallery, 4, ids=range(30), ref_ids=range(30))
    some_scores, some = topk(gallery, gallery, 4, ids=range(30), ref_ids=range(30), rows=rows, block=2)
    assert some.equal(index[rows]) and some_scores.equal(scores[rows])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.tensor([True, False]), r"torch.long, .*; got torch.bool .* mask.nonzero"),
        (torch.tensor([[0]]), r"shape \(1, 1\)"),
        (torch.tensor([0, 6]), r"must be in 0 .. 5; got 0 .. 6"),
        (torch.tensor([-1]), r"must be in 0 .. 5; got -1"),
        (torch.tensor([3, 1, 3]), "hold each query once; 1 are repeated"),
    ],
)
def test_rows_that_name_no_queries_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        topk(whole(6, 2), whole(6, 2), 1, rows=rows)
    with pytest.raises(ValueError, match=message):
        list(rank_blocks(whole(6, 2), torch.arange(6) % 2, rows=rows))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])}, "queries must be finite; row 1 .* nan"),
        ({"references": torch.tensor([[1.0, float("inf")]])}, "references must be finite; row 0 .* inf"),
        ({"queries": torch.zeros(0, 2)}, "queries must be a non-empty matrix"),
        ({"references": torch.zeros(0, 2)}, "references must be a non-empty matrix"),
        ({"queries": torch.zeros(3)}, "queries must be a non-empty matrix"),
        ({"queries": torch.zeros(3, 5)}, "same width"),
        ({"k": 0}, "k must be in 1 .. 6"),
        ({"k": 7}, "gallery of 6 items"),
        ({"ids": [1, 2], "ref_ids": [2, 3, 4, 5, 6, 7], "k": 6}, "does not contain its own copy"),
        ({"ids": [1, 1], "ref_ids": [2, 3, 4, 5, 6, 7]}, "ids must be distinct; .*1.* is in rows"),
        ({"ids": [1, 2], "ref_ids": [2, 3, 4, 5, 6, 2]}, "ref_ids must be distinct"),
        ({"ids": [1, 2]}, "only one of ids and ref_ids"),
        ({"ids": [1, 2, 3], "ref_ids": [2, 3, 4, 5, 6, 7]}, "ids must hold 2 ids"),
        ({"ids": [1.5, 2.0], "ref_ids": [2, 3, 4, 5, 6, 7]}, "integers or strings"),
        ({"block": 0}, "block is a number of queries"),
        ({"references": torch.full((6, 2), 3e38), "queries": torch.full((2, 2), 3e38)}, "may overflow"),
    ],
)
def test_topk_refuses_what_it_cannot_search(change, message):
    arguments = {"queries": whole(2, 2), "references": whole(6, 2), "k": 2} | change
    with pytest.raises(ValueError, match=message):
        topk(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": torch.zeros(3, dtype=torch.long)}, ValueError, "labels must have one row per embedding, 2"),
        (
            {"labels": torch.zeros(2)},
            TypeError,
            "labels must be integers, strings or multi-hot bool; got torch.float32",
        ),
        ({"labels": ["0", "1"]}, TypeError, "strings on one side"),
        ({"groups": [0, 1]}, ValueError, "only one of groups and ref_groups"),
        ({"groups": [0, 1], "ref_groups": [0, 1]}, ValueError, "ref_groups must be integers or strings .6."),
        ({"ignore": [[], []]}, ValueError, "ignore holds ids of items: pass ids and ref_ids"),
        ({"similarity": "cosine"}, ValueError, "similarity must be 'inner product' or 'euclidean'; got 'cosine'"),
        ({"labels": torch.zeros(2, 2, dtype=torch.long)}, ValueError, "one level"),
        ({"labels": torch.zeros(2, 3, dtype=torch.bool)}, ValueError, "same (dtype and )?columns"),
        ({"ref_labels": None}, ValueError, "only one of references"),
        ({"queries": torch.zeros(2, 2, dtype=torch.long)}, TypeError, "floating-point"),
    ],
)
def test_rank_relevant_refuses_labels_out_of_step(change, error, message):
    arguments = {
        "queries": whole(2, 2),
        "labels": torch.tensor([0, 1]),
        "references": whole(6, 2),
        "ref_labels": torch.arange(6) % 2,
        "similarity": "inner product",
    }
    of_protocol = {name: value for name, value in change.items() if name not in arguments}
    with pytest.raises(error, match=message):
        rank_relevant(
            **arguments | {k: v for k, v in change.items() if k in arguments}, candidates=Candidates(**of_protocol)
        )


def same_ranks(got: search.TiedRanks, scores: Tensor, relevant: Tensor, valid: Tensor) -> None:
    for ties in TIES:
        want = exact_ranks(scores, relevant, valid, ties=ties)
        for name in ("query", "item", "above_pos", "above_neg"):
            assert getattr(getattr(got, ties), name).equal(getattr(want, name).to(getattr(getattr(got, ties), name)))


def irrelevant_of(**arguments) -> Tensor:
    found = torch.full((len(arguments["queries"]),), -1)
    for part in rank_blocks(**arguments, block=4):
        found[part.rows] = part.irrelevant
    return found


@pytest.mark.parametrize("multi_hot", [False, True])
def test_relevant_items_of_the_own_camera_and_ignored_items_do_not_exist(multi_hot, way):
    generator = torch.Generator().manual_seed(0)
    x, gallery = whole(12, 3, seed=1, values=2), whole(30, 3, values=2)
    labels, ref_labels = torch.arange(12) % 3, torch.arange(30) % 3
    cameras, ref_cameras = torch.arange(12) % 4, torch.arange(30) // 3 % 4
    relevant = labels[:, None] == ref_labels
    if multi_hot:
        labels, ref_labels = (torch.rand(n, 3, generator=generator) > 0.6 for n in (12, 30))
        relevant = (labels[:, None] & ref_labels).any(2)
    names = [f"g{i}" for i in range(30)]
    ids = [*names[:6], *(f"q{i}" for i in range(6))]
    ignore = [[name for i, name in enumerate(names) if q % 5 and (q + i) % 4 == 0] + ["nobody"] for q in range(12)]
    own = torch.tensor([[name == other for other in names] for name in ids])
    listed = torch.tensor([[name in part for name in names] for part in ignore])
    gone = own | listed | (relevant & (cameras[:, None] == ref_cameras))
    assert (own & listed).any() and (listed & relevant & (cameras[:, None] == ref_cameras)).any()
    arguments = {
        "queries": x,
        "labels": labels,
        "references": gallery,
        "ref_labels": ref_labels,
        "candidates": Candidates(
            ids,
            names,
            [f"camera {c}" for c in cameras.tolist()],
            np.array([f"camera {c}" for c in ref_cameras.tolist()]),
            ignore,
        ),
    }
    same_ranks(rank_relevant(**arguments), x @ gallery.T, relevant, ~gone)
    irrelevant, counted = (~relevant & ~gone).sum(1), (relevant & ~gone).any(1)
    assert irrelevant_of(**arguments).equal(torch.where(counted, irrelevant, -1))


def test_without_a_gallery_cameras_and_lists_are_of_the_queries():
    x, labels, cameras = whole(20, 3), torch.arange(20) % 3, torch.arange(20) % 2
    relevant, eye = labels[:, None] == labels, torch.eye(20, dtype=torch.bool)
    same_ranks(
        rank_relevant(x, labels, candidates=Candidates(groups=cameras)),
        x @ x.T,
        relevant,
        ~eye & ~(relevant & (cameras[:, None] == cameras)),
    )
    listed = torch.zeros(20, 20, dtype=torch.bool)
    listed[3, [1, 6, 9]] = True
    ignore = [[101, 106, 109, 999] if q == 3 else [] for q in range(20)]
    found = rank_relevant(x, labels, candidates=Candidates(range(100, 120), ignore=ignore))
    same_ranks(found, x @ x.T, relevant, ~eye & ~listed)


def test_ignored_items_that_hide_every_relevant_one_leave_a_query_without_answer():
    x = whole(4, 2)
    found = rank_relevant(x, [0, 0, 1, 1], candidates=Candidates([0, 1, 2, 3], ignore=[[1], [], [], []]))
    assert found.index.query.tolist() == [1, 2, 3]


def test_euclidean_ranks_are_those_of_the_distances(way):
    x, labels = whole(25, 3, values=2), torch.arange(25) % 4
    distance = -torch.cdist(x.double(), x.double()).round(decimals=9)
    same_ranks(
        rank_relevant(x, labels, similarity="euclidean"),
        distance,
        labels[:, None] == labels,
        ~torch.eye(25, dtype=torch.bool),
    )
    for part in rank_blocks(x, labels, similarity="euclidean"):
        for row, low, high, near in zip(*(t.tolist() for t in part_of(part)), strict=True):
            same = labels == labels[row]
            same[row] = False
            assert low == pytest.approx(float(distance[row][same].min()), abs=1e-6)
            assert high == pytest.approx(float(distance[row][labels != labels[row]].max()), abs=1e-6)
            assert near == int(distance[row].masked_fill(~same, -torch.inf).argmax())


def part_of(part: search.RankBlock) -> tuple[Tensor, ...]:
    return part.rows, part.lowest_positive, part.highest_negative, part.nearest_positive


def test_labels_may_be_arrays_lists_strings_and_integers_of_any_size():
    x, labels = whole(12, 2), torch.arange(12) % 3
    want = rank_relevant(x, labels)
    words = [["ant", "bee", "cat"][c] for c in labels.tolist()]
    for given in (
        labels.numpy(),
        labels.tolist(),
        words,
        np.array(words),
        labels * 2**61 - 2**62,
        labels.to(torch.int8),
    ):
        got = rank_relevant(x, given)
        assert got.pessimistic.above_neg.equal(want.pessimistic.above_neg) and got.index.item.equal(want.index.item)
    split = rank_relevant(x[:5], words[:5], x[5:], np.array(words[5:]))
    assert split.index.rank.equal(rank_relevant(x[:5], labels[:5], x[5:], labels[5:]).index.rank)


# ------------------------------------------------------------------------------------- lists that others retrieved


@pytest.mark.parametrize("length", [0, 1, 5, 30])
def test_lists_have_the_ranks_of_their_places_and_what_is_missing_has_none(length):
    x, labels = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 4
    scores = (x @ x.T).fill_diagonal_(-torch.inf)
    order = scores.argsort(1, descending=True)
    lists = order[:, :length].clone()
    lists[4, length // 2 :] = -1  # one that has ended early
    found = search.rank_lists(lists, labels)
    whole_ranking = rank_relevant(x, labels).index
    assert found.query.equal(whole_ranking.query) and found.item.equal(whole_ranking.item)
    for pair, (q, i) in enumerate(zip(found.query.tolist(), found.item.tolist(), strict=True)):
        here = [j for j in lists[q].tolist() if j not in (-1, q)]
        assert (found.rank[pair] == here.index(i) + 1) if i in here else found.rank[pair].isinf()
        if i in here:
            assert found.rank[pair] == whole_ranking.rank[pair]
            assert found.above_pos[pair] == whole_ranking.above_pos[pair]


def test_lists_against_a_gallery_skip_the_own_copy_by_name():
    found = search.rank_lists(
        torch.tensor([[1, 0, 2]]), ["a"], ["a", "a", "a", "b"], ids=["q"], ref_ids=["x", "q", "y", "z"]
    )
    assert found.item.tolist() == [0, 2] and found.rank.tolist() == [1, 2]
    assert metrics.average_precision(found).item() == 1


def test_items_that_were_not_retrieved_count_among_the_relevant_ones():
    found = search.rank_lists(torch.tensor([[3, 0]]), [7], [7, 7, 7, 8, 8])  # of three relevant items one, at place 2
    for name, value in {
        "average_precision": 0.5 / 3,
        "map_at_r": 0.5 / 3,
        "r_precision": 1 / 3,
        "reciprocal_rank": 0.5,
        "hierarchical_ap": 0.5 / 3,
    }.items():
        assert getattr(metrics, name)(found).item() == pytest.approx(value), name
    assert metrics.item_recall_at_k(found, k=2).item() == pytest.approx(1 / 3)
    ideal = sum(1 / math.log2(1 + place) for place in (1, 2, 3))
    assert metrics.ndcg(found).item() == pytest.approx(1 / math.log2(3) / ideal)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (torch.tensor([[0, 1, 0]]), "twice"),
        (torch.tensor([[4]]), "0 .. 3, or -1; got 4"),
        (torch.tensor([[-2]]), "got -2"),
        (torch.tensor([0]), r"long \[1, place\]"),
        (torch.tensor([[0.0]]), "torch.float32"),
    ],
)
def test_lists_that_name_no_items_are_refused(lists, message):
    with pytest.raises(ValueError, match=message):
        search.rank_lists(lists, [0], [0, 1, 0, 1])


def test_own_columns_finds_integers_and_strings():
    device = torch.device("cpu")
    assert own_columns(torch.tensor([5, 9]), np.array([9, 7]), 2, 2, device).tolist() == [-1, 0]
    assert own_columns(["b"], ["a", "b"], 1, 2, device).tolist() == [1]


MEASURE = """
import resource, torch
from rankgrad import metrics, search
torch.set_num_threads(1)
x, labels = torch.randn(40_000, 8), torch.arange(40_000) // 4
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
search.rank_relevant(x[:100], labels[:100])
start = peak()
found = search.rank_relevant(x[:3_000], labels[:3_000], x, labels)
assert len(found.index.query) == 12_000
print(peak() - start)
"""


def test_no_tensor_is_larger_than_the_scores_of_a_few_blocks():
    x, labels = torch.randn(4_000, 8, generator=torch.Generator().manual_seed(0)), torch.arange(4_000) // 4
    with Allocations() as seen:
        found = search.rank_relevant(x[:300], labels[:300], x, labels, block=20)
    assert len(found.index.query) == 1_200
    assert 20 * 4_000 <= seen.largest <= 3 * 20 * 4_000  # the score matrix has 300 * 4 000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs elsewhere")
def test_memory_follows_the_block_and_not_the_score_matrix():
    answer = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert float(answer.stdout) < 200  # MiB; the float32 matrix alone would be 458
