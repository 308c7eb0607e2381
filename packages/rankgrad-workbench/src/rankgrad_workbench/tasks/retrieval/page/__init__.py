"""The page of a retrieval run: its content, with the retrieved images."""

from __future__ import annotations

from .reading import Content, Pictures, Space, read

__all__ = ["Content", "Pictures", "Space", "read"]
