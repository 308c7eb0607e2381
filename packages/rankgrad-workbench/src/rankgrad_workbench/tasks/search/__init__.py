"""The kind of run `search`: queries and documents -> an encoder, judged beside BM25."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What pages import from here -> its module, which is read when it is first asked for: most need torch.
_PLACES = {"System": "system", "load_encoders": "encoders", "read": "reading", "retrieve": "encoders"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
