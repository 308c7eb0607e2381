"""The command line: what it prints, the status it ends with, and what it says when something is wrong."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import forked, wait
from marks import slow
from small_runs import die_after_writes, make_photos, small, train

from rankgrad import __version__, evaluation
from rankgrad.evaluation import METRICS, Protocol, Report
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.images import SkippedWarning
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.tasks.retrieval.task import RetrievalTask, summary

pytestmark = pytest.mark.usefixtures("no_page")

COMMANDS = ("train", "compare", "evaluate", "embed", "index", "search", "export", "datasets")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("finished") / "run"
    return train(*small(photos, "seed=3", "evaluation.bootstrap=50", "evaluation.clusters=auto"), f"out={out}")


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command which the user can mend ends with."""
    assert main(words) == 2
    shown = capsys.readouterr().err.strip().splitlines()[-1]
    assert shown.startswith("rankgrad: ")
    return shown.removeprefix("rankgrad: ")


# ------------------------------------------------------------------------------------------------------ help, usage


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("words", [("--help",), *[(command, "--help") for command in COMMANDS]])
def test_help_ends_with_status_0(capsys, words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0 and capsys.readouterr().out.startswith("usage: rankgrad")


def test_help_the_version_and_a_misspelt_word_need_no_torch_which_takes_seconds_to_import():
    program = """
import sys
from rankgrad_workbench.cli import COMMANDS, main
for words in [[], ["--help"], ["--version"], ["trian"], ["train", "--fast"], ["embed"], *(
    [name, "--help"] for name in COMMANDS
)]:
    try:
        main(words)
    except SystemExit:
        pass
    assert "torch" not in sys.modules, words
    print("asked:", *words)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("asked:") > 15, done.stderr


def test_the_help_of_train_lists_every_group_and_option(capsys):
    from rankgrad_workbench.settings import GROUPS, options

    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    for group in GROUPS:
        assert f"{group}=" in shown and all(option in shown for option in options(group))


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"rankgrad {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "invalid choice: 'trian'"),
        (["train", "--fast"], "unknown argument '--fast'; settings are KEY=VALUE, without dashes; see rankgrad train"),
        (["index", "a.npz", "loss=pnp"], "unknown argument 'loss=pnp'; see rankgrad index --help"),
        (["evaluate"], "RUN_OR_FILE"),
        (["embed"], "DIR_OR_FILE"),
        (["search"], "QUERY"),
        (["evaluate", "a.npz", "--clusters", "some"], "invalid choice: 'some'"),
        (["evaluate", "a.npz", "-k", "1,x"], "argument -k/--ks: invalid integers value: '1,x'"),
        (["compare", "--job", "2"], "unknown argument '--job'"),
    ],
)
def test_wrong_usage_ends_with_status_2(capsys, words, message):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_the_package_s_module_is_the_same_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rankgrad", "train", "loss=pmp"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("rankgrad", run_name="__main__")
    shown = capsys.readouterr()
    assert ended.value.code == 2 and shown.out == ""
    assert shown.err.startswith("rankgrad: unknown loss 'pmp'; did you mean 'pnp'?") and "Traceback" not in shown.err


def test_a_reader_that_stops_reading_is_no_error():
    command = f"{sys.executable} -m rankgrad datasets | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOTDIR])
def test_a_place_that_cannot_be_written_is_named_with_what_changes_it(capsys, monkeypatch, number):
    def run(arguments, settings):
        raise OSError(number, os.strerror(number), "/a/b")

    monkeypatch.setattr("rankgrad_workbench.cli.train.run", run)
    shown = fails(capsys, "train", "seed=1")
    assert shown.startswith(f"/a/b: {os.strerror(number)}. ") and "-o, or the setting out=" in shown


def test_a_warning_of_ours_is_told_without_a_line_of_code_and_others_as_they_are(capsys, monkeypatch):
    def run(arguments, settings):
        warnings.warn("skipped 1 file:\n  a\x1b[2J.svg: a drawing", SkippedWarning, stacklevel=2)
        warnings.warn("of something else", FutureWarning, stacklevel=2)

    monkeypatch.setattr("rankgrad_workbench.cli.check.run", run)
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        before = warnings.showwarning
        assert main(["check", "run"]) == 0 and warnings.showwarning is before
    assert capsys.readouterr().err == "rankgrad: skipped 1 file:\n  a\\x1b[2J.svg: a drawing\n"
    assert [str(each.message) for each in others] == ["of something else"]


def test_an_image_within_our_limit_gives_no_warning_of_pillow(tmp_path, monkeypatch):
    photos = make_photos(tmp_path / "photos", classes=4, per_class=2)
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 1000)  # Pillow warns of more, and refuses twice as many
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        assert main(["datasets", "folder", "--root", str(photos)]) == 0
    assert [str(each.message) for each in others] == []


CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000  # of Linux: mounts, and users, of its own
NO_MOUNTS = 77  # exit status


def mount_own(disk: Path) -> bool:
    """Mount a disk of 4 MB that no other process sees, where the system lets users do so; whether it did."""
    user, group = os.getuid(), os.getgid()
    unshare = getattr(ctypes.CDLL(None), "unshare", None)  # Linux has it
    if unshare is None or unshare(CLONE_NEWUSER | CLONE_NEWNS):
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=False).returncode == 0


def test_a_disk_that_is_full_in_mid_run_is_named_and_with_room_again_the_run_goes_on(photos, tmp_path):
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    out = disk / "run"

    def fill() -> None:
        with (disk / "filling").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def work() -> int:
        if not mount_own(disk):
            return NO_MOUNTS
        with pytest.MonkeyPatch.context() as patch:
            die_after_writes(patch, 2, lambda: pytest.raises(OSError, fill))
            assert main(["train", *small(photos, "checkpoint_minutes=0"), f"out={out}"]) == 2
        print("half written:", [*out.glob(".*.tmp*")])
        (disk / "filling").unlink()
        return main(["train", f"resume={out}"])

    status = wait(forked(work, log))
    if status == NO_MOUNTS:
        pytest.skip("needs a system that lets users mount")
    shown = log.read_text()
    assert status == 0 and "Traceback" not in shown, shown
    told = [line for line in shown.splitlines() if line.startswith("rankgrad: ")]
    (said,) = told
    assert said.startswith(f"rankgrad: {out}/") and "No space left on device. Free some space" in said
    assert said.endswith(f"Free some space on the disk, and continue with: rankgrad train resume={out}")
    assert "half written: []" in shown and "before  after" in shown


def test_a_disk_that_is_full_before_a_run_has_saved_anything_has_nothing_to_resume(
    capsys, photos, tmp_path, monkeypatch
):
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "before.json")

    monkeypatch.setattr(RetrievalTask, "begin", full)
    shown = fails(capsys, "train", *small(photos), f"out={tmp_path / 'run'}")
    assert shown.endswith("and run the same command again") and not (tmp_path / "run").exists()


def test_an_error_that_quotes_a_file_does_nothing_to_the_terminal(capsys, tmp_path):
    path = tmp_path / "a\x1b[2J.npz"
    path.write_text("no npz")
    assert r"a\x1b[2J.npz is not an npz file" in fails(capsys, "evaluate", str(path))


def test_the_help_says_what_the_exit_status_means(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "exit status: 0: success; 2: an error that you can correct" in " ".join(capsys.readouterr().out.split())


def test_debug_shows_the_error_itself():
    with pytest.raises(ValueError, match="unknown loss"):
        main(["--debug", "train", "loss=nothing"])


# ----------------------------------------------------------------------------------------------------------- train


def test_settings_can_be_shown_before_training(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "loss=pnp", "optimizer.lr=0.5", "--cfg"]) == 0
    shown = capsys.readouterr().out
    assert "_target_: rankgrad.losses.PNPLoss" in shown and "lr: 0.5" in shown
    assert [*tmp_path.iterdir()] == []


def test_train_takes_the_folder_of_the_run_as_other_commands_do(capsys):
    assert main(["train", "-o", "my runs/new", "--cfg"]) == 0
    assert "\nout: my runs/new " in capsys.readouterr().out


def test_train_ends_with_a_table_of_before_and_after(capsys, photos, tmp_path):
    assert main(["train", *small(photos), f"out={tmp_path / 'run'}"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith(summary(Run(tmp_path / "run")) + "\n")
    assert "before" in shown and "after" in shown and str(tmp_path / "run" / "report.html") in shown


def test_resuming_a_finished_run_shows_its_table(capsys, finished):
    assert main(["train", f"resume={finished.folder}"]) == 0
    shown = capsys.readouterr().out
    assert shown == summary(finished) + "\n" and "NMI" in shown and " - " in shown


def test_a_resumed_run_takes_no_other_settings(capsys, finished):
    said = fails(capsys, "train", f"resume={finished.folder}", "loss=pnp", "seed=1")
    assert said.startswith("a resumed run keeps its folder and its own settings; leave out loss=pnp seed=1. You may ")


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "stopped"), *slow(("SIGHUP", 129, "stopped"))],
)
@pytest.mark.usefixtures("hangup")
def test_a_run_that_is_asked_to_end_has_the_signal_s_status_and_says_how_to_continue(
    capsys, photos, tmp_path, name, code, word
):
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 2, partial(signal.raise_signal, getattr(signal, name)))
        assert main(["train", *small(photos, "checkpoint_minutes=0"), f"out={out}"]) == code
    shown = capsys.readouterr().err
    assert shown.endswith(f"\n{word}; continue with: rankgrad train resume={out}\n") and "Traceback" not in shown
    command = shown.split("continue with: rankgrad ")[1].split("\n")[0].split()
    assert main(command) == 0
    assert capsys.readouterr().out.endswith(summary(Run(out)) + "\n")


def test_an_interrupted_run_in_a_folder_with_a_space_gives_a_command_for_the_shell(capsys, photos, tmp_path):
    out = tmp_path / "my run"
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 1, partial(signal.raise_signal, signal.SIGINT))
        assert main(["train", *small(photos, "checkpoint_minutes=0"), f"out={out}"]) == 130
    command = capsys.readouterr().err.split("continue with: rankgrad ")[1].split("\n")[0]
    assert shlex.split(command) == ["train", f"resume={out}"]


def test_an_error_of_the_file_system_is_one_line(capsys, photos, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "run"):
        shown = fails(capsys, "train", *small(photos), f"out={out}")
        assert shown.startswith(f"{out}: ") and shown.endswith("choose another place (-o, or the setting out=)")
        assert f"{out}: " in fails(capsys, "compare", "loss=pnp", *small(photos), "-o", str(out))


@pytest.mark.parametrize("words", [["data=folder", "data.root=nosuch"], ["init=nosuch"], ["resume=nosuch"]])
def test_a_wrong_path_is_told_before_what_trains_is_imported_which_takes_seconds(capsys, monkeypatch, words):
    monkeypatch.setattr("rankgrad_workbench.cli.training.import_module", lambda name: pytest.fail(f"{name} came first"))
    assert "nosuch" in fails(capsys, "train", *words)


# -------------------------------------------------------------------------------------------------------- evaluate


def npz(path: Path, **columns: Any) -> str:
    given: dict[str, Any] = {"embeddings": np.eye(6)[[0, 0, 1, 1, 2, 2]] + 0.1, "labels": np.array([0, 0, 1, 1, 2, 2])}
    given |= columns
    np.savez(path, **{name: value for name, value in given.items() if value is not None})
    return str(path)


QUICK = ("--bootstrap", "0", "--clusters", "none")


def test_evaluating_a_run_gives_the_numbers_it_ended_with(capsys, finished, tmp_path):
    out = tmp_path / "again.json"
    assert main(["evaluate", str(finished.folder), "--bootstrap", "50", "-o", str(out)]) == 0
    assert f"wrote {out}" in capsys.readouterr().out
    again, after = Report.from_json(out), Report.from_json(finished.after)
    # the run keeps rows of length 1, which are rounded
    assert again.values == pytest.approx(after.values, rel=1e-6) and "NMI" in again.values
    assert again.intervals == {name: pytest.approx(ends, rel=1e-6) for name, ends in after.intervals.items()}


def test_evaluating_an_npz_prints_every_metric(capsys, tmp_path):
    names = np.array(["a", "b", "c"])
    out = tmp_path / "report.json"
    path = npz(tmp_path / "e.npz", class_names=names, super_labels=np.array([0, 0, 0, 0, 1, 1]))
    assert main(["evaluate", path, *QUICK, "-k", "1,3", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "6 queries, leave-one-out, 3 classes, cosine" in shown and "R@3" in shown and "R@2" not in shown
    report = Report.from_json(out)
    assert report.values["R@1"] == 1.0 and [row["name"] for row in report.per_class] == ["a", "b", "c"]
    assert len(report.per_super_label) == 2


def test_queries_are_compared_with_a_gallery_and_not_with_themselves_in_it(capsys, tmp_path):
    embeddings, labels = np.eye(4)[[0, 1, 0, 1]] + 0.01, np.array([0, 1, 0, 1])
    gallery = {"ref_embeddings": embeddings, "ref_labels": labels}
    ids = {"ids": np.arange(4), "ref_ids": np.arange(4)}
    path = npz(tmp_path / "e.npz", embeddings=embeddings, labels=labels, **gallery, **ids)
    assert main(["evaluate", path, *QUICK, "-o", str(tmp_path / "a.json")]) == 0
    report = Report.from_json(tmp_path / "a.json")
    assert report.settings["protocol"] == "query-gallery" and report.counts["gallery"] == 4
    alone = np.array([0, 1, 2, 3])  # nothing else of its class in the gallery but itself
    path = npz(tmp_path / "f.npz", embeddings=embeddings, labels=alone, **{**gallery, "ref_labels": alone}, **ids)
    assert "none of the 4 queries has a relevant item" in fails(capsys, "evaluate", path, *QUICK)


@pytest.mark.parametrize(
    ("columns", "words", "message"),
    [
        ({"labels": None}, [], "must hold 'embeddings' and 'labels'; it has embeddings"),
        ({"embeddings": None}, [], "must hold 'embeddings' and 'labels'; it has labels"),
        ({"labels": np.zeros(5, int)}, [], "labels must have one row per embedding, 6; got 5"),
        ({"labels": np.zeros(6, int)}, [], "only one class"),
        ({"labels": np.arange(6)}, [], "none of the 6 queries has a relevant item"),
        ({"labels": np.zeros(6)}, [], "labels must be integers, strings or multi-hot bool; got float64"),
        ({"weights": np.zeros(6)}, [], "weights must be > 0 for at least one query"),
        ({"groups": np.zeros(5, int)}, [], "groups must be integers or strings [6]"),
        ({}, ["-e", "AP@10,map@3"], "unknown metric 'map@3'; did you mean 'AP@3'?"),
        ({"embeddings": np.full((6, 2), np.nan)}, [], "embeddings must be finite; row 0 (first of 6) holds nan"),
        ({"embeddings": np.zeros(6)}, [], "non-empty matrix [row, dim]; got shape (6,)"),
        ({"embeddings": np.array([None] * 6)}, [], "bject"),
        ({"ref_labels": np.zeros(2, int)}, [], "only one of ref_embeddings and ref_labels"),
        ({"class_names": np.array(["a"])}, [], "no name for class 1: got 1 names"),
        ({"ids": np.zeros(6, int)}, [], "ids must be distinct"),
        ({}, ["-k", "0"], "ks are list lengths and must be an integer >= 1; got 0"),
        ({}, ["--bootstrap", "-1"], "bootstrap"),
        ({}, ["-o", "no such folder/a.json"], "no folder no such folder to write a.json into"),
    ],
)
def test_an_npz_that_does_not_fit_says_why(capsys, tmp_path, columns, words, message):
    quick = QUICK if "--bootstrap" not in words else QUICK[2:]
    assert message in fails(capsys, "evaluate", npz(tmp_path / "e.npz", **columns), *quick, *words)


def test_an_npz_may_hold_strings_cameras_and_weights(capsys, tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 4))
    labels, cameras = np.array(list("aabbcc") * 2), np.array(["left", "right"] * 6)
    weights = np.arange(12.0)
    path = npz(
        tmp_path / "e.npz",
        embeddings=rows,
        labels=labels,
        groups=cameras,
        weights=weights,
        super_labels=np.array(["x"] * 12),
        class_names=np.array(["unused"]),
    )
    out = tmp_path / "a.json"
    assert main(["evaluate", path, *QUICK, "-o", str(out), "-e", "AP@3, MRR@3", "--similarity", "euclidean"]) == 0
    report = Report.from_json(out)
    same = evaluation.evaluate(
        rows,
        labels,
        similarity="euclidean",
        protocol=Protocol(groups=cameras, weights=weights),
        metrics=[*METRICS, "AP@3", "MRR@3"],
        intervals=0,
    )
    assert report.values == same.values and report.settings == same.settings
    assert [row["name"] for row in report.per_class] == ["a", "b", "c"]
    assert "MRR@3        1 / rank of the first right item, 0 if that is not among" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.array([-1, -1, 0, 0, 1, 1]), "Labels are -1 in 2 rows, which count as one class."),
        (np.array([-999, 3, 0, 0, 3, -999]), "Labels are -999 in 2 rows"),
        (np.array([0, 0, 1, 1, 65535, 65535]), "Labels are 65535 in 2 rows"),
        (np.array(["a", "a", "", "", "b", "b"]), "Labels are '' in 2 rows"),
        (np.array(["a", "a", "NaN", "b", "b", "NaN"]), "Labels are 'NaN' in 2 rows"),
        (np.array([0, 0, 254, 254, 255, 255]), ""),
        (np.array([0, 0, 1, 1, 2, 2]), ""),
    ],
)
def test_labels_that_often_mean_none_are_noted(capsys, tmp_path, labels, told):
    assert main(["evaluate", npz(tmp_path / "e.npz", labels=labels), *QUICK]) == 0
    shown = capsys.readouterr().out
    assert told in shown and ("Labels are" in shown) == bool(told)


def test_a_path_that_does_not_exist_is_told_before_torch_is_imported(tmp_path):
    code = "import sys\nfrom rankgrad_workbench.cli import main\nstatus = main(sys.argv[1:])\n"
    code += "sys.exit(status if 'torch' not in sys.modules else 'torch is imported')"
    out = ["-o", "out"]
    asked = [["evaluate", "missing.npz"], ["evaluate", __file__, "--root", "missing"], ["index", "missing"]]
    asked += [["export", "missing"], ["report", "missing"], ["predict", "missing", __file__, *out]]
    asked += [["predict", __file__, "missing", *out], ["score", "name", "missing", *out]]
    asked += [["search", "query", "--index", "missing"]]
    for words in asked:
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.startswith("rankgrad: missing"), done.stderr


def test_a_search_is_described_without_what_trains(tmp_path):
    rows = [{"query": f"words {row}", "document": f"text {row}", "grade": 1} for row in range(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code = "import sys\nfrom rankgrad_workbench.cli import main\nstatus = main(sys.argv[1:])\n"
    code += "sys.exit(status or str({'lightning', 'torchvision', 'timm'} & {*sys.modules} or ''))"
    words = ["datasets", "search", "--root", "rows.jsonl"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path)
    assert not done.stderr.strip() and "5 documents" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["train", "data=folder", "data.root={}"],
        ["train", "data.root={}"],
        ["train", "data={}"],
        ["train", "{}"],
        ["train", "task=search", "data.root={}"],
        ["train", "task=scores", "data.root={}"],
        ["train", "task=search", "data.root=rows.jsonl", "data.load.corpus={}"],
        ["compare", "loss=pnp,supap", "data=folder", "data.root={}"],
        ["datasets", "folder", "--root", "{}"],
        ["datasets", "search", "--root", "{}"],
        ["evaluate", "{}"],
        ["embed", "run", "{}"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["photos.zip", "photos.tar.gz"])
def test_an_archive_is_not_data_and_the_message_says_to_unpack_it(words, name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"PK")
    (tmp_path / "rows.jsonl").write_text("{}")
    assert f"{name} is an archive: unpack it" in fails(capsys, *(word.format(name) for word in words))


def test_what_is_no_npz_is_named(capsys, tmp_path):
    assert "does not exist; give the folder of a finished run, or an npz" in fails(capsys, "evaluate", "missing.npz")
    assert "runs/gone does not exist" in fails(capsys, "evaluate", "runs/gone", "--root", "new.csv")
    there = npz(tmp_path / "there.npz")
    for words in ([there, "loss=pnp"], ["evaluation.ks=[1]", "a.npz"], [there, "loss=pnp", "--qrels", "q"]):
        assert "does not exist; give the folder of a finished run" in fails(capsys, "evaluate", *words)
    assert "rankgrad evaluate RUN --root " in fails(capsys, "evaluate", str(tmp_path))
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    assert "a.npy is not an npz file: write one with numpy.savez" in fails(capsys, "evaluate", str(tmp_path / "a.npy"))


@pytest.mark.parametrize("name", ["a.run", "a.trec", "s.csv", "a.run.gz"])
def test_a_run_file_without_judgements_or_a_file_of_scores_is_told_what_to_do(capsys, tmp_path, name):
    (tmp_path / name).write_text("1 Q0 d 1 0.5 run\n")
    error = fails(capsys, "evaluate", str(tmp_path / name))
    assert name in error and "--qrels FILE" in error and "Evaluate scores" in error and "savez" not in error


def test_a_folder_for_the_report_is_looked_for_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "evaluate", lambda *_, **__: pytest.fail("evaluated for nothing"))
    fails(capsys, "evaluate", npz(tmp_path / "e.npz"), "-o", str(tmp_path / "missing" / "a.json"))


# -------------------------------------------------------------------------------------------- embed, datasets


def test_embed_writes_an_npz_that_evaluate_reads_and_lists_skipped_files(capsys, finished, tmp_path):
    photos = make_photos(tmp_path / "new", classes=3)
    (photos / "class 0" / "broken.png").write_bytes(b"")
    out = tmp_path / "without extension"
    assert main(["embed", str(finished.folder), str(photos), "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"wrote {out}: 15 images\nskipped 1 file:" in shown and "broken.png: empty file" in shown
    assert main(["evaluate", str(out), *QUICK]) == 0
    assert "15 queries, leave-one-out, 3 classes" in capsys.readouterr().out


def test_an_image_that_a_worker_cannot_read_is_named_in_one_line(capsys, tmp_path):
    photos = make_photos(tmp_path / "photos", classes=4)
    for path in photos.rglob("*.png"):
        path.write_bytes(b"")
    settings = small(photos, "data.workers=1", "+data.load.check=false", "evaluation.before=false")
    told = fails(capsys, "train", *settings, f"out={tmp_path / 'run'}")
    assert told.startswith(f"cannot read image {photos}") and "not an image of a known format" in told


def test_embed_says_what_it_needs(capsys, finished, photos, tmp_path):
    run, out = str(finished.folder), str(tmp_path / "a.npz")
    assert "give the folder of a finished run" in fails(capsys, "embed", str(tmp_path), str(photos), "-o", out)
    assert "none does not exist" in fails(capsys, "embed", run, str(tmp_path / "none"), "-o", out)
    assert "is a folder; give a file" in fails(capsys, "embed", run, str(photos), "-o", str(tmp_path))
    assert "--batch-size counts rows" in fails(capsys, "embed", run, str(photos), "-o", out, "--batch-size", "0")


def test_datasets_lists_describes_and_draws(capsys, photos, tmp_path):
    assert main(["datasets"]) == 0
    assert all(name in capsys.readouterr().out for name in ("glyphs",))
    (tmp_path / "a.csv").write_text("said,label\na,x\nb,y\nc,z\nd,w\n")
    assert main(["datasets", "text", "--root", str(tmp_path / "a.csv"), "data.load.text=said"]) == 0
    assert "divided by class" in capsys.readouterr().out
    assert "data.load.text=NAME" in fails(capsys, "datasets", "text", "--root", str(tmp_path / "a.csv"))
    sheet = tmp_path / "sheet.png"
    assert main(["datasets", "folder", "--root", str(photos), "--sheet", str(sheet)]) == 0
    assert "50 images, 10 classes" in capsys.readouterr().out and sheet.stat().st_size > 1000


def test_a_folder_of_images_in_the_place_of_a_run_is_answered_with_the_command_for_it(capsys, photos):
    assert f"rankgrad evaluate RUN --root {photos}" in fails(capsys, "evaluate", str(photos))


def test_datasets_says_what_it_needs(capsys, tmp_path):
    assert "unknown data set 'glyph'; did you mean 'glyphs'?" in fails(capsys, "datasets", "glyph")
    assert "data.root must be given" in fails(capsys, "datasets", "folder")
    assert "data.root" in fails(capsys, "datasets", "glyphs", "--root", str(tmp_path))
    assert "none does not exist" in fails(capsys, "datasets", "folder", "--root", str(tmp_path / "none"))
