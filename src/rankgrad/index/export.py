"""A model as one file that needs torch alone: torch.export's program, with a description of its input inside.

    import json, torch
    words = {"rankgrad.json": ""}
    program = torch.export.load("model.pt2", extra_files=words)
    embeddings = program.module()(images)            # float32 [batch, channel, height, width], prepared as it says
    about = json.loads(words["rankgrad.json"])

The file is written only if the program that is read back from it gives the embeddings of the model, on real images and
in batches of several sizes.
"""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._version import __version__
from ..config import make, named
from ..datasets.base import ImageSet, Table
from ..datasets.folder import find_images
from ..datasets.rows import Rows
from ..datasets.transforms import InkEval, PhotoEval
from ..files import atomic_write
from ..models.weights import load_weights
from ..targets import check
from .embedder import Embedder, Inverted

FORMAT = "rankgrad-export-1"
ABOUT = "rankgrad.json"  # name of the description inside the file
TOLERANCE = 1e-4
CHECKED = 32  # real images that the program is tried on


class Normalized(nn.Module):
    """A model whose embeddings have length 1, so that an inner product is the cosine.

    Args:
        model: images -> embeddings.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """[image, channel, height, width] -> [image, dim] of length 1; an embedding of zeros stays zeros."""
        return F.normalize(self.model(images).float(), dim=1)


def export(
    source: str | Path,
    out: str | Path,
    *,
    images: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the model of a run for use without rankgrad, after comparing it with the original.

    Args:
        source: folder of a finished run, or its model.pt.
        out: file to write, usually `NAME.pt2`; replaced as a whole.
        images: folder of images to compare on; None: those that the run was made with.
        normalize: embeddings of length 1 come out; False: as the model gives them.
        tolerance: largest difference that is accepted, times the largest entry of an embedding where that is above 1.
        trust: packages of your own classes, see `Embedder.load`.

    Returns:
        What the file says about itself (`rankgrad.json` inside it), with the largest difference that was seen.

    Raises:
        FileNotFoundError: no run, no images to compare on, or no folder to write into.
        ValueError: the model can't be exported (one that takes texts never can), or the program differs from it.
            Nothing is written then.
    """
    out = Path(out)
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: give a file in a folder that exists")
    embedder = Embedder.load(source, trust=trust)
    if embedder.model.inputs.takes == "texts":
        raise ValueError(
            f"{source} takes texts, and dividing and hashing them is nothing that torch.export can hold. Load its "
            "model.pt with rankgrad.models.load_weights, or embed with rankgrad embed"
        )
    pixels = _real_pixels(embedder, None if images is None else Path(images), trust)
    model: nn.Module = Normalized(embedder.model) if normalize else embedder.model
    program = exported(model.eval(), pixels)
    about = describe(embedder, normalize=normalize)
    about["checked"] = {"images": len(pixels), "tolerance": tolerance}
    memory = BytesIO()  # and not the file itself: where the disk is full, torch ends the process
    with _quiet():
        # the difference is not known yet; it goes to the caller, the file keeps what it was held to
        torch.export.save(program, memory, extra_files={ABOUT: json.dumps(about, indent=1)})
        memory.seek(0)
        again = torch.export.load(memory).module()
    about["checked"]["largest_difference"] = _compare(model, again, pixels, tolerance)
    with atomic_write(out) as file:
        file.write(memory.getbuffer())
    return about


def exported(model: nn.Module, pixels: Tensor) -> torch.export.ExportedProgram:
    """The program of a model, for batches of any size.

    Args:
        model: in eval mode.
        pixels: [image, channel, height, width] example; height and width become fixed. Or vectors [row, width].

    Raises:
        ValueError: torch.export can't follow the model.
    """
    example = torch.cat([pixels, pixels])[:2]  # a batch of 1 would be taken for constant
    try:
        with _quiet(), torch.no_grad():
            return torch.export.export(model, (example.clone(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # torch's own, of many kinds, and whatever the model raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"torch.export can't follow this model: {reason}") from error


def describe(embedder: Embedder, *, normalize: bool = False) -> dict[str, Any]:
    """What a user of the file must know: input, output, how to prepare an image, where it came from."""
    model = embedder.model
    return {
        "format": FORMAT,
        "input": {"name": model.inputs.takes, "dtype": "float32", **_input(embedder)},
        "preparation": preparation(embedder) if model.inputs.takes == "images" else [],
        "output": {"dtype": "float32", "shape": ["batch", model.embedding_size], "normalized": normalize},
        "similarity": "inner product" if normalize else "cosine",
        "model": model.config,
        "weights_sha256": embedder.sha256,
        "rankgrad": __version__,
        "torch": torch.__version__,
    }


def _input(embedder: Embedder) -> dict[str, Any]:
    """Shape of the input, and of images their colour."""
    model = embedder.model
    if model.inputs.takes == "vectors":
        return {"shape": ["batch", model.inputs.asks["width"]]}
    size = _size(embedder)
    return {
        "shape": ["batch", model.in_channels, size, size],
        "colour": "grey" if model.in_channels == 1 else "RGB",
    }


def preparation(embedder: Embedder) -> list[dict[str, Any]]:
    """Steps from an image file to the input, in their order, as plain values.

    Raises:
        ValueError: a transform of one's own, which can't be put into words here.
    """
    steps: list[dict[str, Any]] = [
        {"step": "decode", "mode": "L" if embedder.model.in_channels == 1 else "RGB", "transparent": "white"}
    ]
    shorter = embedder.reading.get("shorter_side")
    if shorter is not None:
        steps.append({"step": "shrink", "shorter_side": shorter, "filter": "bilinear, antialiased", "to": "uint8"})
    transform = embedder.transform
    if isinstance(transform, Inverted):
        steps.append({"step": "invert"})
        transform = transform.transform
    if type(transform) is InkEval:  # one derived from it may do anything
        steps += [
            {"step": "divide", "by": 255, "note": "ink is bright on a dark ground"},
            {"step": "resize", "height": transform.size, "width": transform.size, "filter": "bilinear, antialiased"},
        ]
    elif type(transform) is PhotoEval:
        resize = transform.resize
        sides = {"shorter_side": resize} if isinstance(resize, int) else {"height": resize[0], "width": resize[1]}
        steps += [
            {"step": "resize", **sides, "filter": "bilinear, antialiased", "to": "uint8"},
            {"step": "centre_crop", "size": transform.size},
            {"step": "divide", "by": 255},
            {"step": "normalize", "mean": list(transform.mean), "std": list(transform.std)},
        ]
    else:
        raise ValueError(
            f"{type(transform).__name__} is a transform of your own: export the model with export.exported, and "
            "describe how images are prepared yourself"
        )
    return steps


def _size(embedder: Embedder) -> int:
    transform = embedder.transform.transform if isinstance(embedder.transform, Inverted) else embedder.transform
    return int(transform.size)  # type: ignore[attr-defined]


def _real_pixels(embedder: Embedder, folder: Path | None, trust: Sequence[str]) -> Tensor:
    """[image, channel, height, width] of images to compare on, spread over those there are; or vectors."""
    takes = embedder.model.inputs.takes
    if folder is not None and takes != "images":
        raise ValueError(f"--images is for a model of images; {embedder.weights} takes {takes}")
    if folder is not None:
        paths, _ = find_images(folder, check=False)
        if not paths:
            raise FileNotFoundError(f"no image below {folder} to compare the exported model on")
        return embedder.pixels([paths[row] for row in _spread(len(paths))])
    _, extra = load_weights(embedder.weights)
    where = f"{embedder.weights}: data.load"
    load = extra["data"].get("load")
    check(load, "data", trust=trust, where=where)
    try:
        table = _table(load, trust, where)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"the {takes} of this run are not there any more ({error}). Say with --images DIR what to compare the "
            "exported model on"
        ) from None
    rows = _spread(len(table))
    images: Any = ImageSet(table, embedder.model.in_channels) if isinstance(table, Table) else table.dataset()
    return embedder.transform([images[row][0] for row in rows], torch.tensor(rows), epoch=0)


def _table(load: Any, trust: Sequence[str], where: str) -> Rows:
    """The data of a run, without looking at every file or filling a cache: a few images are wanted."""
    takes = inspect.signature(named(load, slot="data", trust=trust, where=where)).parameters
    cheap = {name: value for name, value in (("check", False), ("cache", "none")) if name in takes}
    table: Rows = make({**load, **cheap}, slot="data", trust=trust, where=where)
    return table


def _spread(count: int) -> list[int]:
    return sorted({round(place) for place in torch.linspace(0, count - 1, min(CHECKED, count)).tolist()})


def _compare(model: nn.Module, program: nn.Module, pixels: Tensor, tolerance: float) -> float:
    """Largest difference over batches of all, of several sizes; raises if it is too large."""
    with torch.no_grad():
        wanted = model(pixels).float()
        worst = 0.0
        for size in sorted({1, min(3, len(pixels)), len(pixels)}):
            outputs = torch.cat([program(part).float() for part in torch.split(pixels, size)])
            worst = max(worst, float((outputs - wanted).abs().max()))
    allowed = tolerance * max(1.0, float(wanted.abs().max()))
    if not worst <= allowed:
        raise ValueError(
            f"the exported program differs from the model by {worst:.3g}, more than {allowed:.3g}: nothing was "
            "written. Does the model do something that depends on more than its input?"
        )
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remarks about its own insides."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


__all__ = ["ABOUT", "Normalized", "describe", "export", "exported", "preparation"]
