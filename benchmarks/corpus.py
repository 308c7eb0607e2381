"""A corpus that is larger than memory: peak memory of reading, embedding and searching it, and of BM25's index."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

MOST = 256  # bytes for a document; its embedding alone would be 1,024
# ru_maxrss would be that of the process which starts this one, if that is larger
MEASURE = r"""
import re, sys
from pathlib import Path
import bm25s, torch
from rankgrad_workbench.models.ngrams import ngram_model
from rankgrad_workbench.tasks.search.bm25 import bm25
from rankgrad_workbench.tasks.search.encoders import StoredRows, encoders, retrieve
from rankgrad_workbench.tasks.search.reading import read

def peak():
    return int(re.search(r"VmHWM:\s*([0-9]+)", Path("/proc/self/status").read_text())[1]) / 1024

model = encoders(ngram_model(256, 2**15, (1, 1), (0, 0)), 1, None, None)
seen = [peak()]
found = read(sys.argv[1])
seen.append(peak())
corpus = StoredRows(model.embed_in_blocks(found.documents.texts))
retrieve(model, found.queries.texts, found.documents, corpus=corpus)
seen.append(peak())
if sys.argv[2] == "bm25":
    bm25(found.queries.texts, found.documents.texts)
    seen.append(peak())
print(*seen)
"""

# The encoder alone would take hours for so many texts: its embeddings are random.
MILLION = r"""
import re, sys, time
from pathlib import Path
import torch
from rankgrad_workbench.tasks.search.encoders import BLOCK, StoredRows
from rankgrad_workbench.tasks.search.sizes import sizes
from rankgrad.ranks.normalize import unit_rows

def peak():
    return int(re.search(r"VmHWM:\s*([0-9]+)", Path("/proc/self/status").read_text())[1]) / 1024

count, start = int(sys.argv[1]), peak()
draw = lambda rows: unit_rows(torch.randn(rows, 256, generator=g))
g = torch.Generator().manual_seed(0)
queries = draw(10)
began = time.process_time()
corpus = StoredRows(draw(min(BLOCK, count - at)) for at in range(0, count, BLOCK))
seen = [peak() - start]
found = sizes(queries, corpus, [64], 100)
print(start, *seen, peak() - start, time.process_time() - began)
"""


def corpus(options: Options) -> Result:
    """A corpus that is larger than memory: reading, embedding and searching it by blocks, and BM25."""
    counts = (500, 2_000) if options.quick else (50_000, 200_000)
    rows: list[list[Cell]] = []
    grown: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        for words in (25, 100):
            peaks = []
            for count in counts:
                folder = Path(name, f"{count}-{words}")
                size = _write(folder, count, words)
                start, *after = _measured(folder, "bm25")
                rows.append([f"{count:,} of {words} words", size, start, *(each - start for each in after)])
                peaks.append(after[1] - start)
            grown.append((peaks[1] - peaks[0]) * 2**20 / (counts[1] - counts[0]))
    note = (
        "Documents of random words, embedded with 256 numbers, in blocks of 4,096. MiB: the texts, the process after "
        "its imports, and by how much its peak is higher after each step. Names are in memory, texts are not. BM25 has "
        f"its index in memory, which grows with the texts. Without BM25, {grown[0]:.0f} bytes are added for each "
        f"further document of 25 words, and {grown[1]:.0f} for each of 100 words."
    )
    columns = ("documents", "MiB of texts", "at the start", "read", "and searched", "and BM25")
    checks = [
        Check(f"Bytes of memory without BM25 for each further document of {words} words", each, MOST)
        for words, each in zip((25, 100), grown, strict=True)
    ]
    found = [ResultTable("A corpus on disk", columns, rows, note)]
    if options.long:
        count = 1_000 if options.quick else 1_000_000
        start, written, searched, seconds = _printed(MILLION, str(count))
        told = (
            f"{count:,} random embeddings of 256 numbers, written by blocks and searched with 10 queries as they are, "
            "with 64 columns, as int8 and as bits. MiB: the process after its imports, and by how much its peak is "
            "higher after each step."
        )
        names = ("documents", "at the start", "written", "and searched", "processor s")
        found.append(
            ResultTable("A million documents", names, [[f"{count:,}", start, written, searched, seconds]], told)
        )
        checks.append(Check("Peak memory of a million embeddings over their size", searched / (count / 1024), 0.5))
    return Result(found, checks)


def _write(folder: Path, count: int, words: int) -> float:
    """Write a folder of BEIR with ten questions; MiB of the texts."""
    g = np.random.default_rng(0)
    known = np.array([f"word{number}" for number in range(10_000)])
    (folder / "qrels").mkdir(parents=True)
    size = 0
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for row in range(count):
            text = " ".join(known[g.integers(len(known), size=words)])
            size += len(text)
            file.write(json.dumps({"_id": f"d{row}", "text": text}) + "\n")
    questions = [json.dumps({"_id": f"q{row}", "text": f"{known[row]} {known[row + 10]}"}) for row in range(10)]
    (folder / "queries.jsonl").write_text("\n".join([*questions, ""]))
    judged = [f"q{row}\td{row}\t1" for row in range(10)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged, ""]))
    return size / 2**20


def _measured(folder: Path, *more: str) -> list[float]:
    return _printed(MEASURE, str(folder), *more)


def _printed(code: str, *more: str) -> list[float]:
    """The numbers that a process prints."""
    words = [sys.executable, "-c", code, *more]
    return [float(each) for each in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]
