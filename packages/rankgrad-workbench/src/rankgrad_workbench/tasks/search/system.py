"""The system that a run hands over, ready for questions: BM25, an encoder, or the fusion of both, on its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rankgrad.common.checks import integer
from rankgrad.common.text import shown

from ...runs.folder import Run
from ...settings import load, parsed, plain, typed
from .bm25 import bm25
from .collection import NamedTexts
from .division import collection_of
from .encoders import Encoders, Found, StoredRows, load_encoders, retrieve
from .evaluation import BEFORE, BEFORE_FUSED, BM25, FUSED, SearchReport
from .fusion import FEATURES, JoinedLists
from .settings import SearchSettings
from .systems import Chosen
from .task import encoders_of


@dataclass(frozen=True, eq=False)
class System:
    """A search with the system that the validation queries chose. `load` makes one from a run.

    Attributes:
        documents: what is searched.
        chosen: the system and its numbers.
        depth: length of the lists that a fusion joins.
        encoders: the model; None: the system is BM25.
        corpus: embeddings of the documents; None: likewise.
    """

    documents: NamedTexts
    chosen: Chosen
    depth: int
    encoders: Encoders | None = field(default=None, repr=False)
    corpus: StoredRows | None = field(default=None, repr=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        trust: Sequence[str] = (),
        device: torch.device | str = "cpu",
        progress: bool = False,
    ) -> System:
        """The system of a finished run. Its documents are embedded anew.

        Args:
            folder: of the run.
            trust: packages whose classes the settings may name.
            device: where texts are embedded.
            progress: show a bar.

        Raises:
            FileNotFoundError: the run is not finished, or its documents or weights are not where they were.
            ValueError: a file is damaged.
        """
        run = Run(folder)
        if not run.finished:
            raise FileNotFoundError(f"{shown(run.after)} does not exist: give the folder of a finished run")
        settings: SearchSettings = typed(SearchSettings, plain(load(run.config, trust)))
        chosen = Chosen.read(SearchReport.from_json(run.after).settings["chosen"])
        documents, depth = collection_of(settings).documents, settings.evaluation.depth
        if chosen.name == BM25:
            return cls(documents, chosen, depth)
        as_it_was = chosen.name in (BEFORE, BEFORE_FUSED)
        model = (encoders_of(settings) if as_it_was else load_encoders(run.folder)).to(device).eval()
        size = settings.evaluation.batch_size
        return cls(documents, chosen, depth, model, StoredRows(model.embed_in_blocks(documents.texts, size, progress)))

    def __call__(self, queries: Sequence[str], k: int = 10) -> Found:
        """The lists of some queries.

        Args:
            queries: texts.
            k: number of documents in a list, >= 1.
        """
        k, deep = integer(k, "k is the number of results", low=1), max(k, self.depth)
        texts = self.documents.texts
        if self.encoders is None:
            return bm25(queries, texts, k, self.chosen.words)
        fused = self.chosen.name in (FUSED, BEFORE_FUSED)
        found = retrieve(self.encoders, queries, self.documents, deep if fused else k, corpus=self.corpus)
        if not fused:
            return found
        words = bm25(queries, texts, deep, self.chosen.words)
        return JoinedLists.of(found, words, deep).ranked(self.chosen.weights[self.chosen.name], k)


def described(run: Run) -> dict[str, Any]:
    """What another program needs to serve the system of a finished run, beside the encoder: plain values for json."""
    chosen = Chosen.read(SearchReport.from_json(run.after).settings["chosen"])
    depth = parsed(run.config).evaluation.depth
    encoder = "none" if chosen.name == BM25 else "as before the training" if BEFORE in chosen.name else "this one"
    found = {"system": chosen.name, "encoder": encoder, "depth": depth, "bm25": vars(chosen.words)}
    if chosen.name in chosen.weights:
        found |= {"features": FEATURES, "weights": [*chosen.weights[chosen.name]]}
    return found


__all__ = ["System", "described"]
