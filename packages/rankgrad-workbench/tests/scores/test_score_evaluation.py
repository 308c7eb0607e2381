"""Metrics of scores and their intervals, held to plain loops, to scikit-learn and to the metrics of the library."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from rankgrad import metrics
from rankgrad.evaluation import measures
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.scores.curves import curves_of
from rankgrad.scores.evaluation import ScoreReport, evaluate_scores, values_of
from rankgrad.scores.one_list import RankedRows
from rankgrad.scores.rows import JudgedRows
from rankgrad_workbench.tasks.scores.table import ScoreTable


def drawn(rows: int, seed: int, steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Scores and relevance; `steps`: so few different scores that many are level."""
    generator = np.random.default_rng(seed)
    relevant = generator.random(rows) < 0.2
    relevant[:2] = True, False
    scores = generator.normal(size=rows) + relevant
    return (scores if steps is None else np.round(scores * steps) / steps), relevant


def table_of(relevance, query=None) -> JudgedRows:
    ids = None if query is None else torch.as_tensor(query)
    return JudgedRows(torch.as_tensor(np.asarray(relevance), dtype=torch.float32), ids)


# ------------------------------------------------------------------------------------------------------ slow references


def slow(name: str, scores: np.ndarray, relevant: np.ndarray) -> float:
    """A metric of one list by plain loops over its rows."""
    rows = range(len(scores))
    hits, misses = [i for i in rows if relevant[i]], [i for i in rows if not relevant[i]]
    if name == "AP":
        above = [[j for j in rows if scores[j] >= scores[i]] for i in hits]
        return sum(sum(bool(relevant[j]) for j in listed) / len(listed) for listed in above) / len(hits)
    if name == "ROC AUC":
        won = sum((scores[i] > scores[j]) + (scores[i] == scores[j]) / 2 for i in hits for j in misses)
        return won / (len(hits) * len(misses))
    k = int(name.partition("@")[2])
    listed = sorted(rows, key=lambda i: (-scores[i], relevant[i]))[:k]
    return sum(bool(relevant[i]) for i in listed) / (k if name.startswith("P") else len(hits))


@pytest.mark.parametrize("name", ["AP", "ROC AUC", "P@5", "P@40", "Recall@7"])
@pytest.mark.parametrize("steps", [None, 2])
def test_metrics_of_one_list_equal_plain_loops(name, steps):
    for seed in range(10):
        scores, relevant = drawn(30, seed, steps)
        value = float(RankedRows.of(scores, relevant).groups().values(name)[0])
        assert value == pytest.approx(slow(name, scores, relevant), abs=1e-12)


@pytest.mark.parametrize("steps", [None, 4])
def test_one_list_equals_scikit_learn_and_the_metrics_of_the_library(steps):
    ours = pytest.importorskip("sklearn.metrics")
    scores, relevant = drawn(3000, 0, steps)
    found = evaluate_scores(scores, table_of(relevant), intervals=0).values
    assert found["AP"] == pytest.approx(ours.average_precision_score(relevant, scores), abs=1e-12)
    assert found["ROC AUC"] == pytest.approx(ours.roc_auc_score(relevant, scores), abs=1e-12)
    lists = torch.tensor(scores)[None], torch.tensor(relevant)[None]
    assert found["ROC AUC@FPR=0.05"] == pytest.approx(float(metrics.partial_roc_auc(*lists, fpr=0.05)), abs=1e-12)
    if steps is None:
        assert found["P@100"] == pytest.approx(float(metrics.precision_at_k(*lists, k=100)), abs=1e-12)


def test_a_draw_of_rows_has_the_metrics_of_the_rows_that_were_drawn():
    scores, relevant = drawn(60, 3, steps=3)
    rows = RankedRows.of(scores, relevant)
    order = np.lexsort((relevant, -scores))  # the draws name rows by their place in the order
    generator = np.random.default_rng(7)
    groups = next(iter(rows.draws(20, seed=7)))
    for name in ("AP", "ROC AUC", "ROC AUC@FPR=0.3", "P@10", "Recall@10"):
        values = groups.values(name)
        generator = np.random.default_rng(7)
        for value in values:
            chosen = order[generator.integers(60, size=60, dtype=np.int32)]
            again = RankedRows.of(scores[chosen], relevant[chosen]).groups()
            assert value == pytest.approx(float(again.values(name)[0]), abs=1e-12)


def test_intervals_cover_the_value_of_the_population_about_as_often_as_they_promise():
    inside = 0
    for seed in range(200):
        scores, relevant = drawn(150, seed)
        low, high = evaluate_scores(scores, table_of(relevant), metrics=["ROC AUC"], intervals=200).intervals["ROC AUC"]
        inside += low <= 0.7602 <= high  # P(a normal with mean 1 > one with mean 0)
    assert inside >= 176  # 95 % of 200, less four standard deviations


# -------------------------------------------------------------------------------------------------------------- queries


def graded(seed: int, queries: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    query = torch.arange(queries).repeat_interleave(torch.randint(1, 30, (queries,), generator=g))
    relevance = torch.randint(0, 4, (len(query),), generator=g).float()
    relevance[query == 3] = 0
    return torch.randn(len(query), generator=g).double(), relevance, query


@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_metrics_of_queries_are_those_of_each_query_alone(gain):
    scores, relevance, query = graded(0)
    ndcg = {"linear": "NDCG@10", "exp2": "NDCG-exp2@10"}[gain]
    report = evaluate_scores(scores, table_of(relevance, query), metrics=[ndcg, "AP", "MRR", "P@10"])
    for number in range(12):
        rows = query == number
        alone = scores[rows][None], relevance[rows][None]
        hits = alone[0], alone[1] > 0
        expected = {
            ndcg: metrics.ndcg(*alone, k=10, gain=gain),
            "AP": metrics.average_precision(*hits),
            "MRR": metrics.reciprocal_rank(*hits),
            "P@10": metrics.precision_at_k(*hits, k=10),
        }
        for name, value in expected.items():
            found = report.per_query[name][number]
            assert math.isnan(found) if not bool(hits[1].any()) else found == pytest.approx(float(value), abs=1e-12)
    assert report.values["AP"] == pytest.approx(np.nanmean(report.per_query["AP"]))
    assert all(low <= report.values[name] <= high for name, (low, high) in report.intervals.items())


def test_a_query_without_a_relevant_row_is_left_out_counted_and_said():
    scores, relevance, query = graded(1)
    report = evaluate_scores(scores, table_of(relevance, query), intervals=0)
    assert report.counts["queries"] - report.counts["counted"] == 1 + sum(
        not bool((relevance[query == number] > 0).any()) for number in range(12) if number != 3
    )
    assert re.search(r"\b1 of 12 queries", report.notes[0])
    assert "3" not in dict(report.queries_by("AP")) and len(report.queries_by("AP")) == report.counts["counted"]


def test_a_query_without_an_irrelevant_row_is_left_out_of_roc_auc_and_fall_out_alone():
    relevance, query = [1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 2]
    names = ["ROC AUC", "AP", "fall-out@1"]
    table = table_of(relevance, query)
    report = evaluate_scores([2.0, 3.0, 1.0, 0.0, 5.0, 0.0], table, metrics=names, intervals=50)
    assert report.values == {"ROC AUC": 0.5, "AP": 0.75, "fall-out@1": 0.5} and [*report.intervals] == names
    assert report.intervals["ROC AUC"] == (0.5, 0.5)  # of one query
    np.testing.assert_array_equal(np.isnan(report.per_query["ROC AUC"]), [False, True, True])
    np.testing.assert_array_equal(np.isnan(report.per_query["AP"]), [False, False, True])
    assert "only relevant rows: 1." in report.notes[1] and "left out of ROC AUC, fall-out@1" in report.notes[1]
    assert "left out of ROC AUC" not in " ".join(evaluate_scores(np.zeros(6), table, metrics=["AP"], intervals=0).notes)


def test_a_metric_that_is_asked_for_twice_is_measured_once():
    report = evaluate_scores([2.0, 1.0, 0.0], table_of([1, 0, 1]), metrics=["AP", "ROC AUC", "AP"], intervals=5)
    assert [*report.values] == [*report.intervals] == ["AP", "ROC AUC"]


def test_what_is_lower_for_better_scores_chooses_nothing():
    with pytest.raises(ValueError, match="fall-out@1 is lower for better scores"):
        values_of([2.0, 1.0], table_of([1, 0], [0, 0]), ["AP", "fall-out@1"])


def test_a_metric_is_absent_if_no_query_has_both_kinds_of_rows():
    table = table_of([1, 1, 0], [0, 0, 1])
    report = evaluate_scores(np.zeros(3), table, metrics=["ROC AUC", "AP"], intervals=20)
    assert report.values == {"AP": 1.0} and [*report.intervals] == ["AP"]
    with pytest.raises(ValueError, match="ROC AUC has no value"):
        values_of(np.zeros(3), table, ["AP", "ROC AUC"])


def test_graded_lists_without_an_irrelevant_document_are_left_out_of_roc_auc():
    queries, corpus = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    both = evaluate_graded(queries, corpus, [{0: 1}, {0: 1, 1: 2}], metrics=["ROC AUC", "AP"], intervals=20)
    assert both.values == {"ROC AUC": 1.0, "AP": 1.0} and both.intervals["ROC AUC"] == (1.0, 1.0)
    assert both.per_query["ROC AUC"].tolist() == [1.0, 0.0] and "only relevant documents: 1." in both.notes[0]
    alone = evaluate_graded(queries[:1], corpus, [{0: 1, 1: 2}], metrics=["ROC AUC", "AP"])
    assert [*alone.values] == [*alone.intervals] == ["AP"]


def test_equal_scores_never_look_good_whatever_the_order_of_the_rows():
    relevance = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0] * 2)
    query = torch.arange(2).repeat_interleave(5)
    found = evaluate_scores(
        torch.zeros(10), table_of(relevance, query), metrics=["MRR", "P@2", "AP"], intervals=0
    ).values
    assert found == {"MRR": 0.25, "P@2": 0.0, "AP": 0.4}
    one = evaluate_scores(torch.zeros(10), table_of(relevance), metrics=["P@5", "ROC AUC"], intervals=0).values
    assert one == {"P@5": 0.0, "ROC AUC": 0.5}


# ----------------------------------------------------------------------------------------------------------- the report


@pytest.mark.parametrize("with_queries", [False, True])
def test_a_report_comes_back_from_json(with_queries, tmp_path):
    scores, relevance, query = graded(2)
    report = evaluate_scores(scores, table_of(relevance, query if with_queries else None), intervals=20)
    report.to_json(tmp_path / "report.json")
    assert ScoreReport.from_json(tmp_path / "report.json") == report
    assert str(ScoreReport.from_json(report.to_json())) == str(report)


@pytest.mark.parametrize("damage", ["{}", "[]", "{", '{"values": 3}'])
def test_a_damaged_report_is_refused(damage, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        ScoreReport.from_json(path)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused_with_its_row(bad):
    scores, relevant = drawn(20, 0)
    scores[7] = bad
    with pytest.raises(ValueError, match=r"row 7.*1 of 20"):
        evaluate_scores(scores, table_of(relevant))


def test_every_metric_of_a_report_has_a_meaning_and_a_definition():
    for name in ("AP", "ROC AUC", "ROC AUC@FPR=0.05", "P@100", "Recall@7", "NDCG@10", "MRR"):
        assert measures.meaning(name) and measures.definition(name)
    assert "0.05" in measures.meaning("ROC AUC@FPR=0.05")


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(ValueError, match="0 of the 3 rows"):
        evaluate_scores([1.0, 2.0, 3.0], table_of([0, 0, 0]))
    with pytest.raises(ValueError, match="3 of the 3 rows"):
        evaluate_scores([1.0, 2.0, 3.0], table_of([1, 1, 1]))
    with pytest.raises(ValueError, match="'P@9{30}' ends in a list length and must be an integer <= "):
        evaluate_scores([1.0, 2.0, 3.0], table_of([1, 0, 0]), metrics=["P@" + "9" * 30])
    with pytest.raises(ValueError, match="no rows"):
        evaluate_scores([], ScoreTable.of(np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int)))
    with pytest.raises(ValueError, match="none of the 2 queries"):
        evaluate_scores([1.0, 2.0, 3.0], table_of([0, 0, 0], [0, 0, 1]))
    with pytest.raises(ValueError, match=r"3 rows.*\(2,\)"):
        evaluate_scores([1.0, 2.0], table_of([0, 1, 0]))
    for name in ("AUC", "P@0", "P@-1", "ROC AUC@FPR=0", "NDCG@10"):
        with pytest.raises(ValueError, match=re.escape(name)):
            evaluate_scores([1.0, 2.0], table_of([0, 1]), metrics=[name])
    for names in ([], "AP", [3]):
        with pytest.raises(ValueError, match="metrics must be a list of at least one metric"):
            evaluate_scores([1.0, 2.0], table_of([0, 1]), metrics=names)


# --------------------------------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize("steps", [None, 3])
def test_curves_pass_through_what_every_threshold_finds(steps):
    scores, relevant = drawn(80, 1, steps)
    curves = curves_of(scores, relevant)
    at_thresholds = [scores >= threshold for threshold in np.unique(scores)]
    rates = {(float(above[~relevant].mean()), float(above[relevant].mean())) for above in at_thresholds}
    gains = {(float(above.mean()), float(above[relevant].mean())) for above in at_thresholds}
    precisions = {(float(above[relevant].mean()), float(relevant[above].mean())) for above in at_thresholds}
    for curve, possible in ((curves.roc, rates), (curves.gain, gains), (curves.precision_recall, precisions)):
        for x, y in curve.points:
            assert (x, y) == (0, 0) or any(math.dist((x, y), point) < 1e-12 for point in possible)
    area = np.trapezoid if hasattr(np, "trapezoid") else np.trapz
    assert float(area(curves.roc.y, curves.roc.x)) == pytest.approx(slow("ROC AUC", scores, relevant))


def test_a_long_curve_is_thinned_and_keeps_its_ends_and_nearly_its_area():
    scores, relevant = drawn(20000, 0)
    long, thin = (curves_of(scores, relevant, most=most) for most in (10**6, 200))
    for whole, some in ((long.roc, thin.roc), (long.gain, thin.gain), (long.precision_recall, thin.precision_recall)):
        assert len(some.x) <= 200 < len(whole.x)
        assert some.points[0] == whole.points[0] and some.points[-1] == whole.points[-1]
        np.testing.assert_allclose(np.interp(0.5, some.x, some.y), np.interp(0.5, whole.x, whole.y), atol=0.01)


def test_scores_that_are_all_equal_are_said_of_a_list_and_of_queries():
    relevance, query = torch.tensor([1.0, 0, 0, 1, 0, 1]), torch.tensor([0, 0, 1, 1, 1, 2])
    for given in (None, query):
        table = JudgedRows(relevance, given)
        report = evaluate_scores(np.full(6, 0.25), table, intervals=0)
        assert "All 6 scores are 0.25: the rows have no order." in report.notes and report.notes[0] in str(report)
        assert "scores are" not in " ".join(evaluate_scores(np.arange(6.0), table, intervals=0).notes)
    some = evaluate_scores([1.0, 0.0, 2.0, 2.0, 2.0, 5.0], JudgedRows(relevance, query), intervals=0)
    assert "All scores are equal in 1 of 2 queries of several rows." in some.notes
