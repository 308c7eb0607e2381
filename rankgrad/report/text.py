"""Text as HTML: escaped, with places to break, and numbers as a reader expects them."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping

from ..evaluation import DISTANCES

DASH = "\N{EN DASH}"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def clean(value: object) -> str:
    r"""Text without control characters and lone surrogates (bad file names): HTML has no place for them.

    >>> clean("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))


def escaped(value: object) -> str:
    """Text that is safe between tags and inside a quoted attribute.

    >>> escaped("<b title='x'>")
    '&lt;b title=&#x27;x&#x27;&gt;'
    """
    return html.escape(clean(value))


def breakable(value: object) -> str:
    """Escaped text that may break after / _ - . as long names of classes do not fit a thumbnail.

    >>> breakable("a/b.png")
    'a/<wbr>b.<wbr>png'
    """
    return re.sub(r"([/_.\-])(?=[^\s/_.\-])", r"\1<wbr>", escaped(value))


def as_json(value: object) -> str:
    r"""JSON that may stand inside a <script> element: nothing in it ends the element or opens a comment.

    >>> as_json({"a": "</script>"})
    '{"a":"\\u003c/script>"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True).replace("<", "\\u003c")


def percent(value: float) -> str:
    """A share in per cent with one digit, a dash if it is not finite."""
    return f"{100 * value:.1f}" if math.isfinite(value) else DASH


def number(value: float) -> str:
    """Four significant digits, a dash if it is not finite."""
    return f"{value:.4g}" if math.isfinite(value) else DASH


def shown(metric: str, value: float) -> str:
    """A metric: a share in per cent, a distance as a number."""
    return number(value) if metric in DISTANCES else percent(value)


def flat(config: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested configuration by dotted names, in its order; an empty group is a value.

    >>> flat({"a": {"b": 1, "c": {}}})
    {'a.b': 1, 'a.c': {}}
    """
    found: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def enumeration(words: list[str], most: int = 3) -> str:
    """The first words, and how many more there are.

    >>> enumeration(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most:,} more"
