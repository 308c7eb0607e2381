"""The benchmark suites at tiny size: they run, what they compare with is right, and their records are whole."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rankgrad import bench, losses
from rankgrad.bench import Check, Options, Table, Timing


@cache
def found_by(suite: str) -> bench.Result:
    """What a suite finds at tiny size."""
    return bench.SUITES[suite](Options(quick=True))


@pytest.fixture(autouse=True)
def memory_in_this_process(request, monkeypatch):
    """Starting Python anew for each memory cell takes seconds; the tests about that do it themselves."""
    if "fresh" not in request.fixturenames:
        monkeypatch.setattr(bench, "_peak_mib", lambda case, *sizes: bench.MEMORY_CASES[case](*sizes) / 2**20)


@pytest.fixture
def fresh() -> None:
    """Asks for processes of their own."""


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    rows = torch.randn(len(labels), 4, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=1).requires_grad_(), labels


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        (bench.cube_smooth_ap, losses.SmoothAPLoss(normalize=False)),
        (bench.cube_sup_ap, losses.SupAPLoss(normalize=False)),
    ],
)
def test_formula_as_printed_has_the_value_and_gradient_of_our_loss(printed, ours):
    embeddings, labels = batch()
    values, grads = [], []
    for loss in (printed, ours):
        value = loss(embeddings, labels)
        values.append(value.detach())
        grads.append(torch.autograd.grad(value, embeddings)[0])
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*grads)


def test_algorithm_1_as_printed_has_the_value_and_gradient_of_rambo_ap():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(60, generator=generator, dtype=torch.float64).requires_grad_()
    relevant = torch.rand(60, generator=generator) < 0.2
    printed = bench.printed_rambo_ap(scores, relevant, lambda_=0.5)
    ours = losses.RaMBOAPLoss(lambda_=0.5).from_scores(scores.unsqueeze(0), relevant.unsqueeze(0))
    torch.testing.assert_close(printed, ours)
    theirs = torch.autograd.grad(printed, scores)[0]
    assert theirs.count_nonzero() > 5
    torch.testing.assert_close(torch.autograd.grad(ours, scores)[0], theirs)


def test_actions_take_turns_round_by_round():
    called = []
    times = bench.alternate({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, rounds=3)
    assert [len(t.cpu) for t in times.values()] == [3, 3]
    turns = [name for name, before in zip(called, ["", *called], strict=False) if name != before]
    assert turns == ["a", "b"] * 4  # once to warm up, three rounds


def test_ratio_is_the_median_of_the_ratios_within_a_round():
    slow_moment = Timing(cpu=[2.0, 20.0, 2.2], wall=[2.0] * 3), Timing(cpu=[1.0, 10.0, 1.0], wall=[1.0] * 3)
    assert slow_moment[0].over(slow_moment[1]) == 2.0
    assert slow_moment[0].ms == 2200.0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak can only be set back on Linux")
def test_peak_of_memory_that_was_freed_again_is_seen():
    rise = bench.peak_rise(lambda: torch.ones(2**24).sum())  # 64 MiB
    assert 60 * 2**20 < rise < 80 * 2**20
    assert bench.peak_rise(lambda: None) < 2**20


def test_exponent_is_that_of_the_last_doubling():
    assert bench._exponent([1, 2, 4], [7.0, 8.0, 32.0]) == pytest.approx(2)
    assert bench._exponent([1, 2, 4], [1.0, 8.0, None]) == pytest.approx(3)
    assert bench._exponent([1], [1.0]) is None


def test_a_fresh_process_measures_a_cube_where_the_formula_is_taken_literally(fresh):
    ours, cube = bench._peak_mib("supap", 256), bench._peak_mib("supap cube", 256)
    assert 0.25 < ours < 32  # MiB; the score matrix has 1/4
    assert cube > 64  # one tensor [256, 256, 256]


@pytest.mark.parametrize("name", bench.SUITES)
def test_suite_runs_and_every_cell_is_a_name_or_a_sane_number(name):
    result = found_by(name)
    assert result.tables and result.checks
    for table in result.tables:
        assert table.title and table.note
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert isinstance(row[0], str) and row[0]
            for cell in row[1:]:
                assert cell is None or (isinstance(cell, float) and math.isfinite(cell) and cell >= 0)
            assert any(cell is not None for cell in row[1:])
    assert all(math.isfinite(check.value) or "exponent" in check.what for check in result.checks)


def test_every_loss_of_the_table_is_timed_and_the_floor_has_ratio_one():
    times = found_by("in_batch").tables[0]
    names = [row[0] for row in times.rows]
    assert set(losses.LOSSES) <= set(names)
    floor = times.rows[names.index("GEMM")]
    assert floor[2::2] == [1.0, 1.0]


def test_shares_of_a_training_step_sum_to_one():
    for row in found_by("training").tables[0].rows:
        assert sum(row[4:]) == pytest.approx(100)


def test_run_prints_and_writes_the_same_tables(tmp_path, capsys):
    torch.set_num_threads(1)
    file, page = tmp_path / "numbers.json", tmp_path / "new" / "page.md"
    bench.run(["evaluator", "blackbox", "evaluator"], file, quick=True, markdown_path=page)
    record = json.loads(file.read_text())
    assert list(record["suites"]) == ["evaluator", "blackbox"]
    assert record["machine"]["threads"] == 1 and record["machine"]["cores"] >= 1
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert record["command"] == "rankgrad bench evaluator blackbox evaluator --quick"  # no folders of this machine
    shown = capsys.readouterr().out
    for suite in record["suites"].values():
        assert suite["checks"] == []  # limits are not meant for tiny sizes
        for found in suite["tables"]:
            table = Table(**found)
            assert bench.as_text(table) in shown
            for row in table.rows:
                assert "| " + " | ".join(bench._shown(cell) for cell in row) + " |" in page.read_text()
    assert bench.page(record) == page.read_text()


def test_threads_are_given_back_after_a_run():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        bench.run(["blackbox"], quick=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_unknown_suite_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="unknown suite 'in-batch'; known: in_batch, blackbox, evaluator, training"):
        bench.run(["evaluator", "in-batch"])


def test_check_says_what_was_missed():
    assert str(Check("time over floor", 2.0, 3.0)) == "time over floor: 2.00 (at most 3.00: kept)"
    assert "MISSED" in str(Check("speed-up", 2.0, 3.0, at_most=False))
    assert not Check("time over floor", math.nan, 3.0).kept  # what could not be measured is not kept
