"""Fine-tuning on photographs: wrong labels, groups in loss and batches, and a memory with the learning rate of RaMBO.

    python -m rankgrad_papers.studies.photographs --data-root DIR --weights RUN/model.pt

DIR is the folder of `data=photographs`, and the weights are those of `rankgrad_papers.studies.pretraining`. The tables
of the papers are trained by `rankgrad reproduce ID --stand-in photographs`; papers/docs/hypotheses.md has the
hypotheses. A cell is a row of the table and a seed. Its values are added to the csv when its training ends. If the
command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankgrad_workbench.runs.folder import Run

from ..trainings import train_missing, with_seeds
from . import command, loss_setting
from .alphabets import measured

SEEDS = (0, 1, 2, 3, 4)
GRADED = ("H-AP", "H-NDCG")

SHARED = (
    *("data=photographs", "recipe=finetune_photographs", "evaluation.levels=true", "evaluation.before=false"),
    *("evaluation.bootstrap=0", "evaluation.clusters=none", "threads=1"),
)
_LOSSES = ("supap", "smooth_ap", "adaptive_roadmap", "pnp", "pml/multi_similarity", "pml/triplet")
#: RaMBO's optimiser, and the largest of its rates.
_SLOW = (
    *("loss=rambo_recall", "optimizer.name=adam", "optimizer.lr=1e-5", "optimizer.head_lr_factor=10"),
    "trainer.max_epochs=18",
)
#: 196 batches of four classes with 32 images each. There are 56 pairs of groups, so the number of batches is set here.
_FOUR = (
    *("sampler.classes_per_batch=4", "sampler.samples_per_class=32", "sampler.batches_per_epoch=28"),
    "trainer.max_epochs=7",
)
_BATCHES = {"4 classes": _FOUR, "4 classes of two groups": (*_FOUR, "sampler.batches_per_pair=1")}
#: Row -> its settings. The first row is not fine-tuned: the pretrained weights with a new head.
ROWS: Mapping[str, Sequence[str]] = {
    "no fine-tuning": ("loss=supap", "trainer.max_epochs=0"),
    **{loss: (loss_setting(loss),) for loss in _LOSSES},
    **{
        f"{loss}, wrong labels {share}": (loss_setting(loss), f"label_noise={share}")
        for share in ("0.2", "0.4")
        for loss in _LOSSES
    },
    "h_ap, groups": ("loss=h_ap", "hierarchy=true"),
    "supndcg, groups": ("loss=supndcg", "hierarchy=true"),
    **{f"{loss}, {name}": (f"loss={loss}", *own) for loss in ("supap", "roadmap") for name, own in _BATCHES.items()},
    "rambo_recall, rate 1e-5": _SLOW,
    "rambo_recall, rate 1e-5, memory": (*_SLOW, "memory=sum", "memory.warmup=0"),
    "rambo_recall, rate 1e-5, memory of scores": (*_SLOW, "memory=rows"),
}


def values_of(run: Run) -> dict[str, float]:
    """The metrics of a run in per cent, including those of graded relevance."""
    values = run.read_values()
    return {**measured(run), **{name: 100 * values[name] for name in GRADED}}


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet, all rows with one seed before the next seed."""
    where = "papers/results/photographs/finetuned.csv"
    parser = command.parser_of(__doc__, "folder of the photographs", where, "photographs")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {'; '.join(ROWS)}. None: all")
    parser.add_argument("--weights", required=True, help="model.pt of the network to fine-tune")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--more", nargs="*", default=[], metavar="KEY=VALUE", help="further settings, to try it out")
    given = parser.parse_args(words)
    names = command.known(parser, given.rows, ROWS, "row")
    chosen: dict[tuple[str, ...], Sequence[str]] = {(name,): ROWS[name] for name in names}
    shared = [*SHARED, f"data.root={given.data_root}", f"model.weights={given.weights}", *given.more]
    train_missing(with_seeds(chosen, given.seeds, "row"), given.values, given.runs, shared, values_of)


if __name__ == "__main__":
    command.run(main)
