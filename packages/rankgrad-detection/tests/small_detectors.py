"""Detectors of a second, for tests: their settings."""

from __future__ import annotations

from pathlib import Path

TINY = (
    *("model.widths=[8,8,8,8]", "model.channels=8", "model.anchors=[[12,18],[24,30]]", "model.hidden=16"),
    *("model.cells=3", "model.rois=8", "model.proposals=20"),
)
QUICK = (
    *(
        "data.sides=[48,64]",
        "sampler.batch_size=2",
        "trainer.max_epochs=2",
        "optimizer.name=adamw",
        "optimizer.lr=3e-3",
    ),
    *("trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1", "threads=1", "evaluation.pictures=2"),
)


def settings(tree: Path, *more: str) -> list[str]:
    """Of a run of a second; later ones win."""
    keys = [each.split("=")[0] for each in more]
    return [each for each in (f"data.root={tree}", *TINY, *QUICK) if each.split("=")[0] not in keys] + list(more)
