"""Print the steps and the R@1 of finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of finished runs")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print a line for each run."""
    from rankgrad_workbench.runs.folder import Run

    for folder in arguments.runs:
        run = Run(folder)
        print(f"{folder.name}: {run.read_facts()['steps']} steps, R@1 {100 * run.read_values()['R@1']:.1f}")
