"""An index of a gallery: embeddings in a faiss index, with the information to search it with new images or texts.

On disk, an index is a folder with two files: `index.json` (the model with its hash, the images, the settings of the
index) and a file of vectors, written by faiss. The json names the vectors by their hash; it is written last and
atomically. So if the writer dies, a reader finds the complete old or new index.

An exact index is the default; its scores equal those of `search.topk` up to rounding. The other kinds search only a
part of the gallery; their recall is measured when they are built. "ivfpq" is for more vectors than fit in memory. It
keeps short codes in memory and compares the best candidates with the original vectors, which are in a third file
(`rows`) that is mapped into memory. For all kinds, the gallery is read block by block and may be mapped
(`Embedded.load`).
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._version import __version__
from ..checks import Numbers, integer, tensor
from ..extras import install
from ..files import atomic_write, open_file, read_json, remove_leftovers, write_text
from ..files.folders import HOLDER, LOCK, lock
from ..normalize import unit_rows
from ..progress import steps
from .embedder import Embedded, Embedder, Origin, check_inside, sha256_of, weights_of
from .rows import StoredRows, write_rows

Kind = Literal["exact", "hnsw", "ivf", "ivfpq"]
KINDS: tuple[Kind, ...] = ("exact", "hnsw", "ivf", "ivfpq")

# Name of each class in faiss.
TYPES = {"exact": "IndexFlat", "hnsw": "IndexHNSWFlat", "ivf": "IndexIVFFlat", "ivfpq": "IndexIVFPQ"}

# The first four bytes of a file of faiss name the class of the index. In an index with cells, those of the index that
# finds the cells are at QUANTIZER.
KNOWN = (b"IxFI", b"IHNf", b"IwFl", b"IwPQ")
FLAT = (b"IxFI", b"IxF2", b"IxFl")
QUANTIZER = 53

FORMAT = "rankgrad-index-1"
HEAD = "index.json"
COPY = "Copy the whole folder, or write it again with rankgrad index"
AGAIN = "Write it again with rankgrad index"

ASKED = 1000  # rows that `measure` uses as queries
RECALL_AT = 10
LINKS = 32  # links per node of hnsw; its authors recommend 5 to 48, more for high dimensions
PER_CELL = 39  # smallest number of rows per cell of ivf; below it, faiss warns of poor cells
TRAINED = 64  # largest number of rows per cell for training the cells
CODED = 39 * 256  # smallest number of rows for training codes of bytes in faiss
CANDIDATES = 10  # ivfpq compares this multiple of the length of the list exactly ...
FEWEST = 100  # ... but at least this many candidates
BLOCK = 2**25  # numbers of the gallery that are in memory at once
TILE = 2**14  # rows that are added, or compared with `ASKED` queries, at once
SHORT = 1e9  # rows x cells x dim; below it, the cells are found in about a second, without a progress bar


@dataclass(frozen=True)
class Measured:
    """Quality of an approximate index, measured with rows of its gallery as queries.

    Attributes:
        recall: fraction of the k exact nearest other rows that it finds; a row as close as the k-th one counts.
        k: length of the lists.
        queries: number of queries.
        faster: time of the exact search divided by its own time, one query at a time.
    """

    recall: float
    k: int
    queries: int
    faster: float


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings of a gallery, ready for search.

    Attributes:
        vectors: the faiss index.
        names: of the images, relative to `origin.root`.
        labels: [image] long.
        class_names: of the labels.
        kind: "exact": every row is compared. "hnsw": a graph is searched (Malkov and Yashunin, TPAMI 2018,
            arXiv:1603.09320). "ivf": only the cells nearest to the query are searched. "ivfpq": the rows of these cells
            are compared by codes of some bytes (product quantization: Jégou, Douze and Schmid, TPAMI 2011), then the
            best candidates exactly.
        normalized: whether rows and queries are normalised to length 1, so that scores are cosines.
        origin: model and folder; None: the index can be searched with vectors only.
        measured: quality of an approximate index; None for "exact".
        texts: [row] the texts of the rows; empty if the rows are not texts.
        rows: for "ivfpq", the original vectors: an array [image, dim], or `rows.StoredRows`.

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
    rows: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.names)

    @property
    def dim(self) -> int:
        """Dimension of an embedding."""
        return int(self.vectors.d)

    def path(self, row: int) -> Path:
        """The file of an image; only its name if the index does not know the folder."""
        name = Path(self.names[row])
        return name if self.origin is None else self.origin.root / name

    def topk(self, queries: Numbers, k: int) -> tuple[Tensor, Tensor]:
        """The k rows with the highest inner product with each query, best first; of equal scores the lower row first.

        Of rows with the same score as the k-th one, any may be in the list. All kinds but "exact" may miss rows. If
        fewer than k are found, the list ends with score -inf and row -1.

        Args:
            queries: [query, dim] float, finite: a tensor on any device, a numpy array or a list.
            k: rows per query, >= 1; fewer if there are fewer.

        Returns:
            (scores [query, k] float32, rows [query, k] long), on the CPU.

        Raises:
            ValueError: the queries have another width than the index, or are not finite; k < 1; a vector of the index
                is damaged.
        """
        queries = tensor(queries, "queries")
        if queries.dim() != 2 or not queries.is_floating_point() or queries.shape[1] != self.dim:
            raise ValueError(
                f"the index holds {self.dim}-d embeddings and needs queries float [query, {self.dim}]; got "
                f"{queries.dtype} {tuple(queries.shape)}. Did another model make them?"
            )
        k = integer(k, "k is the length of the lists", low=1)
        rows = queries.detach().float().cpu()
        if not bool(rows.isfinite().all()):
            raise ValueError("queries contain NaN or infinity; check the model's output for these images")
        asked = (unit_rows(rows) if self.normalized else rows).contiguous().numpy()
        k = min(k, len(self))
        wanted = k if self.rows is None else min(max(CANDIDATES * k, FEWEST), len(self))
        scores, items = self.vectors.search(asked, wanted)
        if self.rows is not None:
            scores = np.stack([self._exact(*pair) for pair in zip(asked, items, strict=True)])
        best, place = torch.from_numpy(scores), torch.from_numpy(items)
        best = best.masked_fill(place < 0, -torch.inf)
        by_row = torch.where(place < 0, len(self), place).argsort(1)  # first by row, then stable by score
        best, place = best.gather(1, by_row), place.gather(1, by_row)
        best, order = torch.sort(best, dim=1, descending=True, stable=True)
        return best[:, :k], place.gather(1, order)[:, :k]

    def _exact(self, asked: npt.NDArray[np.float32], items: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Scores of a query with some items; the score of item -1 is arbitrary."""
        rows = torch.from_numpy(self.rows[items.clip(min=0)])
        return ((unit_rows(rows) if self.normalized else rows) @ torch.from_numpy(asked)).numpy()

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
                "this index does not name the model of its embeddings, so it cannot be searched with images: make the "
                "embeddings with rankgrad embed RUN DIR, or search with vectors (Index.topk)"
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
                "have no meaning. Embed and index the folder again, or give the right model with --model"
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

    # ------------------------------------------------------------------ on disk

    def save(self, folder: str | Path) -> Path:
        """Write the index into a folder, which is made if needed. An existing index is replaced atomically.

        Raises:
            FileNotFoundError: the parent folder does not exist.
            FileExistsError: the path exists and is not an index.
            LockedError: another process writes this index.
        """
        folder = Path(folder)
        if not folder.parent.is_dir():
            raise FileNotFoundError(f"no folder {folder.parent} to write {folder.name} into")
        _need_own(folder)
        folder.mkdir(exist_ok=True)
        with lock(folder, "this index"):
            remove_leftovers(folder, ours=ours)
            self._write(folder)
        return folder

    def _write(self, folder: Path) -> None:
        kept, stored = _written(folder), dict[str, Any]()
        try:
            stored["vectors"] = _stored(folder, "vectors", "faiss", self._write_vectors)
            if self.rows is not None:
                step = max(1, BLOCK // self.dim)
                blocks = (self.rows[np.arange(at, min(at + step, len(self)))] for at in range(0, len(self), step))
                stored["rows"] = _stored(folder, "rows", "f32", lambda file: write_rows(file, blocks, self.dim))
            head = {
                "format": FORMAT,
                **stored,
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
            write_text(folder / HEAD, json.dumps(head, indent=0))  # this makes the new index valid
            kept = {folder / about["file"] for about in stored.values()}
        finally:
            for path in _written(folder) - kept:
                path.unlink()

    def _write_vectors(self, file: IO[bytes]) -> None:
        try:
            _faiss().write_index(self.vectors, file.name)
        except RuntimeError as error:  # e.g. a full disk
            why = str(error).splitlines()[-1].rpartition("(")[2].rstrip(")")
            number = errno.ENOSPC if why == os.strerror(errno.ENOSPC) else errno.EIO
            raise OSError(number, f"faiss cannot write: {why}", file.name) from None

    @classmethod
    def load(cls, folder: str | Path) -> Index:
        """Read an index of `save`. The SHA-256 of its vectors is checked; the `rows` of "ivfpq" are checked when read.

        If another process replaces the index in the meantime, the new one is read.

        Raises:
            FileNotFoundError: there is no index, or its vectors are missing.
            ValueError: the path is not an index, it is damaged, or its files do not belong together.
            ModuleNotFoundError: faiss is not installed.
        """
        folder = Path(folder)
        head = _read_head(folder)
        try:
            return cls._load(folder, head)
        except (FileNotFoundError, ValueError):
            if _read_head(folder) == head:
                raise
        return cls.load(folder)

    @classmethod
    def _load(cls, folder: Path, head: dict[str, Any]) -> Index:
        path = folder / head["vectors"]["file"]
        vectors = _read_vectors(path, head)
        if (vectors.ntotal, vectors.d) != (head["images"], head["dim"]) or head["images"] != len(head["names"]):
            raise ValueError(
                f"the files of {folder} do not belong together: {HEAD} has {head['images']} images in {head['dim']} "
                f"dimensions, {path.name} has {vectors.ntotal} in {vectors.d}"
            )
        rows = None
        if head["kind"] == "ivfpq":
            stored = folder / head["rows"]["file"]
            if not stored.is_file():
                raise FileNotFoundError(f"{folder} lacks {stored.name}, its original vectors. {COPY}")
            rows = StoredRows(stored, head["images"], head["dim"])
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
            rows,
        )


def _read_vectors(path: Path, head: Mapping[str, Any]) -> Any:
    """The faiss index in a file. Its size, SHA-256, kind and content are checked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or it makes faiss open another file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} lacks {path.name}, the file of its vectors. {COPY}")
    size = path.stat().st_size
    if size != head["vectors"]["bytes"]:
        raise ValueError(f"{path} is damaged: it has {size} bytes and should have {head['vectors']['bytes']}. {AGAIN}")
    if sha256_of(path) != head["vectors"]["sha256"]:
        raise ValueError(f"{path} is damaged: its SHA-256 is wrong. {AGAIN}")
    faiss = _faiss()
    try:
        outside = _outside(path)
        vectors = None if outside else faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} is damaged: faiss cannot read it ({str(error).splitlines()[-1]})") from None
    if outside:
        raise ValueError(f"{path} is refused: {outside}. rankgrad does not write such files. {AGAIN}")
    if not isinstance(vectors, getattr(faiss, TYPES[head["kind"]])):
        raise ValueError(f"{path} must be an index of the kind {head['kind']}; got a {type(vectors).__name__}")
    wrong = _wrong(vectors)
    if wrong:
        raise ValueError(f"{path} is damaged: {wrong}. {AGAIN}")
    return vectors


def _outside(path: Path) -> str:
    """Why faiss would open another file than `path` to read an index, or may do so; "" if it opens no other file.

    The file of an index can name a second file with its cells, at any place. faiss opens it for writing.
    """
    with path.open("rb") as file:
        head = file.read(QUANTIZER + 4)
    if head[:4] not in KNOWN:
        return "it is an unknown kind of index"
    # faiss reads the index that finds the cells before all others, so its kind must be known before
    if head[:2] == b"Iw" and head[QUANTIZER:] not in FLAT:
        return "its cells are found by another index"
    faiss = _faiss()
    if not hasattr(faiss, "OnDiskInvertedLists"):  # a faiss without such files, as on Windows
        return ""
    vectors = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)  # this opens no second file
    if isinstance(vectors, faiss.IndexHNSW):
        flat = isinstance(faiss.downcast_index(vectors.storage), faiss.IndexFlat)
        return "" if flat else "its vectors are in another index"
    if isinstance(vectors, faiss.IndexIVF):
        cells = None if vectors.invlists is None else faiss.downcast_InvertedLists(vectors.invlists)
        own = isinstance(cells, faiss.OnDiskInvertedLists) and not cells.filename  # the cells are in `path` itself
        return "" if own else "its cells are in another file"
    return ""


def _wrong(vectors: Any) -> str:
    """The error in vectors that faiss has read, since faiss checks little itself; "" if they can be searched."""
    faiss = _faiss()
    if vectors.metric_type != faiss.METRIC_INNER_PRODUCT:
        return "its scores are not inner products"
    if not isinstance(vectors, faiss.IndexIVF):
        return ""
    if not vectors.is_trained or (vectors.quantizer.ntotal, vectors.quantizer.d) != (vectors.nlist, vectors.d):
        return "it has no cells"
    if vectors.nprobe < 1:
        return "it searches no cell"
    lists = vectors.invlists
    rows = np.concatenate(
        [faiss.rev_swig_ptr(lists.get_ids(cell), lists.list_size(cell)) for cell in range(vectors.nlist)]
    )
    same = len(rows) == vectors.ntotal and bool((np.sort(rows) == np.arange(len(rows))).all())
    return "" if same else "its cells hold other rows than its own"


def _written(folder: Path) -> set[Path]:
    """The files of vectors in the folder of an index."""
    return {path for path in folder.iterdir() if path.name != HEAD and ours(path.name)}


def ours(name: str) -> bool:
    """Whether an index has a file of this name. The name of complete vectors has their hash."""
    return re.fullmatch(r"index\.json|vectors(-[0-9a-f]{16})?\.faiss|rows(-[0-9a-f]{16})?\.f32", name) is not None


def _need_own(folder: Path) -> None:
    """Raise if an index at this path would be among files of another program, or would replace one.

    Raises:
        FileExistsError: naming the folder.
    """
    if not os.path.lexists(folder):
        return
    there = set(os.listdir(folder)) if folder.is_dir() else {folder.name}
    # a killed process leaves its HOLDER; and an index of ours may have lost one of its two files
    own = there <= {LOCK} or HOLDER in there or any(name != HEAD and ours(name) for name in there)
    if not own and HEAD in there:
        with open_file(folder / HEAD) as file:
            own = b'"rankgrad-index-' in file.read(100)
    if not own:
        raise FileExistsError(f"{folder} exists and is not an index: choose another name with -o")


def _stored(folder: Path, part: str, ending: str, write: Callable[[IO[bytes]], object]) -> dict[str, Any]:
    """Write a file and name it after its hash; returns its name, size and hash for the head."""
    path = folder / f"{part}.{ending}"
    with atomic_write(path) as file:
        write(file)
    digest = sha256_of(path)
    name = f"{part}-{digest[:16]}.{ending}"
    os.replace(path, folder / name)
    return {"file": name, "bytes": (folder / name).stat().st_size, "sha256": digest}


def _read_head(folder: Path) -> dict[str, Any]:
    make = f"make one with rankgrad index EMB.npz -o {folder}"
    if folder.is_file():
        hint = f"make an index with rankgrad index {folder}" if folder.suffix == ".npz" else "an index is a folder"
        raise ValueError(f"{folder} is a file and not an index: {hint}")
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
    """Raise unless the head has all entries with the right types; converts origin and measured to their classes."""
    known = ("vectors", "images", "dim", "kind", "normalized", "measured", "origin", "class_names", "labels", "names")
    missing = [name for name in known if name not in head]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    vectors, labels = head["vectors"], head["labels"]
    texts = [head["class_names"], head["names"], *([head["texts"]] if "texts" in head else [])]
    fits = {
        "vectors": _names_file(vectors, r"vectors-[0-9a-f]+\.faiss"),
        "rows": _names_file(head["rows"], r"rows-[0-9a-f]+\.f32") if "rows" in head else head["kind"] != "ivfpq",
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
        raise ValueError(f"{path} is damaged: {'; '.join(wrong)} has a wrong type or value")
    if head["origin"] is not None:
        head["origin"] = Origin.from_columns(head["origin"])
        check_inside(path, head["names"])
    if head["measured"] is not None:
        head["measured"] = Measured(**head["measured"])


def _names_file(about: object, names: str) -> bool:
    """Whether an entry of the head has the name, size and hash of a file, with a name of this form."""
    return (
        isinstance(about, dict)
        and isinstance(about.get("bytes"), int)
        and isinstance(about.get("sha256"), str)
        and isinstance(about.get("file"), str)
        and re.fullmatch(names, about["file"]) is not None
    )


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
        gallery: the embeddings; see `Embedded.load`.
        kind: "exact"; or "hnsw", "ivf" or "ivfpq", which search a part of a large gallery and whose recall is measured
            here. All but "ivfpq" hold the vectors in memory while they are built.
        normalize: search by cosine; False: by inner product, for a model that was trained without normalisation.
        effort: for "hnsw", the number of candidates kept during the search (default 64); for "ivf" and "ivfpq", the
            number of cells searched (default one cell in 16). A larger value finds more and takes longer. Not for
            "exact".
        seed: of the cells and codes, and of the queries of the measurement.

    Raises:
        ValueError: the kind is unknown, effort < 1, embeddings are empty or not finite, or there are too few for
            "ivfpq".
        ModuleNotFoundError: faiss is not installed.

    >>> gallery = Embedded(np.eye(3, dtype=np.float32), ("a", "b", "c"), np.array([0, 0, 1]), ("cat", "dog"))
    >>> index = build(gallery)
    >>> scores, rows = index.topk(torch.tensor([[0.1, 0.9, 0.0]]), 2)
    >>> [index.names[row] for row in rows[0].tolist()]
    ['b', 'a']
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of index {kind!r}; known: {', '.join(KINDS)}")
    if effort is not None:
        effort = integer(effort, "effort is the number of searched candidates or cells", low=1)
    if effort is not None and kind == "exact":
        raise ValueError("an exact index always searches everything: use effort with the other kinds")
    if 0 in gallery.embeddings.shape:  # faiss ends the process
        raise ValueError(f"a gallery needs embeddings [image, dim] with numbers; got {gallery.embeddings.shape}")
    if kind == "ivfpq" and len(gallery.names) < CODED:
        raise ValueError(f"ivfpq needs {CODED:,} rows or more to learn its codes; got {len(gallery.names):,}: use ivf")
    vectors = _vectors(gallery, kind, effort, normalize, seed)
    index = Index(
        *(vectors, gallery.names, gallery.labels, gallery.class_names, kind, normalize, gallery.origin),
        texts=gallery.texts,
        rows=gallery.embeddings if kind == "ivfpq" else None,
    )
    return index if kind == "exact" else replace(index, measured=measure(index, gallery.embeddings, seed=seed))


def _blocks(embeddings: npt.NDArray[np.float32], normalize: bool) -> Iterator[Tensor]:
    """Blocks of the rows, normalised if wanted."""
    step = max(1, BLOCK // embeddings.shape[1])
    for start in range(0, len(embeddings), step):
        yield _as_compared(embeddings[start : start + step], normalize)


def _as_compared(rows: npt.NDArray[np.float32], normalize: bool) -> Tensor:
    block = torch.from_numpy(np.array(rows, np.float32))  # a copy: rows in a mapped file are read-only and not aligned
    return unit_rows(block) if normalize else block


def _vectors(gallery: Embedded, kind: Kind, effort: int | None, normalize: bool, seed: int) -> Any:
    """The faiss index of a gallery.

    Raises:
        ValueError: an embedding is not finite.
    """
    vectors = _without_rows(gallery.embeddings, kind, effort, normalize, seed)
    bad, first, done = 0, -1, 0
    with steps(len(gallery.names), "indexing", "row") as advance:
        for block in (part for whole in _blocks(gallery.embeddings, normalize) for part in torch.split(whole, TILE)):
            wrong = (~block.isfinite().all(1)).nonzero().flatten()
            first = done + int(wrong[0]) if len(wrong) and first < 0 else first
            bad, done = bad + len(wrong), done + len(block)
            if not bad and vectors.is_trained:
                vectors.add(block.numpy())
            advance(len(block))
    if bad:
        raise ValueError(f"embeddings must be finite; that of {gallery.names[first]} is not (first of {bad})")
    return vectors


def _without_rows(
    embeddings: npt.NDArray[np.float32], kind: Kind, effort: int | None, normalize: bool, seed: int
) -> Any:
    """A faiss index for these embeddings, before they are added. Its cells and codes are trained on a sample of them.

    The training is left out if an embedding of the sample is not finite.
    """
    faiss = _faiss()
    count, dim = embeddings.shape
    if kind == "exact":
        return faiss.IndexFlatIP(dim)
    if kind == "hnsw":
        vectors = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
        vectors.hnsw.efConstruction = 200
        vectors.hnsw.efSearch = 64 if effort is None else effort
        return vectors
    # the number of cells is near the size of a cell, so that both parts of the search take equally long
    cells = max(1, min(round(4 * math.sqrt(count)), count // PER_CELL))
    if kind == "ivf":
        vectors = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, cells, faiss.METRIC_INNER_PRODUCT)
    else:
        length = max(size for size in range(1, max(1, min(64, dim // 4)) + 1) if dim % size == 0)  # bytes of a code
        vectors = faiss.IndexIVFPQ(faiss.IndexFlatIP(dim), dim, cells, length, 8, faiss.METRIC_INNER_PRODUCT)
        vectors.pq.cp.seed = seed + 1
    vectors.cp.seed = seed + 1
    drawn = np.random.default_rng(seed).choice(count, min(count, max(TRAINED * cells, CODED)), replace=False)
    sample = _as_compared(embeddings[np.sort(drawn)], normalize)
    if bool(sample.isfinite().all()):
        # faiss does not tell how far it is
        with steps(1, "finding cells", "step", len(sample) * cells * dim > SHORT, delay=0) as advance:
            vectors.train(sample.numpy())
            advance(1)
    vectors.nprobe = min(cells, math.ceil(cells / 16) if effort is None else effort)
    return vectors


def measure(index: Index, embeddings: npt.NDArray[np.float32], *, seed: int = 0) -> Measured:
    """Recall and speed of an index compared with the exact search, with rows of its gallery as queries.

    Args:
        index: the index.
        embeddings: [image, dim] from which it was built.
        seed: of the choice of queries.

    >>> rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    >>> gallery = Embedded(rows, tuple(map(str, range(50))), np.zeros(50, int), ("one",))
    >>> measure(build(gallery), rows).recall  # an exact index finds all
    1.0
    """
    count, dim = embeddings.shape
    k = min(RECALL_AT, count - 1)
    asked = np.random.default_rng(seed).choice(count, min(ASKED, count), replace=False)
    if k < 1:
        return Measured(1.0, k, len(asked), 1.0)
    queries, own = _as_compared(embeddings[asked], index.normalized), torch.from_numpy(asked).unsqueeze(1)
    best = _exact_scores(_blocks(embeddings, index.normalized), queries, k, own)
    scores, items = index.topk(queries, k + 1)
    nearest = scores.masked_fill(items == own, -torch.inf).sort(1, descending=True).values[:, :k]
    # compare scores and not rows: another row with the same score is not an error
    last = best[:, -1:]
    recall = float((nearest >= last - 1e-6 * last.abs().clamp(min=1)).double().mean())
    # time the exact search on one block in memory, and scale it to the whole gallery
    block = next(_blocks(embeddings, index.normalized)).numpy()
    flat = _faiss().IndexFlatIP(dim)
    flat.add(block)
    times = []
    for search, share in ((replace(index, vectors=flat, rows=None), len(block) / count), (index, 1.0)):
        start = time.perf_counter()
        for row in torch.split(queries[:100], 1):
            search.topk(row, k)
        times.append((time.perf_counter() - start) / share)
    return Measured(recall, k, len(asked), times[0] / max(times[1], 1e-9))


def _exact_scores(blocks: Iterable[Tensor], queries: Tensor, k: int, own: Tensor) -> Tensor:
    """[query, k] scores of the k best rows of all blocks, without each query's own row `own` [query, 1]."""
    best, start = queries.new_empty(len(queries), 0), 0
    for block in (part for whole in blocks for part in torch.split(whole, TILE)):
        scores = queries @ block.T
        here = ((own >= start) & (own < start + len(block))).squeeze(1).nonzero().flatten()
        scores[here, own[here, 0] - start] = -torch.inf
        best = torch.cat([best, scores.topk(min(k, len(block)), dim=1).values], dim=1)
        best, start = best.topk(min(k, best.shape[1]), dim=1).values, start + len(block)
    return best


def _faiss() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from its generated bindings on newer Python versions
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
