"""Check the settings of the trainer before the data of a run is read, because reading may take minutes."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from rankgrad.common.checks import integer, number

from ..settings import ConfigError, plain

# Arguments of the trainer that a run sets itself. The first three are those of a trial.
OURS: dict[str, Any] = {
    "default_root_dir": None,
    "logger": False,
    "callbacks": None,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "use_distributed_sampler": False,
}


COUNTS = {
    "threads": ("CPU threads", 1),
    "trainer.max_epochs": ("epochs", 0),
    "trainer.accumulate_grad_batches": ("batches", 1),
    "trainer.log_every_n_steps": ("steps", 0),
}


def check_trainer(config: DictConfig) -> None:
    """Raise if Lightning's trainer refuses its settings, or if a count is out of range.

    Raises:
        ConfigError: it names the setting.
    """
    number(config.checkpoint_minutes, "checkpoint_minutes is the longest time between two saved states", low=0)
    for name, (what, low) in COUNTS.items():
        if (value := OmegaConf.select(config, name)) is not None:
            integer(value, f"{name} counts {what}", low=low)
    if (clip := config.trainer.get("gradient_clip_val")) is not None:
        number(clip, "trainer.gradient_clip_val is the largest gradient", low=0)
    options = {**plain(config.trainer), "devices": 1, "accelerator": "cpu", "enable_progress_bar": False}
    options = {name: value for name, value in options.items() if name not in ("strategy", "num_nodes", "precision")}
    try:
        L.Trainer(**options, **OURS)
    except (MisconfigurationException, TypeError) as error:
        raise ConfigError(f"trainer: {error}") from None
