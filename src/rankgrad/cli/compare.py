"""Losses side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Train several losses on the same data, seeds and budget; table of mean and spread, and one page over all runs.

  rankgrad compare loss=roadmap,pnp,smooth_ap,rambo_recall seeds=0,1,2
  rankgrad compare loss=pnp:alpha=1,pnp:variant=Ds data=omniglot data.root=DIR recipe=small -j 2 -o runs/pnp

A variant of a loss carries its own settings after a colon, joined by "+"; those of other groups by their whole name
(loss=pnp:optimizer.lr=0.01). Every other setting is one of `rankgrad train`. Each loss is compared with the first one,
by a paired t-test over the seeds. Finished runs are kept, a run that was cut off is resumed: the same command again
goes on. launcher=submitit (SLURM) or launcher=ray trains the runs on other machines, see docs/clusters.md.
"""
SETTINGS = True  # takes KEY=VALUE settings


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/compare"), help="folder of the runs and the table")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="runs at a time, each with its share of the cores")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train several losses and print their table."""
    from ..report import write_comparison
    from ..runs.compare import compare, folders

    print(compare(settings, arguments.out, arguments.jobs))
    print(f"report: {write_comparison(arguments.out / 'compare.html', folders(settings, arguments.out))}")
