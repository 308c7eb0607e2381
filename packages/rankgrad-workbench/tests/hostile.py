"""Files of somebody else, for tests that no command runs code from them: hostile ones and damaged ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankgrad_workbench.cli import main


class Touch:
    """What a pickle can do: anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def system_call(canary: Path) -> dict[str, Any]:
    """Settings that would touch the canary."""
    return {"_target_": "os.system", "command": f"touch {canary}"}


def changed(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The same with other settings."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    change(config)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line that a command ends with, whose exit status is 2."""
    capsys.readouterr()
    assert main(list(map(str, words))) == 2
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith("rankgrad: ")]
    assert len(told) == 1 and lines[-1] == told[0] and "Traceback" not in "".join(lines)
    return told[0]


# Runs in a process of its own, with no more than a gigabyte beside what it has at the start. Damages files many times
# over and says what a command makes of each: exit status, what it told, what it showed; or the traceback.
FUZZ = """
import contextlib, io, json, random, resource, sys, traceback
from pathlib import Path
import rankgrad_workbench.tasks.scores.task, rankgrad_workbench.training.runner
import rankgrad_workbench.report, rankgrad_workbench.index.gallery
from rankgrad_workbench.cli import main

times, cases = json.loads(sys.argv[1])
status = Path("/proc/self/status").read_text()
now = int(status.split("VmSize:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, now + 2**30))
random.seed(0)

def damaged(whole, number):
    content = bytearray(whole)
    if number % 3 == 0:
        return bytes(content[: random.randrange(len(content))])
    for _ in range(1 if number % 3 == 1 else 20):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)

def tried(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except BaseException:
            return "traceback", traceback.format_exc(), ""
    lines = [line for line in err.getvalue().splitlines() if line.startswith("rankgrad: ")]
    return code, lines, out.getvalue()

for file, words in cases:
    whole = Path(file).read_bytes()
    found = [tried(words)]
    for number in range(times):
        Path(file).write_bytes(damaged(whole, number))
        found.append(tried(words))
    Path(file).write_bytes(whole)
    print(json.dumps(found))
"""


def fuzz(places: Mapping[str, Path], cases: Sequence[tuple[str, str, bool]], times: int) -> None:
    """Damage files many times over: each command ends with 0, or with 2 and one line.

    Args:
        places: word of the commands -> path; RUN is the folder of the files.
        cases: file, command that reads it, and whether a checksum finds every damage of its content.
        times: for each file.
    """

    def filled(word: str) -> str:
        return re.sub("|".join(places), lambda match: str(places[match[0]]), word)

    given = [(str(places["RUN"] / name), list(map(filled, command.split()))) for name, command, _ in cases]
    words = [sys.executable, "-W", "ignore", "-c", FUZZ, json.dumps([times, given])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for (name, command, checked), line in zip(cases, done.stdout.splitlines(), strict=True):
        whole, *damaged = json.loads(line)
        assert whole[0] == 0, (name, command, whole)
        for code, told, shown in damaged:
            assert code in (0, 2), f"{name}, {command}: {told}"
            assert (len(told) == 1) == (code == 2), (name, command, told)
            if checked:  # what no checksum covers says nothing: dates inside a zip
                assert code == 2 or shown == whole[2], (name, command)
        assert sum(code == 2 for code, _, _ in damaged) >= times // 6, (name, command)
