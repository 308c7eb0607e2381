"""The folder of a run: one user at a time, names that never collide, what may not change, logs, old runs."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import forked, wait
from kept_runs import copied, kept_index
from marks import slow_unless
from omegaconf import OmegaConf
from small_runs import cut_off, make_photos, same_results, small, train

from rankgrad.evaluation import Report
from rankgrad_workbench import files
from rankgrad_workbench.cli import embed, main
from rankgrad_workbench.files import folders
from rankgrad_workbench.files.folders import LockedError, lock
from rankgrad_workbench.index import Index
from rankgrad_workbench.models.state_dicts import write_plain
from rankgrad_workbench.models.weights import load_weights
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves, evaluations, read_rows
from rankgrad_workbench.settings import ConfigError
from rankgrad_workbench.training.log import TableLogger
from rankgrad_workbench.training.state import read_state

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("data") / "photos")


# ------------------------------------------------------------------------------------------------------------ locks


def test_a_second_user_of_a_folder_is_told_who_has_it(tmp_path):
    held, holds = os.pipe()

    def hold() -> None:
        with lock(tmp_path, "this run"):
            os.write(holds, b"x")
            time.sleep(60)

    child = forked(hold)
    assert os.read(held, 1) == b"x"
    with pytest.raises(LockedError, match=rf"this run is in use: .* is locked by process {child} on \S+ since 20"):
        with lock(tmp_path, "this run"):
            pass
    os.kill(child, signal.SIGKILL)
    assert wait(child) == -signal.SIGKILL
    with lock(tmp_path, "this run"):  # the system let go of it
        pass
    assert not [*tmp_path.iterdir()]


def test_a_run_in_use_is_not_resumed(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    with lock(tmp_path / "run", "this run"):
        # the lock of a process is its own: another process asks
        log = tmp_path / "log.txt"
        status = wait(forked(lambda: main(["train", f"resume={tmp_path / 'run'}"]), log))
    assert status != 0 and f"is locked by process {os.getpid()}" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_trainings_that_start_in_the_same_second_have_folders_of_their_own(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101-000000")

    def start(seed: int) -> int:
        return forked(lambda: main(["train", *small(photos, f"seed={seed}", "trainer.max_epochs=1")]))

    assert [wait(number) for number in [start(seed) for seed in range(3)]] == [0, 0, 0]
    runs = [Run(folder) for folder in (tmp_path / "runs").iterdir()]
    assert len(runs) == 3 and all(run.finished for run in runs)
    for run in runs:  # settings and weights are of the same training
        kept = read_state(run.state)["kept"]
        assert kept["seed"] == OmegaConf.load(run.config).seed
    assert {OmegaConf.load(run.config).seed for run in runs} == {0, 1, 2}


def test_names_made_in_the_same_second_differ(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")
    names = [train(*small(photos, "trainer.max_epochs=0")).folder.name for _ in range(2)]
    assert names == [f"folder-AdaptiveROADMAPLoss-20260101-000000{end}" for end in ("", "-2")]


def test_bad_settings_leave_nothing_not_even_a_folder_of_runs(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("optimizer.name=lion", "evaluation.clusters=some"):
        with pytest.raises(ValueError, match="lion|clusters"):
            train(*small(photos, wrong))
        assert [*tmp_path.iterdir()] == []


def test_bad_settings_leave_what_was_in_the_folder(photos, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="lion"):
        train(*small(photos, "optimizer.name=lion"), f"out={tmp_path}")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"notes.txt": "mine"}


@pytest.mark.parametrize("name", ["model.pt", "before.json", "scores.npz", "step-20.npz", "logs"])
def test_a_folder_that_is_no_run_but_has_a_name_of_a_run_is_not_written_to(photos, tmp_path, name):
    (tmp_path / name).write_text("mine")
    (tmp_path / ".mine.1.tmp").write_text("mine")
    with pytest.raises(ConfigError, match=f"^{tmp_path} is not a run, and holds {name}, .*choose another out=$"):
        train(*small(photos), f"out={tmp_path}")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine", ".mine.1.tmp": "mine"}


def test_a_run_that_was_killed_before_it_wrote_its_settings_starts_again(photos, tmp_path):
    for name in ("before.json", folders.LOCK, folders.HOLDER):  # a killed process leaves its lock
        (tmp_path / name).write_text("{")
    (tmp_path / ".before.json.1.tmp").write_text("{")
    (tmp_path / ".mine.1.tmp").write_text("mine")
    with pytest.raises(ValueError, match="lion"):
        train(*small(photos, "optimizer.name=lion"), f"out={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == [".mine.1.tmp"]
    assert train(*small(photos, "trainer.max_epochs=1"), f"out={tmp_path}").finished
    assert (tmp_path / ".mine.1.tmp").read_text() == "mine"


# ---------------------------------------------------------------------------------------------------- atomic writes


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.json", "old")]


@contextmanager
def full(room: int) -> Iterator[None]:
    """A disk that takes files of so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_whatever_a_full_disk_cuts_off_is_named_and_leaves_nothing(tmp_path):
    table = TableLogger(tmp_path / "logs")
    table.log_metrics({"loss": 1.0}, 0)
    table.save()
    for step in range(200):
        table.log_metrics({"loss": 1.0}, step)
    vectors = Index.of(np.eye(64), list(map(str, range(64))))
    writers = {
        "a.npz": lambda path: files.write_npz(path, {"a": np.zeros(1000)}),
        "model.pt": lambda path: write_plain(path, {"a": torch.zeros(1000)}),
        "a.txt": lambda path: files.write_text(path, "x" * 1000),
        "logs/metrics.csv": lambda path: table.save(),
        "a.index": vectors.save,
        "a.parquet": vectors.save,
    }
    before = {*tmp_path.rglob("*")}
    for name, write in writers.items():
        with full(600), pytest.raises(OSError) as error:
            write(tmp_path / name)
        assert error.value.filename == str(tmp_path / name), name
    assert {*tmp_path.rglob("*")} == before


def test_an_error_of_another_file_is_not_blamed_on_the_file_that_is_written(tmp_path):
    with pytest.raises(OSError) as error, files.atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "elsewhere")
    assert error.value.filename == "elsewhere"


def test_a_state_needs_no_room_in_the_temporary_folder(photos, tmp_path, monkeypatch):
    def mkstemp(*where: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkstemp", mkstemp)
    assert train(*small(photos, "trainer.max_epochs=1"), f"out={tmp_path / 'run'}").finished


def test_a_command_says_what_helps_on_a_full_disk(tmp_path, monkeypatch, capsys):
    def write(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "photos.npz.parts/part-000000.npz")

    monkeypatch.setattr(embed, "run", write)
    assert main(["embed", str(tmp_path), str(tmp_path)]) == 2
    assert re.search("part-000000.npz.*Free some space", capsys.readouterr().err)


def test_a_file_and_its_name_reach_the_disk_in_this_order(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b, **at: (done.append("rename"), replace(a, b, **at))[1])
    files.write_text(tmp_path / "a.txt", "x")
    assert done == ["fsync", "rename", "fsync"]


def test_what_a_killed_process_left_is_removed_when_the_run_goes_on(begun, tmp_path):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    (tmp_path / ".state.ckpt.4711.tmp").write_bytes(b"half")
    (tmp_path / ".embeddings.npz.4711.tmp").write_bytes(b"half")
    (tmp_path / ".mine").write_text("stays")
    train(f"resume={tmp_path}")
    assert [path.name for path in tmp_path.glob(".*")] == [".mine"]


# ----------------------------------------------------------------------------------------- what may be another thing


@pytest.fixture(scope="module")
def begun(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died after its first step."""
    out = tmp_path_factory.mktemp("begun") / "run"
    cut_off([*small(photos), f"out={out}"], 1)
    return out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.gradient_clip_val", 1.0),
        ("trainer.accumulate_grad_batches", 2),
        ("trainer.log_every_n_steps", 2),
        ("data.load.test_fraction", 0.4),
        ("data.load.channels", 1),
        ("evaluation.split", "train"),
        ("evaluation.ks", [1]),
        ("seed", 1),
        ("loss.tau", 0.02),
    ],
)
def test_every_other_setting_is_as_it_was_or_the_run_is_not_resumed(begun, tmp_path, key, value):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    config = OmegaConf.load(tmp_path / "config.yaml")
    OmegaConf.update(config, key, value, force_add=True)
    OmegaConf.save(config, tmp_path / "config.yaml")
    with pytest.raises((ConfigError, ValueError), match="changed .*state.ckpt|3 channels"):
        train(f"resume={tmp_path}")


@pytest.mark.slow
def test_how_it_computes_may_be_another(photos, tmp_path):
    from rankgrad_workbench.settings import compose
    from rankgrad_workbench.tasks.retrieval import task as retrieval

    whole = train(*small(photos), f"out={tmp_path / 'whole'}")
    cut_off([*small(photos), f"out={tmp_path / 'run'}"], 2)
    moved = shutil.copytree(photos, tmp_path / "moved")  # sizes and times are those of the originals
    changes = ["threads=1", "checkpoint_minutes=5", "data.workers=0", f"data.root={moved}"]
    run = retrieval.train(compose([f"resume={tmp_path / 'run'}"]), changes=changes, quiet=True)
    assert same_results(run.folder, whole.folder)


def test_other_data_is_refused_with_what_is_other(photos, tmp_path, capsys):
    mine = make_photos(tmp_path / "mine")
    cut_off([*small(mine), f"out={tmp_path / 'run'}"], 1)
    image = mine / "class 0" / "0.png"
    os.utime(image, (1, 1))
    with pytest.raises(ConfigError, match=r"the data .*times\. .*check_data=false"):
        train(f"resume={tmp_path / 'run'}")
    image.unlink()
    with pytest.raises(ConfigError, match=r"\(then 50, now 49\), names, labels"):
        train(f"resume={tmp_path / 'run'}")
    (mine / "class 0" / "0.png").write_bytes((mine / "class 0" / "1.png").read_bytes())
    assert main(["train", f"resume={tmp_path / 'run'}", "check_data=false", "trainer.enable_progress_bar=false"]) == 0
    facts = Run(tmp_path / "run").read_facts()
    assert facts["data"]["images"] == 50


def test_a_state_that_would_run_code_is_not_read(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {canary}",)

    torch.save({"state_dict": {}, "global_step": 1, "kept": Evil()}, tmp_path / "run" / "state.ckpt")
    with pytest.raises(ConfigError, match="is refused: .*run code. Delete it"):
        train(f"resume={tmp_path / 'run'}")
    assert not canary.exists()


def test_one_flipped_bit_in_a_state_is_seen(begun, tmp_path):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    state = read_state(tmp_path / "state.ckpt")
    content = bytearray((tmp_path / "state.ckpt").read_bytes())
    weights = (value.contiguous().numpy().tobytes() for value in state["state_dict"].values() if value.numel() > 7)
    weight = next(weight for weight in weights if weight in content)
    content[content.index(weight) + len(weight) // 2] ^= 4  # between the parts of the archive there is padding
    (tmp_path / "state.ckpt").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"):
        train(f"resume={tmp_path}")


@pytest.mark.slow
def test_the_checksums_are_those_of_sha256sum(photos, tmp_path):
    run = train(*small(photos), f"out={tmp_path}")
    told = subprocess.run(["sha256sum", "-c", run.checksums.name], cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 and "after.json: OK" in told.stdout and "model.pt: OK" in told.stdout


# ------------------------------------------------------------------------------------------------------------- logs


LOGGED = ("evaluation.every=1", "memory=sum", "memory.warmup=0", "memory.size=16")


@pytest.fixture(scope="module")
def logged(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("logged") / "run"
    return train(*small(photos, *LOGGED), f"out={out}", "checkpoint_minutes=0")


# by default the moment in the middle of the second epoch
@pytest.mark.parametrize("writes", slow_unless({5}, range(1, 6)))
def test_the_log_of_a_resumed_run_is_that_of_a_whole_one(photos, logged, tmp_path, writes):
    cut_off([*small(photos, *LOGGED), f"out={tmp_path}"], writes)
    run = train(f"resume={tmp_path}")
    assert (run.logs / "metrics.csv").read_bytes() == (logged.logs / "metrics.csv").read_bytes()
    assert run.health.read_bytes() == logged.health.read_bytes()
    assert json.loads(run.health.read_text())["dim"] == 8


def test_rows_after_the_state_are_dropped_and_half_a_row_is_no_row(tmp_path):
    table = TableLogger(tmp_path)
    table.log_metrics({"loss": 0.5}, 0)
    table.log_metrics({"loss": 0.25, "grad": 1.0}, 1)
    table.log_metrics({"loss": 0.125}, 2)
    table.save()
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("3,0.0")
    again = TableLogger(tmp_path, done=2)
    again.log_metrics({"loss": 9.0}, 2)
    again.save()
    assert (tmp_path / "metrics.csv").read_text() == "step,loss,grad\n0,0.5,\n1,0.25,1\n2,9,\n"
    assert read_rows(tmp_path)[2] == {"step": "2", "loss": "9"}


@pytest.mark.slow
def test_a_run_that_was_killed_while_waiting_lets_go(photos, tmp_path):
    """SIGKILL leaves a lock file that nobody holds: the next one takes it."""
    words = ["train", *small(photos, "trainer.max_epochs=500"), f"out={tmp_path / 'run'}"]
    child = forked(lambda: main(words))
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "state.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    wait(child)
    assert (tmp_path / "run" / folders.LOCK).exists()
    cut = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert cut.trainer.max_epochs == 500
    with lock(tmp_path / "run", "this run"):
        pass


# ------------------------------------------------------------------------------------------------------------ check


def test_a_whole_run_is_found_whole_and_every_damage_is_seen(photos, tmp_path, capsys, with_page):
    run = train(*small(photos), f"out={tmp_path / 'run'}")
    assert main(["check", str(run.folder)]) == 0
    shown = capsys.readouterr().out
    files = [path for path in run.folder.rglob("*") if path.is_file() and path != run.checksums]
    assert "finished run (retrieval)" in shown and shown.count(" ok\n") == len(files)
    for path in files:
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[len(content) // 2] ^= 1
        path.write_bytes(damaged)
        listed = path.name in run.checksums.read_text() or path.suffix == ".ckpt"  # a log has no checksum
        assert (main(["check", str(run.folder)]) != 0) == listed, path
        path.write_bytes(content)
        if listed and path not in (run.state, run.health, run.config, run.after):
            path.unlink()
            assert main(["check", str(run.folder)]) != 0
            assert re.search(rf"{path.name} +missing\n", capsys.readouterr().out)
            path.write_bytes(content)
    assert main(["check", str(run.folder)]) == 0


def test_check_says_what_an_unfinished_run_and_an_incomplete_one_lack(tmp_path, capsys):
    cut, whole = copied("interrupted", tmp_path / "cut"), copied("scores", tmp_path / "scores")
    index = Path(shutil.copy(kept_index(), tmp_path / "photos.index"))
    Run(whole).page.unlink()
    Run(whole).checksums.unlink()
    assert main(["check", *map(str, (cut, whole, index))]) == 2
    shown = capsys.readouterr().out
    assert "unfinished run (retrieval)" in shown and f"continue it with resume={cut}" in shown
    assert re.search(r"report.html +missing\n", shown) and re.search(r"checksums.sha256 +missing\n", shown)
    assert "photos.index: index" in shown
    content = bytearray(index.read_bytes())
    content[200] ^= 1
    index.write_bytes(content)
    assert main(["check", str(index)]) == 2
    assert "damaged" in capsys.readouterr().out
    assert main(["check", str(tmp_path)]) == 2
    assert "neither a run nor an index" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- extended


def test_a_finished_run_is_extended_and_keeps_both_parts(photos, tmp_path, capsys, with_page):
    run = train(*small(photos), f"out={tmp_path / 'run'}")
    first, result = curves(run)["loss"], run.read_values()
    assert main(["train", f"resume={run.folder}", "trainer.max_epochs=4"]) == 0
    assert run.read_facts()["steps"] == 12 and OmegaConf.load(run.config).extended == [2]
    assert curves(run)["loss"][:6] == first and len(curves(run)["loss"]) == 12
    assert evaluations(run)[6] == result and evaluations(run)[12] == run.read_values()
    assert main(["check", str(run.folder)]) == 0
    before = run.after.read_bytes()
    assert main(["train", f"resume={run.folder}", "trainer.max_epochs=4"]) == 0  # has them
    assert run.after.read_bytes() == before
    capsys.readouterr()
    assert main(["train", f"resume={run.folder}", "trainer.max_epochs=3"]) != 0
    assert "this run has 4 epochs; to extend it, give trainer.max_epochs > 4; got '3'" in capsys.readouterr().err
    again = shutil.copytree(tmp_path / "run", tmp_path / "again")
    assert main(["train", f"resume={again}", "trainer.max_epochs=5"]) == 0
    assert OmegaConf.load(Run(again).config).extended == [2, 4]


@pytest.mark.slow
def test_an_extended_run_that_is_cut_off_goes_on_the_same_way(photos, tmp_path):
    from small_runs import Killed, die_after_writes

    from rankgrad_workbench.settings import compose
    from rankgrad_workbench.tasks.retrieval import task as retrieval

    run = train(*small(photos, "checkpoint_minutes=0"), f"out={tmp_path / 'run'}")
    other = Run(shutil.copytree(run.folder, tmp_path / "other"))
    longer = ["trainer.max_epochs=4"]
    retrieval.train(compose([f"resume={run.folder}"]), changes=longer, quiet=True)
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 2)
        with pytest.raises(Killed):
            retrieval.train(compose([f"resume={other.folder}"]), changes=longer, quiet=True)
    train(f"resume={other.folder}")
    assert same_results(run.folder, other.folder) and other.page.exists()
    assert (run.logs / "metrics.csv").read_bytes() == (other.logs / "metrics.csv").read_bytes()


# -------------------------------------------------------------------------------------------------- not finished yet


def test_an_interrupted_run_is_evaluated_embedded_and_reported_from_its_state(photos, tmp_path, capsys):
    whole = train(*small(photos), f"out={tmp_path / 'whole'}")
    cut_off([*small(photos), f"out={tmp_path / 'cut'}"], 2)
    cut = Run(tmp_path / "cut")
    assert not cut.finished
    assert main(["evaluate", str(cut.folder), "--bootstrap", "0", "-o", str(tmp_path / "x.json")]) == 0
    shown = capsys.readouterr().out
    assert f"{cut.folder} is not finished; its model at step 2" in shown
    assert {"step-2.pt", "step-2.npz", "step-2.json"} <= {path.name for path in cut.folder.iterdir()}
    values = Report.from_json(cut.saved[-1]).values
    assert Report.from_json(tmp_path / "x.json").values["mAP@R"] == values["mAP@R"]
    assert main(["embed", str(cut.folder), str(photos), "-o", str(tmp_path / "all.npz")]) == 0
    with np.load(tmp_path / "all.npz") as file:
        assert len(file["embeddings"]) == 50 and json.loads(str(file["origin"]))["model"].endswith("step-2.pt")
    assert main(["report", str(cut.folder), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert f"{100 * values['AP']:.1f}" in page and "not finished" in page
    # its weights are those of the state, and the run goes on as if nothing had been asked
    model, _ = load_weights(cut.folder / "step-2.pt")
    state = torch.load(cut.state, weights_only=True)["state_dict"]
    assert all(torch.equal(value, state[f"model.{name}"]) for name, value in model.state_dict().items())
    assert same_results(train(f"resume={cut.folder}").folder, whole.folder)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"kind": "nothing"}, "describes a model that cannot be built: .*nothing"),
        ({}, "describes a model that cannot be built: .*kind"),
        ({"widths": [8, 8, 5, 8]}, r"does not fit the model that it describes.*\[8, 8, 3, 3\] in the file and \[5, 8"),
    ],
    ids=["unknown", "none", "other"],
)
def test_a_state_that_is_not_of_its_model_is_told_in_one_line(begun, tmp_path, capsys, described, message):
    cut = Run(Path(shutil.copytree(begun, tmp_path / "cut")))
    state = torch.load(cut.state, weights_only=True)
    state["model"] = {**state["model"], **described} if described else {}
    torch.save(state, cut.state)
    assert main(["evaluate", str(cut.folder)]) == 2
    error = capsys.readouterr().err.strip()
    assert re.search(message, error) and "\n" not in error


@pytest.mark.slow  # of an interrupted run above
def test_of_an_extended_run_the_state_is_embedded_and_not_the_earlier_weights(photos, tmp_path):
    from small_runs import Killed, die_after_writes

    from rankgrad_workbench.settings import compose
    from rankgrad_workbench.tasks.retrieval import task as retrieval

    run = train(*small(photos, "checkpoint_minutes=0"), f"out={tmp_path / 'run'}")
    assert not run.interrupted
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 1)
        with pytest.raises(Killed):
            changes = ["trainer.max_epochs=4"]
            retrieval.train(compose([f"resume={run.folder}"]), changes=changes, quiet=True)
    assert run.interrupted
    assert main(["embed", str(run.folder), str(photos), "-o", str(tmp_path / "all.npz")]) == 0
    with np.load(tmp_path / "all.npz") as file:
        assert json.loads(str(file["origin"]))["model"].endswith("step-7.pt")
