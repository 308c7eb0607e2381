"""Weights of a backbone in files with other names, in folders, for other channels; and the pixels that they want."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch

from rankgrad_workbench.models import timm_model
from rankgrad_workbench.models.timm import matched, timm_pixels, weights_file
from rankgrad_workbench.settings import compose

NAME = "test_resnet"  # timm's smallest, 0.5 M weights


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return dict(timm.create_model(NAME).state_dict())


def same(model, state) -> bool:
    loaded = model.backbone.state_dict()
    return all(torch.equal(value, state[name]) for name, value in loaded.items())


def other_names(name: str) -> str:
    return "q." + name.replace(".", "_", name.count(".") - 1)


def renamed(state, how):
    return {how(name): value for name, value in state.items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state, "tensors loaded; left out: fc.weight, fc.bias"),
        (lambda state: renamed(state, "encoder.backbone.{}".format), "without the prefix encoder.backbone."),
        (lambda state: {**renamed(state, "net.{}".format), "head.weight": torch.ones(3)}, "head.weight"),
        (lambda state: renamed(state, other_names), "by their order"),
        (lambda state: {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}, "tensors loaded"),
    ],
    ids=["same names", "prefix", "prefix and more", "order", "no counters"],
)
def test_weights_are_found_under_other_names_and_what_was_found_is_said(tmp_path, state, change, said):
    torch.save(change(state), tmp_path / "net.bin")
    model = timm_model(NAME, weights=tmp_path / "net.bin")
    assert same(model, state)
    assert model.origin.startswith("net.bin: ") and said in model.origin


def test_order_does_not_decide_if_last_parts_of_names_or_shapes_differ(tmp_path, state):
    shuffled = renamed(dict(reversed(state.items())), other_names)
    torch.save(shuffled, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="does not fit the backbone 'test_resnet'"):
        timm_model(NAME, weights=tmp_path / "w.pth")
    assert matched({"a.weight": torch.zeros(2)}, {"b.bias": torch.zeros(2)})[1] == ""
    assert matched({"a.weight": torch.zeros(2)}, {"b.weight": torch.zeros(3)})[1] == ""


def test_three_surplus_tensors_are_more_than_a_classifier(state):
    more = {**renamed(state, other_names), **{f"other{i}.weight": torch.zeros(1) for i in range(3)}}
    assert matched(timm.create_model(NAME, num_classes=0).state_dict(), more)[1] == ""


def test_a_folder_is_read_if_it_has_one_file_of_weights(tmp_path, state):
    with pytest.raises(FileNotFoundError, match="no weights file at .*: a .safetensors, .pth"):
        weights_file(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert same(timm_model(NAME, weights=tmp_path), state)
    torch.save(state, tmp_path / "other.bin")
    with pytest.raises(ValueError, match=r"several files of weights: other.bin, pytorch_model.bin. Name one"):
        timm_model(NAME, weights=tmp_path)
    with pytest.raises(FileNotFoundError, match="no weights file at"):
        weights_file(tmp_path / "none.pth")


def test_weights_for_colour_images_are_adapted_to_one_channel(tmp_path, state):
    torch.save(state, tmp_path / "w.pth")
    grey, colour = timm_model(NAME, 1, weights=tmp_path / "w.pth").eval(), timm_model(NAME, weights=tmp_path / "w.pth")
    image = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(image), colour.eval()(image.expand(-1, 3, -1, -1)))


def test_size_and_normalisation_of_the_images_follow_the_network(tmp_path, state):
    torch.save(state, tmp_path / "w.pth")
    words = ["data=folder", f"data.root={tmp_path}", "model=timm"]
    lite = [*words, "model.name=tf_efficientnet_lite3", f"model.weights={tmp_path / 'w.pth'}"]
    data = compose(lite).data
    assert (data.size, data.eval_transform.size, list(data.eval_transform.mean)) == (300, 300, [0.5, 0.5, 0.5])
    assert (
        compose([*lite, "data.size=96", "data.train_transform.mean=[0.1,0.2,0.3]"]).data.eval_transform.mean[0] == 0.1
    )
    scratch = compose([*words, "model.name=tf_efficientnet_lite3"]).data
    assert (scratch.size, scratch.train_transform.mean[0]) == (224, 0.485)


def test_what_timm_wrote_beside_the_weights_wins_and_nonsense_does_not(tmp_path: Path):
    config = {"pretrained_cfg": {"mean": [0.1] * 3, "std": [0.2] * 3, "input_size": [3, 64, 64]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = timm_pixels(NAME, tmp_path)
    assert found is not None and (found.mean[0], found.size) == (0.1, 64)
    timm_pixels.cache_clear()
    for nonsense in ("{", "[]", '{"pretrained_cfg": 3}', '{"pretrained_cfg": {"mean": 1}}'):
        (tmp_path / "config.json").write_text(nonsense)
        timm_pixels.cache_clear()
        assert timm_pixels("resnet18", tmp_path / "w.pth") == timm_pixels("resnet18")
