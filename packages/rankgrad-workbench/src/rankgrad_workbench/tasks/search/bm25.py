"""BM25, the ranking by words that every search is compared with."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np

from rankgrad.common.checks import integer
from rankgrad.common.extras import missing

from .encoders import Found

# Scripts without spaces between words: Thai, Lao; Burmese; Khmer; Japanese and Chinese. Korean has spaces.
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff"
NO_SPACES += "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"


def bm25(queries: Sequence[str], documents: Sequence[str], depth: int = 100) -> Found:
    """The documents with the highest BM25 for each query, by bm25s with its defaults (Lucene's variant, k1 1.5, b .75).

    What is counted are the `words` of a text; there are no stop words and no stems.

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
    plain = {"stopwords": [], "token_pattern": r"\S+", "lower": False, "show_progress": False}
    counted = bm25s.tokenize((" ".join(words(text)) for text in documents), **plain)
    if not counted.vocab:  # no document has a word
        return Found(np.full((len(queries), depth), -1), np.zeros((len(queries), depth)))
    index = bm25s.BM25()
    index.index(counted, show_progress=False)
    asked = [words(text) for text in queries]
    rows, score = index.retrieve(asked, k=depth, show_progress=False, sorted=True)
    order = np.lexsort((rows, -score))  # of equal scores the lower row comes first, with any number of threads
    rows, score = (np.take_along_axis(each, order, 1) for each in (rows.astype(np.int64), score.astype(np.float64)))
    return Found(np.where(score > 0, rows, -1), score)


def words(text: str) -> list[str]:
    """Words of two or more letters or digits, in lower case; and the pairs of characters of scripts without spaces.

    >>> words("A red FOX"), words("iPhone手机壳"), words("मानक"), words("한국어 검색")
    (['red', 'fox'], ['iphone', '手机', '机壳'], ['मानक'], ['한국어', '검색'])
    """
    if text.isascii():  # many times as fast
        return re.findall(r"\w\w+", text.lower())
    found = []
    for run, word in _pattern().findall(unicodedata.normalize("NFKC", text).lower()):
        found += [word] if word else [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
    return found


@cache
def _pattern() -> re.Pattern[str]:
    """(a run of a script without spaces; a word of another one). The vowel signs of a script belong to its words."""
    marks = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"([{NO_SPACES}]+)|((?:(?![{NO_SPACES}])[\w{marks}]){{2,}})")


__all__ = ["bm25", "words"]
