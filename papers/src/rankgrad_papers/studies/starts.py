"""Does a loss start to train? Photographs of unseen animals, a small network from scratch, the command's defaults.

    python -m rankgrad_papers.studies.starts --data-root DIR

DIR has a folder for each class below train/. A third of these classes is held out and evaluated. test/ is not read. A
cell is a loss and a seed. Its values are added to the csv when its training ends. If the command is interrupted, run it
again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankgrad_workbench.runs.folder import Run

from ..trainings import train_missing, with_seeds
from . import command
from .texts import BETWEEN, cosines

SEEDS = (0, 1, 2, 3, 4)
METRICS = ("R@1", "mAP@R")

#: Settings of all trainings. Only the first line is about training, the others are about the evaluation.
SHARED = (
    *("data=folder", "data.size=64", "trainer.max_epochs=10"),
    *("fold=1/3", "evaluation.split=val"),
    *("evaluation.before=false", "evaluation.bootstrap=0", "evaluation.clusters=none"),
    *("data.cache=ram", "data.workers=0", "threads=1"),
)
#: Name of a row -> its settings.
LOSSES: Mapping[tuple[str, ...], Sequence[str]] = {
    ("adaptive_roadmap",): ("loss=adaptive_roadmap",),
    ("adaptive_roadmap, margin 0",): ("loss=adaptive_roadmap", "loss.margin=0"),
    ("pml/multi_similarity",): ("loss=pml/multi_similarity",),
    ("info_nce, pull .9",): ("loss=info_nce", "loss.pull=0.9"),
    ("supap",): ("loss=supap",),
    ("roadmap",): ("loss=roadmap",),
}


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run in per cent, and the mean cosine of two images of different classes."""
    values = run.read_values()
    return {name: 100 * values[name] for name in METRICS} | {BETWEEN: cosines(run)[1]}


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet, all losses with one seed before the next seed."""
    parser = command.parser_of(__doc__, "folder of the photographs", "papers/results/photographs/starts.csv", "starts")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    given = parser.parse_args(words)
    shared = [*SHARED, f"data.root={given.data_root}"]
    train_missing(with_seeds(LOSSES, given.seeds, "loss"), given.values, given.runs, shared, measured)


if __name__ == "__main__":
    command.run(main)
