"""Files of the repository that pages name in backticks are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*/README.md"), ROOT / "benchmarks" / "README.md"]
OURS = ("src/", "tests/", "docs/", "packages/", "papers/", "examples/", "benchmarks/", ".github/")
WRITTEN = ("benchmarks/gpu.json",)  # by a command of the page
KINDS = r"(py|md|toml|ya?ml|json|html|css|js|cfg|txt|in|cff)"


def named(text: str) -> list[str]:
    """The words in backticks that look like a file or folder of the repository.

    >>> named("`src/rankgrad/x.py`, `RUN/config.yaml`, `docs/`, `src/*.py` and `CITATION.cff`")
    ['src/rankgrad/x.py', 'docs/', 'CITATION.cff']
    """
    words = re.findall(r"`([\w./-]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    words = [word for word in words if not re.search(r"\b(NAME|ID)\b", word)]  # of the reader's
    return [word for word in words if word.startswith(OURS) or re.fullmatch(rf"[A-Z][A-Z_-]+\.{KINDS}", word)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_a_page_names_exists(page):
    missing = [
        word for word in named(page.read_text(encoding="utf-8")) if word not in WRITTEN and not (ROOT / word).exists()
    ]
    assert not missing


def test_pages_name_files():
    every = [word for page in PAGES for word in named(page.read_text(encoding="utf-8"))]
    assert len(every) > 50 and named("`src/rankgrad/gone.py`") == ["src/rankgrad/gone.py"]
