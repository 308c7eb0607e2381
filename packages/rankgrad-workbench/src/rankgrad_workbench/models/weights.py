"""Writes, reads and checks files of weights. These files hold no code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from torch import nn

from .build import GIVEN, build_model
from .embedding_model import EmbeddingModel
from .record import FORMAT, read_record
from .state_dicts import misfits, no_larger_than, one_line, write_plain

Module = TypeVar("Module", bound=nn.Module)


def save_weights(path: str | os.PathLike[str], model: nn.Module, config: Mapping[str, Any] | None = None) -> Path:
    """Write a model's weights, the arguments that build it and your own `config` to one file, atomically.

    If the process dies, the old file or the complete new one remains: the file is written under a temporary name,
    flushed to disk and renamed. It holds plain tensors and plain Python values, so
    `torch.load(path, weights_only=True)` reads it without rankgrad.

    Args:
        path: file to write; an existing file is replaced. Its folder must exist.
        model: a model of `convnet`, `timm_model` or `build_model`, which has its own `config`; or any other module. The
            weights of another module can only be loaded into a module that you build.
        config: further information for the file (data set, image size, class names): plain values and containers.

    Returns:
        The path written.

    Raises:
        ValueError: the model has no `config`.
        TypeError: `config` holds a value that is not plain.
        FileNotFoundError: the folder does not exist.

    >>> import tempfile
    >>> from rankgrad_workbench.models import convnet
    >>> model = convnet(widths=(4, 4, 4, 4), embedding_size=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_weights(Path(folder, "model.pt"), model, {"size": 28})
    ...     again, config = load_weights(path)
    >>> again.config == model.config, config
    (True, {'size': 28})
    """
    path = Path(path)
    given = {"kind": GIVEN, "class": f"{type(model).__module__}.{type(model).__qualname__}"}
    built_from = model.config if isinstance(model, EmbeddingModel) else given
    if built_from is None:
        raise ValueError("the model has no config; build it with rankgrad_workbench.models.build_model")
    extra = {} if config is None else dict(config)
    try:
        json.dumps((extra, built_from))
    except (TypeError, ValueError) as error:
        raise TypeError(f"config may hold only None, bool, int, float, str, list, tuple and dict ({error})") from None
    mean, std = (model.pixel_mean, model.pixel_std) if isinstance(model, EmbeddingModel) else ((), ())
    record = {"format": FORMAT, "model": built_from, "pixels": {"mean": list(mean), "std": list(std)}}
    write_plain(path, {**record, "config": extra, "state_dict": model.state_dict()})
    return path


@overload
def load_weights(path: str | os.PathLike[str], model: None = None) -> tuple[EmbeddingModel, dict[str, Any]]: ...


@overload
def load_weights(path: str | os.PathLike[str], model: Module) -> tuple[Module, dict[str, Any]]: ...


def load_weights(path: str | os.PathLike[str], model: nn.Module | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Build a model from a file of `save_weights`, on the CPU and in eval mode; or load the weights into `model`.

    Args:
        path: the file.
        model: load into this model; its mode and device do not change. None: build the model that the file describes.

    Returns:
        The model, and the `config` that was saved with it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: `save_weights` did not write the file; it holds another model (the message names the layers); or it
            holds your own module and `model` is None.

    >>> import tempfile
    >>> from rankgrad_workbench.models import convnet
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
                f"{path} holds the weights of {name}, which only your own code can build: build this model, and call "
                f"rankgrad_workbench.models.load_weights({str(path)!r}, model)"
            )
        options = dict(record["model"])
        try:
            with no_larger_than(state):
                model = build_model(options.pop("kind"), **options)
        except (ValueError, TypeError, RuntimeError, MemoryError) as error:
            raise ValueError(f"{path} describes a model that cannot be built: {one_line(error)}") from error
        stated = f"{path} does not fit the model that it describes"
    else:
        stated = f"{path} holds another model"
    if wrong := misfits(model.state_dict(), state):
        raise ValueError(f"{stated}: {'; '.join(wrong)}")
    model.load_state_dict(state)
    if isinstance(model, EmbeddingModel):
        model.pixel_mean, model.pixel_std = tuple(record["pixels"]["mean"]), tuple(record["pixels"]["std"])
    return (model.eval() if built else model), record["config"]
