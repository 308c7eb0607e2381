"""The row of detectors in rankgrad's table of kinds of runs."""

from __future__ import annotations

from rankgrad_workbench.settings.kinds import TaskRow

DETECTIONS = "detections.npz"  # detections in the evaluated images

ROW = TaskRow(
    command="detect train",
    settings="detect",
    groups=("data", "model", "loss", "experiment"),
    trains="rankgrad_detection.run",
    reads="rankgrad_detection.page",
    result="metrics.json",
    files=("config.yaml", "model.pt", DETECTIONS, "facts.json", "report.html", "metrics.json"),
    columns=("AP50", "AP50_11", "AP75", "AP50_95"),
    mains=("AP50",),
    kept=(
        *(
            f"data.{name}"
            for name in ("name", "root", "format", "train", "test", "classes", "sides", "cache", "workers")
        ),
        *("model.kind", "loss.name"),
    ),
    own_losses=True,
    evaluates="rankgrad_detection.run",
)
