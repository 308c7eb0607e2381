"""Training: what is saved, that a run goes on where it died, and what ends up in the log."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from forks import forked, wait
from marks import slow, slow_unless
from small_runs import Killed, cut_off, die_after_writes, make_photos, same_results, small, train
from torch import nn

from rankgrad.evaluation import evaluate
from rankgrad_workbench import training
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import load_glyphs
from rankgrad_workbench.datasets.protocols import trials
from rankgrad_workbench.datasets.transforms import InkEval
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import best, curves, evaluations
from rankgrad_workbench.settings import ConfigError
from rankgrad_workbench.tasks.retrieval import task as runs
from rankgrad_workbench.tasks.retrieval.evaluating import evaluate_model

pytestmark = pytest.mark.usefixtures("no_page")

DROPOUT = ("model=timm", "model.name=test_resnet", "model.embedding_size=8", "++model.drop_rate=0.5")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """An uninterrupted run with these settings; each is made once."""
    made: dict[tuple[str, ...], Path] = {}

    def get(*settings: str) -> Path:
        if settings not in made:
            made[settings] = train(*small(photos, *settings), f"out={tmp_path_factory.mktemp('whole') / 'run'}").folder
        return made[settings]

    return get


# --------------------------------------------------------------------------------------------------------- resume


# always: at the end of an epoch; the middle of one below, with dropout
@pytest.mark.parametrize("writes", slow_unless({3}, range(1, 7)))
def test_a_run_that_died_in_or_after_any_batch_ends_like_one_that_did_not(photos, whole, tmp_path, writes):
    # three batches an epoch; the state is saved after batches 1 and 2 and at the end of the epoch: six times
    cut_off([*small(photos), f"out={tmp_path}"], writes)
    assert not Run(tmp_path).finished
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole())


@pytest.mark.parametrize("writes", slow_unless({2}, [2, 3]))
def test_a_run_with_data_workers_goes_on_in_the_middle_of_an_epoch(photos, whole, tmp_path, writes):
    cut_off([*small(photos, "data.workers=1"), f"out={tmp_path}"], writes)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole())  # and the number of workers changes nothing


@pytest.mark.parametrize("writes", slow_unless({2}, [1, 2, 3, 4]))
def test_dropout_goes_on_with_the_numbers_it_would_have_drawn(photos, whole, tmp_path, writes):
    cut_off([*small(photos, *DROPOUT), f"out={tmp_path}"], writes)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(*DROPOUT))


@pytest.mark.slow
def test_dropout_is_at_work_in_the_runs_above(photos, whole, tmp_path):
    without = train(*small(photos, *DROPOUT[:-1]), f"out={tmp_path}").folder
    assert not same_results(without, whole(*DROPOUT))


@pytest.mark.slow
def test_evaluating_during_training_changes_nothing_and_resumes(photos, whole, tmp_path):
    settings = [*small(photos, *DROPOUT, "evaluation.every=1"), f"out={tmp_path}"]
    cut_off(settings, 3)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(*DROPOUT))
    assert [step for step, _ in curves(Run(tmp_path))["test/R@1"]] == [2]  # of the epoch before the cut
    found = evaluations(Run(tmp_path))
    assert list(found) == [3, 6] and found[3].keys() == found[6].keys()
    assert best(Run(tmp_path))[1]["R@1"] == max(values["R@1"] for values in found.values())


@pytest.mark.slow
def test_a_run_that_dies_twice_and_then_after_training_ends_like_one_that_did_not(photos, whole, tmp_path, monkeypatch):
    cut_off([*small(photos), f"out={tmp_path}"], 1)
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 2)
        with pytest.raises(Killed):
            train(f"resume={tmp_path}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "write_report", _die)
        with pytest.raises(Killed):
            train(f"resume={tmp_path}")
    assert not Run(tmp_path).finished
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole())


@pytest.mark.slow
def test_a_loss_with_weights_of_its_own_resumes(photos, whole, tmp_path):
    cut_off([*small(photos, "loss=cross_entropy"), f"out={tmp_path}"], 2)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole("loss=cross_entropy"))


@pytest.mark.parametrize("more", slow_unless({()}, [(), ("memory.size=24", "loss=rambo_ap")]))
def test_a_memory_is_saved_and_resumed(photos, whole, tmp_path, more):
    memory = ("memory=sum", "memory.warmup=1", *more)
    cut_off([*small(photos, *memory), f"out={tmp_path}"], 4)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(*memory))
    assert not same_results(tmp_path, whole(*more[1:]))
    assert curves(Run(tmp_path))["memory_entries"][-1][1] == (24 if more else 25)


@pytest.mark.parametrize("precision", slow_unless((), ["64-true", "bf16-true"]))
def test_a_run_whose_model_is_converted_to_another_precision_resumes_exactly(photos, whole, tmp_path, precision):
    converted = f"trainer.precision={precision}"
    cut_off([*small(photos, converted), f"out={tmp_path}"], 2)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(converted))
    # of the default loss the running thresholds too, which stay in float32
    assert curves(Run(tmp_path)) == curves(Run(whole(converted)))


@pytest.mark.slow  # test_large_batch.py holds the parts to the whole
def test_a_batch_in_parts_trains_like_a_whole_one_and_resumes(photos, whole, tmp_path):
    plain = ("model.freeze_batch_norm=true", "optimizer.name=sgd")
    cut_off([*small(photos, *plain, "sub_batch=3"), f"out={tmp_path}"], 2)
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(*plain, "sub_batch=3"))
    # batch norm is frozen, as its statistics would be those of the parts; and Adam makes steps of rounding errors
    mine, expected = (dict(curves(Run(whole(*s)))["loss"]) for s in ((*plain, "sub_batch=3"), plain))
    assert len(expected) == 6 and mine == pytest.approx(expected, abs=1e-5)


def test_a_gradient_gathered_over_batches_is_never_cut_in_two(photos, whole, tmp_path):
    gathered = ("sampler.batches_per_epoch=4", "+trainer.accumulate_grad_batches=2")
    cut_off([*small(photos, *gathered), f"out={tmp_path}"], 1)
    assert torch.load(tmp_path / "state.ckpt", weights_only=False)["global_step"] == 1  # two batches, one step
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole(*gathered))


@pytest.mark.slow  # test_kills.py kills another run
def test_a_run_killed_by_the_system_ends_like_one_that_was_not(photos, whole, tmp_path):
    out, log = tmp_path / "run", tmp_path / "log.txt"
    words = ["train", *small(photos, "trainer.max_epochs=12"), f"out={out}", "checkpoint_minutes=0"]
    process = forked(lambda: main(words), log)
    deadline = time.monotonic() + 60
    while len(curves(Run(out)).get("loss", [])) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)  # then it dies at any moment, perhaps while the state is written
    os.kill(process, signal.SIGKILL)
    assert wait(process) == -signal.SIGKILL, log.read_text()
    train(f"resume={out}")
    assert same_results(out, whole("trainer.max_epochs=12"))
    # the log was on the disk too, but for the step that comes after its state is saved
    mine, expected = dict(curves(Run(out))["loss"]), dict(curves(Run(whole("trainer.max_epochs=12")))["loss"])
    assert len(expected) == 36 and len(mine) >= 35 and mine.items() <= expected.items()


# ------------------------------------------------------------------------------------------------- the saved state


def _die(*_: object, **__: object) -> None:
    raise Killed


def test_dying_while_the_state_is_written_leaves_the_last_one_whole(photos, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        real, done = os.replace, []

        def half(place: Path, path: Path) -> None:
            done.extend([path] if path.name == "state.ckpt" else [])
            if len(done) == 2:
                place.write_bytes(place.read_bytes()[:1000])
                raise Killed
            real(place, path)

        patch.setattr("rankgrad.common.files.os.replace", half)
        with pytest.raises(Killed):
            train(*small(photos), "checkpoint_minutes=0", f"out={tmp_path}")
    assert torch.load(tmp_path / "state.ckpt", weights_only=False)["global_step"] == 1
    assert not [*tmp_path.glob(".*")]  # neither half a state nor a lock
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole())


def test_the_state_is_saved_after_every_epoch_and_within_the_minutes_asked_for(photos, tmp_path, monkeypatch):
    saved: list[int] = []
    write = training.SaveState.write

    def note(self: training.SaveState, trainer: L.Trainer) -> None:
        saved.append(trainer.global_step)
        write(self, trainer)

    monkeypatch.setattr(training.SaveState, "write", note)
    train(*small(photos, "checkpoint_minutes=60"), f"out={tmp_path / 'rarely'}")
    assert saved == [3, 6]
    saved.clear()
    train(*small(photos, "checkpoint_minutes=0", "trainer.max_epochs=1"), f"out={tmp_path / 'often'}")
    assert saved == [1, 2, 3]


@pytest.fixture(scope="module")
def begun(photos, tmp_path_factory) -> Path:
    """A run that died after its second step."""
    out = tmp_path_factory.mktemp("begun") / "run"
    cut_off([*small(photos), f"out={out}"], 2)
    return out


@pytest.fixture
def cut(begun, tmp_path) -> Path:
    """A run with a saved state."""
    return Path(shutil.copytree(begun, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("lr: 0.0025", "lr: 0.001", "optimizer.lr (then 0.0025, now 0.001)"),
        *slow(
            ("head: null", "head: mlp", "model.head (then None, now mlp)"),
            ("max_epochs: 2", "max_epochs: 5", "trainer.max_epochs (then 2, now 5)"),
            ("tau: 0.01", "tau: 0.02", "loss.tau (then 0.01, now 0.02)"),
        ),
    ],
)
def test_a_state_of_other_settings_is_refused_and_kept(cut, old, new, named):
    config, state = cut / "config.yaml", cut / "state.ckpt"
    before = state.read_bytes()
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match="was changed since state.ckpt was saved") as error:
        train(f"resume={cut}")
    assert named in str(error.value) and "Change it back" in str(error.value)
    assert state.read_bytes() == before and config.exists()
    config.write_text(text)
    assert train(f"resume={cut}").finished


def test_the_time_of_a_run_that_was_cut_off_counts_what_came_before(cut):
    state = torch.load(cut / "state.ckpt", weights_only=True)
    assert 0 < state["callbacks"]["Clock"]["train_seconds"] < 100
    state["callbacks"]["Clock"] = {"train_seconds": 1000.0, "train_cpu_seconds": 2000.0}
    torch.save(state, cut / "state.ckpt")
    facts = train(f"resume={cut}").read_facts()
    assert 1000 < facts["train_seconds"] < 1100 and 2000 < facts["train_cpu_seconds"] < 2100


def test_a_state_of_another_model_is_refused_even_if_the_settings_are_alike(cut):
    state = torch.load(cut / "state.ckpt", weights_only=False)
    name = next(name for name in state["state_dict"] if name.startswith("model.backbone"))
    state["state_dict"][name] = torch.zeros(5, 8)
    torch.save(state, cut / "state.ckpt")
    before = (cut / "state.ckpt").read_bytes()
    with pytest.raises(ConfigError, match=rf"differs .*{name} is \[5, 8\] in the file"):
        train(f"resume={cut}")
    assert (cut / "state.ckpt").read_bytes() == before


def test_a_damaged_state_says_what_to_do_and_doing_it_helps(cut, whole):
    content = (cut / "state.ckpt").read_bytes()
    (cut / "state.ckpt").write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigError, match=r"state.ckpt is damaged .* Delete it"):
        train(f"resume={cut}")
    (cut / "state.ckpt").unlink()
    train(f"resume={cut}")
    assert same_results(cut, whole())


@pytest.mark.slow  # test_run_folder.py changes the images too
def test_a_state_of_other_images_is_refused(photos, tmp_path):
    mine = make_photos(tmp_path / "mine")
    cut_off([*small(mine), f"out={tmp_path / 'run'}"], 2)
    for folder in sorted(mine.iterdir()):
        (folder / "0.png").unlink()
    with pytest.raises(ValueError, match=r"images \(then 50, now 40\), names"):
        train(f"resume={tmp_path / 'run'}")


# ---------------------------------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.parametrize("name", slow_unless({"SIGINT"}, ["SIGINT", "SIGTERM"]))
def test_ctrl_c_and_the_system_s_request_to_end_leave_a_run_to_continue(photos, whole, tmp_path, name):
    handler = signal.getsignal(signal.SIGINT)
    cut_off([*small(photos), f"out={tmp_path}"], 2, die=partial(signal.raise_signal, getattr(signal, name)))
    assert signal.getsignal(signal.SIGINT) is handler  # a later Ctrl-C works again
    train(f"resume={tmp_path}")
    assert same_results(tmp_path, whole())


# --------------------------------------------------------------------------------------------------------- the log


@pytest.mark.slow  # test_run_folder.py compares the log of a resumed run
def test_the_curves_of_a_run_that_died_twice_are_those_of_a_whole_one(photos, whole, tmp_path):
    cut_off([*small(photos, "trainer.max_epochs=3"), f"out={tmp_path}"], 3)
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 3)
        with pytest.raises(Killed):
            train(f"resume={tmp_path}")
    train(f"resume={tmp_path}")
    mine, expected = curves(Run(tmp_path)), curves(Run(whole("trainer.max_epochs=3")))
    assert mine == expected
    assert [step for step, _ in expected["loss"]] == [*range(9)]


def test_a_line_that_was_cut_off_is_left_out_of_the_curves(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "metrics.csv").write_text("epoch,loss,step\r\n0,0.5,0\r\n0,0.4,1\r\n0,0.3")
    assert curves(Run(tmp_path)) == {"loss": [(0.0, 0.5), (1.0, 0.4)]}


def test_the_log_holds_loss_its_parts_the_share_of_queries_that_count_and_the_length_of_the_gradient(whole):
    found = curves(Run(whole()))
    assert {"loss", "supap", "calibration", "counted", "grad_norm"} <= set(found)
    assert len(found["grad_norm"]) == 6 and all(value > 0 for _, value in found["grad_norm"])
    assert {value for _, value in found["counted"]} == {1.0}


@pytest.mark.slow
def test_tensorboard_and_csv_stand_side_by_side(photos, tmp_path):
    run = train(*small(photos, "loggers=[tensorboard,csv]"), f"out={tmp_path}")
    assert len(curves(run)["loss"]) == 6
    assert [*(tmp_path / "logs").rglob("events.out.tfevents.*")]


@pytest.mark.slow
def test_a_run_without_loggers_has_no_curves_and_ends(photos, tmp_path):
    run = train(*small(photos, "loggers=[]"), f"out={tmp_path}")
    assert run.finished and curves(run) == {}


# ------------------------------------------------------------------------------------------ optimisation and numbers


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_every_optimiser_moves_backbone_head_and_the_weights_of_the_loss_at_its_own_rate(name):
    from rankgrad.losses.baselines import CrossEntropyLoss
    from rankgrad_workbench.models.convnet import convnet

    settings = {"name": name, "lr": 0.1, "weight_decay": 0.0, "momentum": 0.9, "head_lr_factor": 2.0}
    settings |= {"loss_lr_factor": 10.0, "warmup": 0.0}
    model = convnet(widths=(8, 8), embedding_size=3)
    module = training.RetrievalModule(model, CrossEntropyLoss(2, 3), settings)
    module.trainer = type("Trainer", (), {"estimated_stepping_batches": 10})()
    optimizer = module.configure_optimizers()["optimizer"]
    rates = {group["name"]: group["initial_lr"] for group in optimizer.param_groups}
    assert rates == {"backbone": 0.1, "head": 0.2, "loss": 1.0}
    before = [parameter.detach().clone() for parameter in module.parameters()]
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    module.loss(module.model(images), torch.tensor([0, 0, 1, 1])).backward()
    optimizer.step()
    changed = [not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True)]
    assert all(changed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "lion", "warmup": 0.1}, "unknown optimizer.name 'lion'; known: adamw, adam, sgd"),
        (
            {"name": "sgd", "warmup": 1.5},
            "optimizer.warmup is a fraction and must be .*; got 1.5",
        ),
    ],
)
def test_wrong_optimiser_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        training.RetrievalModule(nn.Linear(2, 2), nn.MSELoss(), settings)


def test_the_learning_rate_rises_over_the_warm_up_and_ends_near_zero():
    rate = training.Schedule(steps=100, warmup=0.1)
    factors = [rate(step) for step in range(101)]
    assert factors[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert all(a > b for a, b in itertools.pairwise(factors[10:])) and factors[-1] == pytest.approx(0)
    assert training.Schedule(steps=4, warmup=0.0)(0) == 1.0
    assert [training.Schedule(steps=2, warmup=1.0)(step) for step in (0, 1)] == [0.5, 1.0]


@pytest.mark.slow
def test_the_rate_falls_at_the_epochs_that_are_named(photos, tmp_path):
    schedule = ("optimizer.schedule=steps", "optimizer.milestones=[1]", "optimizer.factor=0.25", "optimizer.warmup=0")
    train(*small(photos, *schedule), f"out={tmp_path}")
    state = torch.load(tmp_path / "state.ckpt", weights_only=False)
    (group, *_) = state["optimizer_states"][0]["param_groups"]
    assert group["lr"] == pytest.approx(0.25 * group["initial_lr"])
    rates = [training.Schedule(6, name="steps", milestones=(3,), factor=0.25)(step) for step in range(6)]
    assert rates == [1, 1, 1, 0.25, 0.25, 0.25]
    assert training.Schedule(6, name="constant")(5) == 1


def test_the_best_evaluation_is_the_earliest_of_equals(tmp_path):
    run = Run(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "metrics.csv").write_text("step,test/R@1,test/AP\n3,0.5,0.1\n7,0.75,0.2\n11,0.75,0.3\n")
    assert evaluations(run) == {4: {"R@1": 0.5, "AP": 0.1}, 8: {"R@1": 0.75, "AP": 0.2}, 12: {"R@1": 0.75, "AP": 0.3}}
    assert best(run) == (8, {"R@1": 0.75, "AP": 0.2}) and best(run, "AP")[0] == 12
    with pytest.raises(ValueError, match="no value of NMI"):
        best(run, "NMI")


HALF, CLIPPED = "trainer.precision=bf16-mixed", "trainer.gradient_clip_val=0.001"


@pytest.mark.parametrize("setting", slow_unless((), [HALF, CLIPPED]))
def test_half_precision_and_gradient_clipping_take_effect(photos, whole, tmp_path, setting):
    run = train(*small(photos, setting), f"out={tmp_path}")
    assert run.finished and not same_results(run.folder, whole())


def test_the_mode_of_a_model_survives_embedding():
    from rankgrad_workbench.datasets import Table
    from rankgrad_workbench.datasets.transforms import InkEval
    from rankgrad_workbench.models.convnet import convnet

    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    names = ("a", "b", "c")
    table = Table("t", torch.arange(3), names, ("test",) * 3, names, channels=1, images=images)
    model = convnet(widths=(8, 8), embedding_size=4)
    state = torch.get_rng_state()
    found = training.embed(model.train(), table, InkEval(8), batch_size=2)
    assert found.shape == (3, 4) and found.dtype == torch.float32 and model.training
    assert torch.equal(torch.get_rng_state(), state)  # nor is a random number drawn
    training.embed(model.eval(), table, InkEval(8))
    assert not model.training


# ------------------------------------------------------------------------------------------------------- protocols


def evaluated(protocol, **columns):
    """Glyphs' test set by a protocol, embedded as their pixels."""
    table = replace(load_glyphs().select("test").take(range(120)), protocol=protocol, **columns)
    settings = {"ks": [1], "batch_size": 50, "bootstrap": 20, "clusters": "none"}
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16))
    return table, *evaluate_model(model, table, InkEval(size=28), settings)


def test_queries_are_ranked_against_their_gallery_where_a_data_set_divides_them(tmp_path):
    role = ("query", "gallery", "gallery") * 40
    torch.manual_seed(0)
    table, report, embeddings = evaluated("query_gallery", role=role)
    asked = torch.tensor([r == "query" for r in role])
    label = table.label
    items = {"ref_embeddings": embeddings[~asked], "ref_labels": label[~asked]}
    wanted = evaluate(embeddings[asked], label[asked], metrics=[*report.values], **items)
    assert report.values == wanted.values and report.counts["gallery"] == 80
    training.save_embeddings(tmp_path / "embeddings.npz", embeddings, table)
    saved = np.load(tmp_path / "embeddings.npz")
    assert len(saved["embeddings"]) == len(saved["labels"]) == len(saved["names"]) == 40
    assert len(saved["ref_embeddings"]) == len(saved["ref_labels"]) == 80


def test_drawn_galleries_are_averaged_and_named():
    torch.manual_seed(0)
    table, report, embeddings = evaluated("one_gallery")
    found = []
    for trial in trials(table):
        items = {"ref_embeddings": embeddings[trial.gallery], "ref_labels": table.label[trial.gallery]}
        found.append(evaluate(embeddings[trial.query], table.label[trial.query], intervals=0, **items))
    assert report.values["R@1"] == pytest.approx(sum(r.values["R@1"] for r in found) / 10)
    assert "one-gallery, 10 draws" in str(report) and report.intervals == {}
    assert "means over 10 drawn galleries" in report.notes[-1]
