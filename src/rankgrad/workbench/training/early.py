"""Check the settings of a run before its data is read, because reading may take minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

from ...batches.sampler_settings import check_settings, named_as_settings
from ...common.checks import integer, number, unknown
from ...datasets.folds import read_fold
from ...datasets.rows import SPLITS
from ...evaluation import evaluate
from ...losses import RetrievalLoss
from ...models import TAKES, build_model
from ...models.build import GIVEN, READ, check_options
from ...models.matching import weights_file
from ..config import ConfigError, make, named, packages, plain, section
from ..runs.history import CHOSEN_BY
from .module import check_optimizer

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


def check_retrieval(config: DictConfig) -> None:
    """Raise if the sampler, optimiser, model, loss, transforms or evaluation of a run would refuse its settings.

    Each is made, or used on four made-up items: the settings are judged by the code that will use them, so there is
    no second list of rules. The model is made without memory, and weights are not loaded.

    Raises:
        TypeError, ValueError: the setting that is refused.
        FileNotFoundError: the file of weights does not exist.
    """
    trust = packages(config.get("trust"))
    with named_as_settings():
        check_settings(**config.sampler)
    check_optimizer(plain(config.optimizer))
    if config.init is None:
        _check_model(config)
    for name in ("train_transform", "eval_transform"):
        make(config.data[name], slot="transform", trust=trust, where=f"data.{name}")
    _check_loss(config)
    options = plain(config.evaluation)
    if options["split"] not in SPLITS:
        raise ConfigError("evaluation.split: " + unknown("part of the data", options["split"], SPLITS))
    if options["keep_best"] not in (None, *CHOSEN_BY):
        raise ConfigError(f"evaluation.keep_best must be null, {' or '.join(CHOSEN_BY)}; got {options['keep_best']!r}")
    read_fold(config.fold)
    number(config.label_noise, "label_noise is a fraction of the training rows", low=0, high=1)
    if options["before"] not in (True, False, "auto"):
        raise ConfigError(f"evaluation.before must be true, false or auto; got {options['before']!r}")
    integer(options["batch_size"], "evaluation.batch_size counts rows", low=1)
    integer(options["every"], "evaluation.every counts epochs", low=0)
    clusters: Any = "none" if options["clusters"] == "auto" else options["clusters"]  # k-means itself needs no trial
    bootstrap = min(options["bootstrap"], 1) if isinstance(options["bootstrap"], int) else options["bootstrap"]
    four = torch.eye(2).repeat(2, 1)
    with section("evaluation"):
        extra = tuple(options["extra"])
        evaluate(
            four, torch.tensor([0, 1, 0, 1]), ks=options["ks"], extra=extra, bootstrap=bootstrap, clusters=clusters
        )


def _check_model(config: DictConfig) -> None:
    options = plain(config.model)
    weights = options.get("weights")
    if weights is not None and options["kind"] == "timm":
        weights_file(Path(weights))
    elif weights is not None and not Path(weights).is_file():
        raise FileNotFoundError(f"no weights file at {weights}; model.weights= needs the model.pt of a run")
    if options.get("pretrained") and weights is not None:
        raise ConfigError(
            "give either model.pretrained=true (weights from timm) or model.weights=FILE (your weights), not both"
        )
    options |= {name: without for name, without in (("pretrained", False), ("weights", None)) if name in options}
    kind = options.pop("kind")
    if kind == GIVEN:
        return  # the caller has made the model
    _, of_the_data = TAKES.get(kind, ("", {}))
    if kind in READ:
        with section("model"):
            check_options(kind, options)
        return
    with section("model"), torch.device("meta"):
        build_model(kind, **of_the_data, **options)


def _check_loss(config: DictConfig) -> None:
    """Make the loss if it is one of this library. Others may need facts about the data."""
    kind = named(config.loss, slot="loss", trust=packages(config.get("trust")))
    if isinstance(kind, type) and issubclass(kind, RetrievalLoss) and kind.__module__.startswith("rankgrad.losses"):
        make(config.loss, slot="loss", trust=packages(config.get("trust")), where="loss")
