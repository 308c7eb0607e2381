"""Names that look alike but differ: written by two programs, they make a run that finds nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 60  # signs of a name in a message
REMEDY = (
    "They differ in white space, capitals, leading zeros, a decimal, invisible signs or forms of Unicode such as NFC "
    "and NFD. Write them in the same way in both"
)


def key(name: str) -> str:
    r"""What two names that look alike have in common.

    >>> key("Cafe\u0301 ") == key("caf\u00e9"), key("007.0") == key("7"), key("d1") == key("d2")
    (True, True, False)
    """
    if not name.isascii() or not name.isprintable():
        name = unicodedata.normalize("NFKC", name)
        name = "".join(sign for sign in name if unicodedata.category(sign) not in ("Cf", "Cc"))  # invisible ones
    return re.sub(r"^(\d+)\.0+$", r"\1", name.strip().casefold()).lstrip("0")


def pairs_alike(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """(one, other) for each of the names that looks like one of the others. No name is among both."""
    there = {key(name): name for name in others}
    return [(name, there[key(name)]) for name in ones if key(name) in there]


def told_alike(what: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The sentence about "queries" or "documents" of a run that only look like names in the judgements; "" for none."""
    if not pairs:
        return ""
    one, other = (ascii(name[:LONGEST]) for name in pairs[0])
    return f"{len(pairs):,} names of {what} only look alike, such as {one} and {other}. {REMEDY}"
