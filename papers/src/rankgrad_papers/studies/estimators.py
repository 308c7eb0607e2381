"""`rankgrad.adapters.sklearn.Ranker` on graded lists: number of steps and early stopping, beside Ridge.

    python -m rankgrad_papers.studies.estimators --data-root DIR

DIR has mq2008/train.npy and lightgbm/rank.train with rank.train.query. A unit is a fifth of the queries of a set; the
other four train. Ridge is given standardised columns. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from rankgrad.scores.evaluation import values_of
from rankgrad_workbench.tasks.scores.table import ScoreTable

from ..values import append, cells
from . import command, trees

DIVISION, PARTS = 4, 5
METRIC = "NDCG@10"
SETS = ("mq2008", "lightgbm")
#: (loss, steps, early stopping). Without steps: Ridge.
SETTINGS = (
    ("Ridge", 0, False),
    *(("lambda", steps, stops) for steps in (400, 1000) for stops in (False, True)),
    *(("squared_error", steps, True) for steps in (400, 1000)),
)


def value(loss: str, steps: int, stops: bool, train: trees.Lists, judge: trees.Lists) -> float:
    """NDCG@10 of the judged queries, in per cent; the gains are the grades."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from rankgrad.adapters.sklearn import Ranker

    if steps:
        own = None if loss == "lambda" else loss
        model: Any = Ranker(own, steps=steps, early_stopping=stops, random_state=0)
        model.fit(train.rows, train.grades, query=train.query.numpy())
    else:
        model = make_pipeline(StandardScaler(), Ridge()).fit(train.rows, train.grades)
    table = ScoreTable.of(judge.rows, judge.grades, query=judge.query.numpy())
    return 100 * values_of(model.predict(judge.rows), table, [METRIC])[METRIC]


def main(words: Sequence[str] | None = None) -> None:
    """Train the cells that the file does not have yet."""
    given = command.parser_of(__doc__, "folder of the tables", "papers/results/scores/estimators.csv").parse_args(words)
    for name in SETS:
        lists = trees.graded(given.data_root, name)
        order = np.random.default_rng(DIVISION).permutation(len(lists.sizes))
        for part, (loss, steps, stops) in product(range(PARTS), SETTINGS):
            setting = {"lists": name, "loss": loss, "steps": str(steps or ""), "held out": "a fifth" if stops else ""}
            unit = f"fifth {part}"
            if (tuple(setting.items()), unit, "") not in cells(given.values):
                train, judge = lists.of(order[np.arange(len(order)) % PARTS != part]), lists.of(order[part::PARTS])
                append(given.values, setting, {METRIC: value(loss, steps, stops, train, judge)}, unit=unit)


if __name__ == "__main__":
    command.run(main)
