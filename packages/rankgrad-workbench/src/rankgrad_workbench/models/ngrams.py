"""Texts -> embeddings from hashed word and character n-grams: a small model that trains in seconds on a CPU."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn

from rankgrad.common.checks import integer

from .embedding_model import EmbeddingModel, described
from .heads import EmbeddingHead, Head
from .inputs import TextInput

WORDS = re.compile(r"\w+|[^\w\s]")
Range = tuple[int, int]


class NGrams(nn.Module):
    """The mean of the embeddings of all word n-grams and character n-grams of a text.

    As in fastText (Bojanowski et al., TACL 2017, arXiv:1607.04606), every n-gram is hashed to one of `buckets` rows of
    a table. So no vocabulary is needed. Misspelt words share most of their n-grams. Word pairs keep some of the word
    order. The text is converted to lower case and split into words at white space and punctuation. Character n-grams
    stay within a word, whose borders are marked: "<card>". The hash is CRC-32, the same on every machine.

    Args:
        dim: width of the embeddings.
        buckets: rows of the table; n-grams with the same hash share a row.
        words: smallest and largest n of the word n-grams.
        characters: smallest and largest n of the character n-grams; (0, 0): none.

    Shape:
        texts: [row] strings; result [row, dim] float. A text without a word gives a row of zeros.

    >>> model = NGrams(dim=8, buckets=1000)
    >>> model(["my card", "My  CARD", "my loan"]).shape
    torch.Size([3, 8])
    >>> same, other = (model([text])[0] for text in ("my card", "My  CARD"))
    >>> torch.equal(same, other)
    True
    """

    kind = "ngrams"  # of `defaults.RATES`

    def __init__(self, dim: int = 128, buckets: int = 2**15, words: Range = (1, 2), characters: Range = (3, 5)) -> None:
        super().__init__()
        self.dim = integer(dim, "dim is the width of the embeddings", low=1)
        self.buckets = integer(buckets, "buckets is the number of rows of the table", low=1)
        self.words, self.characters = _range(words, "words"), _range(characters, "characters")
        if self.words == self.characters == (0, 0):
            raise ValueError("words and characters are both (0, 0), so a text has no n-grams: set one of them")
        self.table = nn.EmbeddingBag(self.buckets, self.dim, mode="mean")

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Embed texts."""
        if isinstance(texts, str):
            raise TypeError("texts is a list of strings; got one string")
        embeddings: Tensor = self.table(*(part.to(self.table.weight.device) for part in self.tokens(texts)))
        return embeddings

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """(rows of the table for the n-grams of all texts, place of the first one of each text)."""
        rows = [_of_text(text, self.words, self.characters, self.buckets) for text in texts]
        lengths = torch.tensor([0, *map(len, rows)], dtype=torch.long)
        return torch.cat([torch.empty(0, dtype=torch.int32), *rows]).long(), lengths.cumsum(0)[:-1]


@lru_cache(maxsize=2**12)  # a training reads the same texts again
def _of_text(text: str, words: Range, characters: Range, buckets: int) -> Tensor:
    """Rows of the table for the n-grams of a text."""
    found = WORDS.findall(text.lower())
    rows = [_bucket(run, buckets) for run in _runs(found, *words, " ")]
    rows += [row for word in found for row in _of_word(word, characters, buckets)]
    return torch.tensor(rows, dtype=torch.int32)


@lru_cache(maxsize=2**16)  # most words are repeated
def _of_word(word: str, characters: Range, buckets: int) -> tuple[int, ...]:
    return tuple(_bucket(f"<{piece}", buckets) for piece in _runs(f"<{word}>", *characters))


def _runs(parts: Sequence[str], low: int, high: int, between: str = "") -> Iterator[str]:
    """The n-grams of words, or of characters, for n = low .. high."""
    for size in range(max(low, 1), high + 1):
        for at in range(len(parts) - size + 1):
            yield between.join(parts[at : at + size])


def _bucket(ngram: str, buckets: int) -> int:
    return zlib.crc32(ngram.encode("utf-8", "surrogatepass")) % buckets


@described("ngrams")
def ngram_model(
    dim: int = 128,
    buckets: int = 2**15,
    words: Range = (1, 2),
    characters: Range = (3, 5),
    embedding_size: int | None = None,
    *,
    head: Head | None = None,
) -> EmbeddingModel:
    """`NGrams` with a head, as an `EmbeddingModel`.

    Args:
        dim: see `NGrams`.
        buckets: see `NGrams`.
        words: see `NGrams`.
        characters: see `NGrams`.
        embedding_size: dim of the embeddings; None keeps `dim`.
        head: see `EmbeddingHead`.

    >>> ngram_model(dim=8, buckets=100)(["where is my card", "a loan"]).shape
    torch.Size([2, 8])
    """
    grams = NGrams(dim, buckets, words, characters)
    return EmbeddingModel(grams, nn.Identity(), EmbeddingHead(dim, embedding_size, head), TextInput())


def _range(given: Range, name: str) -> Range:
    """(smallest n, largest n), checked."""
    try:
        low, high = given
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is the smallest and the largest n of n-grams, such as (1, 2); got {given!r}"
        ) from None
    low = integer(low, f"the first number of {name} is the smallest n of n-grams", low=0)
    high = integer(high, f"the second number of {name} is the largest n of n-grams", low=low)
    return low, high
