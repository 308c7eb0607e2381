"""`python -m benchmarks`: time and memory of losses and evaluation, as ratios within one run. `make bench` runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .runner import run
from .suites import GPU_SUITES, SUITES

HELP = "Speed and memory of losses and evaluation, as ratios within one run."


def main(words: Sequence[str] | None = None) -> int:
    """Run the suites, or list them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=HELP)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="which (default: all); --list names them")
    parser.add_argument("--list", action="store_true", help="list the suites")
    parser.add_argument("--json", type=Path, help="also write the numbers")
    parser.add_argument("--markdown", type=Path, help="also write the tables as a page")
    parser.add_argument("--figure", type=Path, help="also draw growth with the batch (.svg, .png, .pdf)")
    parser.add_argument("--data-root", type=Path, help="Omniglot's folder, for the training suite")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where losses are computed")
    parser.add_argument("--long", action="store_true", help="also sizes that take minutes (100M scores)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the suites run")
    arguments = parser.parse_args(words)
    if arguments.list:
        for name, suite in (SUITES if arguments.device == "cpu" else GPU_SUITES).items():
            print(f"{name:12} {(suite.__doc__ or '').splitlines()[0]}")
        return 0
    try:
        run(
            arguments.suites,
            json_path=arguments.json,
            data_root=arguments.data_root,
            markdown_path=arguments.markdown,
            figure_path=arguments.figure,
            long=arguments.long,
            quick=arguments.quick,
            device=arguments.device,
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
