"""A model of n-grams as a module of sentence-transformers, which `rankgrad export` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers.sentence_transformer.modules import InputModule
from torch import Tensor

from . import ngrams


class NGramsModule(InputModule):  # type: ignore[misc]
    """`rankgrad_workbench.models.NGrams` as the first module of a SentenceTransformer.

    sentence-transformers imports it by its name, which it does with trust_remote_code=True alone.

    Args:
        dim: see `rankgrad_workbench.models.NGrams`, as for the others.
        buckets: rows of the table.
        words: smallest and largest n of the word n-grams.
        characters: smallest and largest n of the character n-grams.

    >>> from sentence_transformers import SentenceTransformer
    >>> SentenceTransformer(modules=[NGramsModule(8, 100)], device="cpu").encode(["my card", "a loan"]).shape
    (2, 8)
    """

    config_keys = ["dim", "buckets", "words", "characters"]
    save_in_root = False

    def __init__(self, dim: int, buckets: int, words: Sequence[int] = (1, 2), characters: Sequence[int] = (3, 5)):
        super().__init__()
        self.ngrams = ngrams.NGrams(dim, buckets, tuple(words), tuple(characters))  # type: ignore[arg-type]
        self.dim, self.buckets = self.ngrams.dim, self.ngrams.buckets
        self.words, self.characters = self.ngrams.words, self.ngrams.characters

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **kwargs: Any) -> dict[str, Tensor]:
        """Rows of the table for the n-grams of all texts, and where each text begins."""
        rows, offsets = self.ngrams.tokens([(prompt or "") + text for text in inputs])
        return {"input_ids": rows, "offsets": offsets}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the embeddings of the texts."""
        features["sentence_embedding"] = self.ngrams.table(features["input_ids"], features["offsets"])
        return features

    def get_embedding_dimension(self) -> int:
        """Width of the embeddings."""
        return self.dim

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the settings and the table into a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> NGramsModule:
        """Read a folder of `save`."""
        taken = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        where = {name: kwargs[name] for name in taken if name in kwargs}
        made = cls(**cls.load_config(model_name_or_path, **where))
        loaded: NGramsModule = cls.load_torch_weights(model_name_or_path, model=made, **where)
        return loaded
