"""No output replaces what a command reads, and a command whose output nobody reads says how it ended."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children_here import Here
from forks import forked, wait
from small_runs import make_photos, make_texts, small, small_texts, train
from small_tables import one_list, settings

from rankgrad_workbench.cli import main
from rankgrad_workbench.cli.outputs import check_output
from rankgrad_workbench.datasets.text import load_text
from rankgrad_workbench.runs import compare
from rankgrad_workbench.runs.folder import Run

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


def refused(capsys: pytest.CaptureFixture[str], kept: Path, *words: str | Path) -> str:
    """The one line of a command that would have replaced the file `kept`."""
    before = kept.read_bytes()
    capsys.readouterr()
    assert main([*map(str, words)]) == 2
    assert kept.read_bytes() == before
    return capsys.readouterr().err


def test_no_output_replaces_what_the_command_reads(run, photos, tmp_path, capsys):
    image = next(photos.rglob("*.png"))
    reads = "is a file that this command reads; give another file"
    assert reads in refused(capsys, run.embeddings, "report", run.embeddings, "-o", run.embeddings)
    assert reads in refused(capsys, image, "search", run.folder, image, "--html", image)
    weights = run.folder / "model.pt"
    told = [["export", run.folder], ["report", run.folder], ["embed", run.folder, photos], ["evaluate", run.folder]]
    for words in told:
        assert "is a file of the run in" in refused(capsys, weights, *words, "-o", weights)
    texts = make_texts(tmp_path / "texts.csv")
    assert reads in refused(capsys, texts, "embed", run.folder, texts, "-o", texts)
    rows = one_list(tmp_path / "rows.csv")
    assert main(["train", *settings(rows), f"out={tmp_path / 'scores'}"]) == 0
    assert reads in refused(capsys, rows, "predict", tmp_path / "scores", rows, "-o", rows)
    index = tmp_path / "photos.index"
    assert main(["embed", str(run.folder), str(photos), "-o", str(tmp_path / "photos.npz")]) == 0
    assert main(["index", str(tmp_path / "photos.npz")]) == 0
    assert reads in refused(capsys, index, "search", image, "--index", index, "--html", index)
    other = tmp_path / "scores.csv"
    for _ in range(2):  # an earlier output may be replaced
        assert main(["predict", str(tmp_path / "scores"), str(rows), "-o", str(other)]) == 0


@pytest.mark.parametrize("option", ["report -o", "embed -o"])
def test_an_output_that_is_a_pipe_is_refused_before_the_work(run, photos, tmp_path, capsys, option):
    os.mkfifo(pipe := tmp_path / "pipe")
    command, option = option.split()
    words = [run.folder, photos] if command == "embed" else [run.folder]
    assert main([command, *map(str, words), option, str(pipe)]) == 2
    assert f"{option} {pipe} is a pipe or a device; give a file" in capsys.readouterr().err
    assert pipe.is_fifo()
    for device in ("/dev/null", "/dev/stdout"):
        with pytest.raises(ValueError, match=f"{device} is a pipe or a device"):
            check_output(Path(device), "-o")


def test_numbers_that_do_not_fit_on_the_disk_leave_the_earlier_file(run, tmp_path, monkeypatch, capsys):
    (old := tmp_path / "numbers.json").write_text("old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(old))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["evaluate", str(run.folder), "-o", str(old)]) == 2
    assert "No space left" in capsys.readouterr().err and old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_page_at_a_place_that_nobody_named_replaces_nothing(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    page.write_text("<title>mine</title>")
    words = ["report", shutil.copy(run.embeddings, "a.npz"), shutil.copy(run.embeddings, "b.npz")]
    assert f"{page.name} exists; name the page with -o" in refused(capsys, page, *words)
    page.write_text("<title>mine</title>")
    assert main([*map(str, words), "-o", "report.html"]) == 0  # named by the user


@pytest.mark.parametrize("name", ["settings.json", "compare.md", "compare.html", "tune.json", "journal.log"])
@pytest.mark.parametrize("command", ["compare", "tune"])
def test_a_folder_of_runs_replaces_no_file_of_another_program(tmp_path, capsys, command, name):
    mine = tmp_path / name
    mine.write_text('{"editor.tabSize": "4"}')
    words = [command, "loss=supap", "recipe=small", "data=glyphs", "-o", tmp_path]
    assert f"{tmp_path} holds {name}, which rankgrad did not write" in refused(capsys, mine, *words)
    assert os.listdir(tmp_path) == [name]


@pytest.fixture
def unread() -> Iterator[int]:
    """An output whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def test_a_training_whose_reader_has_gone_is_no_success(photos, tmp_path, unread):
    def ended() -> int:
        os.dup2(unread, 1)
        sys.stdout = open(1, "w", closefd=False)
        return main(["train", *small(photos, "trainer.max_epochs=1"), f"out={tmp_path / 'run'}"])

    log = tmp_path / "log.txt"
    assert wait(forked(ended, log)) == 141 and "stopped before its end" in log.read_text()


@pytest.mark.slow  # test_cli.py stops reading another command
def test_a_command_whose_reader_has_gone_or_that_has_no_output_ends_well(run, unread):
    command = [sys.executable, "-m", "rankgrad", "evaluate", str(run.folder)]
    shown = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE)
    assert shown.returncode == 0 and not shown.stderr
    closed = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command], stdout=subprocess.PIPE)
    assert closed.returncode == 0


def test_a_resumed_run_stays_in_its_folder(run, tmp_path, capsys):
    assert main(["train", f"resume={run.folder}", f"out={tmp_path / 'new'}"]) == 2
    assert "keeps its folder and its own settings; leave out out=" in capsys.readouterr().err


def test_several_runs_are_compared_by_another_command(run, capsys):
    assert main(["evaluate", str(run.folder), str(run.folder)]) == 2
    assert f"rankgrad report {run.folder} {run.folder}" in capsys.readouterr().err


def test_a_query_of_texts_is_a_sentence(tmp_path, capsys):
    texts = make_texts(tmp_path / "texts.csv")
    searched = train(*small_texts(texts), f"out={tmp_path / 'run'}")
    for query, said in (("  ", "a query is a sentence; "), (str(texts), "a query is a sentence; ")):
        capsys.readouterr()
        assert main(["search", str(searched.folder), query]) == 2
        assert said in capsys.readouterr().err


def test_classes_that_differ_only_in_case_or_spaces_are_named(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text(
        "text,label\n" + "".join(f"words {i},{'Cat' if i % 2 else 'cat '}\nother {i},dog\n" for i in range(8))
    )
    notes = load_text(table, split=None).summary()
    assert "count as different: 'Cat' / 'cat '" in notes


def test_a_comparison_that_never_began_binds_nobody(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compare, "Children", Here())
    texts = make_texts(tmp_path / "texts.csv")
    words = ["compare", "loss=supap", "seeds=0", "-o", str(tmp_path / "compare")]
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("text,label\n")  # it exists, and no run can train on it
    assert main([*words, *small_texts(wrong)]) != 0 and (tmp_path / "compare" / "settings.json").exists()
    capsys.readouterr()
    assert main([*words, *small_texts(texts)]) == 0
    assert main([*words, *small_texts(texts, "optimizer.lr=0.2")]) == 2
    assert "holds runs with other settings" in capsys.readouterr().err


def test_an_output_is_what_its_ending_says_or_is_refused(run, photos, tmp_path, capsys):
    image = next(photos.rglob("*.png"))
    commands = {
        "evaluate": ([run.folder], "-o", ".json"),
        "report": ([run.folder], "-o", ".html or .htm"),
        "embed": ([run.folder, photos], "-o", ".npz or .parquet or .index"),
        "export": ([run.folder], "-o", ".pt2 or .onnx"),
        "search": ([run.folder, image], "--html", ".html or .htm"),
        "datasets": (["glyphs"], "--sheet", ".png"),
    }
    for command, (words, option, known) in commands.items():
        for ending in (".csv", ".pt", ".zip", ".md", ".JSONL"):
            out = tmp_path / f"x{ending}"
            assert main([command, *map(str, words), option, str(out)]) == 2
            said = f"{option} {out} ends in {ending.lower()}; give a name that ends in {known}"
            assert said.removeprefix("-o ") in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
