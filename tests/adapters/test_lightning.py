"""Lightning: the example on two devices ends where it ends on one; a resumed training sees the batches to come."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from rankgrad.batches.samplers import MPerClassBatchSampler

lightning = pytest.importorskip("lightning", reason="lightning is an extra")
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


@pytest.mark.slow  # starts Lightning three times; losses on two processes are in tests/test_distributed.py
def test_the_example_on_two_devices_has_the_numbers_of_one(tmp_path):
    [alone] = measured(tmp_path / "one", "devices=1")
    assert len(alone) == 3 and alone[0] < alone[1] < alone[2]  # the first is of the check before training
    both = measured(tmp_path / "two", 'devices=2, strategy="ddp"')
    assert both == [pytest.approx(alone, abs=1e-6)] * 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_training_sees_the_batches_that_were_to_come(tmp_path, workers):
    class Records(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Linear(1, 1)
            self.sampler = MPerClassBatchSampler(torch.arange(40) // 8, 2, samples_per_class=4)
            self.batches: dict[int, list[list[int]]] = {}

        def training_step(self, batch, _):
            self.batches.setdefault(self.current_epoch, []).append(batch[1].tolist())
            return self.network(batch[0]).mean()

        def train_dataloader(self):
            if workers:  # they ask for batches before Lightning tells the epoch
                self.sampler.set_epoch(self.trainer.current_epoch)
            data = TensorDataset(torch.zeros(40, 1), torch.arange(40))
            return DataLoader(data, batch_sampler=self.sampler, num_workers=workers)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    def trained(epochs, resume=None):
        module = Records()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", enable_model_summary=False, **quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few workers
            trainer.fit(module, ckpt_path=resume)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module.batches

    whole, first = trained(4), trained(2)
    after = trained(4, resume=tmp_path / "2.ckpt")
    assert list(first) == [0, 1] and list(after) == [2, 3]
    assert first | after == whole and len({str(batches) for batches in whole.values()}) == 4
