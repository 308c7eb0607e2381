"""The command `rankgrad`: a file per sub-command; settings (KEY=VALUE) go to Hydra."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from .._version import __version__
from ..extras import missing
from ..files import printable
from . import (
    bench,
    compare,
    datasets,
    detect,
    embed,
    evaluate,
    export,
    figure,
    index,
    report,
    reproduce,
    search,
    sodeep,
    train,
)

MENDABLE = 2  # exit status of everything that the user can mend, wrong usage too, as argparse has it
STATUS = "exit status: 0 done; 2 something that you can mend, one line says how; 130 interrupted; 1 a bug of ours"


class Command(Protocol):
    """A sub-command: the text of its --help, what it takes, what it does.

    A command that takes settings (KEY=VALUE) says `SETTINGS = True`; one may have `details()`, more text for --help.
    """

    HELP: str

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, arguments: argparse.Namespace, settings: list[str]) -> None:
        """Do it."""


# In the order of --help.
COMMANDS: dict[str, Command] = {
    "train": train,
    "compare": compare,
    "reproduce": reproduce,
    "figure": figure,
    "evaluate": evaluate,
    "report": report,
    "embed": embed,
    "index": index,
    "search": search,
    "export": export,
    "sodeep": sodeep,
    "detect": detect,
    "bench": bench,
    "datasets": datasets,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status, see `STATUS`. A bug ends with a traceback and 1, as Python has it."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    flags = [word for word in rest if word.startswith("-")]
    if flags or (rest and not arguments.settings_allowed):
        parser.error(f"unknown argument {(flags or rest)[0]!r}; see rankgrad {arguments.command} --help")
    try:
        arguments.run(arguments, rest)
        sys.stdout.flush()  # here, where a reader that has gone is dealt with
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `rankgrad ... | head`: nobody reads on, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its own exit
        return 0
    except ModuleNotFoundError as error:
        if arguments.debug or (error.name or "rankgrad").startswith("rankgrad"):
            raise
        print(f"rankgrad: {missing(str(error.name))}", file=sys.stderr)
        return MENDABLE
    except (ValueError, TypeError, OSError) as error:
        if arguments.debug:
            raise
        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # one of several processes
            from ..training.launch import report

            report(error)
        else:
            lines = str(error).split("\n")
            print("rankgrad: " + "\n".join(map(printable, lines)), file=sys.stderr)
        return MENDABLE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rankgrad", description="Train embeddings on the metric you report.", epilog=STATUS, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rankgrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    parser.set_defaults(settings_allowed=False, command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        details = getattr(command, "details", None)
        sub = commands.add_parser(
            name,
            help=command.HELP.splitlines()[0],
            description=command.HELP if details is None else command.HELP + "\n" + details(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.options(sub)
        sub.set_defaults(run=command.run, settings_allowed=getattr(command, "SETTINGS", False))
    return parser
