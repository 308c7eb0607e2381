"""Texts and tables of vectors as data of the runs: what images have, they have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import cut_off, make_photos, make_texts, same_results, small, small_texts, train

from rankgrad.evaluation import Report, evaluate
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.protocols import trials
from rankgrad_workbench.datasets.vectors import load_table
from rankgrad_workbench.models.weights import load_weights
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, compose
from rankgrad_workbench.tasks.retrieval import building
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.tasks.retrieval.settings import settings_of

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_texts(tmp_path_factory.mktemp("texts") / "mine.csv")


@pytest.fixture(scope="module")
def finished(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small_texts(texts), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


# ------------------------------------------------------------------------------------------------------------- training


@pytest.mark.slow
def test_data_text_brings_a_model_of_texts_and_the_command_line_wins():
    config = compose(["data=text", "data.root=a.csv"])
    assert config.model.kind == "ngrams" and config.optimizer.lr == 3e-2
    assert compose(["data=text", "data.root=a.csv", "optimizer.lr=0.1"]).optimizer.lr == 0.1
    assert compose(["data=table", "data.root=a.npz"]).model.kind == "vectors"
    assert compose([]).model.kind == "convnet"


def test_a_run_on_texts_leaves_what_a_run_on_images_leaves(finished, texts):
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        *("config.yaml", "state.ckpt", "model.pt", "before.json", "after.json", "facts.json"),
        *("embeddings.npz", "report.html", "health.json", "logs", "checksums.sha256"),
    }
    with np.load(finished.embeddings) as file:
        assert file["embeddings"].shape == (30, 8)
        lines = texts.read_text().splitlines()
        for name, text, label in zip(file["names"], file["texts"], file["labels"], strict=True):
            assert lines[int(name.removeprefix("line ")) - 1] == f"{text},{file['class_names'][label]}"
    model, extra = load_weights(finished.weights)
    assert model.config["kind"] == "ngrams" and extra["data"]["root"] == str(texts)
    assert model(["a card"]).shape == (1, 8)


def test_training_draws_the_classes_together_that_it_is_shown(texts, tmp_path):
    # with so few texts unseen classes come out better or worse by luck; those of the training rise by .47 +- .07
    settings = small_texts(texts, "trainer.max_epochs=10", "evaluation.split=train", "loggers=[]")
    run = train(*settings, f"out={tmp_path / 'run'}")
    before, after = Report.from_json(run.before), Report.from_json(run.after)
    assert after.values["mAP@R"] > before.values["mAP@R"] + 0.1


def test_the_classes_of_the_test_are_not_those_of_the_training(finished, texts):
    counts = Report.from_json(finished.after).counts
    assert counts["classes"] == 5 and counts["queries"] == 30
    table = building.load_table(settings_of(compose(small_texts(texts))))
    assert not {*table.select("train").label.tolist()} & {*table.select("test").label.tolist()}


def test_the_page_shows_texts_in_the_place_of_pictures(finished):
    page = finished.page.read_text()
    with np.load(finished.embeddings) as file:
        shown = [text for text in file["texts"].tolist() if f'class="pic words">{text}<' in page]
    assert len(shown) == 30 and "data:image/" not in page and "pic gone" not in page.split("<script")[0]
    assert '"text":' in page  # of the map
    assert "Retrieved texts" in page and "Retrieved images" not in page


def test_a_run_on_texts_goes_on_where_it_was_cut_off(texts, finished, tmp_path):
    cut_off([*small_texts(texts), f"out={tmp_path / 'run'}"], 3)
    assert same_results(train(f"resume={tmp_path / 'run'}").folder, finished.folder)


def test_a_text_that_changed_is_noticed(tmp_path):
    file = make_texts(tmp_path / "a.csv")
    cut_off([*small_texts(file), f"out={tmp_path / 'run'}"], 3)
    file.write_text(file.read_text().replace("w7", "w8"))
    with pytest.raises(ConfigError, match="the data .*began: content"):
        train(f"resume={tmp_path / 'run'}")


@pytest.mark.parametrize("settings", [("sub_batch=3",), ("memory=sum", "memory.warmup=0"), ("loss=cross_entropy",)])
def test_texts_train_with_what_images_train_with(texts, tmp_path, settings):
    run = train(*small_texts(texts, *settings, "trainer.max_epochs=1"), f"out={tmp_path / 'run'}")
    assert run.finished


def test_a_head_is_trained_on_frozen_features_of_texts(texts, finished, tmp_path):
    settings = small_texts(
        texts, f"init={finished.folder}", "frozen=true", "model.head=linear", "model.embedding_size=4"
    )
    run = train(*settings, f"out={tmp_path / 'run'}")
    model, _ = load_weights(run.weights)
    assert model.embedding_size == 4 and torch.equal(
        model.backbone.table.weight, load_weights(finished.weights)[0].backbone.table.weight
    )


def test_a_model_that_takes_something_else_is_refused_before_anything_is_written(texts, finished, tmp_path):
    photos, out = make_photos(tmp_path / "photos"), tmp_path / "run"
    for settings, told in (
        (small_texts(texts, "model=convnet"), "model=convnet takes images, but text has texts; use model=ngrams"),
        (small(photos, "model=ngrams"), "model=ngrams takes texts, but folder has images; use model=convnet or"),
        (small(photos, f"init={finished.folder}"), "takes texts, but folder has images"),
    ):
        with pytest.raises(ConfigError, match=told):
            train(*settings, f"out={out}")
        assert not out.exists()


def test_a_model_of_texts_says_what_it_takes(finished):
    model, _ = load_weights(finished.weights)
    with pytest.raises(TypeError, match="texts.*got a Tensor"):
        model(torch.zeros(1, 3, 8, 8))
    with pytest.raises(TypeError, match="texts.*got a str"):
        model("one text")


# ------------------------------------------------------------------------------------------------ embed, index, search


def test_texts_are_embedded_indexed_and_searched_from_the_command_line(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("more.csv").write_text('text,label\n"a card, lost",card\nthe loans,loan\nmy card,card\n')
    assert main(["embed", str(finished.folder), "more.csv"]) == 0
    assert main(["index", "more.npz"]) == 0
    assert "3 texts, 8 dimensions" in capsys.readouterr().out
    assert main(["search", "the loans", "my card", "--index", "more.index", "-k", "2", "--html", "found.html"]) == 0
    shown = capsys.readouterr().out
    assert "the loans\n  rank  score   like?  class  text\n  1     1.0000  yes    loan   the loans" in shown
    assert "  1     1.0000  yes    card   my card" in shown
    assert 'class="pic words">a card, lost<' in Path("found.html").read_text()
    assert main(["search", "cards", "--index", "more.index", "-k", "1", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    keys = {"rank", "score", "like", "class", "name", "path", "text"}  # of images and texts alike
    assert answer["query"] == "cards" and keys == set(answer["hits"][0])


def test_a_text_file_without_classes_and_one_with_a_text_per_line_are_embedded(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("my card\n\nthe loans\n")
    Path("b.jsonl").write_text('{"said": "my card"}\n{"said": "the loans"}\n')
    assert main(["embed", str(finished.folder), "a.txt"]) == 0
    assert main(["embed", str(finished.folder), "b.jsonl", "--text", "said", "-o", "b.npz"]) == 0
    with np.load("a.npz") as one, np.load("b.npz") as other:
        assert np.array_equal(one["embeddings"], other["embeddings"])
        assert one["names"].tolist() == ["line 1", "line 3"] and one["class_names"].tolist() == [""]


def test_what_a_model_does_not_take_is_not_embedded(finished, tmp_path, capsys):
    photos = make_photos(tmp_path / "photos")
    assert main(["embed", str(finished.folder), str(photos), "-o", str(tmp_path / "a.npz")]) == 2
    assert "takes texts: give a file of them" in capsys.readouterr().err
    (tmp_path / "a.csv").write_text("txt\na\n")
    assert main(["embed", str(finished.folder), str(tmp_path / "a.csv"), "-o", str(tmp_path / "a.npz")]) == 2
    assert "has no column 'text'. It has txt. Say which to take: --text NAME" in capsys.readouterr().err


def test_a_long_evaluation_before_the_training_is_left_out_and_said(texts, tmp_path, monkeypatch, capsys, with_page):
    monkeypatch.setattr(retrieval, "PAIRS", 0)
    for before in ("auto", "true"):
        run = train(
            *small_texts(texts, "trainer.max_epochs=0", f"evaluation.before={before}", f"out={tmp_path / before}")
        )
        said = "evaluation.before=true" in capsys.readouterr().out
        assert (run.before.exists(), said) == ((False, True) if before == "auto" else (True, False))
        assert run.page.exists() and ("-" in retrieval.summary(run).split()) is (before == "auto")


def test_no_message_about_texts_speaks_of_images(finished, texts, tmp_path, capsys):
    def said(*command: str) -> str:
        main(list(map(str, command)))
        told = capsys.readouterr()
        return told.out + told.err

    lacking, index, archive = tmp_path / "run", tmp_path / "mine.index", tmp_path / "mine.npz"
    shutil.copytree(finished.folder, lacking)
    (lacking / "embeddings.npz").unlink()
    page = read_runs([lacking])[0]
    table = building.load_table(settings_of(compose(small_texts(texts))))
    alone = table.take([0, 6])  # one text of each class
    told = [
        *page.notes,
        said("embed", finished.folder, texts, "-o", archive),
        said("index", archive, "-o", index),
        said("index", finished.folder),
        said("search", "w1 card", "--index", index, "--min-score", "1.1"),
        said("search", "w1 card", "--index", index, "-k", "1"),
    ]
    for wrong in (
        replace(alone, protocol="query_gallery", role=("query",) * 2),
        replace(alone, protocol="one_gallery"),
    ):
        with pytest.raises(ValueError, match="text") as raised:
            trials(wrong)
        told.append(str(raised.value))
    assert any("examples" in line for line in told) and not re.search(
        r"\b(image|picture|photo)s?\b", " ".join(told), re.IGNORECASE
    )
    assert "--images is for an index of images" in said("search", "w1", "--index", index, "--images", tmp_path)


# --------------------------------------------------------------------------------------------------- tables of vectors


@pytest.fixture(scope="module")
def vectors(finished: Run, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts, as another model embeds them."""
    path = tmp_path_factory.mktemp("vectors") / "fixed.npz"
    assert main(["embed", str(finished.folder), str(texts), "-o", str(path)]) == 0
    return path


def test_a_head_is_trained_on_embeddings_that_exist(vectors, tmp_path, with_page):
    settings = small_texts(vectors, "data=table", "model=vectors", "loss=roadmap")
    settings = [word for word in settings if not word.startswith("model.")]
    run = train(*settings, f"out={tmp_path / 'run'}")
    table = building.load_table(settings_of(compose(settings))).select("test")
    as_they_are = evaluate(table.vectors, table.label, intervals=0).values
    before, after = Report.from_json(run.before).values, Report.from_json(run.after).values
    assert before["mAP@R"] == pytest.approx(as_they_are["mAP@R"]) and before != after  # it begins as the identity
    model, _ = load_weights(run.weights)
    assert model.config == {"kind": "vectors", "width": 8, "embedding_size": None, "head": "linear"}
    assert 'class="pic words">' in run.page.read_text()  # texts of the npz
    with pytest.raises(ValueError, match=r"float \[row, 8\]; got torch.float32 \[2, 9\]"):
        model(torch.zeros(2, 9))
    out = tmp_path / "again.npz"
    assert main(["embed", str(run.folder), str(vectors), "-o", str(out)]) == 0
    with np.load(out) as again, np.load(run.embeddings) as kept:
        row = {name: i for i, name in enumerate(again["names"].tolist())}
        rows = [row[name] for name in kept["names"].tolist()]
        np.testing.assert_allclose(again["embeddings"][rows], kept["embeddings"], atol=1e-6)


def test_a_head_is_exported(vectors, tmp_path, capsys):
    settings = [s for s in small_texts(vectors, "data=table", "model=vectors") if not s.startswith("model.")]
    run = train(*settings, "trainer.max_epochs=1", f"out={tmp_path / 'run'}")
    out = tmp_path / "head.pt2"
    assert main(["export", str(run.folder), "-o", str(out)]) == 0
    assert "vectors float32 [batch, 8] -> 8-d" in capsys.readouterr().out
    given = torch.randn(3, 8)
    wanted = torch.nn.functional.normalize(load_weights(run.weights)[0](given), dim=1)
    torch.testing.assert_close(torch.export.load(out).module()(given), wanted)


BAD = {
    "no labels": (
        {"embeddings": np.eye(3)},
        r"has no column 'labels'\. It has embeddings\. Say which to take: label='NAME'",
    ),
    "no embeddings": ({"labels": np.arange(3)}, "has no column 'embeddings'. It has labels"),
    "lengths": ({"embeddings": np.eye(3), "labels": np.arange(2)}, r"an integer for each of 3 embeddings; got \[2\]"),
    "nan": ({"embeddings": np.diag([1, np.nan, 1]), "labels": np.arange(3)}, "row 1: its embedding is not finite"),
    "huge": ({"embeddings": np.diag([1, 1, 1e39]), "labels": np.arange(3)}, "row 2: .* not finite in float32"),
    "flat": ({"embeddings": np.ones(3), "labels": np.arange(3)}, r"must be numbers \[row, width\]; got float64 \(3,\)"),
    "no name": (
        {"embeddings": np.eye(2), "labels": np.array([0, 5]), "class_names": np.array(["a"])},
        "row 1: there is",
    ),
    "split": (
        {"embeddings": np.eye(2), "labels": np.arange(2), "split": np.array(["train", "tset"])},
        "row 1: a split",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_named_with_its_row(case, tmp_path):
    columns, told = BAD[case]
    np.savez(tmp_path / "a.npz", **columns)
    with pytest.raises(ValueError, match=told):
        load_table(tmp_path / "a.npz")


def test_a_csv_in_place_of_embeddings_is_answered_with_the_task_that_reads_it(tmp_path):
    with pytest.raises(ValueError, match=r"got extension \.csv\. For rows with a label, use task=scores"):
        load_table(make_texts(tmp_path / "a.csv"))


def test_a_parquet_holds_vectors_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with an extra")
    from pyarrow import parquet

    rows = [{"embedding": [float(i), 1.0], "label": f"c{i}", "split": ("dev", "train")[i % 2]} for i in range(3)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    table = load_table(tmp_path / "a.parquet")
    assert table.vectors.tolist() == [[0, 1], [1, 1], [2, 1]] and table.class_names == ("c0", "c1", "c2")
    assert table.split == ("val", "train", "val") and table.names[1] == "row 1"
    rows[1]["embedding"] = [1.0]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="row 1: 'embedding'"):
        load_table(tmp_path / "a.parquet")


def test_a_parquet_is_evaluated_and_reported_like_the_npz_of_its_rows(tmp_path, monkeypatch, capsys):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with an extra")
    from pyarrow import parquet

    monkeypatch.chdir(tmp_path)
    places, labels = np.random.RandomState(0).randn(12, 3), [f"c{row % 3}" for row in range(12)]
    np.savez("a.npz", embeddings=places, labels=np.array(labels))
    columns = {"embedding": places.tolist(), "label": labels, "text": [f"say {row}" for row in range(12)]}
    parquet.write_table(pyarrow.table(columns), "a.parquet")
    said = []
    for name in ("a.npz", "a.parquet"):
        assert main(["evaluate", name, "--clusters", "none"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "mAP@R" in said[0]
    assert read_runs([Path("a.parquet")])[0].space.texts[3] == "say 3"
    parquet.write_table(pyarrow.table({"embedding": places.tolist()}), "a.parquet")
    assert main(["evaluate", "a.parquet"]) == 2
    assert "must hold embeddings and labels; it has embeddings" in capsys.readouterr().err


def test_labels_that_are_python_objects_are_answered_with_how_to_write_them(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=np.eye(2), labels=np.array(["a", "b"], dtype=object))
    with pytest.raises(ValueError, match=r"'labels'.*labels\).astype\(str\)"):
        load_table(tmp_path / "a.npz")


# ------------------------------------------------------------------------------------- embeddings made somewhere else


def test_embeddings_made_elsewhere_are_reported_side_by_side_with_paired_differences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    photos = make_photos(Path("photos"), classes=4, per_class=4)
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    labels = [name.split("/")[0] for name in names]  # as texts
    g = np.random.RandomState(0)
    places = np.eye(4)[[sorted(set(labels)).index(label) for label in labels]]
    for name, noise in (("sharp", 0.1), ("blurred", 1.5)):
        np.savez(f"{name}.npz", embeddings=places + noise * g.randn(16, 4), labels=np.array(labels), names=names)
    assert main(["report", "sharp.npz", "blurred.npz", "--images", "photos"]) == 0
    page = Path("report.html").read_text()
    assert "data:image/" in page and "Each run minus sharp on the same 16 queries" in " ".join(page.split())
    assert main(["report", "sharp.npz", "-o", "one.html"]) == 0  # without pictures
    assert main(["report", "sharp.npz", "--images", "none", "-o", "one.html"]) == 2
    assert "none does not exist; give the folder of the images" in capsys.readouterr().err


def test_an_npz_of_two_columns_is_enough_and_texts_in_it_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", embeddings=np.eye(3)[[0, 0, 1, 1]], labels=np.array([5, 5, 7, 7]))
    assert main(["report", "a.npz"]) == 0
    assert "row 3" in Path("report.html").read_text()
    np.savez(
        "b.npz", embeddings=np.eye(3)[[0, 0, 1]], labels=np.array([0, 0, 1]), texts=np.array(["one", "two", "six"])
    )
    assert main(["report", "b.npz", "-o", "b.html"]) == 0
    assert 'class="pic words">two<' in Path("b.html").read_text()
    np.savez("c.npz", labels=np.arange(3))
    assert main(["report", "c.npz"]) == 2


def test_a_name_in_an_npz_never_leads_out_of_the_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_photos(Path("photos"), classes=2, per_class=2)
    Path("secret.png").write_bytes((Path("photos") / "class 0" / "0.png").read_bytes())
    names = np.array(["../secret.png", "class 0/0.png", "class 1/0.png", "class 1/1.png"])
    np.savez("a.npz", embeddings=np.eye(2)[[0, 0, 1, 1]], labels=np.array([0, 0, 1, 1]), names=names)
    assert main(["report", "a.npz", "--images", "photos"]) == 0
    page = Path("report.html").read_text()
    assert "1 images could not be read" in page


# ------------------------------------------------------------------------------------------- many runs, many processes


@pytest.mark.slow
def test_two_processes_train_on_texts_like_one(texts, tmp_path):
    plain = ("optimizer.name=sgd", "optimizer.lr=0.5", "loss=smooth_ap", "trainer.accelerator=cpu")
    settings = small_texts(texts, *plain)
    words = [sys.executable, "-m", "rankgrad", "train", *settings, "trainer.devices=2", f"out={tmp_path / 'two'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    two, one = Run(tmp_path / "two"), train(*settings, f"out={tmp_path / 'one'}")
    assert two.read_facts()["processes"] == 2
    with np.load(two.embeddings) as mine, np.load(one.embeddings) as expected:
        assert (mine["names"] == expected["names"]).all() and (mine["texts"] == expected["texts"]).all()
        np.testing.assert_allclose(mine["embeddings"], expected["embeddings"], atol=1e-5)


@pytest.mark.slow
def test_losses_are_compared_on_texts(texts, tmp_path):
    settings = small_texts(texts, "trainer.max_epochs=1", "threads=1")
    assert main(["compare", "loss=roadmap,pnp", "seeds=0", *settings, "-o", str(tmp_path)]) == 0
    assert 'class="pic words">' in (tmp_path / "compare.html").read_text()


@pytest.mark.slow
def test_settings_are_searched_on_texts(texts, tmp_path):
    settings = [s for s in small_texts(texts, "trainer.max_epochs=1", "threads=1") if "classes_per_batch" not in s]
    few = ["trials=2", "folds=2", "seeds=none", "sampler.classes_per_batch=2"]
    assert main(["tune", "loss=roadmap", *settings, *few, "-o", str(tmp_path / "tuned")]) == 0
