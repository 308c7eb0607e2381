"""Exported models: one file that needs only torch, compared with the original before it is written."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from small_runs import make_photos, small, train
from torch import Tensor

from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.transforms import PhotoEval
from rankgrad_workbench.index import export as exports
from rankgrad_workbench.index.embedder import Embedder
from rankgrad_workbench.index.export import ABOUT, export, preparation
from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.settings import compose, plain


def saved(path: Path, settings: list[str], model: torch.nn.Module) -> Path:
    """Weights as a run leaves them, of an untrained model."""
    return save_weights(path, model, {"data": plain(compose(settings).data)})


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"), classes=4, side=50)


@pytest.fixture(scope="module")
def of_photos(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8, pooling="gem")
    settings = ["data=folder", f"data.root={photos}", "data.size=32", "data.resize=40"]
    return saved(tmp_path_factory.mktemp("photos-run") / "model.pt", settings, model)


@pytest.fixture(scope="module")
def of_ink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = build_model("convnet", in_channels=1, widths=(8, 8, 8, 8), embedding_size=5)
    return saved(tmp_path_factory.mktemp("ink-run") / "model.pt", ["data=glyphs"], model)


# Runs where neither rankgrad nor what it needs for models can be imported. Reads exported files, prepares images as
# each says, prints their embeddings.
STRANGER = """
import json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rankgrad", "timm", "lightning", "hydra", "omegaconf"):
            raise ModuleNotFoundError(f"{name} is forbidden here")
sys.meta_path.insert(0, Absent())
import numpy as np, torch
from PIL import Image
from torch.nn.functional import interpolate

def resized(image, height, width):  # torchvision's rounds otherwise on processors without AVX2
    return interpolate(image[None], (height, width), mode="bilinear", antialias=True)[0]

def shorter(image, side):
    height, width = image.shape[1:]
    return resized(image, *(side * length // min(height, width) for length in (height, width)))

def prepared(path, steps):
    for step in steps:
        kind = step["step"]
        if kind == "decode":
            pixels = np.array(Image.open(path).convert(step["mode"]))
            image = torch.from_numpy(pixels).view(*pixels.shape[:2], -1).permute(2, 0, 1)
        elif kind == "shrink":
            if min(image.shape[1:]) > step["shorter_side"]:
                image = shorter(image, step["shorter_side"])
        elif kind == "invert":
            image = 255 - image
        elif kind == "resize":
            alone = "shorter_side" in step
            image = shorter(image, step["shorter_side"]) if alone else resized(image, step["height"], step["width"])
        elif kind == "centre_crop":
            top, left = (round((length - step["size"]) / 2) for length in image.shape[1:])
            image = image[:, top : top + step["size"], left : left + step["size"]]
        elif kind == "divide":
            image = image.float() / step["by"]
        elif kind == "normalize":
            image = (image - torch.tensor(step["mean"])[:, None, None]) / torch.tensor(step["std"])[:, None, None]
        else:
            raise ValueError(kind)
    return image

found = []
for model, *paths in json.loads(sys.argv[1]):
    words = {"rankgrad.json": ""}
    program = torch.export.load(model, extra_files=words).module()
    about = json.loads(words["rankgrad.json"])
    batch = torch.stack([prepared(path, about["preparation"]) for path in paths])
    assert list(batch.shape[1:]) == about["input"]["shape"][1:]
    with torch.no_grad():
        found.append(program(batch).tolist())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def written(of_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The model of the photos, exported, and what the export returned."""
    file = tmp_path_factory.mktemp("written") / "model.pt2"
    return file, export(of_photos, file, normalize=False)


@pytest.mark.slow  # starts Python where it is not
def test_exported_models_are_used_where_rankgrad_cannot_be_imported(written, of_photos, of_ink, photos, tmp_path):
    drawings = tmp_path / "drawings"
    drawings.mkdir()
    for number in range(3):
        drawing = Image.new("L", (40, 35), 0)
        drawing.paste(255, (4 + 9 * number, 3, 12 + 9 * number, 30))
        drawing.save(drawings / f"{number}.png")
    export(of_ink, tmp_path / "ink.pt2", images=drawings)
    asked = [(written[0], sorted(photos.glob("*/*.png"))[:7]), (tmp_path / "ink.pt2", sorted(drawings.iterdir()))]
    words = json.dumps([[str(file), *map(str, paths)] for file, paths in asked])
    done = subprocess.run([sys.executable, "-c", STRANGER, words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    of_tiles, of_drawings = (torch.tensor(rows) for rows in json.loads(done.stdout))
    embedder = Embedder.load(of_photos)
    with torch.no_grad():
        torch.testing.assert_close(of_tiles, embedder.model(embedder.inputs(asked[0][1])), atol=1e-6, rtol=0)
    torch.testing.assert_close(of_drawings, Embedder.load(of_ink)(asked[1][1]), atol=1e-6, rtol=0)


def test_an_export_says_what_it_was_held_to(written):
    about = written[1]
    assert about["checked"]["images"] == 20 and about["checked"]["largest_difference"] <= 1e-4
    assert about["input"]["shape"] == ["batch", 3, 32, 32] and about["output"]["shape"] == ["batch", 8]
    assert about["similarity"] == "cosine"  # the embeddings are not normalised


def test_any_number_of_images_goes_in(written, of_photos, photos):
    embedder = Embedder.load(of_photos)
    pixels = embedder.inputs(sorted(photos.glob("*/*.png")))
    program = torch.export.load(written[0]).module()
    for count in (1, 2, 5, 20):
        with torch.no_grad():
            found, expected = program(pixels[:count]), embedder.model(pixels[:count])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_description_lies_in_the_file_and_is_what_was_returned(written, of_photos):
    words = {ABOUT: ""}
    torch.export.load(written[0], extra_files=words)
    inside = json.loads(words[ABOUT])
    inside["checked"]["largest_difference"] = written[1]["checked"]["largest_difference"]  # known once it was read back
    assert inside == written[1] and inside["weights_sha256"] == Embedder.load(of_photos).sha256


@pytest.mark.slow
def test_a_run_of_a_relative_folder_is_exported_from_anywhere(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    run = train(*small(Path(photos.name), "sampler.classes_per_batch=2"), f"out={tmp_path / 'run'}")
    monkeypatch.chdir(tmp_path)
    record = torch.load(run.weights, weights_only=True)
    assert record["config"]["data"]["root"] == record["config"]["data"]["load"]["root"] == str(photos)
    assert export(run.folder, tmp_path / "model.pt2")["checked"]["images"] == 20


class Mirrored(PhotoEval):
    """A transform of a user's, derived from ours."""


def test_a_transform_that_is_derived_from_ours_is_not_described_as_ours(of_photos):
    embedder = Embedder.load(of_photos)
    with pytest.raises(ValueError, match="Mirrored is your own transform"):
        preparation(replace(embedder, transform=Mirrored(32)))


@pytest.mark.slow
def test_a_backbone_of_timm_is_exported(photos, tmp_path):
    torch.manual_seed(0)
    model = build_model("timm", name="test_resnet", embedding_size=6, pooling="gem")
    settings = ["data=folder", f"data.root={photos}", "data.size=32"]
    weights = saved(tmp_path / "model.pt", settings, model)
    assert export(weights, tmp_path / "model.pt2")["checked"]["largest_difference"] <= 1e-4


@pytest.mark.parametrize("factor", [2e-4, torch.nan])
def test_a_program_that_differs_from_the_model_is_not_written(of_photos, tmp_path, monkeypatch, factor):
    (tmp_path / "model.pt2").write_text("the one before")
    real = exports.exported

    class Off(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: Tensor) -> Tensor:
            return self.model(images) + factor * images.mean().square().exp()

    monkeypatch.setattr(exports, "exported", lambda model, pixels: real(Off(model), pixels))
    with pytest.raises(ValueError, match="differs .*nothing was written"):
        export(of_photos, tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").read_text() == "the one before" and len([*tmp_path.iterdir()]) == 1


def test_a_model_that_cannot_be_followed_says_so():
    class Choosy(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.mean((2, 3)) if float(images.sum()) > 0 else images.amax((2, 3))

    with pytest.raises(ValueError, match="torch.export cannot export this model"):
        exports.exported(Choosy(), torch.zeros(2, 1, 4, 4))


def test_images_of_the_run_that_are_gone_are_asked_for(photos, tmp_path, capsys):
    model = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8)
    settings = ["data=folder", f"data.root={tmp_path / 'gone'}", "data.size=32"]
    weights = saved(tmp_path / "model.pt", settings, model)
    out = str(tmp_path / "model.pt2")
    assert main(["export", str(weights), "-o", out]) == 2
    assert "Give images for the comparison with --images DIR" in capsys.readouterr().err
    assert main(["export", str(weights), "-o", out, "--images", str(photos)]) == 0
    shown = capsys.readouterr().out
    assert "RGB images float32 [batch, 3, 32, 32] -> 8-d" in shown and "on 20 images" in shown
    assert "'normalize', 'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225]" in shown


@pytest.mark.slow
def test_unreadable_files_are_left_out_of_the_comparison(tmp_path):
    folder = make_photos(tmp_path / "photos", classes=4, side=50)
    next(iter(sorted(folder.rglob("*.png")))).write_text("no image")
    model = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8)
    weights = saved(tmp_path / "model.pt", ["data=folder", f"data.root={folder}", "data.size=32"], model)
    for images in (None, folder):
        assert export(weights, tmp_path / "model.pt2", images=images)["checked"]["images"] == 19
    for file in folder.rglob("*.png"):
        file.write_text("no image")
    with pytest.raises(FileNotFoundError, match="no image that can be read"):
        export(weights, tmp_path / "model.pt2", images=folder)


def test_the_export_says_what_it_needs(of_photos, photos, tmp_path):
    with pytest.raises(FileNotFoundError, match="finished run, or its model.pt"):
        export(tmp_path, tmp_path / "a.pt2")
    with pytest.raises(FileNotFoundError, match="cannot be written.*folder"):
        export(of_photos, tmp_path / "no" / "a.pt2")
    with pytest.raises(FileNotFoundError, match="no image that can be read"):
        export(of_photos, tmp_path / "a.pt2", images=tmp_path)


def test_preparation_tells_every_step_of_a_transform(of_photos, of_ink):
    assert [step["step"] for step in preparation(Embedder.load(of_photos))] == [
        *("decode", "shrink", "resize", "centre_crop", "divide", "normalize")
    ]
    embedder = Embedder.load(of_ink)
    assert [step["step"] for step in preparation(embedder)] == ["decode", "divide", "resize"]
    with pytest.raises(ValueError, match="is your own transform"):
        preparation(Embedder(embedder.model, lambda images, index, epoch: images[0], {}, of_ink, ""))
