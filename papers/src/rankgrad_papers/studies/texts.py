"""Losses for texts, and the learning rate of SGD: the command's defaults, on folds of the training intents of two sets.

    python -m rankgrad_papers.studies.texts --data-root DIR
    python -m rankgrad_papers.studies.texts --data-root DIR "info_nce, tau .1, adamw, 1"

DIR has the folders clinc150 and banking77. A third of the training intents is held out and evaluated. The intents of
validation and test are not read. A cell is a row of the table and a fold. Its values are added to the csv when its
training ends. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.nn.functional import normalize

from rankgrad_workbench.files import read_npz
from rankgrad_workbench.runs.folder import Run

from ..trainings import Training, train_missing
from . import command

#: Data sets and folds. All data sets of one fold come before the next fold.
UNITS = tuple((data, f"{fold}/3") for fold in (1, 2, 3) for data in ("clinc150", "banking77"))
METRICS = ("R@1", "mAP@R", "AP")
WITHIN, BETWEEN = "cosine within a class", "cosine between classes"

#: Settings of all trainings: ten epochs, as in data=text, and the first seed.
SHARED = (
    *("trainer.max_epochs=10", "evaluation.split=val"),
    *("evaluation.before=false", "evaluation.bootstrap=0", "evaluation.clusters=none", "threads=1"),
)
SGD = ("loss=info_nce", "loss.tau=0.2", "optimizer.name=sgd")
#: (loss, optimiser, rate as a multiple of AdamW's) -> settings. AdamW's rate for ngrams is .03.
ROWS: Mapping[tuple[str, str, str], Sequence[str]] = {
    ("info_nce, tau .2", "adamw", "1"): ("loss=info_nce", "loss.tau=0.2"),
    ("info_nce, tau .1", "adamw", "1"): ("loss=info_nce", "loss.tau=0.1"),
    ("info_nce, tau .2", "sgd", "40"): (*SGD, "optimizer.lr=1.2"),
    ("info_nce, tau .2", "sgd", "100"): (*SGD, "optimizer.lr=3"),
    ("pml/supcon", "adamw", "1"): ("loss=pml/supcon",),
    ("st/batch_semi_hard_triplet", "adamw", "1"): ("loss=st/batch_semi_hard_triplet",),
    ("pml/multi_similarity", "adamw", "1"): ("loss=pml/multi_similarity",),
    ("adaptive_roadmap", "adamw", "1"): ("loss=adaptive_roadmap",),
    ("untrained", "adamw", "1"): ("loss=info_nce", "optimizer.lr=1e-12", "trainer.max_epochs=1"),
}

NAMED = {", ".join(row): row for row in ROWS}


def cosines(run: Run) -> tuple[float, float]:
    """The mean cosines of two items of one class, and of two classes."""
    columns = read_npz(run.embeddings, "embeddings", "labels")
    rows = normalize(torch.from_numpy(columns["embeddings"]).double())
    labels, cosine = torch.from_numpy(columns["labels"]), rows @ rows.T
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    return float(cosine[same.clone().fill_diagonal_(False)].mean()), float(cosine[~same].mean())


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run in per cent, and the mean cosines of two texts of one class and of two classes."""
    values = run.read_values()
    return {name: 100 * values[name] for name in METRICS} | dict(zip((WITHIN, BETWEEN), cosines(run), strict=True))


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet, all rows on one fold before the next fold."""
    parser = command.parser_of(__doc__, "folder of clinc150 and banking77", "papers/results/texts/folds.csv", "texts")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {'; '.join(NAMED)}. None: all")
    given = parser.parse_args(words)
    for data, fold in UNITS:
        unit = f"{data} {fold}"
        shared = [*SHARED, f"data={data}", f"data.root={given.data_root / data}", f"fold={fold}"]
        work = given.runs / unit.replace("/", " of ")
        trainings = [
            Training(
                name,
                dict(zip(("loss", "optimizer", "rate"), NAMED[name], strict=True)),
                [*ROWS[NAMED[name]], "seed=0"],
                unit=unit,
            )
            for name in command.known(parser, given.rows, NAMED, "row")
        ]
        train_missing(trainings, given.values, work, shared, measured)


if __name__ == "__main__":
    command.run(main)
