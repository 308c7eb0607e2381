"""Settings of a run: composed with Hydra from a command, or read from the folder of a run."""

from __future__ import annotations

from .allowed import ConfigError, make, named, packages, section
from .hydra import GIVEN, GROUPS, default_loss, differing, of_kind, options
from .overrides import PATHS, check_paths, compose
from .received import load, parsed
from .resolvers import rate
from .values import flat, keys, plain, replaced, typed

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
