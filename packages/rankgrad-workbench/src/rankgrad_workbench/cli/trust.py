"""The flag --trust: the user's own packages, for commands that read a run's settings."""

from __future__ import annotations

import argparse


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust to a command; `config.packages` checks it."""
    parser.add_argument(
        "--trust",
        action="append",
        metavar="PACKAGE",
        help="package of your own, if the settings of the run name its classes; other packages are never imported",
    )
