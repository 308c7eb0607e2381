"""The encoders of a search, out of their run: `embed`, `index` and `search` for documents and queries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_searches import beir, settings, texts, write_lines

from rankgrad import trec
from rankgrad_workbench.cli import main
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.encoders import load_encoders, retrieve
from rankgrad_workbench.tasks.search.reading import beginning, read, read_named
from rankgrad_workbench.tasks.search.sizes import first


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return beir(tmp_path_factory.mktemp("data") / "wings")


@pytest.fixture(scope="module", params=["one encoder", "two encoders with prompts"])
def finished(folder, tmp_path_factory, request) -> Run:
    more = ["encoders=2", "prompts.query='ask wing '", "prompts.document='the hot slab '"]
    words = settings(folder, f"out={tmp_path_factory.mktemp('runs') / 'run'}", "optimizer.lr=0.1")
    return task.train(compose([*words, *(more if "two" in request.param else [])]), quiet=True)


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([*map(str, words)]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and error.startswith("rankgrad: ")
    return error


def embedded(run: Run, place: Path, out: Path, *more: str) -> dict[str, np.ndarray]:
    assert main(["embed", str(run.folder), str(place), "-o", str(out), *more]) == 0
    with np.load(out) as file:
        return dict(file)


def unit(rows: np.ndarray) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.from_numpy(rows), dim=1)


def test_a_question_finds_the_documents_of_the_run_s_own_lists(finished, folder, tmp_path, capsys):
    embedded(finished, folder, tmp_path / "docs.npz")
    assert main(["index", str(tmp_path / "docs.npz")]) == 0
    lines = [line.split() for line in (finished.folder / "trained.trec").read_text().splitlines()]
    name = lines[0][0]
    documents, asked, _ = texts()
    capsys.readouterr()
    words = ["search", str(tmp_path / "docs.index"), asked[name], "-k", "5"]
    assert main([*words, "--json", "--html", str(tmp_path / "page.html")]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert [hit["name"] for hit in answer["hits"]] == [line[2] for line in lines[:5]]
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx([float(line[4]) for line in lines[:5]], abs=1e-5)
    assert [hit["text"] for hit in answer["hits"]] == [documents[line[2]] for line in lines[:5]]
    assert main(words) == 0
    told, page = capsys.readouterr().out, (tmp_path / "page.html").read_text("utf-8")
    assert lines[0][2] in told and documents[lines[0][2]] in told and "class" not in told
    assert lines[0][2] in page and documents[lines[0][2]] in page


def test_documents_and_queries_are_embedded_each_with_its_prompt_and_encoder(finished, folder, tmp_path):
    made = load_encoders(finished.folder)
    collection = read(folder)
    for what, table, more in (("document", collection.documents, []), ("query", collection.queries, ["--queries"])):
        columns = embedded(finished, folder, tmp_path / f"{what}.npz", *more)
        assert columns["names"].tolist() == [*table.names] and columns["texts"].tolist() == [*table.texts]
        found = unit(columns["embeddings"])
        torch.testing.assert_close(found, made.embed(table.texts, what), rtol=0, atol=1e-6)
        other = made.embed(table.texts, "query" if what == "document" else "document")
        assert torch.allclose(found, other, atol=1e-3) == (made.query is made.document)
    if made.query is not made.document:  # the prompts are used
        bare = unit(made.query(collection.queries.texts).detach().numpy())
        assert not torch.allclose(bare, found, atol=0.01)
        with_prompt = unit(made.query(["ask wing " + text for text in collection.queries.texts]).detach().numpy())
        torch.testing.assert_close(with_prompt, found, rtol=0, atol=1e-6)


def test_an_index_answers_as_the_function_that_retrieves(finished, folder, tmp_path, capsys):
    embedded(finished, folder / "corpus.jsonl", tmp_path / "docs.npz")
    assert main(["index", str(tmp_path / "docs.npz"), "-o", str(tmp_path / "index")]) == 0
    asked = [*texts()[1].values()][:7]
    capsys.readouterr()
    assert main(["search", *asked, "--index", str(tmp_path / "index"), "--json", "-k", "3"]) == 0
    answers = json.loads(capsys.readouterr().out)
    documents = read(folder).documents
    found = retrieve(load_encoders(finished.folder), asked, documents, depth=3)
    wanted = [[documents.names[row] for row in rows] for rows in found.document.tolist()]
    assert [[hit["name"] for hit in answer["hits"]] for answer in answers] == wanted


def test_tables_lines_and_other_columns_hold_documents_and_queries(tmp_path):
    (tmp_path / "lines.txt").write_text("a wing\n\na plate\n")
    assert read_named(tmp_path / "lines.txt", "corpus").names == ("line 1", "line 3")
    rows = [{"query": "what wing", "document": f"a wing {row}", "grade": row, "query_id": "x"} for row in range(3)]
    pairs = write_lines(tmp_path / "pairs.jsonl", rows)
    assert [*read_named(pairs, "queries").texts] == ["what wing"] and read_named(pairs, "queries").names == ("x",)
    assert [*read_named(pairs, "corpus").texts] == ["a wing 0", "a wing 1", "a wing 2"]
    lists = write_lines(tmp_path / "lists.jsonl", [{"query": "what", "pos": ["a wing"], "neg": ["a plate"]}])
    assert [*read_named(lists, "corpus").texts] == ["a wing", "a plate"]
    (tmp_path / "own.csv").write_text("id,title,body\nhttp://a/../b,Wings,hot ones\n7,,\n")
    own = read_named(tmp_path / "own.csv", "corpus", text="body")
    assert own.names == ("http://a/../b", "7") and [*own.texts] == ["Wings hot ones", ""]
    with pytest.raises(ValueError, match="has no text: a column 'abstract' is needed"):
        read_named(tmp_path / "own.csv", "corpus", text="abstract")
    with pytest.raises(ValueError, match="has no text: a column 'text' is needed"):
        read_named(tmp_path / "own.csv", "corpus")


def test_names_that_are_no_paths_and_empty_and_long_documents_go_through(finished, tmp_path, capsys):
    rows = [("http://a/../b", "a hot wing"), ("/etc/x", ""), ("c:1", "wing " * 9000)]
    file = write_lines(tmp_path / "own.jsonl", [{"id": name, "text": text} for name, text in rows])
    columns = embedded(finished, file, tmp_path / "own.npz")
    assert columns["texts"].tolist()[2] == beginning("wing " * 9000) and len(columns["texts"][2]) < 250
    assert main(["index", str(tmp_path / "own.npz")]) == 0
    capsys.readouterr()
    assert main(["search", str(tmp_path / "own.index"), "what hot wing", "--json"]) == 0
    assert {hit["name"] for hit in json.loads(capsys.readouterr().out)[0]["hits"]} == {name for name, _ in rows}


def test_what_cannot_be_done_says_what_to_do(finished, folder, tmp_path, capsys):
    run = finished.folder
    assert "does not exist" in fails(capsys, "embed", run, tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    assert "no rows" in fails(capsys, "embed", run, tmp_path / "empty.jsonl", "-o", tmp_path / "x.npz")
    embedded(finished, folder, tmp_path / "docs.npz")
    assert main(["index", str(tmp_path / "docs.npz")]) == 0
    capsys.readouterr()
    assert "there is no query" in fails(capsys, "search", tmp_path / "docs.index")
    assert "there is no query" in fails(capsys, "search", tmp_path / "docs.npz")
    assert "rankgrad embed RUN DIR -o" in fails(capsys, "index", folder)


def test_the_first_columns_are_embedded_indexed_and_searched(finished, folder, tmp_path, capsys):
    whole = unit(embedded(finished, folder, tmp_path / "whole.npz")["embeddings"])
    narrow = embedded(finished, folder, tmp_path / "narrow.npz", "--width", "4")["embeddings"]
    torch.testing.assert_close(torch.from_numpy(narrow), first(whole, 4), rtol=0, atol=1e-6)
    assert main(["index", str(tmp_path / "narrow.npz")]) == 0
    asked = next(iter(texts()[1].values()))
    capsys.readouterr()
    assert main(["search", str(tmp_path / "narrow.index"), asked, "--json", "-k", "3"]) == 0
    scores = [hit["score"] for hit in json.loads(capsys.readouterr().out)[0]["hits"]]
    query = first(load_encoders(finished.folder).embed([asked], "query"), 4)
    assert scores == pytest.approx((first(whole, 4) @ query[0]).topk(3).values.tolist(), abs=1e-5)
    for width in (0, 17):
        assert f"a number of its 16 columns; got {width}" in fails(
            capsys, "embed", finished.folder, folder, "-o", tmp_path / "x.npz", "--width", width
        )


def test_what_is_left_out_of_a_file_of_documents_is_told(finished, tmp_path, capsys):
    rows = [{"_id": "a", "text": "one"}, {"_id": "a", "text": "one"}, {"_id": "b", "text": None}]
    file = write_lines(tmp_path / "own.jsonl", [*rows, {"_id": "c", "text": "x" * 30_000}])
    assert main(["embed", str(finished.folder), str(file), "-o", str(tmp_path / "own.npz")]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        f"wrote {tmp_path}/own.npz: 3 rows",
        "document lines that come twice; the first is kept: 1",
        "document texts cut after 20,000 characters: 1",
        "documents without text, which a search may find: 1",
    ]


def test_sentence_transformers_gives_an_exported_search_the_same_numbers(finished, folder, tmp_path):
    theirs = pytest.importorskip("sentence_transformers", reason="comes with an extra")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    assert main(["export", str(finished.folder), "-o", str(tmp_path / "model")]) == 0
    model = theirs.SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    documents, asked, judged = texts()
    lists = [line.split() for line in (finished.folder / "trained.trec").read_text().splitlines()]
    run, qrels = {name: dict[str, float]() for name, *_ in lists}, {name: dict[str, int]() for name, *_ in lists}
    for name, _, document, _, score, _ in lists:
        run[name][document] = float(score)
    for name, document, _ in judged:  # their evaluator knows no grades
        if name in run:
            qrels[name][document] = 1
    ours = trec.evaluate({"trained": run}, qrels, ["nDCG@10", "RR@10", "recall@100"], intervals=0).values["trained"]
    wanted = {name: asked[name] for name in run}
    relevant = {name: {*its} for name, its in qrels.items()}
    found = InformationRetrievalEvaluator(wanted, documents, relevant, precision_recall_at_k=[100])(model)
    for mine, name in zip(ours.values(), ("ndcg@10", "mrr@10", "recall@100"), strict=True):
        assert found[f"cosine_{name}"] == pytest.approx(mine, abs=1e-6)
