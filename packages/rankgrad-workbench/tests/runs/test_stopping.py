"""Real commands that are stopped by real signals: nothing is left running, the state is saved, and they go on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from functools import cache

import psutil
import pytest
from small_runs import make_photos, small
from small_tables import QUICK as OF_TABLE
from small_tables import one_list
from stopped_commands import LONG, SIGNALS, Command, hint, results, stop

pytestmark = pytest.mark.usefixtures("hangup")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Command]:
    photos = make_photos(tmp_path_factory.mktemp("photos"))
    rows = one_list(tmp_path_factory.mktemp("rows") / "rows.csv", 20_000)
    of_table = [word for word in OF_TABLE if not word.startswith(("trainer.max_epochs", "sampler."))]
    return {
        "train": Command(("train", *small(photos, *LONG, "data.workers=1")), lambda f: (f"out={f / 'run'}",), family=1),
        "scores": Command(  # 2 000 batches, so that it is not over before it is stopped
            (
                *("train", "task=scores", "data=table", f"data.root={rows}", *of_table, LONG[0], LONG[2]),
                *("sampler.batch_size=8", "evaluation.select=null"),
            ),
            lambda f: (f"out={f / 'run'}",),
        ),
        "devices": Command(
            ("train", *small(photos, *LONG, "trainer.devices=2", "trainer.accelerator=cpu")),
            lambda f: (f"out={f / 'run'}",),
            family=2,
        ),
        "compare": Command(
            ("compare", "loss=pnp,roadmap", "seeds=0", *small(photos, *LONG), "-j", "2"),
            lambda f: ("-o", str(f)),
            runs=2,
            family=2,
        ),
        "tune": Command(
            (
                *("tune", "loss=pnp,roadmap", "trials=1", "folds=2", "seeds=none", "-j", "2"),
                *small(photos, *LONG[:2], "checkpoint_minutes=0.01", "sampler.classes_per_batch=2"),
            ),
            lambda f: ("-o", str(f)),
            runs=2,
            sign="state.ckpt",
            family=2,
        ),
    }


@pytest.fixture(scope="module")
def undisturbed(commands, tmp_path_factory) -> Callable[[str], dict[str, bytes]]:
    """Results of a command that nothing stops; each is run once."""
    return cache(lambda name: commands[name].undisturbed(tmp_path_factory.mktemp(name)))


@pytest.mark.slow  # test_signals.py stops children, and test_cli.py a training
def test_a_comparison_that_is_stopped_has_saved_its_states_and_says_how_to_go_on(commands, tmp_path):
    command = commands["compare"]
    assert stop(command, tmp_path, signal.SIGTERM) == 128 + signal.SIGTERM
    assert hint(tmp_path / "log") == [*command.words, *command.out(tmp_path)]
    assert len([*tmp_path.glob("*/state.ckpt")]) == 2 and not [*tmp_path.rglob("*.tmp")]
    assert all(hint(path)[0] == "train" for path in tmp_path.glob("*/log.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["train", "scores", "devices", "compare", "tune"])
def test_a_command_that_is_stopped_goes_on_and_ends_like_one_that_was_not(
    commands, undisturbed, tmp_path, name, number
):
    command = commands[name]
    assert stop(command, tmp_path, number) == 128 + number
    assert len([*tmp_path.rglob("state.ckpt")]) == command.runs
    again = hint(tmp_path / "log")
    expected = ["train", f"resume={tmp_path / 'run'}"]
    assert again == (expected if name in ("train", "scores", "devices") else [*command.words, *command.out(tmp_path)])
    assert command.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "scores", "devices", "compare", "tune"])
def test_when_a_command_is_killed_its_children_save_their_states_and_end(commands, undisturbed, tmp_path, name):
    command = commands[name]
    assert stop(command, tmp_path, signal.SIGKILL) == -signal.SIGKILL
    again = [*command.words, *command.out(tmp_path)]
    if name in ("train", "scores"):  # nobody was left to save it
        again = ["train", f"resume={tmp_path / 'run'}"]
    else:
        assert len([*tmp_path.rglob("state.ckpt")]) == command.runs
        if name == "devices":
            again = hint(tmp_path / "log")  # the first child has said so
    assert command.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed(name)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_all_processes_of_a_run_leaves_its_workers_for_the_last_step(
    commands, undisturbed, tmp_path, number
):
    assert stop(commands["train"], tmp_path, number, group=True) == 128 + number
    assert len([*tmp_path.rglob("state.ckpt")]) == 1
    assert commands["train"].go_on(tmp_path, hint(tmp_path / "log")).wait(300) == 0
    assert results(tmp_path) == undisturbed("train")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_of_several_that_is_stopped_or_killed_alone_ends_the_others(commands, tmp_path, number):
    command = commands["devices"]
    process = command.start(tmp_path)
    while not [*tmp_path.rglob(command.sign)]:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.02)
    family = psutil.Process(process.pid).children()
    family[1].send_signal(number)
    assert process.wait(90) == 128 + number and psutil.wait_procs(family, timeout=60)[1] == []
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    if number == signal.SIGTERM:
        assert len([*tmp_path.rglob("state.ckpt")]) == 1
        assert hint(tmp_path / "log") == ["train", f"resume={tmp_path / 'run'}"]
    else:
        assert "rankgrad: process 1 was killed by SIGKILL" in log
