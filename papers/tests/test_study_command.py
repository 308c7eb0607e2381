"""How the command of a study ends: a mistake is one line, and a signal stops it as it stops `rankgrad`."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rankgrad_papers.studies import command
from rankgrad_workbench.files.folders import lock
from rankgrad_workbench.settings import ConfigError

WAITS = """
import time
from rankgrad_papers.studies import command
def main():
    print("begun", flush=True)
    time.sleep(600)
command.run(main)
"""


@pytest.mark.parametrize("error", [ConfigError("lr must be > 0"), FileNotFoundError(2, "no such file", "photos")])
def test_a_mistake_is_one_line_and_exit_status_2(error, capsys):
    def main():
        raise error

    with pytest.raises(SystemExit) as ended:
        command.run(main)
    assert ended.value.code == 2 and capsys.readouterr().err == f"{error}\n"


def test_a_folder_of_runs_that_another_process_uses_is_one_line(tmp_path, capsys):
    def main():
        with lock(tmp_path, "this folder of runs"):
            raise AssertionError

    with lock(tmp_path, "this folder of runs"), pytest.raises(SystemExit) as ended:
        command.run(main)
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("this folder of runs is in use")


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        command.run(lambda: 1 // 0)


def test_a_signal_ends_a_study_with_a_line_and_the_status_of_shells():
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as study:
        assert study.stdout.readline() == "begun\n"
        study.send_signal(signal.SIGTERM)
        told = study.communicate(timeout=60)[1]
    assert study.returncode == 143
    assert told.strip() == "stopped; run the same command again and it continues"


def test_a_pipe_that_is_closed_early_is_no_error():
    prints = "from rankgrad_papers.studies import command; command.run(lambda: print('line\\n' * 100_000))"
    with subprocess.Popen([sys.executable, "-c", prints], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as study:
        study.stdout.readline()
        study.stdout.close()
        assert study.stderr.read() == b""
    assert study.returncode == 0


def test_a_study_that_succeeds_ends_with_0():
    with pytest.raises(SystemExit) as ended:
        command.run(lambda: None)
    assert ended.value.code == 0
