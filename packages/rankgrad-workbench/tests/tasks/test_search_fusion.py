"""Fusions of models with BM25, and the system that is handed over: the validation queries choose both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_searches import beir, settings

from rankgrad_workbench.settings import ConfigError, compose
from rankgrad_workbench.tasks.search import systems, task
from rankgrad_workbench.tasks.search.bm25 import Words
from rankgrad_workbench.tasks.search.division import collection_of
from rankgrad_workbench.tasks.search.encoders import Found
from rankgrad_workbench.tasks.search.evaluation import SearchReport
from rankgrad_workbench.tasks.search.fusion import FEATURES, L2, WEIGHTS, JoinedLists
from rankgrad_workbench.tasks.search.saved import evaluate_run

pytest.importorskip("bm25s")
FOLDED = ("data.test_fraction=0.2", "data.validation=0.5", "evaluation.select=true")


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = beir(tmp_path_factory.mktemp("data") / "wings")
    found = collection_of(task.settings_of(compose(settings(folder, *FOLDED))))
    assert len(found.rows("val")) >= systems.FEWEST
    return found


def of_run(*more):
    return task.settings_of(compose(settings("parts", *FOLDED, "evaluation.depth=20", *more)))


def lists(collection, depth, right):
    """JoinedLists of a model that knows all relevant documents of the validation queries, or nothing."""
    rows, qrels, rng = collection.rows("val"), collection.qrels("val"), np.random.default_rng(0)
    found = []
    for row in rows.tolist():
        grades = qrels[collection.queries.names[row]]
        known = [
            collection.documents.names.index(name) for name in sorted(grades, key=grades.__getitem__, reverse=True)
        ]
        others = [at for at in range(len(collection.documents)) if at not in known]
        found.append(([*known, *others] if right else rng.permutation(len(collection.documents)).tolist())[:depth])
    return Found(np.array(found), np.tile(np.arange(depth, 0, -1.0), (len(rows), 1)))


def slow_features(first, second, depth):
    """Document -> its features, as the page of the module says them, for one query."""
    found = {}
    for document in {each for documents, _ in (first, second) for each in documents if each >= 0}:
        columns = []
        for documents, scores in (first, second):
            there = [each for each in documents if each >= 0]
            own = np.array(scores[: len(there)], float)
            standard = (own - own.mean()) / (own.std() or 1) if there else np.zeros(1)
            rank = 1 + sum(own > own[there.index(document)]) if document in there else None
            columns.append(
                (standard.min(), 0.0, 0.0)
                if rank is None
                else (standard[there.index(document)], 60 / (60 + rank), np.log((depth + 1) / rank) / np.log(depth + 1))
            )
        row = [value for pair in zip(*columns, strict=True) for value in pair]
        found[document] = [*row, float(document in first[0] and document in second[0])]
    return found


def test_features_are_those_of_the_definition_also_for_short_and_empty_lists():
    first = Found(np.array([[4, 2, 9], [1, -1, -1], [-1, -1, -1]]), np.array([[0.9, 0.5, 0.1], [0.3, 0, 0], [0, 0, 0]]))
    second = Found(np.array([[2, 7, -1], [5, 1, 3], [6, 8, -1]]), np.array([[12.0, 3, 0], [9, 9, 9], [2, 1, 0]]))
    made = JoinedLists.of(first, second, 3)
    for row in range(3):
        want = slow_features(*((each.document[row].tolist(), each.score[row]) for each in (first, second)), 3)
        there = made.document[row][made.document[row] >= 0].tolist()
        assert there == sorted(want)
        for at, document in enumerate(there):
            np.testing.assert_allclose(made.feature[row, at], want[document])
    ranked = made.ranked([0, 0, 1, 1, 0, 0, 0], 5)  # reciprocal rank fusion
    assert ranked.document.tolist() == [[2, 4, 7, 9, -1], [1, 3, 5, -1, -1], [6, 8, -1, -1, -1]]
    assert ranked.score[0, 0] == pytest.approx(60 / 62 + 60 / 61)


def test_the_weights_minimise_the_loss_that_the_module_names():
    rng = np.random.default_rng(0)
    first, second = (
        Found(np.argsort(rng.random((30, 12)))[:, :8], -np.sort(-rng.random((30, 8)) * 3, axis=1)) for _ in range(2)
    )
    made = JoinedLists.of(first, second, 8)
    grades = np.where(made.document >= 0, rng.integers(0, 3, made.document.shape), 0)

    def loss(weights):
        total = L2 * (weights**2).sum()
        for row in range(30):
            there, grade = made.document[row] >= 0, grades[row]
            score = made.feature[row][there] @ weights
            logs = score - np.log(np.exp(score).sum())
            total -= (grade[there] / grade[there].sum() * logs).sum() / 30
        return total

    found = made.learned(grades)
    for column in range(len(FEATURES)):
        for step in (-0.01, 0.01):
            other = found.copy()
            other[column] += step
            assert loss(other) > loss(found)
    # weights of a query are learned on other queries: its own judgements change nothing
    changed = grades.copy()
    changed[3] = np.roll(changed[3], 1)
    one, other = made.held_out(grades), made.held_out(changed)
    assert np.array_equal(one[3], other[3]) and not np.array_equal(one[4], other[4])
    assert np.array_equal(made.learned(0 * grades), WEIGHTS)


def test_the_first_system_that_is_not_surely_worse_is_handed_over():
    rng = np.random.default_rng(0)
    had = rng.random(200)
    assert systems.least_change({"had": had, "new": had + np.tile([0.1, -0.099], 100)}) == "had"
    better = had + 0.1 * rng.random(200)
    assert systems.least_change({"had": had, "new": better, "newer": better}) == "new"
    assert systems.least_change({"had": better, "new": had}) == "had"


@pytest.mark.parametrize(("right", "handed_over"), [(True, "trained"), (False, "BM25")])
def test_a_model_is_handed_over_if_it_is_better_than_bm25(collection, right, handed_over):
    words = Words("english")
    found = systems.choose({"trained": lambda: lists(collection, 20, right)}, collection, of_run(), words)
    assert found.system == handed_over
    # it is fused with weights that other queries chose, so that a model that knows nothing does not spoil it
    assert found.values["trained + BM25"] > found.values["BM25"] - 0.05


def test_constants_of_bm25_are_chosen_or_given(collection):
    plain = systems.chosen_words(of_run("bm25.language=null", "bm25.k1=2", "bm25.b=0.1"), collection)
    assert plain == Words(None, 2, 0.1)
    chosen = systems.chosen_words(of_run("bm25.k1=1"), collection)
    assert chosen.k1 == 1 and chosen.b in systems.B
    with pytest.raises(ConfigError, match="bm25: b is"):
        of_run("bm25.b=3")


def test_few_queries_choose_nothing(tmp_path):
    words = settings(beir(tmp_path / "wings"), "data.validation=0.1", f"out={tmp_path / 'run'}")
    run = task.train(compose(words), quiet=True)
    chosen = SearchReport.from_json(run.after).settings["chosen"]
    assert chosen["system"] is None and chosen["weights"] == {"trained + BM25": list(WEIGHTS)}
    assert "which the validation queries chose" not in run.page.read_text(encoding="utf-8")


def test_a_run_says_what_was_chosen_and_takes_it_again(tmp_path):
    folder = beir(tmp_path / "wings")
    run = task.train(compose(settings(folder, *FOLDED, f"out={tmp_path / 'run'}")), quiet=True)
    report = SearchReport.from_json(run.after)
    chosen = report.settings["chosen"]
    assert chosen["system"] in chosen["values"] and len(chosen["weights"]["trained + BM25"]) == len(FEATURES)
    assert report.verdict[0].startswith("Use ") and report.verdict[0] in run.page.read_text(encoding="utf-8")
    again = evaluate_run(run.folder)
    assert again.systems["trained + BM25"]["per_query"] == report.systems["trained + BM25"]["per_query"]
    content = json.loads(run.after.read_text())
    content["settings"]["chosen"]["weights"]["trained + BM25"] = [1.0]
    run.after.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="a fusion has 7 weights"):
        evaluate_run(run.folder)
    content["settings"]["chosen"] |= {"system": "a system of somebody else", "weights": {}}
    run.after.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="of 'a system of somebody else'"):
        evaluate_run(run.folder)


def test_many_settings_of_bm25_read_the_documents_once(collection, monkeypatch):
    made, before = [], systems.tokens_of
    monkeypatch.setattr(systems, "tokens_of", lambda *args: made.append(args) or before(*args))
    whole = systems.chosen_words(of_run(), collection)
    assert len(made) == 1
    values = {
        how: systems.main_values(
            systems.by_words(collection, collection.rows("val"), 20, how), collection, collection.rows("val"), "val"
        ).mean()
        for how in (Words(whole.language, k, b) for k in systems.K1 for b in systems.B)
    }
    assert values[whole] == pytest.approx(max(values.values()), abs=0.05)
