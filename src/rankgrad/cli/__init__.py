"""The command `rankgrad`: a file per sub-command; settings (KEY=VALUE) go to Hydra."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TextIO

from .._version import __version__
from ..extras import missing
from ..files import shown
from ..plugins import Plugin, PluginError, registered
from ..runs import signals
from . import (
    check,
    compare,
    datasets,
    detect,
    embed,
    evaluate,
    export,
    figure,
    index,
    predict,
    report,
    search,
    train,
    tune,
)
from .allocator import keep_large_blocks

MENDABLE = 2  # exit status of everything that the user can mend, wrong usage too, as argparse has it
STATUS = (
    "exit status: 0 done; 2 something that you can mend, one line says how; 130, 143, 129 stopped by Ctrl-C, SIGTERM, "
    "SIGHUP; 1 a bug of ours"
)


class Command(Protocol):
    """A sub-command: the text of its --help, what it takes, what it does.

    A command that takes settings (KEY=VALUE) says `SETTINGS = True`. Such a command trains, so that the same command
    goes on where it was cut off; `GOES_ON` says otherwise. One may have `details()`, more text for --help. Importing a
    command imports no torch, which takes seconds: `run` does that.
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
    "tune": tune,
    "figure": figure,
    "evaluate": evaluate,
    "report": report,
    "check": check,
    "predict": predict,
    "embed": embed,
    "index": index,
    "search": search,
    "export": export,
    "detect": detect,
    "datasets": datasets,
}


LABORATORY = ("reproduce", "paper-figure", "sodeep")  # commands of rankgrad-papers


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status, see `STATUS`. A bug ends with a traceback and 1, as Python has it."""
    signals.follow_parent()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a λ on a terminal that has none, a name that is no text
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if not word.startswith("-")), "")
    # commands that take settings train, and the same command again goes on
    command = COMMANDS.get(name)
    if command is None and name in registered("commands", COMMANDS):
        with suppress(ValueError):  # told below
            command = registered("commands", COMMANDS)[name].load()
    again = words if getattr(command, "GOES_ON", getattr(command, "SETTINGS", False)) else []
    try:
        with signals.graceful(), signals.continue_with(lambda: again), plain_warnings():
            return _main(words)
    except KeyboardInterrupt as stopped:
        if signals.speaks():
            with suppress(OSError):  # the terminal may be gone
                print(f"\n{signals.last_words(stopped)}", file=sys.stderr)
        return signals.exit_code(stopped)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """A warning of ours is a line for whoever reads the terminal, without the line of code that gives it."""
    earlier = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category.__module__.partition(".")[0] == __package__.partition(".")[0]:
            print("rankgrad: " + "\n".join(map(shown, str(message).split("\n"))), file=file or sys.stderr)
        else:
            earlier(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = earlier


def _main(argv: list[str]) -> int:
    name = next((word for word in argv if not word.startswith("-")), "")
    if name in LABORATORY and name not in registered("commands", COMMANDS):
        print(f"rankgrad: {name} is a command of the papers' laboratory: pip install rankgrad-papers", file=sys.stderr)
        return MENDABLE
    try:
        parser = _parser(argv)
    except ValueError as error:  # a plug-in that can't be used
        print(f"rankgrad: {shown(str(error))}", file=sys.stderr)
        return MENDABLE
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    flags = [word for word in rest if word.startswith("-")]
    if flags or (rest and not arguments.settings_allowed):
        parser.error(f"unknown argument {(flags or rest)[0]!r}; see rankgrad {arguments.command} --help")
    keep_large_blocks()
    try:
        arguments.run(arguments, rest)
        sys.stdout.flush()  # here, where a reader that has gone is dealt with
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
        first = _first(error)
        if not _handed_over(first):
            lines = _with_cure(first).split("\n")
            print("rankgrad: " + "\n".join(map(shown, lines)), file=sys.stderr)
        return MENDABLE
    except Exception as error:
        if not _handed_over(error):
            raise
        from ..runs.launch import UNEXPECTED

        return UNEXPECTED
    return 0


def _with_cure(error: Exception) -> str:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{error}. Make room on the disk, and give the same command again" if full else str(error)


def _first(error: Exception) -> Exception:
    """Find the first error of the file system, if the others only came up on the way out: a disk is full."""
    while isinstance(error, OSError) and isinstance(error.__context__, OSError) and not error.__suppress_context__:
        error = error.__context__
    return error


def _handed_over(error: Exception) -> bool:
    """Hand an error over, in one of several processes: whoever started them tells it, once."""
    if "TORCHELASTIC_ERROR_FILE" not in os.environ:
        return False
    from ..runs.launch import report

    report(error)
    return True


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    helps = not {"-h", "--help"}.isdisjoint(argv)
    parser = argparse.ArgumentParser(
        prog="rankgrad", description="Train embeddings on the metric you report.", epilog=STATUS, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rankgrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    parser.set_defaults(settings_allowed=False, command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    named = next((word for word in argv if not word.startswith("-")), "")
    for name, command in COMMANDS.items():
        _add(commands, name, command, details=helps and name in argv)
    for name, plugin in registered("commands", COMMANDS).items():
        if name == named:  # only then it is imported
            _add(commands, name, _of_plugin(plugin), details=helps)
        else:
            commands.add_parser(name, help=f"of {plugin.distribution} {plugin.version}")
    return parser


def _add(commands: Any, name: str, command: Command, *, details: bool) -> None:
    """Add a command to the parser; its details, read from the files of settings, only where they are shown."""
    more = getattr(command, "details", None) if details else None
    sub = commands.add_parser(
        name,
        help=command.HELP.splitlines()[0],
        description=command.HELP if more is None else command.HELP + "\n" + more(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.options(sub)
    sub.set_defaults(run=command.run, settings_allowed=getattr(command, "SETTINGS", False))


def _of_plugin(plugin: Plugin) -> Command:
    """The command that a plug-in brings: a module, or an object, with HELP, options and run.

    Raises:
        PluginError: it can't be imported, or lacks one of them.
    """
    command: Command = plugin.load()
    lacking = [name for name in ("HELP", "options", "run") if not hasattr(command, name)]
    if lacking:
        raise PluginError(f"the {plugin} has no {lacking[0]}: see docs/plugins.md")
    return command
