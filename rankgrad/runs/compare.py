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
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from ..config import ConfigError, compose
from .folder import Run


@dataclass(frozen=True)
class Results:
    """Of the runs that a command trains.

    Attributes:
        file: of a run, with its metrics under "values".
        columns: of the table.
        main: the one that orders the table and is tested.
    """

    file: str
    columns: tuple[str, ...]
    main: str


RESULTS = {
    "train": Results("after.json", ("R@1", "R@2", "R@4", "R@8", "mAP@R", "AP", "NMI"), "mAP@R"),
    "detect train": Results("metrics.json", ("AP50", "AP50_11", "AP75"), "AP50"),
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
    out.mkdir(parents=True, exist_ok=True)
    same_settings(out / "settings.json", rest)
    errors = train_all({_folder(out, *key): task for key, task in tasks.items()}, jobs, command)
    failed = [f"{loss} seed {seed}: {errors[f]}" for loss, seed in tasks if (f := _folder(out, loss, seed)) in errors]
    table = _table(out, losses, seeds, rest, command)
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


def _own_settings(loss: str, rest: Sequence[str], tree: str) -> list[str]:
    """Of a variant: those whose first word is a group of the configuration are whole, others are the loss's."""
    name, _, own = loss.partition(":")
    chosen = [f"loss={name}"]
    if own:
        groups = tuple(f"{group!s}." for group in compose([*rest, *chosen], tree))
        chosen += [s if s.startswith(groups) else f"loss.{s}" for s in own.split("+") if s]
    return chosen


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


def _table(out: Path, losses: Sequence[str], seeds: Sequence[int], rest: Sequence[str], command: str) -> str:
    kind = RESULTS[command]
    values: dict[str, dict[str, dict[int, float]]] = {}  # loss -> column -> seed -> per cent
    seconds: dict[str, list[float]] = {}
    for loss in losses:
        for seed in seeds:
            run = Run(_folder(out, loss, seed))
            if not run.finished:
                continue
            measured = json.loads((run.folder / kind.file).read_text(encoding="utf-8"))["values"]
            for name in kind.columns:
                if name in measured:
                    values.setdefault(loss, {}).setdefault(name, {})[seed] = 100 * measured[name]
            facts = json.loads((run.folder / "facts.json").read_text())
            if facts["train_seconds"] is not None:
                seconds.setdefault(loss, []).append(facts["train_seconds"])
    columns = [name for name in kind.columns if any(name in of for of in values.values())]
    ordered = sorted(values, key=lambda loss: -statistics.mean(values[loss][kind.main].values()))
    rows = [
        [loss, *(_spread(list(values[loss][name].values())) for name in columns), _spread(seconds.get(loss, []), 0)]
        for loss in ordered
    ]
    head = f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, per cent; settings: {' '.join(rest)}"
    text = "\n".join([head, "", *_markdown(["loss", *columns, "seconds"], rows)])
    pairs = _pairs({loss: values[loss][kind.main] for loss in losses if loss in values})
    if pairs:
        against = ["difference", "paired t", "p", "seeds"]
        text += "\n".join(["", "", *_markdown([f"{kind.main}, against {next(iter(values))}", *against], pairs)])
    (out / "compare.md").write_text(text + "\n", encoding="utf-8")
    lists = {loss: {name: list(by.values()) for name, by in of.items()} for loss, of in values.items()}
    content = {"settings": list(rest), "seeds": list(seeds), "values": lists, "train_seconds": seconds}
    (out / "compare.json").write_text(json.dumps(content, indent=1))
    return text


def _pairs(values: Mapping[str, Mapping[int, float]]) -> list[list[str]]:
    """Rows of a table: each loss minus the first one, on the seeds that both have, three or more."""
    from ..papers.experiments.outcome import paired_t_test

    rows = []
    first = next(iter(values), None)
    for loss in [name for name in values if name != first]:
        seeds = sorted(values[loss].keys() & values[str(first)].keys())
        if len(seeds) >= 3:
            pair = [values[loss][seed] for seed in seeds], [values[str(first)][seed] for seed in seeds]
            difference, t, p = paired_t_test(*pair)
            shown = ["-" if number is None else f"{number:.2g}" for number in (t, p)]
            rows.append([loss, f"{difference:+.2f}", *shown, str(len(seeds))])
    return rows


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, the first column to the left."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        others = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return f"| {' | '.join([cells[0].ljust(widths[0]), *others])} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join("-" * (width + 1) + ":|" for width in widths[1:])
    return [line(head), rule, *map(line, rows)]


def _spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
