"""The LightningModule of the examples on two devices ends where it ends on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lightning", reason="lightning is an extra")
pytest.importorskip("torchmetrics", reason="torchmetrics is an extra")

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning_module.py"


RECORD = """
def record(rank, value):
    with open(f"of_{rank}.txt", "a") as file:
        print(value, file=file)
"""


def measured(folder: Path, devices: str) -> list[list[float]]:
    """[process][epoch] what the example prints, if its trainer gets these arguments, too."""
    folder.mkdir()
    source = EXAMPLE.read_text(encoding="utf-8")
    source = source.replace("max_epochs=5,", f'max_epochs=2, accelerator="cpu", {devices},')
    source = source.replace('print("mAP@R", ', "record(self.global_rank, ")  # two processes would mix their lines
    script = folder / "script.py"
    script.write_text(RECORD + source, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return [[float(line) for line in path.read_text().split()] for path in sorted(folder.glob("of_*.txt"))]


def test_the_example_on_two_devices_has_the_numbers_of_one(tmp_path):
    [alone] = measured(tmp_path / "one", "devices=1")
    assert len(alone) == 3 and alone[0] < alone[1] < alone[2]  # the first is of the check before training
    both = measured(tmp_path / "two", 'devices=2, strategy="ddp"')
    assert both == [pytest.approx(alone, abs=1e-6)] * 2
