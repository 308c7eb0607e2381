"""Names that look alike but differ: written by two programs, they make a run that finds nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

EXAMINED = 1000  # number of lists whose names are compared
LONGEST = 60  # signs of a name in a message
_ODD = re.compile(r"[^!-~\n]|\.0+$", re.MULTILINE)  # a sign that may look like another one, or a decimal number
_INVISIBLE = ("Cf", "Cc")  # Unicode categories: format and control characters
_FORMS: dict[str, Callable[[str], str]] = {  # what makes two names equal -> what differs
    "white space at an end": lambda name: name.strip(),
    "Unicode composes their letters differently (NFC and NFD)": lambda name: unicodedata.normalize("NFC", name),
    "upper and lower case": lambda name: name.casefold(),
    "one is a decimal number": lambda name: re.sub(r"^(\d+)\.0+$", r"\1", name),
    "zeros at the beginning": lambda name: name.lstrip("0"),
    "an invisible character": lambda name: "".join(c for c in name if unicodedata.category(c) not in _INVISIBLE),
    "signs of another width or kind (Unicode NFKC)": lambda name: unicodedata.normalize("NFKC", name),
}


def key(name: str) -> str:
    r"""What two names that look alike have in common.

    >>> key("Cafe\u0301 ") == key("caf\u00e9"), key("007.0") == key("7"), key("d1") == key("d2")
    (True, True, False)
    """
    if not name.isascii() or not name.isprintable():
        name = unicodedata.normalize("NFKC", name)
        name = "".join(sign for sign in name if unicodedata.category(sign) not in _INVISIBLE)
    return re.sub(r"^(\d+)\.0+$", r"\1", name.strip().casefold()).lstrip("0")


def what_differs(one: str, other: str) -> str:
    r"""In what two names of the same `key` differ.

    >>> what_differs("12.0", "12"), what_differs("D1", "d1"), what_differs("d1 ", "d1")
    ('one is a decimal number', 'upper and lower case', 'white space at an end')
    """
    return next((what for what, form in _FORMS.items() if form(one) == form(other)), "several signs")


def pairs_alike(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """(one, other) for each of the names that looks like one of the others. No name is among both."""
    there = {key(name): name for name in others}
    return [(name, there[key(name)]) for name in ones if key(name) in there]


@dataclass
class Alike:
    """Names of a run that only look like names in the judgements.

    Attributes:
        found: "queries" and "documents" -> pairs (name in the run, name in the judgements).
        examined: number of lists whose names were compared.
    """

    found: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"queries": [], "documents": []})
    examined: int = 0

    def queries(self, unknown: Sequence[str], lacking: Sequence[str]) -> None:
        """Compare queries of the run without judgements, and judged queries without a list."""
        self.found["queries"] += pairs_alike(unknown, lacking)

    def documents(self, listed: Sequence[str], judged: Collection[str], known: int) -> None:
        """Compare the names of a list with those that are judged for its query; `known` of them are the same."""
        if self.examined >= EXAMINED:
            return
        if known and not any(_ODD.search("\n".join(side)) for side in (listed, judged)):
            return  # plain names, of which some are the same
        self.examined += 1
        here = set(listed)
        self.found["documents"] += pairs_alike(
            [name for name in listed if name not in judged], [name for name in judged if name not in here]
        )

    def told(self, what: str) -> str:
        """The sentence about queries or documents; "" if no names look alike."""
        if not self.found[what]:
            return ""
        one, other = self.found[what][0]
        return (
            f"{len(self.found[what]):,} names of {what} only look alike, such as {one[:LONGEST]!a} and "
            f"{other[:LONGEST]!a}: {what_differs(one, other)}. Write them in the same way in both"
        )
