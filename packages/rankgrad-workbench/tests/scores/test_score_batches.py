"""Batches of scores: fair shares of relevant rows, whole queries, and the same ones again after a stop."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from rankgrad.scores.batches import QueryBatches, StratifiedBatches
from rankgrad_workbench.tasks.scores.settings import Batches
from rankgrad_workbench.tasks.scores.task import list_data

RELEVANT = torch.arange(100) % 10 == 0
QUERY = torch.arange(20).repeat_interleave(torch.arange(20) % 4 + 1)


def epoch(batches, number: int) -> list[list[int]]:
    batches.set_epoch(number)
    return [list(batch) for batch in batches]


@pytest.mark.parametrize("positives", [None, 1, 4, 15])
def test_each_batch_has_its_relevant_rows_and_no_row_twice(positives):
    wanted = {None: 3, 15: 10}.get(positives, positives)
    for batch in epoch(StratifiedBatches(RELEVANT, 32, positives), 0):
        assert len(set(batch)) == len(batch) == 32
        assert int(RELEVANT[batch].sum()) == wanted


@pytest.mark.parametrize(
    ("rows", "relevant", "size", "wanted"),
    [(20000, 2, 512, 2), (20000, 20, 512, 8), (20000, 400, 512, 10), (999, 1, 512, 1)],
)
def test_rare_relevant_rows_are_one_in_64_of_a_batch_at_least(rows, relevant, size, wanted):
    batches = StratifiedBatches(torch.arange(rows) < relevant, size)
    first = epoch(batches, 0)[0]
    assert sum(row < relevant for row in first) == batches.positives == wanted
    assert len(first) == batches.batch_size == size


def test_the_batch_size_of_queries_is_that_of_the_longest_ones():
    batches = QueryBatches(QUERY, 6)
    assert batches.batch_size == 5 * 4 + 3 and len(batches) == 3
    assert QueryBatches(QUERY, 100).batch_size == len(QUERY)


def test_an_epoch_passes_over_the_irrelevant_rows_once_and_over_the_relevant_ones_evenly():
    batches = StratifiedBatches(RELEVANT, 20, 4)
    counts = Counter(row for batch in epoch(batches, 3) for row in batch)
    relevant, others = ([counts[row] for row in mask.nonzero().flatten().tolist()] for mask in (RELEVANT, ~RELEVANT))
    assert max(others) == 1 and sum(others) == len(batches) * 16 > 90 - 16
    assert max(relevant) - min(relevant) <= 1


def test_a_batch_that_is_larger_than_the_table_is_the_table():
    [batch] = epoch(StratifiedBatches(RELEVANT, 1000), 0)
    assert sorted(batch) == list(range(100))


def test_queries_stay_whole_and_no_query_comes_twice():
    found = epoch(QueryBatches(QUERY, 6), 0)
    assert len(found) == 3
    seen = [row for batch in found for row in batch]
    assert len(set(seen)) == len(seen)
    for batch in found:
        chosen = QUERY[batch].unique()
        assert len(chosen) == 6 and sorted(batch) == torch.isin(QUERY, chosen).nonzero().flatten().tolist()


@pytest.mark.parametrize(
    "make", [lambda s: StratifiedBatches(RELEVANT, 16, seed=s), lambda s: QueryBatches(QUERY, 3, s)]
)
def test_batches_are_a_function_of_seed_and_epoch_and_go_on_in_the_middle(make):
    assert epoch(make(0), 2) == epoch(make(0), 2)
    assert epoch(make(0), 2) != epoch(make(0), 3) and epoch(make(0), 2) != epoch(make(1), 2)
    whole, rest = epoch(make(0), 2), make(0)
    rest.set_epoch(2)
    rest.load_state_dict(rest.state_dict(batches_done=2))
    assert [list(batch) for batch in rest] == whole[2:]
    with pytest.raises(ValueError, match="seed"):
        make(1).load_state_dict(rest.state_dict())


def test_rows_come_with_their_relevance_and_query():
    data = list_data(torch.arange(50.0).unsqueeze(1), QUERY % 3, QUERY, Batches(queries_per_batch=5), seed=0)
    for inputs, relevance, query in data.train_dataloader():
        place = inputs.squeeze(1).long()
        assert torch.equal(relevance, (QUERY % 3)[place]) and torch.equal(query, QUERY[place])


@pytest.mark.parametrize("wrong", [{"batch_size": 1}, {"positives_per_batch": 512}, {"queries_per_batch": 0}])
def test_a_number_out_of_range_is_named(wrong):
    with pytest.raises(ValueError, match="sampler." + next(iter(wrong))):
        Batches(**wrong)
