"""A comparison of detectors that is stopped by real signals: its states are saved, and it goes on."""

from __future__ import annotations

import signal
from functools import cache

import pytest
from small_detectors import QUICK, TINY
from stopped_commands import LONG, SIGNALS, Command, hint, results, stop
from voc_trees import shapes

pytestmark = [pytest.mark.usefixtures("hangup"), pytest.mark.slow]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    tree = shapes(tmp_path_factory.mktemp("voc"))
    return Command(
        (
            *("detect", "compare", "loss=cross_entropy,ap", "seeds=0", "-j", "2", f"data.root={tree}"),
            *(*TINY, *(word for word in QUICK if not word.startswith("trainer.max_epochs")), *LONG[2:]),
            "trainer.max_epochs=60",
        ),
        lambda f: ("-o", str(f)),
        runs=2,
        family=2,
    )


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    """Results of the command when nothing stops it; it is run once."""
    return cache(lambda: command.undisturbed(tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGKILL])
def test_a_comparison_that_is_stopped_or_killed_goes_on_and_ends_like_one_that_was_not(
    command, undisturbed, tmp_path, number
):
    killed = number == signal.SIGKILL
    assert stop(command, tmp_path, number) == (-number if killed else 128 + number)
    assert len([*tmp_path.rglob("state.ckpt")]) == command.runs
    again = [*command.words, *command.out(tmp_path)]
    assert killed or hint(tmp_path / "log") == again
    assert command.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed()
