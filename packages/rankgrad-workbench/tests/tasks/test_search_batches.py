"""What is in a batch of a search, and what is mined for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rankgrad.batches.epochs import EpochList
from rankgrad_workbench.settings import compose, plain, typed
from rankgrad_workbench.tasks.search.batches import QueryLists, mine
from rankgrad_workbench.tasks.search.collection import Collection, Judged, NamedTexts
from rankgrad_workbench.tasks.search.encoders import Found
from rankgrad_workbench.tasks.search.settings import Mining, SearchBatches, SearchSettings

DOCUMENTS = ("red", "blue", "red", "green", "", "grey", "pink", "black")


def collection(pairs: list[tuple[int, int, float]], queries: int = 3) -> Collection:
    query, document, grade = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    names = tuple(f"d{row}" for row in range(len(DOCUMENTS)))
    asked = NamedTexts(tuple(f"q{row}" for row in range(queries)), tuple(f"what {row}" for row in range(queries)))
    judged = Judged(query, document, grade.astype(float), np.full(len(query), np.nan))
    return Collection("colours", NamedTexts(names, DOCUMENTS), asked, judged, np.array(["train"] * queries, object))


def lists(pairs: list[tuple[int, int, float]], graded: bool = False, **settings: int | None) -> QueryLists:
    usual = {"queries_per_batch": 3, "positives_per_query": None, "negatives_per_query": 2}
    return QueryLists(collection(pairs), SearchBatches(**{**usual, **settings}), 0, graded)


PAIRS = [(0, 0, 1), (0, 3, 2), (1, 3, 1), (1, 1, 1), (2, 4, 1), (2, 5, 1), (2, 6, 0)]


def test_a_query_with_hundreds_of_relevant_documents_brings_some_of_them_by_default():
    made = collection([(0, row, 1) for row in range(8)])
    documents = NamedTexts(tuple(map(str, range(500))), tuple(f"no {row}" for row in range(500)))
    judged = Judged(*(np.full(500, value) for value in (0, 0, 1.0, np.nan)))
    many = replace(made, documents=documents, judged=replace(judged, document=np.arange(500)))
    settings = typed(SearchSettings, plain(compose(["task=search", "data.root=x"]))).sampler
    drawn = [QueryLists(many, settings, 0, False).__getitems__(EpochList([0], epoch)) for epoch in range(2)]
    assert [len(batch.documents) for batch in drawn] == [64, 64] and drawn[0].documents != drawn[1].documents


def test_a_document_that_answers_two_queries_is_relevant_to_both_and_comes_once():
    batch = lists(PAIRS).__getitems__([0, 1, 2])
    assert sorted(batch.documents) == ["blue", "green", "grey", "pink", "red"]
    of = {name: place for place, name in enumerate(batch.documents)}
    assert batch.relevance[:, of["green"]].tolist() == [True, True, False]
    assert batch.relevance.sum(1).tolist() == [2, 2, 1]


def test_a_known_relevant_document_is_never_a_wrong_one_even_if_it_was_not_drawn():
    made = lists(PAIRS, positives_per_query=1)
    for epoch in range(8):
        batch = made.__getitems__(EpochList([0, 1, 2], epoch))
        for row, wanted in enumerate([{"red", "green"}, {"green", "blue"}, {"grey"}]):
            assert {batch.documents[place] for place in batch.relevance[row].nonzero().flatten()} <= wanted
            assert not {batch.documents[place] for place in (~batch.relevance[row]).nonzero().flatten()} & wanted


def test_a_copy_of_a_relevant_document_is_not_valid_and_grades_are_kept():
    made = lists([*PAIRS, (2, 2, 1)], graded=True)  # d2 has the text of d0
    batch = made.__getitems__([0, 1, 2])
    red = [place for place, text in enumerate(batch.documents) if text == "red"]
    assert batch.relevance[0, red].tolist() == [1, 0] and batch.valid[0, red].tolist() == [True, False]
    assert batch.valid[1, red].all() and batch.relevance.max() == 2
    assert "" not in batch.documents  # an empty text cannot be found


def test_batches_are_a_function_of_the_epoch():
    made = lists(PAIRS, positives_per_query=1)
    texts = [made.__getitems__(EpochList([0, 1], epoch)).documents for epoch in range(10)]
    assert texts == [made.__getitems__(EpochList([0, 1], epoch)).documents for epoch in range(10)]
    assert len({tuple(each) for each in texts}) > 1


def test_mined_documents_are_neither_judged_nor_copies_nor_near_the_relevant_one():
    made = lists(PAIRS)
    found = Found(
        np.array([[0, 2, 7, 4, 1], [5, 7, 0, 1, -1], [6, 7, 1, 0, 3]]),
        np.array([[9, 8, 7, 3, 2.0], [9, 8, 7, 3, 0], [9, 8, 7, 3, 2]]),
    )
    mined = mine(found, np.array([7.0, 8.2, np.nan]), made, Mining("bm25", None, 1, 4, 0.1))
    assert {query: rows.tolist() for query, rows in mined.items()} == {0: [], 1: [0], 2: [7, 1, 0]}
    made.mined = mined
    assert "black" in made.__getitems__([2]).documents


def test_a_loss_of_a_teacher_sees_its_scores(tmp_path):
    from small_searches import settings, write_lines

    from rankgrad_workbench.tasks.search.task import build

    rows = [
        {"query": f"what {n}", "pos": [f"this {n}"], "neg": [f"that {n}"], "scores": [2.0, -1.0]} for n in range(10)
    ]
    config = compose(settings(write_lines(tmp_path / "a.jsonl", rows), "loss=list_distillation", "mining.by=none"))
    task = build(config, quiet=True)
    batch = task.lists.__getitems__([0, 1])
    assert sorted(batch.scores[~batch.scores.isnan()].tolist()) == [-1, -1, 2, 2]
    before = [weight.clone() for weight in task.encoders.parameters()]
    task.module.training_step(batch, 0).backward()
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in task.encoders.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, task.encoders.parameters(), strict=True))
    assert typed(SearchSettings, plain(config)).mining.by == "none"


def test_a_task_is_made_of_what_was_read_and_says_nothing(tmp_path, capsys, monkeypatch):
    from small_searches import settings

    from rankgrad.losses import ListNetLoss
    from rankgrad_workbench.models.ngrams import ngram_model
    from rankgrad_workbench.tasks.search.encoders import encoders
    from rankgrad_workbench.tasks.search.task import SearchTask, settings_of

    read = settings_of(compose(settings(tmp_path, "mining.by=model", "trainer.max_epochs=null")))
    made = lists(PAIRS)
    monkeypatch.chdir(tmp_path)
    task = SearchTask(read, made, ListNetLoss(), encoders(ngram_model(4, 64), 1, None, None))
    assert task.collection is made.collection and task.epochs >= 30
    assert capsys.readouterr() == ("", "") and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("words", "highest"), [([], 2), (["loss.highest=3"], 3)])
def test_grades_as_probabilities_are_shares_of_the_highest_grade_of_the_data(tmp_path, words, highest):
    from small_searches import beir, settings

    from rankgrad_workbench.tasks.search.task import build

    config, said = compose(settings(beir(tmp_path / "data"), "loss=grade_bce", *words)), []
    task = build(config, quiet=True, say=said.append)
    assert task.module.loss.highest == task.settled["loss"]["highest"] == highest
    assert f"with highest={highest}" in said[-1]
    task.module.training_step(task.lists.__getitems__([0, 1]), 0)
