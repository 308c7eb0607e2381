"""The verdicts of the matrix, on two small sets whose numbers can be computed by hand."""

from __future__ import annotations

import pytest

from rankgrad_papers.studies.alphabets import POOLED
from rankgrad_papers.studies.matrix import COLUMNS, LOSSES, MADE, OTHER, setting_of
from rankgrad_papers.studies.matrix_verdicts import ALL, Matrix, told
from rankgrad_papers.values import add_lines, append

ORDER = list(LOSSES)
OTHERS = {"AP": "pml/triplet", "mAP@R": "supap", "R@1": "supap", POOLED: "supap"}


def level(data: str, loss: str, trial: int, seed: int) -> float:
    """Later rows are higher, trial 1 is 2 higher; on banking77 all rows are equal, and seeds go up by 1."""
    return 50.0 + (ORDER.index(loss) if data == "icons" else 0) + 2 * trial + seed


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "m.csv"
    for data in ("icons", "banking77"):
        lines = []
        for loss, row in LOSSES.items():
            for trial in (0, 1):
                for seed in (0, 1, 2):
                    numbers = dict.fromkeys(COLUMNS, level(data, loss, trial, seed))
                    append(path, setting_of(data, loss, trial), numbers, seed=str(seed))
            for column in COLUMNS:  # trial 1 is kept for mAP@R, trial 0 for the others
                named = MADE if row.column == column else OTHER if OTHERS[column] == loss else ""
                trial = str(int(column == "mAP@R"))
                mean = str(float(loss in ("recall_at_k", "pml/triplet")))
                line = {"set": data, "column": column, "loss": loss, "trial": trial, "mean": mean, "named": named}
                lines.append(line)
        add_lines(tmp_path / "m-chosen.csv", [{**line, "settings": ""} for line in lines])
    return Matrix(path)


def test_the_loss_made_for_a_metric_is_compared_with_the_named_one_on_each_set_and_over_the_sets(matrix):
    lines = {(line.metric, line.data): line for line in matrix.lines("E1")}
    made = lines["AP", "icons"]
    assert (made.what, made.difference) == ("supap − pml/triplet", -5) and made.interval == (-5, -5)
    assert lines["AP", "banking77"].difference == 0
    assert lines["mAP@R", "icons"].difference == 1  # lambda, the second row, against supap, the first
    both = lines["AP", ALL]
    assert both.difference == -2.5 and both.interval == pytest.approx(
        (-2.5 - 2.5 * 12.706, -2.5 + 2.5 * 12.706), abs=0.01
    )


def test_a_win_is_a_loss_that_is_best_on_the_test_in_its_own_metric(matrix):
    # on icons the last row, made for no metric, is the best; on banking77 all are level, and the first row counts
    assert matrix.wins() == {"icons": [], "banking77": ["AP"]}


def test_choosing_by_the_metric_is_compared_with_choosing_by_map_at_r(matrix):
    assert [(line.data, line.difference) for line in matrix.lines("E3")] == [
        ("icons", -2),
        ("banking77", -2),
        (ALL, -2),
    ]


def test_two_losses_are_compared_on_each_set(matrix):
    assert [line.difference for line in matrix.lines("F1")] == [-1, 0]  # the fourth row minus the fifth
    assert [line.difference for line in matrix.lines("H1")] == [3, 0]
    with pytest.raises(KeyError, match="E2"):
        matrix.lines("E2")


def test_the_best_losses_of_ranks_and_of_pairs_are_named_by_the_folds_and_compared_on_the_test(matrix):
    lines = matrix.lines("D1")  # the folds name the third and the sixth row, in other order than the test
    assert {line.what for line in lines} == {"recall_at_k − pml/triplet"}
    assert [(line.data, line.difference) for line in lines] == [("icons", -3), ("banking77", 0)]


def test_all_verdicts_are_told_and_the_best_of_all_metrics_comes_first(matrix):
    lines = list(told(matrix))
    assert [line for line in lines if line.startswith("E2")] == ["E2  1 of 8: icons: none; banking77: AP"]
    ranked = [line.split()[3] for line in lines if line.startswith("mean of all")]
    assert ranked == list(reversed(ORDER))
