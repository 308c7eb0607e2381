"""Checks of arguments that are written once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankgrad.common.checks import closest, integer, tensor


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3), np.array(3)])
def test_an_integer_of_any_library_is_an_int(value):
    found = integer(value, "k counts items", low=1)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        torch.tensor(True),
        3.0,
        np.float64(3),
        "3",
        None,
        [3],
        (3,),
        torch.tensor([3]),
        np.array([3]),
        3j,
    ],
)
def test_what_is_no_integer_is_refused_as_it_was_given(value):
    with pytest.raises(ValueError, match="k counts .*integer; got ") as error:
        integer(value, "k counts items")
    assert str(error.value).endswith(repr(value))


def test_a_range_is_told_as_it_was_asked_for():
    assert integer(0, "n", low=0, high=0) == 0
    for value, low, high, told in ((0, 1, None, ">= 1"), (3, None, 2, "<= 2"), (9, 1, 4, "in 1 .. 4")):
        with pytest.raises(ValueError, match=f"n and must be an integer {told}; got {value}"):
            integer(value, "n", low, high)


def test_the_closest_name_is_offered_and_none_if_all_are_far():
    assert closest("AP@1O", ["AP@10", "MRR@10"]) == closest("map@10", ["R@10", "AP@10"]) == "; did you mean 'AP@10'?"
    assert closest("?", iter(["AP", "MRR"])) == "."


def test_numbers_in_any_container_become_a_tensor_and_tensors_stay():
    given = torch.zeros(2, 2, dtype=torch.bfloat16, requires_grad=True)
    assert tensor(given, "scores") is given
    frozen = np.arange(6.0, dtype=np.float32).reshape(2, 3)[:, ::2]
    frozen.flags.writeable = False
    assert tensor(frozen, "scores").tolist() == [[0, 2], [3, 5]] and tensor(frozen, "scores").dtype == torch.float32
    assert tensor([[0.1, 0.1 + 1e-12]], "scores").unique().numel() == 2  # nothing is rounded
    assert tensor((True, False), "valid").dtype == torch.bool and tensor([3, -1], "gains").dtype == torch.int64


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([[1.0], [1.0, 2.0]], ValueError, "scores must have rows of equal length"),
        (["a"], TypeError, "scores must be numbers: a tensor, a numpy array or a list; got <U1"),
        (np.array([None]), ValueError, "scores has no value in 1 of 1 rows: 0"),
        (np.zeros(2, dtype=np.longdouble), TypeError, "got float128|got longdouble"),
        (None, TypeError, "got object"),
    ],
)
def test_what_is_no_numbers_is_refused(value, error, message):
    with pytest.raises(error, match=message):
        tensor(value, "scores")
