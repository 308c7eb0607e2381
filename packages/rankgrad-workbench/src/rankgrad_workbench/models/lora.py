"""Merge a LoRA adapter of the package peft into a network. No code from its folder is run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from rankgrad.common.extras import missing

from .state_dicts import misfits, no_larger_than, not_finite, one_line, sample

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Settings that are passed on to peft. Any other one must be empty, unless it is about something else than the network.
PASSED = (
    *("r", "lora_alpha", "lora_dropout", "lora_bias", "bias", "use_rslora", "use_dora", "fan_in_fan_out"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern"),
    *("modules_to_save", "trainable_token_indices", "init_lora_weights"),
)
BESIDE = (
    *("peft_type", "peft_version", "task_type", "auto_mapping", "base_model_name_or_path", "revision"),
    *("inference_mode", "megatron_core", "qalora_group_size", "loftq_config", "eva_config"),
)
# How matrices may begin: without a change of the network, or with one that peft computes again from the network alone.
BEGINNINGS = (True, False, None, "gaussian", "orthogonal", "eva", "pissa", "olora")


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
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"no {WEIGHTS} in {folder}; pickled weights of an adapter are not read")
    try:
        tensors = load_file(folder / WEIGHTS)
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
        kind = settings["peft_type"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{folder / SETTINGS} is not that of a LoRA adapter, or it is damaged ({one_line(error)})"
        ) from None
    passed = {name: value for name, value in settings.items() if name in PASSED}
    other = [name for name, value in settings.items() if value and name not in (*PASSED, *BESIDE)]
    if passed.get("init_lora_weights") not in BEGINNINGS:
        other.insert(0, "init_lora_weights")
    if kind != "LORA" or other:
        what = f"{other[0]}={settings[other[0]]!r}" if kind == "LORA" else f"the kind {kind!r}"
        raise ValueError(
            f"the adapter {folder} has {what}, which is not supported: merge it with peft, and save the model"
        )
    return passed


__all__ = ["merge_lora"]
