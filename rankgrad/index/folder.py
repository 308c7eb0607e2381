"""Embedding a folder of images with the model of a run, into one npz."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ..datasets.folder import find_images
from ..runs.embeddings import save_embeddings
from ..training.inference import embed
from .embedder import Embedder, Origin, weights_of


def embed_folder(
    source: Path,
    images: Path,
    out: Path | None = None,
    batch_size: int = 256,
    *,
    invert: bool = False,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Embed all images below a folder with the model of a run; returns (images, skipped files with reasons).

    The npz holds embeddings, names (paths relative to the folder), labels with class_names (the sub-folder), and what
    an index needs later: the absolute folder as `root`, `model` with its `sha256`, `invert`.

    Args:
        source: folder of a run, or its model.pt.
        images: the folder.
        out: npz to write; None: `embeddings_file(images)`.
        batch_size: images at once.
        invert: turn the images to their negatives first, see `Embedder`.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.
    """
    weights_of(source)
    out = embeddings_file(images) if out is None else out
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: give a file in a folder that exists")
    embedder = Embedder.load(source, invert=invert, trust=trust)
    if embedder.model.inputs.takes != "images":
        raise ValueError(f"{source} takes {embedder.model.inputs.takes}: give a file of them; {images} is a folder")
    root = Path(os.path.abspath(images))  # without . and .., but links stay as they were named
    paths, skipped = find_images(root)
    if not paths:
        raise ValueError(f"no readable image below {images}" + (f"; {len(skipped)} files skipped" if skipped else ""))
    embedder.check_ground(paths)
    table = embedder.table(paths, root)
    embeddings = embed(embedder.model, table, embedder.transform, batch_size=batch_size, progress=True, device=device)
    origin = Origin(root, embedder.weights, embedder.sha256, invert)
    save_embeddings(out, embeddings, table, origin.columns())
    return len(paths), skipped


def embeddings_file(images: Path) -> Path:
    """Where the embeddings of a folder go if nobody says: NAME.npz in the folder you are in, NAME that of the images.

    >>> embeddings_file(Path("photos/birds/")).name
    'birds.npz'
    """
    return Path(f"{Path(os.path.abspath(images)).name or 'embeddings'}.npz")
