"""Systems that are not POSIX: the library works there, and what trains or writes says what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from marks import slow_unless

import rankgrad
from rankgrad_workbench.cli import COMMANDS
from rankgrad_workbench.files.folders import lock

ROOT = Path(__file__).parents[1]
#: What such a system lacks. Torch and numpy have code for both, so they are imported before.
ELSEWHERE = """
import multiprocessing.context, os, signal, sys
import numpy, torch
for module in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules[module] = None
LACKING = {
    os: "O_NOFOLLOW O_NONBLOCK O_DIRECTORY killpg fork setsid getpgrp sysconf getloadavg mkfifo posix_fallocate",
    signal: "SIGHUP SIGKILL alarm SIGALRM pthread_kill",
    multiprocessing.context: "ForkServerProcess ForkProcess",
}
for module, names in LACKING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""
LIBRARY = """
from pathlib import Path
import rankgrad
from rankgrad import large_batch, losses, memory, metrics, ranks, relevance, search
from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad import trec
from rankgrad.evaluation import evaluate
labels = torch.arange(4).repeat(2)
points = torch.nn.functional.one_hot(labels, 8).float().requires_grad_()
for name in losses.LOSSES:
    losses.find(name)()(points, labels).backward()
assert evaluate(points.detach(), labels, intervals=0).values["R@1"] == 1
assert search.topk(points.detach(), points.detach(), 1)[1].shape == (8, 1)
from rankgrad_workbench.files import write_text
write_text(Path("q.txt"), "1 0 a 1\\n1 0 b 0\\n")
Path("a.run").write_text("1 Q0 a 1 2.5 x\\n1 Q0 b 2 1.5 x\\n")
assert trec.evaluate("a.run", "q.txt", ["map"]).values["a"]["map"] == 1
"""
COMMAND = "from rankgrad_workbench import cli; sys.exit(cli.main(sys.argv[1:]))"
NEEDS = r" needs a POSIX system such as Linux or macOS, because .*; this one is \w+\. Losses, metrics, .* work here too"


def elsewhere(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ELSEWHERE + code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_library_works_wherever_torch_does(tmp_path):
    done = elsewhere(LIBRARY, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def test_what_trains_or_locks_in_python_says_what_it_needs(tmp_path, monkeypatch):
    fit = rankgrad.fit  # what it imports has code for both kinds of systems, and warns
    monkeypatch.setitem(sys.modules, "fcntl", None)
    labels = torch.arange(4).repeat(4)
    points = torch.nn.functional.one_hot(labels, 8).float()
    with pytest.raises(OSError, match=f"training{NEEDS}"):
        fit(torch.nn.Linear(8, 2), (points, labels), out=tmp_path / "run")
    with pytest.raises(OSError, match=f"this index{NEEDS}"), lock(tmp_path, "this index"):
        pass
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", slow_unless((), ["train", "compare"]))
def test_a_command_that_trains_ends_with_one_line_before_it_reads_anything(name, tmp_path):
    assert name in COMMANDS
    done = elsewhere(COMMAND, name, "data=folder", "data.root=nowhere", folder=tmp_path)
    assert re.fullmatch(rf"rankgrad: rankgrad {name}{NEEDS}\n", done.stderr), done.stderr
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])


def test_the_metadata_name_the_systems():
    named = re.findall(r'"Operating System :: (.*)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert named == ["MacOS", "POSIX"]
