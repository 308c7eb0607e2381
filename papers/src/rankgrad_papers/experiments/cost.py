"""Cost of the full-size runs of a table: images, counted from the settings, and hours, from a published rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankgrad_workbench.settings import compose

from ..datasets import OFFICIAL
from .grid import Grid, merge

# Images per second of a ResNet-50 at 224 x 224 on one V100 (16 GB): trained, embedded. NVIDIA's DeepLearningExamples,
# PyTorch/Classification/ConvNets/resnet50v1.5, container 21.03: training, and inference in batches of 256.
HALF, FULL = (1200, 3382), (367, 1261)  # in mixed precision, in float32
GPU = "one V100 with 16 GB"
SIDE = 224


@dataclass(frozen=True)
class Work:
    """Work of runs, in images of 224 x 224; a larger image counts by its area.

    Attributes:
        trained: number of images in forward and backward passes.
        embedded: number of images in evaluations.
        hours: time at the rates above, if reading images is fast enough.
    """

    trained: float = 0.0
    embedded: float = 0.0
    hours: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.trained + other.trained, self.embedded + other.embedded, self.hours + other.hours)

    def times(self, runs: int) -> Work:
        """The work of several such runs, e.g. one for each seed."""
        return Work(self.trained * runs, self.embedded * runs, self.hours * runs)


def work_of(settings: Sequence[str], data: str) -> Work:
    """The work of a run of `rankgrad train`, computed without its data.

    Args:
        settings: KEY=VALUE settings.
        data: name in `datasets.OFFICIAL`, which has the published numbers of images.

    >>> work = work_of(["experiment=roadmap/sop"], "sop")
    >>> round(work.trained / 1e6, 1), round(work.embedded / 1e6, 1)
    (4.2, 1.3)
    """
    config, official = compose([*settings, "data.root=DIR"]), OFFICIAL[data]  # the folder is not opened
    images, classes = official.counts["train"]
    tests = sum(count for part, (count, _) in official.counts.items() if part != "train")
    if "test" in config.data.load:  # one of several test lists; the others are evaluated once later and are ignored
        tests, _ = official.counts[f"test {config.data.load.test}"]
    sampler, epochs = config.sampler, config.trainer.max_epochs or config.data.epochs
    of_class = images / classes if sampler.samples_per_class == "all" else sampler.samples_per_class
    batch = sampler.classes_per_batch * of_class
    batches = sampler.batches_per_epoch or max(1, int(images / batch))
    if sampler.batches_per_pair is not None:
        batches = sampler.batches_per_pair * math.comb(official.super_labels or 2, sampler.super_labels_per_batch)
    evaluations = 2 + (epochs // config.evaluation.every if config.evaluation.every else 0)
    area = (config.data.size / SIDE) ** 2
    trained, embedded = area * epochs * batches * batch, area * evaluations * tests
    train_rate, embed_rate = HALF if "16" in str(config.trainer.precision) else FULL
    return Work(trained, embedded, (trained / train_rate + embedded / embed_rate) / 3600)


def work_of_grid(grid: Grid) -> dict[str, tuple[int, int, Work]]:
    """Data set -> (cells, runs, work of the runs) of a table of `rankgrad train`. Cells may share a run."""
    cells: dict[str, int] = {}
    runs: dict[str, dict[tuple[str, ...], Work]] = {}
    for cell in grid.cells:
        settings = merge([f"experiment={cell.experiment}"], cell.settings, cell.full_only)
        cells[cell.data] = cells.get(cell.data, 0) + 1
        of_data = runs.setdefault(cell.data, {})
        if settings not in of_data:
            of_data[settings] = work_of(settings, cell.data)
    seeds = len(grid.seeds)
    works = {data: sum(by_seed.values(), Work()).times(seeds) for data, by_seed in runs.items()}
    return {data: (cells[data], seeds * len(runs[data]), work) for data, work in works.items()}
