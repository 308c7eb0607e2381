"""Boosted trees with a loss of lists as objective: which curvature is best, and are built-in objectives better?

    python -m rankgrad_papers.studies.trees --data-root DIR

DIR has lightgbm/rank.train with rank.train.query, mq2008/train.npy (grade, query, features) and tables of rare
positives (NAME.npz). papers/docs/hypotheses.md has the hypotheses. If the command is interrupted, run it again and
it continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad import losses, metrics
from rankgrad.adapters.lightgbm import objective
from rankgrad.ranks import exact_ranks

from ..values import append, cells
from . import command
from .scores import divided

Array = npt.NDArray[Any]
Divided = Callable[[], tuple["Lists", "Lists", "Lists"]]  # rows of training, validation and test
SETS = ("lightgbm", "mq2008")
SIZES = (12, 25, 50, 100)  # numbers of trees to choose from
SETTINGS = {
    "num_leaves": 31,
    "learning_rate": 0.1,
    "num_threads": 1,
    "verbose": -1,
    "seed": 0,
    "deterministic": True,
    "force_col_wise": True,
}
TABLES = (
    *("annthyroid", "PageBlocks", "mammography", "cardio"),
    *("pendigits", "letter", "Waveform", "landsat", "InternetAds"),
)
#: name -> (loss, whether grades become hits)
LOSSES: dict[str, tuple[losses.RetrievalLoss, bool]] = {
    "lambda, k=10": (losses.LambdaLoss(k=10), False),
    "lambda, map": (losses.LambdaLoss("map"), True),
    "lambda, mrr": (losses.LambdaLoss("mrr"), True),
    "info_nce": (losses.InfoNCELoss(1.0), True),
}
#: Division -> the objectives that are compared on it.
JUDGED = {1: ("lambdarank", "lambda, k=10", "lambda, map", "lambda, mrr"), 2: ("lambdarank", "info_nce")}
JUDGES = {
    "NDCG@10": losses.RankLoss(exact_ranks, metric=partial(metrics.ndcg, k=10, gain="exp2")),
    "AP": losses.RankLoss(exact_ranks, metric=metrics.average_precision),
    "MRR": losses.RankLoss(exact_ranks, metric=metrics.reciprocal_rank),
}


class Lists(NamedTuple):
    """Rows [row, feature] of some queries, query by query; their grades [row], and the number of rows of each query."""

    rows: Array
    grades: Array
    sizes: Array

    def of(self, queries: Array) -> Lists:
        """The queries with the given numbers."""
        starts = np.cumsum(self.sizes) - self.sizes
        chosen = np.concatenate([np.arange(starts[q], starts[q] + self.sizes[q]) for q in queries])
        return Lists(self.rows[chosen], self.grades[chosen], self.sizes[queries])

    @property
    def query(self) -> Tensor:
        """[row] number of its query."""
        sizes = torch.from_numpy(self.sizes)
        return torch.arange(len(sizes)).repeat_interleave(sizes)


def graded(folder: Path, name: str, part: str = "train") -> Lists:
    """The queries of a set: "lightgbm" or "mq2008"."""
    if name == "mq2008":
        found = np.load(folder / "mq2008" / f"{part}.npy", allow_pickle=False)
        found = found[np.argsort(found[:, 1], kind="stable")]
        return Lists(found[:, 2:], found[:, 0], np.unique(found[:, 1], return_counts=True)[1])
    from sklearn.datasets import load_svmlight_file

    sparse, grades = load_svmlight_file(str(folder / "lightgbm" / f"rank.{part}"), n_features=301)
    sizes = np.loadtxt(folder / "lightgbm" / f"rank.{part}.query").astype(int)
    return Lists(sparse.toarray(), grades, sizes)


def parts(lists: Lists, division: int, part: int) -> tuple[Lists, Lists, Lists]:
    """(training, validation, test) queries of one part. A division splits the queries into five parts."""
    order = np.random.default_rng(division).permutation(len(lists.sizes))
    of = np.arange(len(order)) % 5
    others = (of != part) & (of != (part + 1) % 5)
    return lists.of(order[others]), lists.of(order[of == (part + 1) % 5]), lists.of(order[of == part])


# ------------------------------------------------------------------------------------------- curvatures to choose from

# Two more were compared when losses had second derivatives, at commit d31e07f: see papers/docs/results-scores.md.

Curvature = Callable[[Tensor, Tensor], Tensor]  # ([row] gradient, [row] query) -> [row]


def of_gradient(gradient: Tensor, query: Tensor) -> Tensor:
    """Absolute value of the gradient."""
    return gradient.abs()


def of_list(gradient: Tensor, query: Tensor) -> Tensor:
    """Mean absolute gradient of the row's list."""
    size = torch.bincount(query)
    return (torch.zeros_like(size, dtype=gradient.dtype).index_add(0, query, gradient.abs()) / size)[query]


def constant(gradient: Tensor, query: Tensor) -> Tensor:
    """Mean absolute gradient of all rows."""
    return gradient.abs().mean().expand_as(gradient)


CURVATURES: dict[str, Curvature] = {"gradient": of_gradient, "list": of_list, "constant": constant}


def candidate(name: str, curvature: str) -> Callable[[Array, Any], tuple[Array, Array]]:
    """A loss as an objective of LightGBM, with one of the curvatures."""
    loss, hits = LOSSES[name]

    def of(predictions: Array, data: Any) -> tuple[Array, Array]:
        relevance = torch.from_numpy(data.get_label().astype(np.float32))
        relevance = relevance > 0 if hits else relevance
        given = data.get_group()
        sizes = torch.tensor([len(relevance)]) if given is None else torch.from_numpy(given.astype(np.int64))
        query = torch.arange(len(sizes)).repeat_interleave(sizes)
        scores = torch.from_numpy(predictions.astype(np.float32)).requires_grad_()
        (gradient,) = torch.autograd.grad(loss.from_lists(scores, relevance, query), scores)
        bend = CURVATURES[curvature](gradient, query)
        mean = bend.mean().clamp(min=1e-30)
        return (gradient / mean).double().numpy(), (bend / mean + 1e-3).double().numpy()

    return of


# --------------------------------------------------------------------------------------------------------- measuring


def judged(scores: Array, lists: Lists) -> dict[str, float]:
    """The metrics of a ranking, in per cent."""
    given = torch.from_numpy(scores.astype(np.float64))
    grades = torch.from_numpy(lists.grades.astype(np.float64))
    found = {}
    for name, judge in JUDGES.items():
        relevance = grades if name == "NDCG@10" else grades > 0
        found[name] = 100 - 100 * float(judge.from_lists(given, relevance, lists.query))
    return found


def boosted(train: Lists, built_in: str | Callable[..., Any], trees: int = SIZES[-1]) -> tuple[Any, float]:
    """(model, seconds of processor time)."""
    import lightgbm

    group = None if len(train.sizes) == 1 else train.sizes
    data = lightgbm.Dataset(train.rows, train.grades, group=group, params={"verbose": -1})
    began = time.process_time()
    model = lightgbm.train({**SETTINGS, "objective": built_in}, data, trees)
    return model, time.process_time() - began


def cell(train: Lists, choose: Lists, judge: Lists, built_in: str | Callable[..., Any]) -> dict[str, float]:
    """The test metrics of a part. For each metric, the validation queries choose the number of trees."""
    model, seconds = boosted(train, built_in)
    found = {size: [_predicted(model, lists, size) for lists in (choose, judge)] for size in SIZES}
    numbers: dict[str, float] = {}
    for name in JUDGES:
        best = max(SIZES, key=lambda size: found[size][0][name])
        numbers |= {name: found[best][1][name], f"trees of {name}": best}
    return numbers | {"seconds": seconds}


def _predicted(model: Any, lists: Lists, trees: int) -> dict[str, float]:
    return judged(model.predict(lists.rows, num_iteration=trees, raw_score=True), lists)


def table(folder: Path, name: str, seed: int) -> tuple[Lists, Lists, Lists]:
    """(training, validation, test) rows of the first of five folds of a table. Each is one list."""
    rows, hits, *divisions = divided(folder, name, seed)
    rows = rows.astype(np.float64)
    train, choose, judge = (Lists(rows[which], hits[which], np.array([len(which)])) for which in divisions)
    return train, choose, judge


def tested(folder: Path) -> tuple[Lists, Lists, Lists]:
    """(training, validation, test) queries of LightGBM's example. A fifth of its training queries is for validation."""
    lists = graded(folder, "lightgbm")
    order = np.random.default_rng(0).permutation(len(lists.sizes))
    of = np.arange(len(order)) % 5
    return lists.of(order[of != 0]), lists.of(order[of == 0]), graded(folder, "lightgbm", "test")


def main(words: Sequence[str] | None = None) -> None:
    """Measure the cells that the files do not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/trees")
    parser.add_argument("--only", nargs="+", default=("curvature", "graded", "test", "rare"), help="some of the files")
    given = parser.parse_args(words)
    torch.set_num_threads(1)

    def measure(file: str, setting: dict[str, str], unit: str, three: Divided, seed: str = "") -> None:
        path = given.values / f"{file}.csv"
        if (tuple(setting.items()), unit, seed) in cells(path):
            return
        name, curvature = setting["objective"], setting.get("curvature")
        followed: str | Callable[..., Any] = name
        if name in LOSSES and curvature:
            followed = candidate(name, curvature)
        elif name in LOSSES:
            followed = objective(LOSSES[name][0], one_list=file == "rare")
        train, choose, judge = three()
        if name in LOSSES and LOSSES[name][1]:
            train = train._replace(grades=train.grades > 0)
        append(path, setting, cell(train, choose, judge, followed), unit=unit, seed=seed)

    if "curvature" in given.only:
        for part, lists in product(range(3), SETS):
            three = partial(parts, graded(given.data_root, lists), 0, part)
            for name in ("lambda, k=10", "lambda, map", "info_nce", "lambdarank"):
                for curvature in CURVATURES if name in LOSSES else [""]:
                    measure("curvature", {"objective": name, "curvature": curvature}, f"{lists} {part}", three)
    if "graded" in given.only:
        for (number, compared), part, lists in product(JUDGED.items(), range(5), SETS):
            three = partial(parts, graded(given.data_root, lists), number, part)
            for name in compared:
                measure("graded", {"division": str(number), "objective": name}, f"{lists} {part}", three)
    if "test" in given.only:
        for name in ("lambdarank", *LOSSES):
            measure("test", {"objective": name}, "lightgbm", partial(tested, given.data_root))
    if "rare" in given.only:
        for seed, lists, name in product((0, 1), TABLES, ("binary", "info_nce")):
            measure("rare", {"objective": name}, lists, partial(table, given.data_root, lists, seed), str(seed))


if __name__ == "__main__":
    command.run(main)
