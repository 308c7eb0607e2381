"""The encoders of queries and documents, with their prompts; and search with them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.common.checks import integer
from rankgrad.common.progress import steps
from rankgrad.common.text import shown
from rankgrad.evaluation.json_report import fits
from rankgrad.ranks.normalize import unit_rows
from rankgrad.search.retrieval import topk_of_blocks

from ...files import sha256_of
from ...models import EmbeddingModel, load_weights, save_weights
from ...models.embedding_model import evaluating
from .collection import Array, Collection, NamedTexts

Side = Literal["query", "document"]
PROMPTS = {"query": ("query",), "document": ("document", "passage")}  # names in a model of sentence-transformers
BLOCK = 2**12  # documents that are in memory at a time
QUERIES = "queries.pt"  # file of the encoder of queries, if it is not that of the documents


class Encoders(nn.Module):
    """One encoder for queries and documents, or two.

    Args:
        document: texts -> embeddings.
        query: the same for queries; None: the encoder of the documents.
        prompts: "query" and "document" -> text that is put before each.
    """

    def __init__(self, document: EmbeddingModel, query: EmbeddingModel | None, prompts: dict[str, str]) -> None:
        super().__init__()
        self.document = document
        self.query = document if query is None else query
        self.prompts = prompts

    def forward(self, texts: Sequence[str], side: Side, part: int | None = None) -> Tensor:
        """[text, dim] embeddings of length 1.

        Args:
            texts: without prompts.
            side: which encoder.
            part: number of texts that are embedded at a time, see `large_batch`; None: all.
        """
        encoder = self.query if side == "query" else self.document
        given = [self.prompts[side] + text for text in texts]
        rows: Tensor = encoder(given) if part is None else embed_in_parts(encoder, given, part)
        return unit_rows(rows.float())

    def embed(self, texts: Sequence[str], side: Side, batch_size: int = 512, progress: bool = False) -> Tensor:
        """[text, dim] float32 on the CPU, in eval mode. Texts of similar length are embedded together."""
        order = np.argsort([-len(text) for text in texts], kind="stable").tolist()
        parts = [torch.empty(0, self.document.embedding_size)]
        with evaluating(self), steps(len(texts), f"embedding texts ({side})", "text", progress) as advance:
            for at in range(0, len(order), batch_size):
                parts.append(self([texts[row] for row in order[at : at + batch_size]], side).cpu())
                advance(len(parts[-1]))
        return torch.cat(parts)[np.argsort(order)]

    def embed_in_blocks(
        self, texts: Sequence[str], batch_size: int = 512, progress: bool = False, block: int = BLOCK
    ) -> Iterator[Tensor]:
        """Consecutive blocks [text, dim] of the embeddings of documents: one block of texts is in memory at a time."""
        with steps(len(texts), "embedding documents", "text", progress) as advance:
            for at in range(0, len(texts), block):
                part = self.embed(texts[at : at + block], "document", batch_size)
                advance(len(part))
                yield part

    def save(self, path: Path, **about: Any) -> None:
        """Write the encoder of the documents to a file; that of the queries beside it, if it is another."""
        config = {"task": "search", "prompts": self.prompts, **about}
        if self.query is not self.document:
            queries = save_weights(path.with_name(QUERIES), self.query, config)
            config["queries"] = sha256_of(queries)
        save_weights(path, self.document, config)


def encoders(model: EmbeddingModel, number: int, query: str | None, document: str | None) -> Encoders:
    """Encoders from a model: one, or two that are equal.

    Args:
        model: the model.
        number: 1 or 2.
        query: prompt of queries; None: that of the model, if it has one.
        document: prompt of documents; None: likewise.
    """
    own = getattr(getattr(model.backbone, "model", None), "prompts", None) or {}
    usual = {side: next((own[name] for name in names if own.get(name)), "") for side, names in PROMPTS.items()}
    given = {"query": query, "document": document}
    prompts = {side: usual[side] if text is None else text for side, text in given.items()}
    return Encoders(model, copy.deepcopy(model) if number == 2 else None, prompts)


def load_encoders(source: Path) -> Encoders:
    """The encoders of a finished run.

    Args:
        source: folder of the run, or its model.pt.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: a file is damaged, the run trained no search, or the files of two encoders are of two runs.
    """
    weights = source / "model.pt" if source.is_dir() else source
    document, config = load_weights(weights)
    if not fits(config, {"prompts": dict.fromkeys(PROMPTS, str)}):
        raise ValueError(f"{shown(source)} holds no model of rankgrad train task=search")
    query = None
    if "queries" in config:
        beside = weights.with_name(QUERIES)
        if not beside.is_file():
            raise FileNotFoundError(f"{shown(beside)}, the encoder of the queries, does not exist: copy it, too")
        if sha256_of(beside) != config["queries"]:
            raise ValueError(f"{shown(beside)} is not of the run of {shown(weights)}: copy both from one run")
        query, _ = load_weights(beside)
    return Encoders(document, query, config["prompts"]).eval()


class StoredRows:
    """Embeddings in a temporary file, for a corpus that is larger than memory.

    Args:
        blocks: consecutive blocks [row, dim] float32.
        folder: where the file is; None: the folder of temporary files. It goes when the object goes.

    >>> rows = StoredRows(iter([torch.eye(2), torch.zeros(1, 2)]))
    >>> len(rows), rows.take([2, 1]), [len(part) for part in rows.blocks(2)]
    (3, tensor([[0., 0.],
            [0., 1.]]), [2, 1])
    """

    def __init__(self, blocks: Iterable[Tensor], folder: Path | None = None) -> None:
        self._file, shape = tempfile.TemporaryFile(dir=folder), (0, 1)
        for part in blocks:
            self._file.write(part.numpy().tobytes())
            shape = (shape[0] + len(part), part.shape[1])
        self._file.flush()
        self._rows = np.memmap(self._file, np.float32, "r", shape=shape) if shape[0] else np.empty(shape, np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self, size: int = BLOCK) -> Iterator[Tensor]:
        """Consecutive blocks [row, dim]."""
        yield from (torch.from_numpy(np.array(self._rows[at : at + size])) for at in range(0, len(self), size))

    def take(self, rows: Sequence[int]) -> Tensor:
        """[row, dim] some of the rows."""
        return torch.from_numpy(np.array(self._rows[list(rows)]))

    def __del__(self) -> None:
        self._file.close()


@dataclass(frozen=True, eq=False)
class Found:
    """The lists of a system.

    Attributes:
        document: [query, place] rows of documents, best first; -1: the list is shorter.
        score: [query, place] float.
    """

    document: Array
    score: Array


def without_own(found: Found, collection: Collection, rows: Array, depth: int) -> Found:
    """Lists of `depth` + `most_own` documents without a query's own, cut to `depth`.

    Args:
        found: the lists.
        collection: with the queries' own documents.
        rows: [query] rows of the queries.
        depth: number of documents that are kept.
    """
    document, score = found.document.copy(), found.score.copy()
    for at, query in enumerate(rows.tolist()):
        if (own := collection.own.get(query)) is not None:
            order = np.argsort(np.isin(document[at], own), kind="stable")
            document[at], score[at] = document[at, order], score[at, order]
            document[at, np.isin(document[at], own)] = -1
    return Found(document[:, :depth], score[:, :depth])


def retrieve(
    model: Encoders,
    queries: Sequence[str],
    documents: NamedTexts,
    depth: int = 100,
    *,
    batch_size: int = 512,
    progress: bool = False,
    corpus: StoredRows | None = None,
    block: int = BLOCK,
) -> Found:
    """The documents with the highest cosine for each query; the search is exact.

    Args:
        model: the encoders.
        queries: [query] texts.
        documents: the corpus.
        depth: number of documents in a list; all, if there are fewer.
        batch_size: number of texts that are embedded at a time.
        progress: show bars.
        corpus: embeddings of the corpus; None: they are computed.
        block: number of documents that are read, embedded and searched at a time.
    """
    depth = min(integer(depth, "depth is a number of documents", low=1), len(documents))
    embedded = model.embed_in_blocks(documents.texts, batch_size, progress, block)
    asked = model.embed(queries, "query", batch_size, progress)
    score, row = topk_of_blocks(asked, embedded if corpus is None else corpus.blocks(block), depth)
    return Found(row.numpy(), score.double().numpy())
