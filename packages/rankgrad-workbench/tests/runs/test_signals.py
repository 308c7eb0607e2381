"""Ending in good order: what a signal does to a process, to its children, and what the death of the parent does."""

from __future__ import annotations

import io
import os
import pickle
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from marks import slow

from rankgrad_workbench import cli
from rankgrad_workbench.runs import children as children_module
from rankgrad_workbench.runs import signals
from rankgrad_workbench.runs.children import Children
from rankgrad_workbench.runs.signals import Stopped, deferred, graceful, requested

ALL = [pytest.param(number, id=number.name) for number in signals.ASKED]


@pytest.fixture(autouse=True)
def handlers(hangup: None) -> Iterator[None]:
    """Whatever a test does, Ctrl-C works afterwards as it did before."""
    earlier = {number: signal.getsignal(number) for number in signals.ASKED}
    yield
    assert {number: signal.getsignal(number) for number in signals.ASKED} == earlier


def soon(condition: Callable[[], object], seconds: float = 20) -> bool:
    """Whether a condition comes true within some seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


# ------------------------------------------------------------------------------------------------------ one process


@pytest.mark.parametrize("number", ALL)
def test_a_signal_raises_stopped_with_its_number_and_exit_status(number):
    with pytest.raises(Stopped) as stopped, graceful():
        signal.raise_signal(number)
    assert stopped.value.number == number and signals.exit_code(stopped.value) == 128 + number
    assert str(stopped.value) == number.name and isinstance(stopped.value, KeyboardInterrupt)
    assert pickle.loads(pickle.dumps(stopped.value)).number == number


def test_a_signal_that_is_ignored_stays_ignored():
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with graceful():
            signal.raise_signal(signal.SIGHUP)
            signals.take_back()
            signal.raise_signal(signal.SIGHUP)
            assert requested() == 0
    finally:
        signal.signal(signal.SIGHUP, earlier)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_after_a_command_was_stopped_does_not_take_its_last_line(number, monkeypatch, capsys):
    def stopped(words: list[str]) -> int:
        raise Stopped(signal.SIGTERM)

    def asked_again(error: KeyboardInterrupt) -> str:
        signal.raise_signal(number)
        return "stopped; continue"

    monkeypatch.setattr(cli, "_main", stopped)
    monkeypatch.setattr(signals, "last_words", asked_again)
    with graceful():  # without it, a signal would end the tests where the command does not ignore it
        assert cli.main(["train"]) == 128 + signal.SIGTERM
        assert requested() == 0
    assert capsys.readouterr().err == "\nstopped; continue\n"


def test_outside_the_main_thread_nothing_is_handled():
    seen = []

    def elsewhere() -> None:
        with graceful(), deferred():
            signals.take_back()
            seen.append((requested(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(0, signal.getsignal(signal.SIGTERM))]


@pytest.mark.parametrize("number", ALL)
def test_a_deferred_signal_is_noted_and_raised_at_the_end(number):
    done = []
    with pytest.raises(Stopped) as stopped, deferred():
        assert requested() == 0
        signal.raise_signal(number)
        done.append(requested())
    assert done == [number] and stopped.value.number == number and requested() == 0


def test_the_same_request_twice_at_once_is_one_and_a_later_ctrl_c_does_not_wait(monkeypatch):
    done = []
    with pytest.raises(Stopped) as stopped, deferred():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # within a second: from the terminal and from a parent
        monkeypatch.setattr(signals, "SAME", 0.0)
        signal.raise_signal(signal.SIGTERM)  # schedulers repeat themselves
        done.append("a step")
        signal.raise_signal(signal.SIGINT)
        done.append("another step")
    assert done == ["a step"] and stopped.value.number == signal.SIGTERM


def test_an_exit_that_lightning_makes_of_a_request_is_the_request_and_any_other_exit_is_not():
    with pytest.raises(Stopped), deferred():
        signal.raise_signal(signal.SIGTERM)
        sys.exit(1)
    with pytest.raises(SystemExit), deferred():
        sys.exit(1)


def test_a_request_to_another_process_of_the_run_ends_this_one_in_the_same_way():
    with pytest.raises(Stopped) as stopped, deferred():
        try:
            signals.stop(signal.SIGTERM)
        except Stopped:
            sys.exit(1)  # as Lightning does
    assert stopped.value.number == signal.SIGTERM


def test_an_error_after_a_request_is_told():
    with pytest.raises(OSError, match="disk is full"), deferred():
        signal.raise_signal(signal.SIGTERM)
        raise OSError("disk is full")


def test_handlers_that_a_library_puts_in_place_are_taken_back():
    with pytest.raises(Stopped), graceful():
        signal.signal(signal.SIGTERM, lambda *_: None)
        signals.take_back()
        signal.raise_signal(signal.SIGTERM)


def test_the_first_hint_on_how_to_go_on_is_the_last_line():
    with pytest.raises(KeyboardInterrupt) as stopped, signals.continue_with(lambda: ["compare"]):
        with signals.continue_with(lambda: []), signals.continue_with(lambda: ["train", "resume=my run"]):
            raise KeyboardInterrupt
    assert signals.last_words(stopped.value) == "interrupted; continue with: rankgrad train 'resume=my run'"
    assert signals.last_words(Stopped(signal.SIGHUP)) == "stopped"


# -------------------------------------------------------------------------------------- processes of their own

# The module alone: importing all of rankgrad takes longer than these tests.
BEGIN = f"""
import importlib.util, os, signal, subprocess, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("signals", {signals.__file__!r})
signals = sys.modules["signals"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(signals)
signals.GRACE = float(os.environ.get("GRACE", 20))
out = Path(sys.argv[-1])
signals.follow_parent()
"""
# Trains until it is asked to end, and then saves its state.
TRAINS = """
def train():
    with signals.deferred():
        (out / "began").write_text(str(os.getpid()))
        while True:
            time.sleep(0.01)
            print("a line of a progress bar", flush=True)
            if signals.requested():
                (out / "state").write_text("saved")
                raise signals.Stopped(signals.requested())
try:
    train()
except KeyboardInterrupt as stopped:
    sys.exit(signals.exit_code(stopped))
"""
STUCK = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
(out / "began").write_text(str(worker.pid))
time.sleep(60)
"""
PARENT = """
child = subprocess.Popen(
    [sys.executable, os.environ["CHILD"], str(out)],
    env={**os.environ, signals.PARENT: str(os.getpid())}, start_new_session=True, stdout=subprocess.DEVNULL,
)
(out / "child").write_text(str(child.pid))
time.sleep(60)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a program."""

    def write(text: str) -> Path:
        path = tmp_path / f"{len([*tmp_path.glob('*.py')])}.py"
        path.write_text(BEGIN + text)
        return path

    return write


@pytest.mark.parametrize("number", ALL)
def test_a_training_saves_its_state_and_ends_with_the_status_of_the_signal(script, tmp_path, number):
    process = subprocess.Popen([sys.executable, script(TRAINS), tmp_path], stdout=subprocess.DEVNULL)
    assert soon((tmp_path / "began").exists)
    process.send_signal(number)
    assert process.wait(20) == 128 + number and (tmp_path / "state").exists()


def test_when_its_terminal_is_closed_a_training_saves_its_state(script, tmp_path):
    program = script(TRAINS)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, str(program), str(tmp_path)])
    assert soon((tmp_path / "began").exists)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP and (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("child", "grace"), [(TRAINS, 20), *slow((STUCK, 0.5))], ids=["which saves its state", "stuck"]
)
def test_no_process_outlives_a_parent_that_was_killed(script, tmp_path, child, grace):
    environment = {**os.environ, "CHILD": str(script(child)), "GRACE": str(grace)}
    parent = subprocess.Popen([sys.executable, script(PARENT), tmp_path], env=environment)
    assert soon((tmp_path / "began").exists) and soon((tmp_path / "child").exists)
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) == (2 if child is STUCK else 1)
    parent.kill()
    parent.wait()
    assert psutil.wait_procs(family, timeout=20)[1] == []
    assert (tmp_path / "state").exists() == (child is TRAINS)


def test_a_worker_ignores_what_is_sent_to_all_and_ends_some_time_after_sigterm(script, tmp_path):
    worker = script("signals.spare_worker()\n(out / 'began').write_text('')\ntime.sleep(60)")
    process = subprocess.Popen([sys.executable, worker, tmp_path], env={**os.environ, "GRACE": "1"})
    assert soon((tmp_path / "began").exists)
    for number in signals.ASKED:
        process.send_signal(number)
    time.sleep(0.3)
    assert process.poll() is None
    assert process.wait(20) == -signal.SIGALRM


# --------------------------------------------------------------------------------------------------------- children


@pytest.fixture
def start(script, tmp_path, monkeypatch) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts a program as a child, and waits until it has begun."""

    def begin(children: Children, text: str, name: str) -> subprocess.Popen[bytes]:
        monkeypatch.setattr(children_module, "COMMAND", (sys.executable, str(script(text))))
        (tmp_path / name).mkdir()
        with (tmp_path / f"{name}.log").open("w") as log:
            process = children.start([str(tmp_path / name)], log=log)
        assert soon((tmp_path / name / "began").exists)
        return process

    return begin


def test_children_are_asked_once_and_save_their_state(start, tmp_path):
    with pytest.raises(Stopped), graceful(), Children() as children:
        processes = [start(children, TRAINS, name) for name in "ab"]
        assert all(os.getsid(process.pid) == process.pid for process in processes)  # Ctrl-C reaches this one alone
        signal.raise_signal(signal.SIGINT)
    assert [process.returncode for process in processes] == [143, 143]
    for name in "ab":
        assert (tmp_path / name / "state").exists() and "Traceback" not in (tmp_path / f"{name}.log").read_text()


def test_a_child_that_does_not_end_is_killed_with_its_workers(start, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.5)
    with Children() as children:
        process = start(children, STUCK, "a")
        worker = psutil.Process(int((tmp_path / "a" / "began").read_text()))
    assert process.returncode == -signal.SIGKILL and psutil.wait_procs([worker], timeout=20)[1] == []


def test_a_second_ctrl_c_kills_the_children_at_once(start, monkeypatch):
    monkeypatch.setattr(signals, "SAME", 0.0)
    with pytest.raises(Stopped), graceful(), Children() as children:
        process = start(children, STUCK, "a")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        signal.raise_signal(signal.SIGINT)
    assert process.returncode == -signal.SIGKILL and time.monotonic() - began < signals.GRACE / 2


def test_waiting_gives_each_child_that_has_ended_once(start, tmp_path):
    begun = "(out / 'began').write_text('')\n"
    with Children() as children:
        late = start(children, begun + "while not (out / 'go').exists(): time.sleep(0.01)\nsys.exit(3)", "late")
        early = start(children, begun, "early")
        assert children.wait() is early and early.returncode == 0
        (tmp_path / "late" / "go").write_text("")
        assert children.wait() is late and late.returncode == 3
        with pytest.raises(ValueError, match="no process is left"):
            children.wait()


# ---------------------------------------------------------------------------------------------------- the command


def test_text_that_a_terminal_has_no_letters_for_is_written_with_escapes(monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict") for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit):
            cli.main(["--version"])
        print("λ ± \udcff")
        assert cli.main(["train", "loss=λ"]) == 2
    for stream in streams:
        stream.flush()
    shown, told = (stream.buffer.getvalue().decode("ascii") for stream in streams)
    assert r"\u03bb \xb1 \udcff" in shown and r"unknown loss '\u03bb'" in told
