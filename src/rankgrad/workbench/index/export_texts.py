"""Writes a model of texts as a folder that sentence-transformers loads, with a model card."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...common.extras import missing
from ...common.files import read_json, shown
from ...models.embedding_model import EmbeddingModel
from ...models.heads import EmbeddingHead
from ...models.sentence_transformer import SentenceEncoder
from ...models.weights import load_weights
from ..runs.folder import Run

SAMPLE = ["a", "where is my card", "The quick brown fox jumps over the lazy dog.", "Größe 7, née"]
TOLERANCE = 1e-6  # times the largest entry of an embedding, if that is above 1


def export_texts(source: str | Path, out: str | Path, *, normalize: bool = False) -> float:
    """Write a model of texts as a folder for `SentenceTransformer(out)`, after a comparison with the original.

    Args:
        source: folder of a finished run with model=sentence_transformer, or its model.pt.
        out: folder to write; it must not exist yet.
        normalize: embeddings of length 1. Always for a run of task=search.

    Returns:
        The largest difference of an entry of an embedding.

    Raises:
        FileExistsError: the folder exists.
        ValueError: the model is of another kind, has two encoders, or the folder does not give its embeddings.
    """
    source, out = Path(source), Path(out)
    if out.exists():
        raise FileExistsError(f"{shown(out)} exists: give a folder that does not exist yet")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {out.name} into")
    folder, weights = (source, Run(source).weights) if source.is_dir() else (source.parent, source)
    model, extra = load_weights(weights)
    if not isinstance(model.backbone, SentenceEncoder):
        raise ValueError(
            f"{shown(source)} has a model of {model.inputs.takes} that sentence-transformers cannot build: only runs "
            "with model=sentence_transformer can be exported as a folder. rankgrad embed uses the run itself"
        )
    if (folder / "queries.pt").exists():
        raise ValueError(f"{shown(source)} has an encoder for queries and another for documents; only one is exported")
    normalize = normalize or extra.get("task") == "search"
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    encoder: Any = model.backbone.model
    modules = [*encoder.children(), *_head(model.head), *([Normalize()] if normalize else [])]
    made = SentenceTransformer(modules=modules, device="cpu", prompts=extra.get("prompts") or dict(encoder.prompts))
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        place = Path(temporary, "model")
        made.save(str(place), create_model_card=False)
        (place / "README.md").write_text(_card(folder, normalize), encoding="utf-8")
        difference = _compared(model, SentenceTransformer(str(place), device="cpu"), normalize)
        shutil.move(place, out)
    return difference


def _head(head: Any) -> list[nn.Module]:
    """The head as modules of sentence-transformers."""
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm

    if not isinstance(head, EmbeddingHead) or head.kind == "mlp":
        raise ValueError("a head of this kind cannot be exported: train with model.head=none, linear or layer_norm")
    line = head.affine
    if line is None:
        return []
    dense = Dense(line.in_features, line.out_features, activation_function=nn.Identity())
    dense.linear.load_state_dict(line.state_dict())
    return [LayerNorm(line.in_features), dense] if head.kind == "layer_norm" else [dense]


def _compared(model: EmbeddingModel, again: Any, normalize: bool) -> float:
    """The largest difference between the model and the folder that was read again."""
    with torch.no_grad():
        wanted = model.eval()(SAMPLE).float()
    wanted = nn.functional.normalize(wanted, dim=1) if normalize else wanted
    found = again.encode(SAMPLE, prompt="", convert_to_tensor=True, show_progress_bar=False)
    difference = float((found - wanted).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise ValueError(f"the written model differs from the run by {difference:.3g}: nothing was written")
    return difference


def _card(folder: Path, normalize: bool) -> str:
    """The model card: loss, data and numbers of the run, as far as it has them."""
    run = Run(folder)
    lines = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity", "tags:"]
    lines += ["- sentence-transformers", "- rankgrad", "---", "", "# A text encoder, trained with rankgrad", ""]
    lines += ["```python", "from sentence_transformers import SentenceTransformer", ""]
    lines += ['embeddings = SentenceTransformer("this folder").encode(["a text"])', "```", ""]
    lines += [
        "Embeddings have length 1." if normalize else "Embeddings are not normalised: compare them by cosine.",
        "",
    ]
    if run.config.exists():
        from omegaconf import OmegaConf

        settings: Any = OmegaConf.to_container(OmegaConf.load(run.config))
        if isinstance(settings["data"].get("root"), str):  # a card is published; the folders of this machine are not
            settings["data"]["root"] = Path(settings["data"]["root"]).name
        for what in ("loss", "data"):
            lines += [f"## {what.capitalize()}", "", "```json", json.dumps(settings[what], indent=1, default=str)]
            lines += ["```", ""]
    if run.config.exists() and run.after.exists():
        values = read_json(run.after, "values")["values"]
        lines += ["## Numbers on the test data", "", "| metric | value |", "|---|--:|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in values.items() if isinstance(value, (int, float))]
    return "\n".join([*lines, ""])


__all__ = ["export_texts"]
