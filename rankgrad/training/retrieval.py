"""Evaluation of a retrieval model on a table, by its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..datasets.base import Table
from ..datasets.protocols import Trial, over_draws, trials
from ..evaluation import Report, evaluate
from .inference import embed


def evaluate_model(
    model: nn.Module,
    table: Table,
    transform: Any,
    settings: Mapping[str, Any],
    *,
    workers: int = 0,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Report, Tensor]:
    """Retrieval on a table by its protocol (`protocols.trials`): its Report and the embeddings.

    Several processes share the work.

    Args:
        model: images -> embeddings.
        table: test images.
        transform: of evaluation.
        settings: ks, batch_size, bootstrap, clusters.
        workers: of the DataLoader.
        seed: of bootstrap and k-means.
        device: where to compute; None: where the model is.
    """
    embeddings = embed(model, table, transform, batch_size=settings["batch_size"], workers=workers, device=device)
    reports = [
        _ranked(embeddings, table, trial, settings, seed=seed, device=device) for trial in trials(table, seed=seed)
    ]
    return _mean_report(reports), embeddings


def _ranked(
    embeddings: Tensor,
    table: Table,
    trial: Trial,
    settings: Mapping[str, Any],
    *,
    seed: int,
    device: torch.device | str | None,
) -> Report:
    """One evaluation: the queries of a trial against its gallery, or against one another."""
    query, gallery = trial.query, trial.gallery
    against: dict[str, Any] = {}
    if gallery is not None:
        against = {"ref_embeddings": embeddings[gallery], "ref_labels": table.label[gallery]}
    return evaluate(
        embeddings[query],
        table.label[query],
        **against,
        super_labels=None if table.super_label is None else table.super_label[query],
        class_names=table.class_names,
        super_names=table.super_names or None,
        ks=tuple(settings["ks"]),
        bootstrap=settings["bootstrap"],
        clusters=settings["clusters"],
        seed=seed,
        device=device,
        shared=True,
    )


def _mean_report(reports: Sequence[Report]) -> Report:
    """Of several drawn galleries the first one's report, with the means over all as values."""
    first = reports[0]
    if len(reports) == 1:
        return first
    over = over_draws([report.values for report in reports])
    spread = f"R@1 {100 * over['R@1'][0]:.1f} ± {100 * over['R@1'][1]:.1f} %" if "R@1" in over else "see values"
    note = f"values are means over {len(reports)} drawn galleries ({spread}); all else is of the first one."
    values = {name: mean for name, (mean, _) in over.items()}
    settings = {**first.settings, "protocol": f"one-gallery, {len(reports)} draws"}
    return replace(first, values=values, intervals={}, settings=settings, notes=(*first.notes, note))
