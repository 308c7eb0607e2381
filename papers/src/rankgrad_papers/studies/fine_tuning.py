"""Which part of fine-tuning makes a pretrained network better or worse: one part is changed at a time.

    python -m rankgrad_papers.studies.fine_tuning --data-root DIR --weights lite0.safetensors --encoder MINILM

DIR has the folders grocery, animals and icons (photographs and drawings), banking77 and clinc150 (texts). The weights
are those of timm's tf_efficientnet_lite0, the encoder is a folder of sentence-transformers. The classes of a data set,
of animals those of train/, are divided into three folds. Two are trained on, the third is the test.

The loop is a plain one, so that parts can be exchanged that the command does not offer. All shares of
`optimizer.average` are measured after one training. A cell is added to the csv when it ends. If the command is
interrupted, run it again and it continues.
"""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad import losses
from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import evaluate
from rankgrad_workbench.datasets import load_folder
from rankgrad_workbench.datasets.transforms import PhotoEval, PhotoTrain
from rankgrad_workbench.models import EmbeddingModel, build_model
from rankgrad_workbench.models.embedding_model import evaluating
from rankgrad_workbench.settings import compose, make
from rankgrad_workbench.training.averaging import Averaging
from rankgrad_workbench.training.module import Schedule

from ..values import append, cells
from . import command

METRICS = ("R@1", "mAP@R", "AP")
FOLDS = 3
SHARES = (1.0, 0.75, 0.5)
IMAGES, TEXTS = {"grocery": 96, "animals": 64, "icons": 64}, ("banking77", "clinc150")
EVERY = {"animals": 2, "banking77": 4, "clinc150": 4}  # every how many rows of the held-out classes is evaluated


@dataclass(frozen=True)
class Recipe:
    """How a network is fine-tuned. The defaults are the base of the study for images.

    Attributes:
        loss: name, and after a colon settings of the loss.
        lr: rate of AdamW; it rises over a tenth of the steps and falls to 0 by a cosine.
        steps: number of batches, of 16 classes x 4 rows.
        norm: batch norm: "frozen" keeps its statistics, "batch" uses and updates those of the batch, "recalibrated"
            replaces them after the training by those of 1024 training images.
        size: of the embeddings, by a new linear layer; None: no layer.
        start: of a new layer: "random", or "pca", the principal components of the training features.
        scale: smallest area of a crop.
        last: parts of the network that train, counted from its end; 0: all.
        weight_decay: of AdamW.
    """

    loss: str = "adaptive_roadmap"
    lr: float = 3e-4
    steps: int = 100
    norm: str = "frozen"
    size: int | None = None
    start: str = "random"
    scale: float = 0.16
    last: int = 0
    weight_decay: float = 1e-4


BASE = Recipe()
#: What is changed -> the recipe. The first is the base.
PHOTOGRAPHS: Mapping[str, Recipe] = {
    "base": BASE,
    "norm=batch": replace(BASE, norm="batch"),
    "lr=1e-3": replace(BASE, lr=1e-3),
    "lr=1e-4": replace(BASE, lr=1e-4),
    "new layer": replace(BASE, size=512),
    "new layer from components": replace(BASE, size=512, start="pca"),
    "the old default": replace(BASE, norm="batch", size=512, lr=1e-5),
    "steps=50": replace(BASE, steps=50),
    "steps=400": replace(BASE, steps=400),
    "steps=2000": replace(BASE, steps=2000),
    "crop .5": replace(BASE, scale=0.5),
    "last 4 parts": replace(BASE, last=4),
    "multi_similarity": replace(BASE, loss="pml/multi_similarity"),
    "norm=recalibrated": replace(BASE, norm="recalibrated"),
}
_TEXTS = Recipe(loss="info_nce:tau=0.1", lr=2e-5, norm="batch")
SENTENCES: Mapping[str, Recipe] = {
    "base": _TEXTS,
    "lr=1e-4": replace(_TEXTS, lr=1e-4),
    "steps=50": replace(_TEXTS, steps=50),
    "steps=400": replace(_TEXTS, steps=400),
    "steps=2000": replace(_TEXTS, steps=2000),
    "lr=3e-4": replace(_TEXTS, lr=3e-4),
}


@dataclass(frozen=True)
class Rows:
    """Inputs and classes. `batch` makes the network's inputs of rows, for training (with an epoch) or not."""

    labels: Tensor
    batch: Callable[[list[int], int | None], Any]


def pixels(root: Path, name: str, shorter_side: int) -> tuple[list[Tensor], Tensor]:
    """The photographs of a folder, or the training icons, and their classes."""
    if name == "icons":
        archive = np.load(root / "icons" / "icons48.npz")
        kept = archive["split"][archive["name"]] == 0
        drawn = [torch.from_numpy(255 - image).expand(3, -1, -1) for image in archive["images"][kept]]
        return drawn, torch.unique(torch.from_numpy(archive["name"][kept].astype(np.int64)), return_inverse=True)[1]
    folder = root / name / "train" if name == "animals" else root / name
    table = load_folder(folder, test_fraction=0.0, shorter_side=shorter_side, cache="ram")
    read = table.dataset()
    return [read[row][0] for row in range(len(table))], table.label


def prepared(name: str, images: list[Tensor], labels: Tensor, size: int, scale: float) -> Rows:
    """Images that a network sees at one size, with crops in training."""
    resize, half = larger(size), (0.5, 0.5, 0.5)
    train = PhotoTrain(size, resize, scale=(scale, 1.0), flip=0.0 if name == "icons" else 0.5, mean=half, std=half)
    still = PhotoEval(size, resize, mean=half, std=half)

    def batch(rows: list[int], epoch: int | None) -> Tensor:
        transform = still if epoch is None else train
        return transform([images[row] for row in rows], torch.tensor(rows), epoch or 0)

    return Rows(labels, batch)


def larger(size: int) -> int:
    """The shorter side from which the middle is cut."""
    return round(size * 256 / 224)


def texts(root: Path, name: str) -> Rows:
    """The training texts of BANKING77 or CLINC150."""
    if name == "banking77":
        with open(root / name / "train.csv", encoding="utf-8", newline="") as file:
            found = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    else:
        found = json.loads((root / name / "data_full.json").read_text(encoding="utf-8"))["train"]
    classes = sorted({intent for _, intent in found})
    labels = torch.tensor([classes.index(intent) for _, intent in found])
    return Rows(labels, lambda rows, epoch: [found[row][0] for row in rows])


def held_out(labels: Tensor, fold: int) -> Tensor:
    """Whether the class of a row is in the fold."""
    order = torch.randperm(int(labels.max()) + 1, generator=torch.Generator().manual_seed(0))
    return torch.isin(labels, order[fold::FOLDS])


def network(recipe: Recipe, name: str, weights: Path, encoder: Path) -> EmbeddingModel:
    """The pretrained network, with a new layer if the recipe has one."""
    if name in TEXTS:
        return build_model("sentence_transformer", name=str(encoder), embedding_size=recipe.size)
    frozen = recipe.norm == "frozen"
    options = {"weights": weights, "embedding_size": recipe.size, "freeze_batch_norm": frozen}
    return build_model("timm", name="tf_efficientnet_lite0", **options)


def embedded(model: nn.Module, rows: Rows, chosen: list[int]) -> Tensor:
    """Embeddings of rows, in eval mode."""
    with evaluating(model):
        parts = [model(rows.batch(chosen[at : at + 128], None)) for at in range(0, len(chosen), 128)]
    return torch.cat(parts).clone()


def measured(model: nn.Module, rows: Rows, chosen: list[int]) -> dict[str, float]:
    """The metrics in per cent; every row searches the others."""
    report = evaluate(embedded(model, rows, chosen), rows.labels[chosen], intervals=0)
    return {metric: 100 * report.values[metric] for metric in METRICS}


def loss_of(text: str) -> nn.Module:
    """The loss of a recipe."""
    if text.startswith("pml/"):
        made: nn.Module = make(compose([f"loss={text}"]).loss, slot="loss")
        return made
    name, _, settings = text.partition(":")
    chosen: dict[str, Any] = {key: float(value) for key, _, value in (s.partition("=") for s in settings.split())}
    return losses.find(name)(**chosen)


def train(model: EmbeddingModel, recipe: Recipe, rows: Rows, seen: list[int], seed: int) -> None:
    """Fine-tune the network on rows of the other folds."""
    if recipe.last:
        inner: Any = model.backbone
        parts = [inner.conv_stem, inner.bn1, *inner.blocks, inner.conv_head, inner.bn2]
        for part in parts[: -recipe.last]:
            part.requires_grad_(False)
    if recipe.start == "pca":
        features = embedded(model.with_head(type(model.head)(model.feature_size, None)), rows, seen[:1500])
        components = torch.linalg.svd(nn.functional.normalize(features), full_matrices=False).Vh
        assert model.head.affine is not None and recipe.size is not None
        with torch.no_grad():
            model.head.affine.weight.copy_(components[: recipe.size])
            model.head.affine.bias.zero_()
    loss = loss_of(recipe.loss)
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learned, recipe.lr, weight_decay=recipe.weight_decay)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, Schedule(recipe.steps, warmup=0.1).__call__)
    labels = rows.labels[seen]
    classes = min(16, len(torch.unique(labels)))
    batches = MPerClassBatchSampler(
        labels, classes, 4, short_classes="repeat", seed=seed, batches_per_epoch=recipe.steps
    )
    model.train()
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss(model(rows.batch([seen[row] for row in batch], step)), labels[batch]).backward()
        optimizer.step()
        rate.step()
    if recipe.norm == "recalibrated":
        norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum = None  # the mean of all batches
        with torch.no_grad():
            for at in range(0, min(len(seen), 1024), 64):
                model(rows.batch(seen[at : at + 64], None))


def cell(recipe: Recipe, rows: Rows, name: str, fold: int, seed: int, given: Any) -> dict[str, dict[str, float]]:
    """Share of the trained weights -> metrics; "0": the untouched network."""
    torch.manual_seed(seed)
    out = held_out(rows.labels, fold)
    test: list[int] = out.nonzero().squeeze(1)[:: EVERY.get(name, 1)].tolist()
    others = (~out).nonzero().squeeze(1)
    seen: list[int] = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))].tolist()
    untouched = network(replace(recipe, size=None), name, given.weights, given.encoder)
    found = {"0": measured(untouched, rows, test)}
    model = copy.deepcopy(untouched) if recipe.size is None else network(recipe, name, given.weights, given.encoder)
    before = copy.deepcopy(model.state_dict())
    train(model, recipe, rows, seen, seed)
    trained = copy.deepcopy(model.state_dict())
    for share in SHARES:
        model.load_state_dict(before)
        averaging = Averaging(model, share)
        model.load_state_dict(trained)
        with averaging.applied():
            found[f"{share:g}"] = measured(model, rows, test)
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet."""
    parser = command.parser_of(__doc__, "folder of the data sets", "papers/results/fine-tuning/parts.csv")
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE", help="of tf_efficientnet_lite0")
    parser.add_argument("--encoder", type=Path, required=True, metavar="DIR", help="all-MiniLM-L6-v2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", nargs="+", default=[*IMAGES, *TEXTS], choices=[*IMAGES, *TEXTS])
    parser.add_argument("--changed", nargs="+", metavar="NAME", help="only these parts")
    parser.add_argument("--folds", type=int, nargs="+", default=[*range(1, FOLDS + 1)], metavar="K")
    given = parser.parse_args(words)
    for seed, changed, fold, name in product(given.seeds, given.changed or PHOTOGRAPHS, given.folds, given.data):
        recipe = (SENTENCES if name in TEXTS else PHOTOGRAPHS).get(changed)
        setting = {"data": name, "changed": changed, "share": "0"}
        if recipe is None or (tuple(setting.items()), str(fold), str(seed)) in cells(given.values):
            continue
        if name in TEXTS:
            rows = texts(given.data_root, name)
        else:
            stored = pixels(given.data_root, name, larger(IMAGES[name]))
            rows = prepared(name, *stored, IMAGES[name], recipe.scale)
        for share, numbers in reversed(cell(recipe, rows, name, fold - 1, seed, given).items()):
            append(given.values, {**setting, "share": share}, numbers, unit=str(fold), seed=str(seed))
        print(f"{name}, {changed}, fold {fold}, seed {seed}", flush=True)


if __name__ == "__main__":
    command.run(main)
