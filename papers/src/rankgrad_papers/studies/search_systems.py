"""Is a learned fusion of an untouched encoder with BM25 better than each alone, and than sums of reciprocal ranks?

    python -m rankgrad_papers.studies.search_systems --data-root DIR --encoder MINILM

Nothing is trained but the fusions. The value of a question comes from a fusion that the other four fifths of the
questions have chosen: the weight of the encoder in a sum of reciprocal ranks, or the weights of the seven features of
`rankgrad_workbench.tasks.search.fusion`, with ListNet or with the logistic loss of single documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import systems, task
from rankgrad_workbench.tasks.search.bm25 import Words
from rankgrad_workbench.tasks.search.encoders import Found, StoredRows
from rankgrad_workbench.tasks.search.evaluation import BM25, MAIN, main_values
from rankgrad_workbench.tasks.search.fusion import L2, PARTS, WEIGHTS, JoinedLists
from rankgrad_workbench.tasks.search.reading import read

from ..values import append, cells
from . import command, docstrings
from .search import FOLDS

RECIPROCAL = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125, 8.0)  # weights of the encoder, where BM25 has 1
DEPTH = 100


def logistic(lists: JoinedLists, grades: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weights of the features by the logistic loss of single documents, with the same penalty."""
    there = lists.document[rows] >= 0
    relevant = grades[rows][there] > 0
    model = LogisticRegression(C=1 / (2 * L2 * there.sum()), max_iter=1000)
    weights: np.ndarray = model.fit(lists.feature[rows][there], relevant).coef_[0]
    return weights


def measured(root: Path, encoder: Path) -> dict[str, dict[str, float]]:
    """System -> question -> NDCG@10."""
    words = ["task=search", f"data.root={root}", "model=sentence_transformer", f"model.name={encoder}"]
    settings = task.settings_of(compose(words))
    collection = read(root, **settings.data.load)
    collection = collection.with_split(np.full_like(collection.split, "val"))
    rows, model = collection.rows("val"), task.encoders_of(settings)
    corpus = StoredRows(model.embed_in_blocks(collection.documents.texts, 64, True))
    own = systems.by_model(model, collection, rows, DEPTH, corpus, 64, False)
    found = {"minilm untrained": own}
    for name, how in ((f"{BM25} without stems", Words()), (BM25, systems.chosen_words(settings, collection))):
        found[name] = systems.by_words(collection, rows, DEPTH, how)
    lists = JoinedLists.of(own, found[BM25], DEPTH)
    grades, part = systems.grades_of(lists, collection, rows), np.arange(len(rows)) % PARTS
    summed = [lists.ranked([0, 0, weight, 1, 0, 0, 0], DEPTH) for weight in RECIPROCAL]
    values = np.array([main_values(each, collection, rows, "val") for each in summed])
    best = [int(values[:, part != each].mean(1).argmax()) for each in range(PARTS)]
    points = np.array([logistic(lists, grades, np.flatnonzero(part != each)) for each in range(PARTS)])
    found["reciprocal ranks"] = summed[0]
    found["weighted reciprocal ranks"] = Found(
        *(np.stack([getattr(summed[best[p]], name)[at] for at, p in enumerate(part)]) for name in ("document", "score"))
    )
    found["learned"] = lists.ranked(lists.held_out(grades), DEPTH)
    found["learned of single documents"] = lists.ranked(points[part], DEPTH)
    found["default weights"] = lists.ranked(WEIGHTS, DEPTH)
    names = [collection.queries.names[row] for row in rows.tolist()]
    return {
        system: dict(zip(names, 100 * main_values(each, collection, rows, "val"), strict=True))
        for system, each in found.items()
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure the collections that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the data sets", "papers/results/search/systems.csv")
    parser.add_argument("--encoder", type=Path, metavar="DIR", required=True, help="all-MiniLM-L6-v2")
    parser.add_argument("--collections", nargs="+", default=[*FOLDS], choices=[*FOLDS])
    given = parser.parse_args(words)
    for collection in given.collections:
        if any(dict(setting)["collection"] == collection for setting, *_ in cells(given.values)):
            continue
        root = given.data_root / collection
        if collection == "docstrings" and not root.exists():
            docstrings.write(root, docstrings.sample())
        for system, values in measured(root / "1" if collection == "docstrings" else root, given.encoder).items():
            for question, value in values.items():
                append(given.values, {"collection": collection, "system": system}, {MAIN: value}, unit=question)
            print(collection, system, f"{np.mean([*values.values()]):.1f}", flush=True)


if __name__ == "__main__":
    command.run(main)
