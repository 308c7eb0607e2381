"""The same rows have the same value of a metric through every door, because one function computes it."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rankgrad import metrics, trec
from rankgrad.evaluation import METRICS, evaluate, measures
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.scores import JudgedRows
from rankgrad.scores.evaluation import evaluate_scores, values_of
from rankgrad.scores.one_list import RankedRows
from rankgrad_workbench.cli import main
from rankgrad_workbench.trec.metrics import KINDS
from rankgrad_workbench.trec.names import metrics_of

QUERIES, ROWS = 7, 25
GENERATOR = np.random.default_rng(0)
SCORES = GENERATOR.permutation(QUERIES * ROWS).reshape(QUERIES, ROWS) / 64.0  # no ties, exact in float32
GRADES = GENERATOR.integers(0, 4, (QUERIES, ROWS))
NAMES = ("NDCG@10", "NDCG-exp2@10", "NDCG", "AP", "MRR", "MRR@3", "P@5", "Recall@5", "R@2", "R-precision")
BINARY = tuple(name for name in NAMES if not name.startswith("NDCG"))
RUN = {str(q): {f"d{i}": float(SCORES[q, i]) for i in range(ROWS)} for q in range(QUERIES)}
QRELS = {str(q): {f"d{i}": int(GRADES[q, i]) for i in range(ROWS)} for q in range(QUERIES)}
TREC = {
    **{"NDCG@10": "ndcg_cut_10", "NDCG-exp2@10": "ndcg_cut_10(dcg=exp-log2)", "NDCG": "ndcg", "AP": "map"},
    **{"MRR": "recip_rank", "MRR@3": "recip_rank_3", "P@5": "P_5", "Recall@5": "recall_5", "R@2": "success_2"},
    "R-precision": "Rprec",
}
QUERY = np.repeat(np.arange(QUERIES), ROWS)
TABLE = JudgedRows(torch.tensor(GRADES.ravel(), dtype=torch.float32), torch.tensor(QUERY))


def in_python() -> dict[str, float]:
    scores, gains = torch.tensor(SCORES), torch.tensor(GRADES).double()
    hits = gains > 0
    values = {
        "NDCG@10": metrics.ndcg(scores, gains, k=10),
        "NDCG-exp2@10": metrics.ndcg(scores, gains, k=10, gain="exp2"),
        "NDCG": metrics.ndcg(scores, gains),
        "AP": metrics.average_precision(scores, hits),
        "MRR": metrics.reciprocal_rank(scores, hits),
        "MRR@3": metrics.reciprocal_rank(scores, hits, k=3),
        "P@5": metrics.precision_at_k(scores, hits, k=5),
        "Recall@5": metrics.item_recall_at_k(scores, hits, k=5),
        "R@2": metrics.recall_at_k(scores, hits, k=2),
        "R-precision": metrics.r_precision(scores, hits),
    }
    return {name: float(value.mean()) for name, value in values.items()}


def of_embeddings() -> dict[str, float]:
    report = evaluate(
        torch.eye(QUERIES).double(),
        torch.eye(QUERIES, dtype=torch.bool),
        ref_embeddings=torch.tensor(SCORES.T.copy()),
        ref_labels=torch.tensor(GRADES.T > 0),
        similarity="inner product",
        metrics=[*METRICS, *[name for name in BINARY if "@" in name]],
        intervals=0,
    )
    return {name: report.values[name] for name in BINARY}


def of_gains() -> dict[str, float]:
    gains = [dict(enumerate(row.tolist())) for row in GRADES]
    sides = torch.eye(QUERIES).double(), torch.tensor(SCORES.T.copy())
    return evaluate_graded(*sides, gains, similarity="inner product", metrics=NAMES, intervals=0).values


def of_runs() -> dict[str, float]:
    values = trec.evaluate({"a": RUN}, QRELS, list(TREC.values()), intervals=0).values["a"]
    return {name: values[theirs] for name, theirs in TREC.items()}


def of_rows() -> dict[str, float]:
    return evaluate_scores(SCORES.ravel(), TABLE, metrics=NAMES, intervals=0).values


def of_lightgbm() -> dict[str, float]:
    lightgbm = pytest.importorskip("lightgbm")
    from rankgrad.adapters.lightgbm import metrics as wanted

    data = lightgbm.Dataset(np.zeros((GRADES.size, 1)), GRADES.ravel(), group=[ROWS] * QUERIES, params={"verbose": -1})
    return {name: value for name, value, _ in wanted(*NAMES)(SCORES.ravel(), data.construct())}


def of_xgboost() -> dict[str, float]:
    xgboost = pytest.importorskip("xgboost")
    from rankgrad.adapters.xgboost import metrics as wanted

    data = xgboost.DMatrix(np.zeros((GRADES.size, 1)), GRADES.ravel(), group=[ROWS] * QUERIES)
    return dict(wanted(*NAMES)(SCORES.ravel(), data))


def of_scikit_learn() -> dict[str, float]:
    sklearn = pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator, RegressorMixin

    from rankgrad.adapters.sklearn import scorer

    class Given(RegressorMixin, BaseEstimator):
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return rows[:, 0]

    rows = SCORES.reshape(-1, 1)
    with sklearn.config_context(enable_metadata_routing=True):
        return {name: scorer(name)(Given(), rows, GRADES.ravel(), query=QUERY) for name in NAMES}


DOORS: dict[str, Callable[[], dict[str, float]]] = {
    **{"embeddings": of_embeddings, "gains": of_gains, "runs": of_runs, "rows": of_rows},
    **{"LightGBM": of_lightgbm, "XGBoost": of_xgboost, "scikit-learn": of_scikit_learn},
}


@pytest.mark.parametrize("door", DOORS)
def test_the_same_rows_have_the_same_values_through_every_door(door):
    expected, found = in_python(), DOORS[door]()
    assert set(found) <= set(expected)
    assert len(found) >= len(BINARY)
    for name, value in found.items():
        assert value == pytest.approx(expected[name], abs=1e-12), name


PATCHED = {
    "ndcg": ("NDCG@10", "NDCG-exp2@10", "NDCG"),
    "average_precision": ("AP",),
    "reciprocal_rank": ("MRR", "MRR@3"),
    "precision_at_k": ("P@5",),
    "item_recall_at_k": ("Recall@5",),
    "recall_at_k": ("R@2",),
    "r_precision": ("R-precision",),
}


@pytest.mark.parametrize("function", PATCHED)
def test_no_metric_is_computed_in_two_places(function, monkeypatch):
    """Where the one function returns another value, every door has it, but that of run files, which needs no torch."""
    true = getattr(metrics, function)
    monkeypatch.setattr(metrics, function, lambda *given, **options: 0 * true(*given, **options) + 0.125)
    for door, read in DOORS.items():
        for name, value in ({} if door == "runs" else read()).items():
            assert (value == 0.125) == (name in PATCHED[function]), (door, name)


def test_metrics_of_one_list_are_those_of_the_library(monkeypatch):
    rows = RankedRows.of(SCORES.ravel(), GRADES.ravel() > 2).groups()
    lists = torch.tensor(SCORES.reshape(1, -1)), torch.tensor(GRADES.reshape(1, -1) > 2)
    functions = {
        "AP": ("average_precision", {}),
        "ROC AUC": ("partial_roc_auc", {"fpr": 1}),
        "ROC AUC@FPR=0.1": ("partial_roc_auc", {"fpr": 0.1}),
        "P@9": ("precision_at_k", {"k": 9}),
        "Recall@9": ("item_recall_at_k", {"k": 9}),
    }
    for name, (function, options) in functions.items():
        assert rows.values(name)[0] == pytest.approx(float(getattr(metrics, function)(*lists, **options)), abs=1e-12)
    for name, (function, _) in functions.items():
        with monkeypatch.context() as patch:
            patch.setattr(metrics, function, lambda *_, **__: torch.tensor([0.125], dtype=torch.float64))
            assert rows.values(name)[0] == 0.125


def test_a_report_of_torchmetrics_is_that_of_the_library():
    pytest.importorskip("torchmetrics")
    from rankgrad.adapters.torchmetrics import RetrievalReport

    points, labels = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(40) % 4
    names = ["NDCG@10", "P@5", "Recall@5", "MRR@3"]
    metric = RetrievalReport(similarity="inner product", metrics=[*METRICS, *names])
    metric.update(points, labels)
    hits, valid = labels[:, None] == labels, ~torch.eye(40, dtype=torch.bool)
    lists = points @ points.T, hits, valid
    expected = {
        "AP": metrics.average_precision(*lists),
        "NDCG@10": metrics.ndcg(*lists, k=10),
        "P@5": metrics.precision_at_k(lists[0], hits, 5, valid),
        "Recall@5": metrics.item_recall_at_k(lists[0], hits, 5, valid),
        "MRR@3": metrics.reciprocal_rank(*lists, k=3),
        "ROC AUC": metrics.roc_auc(*lists),
    }
    found = metric.compute()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(float(value.mean()), abs=1e-12)


def test_the_command_prints_the_same_value_of_the_same_rows_in_a_run_file(tmp_path, capsys):
    run, qrels = tmp_path / "a.csv", tmp_path / "qrels.json"
    with run.open("w", newline="", encoding="utf-8") as file:
        rows = [(query, name, score) for query, listed in RUN.items() for name, score in listed.items()]
        csv.writer(file).writerows([("query", "document", "score"), *rows])
    qrels.write_text(json.dumps(QRELS), encoding="utf-8")
    command = ["evaluate", str(run), "--qrels", str(qrels), "-m", "nDCG@10,ndcg_burges@10", "--bootstrap", "0"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    expected = in_python()
    assert "gains grade" in printed and "gains 2^grade - 1" in printed
    assert f"{expected['NDCG@10']:.4f}" in printed and f"{expected['NDCG-exp2@10']:.4f}" in printed


def by_the_definition(name: str) -> float:
    """NDCG@10 of the rows as the page explains it."""
    total = 0.0
    for scores, grades in zip(SCORES, GRADES, strict=True):
        gain = [2.0**grade - 1 for grade in grades] if "exp2" in name else grades.tolist()
        order = sorted(range(ROWS), key=lambda row: -scores[row])[:10]
        best = sorted(gain, reverse=True)[:10]
        dcg = [sum(g / math.log2(2 + place) for place, g in enumerate(of)) for of in ([gain[i] for i in order], best)]
        total += dcg[0] / dcg[1] / QUERIES
    return total


@pytest.mark.parametrize(("name", "gain"), [("NDCG@10", "grade"), ("NDCG-exp2@10", "2^grade - 1")])
def test_name_meaning_definition_and_report_say_the_gain_of_the_value(name, gain):
    assert in_python()[name] == pytest.approx(by_the_definition(name), abs=1e-12)
    assert measures.named(name) == f"{name}, gains {gain}"
    assert f"gains {gain}" in measures.meaning(name)
    assert f"Sum of {gain} /" in measures.definition(name).replace("(", "").replace(")", "")
    report = evaluate_scores(SCORES.ravel(), TABLE, metrics=[name], intervals=0)
    assert f"{name}, gains {gain}" in str(report)
    assert f"{100 * report.values[name]:.1f} %" in str(report)


def test_without_names_every_door_for_grades_has_ndcg_with_the_grades_as_gains():
    expected = in_python()["NDCG@10"]
    assert evaluate_scores(SCORES.ravel(), TABLE, intervals=0).values["NDCG@10"] == pytest.approx(expected)
    assert trec.evaluate({"a": RUN}, QRELS, intervals=0).values["a"]["ndcg_cut_10"] == pytest.approx(expected)
    assert values_of(SCORES.ravel(), TABLE, ["NDCG@10"])["NDCG@10"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(("ndcg_cut_10", "NDCG@10"), ("nDCG@10", "NDCG@10"), ("recall_100", "Recall@100"), ("success@5", "R@5")),
        *(("map", "AP"), ("recip_rank", "MRR"), ("Rprec", "R-precision"), ("ndcg_burges@10", "NDCG-exp2@10")),
    ],
)
def test_names_of_trec_eval_and_ranx_are_answered_with_ours(theirs, ours):
    with pytest.raises(ValueError, match=rf"did you mean '{ours}'\?"):
        evaluate_scores(SCORES.ravel(), TABLE, metrics=[theirs], intervals=0)


@pytest.mark.parametrize(("name", "meant"), [("ndgc@10", "ndcg_10"), ("recal_5", "recall_5"), ("bpreff", "bpref")])
def test_a_misspelt_measure_of_runs_is_answered_with_the_one_that_is_meant(name, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        metrics_of([name])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hit_rate", "'hit_rate' needs a list length, an integer >= 1, after its name"),
        ("iprec", "'iprec' needs a recall, 0 to 1, after its name"),
        ("f1@10", "'f1@10' needs no number after its name; got 10"),
        ("mAP@R", "unknown metric 'mAP@R'"),
    ],
)
def test_a_measure_that_lacks_a_number_says_so(name, message):
    with pytest.raises(ValueError, match=message):
        metrics_of([name])


def test_every_name_that_a_message_offers_is_understood():
    names = {name for kind in KINDS.values() for name in kind.words if len(name) > 3}
    spoilt = [name[:-1] + "x" + end for name in sorted(names) for end in ("", "@10", "@0.5")]
    for name in spoilt:
        with pytest.raises(ValueError) as raised:
            metrics_of([name])
        meant = re.search(r"did you mean '([^']+)'", str(raised.value))
        assert meant is None or metrics_of([meant[1]])


def test_p_at_k_says_its_highest_possible_value():
    few = np.zeros(400)
    few[:19] = 1
    scores = np.linspace(1, 0, 400)
    assert any("P@100 19.0 %" in note for note in evaluate_scores(scores, JudgedRows(torch.tensor(few))).notes)
    query = torch.arange(400) // 200
    report = evaluate_scores(scores, JudgedRows(torch.tensor(np.roll(few, -9)), query), intervals=0)
    assert any("P@10 95.0 %" in note for note in report.notes)  # 10 and 9 of the first 10
    points, labels = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) // 3
    assert any("P@5 40.0 %" in note for note in evaluate(points, labels, metrics=[*METRICS, "P@5"], intervals=0).notes)


def test_negative_grades_are_not_judged_in_any_measure():
    judged = {"q": {"a": 1, "b": -1, "c": 0, "d": -2}}
    found = trec.evaluate({"r": {"q": dict.fromkeys("abcdxy", 1.0)}}, judged, ["judged", "judged_2"], intervals=0)
    assert found.values["r"] == {"judged": 2 / 6, "judged_2": 0.0}  # x and y come first, then d, c, b, a
