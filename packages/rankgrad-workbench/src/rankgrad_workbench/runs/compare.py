"""Compares losses on the same data, seeds and budget: one run for each loss and seed, and a table of means."""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rankgrad._version import __version__
from rankgrad.common.plugins import registered
from rankgrad.common.progress import bar
from rankgrad.common.text import markdown
from rankgrad.evaluation.statistics import FEWEST_SEEDS, PairedDifference, caution, holm, paired_t_test, spread

from ..files import read_json, remove_leftovers, write_text
from ..files.folders import HOLDER, lock, refuse_links
from ..settings import PATHS, ConfigError, check_paths, compose, differing, plain
from ..settings.checking import SEEDS
from ..settings.kinds import TASKS, of_command, of_settings
from . import signals
from .change import network
from .children import Child, Children
from .folder import Run
from .launchers import LOCAL, Launcher, RunCommand, read_launcher
from .provenance import joined
from .run_warnings import BELOW, FIRST_HIT, alike, begun_groups, remarks_of, settings_in, together, warnings_of

Following = Callable[[], tuple[Path, Sequence[str]] | None]
SETTINGS, JOURNAL = "settings.json", "journal.log"
OURS = "rankgrad"  # key in settings.json with our version: another program's file of this name does not have it
# Files that a comparison or a search writes in its folder.
WRITTEN = (
    SETTINGS,
    JOURNAL,
    "compare.md",
    "compare.json",
    "compare.html",
    "trials.csv",
    "tune.json",
    "tune.md",
    "trials",
    "final",
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
    losses, tree = list(variants), of_command(command, rest).settings
    tasks: dict[tuple[str, int], list[str]] = {}
    for loss, own in variants.items():
        check_paths(compose([*rest, *own], tree))  # a misspelt setting or path fails here, before the first run
        for seed in seeds:
            tasks[loss, seed] = [*rest, *own, f"seed={seed}"]
    with shared(out, rest):
        errors = train_all({_folder(out, *key): task for key, task in tasks.items()}, out, jobs, command, launcher)
        table = _table(out, losses, seeds, rest, command)
    alike: dict[str, list[tuple[str, int]]] = {}  # why -> failed runs; often, all runs fail for the same reason
    for key in tasks:
        folder = _folder(out, *key)
        if folder in errors:
            alike.setdefault(errors[folder].replace(str(folder), ""), []).append(key)
    failed = [
        f"{', '.join(f'{loss} seed {seed}' for loss, seed in runs)}: {errors[_folder(out, *runs[0])]}"
        for runs in alike.values()
    ]
    if failed:
        shown = ["", table] if len(errors) < len(tasks) else []
        raise ConfigError("\n".join(["these runs failed:", *failed, *shown]))
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
    """The folders that `compare_variants` uses: name -> one folder for each seed.

    >>> [path.name for path in folders_of(["pnp"], [0, 1], Path("runs"))["pnp"]]
    ['pnp-seed0', 'pnp-seed1']
    """
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
    waiting = iter([(folder, settings) for folder, settings in tasks.items() if not Run(folder).finished])
    finished = sum(Run(folder).finished for folder in tasks)
    with bar(total=len(tasks), initial=finished, delay=0, desc="runs", unit="run") as shown:

        def ended(folder: Path, error: str | None) -> None:
            if error is not None:
                errors[folder] = error
            shown.write(f"{folder.name}: {_result(Run(folder)) if error is None else error}", file=sys.stderr)
            shown.update()

        train_in_turn(lambda: next(waiting, None), ended, out, jobs, command, launcher, shown=shown)
    return {folder: errors[folder] for folder in tasks if folder in errors}


def _result(run: Run) -> str:
    """The main metrics of a run that ended, those of the untrained network, and what is wrong."""
    if not run.finished:
        return "no result yet"  # a launcher that only hands runs on
    values, before, kind = run.read_values(), run.read_untrained(), TASKS[run.kind]
    names = [name for name in dict.fromkeys((FIRST_HIT, kind.main_of(values))) if name in values]
    begun = network(settings_in(run))
    told = [
        f"{name} {100 * values[name]:.1f}" + (f" ({begun} {100 * before[name]:.1f})" if name in before else "")
        for name in names
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
    many: bool = False,
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
        many: the runs are many and short: fork them from one process that has imported everything.
        shown: a bar, beside which the names of the runs that are training are shown; None: there is none.
    """
    running: dict[Child, RunCommand] = {}
    with Children() as children:
        while True:
            while len(running) < jobs and (task := following()) is not None:
                run = RunCommand(task[0], tuple(task[1]), command)
                refuse_links(run.folder)
                run.folder.mkdir(parents=True, exist_ok=True)  # for the log; the run writes its config.yaml first
                running[launcher.start(run, children, many=many)] = run
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
    losses: list[str] = []
    seeds, rest = [0, 1, 2], []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "loss":
            losses = read_losses(value)
        elif key == "seeds":
            seeds = read_seeds(value)
        elif key in ("seed", "out", "resume"):
            raise ConfigError(f"{key}= is a setting of a single run; for a comparison, use seeds=0,1,2 and --out DIR")
        else:
            rest.append(setting)
    if not losses:
        raise ConfigError("no loss is given; name the losses to compare, such as loss=roadmap,pnp,smooth_ap")
    return losses, seeds, rest


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
    numbers: Sequence[int] = []
    with suppress(ValueError):
        numbers = range(int(first), int(last) + 1) if dots else [int(seed) for seed in text.split(",")]
    if not numbers:
        raise ConfigError(f"seeds must be integers such as 0,1,2 or 0..9; got {text!r}")
    if len(numbers) > MOST_SEEDS:
        raise ConfigError(f"at most {MOST_SEEDS} seeds; got {text!r}")
    if len(set(numbers)) < len(numbers) or min(numbers) < 0 or max(numbers) > SEEDS:
        raise ConfigError(f"seeds must be different integers >= 0 and <= {SEEDS}; got {text!r}")
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

    Raises:
        ConfigError: the folder holds runs with other settings, or files of another program with names that we write.
        LockedError: another process uses the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    # a killed process leaves its HOLDER, and files of ours
    there = [] if os.path.lexists(out / HOLDER) else sorted(os.listdir(out))
    with lock(out, "this folder of runs"):
        refuse_links(*(out / name for name in WRITTEN))
        remove_leftovers(out, ours=WRITTEN.__contains__)
        path = out / SETTINGS
        ours = path.is_file() and OURS in read_json(path)
        foreign = [name for name in there if name in WRITTEN and not ours]
        if foreign:
            raise ConfigError(
                f"{out} holds {foreign[0]}, which rankgrad did not write and would replace: choose another folder with "
                "--out"
            )
        now = dict(map(_located, settings))
        now.pop("threads", None)  # may differ: it depends on the machine and on --jobs
        if not path.exists() or not _begun(out):
            # the runs of a finished search may have been deleted, so its journal is moved
            if (out / JOURNAL).is_file():
                (out / JOURNAL).replace(out / f"{JOURNAL}.old")
            write_text(path, json.dumps({OURS: __version__, **now}))
        then = read_json(path)
        then.pop(OURS, None)
        differ = [key for key in {**then, **now} if then.get(key) != now.get(key)]
        if differ:
            said = [[each.get(key, "not given") for key in differ] for each in (then, now)]
            told = ", ".join(f"{key} (then {a}, now {b})" for key, a, b in zip(differ, *said, strict=True))
            raise ConfigError(f"{out} holds runs with other settings: {told}. Choose another folder with --out")
        yield


def _begun(out: Path) -> bool:
    """Whether a folder has a run. The settings of a command that failed before the first one bind nobody, nor does the
    journal of its search.
    """
    return any(
        next(out.rglob(name), None) is not None for name in ("config.yaml", *(row.result for row in TASKS.values()))
    )


def _located(setting: str) -> tuple[str, str]:
    """(name, value) of a setting. Paths become absolute, so that settings do not depend on the working directory."""
    key, _, value = setting.partition("=")
    path = os.path.realpath(os.path.expanduser(value))
    return key, path if key in PATHS and value and os.path.exists(path) else value  # model.name may not be a path


def _table(out: Path, losses: Sequence[str], seeds: Sequence[int], rest: Sequence[str], command: str) -> str:
    kind = of_command(command, rest)
    every = (*kind.columns, *registered("metrics", kind.columns))
    runs = {loss: {s: run for s in seeds if (run := Run(_folder(out, loss, s))).finished} for loss in losses}
    runs = {loss: of for loss, of in runs.items() if of}
    values = {loss: _columns({s: run.read_values() for s, run in of.items()}, every) for loss, of in runs.items()}
    untrained = {
        name: _columns({s: run.read_untrained() for s, run in runs[loss].items()}, every)
        for name, loss in _untrained(runs).items()
    }
    columns = [name for name in every if any(name in of for of in values.values())]
    main = kind.main_of(columns)
    lists = {loss: {name: list(by.values()) for name, by in of.items()} for loss, of in values.items()}
    without = {name: {column: list(by.values()) for column, by in of.items()} for name, of in untrained.items()}
    shown = {**lists, **without}
    ordered = sorted(shown, key=lambda name: -statistics.mean(shown[name].get(main) or [-1.0]))
    rows = [[name, *(mean_text(shown[name].get(column, [])) for column in columns)] for name in ordered]
    tests = _differences({loss: values[loss][main] for loss in losses if loss in values})
    warned = {loss: {s: warnings_of(run) for s, run in of.items()} for loss, of in runs.items()}
    settings = [setting for setting in rest if not setting.startswith("threads=")]  # each run may have another number
    head = f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}, per cent"
    parts = ["; ".join([head, *([f"settings: {' '.join(settings)}"] if settings else [])])]
    parts += [markdown([["loss", *columns], *rows]), *_told(main, values, tests)]
    told = []  # what a name does not say
    for loss, of in runs.items():
        config = next(iter(of.values())).config
        own = differing(plain(OmegaConf.load(config).loss)) if config.exists() else {}
        words = [word for word in (f"{key}={value}" for key, value in own.items()) if word not in loss]
        told += [f"{loss} has {', '.join(words)}"] if words else []
    parts += [f"By the defaults for these data, {'; '.join(told)}."] if told else []
    remarks = {loss: {s: remarks_of(run) for s, run in of.items()} for loss, of in runs.items()}
    for head, lines in (("Warnings", together(warned)), ("Remarks", alike(remarks))):
        parts += ["\n".join([head, "", *(f"* {line}" for line in lines)])] if lines else []
    text = "\n\n".join(parts)
    write_text(out / "compare.md", text + "\n")
    content = {
        **{"settings": settings, "seeds": list(seeds), "values": lists, "untrained": without, "metric": main},
        "differences": {loss: asdict(test) for loss, test in tests.items()},
        "warnings": {
            loss: [{"seed": s, **asdict(each)} for s, found in of.items() for each in found]
            for loss, of in warned.items()
        },
        "remarks": {loss: [{"seed": s, "remarks": of[s]} for s in of] for loss, of in remarks.items()},
        **joined(r.read_facts() for of in runs.values() for r in of.values()),
        "train_seconds": {loss: [r.read_facts()["train_seconds"] for r in of.values()] for loss, of in runs.items()},
    }
    write_text(out / "compare.json", json.dumps(content, indent=1))
    return text


def _columns(measured: Mapping[int, Mapping[str, float]], every: Sequence[str]) -> dict[str, dict[int, float]]:
    """Column -> seed -> per cent, for the columns that any seed has."""
    found = {name: {seed: 100 * of[name] for seed, of in measured.items() if name in of} for name in every}
    return {name: by_seed for name, by_seed in found.items() if by_seed}


def _untrained(runs: Mapping[str, Mapping[int, Run]]) -> dict[str, str]:
    """Row of an untrained network -> a loss whose runs began with it. Variants with other models have other rows."""
    groups = begun_groups((loss, settings_in(next(iter(of.values())))) for loss, of in runs.items())
    return {name: group[0] for name, group in groups.items()}


def _differences(values: Mapping[str, Mapping[int, float]]) -> dict[str, PairedDifference]:
    """Each loss minus the first one, over their common seeds. A loss with fewer than two of them is left out.

    Args:
        values: loss -> seed -> value, in per cent.
    """
    first, *others = values or [""]
    both = {loss: sorted(values[loss].keys() & values[first].keys()) for loss in others}
    return {
        loss: paired_t_test([values[loss][s] for s in seeds], [values[first][s] for s in seeds])
        for loss, seeds in both.items()
        if len(seeds) > 1
    }


def _told(metric: str, values: Mapping[str, object], tests: Mapping[str, PairedDifference]) -> list[str]:
    """The table of the differences, and a caution if there are too few seeds."""
    parts = []
    if tests:
        heads, rows = difference_cells(list(tests.values()))
        table = [[f"{metric}, against {next(iter(values))}", *heads]]
        table += [[loss, *row] for loss, row in zip(tests, rows, strict=True)]
        parts.append(f"Differences, paired by seed\n\n{markdown(table)}")
        if "detectable" in heads:
            parts.append("Detectable: a true difference of this size is found with a probability of 80 %.")
    told = caution(min(test.n for test in tests.values())) if tests else caution(1) if len(values) > 1 else ""
    return [*parts, *([told] if told else [])]


def difference_cells(tests: Sequence[PairedDifference]) -> tuple[list[str], list[list[str]]]:
    """(heads, a row for each test). Below four seeds there is the difference alone.

    >>> difference_cells([paired_t_test([2.0, 3.0], [1.0, 1.0])])
    (['difference', 'seeds'], [['+1.50', '2']])
    """
    judged, tested = any(test.n >= FEWEST_SEEDS for test in tests), any(test.p is not None for test in tests)
    heads = ["95 % interval", "detectable"] if judged else []
    chances = ["p", "p (Holm)"][: min(len(tests), 2)] if tested else []
    rows, corrected = [], iter(holm([test.p for test in tests]))
    for test in tests:
        found = [f"{test.low:+.2f} to {test.high:+.2f}", "-" if test.detectable is None else f"{test.detectable:.2f}"]
        cells = (found if test.n >= FEWEST_SEEDS else ["-", "-"]) if judged else []
        cells += [_p(test.p), _p(next(corrected))][: len(chances)]
        rows.append([f"{test.mean:+.2f}", *cells, str(test.n)])
    return ["difference", *heads, *chances, "seeds"], rows


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def mean_text(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation, as text; without values "-".

    >>> mean_text([50.0, 52.0]), mean_text([50.0]), mean_text([])
    ('51.0 ± 1.4', '50.0', '-')
    """
    if not values:
        return "-"
    mean, deviation = spread(values)
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


__all__ = ["compare", "folders"]
