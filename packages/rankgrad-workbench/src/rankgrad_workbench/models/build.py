"""Models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from rankgrad.common.checks import unknown

from ..files.defaults import RATES
from .convnet import convnet
from .embedding_model import EmbeddingModel, described
from .heads import EmbeddingHead, Head
from .inputs import VectorInput
from .ngrams import ngram_model
from .sentence_transformer import sentence_transformer_model
from .timm import timm_model


@described("vectors")
def vector_model(width: int, embedding_size: int | None = None, *, head: Head = "linear") -> EmbeddingModel:
    """A head for vectors [row, width] of another model, for users who cannot train that model.

    The affine map of the head starts as the identity if it is square, else as a random orthogonal projection. So
    training starts from the given vectors or from a projection of them.

    Args:
        width: length of a vector.
        embedding_size: dim of the embeddings; None keeps the width.
        head: see `EmbeddingHead`; "none" gives the vectors unchanged.

    >>> import torch
    >>> vectors = torch.randn(2, 6)
    >>> torch.equal(vector_model(6)(vectors), vectors)
    True
    """
    made = EmbeddingHead(width, embedding_size, head)
    made.start_as_projection()
    return EmbeddingModel(nn.Identity(), nn.Identity(), made, VectorInput(width))


MODELS: dict[str, Callable[..., EmbeddingModel]] = {
    "convnet": convnet,
    "timm": timm_model,
    "ngrams": ngram_model,
    "sentence_transformer": sentence_transformer_model,
    "vectors": vector_model,
}
#: Name -> (kind of input; arguments that depend on the data, each with an example value).
TAKES: dict[str, tuple[str, dict[str, int]]] = {
    "convnet": ("images", {"in_channels": 3}),
    "timm": ("images", {"in_channels": 3}),
    "ngrams": ("texts", {}),
    "sentence_transformer": ("texts", {}),
    "vectors": ("vectors", {"width": 8}),
}


#: Kind of a model that was passed to `rankgrad.fit`.
GIVEN = "given"
#: Models that are read from a folder or a download when built; they are not built only to check settings.
READ = ("sentence_transformer",)


def kind_of(model: nn.Module) -> tuple[str, bool] | None:
    """Kind of model in `defaults.RATES` that a module is or contains, and whether it was loaded from weights.

    A module brings its default rate by its attribute `kind`; None: no part of it has one.

    >>> kind_of(nn.Sequential(convnet(widths=(8,)), nn.Linear(8, 2)))
    ('convnet', False)
    """
    for part in model.modules():
        if isinstance(part, EmbeddingModel) and part.config is not None:
            return str(part.config["kind"]), bool(part.origin)
        if isinstance(kind := getattr(part, "kind", None), str) and kind in RATES:
            return kind, False
    return None


def taking(takes: str) -> list[str]:
    """Names of the models that take `takes`: images, texts or vectors.

    >>> taking("texts")
    ['ngrams', 'sentence_transformer']
    """
    return [kind for kind, (taken, _) in TAKES.items() if taken == takes]


def build_model(kind: str, /, **options: Any) -> EmbeddingModel:
    """The model `MODELS[kind](**options)`. The error for a misspelt option suggests the right one.

    Args:
        kind: a key of `MODELS`.
        options: keyword arguments of that function.

    Raises:
        ValueError: the kind or an option is unknown, or the function refuses a value.

    >>> build_model("convnet", widths=(8, 8), embedding_size=3).embedding_size
    3
    >>> build_model("convnet", width=(8, 8))
    Traceback (most recent call last):
    ValueError: unknown option of model 'convnet' 'width'; did you mean 'widths'? Known: embedding_size, ...
    """
    check_options(kind, options)
    return MODELS[kind](**options)


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise unless a model accepts these options.

    Raises:
        ValueError: the kind or an option is unknown, or an option is missing.
    """
    if kind == GIVEN:
        raise ValueError("a model that was passed to rankgrad.fit can only be built by your own code")
    if kind not in MODELS:
        raise ValueError(unknown("model", kind, MODELS))
    known = inspect.signature(MODELS[kind]).parameters
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of model {kind!r}", option, known))
    missing = [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in options]
    if missing:
        raise ValueError(f"model {kind!r} needs {', '.join(missing)}")
