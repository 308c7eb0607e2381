"""One run on several processes: started by the command or by torchrun, cut off and resumed, with errors told once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from forks import as_one
from marks import slow_unless
from small_runs import make_photos, same_results, small, train
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

import rankgrad
import rankgrad_workbench
from rankgrad.evaluation import Report
from rankgrad_workbench.runs import launch
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import compose

TWO = ("trainer.devices=2", "trainer.accelerator=cpu")
# batch norm would see half a batch, and Adam makes steps of rounding errors
PLAIN = ("model.freeze_batch_norm=true", "optimizer.name=sgd", "optimizer.lr=0.05", "loss=smooth_ap")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


def command(*settings: str) -> list[str]:
    return [sys.executable, "-m", "rankgrad", "train", *settings]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)


def close(one: Path, other: Path) -> None:
    """Same losses and embeddings up to rounding, which may exchange two items that are nearly level."""
    mine, expected = dict(curves(Run(one))["loss"]), dict(curves(Run(other))["loss"])
    assert len(expected) >= 6 and mine == pytest.approx(expected, abs=1e-5)
    for name in ("before.json", "after.json"):
        left, right = (Report.from_json(folder / name) for folder in (one, other))
        assert left.values == pytest.approx(right.values, abs=2e-3) and left.counts == right.counts  # a rank or two
    left, right = (np.load(folder / "embeddings.npz") for folder in (one, other))
    assert set(left) == set(right) and (left["names"] == right["names"]).all()
    np.testing.assert_allclose(left["embeddings"], right["embeddings"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by", slow_unless({"fork"}, ["fork", "the command"]))
def test_two_processes_train_and_evaluate_like_one(photos: Path, tmp_path: Path, by: str) -> None:
    extra = ("memory=sum", "memory.warmup=1", "sub_batch=3", "sampler.samples_per_class=3")
    words = [*small(photos, *PLAIN, *extra, *TWO), f"out={tmp_path / 'two'}"]
    if by == "fork":  # which have imported everything
        assert as_one(["train", *words], log := tmp_path / "log.txt") == [0, 0], log.read_text()
        told = log.read_text()
    else:
        done = run(*command(*words))
        assert done.returncode == 0, done.stderr
        told = done.stdout + done.stderr
    assert told.count("before  after") == 1 and told.count("images, 10 classes") == 1  # one process speaks
    assert '"processes": 2' in (tmp_path / "two" / "facts.json").read_text()
    one = train(*small(photos, *PLAIN, *extra), f"out={tmp_path / 'one'}")
    close(tmp_path / "two", one.folder)
    assert (tmp_path / "two" / "report.html").exists()


@pytest.mark.slow  # test_training.py kills a run of one process
def test_a_run_on_two_processes_goes_on_after_sigkill(photos: Path, tmp_path: Path) -> None:
    settings = small(photos, "model=timm", "model.name=test_resnet", "model.embedding_size=8", "++model.drop_rate=0.5")
    settings += [*TWO, "trainer.max_epochs=8"]
    whole = run(*command(*settings, f"out={tmp_path / 'whole'}"))
    assert whole.returncode == 0, whole.stderr
    out = tmp_path / "cut"
    process = subprocess.Popen(
        command(*settings, f"out={out}", "checkpoint_minutes=0"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while len(curves(Run(out)).get("loss", [])) < 8 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    for each in (*psutil.Process(process.pid).children(recursive=True), process):
        each.kill()
        each.wait()
    assert not Run(out).finished
    resumed = run(*command(f"resume={out}"))
    assert resumed.returncode == 0, resumed.stderr
    assert same_results(out, tmp_path / "whole")  # dropout's generators of both processes included


@pytest.mark.slow
def test_an_error_of_all_processes_is_told_once_in_our_words(photos: Path, tmp_path: Path) -> None:
    done = run(*command(*small(photos, *TWO, "loss.tau=0"), f"out={tmp_path / 'run'}"))
    assert done.returncode == 2
    assert re.fullmatch(r"rankgrad: loss: tau is a temperature in score units and must be .*; got 0\n", done.stderr)
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.slow
def test_torchrun_starts_the_same(photos: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "rankgrad"]
    done = run(*words, "train", *small(photos, *PLAIN, "trainer.accelerator=cpu"), f"out={tmp_path / 'two'}")
    assert done.returncode == 0, done.stderr
    close(tmp_path / "two", train(*small(photos, *PLAIN), f"out={tmp_path / 'one'}").folder)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ([], 1),
        (["trainer.devices=3"], 3),
        (["trainer.devices=auto"], 1),
        (["trainer.devices=-1"], 1),
        (["trainer.devices=[0,1]"], 2),
    ],
)
def test_the_number_of_processes_is_that_of_the_devices(settings: list[str], count: int) -> None:
    if torch.cuda.is_available():
        settings = [*settings, "trainer.accelerator=cpu"]
    assert launch.wanted(compose(settings)) == count


def failed(folder: Path, rank: int, code: int, error: Exception | None = None) -> ProcessFailure:
    """What is known of a process that failed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_ERROR_FILE", str(folder / f"{rank}.json"))
        try:
            if error is not None:
                raise error
        except Exception as raised:
            launch.report(raised)
    return ProcessFailure(rank, 1, code, str(folder / f"{rank}.json"))


def test_of_the_errors_of_several_processes_the_first_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first = failed(tmp_path, 1, 2, ValueError("tau must be > 0\nand finite"))
    second = failed(tmp_path, 0, launch.UNEXPECTED, RuntimeError("Connection closed by peer"))
    killed = failed(tmp_path, 2, -signal.SIGTERM)
    killed.timestamp = first.timestamp  # torch ends the others at once
    assert launch._told({0: second, 1: first, 2: killed}) == 2
    assert capsys.readouterr().err == "rankgrad: tau must be > 0\nand finite\n"


def test_an_error_that_nobody_foresaw_is_told_with_its_traceback_and_once(tmp_path: Path, capsys) -> None:
    code = launch.UNEXPECTED
    assert launch._told({rank: failed(tmp_path, rank, code, RuntimeError("a bug")) for rank in range(2)}) == 1
    shown = capsys.readouterr().err
    assert shown.count("RuntimeError: a bug") == 1 and shown.startswith("Traceback")


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (-signal.SIGKILL, 137, "rankgrad: process 1 was killed by SIGKILL\n"),
        (143, 143, ""),  # it was asked to end
        (3, 3, "rankgrad: process 1 failed with exit status 3\n"),
    ],
)
def test_a_process_that_says_nothing_is_named(tmp_path: Path, capsys, code, status, words) -> None:
    assert launch._told({1: failed(tmp_path, 1, code)}) == status and capsys.readouterr().err == words


@pytest.mark.slow
def test_several_processes_that_are_asked_to_end_save_their_state_and_say_how_to_go_on(photos, tmp_path) -> None:
    out = tmp_path / "run"
    words = command(*small(photos, *TWO, "trainer.max_epochs=5000"), f"out={out}")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not curves(Run(out)).get("loss") and process.poll() is None:
        time.sleep(0.1)
    process.terminate()
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 143 and told.count(f"continue with: rankgrad train resume={out}") == 1, told
    assert Run(out).state.exists() and not Run(out).finished and "Traceback" not in told


@pytest.mark.parametrize("installed", ["editable", "by PYTHONPATH"])
def test_a_folder_called_rankgrad_hides_the_package_neither_from_a_script_nor_from_the_processes_it_starts(
    tmp_path, installed
):
    sources = [str(Path(each.__file__).parents[1]) for each in (rankgrad, rankgrad_workbench)]
    venv.create(tmp_path / "venv", symlinks=True)
    [site] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    lines = [sysconfig.get_path("purelib"), *(sources if installed == "editable" else [])]
    (site / "paths.pth").write_text("\n".join(lines) + "\n")
    clone = tmp_path / "rankgrad"  # as git clone makes it
    for folder in ("src/rankgrad", "tests/runs", "docs"):
        (clone / folder).mkdir(parents=True)
    (clone / "src" / "rankgrad" / "__init__.py").write_text("raise ImportError('another clone')")
    script = tmp_path / "script.py"
    script.write_text("""
import rankgrad
from rankgrad_workbench.runs.children import Children
assert "fit" in dir(rankgrad), dir(rankgrad)
with Children() as children:
    children.start(["--version"])
    assert children.wait().returncode == 0
print(rankgrad.__file__)
""")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": os.pathsep.join(sources)} if installed == "by PYTHONPATH" else {}
    python = tmp_path / "venv" / "bin" / "python"
    done = subprocess.run([python, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted([rankgrad.__file__, f"rankgrad {rankgrad.__version__}"])
