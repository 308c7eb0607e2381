"""Models of sentence-transformers: read from a folder or the hub, and rebuilt from a file that holds no code.

Besides its weights, such a model has settings of its modules and a tokenizer. `config` keeps these files as text, so
that `load_weights` rebuilds the model from one file. Nothing is downloaded.

A file of such a model can name any class or function for sentence-transformers to import, and can tell it to trust
code. So all files are checked before that package reads them: only the modules of a short list are built. LoRA adapters
of the package peft are merged into the weights.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch import Tensor, nn

from rankgrad.common.checks import integer
from rankgrad.common.extras import missing

from ..files import inside
from .embedding_model import EmbeddingModel, described, moved, place_of
from .foreign_settings import LISTS, NEVER, OWN_CODE, check_files
from .heads import EmbeddingHead, Head
from .inputs import TextInput
from .state_dicts import misfits, no_larger_than, not_finite, one_line, sample, why_unread

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
        return cast(Tensor, model(moved(model.preprocess(texts), *place_of(model)))["sentence_embedding"])


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
        lora: folder of a LoRA adapter of peft, which is added to the weights, see `merge_lora`; None: none.
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
            if encoder.transformers_model is None:
                raise ValueError(f"{name} has no network of transformers, which a LoRA adapter changes; leave lora out")
            merge_lora(encoder.transformers_model, Path(lora))
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


ADAPTER, SETTINGS = "adapter_model.safetensors", "adapter_config.json"


def merge_lora(network: nn.Module, folder: Path) -> nn.Module:
    """A network with an adapter in its weights, as large and as fast as before; it can be trained further.

    Args:
        network: the network that the adapter was trained on. It is changed, also if the adapter is refused.
        folder: with adapter_config.json and adapter_model.safetensors.

    Raises:
        ModuleNotFoundError: peft is not installed.
        OSError: a file is missing.
        ValueError: the adapter has settings that are not passed on, is damaged, or does not fit the network.
    """
    from safetensors.torch import load_file

    try:
        from peft import LoraConfig, PeftModel
        from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    settings = _settings(folder)
    if not (folder / ADAPTER).is_file():
        raise FileNotFoundError(f"no {ADAPTER} in {folder}; pickled weights of an adapter are not read")
    try:
        tensors = load_file(folder / ADAPTER)
        with no_larger_than(tensors), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on names that transformers has replaced, and on the beginning of matrices
            changed = PeftModel(network, LoraConfig(**settings))
            if wrong := misfits(get_peft_model_state_dict(changed), tensors):
                raise ValueError("; ".join(wrong))
            set_peft_model_state_dict(changed, tensors)
            merged: nn.Module = changed.merge_and_unload(safe_merge=True)
    except Exception as error:  # safetensors, peft and torch each raise their own
        raise ValueError(
            f"the adapter {folder} does not fit the network, or is damaged: is it of another model? ({one_line(error)})"
        ) from None
    if bad := not_finite(merged.state_dict()):
        raise ValueError(f"the adapter {folder} makes weights that are not finite: {sample(bad)}")
    return merged.requires_grad_(True)  # peft had frozen it


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of an adapter that are passed on to peft."""
    try:
        settings = dict(json.loads((folder / SETTINGS).read_text("utf-8")))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{folder / SETTINGS} is not that of a LoRA adapter, or it is damaged ({one_line(error)})"
        ) from None
    passed, beside, beginnings = (LISTS[f"lora_{name}"] for name in ("passed", "beside", "beginnings"))
    other = [name for name, value in settings.items() if value and name not in (*passed, *beside)]
    other += ["peft_type"] * (settings.get("peft_type") != "LORA")
    other += ["init_lora_weights"] * (settings.get("init_lora_weights") not in beginnings)
    if other:
        raise ValueError(
            f"the adapter {folder} has {other[0]}={settings.get(other[0])!r}, which is not supported: merge it with "
            "peft, and save the model"
        )
    return {name: value for name, value in settings.items() if name in passed}
