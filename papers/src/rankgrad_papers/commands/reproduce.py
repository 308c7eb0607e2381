"""Run a table of the four papers and show our numbers beside the printed ones.

Without an ID, list all tables and figures.

  rankgrad reproduce
  rankgrad reproduce roadmap/table2 --data-root sop=DIR --data-root cub=DIR       run the parts of these two data sets
  rankgrad reproduce roadmap/table2 --stand-in omniglot --data-root DIR -j 2      on small data, with a small network
  rankgrad reproduce pnp/table1 --stand-in glyphs --seeds 0,1 --dry-run           list the runs and their state
  rankgrad reproduce pnp/table1 --sources                                         print the source of each setting

KEY=VALUE settings of `rankgrad train` apply to all runs. A stand-in replaces the paper's data by a small data set, and
every file says so.
If the command is interrupted, run it again and it continues. Finished runs are kept.
To train on other machines: launcher=submitit (SLURM) or launcher=ray, see docs/distributed.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

SETTINGS = True  # takes KEY=VALUE settings


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("id", nargs="?", metavar="ID", help="table or figure, such as roadmap/table2")
    parser.add_argument(
        "--data-root",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="folder of a data set; DIR without NAME: folder of all other data sets",
    )
    parser.add_argument(
        "--stand-in",
        choices=("omniglot", "glyphs", "photographs", "bccd"),
        help="run the table on this data with a small network",
    )
    parser.add_argument("--seeds", help="seeds, such as 0,1,2 or 0..4 (default: those of the table)")
    parser.add_argument(
        "--rule",
        choices=("best", "held_out", "last"),
        help="evaluation to report: best on the test classes, best on a held-out tenth of the training classes, or "
        "last (default: that of the paper)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs, and stop")
    parser.add_argument("--sources", action="store_true", help="print the source of each setting, and stop")
    parser.add_argument(
        "-o", "--out", type=Path, help="folder to write (default: runs/reproduce, or runs/reproduce-STAND_IN)"
    )
    parser.add_argument(
        "-j", "--jobs", type=int, default=1, help="runs at the same time; they share the CPU cores (default: 1)"
    )


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """List the papers' tables, or run one."""
    from ..experiments.reproduce import reproduce, sources_of

    name = arguments.id
    if name is not None and "=" in name:  # a setting in the place of the ID
        raise ValueError(f"no table is given: use rankgrad reproduce ID {name}; rankgrad reproduce lists the IDs")
    if arguments.sources:
        if name is None:
            raise ValueError("no table is given: use rankgrad reproduce ID --sources; rankgrad reproduce lists the IDs")
        print(sources_of(name))
        return
    text = reproduce(
        name,
        settings,
        arguments.out,
        data_roots=arguments.data_root,
        stand_in=arguments.stand_in,
        seeds=arguments.seeds,
        jobs=arguments.jobs,
        rule=arguments.rule,
        dry_run=arguments.dry_run,
    )
    print(text)
