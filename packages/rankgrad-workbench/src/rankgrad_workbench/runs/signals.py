"""How a process ends cleanly: on a signal, or when the process that started it has died.

A command runs inside `graceful`: Ctrl-C (SIGINT), SIGTERM and SIGHUP raise `Stopped`. The command then prints how to
resume and ends with the exit status that shells expect (130, 143, 129). During training, `deferred` only records the
signal. The training saves its state after the current step and then raises `Stopped` itself.
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
from dataclasses import dataclass
from typing import Any, NoReturn

# every command imports this, also on a system without SIGHUP, where it says what works there
ASKED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
EXIT_CODES = tuple(128 + number for number in ASKED)  # of a stopped command, as in shells
GRACE = 60.0  # seconds to save the state before a process is killed
SAME = 1.0  # seconds; two signals within this time count as one request: a terminal and a parent may both send one
PARENT = "RANKGRAD_PARENT"  # environment variable: id of the parent process; when the parent dies, this process ends
ONCE_MORE = "; press Ctrl-C again to stop at once" if os.isatty(2) else ""  # hint for people at a terminal


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
class _Received:
    """The signal that this process received inside `graceful`.

    Attributes:
        process: the process; 0 outside of `graceful`. A forked worker of a DataLoader has the object of its parent.
        handled: the signals that are handled.
        number: of the signal; 0: none yet.
        time: when it came.
        deferred: it is only recorded.
    """

    process: int = 0
    handled: Sequence[signal.Signals] = ()
    number: int = 0
    time: float = 0.0
    deferred: bool = False


_received = _Received()


@contextmanager
def graceful() -> Iterator[None]:
    """Context in which SIGINT, SIGTERM and SIGHUP raise `Stopped`. Afterwards the earlier handlers are restored.

    A signal that was ignored stays ignored: `nohup` and background jobs of shells rely on it. Inside another
    `graceful`, and outside the main thread, where Python cannot handle signals, this does nothing.
    """
    global _received
    if _received.process or not _in_main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in ASKED}
    handled = [number for number, handler in earlier.items() if handler not in (signal.SIG_IGN, None)]
    _received = _Received(os.getpid(), handled)
    try:
        take_back()
        yield
    finally:
        for number in handled:
            signal.signal(number, earlier[number])
        _received = _Received()


@contextmanager
def deferred() -> Iterator[None]:
    """Context in which a signal is only recorded. The code inside calls `requested`, saves its state, raises `Stopped`.

    A second Ctrl-C raises `Stopped` at once. If the code inside did not raise it, `Stopped` is raised at the end.

    Raises:
        Stopped: also in place of the SystemExit that Lightning raises on a signal.
    """
    with graceful():
        if not _received.process or not _in_main_thread():
            yield
            return
        _received.deferred = True
        try:
            yield
        except SystemExit:
            if not _received.number:
                raise
        finally:
            _received.deferred = False
            take_back()  # Lightning leaves Ctrl-C disabled
        if _received.number:
            raise Stopped(_received.number)


def requested() -> int:
    """The signal that asked this process to end; 0: none."""
    return _received.number


def stop(number: int) -> NoReturn:
    """End this process as a signal would, which this process or another one of the run received.

    Raises:
        Stopped: always.
    """
    if _received.process and not _received.number:
        _received.number = number  # Lightning turns the exception into a SystemExit, and `deferred` needs the number
    raise Stopped(number)


def take_back() -> None:
    """Set our signal handlers again, after a library has replaced them."""
    _handle(_receive)


def ignore() -> None:
    """Ignore further signals until the end of `graceful`: a stopped command still prints its last line.

    A process of several may be asked twice: by another process, and later when it sees that its parent has died.
    """
    _handle(signal.SIG_IGN)


def _handle(handler: Any) -> None:
    if _in_main_thread():
        for number in _received.handled:
            signal.signal(number, handler)


def _in_main_thread() -> bool:
    """Whether this is the main thread: Python sets and calls signal handlers only there."""
    return threading.current_thread() is threading.main_thread()


def _receive(number: int, frame: object) -> None:
    """Handle a signal."""
    if _received.process != os.getpid():
        return
    first, now = not _received.number, time.monotonic()
    if not first and now - _received.time < SAME:
        return
    if number == signal.SIGHUP:
        _leave_terminal()
    if first:
        _received.number = number
    _received.time = now
    if not _received.deferred or (not first and number == signal.SIGINT):
        raise Stopped(_received.number)
    if first:
        say("stopping after this step, to save the state" + ONCE_MORE)


def say(text: str) -> None:
    """Print a line to standard error; if several processes train together, only the first prints it."""
    if speaks():
        with suppress(OSError):
            os.write(2, f"\n{text}\n".encode())  # not print: a signal handler may interrupt another print


def _leave_terminal() -> None:
    """If the terminal is closed, redirect outputs to os.devnull: otherwise the next progress bar would raise."""
    for output in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(output).st_mode) and not os.isatty(output):
                os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def speaks() -> bool:
    """Whether this process prints messages: the only one, or the first of those that torchrun or `launch` started."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def spare_worker(_: int = 0) -> None:
    """Let a worker of a DataLoader ignore signals that ask it to end; `worker_init_fn` of every loader.

    A terminal and a scheduler send a signal to all processes of a run. The training process needs its workers until the
    end of the current step, and then ends them itself. After SIGTERM a worker ends after `GRACE` seconds at the latest.
    """
    for number in ASKED:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(round(GRACE)))


def follow_parent() -> None:
    """If the variable `PARENT` is set, end this process cleanly when its parent process has died."""
    parent = os.environ.pop(PARENT, "")
    if parent.isdecimal():
        threading.Thread(target=_follow, args=(int(parent),), name="follow parent", daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(GRACE)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def continue_with(command: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Context for a command: if it is stopped, or an error of the system ends it, its last line says how to continue.

    Args:
        command: () -> arguments of `rankgrad` that continue it; called at the end, when the folder is known.
    """
    try:
        yield
    except (KeyboardInterrupt, OSError) as stopped:  # OSError: the disk may be full
        told: Any = stopped
        told.command = getattr(stopped, "command", None) or command()
        raise


def last_words(stopped: KeyboardInterrupt) -> str:
    """The last line that a stopped command prints.

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
    """The exit status of a stopped command: 128 + the number of the signal, as in shells.

    >>> exit_code(KeyboardInterrupt()), exit_code(Stopped(signal.SIGTERM))
    (130, 143)
    """
    return 128 + int(getattr(stopped, "number", signal.SIGINT))
