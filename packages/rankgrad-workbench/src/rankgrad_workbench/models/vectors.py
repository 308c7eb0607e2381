"""A model for precomputed vectors: only a head."""

from __future__ import annotations

from torch import nn

from .embedding_model import EmbeddingModel, described
from .heads import EmbeddingHead, Head
from .inputs import VectorInput


@described("vectors")
def vector_model(width: int, embedding_size: int | None = None, *, head: Head = "linear") -> EmbeddingModel:
    """A head for vectors [row, width] of another model, for users who cannot train that model.

    The affine map of the head starts as the identity if it is square, else as a random orthogonal projection. So
    training starts from the given vectors or from a projection of them.

    Args:
        width: length of a vector.
        embedding_size: dim of the embeddings; None keeps the width.
        head: see `EmbeddingHead`; "none" gives the vectors unchanged.

    >>> import torch
    >>> vectors = torch.randn(2, 6)
    >>> torch.equal(vector_model(6)(vectors), vectors)
    True
    """
    made = EmbeddingHead(width, embedding_size, head)
    made.start_as_projection()
    return EmbeddingModel(nn.Identity(), nn.Identity(), made, VectorInput(width))
