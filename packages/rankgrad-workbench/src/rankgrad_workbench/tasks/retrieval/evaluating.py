"""A model and test rows -> a report, by the protocol of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rankgrad.evaluation import Bootstrap, Protocol, Report, evaluate

from ...datasets.protocols import Trial, over_draws, trials
from ...datasets.rows import Rows, numbered
from ...training.inference import embed
from .building import by_levels
from .settings import asked


def evaluate_model(
    model: nn.Module,
    table: Rows,
    transform: Any,
    settings: Mapping[str, Any],
    *,
    workers: int = 0,
    seed: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> tuple[Report, Tensor]:
    """Evaluate retrieval on a table by its protocol (`protocols.trials`). Several processes share the work.

    Args:
        model: inputs (images, texts or vectors) -> embeddings.
        table: test rows.
        transform: transform for evaluation.
        settings: size (of the images, for the record), ks, batch_size, bootstrap, clusters, extra, levels
            (use super-labels), similarity.
        workers: number of workers of the DataLoader.
        seed: seed of bootstrap and k-means.
        progress: show a bar for everything that takes longer than two seconds.
        device: where to compute; None: where the model is.

    Returns:
        The report, and the embeddings.

    >>> from rankgrad_workbench.datasets import VectorTable
    >>> from rankgrad_workbench.datasets.transforms import Collated
    >>> rows, names = torch.eye(2)[[0, 0, 1, 1]], ("u", "v", "x", "y")
    >>> table = VectorTable("four", torch.tensor([0, 0, 1, 1]), ("a", "b"), ("test",) * 4, names, rows)
    >>> settings = {"ks": [1], "batch_size": 4, "bootstrap": 0, "clusters": "none", "extra": []}
    >>> report, embeddings = evaluate_model(nn.Identity(), table, Collated(), settings)
    >>> report.values["R@1"], embeddings.shape
    (1.0, torch.Size([4, 2]))
    """
    where: dict[str, Any] = {"progress": progress, "device": device}
    embeddings = embed(model, table, transform, batch_size=settings["batch_size"], workers=workers, **where)
    how = {**where, "shared": True, "similarity": settings.get("similarity", "cosine")}
    metrics = asked(settings["ks"], settings.get("extra", ()), settings["clusters"])
    drawing = Bootstrap(settings["bootstrap"], seed=seed)
    truth = by_levels(table, "evaluation.levels") if settings.get("levels") else table.truth
    reports = [
        _ranked(embeddings, table, truth, trial, metrics=metrics, intervals=drawing, **how)
        for trial in trials(table, seed=seed)
    ]
    report = _mean_report(reports)
    if settings.get("size") is not None:
        report = replace(report, settings={**report.settings, "size": settings["size"]})
    return report, embeddings


def _ranked(embeddings: Tensor, table: Rows, truth: Tensor, trial: Trial, **how: Any) -> Report:
    """One evaluation: rank the gallery of a trial for its queries. Without a gallery, rank the other queries."""
    query, gallery = trial.query, trial.gallery
    if gallery is not None:
        how |= {"ref_embeddings": embeddings[gallery], "ref_labels": truth[gallery]}
    if table.group is not None:
        groups = numbered(table.group)[1]
        how["protocol"] = Protocol(groups=groups[query], ref_groups=None if gallery is None else groups[gallery])
    if table.super_label is not None:
        how |= {"super_labels": table.super_label[query], "super_names": table.super_names or None}
    return evaluate(embeddings[query], truth[query], class_names=table.class_names, **how)


def _mean_report(reports: Sequence[Report]) -> Report:
    """Join the reports of several drawn galleries. The values are means; all else is from the first report."""
    first = reports[0]
    if len(reports) == 1:
        return first
    over = over_draws([report.values for report in reports])
    name, (mean, spread) = next(iter(over.items()))
    note = (
        f"values are means over {len(reports)} drawn galleries ({name} {100 * mean:.1f} ± {100 * spread:.1f} %); all "
        "else is from the first gallery."
    )
    values = {name: mean for name, (mean, _) in over.items()}
    settings = {**first.settings, "protocol": f"one-gallery, {len(reports)} draws"}
    return replace(first, values=values, intervals={}, settings=settings, notes=(*first.notes, note))
