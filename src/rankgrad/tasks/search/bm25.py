"""BM25, the ranking by words that every search is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...common.checks import integer
from ...common.extras import missing
from .encoders import Found


def bm25(queries: Sequence[str], documents: Sequence[str], depth: int = 100) -> Found:
    """The documents with the highest BM25 for each query, by bm25s with its defaults (Lucene's variant, k1 1.5, b .75).

    Words are runs of two or more letters or digits in lower case; there are no stop words and no stems, so this works
    alike in every language that has spaces.

    Args:
        queries: [query] texts.
        documents: [document] texts.
        depth: number of documents in a list. A document without a word of the query is in no list.

    Raises:
        ModuleNotFoundError: bm25s is not installed.

    >>> found = bm25(["red fox"], ["a red fox", "a red house", "a dog"], depth=3)
    >>> found.document
    array([[ 0,  1, -1]])
    """
    try:
        import bm25s
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    depth = min(integer(depth, "depth is a number of documents", low=1), len(documents))
    words = bm25s.tokenize(documents, stopwords=[], show_progress=False)
    if not words.vocab:  # no document has a word
        return Found(np.full((len(queries), depth), -1), np.zeros((len(queries), depth)))
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    asked = bm25s.tokenize(list(queries), stopwords=[], show_progress=False, return_ids=False)
    rows, score = index.retrieve(asked, k=depth, show_progress=False, sorted=True)
    order = np.lexsort((rows, -score))  # of equal scores the lower row comes first, with any number of threads
    rows, score = (np.take_along_axis(each, order, 1) for each in (rows.astype(np.int64), score.astype(np.float64)))
    return Found(np.where(score > 0, rows, -1), score)
