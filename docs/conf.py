"""Settings of the documentation site: `make docs` builds it from pages and docstrings, without the network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rankgrad

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "rankgrad"
author = "The rankgrad authors"
copyright = "the rankgrad authors, MIT licence"
version = release = rankgrad.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
default_role = "code"  # docstrings put names in single backticks, as Markdown does
nitpicky = False
smartquotes_action = "D"  # dashes; quotes are meant as they stand
python_maximum_signature_line_length = 100

if (
    os.environ.get("RANKGRAD_INTERSPHINX") == "1"
):  # links to the pages of Python and torch; their lists need the network
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
    }

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4  # links to headings are written as code hosts name them

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
pygments_style, pygments_dark_style = "default", "github-dark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "rankgrad"
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

DOCS = Path(__file__).parent
CODE_HOST = "https://github.com/rankgrad/rankgrad/blob/main"
# Pages that are files outside docs/. On the code host such a page is a link to its file.
FILES = {
    "changelog": "../CHANGELOG.md",
    "security": "../SECURITY.md",
    "contributing": "../CONTRIBUTING.md",
    "benchmarks": "../benchmarks/README.md",
}
LINKS = {file: f"{page}.md" for page, file in FILES.items()}
LINKS |= {"../README.md": "index.md"}


def read_files(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill the pages that are files elsewhere, and send links to files outside to their pages or to the code host."""
    file = DOCS / FILES.get(docname, f"{docname}.md")
    if docname in FILES:
        app.env.note_dependency(file.resolve())
        source[0] = file.read_text(encoding="utf-8")

    here = Path(docname).parent

    def link(found: re.Match[str]) -> str:
        target, sign, part = found[1].partition("#")
        place = Path(os.path.relpath(file.parent / target, DOCS)).as_posix()
        place = LINKS.get(place, place)
        if place.startswith("../") and not place.endswith(".svg"):  # no page of the site, as those of the laboratory
            return f"]({CODE_HOST}/{place.removeprefix('../')}{sign}{part})"
        place = Path(os.path.relpath(place, here)).as_posix()
        return f"]({place}{sign}{part})"

    source[0] = re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", link, source[0])


SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Note|Example):$")
CODE = re.compile(r"(`+[^`]+`+)")


def plain(line: str) -> str:
    """Take the meaning of reStructuredText from |P_q|, lambda_ and NDCG@10 (an address of mail) outside code."""
    parts = CODE.split(line)
    parts[::2] = [
        re.sub(r"(?<=\w)_(?!\w)", r"\\_", part).replace("|", r"\|").replace("@", r"\@") for part in parts[::2]
    ]
    return "".join(parts)


def table(rows: list[str]) -> Iterator[str]:
    """A Markdown table as the directive of reStructuredText for tables."""
    yield from ("", ".. list-table::", "   :header-rows: 1", "")
    for row in rows[:1] + rows[2:]:
        for i, cell in enumerate(row.strip().strip("|").split("|")):
            yield f"   {'  ' if i else '* '}- {plain(cell.strip())}"
    yield ""


def formula(lines: list[str]) -> Iterator[str]:
    """Lines that are shown as they stand."""
    yield from ("", ".. code-block:: text", "", *(f"   {line}" for line in lines), "")


def marked_up(lines: list[str]) -> Iterator[str]:
    """Docstrings are plain text with backticks; indented formulas and Markdown tables become blocks of the site."""
    described, example, i = True, False, 0
    while i < len(lines):
        line = lines[i]
        described = described and not SECTION.match(line)
        example = (example or line.lstrip().startswith(">>>")) and bool(line.strip())
        kind = "|" if line.startswith("|") else "    " if described and line.startswith("    ") else ""
        if example or not kind:
            yield line if example else plain(line)
            i += 1
            continue
        end = next((j for j in range(i, len(lines)) if not lines[j].startswith(kind)), len(lines))
        yield from table(lines[i:end]) if kind == "|" else formula([each[4:] for each in lines[i:end]])
        i = end


def mark_up(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Hand the docstring on as reStructuredText."""
    lines[:] = list(marked_up(lines))


def setup(app: Sphinx) -> None:
    """What Sphinx calls once."""
    app.connect("source-read", read_files)
    app.connect("autodoc-process-docstring", mark_up, priority=400)  # before napoleon reads the sections
