"""Runs as processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..children import Child, Children
from .base import RunCommand


@dataclass(frozen=True)
class Local:
    """Each run is a process. Many short runs are forked from a process that has imported everything."""

    @property
    def shares_cores(self) -> bool:
        """True."""
        return True

    def start(self, run: RunCommand, children: Children, *, many: bool = False) -> Child:
        """Start a run."""
        with run.logging() as log:
            return (children.fork if many else children.start)(run.words(), log=log)


LOCAL = Local()
