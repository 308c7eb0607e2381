"""Losses for metrics of one list, on tables with rare positives: the loss made for a metric against the usual losses.

    python -m rankgrad_papers.studies.tables --data-root DIR

DIR has NAME.npz: X [row, feature], y [row]. A cell is a method, a table and one of five folds. A quarter of the
training rows is held out for choices. A method has eight trials, with eight learning rates and four values of its own
parameter. Every trial trains the same network for the same number of steps. For each metric, the trial that is best in
this metric on the held-out rows is chosen. Its value on the test fold is kept. LightGBM is trained once with its own
defaults. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad import losses, metrics

from ..mean_ranks import drawn, mean_ranks
from ..values import append, cells, read
from . import command
from .scores import Cost, Lists, divided, from_lists, standardised, trained

TABLES = (
    *("celeba", "campaign", "ALOI", "annthyroid", "PageBlocks", "mammography"),
    *("cardio", "pendigits", "letter", "Waveform", "landsat", "InternetAds"),
)
FOLDS, STEPS, BATCH = 5, 400, 512
TRIALS = 8
RATES = tuple(3e-4 * 100 ** (trial / (TRIALS - 1)) for trial in range(TRIALS))
OWN = (0, 2, 1, 3, 2, 0, 3, 1)  # trial -> number of the value of the own parameter; each has a low and a high rate
TREES = "LightGBM"

#: Metric -> function of [1, row] scores and hits.
METRICS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "AP": metrics.average_precision,
    "ROC AUC": metrics.roc_auc,
    "partial ROC AUC": partial(metrics.partial_roc_auc, fpr=0.05),
    "P@100": partial(metrics.precision_at_k, k=100),
}
TEMPERATURES = (0.1, 0.3, 1.0, 3.0)


def cross_entropy(scores: Tensor, hits: Tensor, query: Tensor | None, weight: float = 1.0) -> Tensor:
    """Binary cross-entropy; `weight` of a positive."""
    given = torch.tensor(weight)
    return nn.functional.binary_cross_entropy_with_logits(scores, hits.to(scores.dtype), pos_weight=given)


def focal(scores: Tensor, hits: Tensor, query: Tensor | None, gamma: float = 2.0) -> Tensor:
    """Focal loss: cross-entropy, each row weighted by (1 - p)^gamma, p the probability of its own class."""
    each = nn.functional.binary_cross_entropy_with_logits(scores, hits.to(scores.dtype), reduction="none")
    return ((1 - torch.exp(-each)) ** gamma * each).mean()


def cost_of(method: str, own: int, lists: Lists, test_rows: int) -> Cost:
    """The cost of a method with one of the four values of its own parameter.

    Args:
        method: a key of `METHODS`.
        own: number of the value.
        lists: the share of positives in its training rows is used.
        test_rows: number of rows of the test list. For P@100 of this list, a batch has P@k with k in proportion to its
            rows.
    """
    tau = TEMPERATURES[own]
    ratio = float((~lists.relevance[lists.train]).sum() / lists.relevance[lists.train].sum())
    k = max(1, round(100 * BATCH / test_rows))
    costs: dict[str, Cost] = {
        "cross-entropy": cross_entropy,
        "weighted cross-entropy": partial(cross_entropy, weight=ratio ** (0.25, 0.5, 0.75, 1.0)[own]),
        "focal": partial(focal, gamma=(1.0, 2.0, 3.0, 5.0)[own]),
        "info_nce": from_lists(losses.InfoNCELoss(tau)),
        "roc_auc": from_lists(losses.ROCAUCLoss(tau)),
        "roc_auc, fpr .05": from_lists(losses.ROCAUCLoss(tau, fpr=0.05)),
        "lambda, P@k": from_lists(losses.LambdaLoss("precision", k=k, tau=tau)),
    }
    return costs[method]


#: Method -> the metric that its loss is made for, or "".
METHODS: Mapping[str, str] = {
    **{"cross-entropy": "", "weighted cross-entropy": "", "focal": ""},
    **{"info_nce": "AP", "roc_auc": "ROC AUC", "roc_auc, fpr .05": "partial ROC AUC", "lambda, P@k": "P@100"},
}


def fold(folder: Path, name: str, number: int) -> tuple[Lists, Tensor, Tensor]:
    """All rows of a table with a mask of the training rows, and masks of the held-out rows and of the test fold."""
    rows, hits, *parts = divided(folder, name, 0, number)
    train, held_out, test = (torch.from_numpy(np.isin(np.arange(len(hits)), part)) for part in parts)
    given = standardised(rows.astype(np.float32), train, 20)
    return Lists(given, torch.from_numpy(hits) == 1, None, train), held_out, test


def measured(scores: Tensor, hits: Tensor) -> dict[str, float]:
    """All metrics of a list, in per cent."""
    return {name: 100 * float(of(scores.unsqueeze(0), hits.unsqueeze(0))) for name, of in METRICS.items()}


def cell(method: str, lists: Lists, held_out: Tensor, test: Tensor, seed: int, steps: int) -> dict[str, float]:
    """Test value of each metric, for the trial that is best in this metric on the held-out rows."""
    if method == TREES:
        return measured(by_trees(lists)[test], lists.relevance[test])
    trials = []
    for trial, rate in enumerate(RATES):
        cost = cost_of(method, OWN[trial], lists, int(test.sum()))
        scores = trained(lists, cost, steps, rate / 3, BATCH, seed)  # the schedule rises to three times this rate
        if torch.isfinite(scores).all():
            trials.append([measured(scores[part], lists.relevance[part]) for part in (held_out, test)])
    return {name: max(trials, key=lambda values: values[0][name])[1][name] for name in METRICS}


def by_trees(lists: Lists) -> Tensor:
    """Scores of all rows by LightGBM with its defaults."""
    from lightgbm import LGBMClassifier

    trees = LGBMClassifier(n_jobs=1, verbose=-1)
    trees.fit(lists.rows[lists.train].numpy(), lists.relevance[lists.train].numpy())
    return torch.from_numpy(np.asarray(trees.predict_proba(lists.rows.numpy()))[:, 1].copy())


def draw(values: Path, picture: Path) -> None:
    """Draw the critical-difference diagram of each metric, without LightGBM. The loss made for the metric is bold."""
    found = read(values)
    ranks = {
        name: mean_ranks({method: found.units({"method": method}, name) for method in METHODS}) for name in METRICS
    }
    drawn(ranks, {metric: method for method, metric in METHODS.items() if metric}).savefig(picture)


def main(words: Sequence[str] | None = None) -> None:
    """Train the cells that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/scores/tables.csv", required=False)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="some of the tables")
    parser.add_argument("--folds", type=int, default=FOLDS, help="number of folds")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a training")
    parser.add_argument("--draw", type=Path, help="draw the file of the values, and train nothing")
    given = parser.parse_args(words)
    if given.draw is not None:
        draw(given.values, given.draw)
        return
    if given.data_root is None:
        parser.error("--data-root DIR is needed: the folder of the tables")
    for number, name, method in product(range(given.folds), given.tables, (*METHODS, TREES)):
        if ((("method", method),), name, str(number)) not in cells(given.values):
            values = cell(method, *fold(given.data_root, name, number), number, given.steps)
            append(given.values, {"method": method}, values, unit=name, seed=str(number))


if __name__ == "__main__":
    command.run(main)
