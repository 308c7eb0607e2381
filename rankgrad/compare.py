"""Several losses on the same data, seeds and budget: one run each, and a table of mean and spread."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from .config import ConfigError, compose
from .evaluation import Report
from .history import Run

COLUMNS = ("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "NMI")


def compare(settings: Sequence[str], out: Path, jobs: int = 1) -> str:
    """Train every loss with every seed below `out`, and return the table (also written to compare.md and .json).

    A run that is finished is kept; one that was cut off is resumed.

    Args:
        settings: loss=a,b,c, seeds=0,1,2 and settings of `rankgrad train` for all runs. A variant of a loss carries
            its own settings after a colon, joined by "+": loss=pnp:alpha=1+variant=Ds.
        out: folder of the runs.
        jobs: runs at a time; each gets cores / jobs threads, unless threads= says otherwise.

    Raises:
        ConfigError: no loss, an unknown loss or setting, a folder that holds other settings, a run that failed.
    """
    losses, seeds, rest = _split(settings)
    rest = with_threads(rest, jobs)
    tasks: dict[tuple[str, int], list[str]] = {}
    for loss in losses:
        own = _own_settings(loss)
        compose([*rest, *own])  # a misspelt setting fails before the first run, not after an hour
        for seed in seeds:
            tasks[loss, seed] = [*rest, *own, f"seed={seed}"]
    out.mkdir(parents=True, exist_ok=True)
    same_settings(out / "settings.json", rest)
    errors = train_all({_folder(out, *key): task for key, task in tasks.items()}, jobs)
    failed = [f"{loss} seed {seed}: {errors[f]}" for loss, seed in tasks if (f := _folder(out, loss, seed)) in errors]
    table = _table(out, losses, seeds, rest)
    if failed:
        raise ConfigError("\n".join(["these runs failed:", *failed, "", table]))
    return table


def with_threads(settings: Sequence[str], jobs: int) -> list[str]:
    """The settings, with each run's share of the cores unless they say threads= themselves.

    Raises:
        ConfigError: jobs out of range.
    """
    if jobs < 1:
        raise ConfigError(f"--jobs must be >= 1; got {jobs}")
    if any(setting.startswith("threads=") for setting in settings):
        return list(settings)
    return [*settings, f"threads={max((os.cpu_count() or 1) // jobs, 1)}"]


def train_all(tasks: Mapping[Path, Sequence[str]], jobs: int, command: str = "train") -> dict[Path, str]:
    """Train many runs, each in a process of its own; finished ones are kept, those that were cut off are resumed.

    One that fails does not stop the others.

    Args:
        tasks: folder of a run -> its settings.
        jobs: runs at a time.
        command: of rankgrad, that trains.

    Returns:
        Folder -> the last line of its log, for the runs that failed.
    """
    stop = threading.Event()

    def one(folder: Path) -> str | None:
        return None if stop.is_set() else _train(folder, list(tasks[folder]), command)

    errors = {}
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(tasks), desc="runs", unit="run") as bar:
        try:
            for folder, error in zip(tasks, pool.map(one, tasks), strict=True):
                bar.update()
                if error:
                    errors[folder] = error
        except KeyboardInterrupt:
            stop.set()
            raise
    return errors


def _split(settings: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    losses: list[str] = []
    seeds, rest = [0, 1, 2], []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "loss":
            losses = [name for name in re.split(r",(?![^\[]*\])", value) if name]  # k=[1,2] is one value
        elif key == "seeds":
            try:
                seeds = [int(seed) for seed in value.split(",")]
            except ValueError:
                raise ConfigError(f"seeds are integers such as seeds=0,1,2; got {value!r}") from None
        elif key in ("seed", "out", "resume"):
            raise ConfigError(f"{key}= belongs to a single run; compare takes seeds=0,1,2 and --out DIR")
        else:
            rest.append(setting)
    if not losses:
        raise ConfigError("which losses? loss=roadmap,pnp,smooth_ap")
    return losses, seeds, rest


def _folder(out: Path, loss: str, seed: int) -> Path:
    """Of one run: letters that any shell and file system takes, in a name a person reads; no two alike."""
    return out / f"{re.sub(r'[^A-Za-z0-9_.+=-]+', '-', loss)}-seed{seed}"


def _own_settings(loss: str) -> list[str]:
    name, _, own = loss.partition(":")
    return [f"loss={name}", *(f"loss.{setting}" for setting in own.split("+") if setting)]


def same_settings(path: Path, rest: list[str]) -> None:
    """Note the settings that all runs of a folder share.

    Raises:
        ConfigError: the folder holds runs with others.
    """
    if path.exists() and json.loads(path.read_text()) != rest:
        raise ConfigError(
            f"{path.parent} holds runs with other settings ({' '.join(json.loads(path.read_text()))}); choose another "
            "folder with --out"
        )
    path.write_text(json.dumps(rest))


def _train(folder: Path, settings: list[str], command: str) -> str | None:
    """One run in its own process; None, or the last line of its log if it failed."""
    run = Run(folder)
    if run.finished:
        return None
    task = [f"resume={folder}"] if run.config.exists() else [*settings, f"out={folder}"]
    folder.mkdir(parents=True, exist_ok=True)  # for the log; the run itself begins with its config.yaml
    with (folder / "log.txt").open("a") as log:
        words = [sys.executable, "-m", "rankgrad", *command.split(), *task]
        code = subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if code == 0:
        return None
    lines = (folder / "log.txt").read_text(errors="replace").splitlines()
    return f"{lines[-1] if lines else 'no output'} (exit {code}; see {folder / 'log.txt'})"


def _table(out: Path, losses: Sequence[str], seeds: Sequence[int], rest: Sequence[str]) -> str:
    records: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, list[float]] = {}
    for loss in losses:
        for seed in seeds:
            run = Run(_folder(out, loss, seed))
            if not run.finished:
                continue
            values = Report.from_json(run.after).values
            for name in COLUMNS:
                if name in values:
                    records.setdefault(loss, {}).setdefault(name, []).append(100 * values[name])
            facts = json.loads((run.folder / "facts.json").read_text())
            if facts["train_seconds"] is not None:
                seconds.setdefault(loss, []).append(facts["train_seconds"])
    columns = [name for name in COLUMNS if any(name in r for r in records.values())]
    ordered = sorted(records, key=lambda loss: -statistics.mean(records[loss]["mAP@R"]))
    width = max([len(loss) for loss in losses] + [4])
    lines = [
        f"| {'loss':{width}} | " + " | ".join(f"{name:>11}" for name in [*columns, "seconds"]) + " |",
        f"|{'-' * (width + 2)}|" + "|".join("-" * 12 + ":" for _ in [*columns, "s"]) + "|",
    ]
    for loss in ordered:
        cells = [_spread(records[loss][name]) for name in columns] + [_spread(seconds.get(loss, []), 0)]
        lines.append(f"| {loss:{width}} | " + " | ".join(f"{cell:>11}" for cell in cells) + " |")
    head = f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, per cent; settings: {' '.join(rest)}"
    text = "\n".join([head, "", *lines])
    (out / "compare.md").write_text(text + "\n", encoding="utf-8")
    content = {"settings": list(rest), "seeds": list(seeds), "values": records, "train_seconds": seconds}
    (out / "compare.json").write_text(json.dumps(content, indent=1))
    return text


def _spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
