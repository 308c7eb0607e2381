"""The common options of all study commands, and their exit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from rankgrad_workbench.cli import MENDABLE, leave_pipe
from rankgrad_workbench.files.folders import LockedError
from rankgrad_workbench.runs import signals
from rankgrad_workbench.settings import ConfigError


def parser_of(
    description: str | None, data: str, values: str, runs: str | None = None, *, required: bool = True
) -> argparse.ArgumentParser:
    """A parser with --data-root and --values, and with --runs for a study that has folders of trainings.

    Args:
        description: the study's docstring.
        data: help of --data-root.
        values: default of --values: where the published values are.
        runs: name of the default of --runs below runs/; None: no such option.
        required: whether --data-root must be given.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=required, metavar="DIR", help=data)
    what = "file or folder of the values (%(default)s)"
    parser.add_argument("--values", type=Path, default=Path(values), metavar="PATH", help=what)
    if runs is not None:
        what, default = "folder of the trainings (%(default)s)", Path("runs", runs)
        parser.add_argument("--runs", type=Path, default=default, metavar="DIR", help=what)
    return parser


def known(parser: argparse.ArgumentParser, given: Sequence[str], names: Iterable[str], what: str) -> list[str]:
    """The given names, or all; the command ends if one is unknown."""
    there = [*names]
    for name in given:
        if name not in there:
            parser.error(f"unknown {what} {name!r}; known: {'; '.join(there)}")
    return [*given] or there


def run(main: Callable[[], object]) -> NoReturn:
    """Run the command of a study, and end the process.

    For an error that the user can correct, the command prints one line and exits with status 2, as `rankgrad` does. A
    signal stops the trainings. They save their states first.
    """
    try:
        with signals.graceful():
            main()
            sys.stdout.flush()  # here, so that BrokenPipeError is caught below
    except BrokenPipeError:  # `... | head` closes the pipe early, which is no error
        leave_pipe()
    except KeyboardInterrupt as stopped:
        signals.say("stopped; run the same command again and it continues")
        sys.exit(signals.exit_code(stopped))
    except (ConfigError, LockedError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(MENDABLE)
    sys.exit(0)
