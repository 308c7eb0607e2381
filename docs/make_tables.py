"""Writes the parts of the pages that come from elsewhere: `make tables`. A test fails where one is out of date.

A page marks such a part by `<!-- KIND WHAT -->` before it and `<!-- end -->` behind it:

    losses                          a row for each loss, as the code describes it
    table FILE                      measured numbers: a csv below docs/results
    table FILE: COLUMN, COLUMN      some of its columns
    text FILE                       words that several pages share: a file below docs/shared

The pages of benchmarks are written as a whole, from the json beside them. In a csv a column `X std` is
the standard deviation of column `X`, and is shown behind it.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from rankgrad.bench.page import page as benchmarks
from rankgrad.losses import LOSSES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"(<!-- (losses|table|text) ?(.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
LINK = re.compile(r"(\]\()(?!\w+:|#)")
STD = " std"
# In benchmarks/.
MEASURED = {
    "results.json": "README.md",
    "allocator.json": "allocator.md",
    "pipeline.json": "pipeline.md",
    "gallery.json": "gallery.md",
    "texts.json": "texts.md",
    "launches.json": "launches.md",
}


def losses() -> str:
    """A row for each loss."""
    head = "| name | class | what it optimises | paper | sees | gains |\n|---|---|---|---|---|---|\n"
    rows = [
        f"| `{name}` | `{kind.__name__}` | {kind.optimises} | {kind.source} "
        f"| {'differences' if kind.differences_only else 'absolute scores'} | {'yes' if kind.graded else '–'} |\n"
        for name, kind in LOSSES.items()
    ]
    return head + "".join(rows)


def table(file: str, columns: list[str]) -> str:
    """A csv as Markdown; without columns all of it."""
    with (DOCS / "results" / file).open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    shown = columns or [name for name in rows[0] if not name.endswith(STD)]
    sides = ["--:" if any(re.match(r"-?[.\d]", row[name]) for row in rows) else "---" for name in shown]
    lines = [shown, sides, *([cell(row, name) for name in shown] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(row: dict[str, str], name: str) -> str:
    """A value, with its deviation if there is one."""
    value, deviation = row[name], row.get(name + STD)
    return f"{value} ± {deviation}" if deviation else value


def text(file: str, page: Path) -> str:
    """Words that pages share; their links are from docs/."""
    words = (DOCS / "shared" / file).read_text(encoding="utf-8")
    return words if page.parent == DOCS else LINK.sub(r"\1docs/", words)


def filled(page: Path) -> str:
    """The page with its parts as their sources are now."""

    def part(found: re.Match[str]) -> str:
        kind, (file, _, columns) = found[2], found[3].partition(":")
        if kind == "table":
            made = table(file, [name.strip() for name in columns.split(",") if name.strip()])
        else:
            made = losses() if kind == "losses" else text(file, page)
        return f"{found[1]}{made}{found[4]}"

    return BLOCK.sub(part, page.read_text(encoding="utf-8"))


def measured() -> dict[Path, str]:
    """The pages of benchmarks, as their numbers have them."""
    folder = ROOT / "benchmarks"
    return {
        folder / name: benchmarks(json.loads((folder / record).read_text(encoding="utf-8")))
        for record, name in MEASURED.items()
    }


if __name__ == "__main__":
    for each, words in measured().items():
        each.write_text(words, encoding="utf-8")
    for each in PAGES:
        each.write_text(filled(each), encoding="utf-8")
