"""`Index`: the embeddings of a gallery with their names and their model. It is one file, and is searched exactly.

The file is an npz, or a parquet for the vector store that you have. Every row has length 1, so an inner product is the
cosine there, too.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
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
from rankgrad.ranks.relevance import as_labels
from rankgrad.search import topk

from ..datasets.rows import numbered
from ..datasets.vectors import embedding_columns
from ..files import inside, read_npz, sha256_of
from ..files.tables.written import VECTORS, need_ending, note_of, write_vectors
from ..runs.embeddings import joined_classes
from ..runs.folder import Run
from ..settings import load, parsed
from .embedder import Embedder, weights_of

SHARE = 0.95  # of the queries have a right item above the threshold
ASKED = 1000  # held-out queries that are measured
FEWEST = 19  # with fewer queries, even the lowest of their scores does not stand for `SHARE` of all
Array = npt.NDArray[Any]
COLUMNS = ("embeddings", "names")


@dataclass(frozen=True)
class Threshold:
    """A score, and for what it holds.

    Attributes:
        score: cosine; `SHARE` of the held-out queries have a right item with at least this score.
        wrong: fraction of the held-out queries that have a wrong item with at least this score: what a query without
            any right item in the gallery would show.
        queries: number of held-out queries with which it was measured.
        fewest: smallest number of right items that one of them had.
        most: largest number of right items.
        others: largest number of wrong items.
    """

    score: float
    wrong: float
    queries: int
    fewest: int
    most: int
    others: int

    def __post_init__(self) -> None:
        """Refuse what a damaged file may hold."""
        counts = (self.queries, self.fewest, self.most, self.others)
        if not (math.isfinite(self.score) and 0 <= self.wrong <= 1 and min(counts) >= 0):
            raise ValueError(f"a threshold is a finite score, a fraction and four counts; got {vars(self)}")

    def __str__(self) -> str:
        """What it means, in words."""
        many = f"{self.fewest:,}" if self.fewest == self.most else f"{self.fewest:,} to {self.most:,}"
        return (
            f"{self.score:.4f}: {SHARE:.0%} of {self.queries:,} held-out queries of the run, each with {many} right "
            f"item{'' if self.most == 1 else 's'}, have one with this score or more, {self.wrong:.0%} a wrong one of "
            f"{self.others:,}"
        )


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
        return json.dumps(vars(self), default=lambda part: str(part) if isinstance(part, Path) else vars(part))

    @classmethod
    def read(cls, text: str) -> Origin:
        """The origin in the text of a file.

        Raises:
            ValueError: it is no json, or a value has a wrong type.
        """
        try:
            known = json.loads(text)
            threshold = None if known.get("threshold") is None else Threshold(**known["threshold"])
            paths = Path(known["root"]), Path(known["model"])
            return cls(*paths, str(known["sha256"]), bool(known["invert"]), threshold)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"its origin is damaged ({error})") from None


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
        columns = embedding_columns(path, *COLUMNS)
        text = note_of(path, "origin") if path.suffix.lower() == ".parquet" else str(columns.get("origin", ""))
        try:
            if "ref_embeddings" in columns:
                raise ValueError("it has separate queries and a gallery; an index needs one list of rows")
            return cls.of_columns(columns, Origin.read(text) if text else None)
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{shown(path)}: {error}") from None

    @classmethod
    def of_columns(cls, columns: Mapping[str, Array], origin: Origin | None) -> Index:
        """An index of the columns of a file, which may come from somebody else.

        Raises:
            ValueError: a column has a wrong type or length, or an image is named outside of the folder.
        """
        names, texts = (_words(columns, name) for name in ("names", "texts"))
        if origin is not None and not texts:
            _check_inside(names)
        with np.errstate(over="ignore"):  # what is too large for float32 is not finite: told by `of`
            return cls.of(columns["embeddings"], names, _classes_of(columns), origin, texts)

    def save(self, path: str | Path) -> Path:
        """Write the index as a parquet or an npz, as the ending says; an existing file is replaced atomically.

        Raises:
            FileNotFoundError: the parent folder does not exist.
            ValueError: the ending is that of another format.
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
        if queries.dim() != 2 or not queries.is_floating_point() or queries.shape[1] != self.dim:
            raise ValueError(f"the index needs float [query, {self.dim}]; got {queries.dtype} {tuple(queries.shape)}")
        k = min(integer(k, "k is the length of the lists", low=1), len(self))
        scores, items = topk(unit_rows(queries.detach().float().cpu()), self.embeddings, k)
        return scores.float(), items

    def embedder(
        self, model: str | Path | None = None, *, trust: Sequence[str] = (), device: torch.device | str | None = None
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
            raise ValueError("the index names no model: make it with rankgrad embed, or search with vectors (topk)")
        weights = weights_of(self.origin.model if model is None else model, "; if the run was moved, with --model RUN")
        if sha256_of(weights) != self.origin.sha256:
            raise ValueError(f"{weights} is not the model that made this index (another SHA-256): give it with --model")
        return Embedder.load(weights, invert=self.origin.invert, trust=trust, device=device)

    def at(self, root: str | Path) -> Index:
        """Return this index, which has an origin, for images that were moved to another folder."""
        assert self.origin is not None, "the index names no folder"
        return replace(self, origin=replace(self.origin, root=Path(os.path.abspath(root))))


def check_place(out: Path) -> None:
    """Raise unless a file of embeddings can be written there.

    Raises:
        FileNotFoundError: the path is a folder, or its folder does not exist.
        ValueError: the ending is that of another format.
    """
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{shown(out)} cannot be written: give a file in an existing folder")
    need_ending(out, VECTORS)


def _check_inside(names: Sequence[str]) -> None:
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
    column = columns.get(name, np.empty(0, object))
    values: list[Any] = column.tolist()
    kinds = (str, int) if name == "names" else str
    if column.ndim != 1 or column.dtype.kind == "b" or not all(isinstance(value, kinds) for value in values):
        raise ValueError(f"{name} must be texts [row]; got {column.dtype} {column.shape}")
    return list(map(str, values))


def _classes_of(columns: Mapping[str, Array]) -> list[str] | None:
    """The name of the class of each row; None: there are no classes.

    Raises:
        ValueError: labels are neither integers nor texts, or a label has no name.

    >>> _classes_of({"labels": np.array([-7, 1_000_000_000])})
    ['-7', '1000000000']
    """
    labels, names = columns.get("labels"), columns.get("class_names")
    if labels is None:
        return None
    if names is not None and labels.dtype.kind == "b" and labels.ndim == 2:  # rows of several classes
        return joined_classes(labels, list(map(str, names.tolist())))
    values: list[Any] = labels.tolist()
    texts = names is None and all(isinstance(value, str) for value in values)  # the labels are their own names
    if labels.ndim != 1 or not (texts or labels.dtype.kind in "iu"):
        raise ValueError(f"labels must be integers or texts, one per row; got {labels.dtype} {labels.shape}")
    if names is None:
        return list(map(str, values))
    for label in values:
        if not 0 <= label < len(names):
            raise ValueError(f"no name for class {label} in {len(names)} class_names: complete them, or remove them")
    return [str(names[label]) for label in values]


def index_of_run(folder: str | Path, trust: Sequence[str] = ()) -> Index:
    """The evaluated rows of a run as an index in memory.

    If the run has separate queries and a gallery, the index holds the gallery.

    Args:
        folder: of a finished run.
        trust: packages whose classes its settings may name.

    Raises:
        FileNotFoundError: the folder is not a run, or it has no embeddings or no model.
        ValueError: a file is damaged.
    """
    run = Run(Path(folder))
    lacking = [path.name for path in (run.config, run.embeddings, run.weights) if not path.is_file()]
    if lacking:
        raise FileNotFoundError(f"{folder} holds no {' and no '.join(lacking)}: finish the run, without lean=true")
    columns = read_npz(run.embeddings, "embeddings", "labels", "names", "class_names")
    if "ref_embeddings" in columns:
        apart = {name[4:]: column for name, column in columns.items() if name.startswith("ref_")}
        columns = {**apart, "class_names": columns["class_names"]}
    data, place = load(run.config, trust).data, run.weights.absolute()
    root = data.get("root")
    if "images" in data.load:  # root is a list of images, and their folder is beside or above it
        root = data.load.images or Path(root).parent
    origin = Origin(Path(root or "."), place, sha256_of(place), threshold=threshold_of(place))
    return Index.of_columns(columns, origin)


def threshold_of(weights: Path, classes: Sequence[str] | None = None) -> Threshold | None:
    """The threshold of the run in whose folder these weights are, for an index, measured on its held-out rows.

    The best of many right items scores higher than the only one. So the threshold is measured with as many right items
    for each held-out query as the classes of the index have.

    Args:
        weights: the model.pt of a run.
        classes: [row] the classes of the index, "" where there is none. A held-out query is compared with as many right
            items as a class of the index has, drawn at random, and with as many wrong ones. Without any class, it is
            compared with one right item, so that the threshold holds for any number of them. None: the index is the
            held-out gallery of the run itself.

    Returns:
        The threshold; None: it cannot be measured, because the run has no embeddings of held-out rows, or fewer than
        `FEWEST` of these have a right item.
    """
    run = Run(weights.parent)
    known = weights.name == run.weights.name and run.config.is_file() and run.embeddings.is_file()
    if not known or parsed(run.config).get("evaluation", {}).get("split") == "train":
        return None  # such as those of a step: the embeddings are not of these weights
    columns = read_npz(run.embeddings, "embeddings", "labels")
    apart = "ref_embeddings" in columns
    of = "ref_" if apart else ""
    asked, items = (
        unit_rows(torch.from_numpy(np.ascontiguousarray(columns[f"{name}embeddings"], np.float32))) for name in ("", of)
    )
    labels, item_labels = as_labels(columns["labels"], columns[f"{of}labels"])
    sizes = [*Counter(name for name in classes or () if name).values()] or [1]
    draw = torch.Generator().manual_seed(0)
    found: list[tuple[float, float, int, int]] = []
    drawn = torch.randperm(len(asked), generator=draw)[:ASKED]
    blocks = (zip(rows.tolist(), asked[rows] @ items.T, strict=True) for rows in torch.split(drawn, 100))
    for row, scores in (pair for block in blocks for pair in block):
        own = labels[row]
        relevant = item_labels == own if own.ndim == 0 else (item_labels & own).any(1)
        others = torch.ones(len(items), dtype=torch.bool)
        if not apart:
            others[row] = False
        right, wrong = scores[relevant & others], scores[~relevant & others]
        if classes is not None:
            size = sizes[int(torch.randint(len(sizes), (), generator=draw))]
            right, wrong = _some(right, size, draw), _some(wrong, len(classes) - size, draw)
        if len(right):
            highest = float(wrong.max()) if len(wrong) else -math.inf
            found.append((float(right.max()), highest, len(right), len(wrong)))
    if len(found) < FEWEST:
        return None
    best, worst, rights, wrongs = zip(*found, strict=True)
    # of one more query, the score is below the n-th lowest with a probability of n / (queries + 1)
    score = sorted(best)[int((1 - SHARE) * (len(found) + 1) + 1e-9) - 1]
    share = sum(each >= score for each in worst) / len(found)
    return Threshold(score, share, len(found), min(rights), max(rights), max(wrongs))


def _some(scores: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """So many of the scores, drawn at random; all of them if there are fewer."""
    return scores[torch.randperm(len(scores), generator=draw)[:count]] if count < len(scores) else scores


__all__ = ["Index", "Origin", "check_place"]
