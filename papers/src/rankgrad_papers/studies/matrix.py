"""The matrix: seven losses, measured by four metrics. Is the loss that is made for a metric the best in it?

    python -m rankgrad_papers.studies.matrix --data-root DIR omniglot icons banking77
    python -m rankgrad_papers.studies.matrix --data-root DIR photographs --weights RUN/model.pt
    python -m rankgrad_papers.studies.matrix --draw matrix.svg

DIR has a folder for each data set. Each set has one search. Its trials train on folds of the training classes. Each
trial is measured by all four metrics on the held-out classes. For each metric, a loss keeps its best trial. For each
metric, two losses are named: the loss made for it, and the best of the others. All this is written to a file before the
test classes are used. Then the kept trials train on all training classes, and are measured on the test classes. The
named losses have ten seeds, the others five.

The first trial has the defaults. The others are random points of the spaces of `rankgrad tune`. `tune` itself is not
used, because it optimises one metric: it prunes trials by this metric, and draws later trials near those that are good
in it.

A run adds its values to the file when it ends; then its folder is removed. If the command is interrupted, run it again
and it continues.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from omegaconf import DictConfig
from optuna.samplers import RandomSampler

from rankgrad.evaluation.statistics import PairedDifference
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tuning.space import NumberRange, Value, Values, settings_of, space_of

from ..trainings import Training, train_missing
from ..values import add_lines, difference, read
from . import command, loss_setting
from .alphabets import POOLED, measured
from .tables import METHODS as TABLE_METHODS
from .tables import METRICS as TABLE_METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("AP", "mAP@R", "R@1", POOLED)
TRIALS, FOLDS, SEEDS = 8, 3, 10
FEWER = 5  # seeds of the losses that are not named


@dataclass(frozen=True)
class DataSet:
    """The common settings of all trainings on a data set.

    Attributes:
        title: name in the drawing.
        settings: KEY=VALUE, without the folder of the data.
        relevant: number of relevant items of a query in a batch.
        space: replaces the spaces of `rankgrad tune`, for the losses that have these settings.
    """

    title: str
    settings: tuple[str, ...]
    relevant: int
    space: tuple[tuple[str, str], ...] = ()


SETS: Mapping[str, DataSet] = {
    "omniglot": DataSet("letters (Omniglot)", ("data=omniglot", "data.load.turns=1", "recipe=small"), 3),
    "icons": DataSet("icons", ("data=icons", "data.size=28", "recipe=small"), 3),
    "photographs": DataSet("photographs", ("data=photographs", "recipe=finetune_photographs"), 7),
    "banking77": DataSet(
        "questions (BANKING77)",
        (
            *("data=banking77", "data.load.validation=train", "model.buckets=8192", "trainer.max_epochs=5"),
            "model.head=none",
            *("sampler.classes_per_batch=24", "sampler.samples_per_class=4", "sampler.batches_per_epoch=40"),
        ),
        3,
        (
            ("loss.tau", "log(0.01,0.5)"),
            ("loss.tau1", "log(0.01,0.5)"),
        ),  # texts need a high tau, see papers/docs/results.md
    ),
}
QUIET = (
    *("evaluation.before=false", "evaluation.bootstrap=0", "evaluation.clusters=none", "health=false"),
    *("loggers=[]", "trainer.enable_progress_bar=false", "threads=1"),
)


@dataclass(frozen=True)
class Row:
    """A loss of the matrix.

    Attributes:
        column: the metric that the loss is made for; "" for none.
        settings: settings that the search does not change. {relevant} stands for the number of the data set.
        space: replaces the spaces of `rankgrad tune`.
    """

    column: str
    settings: tuple[str, ...] = ()
    space: tuple[tuple[str, str], ...] = ()


#: Loss -> its row. papers/docs/hypotheses.md gives the reasons.
LOSSES: Mapping[str, Row] = {
    "supap": Row("AP"),
    "lambda": Row("mAP@R", ("loss.measure=ndcg", "loss.k={relevant}"), (("loss.tau", "log(0.01,0.25)"),)),
    "recall_at_k": Row("R@1", ("loss.k=[1]",)),
    "adaptive_roadmap": Row(POOLED),
    "pml/multi_similarity": Row(""),
    "pml/triplet": Row(""),
    "adaptive_triplet": Row(""),
}


def shared_settings(data: str, root: Path, weights: Path | None, more: Sequence[str] = ()) -> list[str]:
    """Settings of all trainings of a data set."""
    begun = [] if weights is None else [f"model.weights={weights}"]
    return [*SETS[data].settings, *QUIET, f"data.root={root / data}", *begun, *more]


def points(data: str, loss: str, words: Sequence[str], trials: int) -> list[list[str]]:
    """The settings of each trial of a loss: its defaults, then random points of its space.

    Args:
        data: a key of `SETS`.
        loss: a key of `LOSSES`.
        words: see `shared_settings`.
        trials: number of trials. A longer search begins with the same trials.
    """
    row = LOSSES[loss]
    own = [loss_setting(loss), *(word.format(relevant=SETS[data].relevant) for word in row.settings)]
    base = compose([*words, *own])
    space = space_of(loss, [*words, *own], base, {**dict(row.space), **dict(SETS[data].space)})
    study = optuna.create_study(sampler=RandomSampler(seed=0))
    chosen = [{name: _first(values, name, base) for name, values in space.items()}]
    for _ in range(trials - 1):
        trial = study.ask()
        chosen.append({name: values.suggest(name, trial) for name, values in space.items()})
    return [[*own, *settings_of(space, each, base)] for each in chosen]


def _first(values: Values, name: str, base: DictConfig) -> Value:
    """The default of a setting. If it is outside of the space, the middle of the space."""
    default = values.default(name, base)
    if default is not None:
        return default
    assert isinstance(values, NumberRange)
    return math.sqrt(values.low * values.high) if values.kind == "log" else (values.low + values.high) / 2


# ---------------------------------------------------------------------------------------------------- what is trained


def setting_of(data: str, loss: str, trial: int) -> dict[str, str]:
    """Columns of the files of values."""
    return {"set": data, "loss": loss, "trial": str(trial)}


def columns_of(run: Run) -> dict[str, float]:
    """The metrics of the matrix, in per cent."""
    numbers = measured(run)
    return {name: numbers[name] for name in COLUMNS}


# ----------------------------------------------------------------------------------------------------- what is chosen

Choice = dict[str, str]  # set, column, loss, trial, mean, named, settings: a line of the file of choices
MADE, OTHER = "made for it", "best of the others"


def choose(data: str, values: Path, trials: int, folds: int) -> list[Choice]:
    """The best trial of each loss for each metric, by its mean over the folds, and the two named losses of each metric.

    Args:
        data: a key of `SETS`.
        values: file of the search.
        trials: of each loss.
        folds: of each trial.

    Raises:
        ValueError: a trial is missing; or all trials of a loss failed.
    """
    found = read(values)
    best: dict[tuple[str, str], tuple[float, int]] = {}
    for loss in LOSSES:
        for trial in range(trials):
            setting = setting_of(data, loss, trial)
            for column in COLUMNS:
                units = found.units(setting, column)
                if len(units) < folds:
                    raise ValueError(f"{values} has {len(units)} of {folds} folds of {data}, {loss}, trial {trial}")
                mean = sum(units.values()) / len(units)
                if mean > best.get((loss, column), (-math.inf, 0))[0]:  # nan is not
                    best[loss, column] = mean, trial
    lost = [loss for loss in LOSSES if (loss, COLUMNS[0]) not in best]
    if lost:
        raise ValueError(f"all trials of {', '.join(lost)} failed on {data}")
    choices = []
    for column in COLUMNS:
        others = [loss for loss, row in LOSSES.items() if row.column != column]
        other = max(others, key=lambda loss: best[loss, column][0])
        for loss, row in LOSSES.items():
            value, trial = best[loss, column]
            named = MADE if row.column == column else OTHER if loss == other else ""
            line = {"set": data, "column": column, "loss": loss, "trial": str(trial), "mean": f"{value:.6g}"}
            choices.append({**line, "named": named})
    return choices


def chosen(path: Path, data: str) -> list[Choice]:
    """The choices of a set in the file. Empty if the file does not have them."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as opened:
        return [row for row in csv.DictReader(opened) if row["set"] == data]


# -------------------------------------------------------------------------------------------------------- the drawing


@dataclass(frozen=True)
class Block:
    """The matrix of a data set.

    Attributes:
        title: heading of the block.
        values: loss -> metric -> value.
        made: metric -> the loss that is made for it.
        effects: metric -> the loss made for it, minus the loss `against`; None if there are fewer than two seeds.
        against: metric -> the loss that it is compared with.
    """

    title: str
    values: Mapping[str, Mapping[str, float]]
    made: Mapping[str, str]
    effects: Mapping[str, PairedDifference | None]
    against: Mapping[str, str]


def block_of(data: str, values: Path, choices: Sequence[Choice]) -> Block:
    """The matrix of a set on its test classes. For each metric, a loss has the trial that it kept for this metric."""
    found = read(values)
    units: dict[tuple[str, str], Mapping[str, float]] = {}
    named: dict[tuple[str, str], str] = {}
    for line in choices:
        setting = {name: line[name] for name in ("set", "loss", "trial")}
        units[line["loss"], line["column"]] = found.units(setting, line["column"])
        named[line["column"], line["named"]] = line["loss"]
    made, against = ({column: named[column, what] for column in COLUMNS} for what in (MADE, OTHER))
    effects = {name: difference(units[made[name], name], units[against[name], name]) for name in COLUMNS}
    means = {loss: {column: _mean(units[loss, column]) for column in COLUMNS} for loss in LOSSES}
    return Block(f"{SETS[data].title}, test classes", means, made, effects, against)


def block_of_tables(values: Path) -> Block:
    """The matrix of tables with rare positives, from their own file. Each loss is compared with cross-entropy."""
    found, usual = read(values), "cross-entropy"
    units = {(loss, name): found.units({"method": loss}, name) for loss in TABLE_METHODS for name in TABLE_METRICS}
    made = {metric: loss for loss, metric in TABLE_METHODS.items() if metric}
    effects = {name: difference(units[made[name], name], units[usual, name]) for name in TABLE_METRICS}
    means = {loss: {name: _mean(units[loss, name]) for name in TABLE_METRICS} for loss in TABLE_METHODS}
    count = len(units[usual, next(iter(TABLE_METRICS))])
    return Block(f"{count} tables with rare positives", means, made, effects, dict.fromkeys(TABLE_METRICS, usual))


def _mean(units: Mapping[str, float]) -> float:
    return sum(units.values()) / len(units)


LEGEND = (
    "Frame: the loss is made for the metric. Bold: the best of the column; the darker, the closer to it.\n"
    "Below: the framed loss against another one, difference and 95 % interval."
)


def draw(blocks: Sequence[Block], picture: Path) -> None:
    """Draw all blocks, two side by side. The cell of the loss that is made for a metric has a frame."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [blocks[first : first + 2] for first in range(0, len(blocks), 2)]
    heights = [max(len(block.values) for block in row) + 4 for row in rows]
    figure = Figure(figsize=(11.5, 0.3 * sum(heights) + 0.6), layout="constrained")
    places = figure.subplots(len(rows), 2, squeeze=False, height_ratios=heights)
    for ax, block in zip(places.flat, blocks, strict=False):
        _matrix(ax, block)
    for ax in places.flat[len(blocks) :]:
        ax.remove()
    figure.suptitle(LEGEND, x=0.01, ha="left", fontsize=9)
    with rc_context({"svg.fonttype": "none"}):  # stores letters as text, a third of the bytes
        figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)


def _matrix(ax: Axes, block: Block) -> None:
    from matplotlib.patches import Rectangle

    losses, metrics = list(block.values), list(block.made)
    best = {name: max(block.values[loss][name] for loss in losses) for name in metrics}
    behind = [[block.values[loss][name] - best[name] for name in metrics] for loss in losses]
    ax.imshow(behind, cmap="Greens", vmin=-10, vmax=6, aspect="auto")
    for row, loss in enumerate(losses):
        for column, name in enumerate(metrics):
            value = block.values[loss][name]
            weight = "bold" if value == best[name] else "normal"
            ax.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, weight=weight)
            if block.made[name] == loss:
                ax.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, fill=False, lw=1.6))
    below = [f"{name}\n{_effect(block.effects[name])}\nagainst\n{block.against[name]}" for name in metrics]
    ax.set_xticks(range(len(metrics)), below, fontsize=7)
    ax.set_yticks(range(len(losses)), losses, fontsize=8)
    ax.tick_params(length=0)
    ax.set_title(block.title, loc="left", fontsize=9)


def _effect(found: PairedDifference | None) -> str:
    return "" if found is None else f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


# -------------------------------------------------------------------------------------------------------- the command


def run(data: str, given: argparse.Namespace) -> None:
    """Search, choose and test one set. Results that the files already have are kept."""
    words = shared_settings(data, given.data_root, given.weights if data == "photographs" else None, given.more)
    settings = {loss: points(data, loss, words, given.trials) for loss in LOSSES}
    searched, picked = (given.values.with_name(f"{given.values.stem}-{name}.csv") for name in ("trials", "chosen"))
    folds = [
        Training(
            f"{loss}-{trial}-fold{fold}",
            setting_of(data, loss, trial),
            [*settings[loss][trial], f"fold={fold}/{given.folds}", "evaluation.split=val", "seed=0"],
            unit=f"{fold}/{given.folds}",
        )
        for fold in range(1, given.folds + 1)
        for trial in range(given.trials)
        for loss in LOSSES
    ]
    no_values = dict.fromkeys(COLUMNS, math.nan) if given.count_failed else None
    work = given.runs / data
    train_missing(folds, searched, work / "search", words, columns_of, jobs=given.jobs, if_failed=no_values)
    if not chosen(picked, data):
        choices = choose(data, searched, given.trials, given.folds)
        add_lines(
            picked, [{**line, "settings": " ".join(settings[line["loss"]][int(line["trial"])])} for line in choices]
        )
    kept = sorted(chosen(picked, data), key=lambda line: not line["named"])  # trials of the named losses come first
    tests = {  # a trial that was kept for several metrics is tested once
        (name, seed): Training(
            f"{name}-seed{seed}",
            {key: line[key] for key in ("set", "loss", "trial")},
            [*line["settings"].split(), f"seed={seed}"],
            seed=str(seed),
        )
        for line in kept
        for name in [f"{line['loss']}-{line['trial']}"]
        for seed in range(given.seeds if line["named"] else min(FEWER, given.seeds))
    }
    train_missing([*tests.values()], given.values, work / "test", words, columns_of, jobs=given.jobs)


def main(words: Sequence[str] | None = None) -> None:
    """Run the sets one after the other, or draw the values in the files."""
    values = "papers/results/matrix/matrix.csv"
    parser = command.parser_of(__doc__, "folder with the sets' folders", values, "matrix", required=False)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--weights", type=Path, help="model.pt of the network to fine-tune on photographs")
    parser.add_argument("--tables", type=Path, default=Path("papers/results/scores/tables.csv"), help="for --draw")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each loss")
    parser.add_argument("--folds", type=int, default=FOLDS, help="of each trial")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each test")
    parser.add_argument("--count-failed", action="store_true", help="a trial whose training fails is not kept")
    parser.add_argument("--more", nargs="*", default=[], metavar="KEY=VALUE", help="further settings, to try it out")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--draw", type=Path, help="draw the files of the values, and train nothing")
    given = parser.parse_args(words)
    if given.draw is not None:
        picked = given.values.with_name(f"{given.values.stem}-chosen.csv")
        blocks = [block_of(data, given.values, lines) for data in SETS if (lines := chosen(picked, data))]
        draw([*blocks, *([block_of_tables(given.tables)] if given.tables.exists() else [])], given.draw)
        return
    sets = command.known(parser, given.sets, SETS, "set")
    if given.data_root is None or ("photographs" in sets and given.weights is None):
        parser.error("--data-root DIR is needed; and --weights RUN/model.pt of studies.pretraining for photographs")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for data in sets:
        run(data, given)


if __name__ == "__main__":
    command.run(main)
