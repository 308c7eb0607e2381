"""Results over a varied setting, read from runs, from a folder of runs, or from a file, for `picture.curves`.

The results can be a folder of `rankgrad reproduce`, or the ID.csv in it; a folder of `rankgrad compare`, or
any folder of runs; your own csv with the columns row, varies ("λ=0.5"), metric and by_seed ("0:61.2 1:60.8").
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rankgrad.common.checks import unknown
from rankgrad_workbench.runs.folder import OFF_COUNTS, Run
from rankgrad_workbench.settings import ConfigError, compose, keys, load

from .grid import Cell, Grid, grids
from .measures import RELATIVE, measure, relative
from .outcome import Outcome

BASELINE = {"": 0.0}  # axis -> value, for a method without the varied setting
# Settings that do not distinguish experiments: runs that differ only in them count as equal.
APART = ("seed", "out", "resume", "threads", "data.root", "checkpoint_minutes", "loggers", "derived")


@dataclass(frozen=True)
class Point:
    """A method at one value of the varied setting.

    Attributes:
        row: the method.
        axis: the varied setting; "" for a baseline.
        place: its value; 0 for a baseline.
        data: data set; empty if all points have the same one.
        metric: the metric.
        values: seed -> value, in the units of the papers' tables.
    """

    row: str
    axis: str
    place: float
    data: str
    metric: str
    values: Mapping[int, float]


@dataclass(frozen=True)
class Sweep:
    """Points of a figure.

    Attributes:
        title: heading of the picture.
        label: label of a stand-in, or which data do not have the published counts; None: neither.
        points: the points. If runs are not finished, they may have no values yet.
    """

    title: str
    label: str | None
    points: tuple[Point, ...]

    def __str__(self) -> str:
        """A line per point: mean, standard deviation, seeds."""
        lines = [self.title, *([self.label] if self.label else [])]
        for point in self.points:
            name = ", ".join(part for part in (point.row, point.data) if part)
            values = " ".join(f"{seed}:{value:.4g}" for seed, value in sorted(point.values.items()))
            place = f"{point.axis} = {point.place:g}" if point.axis else "baseline"
            lines.append(f"{name}  {place}  {point.metric}  {values}")
        return "\n".join(lines)


def from_outcome(outcome: Outcome, metrics: Sequence[str]) -> Sweep:
    """Points from the results of `rankgrad reproduce`."""
    points = [
        Point(
            line.row,
            axis,
            place,
            "" if outcome.label else line.labels.get("dataset", ""),
            metric,
            line.values.get(metric, {}),
        )
        for line in outcome.lines
        for axis, place in (line.cells[0].varies or BASELINE).items()
        for metric in metrics
    ]
    return Sweep(f"{outcome.grid.id}: {outcome.grid.title}", " ".join(outcome.labels) or None, tuple(points))


def read(
    paths: Sequence[Path],
    grid: Grid,
    *,
    over: str | None = None,
    metric: str | None = None,
    rule: str | None = None,
    trust: Sequence[str] = (),
) -> Sweep:
    """Read the points of a figure from a file or from runs.

    Args:
        paths: one file, or folders of runs.
        grid: the figure.
        over: a setting for the axis, such as loss.alpha; None: those of the figure.
        metric: None: those of the figure.
        rule: evaluation to use of a run, one of `grid.RULES`; None: that of the figure.
        trust: packages whose classes the settings of runs may name, see `config.load`.

    Raises:
        ConfigError: a path does not exist, or there are no results for this figure.
    """
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist: give a folder of runs, or the ID.csv of reproduce")
    metrics = (metric,) if metric else drawn(grid)
    files = [path for path in paths if path.is_file()]
    if files and len(paths) > 1:
        raise ConfigError(f"give one file of results, or folders of runs; got {', '.join(map(str, paths))}")
    if len(paths) == 1 and over is None and rule is None:
        left = paths[0] / f"{grid.id.replace('/', '-')}.csv"  # written by rankgrad reproduce
        if left.exists() and not files:
            files = [left]
    if files:
        if over is not None or rule is not None:
            raise ConfigError("--over and --rule need folders of runs; a file of results has a fixed axis and rule")
        if files[0].suffix != ".csv":
            raise ConfigError(f"a file of results must be a .csv; got {files[0]}. Runs are given by their folder")
        return from_csv(files[0], grid, metrics)
    return from_runs(paths, grid, metrics, over=over, rule=rule or grid.rule, trust=trust)


def drawn(grid: Grid) -> tuple[str, ...]:
    """The metrics of a figure: those that compare two methods, if there are any, else all."""
    return tuple(metric for metric in grid.metrics if metric in RELATIVE) or grid.metrics


def axes(grid: Grid) -> tuple[str, ...]:
    """The settings that a figure varies."""
    return tuple(dict.fromkeys(axis for cell in grid.cells for axis in cell.varies))


def from_csv(path: Path, grid: Grid, metrics: Sequence[str]) -> Sweep:
    """Points from the ID.csv of `rankgrad reproduce`, or from any csv with the columns row, varies, metric, by_seed."""
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [name for name in ("row", "varies", "metric", "by_seed") if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(f"{path} has no column {missing[0]}; needed: row, varies, metric, by_seed")
        points: dict[tuple[object, ...], Point] = {}
        label, told = None, dict[str, None]()
        for number, row in enumerate(reader, 2):
            label = row.get("label") or label
            told |= {text: None for text in (row.get("off_counts"),) if text}
            axis, _, place = (row["varies"] or "=0").rpartition("=")
            if axis not in ("", *axes(grid)) or row["metric"] not in metrics or not row["by_seed"]:
                continue
            try:
                pairs = (pair.split(":") for pair in row["by_seed"].split())
                values = {int(seed): float(value) for seed, value in pairs}
                point = Point(
                    row["row"], axis, float(place), "" if label else row.get("dataset") or "", row["metric"], values
                )
            except ValueError:
                raise ConfigError(
                    f'{path}, line {number}: varies must be NAME=NUMBER and by_seed "SEED:VALUE SEED:VALUE"; got '
                    f"{row['varies']!r} and {row['by_seed']!r}"
                ) from None
            points[point.row, axis, point.place, point.data, point.metric] = point  # a stand-in repeats its points
    label = label or " ".join(told) or None
    return _some(Sweep(f"{grid.id}: {grid.title}", label, tuple(points.values())), path, grid, metrics)


def from_runs(
    folders: Sequence[Path],
    grid: Grid,
    metrics: Sequence[str],
    *,
    over: str | None = None,
    rule: str = "last",
    trust: Sequence[str] = (),
) -> Sweep:
    """Points from finished runs, matched by their settings.

    Args:
        folders: of runs, at any depth.
        grid: the figure. A run belongs to a point if it has the settings of this point, and the default values of all
            other settings that the figure varies.
        metrics: the metrics to read.
        over: a setting for the axis; None: those of the figure.
        rule: one of `grid.RULES`.
        trust: packages whose classes the settings may name, see `config.load`.
    """
    runs = {run: load(run.config, trust) for run in _runs(folders)}
    where = ", ".join(map(str, folders))
    if not runs:
        raise ConfigError(f"no finished run below {where}")
    differing = _differing(list(runs.values()))
    if over is not None:
        placed = _over(runs, over, differing)
        title = f"{over} varied, {_data(runs)}"
    else:
        placed = _cells(runs, grid)
        title = f"{grid.id}: {grid.title}; here on {_data(runs)}"
        if not placed:
            hint = f"; the runs differ in {differing[0]}: draw over it with --over {differing[0]}" if differing else ""
            raise ConfigError(
                f"none of the {len(runs)} runs below {where} is a point of {grid.id} ({', '.join(axes(grid))}){hint}"
            )
    points: dict[tuple[str, str, float, str], dict[int, float]] = {}
    for run, row, axis, place in placed:
        for metric in dict.fromkeys(RELATIVE.get(metric, (metric,))[0] for metric in metrics):
            value = measure(run, metric, rule)
            if value is not None:
                seed, known = int(runs[run].seed), points.setdefault((row, axis, place, metric), {})
                if seed in known:
                    raise ConfigError(
                        f"two runs below {where} have {row}, {axis} = {place:g} and seed {seed}; the second is "
                        f"{run.folder}. Give a folder in which only {axis} and the seed differ"
                    )
                known[seed] = value
    for metric in set(metrics) & set(RELATIVE):
        for (row, axis, place, of), values in list(points.items()):
            against = next((cell.against for cell in grid.cells if cell.row == row), None)
            if of == RELATIVE[metric][0] and against is not None:
                theirs = points.get((against, axis, place, of), {})
                points[row, axis, place, metric] = relative(metric, values, theirs)
    kept = {key: values for key, values in points.items() if key[3] in metrics}
    averaged = [Point(row, axis, place, "", metric, values) for (row, axis, place, metric), values in kept.items()]
    told = dict.fromkeys(text for run in runs if (text := run.read_facts().get(OFF_COUNTS)))
    return _some(Sweep(title, " ".join(told) or None, tuple(averaged)), folders[0], grid, metrics)


def _some(sweep: Sweep, path: Path, grid: Grid, metrics: Sequence[str]) -> Sweep:
    if not sweep.points:
        raise ConfigError(f"{path} has no {' or '.join(metrics)} over {', '.join(axes(grid))}")
    return sweep


def _runs(folders: Iterable[Path]) -> list[Run]:
    folders_found = sorted({path.parent for folder in folders for path in folder.rglob("config.yaml")})
    return [run for run in map(Run, folders_found) if run.finished]


def _data(runs: Mapping[Run, DictConfig]) -> str:
    return ", ".join(dict.fromkeys(str(config.data.name) for config in runs.values()))


def _differing(configs: Sequence[DictConfig]) -> list[str]:
    """Settings in which the runs differ, numeric settings first. A loss without a setting is not compared in it."""
    names = dict.fromkeys(key for config in configs for key in keys(config))
    differing = []
    for name in names:
        if name == "data" or name.startswith(APART) or name.endswith(".seed"):
            continue
        values = [OmegaConf.select(config, name) for config in configs]
        if name.startswith("loss."):
            values = [value for value in values if value is not None]
        if not any(isinstance(value, DictConfig) for value in values) and any(v != values[0] for v in values):
            differing.append(name)
    return sorted(differing, key=lambda name: any(_number(OmegaConf.select(c, name)) is None for c in configs))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _over(runs: Mapping[Run, DictConfig], over: str, differing: Sequence[str]) -> list[tuple[Run, str, str, float]]:
    known = sorted({key for config in runs.values() for key in keys(config)})
    if over not in known:
        raise ConfigError(unknown("setting", over, known))
    others = [name for name in differing if name != over and name != "loss._target_"]
    placed = []
    for run, config in runs.items():
        place = _number(OmegaConf.select(config, over))
        if place is None:
            continue  # the loss does not have this setting
        rest = [f"{n.rpartition('.')[2]} {OmegaConf.select(config, n)}" for n in others if _has(config, n)]
        placed.append((run, ", ".join([_loss(config), *rest]), over, place))
    if not placed:
        raise ConfigError(f"{over} is not a number in any of these runs")
    return placed


def _has(config: DictConfig, name: str) -> bool:
    return OmegaConf.select(config, name) is not None


def _loss(config: DictConfig) -> str:
    return str(config.loss._target_).rpartition(".")[2].removesuffix("Loss")


def _cells(runs: Mapping[Run, DictConfig], grid: Grid) -> list[tuple[Run, str, str, float]]:
    """(run, method, axis, value) of the runs whose settings are those of a point."""
    placed = []
    for run, config in runs.items():
        for (row, axis, value), place in _wanted(grid.id).items():
            if all(OmegaConf.select(config, key) == needed for key, needed in place.items()):
                placed.append((run, row, axis, value))
    return placed


@cache
def _wanted(name: str) -> Mapping[tuple[str, str, float], Mapping[str, Any]]:
    """(method, axis, value) of a figure -> the varied settings at this point."""
    cells = grids()[name].cells
    varied = _varied(cells)
    settings: dict[tuple[str, str, float], Mapping[str, Any]] = {}
    for cell in cells:
        composed = compose(["data=glyphs", *cell.settings])  # any data set, since only varied settings are read
        for axis, value in (cell.varies or BASELINE).items():
            settings.setdefault((cell.row, axis, value), {key: OmegaConf.select(composed, key) for key in varied})
    return settings


def _varied(cells: Sequence[Cell]) -> list[str]:
    """Dotted names of the settings that differ between the cells of a figure."""
    names = dict.fromkeys(setting.partition("=")[0] for cell in cells for setting in cell.settings)
    given = [dict(setting.split("=", 1) for setting in cell.settings) for cell in cells]
    differing = [name for name in names if len({each.get(name) for each in given}) > 1]
    return ["loss._target_" if name == "loss" else name for name in differing]
