"""Queries that are documents of the corpus, as in ArguAna and Quora: such a document is no answer to its own query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .collection import Array, Collection, digest
from .encoders import Found


def own_documents(collection: Collection) -> dict[int, Array]:
    """Row of a query -> rows of the documents that are the query itself, by their name or by their text.

    A number is a name only if the text of the query is in the document, as queries and documents are often numbered
    alike. A document that is judged relevant to its own query is an answer.
    """
    documents, queries = collection.documents, collection.queries
    named = {name: row for row, name in enumerate(documents.names)}
    same: dict[int, list[int]] = {}
    asked = {digest(_plain(text)) for text in queries.texts}
    for row, text in enumerate(documents.texts):
        if (key := digest(_plain(text))) in asked:
            same.setdefault(key, []).append(row)
    relevant = collection.judged.take(collection.judged.grade > 0)
    answers = set(zip(relevant.query.tolist(), relevant.document.tolist(), strict=True))
    found = {}
    for query, (name, text) in enumerate(zip(queries.names, queries.texts, strict=True)):
        rows = {*same.get(digest(_plain(text)), ())} if _plain(text) else set()
        place = named.get(name)
        if place is not None and (not name.isdecimal() or _plain(text) in _plain(documents.texts[place])):
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


def deeper(collection: Collection, depth: int) -> int:
    """The number of documents to search, so that `depth` are left without a query's own."""
    return depth + max(map(len, collection.own.values()), default=0)


def without_own(found: Found, collection: Collection, rows: Array, depth: int) -> Found:
    """Lists of `deeper` documents without a query's own, cut to `depth`.

    Args:
        found: the lists.
        collection: with the queries' own documents.
        rows: [query] rows of the queries.
        depth: number of documents that are kept.
    """
    document, score = found.document.copy(), found.score.copy()
    for at, query in enumerate(rows.tolist()):
        if (own := collection.own.get(query)) is not None:
            order = np.argsort(np.isin(document[at], own), kind="stable")
            document[at], score[at] = document[at, order], score[at, order]
            document[at, np.isin(document[at], own)] = -1
    return Found(document[:, :depth], score[:, :depth])


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


__all__ = ["deeper", "left_out", "without_own"]
