"""Lightning on the device that is only pretended (pretended.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pretended
import pytest
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy

from rankgrad_workbench.runs import launch


class Anywhere(CPUAccelerator):
    """Lightning's for a CPU, which does not ask whether the device is one."""

    def setup_device(self, device: Any) -> None:
        pass


@contextmanager
def training_there(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs train on the pretended device."""
    given = launch.trainer_options

    def options(config: Any) -> dict[str, Any]:
        strategy = SingleDeviceStrategy(device=pretended.DEVICE, accelerator=Anywhere())
        return {**given(config), "accelerator": "auto", "devices": "auto", "strategy": strategy}

    with pretended.pretended():
        patch.setattr(launch, "trainer_options", options)
        yield
