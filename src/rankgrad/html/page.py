"""One page, one file: its templates, its skeleton, and a policy by which it loads nothing and runs its own script only.

Templates are Jinja2's and stand beside the code that fills them, `ROOM/NAME.html`. Everything that is put into one is
escaped unless it is markup already; a name that a template asks for and does not get is an error.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .._version import __version__
from ..files import write_text
from . import charts, palette
from .images import Images
from .text import DASH, as_json, breakable, escaped, number, percent, shortened

PACKAGE = "rankgrad"


def write_page(
    path: str | os.PathLike[str],
    template: str,
    *,
    styles: Sequence[str],
    script: str | None = None,
    images: Images | None = None,
    **content: object,
) -> Path:
    """Write a page; replaced as a whole if it is there.

    Args:
        path: the file; its folder must exist.
        template: one that extends html/page.html, such as "report/page.html".
        styles: style sheets as such names; the colours come before them.
        script: the script as such a name; None: the page runs none.
        images: pictures that the page shows by their class.
        content: what the template needs.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    style = [palette.rules() + "".join(map(_source, styles)), *([images.css()] if images else [])]
    code = _source(script) if script else ""
    frame = {"policy": _policy(code, style), "styles": list(map(Markup, style)), "script": Markup(code)}
    write_text(path, render(template, **frame, **content))
    return path


def render(template: str, **content: object) -> Markup:
    """A template, filled."""
    return Markup(_templates().get_template(template).render(content))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE, ""),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "short": shortened, "percent": percent, "number": number}
    environment.filters |= {"json": as_json, "count": "{:,}".format}
    environment.globals |= {"DASH": DASH, "version": __version__, "key": charts.key, "square": charts.square}
    environment.globals |= {"bar": charts.bar, "intervals": charts.intervals}
    return environment


def _source(name: str) -> str:
    return resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str, styles: Sequence[str]) -> str:
    """Nothing but the page's own script, style sheets and pictures."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = f"script-src {digest(script)}; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src {' '.join(map(digest, styles))}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
