"""Embeds a folder of images with the model of a run, into one npz or parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankgrad.batches.distributed import gather_objects, on_all, on_first, share, world

from ..datasets.fingerprint import of_files, of_texts
from ..datasets.folder import check_images, read_folder
from ..runs.embeddings import save_embeddings
from .embedder import Embedder, weights_of
from .gallery import Origin, check_place
from .parts import begun
from .threshold import threshold_of


def embed_folder(
    source: Path,
    images: Path,
    out: Path | None = None,
    batch_size: int = 256,
    *,
    invert: bool = False,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
    workers: int = 0,
) -> tuple[int, tuple[tuple[str, str], ...], str]:
    """Embed the images below a folder with the model of a run.

    Returns the number of images, (path, reason) of the skipped files, and a sentence on how the folder was understood.
    Folders are read as in training: see `datasets.folder.read_folder`.

    The work is done in parts. If the call is interrupted, call it again and it continues after the last finished part.
    In a torch.distributed group, all processes make the same call and share the work; they must see the same files. See
    `parts`.

    The file holds embeddings of length 1, names (paths relative to the folder) and labels with class_names, and for
    queries its `Origin`.

    Args:
        source: folder of a run, or its model.pt.
        images: the folder.
        out: npz or parquet to write; None: `embeddings_file(images)`.
        batch_size: images at once.
        invert: invert the images (255 - pixel) first, see `Embedder`.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.
        workers: number of additional processes that read images.

    >>> import tempfile
    >>> from PIL import Image
    >>> from rankgrad_workbench.models import convnet, save_weights
    >>> transform = {"_target_": "rankgrad_workbench.datasets.transforms.InkEval", "size": 28}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     photo, weights = Path(folder, "a", "0.png"), Path(folder, "model.pt")
    ...     photo.parent.mkdir()
    ...     Image.new("L", (28, 28)).save(photo)
    ...     _ = save_weights(weights, convnet(embedding_size=2), {"data": {"eval_transform": transform}})
    ...     count, skipped, understood = embed_folder(weights, photo.parent, Path(folder, "photos.npz"))
    >>> count, skipped
    (1, ())
    """
    weights_of(source)
    out = embeddings_file(images) if out is None else out
    check_place(out)
    embedder = Embedder.load(source, invert=invert, trust=trust)
    if embedder.model.inputs.takes != "images":
        raise ValueError(f"{source} takes {embedder.model.inputs.takes}: give a file of them; {images} is a folder")
    root = Path(os.path.abspath(images))  # without . and .., but links are not resolved
    folder = on_first(partial(read_folder, root))
    image_paths = [path for _, _, path in folder.images]
    if not image_paths:
        raise ValueError(_nothing(images, folder.skipped))
    names = [path.relative_to(root).as_posix() for path in image_paths]
    of = on_first(lambda: {**of_texts("names", names), **of_files(image_paths)})
    with begun(out, {"model": embedder.sha256, "inverted": invert, "folder": str(root), **of}) as parts:
        reason_of = dict(parts.kept("unreadable", partial(_unreadable, image_paths, names), _are_reasons))
        readable = [row for row, name in enumerate(names) if name not in reason_of]
        paths, classes = [image_paths[row] for row in readable], [folder.images[row][1] for row in readable]
        broken = ((str(root / name), reason) for name, reason in reason_of.items())
        skipped = tuple(sorted((*folder.skipped, *broken)))
        if not paths:
            on_first(parts.remove)
            raise ValueError(_nothing(images, skipped))
        if world()[0] == 0:
            embedder.check_ground(paths)
        table = embedder.table(paths, root, classes)
        embeddings = parts.embed(embedder, table, batch_size=batch_size, workers=workers, device=device)
        origin = Origin(root, embedder.weights, embedder.sha256, invert, threshold_of(embedder.weights, classes))
        on_first(partial(save_embeddings, out, embeddings, table, {"origin": str(origin)}))
    return len(paths), skipped, str(folder)


def _unreadable(paths: Sequence[Path], names: Sequence[str]) -> list[tuple[str, str]]:
    """(name, reason) of the files that cannot be used, in order; the processes share the work."""
    mine = range(len(paths))[share(len(paths))]
    reasons = on_all(lambda: check_images([paths[row] for row in mine]))
    told = gather_objects([(row, reason) for row, reason in zip(mine, reasons, strict=True) if reason is not None])
    return [(names[row], reason) for row, reason in sorted(entry for part in told for entry in part)]


def _are_reasons(kept: Any) -> bool:
    pairs = kept if isinstance(kept, list) else [None]
    return all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in pairs)


def _nothing(images: Path, skipped: Sequence[object]) -> str:
    return f"no readable image below {images}" + (f"; {len(skipped)} files skipped" if skipped else "")


def embeddings_file(images: Path) -> Path:
    """The default file for the embeddings of a folder: NAME.npz in the working directory, NAME from the folder.

    >>> embeddings_file(Path("photos/birds/")).name
    'birds.npz'
    """
    return Path(f"{Path(os.path.abspath(images)).name or 'embeddings'}.npz")
