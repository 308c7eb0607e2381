"""Texts and tables of vectors as data of the runs: what images have, they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import cut_off, make_photos, make_texts, same_results, small, small_texts, train

from rankgrad.config import ConfigError, compose
from rankgrad.evaluation import Report
from rankgrad.models.weights import load_weights
from rankgrad.runs.folder import Run


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_texts(tmp_path_factory.mktemp("texts") / "mine.csv")


@pytest.fixture(scope="module")
def finished(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small_texts(texts), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


# ------------------------------------------------------------------------------------------------------------- training


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


def test_training_on_texts_helps_and_the_test_classes_are_unseen(finished):
    before, after = Report.from_json(finished.before), Report.from_json(finished.after)
    assert after.values["mAP@R"] > before.values["mAP@R"]
    assert after.counts["classes"] == 5 and after.counts["queries"] == 30


def test_the_page_shows_texts_in_the_place_of_pictures(finished):
    page = finished.page.read_text()
    with np.load(finished.embeddings) as file:
        shown = [text for text in file["texts"].tolist() if f'class="pic words">{text}<' in page]
    assert len(shown) == 30 and "data:image/" not in page and "pic gone" not in page.split("<script")[0]
    assert '"text":' in page  # of the map


def test_a_run_on_texts_goes_on_where_it_was_cut_off(texts, finished, tmp_path):
    cut_off([*small_texts(texts), f"out={tmp_path / 'run'}"], 3)
    assert same_results(train(f"resume={tmp_path / 'run'}").folder, finished.folder)


def test_a_text_that_changed_is_noticed(tmp_path):
    file = make_texts(tmp_path / "a.csv")
    cut_off([*small_texts(file), f"out={tmp_path / 'run'}"], 3)
    file.write_text(file.read_text().replace("w7", "w8"))
    with pytest.raises(ConfigError, match="the data is not what this run began with: content"):
        train(f"resume={tmp_path / 'run'}")


@pytest.mark.parametrize(
    "settings", [("train.sub_batch=3",), ("memory=sum", "memory.warmup=0"), ("loss=cross_entropy",)]
)
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
        (small_texts(texts, "model=convnet"), "model=convnet takes images, and text is texts: take model=ngrams"),
        (small(photos, "model=ngrams"), "model=ngrams takes texts, and folder is images: take model=convnet or"),
        (small(photos, f"init={finished.folder}"), "takes texts, and folder is images"),
    ):
        with pytest.raises(ConfigError, match=told):
            train(*settings, f"out={out}")
        assert not out.exists()


def test_a_model_of_texts_says_what_it_takes(finished):
    model, _ = load_weights(finished.weights)
    with pytest.raises(TypeError, match=r"the model takes texts, a list of strings; got a tensor \[1, 3, 8, 8\]"):
        model(torch.zeros(1, 3, 8, 8))
    with pytest.raises(TypeError, match="the model takes texts, a list of strings; got a str"):
        model("one text")
