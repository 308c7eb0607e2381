"""The evaluation protocols of the retrieval papers: which rows of a table are queries, and which are the gallery."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .rows import Rows

DRAWS = 10  # random galleries of "one_gallery"


@dataclass(frozen=True, eq=False)
class Trial:
    """One evaluation: the rows of a table that are queries, and the rows that are ranked for them.

    Attributes:
        query: [query] long, rows.
        gallery: [item] long, rows; None: the queries are the gallery, and each is ranked against all others.
    """

    query: Tensor
    gallery: Tensor | None = None


def trials(table: Rows, draws: int = DRAWS, seed: int = 0) -> tuple[Trial, ...]:
    """The evaluations of a table's protocol. A result is the mean over them (`over_draws`).

    "leave_one_out": every image is a query; all other images of the split are its gallery (CUB, SOP, iNaturalist; on
    VehicleID: FastAP, Smooth-AP, PNP). One trial.
    "query_gallery": the data set says which rows are queries and which are the gallery, in `Table.role` (In-shop). One
    trial.
    "one_gallery": one random image of each class is in the gallery; all others are queries (Liu et al., CVPR 2016, on
    VehicleID; the common practice of vehicle re-identification, with ten random galleries). `draws` trials. Results are
    not comparable with leave-one-out, because a query has one relevant item instead of several.

    Args:
        table: one split, e.g. `table.select("test")`; the trials hold row numbers of this table.
        draws: number of random galleries of "one_gallery", >= 1; other protocols ignore it.
        seed: of the random galleries, >= 0. Gallery k does not depend on `draws`.

    Raises:
        ValueError: if the split lacks queries or a gallery; if draws or seed are out of range.

    >>> from rankgrad_workbench.datasets.base import Table
    >>> table = Table("three", torch.tensor([0, 0, 1]), ("a", "b"), ("test",) * 3, tuple("xyz"), channels=1,
    ...               images=torch.zeros(3, 1, 8, 8, dtype=torch.uint8), role=("query", "gallery", "gallery"),
    ...               protocol="query_gallery")
    >>> trials(table)
    (Trial(query=tensor([0]), gallery=tensor([1, 2])),)
    """
    if draws < 1 or seed < 0:
        raise ValueError(f"draws must be >= 1 and seed >= 0; got {draws} and {seed}")
    # a validation split may have no roles
    alone = table.protocol == "query_gallery" and not any(table.role or ()) and table.splits == ("val",)
    if table.protocol == "leave_one_out" or alone:
        return (Trial(torch.arange(len(table))),)
    if table.protocol == "query_gallery":
        return (_divided(table),)
    return tuple(_drawn(table, seed, draw) for draw in range(draws))


def over_draws(values: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """(mean, standard deviation) of each number over the trials; the deviation of a single trial is 0.

    >>> over_draws([{"R@1": 0.5}, {"R@1": 1.0}, {"R@1": 0.75}])["R@1"]
    (0.75, 0.25)
    """
    by_metric = {name: [one[name] for one in values] for name in values[0]}
    return {n: (statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for n, v in by_metric.items()}


def _divided(table: Rows) -> Trial:
    role = np.array(table.role)
    query, gallery = (torch.from_numpy(np.flatnonzero(role == kind)) for kind in ("query", "gallery"))
    if not (len(query) and len(gallery)):
        there = f"it has {len(query)} and {len(gallery)} {table.takes}"
        raise ValueError(
            f"{table.name} needs queries and a gallery in its split; {there}. Choose another: evaluation.split=test"
        )
    return Trial(query, gallery)


def _drawn(table: Rows, seed: int, draw: int) -> Trial:
    label = table.label.numpy()
    # sort the images of each class by random keys: the first image of a class is its gallery image
    order = np.lexsort((np.random.default_rng([seed, draw]).random(len(label)), label))
    first = np.ones(len(label), dtype=bool)
    first[1:] = label[order][1:] != label[order][:-1]
    chosen = np.zeros(len(label), dtype=bool)
    chosen[order[first]] = True
    if chosen.all():
        raise ValueError(
            f"{table.name} has only one {table.noun} of each class: all are in the gallery, and no query is left"
        )
    return Trial(torch.from_numpy(np.flatnonzero(~chosen)), torch.from_numpy(np.flatnonzero(chosen)))
