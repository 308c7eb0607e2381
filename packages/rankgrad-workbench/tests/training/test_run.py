"""Runs as a user makes them: on a folder with broken files, from another run's network, and with wrong settings."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import slow_unless
from omegaconf import OmegaConf
from PIL import Image
from small_runs import cut_off, make_photos, same_results, small, train

from rankgrad.evaluation import Report
from rankgrad_workbench.files.folders import HOLDER
from rankgrad_workbench.index.embed import embed_folder
from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.models.weights import load_weights
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import read_rows
from rankgrad_workbench.settings import ConfigError, compose, options
from rankgrad_workbench.tasks.retrieval import building, evaluating
from rankgrad_workbench.tasks.retrieval import task as runs
from rankgrad_workbench.tasks.retrieval.settings import settings_of
from rankgrad_workbench.training import runner
from rankgrad_workbench.training.health import HealthWarning

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


# -------------------------------------------------------------------------------------------------- what a run leaves


def test_a_run_leaves_its_settings_numbers_model_embeddings_log_and_page(finished, photos):
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        *("config.yaml", "state.ckpt", "model.pt", "before.json", "after.json", "facts.json"),
        *("embeddings.npz", "report.html", "health.json", "logs", "checksums.sha256"),
    }
    facts = json.loads((finished.folder / "facts.json").read_text())
    assert facts["steps"] == 6 and facts["train_seconds"] > 0 and facts["device"] == "cpu"
    with np.load(finished.folder / "embeddings.npz") as file:
        assert file["embeddings"].shape == (25, 8) and file["labels"].shape == (25,)
        assert [file["class_names"][label] for label in file["labels"]] == [n.split("/")[0] for n in file["names"]]
    model, extra = load_weights(finished.weights)
    assert model.embedding_size == 8 and extra["data"]["root"] == str(photos)


def test_the_classes_of_the_test_are_not_those_of_the_training(finished, photos):
    counts = Report.from_json(finished.after).counts
    assert counts["classes"] == 5 and counts["queries"] == 25
    table = building.load_table(settings_of(compose(small(photos))))
    assert not {*table.select("train").label.tolist()} & {*table.select("test").label.tolist()}


def test_the_page_needs_nothing_but_itself(finished):
    page = (finished.folder / "report.html").read_text()
    assert "<table" in page and "data:image/" in page and "<svg" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)[^"']*""", page)
    assert not re.findall(r"@import|url\((?!['\"]?(?:data:|#))", page)


def test_a_run_that_ends_below_the_untrained_network_says_so_in_its_last_lines_and_on_its_page(finished, tmp_path):
    for r1, mean, told in ((0.9, 0.9, ["R@1", "mAP@R"]), (0.9, 0.1, ["R@1"]), (0.1, 0.1, [])):
        run = Run(Path(shutil.copytree(finished.folder, tmp_path / f"{r1} {mean}")))
        for path, values in ((run.before, (r1, mean)), (run.after, (0.5, 0.5))):
            content = json.loads(path.read_text())
            for name, value in zip(("R@1", "mAP@R"), values, strict=True):
                content["values"][name] = value
                content["per_query"][name] = [value] * 25
            path.write_text(json.dumps(content))
        last = runs.summary(run).splitlines()[-1]
        words = " and ".join(f"{name} 50.0 (before training 90.0; p 0.0005 over 25 queries)" for name in told)
        assert last.startswith(f"! training made the network worse: {words}. Try optimizer.lr") == bool(told)
        page = write_report(tmp_path / "page.html", read_runs([run.folder])).read_text()
        assert (f"training made the network worse: {words}. Try" in page.partition("<section")[0]) == bool(told)


def test_the_first_step_is_logged_so_that_a_short_run_has_a_curve(photos, tmp_path):
    for name, more in (("every 5", "trainer.log_every_n_steps=5"), ("none", "trainer.log_every_n_steps=0")):
        run = train(*small(photos, more), f"out={tmp_path / name}")
        rows = read_rows(run.logs)
        assert [row["step"] for row in rows] == (["0", "4"] if name == "every 5" else [])
        assert all(float(row["grad_norm"]) > 0 for row in rows)


@pytest.mark.parametrize("classes", [3, 4])
def test_the_advice_for_data_without_a_test_leads_to_a_run(tmp_path, classes):
    whole = small(make_photos(tmp_path, classes), "data.load.test_fraction=0", "sampler.classes_per_batch=2")
    with pytest.raises(ConfigError, match="no images of split 'test'") as error:
        runs.build(compose(whole), quiet=True)
    advised = re.findall(r"[\w.]+=[\w.]*\w", str(error.value))
    assert len(advised) == classes - 2
    for word in advised:
        runs.build(compose([*whole, word]), quiet=True)


def test_two_runs_with_the_same_seed_are_alike_and_another_seed_is_not(photos, finished, tmp_path):
    assert same_results(train(*small(photos), f"out={tmp_path / 'same'}").folder, finished.folder)
    assert not same_results(train(*small(photos, "seed=1"), f"out={tmp_path / 'other'}").folder, finished.folder)


def test_the_summary_shows_what_was_computed_in_per_cent(finished):
    text = runs.summary(finished)
    value = 100 * Report.from_json(finished.after).values["mAP@R"]
    line = next(line for line in text.splitlines() if "mAP@R" in line)
    assert f"{value:.1f}" in line
    assert "NMI" not in text and str(finished.folder / "report.html") in text


def test_the_summary_ends_with_what_a_reader_of_the_numbers_should_know(finished, tmp_path):
    run = Run(shutil.copytree(finished.folder, tmp_path / "run"))
    report = replace(Report.from_json(run.after), notes=("The intervals rest on 2 classes only.",))
    run.after.write_text(report.to_json(), encoding="utf-8")
    assert "\nThe intervals rest on 2 classes only.\n" in runs.summary(run)


# one of each kind always: of the core, with buffers, with weights, of the other library
ALWAYS = ("smooth_ap", "rambo_recall", "cross_entropy", "pml/multi_similarity")


@pytest.mark.parametrize("loss", slow_unless(ALWAYS, options("loss")))
def test_every_loss_trains_a_run(photos, tmp_path, loss):
    if "/" in loss:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[loss.split("/")[0]])
    quick = ("trainer.max_epochs=1", "sampler.batches_per_epoch=2", "loggers=[]")
    run = train(*small(photos, f"loss={loss}", *quick), f"out={tmp_path / 'run'}")
    weights = load_weights(run.weights)[0].state_dict()
    torch.manual_seed(0)
    assert run.finished and all(value.isfinite().all() for value in weights.values())
    before, after = Report.from_json(run.before), Report.from_json(run.after)
    assert before.values != after.values


def test_a_timm_backbone_trains_a_run(photos, tmp_path):
    run = train(*small(photos, "model=timm", "model.name=test_resnet", "model.pooling=gem"), f"out={tmp_path}")
    model, _ = load_weights(run.weights)
    assert run.finished and model.embedding_size == model.feature_size and model.config["name"] == "test_resnet"


# --------------------------------------------------------------------------------------------------- broken images


@pytest.fixture
def messy(tmp_path) -> Path:
    """Photos beside files that are empty, cut short, no images at all, of other modes, and a class with one image."""
    root = make_photos(tmp_path / "messy")
    first = root / "class 0"
    whole = (first / "0.png").read_bytes()
    (first / "empty.png").write_bytes(b"")
    (first / "cut.png").write_bytes(whole[: len(whole) // 2])
    (first / "text.jpg").write_text("no image")
    (first / "notes.txt").write_text("not listed: no image by its name")
    (root / "beside.png").write_bytes(whole)
    (root / "class empty").mkdir()
    (root / "class of broken ones").mkdir()
    (root / "class of broken ones" / "only.png").write_bytes(b"x")
    for split_of in range(8):  # both splits get one, whatever the division
        (root / f"single {split_of}").mkdir()
        Image.new("L" if split_of % 2 else "RGBA", (50, 33 + split_of), split_of).save(
            root / f"single {split_of}" / "a.png"
        )
    return root


BROKEN = {"empty.png", "cut.png", "text.jpg", "beside.png", "only.png"}


def test_broken_files_are_listed_and_the_run_goes_to_its_end(messy, tmp_path, capsys, with_page):
    with pytest.warns(HealthWarning, match="47 % of the queries"):
        run = train(*small(messy), f"out={tmp_path / 'run'}")  # classes of one image, too
    shown = capsys.readouterr().out
    assert run.finished and "skipped 5 files and 1 folder:" in shown and all(name in shown for name in BROKEN)
    assert "one image only" in shown
    report = Report.from_json(run.after)
    assert len(report.without_relevant) > 0 and any("no relevant item" in note for note in report.notes)
    assert "Not read: 5 files and 1 folder." in (run.folder / "report.html").read_text()


def test_embedding_a_folder_names_the_files_it_left_out(messy, finished, tmp_path):
    out = tmp_path / "all.npz"
    count, skipped, _ = embed_folder(finished.folder, messy, out)
    assert count == 58 and {Path(path).name for path, _ in skipped} == {*BROKEN, "class empty"}
    with np.load(out) as file:
        assert file["embeddings"].shape == (58, 8) and np.isfinite(file["embeddings"]).all()
    again = tmp_path / "again.npz"
    embed_folder(finished.weights, messy, again, batch_size=7)
    with np.load(out) as one, np.load(again) as other:
        np.testing.assert_allclose(one["embeddings"], other["embeddings"], atol=1e-5)


def test_embedding_gives_what_the_run_gave(photos, finished, tmp_path):
    embed_folder(finished.folder, photos, tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz") as file, np.load(finished.folder / "embeddings.npz") as kept:
        row = {name: i for i, name in enumerate(file["names"].tolist())}
        rows = [row[name] for name in kept["names"].tolist()]
        np.testing.assert_allclose(file["embeddings"][rows], kept["embeddings"], atol=1e-5)


def test_embedding_refuses_before_it_works_for_nothing(photos, finished, tmp_path, monkeypatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("images were embedded, but the result can't be written")

    monkeypatch.setattr(evaluating, "embed", never)
    for out in (tmp_path / "missing" / "a.npz", tmp_path):
        with pytest.raises(FileNotFoundError, match="cannot be written.*folder"):
            embed_folder(finished.folder, photos, out)
    with pytest.raises(FileNotFoundError, match="finished run, or its model.pt"):
        embed_folder(tmp_path, photos, tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError, match="none"):
        embed_folder(finished.folder, tmp_path / "none", tmp_path / "a.npz")
    (tmp_path / "blank").mkdir()
    with pytest.raises(ValueError, match="no readable image below"):
        embed_folder(finished.folder, tmp_path / "blank", tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("classes", "message"),
    [(0, "has no sub-folders"), (1, r"images of 1 class\(es\)"), (2, "ranking needs at least two in each split")],
)
def test_a_folder_with_too_little_in_it_leaves_no_run(tmp_path, classes, message):
    root = tmp_path / "photos"
    root.mkdir()
    make_photos(root, classes=classes)
    with pytest.raises(ValueError, match=message):
        train(*small(root), f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_a_file_that_breaks_after_the_check_is_named(photos, tmp_path, monkeypatch):
    mine = make_photos(tmp_path / "photos")
    real = evaluating.embed

    def broken(*arguments: object, **options: object) -> torch.Tensor:
        for folder in mine.iterdir():
            (folder / "1.png").write_bytes(b"x")
        return real(*arguments, **options)

    monkeypatch.setattr(evaluating, "embed", broken)
    with pytest.raises(OSError, match=r"cannot read image .*1\.png"):
        train(*small(mine), f"out={tmp_path / 'run'}")


# -------------------------------------------------------------------------------------- new, resumed, refused


def test_a_run_writes_nothing_to_the_settings_that_it_was_given(photos):
    config = compose([*small(photos, "loss=cross_entropy", "trainer.max_epochs=null", "data.epochs=1"), "threads=1"])
    given = OmegaConf.to_container(config)
    task = runs.build(config, quiet=True)
    assert OmegaConf.to_container(config) == given and config.derived.num_classes == 0
    assert task.settled["derived.num_classes"] == task.settings.loss["num_classes"] == 5
    assert task.settled["trainer.max_epochs"] == task.settings.trainer["max_epochs"] > 1


def test_a_finished_run_is_not_trained_again(finished, monkeypatch):
    monkeypatch.setattr(building, "load_table", lambda *_: pytest.fail("the data were loaded"))
    assert train(f"resume={finished.folder}").folder == finished.folder


def test_a_folder_that_holds_a_run_is_refused_and_untouched(photos, finished):
    before = {path: path.stat().st_mtime_ns for path in finished.folder.iterdir()}
    with pytest.raises(ConfigError, match="a run already: .*resume="):
        train(*small(photos, "seed=7"), f"out={finished.folder}")
    assert {path: path.stat().st_mtime_ns for path in finished.folder.iterdir()} == before


@pytest.mark.parametrize("name", ["", "missing", "state.ckpt"])
def test_only_the_folder_of_a_run_can_be_resumed(tmp_path, name):
    (tmp_path / "state.ckpt").write_bytes(b"")
    with pytest.raises(ConfigError, match="resume: .* the folder of a run"):
        train(f"resume={tmp_path / name}")


def test_a_new_run_is_named_after_data_loss_and_time(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(*small(photos, "loss=pnp", "trainer.max_epochs=0"))
    assert re.fullmatch(r"runs/folder-PNPLoss-\d{8}-\d{6}", run.folder.as_posix())


def test_relative_paths_are_those_of_the_caller_and_a_run_resumes_from_anywhere(tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_photos(here / "my photos (1)")
    monkeypatch.chdir(here)
    cut_off([*small(Path("my photos (1)")), "out=runs/a=b"], 2)
    assert (here / "runs" / "a=b" / "state.ckpt").exists()
    monkeypatch.chdir(elsewhere)
    assert train("resume=../here/runs/a=b").finished
    assert [*elsewhere.iterdir()] == []


WRONG = [
    (["sampler.classes_per_batch=0"], "sampler.classes_per_batch counts classes and must be an integer >= 1; got 0"),
    (["optimizer.name=lion"], "unknown optimizer.name 'lion'"),
    (["optimizer.warmup=2"], "optimizer.warmup is a fraction"),
    (["optimizer.lr=fast"], "optimizer.lr is a .*number; got 'fast'"),
    (["trainer.max_epochs=-1"], "trainer.max_epochs counts epochs and must be an integer >= 0; got -1"),
    (["optimizer.schedule=stairs"], "unknown optimizer.schedule .stairs.; known: cosine, constant, steps"),
    (["sub_batch=0"], "sub_batch is a number of rows, or null.*got 0"),
    (["optimizer.only=[nosuch]"], "optimizer.only is a list of patterns"),
    (["data.cache=x"], "data.cache must be 'none', 'ram' or 'disk'; got 'x'"),
    (["loggers=[wandb]"], "loggers must be .csv. or .tensorboard.; got .wandb."),
    (["trainer.precision=3"], "trainer.precision must be .*got .3."),
    (["trainer.accelerator=abacus"], "trainer.accelerator must be .*got .abacus."),
    (["trainer.accelerator=cpu", "trainer.devices=0"], "trainer.devices must be auto, a number .*got 0"),
    (["trainer.accelerator=cpu", "trainer.devices=2"], "needs a process for each device: use the command"),
    (["trainer.devices=many"], "a number of devices or a list of them, .*; got 'many'"),
    (["memory=sum", "memory.size=0"], "memory: size is the number of entries and must be an integer >= 1; got 0"),
    (["memory=sum", "memory.batches=2"], "give either memory.batches or memory.size"),
    (["memory=sum", "loss=cross_entropy"], "CrossEntropyLoss can't use a memory"),
    (["sampler.batches_per_pair=2"], "super-labels, but this data has none"),
    (["+trainer.colour=red"], "unexpected keyword argument 'colour'"),
    (["+trainer.callbacks=[]"], "multiple values for keyword argument 'callbacks'"),
    (["+trainer.accumulate_grad_batches=0"], "trainer.accumulate_grad_batches counts batches .*>= 1; got 0"),
    (["+trainer.accumulate_grad_batches=1.5"], "trainer.accumulate_grad_batches counts batches .*>= 1; got 1.5"),
    (["trainer.gradient_clip_val=nan"], "trainer.gradient_clip_val is the largest gradient .*got nan"),
    (["trainer.log_every_n_steps=-1"], "trainer.log_every_n_steps counts steps .*got -1"),
    (["checkpoint_minutes=nan"], "checkpoint_minutes is the longest time .*got nan"),
    (["optimizer.factor=-1"], "optimizer.factor is a rate or a factor .*got -1"),
    (["optimizer.momentum=2"], "optimizer.momentum is a fraction .*got 2"),
    (["optimizer.milestones=[-1]"], "each entry of optimizer.milestones is an epoch .*got -1"),
    (["model.widths=[8.5,8,8,8]"], "model: each entry of widths counts channels .*got 8.5"),
    (["model.residual=2"], "model.residual is true or false; got 2"),
    (["model.head=linear", "model.embedding_size=2.5"], "model: embedding_size is None .*got 2.5"),
    (["evaluation.clusters=some"], "evaluation: clusters must be 'auto' or 'none'"),
    (["evaluation.ks=[0]"], "evaluation: ks are list lengths"),
    (["evaluation.extra=[AP10]"], "evaluation: unknown metric 'AP10'; did you mean"),
    (["evaluation.bootstrap=-1"], "evaluation: bootstrap is a number of resamples .*>= 0; got -1"),
    (["evaluation.split=tset"], "evaluation.split must be 'train', .*got 'tset'"),
    (["evaluation.split=val"], "has no images of split 'val'; it has train, test"),
    (["evaluation.keep_best=train"], "evaluation.keep_best must be None, 'test' or 'val'; got 'train'"),
    (["fold=4/3"], "fold must be like 1/3, the first of three folds; got '4/3'"),
    (["evaluation.batch_size=0"], "evaluation.batch_size counts rows and must be an integer >= 1; got 0"),
    (["data.size=8"], "at least 16 x 16; got 8 x 8"),
    (["data.load.channels=1"], r"a channel for each mean and std \(3\)"),
    (["data.workers=-1"], "data.workers counts .*>= 0; got -1"),
    (["threads=0"], "threads counts CPU threads and must be an integer >= 1"),
    (["loss.tau=0"], "loss: tau is a temperature"),
    (["loss.tau=abc"], "loss: tau is a temperature.*got 'abc'"),
    (["model.head=two"], "model: unknown head 'two'"),
    (["model=timm", "model.name=resnet81"], "model: unknown timm model 'resnet81'; did you mean"),
    (["model=timm", "model.weights=missing.pth"], "no weights file at missing.pth"),
    (["frozen=true"], "needs a trained network .init=RUN"),
    (["init=missing"], "no weights file at missing"),
]


EARLY = (
    "sub_batch",
    "optimizer.only",
    "loss.tau",
    "sampler.classes",
    "model",
    "evaluation.ks",
    "evaluation.clusters",
    "evaluation.extra",
    "evaluation.bootstrap",
    "evaluation.split=tset",
    "evaluation.keep_best",
    "fold",
    "optimizer",
    "trainer.max_epochs",
    "threads",
)


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[" ".join(settings) for settings, _ in WRONG])
def test_settings_that_cannot_work_are_refused_and_the_folder_stays_free(
    photos, tmp_path, monkeypatch, settings, message
):
    if settings[0].startswith(EARLY):
        monkeypatch.setattr(building, "load_table", lambda *_: pytest.fail("files were read first"))
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        train(*small(photos, *settings), f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.slow
def test_a_folder_in_which_settings_failed_takes_better_ones(photos, finished, tmp_path):
    with pytest.raises(ValueError, match="clusters"):
        train(*small(photos, "evaluation.clusters=some"), f"out={tmp_path}")
    assert same_results(train(*small(photos), f"out={tmp_path}").folder, finished.folder)


# --------------------------------------------------------------------------------------------- from another run


def test_a_run_begins_with_the_weights_of_another(photos, finished, tmp_path):
    for source in (finished.folder, finished.weights):
        run = train(*small(photos, "trainer.max_epochs=0"), f"init={source}", f"out={tmp_path / source.name}")
        assert run.before.read_bytes() == finished.after.read_bytes()


def test_a_head_is_trained_on_frozen_features_and_the_rest_stays_bit_by_bit(photos, finished, tmp_path):
    settings = ["model.embedding_size=5", "model.head=layer_norm", "optimizer.lr=0.1"]
    run = train(*small(photos, *settings), f"init={finished.folder}", "frozen=true", f"out={tmp_path}")
    old, new = load_weights(finished.weights)[0], load_weights(run.weights)[0]
    assert new.embedding_size == 5 and new.head.kind == "layer_norm"
    kept = {key: value for key, value in new.state_dict().items() if not key.startswith("head.")}
    assert len(kept) > 10 and all(torch.equal(value, old.state_dict()[key]) for key, value in kept.items())
    assert run.before.read_bytes() == finished.after.read_bytes()
    assert Report.from_json(run.after).values != Report.from_json(run.before).values


def test_features_are_computed_once_and_a_frozen_run_resumes_like_any_other(photos, finished, tmp_path, monkeypatch):
    settings = [*small(photos), f"init={finished.folder}", "frozen=true", "model.head=linear"]
    cut_off([*settings, f"out={tmp_path / 'cut'}"], 2)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "extract_features", lambda *_, **__: pytest.fail("features were computed again"))
        train(f"resume={tmp_path / 'cut'}")
    whole = train(*settings, f"out={tmp_path / 'whole'}")
    assert same_results(tmp_path / "cut", whole.folder)


def test_a_frozen_run_that_died_before_its_first_state_ends_like_a_whole_one(photos, finished, tmp_path, monkeypatch):
    settings = [*small(photos), f"init={finished.folder}", "frozen=true", "model.head=linear"]
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_fit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(*settings, f"out={tmp_path / 'cut'}")
    train(f"resume={tmp_path / 'cut'}")
    assert same_results(tmp_path / "cut", train(*settings, f"out={tmp_path / 'whole'}").folder)


@pytest.mark.slow
def test_features_of_a_run_that_failed_are_not_used_for_another(photos, finished, tmp_path, monkeypatch):
    settings = [*small(photos), f"init={finished.folder}", "frozen=true", "model.head=linear"]
    torch.save(torch.zeros(25, 8), tmp_path / "features.pt")  # left behind, without a config.yaml
    (tmp_path / HOLDER).write_text("{}")  # as by a process that was killed
    whole = train(*settings, f"out={tmp_path / 'whole'}")
    assert same_results(train(*settings, f"out={tmp_path}").folder, whole.folder)


def test_a_network_for_other_channels_is_refused(photos, finished, tmp_path):
    grey = ("data.load.channels=1", "data.train_transform.mean=[0.5]", "data.train_transform.std=[0.5]")
    with pytest.raises(ConfigError, match="has in_channels=3, but folder has in_channels=1"):
        train(*small(photos, *grey), f"init={finished.folder}", f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_evaluation_during_training_needs_a_whole_model(photos, finished, tmp_path):
    with pytest.raises(ConfigError, match="frozen=true trains only a new head: .*evaluation.every"):
        settings = [f"init={finished.folder}", "frozen=true", "model.head=linear", "evaluation.every=1"]
        train(*small(photos), *settings, f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_a_head_alone_is_not_trained_where_there_is_none(photos, finished, tmp_path):
    with pytest.raises(ConfigError, match="a model.head but none"):
        train(*small(photos), f"init={finished.folder}", "frozen=true", "model.head=none", f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_weights_that_expect_other_pixels_are_refused_with_the_settings_to_give(photos, tmp_path):
    weights = tmp_path / "resnet18.pt"
    torch.save(build_model("timm", name="resnet18").backbone.state_dict(), weights)
    given = small(photos, "model=timm", f"model.weights={weights}", "data.train_transform.mean=[0.5,0.5,0.5]")
    with pytest.raises(ConfigError, match=r"train_transform\.mean=\[0\.485,0\.456,0\.406\]"):
        train(*given, f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_batch_norm_that_sees_a_part_of_each_batch_is_warned_of():
    model = build_model("convnet", widths=(8, 8))
    with pytest.warns(runner.BatchNormWarning, match="sync_batchnorm=true .*freeze_batch_norm"):
        runner.check_batch_norm(model)
    runner.check_batch_norm(model.eval())
    runner.check_batch_norm(torch.nn.SyncBatchNorm.convert_sync_batchnorm(model.train()))
