"""The page of a retrieval run: its content, with the retrieved images, and galleries of them."""

from __future__ import annotations

from .gallery import QueryExample, RetrievedItem, retrieval_gallery
from .reading import Content, read
from .retrieved import Pictures, Space

__all__ = ["Content", "Pictures", "QueryExample", "RetrievedItem", "Space", "read", "retrieval_gallery"]
