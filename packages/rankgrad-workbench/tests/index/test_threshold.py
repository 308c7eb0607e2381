"""The score below which a search has found nothing."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import slow_unless
from PIL import Image
from small_runs import make_photos, small, train

from rankgrad_workbench.cli import main
from rankgrad_workbench.index import Index, Origin
from rankgrad_workbench.index.gallery import Threshold, index_of_run, threshold_of
from rankgrad_workbench.index.query import as_text, find
from rankgrad_workbench.runs.folder import Run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos, "loggers=[]"), f"out={tmp_path_factory.mktemp('run') / 'run'}")


def expected(run: Run) -> tuple[float, float]:
    """By plain loops over the held-out rows."""
    with np.load(run.embeddings) as file:
        rows, labels = file["embeddings"].astype(np.float64), file["labels"]
    right, wrong = [], []
    for a in range(len(rows)):
        others = [(float(rows[a] @ rows[b]), labels[a] == labels[b]) for b in range(len(rows)) if a != b]
        right.append(max(score for score, same in others if same))
        wrong.append(max(score for score, same in others if not same))
    score = sorted(right)[math.floor(0.05 * (len(right) + 1) + 1e-9) - 1]
    return score, float(np.mean(np.array(wrong) >= score - 1e-6))


def test_it_is_the_score_that_nineteen_of_twenty_held_out_queries_reach(run):
    found, (score, wrong) = threshold_of(run.weights), expected(run)
    assert found.score == pytest.approx(score, abs=1e-5) and found.wrong == pytest.approx(wrong, abs=0.02)
    with np.load(run.embeddings) as file:
        counts = np.bincount(file["labels"])
    assert (found.queries, found.most) == (counts.sum(), counts.max() - 1)
    assert found.others == counts.sum() - counts[counts > 0].min()


def held_out(folder: Path, run: Run, classes: int = 300, each: int = 40, spread: float = 1.0) -> Path:
    """The weights of a run whose held-out rows lie around the centres of their classes."""
    folder.mkdir()
    g = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    rows = around(g.normal(size=(classes, 16)), labels, spread)
    for file in (run.weights, run.config):
        shutil.copy(file, folder)
    np.savez(folder / run.embeddings.name, embeddings=rows, labels=labels)
    return folder / run.weights.name


def around(centres: np.ndarray, labels: np.ndarray, spread: float = 1.0, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(len(labels), centres.shape[1]))
    return (centres[labels] + spread * noise).astype(np.float32)


def kept_share(threshold: Threshold, sizes: np.ndarray) -> float:
    """The share of new queries that have a right item above the threshold, in a catalogue of classes of these sizes."""
    centres = np.random.default_rng(7).normal(size=(len(sizes), 16))
    index = torch.from_numpy(around(centres, np.repeat(np.arange(len(sizes)), sizes), seed=2))
    asked = torch.from_numpy(around(centres, np.arange(len(sizes)), seed=3))
    unit = torch.nn.functional.normalize
    scores = unit(asked) @ unit(index).T
    right = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)) == torch.arange(len(sizes))[:, None]
    return float((scores.masked_fill(~right, -1).amax(1) >= threshold.score).double().mean())


SIZES = [1, 2, 4, 8, 39, 118, (1, 8), (1, 3)]


@pytest.mark.parametrize("size", slow_unless({1, 8, (1, 8)}, SIZES), ids=str)
def test_it_keeps_what_it_says_with_as_many_right_items_as_the_index_has(run, tmp_path, size):
    draw = np.random.default_rng(5)
    sizes = draw.integers(size[0], size[1] + 1, 2000) if isinstance(size, tuple) else np.full(2000, size)
    classes = [f"article {number}" for number in np.repeat(np.arange(2000), sizes)]
    found = threshold_of(held_out(tmp_path / "run", run), classes)
    assert 0.93 <= kept_share(found, sizes) <= (0.97 if sizes.max() < 40 else 1)
    assert (found.fewest, found.most) == (min(39, sizes.min()), min(39, sizes.max())) and found.queries == 1000


@pytest.mark.slow
def test_without_classes_it_holds_for_any_number_of_right_items(run, tmp_path):
    weights = held_out(tmp_path / "run", run)
    found = threshold_of(weights, [""] * 5000)
    assert (found.fewest, found.most, found.others) == (1, 1, 4999)
    assert all(kept_share(found, np.full(2000, size)) >= 0.93 for size in (1, 3, 30))
    assert "1,000 held-out queries of the run, each with 1 right item," in str(found)
    assert threshold_of(weights, ["a", "", ""]).most == 1


def test_too_few_held_out_queries_give_none(run, tmp_path):
    assert threshold_of(held_out(tmp_path / "few", run, 9, 2), ["a"] * 9) is None
    assert threshold_of(held_out(tmp_path / "alone", run, 50, 1), ["a"] * 9) is None
    assert threshold_of(held_out(tmp_path / "enough", run, 10, 2), ["a"] * 9) is not None


def test_the_commands_keep_it_and_print_it_with_each_hit(run, photos, tmp_path, capsys):
    npz, index = tmp_path / "photos.npz", tmp_path / "photos.index"
    assert main(["embed", str(run.folder), str(photos), "-o", str(npz)]) == 0
    assert main(["index", str(npz)]) == 0
    known = threshold_of(run.weights, Index.load(npz).classes)
    assert Index.load(index).threshold == known and index_of_run(run.folder).threshold == threshold_of(run.weights)
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


def unlike(tmp_path: Path, threshold: Threshold | None) -> Index:
    origin = Origin(tmp_path, tmp_path / "model.pt", "", threshold=threshold)
    return Index.of(np.eye(3), ["a.png", "b.png", "c.png"], ["a", "b", "c"], origin)


class Fixed:
    """An embedder whose output is known."""

    def __call__(self, paths):
        return torch.tensor([[1.0, 2.0, 0.0]]).expand(len(paths), -1)


def test_nothing_like_this(tmp_path):
    index = unlike(tmp_path, Threshold(0.9, 0.1, 20, 1, 1, 2))
    (answer,) = find(["q.png"], index, 3, embedder=Fixed(), min_score="auto")

    assert answer.hits == () and "nothing like this: no result reaches the threshold" in as_text([answer])
    (answer,) = find(["q.png"], index, 3, embedder=Fixed(), min_score=0.5)
    assert [answer.alike(hit) for hit in answer.hits] == [False]


def test_without_a_threshold_auto_says_what_to_do(tmp_path):
    index = unlike(tmp_path, None)
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
    shutil.copy(run.weights, tmp_path / "step-2.pt")
    text = run.config.read_text()
    (tmp_path / run.config.name).write_text(text)
    assert threshold_of(tmp_path / "model.pt") is not None
    assert threshold_of(tmp_path / "step-2.pt") is None  # the embeddings are not of these weights
    (tmp_path / run.config.name).write_text(text.replace("split: test", "split: train"))
    assert threshold_of(tmp_path / "model.pt") is None


def test_a_picture_of_noise_can_be_asked(run, tmp_path, capsys):
    noise = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(noise)
    page = tmp_path / "page.html"
    assert main(["search", str(run.folder), str(noise), "--min-score", "2", "--html", str(page)]) == 0
    assert "nothing like this" in capsys.readouterr().out and "Nothing like this" in page.read_text()
