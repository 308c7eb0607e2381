"""Losses with the same budget of tuning."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Search the settings of every loss with the same budget on folds of the training classes, then compare the best on test.

  rankgrad tune loss=supap,pnp,pml/multi_similarity trials=30 folds=3 data=folder data.root=PHOTOS -j 2
  rankgrad tune loss=supap space.loss.tau="log(0.002,0.1)" space.model.head=linear,none seeds=none
  rankgrad tune loss=supap,pnp recipe=small final.recipe=default seeds=0..9

A trial trains once for each fold: a part of the training classes is held out, and metric=mAP@R is measured on it.
Super-labels stay whole. A trial that is bad on its first fold stops there; it counts as a trial.
space.KEY=VALUES replaces what is searched: log(LOW,HIGH), range(LOW,HIGH), int(LOW,HIGH), times(LOW,HIGH), or a list
of values. A setting that you give is not searched. final.KEY=VALUE is for the final comparison alone.
If the command is interrupted, run it again and it continues. A larger trials= adds trials.
launcher=submitit (SLURM) or launcher=ray trains on other machines: docs/clusters.md.
"""
SETTINGS = True  # takes KEY=VALUE settings


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/tune"), help="folder of the trials and tables")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="runs at a time, each with its share of the cores")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Search, compare, and print the tables."""
    from ..report import write_comparison
    from ..tuning.outcome import FINAL
    from ..tuning.page import write_tuning
    from ..tuning.tune import tune

    outcome = tune(settings, arguments.out, arguments.jobs)
    print(outcome.text())
    if outcome.runs:
        write_comparison(arguments.out / FINAL / "compare.html", outcome.runs)
    print(f"\nreport: {write_tuning(arguments.out / 'tune.html', outcome)}")
