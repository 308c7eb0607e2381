"""Add a LoRA adapter, as the package peft saves it, to the weights of a network. No code from its folder is run."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor, nn

from .state_dicts import one_line

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# Settings with which the change of a matrix is another one than below, and the values with which it is not.
OTHERS = {
    "use_dora": (None, False),
    "fan_in_fan_out": (None, False),
    "bias": (None, "none"),
    "alora_invocation_tokens": (None,),
}
OTHERS |= {
    name: (None, {}, []) for name in ("modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices")
}


@torch.no_grad()
def merge_lora(network: nn.Module, folder: Path) -> int:
    r"""Add an adapter to the linear layers of a network: W + alpha / r B A, with rslora alpha / sqrt(r).

    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (ICLR 2022), equation 3. The merged network is as
    large and as fast as before, and can be trained further.

    Args:
        network: the network that the adapter was trained on, or a module that contains it.
        folder: with adapter_config.json and adapter_model.safetensors.

    Returns:
        The number of layers that were changed.

    Raises:
        OSError: a file is missing.
        ValueError: the adapter is of another kind, is damaged, or does not fit the network.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text("utf-8"))
        kind, r, alpha = str(settings["peft_type"]), int(settings["r"]), float(settings["lora_alpha"])
        scale = alpha / (r**0.5 if settings.get("use_rslora") else r)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(
            f"{folder / SETTINGS} is not that of a LoRA adapter, or it is damaged ({one_line(error)})"
        ) from None
    other = [name for name, plain in OTHERS.items() if settings.get(name) not in plain]
    if kind != "LORA" or other:
        what = f"{other[0]}={settings[other[0]]!r}" if kind == "LORA" else f"the kind {kind!r}"
        raise ValueError(
            f"the adapter {folder} has {what}, which is not supported: merge it with peft, and save the model"
        )
    layers = dict(network.named_modules())
    changes = [(_layer(layers, path, folder), path, pair) for path, pair in _pairs(folder).items()]
    for layer, path, pair in changes:
        wanted = ((r, layer.in_features), (layer.out_features, r))
        found = tuple(tuple(matrix.shape) for matrix in pair)
        if found != wanted:
            raise ValueError(f"the adapter {folder} does not fit {path}: its matrices are {found}, and not {wanted}")
    for layer, _, (a, b) in changes:
        layer.weight += (scale * (b.double() @ a.double())).to(layer.weight)
    return len(changes)


def _pairs(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Path of a layer -> its matrices A and B."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"no {WEIGHTS} in {folder}; pickled weights of an adapter are not read")
    try:
        tensors = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS} is damaged ({one_line(error)})") from None
    found: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        match = TENSOR.fullmatch(name)
        if match is None:
            raise ValueError(f"the adapter {folder} has {name}, which is no matrix of a linear layer")
        found[match[1]][match[2]] = value
    if not found or any(len(pair) < 2 for pair in found.values()):
        raise ValueError(f"{folder / WEIGHTS} is damaged: a layer has one matrix of two")
    return {path: (pair["A"], pair["B"]) for path, pair in found.items()}


def _layer(layers: dict[str, nn.Module], path: str, folder: Path) -> nn.Linear:
    """The one layer of this path, which the network may have below other modules."""
    found = [layer for name, layer in layers.items() if name == path or name.endswith(f".{path}")]
    if len(found) != 1 or not isinstance(found[0], nn.Linear):
        why = f"{len(found)} such layers" if len(found) != 1 else f"a {type(found[0]).__name__}"
        raise ValueError(
            f"the adapter {folder} changes the linear layer {path}, but the network has {why}: is it of another model?"
        )
    return found[0]


__all__ = ["merge_lora"]
