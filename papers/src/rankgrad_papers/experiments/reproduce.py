"""`rankgrad reproduce ID`: run the cells of a table, and show the results beside the printed numbers."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankgrad_workbench.files import write_text
from rankgrad_workbench.files.elsewhere import of_laboratory
from rankgrad_workbench.runs.compare import read_seeds, shared, train_all, with_threads
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.launchers import LOCAL, Launcher, read_launcher
from rankgrad_workbench.settings import ConfigError, compose
from rankgrad_workbench.settings.kinds import TASKS

from . import page, sources, standin
from .catalogue import Entry, find, listing, stand_in_seeds
from .cost import GPU, Work, work_of
from .grid import RULES, Grid, datasets, grids, merge
from .measures import OF_EMBEDDINGS
from .outcome import Outcome, group, not_run, outcome_line, relative, t_tests
from .picture import picture

HELD_OUT = 0.1  # fraction of the training classes
SINGLE = ("seed", "out", "resume", "data", "data.root", "experiment")


@dataclass(frozen=True)
class Plan:
    """The runs of a grid.

    Attributes:
        grid: the table.
        stand_in: omniglot, glyphs, photographs, bccd or None.
        settings: number of a cell -> settings of its runs, without seed and folder.
        lines: numbers of the cells of each line of the table.
        skipped: number of a cell -> reason why it has no runs.
        seeds: of the runs.
        own: KEY=VALUE settings given by the user, for all runs.
    """

    grid: Grid
    stand_in: str | None
    settings: Mapping[int, tuple[str, ...]]
    lines: Sequence[tuple[int, ...]]
    skipped: Mapping[int, str]
    seeds: tuple[int, ...]
    own: tuple[str, ...]

    def runs(self, out: Path, number: int) -> dict[int, Run]:
        """Seed -> run of a cell."""
        return {seed: Run(_folder(out, self.settings[number], seed)) for seed in self.seeds}


def reproduce(
    name: str | None,
    settings: Sequence[str] = (),
    out: Path | None = None,
    *,
    data_roots: Sequence[str] = (),
    stand_in: str | None = None,
    seeds: str | None = None,
    jobs: int = 1,
    rule: str | None = None,
    dry_run: bool = False,
) -> str:
    """Make a table or figure below `out`, and return it as text; without a name, list all.

    A finished run is kept; an interrupted run is resumed. Tables in the same folder share their runs.

    Args:
        name: see `catalogue`.
        settings: of `rankgrad train`, for all runs. launcher=submitit or launcher=ray trains on other machines, see
            `runs.launchers`.
        out: folder; None: runs/reproduce, or runs/reproduce-STAND_IN.
        data_roots: NAME=DIR, the folder of a data set; or DIR, the folder of all others.
        stand_in: omniglot, glyphs or photographs, for detectors bccd: run the grid on these data with a small network.
        seeds: "0,1,2" or "0..2"; None: those of the table.
        jobs: number of runs at a time.
        rule: one of `grid.RULES`; None: that of the table.
        dry_run: only list the runs.

    Raises:
        ConfigError: a name is unknown, the table itself varies a given setting, or a run failed.
        LockedError: another process uses the folder.
    """
    if name is None:
        return listing()
    entry = find(name)
    if not entry.there:
        raise ConfigError(f"{entry.id} ({entry.title}): {entry.way}")
    out = out or Path("runs") / ("reproduce" if stand_in is None else f"reproduce-{stand_in}")
    if entry.how not in ("runs", "detection"):
        from . import computed, figures

        if stand_in or settings:
            raise ConfigError(f"{entry.id} trains nothing: remove {'--stand-in' if stand_in else settings[0]}")
        return (figures.make if entry.how == "figure" else computed.make)(entry, out, dry_run)
    grid = _grid(entry)
    if rule not in (None, *RULES):
        raise ConfigError(f"--rule must be {', '.join(RULES)}; got {rule!r}")
    launcher, settings = read_launcher(settings)
    chosen = None if seeds is None else tuple(read_seeds(seeds))
    plan = planned(grid, settings, _roots(data_roots), stand_in, chosen, held_out=rule == "held_out")
    tasks = _tasks(plan, out, jobs, launcher)
    if dry_run:
        return _dry(tasks, plan, out)
    if not tasks:
        raise ConfigError(f"nothing to run: {'; '.join(dict.fromkeys(plan.skipped.values()))}")
    own = [setting for setting in plan.own if not setting.startswith("threads=")]
    with shared(out, [f"stand-in={stand_in}", *own]):
        errors = train_all(tasks, out, jobs, grid.command, launcher)
        failed = [f"{folder.name}: {error}" for folder, error in errors.items()]
        outcome = collect(plan, out, rule or grid.rule, [*dict.fromkeys(plan.skipped.values()), *failed])
        text = write(outcome, out)
    if failed:
        raise ConfigError("\n".join(["these runs failed:", *failed, "", text]))
    return text


def sources_of(name: str) -> str:
    """The source of each setting of a table, see `sources`.

    Raises:
        ConfigError: the name is unknown, or the table has no runs.
    """
    entry = find(name)
    if entry.how not in ("runs", "detection"):
        raise ConfigError(f"{entry.id} ({entry.title}) has no runs, and so no sources of settings: {entry.way}")
    return sources.text(_grid(entry))


def _grid(entry: Entry) -> Grid:
    if entry.how == "detection" and "detection" not in TASKS:
        raise ConfigError(f"{entry.id} trains detectors{of_laboratory('task', 'detection')}")
    return grids("detect train" if entry.how == "detection" else "train")[entry.id]


def planned(
    grid: Grid,
    settings: Sequence[str],
    roots: Mapping[str, Path],
    stand_in: str | None,
    seeds: tuple[int, ...] | None = None,
    held_out: bool = False,
) -> Plan:
    """The settings of every run. They are composed here, so that a misspelt setting fails before the first run.

    Args:
        grid: the table.
        settings: KEY=VALUE of the user.
        roots: data set -> folder; "" -> folder of all others.
        stand_in: omniglot, glyphs, photographs, bccd or None.
        seeds: None: those of the table.
        held_out: hold out a tenth of the training classes, on which the reported evaluation is chosen.
    """
    _check_own(grid, settings)
    if held_out and grid.command != "train":
        raise ConfigError(f"{grid.id} trains detectors, which have no classes to hold out: use --rule last")
    plans: dict[int, tuple[str, ...]] = {}
    skipped: dict[int, str] = {}
    if stand_in is None:
        for number, cell in enumerate(grid.cells):
            data = cell.data
            root = roots.get(data, roots.get(""))
            if root is None:
                skipped[number] = f"no {data}: give its folder with --data-root {data}=DIR"
            else:
                given = [f"experiment={cell.experiment}", f"data.root={root.absolute()}"]
                plans[number] = merge(given, cell.settings, cell.full_only, settings)
        if grid.command == "train":
            for experiment in dict.fromkeys(cell.experiment for cell in grid.cells):
                _add_ks(plans, grid, experiment)
    else:
        if stand_in not in standin.NAMES[grid.command]:
            known = ", ".join(standin.NAMES[grid.command])
            raise ConfigError(f"unknown stand-in {stand_in!r} for this table; known: {known}")
        base = standin.base(stand_in, roots.get(stand_in, roots.get("")))
        for number, cell in enumerate(grid.cells):
            plans[number] = merge(base, standin.translate(cell.settings, stand_in), settings)
    if held_out:
        plans = {number: _held_out(each, grid.tree, stand_in) for number, each in plans.items()}
    if stand_in is not None or grid.command != "train":
        for each in dict.fromkeys(plans.values()):
            compose(each, grid.tree)
    lines = group(grid, {number: plans.get(number, ()) for number in range(len(grid.cells))}, stand_in is not None)
    chosen = seeds or (grid.seeds if stand_in is None else stand_in_seeds(grid))
    return Plan(grid, stand_in, plans, lines, skipped, chosen, tuple(settings))


def _held_out(settings: tuple[str, ...], tree: str, stand_in: str | None) -> tuple[str, ...]:
    """Add settings that hold out training classes, on which the best weights are chosen."""
    if stand_in in standin.WITH_VAL:
        return merge(settings, ["evaluation.keep_best=val"])
    merged = "source" in compose(settings, tree).data.load  # the loader that merges classes holds them out before
    return merge(settings, [f"{'++data.load.' * merged}held_out={HELD_OUT}", "evaluation.keep_best=val"])


def collect(plan: Plan, out: Path, rule: str, missing: Sequence[str] = ()) -> Outcome:
    """The results of the finished runs below `out`."""
    lines = []
    for numbers in plan.lines:
        runs = plan.runs(out, numbers[0]) if numbers[0] in plan.settings else {}
        lines.append(outcome_line(plan.grid, numbers, runs, rule, plan.stand_in is not None))
    lines = relative(lines)
    tests = t_tests(lines, plan.grid.t_test, plan.grid.metrics) if plan.grid.t_test else []
    return Outcome(
        grid=plan.grid,
        rule=rule,
        label=None if plan.stand_in is None else standin.label(plan.stand_in, plan.own),
        data=plan.stand_in,
        settings=plan.own,
        lines=tuple(lines),
        tests=tuple(tests),
        others=not_run(plan.grid, lines),
        seeds=plan.seeds,
        missing=tuple(missing),
    )


def write(outcome: Outcome, out: Path) -> str:
    """Write ID.md, .csv, .tex, .json and .png; returns the text of ID.md and the names of the files."""
    stem = outcome.grid.id.replace("/", "-")
    text = page.markdown(outcome)
    write_text(out / f"{stem}.md", text)
    write_text(out / f"{stem}.csv", page.csv_text(outcome))
    write_text(out / f"{stem}.tex", page.latex(outcome))
    write_text(out / f"{stem}.json", page.json_text(outcome))
    picture(outcome, out / f"{stem}.png")
    return f"{text}\nwrote {out / stem}.md, .csv, .tex, .json, .png"


def _check_own(grid: Grid, settings: Sequence[str]) -> None:
    varied = {setting.partition("=")[0] for cell in grid.cells for setting in cell.settings}
    for setting in settings:
        key = setting.partition("=")[0]
        if key in SINGLE:
            hint = "--data-root and --stand-in choose the data" if key.startswith("data") else "use --seeds and --out"
            raise ConfigError(f"{key}= cannot be set for all runs of a table: {hint}")
        if setting == "lean=true" and (OF_EMBEDDINGS & set(grid.metrics) or any(cell.test for cell in grid.cells)):
            raise ConfigError(f"{grid.id} needs the embeddings or weights of its runs, which lean=true does not keep")
        if key in varied:
            raise ConfigError(f"{grid.id} itself sets {key}: remove {setting}")


def _add_ks(settings: dict[int, tuple[str, ...]], grid: Grid, experiment: str) -> None:
    """Compose the cells of an experiment, and add the K of R@K that the table has and the experiment lacks."""
    numbers = [number for number in settings if grid.cells[number].experiment == experiment]
    metrics = {metric for number in numbers for metric in grid.cells[number].metrics}
    wanted = {int(metric[2:]) for metric in metrics if metric.startswith("R@")} | {1}
    lengths = {each: set(compose(each).evaluation.ks) for each in {settings[number] for number in numbers}}
    for number in numbers:
        there = lengths[settings[number]]
        if not wanted <= there:
            ks = ",".join(map(str, sorted(wanted | there)))
            settings[number] = (*settings[number], f"evaluation.ks=[{ks}]")


def _tasks(plan: Plan, out: Path, jobs: int, launcher: Launcher = LOCAL) -> dict[Path, list[str]]:
    """Folder -> settings of every run; cells with the same settings share a run."""
    own = [setting for setting in with_threads(plan.own, jobs, launcher) if setting not in plan.own]
    return {
        _folder(out, settings, seed): [*settings, *own, f"seed={seed}"]
        for settings in dict.fromkeys(plan.settings.values())
        for seed in plan.seeds
    }


def _folder(out: Path, settings: Sequence[str], seed: int) -> Path:
    """The folder of a run. Its name has the main settings, and a hash of all settings but the folder of the data."""
    identity = [setting for setting in settings if not setting.startswith(("data.root=", "threads="))]
    ignored = ("data=", "recipe=", "evaluation.", "data.load.turns=", "trainer.")
    named = "-".join(s.rpartition(".")[2] for s in identity if not s.startswith(ignored))
    short = re.sub(r"[^A-Za-z0-9_=-]+", "_", named)[:60].strip("_-")
    digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:8]
    return out / "runs" / f"{short}-{digest}-seed{seed}"


def _dry(tasks: Mapping[Path, Sequence[str]], plan: Plan, out: Path) -> str:
    """The command of each run, below its cells; for full-size retrieval runs also an estimate of the time."""
    timed = plan.stand_in is None and plan.grid.command == "train"
    lines: list[str] = []
    left = Work()
    for settings in dict.fromkeys(plan.settings.values()):
        cells = [plan.grid.cells[number] for number, each in plan.settings.items() if each == settings]
        work = work_of(settings, cells[0].data) if timed else Work()
        hours = f": {work.hours:.1f} h a run" if timed else ""
        lines += dict.fromkeys(f"# {cell.name}{hours}" for cell in cells)
        for seed in plan.seeds:
            folder = _folder(out, settings, seed)
            run = Run(folder)
            state = "finished" if run.finished else "to resume" if run.config.exists() else "to run"
            left += Work() if run.finished else work
            command = shlex.join(["rankgrad", *plan.grid.command.split(), *tasks[folder], f"out={folder}"])
            lines.append(f"{state:9}  {command}")
    lines += [f"not run    {text}" for text in dict.fromkeys(plan.skipped.values())]
    time = f", {left.hours:.1f} h left on {GPU}: counted, see papers/docs/reproducing.md, not measured" if timed else ""
    return "\n".join([*lines, f"{len(tasks)} runs{time}"])


def _roots(given: Sequence[str]) -> dict[str, Path]:
    """Data set -> folder, from NAME=DIR; a DIR without a name is for all others."""
    known = datasets()
    roots: dict[str, Path] = {}
    for text in given:
        name, sign, folder = text.partition("=")
        if not sign or name not in known:
            name, folder = "", text
        path = Path(folder).expanduser()
        if not path.exists():
            raise ConfigError(f"--data-root {text}: {path} does not exist. Give DIR, or NAME=DIR of {', '.join(known)}")
        roots[name] = path
    return roots
