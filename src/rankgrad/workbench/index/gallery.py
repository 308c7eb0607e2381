"""`Index`: a gallery that can be searched, and that is written to a folder and read from it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..._version import __version__
from ...common.checks import Numbers, integer, tensor
from ...common.files import remove_leftovers, write_text
from ...common.files.folders import lock
from ...ranks.normalize import unit_rows
from ...search import of_one_byte
from .disk import (
    FORMAT,
    HEAD,
    Kind,
    Measured,
    faiss_module,
    need_own,
    ours,
    read_head,
    read_vectors,
    store,
    vector_files,
)
from .embedder import Embedder, Origin, sha256_of, weights_of
from .threshold import Threshold

BLOCK = 2**25  # numbers of the gallery that are in memory at once


@dataclass(frozen=True, eq=False)
class Index:
    """Embeddings of a gallery, ready for search.

    Attributes:
        vectors: the faiss index.
        names: of the images, relative to `origin.root`.
        labels: [image] long.
        class_names: of the labels.
        kind: "exact": every row is compared. "hnsw": a graph is searched (Malkov and Yashunin, TPAMI 2018,
            arXiv:1603.09320).
        normalized: whether rows and queries are normalised to length 1, so that scores are cosines.
        origin: model and folder; None: the index can be searched with vectors only.
        measured: quality of an approximate index; None for "exact".
        texts: [row] the texts of the rows; empty if the rows are not texts.

    >>> from rankgrad.workbench.index import build
    >>> from rankgrad.workbench.index.embedder import Embedded
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
        """Number of rows."""
        return len(self.names)

    @property
    def dim(self) -> int:
        """Dimension of an embedding."""
        return int(self.vectors.d)

    @property
    def threshold(self) -> Threshold | None:
        """The score below which a search has found nothing; None: unknown, or the scores are no cosines."""
        return self.origin.threshold if self.origin is not None and self.normalized else None

    def path(self, row: int) -> Path:
        """The file of an image; only its name if the index does not know the folder."""
        name = Path(self.names[row])
        return name if self.origin is None else self.origin.root / name

    def topk(self, queries: Numbers, k: int) -> tuple[Tensor, Tensor]:
        """The k rows with the highest inner product with each query, best first; of equal scores the lower row first.

        Of rows with the same score as the k-th one, any may be in the list. The graph "hnsw" may miss rows. If fewer
        than k are found, the list ends with score -inf and row -1.

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
        queries = queries.float() if of_one_byte(queries) else queries
        if queries.dim() != 2 or not queries.is_floating_point() or queries.shape[1] != self.dim:
            raise ValueError(
                f"the index holds {self.dim}-d embeddings and needs queries float [query, {self.dim}]; got "
                f"{queries.dtype} {tuple(queries.shape)}. Did another model make them?"
            )
        k = integer(k, "k is the length of the lists", low=1)
        rows = queries.detach().float().cpu()
        if not bool(rows.isfinite().all()):
            raise ValueError("queries contain NaN or infinity; check the model's output for them")
        asked = (unit_rows(rows) if self.normalized else rows).contiguous().numpy()
        k = min(k, len(self))
        scores, items = self.vectors.search(asked, k)
        best, place = torch.from_numpy(scores), torch.from_numpy(items)
        best = best.masked_fill(place < 0, -torch.inf)
        by_row = torch.where(place < 0, len(self), place).argsort(1)  # first by row, then stable by score
        best, place = best.gather(1, by_row), place.gather(1, by_row)
        best, order = torch.sort(best, dim=1, descending=True, stable=True)
        return best[:, :k], place.gather(1, order)[:, :k]

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
        need_own(folder)
        folder.mkdir(exist_ok=True)
        with lock(folder, "this index"):
            remove_leftovers(folder, ours=ours)
            self._write(folder)
        return folder

    def _write(self, folder: Path) -> None:
        kept, stored = vector_files(folder), dict[str, Any]()
        try:
            stored["vectors"] = store(folder, "vectors", "faiss", self._write_vectors)
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
            for path in vector_files(folder) - kept:
                path.unlink()

    def _write_vectors(self, file: IO[bytes]) -> None:
        try:
            faiss_module().write_index(self.vectors, file.name)
        except RuntimeError as error:  # e.g. a full disk
            why = str(error).splitlines()[-1].rpartition("(")[2].rstrip(")")
            number = errno.ENOSPC if why == os.strerror(errno.ENOSPC) else errno.EIO
            raise OSError(number, f"faiss cannot write: {why}", file.name) from None

    @classmethod
    def load(cls, folder: str | Path) -> Index:
        """Read an index of `save`. The SHA-256 of its vectors is checked.

        If another process replaces the index in the meantime, the new one is read.

        Raises:
            FileNotFoundError: there is no index, or its vectors are missing.
            ValueError: the path is not an index, it is damaged, or its files do not belong together.
            ModuleNotFoundError: faiss is not installed.
        """
        folder = Path(folder)
        head = read_head(folder)
        try:
            return cls._load(folder, head)
        except (FileNotFoundError, ValueError):
            if read_head(folder) == head:
                raise
        return cls.load(folder)

    @classmethod
    def _load(cls, folder: Path, head: dict[str, Any]) -> Index:
        path = folder / head["vectors"]["file"]
        vectors = read_vectors(path, head)
        if (vectors.ntotal, vectors.d) != (head["images"], head["dim"]) or head["images"] != len(head["names"]):
            raise ValueError(
                f"the files of {folder} do not belong together: {HEAD} has {head['images']} rows in {head['dim']} "
                f"dimensions, {path.name} has {vectors.ntotal} in {vectors.d}"
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
