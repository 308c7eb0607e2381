"""Image files, texts or vectors -> embeddings with a trained model, prepared as in its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from rankgrad.ranks.normalize import unit_rows

from ..datasets.base import Table, read_image
from ..datasets.rows import numbered
from ..datasets.transforms import Transform
from ..files import sha256_of
from ..models.embedding_model import EmbeddingModel, moved, place_of
from ..models.state_dicts import DIVERGED, not_finite, sample
from ..models.weights import load_weights
from ..runs.folder import Run
from ..settings import make
from ..tasks.search.encoders import load_encoders

BATCH = 64  # images read and embedded at once


@dataclass(frozen=True)
class Inverted:
    """A transform of the inverted images: 255 - pixel, then the inner transform.

    >>> from rankgrad_workbench.datasets.transforms import InkEval
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
        transform: of its evaluation; for texts, puts their prompt before them.
        reading: how its training read files: `shorter_side`, see `datasets.Table`.
        weights: the file from which it was loaded.
        sha256: of that file.
        invert: invert images (255 - pixel) first.
        asked: embeds what a search asks, if that has a prompt or an encoder of its own; None: as the rows.

    >>> import tempfile
    >>> from PIL import Image
    >>> from rankgrad_workbench.datasets.transforms import InkEval
    >>> from rankgrad_workbench.models import convnet
    >>> embedder = Embedder(convnet(embedding_size=2).eval(), InkEval(size=28), {}, Path("model.pt"), sha256="")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (28, 28)).save(Path(folder, "0.png"))
    ...     embedder([Path(folder, "0.png")]).shape
    torch.Size([1, 2])
    """

    model: EmbeddingModel
    transform: Callable[..., Any]
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
        if invert and takes != "images":
            raise ValueError(f"invert is for images, but {weights} takes {takes}")
        if extra.get("task") == "search":
            return _of_search(weights, device)
        data = extra.get("data")
        if not isinstance(data, dict) or "eval_transform" not in data:
            raise ValueError(f"{weights} names no transform of its {takes}: it is not from a run. Use training.embed")
        where = f"{weights}: data.eval_transform"
        transform: Transform = make(data["eval_transform"], slot="transform", trust=trust, where=where)
        load: Any = data["load"] if isinstance(data.get("load"), dict) else {}
        reading = {name: load[name] for name in ("shorter_side",) if name in load}
        if not isinstance(side := reading.get("shorter_side"), (int, NoneType)):
            raise ValueError(f"{weights} is damaged: data.load has shorter_side={side!r}")
        transform = Inverted(transform) if invert else transform
        return cls(model.to(device or "cpu"), transform, reading, weights.absolute(), sha256_of(weights), invert)

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

    def __call__(self, given: Sequence[Any]) -> Tensor:
        """[row, dim] float32 embeddings of length 1, on the CPU, of image files, texts or vectors [row, width].

        Raises:
            OSError: an image cannot be read; it names the file.
        """
        place = place_of(self.model)
        with torch.inference_mode():
            parts = [
                unit_rows(self.model(moved(self.inputs(given[start : start + BATCH]), *place)).float().cpu())
                for start in range(0, len(given), BATCH)
            ]
        return torch.cat(parts).clone()

    def inputs(self, given: Sequence[Any]) -> Any:
        """What the model takes of image files, texts or vectors: of images [image, channel, height, width] float32.

        Raises:
            OSError: a file cannot be read; it names the file.
        """
        if self.model.inputs.takes == "vectors":
            return torch.as_tensor(given)
        if self.model.inputs.takes == "images":
            given = [read_image(Path(path), self.model.in_channels, **self.reading) for path in given]
        return self.transform(given, torch.arange(len(given)), epoch=0)


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


def _of_search(weights: Path, device: torch.device | str | None) -> Embedder:
    """The encoders of a search with their prompts."""
    encoders = load_encoders(weights).to(device or "cpu")
    place, digest, prompts = weights.absolute(), sha256_of(weights), encoders.prompts
    asked = Embedder(encoders.query, Prompted(prompts["query"]), {}, place, digest)
    return Embedder(encoders.document, Prompted(prompts["document"]), {}, place, digest, asked=asked)


def weights_of(source: str | Path, instead: str = "") -> Path:
    """The file of weights in the folder of a run; or `source` itself, if it is a file.

    Args:
        source: the folder or the file.
        instead: more that the message says.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    source = Path(source)
    path = Run(source).weights if source.is_dir() else source
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a finished run, or its model.pt{instead}")
    return path


__all__ = ["Embedder", "Inverted", "weights_of"]
