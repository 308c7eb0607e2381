"""The loop that embeds: rows of a table -> embeddings, on one process or several."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..datasets.rows import Rows
from ..distributed import gather_rows, world
from ..models.embedding_model import moved, place_of
from ..progress import bar
from ..runs import signals


def embed(
    model: nn.Module,
    table: Rows,
    transform: Any,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> Tensor:
    """[row, dim] float32 embeddings of a table, on the CPU, in eval mode; the model's mode is restored.

    Several processes embed a share each, and all get the whole.

    Args:
        model: images, or what the rows are, -> embeddings.
        table: the rows.
        transform: of evaluation, see `transforms`.
        batch_size: rows at once.
        workers: of the DataLoader.
        progress: show a progress bar.
        device: where to compute; None: where the model is.
    """
    rank, processes = world()
    mine = range(rank, len(table), processes)
    here = table if processes == 1 else table.take(mine)
    embeddings = embed_alone(
        *(model, here, transform),
        batch_size=batch_size,
        workers=workers,
        progress="embedding" if progress and rank == 0 else "",
        device=device,
    )
    if processes == 1:
        return embeddings
    order = gather_rows(torch.tensor(mine))
    return torch.empty(len(table), embeddings.shape[1]).index_copy_(0, order, gather_rows(embeddings))


def embed_alone(
    model: nn.Module,
    table: Rows,
    transform: Any,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: str = "",
    device: torch.device | str | None = None,
) -> Tensor:
    """Embed a table as `embed` does, in this process, whatever others do.

    Args:
        model: see `embed`, as the others.
        table: the rows.
        transform: of evaluation.
        batch_size: rows at once.
        workers: of the DataLoader.
        progress: what stands before the progress bar; empty: no bar.
        device: where to compute.
    """
    loader = DataLoader(
        table.dataset(),
        batch_size=batch_size,
        collate_fn=table.batches(transform),
        num_workers=workers,
        worker_init_fn=signals.spare_worker,
        generator=torch.Generator(),  # evaluating in the middle of training must not move torch's own
    )
    batches: Any = loader
    if progress:
        batches = bar(loader, desc=progress, unit="batch", leave=False)
    where, dtype = place_of(model)
    where = where if device is None else torch.device(device)
    was_training = model.training
    model.to(where).eval()
    try:
        with torch.inference_mode():
            # trainer.precision=64-true and bf16-true convert the model
            embedded = [model(moved(given, where, dtype)).float().cpu() for given, _, _ in batches]
    finally:
        model.train(was_training)
    return torch.cat(embedded).clone()
