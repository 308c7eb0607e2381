"""Indexes of a large gallery: time to build, recall, and memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rankgrad.common.files import write_npz
from rankgrad_papers.timing.results import Cell, Options, Result, ResultTable

if TYPE_CHECKING:
    from rankgrad.workbench.index.disk import Kind

KINDS: tuple[Kind, ...] = ("exact", "hnsw")


def gallery(options: Options) -> Result:
    """Building and querying each kind of index, with random points around centres."""
    sizes = [10_000] if options.quick else [200_000, *([1_000_000] if options.long else [])]
    rows = [row for count in sizes for row in _measured(count, 16 if options.quick else 128)]
    note = (
        "Random points around 5 000 centres, half as far from their centre as the centres are from the middle; cosine. "
        "'Build' is the processor time from a memory-mapped file to a measured index. Recall is of the 10 nearest, for "
        "1 000 query rows. 'Exact / own' is the time of a single query by exact search, divided by the time of this "
        "kind. 'Held' is bytes per row that an index keeps in memory."
    )
    columns = (
        "rows, kind",
        "build s",
        "rows/s",
        "recall %",
        "exact / own",
        "held bytes per row",
        "bytes per row on disk",
    )
    return Result([ResultTable("Indexes", columns, rows, note)])


def _measured(count: int, dim: int) -> list[list[Cell]]:
    from rankgrad.workbench.index.builder import build
    from rankgrad.workbench.index.embedder import Embedded

    g = np.random.default_rng(0)
    centres = g.normal(size=(5000, dim)).astype(np.float32)
    rows: list[list[Cell]] = []
    with tempfile.TemporaryDirectory() as folder:
        points = centres[g.integers(0, 5000, count)] + 0.5 * g.normal(size=(count, dim)).astype(np.float32)
        write_npz(Path(folder, "points.npz"), {"embeddings": points, "names": np.arange(count)})
        del points
        for kind in KINDS:
            start = time.process_time()
            index = build(Embedded.load(Path(folder, "points.npz"), mapped=True), kind)
            used = time.process_time() - start
            saved = index.save(Path(folder, kind))
            held, whole = (sum(f.stat().st_size for f in saved.glob(what)) / count for what in ("*.faiss", "*"))
            sample = index.measured
            share, faster = (100.0, 1.0) if sample is None else (100 * sample.recall, sample.faster)
            rows.append([f"{count:,}, {kind}", used, count / used, share, faster, held, whole])
    return rows
