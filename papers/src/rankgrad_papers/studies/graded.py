"""Losses of graded lists: losses for NDCG, AP and MRR, compared with the squared error, RankNet and ListNet.

    python -m rankgrad_papers.studies.graded --data-root DIR

DIR has mq2008/train.npy and lightgbm/rank.train with rank.train.query. A cell is a method, a fifth of the queries of a
set, and a seed. This fifth is the test part, the next fifth is the validation part, and the other three train. A method
has eight trials, with eight learning rates and four values of its own parameter. Every trial trains the same network
for the same number of steps. For each metric, the trial with the best validation value in this metric is used. LightGBM
is trained with its own defaults. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rankgrad import losses

from ..values import append, cells
from . import command, trees
from .scores import Cost, Lists, from_lists, standardised, trained
from .tables import OWN, RATES, TEMPERATURES, TREES

Divided = tuple[Lists, trees.Lists, trees.Lists, trees.Lists]  # rows; queries of training, validation and test
SETS = ("lightgbm", "mq2008")
DIVISION, PARTS, SEEDS = 3, 5, 3  # the study of boosted trees has divisions 0 to 2
STEPS, BATCH = 240, 32  # BATCH counts queries


def squared(scores: Tensor, grades: Tensor, query: Tensor | None, power: float = 1.0) -> Tensor:
    """Squared error between the scores and a power of the grades."""
    return (scores - grades**power).square().mean()


def of_hits(loss: losses.RetrievalLoss) -> Cost:
    """The cost by a loss of binary relevance. Rows with a grade above 0 are relevant."""
    return lambda scores, grades, query: loss.from_lists(scores, grades > 0, query)


def cost_of(method: str, own: int) -> Cost:
    """The cost of a method with one of the four values of its own parameter.

    Args:
        method: a key of `METHODS`.
        own: number of the value.
    """
    tau = TEMPERATURES[own]
    costs: dict[str, Cost] = {
        "squared error": partial(squared, power=(0.5, 1.0, 1.5, 2.0)[own]),
        "RankNet": from_lists(losses.ROCAUCLoss(tau)),
        "ListNet": from_lists(losses.ListNetLoss(tau)),
        "ndcg": from_lists(losses.NDCGLoss(tau, "exp2")),
        "lambda, NDCG@10": from_lists(losses.LambdaLoss(k=10, tau=tau)),
        "lambda, AP": of_hits(losses.LambdaLoss("map", tau=tau)),
        "info_nce": of_hits(losses.InfoNCELoss(tau)),
        "lambda, MRR": of_hits(losses.LambdaLoss("mrr", tau=tau)),
    }
    return costs[method]


#: Method -> the metric that its loss is made for, or "".
METHODS: Mapping[str, str] = {
    **{"squared error": "", "RankNet": "", "ListNet": ""},
    **{"ndcg": "NDCG@10", "lambda, NDCG@10": "NDCG@10", "lambda, AP": "AP", "info_nce": "AP", "lambda, MRR": "MRR"},
}


def divided(folder: Path, name: str, part: int) -> Divided:
    """All rows, standardised on the training rows; and the queries of training, validation and test."""
    three = trees.parts(trees.graded(folder, name), DIVISION, part)
    rows = np.concatenate([each.rows for each in three]).astype(np.float32)
    grades = torch.from_numpy(np.concatenate([each.grades for each in three]).astype(np.float32))
    sizes = torch.from_numpy(np.concatenate([each.sizes for each in three]))
    trains = torch.arange(len(rows)) < len(three[0].rows)
    query = torch.arange(len(sizes)).repeat_interleave(sizes)
    return Lists(standardised(rows, trains, 10), grades, query, trains), *three


def cell(method: str, given: Divided, seed: int, steps: int) -> dict[str, float]:
    """Test value of each metric, for the trial with the best validation value of this metric."""
    lists, train, choose, judge = given
    if method == TREES:
        return trees.judged(by_trees(train, judge), judge)
    first, last = len(train.rows), len(train.rows) + len(choose.rows)
    trials = []
    for trial, rate in enumerate(RATES):
        cost = cost_of(method, OWN[trial])
        scores = trained(
            lists, cost, steps, rate / 3, BATCH, seed
        ).numpy()  # the schedule rises to three times this rate
        if np.isfinite(scores).all():
            trials.append((trees.judged(scores[first:last], choose), trees.judged(scores[last:], judge)))
    return {name: max(trials, key=lambda values: values[0][name])[1][name] for name in trees.JUDGES}


def by_trees(train: trees.Lists, judge: trees.Lists) -> np.ndarray:
    """Scores by LightGBM's lambdarank with its defaults."""
    from lightgbm import LGBMRanker

    model = LGBMRanker(n_jobs=1, verbose=-1).fit(train.rows, train.grades, group=train.sizes)
    return np.asarray(model.predict(judge.rows))


def main(words: Sequence[str] | None = None) -> None:
    """Train the cells that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/scores/graded.csv")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of trainings of each part")
    parser.add_argument("--parts", type=int, default=PARTS, help="number of fifths that are tested")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a training")
    given = parser.parse_args(words)
    for seed, part, name in product(range(given.seeds), range(given.parts), SETS):
        for method in (*METHODS, TREES):
            unit = f"{name} {part}"
            if ((("method", method),), unit, str(seed)) not in cells(given.values):
                values = cell(method, divided(given.data_root, name, part), seed, given.steps)
                append(given.values, {"method": method}, values, unit=unit, seed=str(seed))


if __name__ == "__main__":
    command.run(main)
