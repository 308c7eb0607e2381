"""A model of somebody else: what it asks for is bounded by the size of its file, and refused in one line."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import copied
from torch import Tensor

from rankgrad_workbench.index.embedder import Embedder
from rankgrad_workbench.models import load_weights, save_weights, vector_model
from rankgrad_workbench.tasks.scores.model import Encoding, build_model, load_ranker, save_ranker
from rankgrad_workbench.tasks.scores.saved import evaluate_run, predict_file
from rankgrad_workbench.tasks.scores.settings import Model
from rankgrad_workbench.tasks.scores.table import load_table


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a model of two columns, and rows for it."""
    rows = tmp_path / "rows.csv"
    rows.write_text("amount,city\n" + "".join(f"{row},{'ABC'[row % 3]}\n" for row in range(60)))
    encoding, settings = Encoding.fitted(load_table(rows, label=None)), Model("mlp", (8,))
    save_ranker(tmp_path / "model.pt", build_model(settings, encoding.width), encoding, settings)
    return tmp_path


def predicted(run: Path) -> Any:
    return predict_file(run, run / "rows.csv", run / "scores.npz")


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)


def quantised(values: Tensor) -> Tensor:
    return torch._empty_affine_quantized(values.shape, scale=1.0, zero_point=0, dtype=torch.qint8)


WEIGHTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "sparse": (Tensor.to_sparse, "0.weight without all of its values"),
    "quantised": (quantised, "0.weight without all of its values"),
    "without values": (lambda values: values.to("meta"), "0.weight without all of its values"),
    "expanded": (lambda values: torch.zeros(1, 1).expand(10**9, 4), "0.weight without all of its values"),
    "expanded to its shape": (lambda values: torch.zeros(1, 1).expand(8, 4), "0.weight without all of its values"),
    "whole": (lambda values: values.to(torch.int8), "1 have no values, or whole or complex ones, .*: 0.weight"),
    "bool": (lambda values: values > 0, "1 have no values, or whole or complex ones, .*: 0.weight"),
    "a word": (lambda values: "0", "state not as rankgrad writes it"),
    "NaN": (lambda values: values * torch.nan, "0.weight has NaN or infinity"),
}


@pytest.mark.filterwarnings("ignore:.*quantiz", "ignore:.*deprecated")
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_no_dense_finite_numbers_are_refused(run, name):
    change, message = WEIGHTS[name]
    rewritten(
        run / "model.pt", lambda content: content["state"].update({"0.weight": change(content["state"]["0.weight"])})
    )
    with pytest.raises(ValueError, match=message):
        predicted(run)
    assert not (run / "scores.npz").exists()


def categories(count: int) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["encoding"]["words"].update(city=[str(each) for each in range(count)])


MODELS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "layers": (lambda content: content["model"].update(hidden=[1] * 10**5), "more weights than the file holds"),
    "units": (lambda content: content["model"].update(hidden=[10**9]), "more weights than the file holds"),
    "no layers": (lambda content: content["model"].update(hidden=None), "cannot be built"),
    "categories": (categories(110_000), "does not fit the model"),
    "numbered weights": (lambda content: content["state"].update({3: torch.zeros(1)}), "state not as"),
    "a format that is a tensor": (lambda content: content.update(format=torch.zeros(3)), "is not a model"),
    "a mean that is a tensor": (
        lambda content: content["encoding"]["numbers"].update(mean=torch.zeros(2)),
        "encoding of the columns is damaged",
    ),
    "one tensor many times": (
        lambda content: content["state"].update(dict.fromkeys(map(str, range(50)), torch.zeros(10**4))),
        "bytes of values",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_larger_than_its_file_is_refused_before_it_is_built(run, name):
    change, message = MODELS[name]
    rewritten(run / "model.pt", change)
    with pytest.raises(ValueError, match=message):
        load_ranker(run / "model.pt")


def test_a_compressed_file_is_refused_before_it_is_unpacked(run):
    rewritten(run / "model.pt", lambda content: content["state"].update(x=torch.zeros(10**6)))
    with (
        zipfile.ZipFile(run / "model.pt") as archive,
        zipfile.ZipFile(run / "b.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in archive.namelist():
            packed.writestr(name, archive.read(name))
    with pytest.raises(ValueError, match="torch.save compresses nothing"):
        load_ranker(run / "b.pt")


def test_a_file_with_a_damaged_directory_is_named(run):
    content = bytearray((run / "model.pt").read_bytes())
    for place in range(content.find(b"PK\x01\x02"), len(content), 3):
        damaged = content.copy()
        damaged[place] ^= 0x80
        (run / "b.pt").write_bytes(damaged)
        try:
            load_ranker(run / "b.pt")  # not every byte is used
        except (ValueError, OSError) as error:
            assert "b.pt" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: null", "data must hold settings; got None"),
        ("data: [1, 2]", "data must hold settings"),
        ("data: word", "data must hold settings; got word"),
        ("seed: 0", "data must hold settings; got None"),
        ("data: {load: null}", "load must hold settings; got None"),
        ("data: {load: [a]}", "load must hold settings"),
        ("data: {load: {query: [a, b]}}", "data.load.query must be text or empty"),
        ("data: {load: {delimiter: 7}}", "data.load.delimiter must be text or empty; got 7"),
        ("data: {load: {features: [{a: 1}]}}", "data.load.features must be text or empty"),
        ("[1", "holds no settings"),
        ("", "holds no settings"),
    ],
)
def test_settings_that_are_none_are_named_with_their_file(run, text, message):
    (run / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=f"config.yaml: .*{message}"):
        predicted(run)


def test_an_evaluation_of_other_rows_refuses_settings_of_the_wrong_kind(tmp_path):
    folder = copied("scores", tmp_path / "run")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("    query: auto", "    query: [a]"))
    assert "query: [a]" in (folder / "config.yaml").read_text()
    with pytest.raises(ValueError, match="data.load.query must be text"):
        evaluate_run(folder, root=tmp_path / "rows.csv")


def test_wide_rows_are_scored_in_parts(run, monkeypatch):
    predicted(run)
    whole = np.load(run / "scores.npz")["score"]
    monkeypatch.setattr("rankgrad_workbench.tasks.scores.model.NUMBERS", 28)
    predicted(run)
    np.testing.assert_allclose(np.load(run / "scores.npz")["score"], whole, rtol=1e-6)


# -------------------------------------------------------------------------------------------- models of embeddings

BUILT = {
    "vectors": ({"kind": "vectors", "width": 10**4, "embedding_size": 10**4}, "more weights than the file holds"),
    "ngrams": ({"kind": "ngrams", "buckets": 10**7}, "more weights than the file holds"),
    "convnet": ({"kind": "convnet", "widths": [1] * 10**5}, "more weights than the file holds"),
    "sentences": (
        {
            "kind": "sentence_transformer",
            "name": "x",
            "files": {"a.safetensors": '8 bytes.{"a": {"data_offsets": [0, 4000000000000]}}'},
        },
        "other files than save_weights writes, or larger ones",
    ),
    "sentences of words": (
        {"kind": "sentence_transformer", "name": "x", "files": {"a.safetensors": {"a": "F32"}}},
        "other files than save_weights writes",
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_model_of_embeddings_that_is_larger_than_its_file_is_refused(tmp_path, name):
    options, message = BUILT[name]
    path = save_weights(tmp_path / "model.pt", vector_model(4))
    rewritten(path, lambda content: content.update(model=options))
    with pytest.raises(ValueError, match=message):
        load_weights(path)


@pytest.mark.parametrize(
    "pixels",
    [
        {"mean": [], "std": [1.0]},
        {"mean": [0.5] * 3, "std": [0.0] * 3},
        {"mean": [0.5] * 3, "std": [1.0]},
        {"mean": [float("nan")] * 3, "std": [1.0] * 3},
        {"mean": [True] * 3, "std": [1.0] * 3},
        {"mean": None, "std": [1.0] * 3},
    ],
)
def test_a_mean_and_a_deviation_of_pixels_that_cannot_be_used_are_refused(tmp_path, pixels):
    save_weights(tmp_path / "model.pt", vector_model(4))
    rewritten(tmp_path / "model.pt", lambda content: content.update(pixels=pixels))
    with pytest.raises(ValueError, match="is damaged: these parts .* pixels"):
        load_weights(tmp_path / "model.pt")


def test_a_model_whose_weights_are_nan_embeds_nothing(tmp_path):
    model = vector_model(4)
    torch.nn.init.constant_(next(model.parameters()), torch.nan)
    save_weights(tmp_path / "model.pt", model, {"data": {"eval_transform": {}}})
    with pytest.raises(ValueError, match="layers.weight have NaN or infinity, as after a training that diverged"):
        Embedder.load(tmp_path / "model.pt")
