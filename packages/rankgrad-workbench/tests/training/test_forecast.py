"""A training says how long it takes, in lines where no bar is seen, and quick trainings are small."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from small_runs import make_photos, small, train

from rankgrad_workbench.models import timm_model
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.training import callbacks
from rankgrad_workbench.training.callbacks import ProgressLines


def lines(monkeypatch: pytest.MonkeyPatch, seconds: float, steps: float, first: int = 0, loss: float | None = 0.5):
    """What is printed by a training of 10 epochs whose steps take so long; it begins after step `first`."""
    clock, said = [100.0], []
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock[0])
    trainer: Any = SimpleNamespace(
        estimated_stepping_batches=steps,
        global_step=first,
        max_epochs=10,
        current_epoch=0,
    )
    module: Any = SimpleNamespace(print=said.append, noted={} if loss is None else {"loss": torch.tensor(loss)})
    callback = ProgressLines()
    callback.on_train_start(trainer, module)
    for number in range(first, int(min(steps, 100))):
        clock[0] += seconds
        trainer.global_step, trainer.current_epoch = number + 1, number // 10
        callback.on_train_batch_end(trainer, module, None, None, number % 10)
    return said


def test_a_line_is_printed_every_half_minute_and_at_the_end(monkeypatch):
    assert lines(monkeypatch, seconds=8, steps=10) == [
        "epoch 1 of 10, step 4 of 10: loss 0.5000; 8 s a step, 48 s left",
        "epoch 1 of 10, step 8 of 10: loss 0.5000; 8 s a step, 16 s left",
        "epoch 1 of 10, step 10 of 10: loss 0.5000; 8 s a step, 0 s left",
    ]
    assert len(lines(monkeypatch, seconds=0.01, steps=100)) == 1


def test_steps_of_before_a_resumed_training_took_no_time(monkeypatch):
    assert lines(monkeypatch, seconds=40, steps=92, first=90, loss=None)[0] == (
        "epoch 10 of 10, step 91 of 92; 40 s a step, 40 s left"
    )


def test_an_endless_training_has_no_time_left(monkeypatch):
    assert lines(monkeypatch, seconds=30, steps=float("inf"))[0] == "epoch 1 of 10, step 1: loss 0.5000; 30 s a step"


def test_the_file_that_a_run_is_redirected_to_has_lines_and_no_bar(tmp_path, capfd):
    settings = [word for word in small(make_photos(tmp_path / "photos")) if "progress_bar" not in word]
    retrieval.train(compose([*settings, f"out={tmp_path / 'run'}"]))
    printed = capfd.readouterr()
    assert "\r" not in printed.out and "epoch 2 of 2, step 6 of 6: loss" in printed.out


def test_a_download_that_fails_names_the_local_file(monkeypatch):
    def offline(*_: Any, **__: Any) -> None:
        raise ConnectionError("[Errno 101] Network is unreachable\nmore lines")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(OSError, match=r"unreachable.*model\.weights=FILE") as caught:
        timm_model("resnet18", pretrained=True)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConnectionError):  # without a download it is no matter of the network
        timm_model("resnet18")


def test_a_quick_run_of_photographs_is_small():
    config = compose(["data=folder", "data.root=X", "recipe=quick"])
    assert config.data.train_transform.size == 64 and config.data.eval_transform.resize == 73
    assert config.trainer.max_epochs * config.sampler.batches_per_epoch == 1000
    assert config.data.load.cache == "ram" and config.sampler.samples_per_class == 4


@pytest.mark.slow
def test_a_head_is_trained_on_the_features_of_weights_from_a_file(tmp_path: Path) -> None:
    torch.save(timm.create_model("resnet18", num_classes=0).state_dict(), tmp_path / "weights.pth")
    model = ("model=timm", "model.name=resnet18", f"model.weights={tmp_path / 'weights.pth'}", "model.embedding_size=8")
    run = train(*small(make_photos(tmp_path / "photos"), *model, "frozen=true", f"out={tmp_path / 'run'}"))
    assert run.features.exists() and run.weights.exists() and run.read_values()["R@1"] > 0
