"""Image files or texts -> embeddings with a trained model, read as its evaluation did; where they came from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import make
from ..datasets.base import ImageSet, Table
from ..datasets.rows import numbered
from ..datasets.transforms import InkEval, Transform
from ..files import inside, read_npz, sha256_of
from ..models.embedding_model import EmbeddingModel, place_of
from ..models.weights import load_weights
from ..runs.folder import Run

BATCH = 64  # images read and embedded at once


class GroundWarning(UserWarning):
    """Drawings that are dark on bright were given to a model that learned bright ink on a dark ground."""


@dataclass(frozen=True)
class Origin:
    """Where embeddings came from: what it takes to embed further images alike, and to find the old ones again.

    Attributes:
        root: absolute folder that the names of the images are relative to; of texts, their file.
        model: absolute path of the weights.
        sha256: of the file of weights.
        invert: the images were turned to their negatives first.
    """

    root: Path
    model: Path
    sha256: str
    invert: bool = False

    def columns(self) -> dict[str, Any]:
        """For an npz; `from_columns` is the way back."""
        return {"root": str(self.root), "model": str(self.model), "sha256": self.sha256, "invert": self.invert}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Origin | None:
        """Read the columns of an npz or json; None if they do not say.

        Raises:
            ValueError: values of other kinds.
        """
        if any(name not in columns for name in ("root", "model", "sha256")):
            return None
        # in an npz each is an array without dimensions
        given = {name: columns[name] for name in ("root", "model", "sha256", "invert") if name in columns}
        values = {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in given.items()}
        invert = values.pop("invert", False)
        if not isinstance(invert, bool) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"root, model and sha256 are texts, invert is true or false; got {values}, {invert!r}")
        return cls(Path(values["root"]), Path(values["model"]), values["sha256"], invert)


@dataclass(frozen=True)
class Embedded:
    """Embeddings of images or texts, as an npz holds them.

    Attributes:
        embeddings: [image, dim] float32.
        names: of the images: paths relative to `origin.root`.
        labels: [image] long, the class of each: its place in class_names.
        class_names: of the classes.
        origin: model and folder; None if the file does not say.
        texts: what the rows are, where that is text; empty where it is not.
    """

    embeddings: npt.NDArray[np.float32]
    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    origin: Origin | None = None
    texts: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path, *, mapped: bool = False) -> Embedded:
        """Read the npz of `rankgrad embed`, or any that holds embeddings and names.

        Args:
            path: npz with embeddings [image, dim] and names [image]; optionally labels [image], which are places in
                class_names, or without these any integers or texts; and what `Origin.columns` holds.
            mapped: leave the embeddings in the file, if they are float32; memory holds what of them is looked at.

        Raises:
            FileNotFoundError: no such file.
            ValueError: no npz, a damaged one, one without embeddings or names, columns of other kinds or lengths.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no embeddings at {path}: write them with rankgrad embed RUN DIR -o {path}")
        columns = read_npz(path, "embeddings", "names", mapped="embeddings" if mapped else "")
        embeddings, names = columns["embeddings"], columns["names"]
        if embeddings.ndim != 2 or not len(embeddings) or not np.issubdtype(embeddings.dtype, np.floating):
            raise ValueError(
                f"embeddings in {path} must be float [image, dim]; got {embeddings.dtype} {embeddings.shape}"
            )
        try:
            labels, class_names = _classes(columns, len(embeddings))
            origin = Origin.from_columns(columns)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if names.ndim != 1 or names.dtype.kind not in "Uiu":
            raise ValueError(f"names in {path} must be texts [image]; got {names.dtype} {names.shape}")
        if len(names) != len(embeddings) or len(labels) != len(embeddings):
            raise ValueError(
                f"{path} holds {len(embeddings)} embeddings, {len(names)} names and {len(labels)} labels; "
                "each image has one of each"
            )
        if "ref_embeddings" in columns:
            raise ValueError(f"{path} is divided into queries and a gallery; an index takes one list of images")
        called, texts = tuple(map(str, names.tolist())), _texts(path, columns, len(embeddings))
        if origin is not None:
            check_inside(path, called)
        return cls(np.ascontiguousarray(embeddings, np.float32), called, labels, class_names, origin, texts)


def _texts(path: Path, columns: Mapping[str, npt.NDArray[Any]], rows: int) -> tuple[str, ...]:
    """What the rows are, where that is text."""
    column = columns.get("texts")
    if column is None:
        return ()
    if column.shape != (rows,) or column.dtype.kind != "U":
        raise ValueError(f"texts in {path} must be texts [{rows}]; got {column.dtype} {column.shape}")
    return tuple(column.tolist())


def check_inside(path: Path, names: Sequence[str]) -> None:
    """Raise if a file names an image that is not below its folder: whoever wrote it would choose what is shown.

    Raises:
        ValueError: a name that is absolute, or that goes up with "..".
    """
    # a million names are looked at in a blink; what looks odd is asked about
    for name in names:
        if ".." not in name and ":" not in name and "\0" not in name and not name.startswith(("/", "\\")):
            continue
        try:
            inside(Path("its folder of images"), name)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _classes(columns: Mapping[str, npt.NDArray[Any]], images: int) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels as places in the names of the classes.

    Raises:
        ValueError: labels that are no integers or texts, or that have no name.

    >>> _classes({"labels": np.array([-7, 1_000_000_000, -7])}, 3)
    (array([0, 1, 0]), ('-7', '1000000000'))
    """
    labels = columns.get("labels")
    if labels is None:
        return np.zeros(images, np.int64), ("",)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise ValueError(f"labels must be integers or texts, one per image; got {labels.dtype} {labels.shape}")
    if "class_names" not in columns:  # labels without names are their own
        known, places = np.unique(labels, return_inverse=True)
        return places.astype(np.int64), tuple(map(str, known.tolist()))
    names = columns["class_names"]
    if labels.dtype.kind == "U" or names.ndim != 1:
        raise ValueError("class_names [class] belong to labels that are integers, places in them; leave them out")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
        wrong = int(labels.max()) if int(labels.max()) >= len(names) else int(labels.min())
        there = f"no name for class {wrong}: {len(names)} class_names were given"
        raise ValueError(f"{there}. Complete them, or leave them out")
    return labels.astype(np.int64), tuple(map(str, names.tolist()))


@dataclass(frozen=True)
class Inverted:
    """A transform of the negatives: 255 - pixel, then the transform.

    >>> blank = torch.full((1, 2, 2), 255, dtype=torch.uint8)
    >>> Inverted(InkEval(size=2))([blank], torch.tensor([0]), epoch=0).max()
    tensor(0.)
    """

    transform: Transform

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """As the transform inside, of the negatives."""
        return self.transform([255 - image for image in images], index, epoch)


@dataclass(frozen=True)
class Embedder:
    """A trained model with what it takes to feed files to it.

    Args:
        model: in eval mode.
        transform: of its evaluation.
        reading: how its training read files: `shorter_side`, `draft`, see `datasets.Table`.
        weights: the file it was loaded from.
        sha256: of that file.
        invert: turn images to their negatives first.
    """

    model: EmbeddingModel
    transform: Transform
    reading: Mapping[str, Any]
    weights: Path
    sha256: str
    invert: bool = False

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        invert: bool = False,
        trust: Sequence[str] = (),
        device: torch.device | str | None = None,
    ) -> Embedder:
        """The model of a run.

        Args:
            source: folder of a finished run, or its model.pt.
            invert: turn images to their negatives first: for dark ink on paper, where the model learned bright ink on
                a dark ground (Omniglot and the glyphs).
            trust: packages whose transforms the file may name beside ours; see `targets.packages`.
            device: where the model computes; None: on the CPU.

        Raises:
            FileNotFoundError: no run, or an unfinished one.
            ValueError: no weights of a run, weights that do not say how images were prepared, or that name something
                which is no transform; nothing was run then.
        """
        weights = weights_of(source)
        model, extra = load_weights(weights)
        takes = model.inputs.takes
        kinds: dict[str, type[Embedder]] = {"texts": TextEmbedder, "vectors": VectorEmbedder}
        if invert and takes != "images":
            raise ValueError(f"invert turns images to their negatives, and {weights} takes {takes}")
        data = extra.get("data")
        if not isinstance(data, dict) or "eval_transform" not in data:
            raise ValueError(
                f"{weights} does not say how its images were prepared: it was not written by a run. Embed with "
                "training.embed and your own transform"
            )
        where = f"{weights}: data.eval_transform"
        transform: Transform = make(data["eval_transform"], slot="transform", trust=trust, where=where)
        load = data.get("load", {})
        side, draft = (load.get("shorter_side"), load.get("draft", False)) if isinstance(load, dict) else (0, False)
        if not (side is None or (isinstance(side, int) and side > 0)) or not isinstance(draft, bool):
            raise ValueError(f"{weights} is damaged: data.load says shorter_side={side!r}, draft={draft!r}")
        reading = {"shorter_side": side, "draft": draft}
        model = model if device is None else model.to(device)
        return kinds.get(takes, cls)(
            model, Inverted(transform) if invert else transform, reading, weights.absolute(), sha256_of(weights), invert
        )

    def table(self, paths: Sequence[Path], root: Path, classes: Sequence[str] | None = None) -> Table:
        """The files as a table that is read as in training.

        Args:
            paths: of images, below root.
            root: that their names are relative to.
            classes: [image] names; None: the images have no classes.
        """
        names = [path.relative_to(root).as_posix() for path in paths]
        class_names, label = numbered([""] * len(paths) if classes is None else classes)
        return Table(
            name=str(root),
            label=label,
            class_names=class_names,
            split=("test",) * len(paths),
            names=tuple(names),
            channels=self.model.in_channels,
            paths=tuple(paths),
            **self.reading,
        )

    def pixels(self, paths: Sequence[Path]) -> Tensor:
        """[image, channel, height, width] float32: what the model sees of these files.

        Raises:
            OSError: a file can't be read; it names the file.
        """
        paths = [Path(path).absolute() for path in paths]
        images = ImageSet(self.table(paths, Path(paths[0].anchor)))
        return self.transform([images[row][0] for row in range(len(paths))], torch.arange(len(paths)), epoch=0)

    def __call__(self, paths: Sequence[Any]) -> Tensor:
        """[image, dim] float32 embeddings of image files, on the CPU, not normalised.

        Raises:
            ValueError: no paths.
            OSError: a file can't be read; it names the file.
        """
        if not paths:
            raise ValueError("no image to embed")
        parts, device = [], place_of(self.model)[0]
        with torch.inference_mode():
            for start in range(0, len(paths), BATCH):
                pixels = self.pixels(paths[start : start + BATCH])
                parts.append(self.model(pixels.to(device)).float().cpu())
        return torch.cat(parts).clone()

    def check_ground(self, paths: Sequence[Path]) -> None:
        """Warn if drawings look like the negatives of what the model learned, judging by the first files."""
        inner = self.transform.transform if isinstance(self.transform, Inverted) else self.transform
        if not isinstance(inner, InkEval) or not paths:
            return
        bright = float(self.pixels(paths[:BATCH]).mean())
        if bright > 0.5:  # ink covers the smaller part of a drawing
            change = "leave out --invert (invert=True)" if self.invert else "give --invert (invert=True)"
            warnings.warn(
                f"this model learned bright ink on a dark ground, but these images are mostly bright (mean "
                f"{bright:.2f} of 1): {change}, else it looks at the paper",
                GroundWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class TextEmbedder(Embedder):
    """A trained model of texts; see `Embedder`."""

    def __call__(self, texts: Sequence[Any]) -> Tensor:
        """[text, dim] float32 embeddings of texts, on the CPU, not normalised.

        Raises:
            ValueError: no texts.
        """
        if not texts:
            raise ValueError("no text to embed")
        with torch.inference_mode():
            parts = [
                self.model(list(texts[start : start + BATCH])).float().cpu() for start in range(0, len(texts), BATCH)
            ]
        return torch.cat(parts).clone()


@dataclass(frozen=True)
class VectorEmbedder(Embedder):
    """A trained head on vectors; see `Embedder`."""

    def __call__(self, vectors: Sequence[Any]) -> Tensor:
        """[row, dim] float32 embeddings of vectors [row, width], on the CPU, not normalised."""
        where, dtype = place_of(self.model)
        with torch.inference_mode():
            embeddings: Tensor = self.model(torch.as_tensor(vectors, device=where, dtype=dtype))
        return embeddings.float().cpu().clone()


def weights_of(source: str | Path) -> Path:
    """The file of weights that a run's folder holds, or the file itself.

    Raises:
        FileNotFoundError: there is none.
    """
    source = Path(source)
    path = Run(source).weights if source.is_dir() else source
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a finished run, or its model.pt")
    return path


__all__ = [
    "Embedded",
    "Embedder",
    "GroundWarning",
    "Inverted",
    "Origin",
    "TextEmbedder",
    "VectorEmbedder",
    "sha256_of",
    "weights_of",
]
