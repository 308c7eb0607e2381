"""Settings of the documentation site, which `make docs` builds from these pages and the docstrings, offline."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import rankgrad

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "rankgrad"
author = "The rankgrad authors"
copyright = "the rankgrad authors, MIT licence"
version = release = rankgrad.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# The tables and figures of results/ are linked as files: people read them on the code host, programs read the csv.
exclude_patterns = ["results"]
default_role = "code"  # docstrings put names in single backticks, as Markdown does
nitpicky = False
smartquotes = False  # formulas are plain text: "--" and quotes are meant

if os.environ.get("RANKGRAD_INTERSPHINX") == "1":  # links to Python and torch: needs the network
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
html_title = "rankgrad"
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Files outside docs/ that have a page of the site: the pages of docs/ link to the files, for readers on the code host.
PAGES_OF_FILES = {
    "../README.md#losses": "losses.md",
    "../README.md": "index.md",
    "../CHANGELOG.md": "changelog.md",
    "../SECURITY.md": "security.md",
    "../benchmarks/README.md": "benchmarks.md",
}


def link_to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Send links to files that have a page of the site to that page."""
    for file, page in PAGES_OF_FILES.items():
        source[0] = source[0].replace(f"]({file})", f"]({page})")


def setup(app: Sphinx) -> None:
    """What Sphinx calls once."""
    app.connect("source-read", link_to_pages)
