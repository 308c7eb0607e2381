"""`rankgrad reproduce`, stopped by real signals: nothing is left running, states are saved, and it goes on."""

from __future__ import annotations

import signal

import pytest
from small_runs import FEW_WEIGHTS
from stopped_commands import LONG, SIGNALS, Command, hint, results, stop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hangup")]

FEW = [word for word in FEW_WEIGHTS if not word.startswith(("trainer.max_epochs", "sampler.batches", "checkpoint"))]
COMMAND = Command(
    ("reproduce", "roadmap/table9", "--stand-in", "glyphs", "--seeds", "0", "-j", "2", *FEW, *LONG),
    lambda folder: ("-o", str(folder)),
    runs=2,
    family=2,
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return COMMAND.undisturbed(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_table_that_is_stopped_goes_on_and_ends_like_one_that_was_not(undisturbed, tmp_path, number):
    assert stop(COMMAND, tmp_path, number) == 128 + number
    assert len([*tmp_path.rglob("state.ckpt")]) == COMMAND.runs
    again = hint(tmp_path / "log")
    assert again == [*COMMAND.words, *COMMAND.out(tmp_path)]
    assert COMMAND.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed


def test_when_a_table_is_killed_its_children_save_their_states_and_end(undisturbed, tmp_path):
    assert stop(COMMAND, tmp_path, signal.SIGKILL) == -signal.SIGKILL
    assert len([*tmp_path.rglob("state.ckpt")]) == COMMAND.runs
    assert COMMAND.go_on(tmp_path, [*COMMAND.words, *COMMAND.out(tmp_path)]).wait(300) == 0
    assert results(tmp_path) == undisturbed
