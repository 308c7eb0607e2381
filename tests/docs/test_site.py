"""The documentation site builds without a warning, holds every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import chromium
import pytest

pytest.importorskip("sphinx")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
MODULES = sorted({m for page in REFERENCE.glob("*.rst") for m in re.findall(r"automodule:: (\S+)", page.read_text())})


class Page(HTMLParser):
    """Ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif tag == "link" and given.get("href"):
            self.loaded.append(given["href"] or "")
        elif given.get("src"):
            self.loaded.append(given["src"] or "")


def built(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "RANKGRAD_INTERSPHINX"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run(
        [*command, str(source), str(out)], capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = built(ROOT / "docs", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def public(module: str) -> list[str]:
    """`__all__`, or the functions and classes that a module defines."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    things = vars(found).items()
    own = (n for n, v in things if (inspect.isclass(v) or inspect.isfunction(v)) and v.__module__ == module)
    return [name for name in own if not name.startswith("_")]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(pages, module):
    ids = set().union(*(page.ids for page in pages.values()))
    assert public(module) and [name for name in public(module) if f"{module}.{name}" not in ids] == []


def test_every_link_inside_the_site_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
            known = pages[target].ids if target in pages else set()
            if not target.exists() or (parts.fragment and target in pages and unquote(parts.fragment) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 40 and broken == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert [url for page in pages.values() for url in page.loaded if urlsplit(url).scheme or url.startswith("//")] == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert styles and re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]*", styles) == []


def test_a_broken_link_would_end_the_build(tmp_path):
    (tmp_path / "conf.py").write_text((ROOT / "docs" / "conf.py").read_text("utf-8"))
    (tmp_path / "index.md").write_text("# Index\n\n[nowhere](nowhere.md)\n")
    done = built(tmp_path, tmp_path / "out")
    assert done.returncode != 0 and "nowhere.md" in done.stderr


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Browser]:
    program = chromium.found()
    if program is None:
        pytest.skip("needs chromium")
    browser = chromium.Browser(program, tmp_path)
    yield browser
    browser.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1220, 1280])
def test_the_browser_has_nothing_to_complain_of(site, browser, width, dark):
    for name in ("index.html", "losses.html", "migrating.html", "reference/losses.html"):
        browser.open(site / name, width=width, dark=dark)
        assert browser.messages == [], name
        assert all(url.startswith(("file:", "data:")) for url in browser.requests), name
        wide = browser.call("Runtime.evaluate", expression="document.documentElement.scrollWidth", returnByValue=True)
        assert wide["result"]["value"] <= width, name


@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_no_command_needs_scrolling(site, browser, width):
    for path in sorted(site.glob("*.html")):
        browser.open(path, width=width)
        wide = "[...document.querySelectorAll('.highlight-bash pre')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        assert browser.run(f"{wide}.map(e => e.innerText)") == [], path.name
