"""A run of task=search: what it leaves, that its numbers are those of its lists, and how it goes on."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from pathlib import Path

import pytest
import torch
from children_here import Here
from chromium import started
from forks import as_one
from marks import slow_unless
from markupsafe import escape
from small_searches import beir, settings, texts, write_lines

from rankgrad import trec
from rankgrad_workbench.cli import main
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.runs import compare as comparing
from rankgrad_workbench.runs.check import check
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.division import collection_of
from rankgrad_workbench.tasks.search.encoders import load_encoders, retrieve
from rankgrad_workbench.tasks.search.evaluation import LISTS, SearchReport
from rankgrad_workbench.tasks.search.reading import beginning
from rankgrad_workbench.tasks.search.system import System


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return beir(tmp_path_factory.mktemp("data") / "wings")


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory) -> Run:
    return trained(folder, f"out={tmp_path_factory.mktemp('runs') / 'run'}")


def trained(root: Path, *more: str) -> Run:
    return task.train(compose(settings(root, *more)), quiet=True)


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and error.startswith("rankgrad: ")
    return error


def test_a_run_leaves_model_lists_numbers_and_a_page_and_all_are_well(finished):
    assert finished.finished and check(finished.folder).wrong == {}
    names = {path.name for path in finished.folder.iterdir()}
    assert {"model.pt", "before.trec", "trained.trec", "bm25.trec", "fusion.trec", "qrels.trec"} <= names
    assert {"before.json", "after.json", "report.html", "facts.json"} <= names


def test_the_numbers_of_a_run_are_those_of_its_lists(finished):
    report = SearchReport.from_json(finished.after)
    files = {"before training": "before", "trained": "trained", "BM25": "bm25", "trained + BM25": "fusion"}
    runs = {name: str(finished.folder / f"{file}.trec") for name, file in files.items()}
    found = trec.evaluate(runs, str(finished.folder / "qrels.trec"), ["nDCG@10", "RR@10", "R@100"], intervals=0)
    for name, each in report.systems.items():
        assert [*each["values"].values()] == pytest.approx([*found.values[name].values()])
    assert finished.read_values() == report.systems["trained"]["values"]
    assert finished.read_untrained() == report.systems["before training"]["values"]


def test_the_fusion_of_a_run_is_that_of_its_two_lists_by_the_function(finished):
    """With plain dictionaries, as whoever uses the lists of a run without rankgrad."""
    runs = {name: {} for name in ("trained", "bm25", "fusion")}
    for name, by_query in runs.items():
        for line in (finished.folder / f"{name}.trec").read_text().splitlines():
            query, _, document, _, score, _ = line.split()
            by_query.setdefault(query, {})[document] = float(score)
    weights = SearchReport.from_json(finished.after).settings["chosen"]["weights"]["trained + BM25"]
    for query, fused in runs["fusion"].items():
        total = dict.fromkeys({**runs["trained"][query], **runs["bm25"].get(query, {})}, 0.0)
        for side, name in enumerate(("trained", "bm25")):
            scores = runs[name].get(query, {})
            mean, deviation = statistics.fmean(scores.values()), statistics.pstdev(scores.values()) or 1.0
            for document in total:
                total[document] += weights[side] * (scores.get(document, min(scores.values())) - mean) / deviation
            for document in scores:
                rank = 1 + sum(score > scores[document] for score in scores.values())
                total[document] += weights[2 + side] * 60 / (60 + rank)
                total[document] += weights[4 + side] * math.log(101 / rank) / math.log(101)
        for document in runs["trained"][query].keys() & runs["bm25"].get(query, {}).keys():
            total[document] += weights[6]
        assert fused == pytest.approx({document: total[document] for document in fused}, abs=1e-5)
        assert len(fused) == min(100, len(total)) and min(fused.values()) >= sorted(total.values())[-len(fused)] - 1e-5


@pytest.mark.parametrize("system", ["BM25", "trained", "trained + BM25"])
def test_the_system_of_a_run_answers_its_test_queries_as_its_lists_do(finished, folder, tmp_path, capsys, system):
    run = Run(shutil.copytree(finished.folder, tmp_path / "run"))
    content = json.loads(run.after.read_text())
    content["settings"]["chosen"]["system"] = system
    run.after.write_text(json.dumps(content))
    collection = collection_of(task.settings_of(compose(settings(folder))))
    rows = collection.rows("test")[:4]
    lines = [line.split() for line in (run.folder / LISTS[system]).read_text().splitlines()]
    made = System.load(run.folder)([collection.queries.texts[row] for row in rows], k=5)
    for at, row in enumerate(rows.tolist()):
        listed = {line[2]: float(line[4]) for line in lines if line[0] == collection.queries.names[row]}
        found = [collection.documents.names[document] for document in made.document[at] if document >= 0]
        best = sorted(listed.values(), reverse=True)[: len(found)]  # of equal scores another document may be first
        assert [listed[name] for name in found] == pytest.approx(best)
        assert best == pytest.approx(made.score[at][: len(found)].tolist())
    query = collection.queries.texts[rows[0]]
    assert main(["search", str(run.folder), query, "-k", "3", "--json", "--html", str(tmp_path / "page.html")]) == 0
    [answer] = json.loads(capsys.readouterr().out)
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx(made.score[0][: len(answer["hits"])].tolist())
    assert answer["hits"][0]["text"] in (tmp_path / "page.html").read_text("utf-8")


def test_an_exported_folder_says_which_system_was_chosen(finished, tmp_path):
    pytest.importorskip("sentence_transformers")
    assert main(["export", str(finished.folder), "-o", str(tmp_path / "model")]) == 0
    content, chosen = (
        json.loads((tmp_path / "model" / "system.json").read_text()),
        SearchReport.from_json(finished.after).settings["chosen"],
    )
    assert content["system"] == "trained + BM25" and content["encoder"] == "this one" and content["depth"] == 100
    assert content["bm25"] == chosen["words"] and content["weights"] == chosen["weights"]["trained + BM25"]
    assert len(content["features"]) == len(content["weights"])


def test_training_helps_where_words_differ(finished):
    report = SearchReport.from_json(finished.after)
    assert report.values["NDCG@10"] > report.systems["before training"]["values"]["NDCG@10"]


def test_the_model_of_a_run_gives_its_lists_again(finished, folder):
    collection = collection_of(task.typed(task.SearchSettings, task.plain(compose(settings(folder)))))
    rows = collection.rows("test")
    found = retrieve(
        load_encoders(finished.folder), [collection.queries.texts[row] for row in rows], collection.documents
    )
    lines = [line.split() for line in (finished.folder / "trained.trec").read_text().splitlines()]
    assert [line[2] for line in lines] == [collection.documents.names[row] for row in found.document.ravel()]


def test_a_run_that_is_extended_and_one_that_was_not_stopped_end_alike(folder, tmp_path):
    constant = ["optimizer.schedule=constant", "optimizer.warmup=0", "evaluation.select=false"]
    whole = trained(folder, f"out={tmp_path / 'whole'}", *constant)
    short = trained(folder, f"out={tmp_path / 'run'}", "trainer.max_epochs=2", *constant)
    assert main(["train", f"resume={short.folder}", "trainer.max_epochs=4"]) == 0
    weights = [torch.load(run.weights, weights_only=True)["state_dict"] for run in (short, whole)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert short.read_values() == whole.read_values()


@pytest.mark.parametrize("queries", slow_unless({1}, [8, 1]))  # with one query a batch, the second process has none
def test_two_processes_train_like_one(folder, tmp_path, queries):
    plain = ["optimizer.name=sgd", "optimizer.lr=0.05", f"sampler.queries_per_batch={queries}"]
    more = ["encoders=2", "sub_batch=3", "mining.by=model", "mining.every=3", "trainer.accelerator=cpu"]
    words = settings(folder, *plain, *more, "trainer.max_epochs=1", "trainer.log_every_n_steps=1")
    log = tmp_path / "log"
    assert as_one(["train", *words, "trainer.devices=2", f"out={tmp_path / 'two'}"], log) == [0, 0], log.read_text()
    two, one = Run(tmp_path / "two"), task.train(compose([*words, f"out={tmp_path / 'one'}"]), quiet=True)
    assert two.read_facts()["processes"] == 2
    mine, expected = (dict(curves(run)["loss"]) for run in (two, one))
    assert mine == pytest.approx(expected, abs=1e-5) and two.read_untrained() == one.read_untrained()
    for side in ("query", "document"):
        rows = [load_encoders(run.folder).embed(["what hot wing", "heated slab"], side) for run in (two, one)]
        torch.testing.assert_close(*rows, rtol=1e-4, atol=1e-5)


def test_the_splits_of_a_folder_are_used_as_they_are(tmp_path):
    root = beir(tmp_path / "data", {"train": range(30), "dev": range(30, 40), "test": range(40, 60)})
    run = trained(root, f"out={tmp_path / 'run'}")
    report = SearchReport.from_json(run.after)
    assert {*report.query_names} == {f"q{row}" for row in range(40, 60)}


def test_runs_are_read_compared_and_searched(folder, finished, tmp_path, capsys, monkeypatch):
    pages = write_report(
        tmp_path / "page.html", read_runs([finished.folder, copied(finished, tmp_path / "again").folder])
    )
    assert "Beside other systems" in pages.read_text()
    monkeypatch.setattr(comparing, "Children", Here)
    words = settings(folder, "loss=info_nce,ndcg", "seeds=0", "trainer.max_epochs=1", "-o", str(tmp_path / "compared"))
    assert main(["compare", *words]) == 0
    told = capsys.readouterr().out
    assert "untrained" in told and "ndcg" in told and "NDCG@10" in told


@pytest.mark.slow  # test_score_training.py searches the settings of another task
def test_settings_are_chosen_on_folds_of_the_training_queries(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(comparing, "Children", Here())
    own = ["space.sampler.negatives_per_query=0,1", "space.encoders=1,2", "space.loss.tau=0.1,0.2"]
    words = ["loss=info_nce", "trials=2", "folds=2", "seeds=0", *own, "trainer.max_epochs=1"]
    assert main(["tune", *words, *settings(folder), "-o", str(tmp_path)]) == 0
    assert "Chosen by NDCG@10 on held-out training data" in capsys.readouterr().out
    outcome = json.loads((tmp_path / "tune.json").read_text())
    assert {"sampler.negatives_per_query", "encoders", "loss.tau"} <= {*outcome["spaces"]["info_nce"]}
    assert len(outcome["winners"]["info_nce"]["folds"]) == 2
    (final,) = json.loads((tmp_path / "final" / "compare.json").read_text())["values"].values()
    assert {*final} == {"NDCG@10", "MRR@10", "Recall@100"} and len(final["NDCG@10"]) == 1


def copied(run: Run, folder: Path) -> Run:
    shutil.copytree(run.folder, folder)
    return Run(folder)


def test_the_page_begins_with_the_verdict_and_long_texts_end_with_a_whole_word(finished):
    report, page = SearchReport.from_json(finished.after), finished.page.read_text()
    for sentence in report.verdict:
        assert page.count(str(escape(sentence))) == 1
        assert page.index(str(escape(sentence))) < page.index('id="results"')
    assert (
        beginning("red fox", 7) == "red fox"
        and beginning("red foxes run", 7) == "red …"
        and beginning("x" * 9, 7) == "xxxxxxx …"
    )


def test_terminal_verdict_and_page_say_per_cent(finished):
    report, page = SearchReport.from_json(finished.after), finished.page.read_text()
    table = page[page.index('id="systems"') : page.index('id="queries"')]
    for system, found in report.systems.items():
        [line] = [line for line in str(report).splitlines() if line.startswith(f"{system}  ")]
        for name, value in found["values"].items():
            assert f" {100 * value:.1f} " in f"{line} " and f"<td>{100 * value:.1f}" in table, name
    main = [f"{100 * report.systems[system]['values']['NDCG@10']:.1f}" for system in ("trained", "BM25")]
    assert any(f"(NDCG@10 {main[0]} and {main[1]}, p " in sentence for sentence in report.verdict)
    for test in report.tests:
        assert f"<td>{100 * test['mean']:+.1f}<" in table
    # BM25 may end with documents of equal scores: that is no remark on the data
    words, drawn = report.notes
    assert drawn == "test queries are drawn by data.seed=0: 18 (data.test_fraction=0.3)"
    assert words.startswith("BM25 has English stop words and stems, k1 ")


@pytest.mark.parametrize("width", slow_unless({390}, [1280, 390]))
def test_the_page_is_notbeginning(finished, tmp_path_factory, width):
    with started(tmp_path_factory.mktemp("page")) as browser:  # the path of a socket is short
        browser.open(finished.page, width=width)
        browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth") and not browser.messages
        inside = "(e, card) => e.right <= card.right - 12 && e.left >= card.left + 12"
        assert browser.run(
            f"[...document.querySelectorAll('#queries :is(li, h4)')].every(e => ({inside})"
            "(e.getBoundingClientRect(), e.closest('.card').getBoundingClientRect()))"
        )


def test_a_wrong_setting_is_one_line(capsys, folder, tmp_path):
    assert "data.root must be given" in fails(capsys, "train", "task=search")
    assert "does not exist" in fails(capsys, "train", "task=search", f"data.root={tmp_path / 'none'}")
    error = fails(capsys, "train", *settings(folder, "sampler.queries_per_batch=0", f"out={tmp_path / 'run'}"))
    assert "sampler.queries_per_batch" in error
    assert not (tmp_path / "run").exists()


def test_a_model_of_sentence_transformers_is_fine_tuned_with_its_prompts_and_judged_beside_itself(tmp_path, capsys):
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="comes with an extra")
    from text_models import bert_model, sentences

    model = bert_model(tmp_path / "body").float()
    model.prompts = {"query": "my ", "document": "the "}
    model.save(str(tmp_path / "model"), create_model_card=False)
    found, labels = sentences(each=4)
    pairs = [(text, other) for text, other, a, b in zip(found, found[1:], labels, labels[1:], strict=False) if a == b]
    file = tmp_path / "pairs.csv"
    file.write_text("".join(f"{one},{other}\n" for one, other in [("anchor", "positive"), *pairs]))
    words = [f"data.root={file}", "model=sentence_transformer", f"model.name={tmp_path / 'model'}"]
    more = ["model.max_tokens=6", "optimizer.lr=0.01", "trainer.max_epochs=3", "loggers=[]", "evaluation.bootstrap=20"]
    run = task.train(compose(["task=search", f"out={tmp_path / 'run'}", *words, *more]))
    told = capsys.readouterr().out
    assert "prompts query: 'my ', document: 'the '" in told and check(run.folder).wrong == {}
    report = SearchReport.from_json(run.after)
    assert [*report.systems] == ["before training", "trained", "BM25", "trained + BM25"]
    made = load_encoders(run.folder)
    untouched = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    untouched.max_seq_length = 6
    before = untouched.encode(["card fee"], prompt_name="query", normalize_embeddings=True, convert_to_tensor=True)
    after = made.embed(["card fee"], "query")
    assert after.shape == before.shape and run.read_values() == report.values
    # the validation questions keep the model as it was, unless it is surely better
    facts, said = run.read_facts(), "".join(report.verdict)
    assert ("The model is kept as it was: on the validation queries" in said) == (facts["best_epoch"] == 0)
    assert ("the model without training" in said) == (facts["best_epoch"] > 0)
    assert facts["best_epoch"] == 0 or facts["gain"][0] > task.SURE * facts["gain"][1]
    assert torch.allclose(after, before.cpu(), atol=1e-6) == (run.read_facts()["best_epoch"] == 0)
    assert torch.allclose(made.embed(["a b c d card"], "document"), made.embed(["a b c d fee"], "document"))


def renamed(folder: Path, name, text=str) -> Path:
    """A collection whose names, and texts of queries, are others."""
    documents, asked, judged = texts()
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", [{"_id": name(n), "text": t} for n, t in documents.items()])
    write_lines(folder / "queries.jsonl", [{"_id": name(n), "text": text(t)} for n, t in asked.items()])
    lines = [f"{name(q)}\t{name(d)}\t{g}" for q, d, g in judged]
    (folder / "qrels" / "all.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return folder


def test_names_that_files_of_trec_cannot_hold_are_written_so_that_they_stay_different(finished, tmp_path):
    # "wing-hot" becomes "wing hot", and "wing-thin" "wing_hot": one word each, but not the same
    other = {"wing-hot": "#wing hot", "wing-thin": "_#wing_hot", "slab-hot": "#slab"}
    run = trained(
        renamed(tmp_path / "data", lambda n: other.get(n, f"#{n}" if n[0] == "q" else n)), f"out={tmp_path}/r"
    )
    values = SearchReport.from_json(finished.after).values
    files = [str(run.folder / f"{name}.trec") for name in ("trained", "qrels")]
    found = trec.evaluate({"it": files[0]}, files[1], ["nDCG@10"], intervals=0)
    assert found.values["it"]["ndcg_cut_10"] == pytest.approx(SearchReport.from_json(run.after).values["NDCG@10"])
    assert found.values["it"]["ndcg_cut_10"] == pytest.approx(values["NDCG@10"])


def test_queries_that_share_no_word_with_a_document_end_a_run_well(tmp_path):
    run = trained(renamed(tmp_path / "data", str, text=lambda text: text.upper()[::-1]), f"out={tmp_path / 'run'}")
    report = SearchReport.from_json(run.after)
    assert report.systems["BM25"]["values"]["NDCG@10"] == 0 and (run.folder / "bm25.trec").read_text() == ""
    assert any("finds nothing for 18 of 18 questions" in sentence for sentence in report.verdict)
    assert report.systems["trained + BM25"]["values"] == report.values


def test_a_window_behind_the_corpus_is_refused(folder, capsys):
    error = fails(capsys, "train", *settings(folder, "mining.by=bm25", "mining.first=97", "mining.last=99"))
    assert "wings: mining.first=97 is behind the last of 96 documents" in error


def test_a_model_that_cannot_be_built_is_refused_before_the_data_is_read(folder, monkeypatch):
    monkeypatch.setattr(task, "collection_of", lambda *_: pytest.fail("files were read first"))
    with pytest.raises((ValueError, TypeError), match="embedding_size"):
        task.build(compose(settings(folder, "model.embedding_size=0")))
