"""Pretrain a small ResNet on photographs, and measure its top-1 accuracy on held-out images.

    python -m rankgrad_papers.studies.pretraining --data-root DIR

DIR is the folder of `data=photographs`. The network is a classifier of 101 classes. None of them is an animal. A tenth
of the images of each class is held out. If the command is interrupted, run it again and it continues. The weights are
in the run's model.pt. Do not commit them, see the licence in papers/docs/datasets.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rankgrad.losses.baselines import CrossEntropyLoss
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.runs.compare import compare_variants, folders_of
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.training.state import read_state

from ..values import append, cells, made_of
from . import command

NAME = "cross_entropy"
LOSS = ("loss=cross_entropy", "loss.label_smoothing=0.1")
#: Settings of the training: 45 epochs of the 22 725 training images.
SHARED = (
    *("data=photographs", "data.load.part=pretrain", "recipe=pretrain_photographs"),
    *("evaluation.before=false", "evaluation.bootstrap=0", "evaluation.clusters=none", "threads=1"),
)
TOP_1 = "top-1"


def top_1(run: Run) -> float:
    """Top-1 accuracy on the held-out images, in per cent."""
    columns = read_npz(run.embeddings, "embeddings", "labels")
    embeddings, labels = (torch.from_numpy(columns[name]) for name in ("embeddings", "labels"))
    begin = "loss.loss."
    state = read_state(run.state)["state_dict"]
    kept = {key.removeprefix(begin): value for key, value in state.items() if key.startswith(begin)}
    loss = CrossEntropyLoss(len(kept["classifier.bias"]), embeddings.shape[1])
    loss.load_state_dict(kept)
    with torch.no_grad():
        found = loss.logits(embeddings.float()).argmax(1)
    return 100 * float((found == labels).float().mean())


def main(words: Sequence[str] | None = None) -> None:
    """Train, unless the csv has the values already."""
    where = "papers/results/photographs/pretraining.csv"
    parser = command.parser_of(__doc__, "folder of the photographs", where, "pretraining")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=45, help="of 177 batches of 128")
    parser.add_argument("--more", nargs="*", default=[], metavar="KEY=VALUE", help="further settings, to try it out")
    given = parser.parse_args(words)
    setting, seed = {"loss": NAME, "epochs": str(given.epochs)}, str(given.seed)
    (folder,) = folders_of([NAME], [given.seed], given.runs)[NAME]
    if (tuple(setting.items()), "", seed) not in cells(given.values):
        shared = [*SHARED, f"data.root={given.data_root}", f"trainer.max_epochs={given.epochs}", *given.more]
        compare_variants({NAME: LOSS}, [given.seed], shared, given.runs)
        run = Run(folder)
        right = top_1(run)
        minutes = run.read_facts()["train_cpu_seconds"] / 60
        append(
            given.values,
            setting,
            {TOP_1: right, "R@1": 100 * run.read_values()["R@1"], "CPU minutes": minutes},
            seed=seed,
            made=made_of(folder),
        )
        print(f"top-1 {right:.1f} %, {minutes:.0f} minutes of one processor")
    print(f"weights: {Run(folder).weights}")


if __name__ == "__main__":
    command.run(main)
