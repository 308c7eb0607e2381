"""A finished run -> its report again, or the report of its model on another collection."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from rankgrad.batches.distributed import on_first
from rankgrad.common.checks import setting, spelled
from rankgrad.common.text import shown

from ...runs.folder import Run
from ...settings import load, plain, typed
from ...settings.spelling import as_keys
from .collection import Collection
from .collection import plain as plain_text
from .division import collection_of, left_out
from .encoders import StoredRows, load_encoders
from .evaluation import TRAINED, SearchReport, write_lists
from .reading import read
from .settings import SearchSettings
from .sizes import sizes_of
from .systems import Chosen, judged


def evaluate_run(
    folder: Path,
    *,
    root: Path | None = None,
    corpus: Path | None = None,
    queries: Path | None = None,
    lists: Path | None = None,
    bootstrap: int = 1000,
    device: torch.device | str = "cpu",
    progress: bool = False,
    trust: Sequence[str] = (),
) -> SearchReport:
    """Evaluate the model of a finished run beside BM25 and their fusion.

    Args:
        folder: of the run.
        root: another collection, see `reading.read`. Its test queries are evaluated; if it has none, all its queries.
            Those with the text of a query of the training are left out. None: the test queries of the run.
        corpus: file of the documents, if the other collection is a file of names.
        queries: file of its queries, likewise.
        lists: folder for the lists of each system, as files of TREC; None: none are written.
        bootstrap: number of resamples for the intervals; 0: none.
        device: where texts are embedded.
        progress: show bars.
        trust: packages whose classes the settings may name, see `config.load`.

    Raises:
        FileNotFoundError: the run is not finished, or a file does not exist.
        ValueError: a file is damaged, or no query is left.
    """
    run = Run(folder)
    if not run.finished:
        raise FileNotFoundError(f"{shown(run.after)} does not exist: give the folder of a finished run")
    if lists is not None and (lists.is_file() or Run(lists).config.exists()):
        raise ValueError(f"{setting('lists')} {shown(lists)} is a file or a run; give another folder")
    settings = typed(SearchSettings, plain(load(run.config, trust)))
    encoders = load_encoders(folder).to(device)
    if root is None and (corpus or queries):
        raise ValueError("a corpus or queries of another collection also need its judgements: --root FILE")
    collection = collection_of(settings) if root is None else _other(settings, root, corpus, queries)
    texts, size = collection.documents.texts, settings.evaluation.batch_size
    documents = StoredRows(encoders.embed_in_blocks(texts, size, progress))
    smaller = sizes_of(encoders, documents, collection, settings, progress)
    before = SearchReport.from_json(run.after).settings  # what the validation queries chose in the training
    report, found = judged(
        {TRAINED: next(iter(smaller.values())).found},
        collection,
        settings,
        Chosen.read(before["chosen"]),
        bootstrap=bootstrap,
        smaller=smaller,
        kept=before.get("kept"),
    )
    if lists is not None:
        on_first(lambda: write_lists(lists, found, collection))
    return report


def _other(settings: SearchSettings, root: Path, corpus: Path | None, queries: Path | None) -> Collection:
    """Another collection. Queries that the model was trained with are left out, also of a test set."""
    files = {"corpus": corpus and str(corpus), "queries": queries and str(queries)}
    with spelled(as_keys("data.load", {})):
        collection = read(root, **{**settings.data.load, **files})
    split, notes, seen = collection.split.copy(), [], set[str]()
    if not len(collection.rows("test")):
        split[:] = "test"
    try:
        seen = collection_of(settings).asked("train", "val")
    except (OSError, ValueError):
        notes.append(f"queries of the training may be among these: {shown(settings.data.root)} cannot be read")
    again = (split == "test") & np.array([plain_text(text) in seen for text in collection.queries.texts])
    split[again] = ""
    notes += [f"queries with the text of a query of the training, left out: {again.sum():,}"] * bool(again.any())
    made = left_out(collection.with_split(split, *notes), settings.data.own_documents)
    if not len(made.rows("test")):
        raise ValueError(f"{shown(root)} has no query with a relevant document that the model was not trained with")
    return made


__all__ = ["evaluate_run"]
