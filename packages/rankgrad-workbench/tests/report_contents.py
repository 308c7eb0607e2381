"""Runs as a report reads them, made without training: clusters of points, tiny pictures, curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.evaluation import Report, evaluate
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.tasks.retrieval.page import Content, Pictures, Space

ROADMAP = {"_target_": "rankgrad.losses.ROADMAPLoss", "alpha": 0.8, "beta": 0.5, "tau": 0.01}
SMOOTH_AP = {"_target_": "rankgrad.losses.SmoothAPLoss", "tau": 0.01}


def picture(seed: int, channels: int = 1, height: int = 28, width: int = 28) -> Tensor:
    """Noise, uint8 [channel, height, width]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (channels, height, width), dtype=torch.uint8, generator=generator)


def points(count: int, classes: int, spread: float = 0.7, seed: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    """Embeddings of length 1 around a centre per class, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99))
    return F.normalize(centres[labels] + spread * torch.randn(count, dim, generator=generator), dim=1), labels


def space(count: int = 40, classes: int = 8, spread: float = 0.7, seed: int = 0) -> Space:
    """Leave-one-out, with two super-labels."""
    embeddings, labels = points(count, classes, spread, seed)
    return Space(
        embeddings,
        labels,
        tuple(f"class{label}/{row:03}.png" for row, label in enumerate(labels.tolist())),
        tuple(f"class{label}" for label in range(classes)),
        super_labels=labels % 2,
        super_names=("even", "odd"),
    )


def divided(count: int = 40, classes: int = 8, queries: int = 15) -> Space:
    """The same points, some of them queries and the others their gallery."""
    whole = space(count, classes)
    asked, items = (
        Space(whole.embeddings[part], whole.labels[part], whole.names[part], whole.class_names)
        for part in (slice(queries), slice(queries, None))
    )
    return replace(asked, gallery=items)


def table(of: Space, channels: int = 1) -> Table:
    """A picture for each query."""
    return Table(
        name="made",
        label=of.labels,
        class_names=of.class_names,
        split=("test",) * len(of.labels),
        names=of.names,
        channels=channels,
        images=torch.stack([picture(row, channels) for row in range(len(of.labels))]),
    )


def content(name: str = "one", seed: int = 0, spread: float = 0.7, **changes: Any) -> Content:
    """A finished run."""
    of = space(spread=spread, seed=seed)
    options: dict[str, Any] = {
        "class_names": of.class_names,
        "super_labels": of.super_labels,
        "super_names": of.super_names,
        "intervals": 50,
    }
    before, _ = points(40, 8, 5.0, seed)
    given: dict[str, Any] = {
        "name": name,
        "config": {"data": {"name": "glyphs"}, "loss": ROADMAP, "model": {"kind": "convnet"}, "seed": seed},
        "facts": {"steps": 20, "train_seconds": 12.5},
        "curves": {"loss": [(0, 1.0), (10, 0.5), (20, 0.25)], "test/R@1": [(10, 0.4), (20, 0.6)]},
        "before": evaluate(before, of.labels, **options),
        "after": evaluate(of.embeddings, of.labels, **options),
        "space": of,
        "pictures": Pictures(table(of)),
    }
    return Content(**{**given, **changes})


def report(**given: Any) -> Report:
    """A report with what is given, and nothing else."""
    nothing: dict[str, Any] = {
        **{name: {} for name in ("values", "intervals", "per_query", "counts", "settings")},
        **dict.fromkeys(("per_class", "per_super_label", "levels"), ()),
        "without_relevant": np.zeros(0, dtype=np.int64),
    }
    return Report(**{**nothing, **given})


class Soft(Pictures):
    """As heavy as photographs full of detail: noise of 96 x 128 pixels, made when asked for."""

    def __init__(self) -> None:
        self.failed = {}

    def get(self, name: str) -> Tensor | None:
        """The image of a name."""
        coarse = picture(sum(name.encode()) + int("".join(filter(str.isdigit, name)) or 0), 3, 48, 64)
        return F.interpolate(coarse[None].float(), size=(96, 128), mode="bilinear")[0].byte()


def large(name: str = "large", count: int = 60_000, classes: int = 11_000, seed: int = 0) -> Content:
    """A run on as many images as SOP's test set has, with the numbers of an evaluation made up."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = torch.randn(classes, 8, generator=torch.Generator().manual_seed(1))
    embeddings = F.normalize(centres[labels] + 0.3 * torch.randn(count, 8, generator=generator), dim=1)
    names = tuple(f"category/{label}_{row}.jpg" for row, label in enumerate(labels.tolist()))
    class_names = tuple(f"object {label}" for label in range(classes))
    drawn = torch.rand(classes, 4, generator=generator).tolist()
    rows = tuple(
        {"class": c, "name": class_names[c], "queries": 5, "counted": 5, "R@1": a, "R@4": b, "mAP@R": d, "AP": e}
        for c, (a, b, d, e) in enumerate(drawn)
    )
    first = torch.randint(1, 200, (count,), generator=generator)
    return Content(
        name,
        config={"data": {"name": "large"}, "loss": SMOOTH_AP, "seed": seed},
        curves={"loss": [(step, 1 / (1 + step / 500)) for step in range(5000)]},
        after=report(
            values={"R@1": 0.5, "mAP@R": 0.4, "AP": 0.45},
            per_query={"MRR": (1 / first).double().numpy()},
            per_class=rows,
            counts={"queries": count, "gallery": count, "classes": classes},
            settings={"protocol": "leave-one-out", "confidence": 0.95},
        ),
        space=Space(
            embeddings, labels, names, class_names, super_labels=labels % 12, super_names=tuple("abcdefghijkl")
        ),
        pictures=Soft(),
    )


if __name__ == "__main__":
    # the page about as many images as SOP's test set has: python tests/report_contents.py large.html
    import sys
    import time
    from pathlib import Path

    from rankgrad_workbench.report.writing import write_report

    start = time.process_time()
    path = write_report(Path(sys.argv[1]), [large()])
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {time.process_time() - start:.1f} s of CPU time")
