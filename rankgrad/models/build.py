"""Models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..checks import unknown
from .convnet import convnet
from .embedding_model import EmbeddingModel
from .ngrams import ngram_model
from .timm import timm_model
from .vectors import vector_model

MODELS: dict[str, Callable[..., EmbeddingModel]] = {
    "convnet": convnet,
    "timm": timm_model,
    "ngrams": ngram_model,
    "vectors": vector_model,
}
#: What each takes, and the arguments that the data decides, with a value to try.
TAKES: dict[str, tuple[str, dict[str, int]]] = {
    "convnet": ("images", {"in_channels": 3}),
    "timm": ("images", {"in_channels": 3}),
    "ngrams": ("texts", {}),
    "vectors": ("vectors", {"width": 8}),
}


def taking(takes: str) -> list[str]:
    """Models that take images, texts or vectors.

    >>> taking("texts")
    ['ngrams']
    """
    return [kind for kind, (taken, _) in TAKES.items() if taken == takes]


def build_model(kind: str, /, **options: Any) -> EmbeddingModel:
    """The model of `MODELS[kind]` with these options, misspelt ones refused with a suggestion.

    Args:
        kind: a key of `MODELS`.
        options: keyword arguments of that function.

    Raises:
        ValueError: unknown kind or option, or whatever the function itself refuses.

    >>> build_model("convnet", widths=(8, 8), embedding_size=3).embedding_size
    3
    >>> build_model("convnet", width=(8, 8))
    Traceback (most recent call last):
    ValueError: unknown option of model 'convnet' 'width'; did you mean 'widths'? Known: embedding_size, ...
    """
    if kind not in MODELS:
        raise ValueError(unknown("model", kind, MODELS))
    known = inspect.signature(MODELS[kind]).parameters
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of model {kind!r}", option, known))
    missing = [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in options]
    if missing:
        raise ValueError(f"model {kind!r} needs {', '.join(missing)}")
    return MODELS[kind](**options)
