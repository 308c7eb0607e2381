"""The study of search, on a small collection of random words."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from rankgrad_papers.studies import docstrings, search, search_shares
from rankgrad_papers.values import read
from rankgrad_workbench.tasks.search import reading

pytest.importorskip("bm25s")


@pytest.fixture
def root(tmp_path):
    """Twelve questions, each of two words of its document."""
    folder = tmp_path / "cranfield"
    (folder / "qrels").mkdir(parents=True)
    rng = random.Random(0)
    texts = [" ".join(rng.sample("wing plate cone tube blade panel nozzle shell".split(), 4)) for _ in range(16)]
    documents = [{"_id": f"d{row}", "text": text} for row, text in enumerate(texts)]
    queries = [{"_id": f"q{row}", "text": " ".join(text.split()[:2])} for row, text in enumerate(texts[:12])]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{row}\td{row}\t1\n" for row in range(12))
    (folder / "qrels" / "all.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return tmp_path


def test_each_question_is_judged_once_by_every_system_and_a_second_call_adds_nothing(root, monkeypatch, capsys):
    small = ("model.dim=8", "model.buckets=64", "trainer.max_epochs=1")
    names = ("ngrams", "ngrams list_net")
    monkeypatch.setattr(search, "SYSTEMS", {name: (*search.SYSTEMS[name], *small) for name in names})
    monkeypatch.setattr(search, "FOLDS", {"cranfield": 2})
    values = root / "values" / "cranfield.csv"
    words = ["--data-root", str(root), "--values", str(values.parent)]
    search.main([*words, "--systems", "ngrams"])
    search.main(words)
    found = read(values.with_name("cranfield-queries.csv"))
    systems = ["ngrams untrained", "ngrams", "BM25", "ngrams + learned BM25", "ngrams list_net"]
    systems.append("ngrams list_net + learned BM25")
    assert [setting["system"] for setting in found.settings] == systems
    for system in systems:
        by_question = found.units({"system": system}, search.MAIN)
        by_fold = read(values).units({"system": system}, search.MAIN)
        assert len(by_question) == 12 and by_fold.keys() == {"1", "2"}
        assert sum(by_question.values()) / 12 == pytest.approx(sum(by_fold.values()) / 2)
    before = values.read_text(), values.with_name("cranfield-queries.csv").read_text()
    capsys.readouterr()
    search.main(words)
    assert (values.read_text(), values.with_name("cranfield-queries.csv").read_text()) == before
    told = capsys.readouterr().out
    rows = search.tested("cranfield", values.with_name("cranfield-queries.csv"))
    assert [row["hypothesis"] for row in rows] == ["S2", "S4"] and {row["questions"] for row in rows} == {"12"}
    least = min(float(row["p"]) for row in rows)  # Holm: the smaller of two p is taken twice
    assert min(float(row["p (Holm)"]) for row in rows) == pytest.approx(min(2 * least, 1), rel=0.1)
    assert "ngrams − ngrams untrained  12  " in told and "minilm" not in told


def test_minilm_needs_its_folder(root, capsys):
    with pytest.raises(SystemExit):
        search.main(["--data-root", str(root), "--values", str(root / "values")])
    assert "minilm needs --encoder DIR" in capsys.readouterr().err


@pytest.mark.slow  # reads the modules of the standard library
def test_the_docstrings_are_real_ones_and_a_fold_is_judged_on_modules_it_was_not_trained_on(tmp_path, capsys):
    rows = docstrings.sample(200)
    docstrings.write(tmp_path, rows)
    assert {each.name.partition(".")[0] for each in rows} == {*docstrings.PACKAGES}
    assert len({each.question for each in rows}) == len({each.document for each in rows}) == 200
    tests = []
    for fold in ("1", "2", "3"):
        found = reading.read(tmp_path / fold)
        modules = [{each.module for each in rows if each.name in names_in(found, part)} for part in ("train", "test")]
        assert len(found.documents) == 200 and modules[1] and not modules[0] & modules[1]
        tests += names_in(found, "test")
    assert sorted(tests) == sorted(each.name for each in rows)


def names_in(found, part):
    return [found.queries.names[row] for row in found.rows(part)]


def test_a_share_of_a_training_lies_between_the_models_and_its_gain_is_paired():
    before, after = {"w": torch.zeros(2), "n": torch.tensor(3)}, {"w": torch.ones(2), "n": torch.tensor(5)}
    assert search_shares.averaged(before, after, 0.25)["w"].tolist() == [0.25, 0.25]
    assert search_shares.averaged(before, after, 0.25)["n"] == 3  # a counter is not averaged
    found = {"test": np.array([50.0, 70.0]), "val": np.array([10.0, 20.0, 60.0])}
    untouched = {"test": np.array([40.0, 40.0]), "val": np.array([9.0, 18.0, 57.0])}
    told = search_shares.told(found, untouched)
    assert told == pytest.approx({"NDCG@10": 60.0, "validation": 30.0, "standard error": 1 / 3**0.5})
