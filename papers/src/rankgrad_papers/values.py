"""Measured values in a csv file, one number per row: means, spreads, differences with their intervals.

The columns of a file of values:

    metric, value    the name and the number: mAP@R, 42.5. Fractions are in per cent.
    seed             the seed of the training
    unit             the unit of the sample: an alphabet, a fold of classes, a data set
    others           the setting, such as loss, rate, memory

A file has `seed`, `unit` or both. The unit of a comparison is `unit`, and the seeds of a unit are averaged first.
Without that column it is the seed. A cell of an experiment is a setting with its unit and seed: `append` writes all its
numbers at once, and `cells` lists the cells of a file, so that a queue of trainings can continue from it.

The ID.csv of `rankgrad reproduce` is read as well: its column `by_seed` holds the numbers of a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankgrad.evaluation.statistics import PairedDifference, paired_t_test

SEED, UNIT, METRIC, VALUE = "seed", "unit", "metric", "value"
# The columns of an ID.csv that identify a row.
_REPRODUCED = ("row", "backbone", "dim", "batch_size", "image_size", "varies", "settings")

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


def read(path: Path) -> Values:
    """Read the values of a file; the columns are described at the top of this module.

    Raises:
        ValueError: a column is missing, or a value is not a number.
    """
    with path.open(encoding="utf-8", newline="") as opened:
        reader = csv.DictReader(opened)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    if "by_seed" in columns:
        return Values(_reproduced(rows), path.name)
    if not {METRIC, VALUE} <= {*columns} or not {SEED, UNIT} & {*columns}:
        raise ValueError(f"{path} has no values: it needs the columns metric, value, and seed or unit; got {columns}")
    values = []
    for line, row in enumerate(rows, 2):
        setting = tuple((name, row[name]) for name in columns if name not in (SEED, UNIT, METRIC, VALUE))
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


def append(path: Path, setting: Setting, numbers: Mapping[str, float], *, unit: str = "", seed: str = "") -> None:
    """Add a cell to a file. All its numbers are written at once, so that no cell is incomplete.

    Args:
        path: of the file; created if it does not exist. The columns of an existing file are kept.
        setting: column -> text.
        numbers: metric -> value.
        unit: needed if the file has units.
        seed: needed if the file has seeds.

    Raises:
        ValueError: the file has other columns, or has this cell already.
    """
    ids = {name: text for name, text in ((UNIT, unit), (SEED, seed)) if text}
    columns = [*setting, *ids, METRIC, VALUE]
    there = path.exists() and path.stat().st_size > 0
    if there:
        with path.open(encoding="utf-8", newline="") as opened:
            head = next(csv.reader(opened))
        if sorted(head) != sorted(columns):
            raise ValueError(f"{path} has columns {', '.join(head)}; this cell has {', '.join(columns)}")
        if (tuple((name, setting[name]) for name in head if name in setting), unit, seed) in cells(path):
            raise ValueError(f"{path} has this cell already: {_text((*setting.items(), *ids.items()))}")
        columns = head
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    if not there:
        writer.writeheader()
    writer.writerows({**setting, **ids, METRIC: metric, VALUE: f"{value:.8g}"} for metric, value in numbers.items())
    with path.open("a", encoding="utf-8", newline="") as opened:
        opened.write(stream.getvalue())


def cells(path: Path) -> set[tuple[tuple[tuple[str, str], ...], str, str]]:
    """(setting, unit, seed) of every cell of a file; empty if the file does not exist."""
    return {(each.setting, each.unit, each.seed) for each in read(path)} if path.exists() else set()


def _text(setting: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{name}={text}" for name, text in setting)
