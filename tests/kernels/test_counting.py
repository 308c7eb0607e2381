"""Counting and sorting against torch.searchsorted, torch.sort and definitions written out."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from rankgrad import losses
from rankgrad.ranks import exact_ranks
from rankgrad.ranks.kernels import counting, sorting
from rankgrad.ranks.kernels.counting import Counter, count_below
from rankgrad.ranks.kernels.sorting import sort_rows

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many threads, boxes so small that there is work for all of them, and nothing too short for cells."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    monkeypatch.setattr(counting, "CELLS_FROM", 1)
    monkeypatch.setattr(counting, "LONG", 1)
    monkeypatch.setattr(counting, "MAKING", 0)
    monkeypatch.setattr(counting, "PER_THREAD", 1)
    monkeypatch.setattr(counting, "TILE", 700)


def values_of(kind: str, dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    limits = torch.finfo(dtype)
    change = {
        "random": lambda v: v,
        "tied": lambda v: (v * 8).round() / 8,
        "one value": lambda v: torch.full_like(v, 0.3),
        "two clusters": lambda v: v * 1e-6 + (v > 0),
        "far from zero": lambda v: v * 1e-3 + 1e4,
        "heavy tails": lambda v: v / v.roll(1, -1).abs().clamp(min=1e-9) ** 2,
        "huge": lambda v: v.clamp(-4, 4) / 4 * limits.max,
        "tiny": lambda v: v * limits.tiny,
        "denormal": lambda v: (v * 50).round() * limits.smallest_normal * limits.eps,
        "signed zeros": lambda v: torch.where(v.abs() < 0.6, v.sign() * 0.0, v),
        "ascending": lambda v: v.sort(-1).values,
    }[kind]
    return change(values).to(dtype)


KINDS = [
    "random",
    "tied",
    "one value",
    "two clusters",
    "far from zero",
    "heavy tails",
    "huge",
    "tiny",
    "denormal",
    "signed zeros",
    "ascending",
]


def check_count_below(ordered: Tensor, scores: Tensor, right: bool) -> None:
    count, row, item = count_below(ordered, scores, right=right)
    assert count.dtype == torch.int32
    assert torch.equal(count.long(), torch.searchsorted(ordered, -scores.contiguous(), right=right))
    both = [torch.searchsorted(ordered, -scores.contiguous(), right=side) for side in (False, True)]
    level = torch.zeros_like(scores, dtype=torch.bool)
    level[row, item] = True
    assert torch.equal(level, both[0] != both[1])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_counts_below_equal_searchsorted_for_any_distribution(kind, dtype, right, threads):
    scores = values_of(kind, dtype, 3, 2000)
    entries = torch.cat([-scores[:, ::40], values_of(kind, dtype, 3, 30, seed=1)], 1).sort(1).values
    entries[1, 40:] = torch.inf  # ragged,
    entries[2] = torch.inf  # and a row without entries
    check_count_below(entries, scores, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("entries", "items"), [(0, 20_000), (1, 200_000), (2, 100_000), (50, 200_000), (3_000, 150_000), (20_000, 200_000)]
)
def test_counts_below_equal_searchsorted_for_any_number_of_entries(entries, items, dtype):
    scores, ordered = (
        values_of("random", dtype, 1, items),
        values_of("random", dtype, 1, entries, seed=1).sort(1).values,
    )
    for right in (False, True):
        check_count_below(ordered, scores, right)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (40, 7), (5, 699), (5, 700), (5, 701), (300, 11), (2, 5000)])
def test_counts_below_equal_searchsorted_however_rows_fall_into_boxes(shape, threads):
    scores = values_of("tied", torch.float32, *shape)
    check_count_below(values_of("tied", torch.float32, shape[0], 9, seed=1).sort(1).values, scores, False)


def test_scores_need_not_be_contiguous(threads):
    wide = values_of("tied", torch.float32, 4, 6000)
    ordered = values_of("tied", torch.float32, 4, 20, seed=1).sort(1).values
    for scores in (wide[:, ::2], wide.view(6000, 4).T, wide[:, :1].expand(4, 3000), wide[:, 100:2100]):
        check_count_below(ordered, scores, True)


def test_entries_far_outside_the_scores_cost_no_exactness(threads):
    scores = values_of("random", torch.float32, 1, 3000)
    ordered = torch.tensor([[-torch.inf, -1e38, -1e4, -0.5, 0.0, 0.5, 1e4, 1e38, torch.inf, torch.inf]])
    check_count_below(ordered, scores, False)
    scores[0, ::3] = -torch.inf
    count, _, _ = count_below(ordered[:, :8].contiguous(), scores)
    assert torch.equal(count.long(), torch.searchsorted(ordered[:, :8].contiguous(), -scores))


def problem(kind: str, dtype: torch.dtype, entries: int, absent: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(scores, columns of the entries, what is absent, [row, item] which items count)."""
    rows, items = 3, 900
    generator = torch.Generator().manual_seed(2)
    scores = values_of(kind, dtype, rows, items)
    column = torch.stack([torch.randperm(items, generator=generator)[:entries].sort().values for _ in range(rows)])
    there = torch.ones(rows, items, dtype=torch.bool)
    if absent != "nothing":
        there.scatter_(1, column, False)
    if absent == "mask":
        there &= torch.rand(rows, items, generator=generator) > 0.2
    given = {"nothing": None, "positions": (~there).flatten().nonzero().squeeze(1), "mask": ~there}[absent]
    return scores, column, given, there


def check_above(kind: str, dtype: torch.dtype, entries: int, absent: str) -> None:
    scores, column, given, there = problem(kind, dtype, entries, absent)
    mine = scores.gather(1, column)
    ordered, by_place = sort_rows(-mine)
    columns = column.gather(1, by_place)
    better = scores.unsqueeze(1) > -ordered.unsqueeze(2)  # [row, place, item]
    level = scores.unsqueeze(1) == -ordered.unsqueeze(2)
    lower = torch.arange(scores.shape[1]) <= columns.unsqueeze(2)
    worth = torch.rand(3, entries + 1, dtype=dtype, generator=torch.Generator().manual_seed(3))
    place = (~(better | level & lower)).sum(1)  # entries above an item: those that it is not above

    counter = Counter(scores, given)
    counts = there.unsqueeze(1)
    for given_worth in (None, worth):
        above, value = counter.above(ordered, columns, given_worth)
        assert torch.equal(above.under("pessimistic"), ((better | level) & counts).sum(2))
        assert torch.equal(above.under("optimistic"), (better & counts).sum(2))
        assert torch.equal(above.under("index"), ((better | level & lower) & counts).sum(2))
    assert torch.equal(value[there], worth.gather(1, place)[there])


ABSENT = ("nothing", "positions", "mask")


@pytest.mark.parametrize("entries", [1, 5, 12, 200])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["random", "tied", "one value", "signed zeros", "heavy tails"])
def test_items_above_and_the_worth_of_places_follow_their_definition(kind, dtype, entries, threads):
    for absent in ABSENT:
        check_above(kind, dtype, entries, absent)


@pytest.mark.parametrize("box", [70, 2000, 10**6])
@pytest.mark.parametrize("kind", ["random", "tied", "one value", "signed zeros"])
def test_the_plain_form_follows_the_same_definition_in_boxes_of_any_size(kind, box, monkeypatch):
    monkeypatch.setattr(counting, "CELLS_FROM", 10**9)
    monkeypatch.setattr(counting, "PLAIN", box)
    for entries, absent in itertools.product((1, 12, 200), ABSENT):
        check_above(kind, torch.float32, entries, absent)


@pytest.mark.parametrize("shape", [(2, 5), (1, 2**17), (0, 4), (3, 0)])
def test_without_entries_every_item_has_the_first_place(shape):
    nothing = torch.zeros(shape[0], 0)
    above, worth = Counter(torch.randn(*shape)).above(nothing, nothing.long(), torch.full((shape[0], 1), 0.5))
    assert above.under("pessimistic").shape == (shape[0], 0)
    assert torch.equal(worth, torch.full(shape, 0.5))


def test_counting_again_with_other_entries_uses_what_is_known_and_stays_exact(threads):
    scores, column, given, there = problem("tied", torch.float32, 30, "mask")
    counter = Counter(scores, given)
    for shift in (0.0, 0.25, -3.0, 50.0, -50.0):
        ordered, by_place = sort_rows(shift - scores.gather(1, column))
        columns = column.gather(1, by_place)
        above, _ = counter.above(ordered, columns)
        better = scores.unsqueeze(1) > -ordered.unsqueeze(2)
        level = scores.unsqueeze(1) == -ordered.unsqueeze(2)
        lower = torch.arange(scores.shape[1]) <= columns.unsqueeze(2)
        assert torch.equal(above.index, ((better | level & lower) & there.unsqueeze(1)).sum(2))


@pytest.mark.parametrize("group", [1, 5])
def test_rows_counted_in_groups_equal_rows_counted_together(group, threads, monkeypatch):
    scores = values_of("tied", torch.float64, 11, 900)
    ordered = values_of("tied", torch.float64, 11, 25, seed=1).sort(1).values
    ordered[3, 4:], ordered[7] = torch.inf, torch.inf
    column = torch.randint(900, (11, 25), generator=torch.Generator().manual_seed(0)).sort(1).values
    there = ordered < torch.inf
    positions = torch.arange(0, 11 * 900, 7)
    worth = torch.arange(26.0).expand(11, 26).contiguous()
    together, value = Counter(scores, positions).above(ordered, column, worth)
    monkeypatch.setattr(counting, "TABLE", group * 300)
    above, again = Counter(scores, positions).above(ordered, column, worth)
    for ties in ("pessimistic", "optimistic", "index"):
        assert torch.equal(above.under(ties)[there], together.under(ties)[there])
    keep = torch.ones(11 * 900, dtype=torch.bool).index_fill(0, positions, False).view(11, 900)
    assert torch.equal(value[keep], again[keep])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "tied"])
@pytest.mark.parametrize("relevant_items", [3, 700])
def test_loss_and_gradient_do_not_depend_on_cells_or_threads(relevant_items, rounded, dtype, threads, monkeypatch):
    scores = values_of("tied" if rounded else "random", dtype, 2, 3000)
    relevant = torch.zeros(2, 3000, dtype=torch.bool)
    relevant[0, :relevant_items], relevant[1, ::40] = True, True

    def found() -> tuple[Tensor, Tensor]:
        leaf = scores.clone().requires_grad_()
        loss = losses.RaMBOAPLoss().from_scores(leaf, relevant)
        loss.backward()
        return loss.detach(), leaf.grad

    by_cells = found()
    monkeypatch.setattr(counting, "CELLS_FROM", 10**9)
    plain = found()
    assert torch.equal(by_cells[0], plain[0]) and torch.equal(by_cells[1], plain[1])


def test_numbers_of_items_beyond_what_float32_counts_are_exact():
    n = 2**24 + 3
    scores = torch.zeros(1, n)
    scores[0, 0] = -1.0
    relevant = torch.zeros(1, n, dtype=torch.bool)
    relevant[0, 0] = True
    assert exact_ranks(scores, relevant).rank.item() == n


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("kind", ["random", "tied", "signed zeros", "huge", "denormal"])
@pytest.mark.parametrize("radix_from", [100, sorting.RADIX_FROM])
def test_sorted_rows_equal_a_stable_sort(kind, dtype, radix_from, monkeypatch):
    monkeypatch.setattr(sorting, "RADIX_FROM", radix_from)
    for shape in ((0, 5), (3, 0), (4, 1), (5, 300), (2, 5000)):
        values = values_of(kind, dtype, *shape)
        values[:, 1:4], values[:, 5:7] = torch.inf, -torch.inf
        ordered, order = values.sort(dim=1, stable=True)
        for mine in (values, values.T.contiguous().T):
            assert all(a.equal(b) for a, b in zip(sort_rows(mine), (ordered, order), strict=True)), shape
