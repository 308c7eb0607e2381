"""The command `rankgrad`. Each sub-command has a file. Settings (KEY=VALUE) go to Hydra.

A sub-command is a module: its docstring is the text of --help, `options(parser)` adds its arguments, and
`run(arguments, settings)` does the work. A command that takes settings (KEY=VALUE) has `SETTINGS = True`. `GOES_ON`
says whether the same command continues after an interruption; without it, `SETTINGS` decides. A command with `NETWORKS`
takes settings of a model and its data in place of a run. A command may have `details()`, which returns more text for
--help. Importing a command must not import torch, because that takes seconds. `run` imports it.
"""

from __future__ import annotations

import argparse
import errno
import inspect
import io
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any

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


def _goes_on(command: ModuleType | None) -> bool:
    """Whether a command does long work that the same command continues."""
    return bool(getattr(command, "GOES_ON", getattr(command, "SETTINGS", False)))


def command_of(name: str) -> ModuleType | None:
    """The command of rankgrad or of a plug-in, which is imported; None: there is none of this name.

    Raises:
        PluginError: the plug-in cannot be imported, or lacks a docstring, options or run.
    """
    if name in COMMANDS:
        return import_module(f".{name}", __name__)
    plugin = registered("commands", COMMANDS).get(name)
    if plugin is None:
        return None
    command: ModuleType = plugin.load()
    for part in ("__doc__", "options", "run"):
        if not getattr(command, part, None):
            raise PluginError(f"the {plugin} has no {part}; see docs/plugins.md")
    return command


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print a warning of rankgrad once and as one line, without the line of code that gave it."""
    earlier, said = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        text = str(message)
        if category.__module__.startswith("rankgrad"):
            if text not in said:
                _tell(text)
            said.add(text)
        elif category.__name__ != "DecompressionBombWarning":  # of Pillow; rankgrad has a limit of its own
            earlier(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = earlier


def _tell(text: str) -> None:
    """Print a text that may quote a file to standard error, without signs that would do something to the terminal."""
    print("rankgrad: " + "\n".join(map(shown, text.split("\n"))), file=sys.stderr)


def _main(words: list[str]) -> int:
    """Run a command, and answer every error that the user can correct with one line."""
    debug = "--debug" in words
    try:
        return _run(words)
    except ModuleNotFoundError as error:
        if debug or (error.name or "rankgrad").startswith("rankgrad"):
            raise
        _tell(missing(str(error.name)))
    except (ValueError, TypeError, OSError, OverflowError, MemoryError) as error:
        if debug:
            raise
        if not _handed_over(error):
            _tell(explained(error))
    except Exception as error:
        if not _handed_over(error):
            raise
        from ..runs.launch import UNEXPECTED

        return UNEXPECTED
    return MENDABLE


def _run(words: list[str]) -> int:
    name = _name(words)
    if hint := of_laboratory("command", name, [*COMMANDS, *registered("commands", COMMANDS)]):
        raise ValueError(f"unknown command {name}{hint}")
    command = command_of(name)
    networks = [word for word in words if NETWORK.match(word)] if hasattr(command, "NETWORKS") else []
    words = [word for word in words if word not in networks]
    parser = _parser(words)
    arguments, settings = parser.parse_known_args(words)
    if arguments.command is None:
        parser.print_help()
        return 0
    wrong = [word for word in settings if word.startswith("-") or not arguments.settings_allowed]
    if wrong:
        how = "settings are KEY=VALUE, without dashes; " if arguments.settings_allowed else ""
        parser.error(f"unknown argument {wrong[0]!r}; {how}see rankgrad {arguments.command} --help")
    keep_large_blocks()
    try:
        if _goes_on(command):
            require_posix(f"rankgrad {arguments.command}")
        arguments.run(arguments, [*networks, *settings])
        sys.stdout.flush()  # here, so that BrokenPipeError is caught below
    except BrokenPipeError:  # the reader of `rankgrad ... | head` has gone
        leave_pipe()
        if not _goes_on(command):
            return 0  # the reader saw what it wanted
        _tell(
            f"{arguments.command} stopped before its end, because the reader of its output has gone. The same command "
            "continues; a run of train continues with resume=RUN"
        )
        return PIPE_CLOSED
    return 0


def leave_pipe() -> None:
    """Redirect standard output to os.devnull after its reader has gone; otherwise Python complains at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explained(error: Exception) -> str:
    """The message of an error, with what helps against it."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        place = f"{shown(error.filename)}: " if error.filename is not None else ""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return f"{place}{error.strerror}. If it is to be written: choose another place (-o, or the setting out=)"
        command = getattr(error, "command", ())  # that continues the work, if it is not the same as before
        again = f"continue with: {shlex.join(['rankgrad', *command])}" if command else "run the same command again"
        return f"{place}{error.strerror}. Free some space on the disk, and {again}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory. {text}"
    if isinstance(error, OverflowError):
        return f"a number is too large ({text})"
    if "\nOriginal Traceback " in text:  # from a worker of a DataLoader; the last line has the message
        return text.rstrip().rpartition("\n")[2].partition(": ")[2]
    return text


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
    about = "Train embeddings with losses that are made for ranking metrics."
    parser = argparse.ArgumentParser("rankgrad", description=about, epilog=STATUS, allow_abbrev=False)
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
        text = inspect.getdoc(command) or ""
        if name == named and not {"-h", "--help"}.isdisjoint(argv) and hasattr(command, "details"):
            text += f"\n\n{command.details()}"  # read from the files of settings, so only when it is shown
        how: Any = dict(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        sub = commands.add_parser(name, help=text.splitlines()[0], description=text, **how)
        command.options(sub)
        sub.set_defaults(run=command.run, settings_allowed=getattr(command, "SETTINGS", False))
    return parser
