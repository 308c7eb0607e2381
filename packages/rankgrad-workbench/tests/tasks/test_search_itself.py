"""A query that is itself a document is no answer to itself, for every system; a setting keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from marks import slow_unless
from small_searches import settings, texts, write_lines

from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.batches import QueryLists
from rankgrad_workbench.tasks.search.division import collection_of
from rankgrad_workbench.tasks.search.evaluation import LISTS, SearchReport
from rankgrad_workbench.tasks.search.saved import evaluate_run

pytest.importorskip("bm25s")


def collection(folder: Path, kind: str) -> Path:
    """A collection whose queries are documents of the corpus, too."""
    documents, asked, judged = texts()
    rows = [{"_id": name, "text": text} for name, text in documents.items()]
    for name, text in asked.items():
        if kind == "text":
            rows.append({"_id": f"copy of {name}", "text": f" {text.upper()}"})
        elif kind == "name":  # the argument itself, with a title
            rows.append({"_id": name, "title": "On this", "text": f"{text} so it is"})
        else:  # both are numbered, and the query is in the document
            rows.append({"_id": name[1:], "title": "On this", "text": text})
    number = {name: name[1:] if kind == "number" else name for name in asked}
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", rows)
    write_lines(folder / "queries.jsonl", [{"_id": number[n], "text": t} for n, t in asked.items()])
    lines = [f"{number[q]}\t{d}\t{g}" for q, d, g in judged]
    (folder / "qrels" / "all.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return folder


def is_own(query: str, document: str, kind: str) -> bool:
    return document in (f"copy_of_{query}", f"copy of {query}") if kind == "text" else document == query


@pytest.mark.parametrize("kind", slow_unless({"name"}, ["text", "name", "number"]))
def test_its_own_document_is_in_no_list_and_no_batch(tmp_path, kind, capsys):
    root = collection(tmp_path / "data", kind)
    words = settings(root, f"out={tmp_path / 'run'}", "trainer.max_epochs=1", "mining.by=bm25", "evaluation.depth=5")
    run = task.train(compose(words), quiet=True)
    for file in {*LISTS.values()} - {"before-fusion.trec"}:  # only a pretrained model is fused without training
        rows = [line.split() for line in (run.folder / file).read_text().splitlines()]
        assert rows and not any(is_own(row[0], row[2], kind) for row in rows)
        assert max(int(row[3]) for row in rows) in (4, 5)  # the list is as long as without it
    note = "queries that are a document themselves: 60; it is in no list of theirs (data.own_documents=true keeps it)"
    report = SearchReport.from_json(run.after)
    assert note in report.notes and note in str(report) and note in run.read_facts()["notes"]
    assert note in run.page.read_text("utf-8").replace("&#39;", "'") and note in capsys.readouterr().out
    assert main(["datasets", "search", "--root", str(root)]) == 0 and note in capsys.readouterr().out
    assert [*evaluate_run(run.folder).notes].count(note) == 1
    made = collection_of(task.settings_of(compose(words)))
    lists = QueryLists(made, task.settings_of(compose(words)).sampler, 0, True)
    batch = lists.__getitems__(range(len(lists)))
    for row, query in enumerate(batch.queries):
        for place, document in enumerate(batch.documents):
            assert not (query.lower() in document.lower() and batch.valid[row, place])


def test_a_setting_keeps_it_and_it_is_then_first(tmp_path):
    root = collection(tmp_path / "data", "text")
    words = settings(root, f"out={tmp_path / 'run'}", "trainer.max_epochs=1", "data.own_documents=true")
    run = task.train(compose(words), quiet=True)
    first = [line.split() for line in (run.folder / "bm25.trec").read_text().splitlines() if " 1 " in line]
    assert any(is_own(row[0], row[2], "text") for row in first)
    assert any(note.endswith("60; it stays in their lists") for note in SearchReport.from_json(run.after).notes)


def test_a_number_that_a_query_and_another_document_share_says_nothing_and_an_answer_stays(tmp_path):
    rows = [{"_id": str(row), "text": f"a red fox {row}"} for row in range(6)]
    (tmp_path / "qrels").mkdir()
    write_lines(tmp_path / "corpus.jsonl", [*rows, {"_id": "same", "text": "which is red 1"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": str(row), "text": f"which is red {row}"} for row in range(6)])
    judged = ["query-id\tcorpus-id\tscore", *(f"{row}\t{5 - row}\t1" for row in range(6)), "1\tsame\t1", ""]
    (tmp_path / "qrels" / "all.tsv").write_text("\n".join(judged))
    assert not collection_of(task.settings_of(compose(settings(tmp_path)))).own
