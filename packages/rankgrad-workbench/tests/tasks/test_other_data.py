"""A finished run of retrieval is evaluated on other data: what it was trained on is left out and counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_runs import make_photos, make_texts, small, small_texts, train

from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import load_folder
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.tasks.retrieval.saved import evaluate_run

pytestmark = pytest.mark.usefixtures("no_page")
QUICK = {"bootstrap": 0, "clusters": "none"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


def classes_of(photos: Path, split: str) -> list[str]:
    table = load_folder(photos).select(split)
    return sorted({name.split("/")[0] for name in table.names})


def new_photos(root: Path) -> Path:
    """Photographs of other colours than those of `make_photos`, in other classes."""
    g = np.random.RandomState(7)
    for name in ("new 1", "new 2", "new 3"):
        (root / name).mkdir(parents=True)
        for number in range(4):
            pixels = g.randint(0, 256, (4, 4, 3)).astype(np.uint8)
            Image.fromarray(pixels).resize((36, 36)).save(root / name / f"{number}.png")
    return root


def test_images_of_the_training_are_left_out_and_counted(finished, photos, tmp_path):
    root = new_photos(tmp_path / "other")
    copied, resized = classes_of(photos, "train")[:2]
    shutil.copytree(photos / copied, root / "copied")
    (root / "resized").mkdir()
    for file in (photos / resized).iterdir():
        with Image.open(file) as image:
            image.resize((90, 90)).save(root / "resized" / f"{file.stem}.jpg", quality=90)
            image.resize((70, 70)).save(root / "resized" / f"{file.stem}-again.webp")
    unseen = classes_of(photos, "test")[0]
    shutil.copytree(photos / unseen, root / "unseen")
    report = evaluate_run(finished.folder, root=root, **QUICK)
    assert report.counts["queries"] == 12 + 5
    assert "15 of 32 images are training images of the run and are left out." in report.notes


def test_test_rows_of_divided_data_are_evaluated_and_options_hold(finished, photos, tmp_path, capsys):
    new_photos(tmp_path / "other" / "test")
    for name in classes_of(photos, "train"):
        shutil.copytree(photos / name, tmp_path / "other" / "train" / name)
    words = [finished.folder, "--root", tmp_path / "other", "-k", "1,3", "-e", "P@2", "--bootstrap", "0"]
    assert main(["evaluate", *map(str, words)]) == 0
    told = capsys.readouterr().out
    assert "12 queries" in told and "R@3" in told and "P@2" in told and "left out" not in told


def test_all_known_is_an_error(finished, photos, tmp_path, capsys):
    for name in classes_of(photos, "train"):
        shutil.copytree(photos / name, tmp_path / name)
    assert main(["evaluate", str(finished.folder), "--root", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "all 25 images of " in error and "are training images of the run. Give new images" in error


def test_the_own_data_gives_the_numbers_of_the_run(finished, photos):
    own = evaluate_run(finished.folder, **QUICK)
    assert evaluate_run(finished.folder, root=photos, **QUICK).values == own.values


def test_moved_or_changed_data_of_the_training_is_told(tmp_path):
    photos = make_photos(tmp_path / "photos")
    run = train(*small(photos), f"out={tmp_path / 'run'}")
    root = new_photos(tmp_path / "other")
    gone = photos / classes_of(photos, "train")[0] / "0.png"
    gone.unlink()
    [note] = [note for note in evaluate_run(run.folder, root=root, **QUICK).notes if "may be among" in note]
    assert "has changed since the training: images (then 50, now 49)" in note
    photos.rename(tmp_path / "moved")
    [note] = [note for note in evaluate_run(run.folder, root=root, **QUICK).notes if "may be among" in note]
    assert "cannot be read" in note


@pytest.mark.slow
def test_texts_and_vectors_of_the_training_are_left_out_too(tmp_path):
    file = make_texts(tmp_path / "mine.csv")
    run = train(*small_texts(file), f"out={tmp_path / 'run'}")
    lines = file.read_text().splitlines()
    texts = [line.split(",") for line in lines[1:]]
    other = tmp_path / "other.csv"
    new = [f"{text} anew,{label}" for text, label in texts]
    other.write_text("\n".join([lines[0], *new, *(f"  {text.upper()},{label}" for text, label in texts)]))
    report = evaluate_run(run.folder, root=other, **QUICK)
    assert "30 of 120 texts are training texts of the run and are left out." in report.notes
    vectors = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", embeddings=vectors, labels=np.arange(60) // 6)
    words = [f"data.root={tmp_path / 'mine.npz'}", "data=table", "trainer.max_epochs=1", "threads=1", "loss=supap"]
    run = train(*words, "trainer.enable_progress_bar=false", "model.embedding_size=4", f"out={tmp_path / 'vectors'}")
    more = np.concatenate([vectors, vectors + 1])
    np.savez(tmp_path / "other.npz", embeddings=more, labels=np.arange(120) // 6)
    report = evaluate_run(run.folder, root=tmp_path / "other.npz", **QUICK)
    assert "30 of 120 vectors are training vectors of the run and are left out." in report.notes


def test_data_of_another_kind_or_a_file_of_embeddings_is_one_line(finished, tmp_path, capsys):
    make_texts(tmp_path / "mine.csv")
    assert main(["evaluate", str(finished.folder), "--root", str(tmp_path / "mine.csv")]) == 2
    assert "--root must be a folder with one sub-folder per class" in capsys.readouterr().err
    assert main(["evaluate", str(finished.embeddings), "--root", str(new_photos(tmp_path / "new"))]) == 2
    assert "no run" in capsys.readouterr().err
