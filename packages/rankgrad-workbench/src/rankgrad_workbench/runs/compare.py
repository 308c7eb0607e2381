"""Compares losses on the same data, seeds and budget: one run for each loss and seed, and a table of means."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from rankgrad._version import __version__
from rankgrad.common.plugins import registered
from rankgrad.common.progress import bar
from rankgrad.common.text import markdown
from rankgrad.evaluation.statistics import FEWEST_SEEDS, PairedDifference, caution, holm, paired_t_test, spread

from ..files import read_json, remove_leftovers, write_text
from ..files.folders import HOLDER, lock, refuse_links
from ..settings import PATHS, ConfigError, check_paths, compose
from ..settings.kinds import TASKS, of_command, of_settings
from ..settings.overrides import SEEDS
from ..settings.values import changed
from . import signals
from .children import Child, Children
from .folder import Run
from .launchers import LOCAL, Launcher, RunCommand, read_launcher
from .provenance import joined
from .run_warnings import (
    BELOW,
    FIRST_HIT,
    before_training,
    begun_groups,
    network,
    remarks_of,
    settings_in,
    together,
    warnings_of,
)

Following = Callable[[], tuple[Path, Sequence[str]] | None]
SETTINGS, JOURNAL = "settings.json", "journal.log"
OURS = "rankgrad"  # key in settings.json with our version: another program's file of this name does not have it
# Files that a comparison or a search writes in its folder.
WRITTEN = (
    *(SETTINGS, JOURNAL, "compare.md", "compare.json", "compare.html"),
    *("trials.csv", "tune.json", "tune.md", "trials", "final"),
)
MOST_SEEDS = 10_000
LONGEST = 200  # letters of a variant in the name of a folder; file systems allow 255 bytes
# Its slashes and its colon become dashes, and nothing is lost: before the first "=" there was no dash.
READABLE = re.compile(r"[A-Za-z0-9_.+]+(/[A-Za-z0-9_.+]+)*(:[A-Za-z0-9_.+]+=[A-Za-z0-9_.+=-]*)?")


def compare(settings: Sequence[str], out: Path, jobs: int = 1, command: str = "train") -> str:
    """Train every loss with every seed below `out`, and return the table (also written to compare.md and .json).

    A finished run is kept; an interrupted run is resumed. The table has a row of the untrained network. Below it, each
    loss is compared with the first one of loss=: the mean difference over the seeds; from four seeds on its 95 %
    interval and the size of a difference that these seeds can tell apart; from six on the p of a paired t-test. The
    warnings of all runs follow.

    Args:
        settings: loss=a,b,c, seeds=0,1,2 and settings of the command for all runs. A variant of a loss has its own
            settings after a colon, joined by "+": loss=pnp:alpha=1+variant=Ds. Settings outside of the group loss need
            their full name: loss=pnp:optimizer.lr=0.01+label_noise=0.2. launcher=submitit or launcher=ray trains on
            other machines, see `launchers`.
        out: folder of the runs.
        jobs: number of runs at a time; each gets cores / jobs threads, unless threads= is given.
        command: training command, see `tasks.TASKS`.

    Raises:
        ConfigError: no loss is given; a loss or setting is unknown; the folder holds other settings; a run failed.
        LockedError: another process uses the folder.
    """
    launcher, settings = read_launcher(settings)
    losses, seeds, rest = _split(settings)
    rest = with_threads(rest, jobs, launcher)
    variants = {loss: own_settings(loss, rest, of_command(command, rest).settings) for loss in losses}
    return compare_variants(variants, seeds, rest, out, jobs, command, launcher)


def compare_variants(
    variants: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    rest: Sequence[str],
    out: Path,
    jobs: int = 1,
    command: str = "train",
    launcher: Launcher = LOCAL,
) -> str:
    """`compare` with parsed arguments.

    Args:
        variants: name -> its own settings, including the loss.
        seeds: of each variant.
        rest: settings of all runs.
        out: folder of the runs.
        jobs: number of runs at a time.
        command: training command, see `tasks.TASKS`.
        launcher: of the runs.
    """
    tree = of_command(command, rest).settings
    for own in variants.values():
        check_paths(compose([*rest, *own], tree))  # a misspelt setting or path fails here, before the first run
    places = {(name, seed): _folder(out, name, seed) for name in variants for seed in seeds}
    tasks = {folder: [*rest, *variants[name], f"seed={seed}"] for (name, seed), folder in places.items()}
    with shared(out, rest):
        errors = train_all(tasks, out, jobs, command, launcher)
        finished: dict[str, dict[int, Run]] = {}
        for (name, seed), folder in places.items():
            if Run(folder).finished:
                finished.setdefault(name, {})[seed] = Run(folder)
        table = _table(out, finished, seeds, rest, command) if finished else ""
    failed: dict[str, list[str]] = {}  # why -> failed runs; often, all runs fail for the same reason
    for (name, seed), folder in places.items():
        if folder in errors:
            failed.setdefault(errors[folder].replace(f"{folder}/", ""), []).append(f"{name} seed {seed}")
    if failed:
        lines = [f"{', '.join(runs)}: {why}" for why, runs in failed.items()]
        raise ConfigError("\n".join(["these runs failed:", *lines, *(["", table] if table else [])]))
    return table


def folders(settings: Sequence[str], out: Path) -> dict[str, list[Path]]:
    """The folders that `compare` uses for these settings: loss -> one folder for each seed.

    >>> found = folders(["loss=pnp,roadmap", "seeds=0,1"], Path("runs"))
    >>> {loss: [path.name for path in paths] for loss, paths in found.items()}
    {'pnp': ['pnp-seed0', 'pnp-seed1'], 'roadmap': ['roadmap-seed0', 'roadmap-seed1']}
    """
    losses, seeds, _ = _split(settings)
    return folders_of(losses, seeds, out)


def folders_of(variants: Iterable[str], seeds: Sequence[int], out: Path) -> dict[str, list[Path]]:
    """The folders that `compare_variants` uses: name -> one folder for each seed."""
    return {name: [_folder(out, name, seed) for seed in seeds] for name in variants}


def with_threads(settings: Sequence[str], jobs: int, launcher: Launcher = LOCAL) -> list[str]:
    """The settings with threads=, each run's share of the cores of this machine, unless they contain threads=.

    A run on another machine uses the cores that the launcher gives it.

    Raises:
        ConfigError: jobs is < 1.
    """
    if jobs < 1:
        raise ConfigError(f"--jobs must be >= 1; got {jobs}")
    if not launcher.shares_cores or any(setting.startswith("threads=") for setting in settings):
        return list(settings)
    return [*settings, f"threads={max((os.cpu_count() or 1) // jobs, 1)}"]


def train_all(
    tasks: Mapping[Path, Sequence[str]], out: Path, jobs: int, command: str = "train", launcher: Launcher = LOCAL
) -> dict[Path, str]:
    """Train many runs, each in its own process. Finished runs are kept; interrupted runs are resumed.

    A run that fails does not stop the others.

    Args:
        tasks: folder of a run -> its settings.
        out: folder of all runs.
        jobs: number of runs at a time.
        command: training command of rankgrad.
        launcher: of the runs.

    Returns:
        Folder -> the last line of its log, for the runs that failed.
    """
    errors: dict[Path, str] = {}
    waiting = [(folder, settings) for folder, settings in tasks.items() if not Run(folder).finished]
    left = iter(waiting)
    with bar(total=len(tasks), initial=len(tasks) - len(waiting), delay=0, desc="runs", unit="run") as shown:

        def ended(folder: Path, error: str | None) -> None:
            if error is not None:
                errors[folder] = error
            shown.write(f"{folder.name}: {_result(Run(folder)) if error is None else error}", file=sys.stderr)
            shown.update()

        train_in_turn(lambda: next(left, None), ended, out, jobs, command, launcher, shown=shown)
    return errors


def _result(run: Run) -> str:
    """The main metrics of a run that ended, those of the untrained network, and what is wrong."""
    if not run.finished:
        return "no result yet"  # a launcher that only hands runs on
    values, before, begun = run.read_values(), run.read_untrained(), network(settings_in(run))
    told = [
        f"{name} {100 * values[name]:.1f}" + (f" ({begun} {100 * before[name]:.1f})" if name in before else "")
        for name in dict.fromkeys((FIRST_HIT, TASKS[run.kind].main_of(values)))
        if name in values
    ]
    return "; ".join([", ".join(told), *(each.text for each in warnings_of(run) if each.name != BELOW)])


def train_in_turn(
    following: Following,
    ended: Callable[[Path, str | None], object],
    out: Path,
    jobs: int,
    command: str = "train",
    launcher: Launcher = LOCAL,
    *,
    shown: Any = None,
) -> None:
    """Train runs, each in its own process. The next run may depend on the results of earlier ones.

    Args:
        following: returns (folder, settings) of the next run, or None if there is none now. It is called again after
            the end of each run. If no run is left and it returns None, this function returns.
        ended: is called with the folder of each run that ends, and the last line of its log if it failed, else None.
        out: folder of all runs.
        jobs: number of runs at a time.
        command: training command of rankgrad.
        launcher: of the runs.
        shown: a bar, beside which the names of the runs that are training are shown; None: there is none.
    """
    running: dict[Child, RunCommand] = {}
    with Children() as children:
        while True:
            while len(running) < jobs and (task := following()) is not None:
                run = RunCommand(task[0], tuple(task[1]), command)
                refuse_links(run.folder)
                run.folder.mkdir(parents=True, exist_ok=True)  # for the log; the run writes its config.yaml first
                running[launcher.start(run, children)] = run
            if not running:
                return
            if shown is not None:
                shown.set_postfix_str(", ".join(run.folder.relative_to(out).as_posix() for run in running.values()))
            try:
                process = children.wait()
            except KeyboardInterrupt:
                signals.say(f"stopping; {len(running)} of the runs save their state{signals.ONCE_MORE}")
                raise
            run = running.pop(process)
            ended(run.folder, run.last_words(process.returncode) if process.returncode else None)


def _split(settings: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    """(losses, seeds, settings of all runs)."""
    given = dict(setting.partition("=")[::2] for setting in settings)
    if single := sorted({"seed", "out", "resume"} & given.keys()):
        raise ConfigError(f"{single[0]}= is a setting of a single run; for a comparison, use seeds=0,1,2 and --out DIR")
    losses = read_losses(given.get("loss", ""))
    if not losses:
        raise ConfigError("no loss is given; name the losses to compare, such as loss=roadmap,pnp,smooth_ap")
    rest = [setting for setting in settings if not setting.startswith(("loss=", "seeds="))]
    return losses, read_seeds(given.get("seeds", "0,1,2")), rest


def read_losses(text: str) -> list[str]:
    """The losses in the value of loss=a,b:k=[1,2]. A list in brackets is one value. Each loss may be named once.

    >>> read_losses("supap,recall_at_k:k=[1,2]")
    ['supap', 'recall_at_k:k=[1,2]']
    """
    names = [name for name in re.split(r",(?![^\[]*\])", text) if name]
    if len(set(names)) < len(names):
        raise ConfigError(f"each loss may be named once; got {text!r}")
    return names


def read_seeds(text: str) -> list[int]:
    """The seeds in the value of seeds=0,1,2 or of seeds=0..9, which includes 0 and 9.

    >>> read_seeds("0..3"), read_seeds("7,1")
    ([0, 1, 2, 3], [7, 1])
    """
    first, dots, last = text.partition("..")
    try:
        numbers = range(int(first), int(last) + 1) if dots else [int(seed) for seed in text.split(",")]
    except ValueError:
        numbers = []
    fits = 0 < len(numbers) <= MOST_SEEDS and len(set(numbers)) == len(numbers)
    if not fits or min(numbers) < 0 or max(numbers) > SEEDS:
        raise ConfigError(
            f"seeds must be integers such as 0,1,2 or 0..9: at most {MOST_SEEDS}, different, >= 0 and <= {SEEDS}; "
            f"got {text!r}"
        )
    return list(numbers)


def _folder(out: Path, loss: str, seed: int) -> Path:
    """The folder of one run. Its name is readable and has only characters that are safe in shells and file systems.

    Two variants never have the same folder: a name that lost characters gets a checksum of the whole variant.
    """
    name = re.sub(r"[^A-Za-z0-9_.+=-]+", "-", loss)
    if len(name) > LONGEST or not READABLE.fullmatch(loss):
        name = f"{name[:LONGEST]}-{hashlib.sha256(loss.encode()).hexdigest()[:8]}"
    return out / f"{name}-seed{seed}"


def own_settings(loss: str, rest: Sequence[str], tree: str) -> list[str]:
    """The settings of a variant. A name that is no group and no single setting is a setting of the loss."""
    name, _, own = loss.partition(":")
    chosen = [f"loss={name}"]
    if own:
        base = compose([*rest, *chosen], tree)
        files = [group for group in of_settings(tree).groups if group not in ("data", "loss")]  # memory=sum
        groups = tuple(f"{group!s}." for group in {*base, *files})
        single = [key for key in base if not isinstance(base[key], DictConfig) and key not in base.loss]
        whole = (*groups, *(f"{key!s}=" for key in (*files, *single)))
        chosen += [s if s.startswith(whole) else f"loss.{s}" for s in own.split("+") if s]
    return chosen


@contextmanager
def shared(out: Path, settings: Sequence[str]) -> Iterator[None]:
    """Lock a folder of runs for this process, and write the settings that all its runs share.

    The settings of a command that failed before the first run bind nobody.

    Raises:
        ConfigError: the folder holds runs with other settings, or files of another program with names that we write.
        LockedError: another process uses the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    killed = os.path.lexists(out / HOLDER)  # a killed process leaves it, and files of ours
    with lock(out, "this folder of runs"):
        refuse_links(*(out / name for name in WRITTEN))
        remove_leftovers(out, ours=WRITTEN.__contains__)
        then = read_json(out / SETTINGS) if (out / SETTINGS).is_file() else {}
        there = [name for name in WRITTEN if (out / name).exists()]
        if there and not killed and OURS not in then:
            raise ConfigError(
                f"{out} holds {there[0]}, which rankgrad did not write and would replace: choose another folder with "
                "--out"
            )
        now = dict(map(_located, settings))
        now.pop("threads", None)  # may differ: it depends on the machine and on --jobs
        marks = ("config.yaml", JOURNAL, *(row.result for row in TASKS.values()))
        begun = OURS in then and any(next(out.rglob(name), None) is not None for name in marks)
        then.pop(OURS, None)
        if not begun:
            write_text(out / SETTINGS, json.dumps({OURS: __version__, **now}))
        elif then != now:
            told = ", ".join(changed(then, now).values())
            raise ConfigError(f"{out} holds runs with other settings: {told}. Choose another folder with --out")
        yield


def _located(setting: str) -> tuple[str, str]:
    """(name, value) of a setting. Paths become absolute, so that settings do not depend on the working directory."""
    key, _, value = setting.partition("=")
    path = os.path.realpath(os.path.expanduser(value))
    return key, path if key in PATHS and value and os.path.exists(path) else value  # model.name may not be a path


def _table(
    out: Path, runs: Mapping[str, Mapping[int, Run]], seeds: Sequence[int], rest: Sequence[str], command: str
) -> str:
    """The text of a comparison of finished runs, loss -> seed -> run. It is also written, and with all numbers."""
    kind = of_command(command, rest)
    every = [*kind.columns, *registered("metrics", kind.columns)]
    values = _measured({loss: {s: run.read_values() for s, run in of.items()} for loss, of in runs.items()}, every)
    values, main = values.dropna(axis=1, how="all"), kind.main_of(values.dropna(axis=1, how="all"))
    groups = begun_groups((loss, settings_in(next(iter(of.values())))) for loss, of in runs.items())
    start: dict[str, dict[int, Mapping[str, float]]] = {}
    for name, of in groups.items():
        for seed, run in runs[of[0]].items():
            for network_at, numbers in before_training(run, name).items():
                start.setdefault(network_at, {})[seed] = numbers
    untrained = _measured(start, list(values))
    rows = {name: of for frame in (values, untrained) for name, of in frame.groupby(level=0, sort=False)}
    ordered = sorted(rows, key=lambda name: -rows[name].fillna(-1.0)[main].mean())
    cells = [[name, *(_spread(rows[name][column]) for column in values)] for name in ordered]
    tests = _differences(values[main], list(runs))
    warned = {loss: {s: warnings_of(run) for s, run in of.items()} for loss, of in runs.items()}
    remarks = {loss: {s: remarks_of(run) for s, run in of.items()} for loss, of in runs.items()}
    settings = [setting for setting in rest if not setting.startswith("threads=")]  # each run may have another number
    head = f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, per cent"
    parts = ["; ".join([head, *([f"settings: {' '.join(settings)}"] if settings else [])])]
    parts += [markdown([["loss", *values], *cells]), *_judged(main, list(runs), tests)]
    for title, lines in (("Warnings", together(warned)), ("Remarks", together(remarks))):
        parts += ["\n".join([title, "", *(f"* {line}" for line in lines)])] if lines else []
    text = "\n\n".join(parts)
    write_text(out / "compare.md", text + "\n")
    facts = {loss: [run.read_facts() for run in of.values()] for loss, of in runs.items()}
    content = {
        **{"settings": settings, "seeds": list(seeds), "metric": main},
        **{"values": _lists(values), "untrained": _lists(untrained)},
        "differences": {loss: asdict(test) for loss, test in tests.items()},
        "warnings": {
            loss: [{"seed": s, **asdict(each)} for s, found in of.items() for each in found]
            for loss, of in warned.items()
        },
        "remarks": remarks,
        **joined(each for of in facts.values() for each in of),
        "train_seconds": {loss: [each["train_seconds"] for each in of] for loss, of in facts.items()},
    }
    write_text(out / "compare.json", json.dumps(content, indent=1))
    return text


def _measured(found: Mapping[str, Mapping[int, Mapping[str, float]]], metrics: Sequence[str]) -> pd.DataFrame:
    """[(loss, seed), metric] in per cent."""
    rows = {
        (loss, seed): {m: 100 * of[m] for m in metrics if m in of}
        for loss, by in found.items()
        for seed, of in by.items()
    }
    return pd.DataFrame([*rows.values()], pd.MultiIndex.from_tuples(rows), metrics, dtype=float)


def _lists(frame: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    """Loss -> metric -> its values."""
    by_loss = {name: of.dropna(axis=1, how="all") for name, of in frame.groupby(level=0, sort=False)}
    return {name: {metric: of[metric].dropna().tolist() for metric in of} for name, of in by_loss.items()}


def _spread(values: pd.Series) -> str:
    """Mean ± standard deviation; without values "-"."""
    if not (there := values.dropna().tolist()):
        return "-"
    mean, deviation = spread(there)
    return f"{mean:.1f}" + ("" if deviation is None else f" ± {deviation:.1f}")


def _differences(values: pd.Series, losses: Sequence[str]) -> dict[str, PairedDifference]:
    """Each loss minus the first one, over their common seeds. A loss with fewer than two of them is left out."""
    first, *others = losses
    tests = {}
    for loss in others:
        both = pd.DataFrame({"one": values[loss], "other": values[first]}).dropna().sort_index()
        if len(both) > 1:
            tests[loss] = paired_t_test(both.one.tolist(), both.other.tolist())
    return tests


def _judged(metric: str, losses: Sequence[str], tests: Mapping[str, PairedDifference]) -> list[str]:
    """The table of the differences, and a caution if there are too few seeds. Below four seeds there is no interval."""
    found, parts = list(tests.values()), []
    columns = {"difference": [f"{test.mean:+.2f}" for test in found]}
    enough = [test.n >= FEWEST_SEEDS for test in found]
    if any(enough):
        ends = [f"{test.low:+.2f} to {test.high:+.2f}" for test in found]
        columns["95 % interval"] = [said if fits else "-" for said, fits in zip(ends, enough, strict=True)]
        sizes = [test.detectable if fits else None for test, fits in zip(found, enough, strict=True)]
        columns["detectable"] = ["-" if size is None else f"{size:.2f}" for size in sizes]
    chances = {"p": [test.p for test in found], "p (Holm)": holm([test.p for test in found])}
    for name, of in chances.items() if any(test.p is not None for test in found) else ():
        if name == "p" or len(found) > 1:
            columns[name] = ["-" if p is None else f"{p:.2g}" for p in of]
    columns["seeds"] = [str(test.n) for test in found]
    if found:
        table = markdown([[f"{metric}, against {losses[0]}", *columns], *zip(tests, *columns.values(), strict=True)])
        parts.append(f"Differences, paired by seed\n\n{table}")
    if "detectable" in columns:
        parts.append("Detectable: a true difference of this size is found with a probability of 80 %.")
    told = caution(min(test.n for test in found)) if found else caution(1) if len(losses) > 1 else ""
    return [*parts, *([told] if told else [])]


__all__ = ["compare", "folders"]
