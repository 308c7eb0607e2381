"""The study of boosted trees: its divisions, the curvatures it compares, and its cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is an extra")

from rankgrad.losses import LambdaLoss  # noqa: E402
from rankgrad_papers.studies.trees import CURVATURES, JUDGES, Lists, candidate, cell, parts  # noqa: E402


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


@pytest.mark.parametrize("curvature", CURVATURES)
def test_every_curvature_is_positive_and_one_on_average_and_the_gradient_is_that_of_the_loss(curvature):
    few = lists(4)
    data = lightgbm.Dataset(few.rows, few.grades, group=few.sizes).construct()
    slope, bend = candidate("lambda, k=10", curvature)(few.rows[:, 1], data)
    assert (bend > 0).all() and bend.mean() == pytest.approx(1, abs=2e-3)
    scores = torch.from_numpy(few.rows[:, 1].copy()).requires_grad_()
    LambdaLoss(k=10).from_lists(scores, torch.from_numpy(few.grades).float(), few.query).backward()
    assert np.corrcoef(slope, scores.grad)[0, 1] == pytest.approx(1)


def test_a_cell_has_each_metric_with_its_number_of_trees():
    found = cell(*parts(lists(), 0, 0), "lambdarank")
    assert set(found) == {*JUDGES, *(f"trees of {name}" for name in JUDGES), "seconds"}
    assert all(0 < found[name] <= 100 for name in JUDGES)
