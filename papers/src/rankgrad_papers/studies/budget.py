"""How many steps a training on a small table needs: curves of the default network and of a linear model.

    python -m rankgrad_papers.studies.budget --data-root DIR

DIR has NAME.npz: X [row, feature], y [row]. Two more tables are those of scikit-learn. A cell is a table, a model, a
loss, a rate, a number of steps and a seed. It is trained with the rows, batches and network of `rankgrad train
task=scores`. The AP of the validation rows is measured at 40 points of the training, or after each epoch if there are
fewer. "AP" is that of the test rows, with the weights of the best point. "last" is that of the last point. "stopped" is
the AP, and "share" the part of the steps, if the training ends when a quarter of its steps brought no better point.
"logistic regression" is scikit-learn's, on the same rows and encoding. If the command is interrupted, run it again and
it continues.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankgrad.scores.evaluation import values_of
from rankgrad_workbench.settings import compose, plain
from rankgrad_workbench.tasks.scores.model import score_rows
from rankgrad_workbench.tasks.scores.table import ScoreTable
from rankgrad_workbench.tasks.scores.task import GivenScorer, ScoresTask, build
from rankgrad_workbench.training.module import Schedule

from ..values import append, cells
from . import command

TABLES = ("breast_cancer", "letter", "cardio", "Waveform", "digits", "PageBlocks", "mammography")
POINTS, PATIENCE = 40, 0.25
PASSES = 60  # the former number of epochs
LOGISTIC = "logistic regression"
LOSSES: Mapping[str, Sequence[str]] = {
    "cross_entropy": ("loss=cross_entropy",),
    "info_nce": ("loss=info_nce", "loss.tau=0.1"),
}
# Model, rate, steps; "60 passes": as many steps as these have. Those that decide a sentence come first.
ROWS: Sequence[tuple[str, str, str]] = (
    *(("mlp", ".003", steps) for steps in ("60 passes", "2000")),
    *(("linear", ".01", "60 passes"), ("linear", ".03", "2000")),
    *(("mlp", rate, "2000") for rate in (".001", ".01")),
    *(("mlp", ".003", steps) for steps in ("1000", "4000", "500")),
    *(("linear", rate, "2000") for rate in (".01", ".1")),
)


def table_of(folder: Path, name: str, seed: int) -> ScoreTable:
    """The rows of a table. A fifth of them is the test, which depends on the seed."""
    from sklearn.datasets import load_breast_cancer, load_digits
    from sklearn.model_selection import StratifiedShuffleSplit

    if name == "breast_cancer":
        rows, hits = load_breast_cancer(return_X_y=True)
        hits = 1 - hits
    elif name == "digits":
        rows, hits = load_digits(return_X_y=True)
        hits = (hits == 8).astype(int)
    else:
        with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
            rows, hits = file["X"], file["y"].astype(int)
    [(_, test)] = StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(rows, hits)
    split = np.full(len(hits), "train", dtype=object)
    split[test] = "test"
    return replace(ScoreTable.of(rows.astype(np.float32), hits == 1), split=split, name=name)


def task_of(table: ScoreTable, loss: Sequence[str], model: str, rate: str, seed: int) -> ScoresTask:
    """The rows, batches, network and loss of a run of `rankgrad train task=scores`."""
    words = ["data.root=x", f"model={model}", *loss, f"optimizer.lr={rate}", f"seed={seed}"]
    config = compose(words, "scores")
    settings = plain(config)
    return build(config, quiet=True, given=GivenScorer(lambda width: _network(settings, width), table))


def _network(settings: Mapping[str, object], width: int) -> torch.nn.Module:
    from rankgrad_workbench.tasks.scores.model import build_model
    from rankgrad_workbench.tasks.scores.settings import Model

    model = dict(settings["model"])  # type: ignore[call-overload]
    torch.manual_seed(int(settings["seed"]))  # type: ignore[call-overload]
    return build_model(Model(**{**model, "hidden": tuple(model.get("hidden", ()))}), width)


def curve(task: ScoresTask, steps: int) -> list[tuple[int, float, float]]:
    """(step, AP of the validation rows, AP of the test rows) at the points of a training."""
    model, sampler, parts = task.module.model, task.data.sampler, task.parts
    optimizer = torch.optim.AdamW(model.parameters(), task.settings.optimizer["lr"], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, Schedule(steps, warmup=0.1))
    assert parts.chosen_on is not None
    seen = [(rows, task.encoding.encode(rows)) for rows in (parts.chosen_on, parts.test)]
    every = max(len(sampler), -(-steps // POINTS))
    found, done, epoch = [], 0, 0
    while done < steps:
        for batch in sampler.batches(epoch):
            if done == steps:
                break
            inputs, relevance, query = task.data.collate(batch)
            optimizer.zero_grad()
            task.module.loss.from_lists(model(inputs), relevance, query).backward()  # type: ignore[operator]
            optimizer.step()
            schedule.step()
            done += 1
            if done % every == 0 or done == steps:
                validation, test = (100 * values_of(score_rows(model, x), rows, ["AP"])["AP"] for rows, x in seen)
                found.append((done, validation, test))
        epoch += 1
    return found


def told(points: list[tuple[int, float, float]], steps: int) -> dict[str, float]:
    """The values of a cell, from its curve."""
    best = max(points, key=lambda point: point[1])
    kept, ended = points[0], steps
    for point in points:
        if point[1] > kept[1]:
            kept = point
        elif point[0] - kept[0] >= PATIENCE * steps:
            ended = point[0]
            break
    return {
        **{"AP": best[2], "last": points[-1][2], "validation AP": best[1], "number of steps": steps},
        **{"best at": 100 * best[0] / steps, "stopped": kept[2], "share": 100 * ended / steps},
    }


def logistic(task: ScoresTask) -> dict[str, float]:
    """AP of scikit-learn's logistic regression on the training rows."""
    from sklearn.linear_model import LogisticRegression

    parts = task.parts
    assert parts.train.relevance is not None
    model = LogisticRegression(max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tables are separable, so the weights never settle
        model.fit(task.encoding.encode(parts.train).numpy(), (parts.train.relevance > 0).numpy())
    scores = torch.from_numpy(model.decision_function(task.encoding.encode(parts.test).numpy()))
    return {"AP": 100 * values_of(scores, parts.test, ["AP"])["AP"]}


def todo(tables: Sequence[str], seeds: int) -> Iterator[tuple[str, int, str, str, str, str]]:
    """(table, seed, loss, model, rate, steps), in blocks of `ROWS`, seed by seed."""
    for block in (ROWS[:4], ROWS[4:]):
        for seed in range(seeds):
            for name in tables:
                yield name, seed, "cross_entropy", LOGISTIC, "", ""
                for loss in LOSSES:
                    for model, rate, steps in block:
                        yield name, seed, loss, model, rate, steps


def main(words: Sequence[str] | None = None) -> None:
    """Train the cells that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the tables", "papers/results/scores/budget.csv")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="some of the tables")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    for name, seed, loss, model, rate, steps in todo(given.tables, given.seeds):
        setting = {"model": model, "loss": loss, "rate": rate, "steps": steps}
        if (tuple(setting.items()), name, str(seed)) in cells(given.values):
            continue
        kind = "linear" if model == LOGISTIC else model
        task = task_of(table_of(given.data_root, name, seed), LOSSES[loss], kind, rate or ".01", seed)
        if model == LOGISTIC:
            values = logistic(task)
        else:
            count = PASSES * len(task.data.sampler) if steps == "60 passes" else int(steps)
            values = told(curve(copy.copy(task), count), count)
        append(given.values, setting, values, unit=name, seed=str(seed))


if __name__ == "__main__":
    command.run(main)
