"""One training run of any task: open the folder, train, evaluate, and write the results.

The runner is the same for all tasks. It opens and locks the folder, checks the saved state, saves new states, and logs.
A `Task` builds the model, the loss and the data, evaluates, and writes the results. Everything random in a run is a
function of (seed, epoch, image). So on a CPU, a run that was killed and resumed ends with the same numbers, logs and
weights as a run that was not interrupted.
"""

from __future__ import annotations

import logging
import platform
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import lightning as L
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.seed import isolate_rng
from omegaconf import DictConfig, OmegaConf
from torch import nn

from rankgrad._version import __version__
from rankgrad.batches.distributed import on_first, world
from rankgrad.common import plugins
from rankgrad.common.checks import integer, number
from rankgrad.common.progress import bars_are_seen

from ..files import write_text
from ..files.folders import require_posix
from ..models.build import READ
from ..runs import launch, signals
from ..runs.folder import OFF_COUNTS, Run, created, opened
from ..runs.history import TEST
from ..runs.provenance import made_by
from ..settings import PATHS, ConfigError, flat, load, packages, plain, replaced
from ..settings.spelling import as_word
from ..settings.values import changed as differing
from .callbacks import Clock, EvaluateEvery, LossBar, ProgressLines
from .data import EpochData, SetEpoch
from .health import Health
from .log import WriteLog, loggers, write
from .module import TrainedModule
from .state import EPOCHS, MAY_CHANGE, SaveState, StateFile, check_state, read_state

Result = TypeVar("Result")
Say = Callable[[str], object]  # prints a text for the user


class Task(Protocol[Result]):
    """What a run trains: a record of the data, the model, the loss and the batches that `TaskType.make` has made."""

    @property
    def settled(self) -> Mapping[str, Any]:
        """Settings that follow from the data, such as the number of epochs, by dotted names. The run saves them."""

    @property
    def module(self) -> TrainedModule:
        """The module to train. `module.model` is the model that is evaluated."""

    @property
    def data(self) -> EpochData:
        """The training batches."""

    @property
    def memories(self) -> Sequence[str]:
        """Prefixes of weights whose size may differ from the saved state. They take the saved size."""

    @property
    def off_counts(self) -> str:
        """A sentence if the data does not have its published counts, see `datasets.Rows`; else empty."""

    def fingerprint(self) -> dict[str, Any]:
        """Facts that identify the data."""

    def callbacks(self) -> list[Callback]:
        """Additional training callbacks."""

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Do what comes before training: evaluate the untrained model, or compute features.

        Args:
            run: folder to write to.
            trainer: the trainer that will train.
            fresh: whether nothing was trained yet.
        """

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], Result]:
        """Metrics by name, and the whole result."""

    def trained(self) -> nn.Module:
        """The whole model, after training."""

    def write(self, run: Run, result: Result, facts: dict[str, Any]) -> str:
        """Write all files of the run except the last one. Return the text of the last one."""


@dataclass(frozen=True)
class TaskType(Generic[Result]):
    """A kind of task, and how to make a task from settings.

    Attributes:
        kind: kind of its runs.
        name: settings -> name of a run, made of data and loss.
        make: (settings, quiet, function that prints texts for the user) -> task. It makes typed settings, which
            raises for wrong ones, reads the data, checks both together, and builds; each is a function. It prints the
            data as soon as they are read, so that the user has seen them if a later check fails.
    """

    kind: str
    name: Callable[[DictConfig], str]
    make: Callable[[DictConfig, bool, Say], Task[Result]]


LOGS = ("lightning.pytorch", "lightning.fabric", "lightning")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the state of the process after training, also after an error.

    Restored are the random states of Python, numpy and torch, the number of threads, the warning filters, and the
    levels of Lightning's loggers.
    """
    threads, levels = torch.get_num_threads(), {name: logging.getLogger(name).level for name in LOGS}
    numbers = isolate_rng()
    numbers.__enter__()
    with warnings.catch_warnings():
        try:
            yield
        finally:
            numbers.__exit__(None, None, None)  # told of an error, it would restore nothing
            torch.set_num_threads(threads)
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def seed_all(seed: int) -> None:
    """Seed Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@undisturbed()
def train(
    task: TaskType[Any],
    config: DictConfig,
    *,
    changes: Sequence[str] = (),
    quiet: bool = False,
    started: Callable[[Path], object] | None = None,
) -> Run:
    """Train, evaluate, and write the run's folder. Resume if `config.resume` names a run.

    Under torchrun, each process calls this function with the same configuration. The processes share each batch.

    Args:
        task: what to train.
        config: settings by `config.compose`.
        changes: settings to change in a resumed run; `state.MAY_CHANGE` lists the allowed ones.
        quiet: show no progress bars.
        started: called with the folder as soon as the run can be resumed.

    Returns:
        The run's folder.

    Raises:
        ConfigError: settings do not fit, or the folder holds another run.
        LockedError: another process uses the folder.
        OSError: the system is not a POSIX system.
        signals.Stopped: on Ctrl-C, SIGTERM or SIGHUP. The state is saved before.
    """
    require_posix("training")
    with ExitStack() as held, launch.joined(config):
        run, config = on_first(lambda: _open(held, task, config, changes))
        if not on_first(lambda: _is_finished(run, config)):
            _train(task, run, config, quiet, started)
    return run


def _open(held: ExitStack, task: TaskType[Any], config: DictConfig, changes: Sequence[str]) -> tuple[Run, DictConfig]:
    """The run to train, and its settings. The folder stays locked until `held` is closed."""
    if config.resume is not None:
        run, trust = held.enter_context(opened(Path(config.resume), task.kind)), config.get("trust")
        made = load(run.config, packages(trust))
        return run, changed(replaced(made, {"trust": trust}), changes)  # a folder must not say what to trust
    run = held.enter_context(created(None if config.out is None else Path(config.out), task.name(config)))
    return run, replaced(config, {"out": str(run.folder)})


def changed(config: DictConfig, changes: Sequence[str]) -> DictConfig:
    """The settings of a resumed run, with some of them changed.

    Raises:
        ConfigError: a setting that may not change.
    """
    free = [name for name in MAY_CHANGE if name not in ("out", "resume")]
    wrong = [change for change in changes if change.partition("=")[0] not in (*free, EPOCHS)]
    if wrong:
        raise ConfigError(
            f"a resumed run keeps its folder and its own settings; leave out {' '.join(wrong)}. You may change: "
            f"{EPOCHS} (only to a larger number), {', '.join(free)}"
        )
    values: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition("=")
        if not value:
            raise ConfigError(f"{key}= is empty")
        old, values[key] = OmegaConf.select(config, key), OmegaConf.select(OmegaConf.from_dotlist([change]), key)
        inner = f"data.load.{key.partition('.')[2]}"
        if key == EPOCHS:
            if not value.isdigit() or int(value) < old:
                raise ConfigError(f"this run has {old} epochs; to extend it, give {EPOCHS} > {old}; got {value!r}")
            values |= {"extended": [*config.extended, old]} if int(value) > old else {}
        elif key.startswith("data.") and old is not None and OmegaConf.select(config, inner) == old:
            values[inner] = values[key]
    return replaced(config, values)


def _is_finished(run: Run, config: DictConfig) -> bool:
    """Whether a run has finished all epochs of its settings."""
    ended = run.read_facts().get("epochs", [*config.extended, config.trainer.max_epochs][0])
    return run.finished and bool(ended >= config.trainer.max_epochs)


def _train(
    kind: TaskType[Any], run: Run, config: DictConfig, quiet: bool, started: Callable[[Path], object] | None
) -> None:
    """Prepare the process, make the task, and check the saved state. Then begin, fit, evaluate and write."""
    first = world()[0] == 0
    silence_lightning()
    check_trainer(config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    seed_all(config.seed)
    say = partial(print, flush=True) if first else silent
    used = [str(plugin) for plugin in plugins.used(plain(config))]
    for plugin in used:
        say(f"with the {plugin}")
    task = kind.make(config, quiet or not first, say)
    config = replaced(config, task.settled)
    state = on_first(lambda: read_state(run.state) if run.state.exists() else None)
    data = on_first(task.fingerprint)
    task.module.kept |= {"kept": settings_of(config), "data": data}
    trainer = _trainer(run, task, config, quiet or not first, 0 if state is None else int(state["global_step"]))
    if first and trainer.world_size > 1 and not config.trainer.get("sync_batchnorm"):
        check_batch_norm(task.module)
    if state is not None:
        check_state(
            state,
            settings=task.module.kept["kept"],
            data=data if config.check_data else {},
            weights=task.module.state_dict(),
            memories=task.memories,
            where=(run.config, run.state),
        )
    # all settings were checked before this line; from here on the run can be resumed
    fresh = on_first(lambda: _begin(run, config, trainer.loggers))
    if started is not None and first:
        started(run.folder)
    try:
        task.begin(run, trainer, state is None)
    except Exception:
        if fresh and first:
            run.config.unlink()  # nothing was trained, so the folder can be used again with other settings
        raise
    seed_all(config.seed)  # random numbers drawn before must not change the training
    took = _fit(trainer, task, None if state is None else run.state)
    _, result = task.evaluate(trainer, task.trained())
    device = trainer.strategy.root_device
    facts = {
        **{**took, "steps": trainer.global_step, "epochs": config.trainer.max_epochs},
        **{"rankgrad": __version__, "torch": torch.__version__, "lightning": L.__version__},
        **{"python": platform.python_version(), "processes": trainer.world_size},
        **{"threads": torch.get_num_threads(), "device": str(device), **made_by(device)},
        **{"plugins": used, "data": data, OFF_COUNTS: task.off_counts},
    }
    on_first(lambda: run.finish(task.write(run, result, facts)))


def steps_of(trainer: Mapping[str, Any], batches: int) -> int:
    """Steps of an epoch that has this number of batches, by the settings of the trainer."""
    limit = trainer.get("limit_train_batches")
    if isinstance(limit, int):
        batches = min(batches, limit)
    return max(-(-batches // (trainer.get("accumulate_grad_batches") or 1)), 1)


def budget(trainer: Mapping[str, Any], batches: int, epochs: int) -> str:
    """A line about the length of a training.

    Args:
        trainer: settings of the trainer, as they were given.
        batches: number of batches of an epoch.
        epochs: number of epochs.
    """
    steps = epochs * steps_of(trainer, batches)
    why = "for this number of batches" if trainer["max_epochs"] is None else "as given"
    return f"{EPOCHS} {epochs}, {why}; at most {steps} step{'' if steps == 1 else 's'}"


def silent(text: str) -> None:
    """Print nothing."""


class BatchNormWarning(UserWarning):
    """With batch norm, several processes train differently from one process."""


def check_batch_norm(module: nn.Module) -> None:
    """Warn if batch norm sees only its own process's part of each batch."""
    norms = (layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm))
    if any(layer.training and not isinstance(layer, nn.SyncBatchNorm) for layer in norms):
        warnings.warn(
            "each process computes batch norm over its own part of a batch, so the result differs from that of one "
            "process. To avoid this, use +trainer.sync_batchnorm=true (on GPUs), model.freeze_batch_norm=true, or a "
            "model without batch norm",
            BatchNormWarning,
            stacklevel=2,
        )


def settings_of(config: DictConfig) -> dict[str, Any]:
    """The settings of a run by dotted names, as in its config.yaml."""
    return flat(plain(lasting(config)))


def _begin(run: Run, config: DictConfig, to: Sequence[Logger]) -> bool:
    """Write the settings. Return True if the run is new. If a run is extended, its earlier result goes to the log."""
    fresh = not run.config.exists()
    settings = OmegaConf.to_yaml(lasting(config), resolve=True)
    if fresh or settings != run.config.read_text(encoding="utf-8"):
        write_text(run.config, settings)
    if run.finished:
        earlier = {f"{TEST}{name}": value for name, value in run.read_values().items()}
        write(to, earlier, int(run.read_facts()["steps"]) - 1)
        for logger in to:
            logger.save()
        run.after.unlink()
    return fresh


def lasting(config: DictConfig) -> DictConfig:
    """The settings that a run saves. Paths are absolute, so that the run can be resumed from any folder."""
    paths = {key: OmegaConf.select(config, key) for key in PATHS if key not in ("out", "resume")}
    if OmegaConf.select(config, "model.kind") not in READ or not Path(paths["model.name"]).is_dir():
        del paths["model.name"]  # a name on the hub, or of a network of timm
    absolute = {key: str(Path(path).absolute()) for key, path in paths.items() if path is not None}
    # trust is not saved: somebody who receives the folder must decide this
    return OmegaConf.masked_copy(replaced(config, absolute), [str(key) for key in config if key != "trust"])


def _trainer(run: Run, task: Task[Any], config: DictConfig, quiet: bool, done: int) -> L.Trainer:
    shown = config.trainer.enable_progress_bar and not quiet
    bar = shown and bars_are_seen(sys.stdout)  # Lightning draws its bar on stdout
    to = loggers(run, config.loggers, done)
    callbacks: list[Callback] = [WriteLog(), Clock(), *task.callbacks()]
    if config.evaluation.every:
        callbacks.append(EvaluateEvery(config.evaluation.every, lambda model: task.evaluate(trainer, model)[0]))
    if config.health:
        callbacks.append(Health(run.health, show=not quiet))
    # SaveState comes after the other callbacks, because their state is part of what it saves
    callbacks += [SetEpoch(), SaveState(run.state, config.checkpoint_minutes)]
    callbacks += [LossBar(refresh_rate=5)] if bar else [ProgressLines()] if shown else []
    options = {**plain(config.trainer), **launch.trainer_options(config), "enable_progress_bar": bar, **OURS}
    options |= {"default_root_dir": run.folder, "logger": to, "callbacks": callbacks}
    options["plugins"] = [StateFile(), *(options.get("plugins") or ())]
    try:
        trainer = L.Trainer(**options)
    except MisconfigurationException as error:
        raise ConfigError(f"trainer: {error}") from None
    return trainer


def _fit(trainer: L.Trainer, task: Task[Any], state: Path | None) -> dict[str, float]:
    """Train, from a saved state if there is one. Return the seconds of training.

    Raises:
        signals.Stopped: on Ctrl-C, SIGTERM or SIGHUP. `SaveState` writes the state before.
    """
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    [clock] = (callback for callback in callbacks if isinstance(callback, Clock))
    clock.start()
    with signals.deferred():
        trainer.fit(task.module, datamodule=task.data, ckpt_path=state, weights_only=True)
    took = {name: round(seconds, 3) for name, seconds in clock.state_dict().items()}
    for callback in callbacks:
        if isinstance(callback, Health):
            callback.finish(trainer)
    return took


def silence_lightning() -> None:
    """Hide Lightning's advertisements, and advice that does not apply. Errors and our own messages are still shown."""
    for name in LOGS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        *(".*treespec, LeafSpec.*", ".*many workers.*", ".*Checkpoint directory.*", ".*logging interval.*"),
        ".*your dataloader is not resumable.*",  # it is resumable: the data module saves the position
        ".*in eval mode at the start of training.*",  # intended with model.freeze_batch_norm
    ):
        warnings.filterwarnings("ignore", message=message)


# Arguments of the trainer that a run sets itself. The first three are those of a trial.
OURS: dict[str, Any] = {
    **{"default_root_dir": None, "logger": False, "callbacks": None},
    **dict.fromkeys(("enable_checkpointing", "enable_model_summary", "use_distributed_sampler"), False),
    "num_sanity_val_steps": 0,
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


def own_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check and copy the caller's settings.

    Raises:
        TypeError: the settings are not a dict of dotted names.
    """
    given: Any = {} if settings is None else settings
    if not isinstance(given, Mapping) or any(isinstance(value, Mapping) for value in given.values()):
        raise TypeError(f'settings must be a dict of dotted names such as {{"trainer.max_epochs": 5}}; got {given!r}')
    return dict(given)


def begun(
    config: DictConfig, out: str | Path | None, resume: bool, left_out: tuple[str, ...] = ()
) -> tuple[DictConfig, list[str]]:
    """The settings with which `train` starts a run, or resumes the one that is there; and the settings that change.

    Args:
        config: current settings.
        out: folder of the run; None: a new one.
        resume: whether a run that is there is resumed.
        left_out: prefixes of settings that are not compared.

    Raises:
        ConfigError: there is a run and it is not to be resumed, or it has other settings that may not change.
        ValueError: a run without a folder cannot be resumed.
    """
    if resume and out is None:
        raise ValueError("resume=True needs the folder of the run: give out=FOLDER")
    if out is None or not Run(folder := Path(out)).config.exists():
        return config, []
    if not resume:
        raise ConfigError(f"{out} holds a run already: resume it with resume=True, or choose another out=")
    then, now = settings_of(load(Run(folder).config)), settings_of(config)
    if now.get(EPOCHS) is None:
        now[EPOCHS] = then.get(EPOCHS)  # the number was chosen from the data
    left_out = ("derived.", "extended", "out", "resume", *left_out)
    names = {name: words for name, words in differing(then, now).items() if not name.startswith(left_out)}
    if told := ", ".join(words for name, words in names.items() if name not in (*MAY_CHANGE, EPOCHS)):
        raise ConfigError(f"{folder} holds a run with other settings: {told}. Use its settings, or another folder")
    return replaced(config, {"resume": str(folder)}), [f"{name}={as_word(plain(now.get(name)))}" for name in names]


__all__ = ["Say", "Task", "TaskType", "changed", "lasting", "settings_of", "silence_lightning", "silent", "train"]
