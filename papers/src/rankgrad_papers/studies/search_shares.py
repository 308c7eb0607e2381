"""How much of its training should a pretrained encoder keep, when it learns from few questions?

    python -m rankgrad_papers.studies.search_shares --data-root DIR --encoder MINILM

A cell is a collection, a share of the trained weights, a fold and a seed: MiniLM is trained as by `rankgrad train
task=search`, and the weights after the last step are averaged with those before (`optimizer.average`). The share 0 is
the untouched model. "NDCG@10" is that of the questions of the fold, "validation" that of the questions that choose an
epoch, and "standard error" that of the paired difference of the validation questions to the untouched model. If the
command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from lightning import Trainer, seed_everything
from torch import Tensor

from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.collection import Collection
from rankgrad_workbench.tasks.search.encoders import Encoders, StoredRows, retrieve
from rankgrad_workbench.tasks.search.evaluation import MAIN, TRAINED, evaluate_systems

from ..values import append, cells
from . import command
from .search import FOLDS, SYSTEMS, data_of

BATCH = 256  # texts that are embedded at a time
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def measured(encoders: Encoders, collection: Collection) -> dict[str, np.ndarray]:
    """NDCG@10 of each question of the test, and of those that choose an epoch."""
    corpus = StoredRows(encoders.embed_in_blocks(collection.documents.texts, BATCH))
    found = {}
    for split in ("test", "val"):
        asked = [collection.queries.texts[row] for row in collection.rows(split).tolist()]
        lists = retrieve(encoders, asked, collection.documents, batch_size=BATCH, corpus=corpus)
        report = evaluate_systems({TRAINED: lists}, collection, split, bootstrap=0)
        found[split] = 100 * np.array(report.systems[TRAINED]["per_query"])
    return found


def averaged(before: Mapping[str, Tensor], after: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """The weights of a share of the training."""
    floats = [name for name, value in before.items() if value.is_floating_point()]
    return {**before, **{name: torch.lerp(before[name], after[name], share) for name in floats}}


def told(found: Mapping[str, np.ndarray], untouched: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The values of a cell."""
    gains = found["val"] - untouched["val"]
    return {
        MAIN: float(found["test"].mean()),
        "validation": float(found["val"].mean()),
        "standard error": float(gains.std(ddof=1) / len(gains) ** 0.5),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Train the folds that the file does not have yet."""
    parser = command.parser_of(__doc__, "folder of the data sets", "papers/results/search/shares.csv")
    parser.add_argument("--encoder", type=Path, metavar="DIR", required=True, help="all-MiniLM-L6-v2")
    parser.add_argument("--collections", nargs="+", default=[*FOLDS], choices=[*FOLDS])
    parser.add_argument("--rate", default="2e-5", help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    for collection in given.collections:
        for fold in range(1, FOLDS[collection] + 1):
            settings = [{"collection": collection, "rate": given.rate, "share": str(share)} for share in SHARES]
            if (tuple(settings[-1].items()), str(fold), str(given.seed)) in cells(given.values):
                continue
            data, seed = data_of(collection, fold, given.data_root), f"seed={given.seed}"
            line = [*SYSTEMS["minilm"], f"model.name={given.encoder}", f"optimizer.lr={given.rate}", seed]
            made = task.build(compose(["task=search", *data, *line]), quiet=True)
            before = {name: value.clone() for name, value in made.encoders.state_dict().items()}
            seed_everything(given.seed, verbose=False)
            trainer = Trainer(
                max_epochs=made.epochs,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(made.module, datamodule=made.data)
            after = {name: value.clone() for name, value in made.encoders.state_dict().items()}
            found = []
            for share in SHARES:
                made.encoders.load_state_dict(averaged(before, after, share))
                found.append(measured(made.encoders, made.collection))
            for setting, each in zip(settings, found, strict=True):
                append(given.values, setting, told(each, found[0]), unit=str(fold), seed=str(given.seed))
            print(collection, fold, *(f"{each['test'].mean():.1f}" for each in found), flush=True)


if __name__ == "__main__":
    command.run(main)
