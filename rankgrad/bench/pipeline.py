"""How fast images get from files into batches, against the bare decoder."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from .clocks import Action, alternate
from .results import Cell, Check, Options, Result, ResultTable

if TYPE_CHECKING:
    from ..datasets.base import Cache

DECODER = "bare decoder"
BATCH = 32
CACHES: tuple[Cache, ...] = ("none", "ram", "disk")
WORKERS = (0, 1, 2)


def pipeline(options: Options) -> Result:
    """Images per second from JPEG files through decoding, augmentation and collation, against the bare decoder."""
    images, height, width = (16, 48, 64) if options.quick else (256, 375, 500)
    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder, "photographs"), Path(folder, "cache")
        _photographs(root, images, height, width)
        actions = _actions(root, home, options)
        times = alternate(actions, options.rounds, "pipeline")
        del actions  # ends the workers, before their files go
    base = times[DECODER]
    rows: list[list[Cell]] = [
        [name, 1e3 * images / mine.wall_ms, mine.wall_ms / images, base.wall_over(mine)] for name, mine in times.items()
    ]
    note = (
        f"{images} JPEG files of {width} x {height}, in colour; PhotoTrain (resize 256, random crop 224, flip), "
        f"batches of {BATCH}. Wall-clock time, workers on top of the main process; they run already. Bare decoder: "
        "read_image of every file in one process, nothing else. The first pass, which fills a cache, is not counted."
    )
    columns = ("cache, workers", "images/s", "ms per image", "x bare decoder")
    cached, decoded = (times[_name(cache, 0)] for cache in ("ram", "none"))
    checks = [Check("pipeline without cache over with one, no workers", decoded.wall_over(cached), 1.2, at_most=False)]
    return Result([ResultTable("Data pipeline", columns, rows, note)], checks)


def _name(cache: str, workers: int) -> str:
    return f"cache {cache}, {workers} workers"


def _photographs(root: Path, images: int, height: int, width: int) -> None:
    """Coloured clouds with some grain: they decode about as fast as photographs of this size."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    for number in range(images):
        clouds = torch.rand(1, 3, max(height // 12, 2), max(width // 12, 2), generator=generator)
        picture = F.interpolate(clouds, (height, width), mode="bicubic")[0]
        picture = picture + 0.05 * torch.randn(picture.shape, generator=generator)
        pixels = (255 * picture).clamp(0, 255).byte().permute(1, 2, 0).contiguous().numpy()
        path = root / f"class{number % 8}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)


def _actions(root: Path, home: Path, options: Options) -> dict[str, Action]:
    from torch.utils.data import DataLoader

    from ..datasets import ImageSet, load_folder
    from ..datasets.base import read_image
    from ..datasets.transforms import Collate, PhotoTrain

    table = load_folder(root, test_fraction=0, check=False)
    assert table.paths is not None
    paths = table.paths
    transform = PhotoTrain(32, 40) if options.quick else PhotoTrain()
    actions: dict[str, Action] = {DECODER: lambda: [read_image(path, 3) for path in paths]}
    for cache in CACHES:
        data = ImageSet(table.cached(cache, home))
        for workers in WORKERS:
            loader: Any = DataLoader(
                data,
                batch_size=BATCH,
                collate_fn=Collate(transform),
                num_workers=workers,
                persistent_workers=workers > 0,
            )
            actions[_name(cache, workers)] = partial(_epoch, loader)
    return actions


def _epoch(loader: Any) -> None:
    for _ in loader:
        pass
