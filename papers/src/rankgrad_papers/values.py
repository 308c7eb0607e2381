"""Measured values in a csv file, one number per row: means, spreads, differences with their intervals.

The columns of a file of values:

    metric, value    the name and the number: mAP@R, 42.5. Fractions are in per cent.
    seed             the seed of the training
    unit             the unit of the sample: an alphabet, a fold of classes, a data set
    commit           the commit of the code that measured it
    processor        the processor that measured it
    others           the setting, such as loss, rate, memory

Commit and processor are empty, or no columns, where they were not recorded: before this was done.

A file has `seed`, `unit` or both. The unit of a comparison is `unit`, and the seeds of a unit are averaged first.
Without that column it is the seed. A cell of an experiment is a setting with its unit and seed: `append` writes all its
numbers at once, and `cells` lists the cells of a file, so that a queue of trainings can continue from it.

The ID.csv of `rankgrad reproduce` is read as well: its column `by_seed` holds the numbers of a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankgrad.evaluation.statistics import PairedDifference, paired_t_test
from rankgrad_workbench.files import write_text
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.provenance import MADE, joined, made_by

SEED, UNIT, METRIC, VALUE = "seed", "unit", "metric", "value"
# The columns of an ID.csv that identify a row.
_REPRODUCED = ("row", "backbone", "dim", "batch_size", "image_size", "varies", "settings")
# Loss in the files of before -> its name now. The files stay as they were measured.
_RENAMED = {"log_sum_exp": "info_nce"}

Setting = Mapping[str, str]


@dataclass(frozen=True)
class Value:
    """A measured number.

    Attributes:
        setting: (column, text) of all columns of the setting.
        unit: text of that column; "" if the file has none.
        seed: text of that column; "" if the file has none.
        metric: name of the metric.
        value: the number.
    """

    setting: tuple[tuple[str, str], ...]
    unit: str
    seed: str
    metric: str
    value: float


class Values:
    """The values of a file, in the order of the file.

    Args:
        values: no two may have the same setting, unit, seed and metric.
        name: of the file, for messages.

    Raises:
        ValueError: two values have the same setting, unit, seed and metric.
    """

    def __init__(self, values: list[Value], name: str = "values") -> None:
        self.values, self.name = values, name
        seen: dict[tuple[object, ...], float] = {}
        for each in values:
            key = (each.setting, each.unit, each.seed, each.metric)
            if key in seen:
                raise ValueError(f"{name} has {_text(each.setting)}, {each.metric} twice: seed={each.seed or '-'}")
            seen[key] = each.value

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    @property
    def settings(self) -> list[Setting]:
        """The settings, in the order of the file."""
        return [dict(setting) for setting in dict.fromkeys(each.setting for each in self.values)]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, in the order of the file."""
        return list(dict.fromkeys(each.metric for each in self.values))

    @property
    def of_units(self) -> bool:
        """Whether the values have units."""
        return any(each.unit for each in self.values)

    def where(self, wanted: Setting) -> Values:
        """The values whose setting has these texts.

        Raises:
            ValueError: no setting has these texts.
        """
        kept = [each for each in self.values if wanted.items() <= dict(each.setting).items()]
        if not kept:
            known = "\n  ".join(_text(tuple(setting.items())) for setting in self.settings)
            raise ValueError(f"{self.name} has no {_text(tuple(wanted.items()))}. It has\n  {known}")
        return Values(kept, self.name)

    def units(self, setting: Setting, metric: str) -> dict[str, float]:
        """The number of each unit, averaged over its seeds. Empty if the metric was not measured.

        Args:
            setting: texts that identify one setting.
            metric: name of the metric.

        Raises:
            ValueError: no setting has these texts, or more than one.
        """
        by_unit = self.where(setting)
        if len(by_unit.settings) > 1:
            both = " and ".join(_text(tuple(each.items())) for each in by_unit.settings[:2])
            raise ValueError(f"{_text(tuple(setting.items()))} fits several settings of {self.name}: {both}")
        seeds: dict[str, list[float]] = {}
        for each in by_unit:
            if each.metric == metric:
                seeds.setdefault(each.unit or each.seed, []).append(each.value)
        return {unit: sum(numbers) / len(numbers) for unit, numbers in seeds.items()}


def difference(one: Mapping[str, float], other: Mapping[str, float]) -> PairedDifference | None:
    """`one` minus `other` over the units that both have; None if these are fewer than two.

    Args:
        one: unit -> number, as `Values.units` gives it.
        other: the same of another setting.
    """
    common = [unit for unit in one if unit in other]
    if len(common) < 2:
        return None
    return paired_t_test([one[unit] for unit in common], [other[unit] for unit in common])


def read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of a csv file; losses have the names of now."""
    with path.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    for old, new in _RENAMED.items():
        rows = [{name: text.replace(old, new) for name, text in row.items()} for row in rows]
    return columns, rows


def read(path: Path) -> Values:
    """Read the values of a file; the columns are described at the top of this module.

    Raises:
        ValueError: a column is missing, or a value is not a number.
    """
    columns, rows = read_rows(path)
    if "by_seed" in columns:
        return Values(_reproduced(rows), path.name)
    if not {METRIC, VALUE} <= {*columns} or not {SEED, UNIT} & {*columns}:
        raise ValueError(f"{path} has no values: it needs the columns metric, value, and seed or unit; got {columns}")
    values = []
    for line, row in enumerate(rows, 2):
        setting = tuple((name, row[name]) for name in columns if name not in (SEED, UNIT, METRIC, VALUE, *MADE))
        try:
            values.append(Value(setting, row.get(UNIT, ""), row.get(SEED, ""), row[METRIC], float(row[VALUE])))
        except ValueError:
            raise ValueError(f"{path}, line {line}: value must be a number; got {row[VALUE]!r}") from None
    return Values(values, path.name)


def _reproduced(rows: list[dict[str, str]]) -> list[Value]:
    """The values of an ID.csv. With a stand-in, rows for several data sets of the paper repeat the same numbers."""
    values: dict[Value, None] = {}
    for row in rows:
        names = _REPRODUCED if row.get("label") else ("dataset", *_REPRODUCED)
        setting = tuple((name, row[name]) for name in names if row.get(name))
        for pair in row["by_seed"].split():
            seed, _, number = pair.partition(":")
            values[Value(setting, "", seed, row["metric"], float(number))] = None
    return list(values)


def append(
    path: Path,
    setting: Setting,
    numbers: Mapping[str, float],
    *,
    unit: str = "",
    seed: str = "",
    made: Mapping[str, str] | None = None,
) -> None:
    """Add a cell to a file. All its numbers are written at once, so that no cell is incomplete.

    Args:
        path: of the file; created, with its folder, if it does not exist. The columns of an existing file are kept;
            columns for commit and processor are added to a file without them, and are empty for the values that it has.
        setting: column -> text.
        numbers: metric -> value.
        unit: needed if the file has units.
        seed: needed if the file has seeds.
        made: commit and processor, see `made_of`; None: of this process.

    Raises:
        ValueError: the file has other columns, or has this cell already.
    """
    ids = {name: text for name, text in ((UNIT, unit), (SEED, seed)) if text}
    columns = [*setting, *ids, METRIC, VALUE, *MADE]
    there = path.exists() and path.stat().st_size > 0
    if there:
        with path.open(encoding="utf-8", newline="") as opened:
            head = next(csv.reader(opened))
        if sorted({*head, *MADE}) != sorted(columns):
            raise ValueError(f"{path} has columns {', '.join(head)}; this cell has {', '.join(columns)}")
        if (tuple((name, setting[name]) for name in head if name in setting), unit, seed) in cells(path):
            raise ValueError(f"{path} has this cell already: {_text((*setting.items(), *ids.items()))}")
        columns = _with_made(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = made_by() if made is None else made
    cell = [{**setting, **ids, **made, METRIC: metric, VALUE: f"{value:.8g}"} for metric, value in numbers.items()]
    text = lines([*([] if there else [columns]), *([row[name] for name in columns] for row in cell)])
    with path.open("a", encoding="utf-8", newline="") as opened:
        opened.write(text)


def _with_made(path: Path) -> list[str]:
    """The columns of a file, after those for commit and processor were added to it if it had none."""
    with path.open(encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    new = [name for name in MADE if name not in head]
    if new:
        write_text(path, lines([[*head, *new], *([*row, *[""] * len(new)] for row in rows)]))
    return [*head, *new]


def made_of(folder: Path) -> dict[str, str]:
    """Commit and processor of the finished run in a folder; empty texts for a run from before they were noted."""
    return joined([Run(folder).read_facts()])


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as the text of a csv."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def add_lines(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Add rows that have no values, such as settings that were chosen, to a file; with commit and processor.

    Args:
        path: created if it does not exist. Its columns are kept.
        rows: column -> text.
    """
    new = [{**row, **made_by()} for row in rows]
    there = path.exists()
    columns = _with_made(path) if there else list(new[0])
    with path.open("a", encoding="utf-8", newline="") as opened:
        opened.write(lines([*([] if there else [columns]), *([row[name] for name in columns] for row in new)]))


def cells(path: Path) -> set[tuple[tuple[tuple[str, str], ...], str, str]]:
    """(setting, unit, seed) of every cell of a file; empty if the file does not exist."""
    return {(each.setting, each.unit, each.seed) for each in read(path)} if path.exists() else set()


def _text(setting: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{name}={text}" for name, text in setting)
