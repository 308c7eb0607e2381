"""Writes the tables of README.md that the code knows itself: `make tables`. A test fails where they are out of date."""

from __future__ import annotations

import re
from pathlib import Path

from rankgrad.losses import LOSSES

README = Path(__file__).parents[1] / "README.md"
HEAD = "| name | class | what it optimises | paper | sees | gains |\n|---|---|---|---|---|---|\n"
BLOCK = re.compile(r"(<!-- losses -->\n).*?(<!-- end -->)", re.DOTALL)


def losses() -> str:
    """A row for each loss."""
    rows = [
        f"| `{name}` | `{kind.__name__}` | {kind.optimises} | {kind.source} "
        f"| {'differences' if kind.differences_only else 'absolute scores'} | {'yes' if kind.graded else '–'} |\n"
        for name, kind in LOSSES.items()
    ]
    return HEAD + "".join(rows)


def filled(text: str) -> str:
    """The page with its tables as the code has them now."""
    return BLOCK.sub(lambda found: f"{found[1]}{losses()}{found[2]}", text)


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
