"""The saved state of a run. A run resumes from it; reading it executes no code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from rankgrad.batches.distributed import largest

from ..models.state_dicts import check_tensors, check_unpacked, misfits, write_plain
from ..runs import signals
from ..settings import ConfigError, flat
from ..settings.values import changed

# Settings that you may change on resume: how and where the run computes. All others must stay as they were.
MAY_CHANGE = (
    *("out", "resume", "trust", "threads", "checkpoint_minutes", "check_data"),
    *("data.root", "data.load.root", "data.workers", "data.cache", "data.load.cache"),
    *("data.cache_dir", "data.load.cache_dir", "evaluation.batch_size"),
    *("trainer.accelerator", "trainer.devices", "trainer.enable_progress_bar"),
)
EPOCHS = "trainer.max_epochs"  # may be raised on resume: the run is extended


def read_state(path: Path) -> dict[str, Any]:
    """Read a state file: tensors and plain values.

    Raises:
        ConfigError: the file is damaged, or reading it would execute code.
    """
    again = "Delete it, and resume= trains this run again from the start"
    try:
        check_unpacked(path)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        whole = "state_dict" in state and type(state["global_step"]) is int  # it is used in file names
    except UnpicklingError:
        raise ConfigError(f"{path} is refused: it holds more than numbers and could run code. {again}") from None
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ConfigError(f"{path} is damaged ({type(error).__name__}). {again}") from None
    check_tensors(path, state)
    if not whole:
        raise ConfigError(f"{path} is not the state of a run. {again}")
    return state


def check_state(
    state: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    data: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    memories: Sequence[str],
    where: tuple[Path, Path],
) -> None:
    """Raise if a state belongs to other settings, other data or another model.

    Args:
        state: see `read_state`.
        settings: current settings of the run, dotted.
        data: current fingerprint of its data; {}: the data is not compared.
        weights: of the current model.
        memories: prefixes of weights that take the size of the saved ones.
        where: paths of the settings and of the state, for the message.

    Raises:
        ConfigError: what differs.
    """
    config, path = where
    then = flat(state.get("kept", {}))
    if then.get(EPOCHS) in settings.get("extended", ()):
        then |= {name: settings[name] for name in (EPOCHS, "extended")}
    other = {key: words for key, words in changed(then, settings).items() if key not in MAY_CHANGE}
    # what is derived from the data may differ because the data does
    if all(key.startswith("derived.") for key in other) and (differ := other_data(state.get("data", {}), data)):
        raise ConfigError(
            f"the data has changed since this run began: {differ}. Restore the data, or start a new run. If the rows "
            "are the same, add check_data=false"
        )
    if other:
        raise ConfigError(
            f"{config} was changed since {path.name} was saved: {', '.join(other.values())}. Change it back to resume, "
            "or start a new run with out="
        )
    fixed = [
        {key: value for key, value in each.items() if not key.startswith(tuple(memories))}
        for each in (weights, state["state_dict"])
    ]
    if wrong := misfits(*fixed):
        raise ConfigError(f"the model in {path} differs from the model that {config} describes: {'; '.join(wrong)}")


def other_data(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How two fingerprints differ, in words; "" if they are equal or one of them is unknown.

    >>> other_data({"images": 5, "names": "ab"}, {"images": 4, "names": "cd"})
    'images (then 5, now 4), names'
    """
    differ = changed(then, {name: now.get(name) for name in then}).items() if now else ()
    return ", ".join(words if isinstance(then.get(name), int) else name for name, words in differ)


WRITES = 50  # epochs of a training after which its state is written


def due(trainer: L.Trainer, times: int) -> bool:
    """Whether this epoch is one of about `times` epochs that are spread over the training; the last one always is."""
    epoch, epochs = trainer.current_epoch + 1, trainer.max_epochs or 1
    return epoch == epochs or epoch % -(-epochs // times) == 0


class StateFile(TorchCheckpointIO):
    """Writes Lightning's state atomically beside its file. Lightning's own way needs room in the temporary folder."""

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write the state."""
        write_plain(Path(path), checkpoint)


class SaveState(L.Callback):
    """Writes the state of the run after every epoch and every few minutes. The file is replaced as a whole.

    Of more than `WRITES` epochs not every one is written, because short epochs would then spend their time on it.

    Args:
        path: file to write.
        minutes: longest time between two writes.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.seconds = path, 60 * minutes
        self.last = time.monotonic()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Replace Lightning's handler of SIGTERM, which talks to the other processes at any moment."""
        signals.take_back()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write when the last write was long ago, but not within an accumulated gradient: the state does not hold it.

        Raises:
            signals.Stopped: a signal ended the run; the state is written.
        """
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if whole and not trainer.is_last_batch:  # `on_train_epoch_end` writes after the last batch of an epoch
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write. A run that was asked to stop may stop here."""
        self._save(trainer, trainer.should_stop or due(trainer, WRITES))

    def _save(self, trainer: L.Trainer, needed: bool = False) -> None:
        # all processes write together, as soon as one is due or was asked to stop
        late, asked = largest([time.monotonic() - self.last >= self.seconds, signals.requested()])
        if needed or late or asked:
            self.write(trainer)
        if asked:
            signals.stop(asked)

    def write(self, trainer: L.Trainer) -> None:
        """Called by all processes, written by the first. The log must be on the disk before the state."""
        for logger in trainer.loggers:
            logger.save()
        trainer.save_checkpoint(self.path)
        self.last = time.monotonic()
