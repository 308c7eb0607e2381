"""Reads and checks files of `save_weights`. No code from a file is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from .state_dicts import SEVERAL, is_state_dict, misfits, read_plain

FORMAT = "rankgrad-weights-1"
WEIGHTS = "model.pt"  # in the folder of a run


def read_record(path: Path) -> dict[str, Any]:
    """Read model, pixels, config and state_dict of a file of `save_weights`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: `save_weights` did not write the file, or it is damaged.
    """
    record = read_plain(path)
    said = record.get("format") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(said, str) or said != FORMAT:
        raise ValueError(
            f"{path} was not written by this version of rankgrad_workbench.models.save_weights. Load the weights of a "
            f"timm backbone with timm_model(weights=...)"
        )
    _check_record(path, record)
    return record


def kind_in(source: Path, otherwise: str) -> str:
    """The kind of model in a weights file or in a run's folder. If it cannot be read, return `otherwise`."""
    path = source / WEIGHTS if source.is_dir() else source
    try:
        return _kind_in(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return otherwise


@lru_cache(maxsize=16)
def _kind_in(path: Path, changed: int) -> str:
    return str(read_record(path)["model"]["kind"])


def load_backbone(path: Path, backbone: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Load the backbone of a file of `save_weights` into `backbone`. The file's pooling and head are ignored.

    Returns:
        (mean, standard deviation) with which its images were normalised, per channel.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: `save_weights` did not write the file, or it holds another backbone; the message names the layers.
    """
    record = read_record(path)
    state, begin = record["state_dict"], "backbone."
    weights = {key.removeprefix(begin): value for key, value in state.items() if key.startswith(begin)}
    wrong = misfits(backbone.state_dict(), weights)
    if wrong:
        raise ValueError(f"{path} holds another backbone: {'; '.join(wrong)}")
    backbone.load_state_dict(weights)
    return tuple(record["pixels"]["mean"]), tuple(record["pixels"]["std"])


def _check_record(path: Path, record: Mapping[str, Any]) -> None:
    """Raise unless a file has all parts of a file of `save_weights`, and does not request other weights."""
    parts = {"model": dict, "pixels": dict, "config": dict, "state_dict": dict}
    wrong = [name for name, kind in parts.items() if not isinstance(record.get(name), kind)]
    if not wrong:
        mean, std = (record["pixels"].get(name) for name in ("mean", "std"))  # empty for inputs that are no images
        lists = isinstance(mean, list) and isinstance(std, list) and len(mean) == len(std)
        if (
            not lists
            or not all(type(v) in (int, float) and math.isfinite(v) for v in mean + std)
            or not min(std, default=1) > 0
        ):
            wrong.append("pixels")
        if not is_state_dict(record["state_dict"]):
            wrong.append("state_dict")
        if not isinstance(record["model"].get("kind"), str):
            wrong.append("model")
    if wrong:
        raise ValueError(f"{path} is damaged: these parts are missing or have a wrong type: {', '.join(wrong)}")
    described = _described(record["model"].get("files"))
    if described is None or described > SEVERAL * sum(value.numel() for value in record["state_dict"].values()):
        raise ValueError(f"{path} is damaged: its model has other files than save_weights writes, or larger ones")
    fetched = {"pretrained", "weights"} & set(record["model"])
    if record["model"]["kind"] == "sentence_transformer" and not isinstance(record["model"].get("files"), dict):
        fetched.add("name")  # without files, the name would be downloaded
    if fetched:  # the weights are in the file; only an attacker would request others
        raise ValueError(
            f"{path} requests other weights ({', '.join(sorted(fetched))}). save_weights never writes this: do not use "
            "the file"
        )


def _described(files: object) -> int | None:
    """How many numbers the files of a model of sentence-transformers say that they have; None: it is not said rightly.

    >>> _described({"model.safetensors": {"metadata": {}, "tensors": {"a": ["F32", 2, 3]}}, "config.json": "{}"})
    6
    """
    total = 0
    for content in files.values() if isinstance(files, dict) else ():
        tensors = content.get("tensors", {}) if isinstance(content, dict) else {}
        for row in tensors.values() if isinstance(tensors, dict) else [()]:
            kind, *shape = row if isinstance(row, list) and row else [None]
            if not isinstance(kind, str) or not all(type(size) is int and size >= 0 for size in shape):
                return None
            total += math.prod(shape)
    return total
