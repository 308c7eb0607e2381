"""Models of sentence-transformers: read from a folder or the hub, and rebuilt from a file that holds no code.

Besides its weights, such a model has settings of its modules and a tokenizer. `config` keeps these files as text, so
that `load_weights` rebuilds the model from one file. Nothing is downloaded.

A file of such a model can name any class or function for sentence-transformers to import, and can tell it to trust
code. So all files are checked before that package reads them: only the modules of a short list are built.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch import Tensor, nn

from rankgrad.common.checks import integer
from rankgrad.common.extras import missing

from ..files import inside
from .embedding_model import EmbeddingModel, described
from .foreign_settings import NEVER, OWN_CODE, check_files
from .heads import EmbeddingHead, Head
from .inputs import TextInput
from .lora import merge_lora
from .state_dicts import one_line, why_unread

WEIGHTS = ".safetensors"
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


@described("sentence_transformer")
def sentence_transformer_model(
    name: str,
    embedding_size: int | None = None,
    *,
    head: Head | None = None,
    max_tokens: int | None = None,
    lora: str | Path | None = None,
    files: Mapping[str, Any] | None = None,
) -> EmbeddingModel:
    """A model of sentence-transformers with a head.

    Args:
        name: a folder, or a name on the hub. A model of the hub is downloaded if it is not on this machine yet.
        embedding_size: dim of the embeddings; None keeps the model's own.
        head: see `EmbeddingHead`; "none" gives the model's embeddings.
        max_tokens: texts are cut after this number of tokens; None keeps the model's limit.
        lora: folder of a LoRA adapter of peft, which is added to the weights, see `lora.merge_lora`; None: none.
        files: all files of the model except the weights, as a file of `save_weights` holds them. Then `name` and
            `lora` are ignored, and the weights are zeros.

    Raises:
        ModuleNotFoundError: sentence-transformers is not installed.
        ValueError: the model has modules or activation functions that are not on the list of those that can be built
            safely, is damaged, or has pickled weights; it cannot cut texts after max_tokens; or see `merge_lora`.
        OSError: the model does not exist.

    >>> import tempfile
    >>> from sentence_transformers import SentenceTransformer
    >>> from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    >>> from tokenizers import Tokenizer, models
    >>> words = Tokenizer(models.WordLevel({"red": 0, "green": 1}, unk_token="red"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=4)], device="cpu").save(folder)
    ...     model = sentence_transformer_model(folder, embedding_size=2, head="linear")
    >>> model(["red", "green", "red"]).shape
    torch.Size([3, 2])
    """
    if files is None:
        encoder = _found(name)
        if max_tokens is not None:
            _cut(encoder, integer(max_tokens, "max_tokens is a number of tokens", low=1), name)
        if lora is not None:
            merge_lora(_transformer(encoder, name), Path(lora))
        files = _files_of(encoder)
    else:
        encoder = _rebuilt(files)
    with torch.no_grad():
        width = SentenceEncoder(encoder.eval())(["a"]).shape[1]
    head_layers = EmbeddingHead(width, embedding_size, head)
    model = EmbeddingModel(SentenceEncoder(encoder), nn.Identity(), head_layers, TextInput())
    model.config = {"lora": None if lora is None else str(lora), "files": dict(files)}
    return model


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
        if isinstance(error, UnpicklingError):
            raise ValueError(f"{name} {why_unread(error)}. Take its weights as safetensors") from None
        why = f"contains its own code, which rankgrad never runs: {OWN_CODE}"
        if "trust_remote_code" not in str(error):  # their message suggests this option, which users cannot set here
            why = f"is not a model of sentence-transformers, or it is damaged ({one_line(error)}). "
            why += "Download or copy it again"
        raise ValueError(f"{name} {why}") from None


def _found(name: str) -> Any:
    """A model of a folder or of the hub, after a check of its settings.

    Raises:
        OSError: there is no such model.
        ValueError: see `check_files`.
    """
    if Path(name).is_dir():
        check_files(Path(name), name)
        return _read(name, name)
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"  # as in sentence-transformers
    cache = os.getenv("SENTENCE_TRANSFORMERS_HOME")
    try:
        root = Path(snapshot_download(full, allow_patterns="*.json", cache_dir=cache))
    except (OSError, ValueError) as error:
        raise OSError(f"{name} is no folder, and it cannot be read from the hub ({one_line(error)})") from None
    check_files(root, name)
    return _read(full, name, revision=root.name)  # the commit, so the files that are read were checked


def _transformer(encoder: Any, name: str) -> nn.Module:
    """The network of transformers in a model."""
    found: list[nn.Module] = [part.auto_model for part in encoder if hasattr(part, "auto_model")]
    if not found:
        raise ValueError(f"{name} has no network of transformers, so a LoRA adapter cannot change it; leave lora out")
    return found[0]


def _cut(encoder: Any, tokens: int, name: str) -> None:
    """Cut texts after a number of tokens. The files of the model keep the limit."""
    limit = math.inf if encoder.max_seq_length is None else encoder.max_seq_length
    if not tokens <= limit < math.inf:
        most = f"at most {limit:,} tokens" if limit < math.inf else "texts of any length"
        raise ValueError(f"max_tokens={tokens:,} cannot cut the texts of {name}, which reads {most}; leave it out")
    encoder.max_seq_length = tokens


def _files_of(encoder: Any) -> dict[str, str]:
    """Path -> content of each file of a model, as latin-1; of a file of weights its header, which has the shapes."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        encoder.save(temporary, create_model_card=False)
        for path in sorted(Path(temporary).rglob("*")):
            if path.is_file() and path.suffix not in LEFT_OUT:
                raw = path.read_bytes()
                if path.suffix == WEIGHTS:
                    raw = raw[: 8 + int.from_bytes(raw[:8], "little")]
                found[path.relative_to(temporary).as_posix()] = raw.decode("latin-1")
    return found


def size_of_weights(files: Mapping[str, str]) -> int:
    """How many bytes of weights the headers in the files of a model describe.

    >>> size_of_weights({"a.safetensors": '8 bytes.{"a": {"data_offsets": [0, 24]}}', "config.json": "{}"})
    24
    """
    headers = [json.loads(text[8:]) for name, text in files.items() if Path(name).suffix == WEIGHTS]
    return sum(
        max((int(part["data_offsets"][1]) for key, part in header.items() if key != "__metadata__"), default=0)
        for header in headers
    )


def _rebuilt(files: Mapping[str, str]) -> Any:
    """The model with these files; its weights are zeros.

    Raises:
        ValueError: the files are not those of a model.
    """
    if "modules.json" not in files:
        raise ValueError("this is not a model of sentence-transformers: its modules.json is missing")
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in files.items():
            path = inside(Path(temporary), str(name))
            if path.suffix.lower() == ".py":
                raise ValueError(f"this model contains its own code, {name}, {NEVER}")
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.write_bytes(content.encode("latin-1"))
                os.truncate(path, len(content) + size_of_weights({name: content}))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"this model is damaged: {name} ({one_line(error)})") from None
        check_files(Path(temporary), "this model")  # the files and not their names: a file can have several names
        return _read(temporary, "this model", local_files_only=True)


__all__ = ["SentenceEncoder", "sentence_transformer_model", "size_of_weights"]
