"""Reads and checks files of `save_weights`. No code from a file is run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import nn

from rankgrad.evaluation.json_report import fits

from .sentence_transformer import size_of_weights
from .state_dicts import SEVERAL, is_state_dict, misfits, read_plain

FORMAT = "rankgrad-weights-1"
WEIGHTS = "model.pt"  # in the folder of a run
SHAPES: Any = {"model": {"kind": str}, "pixels": {"mean": [float], "std": [float]}, "config": {}, "state_dict": {}}


def read_record(path: Path) -> dict[str, Any]:
    """Read model, pixels, config and state_dict of a file of `save_weights`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: `save_weights` did not write the file, or it is damaged, or requests other weights.
    """
    record = read_plain(path)
    if not fits(record, {"format": str}) or record["format"] != FORMAT:
        raise ValueError(
            f"{path} was not written by this version of rankgrad_workbench.models.save_weights. Load the weights of a "
            f"timm backbone with timm_model(weights=...)"
        )
    wrong = [name for name, shape in SHAPES.items() if not fits(record.get(name), shape)]
    if not wrong:
        mean, std = (record["pixels"][name] for name in ("mean", "std"))  # empty for inputs that are no images
        if len(mean) != len(std) or not all(map(math.isfinite, mean + std)) or min(std, default=1) <= 0:
            wrong.append("pixels")
        if not is_state_dict(record["state_dict"]):
            wrong.append("state_dict")
    if wrong:
        raise ValueError(f"{path} is damaged: these parts are missing or have a wrong type: {', '.join(wrong)}")
    _check_model(path, record["model"], sum(value.nbytes for value in record["state_dict"].values()))
    return dict(record)


def _check_model(path: Path, model: dict[str, Any], size: int) -> None:
    """Raise if a model requests other weights than the file has, or more bytes of them."""
    files = model.get("files")
    try:
        claimed: float = 0 if files is None else size_of_weights(files)
    except (AttributeError, KeyError, TypeError, ValueError):
        claimed = math.inf
    if claimed > SEVERAL * size:
        raise ValueError(f"{path} is damaged: its model has other files than save_weights writes, or larger ones")
    fetched = {"pretrained", "weights"} & set(model)
    if model["kind"] == "sentence_transformer" and files is None:
        fetched.add("name")  # without files, the name would be downloaded
    if fetched:  # the weights are in the file; only an attacker would request others
        raise ValueError(f"{path} requests other weights ({', '.join(sorted(fetched))}): do not use the file")


def kind_in(source: Path, otherwise: str) -> str:
    """The kind of model in a weights file or in a run's folder. If it cannot be read, return `otherwise`."""
    try:
        return str(read_record(source / WEIGHTS if source.is_dir() else source)["model"]["kind"])
    except (OSError, ValueError):
        return otherwise


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
    if wrong := misfits(backbone.state_dict(), weights):
        raise ValueError(f"{path} holds another backbone: {'; '.join(wrong)}")
    backbone.load_state_dict(weights)
    return tuple(record["pixels"]["mean"]), tuple(record["pixels"]["std"])
