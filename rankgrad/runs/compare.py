"""Several losses on the same data, seeds and budget: one run each, and a table of mean and spread."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ..config import ConfigError, compose
from ..files import load_json, lock, remove_leftovers, write_text
from ..tables import markdown
from . import signals
from .children import Children
from .folder import Run
from .statistics import paired_t_test, spread


@dataclass(frozen=True)
class Results:
    """Of the runs that a command trains.

    Attributes:
        columns: of the table.
        main: the one that orders the table and is tested.
    """

    columns: tuple[str, ...]
    main: str


RESULTS = {
    "train": Results(("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "NMI"), "mAP@R"),
    "detect train": Results(("AP50", "AP50_11", "AP75"), "AP50"),
}


def compare(settings: Sequence[str], out: Path, jobs: int = 1, command: str = "train") -> str:
    """Train every loss with every seed below `out`, and return the table (also written to compare.md and .json).

    A run that is finished is kept; one that was cut off is resumed. Below the table, each loss against the first one
    of loss=: the mean difference over the seeds, with a paired t-test.

    Args:
        settings: loss=a,b,c, seeds=0,1,2 and settings of the command for all runs. A variant of a loss carries its own
            settings after a colon, joined by "+": loss=pnp:alpha=1+variant=Ds. Those of other groups than loss go
            there by their whole name: loss=pnp:optimizer.lr=0.01.
        out: folder of the runs.
        jobs: runs at a time; each gets cores / jobs threads, unless threads= says otherwise.
        command: that trains, one of `RESULTS`.

    Raises:
        ConfigError: no loss, an unknown loss or setting, a folder that holds other settings, a run that failed.
        LockedError: another process works in the folder.
    """
    losses, seeds, rest = _split(settings)
    rest = with_threads(rest, jobs)
    tasks: dict[tuple[str, int], list[str]] = {}
    tree = command.split()[0]
    for loss in losses:
        own = _own_settings(loss, rest, tree)
        compose([*rest, *own], tree)  # a misspelt setting fails before the first run, not after an hour
        for seed in seeds:
            tasks[loss, seed] = [*rest, *own, f"seed={seed}"]
    with shared(out, rest):
        errors = train_all({_folder(out, *key): task for key, task in tasks.items()}, jobs, command)
        table = _table(out, losses, seeds, rest, command)
    failed = [f"{loss} seed {seed}: {errors[f]}" for loss, seed in tasks if (f := _folder(out, loss, seed)) in errors]
    if failed:
        raise ConfigError("\n".join(["these runs failed:", *failed, "", table]))
    return table


def folders(settings: Sequence[str], out: Path) -> dict[str, list[Path]]:
    """Where `compare` puts the runs of these settings: loss -> folders, one for each seed."""
    losses, seeds, _ = _split(settings)
    return {loss: [_folder(out, loss, seed) for seed in seeds] for loss in losses}


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
    errors: dict[Path, str] = {}
    waiting = [folder for folder in tasks if not Run(folder).finished]
    running: dict[subprocess.Popen[bytes], Path] = {}
    done = len(tasks) - len(waiting)
    with Children() as children, tqdm(total=len(tasks), initial=done, desc="runs", unit="run") as bar:
        while waiting or running:
            while waiting and len(running) < jobs:
                folder = waiting.pop(0)
                running[_start(children, folder, tasks[folder], command)] = folder
            try:
                process = children.wait()
            except KeyboardInterrupt:
                signals.say(f"stopping; {len(running)} of the runs save their state{signals.ONCE_MORE}")
                raise
            folder = running.pop(process)
            if process.returncode:
                errors[folder] = _last_words(folder, process.returncode)
            bar.update()
    return {folder: errors[folder] for folder in tasks if folder in errors}


def _start(children: Children, folder: Path, settings: Sequence[str], command: str) -> subprocess.Popen[bytes]:
    """One run in its own process."""
    trusted = [setting for setting in settings if setting.startswith("trust=")]  # the folder does not know it
    words = [f"resume={folder}", *trusted] if Run(folder).config.exists() else [*settings, f"out={folder}"]
    folder.mkdir(parents=True, exist_ok=True)  # for the log; the run itself begins with its config.yaml
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        return children.start([*command.split(), *words], log=log)


def _last_words(folder: Path, code: int) -> str:
    log = folder / "log.txt"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{lines[-1] if lines else 'no output'} (exit {code}; see {log})"


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


def _own_settings(loss: str, rest: Sequence[str], tree: str) -> list[str]:
    """Of a variant: those whose first word is a group of the configuration are whole, others are the loss's."""
    name, _, own = loss.partition(":")
    chosen = [f"loss={name}"]
    if own:
        groups = tuple(f"{group!s}." for group in compose([*rest, *chosen], tree))
        chosen += [s if s.startswith(groups) else f"loss.{s}" for s in own.split("+") if s]
    return chosen


@contextmanager
def shared(out: Path, settings: Sequence[str]) -> Iterator[None]:
    """Hold a folder of runs for this process alone, and note the settings that all its runs share.

    Raises:
        ConfigError: the folder holds runs with others.
        LockedError: another process holds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    with lock(out, "this folder of runs"):
        remove_leftovers(out)
        path = out / "settings.json"
        if not path.exists():
            write_text(path, json.dumps(list(settings)))
        there = load_json(path)
        if there != list(settings):
            raise ConfigError(
                f"{out} holds runs with other settings ({' '.join(map(str, there))}); choose another folder with --out"
            )
        yield


def _table(out: Path, losses: Sequence[str], seeds: Sequence[int], rest: Sequence[str], command: str) -> str:
    kind = RESULTS[command]
    values: dict[str, dict[str, dict[int, float]]] = {}  # loss -> column -> seed -> per cent
    seconds: dict[str, list[float]] = {}
    for loss in losses:
        for seed in seeds:
            run = Run(_folder(out, loss, seed))
            if not run.finished:
                continue
            measured = run.read_values()
            for name in kind.columns:
                if name in measured:
                    values.setdefault(loss, {}).setdefault(name, {})[seed] = 100 * measured[name]
            took = run.read_facts()["train_seconds"]
            if took is not None:
                seconds.setdefault(loss, []).append(took)
    columns = [name for name in kind.columns if any(name in of for of in values.values())]
    ordered = sorted(values, key=lambda loss: -statistics.mean(values[loss][kind.main].values()))
    rows = [
        [loss, *(_spread(list(values[loss][name].values())) for name in columns), _spread(seconds.get(loss, []), 0)]
        for loss in ordered
    ]
    head = f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, per cent; settings: {' '.join(rest)}"
    text = f"{head}\n\n{markdown([['loss', *columns, 'seconds'], *rows])}"
    pairs = _pairs({loss: values[loss][kind.main] for loss in losses if loss in values})
    if pairs:
        against = [f"{kind.main}, against {next(iter(values))}", "difference", "paired t", "p", "seeds"]
        text += f"\n\n{markdown([against, *pairs])}"
    write_text(out / "compare.md", text + "\n")
    lists = {loss: {name: list(by.values()) for name, by in of.items()} for loss, of in values.items()}
    content = {"settings": list(rest), "seeds": list(seeds), "values": lists, "train_seconds": seconds}
    write_text(out / "compare.json", json.dumps(content, indent=1))
    return text


def _pairs(values: Mapping[str, Mapping[int, float]]) -> list[list[str]]:
    """Rows of a table: each loss minus the first one, on the seeds that both have, three or more."""
    rows = []
    first = next(iter(values), None)
    for loss in [name for name in values if name != first]:
        seeds = sorted(values[loss].keys() & values[str(first)].keys())
        if len(seeds) >= 3:
            pair = [values[loss][seed] for seed in seeds], [values[str(first)][seed] for seed in seeds]
            test = paired_t_test(*pair)
            shown = ["-" if number is None else f"{number:.2g}" for number in (test.t, test.p)]
            rows.append([loss, f"{test.mean:+.2f}", *shown, str(test.n)])
    return rows


def _spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "-"
    mean, deviation = spread(values)
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
