"""BM25 beside a model, and the fusion of the two, in which the validation queries choose the weight of the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import trec
from .bm25 import bm25
from .collection import Array, Collection
from .encoders import Found
from .evaluation import BM25, FUSED, TRAINED, as_run, main_values
from .itself import deeper, without_own

#: Weights of the model, where BM25 has 1. Of weights that are equally good, the first is chosen. With the last one, the
#: fusion has almost the order of BM25.
WEIGHTS = (1.0, 1 / 2, 2.0, 1 / 4, 4.0, 1 / 16, 1 / 64, 1 / 256)
FEWEST, MOST = 100, 1000  # queries that choose: fewer choose by chance, and more only take longer


def beside_bm25(trained: Found, collection: Collection, depth: int, weight: float = 1.0) -> dict[str, Found]:
    """The lists of the trained model for the test queries, those of BM25, and their fusion."""
    rows = collection.rows("test")
    words = _of_words(collection, rows, depth)
    return {TRAINED: trained, BM25: words, FUSED: fused([trained, words], [weight, 1.0], collection, rows, depth)}


def chosen_weight(found: Found, collection: Collection, depth: int) -> float:
    """The weight of the model whose fusion has the highest NDCG@10 for the validation queries.

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
    words = _of_words(collection, rows, depth)

    def value(weight: float) -> float:
        return float(
            main_values(fused([model, words], [weight, 1.0], collection, rows, depth), collection, rows, "val").mean()
        )

    return max(WEIGHTS, key=value)


def fused(lists: Sequence[Found], weights: Sequence[float], collection: Collection, rows: Array, depth: int) -> Found:
    """Reciprocal rank fusion of the lists of several systems, see `trec.fuse`.

    Args:
        lists: one for each system.
        weights: of the systems.
        collection: queries and documents.
        rows: [query] rows of the queries.
        depth: number of documents in a list.
    """
    runs = {str(at): as_run(found, collection, rows) for at, found in enumerate(lists)}
    made = trec.fuse(runs, depth=depth, weights=dict(zip(runs, weights, strict=True)))
    place = {name: row for row, name in enumerate(collection.documents.names)}
    documents, scores = np.full((len(rows), depth), -1), np.zeros((len(rows), depth))
    for at, row in enumerate(rows.tolist()):
        listed = made.get(collection.queries.names[row], {})
        documents[at, : len(listed)] = [place[name] for name in listed]
        scores[at, : len(listed)] = [*listed.values()]
    return Found(documents, scores)


def _of_words(collection: Collection, rows: Array, depth: int) -> Found:
    """The lists of BM25."""
    asked = [collection.queries.texts[row] for row in rows.tolist()]
    found = bm25(asked, collection.documents.texts, deeper(collection, depth))
    return without_own(found, collection, rows, depth)


__all__ = ["beside_bm25", "chosen_weight", "fused"]
