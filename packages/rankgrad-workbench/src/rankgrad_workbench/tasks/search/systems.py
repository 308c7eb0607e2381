"""The systems of a search: queries -> lists, in which no query finds its own document; and the one that is handed over.

On the validation queries the systems are compared in the order of what they ask for: BM25, the model that there was,
their fusion, the trained model, its fusion. The first one is handed over that is not surely worse than the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ...datasets.tabular import AUTO
from .bm25 import Words, bm25, language_of, tokens_of
from .collection import Array, Collection
from .encoders import Encoders, Found, StoredRows, retrieve, without_own
from .evaluation import BEFORE, BEFORE_FUSED, BM25, FUSED, PRICES, TRAINED, SearchReport, evaluate_systems, main_values
from .fusion import FEATURES, WEIGHTS, JoinedLists
from .settings import SearchSettings

#: System -> the fusion of it with BM25.
FUSIONS = {BEFORE: BEFORE_FUSED, TRAINED: FUSED}
K1, B = (1.5, 0.9, 1.2, 2.0), (0.75, 0.4, 0.6, 0.9)  # of BM25, the defaults first
FEWEST = 20  # validation queries that choose anything
MOST, LARGE = 1000, 200_000  # about how many queries choose the constants of BM25, and of how many documents


@dataclass(frozen=True)
class Chosen:
    """What the validation queries have chosen.

    Attributes:
        words: how BM25 reads and weighs.
        weights: fusion -> weights of its features, see `fusion`.
        system: the system that is handed over; None: too few queries choose one.
        values: system -> NDCG@10 on the validation queries, of fusions with weights that other queries have chosen.
    """

    words: Words
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    system: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The system that is handed over; the fusion with the trained model, if too few queries choose."""
        return self.system or FUSED

    def plain(self) -> dict[str, Any]:
        """For json."""
        return {**asdict(self), "weights": {name: [*map(float, each)] for name, each in self.weights.items()}}

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Chosen:
        """From the settings of a report.

        Raises:
            ValueError: it has no such values.
        """
        weights, words = content["weights"], content["words"]
        found = cls(Words(words["language"], words["k1"], words["b"]), weights, content["system"], content["values"])
        wrong = [name for name, each in weights.items() if len(each) != len(FEATURES)]
        if wrong or found.name not in {BM25, BEFORE, TRAINED, *weights}:
            raise ValueError(f"a fusion has {len(FEATURES)} weights; of {found.name!r} came {weights.get(found.name)}")
        return found


def by_words(collection: Collection, rows: Array, depth: int, how: Words, tokens: Any = None) -> Found:
    """The lists of BM25 for some queries of a collection; see `bm25`."""
    texts = collection.documents.texts
    return _answers(lambda asked, deep: bm25(asked, texts, deep, how, tokens), collection, rows, depth)


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


def least_change(values: Mapping[str, Array]) -> str:
    """The first system that is not surely worse than the best: by no more than one standard error of the difference.

    Args:
        values: system -> [query] its metric.

    >>> least_change({"had": np.array([0.5, 0.4, 0.6]), "new": np.array([0.5, 0.5, 0.6])})
    'had'
    """
    best = max(values, key=lambda name: float(values[name].mean()))

    def surely_worse(behind: Array) -> bool:
        return bool(behind.mean() > behind.std(ddof=1) / math.sqrt(len(behind)))

    return next(name for name, own in values.items() if name == best or not surely_worse(values[best] - own))


def chosen_words(settings: SearchSettings, collection: Collection) -> Words:
    """How BM25 reads this collection: as the settings say; what they leave open, the validation queries choose."""
    given, rows = settings.bm25, collection.rows("val")
    rows = rows[:: max(len(rows) // MOST, 1)]
    language = language_of(collection.documents.texts) if given.language == AUTO else given.language
    usual = Words(language, K1[0] if given.k1 is None else given.k1, B[0] if given.b is None else given.b)
    ks, bs = (K1 if given.k1 is None else [given.k1]), (B if given.b is None else [given.b])
    if len(ks) * len(bs) == 1 or len(rows) < FEWEST or len(collection.documents) > LARGE:
        return usual
    tried = {f"{k} {b}": replace(usual, k1=k, b=b) for k in ks for b in bs}
    depth, tokens = settings.evaluation.depth, tokens_of(collection.documents.texts, language)
    values = {
        name: main_values(by_words(collection, rows, depth, how, tokens), collection, rows, "val")
        for name, how in tried.items()
    }
    return tried[least_change(values)]


def choose(
    search: Mapping[str, Callable[[], Found]], collection: Collection, settings: SearchSettings, words: Words
) -> Chosen:
    """What the validation queries choose: the weights of the fusions, and the system that is handed over.

    Args:
        search: model -> a function that gives its lists for the validation queries `collection.rows("val")`.
        collection: queries, documents and judgements.
        settings: of the run.
        words: how BM25 reads and weighs.
    """
    rows, depth = collection.rows("val"), settings.evaluation.depth
    weights: dict[str, Sequence[float]] = {FUSIONS[model]: WEIGHTS for model in search}
    if len(rows) < FEWEST:
        return Chosen(words, weights)
    lists = {model: each() for model, each in search.items()}
    found = {**lists, BM25: by_words(collection, rows, depth, words)}
    for model, own in lists.items():
        union = JoinedLists.of(own, found[BM25], depth)
        grades = grades_of(union, collection, rows)
        weights[FUSIONS[model]] = union.learned(grades).tolist()
        found[FUSIONS[model]] = union.ranked(union.held_out(grades), depth)
    values = {name: main_values(found[name], collection, rows, "val") for name in PRICES if name in found}
    return Chosen(words, weights, least_change(values), {name: float(each.mean()) for name, each in values.items()})


def judged(
    lists: Mapping[str, Found], collection: Collection, settings: SearchSettings, chosen: Chosen, **more: Any
) -> tuple[SearchReport, Mapping[str, Found]]:
    """The models beside BM25 and their fusions on the test queries: the report, and the lists of all systems.

    Args:
        lists: model -> its lists for the test queries.
        collection: queries, documents and judgements.
        settings: of the run.
        chosen: what the validation queries have chosen.
        more: see `evaluate_systems`.
    """
    rows, depth = collection.rows("test"), settings.evaluation.depth
    found = {**lists, BM25: by_words(collection, rows, depth, chosen.words)}
    for model, fusion in FUSIONS.items():
        if fusion in chosen.weights and model in lists:
            found[fusion] = JoinedLists.of(lists[model], found[BM25], depth).ranked(chosen.weights[fusion], depth)
    report = evaluate_systems(found, collection, seed=settings.seed, chosen=chosen.plain(), **more)
    return replace(report, notes=(*report.notes, *collection.doubts())), found


def grades_of(lists: JoinedLists, collection: Collection, rows: Array) -> Array:
    """[query, place] the grades of documents for the validation queries; 0: irrelevant or not judged."""
    place, judgements = {name: row for row, name in enumerate(collection.documents.names)}, collection.qrels("val")
    found = np.zeros(lists.document.shape)
    for at, row in enumerate(rows.tolist()):
        grades = {place[name]: max(grade, 0) for name, grade in judgements[collection.queries.names[row]].items()}
        found[at] = [grades.get(document, 0) for document in lists.document[at].tolist()]
    return found


def _answers(search: Callable[[Sequence[str], int], Found], collection: Collection, rows: Array, depth: int) -> Found:
    """The lists of a function (texts, depth) -> lists, without the queries' own documents."""
    asked = [collection.queries.texts[row] for row in rows.tolist()]
    return without_own(search(asked, depth + collection.most_own), collection, rows, depth)


__all__ = ["Chosen", "by_model", "by_words", "choose", "chosen_words", "grades_of", "judged", "least_change"]
