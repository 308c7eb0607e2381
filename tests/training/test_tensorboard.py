"""What TensorBoard is shown: histograms of batches, pictures of what is retrieved, the table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from small_runs import make_photos, same_results, small, train

from rankgrad.datasets import Table
from rankgrad.ranks.normalize import unit_rows
from rankgrad.tasks.retrieval.tensorboard import (
    ASKED,
    RIGHT,
    SIDE,
    WRONG,
    Board,
    chosen_queries,
    framed,
    retrieved,
    similarities,
)
from rankgrad.workbench.runs.folder import Run

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def shown(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("shown") / "run"
    return train(*small(photos, "loggers=[tensorboard,csv]", "evaluation.every=1"), f"out={out}")


def events(run: Run) -> dict[str, list[tuple[int, Any]]]:
    """Tag -> (step, value), of all files that a run has written."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: dict[str, list[tuple[int, Any]]] = {}
    for file in sorted((run.folder / "logs" / "tensorboard").rglob("events*")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value))
    return found


def test_scalars_histograms_and_pictures_are_written(shown):
    found = events(shown)
    assert {"loss", "grad_norm", "test/R@1"} <= found.keys()
    batch = [f"batch/cosines {which}" for which in ("within a class", "between classes")]
    batch += ["batch/lengths of embeddings", "batch/lengths of gradients"]
    assert {tag for tag in found if tag.startswith("batch/")} == set(batch)
    assert [step for step, _ in found[batch[0]]] == [0, 1, 2, 3, 4, 5]
    assert [step for step, _ in found["retrieved"]] == [0, 3, 6]  # before, after the first epoch, after the last
    assert [step for step, _ in found["test/R@1"]] == [0, 2, 5]
    assert any("hparams" in tag for tag in found) and "result/R@1" in found


def test_a_board_changes_nothing_of_the_run(shown, photos, tmp_path):
    assert same_results(train(*small(photos), f"out={tmp_path / 'without'}").folder, shown.folder)


def test_without_tensorboard_there_is_no_board(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(Board, "__init__", lambda *_: pytest.fail("a board was made"))
    train(*small(photos, "trainer.max_epochs=1"), f"out={tmp_path}")


def test_a_trainer_without_a_tensorboard_logger_is_let_alone():
    board = Board(_table())
    trainer = L.Trainer(logger=False, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
    board.evaluated(trainer, None, torch.zeros(6, 2))  # type: ignore[arg-type]
    board.finished(trainer, {}, None)  # type: ignore[arg-type]


def test_similarities_are_those_of_every_pair_once():
    embeddings, labels = torch.randn(7, 3), torch.tensor([0, 1, 0, 2, 1, 0, 3])
    unit = unit_rows(embeddings)
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
    found = similarities(embeddings, labels)
    within = torch.stack([unit[i] @ unit[j] for i, j in pairs if labels[i] == labels[j]])
    between = torch.stack([unit[i] @ unit[j] for i, j in pairs if labels[i] != labels[j]])
    torch.testing.assert_close(found["cosines within a class"], within)
    torch.testing.assert_close(found["cosines between classes"], between)
    torch.testing.assert_close(found["lengths of embeddings"], embeddings.norm(dim=1))


def _table() -> Table:
    images = torch.arange(6, dtype=torch.uint8).mul(40).view(6, 1, 1, 1).repeat(1, 1, 9, 5)
    names = tuple(f"{row}.png" for row in range(6))
    return Table("six", torch.tensor([0, 0, 1, 1, 2, 0]), ("a", "b", "c"), ("test",) * 6, names, 1, images=images)


def test_queries_have_something_to_find_and_stay_the_same():
    labels = _table().label
    rows = chosen_queries(labels, 3, seed=1)
    assert torch.equal(rows, chosen_queries(labels, 3, seed=1)) and 4 not in rows.tolist() and len(rows) == 3
    assert chosen_queries(labels, 99).tolist() == [0, 1, 2, 3, 5]


def test_the_picture_shows_queries_and_what_is_nearest_with_frames_that_say_right_or_wrong():
    angles = torch.tensor([0.0, 0.1, 0.25, 2.0, 2.2, 4.0])  # around a circle; nearest to 0: 1 (right), then 2 (wrong)
    picture = retrieved(_table(), torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 3]), k=2)
    assert picture.dtype == torch.uint8 and picture.shape == (3, 2 * SIDE + 4, 3 * SIDE + 2 * 4)
    corner = [tuple(picture[:, 0, column].tolist()) for column in (0, SIDE + 4, 2 * (SIDE + 4))]
    assert corner == [ASKED, RIGHT, WRONG]
    middle = [int(picture[0, SIDE // 2, column + SIDE // 2]) for column in (0, SIDE + 4, 2 * (SIDE + 4))]
    assert middle == [0, 40, 80]  # the images 0, 1 and 2


def test_a_wrong_frame_is_dashed_and_an_image_keeps_its_shape():
    image = torch.full((3, 10, 40), 7, dtype=torch.uint8)
    solid, dashed = framed(image, RIGHT), framed(image, WRONG, dashed=True)
    assert (solid[:, 0] == torch.tensor(RIGHT).view(3, 1)).all()
    top = {tuple(pixel) for pixel in dashed[:, 0].T.tolist()}
    side = {tuple(pixel) for pixel in dashed[:, :, 0].T.tolist()}
    assert top == side == {WRONG, (255, 255, 255)}
    rows, columns = (solid[0] == 7).nonzero(as_tuple=True)
    assert columns.max() - columns.min() + 1 == 64 and rows.max() - rows.min() + 1 == 16
