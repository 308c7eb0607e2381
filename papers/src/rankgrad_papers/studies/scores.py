"""Temperatures of losses on logits, and losses of graded lists: small networks on tables, without tuning.

    python -m rankgrad_papers.studies.scores --data-root DIR

DIR has tables of rare positives (NAME.npz: X [row, feature], y [row]), mq2008/train.npy (grade, query, features) and
lightgbm/rank.train with rank.train.query. The study uses only training rows. Of a table these are four of five folds,
and a quarter of their rows is held out. Of the graded lists, a third to a fifth of the training queries is held out.
The third kind of lists is drawn at random here. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad import losses, metrics
from rankgrad.ranks import exact_ranks

from ..values import append, cells
from . import command

TABLES = ("mammography", "letter", "Waveform", "PageBlocks")
Cost = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # (scores, relevance, query ids)
NDCG = losses.RankLoss(exact_ranks, metric=partial(metrics.ndcg, k=10, gain="exp2"))


class Lists(NamedTuple):
    """Rows [row, feature], their relevance, the query of each row (None: one list), and a mask of the training rows."""

    rows: Tensor
    relevance: Tensor
    query: Tensor | None
    train: Tensor


def from_lists(loss: losses.RetrievalLoss) -> Cost:
    """The cost of scores by a loss of lists."""
    return loss.from_lists


def of_spread(loss: losses.RetrievalLoss) -> Cost:
    """The same for scores divided by their standard deviation. The standard deviation gets no gradient."""
    return lambda scores, relevance, query: loss.from_lists(scores / scores.detach().std(), relevance, query)


def _cross_entropy(scores: Tensor, relevance: Tensor, query: Tensor | None) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores, relevance.to(scores.dtype))


def _squared(scores: Tensor, relevance: Tensor, query: Tensor | None) -> Tensor:
    return (scores - relevance).square().mean()


#: (loss, tau, of) -> the cost of a list of hits.
TEMPERATURES: dict[tuple[str, str, str], Cost] = {
    ("cross-entropy", "", "scores"): _cross_entropy,
    **{("smooth_ap", f"{t}", "scores"): from_lists(losses.SmoothAPLoss(t)) for t in (0.01, 0.1, 1.0, 10.0)},
    **{("info_nce", f"{t}", "scores"): from_lists(losses.InfoNCELoss(t)) for t in (0.01, 0.1, 1.0, 10.0)},
    **{("supap", f"{t}", "scores"): from_lists(losses.SupAPLoss(t, 1 / t, 5 * t)) for t in (0.01, 0.1, 1.0)},
    **{("smooth_ap", f"{t}", "scores / std"): of_spread(losses.SmoothAPLoss(t)) for t in (0.1, 1.0)},
    ("roc_auc", "1.0", "scores"): from_lists(losses.ROCAUCLoss()),
    ("auc", "", "scores"): from_lists(losses.AUCLoss()),
}
#: (loss, tau) -> the cost of graded lists.
GRADES: dict[tuple[str, str], Cost] = {
    ("squared error", ""): _squared,
    **{("ndcg, linear", f"{t}"): from_lists(losses.NDCGLoss(t)) for t in (0.01, 0.1, 1.0)},
    **{("ndcg", f"{t}"): from_lists(losses.NDCGLoss(t, "exp2")) for t in (0.01, 0.1, 1.0)},
    **{("supndcg", f"{t}"): from_lists(losses.SupNDCGLoss(t, 1 / t, 5 * t)) for t in (0.1, 1.0)},
    ("lambda", ""): from_lists(losses.LambdaLoss()),
    ("lambda, k=10", ""): from_lists(losses.LambdaLoss(k=10)),
    ("roc_auc (RankNet)", ""): from_lists(losses.ROCAUCLoss()),
    ("list_net", ""): from_lists(losses.ListNetLoss()),
}


def divided(folder: Path, name: str, seed: int, fold: int = 0) -> tuple[np.ndarray, ...]:
    """(features, hits, training rows, held-out rows, test rows) of one of five folds of a table."""
    from sklearn.model_selection import StratifiedKFold, train_test_split

    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        rows, hits = file["X"], file["y"].astype(int)
    inside, test = [*StratifiedKFold(5, shuffle=True, random_state=seed).split(rows, hits)][fold]
    train, held_out = train_test_split(inside, test_size=0.25, random_state=seed, stratify=hits[inside])
    return rows, hits, train, held_out, test


def table(folder: Path, name: str, seed: int) -> Lists:
    """The training rows of a fold of a table, standardised, and clipped at 20 standard deviations."""
    rows, hits, train, held_out, _ = divided(folder, name, seed)
    order = np.concatenate([train, held_out])
    trains = torch.arange(len(order)) < len(train)
    return Lists(
        standardised(rows[order].astype(np.float32), trains, 20), torch.from_numpy(hits[order]) == 1, None, trains
    )


def graded(folder: Path, name: str, fold: int) -> Lists:
    """The training queries of a set, a fifth of them held out; "drawn": 1500 lists of 10, a third of them held out."""
    if name == "drawn":
        g = torch.Generator().manual_seed(0)
        rows, weights = torch.randn(15_000, 20, generator=g), torch.randn(20, 8, generator=g)
        quality = torch.tanh(rows @ weights / 2).sum(1) + 0.5 * torch.randn(15_000, generator=g)
        grades = torch.bucketize(quality, quality.quantile(torch.tensor([0.5, 0.75, 0.9, 0.97]))).float()
        query = torch.arange(1500).repeat_interleave(10)
        return Lists(rows, grades, query, query < 1000)
    if name == "mq2008":
        table = np.load(folder / "mq2008" / "train.npy", allow_pickle=False)
        values, levels, ids = table[:, 2:], table[:, 0], table[:, 1].astype(int)
    else:
        from sklearn.datasets import load_svmlight_file

        sparse, levels = load_svmlight_file(str(folder / "lightgbm" / "rank.train"))
        sizes = np.loadtxt(folder / "lightgbm" / "rank.train.query").astype(int)
        values, ids = sparse.toarray(), np.repeat(np.arange(len(sizes)), sizes)
    names = np.unique(ids)
    held_out = np.isin(ids, names[np.random.default_rng(0).permutation(len(names))[fold::5]])
    trains = torch.from_numpy(~held_out)
    grades = torch.from_numpy(levels.astype(np.float32))
    return Lists(standardised(values.astype(np.float32), trains, 10), grades, torch.from_numpy(ids), trains)


def standardised(rows: np.ndarray, trains: Tensor, most: float) -> Tensor:
    """Columns with mean 0 and standard deviation 1 over the rows that train, clipped at `most` standard deviations."""
    values = torch.from_numpy(rows)
    spread = values[trains].std(0, correction=0)
    return ((values - values[trains].mean(0)) / torch.where(spread > 0, spread, 1)).clamp(-most, most)


def trained(given: Lists, cost: Cost, steps: int, rate: float, batch: int, seed: int, cycle: bool = True) -> Tensor:
    """Scores of all rows after training: two hidden layers of 64, AdamW. A batch has rows or whole queries."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(given.rows.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(net.parameters(), rate)
    schedule = None
    if cycle:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * rate, total_steps=steps, pct_start=0.1)
    g = torch.Generator().manual_seed(seed)
    names = torch.nonzero(given.train).flatten() if given.query is None else torch.unique(given.query[given.train])
    for _ in range(steps):
        chosen = names[torch.randperm(len(names), generator=g)[:batch]]
        rows = chosen if given.query is None else torch.nonzero(torch.isin(given.query, chosen)).flatten()
        ids = None if given.query is None else given.query[rows]
        optimizer.zero_grad()
        cost(net(given.rows[rows]).squeeze(1), given.relevance[rows], ids).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if schedule is not None:
            schedule.step()
    with torch.no_grad():
        scores: Tensor = net(given.rows).squeeze(1)
    return scores


def judged(given: Lists, scores: Tensor) -> dict[str, float]:
    """The numbers of a cell, shares in per cent. "spread" is the standard deviation of the held-out scores."""
    held_out = ~given.train
    spread = {"spread": float(scores[held_out].std())}
    if given.query is None:
        lists = scores[held_out].unsqueeze(0), given.relevance[held_out].unsqueeze(0)
        values = {"AP": metrics.average_precision(*lists), "ROC AUC": metrics.roc_auc(*lists)}
        return {name: 100 * float(value) for name, value in values.items()} | spread

    def ndcg(part: Tensor) -> float:
        assert given.query is not None
        return 100 - 100 * float(NDCG.from_lists(scores[part], given.relevance[part], given.query[part]))

    return {"NDCG@10": ndcg(held_out), "NDCG@10 of training": ndcg(given.train)} | spread


def main(words: Sequence[str] | None = None) -> None:
    """Train the cells that the files do not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/scores")
    parser.add_argument("--steps", type=int, help="steps of each training (default: those of the published values)")
    parser.add_argument("--only", nargs="+", default=("tables", "lightgbm", "mq2008", "drawn"), help="some of the data")
    given = parser.parse_args(words)
    for seed, name in product((0, 1), TABLES if "tables" in given.only else ()):
        for (loss, tau, of), cost in TEMPERATURES.items():
            setting, path = {"loss": loss, "tau": tau, "of": of}, given.values / "temperature.csv"
            if (tuple(setting.items()), name, str(seed)) not in cells(path):
                lists = table(given.data_root, name, seed)
                scores = trained(lists, cost, given.steps or 400, 1e-3, 512, seed)
                append(path, setting, judged(lists, scores), unit=name, seed=str(seed))
    for name in [name for name in ("lightgbm", "mq2008", "drawn") if name in given.only]:
        drawn = name == "drawn"
        folds, rates, steps, batch = (1, (1e-3, 1e-2), 300, 64) if drawn else (3, (1e-3,), 240, 32)
        for fold, rate, ((loss, tau), cost) in product(range(folds), rates, GRADES.items()):
            setting = {"lists": name, "loss": loss, "tau": tau, "rate": f"{rate:g}".lstrip("0")}
            path, unit = given.values / "grades.csv", f"fold {fold}"
            if (tuple(setting.items()), unit, "") not in cells(path):
                lists = graded(given.data_root, name, fold)
                scores = trained(lists, cost, given.steps or steps, rate, batch, fold, cycle=not drawn)
                append(path, setting, judged(lists, scores), unit=unit)


if __name__ == "__main__":
    command.run(main)
