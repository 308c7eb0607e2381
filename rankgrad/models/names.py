"""What to say about a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _did_you_mean(kind: str, name: object, known: Iterable[str], limit: int = 12) -> str:
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else "."
    listed = f" Known: {', '.join(known)}" if len(known) <= limit else ""
    return f"unknown {kind} {name!r}{hint}{listed}"
