"""The runs of a table of a paper: `tables/*.yaml` -> `Grid`.

A file has rows (methods) and columns (data sets, batch sizes, ...). Every row has a run in every column, unless its
`only` restricts the columns. The settings of a cell are those of the table, the column and the row; later ones win:

    id, title, rule (best | held_out | last), seeds, metrics, notes
    sources: {SETTING: "[PAPER PLACE] ..."}, for all settings of cells, for rule and for seeds, see `sources`
    command: train | detect train, the command of each run
    settings: [...]        of all cells
    columns:               where: data set, batch size, ... of the numbers in paper_tables.csv
                           experiment: the full-size experiment that the settings change
                           settings: those of the column;  full_only: those only for full size
                           varies: {name: value} of a figure's axis;  metrics: if they differ between columns
                           test: settings of another test set, for the weights of the same run
    rows:                  row: its name in paper_tables.csv;  settings, full_only, where, metrics
                           only: {dataset: cub}, the columns of the row;  columns: its own instead of the table's
                           against: reference row of a relative number
    t_test: the row that a paired t-test compares with all others
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from omegaconf import OmegaConf

from rankgrad_workbench.settings import ConfigError, options
from rankgrad_workbench.settings.kinds import TASKS

# Reported evaluation: best on the test classes, as in papers; best on held-out training classes; after the last epoch.
RULES = ("best", "held_out", "last")
COMMANDS = ("train", "detect train")
_TABLE = {
    "id",
    "title",
    "command",
    "rule",
    "seeds",
    "metrics",
    "settings",
    "columns",
    "rows",
    "t_test",
    "notes",
    "sources",
}
_COLUMN = {"where", "experiment", "settings", "full_only", "varies", "metrics", "test"}
_ROW = {"row", "where", "settings", "full_only", "only", "metrics", "against", "columns"}


@cache
def datasets() -> tuple[str, ...]:
    """Names of data sets, as in data=, for all commands."""
    trees = {row.settings for row in TASKS.values() if row.command in COMMANDS}
    return tuple(sorted({name for tree in trees for name in options("data", tree)}))


@dataclass(frozen=True)
class Cell:
    """One method in one column.

    Attributes:
        row: name of the method, as in the paper's table.
        where: columns that identify its numbers in the paper's table.
        varies: axis of a figure -> value on it; empty: no figure, or a baseline of a figure.
        experiment: full-size experiment.
        settings: settings that the table varies.
        full_only: further settings at full size.
        metrics: reported metrics.
        test: settings of the test set, if it is not the experiment's own.
        against: reference row of relative numbers, or None.
    """

    row: str
    where: Mapping[str, str]
    varies: Mapping[str, float]
    experiment: str
    settings: tuple[str, ...]
    full_only: tuple[str, ...]
    metrics: tuple[str, ...]
    test: tuple[str, ...] = ()
    against: str | None = None

    @property
    def dataset(self) -> str:
        """Name of the data set in the table."""
        return self.where.get("dataset", "")

    @property
    def name(self) -> str:
        """Method and column, as text for people."""
        return ", ".join([self.row, *self.where.values(), *(f"{axis} {at:g}" for axis, at in self.varies.items())])

    @property
    def data(self) -> str:
        """Name of the data set as in data=, for training or detection."""
        return max((name for name in datasets() if self.dataset.startswith(name)), key=len)


@dataclass(frozen=True)
class Grid:
    """The cells of a table or figure.

    Attributes:
        id: paper/table2.
        title: what it shows.
        rule: how the paper reports, one of `RULES`.
        seeds: of its runs.
        cells: row by row.
        t_test: row to compare with all others, or None.
        notes: notes for readers, one sentence each.
        command: of its runs, one of `COMMANDS`.
        sources: setting -> its source, see `sources`.
    """

    id: str
    title: str
    rule: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    t_test: str | None = None
    notes: tuple[str, ...] = field(default=())
    command: str = "train"
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> str:
        """Root configuration of its runs, see `kinds.TaskRow.settings`."""
        return self.command.split()[0]

    @property
    def paper(self) -> str:
        """rambo, auc, pnp or roadmap."""
        return self.id.partition("/")[0]

    @property
    def table(self) -> str:
        """Number of the table in paper_tables.csv; empty for a figure."""
        name = self.id.partition("/")[2]
        return name.removeprefix("table") if name.startswith("table") else ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of all cells, each once."""
        return tuple(dict.fromkeys(metric for cell in self.cells for metric in cell.metrics))


def merge(*parts: Iterable[str]) -> tuple[str, ...]:
    """KEY=VALUE settings in order, with the last value of each key.

    >>> merge(["loss=pnp", "loss.b=2"], ["loss=auc"])
    ('loss=auc', 'loss.b=2')
    """
    merged: dict[str, str] = {}
    for part in parts:
        for setting in part:
            merged[setting.partition("=")[0]] = setting
    return tuple(merged.values())


def grids(command: str = "train") -> Mapping[str, Grid]:
    """Id -> grid, for the tables of a command."""
    return {grid.id: grid for grid in _all() if grid.command == command}


@cache
def _all() -> list[Grid]:
    folder = resources.files("rankgrad_papers.experiments") / "tables"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name)
    return [parse(entry.read_text(encoding="utf-8"), entry.name) for entry in files]


def parse(text: str, name: str) -> Grid:
    """Read a grid from the text of a file.

    Raises:
        ConfigError: a key is unknown or missing, or a value is wrong.
    """
    content: Any = OmegaConf.to_container(OmegaConf.create(text))
    _known(content, _TABLE, name)
    for needed in ("id", "title", "rule", "columns", "rows"):
        if needed not in content:
            raise ConfigError(f"{name} has no {needed}:")
    if content["rule"] not in RULES:
        raise ConfigError(f"{name}: rule must be {', '.join(RULES)}; got {content['rule']!r}")
    command = content.get("command", "train")
    if command not in COMMANDS:
        raise ConfigError(f"{name}: command must be {' or '.join(COMMANDS)}; got {command!r}")
    cells = []
    for row in content["rows"]:
        _known(row, _ROW, f"{name}, row {row.get('row')!r}")
        for column in row.get("columns", content["columns"]):
            _known(column, _COLUMN, f"{name}, a column")
            where = {key: str(value) for part in (column, row) for key, value in part.get("where", {}).items()}
            if _fits(where, row.get("only", {})):
                cells.append(_cell(content, column, row, where, name))
    rows = {cell.row for cell in cells}
    for asked in (content.get("t_test"), *(cell.against for cell in cells)):
        if asked is not None and asked not in rows:
            raise ConfigError(f"{name}: there is no row {asked!r}")
    return Grid(
        id=content["id"],
        title=content["title"],
        rule=content["rule"],
        seeds=tuple(content.get("seeds", [0])),
        cells=tuple(cells),
        t_test=content.get("t_test"),
        notes=tuple(content.get("notes", ())),
        command=command,
        sources=dict(content.get("sources", {})),
    )


def _cell(table: Mapping[str, Any], column: Mapping[str, Any], row: Mapping[str, Any], where: Any, name: str) -> Cell:
    metrics = row.get("metrics") or column.get("metrics") or table.get("metrics")
    if not metrics:
        raise ConfigError(f"{name}: no metrics for row {row['row']!r}")
    return Cell(
        row=row["row"],
        where=where,
        varies=dict(column.get("varies", {})),
        experiment=column["experiment"],
        settings=merge(*(part.get("settings", ()) for part in (table, column, row))),
        full_only=merge(*(part.get("full_only", ()) for part in (column, row))),
        metrics=tuple(metrics),
        test=tuple(column.get("test", ())),
        against=row.get("against"),
    )


def _known(content: Any, known: set[str], where: str) -> None:
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: needed KEY: VALUE lines, got {content!r}")
    strange = sorted(set(content) - known)
    if strange:
        raise ConfigError(f"{where}: unknown {', '.join(strange)}; known: {', '.join(sorted(known))}")


def _fits(where: Mapping[str, str], only: Mapping[str, Any]) -> bool:
    def allowed(value: Any) -> Sequence[str]:
        return [str(v) for v in value] if isinstance(value, list) else [str(value)]

    return all(where.get(key) in allowed(value) for key, value in only.items())
