"""A gallery that can be asked: embeddings in a faiss index, with what it takes to ask them with further pictures.

On disk an index is a folder of two files: `index.json` (which model with its hash, which images, how it was built) and
the file of vectors that it names, written by faiss. The json is written last and replaced as a whole, and names the
vectors by their hash: a reader finds the old index or the new one, whenever the writer dies.

Exact by default, like `search.topk`, whose scores it gives up to rounding. "hnsw" and "ivf" look at a part of the
gallery only; what they miss is measured when they are built.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._version import __version__
from ..extras import install
from ..files import read_json
from ..normalize import unit_rows
from .embedder import Embedded, Embedder, Origin, check_inside, sha256_of, weights_of

Kind = Literal["exact", "hnsw", "ivf"]
KINDS: tuple[Kind, ...] = ("exact", "hnsw", "ivf")

# What faiss calls each.
TYPES = {"exact": "IndexFlat", "hnsw": "IndexHNSWFlat", "ivf": "IndexIVFFlat"}

FORMAT = "rankgrad-index-1"
HEAD = "index.json"

ASKED = 1000  # rows that `measure` asks with
RECALL_AT = 10
LINKS = 32  # of a node of hnsw; its authors' range is 5 to 48, higher for high dimensions
PER_CELL = 39  # rows that faiss wants for each cell of ivf; with fewer it warns that cells are poor


@dataclass(frozen=True)
class Measured:
    """What an approximate index was worth when it was built, asked with rows of its own.

    Attributes:
        recall: share of the k exact nearest others that it finds; an item that is as close as the k-th counts.
        k: length of the lists.
        queries: rows it was asked with.
        faster: time of the exact search over its own, one query at a time.
    """

    recall: float
    k: int
    queries: int
    faster: float


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings of a gallery, ready to be asked.

    Attributes:
        vectors: the faiss index.
        names: of the images, relative to `origin.root`.
        labels: [image] long.
        class_names: of the labels.
        kind: "exact": every row is compared; "hnsw": a graph is walked (Malkov and Yashunin, TPAMI 2018,
            arXiv:1603.09320); "ivf": the cells nearest to the query are searched.
        normalized: rows and queries are made to have length 1, so that scores are cosines.
        origin: model and folder; None: it can be asked with vectors only.
        measured: of "hnsw" and "ivf".
        texts: what the rows are, where that is text; empty where it is not.

    >>> gallery = Embedded(np.eye(3, dtype=np.float32), ("a.png", "b.png", "c.png"), np.arange(3), ("a", "b", "c"))
    >>> index = build(gallery)
    >>> index.topk(torch.tensor([[1.0, 2.0, 0.0]]), k=2)
    (tensor([[0.8944, 0.4472]]), tensor([[1, 0]]))
    """

    vectors: Any = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    kind: Kind = "exact"
    normalized: bool = True
    origin: Origin | None = None
    measured: Measured | None = None
    texts: tuple[str, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        """Images."""
        return len(self.names)

    @property
    def dim(self) -> int:
        """Dimensions of an embedding."""
        return int(self.vectors.d)

    def path(self, row: int) -> Path:
        """The file of an image; only its name if the index does not know the folder."""
        name = Path(self.names[row])
        return name if self.origin is None else self.origin.root / name

    def topk(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k rows of highest inner product with each query, best first, of level scores the lower row first.

        Of rows that are level across the end of the list any may be in it. With "hnsw" and "ivf" a row may be missing,
        and where fewer than k were found the list ends with score -inf and row -1.

        Args:
            queries: [query, dim] float, finite, on any device.
            k: rows per query, >= 1; as many as there are, if fewer.

        Returns:
            (scores [query, k] float32, rows [query, k] long), on the CPU.

        Raises:
            ValueError: another width than the index holds, values that are not finite, k < 1.
        """
        if queries.dim() != 2 or not queries.is_floating_point() or queries.shape[1] != self.dim:
            raise ValueError(
                f"the index holds {self.dim}-d embeddings and is asked with float [query, {self.dim}]; got "
                f"{queries.dtype} {tuple(queries.shape)}. Another model?"
            )
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k is the length of the lists, an integer >= 1; got {k!r}")
        rows = queries.detach().float().cpu()
        if not bool(rows.isfinite().all()):
            raise ValueError("queries hold NaN or infinity; look at the model's output for these images")
        asked = (unit_rows(rows) if self.normalized else rows).contiguous().numpy()
        scores, items = self.vectors.search(asked, min(k, len(self)))
        found, place = torch.from_numpy(scores), torch.from_numpy(items)
        found = found.masked_fill(place < 0, -torch.inf)
        by_row = torch.where(place < 0, len(self), place).argsort(1)  # then stable by score: ties by row
        found, place = found.gather(1, by_row), place.gather(1, by_row)
        found, order = torch.sort(found, dim=1, descending=True, stable=True)
        return found, place.gather(1, order)

    def embedder(
        self,
        model: str | Path | None = None,
        *,
        trust: Sequence[str] = (),
        device: torch.device | str | None = None,
    ) -> Embedder:
        """The model that the gallery was embedded with.

        Args:
            model: where its run or model.pt is now; None: where it was.
            trust: see `Embedder.load`.
            device: where it computes; None: on the CPU.

        Raises:
            FileNotFoundError: it is not there.
            ValueError: it is another model, or the index knows none.
        """
        if self.origin is None:
            raise ValueError(
                "this index does not say which model made its embeddings, so it can't be asked with images: make them "
                "with rankgrad embed RUN DIR, or ask with vectors (Index.topk)"
            )
        try:
            weights = weights_of(self.origin.model if model is None else model)
        except FileNotFoundError as error:
            if model is not None:
                raise
            raise FileNotFoundError(f"{error}. Was the run moved? Say where it is with --model RUN") from None
        if sha256_of(weights) != self.origin.sha256:
            raise ValueError(
                f"{weights} is not the model that made this index (another SHA-256): scores between two models mean "
                "nothing. Embed and index the folder again, or say with --model where that model is"
            )
        return Embedder.load(weights, invert=self.origin.invert, trust=trust, device=device)

    def at(self, root: str | Path) -> Index:
        """Return this index for images that are in another folder now.

        Raises:
            ValueError: the index knows no folder at all.
        """
        if self.origin is None:
            raise ValueError("this index does not say which folder its images are from")
        return replace(self, origin=replace(self.origin, root=Path(os.path.abspath(root))))

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> Path:
        """Write the index into a folder, which is made if need be; an index that is there is replaced as a whole.

        Raises:
            FileNotFoundError: no folder to make it in.
            FileExistsError: something else is there.
        """
        folder = Path(folder)
        if not folder.parent.is_dir():
            raise FileNotFoundError(f"no folder {folder.parent} to write {folder.name} into")
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / HEAD).is_file())):
            raise FileExistsError(f"{folder} is there and is no index: choose another name with -o")
        folder.mkdir(exist_ok=True)
        temporary = folder / f".{os.getpid()}.tmp"
        try:
            _faiss().write_index(self.vectors, str(temporary))
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            digest = sha256_of(temporary)
            vectors = folder / f"vectors-{digest[:16]}.faiss"
            head = {
                "format": FORMAT,
                "vectors": {"file": vectors.name, "bytes": temporary.stat().st_size, "sha256": digest},
                "images": len(self),
                "dim": self.dim,
                "kind": self.kind,
                "normalized": self.normalized,
                "measured": None if self.measured is None else vars(self.measured),
                "origin": None if self.origin is None else self.origin.columns(),
                "rankgrad": __version__,
                "class_names": list(self.class_names),
                "labels": self.labels.tolist(),
                "names": list(self.names),
                **({"texts": list(self.texts)} if self.texts else {}),
            }
            os.replace(temporary, vectors)
            temporary.write_text(json.dumps(head, indent=0), encoding="utf-8")
            os.replace(temporary, folder / HEAD)  # from here on it is the new index
        finally:
            temporary.unlink(missing_ok=True)
        for old in folder.glob("vectors-*.faiss"):
            if old != vectors:
                old.unlink()
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Index:
        """Read an index that `save` wrote; its vectors are held to their SHA-256.

        Raises:
            FileNotFoundError: no index there, or its vectors are gone.
            ValueError: another kind of file or folder, a damaged one, or parts that do not belong together.
            ModuleNotFoundError: faiss is not installed.
        """
        folder = Path(folder)
        head = _read_head(folder)
        path = folder / head["vectors"]["file"]
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} lacks {path.name}, the file of its vectors. Copy the folder as a whole, or write it again "
                "with rankgrad index"
            )
        size = path.stat().st_size
        if size != head["vectors"]["bytes"]:
            raise ValueError(
                f"{path} is damaged: it has {size} bytes and should have {head['vectors']['bytes']}. Write it again "
                "with rankgrad index"
            )
        if sha256_of(path) != head["vectors"]["sha256"]:
            raise ValueError(f"{path} is damaged: it has another SHA-256 than when it was written. Write it again")
        faiss = _faiss()
        try:
            vectors = faiss.read_index(str(path))
        except (RuntimeError, MemoryError) as error:
            raise ValueError(f"{path} is damaged: faiss can't read it ({str(error).splitlines()[-1]})") from None
        if not isinstance(vectors, getattr(faiss, TYPES[head["kind"]])):
            raise ValueError(f"{path} is no index of the kind {head['kind']} but a {type(vectors).__name__}")
        if (vectors.ntotal, vectors.d) != (head["images"], head["dim"]) or head["images"] != len(head["names"]):
            raise ValueError(
                f"the files of {folder} do not belong together: {HEAD} speaks of {head['images']} images in "
                f"{head['dim']} dimensions, {path.name} holds {vectors.ntotal} in {vectors.d}"
            )
        return cls(
            vectors,
            tuple(head["names"]),
            np.array(head["labels"], np.int64),
            tuple(head["class_names"]),
            head["kind"],
            head["normalized"],
            head["origin"],
            head["measured"],
            tuple(head.get("texts", ())),
        )


def _read_head(folder: Path) -> dict[str, Any]:
    make = f"make one with rankgrad index EMB.npz -o {folder}"
    if folder.is_file():
        hint = f"make one of it with rankgrad index {folder}" if folder.suffix == ".npz" else "an index is a folder"
        raise ValueError(f"{folder} is a file and no index: {hint}")
    path = folder / HEAD
    if not path.is_file():
        raise FileNotFoundError(f"no index at {folder}: {make}")
    try:
        head = read_json(path)
        if head.get("format") != FORMAT:
            raise ValueError(f"{path} was not written by this version of rankgrad index")
        _check_head(path, head)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error}. Write the index again with rankgrad index") from None
    return head


def _check_head(path: Path, head: dict[str, Any]) -> None:
    """Raise unless everything is there and of its kind; origin and measured become what they stand for."""
    known = ("vectors", "images", "dim", "kind", "normalized", "measured", "origin", "class_names", "labels", "names")
    missing = [name for name in known if name not in head]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    vectors, labels = head["vectors"], head["labels"]
    texts = [head["class_names"], head["names"], *([head["texts"]] if "texts" in head else [])]
    fits = {
        "vectors": isinstance(vectors, dict)
        and isinstance(vectors.get("bytes"), int)
        and isinstance(vectors.get("sha256"), str)
        and isinstance(vectors.get("file"), str)
        and re.fullmatch(r"vectors-[0-9a-f]+\.faiss", vectors["file"]) is not None,  # a file of this folder
        "images, dim": all(type(head[name]) is int and head[name] > 0 for name in ("images", "dim")),
        "kind": head["kind"] in KINDS,
        "normalized": isinstance(head["normalized"], bool),
        "class_names, names": all(isinstance(row, list) and all(isinstance(t, str) for t in row) for row in texts),
        "labels": isinstance(labels, list) and all(type(label) is int for label in labels),
        "measured": head["measured"] is None or isinstance(head["measured"], Mapping),
        "origin": head["origin"] is None or isinstance(head["origin"], Mapping),
    }
    wrong = [name for name, fit in fits.items() if not fit]
    classes = 0 if wrong else len(head["class_names"])
    if not wrong and len(head.get("texts", head["names"])) != len(head["names"]):
        wrong = ["texts"]
    if not wrong and (len(labels) != head["images"] or not all(0 <= label < classes for label in labels)):
        wrong = ["labels"]
    if wrong:
        raise ValueError(f"{path} is damaged: {'; '.join(wrong)} not as rankgrad index writes it")
    if head["origin"] is not None:
        head["origin"] = Origin.from_columns(head["origin"])
        check_inside(path, head["names"])
    if head["measured"] is not None:
        head["measured"] = Measured(**head["measured"])


def build(
    gallery: Embedded,
    kind: Kind = "exact",
    *,
    normalize: bool = True,
    effort: int | None = None,
    seed: int = 0,
) -> Index:
    """An index of these embeddings, in memory; `Index.save` writes it.

    Args:
        gallery: what to find; see `Embedded.load`.
        kind: "exact", or "hnsw" or "ivf", which look at a part of a large gallery and are measured on the way.
        normalize: search by cosine; False: by inner product, for a model that was trained without normalisation.
        effort: how far "hnsw" (candidates kept on the walk) and "ivf" (cells searched) look; None: 64, and one cell in
            16. More finds more and takes longer. Not used by "exact".
        seed: of the cells of "ivf", and of the rows that are measured.

    Raises:
        ValueError: an unknown kind, effort < 1, embeddings that are not finite.
        ModuleNotFoundError: faiss is not installed.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of index {kind!r}; known: {', '.join(KINDS)}")
    if effort is not None and (isinstance(effort, bool) or not isinstance(effort, int) or effort < 1):
        raise ValueError(f"effort is how many candidates or cells are looked at, an integer >= 1; got {effort!r}")
    if effort is not None and kind == "exact":
        raise ValueError("an exact index looks at everything: effort is for kinds hnsw and ivf")
    embeddings = torch.from_numpy(gallery.embeddings)
    finite = embeddings.isfinite().all(1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise ValueError(
            f"embeddings must be finite; that of {gallery.names[row]} is not (first of {int((~finite).sum())})"
        )
    rows = (unit_rows(embeddings) if normalize else embeddings).contiguous().numpy()
    vectors = _vectors(rows, kind, effort, seed)
    index = Index(
        *(vectors, gallery.names, gallery.labels, gallery.class_names, kind, normalize, gallery.origin),
        texts=gallery.texts,
    )
    return index if kind == "exact" else replace(index, measured=measure(index, rows, seed=seed))


def _vectors(rows: npt.NDArray[np.float32], kind: Kind, effort: int | None, seed: int) -> Any:
    faiss = _faiss()
    count, dim = rows.shape
    if kind == "exact":
        vectors = faiss.IndexFlatIP(dim)
    elif kind == "hnsw":
        vectors = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
        vectors.hnsw.efConstruction = 200
        vectors.hnsw.efSearch = 64 if effort is None else effort
    else:
        # cells as large as there are many: both parts of the search take equally long
        cells = max(1, min(round(4 * math.sqrt(count)), count // PER_CELL))
        vectors = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, cells, faiss.METRIC_INNER_PRODUCT)
        vectors.cp.seed = seed + 1
        vectors.train(rows)
        vectors.nprobe = min(cells, math.ceil(cells / 16) if effort is None else effort)
    vectors.add(rows)
    return vectors


def measure(index: Index, rows: npt.NDArray[np.float32], *, seed: int = 0) -> Measured:
    """How much of the exact result an index finds, and how much faster, asked with rows of its own gallery.

    Args:
        index: the index.
        rows: [image, dim] what it holds, normalised if it is.
        seed: of the rows that ask.
    """
    k = min(RECALL_AT, len(rows) - 1)
    asked = np.random.default_rng(seed).permutation(len(rows))[:ASKED]
    if k < 1:
        return Measured(1.0, k, len(asked), 1.0)
    exact = _faiss().IndexFlatIP(rows.shape[1])
    exact.add(rows)
    best, _ = _others(exact, rows, asked, k)
    found, _ = _others(index.vectors, rows, asked, k)
    # by score: another item that is as close is no miss
    recall = float((found >= best[:, -1:] - 1e-6).mean())
    times = []
    for vectors in (exact, index.vectors):
        start = time.perf_counter()
        for row in asked[:100]:
            vectors.search(rows[row : row + 1], k)
        times.append(time.perf_counter() - start)
    return Measured(recall, k, len(asked), times[0] / max(times[1], 1e-9))


def _others(
    vectors: Any, rows: npt.NDArray[np.float32], asked: npt.NDArray[np.int64], k: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Scores and rows of the k best others for each asked row, -inf where fewer were found."""
    scores, items = vectors.search(rows[asked], k + 1)
    scores = np.where((items < 0) | (items == asked[:, None]), -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(items, order, 1)


def _faiss() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its generated bindings, on newer Pythons
            import faiss
    except ModuleNotFoundError as error:
        if error.name != "faiss":
            raise
        raise ModuleNotFoundError(
            f"an index needs faiss: {install('search')}. Without it, search.topk gives the same exact lists from "
            "embeddings in memory",
            name="faiss",
        ) from None
    return faiss


__all__ = ["KINDS", "Index", "Kind", "Measured", "build", "measure"]
