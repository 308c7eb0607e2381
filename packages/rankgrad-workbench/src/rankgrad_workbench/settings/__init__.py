"""Settings of a run: composed with Hydra from a command, or read from the folder of a run.

The names are imported when they are first asked for: `kinds`, the table of the kinds of runs, is read by commands that
need neither Hydra nor torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allowed import ConfigError, make, named, packages, section
    from .checking import PATHS, check_paths
    from .groups import GIVEN, GROUPS, folders, options
    from .hydra import default_loss, differing, of_kind
    from .overrides import compose
    from .received import load, parsed
    from .resolvers import rate
    from .values import flat, keys, plain, replaced, typed

#: Module -> its names that others use.
_PLACES = {
    "allowed": ("ConfigError", "make", "named", "packages", "section"),
    "checking": ("PATHS", "check_paths"),
    "hydra": ("default_loss", "differing", "of_kind"),
    "groups": ("GIVEN", "GROUPS", "folders", "options"),
    "overrides": ("compose",),
    "received": ("load", "parsed"),
    "resolvers": ("rate",),
    "values": ("flat", "keys", "plain", "replaced", "typed"),
}


def __getattr__(name: str) -> Any:
    """A name of one of the modules."""
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "GIVEN",
    "GROUPS",
    "PATHS",
    "ConfigError",
    "check_paths",
    "compose",
    "default_loss",
    "differing",
    "flat",
    "folders",
    "keys",
    "load",
    "make",
    "named",
    "of_kind",
    "options",
    "packages",
    "parsed",
    "plain",
    "rate",
    "replaced",
    "section",
    "typed",
]
