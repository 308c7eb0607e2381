"""Histograms of batches and retrieved neighbours for TensorBoard, beside its curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.nn import functional as F

from ... import search
from ...batches.distributed import world
from ...datasets.base import ImageSet, Table
from ...datasets.rows import Rows
from ...evaluation import Report
from ...ranks.normalize import unit_rows
from ...workbench.runs.log import TEST
from ...workbench.training.module import RetrievalModule

HISTOGRAMS = 100  # histograms per run; each takes some kilobytes
QUERIES, NEAREST = 8, 8
SIDE, BORDER, GAP = 72, 4, 4  # pixels of a picture in the grid

# As on the page of a run: right is solid green, wrong is dashed orange. Colour-blind readers see the difference.
RIGHT, WRONG, ASKED, GROUND = (8, 122, 87), (224, 92, 31), (139, 144, 153), (255, 255, 255)


class Board(L.Callback):
    """Writes histograms and pictures to the TensorBoard logger of a trainer. Without one it does nothing.

    Under "batch/": cosines of images of a class and of different classes, lengths of embeddings, and lengths of the
    gradients of all weights. Under "retrieved": the same queries at each evaluation, with what is nearest to them, as
    pictures or as texts.

    Args:
        table: evaluated rows.
        seed: for choosing the queries.
    """

    def __init__(self, table: Rows, seed: int = 0) -> None:
        self.table = table
        self.queries = chosen_queries(table.label, QUERIES, seed)
        self._every = 1
        self._gradients: Tensor | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Spread the histograms over the run."""
        steps = int(trainer.estimated_stepping_batches)
        self._every = max(1, cast(Any, trainer).log_every_n_steps or 1, steps // HISTOGRAMS)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Keep the lengths of the gradients, before they are clipped."""
        if trainer.global_step % self._every == 0 and _writer(trainer) is not None:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            self._gradients = torch.stack([grad.norm() for grad in gradients]) if gradients else None

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the histograms of this batch."""
        writer, gradients, self._gradients = _writer(trainer), self._gradients, None
        if writer is None or gradients is None:
            return
        module = cast(RetrievalModule, pl_module)
        assert module.last_batch is not None
        step = trainer.global_step - 1
        measured = {**similarities(*module.last_batch), "lengths of gradients": gradients}
        for name, values in measured.items():
            if len(values) and bool(values.isfinite().all()):
                writer.add_histogram(f"batch/{name}", values.cpu(), step)

    def evaluated(self, trainer: L.Trainer, report: Report, embeddings: Tensor, *, values: bool = False) -> None:
        """Draw the nearest items of the chosen queries.

        Args:
            trainer: its logger gets the pictures, at its current step.
            report: of the evaluation.
            embeddings: [image, dim] of the table.
            values: also write the report's metrics, if no other callback does.
        """
        if world()[0] != 0:
            return
        writer = _writer(trainer)
        if writer is None:
            return
        step = trainer.global_step
        if values:
            for name, value in report.values.items():
                writer.add_scalar(f"{TEST}{name}", value, max(step - 1, 0))
        if len(self.queries) and isinstance(self.table, Table):
            writer.add_image("retrieved", retrieved(self.table, embeddings, self.queries), step)
        elif len(self.queries):
            writer.add_text("retrieved", told(self.table, embeddings, self.queries), step)
        writer.flush()

    def finished(self, trainer: L.Trainer, settings: Mapping[str, Any], report: Report) -> None:
        """Settings and result, for TensorBoard's table of runs (its tab HPARAMS)."""
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and world()[0] == 0:
                logger.log_hyperparams(dict(settings), {f"result/{n}": v for n, v in report.values.items()})
                logger.save()
                logger.finalize("success")


def similarities(embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Cosines of the pairs of a batch, each pair once, and lengths of its embeddings.

    >>> found = similarities(torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 2.0]]), torch.tensor([0, 0, 1]))
    >>> found["cosines within a class"], found["cosines between classes"], found["lengths of embeddings"]
    (tensor([1.]), tensor([0.8000, 0.8000]), tensor([5., 5., 2.]))
    """
    rows = embeddings.detach().float()
    if labels.dim() != 1:
        labels = torch.unique(labels, dim=0, return_inverse=True)[1]
    one, other = torch.triu_indices(len(rows), len(rows), 1, device=rows.device)
    unit = unit_rows(rows)
    scores = (unit @ unit.T)[one, other]
    same = labels[one] == labels[other]
    return {
        "cosines within a class": scores[same],
        "cosines between classes": scores[~same],
        "lengths of embeddings": rows.norm(dim=1),
    }


def chosen_queries(labels: Tensor, count: int, seed: int = 0) -> Tensor:
    """[query] long, rows drawn by seed among those that have another image of their class, in their order.

    >>> chosen_queries(torch.tensor([0, 1, 1, 2]), 5)
    tensor([1, 2])
    """
    _, number, images = torch.unique(labels, return_inverse=True, return_counts=True)
    drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return drawn[images[number[drawn]] > 1][:count].sort()[0]


def retrieved(table: Table, embeddings: Tensor, queries: Tensor, k: int = NEAREST) -> Tensor:
    """uint8 [3, height, width]: a row for each query with a grey frame, then the k nearest other images.

    A right image (same class) has a solid green frame, a wrong one a dashed orange one.

    Args:
        table: the images.
        embeddings: [image, dim] of all.
        queries: [query] long, rows of the table.
        k: images per query; as many as there are, if fewer.
    """
    nearest = _nearest(embeddings, queries, k)
    images = ImageSet(table, channels=3)
    label = table.label
    lines = []
    for query, items in zip(queries.tolist(), nearest.tolist(), strict=True):
        cells = [framed(images[query][0], ASKED)]
        cells += [
            framed(images[item][0], RIGHT)
            if label[item] == label[query]
            else framed(images[item][0], WRONG, dashed=True)
            for item in items
        ]
        lines.append(_joined(cells, dim=2))
    return _joined(lines, dim=1)


def told(table: Rows, embeddings: Tensor, queries: Tensor, k: int = NEAREST) -> str:
    """A Markdown list for each query, of the k nearest other texts; wrong ones are struck through.

    Args:
        table: the texts.
        embeddings: [row, dim] of all.
        queries: [query] long, rows of the table.
        k: texts per query; as many as there are, if fewer.
    """
    texts = [" ".join(text.split()) for text in table.captions or table.names]
    label = table.label
    lines = []
    for query, items in zip(queries.tolist(), _nearest(embeddings, queries, k).tolist(), strict=True):
        lines.append(f"**{texts[query]}**\n")
        lines += [f"* {texts[item]}" if label[item] == label[query] else f"* ~~{texts[item]}~~" for item in items]
        lines.append("")
    return "\n".join(lines)


def _nearest(embeddings: Tensor, queries: Tensor, k: int) -> Tensor:
    """[query, k] long: the rows nearest to each query, itself left out."""
    unit = unit_rows(embeddings.float().cpu())
    k = min(k, len(unit) - 1)
    return search.topk(unit[queries], unit, k, ids=queries, ref_ids=torch.arange(len(unit)))[1]


def framed(image: Tensor, colour: Sequence[int], *, dashed: bool = False) -> Tensor:
    """uint8 [3, side, side]: an image, its shape kept, in the middle of a square with a frame."""
    inner = SIDE - 2 * BORDER
    height, width = image.shape[1:]
    factor = inner / max(height, width)
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    # small drawings stay sharp when they are enlarged
    how: dict[str, Any] = {"mode": "nearest"} if factor >= 1 else {"mode": "bilinear", "antialias": True}
    scaled = F.interpolate(image[None].float(), size=size, **how)[0].round().clamp(0, 255).to(torch.uint8)
    cell = _filled(colour, SIDE, SIDE)
    if dashed:
        place = torch.arange(SIDE)
        gaps = (place // 6) % 2 == 1
        frame = torch.ones(SIDE, SIDE, dtype=torch.bool)
        frame[BORDER:-BORDER, BORDER:-BORDER] = False
        along = torch.where(
            (place < BORDER).unsqueeze(1) | (place >= SIDE - BORDER).unsqueeze(1), gaps, gaps.unsqueeze(1)
        )
        cell[:, frame & along] = 255
    cell[:, BORDER:-BORDER, BORDER:-BORDER] = _filled((240, 240, 236), inner, inner)
    top, left = BORDER + (inner - size[0]) // 2, BORDER + (inner - size[1]) // 2
    cell[:, top : top + size[0], left : left + size[1]] = scaled
    return cell


def _filled(colour: Sequence[int], height: int, width: int) -> Tensor:
    return torch.tensor(colour, dtype=torch.uint8).view(3, 1, 1).repeat(1, height, width)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Side by side (dim 2) or one below the other (dim 1), with gaps."""
    shape = list(parts[0].shape)
    shape[dim] = GAP
    gap = torch.full(shape, GROUND[0], dtype=torch.uint8)
    spaced = [piece for part in parts for piece in (part, gap)][:-1]
    return torch.cat(spaced, dim)


def _writer(trainer: L.Trainer) -> Any:
    """TensorBoard's own writer, None if the trainer has no such logger."""
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            return logger.experiment
    return None


__all__ = ["Board", "chosen_queries", "framed", "retrieved", "similarities", "told"]
