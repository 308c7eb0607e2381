"""Texts from the command line: a run, its embeddings of many texts, an index, a query; each in a new process."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rankgrad_papers.timing.results import Cell, Options, Result, ResultTable

CLASSES, EACH, LENGTH = 200, 20, 12  # training classes, texts per class; words of every text
WORDS = 20_000


def texts(options: Options) -> Result:
    """Time of the four commands for a hundred thousand texts, from start to end of each process."""
    count = 300 if options.quick else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = _sentences(count + CLASSES * EACH)
        with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
            pairs = enumerate(sentences[count:])
            csv.writer(file).writerows([("text", "label"), *((text, f"class {i // EACH}") for i, text in pairs)])
        (folder / "texts.txt").write_text("\n".join(sentences[:count]), encoding="utf-8")
        run, npz, index = (str(folder / end) for end in ("run", "texts.npz", "texts.index"))
        few = ["sampler.batches_per_epoch=2", "trainer.max_epochs=1"] if options.quick else []
        commands: dict[str, tuple[int, list[str]]] = {
            "train": (CLASSES * EACH, ["data=text", f"data.root={folder / 'train.csv'}", f"out={run}", *few]),
            "embed": (count, [run, str(folder / "texts.txt"), "-o", npz]),
            "index": (count, [npz, "-o", index]),
            "search": (count, [sentences[0], "--index", index]),
        }
        rows: list[list[Cell]] = []
        for command, (size, words) in commands.items():
            seconds = _seconds([command, *words])
            rows.append([f"rankgrad {command}", float(size), seconds, None if command == "train" else size / seconds])
    note = (
        f"Texts of {LENGTH} random words out of {WORDS:,} made-up words. The time does not depend on their meaning. "
        f"model=ngrams, trained on {CLASSES} classes of {EACH}, half of them held out. Seconds of the whole process on "
        "one thread, including imports and checks of the input. The search answers one question."
    )
    return Result([ResultTable("Texts, from the command line", ("command", "texts", "s", "texts/s"), rows, note)])


def _sentences(count: int) -> list[str]:
    """Distinct texts of random words."""
    g = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(g.choice(letters, size=size)) for size in g.integers(3, 10, WORDS)]
    drawn = g.integers(0, WORDS, (count, LENGTH - 1)).tolist()
    return [" ".join([f"number{i}", *(words[word] for word in row)]) for i, row in enumerate(drawn)]


def _seconds(words: list[str]) -> float:
    start = time.perf_counter()
    one = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "rankgrad", *words], capture_output=True, text=True, env=one)
    if done.returncode:
        raise RuntimeError(f"rankgrad {words[0]} failed: {done.stderr[-500:]}")
    return time.perf_counter() - start
