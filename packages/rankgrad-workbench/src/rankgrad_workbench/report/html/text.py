"""Write the text of a page: escape it, break its lines, and format numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from markupsafe import Markup, escape

from rankgrad.common.text import shown

DASH = "\N{EN DASH}"
LONG = 32  # letters; a longer name is shortened


def clean(value: object) -> str:
    r"""Text as in `files.shown`, but with its tabs and line ends. HTML forbids other control characters.

    >>> clean("a\x00b\n")
    'a\\x00b\n'
    """
    return shown(value, keep="\t\r\n")


def escaped(value: object) -> Markup:
    """Text that is safe between tags and inside a quoted attribute; markup is not changed.

    >>> escaped("<b title='x'>")
    Markup('&lt;b title=&#39;x&#39;&gt;')
    """
    return value if isinstance(value, Markup) else escape(clean(value))


def breakable(value: object) -> Markup:
    """Escaped text that may break after / _ - . because long names of classes are wider than a thumbnail.

    >>> breakable("a/b.png")
    Markup('a/<wbr>b.<wbr>png')
    """
    return Markup(re.sub(r"([/_.\-])(?=[^\s/_.\-])", r"\1<wbr>", str(escaped(value))))


def shortened(value: object) -> Markup:
    """A name for a narrow place. A long name ends in an ellipsis; the full name appears under the pointer.

    >>> shortened("a/b"), shortened("x" * 40)[:30]
    (Markup('a/<wbr>b'), Markup('<span class="cut" title="xxxxx'))
    """
    text = clean(value)
    if len(text) <= LONG:
        return breakable(text)
    return Markup('<span class="cut" title="{}">{}</span>').format(text, breakable(text))


def as_json(value: object) -> Markup:
    r"""JSON that is safe inside a <script> element: nothing in it ends the element or opens a comment.

    >>> print(as_json({"a": "</script>"}))
    {"a":"\u003c/script>"}
    """
    text = json.dumps(_cleaned(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c"))


def _cleaned(value: Any) -> Any:
    """All texts of a value cleaned, since a script may put them on the page."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _cleaned(each) for key, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, (list, tuple)) else value


def percent(value: float | None) -> str:
    """A fraction in per cent with one decimal; a dash if it is None or not finite."""
    return f"{100 * value:.1f}" if value is not None and math.isfinite(value) else DASH


def number(value: float | None) -> str:
    """A number with four significant digits; a dash if it is None or not finite."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else DASH


def enumeration(words: list[str], most: int = 3) -> str:
    """The first words, and the number of the others.

    >>> enumeration(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most:,} more"


def verdict(first: str, ahead: list[str], behind: list[str], level: list[str], detectable: str = "") -> str:
    """What a comparison with one run found, in words.

    Args:
        first: the run that the others are compared with.
        ahead: runs that are better.
        behind: runs that are worse.
        level: runs for which no difference was found.
        detectable: size of a difference that would be found for all of `level`; empty: unknown.

    >>> verdict("a", ["b"], ["c", "d"], ["e"])
    'b is ahead of a. c and d are behind a. No difference from a was found for e.'
    >>> verdict("a", [], [], ["e"], "2.3")
    'No difference from a was found for e; one of 2.3 points would be found with a probability of 80 %.'
    """
    said = [
        f"{_joined(names)} {'is' if len(names) == 1 else 'are'} {words} {first}."
        for names, words in ((ahead, "ahead of"), (behind, "behind"))
        if names
    ]
    if level:
        found = f"; one of {detectable} points would be found with a probability of 80 %" if detectable else ""
        said.append(f"No difference from {first} was found for {_joined(level)}{found}.")
    return " ".join(said)


def _joined(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if 1 < len(names) <= 3 else enumeration(names)
