"""Fine-tuning a pretrained network: what is measured before, what is kept, and the defaults."""

from __future__ import annotations

import pytest
import timm
import torch
from small_runs import make_photos, small, train

from rankgrad.evaluation import Report
from rankgrad.models import load_weights, timm_model
from rankgrad.tasks.retrieval.task import build
from rankgrad.tasks.retrieval.task import train as resumed
from rankgrad.workbench.config import ConfigError, compose
from rankgrad.workbench.runs.folder import Run
from rankgrad.workbench.training.averaging import Averaging

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
    plain = train(*small(photos, *words(tmp_path)), f"out={tmp_path / 'plain'}")
    headed = train(*small(photos, *words(tmp_path, "model.embedding_size=3")), f"out={tmp_path / 'headed'}")
    before = [Report.from_json(run.before).values for run in (plain, headed)]
    assert before[0] == before[1]
    assert load_weights(headed.weights)[0].embedding_size == 3


def test_the_kept_weights_are_the_average_and_the_state_has_the_trained_ones(tmp_path):
    photos = make_photos(tmp_path / "photos")
    runs = {
        share: train(*small(photos, *words(tmp_path, f"train.average={share}")), f"out={tmp_path / share}")
        for share in ("1.0", "0.25", "0.0")
    }
    trained, average, untouched = (backbone(runs[share]) for share in ("1.0", "0.25", "0.0"))
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    for name, value in trained.items():
        if value.is_floating_point():
            torch.testing.assert_close(average[name], torch.lerp(start[name], value, 0.25))
            assert torch.equal(untouched[name], start[name])
    assert any(not torch.equal(value, start[name]) for name, value in trained.items())
    states = [torch.load(run.state, weights_only=True)["state_dict"] for run in runs.values()]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


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
    assert (fine.train.average, scratch.train.average) == (None, 1.0)  # null: it follows from the steps
    assert (fine.sampler.samples_per_class, scratch.sampler.samples_per_class) == (4, 8)
    assert fine.model.embedding_size is None and fine.model.head is None
    assert compose(["model=timm", "model.weights=w.pth", "frozen=true"]).train.average == 1.0


@pytest.mark.parametrize(
    ("epochs", "given", "share"), [(1, [], 0.75), (600, [], 0.5), (600, ["train.average=0.9"], 0.9)]
)
def test_after_many_steps_less_of_the_trained_weights_is_kept(tmp_path, epochs, given, share):
    photos, said = make_photos(tmp_path / "photos"), []
    config = compose([*small(photos, *words(tmp_path), *given), f"trainer.max_epochs={epochs}"])
    made = build(config, True, said.append)
    assert made.averaging.share == made.settled["train.average"] == share
    assert f"the average of {share:.0%} trained weights" in "".join(said)


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
    settings = words(tmp_path, "train.only=[backbone.layer4.*]", "train.average=1.0")
    run = train(*small(photos, *settings), f"out={tmp_path / 'run'}")
    start = timm_model(NAME, weights=tmp_path / "w.pth").backbone.state_dict()
    changed = {name.split(".")[0] for name, value in backbone(run).items() if not torch.equal(value, start[name])}
    assert changed == {"layer4"}
    with pytest.raises(ConfigError, match=r"train.only .*\['nothing.\*'\] matches none of the .* Some names: backbone"):
        train(*small(photos, *words(tmp_path, "train.only=[nothing.*]")), f"out={tmp_path / 'none'}")
