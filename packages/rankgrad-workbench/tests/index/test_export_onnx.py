"""Models as files of ONNX, which onnxruntime runs with the same embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import slow_unless
from small_runs import make_photos
from text_models import bert_folder

from rankgrad_workbench.cli import main
from rankgrad_workbench.index.embedder import Embedder
from rankgrad_workbench.models import build_model
from rankgrad_workbench.models.ngrams import ngram_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.settings import compose, plain

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


def run_of(path: Path, given: dict[str, np.ndarray]) -> torch.Tensor:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.as_tensor(session.run(None, given)[0])


IMAGES = {
    "convnet": {"widths": (4, 4)},
    "timm": {"name": "test_resnet", "pooling": "gem"},
}


@pytest.mark.parametrize("kind", slow_unless((), ["convnet", "timm"]))
def test_a_model_of_images_takes_any_number_of_images_and_says_what_they_are(tmp_path, capsys, kind):
    torch.manual_seed(0)
    photos = make_photos(tmp_path / "photos", classes=4, side=50)
    given = {"in_channels": 3, **IMAGES[kind]} if kind == "convnet" else IMAGES[kind]
    model = build_model(kind, embedding_size=6, **given)
    settings = ["data=folder", f"data.root={photos}", "data.size=32"]
    weights = save_weights(tmp_path / "model.pt", model, {"data": plain(compose(settings).data)})
    out = tmp_path / "model.onnx"
    assert main(["export", str(weights), "-o", str(out), "--normalize"]) == 0
    assert "RGB images float32 [batch, 3, 32, 32] -> 6-d" in capsys.readouterr().out
    embedder = Embedder.load(weights)
    pixels = embedder.inputs(sorted(photos.glob("*/*.png"))[:5])
    for count in (1, 2, 5):
        with torch.no_grad():
            wanted = torch.nn.functional.normalize(embedder.model(pixels[:count]), dim=1)
        found = run_of(out, {"images": pixels[:count].contiguous().numpy()})
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    words = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).get_modelmeta().custom_metadata_map
    about = json.loads(words["rankgrad.json"])
    assert about["preparation"][0]["step"] == "decode" and about["preparation"][-1]["mean"] == [0.485, 0.456, 0.406]
    assert about["output"]["normalized"] is True and about["similarity"] == "inner product"


@pytest.mark.slow
def test_a_model_of_texts_takes_the_tokens_of_its_tokenizer(tmp_path, capsys):
    pytest.importorskip("sentence_transformers")
    model = build_model("sentence_transformer", name=bert_folder(tmp_path / "bert"), embedding_size=5).eval()
    about = {"task": "search", "prompts": {"query": "the ", "document": ""}}
    weights = save_weights(tmp_path / "model.pt", model, about)
    out = tmp_path / "model.onnx"
    assert main(["export", str(weights), "-o", str(out)]) == 0
    assert "texts int64 [batch, tokens] -> 5-d" in capsys.readouterr().out
    for texts in (["card"], ["my card", "a limit on cash", "phone"], ["my phone " * 40, "a"]):
        tokens = model.backbone.model.preprocess(texts)
        found = run_of(out, {name: tokens[name].numpy() for name in ("input_ids", "attention_mask")})
        wanted = torch.nn.functional.normalize(model(texts).detach(), dim=1)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_a_model_of_ngrams_is_no_file_of_onnx(tmp_path, capsys):
    weights = save_weights(tmp_path / "model.pt", ngram_model(dim=4, buckets=50), {"data": {}})
    assert main(["export", str(weights), "-o", str(tmp_path / "model.onnx")]) == 2
    assert "Give a folder instead" in capsys.readouterr().err
    assert not (tmp_path / "model.onnx").exists()
