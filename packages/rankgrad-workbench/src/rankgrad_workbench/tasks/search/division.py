"""Queries for training, validation and test: those of the data, else a division by a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankgrad.common.checks import spelled

from ...datasets.folds import read_fold
from ...settings import ConfigError
from ...settings.spelling import as_keys
from .collection import Array, Collection, plain
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
    relevant, judged = np.zeros((2, len(split)), bool)
    relevant[collection.judged.query[collection.judged.grade > 0]] = True
    judged[collection.judged.query] = True
    undivided = not (split != "").any()
    split[judged & undivided] = "train"
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
        split[_drawn(collection, relevant & (split == "train"), data.validation, rng)] = "val"
    made = left_out(collection.with_split(split, *notes), data.own_documents)
    for part in ("train", "test"):
        if not len(made.rows(part)):
            raise ConfigError(
                f"{collection.name} has queries with a relevant document: {relevant.sum():,}, but none to {part} on, "
                f"with data.test_fraction={data.test_fraction:g} and fold={settings.fold}"
            )
    return made


def own_documents(collection: Collection) -> dict[int, Array]:
    """Row of a query -> rows of the documents that are the query itself, by their name or by their text.

    A number is a name only if the text of the query is in the document, as queries and documents are often numbered
    alike. A document that is judged relevant to its own query is an answer.
    """
    documents, queries = collection.documents, collection.queries
    named = {name: row for row, name in enumerate(documents.names)}
    same: dict[str, set[int]] = {plain(text): set() for text in queries.texts}
    for row, text in enumerate(documents.texts):
        if (key := plain(text)) in same:
            same[key].add(row)
    relevant = collection.judged.take(collection.judged.grade > 0)
    answers = set(zip(relevant.query.tolist(), relevant.document.tolist(), strict=True))
    found = {}
    for query, (name, text) in enumerate(zip(queries.names, map(plain, queries.texts), strict=True)):
        place = named.get(name)
        rows = {*same[text]}
        if place is not None and (not name.isdecimal() or text in plain(documents.texts[place])):
            rows.add(place)
        if rows := {row for row in rows if (query, row) not in answers}:
            found[query] = np.array(sorted(rows))
    return found


def left_out(collection: Collection, keep: bool) -> Collection:
    """The collection in which a query's own documents are in no list, unless they are kept; with a note on them."""
    own = {query: rows for query, rows in own_documents(collection).items() if collection.split[query]}
    if not own:
        return collection
    note = f"queries that are a document themselves: {len(own):,}; "
    note += "it stays in their lists" if keep else "it is in no list of theirs (data.own_documents=true keeps it)"
    return replace(collection, own={} if keep else own, notes=(*collection.notes, note))


def _drawn(collection: Collection, among: Array, fraction: float, rng: np.random.RandomState) -> Array:
    """Some of the queries `among` (a mask), at least one and not all, and the queries with their texts; none of one."""
    rows = np.flatnonzero(among)
    if len(rows) < 2:
        return rows[:0]
    drawn: Array = rng.permutation(rows)[: min(max(round(fraction * len(rows)), 1), len(rows) - 1)]
    said = {plain(collection.queries.texts[row]) for row in drawn.tolist()}
    with_copies = [row for row in rows.tolist() if plain(collection.queries.texts[row]) in said]
    return drawn if len(with_copies) == len(rows) else np.array(with_copies)
