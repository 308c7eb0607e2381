"""`Index`: the embeddings of a gallery with their names and their model. It is one file, and is searched exactly.

The file is an npz, or a parquet for the vector store that you have. Every row has length 1, so an inner product is the
cosine there, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad.common.checks import Numbers, integer, tensor
from rankgrad.common.text import shown
from rankgrad.ranks.normalize import unit_rows
from rankgrad.search import of_one_byte, topk

from ..datasets.rows import numbered
from ..datasets.vectors import embedding_columns
from ..files import inside, read_npz, sha256_of
from ..files.tables.parts import need_whole
from ..files.tables.vectors import VECTORS, need_ending, need_pyarrow, note_of, write_vectors
from .embedder import Embedder, weights_of
from .threshold import Threshold

Array = npt.NDArray[Any]
COLUMNS = ("embeddings", "names")


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

    def __str__(self) -> str:
        """Json, as it stands in a file."""
        known = {"root": str(self.root), "model": str(self.model), "sha256": self.sha256, "invert": self.invert}
        return json.dumps(known if self.threshold is None else {**known, "threshold": vars(self.threshold)})

    @classmethod
    def read(cls, text: str) -> Origin:
        """The origin in the text of a file.

        Raises:
            ValueError: it is no json, or a value has a wrong type.
        """
        try:
            known = json.loads(text)
            root, model, sha256, invert = (known[name] for name in ("root", "model", "sha256", "invert"))
            threshold = known.get("threshold")
            if not all(isinstance(each, str) for each in (root, model, sha256)) or not isinstance(invert, bool):
                raise TypeError("root, model and sha256 must be texts, invert true or false")
            found = None if threshold is None else Threshold(**threshold)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"its origin is damaged ({error})") from None
        return cls(Path(root), Path(model), sha256, invert, found)


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings of a gallery, ready for search. `of` makes one, `load` reads one.

    Attributes:
        embeddings: [row, dim] float32 of length 1, on the CPU.
        names: of the rows: paths of images relative to `origin.root`, or names of texts.
        classes: [row] class names; "" where there is none.
        origin: model and folder; None: the index can be searched with vectors only.
        texts: [row] the texts of the rows; empty if the rows are not texts.

    >>> index = Index.of(np.eye(3), ["a.png", "b.png", "c.png"])
    >>> index.topk([[1.0, 2.0, 0.0]], k=2)
    (tensor([[0.8944, 0.4472]]), tensor([[1, 0]]))
    """

    embeddings: Tensor = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    origin: Origin | None = None
    texts: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        embeddings: Numbers,
        names: Sequence[str],
        classes: Sequence[str] | None = None,
        origin: Origin | None = None,
        texts: Sequence[str] = (),
    ) -> Index:
        """An index of any embeddings [row, dim], which are normalised to length 1; see the attributes.

        Raises:
            ValueError: there are no embeddings, one of them is not finite, or the lengths differ.
        """
        rows = tensor(embeddings, "embeddings")
        if rows.dim() != 2 or not rows.is_floating_point() or not rows.numel():
            raise ValueError(f"embeddings must be float [row, dim]; got {rows.dtype} {tuple(rows.shape)}")
        classes = [""] * len(rows) if classes is None else classes
        if not len(rows) == len(names) == len(classes) or len(texts) not in (0, len(rows)):
            counts = f"{len(rows)} embeddings, {len(names)} names, {len(classes)} labels and {len(texts)} texts"
            raise ValueError(f"got {counts}; these numbers must be equal")
        rows = rows.detach().float().cpu()
        wrong = (~rows.isfinite().all(1)).nonzero().flatten().tolist()
        if wrong:
            raise ValueError(f"embeddings must be finite; that of {names[wrong[0]]} is not (first of {len(wrong)})")
        return cls(unit_rows(rows), tuple(names), tuple(classes), origin, tuple(texts))

    @classmethod
    def load(cls, path: str | Path) -> Index:
        """Read a file of `rankgrad embed` or `rankgrad index`, or any npz or parquet with embeddings and names.

        Args:
            path: file with embeddings [row, dim] and names [row]. Optional are texts [row] and labels [row], which are
                indices into class_names, or any integers or texts if there are no class_names.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is damaged, has no embeddings or names, or a column has a wrong type or length.
        """
        path = Path(path)
        if not path.is_file():
            what = "is a folder, and an index is a file" if path.is_dir() else "does not exist"
            raise FileNotFoundError(f"{shown(path)} {what}: write it with rankgrad embed RUN DIR -o {shown(path)}")
        need_whole(path)
        in_rows = path.suffix.lower() == ".parquet"
        columns = embedding_columns(path, *COLUMNS) if in_rows else read_npz(path, *COLUMNS)
        text = note_of(path, "origin") if in_rows else str(columns.get("origin", "")) or None
        try:
            if "ref_embeddings" in columns:
                raise ValueError("it has separate queries and a gallery; an index needs one list of rows")
            origin = None if text is None else Origin.read(text)
            names, texts = (_words(columns, name) for name in ("names", "texts"))
            if origin is not None and not texts:
                check_inside(names)
            with np.errstate(over="ignore"):  # what is too large for float32 is not finite: told by `of`
                return cls.of(columns["embeddings"], names, classes_of(columns), origin, texts)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{shown(path)}: {error}") from None

    def save(self, path: str | Path) -> Path:
        """Write the index as a parquet or an npz, as the ending says; an existing file is replaced atomically.

        Raises:
            FileNotFoundError: the parent folder does not exist.
            ValueError: the ending is that of another format.
            ModuleNotFoundError: pyarrow is not installed, and a parquet is written.
        """
        path = Path(path)
        check_place(path)
        columns: dict[str, Any] = {"embeddings": self.embeddings.numpy(), "names": np.array(self.names)}
        columns |= {"texts": np.array(self.texts)} if self.texts else {}
        if any(self.classes):
            class_names, labels = numbered(self.classes)
            columns |= {"labels": labels.numpy(), "class_names": np.array(class_names)}
        write_vectors(path, columns if self.origin is None else {**columns, "origin": str(self.origin)})
        return path

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.names)

    @property
    def dim(self) -> int:
        """Dimension of an embedding."""
        return self.embeddings.shape[1]

    @property
    def threshold(self) -> Threshold | None:
        """The score below which a search has found nothing; None: unknown."""
        return None if self.origin is None else self.origin.threshold

    def path(self, row: int) -> Path:
        """The file of an image; only its name if the index does not know the folder."""
        name = Path(self.names[row])
        return name if self.origin is None else self.origin.root / name

    def topk(self, queries: Numbers, k: int) -> tuple[Tensor, Tensor]:
        """The k rows with the highest cosine to each query, best first; of equal scores the lower row first.

        Args:
            queries: [query, dim] float, finite: a tensor on any device, a numpy array or a list.
            k: rows per query, >= 1; fewer if there are fewer.

        Returns:
            (scores [query, k] float32, rows [query, k] long), on the CPU; see `search.topk`.

        Raises:
            ValueError: the queries have another width than the index, or are not finite; k < 1.
        """
        queries = tensor(queries, "queries")
        queries = queries.float() if of_one_byte(queries) else queries
        if queries.dim() != 2 or not queries.is_floating_point() or queries.shape[1] != self.dim:
            raise ValueError(
                f"the index holds {self.dim}-d embeddings and needs queries float [query, {self.dim}]; got "
                f"{queries.dtype} {tuple(queries.shape)}. Did another model make them?"
            )
        k = min(integer(k, "k is the length of the lists", low=1), len(self))
        rows = queries.detach().float().cpu()
        if not bool(rows.isfinite().all()):
            raise ValueError("queries contain NaN or infinity; check the model's output for them")
        scores, items = topk(unit_rows(rows), self.embeddings, k)
        return scores.float(), items

    def embedder(
        self,
        model: str | Path | None = None,
        *,
        trust: Sequence[str] = (),
        device: torch.device | str | None = None,
    ) -> Embedder:
        """The model with which the gallery was embedded.

        Args:
            model: its run or model.pt; None: the path in the index.
            trust: see `Embedder.load`.
            device: where it computes; None: on the CPU.

        Raises:
            FileNotFoundError: the model does not exist.
            ValueError: it is another model, or the index names none.
        """
        if self.origin is None:
            raise ValueError(
                "this index does not name the model of its embeddings, so it cannot be searched with files or "
                "sentences: make the embeddings with rankgrad embed, or search with vectors (Index.topk)"
            )
        try:
            weights = weights_of(self.origin.model if model is None else model)
        except FileNotFoundError as error:
            if model is not None:
                raise
            raise FileNotFoundError(f"{error}. If the run was moved, give its folder with --model RUN") from None
        if sha256_of(weights) != self.origin.sha256:
            raise ValueError(
                f"{weights} is not the model that made this index (another SHA-256), and scores between two models "
                "have no meaning. Embed the folder again, or give the right model with --model"
            )
        return Embedder.load(weights, invert=self.origin.invert, trust=trust, device=device)

    def at(self, root: str | Path) -> Index:
        """Return this index for images that were moved to another folder.

        Raises:
            ValueError: the index names no folder.
        """
        if self.origin is None:
            raise ValueError("this index does not name the folder of its images")
        return replace(self, origin=replace(self.origin, root=Path(os.path.abspath(root))))


def check_place(out: Path) -> None:
    """Raise unless a file of embeddings can be written there.

    Raises:
        FileNotFoundError: the path is a folder, or its folder does not exist.
        ValueError: the ending is that of another format.
        ModuleNotFoundError: pyarrow is not installed, and a parquet is to be written.
    """
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{shown(out)} cannot be written: give a file in an existing folder")
    need_ending(out, VECTORS)
    if out.suffix.lower() == ".parquet":  # before the work
        need_pyarrow()


def check_inside(names: Sequence[str]) -> None:
    """Raise if a file names an image outside of its folder: its author could show any file of this machine.

    Raises:
        ValueError: a name is absolute, or contains "..".
    """
    for name in names:
        # a cheap test first, since there may be a million names
        if ".." in name or ":" in name or "\0" in name or name.startswith(("/", "\\")):
            inside(Path("its folder"), name)


def _words(columns: Mapping[str, Array], name: str) -> list[str]:
    """A column of texts; an empty list if there is none. Names may be integers."""
    column = columns.get(name)
    if column is None:
        return []
    values: list[Any] = column.tolist()
    kinds = (str, int) if name == "names" else (str,)
    if column.ndim != 1 or not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values):
        raise ValueError(f"{name} must be texts [row]; got {column.dtype} {column.shape}")
    return list(map(str, values))


def classes_of(columns: Mapping[str, Array]) -> list[str] | None:
    """The name of the class of each row; None: there are no classes.

    Raises:
        ValueError: labels are neither integers nor texts, or a label has no name.

    >>> classes_of({"labels": np.array([-7, 1_000_000_000])})
    ['-7', '1000000000']
    """
    labels = columns.get("labels")
    if labels is None:
        return None
    values: list[Any] = labels.tolist()
    whole = labels.ndim == 1 and labels.dtype.kind in "iu"
    if labels.ndim != 1 or not (whole or all(isinstance(value, str) for value in values)):
        raise ValueError(f"labels must be integers or texts, one per row; got {labels.dtype} {labels.shape}")
    if "class_names" not in columns:  # the labels are their own names
        return list(map(str, values))
    names = columns["class_names"]
    if not whole or names.ndim != 1:
        raise ValueError("class_names [class] need labels that are integers, indices into them; remove class_names")
    for label in values:
        if not 0 <= label < len(names):
            there = f"no name for class {label}: {len(names)} class_names were given"
            raise ValueError(f"{there}. Complete them, or remove them")
    return [str(names[label]) for label in values]


__all__ = ["Index", "Origin", "check_inside", "check_place", "classes_of"]
