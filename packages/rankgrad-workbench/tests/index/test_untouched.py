"""A pretrained network is embedded with, and indexed, without a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from rankgrad_workbench.cli import main
from rankgrad_workbench.index import Index
from rankgrad_workbench.models import load_weights

NAME = "test_resnet"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    timm = pytest.importorskip("timm")
    file = tmp_path_factory.mktemp("weights") / "w.pth"
    torch.manual_seed(0)
    torch.save(timm.create_model(NAME).state_dict(), file)
    return ["model=timm", f"model.name={NAME}", f"model.weights={file}", "data.size=32"]


@pytest.fixture
def photos(tmp_path):
    pixels = np.random.default_rng(0)
    for number in range(4):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def test_a_network_gives_its_own_features_and_can_be_searched(words, photos, tmp_path, capsys):
    out = tmp_path / "photos.npz"
    assert main(["embed", *words, str(photos), "-o", str(out)]) == 0
    assert "the network as it is, without training" in capsys.readouterr().out
    found = Index.load(out)
    assert len(found) == 4
    model, about = load_weights(tmp_path / "photos.model.pt")
    assert about["data"]["eval_transform"]["mean"] == pytest.approx(model.pixel_mean)
    assert main(["index", str(out)]) == 0
    assert main(["search", str(out.with_suffix(".index")), str(photos / "a" / "0.png")]) == 0
    assert "0.png" in capsys.readouterr().out
    again = tmp_path / "again.npz"
    assert main(["embed", str(tmp_path / "photos.model.pt"), str(photos), "-o", str(again)]) == 0
    assert torch.equal(Index.load(again).embeddings, found.embeddings)
    assert main(["embed", *words, str(photos), "-o", str(out)]) == 0  # the same network is kept
    other = [*words[:2], words[2].replace("w.pth", "v.pth"), words[3]]
    state = torch.load(words[2].split("=")[1], weights_only=True)
    torch.save(
        {name: value + 1 if value.is_floating_point() else value for name, value in state.items()},
        other[2].split("=")[1],
    )
    assert main(["embed", *other, str(photos), "-o", str(out)]) == 2
    assert "holds another network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "give the folder of a run, or a network"),
        (["model=convnet"], "model=convnet has no trained weights"),
        (["model=timm", f"model.name={NAME}"], "model=timm has no trained weights"),
    ],
)
def test_without_trained_weights_nothing_is_embedded(given, message, photos, tmp_path, capsys):
    assert main(["embed", *given, str(photos), "-o", str(tmp_path / "photos.npz")]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_run_and_a_network_at_once_are_refused(words, photos, tmp_path, capsys):
    assert main(["embed", str(tmp_path), str(photos), *words]) == 2
    assert "give the folder of a run, or a network" in capsys.readouterr().err
