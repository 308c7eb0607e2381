"""An argument as a user types it: as a setting KEY=VALUE, or as an option of a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from rankgrad.common.checks import Spelling

# Texts that a setting KEY=TEXT takes as they are; a single sign is a delimiter.
LITERAL = re.compile(r"(?!(null|true|false|nan)$)[a-z0-9_./+%*@?|: -]+|[;,\t]", re.IGNORECASE)


def as_keys(section: str, elsewhere: Mapping[str, str]) -> Spelling:
    """Spell arguments as settings KEY=VALUE, quoted for a shell if necessary.

    Args:
        section: section of the arguments, such as data.load.
        elsewhere: argument -> another key that sets it, such as data.root.

    >>> from rankgrad.common.checks import setting, spelled
    >>> with spelled(as_keys("data.load", {"root": "data.root"})):
    ...     print(setting("root"), setting("text", "sentence"), setting("delimiter", ";"))
    data.root data.load.text=sentence 'data.load.delimiter=;'
    """

    def spell(name: str, *value: object) -> str:
        return shlex.quote("=".join([elsewhere.get(name, f"{section}.{name}"), *map(_literal, value)]))

    return spell


def _literal(value: object) -> str:
    """A value as it is typed after KEY=; a text that would be read as something else in quotes."""
    word = as_word(value)
    quoted = isinstance(value, str) and value and not LITERAL.fullmatch(value)
    return '"' + word.replace('"', '\\"') + '"' if quoted else word


def as_options(places: Mapping[str, str]) -> Spelling:
    """Spell arguments as options --NAME VALUE of a command.

    Args:
        places: argument -> its name in the command if that is not --NAME, such as DIR.

    >>> from rankgrad.common.checks import setting, spelled
    >>> with spelled(as_options({"root": "DIR"})):
    ...     print(setting("root"), "|", setting("text", "my text"))
    DIR | --text 'my text'
    """

    def spell(name: str, *value: object) -> str:
        option = places.get(name, f"--{name.replace('_', '-')}")
        return " ".join([option, *(shlex.quote(as_word(given)) for given in value)])

    return spell


def of_saved(*options: str, **places: str) -> Spelling:
    """Spell arguments for a command that reads a run: as its options, or as settings of the training.

    Args:
        options: arguments that are options of the command.
        places: see `as_options`.

    >>> of_saved("root")("text", "sentence")
    'data.load.text=sentence in the training'
    """

    def spell(name: str, *value: object) -> str:
        if name in options:
            return as_options(places)(name, *value)
        return f"{as_keys('data.load', {})(name, *value)} in the training"

    return spell


def as_word(value: object) -> str:
    r"""A value as it is typed on a command line; a tab, which cannot be typed there, as its escape.

    >>> as_word([1, None, True]), as_word("\t")
    ('[1,null,true]', '\\t')
    """
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_word, value))}]"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value).replace("\t", "\\t")
