"""The mask of a numpy array is not dropped: masked elements are refused wherever arrays are taken."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from rankgrad import metrics, ranks, trec
from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import Protocol, evaluate
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.scores import JudgedRows
from rankgrad.scores.curves import curves_of
from rankgrad.scores.evaluation import evaluate_scores
from rankgrad.search import retrieve
from rankgrad_workbench.datasets.given import given_table
from rankgrad_workbench.tasks.scores.table import ScoreTable

SCORES = np.ma.masked_greater(np.linspace(0, 1, 12).reshape(2, 6), 0.9)
PLAIN, HITS = SCORES.data, np.tile([True, False], (2, 3))
ROW, LABELS = SCORES.ravel(), np.ma.masked_equal(np.arange(12) % 3, 2)
POINTS = np.random.default_rng(0).normal(size=(12, 2))
MASKED_POINTS = np.ma.masked_greater(POINTS, 0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # such tensors of torch are a prototype
    OF_TORCH = torch.masked.masked_tensor(torch.from_numpy(POINTS), torch.from_numpy(POINTS < 0))
    COLUMN_OF_TORCH = OF_TORCH[:, 0]
TABLE = JudgedRows(torch.tensor(HITS.ravel()).float())
NAMES = np.ma.masked_equal(np.arange(12), 3)

CALLS = {
    "metrics, scores": lambda: metrics.average_precision(SCORES, HITS),
    "metrics, relevance": lambda: metrics.ndcg(PLAIN, np.ma.masked_array(HITS, HITS)),
    "metrics, valid": lambda: metrics.roc_auc(PLAIN, HITS, np.ma.masked_array(HITS, HITS)),
    "metrics, rows of lists": lambda: metrics.average_precision(list(SCORES), HITS),
    "metrics, a masked number": lambda: metrics.average_precision([[0.1, np.ma.masked]], [[True, False]]),
    "metrics, weights": lambda: metrics.mean_average_precision(PLAIN, HITS, weights=np.ma.masked_less([1.0, 2.0], 2)),
    "metrics, labels": lambda: metrics.nmi(LABELS, np.arange(12)),
    "spearman": lambda: metrics.spearman(ROW, np.arange(12.0)),
    "embeddings": lambda: evaluate(MASKED_POINTS, np.arange(12) % 3),
    "labels": lambda: evaluate(POINTS, LABELS),
    "labels of strings": lambda: evaluate(POINTS, np.ma.masked_equal(np.array(list("abcabcabcabc")), "b")),
    "gallery": lambda: evaluate(POINTS, np.arange(12) % 3, ref_embeddings=MASKED_POINTS, ref_labels=np.arange(12) % 3),
    "ids": lambda: evaluate(
        POINTS,
        np.arange(12) % 3,
        ref_embeddings=POINTS,
        ref_labels=np.arange(12) % 3,
        protocol=Protocol(ids=NAMES, ref_ids=np.arange(12)),
    ),
    "groups": lambda: evaluate(POINTS, np.arange(12) % 3, protocol=Protocol(groups=NAMES)),
    "weights": lambda: evaluate(
        POINTS, np.arange(12) % 3, protocol=Protocol(weights=np.ma.masked_equal(np.ones(12), 1))
    ),
    "graded": lambda: evaluate_graded(MASKED_POINTS, POINTS, [{0: 1}] * 12),
    "scores of rows": lambda: evaluate_scores(ROW, TABLE),
    "features": lambda: ScoreTable.of(MASKED_POINTS, np.arange(12) % 2),
    "a column": lambda: ScoreTable.of({"age": ROW}, np.arange(12) % 2),
    "relevance": lambda: ScoreTable.of(POINTS, np.ma.masked_equal(np.arange(12) % 2, 1)),
    "queries": lambda: ScoreTable.of(POINTS, np.arange(12) % 2, query=NAMES),
    "curves": lambda: curves_of(ROW, HITS.ravel()),
    "matrix of a run": lambda: trec.from_scores(SCORES),
    "documents": lambda: trec.from_matrix(NAMES.reshape(2, 6), PLAIN),
    "columns": lambda: trec.from_columns(["q"] * 12, np.arange(12), ROW),
    "names of columns": lambda: trec.from_columns(["q"] * 12, NAMES, PLAIN.ravel()),
    "batches": lambda: MPerClassBatchSampler(LABELS, 2, 2),
    "ranks": lambda: ranks.exact_ranks(SCORES, torch.tensor(HITS)),
    "inputs of a training": lambda: given_table((MASKED_POINTS, np.arange(12) % 3)),
    "inputs of a test": lambda: given_table((POINTS, np.arange(12) % 3), (MASKED_POINTS, np.arange(12) % 3)),
    "retrieved by a model": lambda: retrieve(lambda part: MASKED_POINTS[: len(part)], {"q": "a"}, {"d": "b"}),
    "retrieved embeddings": lambda: retrieve(None, (["q"], POINTS[:1]), (list("abcdefghijkl"), MASKED_POINTS)),
    "a tensor of torch": lambda: evaluate(OF_TORCH, np.arange(12) % 3),
    "a column of torch": lambda: ScoreTable.of({"age": COLUMN_OF_TORCH}, np.arange(12) % 2),
    "inputs of torch": lambda: given_table((OF_TORCH, np.arange(12) % 3)),
}


@pytest.mark.parametrize("call", CALLS)
def test_masked_elements_are_refused(call):
    with pytest.raises(ValueError, match="masked elements"):
        CALLS[call]()


@pytest.mark.parametrize("estimator", ["RankClassifier", "Ranker"])
def test_estimators_refuse_masked_elements(estimator):
    pytest.importorskip("sklearn")
    from rankgrad.adapters import sklearn as ours

    model, y = getattr(ours, estimator)(), np.arange(12) % 2
    for X, labels in ((MASKED_POINTS, y), (POINTS, np.ma.masked_equal(y, 1))):
        with pytest.raises(ValueError, match="masked elements"):
            model.fit(X, labels)


def test_a_masked_array_without_masked_elements_is_an_array():
    lists = np.ma.masked_array(PLAIN), np.ma.masked_array(HITS, mask=False)
    torch.testing.assert_close(metrics.average_precision(*lists), metrics.average_precision(PLAIN, HITS))
