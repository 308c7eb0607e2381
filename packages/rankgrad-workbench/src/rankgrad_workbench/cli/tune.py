"""Search the settings of several losses with the same budget, then compare the best settings on the test data.

  rankgrad tune loss=supap,pnp,pml/multi_similarity trials=30 folds=3 data=folder data.root=PHOTOS -j 2
  rankgrad tune loss=supap space.loss.tau="log(0.002,0.1)" space.model.head=linear,none seeds=none
  rankgrad tune loss=supap,pnp recipe=small final.recipe=default seeds=0..9

A trial is one choice of settings. It trains once for each fold: the fold is held out of the training classes, and the
metric (default: metric=mAP@R) is measured on it. Classes of one super-label are in the same fold. A trial that is bad
on its first fold stops there, and still counts. A setting that you give as KEY=VALUE is not searched. space.KEY=VALUES
sets the values that are searched: range(LOW,HIGH), int(LOW,HIGH) for integers, log(LOW,HIGH) on a logarithmic scale,
times(LOW,HIGH) for factors on the usual value, or a list. final.KEY=VALUE changes only the final comparison. If the
command is interrupted, run it again and it continues. A larger trials= adds trials.
To train on other machines: launcher=submitit (SLURM) or launcher=ray, see docs/distributed.md.
"""

from __future__ import annotations

import argparse

from .training import several_options

SETTINGS = True  # takes KEY=VALUE settings


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.usage = "%(prog)s [-h] [-o OUT] [-j JOBS] loss=A,B [trials=N] [folds=N] [KEY=VALUE ...]"
    several_options(parser, "trials and tables", "runs/tune")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Search, compare, and print the tables."""
    from ..report.writing import write_comparison
    from ..runs.compare import JOURNAL
    from ..tuning.outcome import FINAL
    from ..tuning.tune import tune

    outcome = tune(settings, arguments.out, arguments.jobs)
    print(outcome.text())
    if outcome.runs:
        print(f"\nreport: {write_comparison(arguments.out / FINAL / 'compare.html', outcome.runs)}")
    print(f"all trials, and what mattered: optuna-dashboard {arguments.out / JOURNAL}")
