"""The loop that embeds: images -> embeddings, on one process or several."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..datasets.base import ImageSet, Table
from ..datasets.transforms import Collate
from ..distributed import gather_rows, world
from ..runs import signals


def embed(
    model: nn.Module,
    table: Table,
    transform: Any,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> Tensor:
    """[image, dim] float32 embeddings of a table, on the CPU, in eval mode; the model's mode is restored.

    Several processes embed a share each, and all get the whole.

    Args:
        model: images -> embeddings.
        table: the images.
        transform: of evaluation, see `transforms`.
        batch_size: images at once.
        workers: of the DataLoader.
        progress: show a progress bar.
        device: where to compute; None: where the model is.
    """
    rank, processes = world()
    mine = range(rank, len(table), processes)
    loader = DataLoader(
        ImageSet(table if processes == 1 else table.take(mine)),
        batch_size=batch_size,
        collate_fn=Collate(transform),
        num_workers=workers,
        worker_init_fn=signals.spare_worker,
        generator=torch.Generator(),  # evaluating in the middle of training must not move torch's own
    )
    batches: Any = loader
    if progress and rank == 0:
        from tqdm import tqdm

        batches = tqdm(loader, desc="embedding", unit="batch", leave=False)
    weight = next(model.parameters())
    where = torch.device(device) if device is not None else weight.device
    was_training = model.training
    model.to(where).eval()
    try:
        with torch.inference_mode():
            # trainer.precision=64-true and bf16-true convert the model
            found = [model(images.to(where, weight.dtype)).float().cpu() for images, _, _ in batches]
    finally:
        model.train(was_training)
    embeddings = torch.cat(found).clone()
    if processes == 1:
        return embeddings
    order = gather_rows(torch.tensor(mine))
    return torch.empty(len(table), embeddings.shape[1]).index_copy_(0, order, gather_rows(embeddings))
