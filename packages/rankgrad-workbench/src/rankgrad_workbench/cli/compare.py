"""Train several losses on the same data, with the same seeds and budget. Write a table and one page about all runs.

  rankgrad compare loss=roadmap,pnp,smooth_ap,rambo_recall seeds=0,1,2
  rankgrad compare loss=pnp:alpha=1,pnp:variant=Ds data=folder data.root=PHOTOS -j 2 -o runs/pnp

Settings of one loss follow its name after a colon. Join several with "+": loss=pnp:alpha=1+variant=Ds. A setting that
does not belong to the loss needs its full name: loss=pnp:optimizer.lr=0.01. All other settings are those of
`rankgrad train`. Every run gets them. The first loss is subtracted from each other one, seed by seed.
If the command is interrupted, run it again and it continues. Finished runs are kept.
To train on other machines: launcher=submitit (SLURM) or launcher=ray, see docs/distributed.md.
"""

from __future__ import annotations

import argparse

from .training import compare_losses, several_options

SETTINGS = True  # takes KEY=VALUE settings


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.usage = "%(prog)s [-h] [-o OUT] [-j JOBS] loss=A,B [seeds=0,1,2] [KEY=VALUE ...]"
    several_options(parser, "runs and the table", "runs/compare")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train several losses and print their table."""
    compare_losses(arguments, settings, "train")
