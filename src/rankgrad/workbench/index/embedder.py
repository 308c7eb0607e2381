"""Image files, texts or vectors -> embeddings with a trained model, prepared as in its evaluation; and their origin."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...common.files import inside, read_npz, sha256_of
from ...datasets.base import ImageSet, Table
from ...datasets.rows import numbered
from ...datasets.transforms import InkEval, Transform
from ...models.embedding_model import EmbeddingModel, place_of
from ...models.state_dicts import DIVERGED, not_finite, sample
from ...models.weights import load_weights
from ...tables.parts import need_whole
from ...tasks.search.encoders import load_encoders
from ..config import make
from ..runs.folder import Run
from .threshold import Threshold

BATCH = 64  # images read and embedded at once


class GroundWarning(UserWarning):
    """The model learned bright ink on a dark background, but the drawings are dark on bright."""


@dataclass(frozen=True)
class Origin:
    """Origin of embeddings: the model, to embed further images in the same way, and the folder of the images.

    Attributes:
        root: absolute folder, the base of the names of the images; for texts, their file.
        model: absolute path of the weights.
        sha256: of the file of weights.
        invert: whether the images were inverted (255 - pixel) first.
        threshold: score below which nothing was found, from the run of the model; None: unknown.
    """

    root: Path
    model: Path
    sha256: str
    invert: bool = False
    threshold: Threshold | None = None

    def columns(self) -> dict[str, Any]:
        """Columns for an npz; `from_columns` reads them."""
        known = {"root": str(self.root), "model": str(self.model), "sha256": self.sha256, "invert": self.invert}
        if self.threshold is None:
            return known
        return {**known, "threshold": self.threshold.score, "threshold_wrong": self.threshold.wrong}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Origin | None:
        """Read the origin from the columns of an npz or json; None if root, model or sha256 is missing.

        Raises:
            ValueError: a value has a wrong type.
        """
        if any(name not in columns for name in ("root", "model", "sha256")):
            return None
        # in an npz each value is an array without dimensions
        names = ("root", "model", "sha256", "invert", "threshold", "threshold_wrong")
        given = {name: columns[name] for name in names if name in columns}
        values = {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in given.items()}
        invert = values.pop("invert", False)
        score, wrong = (values.pop(name, None) for name in ("threshold", "threshold_wrong"))
        if not all(value is None or type(value) is float for value in (score, wrong)):
            raise ValueError(f"threshold and threshold_wrong must be numbers; got {score!r}, {wrong!r}")
        threshold = None if score is None or wrong is None else Threshold(score, wrong)
        if not isinstance(invert, bool) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"root, model and sha256 must be texts, invert true or false; got {values}, {invert!r}")
        return cls(Path(values["root"]), Path(values["model"]), values["sha256"], invert, threshold)


@dataclass(frozen=True)
class Embedded:
    """Embeddings of images or texts, read from an npz.

    Attributes:
        embeddings: [image, dim] float32.
        names: of the images: paths relative to `origin.root`.
        labels: [image] long, the class of each as an index into class_names.
        class_names: of the classes.
        origin: model and folder; None: unknown.
        texts: [row] the texts of the rows; empty if the rows are not texts.
    """

    embeddings: npt.NDArray[np.float32]
    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    origin: Origin | None = None
    texts: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path, *, mapped: bool = False) -> Embedded:
        """Read the npz of `rankgrad embed`, or any npz with embeddings and names.

        Args:
            path: npz with embeddings [image, dim] and names [image]. Optional are labels [image], which are indices
                into class_names, or any integers or texts if there are no class_names; and the columns of `Origin`.
            mapped: map the embeddings into memory instead of reading them, if they are float32.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is not an npz, is damaged, has no embeddings or names, or a column has a wrong type or
                length.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: write it with rankgrad embed RUN DIR -o {path}")
        need_whole(path)
        columns = read_npz(path, "embeddings", "names", mapped="embeddings" if mapped else "")
        embeddings, names = columns["embeddings"], columns["names"]
        if embeddings.ndim != 2 or not embeddings.size or not np.issubdtype(embeddings.dtype, np.floating):
            raise ValueError(
                f"embeddings in {path} must be float [row, dim]; got {embeddings.dtype} {embeddings.shape}"
            )
        try:
            labels, class_names = _classes(columns, len(embeddings))
            origin = Origin.from_columns(columns)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if names.ndim != 1 or names.dtype.kind not in "Uiu":
            raise ValueError(f"names in {path} must be texts [row]; got {names.dtype} {names.shape}")
        if len(names) != len(embeddings) or len(labels) != len(embeddings):
            raise ValueError(
                f"{path} holds {len(embeddings)} embeddings, {len(names)} names and {len(labels)} labels; "
                "these numbers must be equal"
            )
        if "ref_embeddings" in columns:
            raise ValueError(f"{path} has separate queries and a gallery; an index needs one list of rows")
        called, texts = tuple(map(str, names.tolist())), _texts(path, columns, len(embeddings))
        if origin is not None and not texts:
            check_inside(path, called)
        with np.errstate(over="ignore"):  # the index refuses what is too large for float32
            rows = np.ascontiguousarray(embeddings, np.float32)
        return cls(rows, called, labels, class_names, origin, texts)


def _texts(path: Path, columns: Mapping[str, npt.NDArray[Any]], rows: int) -> tuple[str, ...]:
    """The texts of the rows; empty if there are none."""
    column = columns.get("texts")
    if column is None:
        return ()
    if column.shape != (rows,) or column.dtype.kind != "U":
        raise ValueError(f"texts in {path} must be texts [{rows}]; got {column.dtype} {column.shape}")
    return tuple(column.tolist())


def check_inside(path: Path, names: Sequence[str]) -> None:
    """Raise if a file names an image outside of its folder: its author could show any file of this machine.

    Raises:
        ValueError: a name is absolute, or contains "..".
    """
    # a cheap test first, since there may be a million names
    for name in names:
        if ".." not in name and ":" not in name and "\0" not in name and not name.startswith(("/", "\\")):
            continue
        try:
            inside(Path("its folder"), name)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _classes(columns: Mapping[str, npt.NDArray[Any]], images: int) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """(labels as indices into the names of the classes, these names).

    Raises:
        ValueError: labels are neither integers nor texts, or a label has no name.

    >>> _classes({"labels": np.array([-7, 1_000_000_000, -7])}, 3)
    (array([0, 1, 0]), ('-7', '1000000000'))
    """
    labels = columns.get("labels")
    if labels is None:
        return np.zeros(images, np.int64), ("",)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise ValueError(f"labels must be integers or texts, one per row; got {labels.dtype} {labels.shape}")
    if "class_names" not in columns:  # the labels are their own names
        known, places = np.unique(labels, return_inverse=True)
        return places.astype(np.int64), tuple(map(str, known.tolist()))
    names = columns["class_names"]
    if labels.dtype.kind == "U" or names.ndim != 1:
        raise ValueError("class_names [class] need labels that are integers, indices into them; remove class_names")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
        wrong = int(labels.max()) if int(labels.max()) >= len(names) else int(labels.min())
        there = f"no name for class {wrong}: {len(names)} class_names were given"
        raise ValueError(f"{there}. Complete them, or remove them")
    return labels.astype(np.int64), tuple(map(str, names.tolist()))


@dataclass(frozen=True)
class Inverted:
    """A transform of the inverted images: 255 - pixel, then the inner transform.

    >>> blank = torch.full((1, 2, 2), 255, dtype=torch.uint8)
    >>> Inverted(InkEval(size=2))([blank], torch.tensor([0]), epoch=0).max()
    tensor(0.)
    """

    transform: Transform

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Apply the inner transform to the inverted images."""
        return self.transform([255 - image for image in images], index, epoch)


@dataclass(frozen=True)
class Embedder:
    """A trained model with the preparation of its inputs.

    Args:
        model: in eval mode.
        transform: of its evaluation.
        reading: how its training read files: `shorter_side`, `draft`, see `datasets.Table`.
        weights: the file from which it was loaded.
        sha256: of that file.
        invert: invert images (255 - pixel) first.
        asked: embeds what a search asks, if that has a prompt or an encoder of its own; None: as the rows.

    >>> import tempfile
    >>> from PIL import Image
    >>> from rankgrad.models import convnet
    >>> embedder = Embedder(convnet(embedding_size=2).eval(), InkEval(size=28), {}, Path("model.pt"), sha256="")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (28, 28)).save(Path(folder, "0.png"))
    ...     embedder([Path(folder, "0.png")]).shape
    torch.Size([1, 2])
    """

    model: EmbeddingModel
    transform: Transform
    reading: Mapping[str, Any]
    weights: Path
    sha256: str
    invert: bool = False
    asked: Embedder | None = None

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        invert: bool = False,
        trust: Sequence[str] = (),
        device: torch.device | str | None = None,
    ) -> Embedder:
        """The model of a run. That of task=search embeds documents, and `asked` the queries.

        Args:
            source: folder of a finished run, or its model.pt.
            invert: invert images (255 - pixel) first. Use it for dark ink on paper, if the model learned bright ink on
                a dark background (Omniglot and the glyphs).
            trust: packages whose transforms the file may name besides ours; see `allowed.packages`.
            device: where the model computes; None: on the CPU.

        Raises:
            FileNotFoundError: the run does not exist or is not finished.
            ValueError: the file holds no weights of a run, does not name a transform, or names something else; no code
                of it was run then.
        """
        weights = weights_of(source)
        model, extra = load_weights(weights)
        wrong = not_finite(model.state_dict())
        if wrong:
            raise ValueError(f"{weights}: the weights {sample(wrong)} have NaN or infinity, {DIVERGED}")
        takes = model.inputs.takes
        kinds: dict[str, type[Embedder]] = {"texts": TextEmbedder, "vectors": VectorEmbedder}
        if invert and takes != "images":
            raise ValueError(f"invert is for images, but {weights} takes {takes}")
        if extra.get("task") == "search":
            return _of_search(weights, device)
        data = extra.get("data")
        if not isinstance(data, dict) or "eval_transform" not in data:
            raise ValueError(
                f"{weights} does not name the transform of its {takes}, so it is not from a run. Embed with "
                "training.embed and your own transform"
            )
        where = f"{weights}: data.eval_transform"
        transform: Transform = make(data["eval_transform"], slot="transform", trust=trust, where=where)
        load = data.get("load", {})
        side, draft = (load.get("shorter_side"), load.get("draft", False)) if isinstance(load, dict) else (0, False)
        if not (side is None or (isinstance(side, int) and side > 0)) or not isinstance(draft, bool):
            raise ValueError(f"{weights} is damaged: data.load has shorter_side={side!r}, draft={draft!r}")
        reading = {"shorter_side": side, "draft": draft}
        model = model if device is None else model.to(device)
        return kinds.get(takes, cls)(
            model, Inverted(transform) if invert else transform, reading, weights.absolute(), sha256_of(weights), invert
        )

    def table(self, paths: Sequence[Path], root: Path, classes: Sequence[str] | None = None) -> Table:
        """The files as a table, with the reading settings of the training.

        Args:
            paths: of images, below root.
            root: base folder of their names.
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
        """[image, channel, height, width] float32: the files as input of the model.

        Raises:
            OSError: a file cannot be read; it names the file.
        """
        paths = [Path(path).absolute() for path in paths]
        images = ImageSet(self.table(paths, Path(paths[0].anchor)))
        return self.transform([images[row][0] for row in range(len(paths))], torch.arange(len(paths)), epoch=0)

    def __call__(self, paths: Sequence[Any]) -> Tensor:
        """[image, dim] float32 embeddings of image files, on the CPU, not normalised.

        Raises:
            ValueError: no paths.
            OSError: a file cannot be read; it names the file.
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
        """Warn if the first drawings are mostly bright, since the model learned bright ink on a dark background."""
        inner = self.transform.transform if isinstance(self.transform, Inverted) else self.transform
        if not isinstance(inner, InkEval) or not paths:
            return
        bright = float(self.pixels(paths[:BATCH]).mean())
        if bright > 0.5:  # ink covers less than half of a drawing
            change = "leave out --invert (invert=True)" if self.invert else "use --invert (invert=True)"
            warnings.warn(
                f"this model learned bright ink on a dark background, but these images are mostly bright (mean "
                f"{bright:.2f} of 1): {change}",
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
            given = self.transform(texts, torch.arange(len(texts)), epoch=0)
            parts = [self.model(given[start : start + BATCH]).float().cpu() for start in range(0, len(given), BATCH)]
        return torch.cat(parts).clone()


@dataclass(frozen=True)
class Prompted:
    """Puts a prompt before each text.

    >>> Prompted("query: ")(["my card"], torch.tensor([0]), epoch=0)
    ['query: my card']
    """

    prompt: str

    def __call__(self, texts: Sequence[str], index: Tensor, epoch: int) -> list[str]:
        """Return the texts of a batch, for a model of texts."""
        return [self.prompt + text for text in texts]


def _of_search(weights: Path, device: torch.device | str | None) -> TextEmbedder:
    """The encoders of a search with their prompts."""
    encoders = load_encoders(weights)
    encoders = encoders if device is None else encoders.to(device)
    place, digest = weights.absolute(), sha256_of(weights)
    prompted: dict[str, Any] = {side: Prompted(prompt) for side, prompt in encoders.prompts.items()}
    query, document = (
        TextEmbedder(encoder, prompted[side], {}, place, digest)
        for side, encoder in (("query", encoders.query), ("document", encoders.document))
    )
    return replace(document, asked=query)


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
    """The file of weights in the folder of a run; or `source` itself, if it is a file.

    Raises:
        FileNotFoundError: the file does not exist.
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
