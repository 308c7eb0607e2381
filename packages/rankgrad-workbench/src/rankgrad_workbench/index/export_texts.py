"""Writes a model of texts as a folder that sentence-transformers loads, with a model card."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankgrad.common.extras import missing
from rankgrad.common.text import shown

from ..files import read_json, temporary_folder
from ..models.embedding_model import EmbeddingModel
from ..models.heads import EmbeddingHead
from ..models.ngrams import NGrams
from ..models.sentence_transformer import SentenceEncoder
from ..models.weights import load_weights
from ..runs.folder import Run
from ..tasks.search.encoders import load_encoders
from .export import Normalized, difference

SAMPLE = ["a", "where is my card", "The quick brown fox jumps over the lazy dog.", "Größe 7, née"]
FILES = (".pt2", ".pt", ".pth", ".bin", ".safetensors", ".zip", ".json")  # no folder is meant
TOLERANCE = 1e-6  # times the largest entry of an embedding, if that is above 1


def export_texts(source: str | Path, out: str | Path, *, normalize: bool = True) -> float:
    """Write a model of texts as a folder for `SentenceTransformer(out)`, after a comparison with the original.

    Args:
        source: folder of a finished run with a model of texts, or its model.pt. Where the folder of a model of n-grams
            is loaded, rankgrad must be installed, and trust_remote_code must be True.
        out: folder to write; it must not exist yet.
        normalize: embeddings of length 1, as `rankgrad embed`; always for a run of task=search. Of two encoders,
            `encode_query` takes that of the queries, and `encode_document`, as `encode`, that of the documents.

    Returns:
        The largest difference of an entry of an embedding.

    Raises:
        FileExistsError: the folder exists.
        ValueError: the model is of another kind, or the folder does not give its embeddings.
    """
    source, out = Path(source), Path(out)
    if out.suffix.lower() in FILES:
        raise ValueError(f"{shown(out)} is the name of a file; a model of texts is a folder (or a file .onnx)")
    if out.exists():
        raise FileExistsError(f"{shown(out)} exists: give a folder that does not exist yet")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {out.name} into")
    folder, weights = (source, Run(source).weights) if source.is_dir() else (source.parent, source)
    model, extra = load_weights(weights)
    if not isinstance(model.backbone, (SentenceEncoder, NGrams)):
        raise ValueError(
            f"{shown(source)} has a model of {model.inputs.takes}; only one of texts is exported as a folder"
        )
    prompts = dict(getattr(getattr(model.backbone, "model", None), "prompts", {}))
    sides: dict[str, EmbeddingModel] = {"": model}
    if extra.get("task") == "search":
        both, normalize = load_encoders(weights), True
        model, prompts = both.document, both.prompts
        sides = {"": model} if both.query is model else {"query": both.query, "document": model}
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Router
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    ours = isinstance(model.backbone, NGrams)
    each = {side: _modules(encoder) for side, encoder in sides.items()}
    first = each[""] if "" in each else [Router.for_query_document(each["query"], each["document"])]
    made = SentenceTransformer(modules=[*first, *([Normalize()] if normalize else [])], device="cpu", prompts=prompts)
    with told_when_full(out), temporary_folder(out) as temporary:
        place = temporary / "model"
        made.save(str(place), create_model_card=False)
        (place / "README.md").write_text(_card(folder, normalize, ours, len(sides) > 1), encoding="utf-8")
        again = SentenceTransformer(str(place), device="cpu", trust_remote_code=ours)
        worst = max(_difference(encoder, again, side, normalize) for side, encoder in sides.items())
        shutil.move(place, out)
    return worst


@contextmanager
def told_when_full(out: Path) -> Iterator[None]:
    """Context in which a full disk is an error of the system that names a path, whatever a library raises for it."""
    try:
        yield
    except Exception as error:
        number = next((each for each in (errno.ENOSPC, errno.EDQUOT) if os.strerror(each) in str(error)), None)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(out)) from None


def _difference(model: EmbeddingModel, again: Any, side: str, normalize: bool) -> float:
    """The largest difference between the model of a side and the folder that was read again."""
    encode = partial(again.encode, prompt="", convert_to_tensor=True, show_progress_bar=False, task=side or None)
    return difference(Normalized(model).eval() if normalize else model.eval(), encode, [(SAMPLE,)], TOLERANCE)


def _modules(model: EmbeddingModel) -> list[nn.Module]:
    """A model of texts as modules of sentence-transformers."""
    backbone: Any = model.backbone
    first = [_ngrams(backbone)] if isinstance(backbone, NGrams) else [*backbone.model.children()]
    return [*first, *_head(model.head)]


def _ngrams(model: NGrams) -> nn.Module:
    from ..models.ngrams_module import NGramsModule

    made = NGramsModule(model.dim, model.buckets, model.words, model.characters)
    made.ngrams.load_state_dict(model.state_dict())
    return made


def _head(head: Any) -> list[nn.Module]:
    """The head as modules of sentence-transformers."""
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    if not isinstance(head, EmbeddingHead):
        raise ValueError("a head of your own cannot be exported: train with model.head=none, linear, layer_norm or mlp")
    line = head.affine
    if line is None:
        return []
    if head.kind == "mlp":  # x = relu(x) - relu(-x), so that one hidden layer holds the affine map, too
        hidden: Any = head.layers
        one, zero = torch.eye(line.in_features), torch.zeros(line.in_features)
        inward, outward = hidden.inward, [hidden.outward.weight, line.weight, -line.weight]
        return [
            _dense(torch.cat([inward.weight, one, -one]), torch.cat([inward.bias, zero, zero]), nn.ReLU()),
            _dense(torch.cat(outward, 1), line.bias),
        ]
    dense = _dense(line.weight, line.bias)
    return [LayerNorm(line.in_features), dense] if head.kind == "layer_norm" else [dense]


def _dense(weight: Tensor, bias: Tensor, bend: nn.Module | None = None) -> nn.Module:
    from sentence_transformers.sentence_transformer.modules import Dense

    size = {"in_features": weight.shape[1], "out_features": len(weight)}
    made: nn.Module = Dense(**size, activation_function=bend, init_weight=weight.detach(), init_bias=bias.detach())
    return made


CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- rankgrad
---

# A text encoder, trained with rankgrad

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder"{trust})
{encode}
```

"""
NGRAMS = """\
Its first module, hashed n-grams of words and characters, is `rankgrad_workbench.models.NGrams`: rankgrad must be
installed, and trust_remote_code=True lets sentence-transformers import it.
"""
TWO = "It has an encoder for queries and another for documents. `encode` takes that for documents.\n"
UNIT, RAW = "Embeddings have length 1.\n", "Embeddings are not normalised: compare them by cosine.\n"


def _card(folder: Path, normalize: bool, ours: bool, two: bool) -> str:
    """The model card: loss, data and numbers of the run, as far as it has them."""
    run, sides = Run(folder), ("document", "query") if two else ("",)
    calls = {"": 'embeddings = model.encode(["a text"])', "query": 'queries = model.encode_query(["a question"])'}
    calls["document"] = 'documents = model.encode_document(["a text"])'
    head = CARD.format(trust=", trust_remote_code=True" * ours, encode="\n".join(calls[side] for side in sides))
    lines = [head + "\n".join([*[TWO] * two, *[NGRAMS] * ours, UNIT if normalize else RAW])]
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
