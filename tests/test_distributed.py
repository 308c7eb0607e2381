"""Training on several processes gives the loss and gradient of one process with the concatenated batch."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from over_processes import SPLITS, TILED, UNSIGNED, Outcome, against, alone, cases, evaluated, evaluated_codes, spawn

from rankgrad.evaluation import Report

CASES = list(cases())
COUNTS = [pytest.param(count, marks=pytest.mark.slow) if count > 2 else count for count in SPLITS]


@lru_cache
def processes(count: int) -> list[dict[str, Any]]:
    return spawn(count)


@lru_cache
def one_process(name: str, parts: int | None = None) -> Outcome:
    return alone(name, parts)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", COUNTS)
def test_loss_gradient_and_memory_equal_those_of_one_process(name: str, count: int) -> None:
    wanted = one_process(name)
    assert any(g.abs().max() > 1e-6 for g in wanted.gradients)
    for sizes in SPLITS[count]:
        for found in processes(count):
            mine: Outcome = found[f"{name} {sizes}"]
            assert mine.values == pytest.approx(wanted.values, rel=0, abs=1e-12)
            torch.testing.assert_close(mine.gradients, wanted.gradients, rtol=0, atol=1e-12)
            buffers = {key.replace("loss.loss", "loss", 1): value for key, value in mine.buffers.items()}
            torch.testing.assert_close(buffers, wanted.buffers, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("count", COUNTS)
def test_tiles_on_each_process_give_the_loss_and_gradient_of_one_whole_matrix(name: str, count: int) -> None:
    wanted = one_process(name)
    for sizes in SPLITS[count]:
        for found in processes(count):
            mine, tiles = found[f"{name} {sizes} by tiles"]
            assert tiles and min(tiles) > 1
            assert mine.values == pytest.approx(wanted.values, rel=0, abs=1e-12)
            torch.testing.assert_close(mine.gradients, wanted.gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_of_all_processes_are_compared_with_the_items_of_all(count: int) -> None:
    """The gradients of the processes add up to that of one process."""
    value, *wanted = against(0, 1)
    for found in processes(count):
        assert float(found["references"][0]) == pytest.approx(float(value), rel=0, abs=1e-12)
    for which in (1, 2):
        total = sum(found["references"][which] for found in processes(count))
        torch.testing.assert_close(total, wanted[which - 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_embedding_in_parts_works_on_each_process(count: int) -> None:
    for sizes in SPLITS[count]:
        for found in processes(count):
            mine: Outcome = found[f"in parts {sizes}"]
            torch.testing.assert_close(mine.gradients, one_process("smooth_ap").gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_and_objects_come_in_the_order_of_the_processes(count: int) -> None:
    for found in processes(count):
        assert found["order"] == [rank for rank in range(count) for _ in range(rank)]
        assert found["flags"] == [rank % 2 == 0 for rank in range(count)]
        assert found["unsigned"] == [[rank + 7 for rank in range(count)]] * len(UNSIGNED)
        assert found["even"] == list(range(count))
        assert found["objects"] == [{"rank": rank} for rank in range(count)]
        assert found["first"] == "from 0"
        assert found["largest"] == [count - 1, 0]


@pytest.mark.parametrize("count", COUNTS)
def test_an_error_reaches_every_process(count: int) -> None:
    for found in processes(count):
        assert found["first fails"] == "ValueError: the first one is to blame"
        assert "same width" in found["widths differ"]
        assert "row 2" in found["nan on one"]  # of the whole batch: two rows of process 0 come first


@pytest.mark.parametrize("count", COUNTS)
def test_a_shared_evaluation_equals_that_of_one_process(count: int) -> None:
    wanted = evaluated(shared=False)
    for found in processes(count):
        report: Report = found["evaluation"]
        assert report.values == pytest.approx(wanted.values, abs=1e-12)
        assert report.per_class == wanted.per_class and len(report.levels) == 1
        assert report.levels[0] == pytest.approx(wanted.levels[0], abs=1e-12)
        for name, bounds in wanted.intervals.items():
            assert report.intervals[name] == pytest.approx(bounds, abs=1e-12)
        for name, values in wanted.per_query.items():
            np.testing.assert_allclose(report.per_query[name], values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_equal_cosines_are_equal_on_any_number_of_processes(count: int) -> None:
    wanted = evaluated_codes(shared=False)
    for found in processes(count):
        assert found["codes"] == wanted  # to the bit


DIFFERENT = {
    "even is a lie": r"ValueError: even=True needs the same number of rows on all processes; got \[4, 3[, 4]*\]",
    "even is a lie of a batch": r"ValueError: even=True needs the same number of rows .* \[4, 3[, 4]*\]",
    "ids on one": r"ValueError: ids must be given on all .* got process 0: none, process 1: torch.int64 \[4\]",
    "labels of another kind": r"ValueError: labels must have .* torch.int64 \[4\], process 1: torch.float32 \[4\]",
    "integers on one": r"ValueError: embeddings must have .* torch.float32 \[4, 4\], process 1: torch.int64 \[4, 4\]",
    "labels that are a list": r"TypeError: labels must be a tensor .* process 1: something else",
    "no gradient on one": "ValueError: embeddings must require a gradient on all .* or on none; without: process 1",
    "labels too few": r"ValueError: embeddings, labels must have one row per sample; process 1 has \[4, 3\]",
    "four dimensions": r"ValueError: rows must have .* \[1, 2, 3, 4\], process 1: torch.float32 \[1, 2, 3, 5\]",
    "evaluation of other rows": "ValueError: all processes must pass the same input; they differ in embeddings.",
    "evaluation of other ids": "ValueError: all processes must pass the same input; they differ in ids.",
    "evaluation by other metrics": "ValueError: all processes must pass the same input; they differ in metrics.",
    "evaluation of nan": "ValueError: embeddings must be finite; row 0",
    "fails on one": "OSError: .Errno 28. No space left on device",
    "fails on the first in its own way": "RuntimeError: Local: only here",
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("count", COUNTS)
def test_processes_that_differ_are_told_so_on_all_of_them_and_none_waits(count: int, what: str) -> None:
    for found in processes(count):
        assert re.match(DIFFERENT[what], found[what]), found[what]
        assert found["after all mistakes"] == list(range(count))


@pytest.mark.parametrize("count", COUNTS)
def test_sizes_are_compared_on_the_host_where_the_group_is_of_gpus(count: int) -> None:
    assert all(found["without a host of its own"] == list(range(1, count + 1)) for found in processes(count))
