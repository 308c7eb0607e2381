"""Models of sentence-transformers: read from a folder or the hub, and rebuilt from a file that holds no code.

Besides its weights, such a model has settings of its modules and a tokenizer. `config` keeps these files as text, so
that `load_weights` rebuilds the model from one file. Nothing is downloaded, and only modules of sentence-transformers
itself are built.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping
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

OURS = "sentence_transformers."  # only classes of this package are allowed as modules
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
        ValueError: the model has modules that are not in sentence-transformers (they would run their own code), is
            damaged, or has pickled weights.
        OSError: the model does not exist.
    """
    if files is None:
        encoder = _read(name, name)
        files = _described(encoder)
        _check_modules(files)
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

    _check_modules(files)
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


def _check_modules(files: Mapping[str, Any]) -> None:
    """Raise unless all modules are classes of sentence-transformers, in folders of the model.

    Raises:
        ValueError: naming the class or the folder.
    """
    try:
        modules = json.loads(files["modules.json"])
        kinds = [(module["type"], module["path"]) for module in modules]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"this is not a model of sentence-transformers: its modules.json is missing or damaged ({error})"
        ) from None
    for kind, path in kinds:
        if not str(kind).startswith(OURS):
            raise ValueError(
                f"this model has its own module {kind!r}, and rankgrad never runs code of a model: {OWN_CODE}"
            )
        if path:
            inside(Path("the model"), str(path))
