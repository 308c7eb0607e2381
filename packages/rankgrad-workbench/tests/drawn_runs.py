"""Finished runs without a training: their settings, and embeddings that are given."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from omegaconf import OmegaConf
from small_runs import make_photos, small

from rankgrad.evaluation import evaluate
from rankgrad_workbench import training
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval.building import load_table
from rankgrad_workbench.tasks.retrieval.settings import settings_of


def tiles(classes: int = 4, per_class: int = 4) -> Table:
    """Grey tiles of one tone per class, all for the test."""
    label = torch.arange(classes).repeat_interleave(per_class)
    images = (label.view(-1, 1, 1, 1) * 40 + torch.arange(8)).expand(-1, 1, 8, 8).to(torch.uint8)
    names = tuple(f"{row:02}.png" for row in range(len(label)))
    return Table("tiles", label, tuple("abcdefgh"[:classes]), ("test",) * len(label), names, channels=1, images=images)


def a_run(folder: Path, settings: list[str], recall: float, table: Table, embeddings: torch.Tensor) -> Path:
    """The folder of a finished run with these settings and this R@1, without the training."""
    folder.mkdir(parents=True)
    OmegaConf.save(compose(settings), folder / "config.yaml", resolve=True)
    report = evaluate(embeddings, table.label, intervals=0)
    content = json.loads(report.to_json())
    content["values"]["R@1"] = recall
    (folder / "after.json").write_text(json.dumps(content))
    (folder / "facts.json").write_text(json.dumps({"steps": 3, "train_seconds": 1.0}))
    training.save_embeddings(folder / "embeddings.npz", embeddings, table)
    return folder


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def two_of_photos(root: Path) -> tuple[Path, Path]:
    """Two runs on the same coloured tiles."""
    photos = make_photos(root / "photos", classes=6, per_class=4)
    table = load_table(settings_of(compose(small(photos)))).select("test")
    one, two = (
        a_run(root / name, [*small(photos), f"loss={name}"], 0.5, table, rand(len(table), 4, seed=seed))
        for seed, name in enumerate(("pnp", "smooth_ap"))
    )
    return one, two
