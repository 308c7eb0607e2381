"""Whole runs on a device that is only pretended: batches, losses, memories and evaluation meet their tensors there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pretended
import pytest
import torch
from marks import slow_unless
from pretended_training import training_there
from small_runs import make_photos, small

from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval import task as retrieval

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture
def there(monkeypatch) -> Iterator[None]:
    """Lightning trains on the pretended device."""
    with training_there(monkeypatch):
        yield


def of_photos(folder: Path, *settings: str) -> Run:
    photos = folder / "photos"
    if not photos.exists():
        make_photos(photos)
    return retrieval.train(compose(small(photos, *settings)), quiet=True)


RUNS = {
    "memory": (
        of_photos,
        ["memory=sum", "memory.warmup=0", "memory.size=16", "evaluation.every=1"],
    ),
    "sum of losses": (of_photos, ["loss=supndcg+pml/triplet", "memory=sum", "memory.warmup=1"]),
    "proxies": (of_photos, ["loss=pml/proxy_anchor", "evaluation.clusters=auto", "trainer.gradient_clip_val=0.5"]),
}


@pytest.fixture
def on_the_cpu(request, tmp_path) -> Run:
    train, settings = RUNS[request.param]
    return train(tmp_path, *settings, f"out={tmp_path / 'cpu'}")


@pytest.mark.parametrize(
    ("on_the_cpu", "name"),
    [pytest.param(name, name, marks=() if name == "proxies" else pytest.mark.slow) for name in RUNS],
    ids=list(RUNS),
    indirect=["on_the_cpu"],
)
def test_a_run_there_ends_as_one_on_the_cpu(on_the_cpu, name, tmp_path, there):
    train, settings = RUNS[name]
    run = train(tmp_path, *settings, f"out={tmp_path / 'there'}")
    assert run.read_values() == pytest.approx(on_the_cpu.read_values(), rel=1e-5)


@pytest.mark.parametrize(
    "loss", slow_unless({"adaptive_roadmap"}, ["adaptive_roadmap", "rambo_recall", "pml/multi_similarity"])
)
def test_a_step_that_is_not_logged_waits_for_nothing(loss, tmp_path, there, monkeypatch):
    """Of the losses here; those of pytorch-metric-learning look for their pairs with operators that wait."""
    marks = []
    step = torch.optim.AdamW.step

    def marked(self: Any, *given: Any, **named: Any) -> Any:
        marks.append(len(pretended.waits))
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", marked)
    settings = ["trainer.log_every_n_steps=4", "sampler.batches_per_epoch=9", "trainer.max_epochs=1"]
    of_photos(tmp_path, f"loss={loss}", *settings, f"out={tmp_path / 'run'}")
    waited = [after - before for before, after in itertools.pairwise(marks)]
    # some steps are logged, and some are looked at for the page of health; the others
    others = [waited[number] for number in (1, 2, 4, 6)]
    assert len(marks) == 9 and sum(waited) > 0
    assert (others == [0] * 4) == (loss != "pml/multi_similarity"), waited
