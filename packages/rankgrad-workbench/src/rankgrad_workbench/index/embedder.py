"""Image files, texts or vectors -> embeddings with a trained model, prepared as in its evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankgrad.ranks.normalize import unit_rows

from ..datasets.base import ImageSet, Table
from ..datasets.rows import numbered
from ..datasets.transforms import InkEval, Transform
from ..files import sha256_of
from ..models.embedding_model import EmbeddingModel, moved, place_of
from ..models.state_dicts import DIVERGED, not_finite, sample
from ..models.weights import load_weights
from ..runs.folder import Run
from ..settings import make
from ..tasks.search.encoders import load_encoders

BATCH = 64  # images read and embedded at once


class GroundWarning(UserWarning):
    """The model learned bright ink on a dark background, but the drawings are dark on bright."""


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
    >>> from rankgrad_workbench.models import convnet
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
        transform = Inverted(transform) if invert else transform
        return cls(model, transform, reading, weights.absolute(), sha256_of(weights), invert)

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

    def __call__(self, given: Sequence[Any]) -> Tensor:
        """[row, dim] float32 embeddings of length 1, on the CPU, of image files, texts or vectors [row, width].

        Raises:
            ValueError: there are no rows.
            OSError: an image cannot be read; it names the file.
        """
        if not len(given):
            raise ValueError("nothing to embed: give at least one image, text or vector")
        place = place_of(self.model)
        with torch.inference_mode():
            parts = [
                unit_rows(self.model(moved(self.inputs(given[start : start + BATCH]), *place)).float().cpu())
                for start in range(0, len(given), BATCH)
            ]
        return torch.cat(parts).clone()

    def inputs(self, given: Sequence[Any]) -> Any:
        """What the model takes of image files, texts or vectors."""
        if self.model.inputs.takes == "images":
            return self.pixels(given)
        if self.model.inputs.takes == "texts":
            return self.transform(given, torch.arange(len(given)), epoch=0)
        return torch.as_tensor(given)

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
    encoders = load_encoders(weights)
    encoders = encoders if device is None else encoders.to(device)
    place, digest = weights.absolute(), sha256_of(weights)
    prompted: dict[str, Any] = {side: Prompted(prompt) for side, prompt in encoders.prompts.items()}
    query, document = (
        Embedder(encoder, prompted[side], {}, place, digest)
        for side, encoder in (("query", encoders.query), ("document", encoders.document))
    )
    return replace(document, asked=query)


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


__all__ = ["Embedder", "GroundWarning", "Inverted", "weights_of"]
