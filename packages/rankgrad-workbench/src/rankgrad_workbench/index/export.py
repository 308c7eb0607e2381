"""Writes a model to one file that needs only torch: a program of torch.export, with a description of its input.

    import json, torch
    words = {"rankgrad.json": ""}
    program = torch.export.load("model.pt2", extra_files=words)
    embeddings = program.module()(images)            # float32 [batch, channel, height, width], prepared as it says
    about = json.loads(words["rankgrad.json"])

The file is written only if its program, read back, gives the same embeddings as the model, on real images and for
several batch sizes.
"""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad._version import __version__
from rankgrad.common.text import shown

from ..datasets.base import ImageSet, Table
from ..datasets.folder import find_images
from ..datasets.rows import Rows
from ..datasets.transforms import InkEval, PhotoEval
from ..files import atomic_write
from ..models.weights import load_weights
from ..settings import make, named
from ..settings.allowed import check
from .embedder import Embedder, Inverted

FORMAT = "rankgrad-export-1"
ABOUT = "rankgrad.json"  # name of the description inside the file
TOLERANCE = 1e-4
CHECKED = 32  # number of real images on which the program is checked


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
    normalize: bool = True,
    trust: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the model of a run for use without rankgrad, after a comparison with the original.

    Args:
        source: folder of a finished run, or its model.pt.
        out: file to write, usually `NAME.pt2`; an existing file is replaced.
        images: folder of images for the comparison; None: the data of the run.
        normalize: the program returns embeddings of length 1, as `rankgrad embed`; False: what the model returns.
        trust: packages of your own classes, see `Embedder.load`.

    Returns:
        The description in the file (`rankgrad.json`), and the largest difference that was observed: at most
        `TOLERANCE`, times the largest entry of an embedding if that is above 1.

    Raises:
        FileNotFoundError: the run, the images for the comparison, or the folder of `out` does not exist.
        ValueError: the model cannot be exported (models of texts never can), or the program differs from it. Nothing
            is written then.
    """
    out = Path(out)
    need_file(out)
    embedder = Embedder.load(source, trust=trust)
    if embedder.model.inputs.takes == "texts":
        raise ValueError(f"{source} takes texts: give a folder that does not exist yet, for sentence-transformers")
    model, pixels = (Normalized(embedder.model) if normalize else embedder.model), real_inputs(embedder, images, trust)
    program = exported(model.eval(), pixels)
    about = describe(embedder, normalize=normalize)
    about["checked"] = {"images": len(pixels), "tolerance": TOLERANCE}
    memory = BytesIO()  # not the file itself: on a full disk, torch would end the process
    with quiet():
        # the file holds the tolerance; the difference is known only later, and the caller gets it
        torch.export.save(program, memory, extra_files={ABOUT: json.dumps(about, indent=1)})
        memory.seek(0)
        again = torch.export.load(memory).module()
    sizes = sorted({1, min(3, len(pixels)), len(pixels)})
    about["checked"]["largest_difference"] = difference(model, again, [(pixels[:size],) for size in sizes])
    with atomic_write(out) as file:
        file.write(memory.getbuffer())
    return about


def need_file(out: Path) -> None:
    """Raise unless a file can be written there."""
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{shown(out)} cannot be written: give a file in an existing folder")


def exported(model: nn.Module, pixels: Tensor) -> torch.export.ExportedProgram:
    """The program of a model, for batches of any size.

    Args:
        model: in eval mode.
        pixels: example [image, channel, height, width], whose height and width become fixed; or vectors [row, width].

    Raises:
        ValueError: torch.export cannot export the model.
    """
    example = torch.cat([pixels, pixels])[:2]  # torch.export treats a batch size of 1 as a constant
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(model, (example.clone(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # torch raises many types, and the model may raise any
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"torch.export cannot export this model: {reason}") from error


def describe(embedder: Embedder, *, normalize: bool = True) -> dict[str, Any]:
    """Description for users of the file: input, output, preparation of an image, origin."""
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
    """Shape of the input; for images also their colour."""
    model = embedder.model
    if model.inputs.takes == "vectors":
        return {"shape": ["batch", model.inputs.asks["width"]]}
    size = _size(embedder)
    return {
        "shape": ["batch", model.in_channels, size, size],
        "colour": "grey" if model.in_channels == 1 else "RGB",
    }


def preparation(embedder: Embedder) -> list[dict[str, Any]]:
    """Steps from an image file to the input, in order, as plain values.

    Raises:
        ValueError: the transform is your own, and this function cannot describe it.
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
    if type(transform) is InkEval:  # not a subclass, which may do anything
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
            f"{type(transform).__name__} is your own transform: export the model with export.exported, and describe "
            "the preparation of images yourself"
        )
    return steps


def _size(embedder: Embedder) -> int:
    transform = embedder.transform.transform if isinstance(embedder.transform, Inverted) else embedder.transform
    return int(transform.size)  # type: ignore[attr-defined]


def real_inputs(embedder: Embedder, images: str | Path | None, trust: Sequence[str]) -> Tensor:
    """[image, channel, height, width] of images for the comparison, evenly spaced over the data; or vectors."""
    takes, folder = embedder.model.inputs.takes, None if images is None else Path(images)
    if folder is not None and takes != "images":
        raise ValueError(f"--images is for a model of images; {embedder.weights} takes {takes}")
    if folder is not None:
        paths, _ = find_images(folder, check=False)
        if not paths:
            raise FileNotFoundError(f"no image below {folder} for the comparison with the exported model")
        return _readable(lambda row: embedder.pixels([paths[row]])[0], _spread(len(paths)))
    _, extra = load_weights(embedder.weights)
    where = f"{embedder.weights}: data.load"
    load = extra["data"].get("load")
    check(load, "data", trust=trust, where=where)
    try:
        table = _table(load, trust, where)
    except (OSError, ValueError) as error:
        instead = ". Give images for the comparison with --images DIR" if takes == "images" else ""
        raise FileNotFoundError(f"the {takes} of this run cannot be read ({error}){instead}") from None
    rows = _spread(len(table))
    given: Any = ImageSet(table, embedder.model.in_channels) if isinstance(table, Table) else table.dataset()
    return _readable(lambda row: embedder.transform([given[row][0]], torch.tensor([row]), epoch=0)[0], rows)


def _readable(read: Callable[[int], Tensor], rows: Sequence[int]) -> Tensor:
    """The inputs of these rows without the unreadable files, which a training leaves out, too."""
    pixels, last = [], None
    for row in rows:
        try:
            pixels.append(read(row))
        except OSError as error:
            last = error
    if not pixels and last is not None:
        raise last
    return torch.stack(pixels)


def _table(load: Any, trust: Sequence[str], where: str) -> Rows:
    """The data of a run, without a check of every file and without a cache, since only a few images are needed."""
    takes = inspect.signature(named(load, slot="data", trust=trust, where=where)).parameters
    cheap = {name: value for name, value in (("check", False), ("cache", "none")) if name in takes}
    table: Rows = make({**load, **cheap}, slot="data", trust=trust, where=where)
    return table


def _spread(count: int) -> list[int]:
    return sorted({round(place) for place in torch.linspace(0, count - 1, min(CHECKED, count)).tolist()})


def difference(
    model: nn.Module, again: Callable[..., Tensor], batches: Sequence[tuple[Any, ...]], tolerance: float = TOLERANCE
) -> float:
    """The largest difference of an entry of an embedding between a model and what was exported.

    Args:
        model: the original.
        again: what was exported, of the same arguments.
        batches: the arguments.
        tolerance: largest accepted difference, times the largest entry of an embedding if that is above 1.

    Raises:
        ValueError: the difference is larger, or not a number.
    """
    with torch.no_grad():
        pairs = [(model(*batch).float(), again(*batch).float()) for batch in batches]
    worst = float(torch.stack([(found - wanted).abs().max() for wanted, found in pairs]).max())  # max() loses a NaN
    allowed = tolerance * max(1.0, *(float(wanted.abs().max()) for wanted, _ in pairs))
    if not worst <= allowed:
        raise ValueError(
            f"what was exported differs from the model by {worst:.3g}, more than {allowed:.3g}: nothing was written. "
            "Does the output of the model depend on more than its input?"
        )
    return worst


@contextmanager
def quiet() -> Iterator[None]:
    """Context without torch's internal warnings and log messages."""
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
