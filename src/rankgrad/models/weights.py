"""Files of weights that hold no code: written, read, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from torch import Tensor, nn

from .build import GIVEN, build_model
from .embedding_model import EmbeddingModel
from .record import FORMAT, read_record
from .state_dicts import misfits, one_line, write_plain

Module = TypeVar("Module", bound=nn.Module)


def _check_plain(value: object, where: str) -> None:
    """Raise unless `value` consists of what `torch.load(weights_only=True)` reads back."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if type(value) in (list, tuple):
        for position, item in enumerate(cast(Sequence[object], value)):
            _check_plain(item, f"{where}[{position}]")
    elif type(value) is dict:
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys must be strings")
            _check_plain(item, f"{where}[{key!r}]")
    else:
        raise TypeError(
            f"{where} is a {type(value).__name__}; a weights file takes None, bool, int, float, str, list, tuple "
            f"and dict only (OmegaConf: OmegaConf.to_container(config, resolve=True))"
        )


def save_weights(path: str | os.PathLike[str], model: nn.Module, config: Mapping[str, Any] | None = None) -> Path:
    """Write a model's weights, the arguments that build it and your own `config` to one file, atomically.

    A reader sees the old file or the new one, never half of one, whenever the process dies: the file is written
    beside its place, flushed to disk and renamed. Plain tensors and plain Python values, so
    `torch.load(path, weights_only=True)` reads it without rankgrad.

    Args:
        path: file to write, replaced if it is there; its folder must exist.
        model: built by `convnet`, `timm_model` or `build_model` (it then knows its own `config`); or any other module,
            whose weights can then only be loaded into a module that you have built.
        config: anything to keep beside the weights (data set, image size, class names): plain values and containers.

    Returns:
        The path written.

    Raises:
        ValueError: the model does not know what it was built from.
        TypeError: `config` holds something that is not plain.
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    given = {"kind": GIVEN, "class": f"{type(model).__module__}.{type(model).__qualname__}"}
    built_from = model.config if isinstance(model, EmbeddingModel) else given
    if built_from is None:
        raise ValueError("the model has no config to build it from; build it with rankgrad.models.build_model")
    extra = {} if config is None else dict(config)
    _check_plain(extra, "config")
    _check_plain(built_from, "model.config")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    record = {
        "format": FORMAT,
        "model": built_from,
        "pixels": {
            "mean": list(model.pixel_mean) if isinstance(model, EmbeddingModel) else [],
            "std": list(model.pixel_std) if isinstance(model, EmbeddingModel) else [],
        },
        "config": extra,
        "state_dict": model.state_dict(),
    }
    write_plain(path, record)
    return path


@overload
def load_weights(path: str | os.PathLike[str], model: None = None) -> tuple[EmbeddingModel, dict[str, Any]]: ...


@overload
def load_weights(path: str | os.PathLike[str], model: Module) -> tuple[Module, dict[str, Any]]: ...


def load_weights(path: str | os.PathLike[str], model: nn.Module | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Build a model from a file of `save_weights`, on the CPU and in eval mode; or load it into a model you have.

    Args:
        path: the file.
        model: load into this model, whose mode and device stay; None builds the model the file describes.

    Returns:
        The model, and the `config` that was saved beside it.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file, or one of another model: the message says which layers differ; one of a module of
            your own, and no `model` to load it into.

    >>> import tempfile
    >>> from rankgrad.models import convnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save_weights(folder + "/weights.pt", convnet(widths=(8, 8)), {"data": "glyphs"})
    ...     model, config = load_weights(file)
    >>> model.config["widths"], config
    ([8, 8], {'data': 'glyphs'})
    """
    path = Path(path)
    record = read_record(path)
    state = record["state_dict"]
    built = model is None
    if model is None:
        if record["model"]["kind"] == GIVEN:
            name = record["model"].get("class", "a module")
            raise ValueError(
                f"{path} holds the weights of {name}, which only your own code can build: build it, and load them with "
                f"rankgrad.models.load_weights({str(path)!r}, model)"
            )
        options = dict(record["model"])
        try:
            model = build_model(options.pop("kind"), **options)
        except (ValueError, TypeError, RuntimeError, MemoryError) as error:
            raise ValueError(f"{path} describes a model that can't be built: {one_line(error)}") from error
        stated = f"{path} does not fit the model that it describes"
    else:
        stated = f"{path} holds another model"
    wrong = misfits(model.state_dict(), state)
    if wrong:
        size = _embedding_size(state, record["model"])
        if isinstance(model, EmbeddingModel) and size is not None and size != model.embedding_size:
            wrong.insert(0, f"checkpoint holds {size}-d embeddings but the model has {model.embedding_size}-d")
        raise ValueError(f"{stated}: {'; '.join(wrong)}")
    model.load_state_dict(state)
    if isinstance(model, EmbeddingModel):
        model.pixel_mean, model.pixel_std = tuple(record["pixels"]["mean"]), tuple(record["pixels"]["std"])
    return (model.eval() if built else model), record["config"]


def _embedding_size(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> int | None:
    """Dim of the embeddings in a file: the last weight of the head, or what the config says."""
    weights = [value for key, value in state.items() if key.startswith("head.") and value.ndim == 2]
    return len(weights[-1]) if weights else config.get("embedding_size")
