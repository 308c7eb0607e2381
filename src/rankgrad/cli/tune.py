"""Losses with the same budget of tuning."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Search the settings of every loss with the same budget, on held-out training classes; compare the winners on the test.

  rankgrad tune loss=supap,pnp,pml/multi_similarity trials=30 folds=3 data=omniglot data.root=DIR recipe=small -j 2
  rankgrad tune loss=supap space.loss.tau="log(0.002,0.1)" space.model.head=linear,none seeds=none
  rankgrad tune loss=supap,pnp recipe=small final.recipe=default seeds=0..9

A trial trains once per fold of the training classes (whole alphabets or other super-labels, where there are some) and
is judged by metric=mAP@R on the classes held out. Bad trials are given up after a fold, and count. space.KEY=VALUES
replaces what is searched: log(LOW,HIGH), range(LOW,HIGH), int(LOW,HIGH), times(LOW,HIGH) or values; a setting that is
given is not searched. final.KEY=VALUE is for the comparison alone. The same command again goes on, more trials= too.
launcher=submitit (SLURM) or launcher=ray trains the runs on other machines, see docs/clusters.md.
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
