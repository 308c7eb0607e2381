"""Who is asked, and what is searched: the evaluation protocols of the retrieval papers, as rows of a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .rows import Rows

DRAWS = 10  # galleries of `one_gallery`


@dataclass(frozen=True, eq=False)
class Trial:
    """One evaluation: rows of a table that are asked, and rows that are ranked for them.

    Attributes:
        query: [query] long.
        gallery: [item] long; None: the queries themselves, each ranked against all others.
    """

    query: Tensor
    gallery: Tensor | None = None


def trials(table: Rows, draws: int = DRAWS, seed: int = 0) -> tuple[Trial, ...]:
    """The evaluations that make up a table's protocol; a result is their mean (`over_draws`).

    "leave_one_out": every image is a query, all other images of the split are its gallery (CUB, SOP, iNaturalist; on
    VehicleID: FastAP, Smooth-AP, PNP). One trial.
    "query_gallery": the division that comes with the data set (In-shop): `Table.role`. One trial; no image is in both,
    so none has to be left out.
    "one_gallery": one image of each class, drawn at random, is the gallery, and all others are queries (Liu et al.,
    CVPR 2016, on VehicleID; the common practice of vehicle re-identification, ten draws). `draws` trials. Numbers are
    not comparable with leave-one-out: a query has one right answer instead of several.

    Args:
        table: one split, e.g. `table.select("test")`; rows are counted in it.
        draws: galleries of "one_gallery", >= 1; the others do not draw.
        seed: of the draws, >= 0. Draw k is the same whatever the number of draws.

    Raises:
        ValueError: if the split lacks queries or a gallery; if draws or seed are out of range.

    >>> from rankgrad.datasets.base import Table
    >>> table = Table("three", torch.tensor([0, 0, 1]), ("a", "b"), ("test",) * 3, tuple("xyz"), channels=1,
    ...               images=torch.zeros(3, 1, 8, 8, dtype=torch.uint8), role=("query", "gallery", "gallery"),
    ...               protocol="query_gallery")
    >>> trials(table)
    (Trial(query=tensor([0]), gallery=tensor([1, 2])),)
    """
    if draws < 1 or seed < 0:
        raise ValueError(f"draws must be >= 1 and seed >= 0; got {draws} and {seed}")
    if table.protocol == "leave_one_out":
        return (Trial(torch.arange(len(table))),)
    if table.protocol == "query_gallery":
        return (_divided(table),)
    return tuple(_drawn(table, seed, draw) for draw in range(draws))


def over_draws(values: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """(mean, standard deviation) of each number over the trials; the deviation of a single trial is 0.

    >>> over_draws([{"R@1": 0.5}, {"R@1": 1.0}, {"R@1": 0.75}])["R@1"]
    (0.75, 0.25)
    """
    if not values or any(set(one) != set(values[0]) for one in values):
        raise ValueError(f"need the same numbers from each trial, and one trial at least; got {[*map(set, values)]}")
    by_metric = {name: [one[name] for one in values] for name in values[0]}
    return {n: (statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for n, v in by_metric.items()}


def _divided(table: Rows) -> Trial:
    role = np.array(table.role)
    query, gallery = (torch.from_numpy(np.flatnonzero(role == kind)) for kind in ("query", "gallery"))
    if not (len(query) and len(gallery)):
        raise ValueError(
            f"{table.name} is evaluated with the queries and the gallery that come with it, but {len(query)} queries "
            f"and {len(gallery)} gallery images are in the split {', '.join(table.splits) or 'without images'}: take "
            "the split that has both (evaluation.split=test)"
        )
    return Trial(query, gallery)


def _drawn(table: Rows, seed: int, draw: int) -> Trial:
    label = table.label.numpy()
    # random keys, sorted within each class: the first of a class is its gallery image
    order = np.lexsort((np.random.default_rng([seed, draw]).random(len(label)), label))
    first = np.ones(len(label), dtype=bool)
    first[1:] = label[order][1:] != label[order][:-1]
    chosen = np.zeros(len(label), dtype=bool)
    chosen[order[first]] = True
    if chosen.all():
        raise ValueError(f"{table.name} has one image of each class: with that in the gallery there are no queries")
    return Trial(torch.from_numpy(np.flatnonzero(~chosen)), torch.from_numpy(np.flatnonzero(chosen)))
