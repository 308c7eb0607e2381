"""Queries for training, validation and test: those of the data, else a division by a seed."""

from __future__ import annotations

import numpy as np

from rankgrad.common.checks import spelled

from ...datasets.folds import read_fold
from ...settings import ConfigError
from ...settings.spelling import as_keys
from .collection import Array, Collection
from .itself import left_out
from .reading import read
from .settings import SearchSettings


def collection_of(settings: SearchSettings) -> Collection:
    """The collection of a run, divided."""
    with spelled(as_keys("data.load", {"root": "data.root", "test_fraction": "data.test_fraction"})):
        return divided(read(settings.data.root, **settings.data.load), settings)


def divided(collection: Collection, settings: SearchSettings) -> Collection:
    """The collection with training queries, and with test and validation queries if the settings want them.

    Queries are drawn, with all their judgements: a document may be relevant to queries of several parts.

    Raises:
        ConfigError: a part has no query with a relevant document.
    """
    data, fold = settings.data, read_fold(settings.fold)
    if (fold is None) != (settings.evaluation.split == "test"):
        raise ConfigError(
            "evaluation.split=val and fold= go together: fold=1/3 holds out a third of the training queries"
        )
    split, notes = collection.split.copy(), []
    relevant = np.zeros(len(split), bool)
    relevant[collection.judged.query[collection.judged.grade > 0]] = True
    judged = np.zeros(len(split), bool)
    judged[collection.judged.query] = True
    undivided = not (split != "").any()
    split[(split == "") & judged & undivided] = "train"
    if (split == "test").any() and not (relevant & (split == "train")).any():
        split[split == "test"], undivided = "train", True
        notes.append("the data has only test queries, so training queries are drawn from them")
    rng = np.random.RandomState(data.seed)  # numpy guarantees the numbers of RandomState
    undivided |= not (split == "test").any()
    if undivided and data.test_fraction and fold is None:
        drawn = _drawn(collection, relevant & (split == "train"), data.test_fraction, rng)
        split[drawn] = "test"
        notes.append(
            f"test queries are drawn by data.seed={data.seed}: {len(drawn):,} "
            f"(data.test_fraction={data.test_fraction:g})"
        )
    if fold is not None:
        train = np.flatnonzero(relevant & (split == "train"))
        place = np.random.RandomState(0).permutation(len(train)) % fold[1]
        split[split == "test"] = ""
        split[train[place == fold[0] - 1]] = "test"
    if settings.evaluation.select and data.validation and not (relevant & (split == "val")).any():
        drawn = _drawn(collection, relevant & (split == "train"), data.validation, rng)
        split[drawn] = "val"
    made = left_out(collection.with_split(split, *notes), data.own_documents)
    usable = int(relevant.sum())
    there = "1 query" if usable == 1 else f"{usable:,} queries"
    for part in ("train", "test"):
        if not len(made.rows(part)):
            why = _why(part, settings, undivided)
            raise ConfigError(f"{collection.name} has {there} with a relevant document, but {why}")
    return made


def _why(part: str, settings: SearchSettings, undivided: bool) -> str:
    """Why a part has no query."""
    if settings.fold is not None:
        return f"fold={settings.fold} has none to {part} on: make fewer folds"
    if not undivided:
        return f"none is of split {part}"
    return f"none is left to {part} on" if settings.data.test_fraction else "no test: set data.test_fraction"


def _drawn(collection: Collection, among: Array, fraction: float, rng: np.random.RandomState) -> Array:
    """Some of the queries `among` (a mask), at least one and not all, and the queries with their texts; none of one."""
    rows = np.flatnonzero(among)
    if len(rows) < 2:
        return rows[:0]
    drawn: Array = rng.permutation(rows)[: min(max(round(fraction * len(rows)), 1), len(rows) - 1)]
    said = {collection.queries.texts[row].strip().lower() for row in drawn.tolist()}
    with_copies = [row for row in rows.tolist() if collection.queries.texts[row].strip().lower() in said]
    return drawn if len(with_copies) == len(rows) else np.array(with_copies)
