"""The printed numbers of the papers, by table, row, column and metric."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

COLUMNS = ("dataset", "backbone", "dim", "batch_size", "image_size")


@dataclass(frozen=True)
class Number:
    """One number of a table, as printed.

    Attributes:
        paper: rambo, auc, pnp or roadmap.
        table: number of the table.
        row: name of the row, with the paper's reference signs.
        own: whether the row is a method of this paper.
        where: dataset, backbone, dim, batch_size and image_size, as far as the paper gives them.
        metric: R@1, mAP@R, ...
        text: the number with the digits of the paper; empty if it prints words (see `note`).
        std: standard deviation as printed, or empty.
        note: details that the paper leaves open, or contradictions in it.
    """

    paper: str
    table: str
    row: str
    own: bool
    where: Mapping[str, str]
    metric: str
    text: str
    std: str
    note: str

    @property
    def value(self) -> float | None:
        """The number as a float; None if the paper prints words."""
        return float(self.text) if self.text else None


@cache
def numbers() -> tuple[Number, ...]:
    """All printed numbers, in the order of the papers.

    >>> len(numbers())
    938
    """
    text = resources.files("rankgrad_papers.experiments").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        Number(
            paper=row["paper"],
            table=row["table"],
            row=row["row"],
            own=row["own"] == "1",
            where={name: row[name] for name in COLUMNS if row[name]},
            metric=row["metric"],
            text=row["value"],
            std=row["std"],
            note=row["note"],
        )
        for row in csv.DictReader(lines)
    )


def select(
    paper: str,
    table: str | int,
    row: str | None = None,
    metric: str | None = None,
    where: Mapping[str, object] | None = None,
) -> list[Number]:
    """The numbers of a table; only those of a row, of a metric, or with given values of the columns, if wanted.

    >>> [number.text for number in select("roadmap", 2, metric="mAP@R", where={"dataset": "cub"})]
    ['23.9', '24.6', '25.3']
    """
    wanted = {name: str(value) for name, value in (where or {}).items()}
    return [
        number
        for number in numbers()
        if (number.paper, number.table) == (paper, str(table))
        and row in (None, number.row)
        and metric in (None, number.metric)
        and all(number.where.get(name) == value for name, value in wanted.items())
    ]


def find(paper: str, table: str | int, row: str, metric: str, where: Mapping[str, object]) -> Number | None:
    """The number of this row and metric; None if the paper has none.

    Raises:
        ValueError: several numbers fit; give more columns in `where`.

    >>> find("rambo", 2, "RaMBO log", "R@1", {"dataset": "sop"}).value
    77.8
    """
    selected = select(paper, table, row, metric, where)
    if len(selected) > 1:
        known = "; ".join(", ".join(f"{key} {value}" for key, value in number.where.items()) for number in selected)
        raise ValueError(f"{paper}, table {table}, {row!r} has {len(selected)} numbers for {metric}: {known}")
    return selected[0] if selected else None
