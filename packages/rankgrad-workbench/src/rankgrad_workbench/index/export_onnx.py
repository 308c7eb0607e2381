"""Writes a model as one file of ONNX, which onnxruntime runs without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad._version import __version__
from rankgrad.common.extras import missing
from rankgrad.common.text import shown

from ..files import atomic_write
from ..models.build import taking
from ..models.embedding_model import EmbeddingModel
from ..models.record import read_record
from ..models.sentence_transformer import SentenceEncoder
from ..models.weights import load_weights
from ..runs.folder import Run
from .embedder import Embedder
from .export import ABOUT, TOLERANCE, Normalized, describe, difference, need_file, quiet, real_inputs
from .export_texts import SAMPLE

TOKENS = ("input_ids", "attention_mask")


class TokenInputs(nn.Module):
    """The tokens of texts -> embeddings.

    Args:
        model: with a `SentenceEncoder`.
        normalize: embeddings of length 1.
    """

    def __init__(self, model: EmbeddingModel, normalize: bool) -> None:
        super().__init__()
        self.model, self.normalize = model, normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[text, token] long, and 1 where there is a token -> [text, dim]."""
        encoder: Any = self.model.backbone.model
        found = encoder({"input_ids": input_ids, "attention_mask": attention_mask})["sentence_embedding"]
        embeddings = self.model.embed(found).float()
        return F.normalize(embeddings, dim=1) if self.normalize else embeddings


def export_onnx(
    source: str | Path,
    out: str | Path,
    *,
    images: str | Path | None = None,
    normalize: bool = True,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the model of a run as ONNX, after a comparison of onnxruntime with the original.

    Args:
        source: folder of a finished run, or its model.pt.
        out: file to write, `NAME.onnx`; an existing file is replaced.
        images: folder of images for the comparison; None: the data of the run.
        normalize: embeddings of length 1, as `rankgrad embed`; always for a run of task=search.
        trust: packages of your own classes, see `Embedder.load`.

    Returns:
        The description in the metadata of the file (`rankgrad.json`), and the largest difference that was observed.

    Raises:
        ModuleNotFoundError: onnx, onnxscript or onnxruntime is not installed.
        FileNotFoundError: the run, the images for the comparison, or the folder of `out` does not exist.
        ValueError: the model cannot be written as ONNX, or the file differs from it. Nothing is written then.
    """
    source, out = Path(source), Path(out)
    need_file(out)
    try:
        onnx, onnxruntime, _ = map(import_module, ("onnx", "onnxruntime", "onnxscript"))  # torch needs the last one
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    weights = Run(source).weights if source.is_dir() else source
    texts = weights.is_file() and read_record(weights)["model"]["kind"] in taking("texts")
    model, batches, names, about = (
        _of_texts(weights, normalize) if texts else _of_rows(source, images, normalize, trust)
    )
    axes = {0: torch.export.Dim("batch"), **({1: torch.export.Dim("tokens")} if texts else {})}
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                model.eval(),
                tuple(each.clone() for each in batches[-1]),
                input_names=names,
                output_names=["embeddings"],
                dynamic_shapes=(axes,) * len(names),
                dynamo=True,
                verbose=False,
            )
            written = program.model_proto  # type: ignore[union-attr]
            pixels = {} if texts else _pixels(about)
            known = {"rankgrad": __version__, "normalized": about["output"]["normalized"], **pixels, ABOUT: about}
            words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in known.items()}
            onnx.helper.set_model_props(written, words)
            content = written.SerializeToString()
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # torch and onnx raise many types, and the model may raise any
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"this model cannot be written as ONNX: {reason}") from error

    def again(*given: Tensor) -> Tensor:
        by_name = {name: part.contiguous().numpy() for name, part in zip(names, given, strict=True)}
        return torch.as_tensor(session.run(None, by_name)[0])

    worst = difference(model, again, batches)
    with atomic_write(out) as file:
        file.write(content)
    return {**about, "checked": {"images": len(batches[-1][0]), "tolerance": TOLERANCE, "largest_difference": worst}}


Parts = tuple[nn.Module, list[tuple[Tensor, ...]], list[str], dict[str, Any]]  # model, batches, names, description


def _of_rows(source: Path, images: str | Path | None, normalize: bool, trust: Sequence[str]) -> Parts:
    """A model of images or vectors."""
    embedder = Embedder.load(source, trust=trust)
    rows = real_inputs(embedder, images, trust)
    model: nn.Module = Normalized(embedder.model) if normalize else embedder.model
    rows = torch.cat([rows, rows])[: max(2, len(rows))]  # the exporter treats a batch size of 1 as a constant
    about = describe(embedder, normalize=normalize)
    return model, [(rows[:1],), (rows[:3],), (rows,)], [about["input"]["name"]], about


def _of_texts(weights: Path, normalize: bool) -> Parts:
    """A model of texts, without its tokenizer."""
    model, extra = load_weights(weights)
    encoder = model.backbone
    parts = []
    if isinstance(encoder, SentenceEncoder):
        made: Any = encoder.model
        given = [made.preprocess(texts) for texts in (SAMPLE[:1], SAMPLE)]
        parts = [tuple(each[name] for name in TOKENS) for each in given if {*TOKENS} <= {*each}]
    if not parts:
        raise ValueError(
            f"{shown(weights)} cannot be written as ONNX: only models of texts whose input is {' and '.join(TOKENS)} "
            "can. Give a folder, for sentence-transformers"
        )
    if weights.with_name("queries.pt").exists():
        raise ValueError(f"{shown(weights)} has an encoder for queries and another for documents; only one is exported")
    normalize = normalize or extra.get("task") == "search"
    about: dict[str, Any] = {
        "input": {"name": "texts", "names": list(TOKENS), "dtype": "int64", "shape": ["batch", "tokens"]},
        "output": {"dtype": "float32", "shape": ["batch", model.embedding_size], "normalized": normalize},
        "prompts": extra.get("prompts") or {},
        "preparation": [],
        "rankgrad": __version__,
        "torch": torch.__version__,
    }
    return TokenInputs(model, normalize), parts, list(TOKENS), about


def _pixels(about: dict[str, Any]) -> dict[str, Any]:
    """Size, mean and standard deviation of the images that a model takes."""
    for step in about["preparation"]:
        if step["step"] == "normalize":
            return {"size": about["input"]["shape"][2:], "mean": step["mean"], "std": step["std"]}
    return {"size": about["input"]["shape"][2:]}


__all__ = ["export_onnx"]
