"""Detectors from the command line: a run end to end, resumed, evaluated, configured, and in the papers' tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import kept_runs
import numpy as np
import pytest
import torch
from children_here import Here
from marks import slow_unless
from omegaconf import OmegaConf
from small_detectors import TINY, settings
from small_runs import Killed, die_after_writes
from voc_trees import shapes

from rankgrad_detection import models
from rankgrad_detection import run as runs
from rankgrad_detection.data import DetectionSet
from rankgrad_detection.losses import DETECTION_LOSSES
from rankgrad_detection.training import detect
from rankgrad_detection.voc import load_voc
from rankgrad_workbench import settings as configuration
from rankgrad_workbench.cli import main
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import ConfigError, compose, make, options, plain
from rankgrad_workbench.settings.kinds import of_settings

BCCD = Path(os.environ.get("RANKGRAD_DATA", "")) / "bccd"
real = pytest.mark.skipif(not os.environ.get("RANKGRAD_DATA") or not BCCD.is_dir(), reason="needs RANKGRAD_DATA/bccd")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


def train(tree: Path, *more: str) -> Run:
    return runs.train(compose(settings(tree, *more), "detect"), quiet=True)


@pytest.fixture(scope="module")
def finished(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("finished") / "run"
    return train(tree, "loss=ap", "ranking.warmup=3", "evaluation.every=1", f"out={out}")


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err.strip().splitlines()[-1].removeprefix("rankgrad: ")


# ---------------------------------------------------------------------------------------------------------------- a run


def test_a_run_leaves_settings_model_numbers_detections_and_a_page(finished):
    files = {path.relative_to(finished.folder).as_posix() for path in finished.folder.rglob("*") if path.is_file()}
    wanted = {"config.yaml", "state.ckpt", "model.pt", "metrics.json", "detections.npz", "facts.json", "report.html"}
    wanted |= {"checksums.sha256", "health.json"}
    assert files == {*wanted, "logs/metrics.csv"} and finished.finished
    content = json.loads(finished.after.read_text("utf-8"))
    assert set(content["values"]) == {"AP50", "AP50_11", "AP75", "AP75_11", "AP50_95"}
    assert content["counts"]["images"] == 3 and content["counts"]["objects"] == 6
    assert set(content["per_class"]) == {"disc", "square"}
    facts = json.loads((finished.folder / "facts.json").read_text("utf-8"))
    assert facts["steps"] == 8 and facts["train_seconds"] > 0
    with np.load(finished.folder / "detections.npz", allow_pickle=False) as file:
        assert file["boxes"].shape == (len(file["scores"]), 4) and file["names"].tolist() == ["008", "009", "010"]


def test_images_of_both_lists_are_named_before_the_training(tree, tmp_path):
    said: list[str] = []
    for test in ("test", "trainval"):
        config = compose(settings(tree, f"data.test={test}", f"out={tmp_path}/{test}"), "detect")
        runs.build(config, True, said.append)
    assert len(said) == 3
    assert said[2].startswith("8 of the 8 test images are also in trainval")
    run = train(tree, "data.test=trainval", f"out={tmp_path / 'run'}")
    assert "The run was trained on 8 of these 8 images." in runs.summary(run)


def test_a_task_is_a_record_that_reads_and_prints_nothing(tree, tmp_path, capsys):
    root = shutil.copytree(tree, tmp_path / "tree")
    task = runs.build(compose(settings(root), "detect"))
    shutil.rmtree(root)
    again = replace(task, progress=False)
    assert task.trust == again.trust and again.test is task.test and len(again.test.scenes) == 3
    assert again.memories == task.memories and again.settled == {}
    assert capsys.readouterr() == ("", "")


def test_losses_are_logged_with_the_change_from_cross_entropy_to_the_loss_and_ap_between_epochs(finished):
    logged = curves(finished)
    names = {"loss", "loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    assert names | {"ranking/loss", "ranking/share", "test/AP50"} <= set(logged)
    assert [value for _, value in logged["ranking/share"]] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert [step for step, _ in logged["test/AP50"]] == [3]
    used = dict(logged["loss_classifier"])
    cross, ranked = dict(logged["ranking/cross_entropy"]), dict(logged["ranking/loss"])
    assert all(used[step] == pytest.approx((cross if step < 3 else ranked)[step], abs=1e-6) for step in range(8))


def test_the_page_is_one_file_that_shows_numbers_curves_and_pictures(finished):
    text = (finished.folder / "report.html").read_text("utf-8")
    assert not re.search(r"(src|href)=['\"](?!data:|#)", text)
    assert text.count("data:image/jpeg;base64,") == 2 and text.count("<svg") >= 7
    value = json.loads(finished.after.read_text("utf-8"))["values"]["AP50"]
    assert f"<b>{100 * value:.1f}<small> %</small></b>" in text
    for word in ("Precision and recall", "disc", "square", "ranking.<wbr>warmup", "area under precision and recall"):
        assert word in text


def test_a_trained_model_comes_back_with_its_classes_and_finds_the_same(finished, tree):
    model, names = runs.load_detector(finished.weights)
    assert names == ("disc", "square") and not model.training
    data = DetectionSet(load_voc(tree, "test", names).scenes, 48, 64)
    with np.load(finished.folder / "detections.npz") as file:
        scores = torch.cat([each.scores for each in detect(model, data, batch_size=2)])
        torch.testing.assert_close(scores, torch.from_numpy(file["scores"]))


def test_the_model_takes_images_of_any_size_and_answers_in_their_pixels(finished, tree):
    model, _ = runs.load_detector(finished.weights)
    image = DetectionSet(load_voc(tree, "test", "data").scenes, 48, 64).sample(0, 0).image
    twice = torch.nn.functional.interpolate(image[None], scale_factor=2, mode="nearest")[0]
    with torch.inference_mode():
        [small], [large] = model([image]), model([twice])
    top = slice(0, 3)
    torch.testing.assert_close(2 * small["boxes"][top], large["boxes"][top], atol=4.0, rtol=0)


def test_detections_are_in_pixels_of_the_files_whatever_size_they_were_seen_at(finished, tree):
    class Corner(torch.nn.Module):
        """Finds the lower right quarter of every image."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images):
            sizes = [(image.shape[2], image.shape[1]) for image in images]
            one = {"labels": torch.tensor([2]), "scores": torch.tensor([0.5])}
            return [{**one, "boxes": torch.tensor([[w / 2, h / 2, w, h]])} for w, h in sizes]

    for sides in ((48, 64), (30, 64), (17, 20)):
        found = detect(Corner(), DetectionSet(load_voc(tree, "test", "data").scenes, *sides))
        assert all(each.boxes.tolist() == [[32, 24, 64, 48]] and each.labels.tolist() == [1] for each in found)


# ---------------------------------------------------------------------------------------------------- stop and go on


@pytest.mark.parametrize("writes", slow_unless({3}, [3, 4]))
def test_a_run_that_died_goes_on_to_the_same_numbers(tree, finished, tmp_path, writes):
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, writes)
        with pytest.raises(Killed):
            train(tree, "loss=ap", "ranking.warmup=3", f"out={tmp_path / 'run'}", "checkpoint_minutes=0")
    resumed = runs.train(compose([f"resume={tmp_path / 'run'}", "data.root=x"], "detect"), quiet=True)
    assert json.loads((resumed.folder / "facts.json").read_text())["steps"] == 8
    states = [torch.load(each.weights, weights_only=True)["state"] for each in (finished, resumed)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert resumed.after.read_bytes() == finished.after.read_bytes()


@pytest.mark.slow
def test_a_run_in_float64_is_evaluated_and_resumes_exactly(tree, tmp_path):
    words = ["trainer.precision=64-true", "checkpoint_minutes=0"]
    whole = train(tree, *words, f"out={tmp_path / 'whole'}")
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 3)
        with pytest.raises(Killed):
            train(tree, *words, f"out={tmp_path / 'run'}")
    resumed = runs.train(compose([f"resume={tmp_path / 'run'}", "data.root=x"], "detect"), quiet=True)
    assert resumed.after.read_bytes() == whole.after.read_bytes() and curves(resumed) == curves(whole)


@pytest.mark.slow
def test_a_process_that_was_killed_is_resumed_by_the_command(tree, finished, tmp_path):
    out = tmp_path / "run"
    words = settings(tree, "loss=ap", "ranking.warmup=3", f"out={out}", "checkpoint_minutes=0")
    program = f"""
import os, signal
from rankgrad_workbench import training
from rankgrad_workbench.cli import main
write, done = training.SaveState.write, []
def write_and_die(self, trainer):
    write(self, trainer)
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
training.SaveState.write = write_and_die
main({["detect", "train", *words]!r})
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert not Run(out).finished
    command = [sys.executable, "-m", "rankgrad", "detect", "train", f"resume={out}"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert Run(out).after.read_bytes() == finished.after.read_bytes()


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_without_an_object_that_counts_are_refused_before_the_training(tree, tmp_path, split):
    empty = shutil.copytree(tree, tmp_path / "empty")
    for name in (empty / "ImageSets" / "Main" / f"{split}.txt").read_text().split():
        path = empty / "Annotations" / f"{name}.xml"
        path.write_text(re.sub("<difficult>0", "<difficult>1", path.read_text()))
    with pytest.raises(ConfigError, match=f"{split} has no object that counts"):
        train(empty, f"out={tmp_path / 'run'}", f"data.{split}={split}")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_left_alone_and_its_folder_is_not_taken(tree, finished, capsys):
    before = finished.after.stat().st_mtime_ns
    assert main(["detect", "train", f"resume={finished.folder}"]) == 0
    assert finished.after.stat().st_mtime_ns == before and "mean" in capsys.readouterr().out
    words = settings(tree, f"out={finished.folder}")
    assert "holds a run already" in fails(capsys, "detect", "train", *words)
    message = fails(capsys, "detect", "train", f"resume={finished.folder}", "seed=1")
    assert message.startswith("a resumed run keeps its folder and its own settings; leave out seed=1. You may change: ")


def test_settings_that_were_changed_are_not_resumed(tree, tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 2)
        with pytest.raises(Killed):
            train(tree, "loss=ap", f"out={out}", "checkpoint_minutes=0")
    made = (out / "config.yaml").read_text()
    (out / "config.yaml").write_text(made.replace("margin: 0.15", "margin: 0.3"))
    message = fails(capsys, "detect", "train", f"resume={out}")
    assert "changed since state.ckpt was saved: loss.margin (then 0.15, now 0.3)" in message
    (out / "state.ckpt").write_bytes(b"half")
    assert "is damaged" in fails(capsys, "detect", "train", f"resume={out}")


def test_weights_of_an_earlier_run_start_another(tree, finished, tmp_path, capsys):
    changed = [*("loss=cross_entropy", "trainer.max_epochs=1", "optimizer.lr=0.0", "optimizer.weight_decay=0.0")]
    run = train(tree, *changed, f"init={finished.folder}", f"out={tmp_path / 'run'}")
    states = [torch.load(each.weights, weights_only=True)["state"] for each in (finished, run)]
    weights = [key for key in states[0] if key.endswith("weight")]
    assert weights and all(torch.equal(states[0][key], states[1][key]) for key in weights)
    assert run.read_untrained() == finished.read_values() and not finished.before.exists()
    words = settings(tree, f"init={finished.folder}", "model.hidden=8", f"out={tmp_path / 'other'}")
    assert "does not hold the model of these settings" in fails(capsys, "detect", "train", *words)


# ------------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("name", ["cross_entropy", *DETECTION_LOSSES])
def test_every_loss_can_be_had_with_exactly_its_options(name):
    config = compose(["data.root=x", f"loss={name}"], "detect")
    assert config.loss.name == name
    if name != "cross_entropy":
        loss = make(OmegaConf.create({k: v for k, v in config.loss.items() if k != "name"}), slot="loss")
        assert type(loss) is DETECTION_LOSSES[name]
        shown = dict(re.findall(r"(\w+)=(\([^)]*\)|\[[^]]*\]|[^,)]+)", loss.extra_repr()))
        ours = {key: str(value) for key, value in plain(config.loss).items()}
        assert {key for key in ours if not key.startswith("_") and key != "name"} == set(shown)


@pytest.mark.parametrize("name", ["cross_entropy", "smooth_ap", "supap"])
def test_every_loss_trains(tree, tmp_path, name):
    run = train(tree, f"loss={name}", "trainer.max_epochs=1", f"out={tmp_path / 'run'}")
    logged = curves(run)
    assert len(logged["loss"]) == 4 and all(value == value for _, value in logged["loss"])
    assert ("ranking/loss" in logged) == (name != "cross_entropy")


def test_seeds_differ_and_repeat(tree, tmp_path):
    made = [
        train(tree, f"seed={s}", "trainer.max_epochs=1", f"out={tmp_path / str(n)}") for n, s in enumerate((0, 1, 0))
    ]
    first, other, again = (torch.load(run.weights, weights_only=True)["state"] for run in made)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["roi_heads.box_head.fc6.weight"], other["roi_heads.box_head.fc6.weight"])


# ---------------------------------------------------------------------------------------------------- command, settings


def test_the_command_trains_and_evaluates(tree, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["detect", "train", *settings(tree, "trainer.max_epochs=1"), f"out={out}"]) == 0
    shown = capsys.readouterr().out
    assert "train trainval: 8 images, 16 objects (disc 8, square 8)" in shown
    assert f"report: {out / 'report.html'}" in shown
    lines = [line for line in shown.splitlines() if line.startswith(("disc", "square", "mean"))]
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    words = ["detect", "evaluate", str(out), "-o", str(numbers), "--page", str(page)]
    assert main([*words[:-1], str(numbers)]) == 2 and not numbers.exists()  # one file would replace the other
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith(("disc", "square", "mean"))] == lines
    assert json.loads(numbers.read_text())["values"] == json.loads((out / "metrics.json").read_text())["values"]
    assert "data:image/jpeg" in page.read_text() and f"wrote {page}" in shown
    assert main([*words[:3], "--split", "train", "--ious", "0.3,0.5", "--inclusive"]) == 0
    assert "AP30" in (shown := capsys.readouterr().out) and re.search(r"^disc +4 ", shown, re.MULTILINE)
    warning = "The run was trained on 4 of these 4 images. Expect lower numbers on others."
    assert warning in shown
    assert main([*words, "--split", "train"]) == 0
    assert warning in page.read_text()
    assert main([*words[:3], "--split", "train", "--root", str(tree)]) == 0 and warning in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "data.root must be given; add the setting data.root=..."),
        (["train", "data.root=nowhere"], "data.root=nowhere does not exist"),
        (
            ["train", "data.root=x", "loss=pnp"],
            "did you mean 'supap'? Known: ap, cross_entropy, rambo, smooth_ap, supap",
        ),
        (["train", "data.root=x", "loss.margn=1"], "unknown setting 'loss.margn'; did you mean 'loss.margin'?"),
        (["train", "data.root=x", "data=bcd"], "unknown data 'bcd'; did you mean 'bccd'?"),
        (["train", "data.root=x", "sampler.batch_size=many"], "sampler.batch_size is a number; got 'many'"),
        (["train", "data.root=x", "bs=4"], "unknown setting 'bs'; did you mean 'sampler.batch_size'?"),
        (["train", "data.root=x", "loss=ap,supap"], "A run trains one loss. Its settings follow it"),
        (["train", "resume=nowhere"], "nothing to resume: nowhere/config.yaml does not exist"),
        (["evaluate", "nowhere"], "nowhere does not exist; give the folder of a finished run of a detector"),
        (["evaluate", ".", "-o", "no/where.json"], "no folder no to write where.json into"),
    ],
)
def test_what_does_not_fit_is_answered_with_what_would(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, "detect", *words)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.sides=[64]", r"data.sides must be two sides in pixels, shorter and longer; got \[64\]"),
        ("data.sides=[64,0]", "longer is a side in pixels"),
        ("ranking.weight=-1", "ranking: weight is a factor .* >= 0; got -1"),
        ("ranking.weight=inf", "ranking: weight is a factor .* >= 0; got inf"),
        ("ranking.keep=2", "ranking: keep is the last share .* <= 1; got 2"),
        ("ranking.warmup=-1", "ranking: warmup is a number of training steps"),
        ("ranking.score=probability", "ranking: score must be 'log_softmax' or 'logits'"),
        ("flip=2", "flip is a probability"),
        ("model.rois=0", "model: rois counts boxes"),
        ("evaluation.ious=[]", "evaluation: ious is empty"),
        ("evaluation.ious=[0.5,1.5]", "evaluation: .* a number > 0 and <= 1; got 1.5"),
        ("evaluation.batch_size=0", "evaluation.batch_size counts images"),
        ("evaluation.every=-1", "evaluation.every counts epochs"),
    ],
)
def test_settings_out_of_range_are_refused_before_the_training_with_their_section(tree, tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        train(tree, setting, f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [("figure", "--run", "RUN"), ("embed", "RUN", "."), ("export", "RUN"), ("evaluate", "RUN", "-k", "1")]
)
def test_a_command_for_retrieval_says_that_the_run_is_a_detector(finished, capsys, words):
    message = fails(capsys, *(word.replace("RUN", str(finished.folder)) for word in words))
    assert str(finished.folder) in message and ("task=detection" in message or "detect evaluate" in message)


def test_the_common_command_evaluates_a_detector_too(finished, capsys):
    assert main(["evaluate", str(finished.folder)]) == 0
    assert re.search(r"^mean .*", capsys.readouterr().out, re.MULTILINE)


def test_a_run_of_another_kind_is_no_detector(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("task: scores\n")
    assert "task=scores; this command needs a run of task=detection" in fails(
        capsys, "detect", "evaluate", str(tmp_path)
    )


def test_a_threshold_out_of_range_is_refused_before_the_images_are_searched(finished, capsys, monkeypatch):
    monkeypatch.setattr(runs, "detect", lambda *_, **__: pytest.fail("the images were searched first"))
    assert "> 0 and <= 1; got 1.5" in fails(capsys, "detect", "evaluate", str(finished.folder), "--ious", "0.5,1.5")


@pytest.mark.parametrize(
    "words", [[], ["evaluate", "a", "loss=ap"], ["evaluate", "a", "--ious", "a"], ["check"], ["train", "--fast"]]
)
def test_wrong_usage_ends_with_status_2(capsys, words):
    with pytest.raises(SystemExit) as end:
        main(["detect", *words])
    assert end.value.code == 2


def test_the_help_lists_every_group_and_option(capsys):
    with pytest.raises(SystemExit):
        main(["detect", "--help"])
    shown = capsys.readouterr().out
    for group in of_settings("detect").groups:
        assert f"{group}=" in shown and all(option in shown for option in options(group, "detect"))


@pytest.mark.parametrize("task", ["retrieval", "scores"])
def test_a_run_of_another_kind_is_not_resumed_as_a_detector(task, tmp_path, capsys):
    shutil.copy(kept_runs.kept(task) / "config.yaml", tmp_path)
    message = fails(capsys, "detect", "train", f"resume={tmp_path}")
    assert f"task={task}" in message and f"rankgrad train resume={tmp_path}" in message


@pytest.mark.slow
def test_losses_are_compared_side_by_side_with_a_table_of_ap(tree, tmp_path, monkeypatch, capsys):
    here = Here()
    monkeypatch.setattr("rankgrad_workbench.runs.compare.Children", here)
    words = ["loss=cross_entropy,ap:memory=1+ranking.warmup=2", "seeds=0,1,2", *settings(tree, "trainer.max_epochs=1")]
    assert main(["detect", "compare", *words, "-o", str(tmp_path)]) == 0
    assert len(here.calls) == 6
    shown = capsys.readouterr().out
    assert re.search(r"^\| loss +\| +AP50 \| +AP50_11 \| +AP75 \| +AP50_95 \|$", shown, re.MULTILINE)
    assert "| AP50, against cross_entropy" in shown
    run = tmp_path / "ap-memory=1+ranking.warmup=2-seed1"
    content = json.loads((tmp_path / "compare.json").read_text())["values"]["ap:memory=1+ranking.warmup=2"]
    assert content["AP50"][1] == 100 * json.loads((run / "metrics.json").read_text())["values"]["AP50"]
    made = configuration.load(run / "config.yaml")
    assert made.ranking.warmup == 2 and made.loss.memory == 1 and made.seed == 1


# -------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("backbone", ["resnet50", "resnet101", "resnext101_32x4d"])
def test_backbones_take_weights_of_imagenet_in_timms_names(backbone):
    timm = pytest.importorskip("timm")
    blocks, groups, width, name = models.BACKBONES[backbone]
    with torch.device("meta"):
        theirs = timm.create_model(name, pretrained=False).state_dict()
        body = models.resnet.ResNet(
            models.resnet.Bottleneck, blocks, groups=groups, width_per_group=width, norm_layer=models.FrozenBatchNorm2d
        )
    own = body.state_dict()
    assert {k: tuple(v.shape) for k, v in own.items() if not k.startswith("fc.")} == {
        k: tuple(v.shape) for k, v in theirs.items() if not k.startswith("fc.") and "num_batches" not in k
    }


def test_a_faster_rcnn_starts_from_a_file_freezes_the_first_stages_and_finds_something(tmp_path, monkeypatch):
    monkeypatch.setitem(models.BACKBONES, "resnet50", ([1, 1, 1, 1], 1, 64, ""))
    body = models.resnet.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1])
    torch.save(body.state_dict(), tmp_path / "weights.pt")
    model = models.build_detector("faster_rcnn", 20, (64, 96), weights=str(tmp_path / "weights.pt"), proposals=20)
    loaded = model.backbone.body.state_dict()
    assert torch.equal(loaded["layer3.0.conv1.weight"], body.state_dict()["layer3.0.conv1.weight"])
    frozen = {name.split(".")[0] for name, p in model.backbone.body.named_parameters() if not p.requires_grad}
    assert frozen == {"conv1", "layer1"}
    with torch.inference_mode():
        [found] = model.eval()([torch.rand(3, 64, 96)])
    assert set(found) == {"boxes", "labels", "scores"}
    wrong = {key: value for key, value in body.state_dict().items() if key != "layer4.0.conv1.weight"}
    torch.save(wrong, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="1 missing in the file: layer4.0.conv1.weight"):
        models.build_detector("faster_rcnn", 20, (64, 96), weights=str(tmp_path / "weights.pt"))


def test_a_trained_faster_rcnn_comes_back_without_the_weights_it_started_from(tmp_path, monkeypatch):
    monkeypatch.setitem(models.BACKBONES, "resnet50", ([1, 1, 1, 1], 1, 64, ""))
    given = {"weights": "gone.pt", "norm": "frozen", "trainable_stages": 3}
    model = models.build_detector("faster_rcnn", 2, (64, 96), loaded=True, **given)
    saved = {"state": model.state_dict(), "model": {"kind": "faster_rcnn", **given}, "sides": [64, 96]}
    torch.save({**saved, "class_names": ["disc", "square"]}, tmp_path / "model.pt")
    again, names = runs.load_detector(tmp_path / "model.pt")
    assert names == ("disc", "square")
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("yolo", {}, "unknown model 'yolo'; known: faster_rcnn, small"),
        ("faster_rcnn", {}, "frozen layers need weights: model.pretrained=true"),
        ("faster_rcnn", {"backbone": "vgg"}, "unknown backbone 'vgg'; known: resnet50"),
        ("faster_rcnn", {"norm": "group"}, "norm must be 'frozen' or 'batch'; got 'group'"),
        ("small", {"anchors": [[8], [16], [32]]}, "anchors must be 2 lists of equally many"),
        ("small", {"anchors": [[8], [-16]]}, "anchors must be 2 lists"),
        ("small", {"rois": 0}, "rois counts boxes and must be an integer >= 1; got 0"),
        ("small", {"proposals": 0}, "^proposals counts boxes"),
        ("faster_rcnn", {"detections": 0.5}, "^detections counts boxes"),
        ("small", {"positive_share": 2}, "^positive_share is a fraction"),
        ("small", {"score_threshold": 2}, "score_threshold is a fraction"),
    ],
)
def test_models_that_cannot_be_built_are_refused(kind, given, message):
    with pytest.raises(ValueError, match=message):
        models.build_detector(kind, 3, (48, 64), **given)


# --------------------------------------------------------------------------------------------------------------- BCCD


@real
@pytest.mark.slow
def test_a_few_steps_on_blood_cells(tmp_path):
    words = ["experiment=bccd", f"data.root={BCCD}", "data.train=val", "data.test=test", "data.cache=false"]
    words += ["trainer.max_epochs=1", "+trainer.limit_train_batches=2", "data.sides=[96,128]", *TINY, "threads=1"]
    run = runs.train(compose([*words, f"out={tmp_path / 'run'}"], "detect"), quiet=True)
    content = json.loads(run.after.read_text("utf-8"))
    assert content["counts"]["images"] == 72 and set(content["per_class"]) == {"Platelets", "RBC", "WBC"}
    assert 0 <= content["values"]["AP50"] < 1
