"""Compute the embeddings of a table, on one process or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankgrad.batches.distributed import gather_rows, world
from rankgrad.common.progress import bar

from ..datasets.rows import Rows
from ..models.embedding_model import evaluating, moved
from ..runs import signals


def embed(
    model: nn.Module,
    table: Rows,
    transform: Any,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: bool | str = False,
    device: torch.device | str | None = None,
    alone: bool = False,
) -> Tensor:
    """Embeddings of a table: float32 [row, dim] on the CPU. The model runs in eval mode; its mode is restored.

    If there are several processes, each embeds a part of the rows, and all get all embeddings.

    Args:
        model: inputs (images, texts or vectors) -> embeddings.
        table: the rows.
        transform: transform for evaluation, see `transforms`.
        batch_size: number of rows in a batch.
        workers: number of workers of the DataLoader.
        progress: show a progress bar, or its label.
        device: where to compute; None: where the model is.
        alone: this process embeds all rows.

    >>> from rankgrad_workbench.datasets import VectorTable
    >>> from rankgrad_workbench.datasets.transforms import Collated
    >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> table = VectorTable("two", torch.tensor([0, 1]), ("a", "b"), ("test",) * 2, ("x", "y"), rows)
    >>> embed(nn.Linear(2, 3), table, Collated()).shape
    torch.Size([2, 3])
    """
    rank, processes = (0, 1) if alone else world()
    rows = range(rank, len(table), processes)
    mine = table if processes == 1 else table.take(rows)
    label = progress if isinstance(progress, str) else "embedding" * progress
    batches = in_order(mine.dataset(), mine.batches(transform), batch_size, workers, label if rank == 0 else "")
    with evaluating(model, device) as place:  # trainer.precision=64-true and bf16-true convert the model
        embeddings = torch.cat([model(moved(given, *place)).float().cpu() for given, _, _ in batches]).clone()
    if processes == 1:
        return embeddings
    order = gather_rows(torch.tensor(rows))
    return torch.empty(len(table), embeddings.shape[1]).index_copy_(0, order, gather_rows(embeddings))


def in_order(
    data: Dataset[Any], collate: Callable[[list[Any]], Any], batch_size: int, workers: int, progress: str = ""
) -> Iterable[Any]:
    """All batches of a dataset, in order. To iterate does not change torch's random state.

    Args:
        data: the examples.
        collate: list of examples -> batch.
        batch_size: number of examples in a batch.
        workers: number of workers of the DataLoader.
        progress: label of the progress bar; empty: no bar.
    """
    found = loader(data, collate, workers, batch_size=batch_size)
    return bar(found, desc=progress, unit="batch", leave=False) if progress else found


def loader(data: Dataset[Any], collate: Callable[[Any], Any], workers: int, **more: Any) -> DataLoader[Any]:
    """A loader whose workers end with the run, and that does not change torch's random state."""
    own: dict[str, Any] = {"worker_init_fn": signals.spare_worker, "generator": torch.Generator()}
    return DataLoader(data, collate_fn=collate, num_workers=workers, **own, **more)
