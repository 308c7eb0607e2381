"""Irrelevant documents that look relevant: found by BM25 or by the model itself, for the batches of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning as L
import numpy as np
import torch

from ...training.diagnosis import Finding
from .batches import QueryLists
from .collection import Array
from .encoders import Found
from .settings import Mining

MANY = 0.2  # share of left-out candidates from which on health says so


@dataclass(frozen=True, eq=False)
class Mined:
    """The result of a search for irrelevant documents.

    Attributes:
        documents: row of a query -> rows of documents.
        candidates: number of documents of the window that are not known to be relevant.
        doubtful: number of them that score as high as a relevant document, and are left out.
    """

    documents: dict[int, Array]
    candidates: int
    doubtful: int


def mine(found: Found, positive: Array, lists: QueryLists, settings: Mining) -> Mined:
    """Irrelevant documents of each training query, from the lists of a system.

    Args:
        found: lists of the queries `lists.rows`.
        positive: [query] highest score of a relevant document; NaN: unknown.
        lists: the training queries. Documents that are judged, or have the text of a relevant one, are left out.
        settings: window of ranks, and margin.

    Returns:
        Documents that score higher than a relevant document minus the margin are left out: most of them are relevant
        too, and only nobody has judged them.
    """
    documents, candidates, doubtful = {}, 0, 0
    for at, query in enumerate(lists.rows.tolist()):
        window = slice(settings.first - 1, settings.last)
        rows, score = found.document[at, window], found.score[at, window]
        known = lists.of(query)
        copies = lists.same[known.document[known.grade > 0]]
        free = (rows >= 0) & ~np.isin(rows, known.document) & ~np.isin(lists.same[rows], copies)
        free &= lists.filled[rows] & ~np.isin(rows, lists.collection.own.get(query, ()))
        high = free & (score > positive[at] - settings.margin * abs(positive[at]))
        documents[query] = rows[free & ~high]
        candidates, doubtful = candidates + int(free.sum()), doubtful + int(high.sum())
    return Mined(documents, candidates, doubtful)


class Miner(L.Callback):
    """Mines before the training, and again every few steps if the model itself does it. The state has what was mined.

    Args:
        lists: gets what is mined.
        search: function that returns the lists of the training queries, and the best score of a relevant document.
        settings: of the mining.
    """

    def __init__(self, lists: QueryLists, search: Callable[[], tuple[Found, Array]], settings: Mining) -> None:
        self.lists, self.search, self.settings = lists, search, settings
        self.counted = [0, 0]

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Mine if it is time. The batch of this step is made already; the next one has new documents."""
        every, step = self.settings.every, trainer.global_step
        if not self.lists.mined or (every and self.settings.by == "model" and step and step % every == 0):
            self.again()

    def again(self) -> None:
        """Mine now."""
        mined = mine(*self.search(), self.lists, self.settings)
        self.lists.mined = mined.documents
        self.counted = [mined.candidates, mined.doubtful]

    def findings(self) -> list[Finding]:
        """A finding for `training.health` if many candidates were left out."""
        candidates, doubtful = self.counted
        if doubtful <= MANY * candidates:
            return []
        text = f"{100 * doubtful / candidates:.0f} % of the mined documents score as high as a relevant one"
        advice = (
            "They are left out of the training, because most of them are probably relevant and not judged. Judge some "
            "of them, or mine at later ranks (mining.first=20)"
        )
        return [Finding("doubtful_negatives", "note", text, advice)]

    def state_dict(self) -> dict[str, Any]:
        """What was mined."""
        mined = {str(query): torch.from_numpy(rows.astype(np.int64)) for query, rows in self.lists.mined.items()}
        return {"mined": mined, "counted": self.counted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore it."""
        self.lists.mined = {int(query): rows.numpy() for query, rows in state_dict["mined"].items()}
        self.counted = list(state_dict["counted"])
