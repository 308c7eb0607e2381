"""Columns as numbers for a network: fitted on training rows, the same for new rows, stored as plain values."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from rankgrad.models.state_dicts import read_plain, write_plain
from rankgrad.scores.encoding import Encoding
from rankgrad.scores.table import ScoreTable


def words(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


def table(**columns) -> ScoreTable:
    return ScoreTable({name: np.asarray(column) for name, column in columns.items()})


def test_numbers_are_standardised_by_the_training_rows_and_a_missing_one_is_0():
    train = table(x=[1.0, 3.0, np.nan, 5.0], full=[2.0, 4.0, 6.0, 8.0])
    encoding = Encoding.fitted(train)
    assert encoding.columns == ("x", "x is missing", "full")
    new = encoding.encode(table(full=[5.0, np.nan], x=[3.0, np.nan]))
    assert new.dtype == torch.float32
    np.testing.assert_allclose(new, [[0, 0, 0], [0, 1, 0]])
    spread = float(np.std([1, 3, 5]))
    np.testing.assert_allclose(encoding.encode(train)[:, 0], [-2 / spread, 0, 0, 2 / spread], rtol=1e-6)


def test_words_have_a_column_for_each_frequent_category_and_others_are_0():
    train = table(city=words("A", "A", "B", "B", "B", "C", None))
    encoding = Encoding.fitted(train, fewest=2)
    assert encoding.columns == ("city = A", "city = B")
    new = encoding.encode(table(city=words("B", "C", None, "Z", "A")))
    assert new.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0], [1, 0]]
    assert Encoding.fitted(train, fewest=1, most=1).columns == ("city = B",)


def test_columns_that_say_nothing_are_left_out():
    train = table(
        constant=[3.0, 3.0, 3.0],
        empty=[np.nan] * 3,
        rare=words("a", "b", "c"),
        same=words("a", "a", "a"),
        void=words(None, None, None),
        x=[1.0, 2.0, 3.0],
        gap=[1.0, 1.0, np.nan],
    )
    encoding = Encoding.fitted(train, fewest=2)
    assert encoding.names == ("x", "gap") and encoding.left_out == ("constant", "empty", "rare", "same", "void")
    assert encoding.encode(train).isfinite().all()
    with pytest.raises(ValueError, match="3 training rows"):
        Encoding.fitted(table(constant=[3.0, 3.0, 3.0]))


@pytest.mark.parametrize("value", [1e-300, 1e300, 1.7e308])
def test_numbers_at_the_edge_of_their_range_are_encoded_finitely(value):
    train = table(x=[-value, 0.0, value])
    encoded = Encoding.fitted(train).encode(train)
    assert encoded.isfinite().all() and encoded[2] > encoded[1] > encoded[0]


def test_a_number_beyond_all_that_can_be_encoded_is_refused_with_its_row():
    encoding = Encoding.fitted(table(x=[0.0, 1.0]))
    with pytest.raises(ValueError, match=r"row 1: 'x' is 1e\+300"):
        encoding.encode(table(x=[0.0, 1e300]))


def test_true_and_false_are_the_same_as_bools_and_as_words():
    # a parquet has bools, and the csv of the same data frame has words
    bools, texts = table(flag=[1.0, 0.0, np.nan]), table(flag=words("True", "False", None))
    for train, new in ((bools, texts), (texts, bools)):
        encoding = Encoding.fitted(train, fewest=1)
        assert torch.equal(encoding.encode(new), encoding.encode(train)) and not encoding.unknown(new)
    with pytest.raises(ValueError, match="row 1: 'flag' is 'no'"):
        Encoding.fitted(bools).encode(table(flag=words("True", "no")))


def test_a_new_file_that_lacks_a_column_or_has_it_in_another_form_is_refused():
    encoding = Encoding.fitted(table(x=[1.0, 2.0], city=words("A", "B")), fewest=1)
    with pytest.raises(ValueError, match="no column 'city'"):
        encoding.encode(table(x=[1.0]))
    with pytest.raises(ValueError, match=r"row 1.*'x' is 'many'"):
        encoding.encode(table(x=words(None, "many"), city=words("A", "B")))
    with pytest.raises(ValueError, match=r"'city'.*categorical"):
        encoding.encode(table(x=[1.0], city=[3.0]))
    empty = encoding.encode(table(x=words(None, None), city=[np.nan, np.nan]))
    assert empty[:, 1:].tolist() == [[0, 0], [0, 0]] and empty[:, 0].tolist() == [0, 0]


def test_an_encoding_comes_back_from_a_file_without_code(tmp_path):
    encoding = Encoding.fitted(table(x=[1.0, np.nan, 5.0], city=words("A", "A", "B")), fewest=1)
    write_plain(tmp_path / "encoding.pt", encoding.to_plain())
    assert Encoding.from_plain(read_plain(tmp_path / "encoding.pt")) == encoding


DAMAGES = {
    "nothing": lambda plain: None,
    "a list": lambda plain: [plain],
    "no numbers": lambda plain: {name: value for name, value in plain.items() if name != "numbers"},
    "a further key": lambda plain: {**plain, "more": 1},
    "a mean of text": lambda plain: plain["numbers"][0].update(mean="3"),
    "a mean of NaN": lambda plain: plain["numbers"][0].update(mean=float("nan")),
    "a deviation of 0": lambda plain: plain["numbers"][0].update(deviation=0.0),
    "an indicator that is none": lambda plain: plain["numbers"][0].update(indicator=2),
    "a name that is a number": lambda plain: plain["words"][0].update(name=3),
    "categories that are a text": lambda plain: plain["words"][0].update(categories="AB"),
    "a category twice": lambda plain: plain["words"][0].update(categories=["A", "A"]),
    "a column twice": lambda plain: plain["words"][0].update(name="x"),
    "no column": lambda plain: plain.update(numbers=[], words=[]),
    "left_out of numbers": lambda plain: plain.update(left_out=[3]),
}


def test_a_column_may_be_called_as_an_encoded_one_is():
    table = ScoreTable.of({"x": [1, None, 2], "x is missing": [1, 2, 3], "y = a": [1, 2, 4], "y": ["a", "a", "b"]})
    encoding = Encoding.fitted(table, fewest=2)
    assert Encoding.from_plain(encoding.to_plain()) == encoding


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_encoding_is_refused_in_one_line(damage):
    encoding = Encoding.fitted(table(x=[1.0, np.nan, 5.0], city=words("A", "A", "B")), fewest=1)
    plain = copy.deepcopy(encoding.to_plain())
    changed = DAMAGES[damage](plain)
    with pytest.raises(ValueError, match="encoding.* damaged") as caught:
        Encoding.from_plain(changed if damage in ("nothing", "a list", "no numbers", "a further key") else plain)
    assert "\n" not in str(caught.value)
