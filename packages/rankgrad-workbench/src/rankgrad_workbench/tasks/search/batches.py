"""Batches of queries with documents: their relevant ones, irrelevant ones, given or mined, and those of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.batches.epochs import EpochList, ShuffledBatches

from ...training.data import EpochData
from .collection import Array, Collection, Judged
from .encoders import Found
from .settings import Mining, SearchBatches


class SearchBatch(NamedTuple):
    """A batch of queries and documents.

    Attributes:
        queries: [query] texts.
        documents: [document] texts; each document once.
        relevance: [query, document] bool, or grades.
        valid: [query, document] bool; False for a document with the text of one that is relevant to the query, and for
            the query itself as a document.
        scores: [query, document] scores of a teacher, NaN where there is none.
    """

    queries: list[str]
    documents: list[str]
    relevance: Tensor
    valid: Tensor
    scores: Tensor


class QueryLists(Dataset[SearchBatch]):
    """The training queries, a batch at a time. Which documents come is a function of (seed, epoch, query).

    Args:
        collection: with training queries.
        settings: of the batches.
        seed: of the draws.
        graded: whether the relevance of a batch has grades; otherwise it is bool.

    Attributes:
        rows: [query] rows of the training queries that have a relevant document with a text.
        judged: their judgements.
        same: [document] equal for documents with the same text.
        filled: [document] bool, whether it has a text.
        mined: row of a query -> rows of documents, see `mining`.
    """

    def __init__(self, collection: Collection, settings: SearchBatches, seed: int, graded: bool) -> None:
        self.collection, self.settings, self.seed, self.graded = collection, settings, seed, graded
        part = collection.pairs("train")
        self.filled = np.array([bool(text.strip()) for text in collection.documents.texts])
        self.judged: Judged = part.take(self.filled[part.document])  # an empty text cannot be found
        self.rows: Array = np.unique(self.judged.query[self.judged.grade > 0])
        self.same = collection.same_text()
        self.mined: dict[int, Array] = {}

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.rows)

    def of(self, query: int) -> Judged:
        """The judgements of a query."""
        return self.judged.take(np.arange(*self.judged.query.searchsorted([query, query + 1])))

    def __getitems__(self, places: Sequence[int]) -> SearchBatch:
        """The batch of some training queries."""
        epoch = places.epoch if isinstance(places, EpochList) else 0
        asked = self.rows[list(places)].tolist()
        documents = np.unique(np.concatenate([self._drawn(query, epoch) for query in asked]))
        relevance = np.zeros((len(asked), len(documents)), np.float32)
        valid, scores = np.ones(relevance.shape, bool), np.full(relevance.shape, np.nan, np.float32)
        same = self.same[documents]
        for row, query in enumerate(asked):
            known = self.of(query)
            copies = np.isin(same, self.same[known.document[known.grade > 0]])
            copies |= np.isin(documents, self.collection.own.get(query, ()))
            place = documents.searchsorted(known.document).clip(max=len(documents) - 1)
            here = documents[place] == known.document
            valid[row, copies] = False
            valid[row, place[here]] = True
            relevance[row, place[here]] = known.grade[here]
            scores[row, place[here]] = known.score[here]
        texts = self.collection.queries.texts, self.collection.documents.texts
        grades = torch.from_numpy(relevance)
        return SearchBatch(
            [texts[0][query] for query in asked],
            [texts[1][document] for document in documents.tolist()],
            grades if self.graded else grades > 0,
            torch.from_numpy(valid),
            torch.from_numpy(scores),
        )

    def _drawn(self, query: int, epoch: int) -> Array:
        """Documents that come with a query: relevant ones, then given and mined irrelevant ones."""
        rng = np.random.RandomState([self.seed, epoch, query])  # numpy guarantees the numbers of RandomState
        known, wanted = self.of(query), self.settings
        relevant = rng.permutation(known.document[known.grade > 0])[: wanted.positives_per_query]
        given = rng.permutation(known.document[known.grade <= 0])[: wanted.negatives_per_query]
        mined = rng.permutation(self.mined.get(query, given[:0]))[: wanted.negatives_per_query - len(given)]
        return np.concatenate([relevant, given, mined]).astype(np.int64)


def search_data(lists: QueryLists, settings: SearchBatches, seed: int) -> EpochData:
    """The training batches."""
    # each of several processes makes the whole batch, and embeds a share of its texts
    sampler = ShuffledBatches(len(lists), min(settings.queries_per_batch, len(lists)), seed, rank=0, world_size=1)
    return EpochData(lists, sampler, collate=lambda batch: batch)


def mine(found: Found, positive: Array, lists: QueryLists, settings: Mining) -> dict[int, Array]:
    """Irrelevant documents of each training query, from the lists of a system.

    Args:
        found: lists of the queries `lists.rows`.
        positive: [query] highest score of a relevant document; NaN: unknown.
        lists: the training queries. Documents that are judged, or have the text of a relevant one, are left out.
        settings: window of ranks, and margin.

    Returns:
        Row of a query -> rows of documents. Documents that score higher than a relevant document minus the margin are
        left out: most of them are relevant too, and only nobody has judged them.
    """
    documents = {}
    for at, query in enumerate(lists.rows.tolist()):
        window = slice(settings.first - 1, settings.last)
        rows, score = found.document[at, window], found.score[at, window]
        known = lists.of(query)
        copies = lists.same[known.document[known.grade > 0]]
        free = (rows >= 0) & ~np.isin(rows, known.document) & ~np.isin(lists.same[rows], copies)
        free &= lists.filled[rows] & ~np.isin(rows, lists.collection.own.get(query, ()))
        documents[query] = rows[free & ~(score > positive[at] - settings.margin * abs(positive[at]))]
    return documents


class Miner(L.Callback):
    """Mines before the training, and again every few steps if the model itself does it. The state has what was mined.

    Args:
        lists: gets what is mined.
        search: function that returns the lists of the training queries, and the best score of a relevant document.
        settings: of the mining.
    """

    def __init__(self, lists: QueryLists, search: Callable[[], tuple[Found, Array]], settings: Mining) -> None:
        self.lists, self.search, self.settings = lists, search, settings

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Mine if it is time. The batch of this step is made already; the next one has new documents."""
        every, step = self.settings.every, trainer.global_step
        if not self.lists.mined or (every and self.settings.by == "model" and step and step % every == 0):
            self.again()

    def again(self) -> None:
        """Mine now."""
        self.lists.mined = mine(*self.search(), self.lists, self.settings)

    def state_dict(self) -> dict[str, Any]:
        """What was mined."""
        mined = {str(query): torch.from_numpy(rows.astype(np.int64)) for query, rows in self.lists.mined.items()}
        return {"mined": mined}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore it."""
        self.lists.mined = {int(query): rows.numpy() for query, rows in state_dict["mined"].items()}
