"""Writes an HTML page to one file. Its security policy forbids to load anything and to run scripts of others.

Templates are Jinja2 files beside the code that fills them, `ROOM/NAME.html`; those of a plug-in are
`PACKAGE:NAME.html`. All content is escaped, unless it is markup already. A missing variable of a template is an error.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from rankgrad._version import __version__

from ...files import write_text
from .images import Images
from .text import DASH, as_json, breakable, escaped, number, percent, shortened

PACKAGE = "rankgrad_workbench"
COLOURS = "report/html/colours.css"


def write_page(
    path: str | os.PathLike[str],
    template: str,
    *,
    styles: Sequence[str],
    script: str | None = None,
    images: Images | None = None,
    **content: object,
) -> Path:
    """Write a page. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        template: a template that extends html/page.html, such as "report/page.html".
        styles: style sheets, named in the same way; the colours are added before them.
        script: the script, named in the same way; None: no script.
        images: pictures, which the page shows by their CSS class.
        content: variables of the template.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    path = Path(path)
    style = ["".join(map(_source, (COLOURS, *styles))), *([images.css()] if images else [])]
    code = _source(script) if script else ""
    frame = {"policy": _policy(code, style), "styles": list(map(Markup, style)), "script": Markup(code)}
    write_text(path, render(template, **frame, **content))
    return path


def render(template: str, **content: object) -> Markup:
    """A template, filled with content."""
    return Markup(_templates().get_template(template).render(content))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "short": shortened, "percent": percent, "number": number}
    environment.filters |= {"json": as_json, "count": "{:,}".format}
    environment.globals |= {"DASH": DASH, "version": __version__}
    drawings = environment.get_template("report/html/marks.html").module
    environment.globals |= {name: getattr(drawings, name) for name in ("key", "square", "bar", "intervals")}
    return environment


def _source(name: str) -> str:
    package, _, path = name.rpartition(":")
    return resources.files(package or PACKAGE).joinpath(path).read_text(encoding="utf-8")


def _policy(script: str, styles: Sequence[str]) -> str:
    """The security policy: only the page's own script, style sheets and pictures are allowed."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = f"script-src {digest(script)}; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src {' '.join(map(digest, styles))}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
