"""Batches come from workers in memory that is used again, and never while anybody has the batch still."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from pickle import loads

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rankgrad_workbench.datasets import ImageSet, Table, delivery, transforms
from rankgrad_workbench.datasets.transforms import Collate, InkEval, PhotoEval


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Those of this process, which plays both parts."""
    found: list[Tensor] = []
    monkeypatch.setattr(delivery, "_PIECES", found)
    return found


def delivered(batch: Tensor) -> Tensor:
    given: Tensor = loads(ForkingPickler.dumps(delivery.send(batch)))
    return given


def test_memory_is_used_again_as_soon_as_the_batch_is_gone_and_not_before(pieces):
    first = delivered(torch.full((2, 3), 1.0))
    second = delivered(torch.full((2, 3), 2.0))
    part = first[1]  # holds it, too
    del first
    third = delivered(torch.full((2, 3), 3.0))
    assert len(pieces) == 3 and part.tolist() == [1.0] * 3 and second[0, 0] == 2
    del part, second
    fourth, fifth = (delivered(torch.full((2, 2), value)) for value in (4.0, 5.0))
    assert len(pieces) == 3 and (third[0, 0], fourth[1, 1], fifth[1, 1]) == (3, 4, 5)
    del third, fourth, fifth
    assert delivered(torch.zeros(9, 9)).shape == (9, 9) and len(pieces) == 1  # the others were too small


def test_who_keeps_all_batches_has_all_of_them(pieces):
    kept = [delivered(torch.full((2, 2), float(value))) for value in range(3 * delivery.KEPT)]
    assert len(pieces) == delivery.KEPT
    assert [batch[1, 1].item() for batch in kept] == list(range(3 * delivery.KEPT))


def test_a_batch_that_is_made_in_its_place_is_not_copied(pieces):
    batch = delivery.lend((2, 5))
    batch.fill_(7)
    sent = delivery.send(batch)
    assert isinstance(sent, delivery.Sent) and sent.piece.data_ptr() == batch.untyped_storage().data_ptr()
    for other in (torch.arange(3), torch.zeros(0, 4), torch.zeros(2, dtype=torch.float64)):
        assert delivery.send(other) is other


def test_photographs_are_made_where_the_main_process_finds_them(pieces, monkeypatch):
    monkeypatch.setattr(transforms, "get_worker_info", lambda: "a worker")
    photo = torch.zeros(3, 8, 8, dtype=torch.uint8)
    batch = PhotoEval(size=8, resize=8)([photo, photo], torch.arange(2), 0)
    assert len(pieces) == 1 and batch.untyped_storage().data_ptr() == pieces[0].data_ptr()
    sent, _, _ = Collate(PhotoEval(size=8, resize=8))([(photo, 0, 0)])
    assert isinstance(sent, delivery.Sent)


@pytest.mark.parametrize("transform", [InkEval(size=8), PhotoEval(size=8, resize=8)])
def test_workers_give_what_the_main_process_makes(transform):
    images = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    names = tuple(map(str, range(40)))
    table = Table("t", torch.zeros(40, dtype=torch.long), ("a",), ("test",) * 40, names, channels=3, images=images)

    def batches(workers: int) -> list[Tensor]:
        loader = DataLoader(ImageSet(table), batch_size=3, collate_fn=Collate(transform), num_workers=workers)
        return [images for images, _, _ in loader]

    mine, theirs = batches(0), batches(1)  # more than a worker keeps pieces
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True)) and len(mine) == 14
