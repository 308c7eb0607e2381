"""Check the settings of the trainer before the data of a run is read, because reading may take minutes."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

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


def check_trainer(config: DictConfig) -> None:
    """Raise if Lightning's trainer refuses its settings, or if a count is out of range.

    Raises:
        ConfigError: it names the setting.
    """
    if config.threads is not None:
        integer(config.threads, "threads counts CPU threads", low=1)
    number(config.checkpoint_minutes, "checkpoint_minutes is the longest time between two saved states", low=0)
    given = config.trainer
    if given.max_epochs is not None:
        integer(given.max_epochs, "trainer.max_epochs counts epochs", low=0)
    integer(given.get("accumulate_grad_batches", 1), "trainer.accumulate_grad_batches counts batches", low=1)
    if given.get("log_every_n_steps") is not None:
        integer(given.log_every_n_steps, "trainer.log_every_n_steps counts steps", low=0)
    if given.get("gradient_clip_val") is not None:
        number(given.gradient_clip_val, "trainer.gradient_clip_val is the largest gradient", low=0)
    options = {**plain(config.trainer), "devices": 1, "accelerator": "cpu", "enable_progress_bar": False}
    options = {name: value for name, value in options.items() if name not in ("strategy", "num_nodes", "precision")}
    try:
        L.Trainer(**options, **OURS)
    except (MisconfigurationException, TypeError) as error:
        raise ConfigError(f"trainer: {error}") from None
