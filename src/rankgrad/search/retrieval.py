"""A model, queries and a corpus of any size -> a run: the best documents of every query, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..common.checks import integer, tensor, unmasked
from ..common.text import shown
from ..ranks.normalize import unit_rows
from . import topk

Model = Callable[[list[Any]], Any]
Items = Mapping[Any, Any] | Iterable[tuple[Any, Any]]
Arrays = tuple[Sequence[Any], Any]


def retrieve(
    model: Model | None,
    queries: Items | Arrays,
    corpus: Items | Arrays,
    k: int = 100,
    *,
    query_model: Model | None = None,
    normalize: bool = True,
    batch_size: int = 512,
    block: int = 2**14,
) -> dict[str, dict[str, float]]:
    """The k documents that are closest to each query; exact, and in blocks of documents.

    Only one block of the corpus is in memory, so the corpus may be an iterable that reads a file, or a memory-mapped
    array of embeddings. Documents of equal score are in the order of the corpus.

    Args:
        model: items -> embeddings [item, dim]: a module, a function, or a SentenceTransformer. None: queries and corpus
            are embeddings.
        queries: id -> item (a text, for a model of texts), pairs (id, item), or a tuple (ids, items); without a model
            (ids, embeddings [query, dim]).
        corpus: the same for documents. Ids are strings or integers, each once.
        k: number of documents for a query; all, if there are fewer.
        query_model: model of the queries, if it is another one, or needs a prompt.
        normalize: the score is the cosine; False: the inner product.
        batch_size: number of items that the model gets at a time.
        block: number of documents that are searched at a time.

    Returns:
        query -> document -> score, best first: a run, as `trec` evaluates, fuses and writes it.

    Raises:
        ValueError: there are no queries or documents, or an id occurs twice.

    >>> run = retrieve(None, (["q"], torch.eye(2)[:1]), (["a", "b"], torch.tensor([[0.0, 1.0], [3.0, 4.0]])))
    >>> {document: round(score, 3) for document, score in run["q"].items()}
    {'b': 0.6, 'a': 0.0}
    """
    k, block = integer(k, "k is the length of a list", low=1), integer(block, "block is a number of documents", low=1)
    batch_size = integer(batch_size, "batch_size is a number of items", low=1)
    asked = list(_blocks(query_model or model, queries, batch_size, block, normalize))
    names = list(chain.from_iterable(ids for ids, _ in asked))
    if not names:
        raise ValueError("there are no queries; give one or more")
    documents: list[str] = []

    def parts() -> Iterator[Tensor]:
        for ids, part in _blocks(model, corpus, batch_size, block, normalize):
            documents.extend(ids)
            yield part

    best, found = topk_of_blocks(torch.cat([part for _, part in asked]), parts(), k)
    if not documents:
        raise ValueError("the corpus has no documents")
    for what, each in (("query", names), ("document", documents)):
        if len(set(each)) < len(each):
            seen: set[str] = set()
            twice = next(name for name in each if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise ValueError(f"the {what} {shown(twice)!r} occurs twice; ids must differ")
    return {
        name: {documents[row]: score for row, score in zip(index, values, strict=True)}
        for name, index, values in zip(names, found.tolist(), best.tolist(), strict=True)
    }


def topk_of_blocks(queries: Tensor, blocks: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """`topk` in a gallery of which only one block is in memory. Of equal scores, the earlier row comes first.

    Args:
        queries: [query, dim].
        blocks: consecutive blocks [row, dim] of the gallery.
        k: number of rows for a query; all, if there are fewer.

    >>> topk_of_blocks(torch.eye(2)[:1], iter([torch.eye(2)[1:], torch.eye(2)[:1]]), k=1)
    (tensor([[1.]]), tensor([[1]]))
    """
    best = torch.empty(len(queries), 0, device=queries.device)
    found, rows = torch.empty(len(queries), 0, dtype=torch.long), 0
    for part in blocks:
        scores, index = topk(queries, part.to(queries.device), min(k, len(part)))
        # a stable sort: of equal scores, those of earlier blocks come first
        best, order = torch.cat([best.to(scores.dtype), scores], 1).sort(dim=1, descending=True, stable=True)
        found = torch.cat([found, index.cpu() + rows], 1).gather(1, order.cpu())[:, :k]
        best, rows = best[:, :k], rows + len(part)
    return best, found


def _blocks(
    model: Model | None, items: Items | Arrays, batch_size: int, block: int, normalize: bool
) -> Iterator[tuple[list[str], Tensor]]:
    """(ids, embeddings) of consecutive items."""
    with _embedding(model, batch_size) as embed, torch.no_grad():
        for ids, part in _parts(items, block, model is None):
            rows = embed(part)
            yield list(map(str, ids)), unit_rows(rows) if normalize else rows


def _parts(items: Items | Arrays, block: int, embedded: bool) -> Iterator[tuple[Sequence[Any], Any]]:
    """(ids, items) of consecutive items."""
    if isinstance(items, tuple) and len(items) == 2:
        ids, given = items
        if len(ids) != len(given):
            raise ValueError(f"ids and items must be equally many; got {len(ids)} and {len(given)}")
        for at in range(0, len(ids), block):
            yield ids[at : at + block], given[at : at + block]
        return
    if embedded:
        raise ValueError("without a model, queries and corpus must be tuples (ids, embeddings [id, dim])")
    pairs = iter(items.items() if isinstance(items, Mapping) else items)
    while part := list(islice(pairs, block)):
        yield [name for name, _ in part], [item for _, item in part]


@contextmanager
def _embedding(model: Model | None, batch_size: int) -> Iterator[Callable[[Any], Tensor]]:
    """A function from items to embeddings. A module is in eval mode meanwhile."""
    modes = [(module, module.training) for module in model.modules()] if isinstance(model, nn.Module) else []
    encode = getattr(model, "encode", None)

    def rows(part: Any) -> Tensor:
        if encode is not None:
            part = encode(list(part), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False)
        elif model is not None:
            batches = [model(list(part[at : at + batch_size])) for at in range(0, len(part), batch_size)]
            part = torch.cat([tensor(batch, "embeddings") for batch in batches])
        # a copy, as the rows of a memory-mapped file cannot be written
        found = part if isinstance(part, Tensor) else torch.from_numpy(np.array(unmasked(part, "embeddings")))
        return found.detach() if found.dtype == torch.float64 else found.detach().float()

    for module, _ in modes[:1]:
        module.eval()
    try:
        yield rows
    finally:
        for module, training in modes:
            module.training = training


__all__ = ["retrieve", "topk_of_blocks"]
