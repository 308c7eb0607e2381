"""Two lists of documents for a query -> one: a linear score of seven numbers of a document, learned with a list loss.

    score(d) = sum_k weight_k feature_k(d)

The features are of the place and the score of the document in each list, see `FEATURES`. A document that a list lacks
has the lowest score of this list, and 0 for its place. The weights minimise

    mean over the queries of ListNet(score) + l2 |weight|²

(Cao et al., ICML 2007), on queries with judgements that trained neither system. Sums of reciprocal ranks are the case
in which only two of the weights are not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rankgrad.losses import ListNetLoss

from .collection import Array
from .encoders import Found

#: Of the first list and of the second: its scores, less their mean and divided by their deviation; 60 / (60 + rank);
#: log((depth + 1) / rank) / log(depth + 1). The last one: 1 if both lists have the document. The rank is one plus the
#: number of documents with a higher score.
FEATURES = ("score", "score", "reciprocal rank", "reciprocal rank", "log rank", "log rank", "in both")
#: Where too few queries can choose: the mean of what MiniLM and BM25 learn on Cranfield and on 1 000 docstrings.
WEIGHTS = (0.5, 0.3, 0.8, 0.4, 0.4, 0.6, 0.4)
RANK = 60  # as in reciprocal rank fusion (Cormack, Clarke & Büttcher, SIGIR 2009)
L2 = 0.01
PARTS = 5  # in which queries are divided: the weights for one part are learned on the others


@dataclass(frozen=True)
class JoinedLists:
    """The documents of two lists with their features.

    Attributes:
        document: [query, place] rows of documents, in ascending order; -1 where there are fewer.
        feature: [query, place, feature] float.
    """

    document: Array
    feature: Array

    @classmethod
    def of(cls, first: Found, second: Found, depth: int) -> JoinedLists:
        """The documents that at least one of two systems lists, for each query.

        Args:
            first: the lists of one system.
            second: those of the other.
            depth: largest length of a list.
        """
        columns = (first.document, first.score, second.document, second.score)
        made = [_union(depth, *lists) for lists in zip(*columns, strict=True)]
        most = max((len(documents) for documents, _ in made), default=0)
        document, feature = np.full((len(made), most), -1), np.zeros((len(made), most, len(FEATURES)))
        for row, (documents, values) in enumerate(made):
            document[row, : len(documents)], feature[row, : len(documents)] = documents, values
        return cls(document, feature)

    def ranked(self, weights: Sequence[float] | Array, depth: int) -> Found:
        """The lists in the order of the linear score; of equal scores the lower row of a document first.

        Args:
            weights: a number for each of `FEATURES`; or [query, feature], each query its own.
            depth: number of documents in a list.
        """
        weights = np.broadcast_to(np.asarray(weights, np.float64), (len(self.document), len(FEATURES)))
        score = np.where(self.document >= 0, np.einsum("qdf,qf->qd", self.feature, weights), -np.inf)
        order = np.argsort(-score, axis=1, kind="stable")[:, :depth]
        document, score = (np.take_along_axis(each, order, 1) for each in (self.document, score))
        short = ((0, 0), (0, max(depth - document.shape[1], 0)))
        document, score = np.pad(document, short, constant_values=-1), np.pad(score, short)
        return Found(document, np.where(document >= 0, score, 0.0))

    def learned(self, grades: Array, rows: Array | None = None) -> Array:
        """The weights that some queries choose; `WEIGHTS` if none of them has a relevant document in its lists.

        Args:
            grades: [query, place] of the documents; 0: irrelevant or not judged.
            rows: queries that choose; None: all.
        """
        chosen = np.arange(len(grades)) if rows is None else rows
        chosen = chosen[(grades[chosen] > 0).any(1)]
        if not len(chosen):
            return np.array(WEIGHTS)
        features, relevance = torch.from_numpy(self.feature[chosen]).double(), torch.from_numpy(grades[chosen]).double()
        valid, loss = torch.from_numpy(self.document[chosen] >= 0), ListNetLoss()
        weights = torch.zeros(len(FEATURES), dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

        def step() -> float:
            optimizer.zero_grad()
            total = loss.from_scores(features @ weights, relevance, valid) + L2 * weights.square().sum()
            total.backward()  # type: ignore[no-untyped-call]
            return float(total.detach())

        optimizer.step(step)  # type: ignore[no-untyped-call]
        return np.array(weights.tolist())

    def held_out(self, grades: Array) -> Array:
        """[query, feature] weights of each query, learned on the other `PARTS`: for an honest value of the fusion."""
        part = np.arange(len(grades)) % PARTS
        made = [self.learned(grades, np.flatnonzero(part != each)) for each in range(PARTS)]
        return np.array(made)[part]


def _union(depth: int, first: Array, first_score: Array, second: Array, second_score: Array) -> tuple[Array, Array]:
    """The documents of two lists, and their features."""
    documents = np.union1d(first[first >= 0], second[second >= 0])
    values = np.zeros((len(documents), len(FEATURES)))
    for side, (listed, score) in enumerate(((first, first_score), (second, second_score))):
        count = int((listed >= 0).sum())
        if not count:
            continue
        place, score = np.searchsorted(documents, listed[:count]), score[:count].astype(np.float64)
        ranks = np.searchsorted(-score, -score) + 1  # equal scores have one rank
        standard = (score - score.mean()) / (score.std() or 1.0)
        values[:, side] = standard.min()
        values[place, side] = standard
        values[place, 2 + side] = RANK / (RANK + ranks)
        values[place, 4 + side] = np.log((depth + 1) / ranks) / np.log(depth + 1)
        values[place, 6] += 0.5
    values[:, 6] = values[:, 6] == 1
    return documents, values


__all__ = ["FEATURES", "WEIGHTS", "JoinedLists"]
