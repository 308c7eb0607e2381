"""Inside other people's trainers, several processes do what one does with the whole batch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch

for _name in ("sentence_transformers", "torchmetrics"):
    pytest.importorskip(_name, reason=f"{_name} is an extra")

from over_trainers import (  # noqa: E402  # after the check that they are there
    cases,
    gradients,
    reported,
    reported_by_the_last,
    spawn,
    trained_sentences,
    trained_transformers,
)
from text_models import bert_model  # noqa: E402

COUNTS = [2, pytest.param(4, marks=pytest.mark.slow)]


@lru_cache
def processes(count: int) -> list[dict[str, Any]]:
    return spawn(count)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return bert_model(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("case", cases(), ids="/".join)
@pytest.mark.parametrize("count", COUNTS)
def test_a_gathered_loss_has_the_value_and_gradient_of_one_process(case, count, bert):
    layout, kind, _ = case
    wanted = gradients(bert, layout, kind, "plain")
    assert max(float(each.abs().max()) for each in wanted[1:]) > 1e-5
    for found in processes(count):
        torch.testing.assert_close(found["/".join(case)], wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", COUNTS)
def test_the_report_of_torchmetrics_is_that_of_all_rows(count):
    for found in processes(count):
        assert found["report"] == pytest.approx(reported(), abs=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_processes_without_a_row_have_the_report_of_the_others(count):
    for found in processes(count):
        for kind, wanted in reported_by_the_last().items():
            assert found["report by the last"][kind] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_do_not_fit_those_of_another_process_are_refused_on_every_process(count):
    for found in processes(count):
        width, dtype = found["refused reports"]
        assert "same width" in width and "(6,)" in width and "(5,)" in width
        assert "dtype" in dtype and "float32" in dtype and "float64" in dtype


@pytest.mark.slow
def test_trainings_on_two_processes_end_where_one_ends(tmp_path):
    both = spawn(2, trainings=True)
    wanted = trained_sentences(str(tmp_path))
    for found in both:
        torch.testing.assert_close(found["sentences"], wanted, rtol=0, atol=1e-9)
    alone = trained_transformers(str(tmp_path))
    for found in both:
        torch.testing.assert_close(found["transformers"]["weights"], alone["weights"], rtol=0, atol=1e-9)
        numbers = {name: value for name, value in alone.items() if name != "weights"}
        assert {name: found["transformers"][name] for name in numbers} == pytest.approx(numbers, abs=1e-12)
