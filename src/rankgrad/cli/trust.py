"""The flag that names packages of one's own classes, for commands that read what a run has kept."""

from __future__ import annotations

import argparse


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust to a command; `config.packages` checks it."""
    parser.add_argument(
        "--trust",
        action="append",
        metavar="PACKAGE",
        help="your own package, if the settings of the run name its classes; no other code is imported",
    )
