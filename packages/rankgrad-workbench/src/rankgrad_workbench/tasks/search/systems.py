"""The systems of a search, one function each: queries -> lists, in which no query finds its own document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import trec
from .bm25 import bm25
from .collection import Array, Collection
from .encoders import Encoders, Found, StoredRows, retrieve, without_own
from .evaluation import BM25, FUSED, TRAINED, SearchReport, as_run, evaluate_systems, main_values
from .settings import SearchSettings

#: Weights of the model, where BM25 has 1. Of weights that are equally good, the first is chosen. With the last one, the
#: fusion has almost the order of BM25.
WEIGHTS = (1.0, 1 / 2, 2.0, 1 / 4, 4.0, 1 / 16, 1 / 64, 1 / 256)
MOST = 1000  # queries that choose: more only take longer


def by_words(collection: Collection, rows: Array, depth: int) -> Found:
    """The lists of BM25 for some queries of a collection."""
    return _answers(lambda asked, deep: bm25(asked, collection.documents.texts, deep), collection, rows, depth)


def by_model(
    model: Encoders, collection: Collection, rows: Array, depth: int, corpus: StoredRows, size: int, progress: bool
) -> Found:
    """The lists of a model for some queries of a collection.

    Args:
        model: the encoders.
        collection: queries and documents.
        rows: [query] rows of the queries.
        depth: number of documents in a list.
        corpus: embeddings of the documents.
        size: number of texts that are embedded at a time.
        progress: show bars.
    """

    def search(asked: Sequence[str], deep: int) -> Found:
        documents = collection.documents
        return retrieve(model, asked, documents, deep, batch_size=size, progress=progress, corpus=corpus)

    return _answers(search, collection, rows, depth)


def fused(
    systems: Mapping[str, Found], weights: Mapping[str, float], collection: Collection, rows: Array, depth: int
) -> Found:
    """Reciprocal rank fusion of the lists of several systems, see `trec.fuse`.

    Args:
        systems: name -> lists.
        weights: name -> weight.
        collection: queries and documents.
        rows: [query] rows of the queries.
        depth: number of documents in a list.
    """
    runs = {name: as_run(found, collection, rows) for name, found in systems.items()}
    made = trec.fuse(runs, depth=depth, weights=weights)
    place = {name: row for row, name in enumerate(collection.documents.names)}
    documents, scores = np.full((len(rows), depth), -1), np.zeros((len(rows), depth))
    for at, row in enumerate(rows.tolist()):
        listed = made.get(collection.queries.names[row], {})
        documents[at, : len(listed)] = [place[name] for name in listed]
        scores[at, : len(listed)] = [*listed.values()]
    return Found(documents, scores)


def chosen_weight(found: Found, collection: Collection, depth: int) -> float:
    """The weight of the model whose fusion with BM25 has the highest NDCG@10 for the validation queries.

    A model that is far behind BM25 spoils a fusion with equal weights: a document counts as much as its rank, and not
    as much as the model is worth.

    Args:
        found: the lists of the model for the validation queries.
        collection: queries, documents and judgements.
        depth: number of documents in a list.
    """
    rows = collection.rows("val")
    some = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(int))
    rows, model = rows[some], Found(found.document[some], found.score[some])
    systems = {"model": model, "words": by_words(collection, rows, depth)}

    def value(weight: float) -> float:
        made = fused(systems, {"model": weight, "words": 1.0}, collection, rows, depth)
        return float(main_values(made, collection, rows, "val").mean())

    return max(WEIGHTS, key=value)


def judged(
    lists: Mapping[str, Found], collection: Collection, settings: SearchSettings, *, weight: float | None, **more: Any
) -> tuple[SearchReport, Mapping[str, Found]]:
    """A model beside BM25 and their fusion on the test queries: the report, and the lists of all systems.

    Args:
        lists: those of the model, and of what else it is compared with.
        collection: queries, documents and judgements.
        settings: of the run.
        weight: of the model in the fusion, if the validation queries have chosen it; None: 1.
        more: see `evaluate_systems`.
    """
    rows, depth = collection.rows("test"), settings.evaluation.depth
    two = {TRAINED: lists[TRAINED], BM25: by_words(collection, rows, depth)}
    weights = {TRAINED: 1.0 if weight is None else weight, BM25: 1.0}
    found = {**lists, **two, FUSED: fused(two, weights, collection, rows, depth)}
    report = evaluate_systems(found, collection, seed=settings.seed, weight=weight, **more)
    return replace(report, notes=(*report.notes, *collection.doubts())), found


def _answers(search: Callable[[Sequence[str], int], Found], collection: Collection, rows: Array, depth: int) -> Found:
    """The lists of a function (texts, depth) -> lists, without the queries' own documents."""
    asked = [collection.queries.texts[row] for row in rows.tolist()]
    return without_own(search(asked, depth + collection.most_own), collection, rows, depth)


__all__ = ["WEIGHTS", "by_model", "by_words", "chosen_weight", "fused", "judged"]
