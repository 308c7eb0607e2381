"""Equal scores come out equal, of codes, sets, counts and duplicates, whatever the block; others keep their bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from marks import slow_unless
from torch import Tensor

from rankgrad import search
from rankgrad.evaluation import evaluate
from rankgrad.ranks.normalize import unit_rows
from rankgrad.search import scores
from rankgrad.search.scores import Scorer, whole_rows

DTYPES = [torch.float16, torch.float32, torch.float64]


def drawn(kind: str, rows: int = 120, seed: int = 0) -> Tensor:
    """Rows of small whole numbers, by kind; some of them twice, some a multiple of another."""
    g = torch.Generator().manual_seed(seed)
    if kind == "codes":
        return torch.randint(0, 2, (rows, 48), generator=g).double() * 2 - 1
    if kind == "sets":
        return (torch.rand(rows, 30, generator=g) < 0.2).double()
    if kind == "counts":
        found = torch.randint(1, 5, (rows, 40), generator=g).double() * (torch.rand(rows, 40, generator=g) < 0.12)
        found[3::7] = 3 * found[2::7][: len(found[3::7])]
        return found
    if kind == "signed":
        return torch.randint(-3, 4, (rows, 5), generator=g).double()
    assert kind == "duplicates"
    return torch.randint(-1, 2, (9, 12), generator=g).double()[torch.randint(0, 9, (rows,), generator=g)]


KINDS = ["codes", "sets", "counts", "signed", "duplicates"]


def exact_keys(queries: Tensor, items: Tensor) -> list[list[Fraction]]:
    """sign(p) p^2 / (|q|^2 |r|^2), which orders as the cosine does, in fractions; 0 for a zero row."""
    found = []
    for q in queries.long().tolist():
        row = []
        for r in items.long().tolist():
            p = sum(a * b for a, b in zip(q, r, strict=True))
            size = sum(a * a for a in q) * sum(b * b for b in r)
            row.append(Fraction(p * abs(p), size) if size else Fraction(0))
        found.append(row)
    return found


def places(row: list[Fraction]) -> Tensor:
    """Dense ranks: equal fractions have equal numbers, in their order."""
    order = {value: place for place, value in enumerate(sorted(set(row)))}
    return torch.tensor([order[value] for value in row])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_cosines_are_equal_and_others_are_in_order(kind):
    rows = drawn(kind)
    wanted = [places(row) for row in exact_keys(rows[:12], rows)]
    once = torch.nn.functional.normalize(rows.float(), dim=1)  # by a caller, and again by us
    for given in (once, *(rows.to(dtype).to(torch.promote_types(dtype, torch.float32)) for dtype in DTYPES)):
        unit = unit_rows(given)
        for got, row in zip(Scorer(unit, unit)(torch.arange(12)), wanted, strict=True):
            assert torch.unique(got, return_inverse=True)[1].equal(row)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_keys_stand_for_is_the_cosine(kind):
    unit = unit_rows(drawn(kind))
    scorer, rows = Scorer(unit, unit), torch.tensor([5, 0, 7])
    torch.testing.assert_close(scorer.scores(scorer(rows), rows), unit[rows] @ unit.T)
    best, index = search.topk(unit, unit, 4)
    torch.testing.assert_close(best, (unit @ unit.T).gather(1, index))


@pytest.mark.parametrize("kind", slow_unless({"codes", "sets", "duplicates"}, KINDS))
def test_a_report_is_the_same_in_every_block_and_dtype(kind):
    rows, labels = drawn(kind), torch.arange(120) % 9
    settings = {"intervals": 0}
    wanted = evaluate(rows, labels, **settings)
    for dtype in DTYPES:
        for block in (None, 1, 7, 120):
            found = evaluate(rows.to(dtype), labels, block=block, **settings)
            assert all((found.per_query[name] == wanted.per_query[name]).all() for name in wanted.per_query)
    unit = unit_rows(rows)
    for shares in ([torch.arange(120)], [torch.arange(0, 120, 2), torch.arange(1, 120, 2)]):
        ranks = {}
        for rows_of in shares:
            for part in search.rank_blocks(unit, labels, rows=rows_of, block=11):
                for place, row in enumerate(part.rows.tolist()):
                    ranks[row] = part.ranks.pessimistic.rank[part.ranks.pessimistic.query == place].tolist()
        whole = search.rank_relevant(unit, labels).pessimistic
        assert ranks == {row: whole.rank[whole.query == row].tolist() for row in ranks} and len(ranks) == 120


def test_cosines_of_codes_are_ranked_as_their_inner_products_are():
    codes, labels = drawn("codes", 300), torch.arange(300) % 12
    exact = evaluate(codes, labels, similarity="inner product", intervals=0)
    for dtype in DTYPES:
        for block in (None, 1):
            found = evaluate(codes.to(dtype), labels, block=block, intervals=0)
            assert (
                found.values["AP"] == exact.values["AP"] and found.values["AUC_hardest"] == exact.values["AUC_hardest"]
            )


def test_multiples_of_a_row_are_duplicates_of_it():
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(1, 6, (1, 20), generator=generator).float()
    row[0, 3] = 1
    many = unit_rows(torch.cat([row * factor for factor in (1, 3, 7, 0.1, 1e-20)]))
    queries = unit_rows(torch.randint(1, 6, (50, 20), generator=generator).float())
    keys = Scorer(queries, many)(torch.arange(50))
    assert (keys == keys[:, :1]).all()


def without_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "whole_rows", lambda rows: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(500, 2), (300, 3), (300, 64), (64, 1000)])
def test_continuous_data_keep_the_bits_of_the_plain_product(shape, dtype, monkeypatch):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    for x in (unit_rows(rows), rows, unit_rows(rows.relu()), unit_rows(rows.half().to(dtype))):
        todo, found = torch.arange(40), Scorer(x, x)(torch.arange(40)).clone()
        assert whole_rows(x) is None
        with monkeypatch.context() as patch:
            without_whole_numbers(patch)
            assert torch.equal(found, Scorer(x, x)(todo))
        assert torch.equal(found, torch.mm(x[todo], x.T))


def test_one_row_that_is_no_multiple_of_whole_numbers_is_enough_for_the_plain_product():
    rows = unit_rows(drawn("codes", 500).float())
    rows[333] = unit_rows(torch.randn(1, 48, generator=torch.Generator().manual_seed(0)))
    assert whole_rows(rows) is None
    assert torch.equal(Scorer(rows, rows)(torch.arange(9))[:, 1:4], torch.mm(rows[:9], rows.T)[:, 1:4])


def test_numbers_too_large_for_exact_products_are_left_to_the_plain_product():
    rows = unit_rows(torch.randint(1, 1000, (40, 30), generator=torch.Generator().manual_seed(0)).double())
    rows[:, 0] = rows.min() / 3
    short, long = unit_rows(drawn("counts").float()), unit_rows(torch.tensor([[1.0, 1000.0], [3.0, 1000.0]]))
    assert whole_rows(short) is not None and whole_rows(long) is not None
    assert torch.equal(Scorer(long, long)(torch.arange(2)), torch.mm(long, long.T))  # 10^6 x 10^6 > 2^24
    assert torch.equal(Scorer(long.double(), long.double())(torch.arange(2)).sign(), torch.ones(2, 2).double())


def test_whole_numbers_are_the_smallest_ones_and_zero_rows_are_zero():
    rows = torch.tensor([[2.0, -4.0, 6.0], [0.0, 0.0, 0.0], [-5.0, 0.0, 7.0], [0.0, 0.0, 9.0]])
    assert whole_rows(unit_rows(rows)).tolist() == [[1, -2, 3], [0, 0, 0], [-5, 0, 7], [0, 0, 1]]
    assert whole_rows(rows) is None  # not of length 1: no cosines
    assert whole_rows(torch.zeros(2, 3)).tolist() == [[0, 0, 0]] * 2
    assert whole_rows(unit_rows(torch.tensor([[17.0, 18.0]]))) is None  # the smallest is more than 16
    assert whole_rows(unit_rows(torch.tensor([[1.0, 1025.0]]))) is None


# ------------------------------------------------------------------------------------------------------------ distance


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_distances_equal_loops_also_far_from_zero(shift):
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(n, 6, generator=generator, dtype=torch.float64) + shift for n in (9, 20))
    queries[0] = items[3]
    scorer, rows = Scorer(queries.float(), items.float(), "euclidean"), torch.tensor([4, 0])
    found = scorer.scores(scorer(rows), rows)
    torch.testing.assert_close(
        -found.double(), torch.cdist(queries.float().double(), items.float().double())[rows], atol=2e-3, rtol=1e-4
    )
    assert found[1].argmax() == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_distances_of_whole_numbers_are_equal(dtype):
    rows = drawn("signed").to(dtype)
    keys = Scorer(rows, rows, "euclidean")(torch.arange(30))
    for q, got in enumerate(keys):
        distance = [
            Fraction(-sum((a - b) ** 2 for a, b in zip(rows[q].long().tolist(), r, strict=True)))
            for r in rows.long().tolist()
        ]
        assert torch.unique(got, return_inverse=True)[1].equal(places(distance))


def test_identical_items_are_equally_far_however_the_product_rounds():
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(1, 33, generator=generator).expand(101, 33).contiguous()
    keys = Scorer(torch.randn(7, 33, generator=generator), items, "euclidean")(torch.arange(7))
    assert (keys == keys[:, :1]).all()


def test_distances_that_may_overflow_are_refused():
    with pytest.raises(ValueError, match="overflow torch.float32: .*3e"):
        Scorer(torch.full((2, 2), 3e19), torch.zeros(1, 2), "euclidean")
    with pytest.raises(ValueError, match="overflow torch.float64: .*3e"):
        Scorer(torch.full((2, 2), 3e160, dtype=torch.float64), torch.zeros(1, 2), "euclidean")
    # entries of both sides are added, as a distance may be between opposite signs
    with pytest.raises(ValueError, match="overflow torch.float32: .*7e\\+18 and 7e\\+18"):
        Scorer(torch.full((2, 2), 7e18), torch.full((1, 2), -7e18), "euclidean")
    Scorer(torch.full((2, 2), 6e18), torch.full((1, 2), -6e18), "euclidean")


def test_copies_of_an_item_are_equal_also_if_the_product_rounds_by_column(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(7, 33, generator=generator), torch.randn(50, 33, generator=generator)
    items[40:] = items[:10]
    product = Scorer._product

    def rounded(self, rows, out):
        keys = product(self, rows, out)
        return keys.mul_(1 + torch.arange(keys.shape[1]) * 1e-6)

    monkeypatch.setattr(Scorer, "_product", rounded)
    keys = Scorer(queries, items, "inner product")(torch.arange(7))
    assert keys[:, 40:].equal(keys[:, :10]) and not keys[:, 30:40].equal(keys[:, :10])


def test_keys_of_embeddings_that_are_nearly_alike_do_not_show_how_the_product_rounds(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    points = 1 + 1e-4 * torch.randint(-4, 5, (30, 33), generator=generator).float()
    want = Scorer(points, points, "inner product")(torch.arange(30)).clone()
    product = Scorer._product

    def rounded(self, rows, out):
        keys = product(self, rows, out)
        return keys.mul_(1 + (torch.arange(keys.shape[1]).double() % 3 - 1) * 2.0**-52)

    monkeypatch.setattr(Scorer, "_product", rounded)
    keys = Scorer(points, points, "inner product")(torch.arange(30))
    assert (keys != want).double().mean() < 0.05  # a key beside the middle of two steps of the grid may change


@pytest.mark.parametrize("similarity", ["cosine", "inner product", "euclidean"])
@pytest.mark.parametrize("step", slow_unless({1e-4}, [1e-3, 1e-4, 1e-6]))
def test_embeddings_that_are_nearly_alike_have_the_same_numbers_in_any_block(similarity, step):
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        items, dim = 6 + 3 * seed, (2, 8, 33, 64)[seed % 4]
        points = 1 + step * torch.randint(-4, 5, (items, dim), generator=generator).float()
        labels = torch.arange(items) % 3
        options = {"similarity": similarity, "intervals": 0}
        expected = evaluate(points, labels, **options)
        for block in (1, 2, 5):
            found = evaluate(points, labels, block=block, **options)
            for name, column in expected.per_query.items():
                np.testing.assert_array_equal(found.per_query[name], column, err_msg=f"{seed} {name}")


def of_collapsed_classes(draw, items, dim):
    centres = torch.randn(max(2, items // 5), dim, generator=draw)
    which = torch.randint(len(centres), (items,), generator=draw)
    return centres[which] + 1e-5 * torch.randn(items, dim, generator=draw)


def with_one_far_away(draw, items, dim):
    points = 1 + 1e-4 * torch.randint(-5, 6, (items, dim), generator=draw).float()
    points[0] = 9 * torch.randn(dim, generator=draw)
    return points


def half_alike(draw, items, dim):
    points = torch.randn(items, dim, generator=draw)
    points[::2] = 1 + 1e-4 * torch.randint(-5, 6, points[::2].shape, generator=draw).float()
    return points


def with_one_decimal(draw, items, dim):
    return torch.randint(-9, 10, (items, dim), generator=draw).double() / 10


@pytest.mark.parametrize("made", [of_collapsed_classes, with_one_far_away, half_alike])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_many_scores_within_their_rounding_do_not_depend_on_the_block(made, dtype):
    for seed, similarity in enumerate(("cosine", "euclidean") * 2):
        draw = torch.Generator().manual_seed(seed)
        items = 30 + 11 * seed
        points, labels = made(draw, items, (33, 8, 64)[seed % 3]).to(dtype), torch.arange(items) % 4
        options = {"similarity": similarity, "intervals": 0}
        expected = evaluate(points, labels, **options)
        for block in (1, 3, 10):
            found = evaluate(points, labels, block=block, **options)
            for name, column in expected.per_query.items():
                np.testing.assert_array_equal(found.per_query[name], column, err_msg=f"{seed} {similarity} {name}")


@pytest.mark.parametrize("similarity", ["inner product", "euclidean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_in_tiles_are_those_of_the_product(similarity, dtype):
    points = with_one_decimal(torch.Generator().manual_seed(0), 75, 6).to(dtype)
    scorer = Scorer(points, points, similarity)
    assert scorer._tiled
    plain = points @ points.T if similarity == "inner product" else -torch.cdist(points, points)
    for rows in (torch.arange(75), torch.tensor([70, 3, 35, 4]), torch.tensor([31])):
        torch.testing.assert_close(scorer.scores(scorer(rows), rows), plain[rows], rtol=1e-5, atol=2e-3)
    draw = torch.Generator().manual_seed(0)
    assert not Scorer(torch.randn(500, 64, generator=draw), torch.randn(4000, 64, generator=draw))._tiled
