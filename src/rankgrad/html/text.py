"""Text of a page: what may stand in it, where it may break, and numbers as a reader expects them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from markupsafe import Markup, escape

from ..files import shown

DASH = "\N{EN DASH}"
LONG = 32  # letters of a name that is shortened where it has no room


def clean(value: object) -> str:
    r"""Text as `files.shown` gives it, with its ends of line: HTML has no place for the rest.

    >>> clean("a\x00b\n")
    'a\\x00b\n'
    """
    return shown(value, keep="\t\r\n")


def escaped(value: object) -> Markup:
    """Text that is safe between tags and inside a quoted attribute; markup stays as it is.

    >>> escaped("<b title='x'>")
    Markup('&lt;b title=&#39;x&#39;&gt;')
    """
    return value if isinstance(value, Markup) else escape(clean(value))


def breakable(value: object) -> Markup:
    """Escaped text that may break after / _ - . as long names of classes do not fit a thumbnail.

    >>> breakable("a/b.png")
    Markup('a/<wbr>b.<wbr>png')
    """
    return Markup(re.sub(r"([/_.\-])(?=[^\s/_.\-])", r"\1<wbr>", str(escaped(value))))


def shortened(value: object) -> Markup:
    """A name for a place without much room: a long one ends in an ellipsis there, and is whole under the pointer.

    >>> shortened("a/b"), shortened("x" * 40)[:30]
    (Markup('a/<wbr>b'), Markup('<span class="cut" title="xxxxx'))
    """
    text = clean(value)
    if len(text) <= LONG:
        return breakable(text)
    return Markup('<span class="cut" title="{}">{}</span>').format(text, breakable(text))


def as_json(value: object) -> Markup:
    r"""JSON that may stand inside a <script> element: nothing in it ends the element or opens a comment.

    >>> print(as_json({"a": "</script>"}))
    {"a":"\u003c/script>"}
    """
    text = json.dumps(_cleaned(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c"))


def _cleaned(value: Any) -> Any:
    """What a script puts on the page is as clean as what stands there."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _cleaned(each) for key, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, (list, tuple)) else value


def percent(value: float | None) -> str:
    """A share in per cent with one digit, a dash if there is none or it is not finite."""
    return f"{100 * value:.1f}" if value is not None and math.isfinite(value) else DASH


def number(value: float | None) -> str:
    """Four significant digits, a dash if there is no value or it is not finite."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else DASH


def enumeration(words: list[str], most: int = 3) -> str:
    """The first words, and how many more there are.

    >>> enumeration(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most:,} more"
