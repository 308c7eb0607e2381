"""A small collection to search in: a document says a thing of a subject, and a query asks for it in other words."""

from __future__ import annotations

import json
import random
from pathlib import Path

SUBJECTS = "wing slab plate flow shock layer heat cone tube jet panel shell wake blade nozzle drag".split()
SAID = {"hot": "heated", "thin": "slender", "fast": "rapid", "cold": "cooled", "bent": "curved", "long": "extended"}
COMMON = "the a of in and is it for with as at by".split()


def texts(queries: int = 60, seed: int = 0) -> tuple[dict[str, str], dict[str, str], list[tuple[str, str, int]]]:
    """(documents, queries, judgements): grade 2 for the subject and what is said of it, grade 1 for the subject."""
    rng = random.Random(seed)
    documents = {}
    for subject in SUBJECTS:
        for word, other in SAID.items():
            words = [subject, other, *(rng.choice(COMMON) for _ in range(6))]
            rng.shuffle(words)
            documents[f"{subject}-{word}"] = " ".join(words)
    asked, judged = {}, []
    pairs = [(subject, word) for subject in SUBJECTS for word in SAID]
    rng.shuffle(pairs)
    for number, (subject, word) in enumerate(pairs[:queries]):
        name = f"q{number}"
        asked[name] = f"what {word} {subject}"
        judged.append((name, f"{subject}-{word}", 2))
        judged += [(name, f"{subject}-{other}", 1) for other in list(SAID)[:2] if other != word]
    return documents, asked, judged


def beir(folder: Path, parts: dict[str, range] | None = None, queries: int = 60) -> Path:
    """A folder of BEIR; `parts` are the queries of each file of judgements, otherwise all are in all.tsv."""
    documents, asked, judged = texts(queries)
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", [{"_id": n, "title": "", "text": t} for n, t in documents.items()])
    write_lines(folder / "queries.jsonl", [{"_id": n, "text": t} for n, t in asked.items()])
    for part, rows in (parts or {"all": range(queries)}).items():
        inside = {f"q{row}" for row in rows}
        lines = [f"{q}\t{d}\t{g}" for q, d, g in judged if q in inside]
        (folder / "qrels" / f"{part}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return folder


def write_lines(file: Path, rows: list[dict]) -> Path:
    """A jsonl."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def settings(root: Path, *more: str) -> list[str]:
    """The settings of a run that takes about a second."""
    small = ["model.dim=16", "model.buckets=512", "trainer.max_epochs=4", "evaluation.bootstrap=50", "loggers=[csv]"]
    return ["task=search", f"data.root={root}", *small, "sampler.queries_per_batch=8", *more]
