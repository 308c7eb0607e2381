"""The study of boosted trees: its divisions, the curvatures it compares, and its cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("lightgbm", reason="lightgbm is an extra")

from rankgrad.losses import LambdaLoss  # noqa: E402
from rankgrad_papers.studies.trees import JUDGES, Lists, Point, cell, parts, second_derivative  # noqa: E402


def lists(queries: int = 40) -> Lists:
    g = np.random.default_rng(0)
    sizes = g.integers(2, 9, queries)
    rows = g.normal(size=(sizes.sum(), 3))
    return Lists(rows, np.digitize(rows[:, 0] + 0.3 * g.normal(size=len(rows)), [0.3, 1.0]), sizes)


def test_every_query_is_judged_once_in_a_division_and_no_part_shares_a_query():
    whole = lists()
    found = [parts(whole, division=1, part=part) for part in range(5)]
    firsts = sorted(row for _, _, judge in found for row in judge.rows[:, 0])
    assert firsts == sorted(whole.rows[:, 0])
    for divided in found:
        together = np.concatenate([part.rows[:, 0] for part in divided])
        assert sorted(together) == sorted(whole.rows[:, 0])
        assert all(part.sizes.sum() == len(part.rows) == len(part.grades) for part in divided)


def test_along_the_rows_of_a_grade_the_second_derivative_of_pairs_is_the_diagonal():
    few = lists(4)
    loss, grades = LambdaLoss(), torch.from_numpy(few.grades).double()
    scores = torch.from_numpy(few.rows[:, 1].copy())

    def gradient_at(at):
        leaf = at.clone().requires_grad_()
        return torch.autograd.grad(loss.from_lists(leaf, grades, few.query), leaf)[0]

    here = Point(scores, grades, few.query, gradient_at(scores), gradient_at)
    wanted = torch.stack([here.along(row) for row in torch.eye(len(scores))]).diagonal().abs()
    torch.testing.assert_close(second_derivative(here), wanted, rtol=1e-5, atol=1e-9)
    assert wanted.max() > 1e-3


def test_a_cell_has_each_metric_with_its_number_of_trees():
    found = cell(*parts(lists(), 0, 0), "lambdarank")
    assert set(found) == {*JUDGES, *(f"trees of {name}" for name in JUDGES), "seconds"}
    assert all(0 < found[name] <= 100 for name in JUDGES)
