"""`rankgrad score`: a cross-encoder writes the scores that a search learns from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_searches import settings, write_lines
from text_models import bert_folder, sentences, tokenizer

from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.reading import read

theirs = pytest.importorskip("sentence_transformers")


def classifier(folder: Path, labels: int = 1) -> Path:
    """A small cross-encoder of random weights, saved as sentence-transformers does."""
    from transformers import BertConfig, BertForSequenceClassification

    body = Path(bert_folder(folder / "body"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer().get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        num_labels=labels,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(body)
    theirs.CrossEncoder(str(body), device="cpu").save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return classifier(tmp_path_factory.mktemp("cross"))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(each=3)[0]


def logits(model: Path, pairs: list[tuple[str, str]]) -> list[float]:
    made = theirs.CrossEncoder(str(model), device="cpu")
    return made.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).tolist()


def score(model: Path, file: Path, out: Path, *more: object) -> Path:
    assert main(["score", str(model), str(file), "-o", str(out), *map(str, more)]) == 0
    return out


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main([*map(str, words)]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rankgrad: ")]
    assert len(error) == 1
    return error[0]


def test_lists_of_documents_get_a_list_of_scores_in_their_order(model, texts, tmp_path):
    rows = [
        {"query": texts[0], "pos": [texts[1]], "neg": [texts[2], texts[3]], "more": 7},
        {"query": texts[4], "pos": [texts[5], texts[6]], "neg": []},
    ]
    out = score(model, write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{name: row[name] for name in row if name != "scores"} for row in found] == rows
    pairs = [(texts[0], texts[n]) for n in (1, 2, 3)] + [(texts[4], texts[n]) for n in (5, 6)]
    assert [value for row in found for value in row["scores"]] == pytest.approx(logits(model, pairs), abs=1e-5)
    judged = read(out).judged
    assert len(judged) == 5 and not np.isnan(judged.score).any()


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("grade", ["grade", "score", None])
def test_pairs_get_a_number_that_the_reader_takes_for_the_teacher_s(model, texts, tmp_path, kind, grade):
    if kind == ".parquet":
        pytest.importorskip("pyarrow")
    rows = [
        {"query": texts[0], "document": text, **({grade: at % 2} if grade else {})}
        for at, text in enumerate(texts[1:5])
    ]
    file = write_lines(tmp_path / "in.jsonl", rows)
    out = score(model, file, tmp_path / f"out{kind}")
    collection = read(out)
    by_text = dict(
        zip((row["document"] for row in rows), logits(model, [(texts[0], t) for t in texts[1:5]]), strict=True)
    )
    wanted = [by_text[collection.documents.texts[row]] for row in collection.judged.document.tolist()]
    assert collection.judged.score.tolist() == pytest.approx(wanted, abs=1e-4)
    assert sorted(collection.judged.grade.tolist()) == ([0, 0, 1, 1] if grade else [1] * 4)
    again = score(model, out, tmp_path / "again.jsonl")  # scored again, the column is replaced
    assert read(again).judged.score.tolist() == pytest.approx(wanted, abs=1e-4)


def test_titles_and_other_layouts_are_scored_as_they_are_trained_on(model, texts, tmp_path):
    rows = [{"query": texts[0], "positive_passages": [{"title": "card", "text": texts[1]}], "negative_passages": []}]
    found = json.loads(score(model, write_lines(tmp_path / "t.jsonl", rows), tmp_path / "o.jsonl").read_text())
    assert found["scores"] == pytest.approx(logits(model, [(texts[0], f"card {texts[1]}")]), abs=1e-5)
    triplets = [{"anchor": texts[0], "positive": texts[1], "negative": texts[2], "negative_2": texts[3]}]
    found = json.loads(score(model, write_lines(tmp_path / "s.jsonl", triplets), tmp_path / "p.jsonl").read_text())
    assert found["scores"] == pytest.approx(logits(model, [(texts[0], texts[n]) for n in (1, 2, 3)]), abs=1e-5)
    own = [{"ask": texts[0], "answer_text": texts[1], "grade": 1}]
    words = ("--query", "ask", "--document", "answer_text", "--max-tokens", 8)
    found = json.loads(score(model, write_lines(tmp_path / "own.jsonl", own), tmp_path / "q.jsonl", *words).read_text())
    short = theirs.CrossEncoder(str(model), device="cpu", max_length=8)
    wanted = short.predict([(texts[0], texts[1])], activation_fn=torch.nn.Identity()).tolist()
    assert found["score"] == pytest.approx(wanted[0], abs=1e-5)


def test_a_search_learns_from_what_was_written(model, texts, tmp_path):
    rows = [{"query": f"{a} of", "pos": [b], "neg": [c]} for a, b, c in zip(texts, texts[1:], texts[2:], strict=False)]
    out = score(model, write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    words = settings(out, "loss=list_distillation", f"out={tmp_path / 'run'}", "trainer.max_epochs=1")
    assert task.train(compose(words), quiet=True).finished


def test_a_killed_command_goes_on_and_loses_no_finished_part(model, texts, tmp_path, monkeypatch, capsys):
    rows = [{"query": texts[0], "document": text, "grade": 1} for text in texts[1:41]]
    file, out = write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    whole = score(model, file, tmp_path / "whole.jsonl", "--batch-size", 2).read_bytes()
    predict, calls = theirs.CrossEncoder.predict, []

    def stops(self, pairs, **options):
        calls.append(len(pairs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return predict(self, pairs, **options)

    monkeypatch.setattr(theirs.CrossEncoder, "predict", stops)
    assert main(["score", str(model), str(file), "-o", str(out), "--batch-size", "2"]) == 130
    assert not out.exists() and calls == [16, 16]
    capsys.readouterr()
    score(model, file, out, "--batch-size", 2)
    assert calls[2:] == [16, 8] and out.read_bytes() == whole
    assert "continuing: 1 of 3 parts are finished" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl.parts").exists()


def test_parts_of_another_file_or_model_are_not_taken(model, texts, tmp_path, monkeypatch, capsys):
    file = write_lines(tmp_path / "in.jsonl", [{"query": texts[0], "document": texts[1], "grade": 1}])

    def stops(*given, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(theirs.CrossEncoder, "predict", stops)
        assert main(["score", str(model), str(file), "-o", str(tmp_path / "out.jsonl")]) == 130
    write_lines(file, [{"query": texts[0], "document": texts[2], "grade": 1}])
    assert "another file" in fails(capsys, "score", model, file, "-o", tmp_path / "out.jsonl")


def test_what_cannot_be_scored_is_one_line(model, texts, tmp_path, capsys, monkeypatch):
    lists = write_lines(tmp_path / "lists.jsonl", [{"query": texts[0], "pos": [texts[1]], "neg": [texts[2]]}])
    out = tmp_path / "out.jsonl"
    assert "write .jsonl or .parquet" in fails(capsys, "score", model, lists, "-o", tmp_path / "out.csv")
    assert "is a file that this command reads" in fails(capsys, "score", model, lists, "-o", lists)
    assert "give a name that ends in .jsonl" in fails(capsys, "score", model, lists, "-o", tmp_path / "out.json")
    assert "--download takes a model" in fails(capsys, "score", "owner/none", lists, "-o", out)
    assert "there is no file" in fails(capsys, "score", model, tmp_path, "-o", out)
    empty = write_lines(tmp_path / "empty.jsonl", [{"query": texts[0], "pos": [], "neg": []}])
    assert "has no pair" in fails(capsys, "score", model, empty, "-o", out)
    bad = write_lines(tmp_path / "bad.jsonl", [{"query": texts[0], "document": 7}, {"document": texts[1]}])
    assert "line 2 has no column 'query'" in fails(capsys, "score", model, bad, "-o", out)
    several = classifier(tmp_path / "several", labels=3)
    assert "one label is needed" in fails(capsys, "score", several, lists, "-o", out)
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for path in model.iterdir():
        (hostile / path.name).write_bytes(path.read_bytes())
    (hostile / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "os.system"}]))
    assert "has the setting type='os.system'" in fails(capsys, "score", hostile, lists, "-o", out)
    assert not out.exists()
    monkeypatch.setattr(theirs.CrossEncoder, "predict", lambda self, pairs, **_: np.full(len(pairs), np.nan))
    assert "is the model damaged?" in fails(capsys, "score", model, lists, "-o", out)
