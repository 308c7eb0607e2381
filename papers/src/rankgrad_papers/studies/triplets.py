"""The semi-hard triplet loss from scratch: does its margin keep the network above the untrained one?

    python -m rankgrad_papers.studies.triplets --data-root DIR

DIR has a folder for each class of photographs below train/. A third of these classes is held out and evaluated. test/
is not read. A cell is a margin, a number of images per class, a fold and a seed. Its values, and those before the
training, are added to the csv when its training ends. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rankgrad_workbench.files import read_json
from rankgrad_workbench.runs.folder import Run

from ..trainings import Training, train_missing
from . import command

SEEDS = (0, 1)
FOLDS = (1, 2)
METRICS = ("R@1", "mAP@R")
MARGINS = (0.05, 0.1, 0.2)
#: Images per class -> settings of batches of 64 images.
BATCHES = {
    4: ("sampler.samples_per_class=4", "sampler.classes_per_batch=16"),
    8: ("sampler.samples_per_class=8", "sampler.classes_per_batch=8"),
}
#: 300 steps.
SHARED = (
    *("data=folder", "loss=pml/triplet", "recipe=quick", "sampler.batches_per_epoch=25", "trainer.max_epochs=12"),
    *("evaluation.split=val", "evaluation.bootstrap=0", "evaluation.clusters=none", "health=false", "threads=1"),
)


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run in per cent, and those of the untrained network."""
    before, after = read_json(run.before, "values")["values"], run.read_values()
    return {name: 100 * after[name] for name in METRICS} | {f"{name} untrained": 100 * before[name] for name in METRICS}


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet."""
    where = "papers/results/photographs/triplets.csv"
    parser = command.parser_of(__doc__, "folder of the photographs", where, "triplets")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--folds", type=int, nargs="+", default=FOLDS, choices=(1, 2, 3))
    given = parser.parse_args(words)
    trainings = [
        Training(
            f"margin {margin}, {images} images, fold {fold}, seed {seed}",
            {"margin": str(margin), "images per class": str(images)},
            [f"loss.loss.margin={margin}", *BATCHES[images], f"fold={fold}/3", f"seed={seed}"],
            unit=str(fold),
            seed=str(seed),
        )
        for seed, fold, images, margin in product(given.seeds, given.folds, BATCHES, MARGINS)
    ]
    train_missing(trainings, given.values, given.runs, [*SHARED, f"data.root={given.data_root}"], measured)


if __name__ == "__main__":
    command.run(main)
