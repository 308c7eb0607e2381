"""Numbers on the pages are those of the files that hold them: `make tables` writes them, and text is compared."""

from __future__ import annotations

import csv
import re
import runpy
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
RESULTS = sorted((ROOT / "docs" / "results").rglob("*.csv"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "shared").glob("*.md")),
    *sorted((ROOT / "docs" / "results").rglob("*.md")),
]
PAIR = re.compile(r"(\d*\.?\d+) ± (\d*\.?\d+)")


@pytest.mark.parametrize("page", MAKER["PAGES"], ids=lambda page: page.name)
def test_parts_of_a_page_are_as_their_sources(page):
    assert page.read_text("utf-8") == MAKER["filled"](page), "run `make tables`"


def test_a_table_with_another_number_would_be_noticed(tmp_path):
    page, text = tmp_path / "results.md", (ROOT / "docs" / "results.md").read_text("utf-8")
    start, end = text.index("<!-- table "), text.index("<!-- end -->")
    page.write_text(text[:start] + re.sub(r"\b\d\d\.\d\b", "99.9", text[start:end], count=1) + text[end:], "utf-8")
    assert page.read_text("utf-8") != text and MAKER["filled"](page) == text


def known() -> list[tuple[float, float]]:
    """Every mean with its deviation that a csv holds, or that the rows of its seeds give."""
    found = []
    for path in RESULTS:
        with path.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
        for row in rows:
            names = [("ours", "ours_std"), ("paper", "paper_std"), *((name, f"{name} std") for name in row)]
            found += [(abs(float(row[a])), float(row[b])) for a, b in names if row.get(a) and row.get(b)]
        if rows and "seed" in rows[0]:
            groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
            numbers = [name for name in rows[0] if re.fullmatch(r"-?[\d.]+", rows[0][name]) and name != "seed"]
            for row in rows:
                groups[tuple(value for name, value in row.items() if name not in (*numbers, "seed"))].append(row)
            for group in groups.values():
                columns = [[float(row[name]) for row in group] for name in numbers]
                found += [(statistics.mean(c), statistics.stdev(c)) for c in columns if len(c) > 1]
    return found


def near(printed: str, value: float) -> bool:
    """Whether a value is printed so; text of a half may be rounded either way."""
    return abs(float(printed) - value) <= 0.5 * 10 ** -len(printed.partition(".")[2]) + 1e-6


KNOWN = known()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_mean_and_deviation_of_a_page_is_in_a_file_of_results(page):
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    strange = [m[0] for m in PAIR.finditer(text) if not any(near(m[1], a) and near(m[2], b) for a, b in KNOWN)]
    assert strange == []


def test_a_number_without_a_file_would_be_noticed():
    assert len(KNOWN) > 300 and not any(near("12.3", a) and near("4.5", b) for a, b in KNOWN)


def test_pages_of_benchmarks_are_those_of_their_numbers():
    pages, records = MAKER["measured"](), list((ROOT / "benchmarks").glob("*.json"))
    assert len(pages) == len(records) > 0
    assert [path.name for path, text in pages.items() if path.read_text("utf-8") != text] == []
