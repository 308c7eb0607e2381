"""A run on a GPU beside one on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rankgrad_workbench.cli import main
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import compose


def begins_as_on_the_cpu(train: Callable[..., Run], command: list[str], settings: list[str], folder: Path) -> None:
    """Hold the loss of the first step to that of the CPU (what follows drifts apart by rounding), and go on."""
    first = {}
    for place in ("cpu", "gpu"):
        given = [*settings, f"trainer.accelerator={place}", f"out={folder / place}"]
        run = train(compose(given, command[0]), quiet=True)
        first[place] = curves(run)["loss"][0][1]
    assert first["gpu"] == pytest.approx(first["cpu"], rel=1e-3)
    steps = len(curves(run)["loss"])
    assert main([*command, f"resume={run.folder}", "trainer.max_epochs=3"]) == 0
    assert len(curves(run)["loss"]) > steps and run.read_values()
