"""At which size a network is best used that was fine-tuned at a smaller one, and what the untouched one has there.

    python -m rankgrad_papers.studies.sizes --data-root DIR --weights lite0.safetensors

Data, folds and training are those of `rankgrad_papers.studies.fine_tuning`. Each network is trained at one size and
measured at all, with the share .75 of its trained weights: as it is, and with the statistics of its last normalisation
taken at the size of use (Touvron et al., NeurIPS 2019, section 4.2). A cell is added to the csv when it ends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankgrad_workbench.training.averaging import Averaging

from ..values import append, cells
from . import command
from .fine_tuning import BASE, FOLDS, IMAGES, Rows, held_out, larger, measured, network, pixels, prepared, train

TRAINED, USED = (64, 96, 128), (64, 96, 128, 160, 224)
SHARE = 0.75
EVERY = {"grocery": 2, "animals": 4, "icons": 1}  # every how many images of the held-out classes is evaluated


def recalibrated(model: nn.Module, rows: Rows, seen: Sequence[int]) -> nn.Module:
    """A copy whose last batch norm has the statistics of 256 training images as they are given."""
    copied = copy.deepcopy(model).eval()
    layer = [each for each in copied.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)][-1]
    layer.reset_running_stats()
    layer.momentum = None  # the mean of all batches
    nn.Module.train(layer)  # of a frozen layer, `train` keeps it in eval mode
    with torch.no_grad():
        for at in range(0, 256, 64):
            copied(rows.batch(list(seen[at : at + 64]), None))
    return copied.eval()


def measurements(name: str, fold: int, size: int, seed: int, given: Any) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(network, size of use, metrics) of a network that is trained at one size; 0: of the untouched one."""
    torch.manual_seed(seed)
    stored = pixels(given.data_root, name, larger(USED[-1]))
    at = {each: prepared(name, *stored, each, BASE.scale) for each in USED}
    out = held_out(stored[1], fold)
    test: list[int] = out.nonzero().squeeze(1)[:: EVERY[name]].tolist()
    others = (~out).nonzero().squeeze(1)
    seen: list[int] = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))].tolist()
    model = network(BASE, name, given.weights, Path())
    if size:
        averaging = Averaging(model, SHARE)
        train(model, BASE, at[size], seen, seed)
        with averaging.applied():
            model = copy.deepcopy(model)
    for used in USED:
        yield "as it is", used, measured(model, at[used], test)
        if 0 < size < used:
            yield "recalibrated", used, measured(recalibrated(model, at[used], seen), at[used], test)


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet."""
    parser = command.parser_of(__doc__, "folder of the data sets", "papers/results/fine-tuning/sizes.csv")
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE", help="of tf_efficientnet_lite0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", nargs="+", default=[*IMAGES], choices=[*IMAGES])
    parser.add_argument("--folds", type=int, nargs="+", default=[*range(1, FOLDS + 1)], metavar="K")
    given = parser.parse_args(words)
    given.values.parent.mkdir(parents=True, exist_ok=True)
    for fold in given.folds:
        for size in (0, *TRAINED):
            for name in given.data:
                last = {"data": name, "trained": str(size), "used": str(USED[-1]), "network": "as it is"}
                if (tuple(last.items()), str(fold), str(given.seed)) in cells(given.values):
                    continue
                for kind, used, numbers in [*measurements(name, fold - 1, size, given.seed, given)]:
                    setting = {**last, "used": str(used), "network": kind}
                    append(given.values, setting, numbers, unit=str(fold), seed=str(given.seed))
                print(f"{name}, trained at {size}, fold {fold}", flush=True)


if __name__ == "__main__":
    command.run(main)
