"""Speed of loading images from files into batches, compared with the decoder alone, with and without workers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from rankgrad_papers.timing.clocks import Action, alternate
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

if TYPE_CHECKING:
    from rankgrad_workbench.datasets.base import Cache

BATCH = 32
CACHES: tuple[Cache, ...] = ("none", "ram", "disk")
WORKERS = (0, 1, 2)


def pipeline(options: Options) -> Result:
    """Images per second from JPEG files (decoding, augmentation, collation), compared with the decoder alone."""
    images, height, width = (16, 48, 64) if options.quick else (256, 375, 500)
    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder, "photographs"), Path(folder, "cache")
        _photographs(root, images, height, width)
        actions = _actions(root, home, options)
        times = alternate(actions, options.rounds, "pipeline", clock=family_clock)
        del actions  # ends the workers before their files are deleted
    base = times[_name("decoder", 0)]
    rows: list[list[Cell]] = [
        [name, 1e3 * images / mine.wall_ms, mine.wall_ms / images, mine.ms / images, base.wall_over(mine)]
        for name, mine in times.items()
    ]
    note = (
        f"{images} JPEG files of {width} x {height}, in colour; PhotoTrain (resize 256, random crop 224, flip), "
        f"batches of {BATCH}. Shown are wall-clock time, and the processor time of the main process and its running "
        "workers together. 'Decoder' is the same loader, but it drops each image after decoding. So two workers of the "
        "decoder show what the machine gives to two processes. The first pass, which fills a cache, is not counted."
    )
    columns = ("what is read, workers", "images/s", "ms per image", "processor ms per image", "x decoder")
    cached, decoded, two = (
        times[name] for name in (_name("cache ram", 0), _name("cache none", 0), _name("cache none", 2))
    )
    given = base.wall_over(times[_name("decoder", 2)])
    checks = [
        Check("pipeline without cache over with one, no workers", decoded.wall_over(cached), 1.2, at_most=False),
        Check("two workers: images/s over no workers", decoded.wall_over(two), 1.7, at_most=False),
        Check(
            "two workers: the same, over what the machine gives to two decoders",
            decoded.wall_over(two) / given,
            0.85,
            at_most=False,
        ),
        Check("two workers: processor time per image over no workers", two.over(decoded), 1.15),
    ]
    return Result([ResultTable("Data pipeline", columns, rows, note)], checks)


def family_clock(action: Action, calls: int) -> tuple[float, float]:
    """(processor, wall-clock) seconds per call, the processor time of the workers of this process included."""
    wall, busy = time.perf_counter(), _processor_time()
    for _ in range(calls):
        action()
    return (_processor_time() - busy) / calls, (time.perf_counter() - wall) / calls


def _processor_time() -> float:
    """Seconds of this process and its children so far; of itself alone where the system has no /proc."""
    used = time.process_time()
    for child in multiprocessing.active_children():
        with contextlib.suppress(OSError):
            after = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")  # user and system, see proc(5)
    return used


class Decoded(Dataset[int]):
    """Decodes an image and discards it.

    Args:
        paths: of the images.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        from rankgrad_workbench.datasets.base import read_image  # the suites of losses need only torch

        self.paths, self.read = paths, read_image

    def __len__(self) -> int:
        """Number of images."""
        return len(self.paths)

    def __getitem__(self, row: int) -> int:
        """Return only the number of channels, so that no image is sent between processes."""
        return len(self.read(self.paths[row], 3))


def _name(what: str, workers: int) -> str:
    return f"{what}, {workers} workers"


def _photographs(root: Path, images: int, height: int, width: int) -> None:
    """Random smooth images with noise. They decode about as fast as photographs of this size."""
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
    from rankgrad_workbench.datasets import ImageSet, load_folder
    from rankgrad_workbench.datasets.transforms import Collate, PhotoTrain

    table = load_folder(root, test_fraction=0, check=False)
    assert table.paths is not None
    collate = Collate(PhotoTrain(32, 40) if options.quick else PhotoTrain())
    read: dict[str, tuple[Dataset[Any], Any]] = {"decoder": (Decoded(table.paths), None)}
    read |= {f"cache {cache}": (ImageSet(table.cached(cache, home)), collate) for cache in CACHES}
    actions: dict[str, Action] = {}
    for what, (data, join) in read.items():
        for workers in WORKERS:
            kept = workers > 0
            loader: Any = DataLoader(data, BATCH, collate_fn=join, num_workers=workers, persistent_workers=kept)
            actions[_name(what, workers)] = partial(_epoch, loader)
    return actions


def _epoch(loader: Any) -> None:
    for _ in loader:
        pass
