"""`rankgrad.fit`: any module, any labelled data, any loss; and what its folder says to whoever opens it later."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import Killed, die_after_writes, make_texts, same_results
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import rankgrad
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import NDCGLoss, SmoothAPLoss
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.given import given_table
from rankgrad_workbench.models import load_weights
from rankgrad_workbench.runs import signals
from rankgrad_workbench.runs.check import check
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError

pytestmark = pytest.mark.usefixtures("no_page")

CLASSES, EACH, WIDTH = 8, 6, 5
LABELS = torch.arange(CLASSES).repeat_interleave(EACH)
QUICK: dict[str, Any] = {
    "sampler.classes_per_batch": 4,
    "sampler.samples_per_class": 2,
    "sampler.batches_per_epoch": 3,
    "trainer.max_epochs": 2,
    "trainer.log_every_n_steps": 1,
    "evaluation.bootstrap": 0,
    "evaluation.clusters": "none",
    "threads": 1,
}


def inputs() -> Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randn(CLASSES, WIDTH, generator=g)[LABELS] + 0.7 * torch.randn(len(LABELS), WIDTH, generator=g)


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def fitted(out: Path, module: nn.Module | None = None, data: Any = None, loss: Any = "smooth_ap", **more: Any) -> Run:
    more = {"test": 0.5, "quiet": True, "settings": QUICK, **more}
    return rankgrad.fit(
        model() if module is None else module, (inputs(), LABELS) if data is None else data, loss, out=out, **more
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fitted(tmp_path_factory.mktemp("fit") / "run")


def test_a_run_of_any_module_leaves_what_a_run_leaves(finished):
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        *("config.yaml", "state.ckpt", "model.pt", "before.json", "after.json", "facts.json"),
        *("embeddings.npz", "report.html", "health.json", "logs", "checksums.sha256"),
    }
    assert not check(finished.folder).wrong
    with np.load(finished.embeddings) as file:
        assert file["embeddings"].shape == (CLASSES // 2 * EACH, 4)


def test_the_module_is_trained_in_place_and_its_weights_are_kept(finished, tmp_path):
    module = model()
    run = fitted(tmp_path / "run", module, resume=True)
    assert same_results(run.folder, finished.folder)
    kept, _ = load_weights(run.weights, model(1))
    for mine, theirs, untrained in zip(module.parameters(), kept.parameters(), model().parameters(), strict=True):
        assert torch.equal(mine, theirs) and not torch.equal(mine, untrained)
    again = model(2)  # of a finished run the weights are loaded
    assert fitted(tmp_path / "run", again, resume=True).folder == run.folder
    assert torch.equal(again[0].weight, module[0].weight)


def process_state() -> dict[str, Any]:
    """What a training could change for the whole process."""
    loggers = [logging.getLogger(name) for name in ["", *logging.root.manager.loggerDict]]
    return {
        "levels": {each.name: (each.level, each.disabled, len(each.handlers)) for each in loggers},
        "filters": list(warnings.filters),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signals.ASKED},
    }


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.usefixtures("finished")  # by now everything is imported
def test_the_process_is_afterwards_as_it_was_also_after_an_error(tmp_path, monkeypatch, fails):
    def loss(embeddings: Tensor, labels: Tensor) -> Tensor:
        if fails:
            raise KeyError("in mid training")
        return embeddings.square().sum()

    warnings.resetwarnings()
    torch.set_num_threads(2)
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.INFO)
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "4")
    random.seed(5)
    np.random.seed(6)
    network = model(7)
    before = process_state()
    with pytest.raises(KeyError, match="in mid training") if fails else nullcontext():
        fitted(tmp_path / "run", network, loss=loss, settings={**QUICK, "trainer.max_epochs": 1})
    after = process_state()
    assert [name for name in before if before[name] != after[name]] == []


def test_a_run_that_was_cut_off_goes_on_with_the_same_script(finished, tmp_path):
    often = {**QUICK, "checkpoint_minutes": 0}
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 3)
        with pytest.raises(Killed):
            fitted(tmp_path / "run", settings=often, resume=True)
    run = fitted(tmp_path / "run", model(7), settings=often, resume=True)  # whatever the weights were
    assert same_results(run.folder, finished.folder)


def test_a_run_goes_on_with_its_own_settings_and_data_alone(finished, tmp_path):
    with pytest.raises(ConfigError, match="holds a run already"):
        fitted(finished.folder)
    with pytest.raises(ConfigError, match=r"optimizer.lr \(then 0.001, now 0.1\)"):
        fitted(finished.folder, settings={**QUICK, "optimizer.lr": 0.1}, resume=True)
    with pytest.raises(ConfigError, match=r"loss.name \(then .*SmoothAPLoss.*now"):
        fitted(fitted(tmp_path / "a", loss=SmoothAPLoss(0.01)).folder, loss=SmoothAPLoss(0.1), resume=True)
    longer = {**QUICK, "trainer.max_epochs": 3}
    with pytest.raises(ConfigError, match="the data .*began: content"):
        fitted(tmp_path / "a", data=(2 * inputs(), LABELS), loss=SmoothAPLoss(0.01), settings=longer, resume=True)
    run = fitted(tmp_path / "a", loss=SmoothAPLoss(0.01), settings=longer, resume=True)
    assert run.read_facts()["epochs"] == 3


class Pairs(Dataset[Any]):
    """(input, label) pairs of dicts."""

    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, row: int) -> Any:
        return {"values": inputs()[row], "number": row}, f"class {int(LABELS[row])}"


class OfDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        assert batch["number"].dtype == torch.int64
        return self.layer(batch["values"])


class OfTexts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(256, 4)

    def forward(self, texts: list[str]) -> Tensor:
        return torch.cat([self.table(torch.tensor([list(text.encode())])) for text in texts])


def pull(embeddings: Tensor, labels: Tensor) -> Tensor:
    rows = F.normalize(embeddings, dim=1)
    return ((labels.unsqueeze(0) != labels.unsqueeze(1)) * (rows @ rows.T)).mean()


TEXTS = [f"{'abcdefgh'[label] * 4} word {row}" for row, label in enumerate(LABELS.tolist())]


@pytest.mark.parametrize(
    ("module", "data", "loss"),
    [
        (OfDicts(), Pairs(), NDCGLoss()),
        (OfTexts(), (TEXTS, [f"class {label}" for label in LABELS.tolist()]), pull),
        (nn.Linear(WIDTH, 3), (inputs().double().numpy(), LABELS.numpy()), "pml/triplet"),
    ],
    ids=["pairs of dicts", "texts and a function", "arrays and a loss of others"],
)
def test_data_and_losses_of_all_kinds(module, data, loss, tmp_path, with_page, capsys):
    if isinstance(loss, str):
        pytest.importorskip("pytorch_metric_learning")
        data = (data[0].astype(np.float32), data[1])
    run = fitted(tmp_path / "run", module, data, loss, test=None)
    report = run.read_values()
    assert 0 < report["mAP@R"] <= 1
    with np.load(run.embeddings) as file:
        assert len(file["embeddings"]) == len(LABELS)  # no test: the training rows
        assert ("texts" in file) == isinstance(module, OfTexts)
    told = capsys.readouterr().out
    assert "the default for images" not in told and "CalledLoss" not in told
    assert getattr(loss, "__name__", "") in told  # the name of what was handed over
    assert "evaluated on its training rows" in run.page.read_text(encoding="utf-8")


def test_a_data_set_of_ours_by_its_name(tmp_path):
    settings = {**QUICK, "data.root": make_texts(tmp_path / "mine.csv")}
    run = fitted(tmp_path / "run", OfTexts(), "text", test=None, settings=settings)
    with np.load(run.embeddings) as file:
        assert len(set(file["labels"].tolist())) == 5  # its own division: half of the classes


def test_a_loss_that_gives_no_number_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"one number, .*shape \(8, 4\)"):
        fitted(tmp_path / "run", loss=lambda embeddings, labels: embeddings)


def test_a_memory_is_asked_for_by_a_setting(tmp_path):
    with pytest.raises(TypeError, match=r'settings={"memory": "sum"}'):
        fitted(tmp_path / "run", loss=CrossBatchMemory(SmoothAPLoss(), size=20))


def test_what_others_make_of_the_folder(finished, tmp_path, capsys):
    for words, said in (
        (["embed", str(finished.folder), str(tmp_path)], "only your own code can build"),
        (["export", str(finished.folder), "-o", str(tmp_path / "x.onnx")], "only your own code can build"),
        (["train", f"resume={finished.folder}", "trainer.max_epochs=9"], "call rankgrad.fit with the same data again"),
        (["train", "data=_given"], "call rankgrad.fit with the same data again"),
    ):
        assert main(words) == 2, words
        assert said in capsys.readouterr().err, words
    assert main(["evaluate", str(finished.embeddings)]) == 0
    assert main(["report", str(finished.folder), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "call rankgrad.fit with the same data again" in page and "SmoothAPLoss" in page


class Pair(nn.Module):
    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        return batch, batch


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"module": Pair()}, TypeError, "must return embeddings, .* for 2 inputs it returned tuple"),
        ({"module": nn.Flatten(0)}, TypeError, r"for 2 inputs it returned torch.float32 \[10\]"),
        ({"data": (inputs(), LABELS[:5])}, ValueError, "48 inputs, 5 labels"),
        ({"data": inputs()}, TypeError, r"a pair \(inputs, labels\), whose"),
        ({"data": (inputs(), inputs())}, TypeError, "labels of data must be integers, strings"),
        ({"loss": 3}, TypeError, "a name, a loss object such as SmoothAPLoss.*got int"),
        ({"loss": LABELS}, TypeError, "got Tensor"),
        ({"loss": SmoothAPLoss}, TypeError, r"a loss object such as SmoothAPLoss\(\), .* got SmoothAPLoss"),
        ({"module": nn.Identity()}, ValueError, "the model has nothing to train"),
        ({"data": ([object()] * 48, LABELS)}, TypeError, "cannot be joined to a batch: .* or give collate="),
        ({"settings": ["trainer.max_epochs=1"]}, TypeError, "settings must be a dict of dotted names"),
        ({"settings": {"trainer": {"max_epochs": 1}}}, TypeError, "settings must be a dict of dotted names"),
        ({"loss": "smoothap"}, ConfigError, "did you mean 'smooth_ap'"),
        ({"loss": SmoothAPLoss(reduction="none")}, ValueError, "reduction='mean'"),
        ({"settings": {"optimizer.rate": 1}}, ConfigError, "unknown setting 'optimizer.rate'"),
        ({"settings": {"frozen": True}}, ConfigError, "frozen is an argument of fit, or for models that"),
        ({"test": 1.5}, ValueError, "a fraction of the classes"),
        ({"data": "glyphs", "test": 0.5}, ValueError, "has its own test rows"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_no_folder(given, error, message, tmp_path):
    with pytest.raises(error, match=message):
        fitted(tmp_path / "run", **given)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_classes_are_numbered_as_people_count():
    table = given_table((torch.zeros(4, 1), [10, 9, 10, 9]), test=(torch.zeros(2, 1), [7, 10]))
    assert table.class_names == ("7", "9", "10") and table.label.tolist() == [2, 1, 2, 1, 0, 2]
    assert table.select("test").label.tolist() == [0, 2] and len(table.select("train")) == 4


def test_rows_may_have_several_classes(tmp_path):
    several = torch.nn.functional.one_hot(LABELS, CLASSES).bool()
    several[:, 0] |= LABELS == 1
    table = given_table((inputs(), several), test=(inputs(), several))
    assert torch.equal(table.select("test").several, several)
    run = fitted(tmp_path / "run", data=(inputs(), several), test=(inputs(), several))
    with np.load(run.embeddings) as file:
        assert np.array_equal(file["labels"], several.numpy())
    with pytest.raises(ValueError, match="cannot be divided by class"):
        given_table((inputs(), several), test=0.5)
    several[3] = False
    with pytest.raises(ValueError, match="row 3 of data has no class"):
        given_table((inputs(), several))


SCRIPT = """
import sys
import torch
import rankgrad

classes = torch.arange(8).repeat_interleave(6)
inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))[classes]
inputs = inputs + torch.randn(48, 5, generator=torch.Generator().manual_seed(1))
torch.manual_seed(2)
model = torch.nn.Linear(5, 4)
settings = {"trainer.devices": int(sys.argv[2]), "trainer.accelerator": "cpu", "sampler.classes_per_batch": 4,
            "sampler.samples_per_class": 2, "trainer.max_epochs": 2}
run = rankgrad.fit(model, (inputs, classes), "smooth_ap", test=0.5, out=sys.argv[1], settings=settings, quiet=True)
print(f"{run.read_values()['AP']:.6f} {model.weight.detach().sum():.4f}")
"""


@pytest.mark.slow
def test_a_script_that_torchrun_starts_trains_one_model_on_all_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    python, torchrun = [sys.executable], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    def printed(*words: str) -> list[str]:
        done = subprocess.run([*python, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return re.findall(r"\d\.\d{6} -?\d\.\d{4}", done.stdout)  # lines of two processes may be mixed

    alone = printed(str(script), str(tmp_path / "one"), "1")
    assert printed(*torchrun, str(script), str(tmp_path / "two"), "2") == alone * 2
    done = subprocess.run([*python, str(script), str(tmp_path / "none"), "2"], capture_output=True, text=True)
    assert "start this program with torchrun" in done.stderr and not (tmp_path / "none").exists()
