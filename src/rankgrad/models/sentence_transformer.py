"""Models of sentence-transformers: read from a folder or the hub, and rebuilt from a file that holds no code.

Besides its weights, such a model has settings of its modules and a tokenizer. `config` keeps these files as text, so
that `load_weights` rebuilds the model from one file. Nothing is downloaded.

A file of such a model can name any class or function for sentence-transformers to import, and can tell it to trust
code. So all files are checked before that package reads them: only the modules of a short list are built.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..extras import missing
from ..files import inside
from .embedding_model import EmbeddingModel
from .heads import EmbeddingHead, Head
from .inputs import TextInput
from .state_dicts import one_line, why_unread

# modules that build nothing else by a name in their files: a Router, a SentenceTransformer and WordEmbeddings do
KNOWN = ("Dense", "Dropout", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding", "Transformer")
MODULE = re.compile(rf"sentence_transformers\.(\w+\.)*(models|modules)\.(\w+\.)?({'|'.join(KNOWN)})")
VOCABULARIES = ("tokenizer.json", "vocab.json")  # long, and no settings
ACTIVATION = re.compile(r"torch\.nn\.(modules\.(activation|linear)\.)?\w+")
WEIGHTS = ".safetensors"
OWN_CODE = "train it with sentence-transformers and rankgrad.adapters.sentence_transformers"
LEFT_OUT = (".md", ".bin", ".onnx", ".py")


class SentenceEncoder(nn.Module):
    """Texts -> [row, feature] embeddings of a model of sentence-transformers, with tokenization.

    Args:
        model: a SentenceTransformer.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, texts: list[str]) -> Tensor:
        """Embed texts."""
        model: Any = self.model
        tokens = model.preprocess(texts) if hasattr(model, "preprocess") else model.tokenize(texts)
        device = next(model.parameters()).device
        features = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in tokens.items()}
        return cast(Tensor, model(features)["sentence_embedding"])


def sentence_transformer_model(
    name: str,
    embedding_size: int | None = None,
    *,
    head: Head = "none",
    files: Mapping[str, Any] | None = None,
) -> EmbeddingModel:
    """A model of sentence-transformers with a head.

    Args:
        name: a folder, or a name on the hub. A model of the hub is downloaded if it is not on this machine yet.
        embedding_size: dim of the embeddings; None keeps the model's own.
        head: see `EmbeddingHead`; "none" gives the model's embeddings.
        files: all files of the model except the weights, as a file of `save_weights` holds them. Then `name` is
            ignored, and the weights are zeros.

    Raises:
        ModuleNotFoundError: sentence-transformers is not installed.
        ValueError: the model has modules or activation functions that are not on the list of those that can be built
            safely, is damaged, or has pickled weights.
        OSError: the model does not exist.
    """
    if files is None:
        _check(_settings(name), name)
        encoder = _read(name, name)
        files = _described(encoder)
    else:
        encoder = _rebuilt(files)
    with torch.no_grad():
        width = SentenceEncoder(encoder.eval())(["a"]).shape[1]
    return EmbeddingModel(
        SentenceEncoder(encoder),
        nn.Identity(),
        EmbeddingHead(width, embedding_size, head),
        TextInput(),
        config={
            "kind": "sentence_transformer",
            "name": name,
            "embedding_size": embedding_size,
            "head": head,
            "files": dict(files),
        },
    )


def _read(path: str, name: str, **options: Any) -> Any:
    """A model of sentence-transformers. No code from its files is run.

    Args:
        path: a folder, or a name on the hub.
        name: its name in messages.
        options: further options of SentenceTransformer.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    try:
        return SentenceTransformer(path, device="cpu", trust_remote_code=False, **options)
    except OSError:  # the model does not exist, or the hub cannot be reached
        raise
    except Exception as error:  # torch, json, safetensors, tokenizers and transformers each raise their own
        if "trust_remote_code" in str(error):  # their message suggests this option, which users cannot set here
            raise ValueError(f"{name} contains its own code, which rankgrad never runs: {OWN_CODE}") from None
        if isinstance(error, UnpicklingError):
            raise ValueError(f"{name} {why_unread(error)}. Take its weights as safetensors") from None
        raise ValueError(
            f"{name} is not a model of sentence-transformers, or it is damaged ({one_line(error)}). Download or copy "
            "it again"
        ) from None


def _settings(name: str) -> dict[str, str]:
    """Path -> text of each json file of a model, in its folder or on the hub."""
    root = Path(name)
    if not root.is_dir():
        try:
            from huggingface_hub import snapshot_download

            root = Path(snapshot_download(name, allow_patterns="*.json"))
        except (ModuleNotFoundError, OSError, ValueError):  # `_read` says what is missing
            return {}
    paths = (path for path in sorted(root.rglob("*.json")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text("utf-8", errors="replace") for path in paths}


def _described(encoder: Any) -> dict[str, Any]:
    """Path -> text of each file of a model. For a file of weights: dtypes and shapes of its tensors."""
    from safetensors import safe_open

    description: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        encoder.save(temporary, create_model_card=False)
        root = Path(temporary)
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name = path.relative_to(root).as_posix()
            if path.suffix == WEIGHTS:
                with safe_open(path, framework="pt") as tensors:
                    parts = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118
                    shapes = {key: [part.get_dtype(), *part.get_shape()] for key, part in parts.items()}
                    description[name] = {"metadata": dict(tensors.metadata() or {}), "tensors": shapes}
            elif path.suffix not in LEFT_OUT:
                raw = path.read_bytes()
                try:
                    description[name] = raw.decode("utf-8")
                except UnicodeDecodeError:
                    description[name] = {"base64": base64.b64encode(raw).decode()}
    return description


KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64, "I64": torch.int64}


def _rebuilt(files: Mapping[str, Any]) -> Any:
    """The model with these files; its weights are zeros.

    Raises:
        ValueError: the files are not those of a model.
    """
    from safetensors.torch import save_file

    if "modules.json" not in files:
        raise ValueError("this is not a model of sentence-transformers: its modules.json is missing")
    _check(files, "this model")
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in files.items():
            path = inside(Path(temporary), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            elif "base64" in content:
                path.write_bytes(base64.b64decode(content["base64"]))
            else:
                zeros = {
                    key: torch.zeros(shape, dtype=KINDS[kind]) for key, (kind, *shape) in content["tensors"].items()
                }
                save_file(zeros, path, content["metadata"])
        return _read(temporary, "this model", local_files_only=True)


def _check(files: Mapping[str, Any], name: str) -> None:
    """Raise unless the files of a model make sentence-transformers import only what is on our lists.

    Args:
        files: path -> text; other entries are weights.
        name: name of the model in messages.

    Raises:
        ValueError: naming the class, the folder or the file.
    """
    never = f"and rankgrad never runs code of a model: {OWN_CODE}"
    for path, text in files.items():
        if path.endswith(".py"):
            raise ValueError(f"{name} contains its own code, {path}, {never}")
        if not (path.endswith(".json") and isinstance(text, str)) or path.endswith(VOCABULARIES):
            continue
        try:
            content = json.loads(text)
            if path == "modules.json":
                modules = [(module["type"], module["path"]) for module in content]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{name} is damaged: {path} ({one_line(error)}). Download or copy it again") from None
        if path == "modules.json":
            for kind, folder in modules:
                if not MODULE.fullmatch(str(kind)):
                    raise ValueError(f"{name} has the module {kind!r}, which is none of {', '.join(KNOWN)}, {never}")
                if folder:
                    inside(Path("the model"), str(folder))
        for key, value in _entries(content):
            if key == "trust_remote_code" and value:
                raise ValueError(f"{name} asks for trust in its own code ({path}), {never}")
            if key == "activation_function" and isinstance(value, str) and "." in value:
                if not ACTIVATION.fullmatch(value):
                    raise ValueError(
                        f"{name} has the activation function {value!r}, which is none of torch.nn, {never}"
                    )


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a json content with its value, at any depth."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
