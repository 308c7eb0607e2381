"""Models of sentence-transformers: read from a folder or the hub, and rebuilt from a file that holds no code.

Besides its weights, such a model has settings of its modules and a tokenizer. `config` keeps these files as text, so
that `load_weights` rebuilds the model from one file. Nothing is downloaded.

A file of such a model can name any class or function for sentence-transformers to import, and can tell it to trust
code. So all files are checked before that package reads them: only the modules of a short list are built.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..common.checks import integer
from ..common.extras import missing
from ..common.files import inside
from .embedding_model import EmbeddingModel
from .heads import EmbeddingHead, Head
from .inputs import TextInput
from .lora import merge_lora
from .state_dicts import one_line, why_unread

# Modules that build nothing else by a name in their files. A Router and a SentenceTransformer build what they name.
KNOWN = (
    *("CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding", "Transformer"),
    *("WeightedLayerPooling", "WordEmbeddings", "WordWeights"),
)
# Where versions before 5.4 kept their modules, and where later ones keep them.
_PLACE = r"sentence_transformers\.(models|base\.modules|sentence_transformer\.modules)\."
MODULE = re.compile(rf"{_PLACE}(\w+\.)?({'|'.join(KNOWN)})")
SPLITTER = re.compile(rf"{_PLACE}tokenizer\.(\w+\.)?WhitespaceTokenizer")
ACTIVATION = re.compile(r"torch\.nn\.(modules\.(activation|linear)\.)?(\w+)")
# Sections whose entries are passed on to transformers, and the safe entries. Other entries are not safe: for example,
# weights_only=false unpickles the weights, and kernels are code from the hub.
SECTIONS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
HARMLESS = (
    *("add_bos_token", "add_eos_token", "add_pooling_layer", "add_prefix_space", "attn_implementation"),
    *("clean_up_tokenization_spaces", "do_lower_case", "dtype", "is_causal", "is_decoder", "low_cpu_mem_usage"),
    *("max_length", "max_position_embeddings", "model_max_length", "output_hidden_states", "padding_side"),
    *("torch_dtype", "truncation_side", "unpad_inputs", "use_cache", "use_fast", "use_memory_efficient_attention"),
    *("use_safetensors",),
)
IMPLEMENTATIONS = (None, "eager", "sdpa")  # of attention; others may be code from the hub
VOCABULARIES = ("tokenizer.json", "vocab.json")  # long, and no settings
WEIGHTS = ".safetensors"
OWN_CODE = "train it with sentence-transformers and rankgrad.adapters.sentence_transformers"
NEVER = f"and rankgrad never runs code of a model: {OWN_CODE}"
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
            "max_tokens": max_tokens,
            "lora": None if lora is None else str(lora),
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


def _found(name: str) -> Any:
    """A model of a folder or of the hub, after a check of its settings.

    Raises:
        OSError: there is no such model.
        ValueError: see `check_files`.
    """
    if Path(name).is_dir():
        check_files(Path(name), name)
        return _read(name, name)
    if Path(name).is_file():
        raise NotADirectoryError(f"{name} is a file; a model is a folder, or a name on the hub")
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ModuleNotFoundError(missing("sentence_transformers"), name="sentence_transformers") from None
    # as in sentence-transformers, a name without an owner is a model of its own or a very old model
    names = [name] if "/" in name else [f"sentence-transformers/{name}", name]
    why = ""
    for full in names:
        try:
            root = Path(
                snapshot_download(full, allow_patterns="*.json", cache_dir=os.getenv("SENTENCE_TRANSFORMERS_HOME"))
            )
        except (OSError, ValueError) as error:
            why = why or one_line(error)
            continue
        check_files(root, name)
        return _read(full, name, revision=root.name)  # the commit, so the files that are read were checked
    raise OSError(f"{name} is no folder, and it cannot be read from the hub ({why})")


def _transformer(encoder: Any, name: str) -> nn.Module:
    """The network of transformers in a model."""
    found: list[nn.Module] = [part.auto_model for part in encoder if hasattr(part, "auto_model")]
    if not found:
        raise ValueError(f"{name} has no network of transformers, so a LoRA adapter cannot change it; leave lora out")
    return found[0]


def _cut(encoder: Any, tokens: int, name: str) -> None:
    """Cut texts after a number of tokens. The files of the model keep the limit."""
    limit = encoder.max_seq_length
    if limit is None or not math.isfinite(limit):
        raise ValueError(f"{name} embeds texts of any length, so max_tokens cannot cut them; leave it out")
    if tokens > limit:
        raise ValueError(f"max_tokens is {tokens:,}, but {name} reads at most {int(limit):,} tokens")
    encoder.max_seq_length = tokens


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
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in files.items():
            path = inside(Path(temporary), str(name))
            if path.suffix.lower() == ".py":
                raise ValueError(f"this model contains its own code, {name}, {NEVER}")
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                if isinstance(content, str):
                    path.write_text(content, encoding="utf-8")
                elif "base64" in content:
                    path.write_bytes(base64.b64decode(content["base64"]))
                else:
                    zeros = {
                        key: torch.zeros(shape, dtype=KINDS[kind]) for key, (kind, *shape) in content["tensors"].items()
                    }
                    save_file(zeros, path, content["metadata"])
            except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
                raise ValueError(f"this model is damaged: {name} ({one_line(error)})") from None
        check_files(Path(temporary), "this model")  # the files and not their names: a file can have several names
        return _read(temporary, "this model", local_files_only=True)


def check_files(root: Path, name: str) -> None:
    """Raise unless the files of a model make sentence-transformers import only what is on our lists.

    Args:
        root: folder of the model.
        name: name of the model in messages.

    Raises:
        ValueError: naming the class, the folder or the file.
    """
    for path in sorted(root.rglob("*")):
        file = path.relative_to(root).as_posix()
        if path.is_dir() and path.is_symlink():  # `rglob` does not look into it, but a module would
            raise ValueError(f"the folder {file} of {name} is a link. Replace it by a copy of its target")
        if path.suffix.lower() != ".json" or path.name in VOCABULARIES or not path.is_file():
            continue
        if path.name.lower() == "adapter_config.json":  # peft imports modules that it names
            raise ValueError(
                f"{name} is an adapter of another model ({file}). Give that model as model.name=, and the adapter as "
                "model.lora="
            )
        try:
            content = json.loads(path.read_text("utf-8"))
            if file.lower() == "modules.json":
                _check_modules(content, name)
        except (KeyError, TypeError, RecursionError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} is damaged: {file} ({one_line(error)}). Download or copy it again") from None
        for key, value in _entries(content):
            wrong = _wrong(key, value)
            if wrong:
                raise ValueError(f"{name} {wrong} ({file}), {NEVER}")


def _check_modules(modules: Any, name: str) -> None:
    for kind, folder in [(str(module["type"]), str(module["path"])) for module in modules]:
        if not MODULE.fullmatch(kind):
            raise ValueError(f"{name} has the module {kind!r}, which is none of {', '.join(KNOWN)}, {NEVER}")
        inside(Path("the model"), folder)


def _wrong(key: str, value: Any) -> str:
    """Why a setting of a model could run code or read other files; "" if it cannot."""
    if key == "trust_remote_code" and value:
        return "asks for trust in its own code"
    if key == "activation_function" and isinstance(value, str) and "." in value:
        match = ACTIVATION.fullmatch(value)
        kind = getattr(nn, match[3], None) if match else None
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            return f"has the activation function {value!r}, which is none of torch.nn"
    if key == "tokenizer_class" and isinstance(value, str) and "." in value and not SPLITTER.fullmatch(value):
        return f"has the tokenizer {value!r}, which is none of transformers"
    if key in SECTIONS and value:
        known = {*HARMLESS, "trust_remote_code"}  # false is harmless; true was refused above
        others = [each for each in value if each not in known] if isinstance(value, dict) else [value]
        if others:
            return f"has the setting {key}.{others[0]}, which could run code"
    if key.strip("_") in ("attn_implementation", "experts_implementation"):
        if any(each not in IMPLEMENTATIONS for each in (value.values() if isinstance(value, dict) else [value])):
            return f"has {key}={value!r}, which is neither eager nor sdpa and may be code of the hub"
    if key == "modality_config" and isinstance(value, dict):
        methods = [each.get("method") for each in value.values() if isinstance(each, dict)]
        others = [each for each in methods if not re.fullmatch(r"forward|get_\w+_features", str(each))]
        if others:
            return f"calls the method {others[0]!r} of its network"
    if key in ("quantization_config", "tokenizer_name_or_path") and value:  # packages, or a place, of its own choice
        return f"has the setting {key}"
    return ""


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a json content with its value, at any depth."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
