"""The score below which a search has found nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import make_photos, small, train

from rankgrad.workbench.cli import main
from rankgrad.workbench.index import Index, build
from rankgrad.workbench.index.embedder import Embedded, Origin
from rankgrad.workbench.index.query import as_text, find
from rankgrad.workbench.index.run import index_of_run
from rankgrad.workbench.index.threshold import Threshold, threshold_of
from rankgrad.workbench.runs.folder import Run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos, "loggers=[]"), f"out={tmp_path_factory.mktemp('run') / 'run'}")


def expected(run: Run) -> Threshold:
    """By plain loops over the held-out rows."""
    with np.load(run.embeddings) as file:
        rows, labels = file["embeddings"].astype(np.float64), file["labels"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    right, wrong = [], []
    for a in range(len(rows)):
        others = [(float(rows[a] @ rows[b]), labels[a] == labels[b]) for b in range(len(rows)) if a != b]
        right.append(max(score for score, same in others if same))
        wrong.append(max(score for score, same in others if not same))
    score = sorted(right)[int(0.05 * (len(right) - 1))]
    return Threshold(score, float(np.mean(np.array(wrong) >= score - 1e-6)))


def test_it_is_the_score_that_nineteen_of_twenty_held_out_queries_reach(run):
    found = threshold_of(run.weights)
    assert found.score == pytest.approx(expected(run).score, abs=1e-5)
    assert found.wrong == pytest.approx(expected(run).wrong, abs=0.02)


def test_the_commands_keep_it_and_print_it_with_each_hit(run, photos, tmp_path, capsys):
    npz, index = tmp_path / "photos.npz", tmp_path / "photos.index"
    assert main(["embed", str(run.folder), str(photos), "-o", str(npz)]) == 0
    assert main(["index", str(npz)]) == 0
    known = threshold_of(run.weights)
    assert Index.load(index).threshold == index_of_run(run.folder).threshold == known
    query = str(photos / index_of_run(run.folder).names[0])
    capsys.readouterr()
    assert main(["search", query, "--index", str(index), "-k", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["rank", "score", "like?", "class", "path"]
    for line in lines[2:6]:
        assert (line.split()[2] == "yes") == (float(line.split()[1]) >= known.score)
    assert lines[-1] == f"threshold {known}"
    assert main(["search", query, "--index", str(index), "-k", "4", "--json", "--min-score", "auto"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["threshold"] == known.score and all(hit["like"] for hit in answer["hits"])


def unlike(tmp_path: Path, threshold: Threshold | None, normalize: bool = True) -> Index:
    origin = Origin(tmp_path, tmp_path / "model.pt", "", threshold=threshold)
    rows = np.eye(3, dtype=np.float32)
    gallery = Embedded(rows, ("a.png", "b.png", "c.png"), np.arange(3), ("a", "b", "c"), origin)
    return build(gallery, normalize=normalize)


class Fixed:
    """An embedder whose output is known."""

    def __call__(self, paths):
        return torch.tensor([[1.0, 2.0, 0.0]]).expand(len(paths), -1)


def test_nothing_like_this(tmp_path):
    index = unlike(tmp_path, Threshold(0.9, 0.1))
    (answer,) = find(["q.png"], index, 3, embedder=Fixed(), min_score="auto")

    assert answer.hits == () and "nothing like this: no result reaches the threshold" in as_text([answer])
    (answer,) = find(["q.png"], index, 3, embedder=Fixed(), min_score=0.5)
    assert [answer.alike(hit) for hit in answer.hits] == [False]


@pytest.mark.parametrize(("known", "normalize"), [(None, True), (Threshold(0.9, 0.1), False)])
def test_without_a_threshold_auto_says_what_to_do(tmp_path, known, normalize):
    index = unlike(tmp_path, known, normalize)
    with pytest.raises(ValueError, match="this index has no threshold.*give a number"):
        find(["q.png"], index, 3, embedder=Fixed(), min_score="auto")
    (answer,) = find(["q.png"], index, 3, embedder=Fixed())
    assert answer.threshold is None and len(answer.hits) == 3


@pytest.mark.parametrize("word", ["much", "nan", "-inf"])
def test_a_score_that_is_no_number_is_refused(run, photos, word, capsys):
    with pytest.raises(SystemExit):
        raise SystemExit(main(["search", str(run.folder), str(photos), f"--min-score={word}"]))
    assert "score" in capsys.readouterr().err


def test_weights_without_held_out_rows_have_none(run, tmp_path):
    shutil.copy(run.weights, tmp_path / "model.pt")
    assert threshold_of(tmp_path / "model.pt") is None
    shutil.copy(run.embeddings, tmp_path / run.embeddings.name)
    text = run.config.read_text()
    (tmp_path / run.config.name).write_text(text)
    assert threshold_of(tmp_path / "model.pt") is not None
    (tmp_path / run.config.name).write_text(text.replace("split: test", "split: train"))
    assert threshold_of(tmp_path / "model.pt") is None


def test_a_picture_of_noise_can_be_asked(run, tmp_path, capsys):
    noise = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(noise)
    page = tmp_path / "page.html"
    assert main(["search", str(run.folder), str(noise), "--min-score", "2", "--html", str(page)]) == 0
    assert "nothing like this" in capsys.readouterr().out and "Nothing like this" in page.read_text()
