"""Checks the settings in a folder of a model before another library reads them: they could make it run code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .state_dicts import one_line

# Modules of sentence-transformers that build nothing else by a name in their files, before and after version 5.4.
KNOWN = (
    *("CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding", "Transformer"),
    *("WeightedLayerPooling", "WordEmbeddings", "WordWeights"),
)
_PLACE = r"sentence_transformers\.(models|base\.modules|sentence_transformer\.modules)\."
ACTIVATION = r"torch\.nn\.(modules\.(activation|linear)\.)?[A-Z]\w+|\w+"
ANY = r"(?s).*"  # what is only kept, or is a place on the author's machine that nobody reads
#: Settings that may name a class, a function or a place -> the names that they may have. No other setting may.
ALLOWED = {
    "type": rf"{_PLACE}(\w+\.)?({'|'.join(KNOWN)})|\w+",  # a word alone is imported by nobody
    "path": r"|\w[\w/-]*",
    **dict.fromkeys(("activation_function", "activation_fn", "sbert_ce_default_activation_function"), ACTIVATION),
    "tokenizer_class": rf"{_PLACE}tokenizer\.(\w+\.)?WhitespaceTokenizer|\w+",
    "method": r"forward|get_\w+_features",
    **dict.fromkeys(("attn_implementation", "experts_implementation"), "eager|sdpa"),
    **dict.fromkeys(("dtype", "torch_dtype"), r"(torch\.)?\w+"),
    **dict.fromkeys(
        ("content", "name_or_path", "special_tokens_map_file", "tokenizer_file", "transformers_version"), ANY
    ),
}
# Sections of texts, which nobody imports; auto_map names code that is imported only for those who trust it.
TEXTS = (
    *("prompts", "version", "auto_map", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"),
    *("chat_template", "id2label", "label2id", "vocab", "stop_words", "word_weights", "never_split"),
)
# Sections that are passed on to transformers, and what they may hold: weights_only=false, for one, unpickles weights.
PASSED_ON = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
HARMLESS = (
    *("add_bos_token", "add_eos_token", "add_pooling_layer", "add_prefix_space", "attn_implementation"),
    *("clean_up_tokenization_spaces", "do_lower_case", "dtype", "is_causal", "is_decoder", "low_cpu_mem_usage"),
    *("max_length", "max_position_embeddings", "model_max_length", "output_hidden_states", "padding_side"),
    *("torch_dtype", "trust_remote_code", "truncation_side", "unpad_inputs", "use_cache", "use_fast"),
    *("use_memory_efficient_attention", "use_safetensors"),
)
FALSE = ("trust_remote_code", "quantization_config")  # packages, or code, of its own choice
VOCABULARIES = ("tokenizer.json", "vocab.json")  # long, and no settings
NAME = re.compile(r"(?=.*[A-Za-z_])[\w~@-]*[./\\:][\w./\\:~@-]*")  # a.b, a/b, c:d: this may be imported or opened
OWN_CODE = "train it with sentence-transformers and rankgrad.adapters.sentence_transformers"
NEVER = f"and rankgrad never runs code of a model: {OWN_CODE}"


def check_files(root: Path, name: str) -> None:
    """Raise unless the settings of a model name only classes, functions and places that are on our lists.

    Args:
        root: folder of the model.
        name: name of the model in messages.

    Raises:
        ValueError: naming the setting, the folder or the file.
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
        except (RecursionError, ValueError) as error:  # also a text that is not UTF-8
            raise ValueError(f"{name} is damaged: {file} ({one_line(error)}). Download or copy it again") from None
        for key, value in _entries(content):
            if not _harmless(key, value):
                raise ValueError(f"{name} has the setting {key}={value!r} ({file}), which may name code, {NEVER}")


def _harmless(key: str, value: Any) -> bool:
    """Whether a setting can make no library import or read what it names."""
    if key in FALSE or key in PASSED_ON:
        return not value or (key in PASSED_ON and isinstance(value, dict) and {*value} <= {*HARMLESS})
    if not isinstance(value, str):
        return True
    allowed = ANY if key.endswith("_token") else ALLOWED.get(key.strip("_"))
    return not NAME.fullmatch(value) if allowed is None else bool(re.fullmatch(allowed, value))


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a json content with its value, at any depth; the values of a list come with the key of the list."""
    waiting = [("", content)]
    while waiting:
        key, part = waiting.pop()
        yield key, part
        if isinstance(part, dict):
            inside = [*part.items()]
        else:
            inside = [(key, each) for each in part] if isinstance(part, list) else []
        waiting += [each for each in inside if each[0].strip("_") not in TEXTS]


__all__ = ["check_files"]
