"""The matrix: its trials, what is chosen on the folds, how it continues from its files, and its drawing."""

from __future__ import annotations

import csv
import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from marks import slow_unless

from rankgrad_papers import trainings
from rankgrad_papers.studies import loss_setting, matrix
from rankgrad_papers.studies.matrix import COLUMNS, LOSSES, MADE, OTHER, SETS, points
from rankgrad_papers.values import append, cells
from rankgrad_workbench.settings import ConfigError, compose


@pytest.mark.parametrize("loss", slow_unless({"supap"}, LOSSES))
@pytest.mark.parametrize("data", slow_unless({"banking77"}, SETS))
def test_every_trial_of_every_loss_has_settings_that_there_are(data, loss):
    words = matrix.shared_settings(data, Path("DIR"), Path("model.pt") if data == "photographs" else None)
    first, second = matrix.points(data, loss, words, 2)
    assert first[0] == second[0] == loss_setting(loss) and first != second
    plain, drawn = compose([*words, *first]), compose([*words, *second])
    assert plain.optimizer.lr == compose([*words, loss_setting(loss)]).optimizer.lr != drawn.optimizer.lr


def test_a_longer_search_begins_with_the_trials_of_a_shorter_one():
    words = matrix.shared_settings("omniglot", Path("DIR"), None)
    assert matrix.points("omniglot", "supap", words, 3)[:2] == matrix.points("omniglot", "supap", words, 2)


def test_each_metric_has_one_loss_that_is_made_for_it_and_three_are_made_for_none():
    assert sorted(row.column for row in LOSSES.values()) == sorted([*COLUMNS, "", "", ""])


def searched(path: Path, data: str, value) -> Path:
    """A file of a search with two trials and two folds; value(loss, trial, fold, column)."""
    for loss, trial, fold in product(LOSSES, range(2), (1, 2)):
        numbers = {column: value(loss, trial, fold, column) for column in COLUMNS}
        append(path, matrix.setting_of(data, loss, trial), numbers, unit=f"{fold}/2")
    return path


def of_trial(loss: str, trial: int, fold: int, column: str) -> float:
    """In AP the second trial is better in the mean of the folds, though not on the first; elsewhere the first is."""
    level = 50 + 5 * list(LOSSES).index(loss)
    return level + (trial * (-4 if fold == 1 else 6) if column == "AP" else -trial)


def test_a_loss_keeps_for_each_metric_the_trial_with_the_best_mean_over_the_folds(tmp_path):
    choices = matrix.choose("icons", searched(tmp_path / "trials.csv", "icons", of_trial), 2, 2)
    assert len(choices) == len(LOSSES) * len(COLUMNS)
    assert {line["trial"] for line in choices if line["column"] == "AP"} == {"1"}
    assert {line["trial"] for line in choices if line["column"] != "AP"} == {"0"}
    [supap] = [line for line in choices if (line["loss"], line["column"]) == ("supap", "AP")]
    assert float(supap["mean"]) == 51


def test_the_loss_made_for_a_metric_and_the_best_of_the_others_on_the_folds_are_named(tmp_path):
    choices = matrix.choose("icons", searched(tmp_path / "trials.csv", "icons", of_trial), 2, 2)
    for column in COLUMNS:
        named = {line["named"]: line["loss"] for line in choices if line["column"] == column and line["named"]}
        assert LOSSES[named[MADE]].column == column
        assert named[OTHER] == list(LOSSES)[-1]  # the last row has the highest level


def test_a_trial_that_failed_on_a_fold_is_not_kept_and_a_loss_without_a_trial_is_named(tmp_path):
    def failing(loss, trial, fold, column):
        return math.nan if trial == 1 and fold == 1 else of_trial(loss, trial, fold, column)

    choices = matrix.choose("icons", searched(tmp_path / "trials.csv", "icons", failing), 2, 2)
    assert {line["trial"] for line in choices} == {"0"}
    with pytest.raises(ValueError, match="all trials of supap failed on icons"):
        path = searched(tmp_path / "lost.csv", "icons", lambda loss, *_: math.nan if loss == "supap" else 1.0)
        matrix.choose("icons", path, 2, 2)


def test_nothing_is_chosen_before_every_trial_has_its_folds(tmp_path):
    path = tmp_path / "trials.csv"
    append(path, matrix.setting_of("icons", "supap", 0), dict.fromkeys(COLUMNS, 1.0), unit="1/2")
    with pytest.raises(ValueError, match="1 of 2 folds of icons, supap, trial 0"):
        matrix.choose("icons", path, 1, 2)


@pytest.fixture
def trained(monkeypatch):
    """Names of the runs that were trained, in their place; the second trial of recall_at_k fails."""
    names: list[str] = []

    def in_turn(following, ended, out, jobs, command):
        while (task := following()) is not None:
            folder, settings = task
            names.append(folder.name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "settings").write_text("\n".join(settings), encoding="utf-8")
            ended(folder, "the loss is not finite" if "recall_at_k-1" in folder.name else None)

    def values_of(run):
        settings = run.folder.joinpath("settings").read_text(encoding="utf-8").split("\n")
        on_fold = any(word.startswith("fold=") for word in settings)
        assert on_fold == ("evaluation.split=val" in settings)  # a search never measures the test classes
        return dict.fromkeys(COLUMNS, 40.0 if on_fold else 50.0)

    monkeypatch.setattr(trainings, "train_in_turn", in_turn)
    monkeypatch.setattr(matrix, "columns_of", values_of)
    monkeypatch.setattr(matrix, "points", lambda data, loss, words, trials: points_of(data, loss, (*words,), trials))
    return names


@cache
def points_of(data: str, loss: str, words: tuple[str, ...], trials: int) -> list[list[str]]:
    """Trials that are drawn once for all tests: to compose their settings takes seconds."""
    return points(data, loss, words, trials)


def words_of(folder: Path) -> list[str]:
    where = ["--data-root", "DIR", "--values", str(folder / "matrix.csv"), "--runs", str(folder / "runs")]
    return ["icons", *where, "--trials", "2", "--folds", "2", "--seeds", "2", "--count-failed"]


def test_the_command_searches_then_chooses_then_tests_and_a_second_time_does_nothing(tmp_path, trained):
    matrix.main(words_of(tmp_path))
    folds = [name for name in trained if "fold" in name]
    assert len(folds) == 2 * 2 * len(LOSSES) and trained[: len(folds)] == folds
    assert trained[len(folds) :] and all("-0-seed" in name for name in trained[len(folds) :])
    with (tmp_path / "matrix-chosen.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == len(LOSSES) * len(COLUMNS) and all("optimizer.lr=" in row["settings"] for row in rows)
    trained.clear()
    matrix.main(words_of(tmp_path))
    assert not trained


def test_an_interrupted_command_trains_only_what_its_files_lack(tmp_path, trained):
    matrix.main(words_of(tmp_path))
    count = len(trained)
    search, chosen = tmp_path / "matrix-trials.csv", (tmp_path / "matrix-chosen.csv").read_text(encoding="utf-8")
    lines = search.read_text(encoding="utf-8").splitlines(keepends=True)
    search.write_text("".join(lines[: -2 * len(COLUMNS)]), encoding="utf-8")  # without the last two cells
    trained.clear()
    matrix.main(words_of(tmp_path))
    assert len(trained) == 2 < count
    assert (tmp_path / "matrix-chosen.csv").read_text(encoding="utf-8") == chosen  # named once, and kept
    assert len(cells(search)) == 2 * 2 * len(LOSSES)


def test_runs_that_fail_stop_the_command_before_anything_is_chosen_and_are_tried_again(tmp_path, trained):
    for _ in range(2):
        with pytest.raises(ConfigError, match="recall_at_k-1-fold1: the loss is not finite"):
            matrix.main(words_of(tmp_path)[:-1])
    assert [name for name in trained if trained.count(name) == 2] == 2 * [
        "recall_at_k-1-fold1",
        "recall_at_k-1-fold2",
    ]
    assert not (tmp_path / "matrix-chosen.csv").exists() and len(cells(tmp_path / "matrix-trials.csv")) == 26


def test_the_drawing_is_made_of_the_files_alone(tmp_path, trained):
    matrix.main(words_of(tmp_path))
    matrix.main(["--values", str(tmp_path / "matrix.csv"), "--tables", "none.csv", "--draw", str(tmp_path / "m.svg")])
    assert (tmp_path / "m.svg").stat().st_size > 5_000


def test_a_block_compares_the_named_losses_and_has_a_value_for_every_cell(tmp_path):
    for loss, seed in product(LOSSES, range(3)):
        level = 10.0 * list(LOSSES).index(loss) + seed
        append(tmp_path / "m.csv", matrix.setting_of("icons", loss, 0), dict.fromkeys(COLUMNS, level), seed=str(seed))
    choices = matrix.choose("icons", searched(tmp_path / "trials.csv", "icons", lambda loss, trial, *_: -trial), 2, 2)
    block = matrix.block_of("icons", tmp_path / "m.csv", choices)
    assert block.made == {row.column: loss for loss, row in LOSSES.items() if row.column}
    assert block.values["pml/triplet"] == dict.fromkeys(COLUMNS, 51.0)
    # on the folds all are level, so the first of the others is named: for AP the second row, else the first
    assert block.against == {column: "lambda" if column == "AP" else "supap" for column in COLUMNS}
    assert block.effects["R@1"].mean == 20 and block.effects["AP"].mean == -10


def test_the_tables_are_a_block_of_their_own_against_cross_entropy():
    path = Path(__file__).parents[1] / "results" / "scores" / "tables.csv"
    block = matrix.block_of_tables(path)
    assert set(block.made.values()) <= set(block.values) and set(block.against.values()) == {"cross-entropy"}
    assert all(found is not None and found.n >= 6 for found in block.effects.values())


def test_the_command_says_what_it_needs(capsys):
    for words, needed in (([], "--data-root DIR"), (["cats"], "'cats'"), (["icons"], "--data-root DIR")):
        with pytest.raises(SystemExit):
            matrix.main(words)
        assert needed in capsys.readouterr().err
    with pytest.raises(SystemExit):
        matrix.main(["photographs", "--data-root", "DIR"])
    assert "--weights" in capsys.readouterr().err
