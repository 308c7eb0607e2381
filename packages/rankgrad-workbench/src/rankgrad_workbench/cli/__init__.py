"""The command `rankgrad`. Each sub-command has a file. Settings (KEY=VALUE) go to Hydra."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Protocol, TextIO, cast

from rankgrad._version import __version__
from rankgrad.common.extras import missing
from rankgrad.common.plugins import PluginError, registered
from rankgrad.common.text import shown

from ..files.elsewhere import of_laboratory
from ..files.folders import require_posix
from ..runs import signals
from .allocator import keep_large_blocks

PIPE_CLOSED = 141  # 128 + SIGPIPE, as in shells
MENDABLE = 2  # exit status of every error that the user can correct, and of wrong usage, as in argparse
STATUS = (
    "exit status: 0: success; 2: an error that you can correct, and one line says how; 130, 143 or 129: stopped by "
    "Ctrl-C, SIGTERM or SIGHUP; 1: a bug in rankgrad"
)


NETWORK = re.compile(r"\+*(model|data)[.\w]*=")  # a setting of a model or its data


class Command(Protocol):
    """A sub-command: the text of its --help, its arguments, and its work.

    A command that takes settings (KEY=VALUE) has `SETTINGS = True`. `GOES_ON` says whether the same command continues
    after an interruption; without it, `SETTINGS` decides. `LISTS` names options whose value is a list with commas; its
    parts may also be words of their own. A command with `NETWORKS` takes settings of a model and its data in place of a
    run. A command may have `details()`, which returns more text for --help. Importing a command must not import torch,
    because that takes seconds. `run` imports it.
    """

    HELP: str

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, arguments: argparse.Namespace, settings: list[str]) -> None:
        """Do the work."""


#: Modules of this package, in the order of --help. Only the one that is named is imported.
COMMANDS = (
    *("train", "compare", "tune", "evaluate", "report", "check", "predict"),
    *("embed", "index", "search", "export", "score", "datasets"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Return the exit status, see `STATUS`. A bug ends with a traceback and 1, as usual in Python."""
    signals.follow_parent()
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal may not know a sign, such as λ
    words = list(sys.argv[1:] if argv is None else argv)
    again: list[str] = []  # after an interruption, the same command continues
    with suppress(ValueError):  # `_main` reports it
        again = words if _goes_on(command_of(_name(words))) else []
    with signals.graceful():
        try:
            with signals.continue_with(lambda: again), plain_warnings():
                return _main(words)
        except KeyboardInterrupt as stopped:
            signals.ignore()
            if signals.speaks():
                with suppress(OSError):  # the terminal may be gone
                    print(f"\n{signals.last_words(stopped)}", file=sys.stderr)
            return signals.exit_code(stopped)


def _goes_on(command: Command | None) -> bool:
    """Whether a command does long work that the same command continues."""
    return bool(getattr(command, "GOES_ON", getattr(command, "SETTINGS", False)))


def command_of(name: str) -> Command | None:
    """The command of rankgrad or of a plug-in, which is imported; None: there is none of this name.

    Raises:
        PluginError: the plug-in cannot be imported, or lacks HELP, options or run.
    """
    if name in COMMANDS:
        return cast(Command, import_module(f".{name}", __name__))
    plugin = registered("commands", COMMANDS).get(name)
    if plugin is None:
        return None
    command: Command = plugin.load()
    lacking = [part for part in ("HELP", "options", "run") if not hasattr(command, part)]
    if lacking:
        raise PluginError(f"the {plugin} has no {lacking[0]}; see docs/plugins.md")
    return command


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print a warning of rankgrad once and as one line, without the line of code that gave it."""
    earlier, said = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category.__module__.startswith("rankgrad"):
            if str(message) not in said:
                print("rankgrad: " + "\n".join(map(shown, str(message).split("\n"))), file=file or sys.stderr)
            said.add(str(message))
        elif category.__name__ != "DecompressionBombWarning":  # of Pillow; rankgrad has a limit of its own
            earlier(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = earlier


def joined(argv: Sequence[str], lists: Collection[str]) -> list[str]:
    """The arguments, with the words after an option of a list joined by commas: -m A B as -m A,B.

    A word that is the path of a file or folder does not belong to the list.

    Args:
        argv: arguments of the command.
        lists: options whose value is a list.

    >>> joined(["a.run", "-m", "map", "P.5", "--qrels", "q"], ["-m"])
    ['a.run', '-m', 'map,P.5', '--qrels', 'q']
    """
    words: list[str] = []
    inside = 0  # words of a list, the option included
    for word in argv:
        listed = inside and not word.startswith("-") and (inside == 1 or not os.path.exists(word))
        inside = inside + 1 if listed else int(word in lists)
        if listed and inside > 2:
            words[-1] = ",".join([words[-1].rstrip(","), word.lstrip(",")]).rstrip(",")
        else:
            words.append(word)
    return words


def parted(argv: Sequence[str], command: Command | None) -> tuple[list[str], list[str]]:
    """The arguments without the settings of a network, and these, for a command that takes a network instead of a run.

    Args:
        argv: arguments of the command.
        command: with `NETWORKS`, or another, which has no such settings.

    >>> from rankgrad_workbench.cli import embed
    >>> parted(["embed", "model=timm", "photos"], embed)
    (['embed', 'photos'], ['model=timm'])
    """
    settings = [word for word in argv if NETWORK.match(word)] if hasattr(command, "NETWORKS") else []
    return [word for word in argv if word not in settings], settings


def _main(argv: list[str]) -> int:
    name = _name(argv)
    known = [*COMMANDS, *registered("commands", COMMANDS)]
    if name not in known and (hint := of_laboratory("command", name, known)):
        print(f"rankgrad: unknown command {shown(name)}{hint}", file=sys.stderr)
        return MENDABLE
    try:
        command = command_of(name)
    except ValueError as error:  # a plug-in that cannot be used
        print(f"rankgrad: {shown(str(error))}", file=sys.stderr)
        return MENDABLE
    argv, networks = parted(joined(argv, getattr(command, "LISTS", ())), command)
    parser = _parser(argv)
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    if not arguments.settings_allowed and (hint := _as_option(argv, arguments)):
        parser.error(hint)
    flags = [word for word in rest if word.startswith("-")]
    if flags or (rest and not arguments.settings_allowed):
        how = "settings are KEY=VALUE, without dashes; " if arguments.settings_allowed else ""
        parser.error(f"unknown argument {(flags or rest)[0]!r}; {how}see rankgrad {arguments.command} --help")
    keep_large_blocks()
    try:
        if _goes_on(command):
            require_posix(f"rankgrad {arguments.command}")
        arguments.run(arguments, [*networks, *rest])
        sys.stdout.flush()  # here, so that BrokenPipeError is caught below
    except BrokenPipeError:  # the reader of `rankgrad ... | head` has gone
        leave_pipe()
        if not _goes_on(command):
            return 0  # the reader saw what it wanted
        print(
            f"rankgrad: {arguments.command} stopped before its end, because the reader of its output has gone. The "
            "same command continues; a run of train continues with resume=RUN",
            file=sys.stderr,
        )
        return PIPE_CLOSED
    except ModuleNotFoundError as error:
        if arguments.debug or (error.name or "rankgrad").startswith("rankgrad"):
            raise
        print(f"rankgrad: {missing(str(error.name))}", file=sys.stderr)
        return MENDABLE
    except (ValueError, TypeError, OSError, OverflowError, MemoryError) as error:
        if arguments.debug:
            raise
        first = _first(error)
        if not _handed_over(first):
            lines = _with_cure(first, getattr(error, "command", ()), arguments, rest).split("\n")
            print("rankgrad: " + "\n".join(map(shown, lines)), file=sys.stderr)
        return MENDABLE
    except Exception as error:
        if not _handed_over(error):
            raise
        from ..runs.launch import UNEXPECTED

        return UNEXPECTED
    return 0


def _as_option(words: Sequence[str], arguments: argparse.Namespace) -> str:
    """What to write in place of a setting of train that is an option of this command, such as threads=1; or ""."""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier() and hasattr(arguments, name) and not os.path.exists(word):
            option = f"--{name.replace('_', '-')} {value}"
            return f"{word} is a setting of train; write {option}, see rankgrad {arguments.command} --help"
    return ""


def leave_pipe() -> None:
    """Redirect standard output to os.devnull after its reader has gone; otherwise Python complains at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_cure(error: Exception, command: Sequence[str], arguments: argparse.Namespace, settings: Sequence[str]) -> str:
    """The message of an error, with what helps against it.

    Args:
        error: the error.
        command: arguments of `rankgrad` that continue the work, if they are not the same as before.
        arguments: of this command.
        settings: KEY=VALUE of this command.
    """
    if isinstance(error, OSError) and error.errno is not None:
        from .outputs import FULL, explained

        told = explained(error, arguments, settings)
        if error.errno not in FULL:
            return told
        again = f"continue with: {shlex.join(['rankgrad', *command])}" if command else "run the same command again"
        return f"{told}. Free some space on the disk, and {again}"
    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({error}); is a file damaged?" if str(error) else "there is not enough memory"
        )
    if isinstance(error, OverflowError):
        return f"a number is too large ({error})"
    text = str(error)
    if "\nOriginal Traceback " in text:  # from a worker of a DataLoader; the last line has the message
        return text.rstrip().rpartition("\n")[2].partition(": ")[2]
    return text


def _first(error: Exception) -> Exception:
    """Find the first error of the file system. A full disk causes more errors while the first one is handled."""
    while isinstance(error, OSError) and isinstance(error.__context__, OSError) and not error.__suppress_context__:
        error = error.__context__
    return error


def _handed_over(error: Exception) -> bool:
    """With several processes, pass an error to the process that started them. That process prints it once."""
    if "TORCHELASTIC_ERROR_FILE" not in os.environ:
        return False
    from ..runs.launch import report

    report(error)
    return True


def _name(argv: Sequence[str]) -> str:
    return next((word for word in argv if not word.startswith("-")), "")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that is named; of none, or of an unknown one, that of all."""
    parser = argparse.ArgumentParser(
        prog="rankgrad",
        description="Train embeddings with losses that are made for ranking metrics.",
        epilog=STATUS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rankgrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    parser.set_defaults(settings_allowed=False, command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    plugins, named = registered("commands", COMMANDS), _name(argv)
    for name in [named] if named in (*COMMANDS, *plugins) else [*COMMANDS, *plugins]:
        if name in plugins and name != named:  # it is imported only when it is named
            about = f"{plugins[name].distribution} {plugins[name].version}"
            commands.add_parser(name, help=f"command of the plug-in {about}")
            continue
        command = command_of(name)
        assert command is not None
        # read from the files of settings, so only when it is shown
        more = getattr(command, "details", None) if not {"-h", "--help"}.isdisjoint(argv) and name == named else None
        sub = commands.add_parser(
            name,
            help=command.HELP.splitlines()[0],
            description=command.HELP if more is None else command.HELP + "\n" + more(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.options(sub)
        sub.set_defaults(run=command.run, settings_allowed=getattr(command, "SETTINGS", False))
    return parser
