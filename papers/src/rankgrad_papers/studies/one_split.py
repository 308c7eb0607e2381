"""Losses on one split of a data set, with several seeds: letters and texts.

    python -m rankgrad_papers.studies.one_split omniglot/lambda-margin texts/banking77 --data-root DIR

DIR has the folders omniglot, banking77 and clinc150. Tables whose names begin with omniglot/finetuned also need
--weights FILE, of

    rankgrad train data=drawings data.load.icons=DIR/icons loss=cross_entropy recipe=pretrain out=runs/drawings

A table is a csv below --values. A cell is a row of the table and a seed. Seeds show how much a training varies. They do
not show what another split would give. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rankgrad_workbench.runs.folder import Run

from ..trainings import train_missing, with_seeds
from ..values import read_rows
from . import alphabets, command, loss_setting

SEEDS = (0, 1, 2, 3, 4)
SEARCHED = 0.03  # the searches over texts tried multiples of this rate

Rows = Mapping[tuple[str, ...], Sequence[str]]


@dataclass(frozen=True)
class Table:
    """The content of a csv of values.

    Attributes:
        data: name of the data set's folder.
        shared: settings of all its trainings.
        columns: columns of the csv that identify a row.
        rows: texts of these columns -> settings of the row. None: the best trials in NAME-trials.csv of the same
            folder.
        metrics: metrics to keep, in per cent.
        weights: whether a network with given weights is fine-tuned.
    """

    data: str
    shared: Sequence[str]
    columns: tuple[str, ...] = ("loss",)
    rows: Rows | None = None
    metrics: tuple[str, ...] = (*alphabets.METRICS, alphabets.POOLED)
    weights: bool = False


_QUIET = ("evaluation.before=false", "evaluation.bootstrap=0", "evaluation.clusters=none", "threads=1")
LETTERS = ("data=omniglot", *_QUIET)
SHORT = (*LETTERS, "data.load.turns=1", "recipe=small")
TEXTS = (
    *("data.load.validation=train", "model.buckets=8192", "model.head=none", "memory=none"),
    *("sampler.classes_per_batch=24", "sampler.samples_per_class=4", "sampler.batches_per_epoch=40"),
    *("trainer.max_epochs=3", *_QUIET),
)
_NO_HEAD = ("model.head=none", "model.embedding_size=null")
_LINEAR = ("model.head=linear", "model.embedding_size=128")


def _losses(*texts: str) -> Rows:
    """A loss, or LOSS:SETTING+SETTING with settings of the loss."""
    rows: dict[tuple[str, ...], Sequence[str]] = {}
    for text in texts:
        name, _, own = text.partition(":")
        rows[text,] = (loss_setting(name), *(f"loss.{setting}" for setting in own.split("+") if setting))
    return rows


def _crossed(losses: Rows, others: Mapping[str, Sequence[str]]) -> Rows:
    """Each loss with each of the other settings."""
    return {(*row, name): (*own, *more) for row, own in losses.items() for name, more in others.items()}


_SUM = ("memory=sum", "memory.warmup=50")
_MEMORIES = {
    "none": (),
    "sum, weight .3": (*_SUM, "memory.weight=0.3"),
    "sum, weight 1": _SUM,
    "sum, 512 entries": (*_SUM, "memory.size=512"),
}
_NOISE = {share: (f"label_noise={share}",) if share != "0" else () for share in ("0", "0.1", "0.2", "0.4")}

#: Both have the same number of batches, of the same shape. The five training alphabets make ten pairs.
_TWENTY = "sampler.batches_per_epoch=20"
_BATCHES = {"all alphabets": (_TWENTY,), "two alphabets": (_TWENTY, "sampler.batches_per_pair=2")}
_FINE_TUNED = (*LETTERS, "data.load.turns=1", "recipe=finetune", "optimizer.lr=1e-3")

#: Name of the csv below --values, without .csv -> its content.
TABLES: Mapping[str, Table] = {
    "omniglot/lambda-margin": Table(
        "omniglot",
        SHORT,
        ("setting",),
        {
            **{(f"λ = {size}",): ("loss=rambo_recall", f"loss.lambda_={size}") for size in ("0.2", "1", "4", "16")},
            **{(f"margin {size}",): ("loss=rambo_recall", f"loss.margin={size}") for size in ("0", "0.05", "0.1")},
        },
    ),
    "omniglot/precision": Table(
        "omniglot",
        SHORT,
        ("loss", "training in"),
        _crossed(_losses("roadmap", "rambo_ap"), {"float32": (), "bfloat16, mixed": ("trainer.precision=bf16-mixed",)}),
    ),
    "omniglot/short-recipe": Table(
        "omniglot",
        SHORT,
        rows=_losses(
            *("adaptive_roadmap", "adaptive_triplet", "roadmap", "supap", "smooth_ap", "h_ap", "ndcg", "calibration"),
            *("info_nce:pull=0.9", "info_nce:tau=0.02", "fastap", "softbin_ap", "recall_at_k"),
            *("rambo_ap", "rambo_recall", "rambo_recall:weight=log", "auc:step=0.05+slope=100"),
            *("pnp:variant=Ds", "pnp:alpha=1", "pnp", "pnp:variant=O", "pnp:variant=Ib", "pnp:variant=Iu"),
            *("pml/multi_similarity", "pml/contrastive", "pml/triplet", "cross_entropy"),
        ),
    ),
    "omniglot/memory": Table(
        "omniglot", SHORT, ("loss", "memory"), _crossed(_losses("smooth_ap", "roadmap", "rambo_recall"), _MEMORIES)
    ),
    "omniglot/label-noise": Table(
        "omniglot",
        SHORT,
        ("loss", "wrong labels"),
        _crossed(
            {
                **_losses("supap", "smooth_ap", "rambo_ap", "pnp:variant=Ds", "pml/multi_similarity", "pml/triplet"),
                ("adaptive_roadmap, no head",): ("loss=adaptive_roadmap", *_NO_HEAD),
            },
            _NOISE,
        ),
    ),
    "omniglot/sodeep": Table("omniglot", SHORT, rows=_losses("smooth_ap", "spearman", "sodeep_ap", "sodeep_spearman")),
    "omniglot/default-recipe": Table(
        "omniglot",
        LETTERS,
        rows={
            **_losses("adaptive_roadmap", "pml/multi_similarity", "info_nce"),
            ("pml/multi_similarity, linear layer",): ("loss=pml/multi_similarity", *_LINEAR),
        },
    ),
    "omniglot/finetuned": Table(
        "omniglot",
        _FINE_TUNED,
        rows=_losses(
            *("adaptive_roadmap", "roadmap", "supap", "smooth_ap", "rambo_ap", "info_nce:pull=0.9"),
            *("pnp:variant=Ds", "pml/multi_similarity", "pml/triplet"),
        ),
        weights=True,
    ),
    "omniglot/super-labels": Table(
        "omniglot", SHORT, ("loss", "batches of"), _crossed(_losses("supap", "roadmap"), _BATCHES)
    ),
    "omniglot/finetuned-super-labels": Table(
        "omniglot", _FINE_TUNED, ("loss", "batches of"), _crossed(_losses("supap", "roadmap"), _BATCHES), weights=True
    ),
    "texts/banking77": Table("banking77", ("data=banking77", *TEXTS), metrics=alphabets.METRICS),
    "texts/clinc150": Table("clinc150", ("data=clinc150", *TEXTS)),
    "texts/clinc150-graded": Table(
        "clinc150", ("data=clinc150", *TEXTS, "evaluation.levels=true"), metrics=("H-AP", "H-NDCG", "mAP@R", "R@1")
    ),
}


def rows_of(name: str, folder: Path) -> Rows:
    """The rows of a table.

    Args:
        name: a key of `TABLES`.
        folder: folder of the csv files, which also has the trials of a search.
    """
    rows = TABLES[name].rows
    return winners(folder / f"{name}-trials.csv") if rows is None else rows


def winners(trials: Path) -> Rows:
    """The best trial of each loss in a search over texts. The rate of a trial is a multiple of `SEARCHED`.

    A search of `roadmap` with quantiles is a search of `adaptive_roadmap`. This loss did not have its own name at that
    time.
    """
    found = [row for row in read_rows(trials)[1] if row["state"] == "complete"]
    metric = next(name for name in ("mAP@R", "H-AP") if name in found[0])
    rows: dict[tuple[str, ...], Sequence[str]] = {}
    for loss in dict.fromkeys(row["loss"] for row in found):
        best = max((row for row in found if row["loss"] == loss), key=lambda row: float(row[metric]))
        own = {key: text for key, text in best.items() if key.startswith(("loss.", "optimizer.")) and text}
        own["optimizer.lr"] = f"{SEARCHED * float(own['optimizer.lr']):g}"
        name, _, more = loss.partition(":")
        name = "adaptive_roadmap" if "loss.quantiles" in own else name
        rows[name,] = (f"loss={name}", *(f"{key}={text}" for key, text in own.items()), *more.split())
    return rows


def measured(run: Run, metrics: Sequence[str]) -> dict[str, float]:
    """The given metrics of a run, in per cent."""
    if alphabets.POOLED in metrics:
        numbers = alphabets.measured(run)
    else:
        numbers = {name: 100 * value for name, value in run.read_values().items()}
    return {name: numbers[name] for name in metrics}


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv files do not have yet, all rows of a table with one seed before the next seed."""
    parser = command.parser_of(__doc__, "folder of the data sets' folders", "docs/results", "one-split")
    parser.add_argument("tables", nargs="+", metavar="TABLE", choices=TABLES, help=f"of {', '.join(TABLES)}")
    parser.add_argument("--weights", help="model.pt of the network to fine-tune, for omniglot/finetuned...")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    given = parser.parse_args(words)
    if given.weights is None and any(TABLES[name].weights for name in given.tables):
        parser.error("a table of fine-tuned networks needs --weights FILE")
    for name in given.tables:
        table, rows = TABLES[name], rows_of(name, given.values)
        values, work = given.values / f"{name}.csv", given.runs / name
        shared = [*table.shared, f"data.root={given.data_root / table.data}"]
        shared += [f"model.weights={given.weights}"] if table.weights else []
        trainings = with_seeds(rows, given.seeds, *table.columns)
        train_missing(trainings, values, work, shared, partial(measured, metrics=table.metrics))


if __name__ == "__main__":
    command.run(main)
