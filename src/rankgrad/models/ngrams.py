"""Texts -> embeddings by hashed words and pieces of words: a small model that trains in seconds on a CPU."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from ..checks import integer
from .embedding_model import EmbeddingModel
from .heads import EmbeddingHead, Head
from .inputs import TextInput

WORDS = re.compile(r"\w+|[^\w\s]")
Range = tuple[int, int]


class NGrams(nn.Module):
    """The mean of an embedding for each run of words and each run of characters in a text.

    As in fastText (Bojanowski et al., TACL 2017, arXiv:1607.04606): every n-gram is hashed into one of `buckets` rows, so
    that there is no vocabulary to build, misspelt words share most of their pieces, and word pairs keep some order. The
    text is taken in lower case; words are divided at white space and punctuation, pieces of words at their borders,
    which are marked: "<card>". The hash is CRC-32, the same on every machine.

    Args:
        dim: width of the embeddings.
        buckets: rows of the table; n-grams that fall into one row share it.
        words: shortest and longest run of words.
        characters: shortest and longest run of characters inside a word; (0, 0): none.

    Shape:
        texts: [row] strings; result [row, dim] float. A text without a word gives a row of zeros.

    >>> model = NGrams(dim=8, buckets=1000)
    >>> model(["my card", "My  CARD", "my loan"]).shape
    torch.Size([3, 8])
    >>> same, other = (model([text])[0] for text in ("my card", "My  CARD"))
    >>> torch.equal(same, other)
    True
    """  # noqa: E501

    def __init__(self, dim: int = 128, buckets: int = 2**15, words: Range = (1, 2), characters: Range = (3, 5)) -> None:
        super().__init__()
        self.dim = integer(dim, "dim is the width of the embeddings", low=1)
        self.buckets = integer(buckets, "buckets counts rows of the table", low=1)
        self.words, self.characters = _range(words, "words"), _range(characters, "characters")
        if self.words == self.characters == (0, 0):
            raise ValueError("words and characters are both (0, 0): nothing of a text would be left")
        self.table = nn.EmbeddingBag(self.buckets, self.dim, mode="mean")
        self._pieces = lru_cache(maxsize=2**16)(self._of_word)  # most words come again

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Embed texts."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of strings; got one string")
        rows = [self.rows(text) for text in texts]
        device = self.table.weight.device
        flat = torch.tensor([row for each in rows for row in each], dtype=torch.long, device=device)
        lengths = torch.tensor([0, *map(len, rows)], dtype=torch.long, device=device)
        embeddings: Tensor = self.table(flat, lengths.cumsum(0)[:-1])
        return embeddings

    def rows(self, text: str) -> list[int]:
        """Rows of the table that a text is made of, in no particular order."""
        words = WORDS.findall(text.lower())
        low, high = self.words
        runs = [
            self._bucket(" ".join(words[at : at + size]))
            for size in range(max(low, 1), high + 1)
            for at in range(len(words) - size + 1)
        ]
        return runs + [row for word in words for row in self._pieces(word)]

    def _of_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._bucket(f"<{piece}") for piece in _pieces(f"<{word}>", *self.characters))

    def _bucket(self, ngram: str) -> int:
        return zlib.crc32(ngram.encode("utf-8", "surrogatepass")) % self.buckets

    def __getstate__(self) -> dict[str, object]:
        """Everything but the words seen so far."""
        return {name: value for name, value in self.__dict__.items() if name != "_pieces"}

    def __setstate__(self, state: dict[str, object]) -> None:
        """As it was, with no words seen."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._pieces = lru_cache(maxsize=2**16)(self._of_word)


def ngram_model(
    dim: int = 128,
    buckets: int = 2**15,
    words: Range = (1, 2),
    characters: Range = (3, 5),
    embedding_size: int | None = None,
    *,
    head: Head = "none",
) -> EmbeddingModel:
    """`NGrams` under a head, as a model of runs.

    Args:
        dim: see `NGrams`, as the next three.
        buckets: rows of the table.
        words: shortest and longest run of words.
        characters: shortest and longest run of characters inside a word.
        embedding_size: dim of the embeddings; None keeps `dim`.
        head: see `EmbeddingHead`.

    >>> ngram_model(dim=8, buckets=100)(["where is my card", "a loan"]).shape
    torch.Size([2, 8])
    """
    words, characters = _range(words, "words"), _range(characters, "characters")
    return EmbeddingModel(
        NGrams(dim, buckets, words, characters),
        nn.Identity(),
        EmbeddingHead(dim, embedding_size, head),
        TextInput(),
        config={
            "kind": "ngrams",
            "dim": dim,
            "buckets": buckets,
            "words": list(words),
            "characters": list(characters),
            "embedding_size": embedding_size,
            "head": head,
        },
    )


def _pieces(marked: str, low: int, high: int) -> Iterator[str]:
    """Runs of low .. high characters of a word with its marks."""
    for size in range(max(low, 1), high + 1):
        for at in range(len(marked) - size + 1):
            yield marked[at : at + size]


def _range(given: Range, name: str) -> Range:
    """Shortest and longest, checked."""
    try:
        low, high = given
    except (TypeError, ValueError):
        raise ValueError(f"{name} is the shortest and the longest run, such as (1, 2); got {given!r}") from None
    low = integer(low, f"{name} begins with the shortest run", low=0)
    high = integer(high, f"{name} ends with the longest run", low=low)
    return low, high
