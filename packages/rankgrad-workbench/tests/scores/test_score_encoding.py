"""Columns as numbers for a network: fitted on training rows, the same for new rows, stored as plain values."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from rankgrad_workbench.models.state_dicts import read_plain, write_plain
from rankgrad_workbench.tasks.scores.model import Encoding
from rankgrad_workbench.tasks.scores.table import ScoreTable


def words(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


def table(**columns) -> ScoreTable:
    return ScoreTable.of(columns)


def test_numbers_are_standardised_by_the_training_rows_and_a_missing_one_is_0():
    train = table(x=[1.0, 3.0, np.nan, 5.0], full=[2.0, 4.0, 6.0, 8.0])
    encoding = Encoding.fitted(train)
    assert encoding.columns == ("x", "full", "x is missing")
    new = encoding.encode(table(full=[5.0, np.nan], x=[3.0, np.nan]))
    assert new.dtype == torch.float32
    np.testing.assert_allclose(new, [[0, 0, 0], [0, 0, 1]])
    spread = float(np.std([1, 3, 5]))
    np.testing.assert_allclose(encoding.encode(train)[:, 0], [-2 / spread, 0, 0, 2 / spread], rtol=1e-6)


def test_the_numbers_are_those_of_scikit_learn():
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    g = np.random.default_rng(0)
    numbers = np.where(g.random((200, 3)) < [0.1, 0.0, 0.3], np.nan, g.normal([0, 5, 9], [1, 3, 0.1], (200, 3)))
    train = table(a=numbers[:, 0], b=numbers[:, 1], c=numbers[:, 2], city=words(*g.choice([*"ABCDE"], 200)))
    categories = OneHotEncoder(categories=[[*"ABCDE"]], handle_unknown="ignore", sparse_output=False)
    given = make_column_transformer(
        (make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True)), ["a", "b", "c"]), (categories, ["city"])
    )
    given.fit(train.features)
    new = table(a=[0.5, np.nan], b=[1.0, np.nan], c=[np.nan, 9.1], city=words("C", "Z"))
    for rows in (train, new):
        found = Encoding.fitted(train).encode(rows)
        np.testing.assert_allclose(found, given.transform(rows.features), atol=1e-6)


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


NEAR = np.random.default_rng(0).normal(1, 0.2, 2000)
EXTREMES = [1.797e308, 1.7976931348623157e308, -1.797693e308, float(np.finfo(np.float32).max), -3.402823e38]
EXTREMES += [float(np.iinfo(kind).max) for kind in ("int32", "uint32", "int64", "uint64")]
EXTREMES += [float(np.iinfo(kind).min) for kind in ("int32", "int64")]


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("count", [1, 600, 1400])
def test_an_extreme_value_of_a_type_is_a_missing_value_and_is_named(extreme, count):
    train = table(x=np.append(NEAR, [extreme] * count))
    encoding = Encoding.fitted(train)
    assert encoding.to_plain() == Encoding.fitted(table(x=np.append(NEAR, [np.nan] * count))).to_plain()
    encoded = encoding.encode(train)
    np.testing.assert_allclose(encoded[:2000, 0], (NEAR - NEAR.mean()) / NEAR.std(), rtol=1e-4, atol=1e-5)
    assert (encoded[2000:] == torch.tensor([0.0, 1.0])).all()
    (note,) = encoding.notes
    assert note.startswith(f"x: {count} of {2000 + count} values are extremes") and note in encoding.summary()


@pytest.mark.parametrize("far", [1e5, 1e7, -1e7, 1e9, 99999.0, -99999.0, 1e30, 1.7e308])
@pytest.mark.parametrize("count", [1, 200, 1400])
def test_values_far_from_all_others_leave_the_others_apart_and_are_named(far, count):
    train = table(x=np.append(NEAR, far * np.linspace(1, 0.9, count)), y=np.append(NEAR, [1.0] * count))
    encoding = Encoding.fitted(train)
    x = encoding.encode(train)[:, 0].double().numpy()
    assert len(np.unique(x[:2000])) > 1990 and 0.25 < x[:2000].std() < 2
    assert (np.argsort(x[:2000]) == np.argsort(NEAR)).mean() > 0.99
    assert np.isfinite(x).all() and 10 < np.abs(x[2000:]).min() and np.abs(x).max() < 800
    (note,) = encoding.notes
    assert note.startswith("x: some values, such as ") and f"{far:.7g}" in note


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(0).lognormal(sigma=1.5, size=3000),
        np.random.default_rng(0).poisson(0.05, 3000),
        np.random.default_rng(0).standard_t(3, 3000),
        1.7e9 + np.random.default_rng(0).uniform(0, 1e7, 3000),
        [0.0, 1.0, 1e9],
        [0.0, 1e9, 0.0],
        2.0 ** np.arange(31.0, 36),
    ],
)
def test_a_column_that_the_deviation_suits_is_standardised_by_it_without_a_remark(column):
    encoding = Encoding.fitted(table(x=np.asarray(column, dtype=np.float64)))
    if len(column) != 3:
        assert not encoding.scaling.far.any() and encoding.scaling.deviation[0] == pytest.approx(np.std(column))
        assert not encoding.notes


@pytest.mark.parametrize("value", [-999.0, -99.0, 999.0, 255.0])
@pytest.mark.parametrize("count", [2, 300])
def test_one_value_apart_from_all_others_is_named(value, count):
    ages = np.random.default_rng(0).integers(1, 40, 2000)
    encoding = Encoding.fitted(table(age=np.append(ages, [value] * count)))
    (note,) = encoding.notes
    assert note.startswith(f"age: {count} of {2000 + count} values are {value:g}, and the others are from 1 to 39.")
    once = Encoding.fitted(table(age=np.append(ages, [value, 2 * value])))
    assert not once.notes, "two different values are no sign for a missing one"


def test_numbers_that_are_not_as_in_training_are_told_of_new_rows():
    encoding = Encoding.fitted(table(x=NEAR, far=np.append(NEAR[:-1], 1e9), gap=np.append(NEAR[:-1], np.nan)))
    new = table(x=[1.0, np.nan, 1e9, 1.1, 2.0**31 - 1], far=[1e8, 1.0, 1.0, 1.0, 1.0], gap=[np.nan, 1.0, 1.0, 1.0, 1.0])
    assert encoding.unknown(new) == [
        "x: 2 of 5 values are missing, and none was in the training rows: they count as the mean.",
        "x: 1 of 5 values are far from those of the training rows, such as 1e+09.",
    ]
    assert not encoding.unknown(table(x=NEAR, far=NEAR, gap=NEAR))


def test_an_encoding_of_far_values_is_stored():
    encoding = Encoding.fitted(table(x=np.append(NEAR, 1e9)))
    assert encoding.scaling.far[0] and Encoding.from_plain(encoding.to_plain()).to_plain() == encoding.to_plain()


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
    with pytest.raises(ValueError, match="row 0: 'flag' is 'True'"):
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
    assert Encoding.from_plain(read_plain(tmp_path / "encoding.pt")).to_plain() == encoding.to_plain()


DAMAGES = {
    "nothing": lambda plain: None,
    "a list": lambda plain: [plain],
    "no numbers": lambda plain: {name: value for name, value in plain.items() if name != "numbers"},
    "a further key": lambda plain: {**plain, "more": 1},
    "a mean of text": lambda plain: plain["numbers"].update(mean=["3"]),
    "a mean of NaN": lambda plain: plain["numbers"].update(mean=[float("nan")]),
    "two means": lambda plain: plain["numbers"].update(mean=[1.0, 2.0]),
    "a deviation of 0": lambda plain: plain["numbers"].update(deviation=[0.0]),
    "a scale that is none": lambda plain: plain["numbers"].update(far=["no"]),
    "an indicator that is none": lambda plain: plain["numbers"].update(indicator=[2]),
    "no indicator": lambda plain: plain["numbers"].update(indicator=[]),
    "a name that is a number": lambda plain: plain["words"].update({3: ["A"]}),
    "categories that are a text": lambda plain: plain["words"].update(city="AB"),
    "a category that is a number": lambda plain: plain["words"].update(city=["A", 3]),
    "a category twice": lambda plain: plain["words"].update(city=["A", "A"]),
    "a column twice": lambda plain: plain["words"].update(x=["A"]),
    "no column": lambda plain: plain.update(numbers={key: [] for key in plain["numbers"]}, words={}),
    "words that are a list": lambda plain: plain.update(words=["A"]),
    "left_out of numbers": lambda plain: plain.update(left_out=[3]),
}


def test_a_column_may_be_called_as_an_encoded_one_is():
    table = ScoreTable.of({"x": [1, None, 2], "x is missing": [1, 2, 3], "y = a": [1, 2, 4], "y": ["a", "a", "b"]})
    encoding = Encoding.fitted(table, fewest=2)
    assert Encoding.from_plain(encoding.to_plain()).columns == encoding.columns


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_encoding_is_refused_in_one_line(damage):
    encoding = Encoding.fitted(table(x=[1.0, np.nan, 5.0], city=words("A", "A", "B")), fewest=1)
    plain = copy.deepcopy(encoding.to_plain())
    changed = DAMAGES[damage](plain)
    with pytest.raises(ValueError, match="encoding.* damaged") as caught:
        Encoding.from_plain(changed if damage in ("nothing", "a list", "no numbers", "a further key") else plain)
    assert "\n" not in str(caught.value)
