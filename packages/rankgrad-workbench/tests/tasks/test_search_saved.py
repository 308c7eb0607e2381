"""A finished search is evaluated again: on its own test queries, and on other collections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_searches import beir, settings, texts, write_lines

from rankgrad import trec
from rankgrad_workbench.cli import main
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.evaluation import SearchReport
from rankgrad_workbench.tasks.search.saved import evaluate_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return beir(tmp_path_factory.mktemp("data") / "wings")


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory) -> Run:
    words = settings(folder, f"out={tmp_path_factory.mktemp('runs') / 'run'}", "trainer.max_epochs=2")
    return task.train(compose(words), quiet=True)


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([*map(str, words)]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and error.startswith("rankgrad: ")
    return error


def without(systems: dict[str, dict]) -> dict[str, dict]:
    return {name: each["values"] for name, each in systems.items() if name != "before training"}


@pytest.mark.parametrize("where", ["", "--root"])
def test_own_test_queries_give_the_numbers_of_the_run(finished, folder, tmp_path, capsys, where):
    more = [where, str(folder)] if where else []
    assert main(["evaluate", str(finished.folder), *more, "-o", str(tmp_path / "report.json")]) == 0
    told = capsys.readouterr().out
    assert "trained + BM25" in told and "share of the right items among the first 100" in told
    first, again = SearchReport.from_json(finished.after), SearchReport.from_json(tmp_path / "report.json")
    assert again.query_names == first.query_names and "before training" not in again.systems
    assert without(again.systems) == without(first.systems)


def test_a_test_set_of_another_collection_is_evaluated_as_its_lists_say(finished, tmp_path, capsys):
    root = beir(tmp_path / "other", {"train": range(40), "test": range(40, 60)})
    lists = tmp_path / "lists"
    words = ["evaluate", str(finished.folder), "--root", str(root), "--lists", str(lists), "--bootstrap", "20"]
    assert main([*words, "-o", str(tmp_path / "report.json")]) == 0
    report = SearchReport.from_json(tmp_path / "report.json")
    new = {*SearchReport.from_json(finished.after).query_names} & {f"q{row}" for row in range(40, 60)}
    assert {*report.query_names} == new  # the others are known from the training
    assert {path.name for path in lists.iterdir()} == {"trained.trec", "bm25.trec", "fusion.trec", "qrels.trec"}
    files = {"trained": "trained.trec", "BM25": "bm25.trec", "trained + BM25": "fusion.trec"}
    runs = {name: str(lists / file) for name, file in files.items()}
    found = trec.evaluate(runs, str(lists / "qrels.trec"), ["nDCG@10", "RR@10", "R@100"], intervals=0)
    for name, each in report.systems.items():
        assert [*each["values"].values()] == pytest.approx([*found.values[name].values()])
    assert f"queries with the text of a query of the training, left out: {20 - len(new)}" in report.notes
    assert "Do not use" in capsys.readouterr().out or report.verdict


def test_of_a_collection_without_a_test_set_the_queries_of_the_training_are_left_out(finished, folder, tmp_path):
    root = beir(tmp_path / "same")  # the collection of the training at another place
    report = evaluate_run(finished.folder, root=root, bootstrap=0)
    first = SearchReport.from_json(finished.after)
    assert report.query_names == first.query_names and report.values == first.values
    assert any("left out" in note for note in report.notes)
    new = [{"query": f"which {word} wing", "document": "heated wing", "grade": 1} for word in ("warm", "heated")]
    report = evaluate_run(finished.folder, root=write_lines(tmp_path / "new.jsonl", new), bootstrap=0)
    assert report.counts["queries"] == 2 and not report.notes[2:]


def test_a_test_set_that_is_the_training_is_no_test(finished, folder, tmp_path, capsys):
    known = {f"q{row}" for row in range(60)} - {*SearchReport.from_json(finished.after).query_names}
    other = beir(tmp_path / "other", {"test": [int(name[1:]) for name in known]})
    assert "that the model was not trained with" in fails(capsys, "evaluate", finished.folder, "--root", other)


def test_judgements_of_trec_need_their_corpus_and_queries(finished, tmp_path, capsys):
    documents, asked, _ = texts(4)
    write_lines(tmp_path / "docs.jsonl", [{"_id": n, "text": t} for n, t in documents.items()])
    write_lines(tmp_path / "asked.jsonl", [{"_id": n, "text": f"tell me {t}"} for n, t in asked.items()])
    (tmp_path / "judged.qrels").write_text("q0 0 wing-hot 1\nq1 0 slab-thin 2\n")
    words = ["evaluate", finished.folder, "--root", tmp_path / "judged.qrels"]
    assert "--corpus FILE and --queries FILE" in fails(capsys, *words)
    files = ["--corpus", tmp_path / "docs.jsonl", "--queries", tmp_path / "asked.jsonl"]
    assert main([*map(str, [*words, *files, "--bootstrap", 0])]) == 0
    assert "also need its judgements: --root" in fails(capsys, "evaluate", finished.folder, *files)


def test_a_run_whose_data_is_gone_says_that_training_queries_may_be_among_the_others(tmp_path):
    root = beir(tmp_path / "data")
    run = task.train(compose(settings(root, f"out={tmp_path / 'run'}", "trainer.max_epochs=1")), quiet=True)
    root.rename(tmp_path / "moved")
    report = evaluate_run(run.folder, root=tmp_path / "moved", bootstrap=0)
    assert report.counts["queries"] == 60 and any("may be among these" in note for note in report.notes)
    with pytest.raises(FileNotFoundError, match="data"):
        evaluate_run(run.folder)


@pytest.mark.parametrize("part", ["sizes", "tests", "examples", "systems"])
@pytest.mark.parametrize("record", [None, 3, {}, [], {"name": "16 columns", "text": "a", "values": {}}])
def test_a_received_run_whose_records_are_none_is_one_line(finished, tmp_path, capsys, part, record):
    content = json.loads(finished.after.read_text())
    content[part] = {"trained": record} if part == "systems" else [record]
    with pytest.raises(ValueError, match=rf"is not a report of a search, or it is damaged: .*{part}|damaged: '"):
        SearchReport.from_json(json.dumps(content))
    shutil.copytree(finished.folder, tmp_path / "run")
    (tmp_path / "run" / "after.json").write_text(json.dumps(content))
    assert "is not a report of a search" in fails(capsys, "report", tmp_path / "run", "-o", tmp_path / "page.html")


def test_what_cannot_be_evaluated_is_one_line(finished, folder, tmp_path, capsys):
    run = finished.folder
    assert "task=search" in fails(capsys, "evaluate", run, "-k", "1,10")
    assert "task=search" in fails(capsys, "evaluate", run, "-e", "AP")
    assert "--lists" in fails(capsys, "evaluate", run, "--lists", run)
    assert "none does not exist" in fails(capsys, "evaluate", run, "--root", tmp_path / "none")
    rows = [{"query": "which hot wing", "document": "a wing", "grade": 0}]
    assert "relevant" in fails(capsys, "evaluate", run, "--root", write_lines(tmp_path / "none.jsonl", rows))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.yaml").write_text(finished.config.read_text())
    assert "finished" in fails(capsys, "evaluate", tmp_path / "unfinished")
    (tmp_path / "rows.json").write_text(json.dumps({}))
    assert "task=search" in fails(capsys, "evaluate", tmp_path / "rows.json", "--lists", tmp_path / "lists")
