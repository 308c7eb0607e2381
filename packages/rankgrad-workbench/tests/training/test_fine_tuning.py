"""Fine-tuning a pretrained network: what is measured before, what is kept, and the defaults."""

from __future__ import annotations

from dataclasses import replace

import pytest
import timm
import torch
from marks import slow
from small_runs import make_photos, small, train

from rankgrad import fit
from rankgrad.evaluation import Report, evaluate
from rankgrad_workbench.datasets import load_folder
from rankgrad_workbench.datasets.transforms import PhotoEval
from rankgrad_workbench.index.embedder import Embedder
from rankgrad_workbench.models import load_weights, timm_model
from rankgrad_workbench.models.embedding_model import evaluating
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, compose, load
from rankgrad_workbench.tasks.retrieval import task as task_module
from rankgrad_workbench.tasks.retrieval.building import sizes_before
from rankgrad_workbench.tasks.retrieval.settings import settings_of
from rankgrad_workbench.tasks.retrieval.task import build, summary
from rankgrad_workbench.tasks.retrieval.task import train as resumed
from rankgrad_workbench.training.averaging import Averaging

NAME = "test_resnet"


def weights(folder):
    torch.manual_seed(0)
    torch.save(timm.create_model(NAME).state_dict(), folder / "w.pth")
    return folder / "w.pth"


def words(tmp_path, *more):
    return ["model=timm", f"model.name={NAME}", f"model.weights={weights(tmp_path)}", *more]


def backbone(run: Run):
    return load_weights(run.weights)[0].backbone.state_dict()


def test_before_is_the_network_without_its_new_head(tmp_path):
    photos = make_photos(tmp_path / "photos")
    short = words(tmp_path, "trainer.max_epochs=1")
    plain = train(*small(photos, *short), f"out={tmp_path / 'plain'}")
    headed = train(*small(photos, *short, "model.embedding_size=3"), f"out={tmp_path / 'headed'}")
    before = [Report.from_json(run.before).values for run in (plain, headed)]
    assert before[0] == before[1]
    assert load_weights(headed.weights)[0].embedding_size == 3


def test_a_network_is_used_at_a_larger_size_than_that_of_its_training_and_measured_as_it_was_at_both(tmp_path, capsys):
    photos = make_photos(tmp_path / "photos", side=90)
    run = train(*small(photos, *words(tmp_path, "evaluation.untouched=both")), f"out={tmp_path / 'run'}")
    best, other, after = (Report.from_json(path) for path in (run.before, run.untouched, run.after))
    assert best.values["mAP@R"] >= other.values["mAP@R"]
    assert {best.settings["size"], other.settings["size"]} == {48, 160} and after.settings["size"] == 48
    # the slow reference: the files read for this size, the network without any training
    own = PhotoEval(160, 183, (0.5,) * 3, (0.5,) * 3)
    table = replace(load_folder(photos, test_fraction=0.5).select("test"), shorter_side=183)
    images = own([table.dataset()[row][0] for row in range(len(table))], torch.arange(len(table)), 0)
    with torch.no_grad():
        expected = evaluate(timm_model(NAME, weights=tmp_path / "w.pth").eval()(images), table.label).values["mAP@R"]
    at_own = best if best.settings["size"] == 160 else other
    assert at_own.values["mAP@R"] == pytest.approx(expected, abs=1e-6)
    # what stands beside the run uses that size
    assert Embedder.load(run.folder).transform.size == 48
    heads = summary(run).splitlines()[0]
    assert heads.split("  ")[-3:] == [f"before, {other.settings['size']} px", "after, 48 px", "95 % interval"]
    page = run.page.read_text("utf-8")
    assert "before, 48 px" in page and "before, 160 px" in page and "after, 48 px" in page


@pytest.mark.parametrize(("asked", "sizes"), [("own", [160]), ("same", [48])])
def test_a_network_before_training_is_measured_at_the_sizes_that_are_asked_for(tmp_path, asked, sizes):
    photos = make_photos(tmp_path / "photos")
    settings = settings_of(compose(small(photos, *words(tmp_path, f"evaluation.untouched={asked}"))))
    assert sizes_before(settings) == sizes


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        (["model=timm", "model.name=resnet18", "model.pretrained=true", "data.size=64"], 96),
        (["model=timm", "model.name=resnet18", "model.pretrained=true", "data.size=160"], 224),
        (["model=timm", "model.name=resnet18", "model.pretrained=true", "data.size=256"], 256),
        (["model=timm", "model.name=resnet18", "model.pretrained=true", "data.size=64", "evaluation.size=160"], 160),
        (["model=timm", "model.name=resnet18", "data.size=64"], 64),  # nothing is known of larger images
        (["model=timm", "model.name=vit_tiny_patch16_224", "model.pretrained=true", "data.size=64"], 64),  # one size
    ],
)
def test_the_size_of_use_follows_from_training_and_pretraining(settings, size):
    config = compose(["data=folder", "data.root=photos", *settings])
    assert config.evaluation.size == config.data.eval_transform.size == size
    assert config.data.load.shorter_side == max(config.data.resize, config.data.eval_transform.resize)


def test_the_kept_weights_are_the_average_and_the_state_has_the_trained_ones(tmp_path):
    photos = make_photos(tmp_path / "photos")
    runs = {
        share: train(*small(photos, *words(tmp_path, f"optimizer.average={share}")), f"out={tmp_path / share}")
        for share in ("1.0", "0.25")
    }
    trained, average = (backbone(runs[share]) for share in ("1.0", "0.25"))
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    for name, value in trained.items():
        if value.is_floating_point():
            torch.testing.assert_close(average[name], torch.lerp(start[name], value, 0.25))
    assert any(not torch.equal(value, start[name]) for name, value in trained.items())
    states = [torch.load(run.state, weights_only=True)["state_dict"] for run in runs.values()]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
def test_an_extended_run_averages_with_the_weights_before_the_first_training(tmp_path):
    photos = make_photos(tmp_path / "photos")
    run = train(*small(photos, *words(tmp_path)), f"out={tmp_path / 'run'}")
    resumed(compose([f"resume={run.folder}"]), changes=["trainer.max_epochs=3"], quiet=True)
    state = torch.load(run.state, weights_only=True)["state_dict"]
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    for name, value in backbone(run).items():
        if value.is_floating_point():
            trained = state[f"model.backbone.{name}"]
            torch.testing.assert_close(value, torch.lerp(start[name], trained, 0.75))


def test_the_defaults_of_a_pretrained_network_and_of_one_from_scratch():
    fine = compose(["model=timm", "model.weights=w.pth"])
    scratch = compose(["model=timm"])
    assert fine.model.freeze_batch_norm and not scratch.model.freeze_batch_norm
    assert (fine.optimizer.average, scratch.optimizer.average) == (None, 1.0)  # null: it follows from the steps
    assert (fine.sampler.samples_per_class, scratch.sampler.samples_per_class) == (4, 8)
    assert fine.model.embedding_size is None and fine.model.head is None
    assert compose(["model=timm", "model.weights=w.pth", "frozen=true"]).optimizer.average == 1.0


@pytest.mark.parametrize(
    ("epochs", "given", "share"), [(1, [], 0.75), *slow((600, [], 0.5), (600, ["optimizer.average=0.9"], 0.9))]
)
def test_after_many_steps_less_of_the_trained_weights_is_kept(tmp_path, epochs, given, share):
    photos, said = make_photos(tmp_path / "photos"), []
    config = compose([*small(photos, *words(tmp_path), *given), f"trainer.max_epochs={epochs}"])
    made = build(config, True, said.append)
    assert made.averaging.share == made.settled["optimizer.average"] == share
    assert f"trained and pretrained weights: {share:.0%} and" in "".join(said)


SHARES = [(0.5, [3, 4, 5, 4, 3]), *slow((1.0, [5, 5, 4, 2, 1]), (0.0, [1, 2, 3, 4, 5]))]


@pytest.mark.parametrize(("share", "values"), SHARES)
def test_the_share_is_the_one_that_is_best_on_the_held_out_classes(tmp_path, monkeypatch, capsys, share, values):
    photos, asked = make_photos(tmp_path / "photos", classes=12), []
    config = compose(
        [*small(photos, *words(tmp_path)), "held_out=0.3", "optimizer.average=best", f"out={tmp_path / 'run'}"]
    )
    real = task_module.evaluate_model

    def pretended(model, table, *given, **more):
        report, embeddings = real(model, table, *given, **more)
        if table.splits == ("val",):
            asked.append(len(table))
            report = replace(report, values={**report.values, "mAP@R": values[len(asked) - 1] / 10})
        return report, embeddings

    monkeypatch.setattr(task_module, "evaluate_model", pretended)
    run = resumed(config, quiet=True)
    assert len(asked) == len(values) and run.read_facts()["average"] == share
    assert f"optimizer.average {share:g}: mAP@R on the held-out classes is" in capsys.readouterr().out
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    state = torch.load(run.state, weights_only=True)["state_dict"]
    for name, value in backbone(run).items():
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.lerp(start[name], state[f"model.backbone.{name}"], share))


@pytest.mark.slow
def test_a_share_is_chosen_without_being_asked_only_on_enough_held_out_classes(tmp_path):
    photos = make_photos(tmp_path / "photos", classes=24)

    def chooses(*more):
        made = build(compose([*small(photos, *words(tmp_path)), *more]), True)
        held_out = made.rows.held_out
        return made.settled["optimizer.average"] == "best", None if held_out is None else len(held_out)

    assert chooses("held_out=0.7") == (True, 8 * 5)
    assert chooses("held_out=0.3") == (False, None)
    assert chooses("held_out=0.7", "optimizer.average=0.5") == (False, None)
    assert chooses("held_out=0.7", "frozen=true", "model.head=linear", "model.embedding_size=4") == (False, None)
    assert chooses("fold=1/2", "evaluation.split=val") == (False, None)
    assert build(compose([*small(photos), "held_out=0.7"]), True).settled["optimizer.average"] == 1  # from scratch


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["optimizer.average=best"], "optimizer.average=best needs held-out classes.*held_out=0.1"),
        (["evaluation.keep_best=val"], "evaluation.keep_best=val needs held-out classes"),
        (
            ["optimizer.average=best", "held_out=0.3", "evaluation.split=val"],
            "optimizer.average=best needs held-out classes, a split val beside the test",
        ),
        (["held_out=0.3", "fold=1/2"], "fold= and held_out="),
        (["held_out=1"], "held_out is a fraction"),
        (["optimizer.average=most"], "optimizer.average is a share.*best"),
        (["optimizer.average=2"], "optimizer.average is a share"),
    ],
)
def test_what_cannot_be_chosen_is_refused_before_the_training(tmp_path, settings, message):
    photos = make_photos(tmp_path / "photos", classes=12)
    with pytest.raises((ConfigError, TypeError, ValueError), match=message):
        build(compose([*small(photos, *words(tmp_path)), *settings]), True)


def test_a_pretrained_module_of_ones_own_has_the_defaults_of_pretrained_weights(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.1))
    model[2].eval()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    data = (torch.randn(64, 8), torch.arange(64) % 8)
    few = {"sampler.classes_per_batch": 4, "evaluation.clusters": "none", "trainer.max_epochs": 2}
    run = fit(model, data, test=0.5, out=tmp_path / "run", settings=few, pretrained=True, quiet=True)
    config = load(run.config)
    assert config.optimizer.average == 0.75 and config.sampler.samples_per_class == 4 and config.optimizer.lr == 1e-4
    state = torch.load(run.state, weights_only=True)["state_dict"]
    assert torch.equal(model[1].running_mean, start["1.running_mean"])
    torch.testing.assert_close(model[0].weight.data, torch.lerp(start["0.weight"], state["model.0.weight"], 0.75))
    assert not torch.equal(model[0].weight, start["0.weight"])
    assert model.training and model[1].training and not model[2].training


def test_an_evaluation_leaves_the_mode_of_each_part():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    model[0].eval()
    with evaluating(model):
        assert not model[1].training
    assert (model.training, model[0].training, model[1].training) == (True, False, True)
    model.eval()
    model[1].train()
    with evaluating(model):
        assert not model[1].training
    assert (model.training, model[0].training, model[1].training) == (False, False, True)


def test_averaging_leaves_integers_and_a_share_of_one_alone():
    norm = torch.nn.BatchNorm1d(2)
    averaging = Averaging(norm, 0.5)
    norm.num_batches_tracked += 3
    with averaging.applied():
        assert norm.num_batches_tracked == 3
    whole = Averaging(norm, 1)
    with whole.applied():
        assert norm.num_batches_tracked == 3


def test_only_the_weights_that_match_a_pattern_are_trained(tmp_path):
    photos = make_photos(tmp_path / "photos")
    settings = words(tmp_path, "optimizer.only=[backbone.layer4.*]", "optimizer.average=1.0")
    run = train(*small(photos, *settings), f"out={tmp_path / 'run'}")
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    changed = {name.split(".")[0] for name, value in backbone(run).items() if not torch.equal(value, start[name])}
    assert changed == {"layer4"}
    with pytest.raises(ConfigError, match=r"optimizer.only .*'nothing.\*' matches none of the .* Some names: backbone"):
        train(*small(photos, *words(tmp_path, "optimizer.only=[nothing.*]")), f"out={tmp_path / 'none'}")
