"""How a process ends in good order: when a signal asks it to, or when the process that started it has died.

A command runs inside `graceful`: Ctrl-C (SIGINT), SIGTERM and SIGHUP raise `Stopped`, and the command ends with the
status that shells expect (130, 143, 129) and a line that says how to go on. While a network trains, `deferred` only
takes note: the training saves its state after the step it is in, and then raises `Stopped` itself.
"""

from __future__ import annotations

import os
import shlex
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

# Windows has no SIGHUP.
ASKED = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__)
EXIT_CODES = tuple(128 + number for number in ASKED)  # of a command that was stopped, as shells have them
GRACE = 60.0  # seconds to save a state in, before a process is killed
SAME = 1.0  # seconds: two signals within them are one request, sent to a group of processes and by a parent, too
PARENT = "RANKGRAD_PARENT"  # environment variable: number of the process that this one must not outlive
ONCE_MORE = "; Ctrl-C again: at once" if os.isatty(2) else ""  # what people at a terminal are told


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return signal.Signals(self.number).name


@dataclass
class _Request:
    """What has been asked of this process; a forked worker of a DataLoader has a copy, which is not its own."""

    handled: Sequence[signal.Signals] = ()
    number: int = 0
    time: float = 0.0
    deferred: bool = False
    process: int = field(default_factory=os.getpid)


_request: _Request | None = None


@contextmanager
def graceful() -> Iterator[None]:
    """Signals that ask this process to end raise `Stopped`; afterwards they do what they did before.

    A signal that was ignored stays ignored: `nohup` and a shell's background jobs count on it. Inside another
    `graceful`, and outside the main thread, where Python can't handle signals, this does nothing.
    """
    global _request
    if _request is not None or not _in_main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in ASKED}
    _request = _Request([number for number, handler in earlier.items() if handler not in (signal.SIG_IGN, None)])
    handled = _request.handled
    try:
        take_back()
        yield
    finally:
        for number in handled:
            signal.signal(number, earlier[number])
        _request = None


@contextmanager
def deferred() -> Iterator[None]:
    """A signal is only noted, for `requested`; whoever asks for it saves the state and raises `Stopped`.

    A second Ctrl-C does not wait for that. If nobody has asked by the end, `Stopped` is raised there.

    Raises:
        Stopped: also instead of the SystemExit that Lightning makes of it.
    """
    with graceful():
        if _request is None or not _in_main_thread():
            yield
            return
        _request.deferred = True
        try:
            yield
        except SystemExit:
            if not _request.number:
                raise
        finally:
            _request.deferred = False
            take_back()  # Lightning leaves Ctrl-C switched off
        if _request.number:
            raise Stopped(_request.number)


def requested() -> int:
    """The signal that has asked this process to end; 0: none."""
    return 0 if _request is None else _request.number


def take_back() -> None:
    """Handle the signals again, after a library has put handlers of its own in their place."""
    if _request is not None and _in_main_thread():
        for number in _request.handled:
            signal.signal(number, _asked)


def _in_main_thread() -> bool:
    """Python sets handlers of signals, and calls them, in the main thread alone."""
    return threading.current_thread() is threading.main_thread()


def _asked(number: int, frame: object) -> None:
    if _request is None or _request.process != os.getpid():
        return
    first, now = not _request.number, time.monotonic()
    if not first and now - _request.time < SAME:
        return
    if number == getattr(signal, "SIGHUP", None):
        _leave_terminal()
    if first:
        _request.number = number
    _request.time = now
    if not _request.deferred or (not first and number == signal.SIGINT):
        raise Stopped(_request.number)
    if first:
        say("stopping after this step, to save the state" + ONCE_MORE)


def say(text: str) -> None:
    """A line on standard error, once if several processes train together."""
    if speaks():
        with suppress(OSError):
            os.write(2, f"\n{text}\n".encode())  # not print: a handler may run in the middle of another one


def _leave_terminal() -> None:
    """If the terminal is gone, write to nothing: otherwise the next line of a progress bar would be an error."""
    for output in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(output).st_mode) and not os.isatty(output):
                os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def speaks() -> bool:
    """Whether this process is the one that speaks, of those that torchrun or `launch` has started."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def spare_worker(_: int = 0) -> None:
    """Let a worker of a DataLoader go on when a signal reaches it, too: `worker_init_fn` of every loader.

    A terminal and a scheduler ask all processes of a run at once. The one that trains needs its workers for the step
    that it is in, and ends them afterwards. After SIGTERM a worker ends in any case, only later.
    """
    for number in ASKED:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(round(GRACE)))


def follow_parent() -> None:
    """End this process in good order when the one that started it has died, if that one asked for it; see `PARENT`."""
    parent = os.environ.pop(PARENT, None)
    if parent is not None:
        number = int(parent)
        follow(lambda: os.getppid() == number)


def follow(alive: Callable[[], bool]) -> None:
    """End this process in good order when the one that started it has died.

    Args:
        alive: whether that one still lives.
    """
    threading.Thread(target=_follow, args=(alive,), name="follow parent", daemon=True).start()


def _follow(alive: Callable[[], bool]) -> None:
    while alive():
        time.sleep(0.5)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(GRACE)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def continue_with(command: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Say in the last line of a command that is stopped how to go on.

    Args:
        command: gives the words that stand behind `rankgrad`; asked at the end, as the folder may be known only then.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        told: Any = stopped
        told.command = getattr(stopped, "command", None) or command()
        raise


def last_words(stopped: KeyboardInterrupt) -> str:
    """The last line of a command that was stopped.

    >>> try:
    ...     with continue_with(lambda: ["train", "resume=my runs"]):
    ...         raise Stopped(signal.SIGTERM)
    ... except KeyboardInterrupt as error:
    ...     print(last_words(error), exit_code(error))
    stopped; continue with: rankgrad train 'resume=my runs' 143
    """
    word = "interrupted" if exit_code(stopped) == 128 + signal.SIGINT else "stopped"
    command = getattr(stopped, "command", None)
    return f"{word}; continue with: {shlex.join(['rankgrad', *command])}" if command else word


def exit_code(stopped: KeyboardInterrupt) -> int:
    """The status of a command that was stopped: 128 + the number of the signal, as shells have it.

    >>> exit_code(KeyboardInterrupt()), exit_code(Stopped(signal.SIGTERM))
    (130, 143)
    """
    return 128 + int(getattr(stopped, "number", signal.SIGINT))
