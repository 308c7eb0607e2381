"""Input of `evaluate_graded` that does not fit is an error that names it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankgrad.evaluation import Bootstrap, evaluate_graded

QUERIES, CORPUS = torch.eye(2), torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
GAINS = [{0: 1, 1: 3}, {2: 1}]


@pytest.mark.parametrize(
    "gains",
    [3.0, None, "ab", {0: {0: 1}, 1: {2: 1}}, [[1, 2], [0]], [1.0, 2.0], torch.ones(2, 3), torch.ones(1, 3)],
    ids=str,
)
def test_gains_that_are_no_list_of_mappings_are_refused_with_an_example(gains):
    with pytest.raises(TypeError, match=r"relevance must be a list with one mapping per query.*\[\{0: 1"):
        evaluate_graded(QUERIES, CORPUS, gains)


@pytest.mark.parametrize("key", ["0", "document 0", 0.5, 1.0, True, None])
def test_a_key_that_is_no_row_of_the_corpus_is_refused_with_its_query(key):
    with pytest.raises(ValueError, match=rf"query 1 .*row of the corpus.*integer; got {key!r}"):
        evaluate_graded(QUERIES, CORPUS, [{0: 1}, {key: 1}])


@pytest.mark.parametrize("gain", ["1", "much", None, [1], -1, float("nan"), 1e308])
def test_a_gain_that_is_no_number_is_refused_with_its_query_and_row(gain):
    with pytest.raises(ValueError, match="grades must be numbers.*query 1 and row 2 is"):
        evaluate_graded(QUERIES, CORPUS, [{0: 1}, {2: gain}])


def test_numbers_of_numpy_and_booleans_are_taken():
    gains = [{np.int64(0): np.float32(1), np.int32(1): 3}, {2: True}]
    assert evaluate_graded(QUERIES, CORPUS, gains) == evaluate_graded(QUERIES, CORPUS, GAINS)


@pytest.mark.parametrize("names", [[], (), "AP", None, [3]])
def test_names_that_name_no_metric_are_refused(names):
    with pytest.raises(ValueError, match="metrics must be a list of at least one metric"):
        evaluate_graded(QUERIES, CORPUS, GAINS, metrics=names)


@pytest.mark.parametrize("seed", [-1, "a"])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ValueError, match="seed .*integer >= 0"):
        evaluate_graded(QUERIES, CORPUS, GAINS, intervals=Bootstrap(seed=seed))
