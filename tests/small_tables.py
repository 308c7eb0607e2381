"""Tables of some hundred rows, for trainings of a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np

QUICK = (
    *("trainer.max_epochs=3", "sampler.batch_size=64", "sampler.queries_per_batch=8", "model.hidden=[8]"),
    *("trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1", "threads=1", "evaluation.bootstrap=20"),
    *("optimizer.lr=1e-2", "data.encoding.fewest=2"),
)


def settings(table: Path, *more: str) -> list[str]:
    """Of a run of a second; later ones win."""
    keys = [each.split("=")[0] for each in more]
    given = ("task=scores", "data=table", f"data.root={table}", *QUICK)
    return [each for each in given if each.split("=")[0] not in keys] + list(more)


def one_list(path: Path, rows: int = 300) -> Path:
    """A csv with numbers, words, missing values and one label in ten."""
    rng = np.random.RandomState(0)
    age, city = rng.randn(rows), rng.randint(0, 3, rows)
    label = (age + (city == 0) + 0.5 * rng.randn(rows) > 1.6).astype(int)
    lines = ["age,height,city,label"]
    for row in range(rows):
        height = "" if row % 7 == 0 else f"{rng.randn():.4f}"
        lines.append(f"{age[row]:.4f},{height},{'ABC'[city[row]]},{label[row]}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def by_query(path: Path, queries: int = 40) -> Path:
    """An npz with grades 0 to 3; one query in ten has no relevant row."""
    rng = np.random.RandomState(0)
    query = np.repeat(np.arange(queries), rng.randint(2, 12, queries))
    features = rng.randn(len(query), 4)
    grades = np.digitize(features[:, 0] + 0.5 * rng.randn(len(query)), [0, 1, 2])
    grades[query % 10 == 0] = 0
    np.savez(path, X=features, y=grades, query=query)
    return path
