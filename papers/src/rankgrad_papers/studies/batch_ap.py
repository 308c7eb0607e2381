"""The AP of a batch, compared with the AP of the list that the batch was drawn from.

    python -m rankgrad_papers.studies.batch_ap --data-root DIR

DIR has tables of rare positives, see `studies.scores`. A network is trained with cross-entropy. The list has its scores
of held-out training rows. Batches are drawn from this list in two ways:

* random: rows without replacement. A batch without a positive has no AP. It is left out, as in the losses.
* stratified: an eighth of the batch are positives.

"weighted" is the AP of the same batch if each negative counts w times:

    AP_w = mean_i p_i / (p_i + w n_i),    w = (negatives / positives of the list) / (negatives / positives of the batch)

with p_i positives and n_i negatives at or above the i-th positive of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..values import append, cells
from . import command
from .scores import TABLES, TEMPERATURES, table, trained

SIZES, DRAWS, SHARE = (64, 128, 256, 512), 400, 8
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def weighted_ap(scores: Floats, hits: Bools, weight: float = 1.0) -> float:
    """AP of a list in which each negative counts `weight` times. Among equal scores, negatives come first.

    >>> weighted_ap(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    0.8333333333333333
    >>> weighted_ap(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]), 2.0)
    0.75
    """
    order = np.lexsort((hits, -scores))
    right = hits[order]
    positives, negatives = np.cumsum(right), np.cumsum(~right)
    return float((positives / (positives + weight * negatives))[right].mean())


def drawn(hits: Bools, size: int, positives: int | None, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The rows of a batch: random rows, or a given number of positives and random negatives."""
    if positives is None:
        return rng.choice(len(hits), size, replace=False)
    of_each = ((np.flatnonzero(hits), positives), (np.flatnonzero(~hits), size - positives))
    return np.concatenate([rng.choice(rows, count, replace=False) for rows, count in of_each])


def measured(scores: Floats, hits: Bools, size: int, positives: int | None) -> dict[str, float]:
    """Mean AP of batches minus the AP of the list, and the standard deviation over batches; in points."""
    rng = np.random.default_rng(0)
    whole, rare = weighted_ap(scores, hits), (~hits).sum() / hits.sum()
    plain, weighted = [], []
    for _ in range(DRAWS):
        rows = drawn(hits, size, positives, rng)
        inside = hits[rows]
        if inside.any() and not inside.all():
            plain.append(weighted_ap(scores[rows], inside))
            weighted.append(weighted_ap(scores[rows], inside, rare / ((~inside).sum() / inside.sum())))
    return {
        "AP of the list": 100 * whole,
        "bias": 100 * (float(np.mean(plain)) - whole),
        "spread": 100 * float(np.std(plain)),
        "bias weighted": 100 * (float(np.mean(weighted)) - whole),
        "spread weighted": 100 * float(np.std(weighted)),
        "batches without a positive": 100 * (1 - len(plain) / DRAWS),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure the cells that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/scores/batch-ap.csv")
    parser.add_argument("--steps", type=int, default=400, help="training steps of the network")
    given = parser.parse_args(words)
    cost = TEMPERATURES["cross-entropy", "", "scores"]
    for name in TABLES:
        for seed in (0, 1, 2):
            lists = table(given.data_root, name, seed)
            logits = trained(lists, cost, given.steps, 1e-3, 512, seed)[~lists.train].numpy().astype(np.float64)
            hits = lists.relevance[~lists.train].numpy()
            for size in SIZES:
                for way, positives in (("random", None), ("stratified", size // SHARE)):
                    setting = {"table": name, "batch": way, "size": str(size)}
                    if size > len(hits) or (positives or 0) > hits.sum():
                        continue
                    if (tuple(setting.items()), "", str(seed)) not in cells(given.values):
                        append(given.values, setting, measured(logits, hits, size, positives), seed=str(seed))


if __name__ == "__main__":
    command.run(main)
