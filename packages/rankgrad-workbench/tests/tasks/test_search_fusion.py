"""The fusion of a model with BM25: the validation queries choose how much the model counts."""

from __future__ import annotations

import numpy as np
import pytest
from small_searches import beir, settings

from rankgrad import trec
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import systems, task
from rankgrad_workbench.tasks.search.division import collection_of
from rankgrad_workbench.tasks.search.encoders import Found
from rankgrad_workbench.tasks.search.evaluation import SearchReport, as_run, main_values
from rankgrad_workbench.tasks.search.saved import evaluate_run

pytest.importorskip("bm25s")
FOLDED = ("data.test_fraction=0.2", "data.validation=0.5", "evaluation.select=true")


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = beir(tmp_path_factory.mktemp("data") / "wings")
    found = collection_of(task.settings_of(compose(settings(folder, *FOLDED))))
    assert len(found.rows("val"))
    return found


def lists(collection, depth, right):
    """Lists of a model that knows all relevant documents of the validation queries, or only irrelevant ones."""
    rows, qrels = collection.rows("val"), collection.qrels("val")
    found = []
    for row in rows.tolist():
        grades = qrels[collection.queries.names[row]]
        known = [
            collection.documents.names.index(name) for name in sorted(grades, key=grades.__getitem__, reverse=True)
        ]
        others = [at for at in range(len(collection.documents)) if at not in known]
        found.append(([*known, *others] if right else others)[:depth])
    return Found(np.array(found), np.tile(np.arange(depth, 0, -1.0), (len(rows), 1)))


def test_a_model_that_is_worse_than_bm25_counts_little_and_one_that_is_better_much(collection):
    good, bad = (systems.chosen_weight(lists(collection, 20, right), collection, 20) for right in (True, False))
    assert bad < 1 / 4 < good


def test_the_weight_is_the_best_of_all_by_the_validation_queries(collection):
    rows, model = collection.rows("val"), lists(collection, 20, True)
    words = systems.by_words(collection, rows, 20)

    def value(weight):
        made = systems.fused({"a": model, "b": words}, {"a": weight, "b": 1.0}, collection, rows, 20)
        return main_values(made, collection, rows, "val").mean()

    assert value(systems.chosen_weight(model, collection, 20)) == max(map(value, systems.WEIGHTS))


def test_weights_are_those_of_the_function_for_runs(collection):
    rows, model = collection.rows("val"), lists(collection, 20, False)
    words = systems.by_words(collection, rows, 20)
    made = as_run(
        systems.fused({"a": model, "b": words}, {"a": 0.25, "b": 1.0}, collection, rows, 20), collection, rows
    )
    runs = {name: as_run(found, collection, rows) for name, found in (("model", model), ("words", words))}
    want = trec.fuse(runs, depth=20, weights={"model": 0.25, "words": 1.0})
    found = trec.evaluate({"one": made, "two": want}, collection.qrels("val"), ["nDCG@10"], intervals=0)
    assert found.values["one"] == found.values["two"]


def test_few_queries_choose_nothing(tmp_path):
    run = task.train(compose(settings(beir(tmp_path / "wings"), *FOLDED, f"out={tmp_path / 'run'}")), quiet=True)
    assert SearchReport.from_json(run.after).settings["weight"] is None
    assert "have chosen this weight" not in run.page.read_text(encoding="utf-8")


def test_a_run_says_the_weight_and_takes_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "FEWEST", 20)
    folder = beir(tmp_path / "wings")
    run = task.train(compose(settings(folder, *FOLDED, f"out={tmp_path / 'run'}")), quiet=True)
    report = SearchReport.from_json(run.after)
    weight = report.settings["weight"]
    assert weight in systems.WEIGHTS
    assert f"In the fusion the model has the weight {weight:g}, and BM25 has 1." in report.notes
    assert f"counts {weight:g} times" in run.page.read_text(encoding="utf-8")
    again = evaluate_run(run.folder)
    assert again.systems["trained + BM25"]["per_query"] == report.systems["trained + BM25"]["per_query"]
