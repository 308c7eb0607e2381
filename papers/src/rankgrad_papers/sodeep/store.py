"""Sorters on disk: trained and stored at the first use, then read."""

from __future__ import annotations

import io
import sys
import warnings
from hashlib import sha256
from pathlib import Path

import torch

from rankgrad_workbench.files import atomic_write
from rankgrad_workbench.files.folders import alone
from rankgrad_workbench.models.state_dicts import read_plain

from .networks import ARCHITECTURES, Sorter
from .training import Recipe, train_sorter

# Increase it when the same settings would give other weights, so that older files are not used.
FORMAT = 1


def default_folder() -> Path:
    """The default folder of sorters: sodeep/ in $XDG_CACHE_HOME/rankgrad, else in ~/.cache/rankgrad."""
    from rankgrad_workbench.datasets import cache

    return cache.default_folder() / "sodeep"


def sorter_file(recipe: Recipe, folder: Path | None = None) -> Path:
    """The file of the sorter of a recipe.

    >>> sorter_file(Recipe(items=30), Path("sorters")).name
    'lstm_small-30-...sorter'
    """
    settings = repr((FORMAT, recipe, ARCHITECTURES[recipe.architecture]))
    name = f"{recipe.architecture}-{recipe.items}-{sha256(settings.encode()).hexdigest()[:10]}.sorter"
    return (default_folder() if folder is None else folder) / name


def load_sorter(
    items: int = 20,
    architecture: str = "lstm_small",
    *,
    steps: int = 3000,
    batch_size: int = 32,
    lr: float = 1e-2,
    seed: int = 0,
) -> Sorter:
    """The sorter of a recipe from the cache. The first time it is trained, with a message, and stored. See `load`.

    Args:
        items: see `Recipe`; for a batch of B images against itself, B.
        architecture: see `Recipe`.
        steps: see `Recipe`.
        batch_size: see `Recipe`.
        lr: see `Recipe`.
        seed: see `Recipe`.
    """
    return load(Recipe(items, architecture, steps, batch_size, lr, seed))


def load(recipe: Recipe, folder: Path | None = None, *, progress: bool = True) -> Sorter:
    """`load_sorter` for a recipe.

    Processes that need the same sorter at the same time wait for the first. A damaged file gives a warning, and the
    sorter is trained again.

    Args:
        recipe: of the sorter.
        folder: of the cache; None: `default_folder`.
        progress: print that a sorter is trained, and show a progress bar.
    """
    path = sorter_file(recipe, folder)
    kept = read_sorter(path)
    if kept is not None:
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_suffix(".lock")):
        kept = read_sorter(path, warn=False)
        if kept is None:
            if progress:
                what = f"no sorter of {recipe.items} items is stored yet; it is trained now, once: {path}"
                print(f"rankgrad: {what}", file=sys.stderr)
            kept = train_sorter(recipe, progress=progress)
            _write(kept, path)
    return kept


def _write(sorter: Sorter, path: Path) -> None:
    """Write the file: first the digest of the rest, then the rest."""
    memory = io.BytesIO()
    about = {"items": sorter.items, "architecture": sorter.architecture, "facts": sorter.facts}
    torch.save({**about, "weights": sorter.state_dict()}, memory)
    content = memory.getvalue()
    with atomic_write(path) as file:
        file.write(sha256(content).digest() + content)


def read_sorter(path: Path, *, warn: bool = True) -> Sorter | None:
    """The sorter of a file; None if there is none, or if it is damaged.

    Args:
        path: see `sorter_file`.
        warn: warn of a damaged file.

    Raises:
        ValueError: the file is undamaged but not a sorter, such as one with code.
    """
    from rankgrad_workbench.datasets.cache import CacheWarning

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if sha256(content[32:]).digest() != content[:32]:
        if warn:
            warnings.warn(f"the sorter {path} is damaged and is trained again", CacheWarning, stacklevel=3)
        return None
    kept = read_plain(path, io.BytesIO(content[32:]))
    try:
        with torch.random.fork_rng(devices=[]):  # its initial weights are random; they are overwritten
            sorter = Sorter(kept["items"], kept["architecture"])
        sorter.load_state_dict(kept["weights"])
        sorter.facts = kept["facts"]
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} is not a sorter: delete it, and the sorter is trained again") from error
    return sorter.requires_grad_(False).eval()
