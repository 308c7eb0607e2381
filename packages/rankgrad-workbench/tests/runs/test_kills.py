"""A run that is killed at any moment, and resumed, ends as one that was not: weights, reports, logs and health.

Runs are children by fork of this process, which has imported everything: a kill costs a second. A few of the kills are
in the default tests, all of them in `make test-all`.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from forks import forked, start_by_fork, wait
from killed_runs import EVERY_STEP, Killed, kill_at_call, same
from marks import slow_unless
from small_runs import make_photos, small, train
from small_tables import one_list
from small_tables import settings as table_settings

from rankgrad_workbench.cli import main
from rankgrad_workbench.files.folders import HOLDER, LOCK
from rankgrad_workbench.runs.children import Children
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.tasks.scores import task as scores

KINDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "memory": ("memory=sum", "memory.warmup=0", "memory.size=16", "evaluation.every=1"),
    "frozen": ("frozen=true", "model.head=linear"),
    "disk cache": ("data.cache=disk",),
    "tensorboard": ("loggers=[csv,tensorboard]",),
    "scores": ("model.dropout=0.2", "evaluation.every=1"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    root = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        photos = make_photos(root / "photos")
        begun = train(*small(photos, "trainer.max_epochs=1"), f"out={root / 'begun'}")
        rows = one_list(root / "rows.csv")
        yield {"root": root, "photos": photos, "begun": begun.folder, "rows": rows}


def run_settings(places: dict[str, Path], kind: str) -> list[str]:
    if kind == "scores":
        return [*table_settings(places["rows"], *KINDS[kind]), EVERY_STEP]
    more = [f"init={places['begun']}"] if kind == "frozen" else []
    return [*small(places["photos"], *KINDS[kind]), *more, EVERY_STEP]


def go(kind: str, settings: list[str]) -> Run:
    if kind == "scores":
        return scores.train(compose(settings, "scores"), quiet=True)
    return retrieval.train(compose(settings), quiet=True)


@pytest.fixture(scope="module")
def undisturbed(places) -> Callable[[str], Run]:
    found: dict[str, Run] = {}

    def make(kind: str) -> Run:
        if kind not in found:
            found[kind] = go(kind, [*run_settings(places, kind), f"out={places['root'] / kind}"])
        return found[kind]

    return make


def killed(places: dict[str, Path], kind: str) -> Killed:
    """A kind of run, for the kills."""
    return Killed(partial(go, kind), run_settings(places, kind), ["data.root=."] if kind == "scores" else [])


@pytest.mark.parametrize("kind", slow_unless({"memory"}, ["memory", "scores"]))
def test_a_run_killed_at_random_moments_ends_like_a_whole_one(places, undisturbed, tmp_path, kind):
    killed(places, kind).at_random(tmp_path / "run", kills=3, seed=0)
    same(Run(tmp_path / "run"), undisturbed(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_survives_many_kills(places, undisturbed, tmp_path, kind):
    hit, seed = 0, 0
    while hit < 18:
        hit += killed(places, kind).at_random(tmp_path / str(seed), kills=6, seed=seed)
        same(Run(tmp_path / str(seed)), undisturbed(kind))
        seed += 1
    print(f"{kind}: {hit} kills in {seed} runs, all ended alike")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "scores"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_run_killed_at_every_rename_and_flush_ends_like_a_whole_one(places, undisturbed, tmp_path, name, after, kind):
    killed(places, kind).at_every_call(name, after, tmp_path, undisturbed(kind))


def kill_family(process: subprocess.Popen[bytes], alone: bool) -> None:
    """Kill a process and its children at once; alone: the children see that it died, and end by themselves."""
    process.send_signal(signal.SIGSTOP)  # it starts no others
    family = psutil.Process(process.pid).children(recursive=True)
    for each in [] if alone else family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.kill()
    process.wait()
    assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.slow
def test_a_run_of_two_processes_survives_kills(places, tmp_path):
    settings = small(
        places["photos"],
        "trainer.accelerator=cpu",
        "memory=sum",
        "memory.warmup=0",
        "memory.size=null",
        "memory.batches=2",
    )

    def words(folder: Path) -> list[str]:
        there = (folder / "config.yaml").exists()
        more = [f"resume={folder}"] if there else [*settings, "trainer.devices=2", EVERY_STEP, f"out={folder}"]
        return [sys.executable, "-m", "rankgrad", "train", *more]

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begin = time.monotonic()
    assert subprocess.run(words(tmp_path / "whole"), **quiet, check=False).returncode == 0
    seconds = time.monotonic() - begin  # most of it goes to starting Python, and no kill is to be earlier than that
    dice, hit, trial = random.Random(0), 0, 0
    while hit < 5:
        trial += 1
        cut = tmp_path / f"cut{trial}"
        for number in range(3):
            begun = subprocess.Popen(words(cut), **quiet, start_new_session=True)
            time.sleep(dice.uniform(0.4, 0.9) * seconds)
            if begun.poll() is None:
                hit += 1
                kill_family(begun, alone=number == 1)
        assert subprocess.run(words(cut), **quiet, check=False).returncode == 0
        same(Run(cut), Run(tmp_path / "whole"))
    print(f"devices=2: {hit} kills in {trial} runs, all ended alike")


COMMANDS = {  # a run that dies alone counts as a trial that failed: of a search, none is killed so
    "compare": (
        "loss=roadmap,pnp,supap",
        "seeds=0",
        "memory=sum",
        "memory.warmup=0",
        "memory.size=null",
        "memory.batches=2",
    ),
    "tune": ("loss=supap,pnp", "trials=1", "folds=2", "seeds=0", "space.model.head=linear,layer_norm"),
}


def command(places: dict[str, Path], name: str, out: Path) -> list[str]:
    tiny = ("sampler.classes_per_batch=2", "sampler.batches_per_epoch=2") if name == "tune" else ()
    return [name, *COMMANDS[name], *small(places["photos"], *tiny, EVERY_STEP), "-j", "2", "-o", str(out)]


def begin(words: list[str], before: Callable[[], object] = lambda: None) -> int:
    """A process that works at a command; its number."""

    def work() -> int:
        with pytest.MonkeyPatch.context() as patch:
            for how in ("start", "fork"):
                patch.setattr(Children, how, start_by_fork)
            before()
            return main(words)

    return forked(work, log_of(words))


def log_of(words: list[str]) -> Path:
    return Path(f"{words[-1]}.log")


def finish(words: list[str]) -> None:
    """Work at a command to its end."""
    assert wait(begin(words)) == 0, log_of(words).read_text()


@pytest.fixture(scope="module")
def uncut(places) -> Callable[[str], tuple[Path, float]]:
    """Give the folder of a command that nothing killed, and its seconds."""
    found: dict[str, tuple[Path, float]] = {}

    def make(name: str) -> tuple[Path, float]:
        if name not in found:
            began = time.monotonic()
            finish(command(places, name, places["root"] / name))
            found[name] = places["root"] / name, time.monotonic() - began
        return found[name]

    return make


def same_tables(one: Path, other: Path) -> None:
    """Raise unless two commands have the same runs, and tables that differ in nothing but how long those took."""
    runs = sorted(path.parent.relative_to(other) for path in other.rglob("config.yaml"))
    assert runs == sorted(path.parent.relative_to(one) for path in one.rglob("config.yaml")) and len(runs) >= 3
    for run in runs:
        for left in (LOCK, HOLDER):  # of a run that was killed when all its files were written
            (one / run / left).unlink(missing_ok=True)
        same(Run(one / run), Run(other / run))
    for path in other.rglob("compare.json"):
        ours, theirs = (json.loads((root / path.relative_to(other)).read_text()) for root in (one, other))
        assert {**ours, "train_seconds": None} == {**theirs, "train_seconds": None}
    for path in other.glob("trials.csv"):
        tables = [list(csv.DictReader((root / path.name).read_text().splitlines())) for root in (one, other)]
        ours, theirs = ([{**row, "seconds": None, "steps": None} for row in table] for table in tables)
        assert ours == theirs
    files = [{path.relative_to(root) for path in root.rglob("*")} for root in (one, other)]
    assert files[0] == files[1]


def kill_some(number: int, whom: str) -> bool:
    """Kill a command, one of its runs, or all its processes; whether it still worked. Nothing of it is left running."""
    os.kill(number, signal.SIGSTOP)  # it starts no others
    family = psutil.Process(number).children(recursive=True)
    runs = psutil.Process(number).children()
    for each in {"parent": [], "child": runs[-1:], "all": family}[whom]:
        each.kill()
    if whom != "child":
        os.kill(number, signal.SIGKILL)
    os.kill(number, signal.SIGCONT)
    status = wait(number)
    assert psutil.wait_procs(family, timeout=60)[1] == []
    if whom == "child" and runs:
        assert status in (0, 1, 2)  # it says which run failed, unless that one had just ended
        return status != 0
    return status == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_several_runs_survive_many_kills(places, uncut, tmp_path, name):
    whole, seconds = uncut(name)
    dice, hit, trial = random.Random(0), 0, 0
    while hit < 12:
        trial += 1
        cut = tmp_path / str(trial)
        for whom in dice.choices(["all", "parent", *(["child"] if name == "compare" else [])], k=6):
            number = begin(command(places, name, cut))
            time.sleep(dice.uniform(0.02, 0.6) * seconds)
            hit += kill_some(number, whom)
        finish(command(places, name, cut))
        same_tables(cut, whole)
    print(f"{name} -j 2: {hit} kills in {trial} folders, all ended alike")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_comparison_killed_at_every_rename_and_flush_ends_like_a_whole_one(places, uncut, tmp_path, call, after):
    number = 0
    while True:
        number += 1
        words = command(places, "compare", tmp_path / str(number))
        process = begin(words, kill_at_call(call, number, after, signal.SIGSTOP))
        if not os.WIFSTOPPED(os.waitpid(process, os.WUNTRACED)[1]):
            break  # it has fewer calls than that
        assert kill_some(process, "parent")
        finish(words)
        same_tables(tmp_path / str(number), uncut("compare")[0])
    assert number > 3
    print(f"compare -j 2: killed {'after' if after else 'before'} each of {number - 1} calls of os.{call}, all alike")
