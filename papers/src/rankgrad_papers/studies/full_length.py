"""Three losses, tuned at full length on one split of Omniglot: hypotheses B1 and B2.

    python -m rankgrad_papers.studies.full_length --data-root DIR

Each loss is searched with the default recipe: 8 trials on 2 folds of the training alphabets. The best trial of each
loss is trained with five seeds and tested on the test alphabets. For the same recipe without a search, see the table
omniglot/default-recipe of `one_split`. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.tuning.tune import tune

from ..values import add_lines, append, cells, made_of
from . import command
from .alphabets import measured
from .one_split import LETTERS, SEEDS

LOSSES = ("adaptive_roadmap", "info_nce", "pml/multi_similarity")
TRIALS, FOLDS = 8, 2


def main(words: Sequence[str] | None = None) -> None:
    """Search, train, and write the values that the csv does not have yet."""
    where = "papers/results/omniglot/full-length.csv"
    parser = command.parser_of(__doc__, "folder with Omniglot", where, "full-length")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trainings at a time")
    given = parser.parse_args(words)
    search = [f"loss={','.join(LOSSES)}", f"trials={TRIALS}", f"folds={FOLDS}", f"seeds={','.join(map(str, SEEDS))}"]
    outcome = tune([*search, *LETTERS, f"data.root={given.data_root}"], given.runs, given.jobs)
    for loss in LOSSES:
        for seed, folder in zip(SEEDS, outcome.runs[loss], strict=True):
            if ((("loss", loss),), "", str(seed)) not in cells(given.values):
                run = Run(folder)
                append(given.values, {"loss": loss}, measured(run), seed=str(seed), made=made_of(folder))
    chosen = given.values.with_name(f"{given.values.stem}-chosen.csv")
    chosen.unlink(missing_ok=True)
    add_lines(chosen, [{"loss": loss, "settings": " ".join(outcome.winners[loss].settings)} for loss in LOSSES])


if __name__ == "__main__":
    command.run(main)
