"""The page of a retrieval run: its content, with the retrieved images."""

from __future__ import annotations

from .pictures import Pictures
from .reading import Content, read
from .space import Space

__all__ = ["Content", "Pictures", "Space", "read"]
