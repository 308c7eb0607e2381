"""Writes a model as a file: a program of torch.export (.pt2), which needs only torch, or ONNX, with its description.

    import json, torch
    words = {"rankgrad.json": ""}
    program = torch.export.load("model.pt2", extra_files=words)
    embeddings = program.module()(images)            # float32 [batch, channel, height, width], prepared as it says
    about = json.loads(words["rankgrad.json"])

The file is written only if it gives the same embeddings as the model, on real images and for several batch sizes.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module, resources
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from jinja2 import Template
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad._version import __version__
from rankgrad.common.extras import missing
from rankgrad.common.text import shown

from ..datasets.folder import find_images
from ..datasets.transforms import InkEval, PhotoEval
from ..files import atomic_write, read_json, temporary_folder
from ..models.build import taking
from ..models.embedding_model import EmbeddingModel
from ..models.heads import EmbeddingHead
from ..models.ngrams import NGrams
from ..models.record import read_record
from ..models.sentence_transformer import SentenceEncoder
from ..models.weights import load_weights
from ..runs.folder import Run
from ..settings import make, parsed, plain
from ..tasks.search.encoders import load_encoders
from ..tasks.search.system import described
from .embedder import Embedder, weights_of

FORMAT = "rankgrad-export-1"
ABOUT = "rankgrad.json"  # name of the description inside the file
TOLERANCE = 1e-4
CHECKED = 32  # number of real images on which the program is checked
SAMPLE = ["a", "where is my card", "The quick brown fox jumps over the lazy dog.", "Größe 7, née"]
FILES = (".pt2", ".pt", ".pth", ".bin", ".safetensors", ".zip", ".json")  # no folder is meant
OF_TEXTS = 1e-6  # tolerance of a folder
TOKENS = ("input_ids", "attention_mask")
Batches = list[tuple[Tensor, ...]]


class Normalized(nn.Module):
    """A model whose embeddings have length 1, so that an inner product is the cosine.

    Args:
        model: inputs -> embeddings.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Any) -> Tensor:
        """[row, dim] of length 1; an embedding of zeros stays zeros."""
        return F.normalize(self.model(given).float(), dim=1)


class OfTokens(nn.Module):
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


def export(
    source: str | Path,
    out: str | Path,
    *,
    images: str | Path | None = None,
    normalize: bool = True,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the model of a run for use without rankgrad, after a comparison with the original.

    Args:
        source: folder of a finished run, or its model.pt.
        out: file to write: ONNX if its name ends in .onnx, else a program of torch, usually `NAME.pt2`; an existing
            file is replaced. As ONNX, a model of texts takes the tokens of its tokenizer.
        images: folder of images for the comparison; None: the data of the run.
        normalize: embeddings of length 1, as `rankgrad embed` (always for a run of task=search); False: what the model
            returns.
        trust: packages of your own classes, see `Embedder.load`.

    Returns:
        The description in the file (`rankgrad.json`), and the largest difference that was observed: at most
        `TOLERANCE`, times the largest entry of an embedding if that is above 1.

    Raises:
        ModuleNotFoundError: onnx, onnxscript or onnxruntime is not installed, and ONNX is written.
        FileNotFoundError: the run, the images for the comparison, or the folder of `out` does not exist.
        ValueError: the model cannot be exported (models of texts only as ONNX), or the file differs from it. Nothing is
            written then.
    """
    out, weights = Path(out), weights_of(source)
    as_onnx = out.suffix.lower() == ".onnx"
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{shown(out)} cannot be written: give a file in an existing folder")
    if read_record(weights)["model"]["kind"] not in taking("texts"):
        model, batches, about = _of_rows(Embedder.load(weights, trust=trust), images, normalize, trust)
    elif as_onnx:
        model, batches, about = _of_texts(weights, normalize)
    else:
        raise ValueError(f"{shown(source)} takes texts: give a new folder, for sentence-transformers, or a file .onnx")
    about |= {"similarity": "inner product" if about["output"]["normalized"] else "cosine"}
    about |= {"format": FORMAT, "rankgrad": __version__, "torch": torch.__version__}
    about["checked"] = {"images": len(batches[-1][0]), "tolerance": TOLERANCE}
    content, again = (_onnx if as_onnx else _program)(model.eval(), batches[-1], about)
    about["checked"]["largest_difference"] = difference(model, again, batches)  # known only now: it is not in the file
    with atomic_write(out) as file:
        file.write(content)
    return about


def _of_rows(
    embedder: Embedder, images: str | Path | None, normalize: bool, trust: Sequence[str]
) -> tuple[nn.Module, Batches, dict[str, Any]]:
    """A model of images or vectors, batches for the comparison, and the description."""
    model, rows = embedder.model, real_inputs(embedder, images, trust)
    rows = torch.cat([rows, rows])[: max(2, len(rows))]  # exporters treat a batch size of 1 as a constant
    of_images = model.inputs.takes == "images"
    colour = {"colour": "grey" if model.in_channels == 1 else "RGB"} if of_images else {}
    about = {
        "input": {"name": model.inputs.takes, "dtype": "float32", "shape": ["batch", *rows.shape[1:]], **colour},
        "preparation": preparation(embedder) if of_images else [],
        "output": {"dtype": "float32", "shape": ["batch", model.embedding_size], "normalized": normalize},
        "model": model.config,
        "weights_sha256": embedder.sha256,
    }
    return Normalized(model) if normalize else model, [(rows[:1],), (rows[:3],), (rows,)], about


def _of_texts(weights: Path, normalize: bool) -> tuple[nn.Module, Batches, dict[str, Any]]:
    """A model of texts without its tokenizer, batches of tokens for the comparison, and the description."""
    model, extra = load_weights(weights)
    batches: Batches = []
    if isinstance(model.backbone, SentenceEncoder):
        made: Any = model.backbone.model
        given = [made.preprocess(texts) for texts in (SAMPLE[:1], SAMPLE)]
        batches = [tuple(each[name] for name in TOKENS) for each in given if {*TOKENS} <= {*each}]
    if not batches or "queries" in extra:
        raise ValueError(f"{shown(weights)} cannot be ONNX, only an encoder of {TOKENS}. Give a folder instead")
    normalize = normalize or extra.get("task") == "search"
    about: dict[str, Any] = {
        "input": {"name": "texts", "names": list(TOKENS), "dtype": "int64", "shape": ["batch", "tokens"]},
        "preparation": [],
        "output": {"dtype": "float32", "shape": ["batch", model.embedding_size], "normalized": normalize},
        "prompts": extra.get("prompts") or {},
    }
    return OfTokens(model, normalize), batches, about


@contextmanager
def _exporting(what: str) -> Iterator[None]:
    """Context without torch's internal warnings and log messages, in which all that is raised becomes a ValueError."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # torch and onnx raise many types, and the model may raise any
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{what}: {reason}") from error
    finally:
        logger.setLevel(level)


def exported(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """The program of a model, for batches of any size.

    Args:
        model: in eval mode.
        example: [row, ...] of at least two rows; the other sizes become fixed.

    Raises:
        ValueError: torch.export cannot export the model.
    """
    with _exporting("torch.export cannot export this model"):
        return torch.export.export(model, (example.clone(),), dynamic_shapes=({0: torch.export.Dim("batch")},))


def _program(
    model: nn.Module, example: tuple[Tensor, ...], about: Mapping[str, Any]
) -> tuple[bytes, Callable[..., Tensor]]:
    """The file of a program of torch, and what it computes when it is read again."""
    program, memory = exported(model, *example), BytesIO()  # not the file: on a full disk, torch would end the process
    with _exporting("torch.export cannot write this model"):
        torch.export.save(program, memory, extra_files={ABOUT: json.dumps(about, indent=1)})
        memory.seek(0)
        return memory.getvalue(), torch.export.load(memory).module()


def _onnx(
    model: nn.Module, example: tuple[Tensor, ...], about: Mapping[str, Any]
) -> tuple[bytes, Callable[..., Tensor]]:
    """The file of ONNX, and what onnxruntime computes with it."""
    try:
        onnx, onnxruntime, _ = map(import_module, ("onnx", "onnxruntime", "onnxscript"))  # torch needs the last one
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    names = about["input"].get("names", [about["input"]["name"]])
    axes = {0: torch.export.Dim("batch"), **({1: torch.export.Dim("tokens")} if names[1:] else {})}
    with _exporting("this model cannot be written as ONNX"):
        program: Any = torch.onnx.export(
            model,
            tuple(each.clone() for each in example),
            input_names=names,
            output_names=["embeddings"],
            dynamic_shapes=(axes,) * len(names),
            dynamo=True,
            verbose=False,
        )
        written = program.model_proto  # made anew by each access
        onnx.helper.set_model_props(written, {ABOUT: json.dumps(about)})
        content = written.SerializeToString()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def again(*given: Tensor) -> Tensor:
        by_name = {name: part.contiguous().numpy() for name, part in zip(names, given, strict=True)}
        return torch.as_tensor(session.run(None, by_name)[0])

    return content, again


def preparation(embedder: Embedder) -> list[dict[str, Any]]:
    """Steps from an image file to the input, in order, as plain values.

    Raises:
        ValueError: the transform is your own, and this function cannot describe it.
    """
    shorter, transform, filtered = embedder.reading.get("shorter_side"), embedder.transform, "bilinear, antialiased"
    mode = "L" if embedder.model.in_channels == 1 else "RGB"
    steps: list[dict[str, Any]] = [{"step": "decode", "mode": mode, "transparent": "white"}]
    if shorter is not None:
        steps.append({"step": "shrink", "shorter_side": shorter, "filter": filtered, "to": "uint8"})
    if type(transform) is InkEval:  # not a subclass, which may do anything
        size = {"height": transform.size, "width": transform.size}
        steps.append({"step": "divide", "by": 255, "note": "ink is bright on a dark ground"})
        return [*steps, {"step": "resize", **size, "filter": filtered}]
    if type(transform) is PhotoEval:
        resize = transform.resize
        sides = {"shorter_side": resize} if isinstance(resize, int) else {"height": resize[0], "width": resize[1]}
        steps.append({"step": "resize", **sides, "filter": filtered, "to": "uint8"})
        steps += [{"step": "centre_crop", "size": transform.size}, {"step": "divide", "by": 255}]
        return [*steps, {"step": "normalize", "mean": list(transform.mean), "std": list(transform.std)}]
    raise ValueError(f"{type(transform).__name__} is your own transform: describe it yourself, see export.exported")


def real_inputs(embedder: Embedder, images: str | Path | None, trust: Sequence[str]) -> Tensor:
    """[image, channel, height, width] of images for the comparison, evenly spaced over the data; or vectors."""
    takes = embedder.model.inputs.takes
    if images is not None and takes != "images":
        raise ValueError(f"--images is for a model of images; {embedder.weights} takes {takes}")
    read: Callable[[int], Tensor]
    if images is not None:
        paths, _ = find_images(images, check=False)
        count, read = len(paths), lambda row: embedder.inputs([paths[row]])[0]
    else:
        try:
            load = dict(load_weights(embedder.weights)[1]["data"].get("load") or {})
            cheap = {"check": False, "cache": "none"} if "cache" in load else {}  # only a few images are needed
            table = make({**load, **cheap}, slot="data", trust=trust, where=f"{embedder.weights}: data.load")
        except (OSError, TypeError, ValueError) as error:
            instead = ". Give images for the comparison with --images DIR" if takes == "images" else ""
            raise FileNotFoundError(f"the {takes} of this run cannot be read ({error}){instead}") from None
        given: Any = table.dataset()
        count, read = len(table), lambda row: embedder.transform([given[row][0]], torch.tensor([row]), epoch=0)[0]
    found = []
    for row in sorted({round(place) for place in torch.linspace(0, count - 1, min(CHECKED, count)).tolist()}):
        with suppress(OSError):  # an unreadable file, which a training leaves out, too
            found.append(read(row))
    if not found:
        raise FileNotFoundError(f"no image that can be read for the comparison with the exported model: {images}")
    return torch.stack(found)


def difference(
    model: nn.Module, again: Callable[..., Tensor], batches: Sequence[tuple[Any, ...]], tolerance: float = TOLERANCE
) -> float:
    """The largest difference of an entry of an embedding between a model and what was exported.

    Args:
        model: the original.
        again: what was exported, of the same arguments.
        batches: the arguments.
        tolerance: largest accepted difference, times the largest entry of an embedding if that is above 1.

    Raises:
        ValueError: the difference is larger, or not a number.
    """
    with torch.no_grad():
        pairs = [(model(*batch).float(), again(*batch).float()) for batch in batches]
    worst = float(torch.stack([(found - wanted).abs().max() for wanted, found in pairs]).max())  # max() loses a NaN
    allowed = tolerance * max(1.0, *(float(wanted.abs().max()) for wanted, _ in pairs))
    if not worst <= allowed:
        raise ValueError(
            f"what was exported differs from the model by {worst:.3g}, more than {allowed:.3g}: nothing was written"
        )
    return worst


def export_texts(source: str | Path, out: str | Path, *, normalize: bool = True) -> float:
    """Write a model of texts as a folder for `SentenceTransformer(out)`, after a comparison with the original.

    Args:
        source: folder of a finished run with a model of texts, or its model.pt. Where the folder of a model of n-grams
            is loaded, rankgrad must be installed, and trust_remote_code must be True.
        out: folder to write; it must not exist yet.
        normalize: embeddings of length 1, as `rankgrad embed`; always for a run of task=search. Of two encoders,
            `encode_query` takes that of the queries, and `encode_document`, as `encode`, that of the documents.
            `system.json` has the system that the run hands over: the constants of BM25 and the weights of a fusion.

    Returns:
        The largest difference of an entry of an embedding.

    Raises:
        FileExistsError: the folder exists.
        ValueError: the model is of another kind, or the folder does not give its embeddings.
    """
    source, out = Path(source), Path(out)
    if out.suffix.lower() in FILES:
        raise ValueError(f"{shown(out)} is the name of a file; a model of texts is a folder (or a file .onnx)")
    if out.exists() or not out.parent.is_dir():
        raise FileExistsError(f"{shown(out)} cannot be written: give a folder that does not exist yet")
    weights = weights_of(source)
    model, extra = load_weights(weights)
    if not isinstance(model.backbone, (SentenceEncoder, NGrams)):
        raise ValueError(f"{shown(source)} has a model of {model.inputs.takes}; only one of texts becomes a folder")
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
    with temporary_folder(out) as temporary:
        place = temporary / "model"
        made.save(str(place), create_model_card=False)
        card = _card(weights.parent, normalize=normalize, ngrams=ours, two=len(sides) > 1)
        (place / "README.md").write_text(card, encoding="utf-8")
        if extra.get("task") == "search" and (run := Run(weights.parent)).finished:
            (place / "system.json").write_text(json.dumps(described(run), indent=1), encoding="utf-8")
        again = SentenceTransformer(str(place), device="cpu", trust_remote_code=ours)
        asked = partial(again.encode, prompt="", convert_to_tensor=True, show_progress_bar=False)
        worst = 0.0
        for side, encoder in sides.items():
            wanted = (Normalized(encoder) if normalize else encoder).eval()
            worst = max(worst, difference(wanted, partial(asked, task=side or None), [(SAMPLE,)], OF_TEXTS))
        shutil.move(place, out)
    return worst


def _modules(model: EmbeddingModel) -> list[nn.Module]:
    """A model of texts as modules of sentence-transformers."""
    backbone: Any = model.backbone
    if not isinstance(backbone, NGrams):
        return [*backbone.model.children(), *_head(model.head)]
    from ..models.ngrams_module import NGramsModule

    made = NGramsModule(backbone.dim, backbone.buckets, backbone.words, backbone.characters)
    made.ngrams.load_state_dict(backbone.state_dict())
    return [made, *_head(model.head)]


def _head(head: EmbeddingHead) -> list[nn.Module]:
    """The head as modules of sentence-transformers."""
    from sentence_transformers.sentence_transformer.modules import LayerNorm

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


def _card(folder: Path, **about: bool) -> str:
    """The model card: loss, data and numbers of the run, as far as it has them."""
    run, settings = Run(folder), {}
    if run.config.exists():
        read: Any = plain(parsed(run.config))
        if isinstance(read["data"].get("root"), str):  # a card is published; the folders of this machine are not
            read["data"]["root"] = Path(read["data"]["root"]).name
        settings = {what: json.dumps(read[what], indent=1, default=str) for what in ("loss", "data")}
    values = read_json(run.after, "values")["values"] if run.after.exists() else {}
    text = resources.files(__package__).joinpath("card.md").read_text("utf-8")
    card = Template(text, trim_blocks=True, keep_trailing_newline=True)
    return str(card.render(about, settings=settings, values=values))


__all__ = ["ABOUT", "export", "export_texts", "exported", "preparation"]
