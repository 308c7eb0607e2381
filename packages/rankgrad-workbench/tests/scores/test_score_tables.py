"""Tables of rows to be scored: what is read of files, and what is refused with a line that names the row."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from rankgrad.common.checks import spelled
from rankgrad.scores import JudgedRows
from rankgrad_workbench.settings.spelling import as_keys
from rankgrad_workbench.tasks.scores.model import Encoding
from rankgrad_workbench.tasks.scores.table import ScoreTable, load_table

TABLES = Path(os.environ.get("RANKGRAD_DATA", "")) / "tables"
real = pytest.mark.skipif(not (TABLES / "cardio.npz").is_file(), reason="needs RANKGRAD_DATA/tables")
MIXED = "age,city,label\n20,A,0\n,B,1\n40,A,0\n30,,1\n"
LISTS = "  2 qid:7 1:0.5  3:0.25 # first\n0 qid:7 2:1\n\n1 qid:3 1:1.5\n0 qid:3 3:2\n"


def written(folder: Path, text: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(count: int, seed: int = 0) -> list[tuple[float, int]]:
    generator = np.random.default_rng(seed)
    return [(float(x), int(x > 0.5)) for x in generator.normal(size=count)]


def test_a_query_number_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"no row has 1.*JudgedRows\.of"):
        JudgedRows(torch.zeros(3), torch.tensor([0, 2, 2]))


# ------------------------------------------------------------------------------------------------------------- formats


def test_a_csv_becomes_columns_of_numbers_and_of_words_with_missing_values(tmp_path):
    table = load_table(written(tmp_path, MIXED))
    np.testing.assert_array_equal(table.features["age"], [20, np.nan, 40, 30])
    assert table.features["city"].tolist() == ["A", "B", "A", None]
    assert table.relevance.tolist() == [0, 1, 0, 1] and table.query is None
    assert sorted(table.split) == ["test", "test", "train", "train"]
    assert table.place(1) == "rows.csv, line 3"


def test_the_same_rows_in_each_format_give_the_same_encoding(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"age": [20, None, 40, 30], "city": ["A", "B", "A", None], "label": [0, 1, 0, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", age=[20, np.nan, 40, 30], city=["A", "B", "A", ""], label=[0, 1, 0, 1])
    written(tmp_path, MIXED)
    written(tmp_path, MIXED.replace(",", "\t"), "rows.tsv")
    objects = (json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
    written(tmp_path, "\n".join(objects), "rows.jsonl")
    tables = [load_table(tmp_path / f"rows.{kind}") for kind in ("csv", "tsv", "jsonl", "npz", "parquet")]
    encoded = [Encoding.fitted(table, fewest=1).encode(table) for table in tables]
    assert encoded[0].shape == (4, 4)
    assert all(torch.equal(encoded[0], other) for other in encoded[1:])


def test_columns_of_a_parquet_may_be_integers_with_gaps_bools_decimals_and_dictionaries(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from decimal import Decimal

    from pyarrow import parquet

    columns = {
        "whole": [1, None, 3],
        "flag": [True, None, False],
        "price": [Decimal("1.50"), None, Decimal("2")],
        "kind": pyarrow.array(["a", "b", None]).dictionary_encode(),
        "code": [7, 8, 7],
        "label": [True, False, False],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    table = load_table(tmp_path / "rows.parquet", label=None, features=["whole", "flag", "price", "kind"])
    np.testing.assert_array_equal(table.features["whole"], [1, np.nan, 3])
    np.testing.assert_array_equal(table.features["flag"], [1, np.nan, 0])
    np.testing.assert_array_equal(table.features["price"], [1.5, np.nan, 2])
    assert table.features["kind"].tolist() == ["a", "b", None]
    words = load_table(tmp_path / "rows.parquet", label=None, categorical=["code"])
    assert words.features["code"].tolist() == ["7", "8", "7"]


def test_columns_may_be_called_by_their_numbers(tmp_path):
    # pandas writes so
    trained = load_table(written(tmp_path, "0,1,label\n5,6,0\n7,8,1\n"), test_fraction=None)
    table = load_table(written(tmp_path, "0,1\n5,6\n7,8\n", "new.csv"), label=None, features=list(trained.features))
    np.testing.assert_array_equal(table.features["1"], [6, 8])


def test_an_npz_has_a_matrix_and_columns(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.arange(12.0).reshape(6, 2), y=[0, 1, 2, 0, 1, 0], query=[5, 5, 5, 2, 2, 2])
    table = load_table(tmp_path / "rows.npz")
    assert list(table.features) == ["x0", "x1"]
    assert table.query.tolist() == [0, 0, 0, 1, 1, 1] and table.query_names == ("5", "2")
    assert sorted({(int(query), split) for query, split in zip(table.query, table.split, strict=True)}) in (
        [(0, "test"), (1, "train")],
        [(0, "train"), (1, "test")],
    )


def test_svmlight_lines_are_grades_queries_and_features_that_are_0_where_they_are_not_written(tmp_path):
    table = load_table(written(tmp_path, LISTS, "rows.txt"))
    assert {name: column.tolist() for name, column in table.features.items()} == {
        "x1": [0.5, 0, 1.5, 0],
        "x2": [0, 1, 0, 0],
        "x3": [0.25, 0, 0, 2],
    }
    assert table.relevance.tolist() == [2, 0, 1, 0] and table.query_names == ("7", "3")
    assert table.place(2) == "rows.txt, line 4"
    further = load_table(tmp_path / "rows.txt", label=None, features=["x3", "x9"])
    assert further.features["x9"].tolist() == [0, 0, 0, 0] and list(further.features) == ["x3", "x9"]


def test_svmlight_lines_equal_scikit_learns_reading(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    generator = np.random.default_rng(0)
    features = np.where(generator.random((40, 9)) < 0.5, generator.normal(size=(40, 9)), 0.0)
    query = np.repeat(np.arange(8), 5)
    path = tmp_path / "rows.svm"
    datasets.dump_svmlight_file(features, query % 3 + np.arange(40) % 2, str(path), query_id=query, zero_based=False)
    expected, grades, ids = datasets.load_svmlight_file(str(path), query_id=True)
    table = load_table(path)
    np.testing.assert_array_equal(table.features.to_numpy(), expected.toarray())
    np.testing.assert_array_equal(table.relevance.numpy(), grades)
    np.testing.assert_array_equal([int(table.query_names[number]) for number in table.query], ids)


def test_sizes_of_queries_may_stand_in_a_file_beside_the_rows(tmp_path):
    lines = "1 1:0.5\n0 1:1\n0 1:2\n1 1:3\n0 1:4\n"
    written(tmp_path, "2\n3\n", "rank.train.query")
    table = load_table(written(tmp_path, lines, "rank.train"))
    assert table.query.tolist() == [0, 0, 1, 1, 1] and table.query_names == ("1", "2")
    written(tmp_path, "2\n2\n", "rank.train.query")
    with pytest.raises(ValueError, match=r"rank\.train\.query.* 4 .* 5"):
        load_table(tmp_path / "rank.train")
    written(tmp_path, "2\nthree\n", "rank.train.query")
    with pytest.raises(ValueError, match=r"rank\.train\.query.*three"):
        load_table(tmp_path / "rank.train")


# -------------------------------------------------------------------------------------------------- folders and splits


def test_a_folder_has_a_file_for_each_split_and_queries_of_another_file_are_other_queries(tmp_path):
    written(tmp_path, "q,x,label\n1,1,0\n1,2,1\n2,3,1\n", "train.csv")
    written(tmp_path, "x,q,label,more\n4,1,0,a\n5,1,2,b\n", "test.csv")
    table = load_table(tmp_path, query="q")
    assert table.split.tolist() == ["train"] * 3 + ["test"] * 2
    assert table.query.tolist() == [0, 0, 1, 2, 2] and list(table.features) == ["x"]
    assert table.place(3) == "test.csv, line 2"
    written(tmp_path, "x,label\n4,0\n", "test.csv")
    with pytest.raises(ValueError, match=r"test\.csv.*'q'.*train\.csv"):
        load_table(tmp_path, query="q")


def test_a_folder_of_lists_in_the_form_of_letor_or_lightgbm_is_read(tmp_path):
    for name, line in {"rank.train": "0 1:1\n1 2:1\n", "rank.test": "1 3:1\n0 1:2\n"}.items():
        written(tmp_path, line, name)
        written(tmp_path, "2\n", f"{name}.query")
    table = load_table(tmp_path)
    assert list(table.features) == ["x1", "x2", "x3"] and table.split.tolist() == ["train"] * 2 + ["test"] * 2
    letor = tmp_path / "Fold1"
    letor.mkdir()
    for place, split in enumerate(("train", "vali", "test")):
        written(letor, f"0 qid:1 1:{place}\n1 qid:1 1:{place}.5\n", f"{split}.txt")
    assert load_table(letor).split.tolist() == ["train"] * 2 + ["val"] * 2 + ["test"] * 2


def test_a_folder_without_rows_to_train_on_or_with_two_files_for_a_split_is_refused(tmp_path):
    written(tmp_path, MIXED, "test.csv")
    with pytest.raises(ValueError, match=r"train\.csv.*test\.csv"):
        load_table(tmp_path)
    written(tmp_path, MIXED, "train.csv")
    written(tmp_path, MIXED, "training.tsv")
    with pytest.raises(ValueError, match=r"train\.csv and training\.tsv"):
        load_table(tmp_path)


def test_a_column_of_numbers_in_one_file_and_of_words_in_another_is_refused_with_its_row(tmp_path):
    written(tmp_path, "x,label\n1,0\n2,1\n", "train.csv")
    written(tmp_path, "x,label\n,0\nmany,1\n", "test.csv")
    with pytest.raises(ValueError, match=r"test\.csv, line 3.*'x'.*'many'"):
        load_table(tmp_path)
    table = load_table(tmp_path, categorical=["x"])
    assert table.features["x"].tolist() == ["1", "2", None, "many"]
    written(tmp_path, "x,label\n,0\n?,1\n", "test.csv")
    np.testing.assert_array_equal(load_table(tmp_path).features["x"], [1, 2, np.nan, np.nan])


def test_a_division_keeps_the_share_of_each_grade_and_is_a_function_of_the_seed(tmp_path):
    lines = "".join(f"{x},{y}\n" for x, y in rows_of(500))
    path = written(tmp_path, f"x,label\n{lines}")
    table = load_table(path, test_fraction=0.3)
    train, test = table.part("train"), table.part("test")
    assert len(test) == 150 and abs(float(test.relevance.mean()) - float(train.relevance.mean())) < 0.01
    assert load_table(path, test_fraction=0.3).split.tolist() == table.split.tolist()
    assert load_table(path, test_fraction=0.3, seed=1).split.tolist() != table.split.tolist()


def test_a_division_never_cuts_a_query_and_both_sides_have_relevant_rows():
    from rankgrad.scores.division import held_out

    query = np.repeat(np.arange(10), 3)
    relevance = np.where(np.isin(query, [4, 8]), 1, 0)
    for seed in range(20):
        test = held_out(relevance, query, 0.2, seed)
        assert {int(number) for number in query[test]}.isdisjoint(query[~test].tolist())
        assert relevance[test].any() and relevance[~test].any()


def test_a_column_may_say_the_split(tmp_path):
    path = written(tmp_path, "x,label,part\n1,0,Train\n2,1,training\n3,0,test\n4,1,test\n")
    assert load_table(path, split="part").split.tolist() == ["train", "train", "test", "test"]
    path = written(tmp_path, "x,label,part\n1,0,Train\n2,1,perhaps\n3,0,test\n4,1,test\n")
    with pytest.raises(ValueError, match=r"line 3.*'perhaps'"):
        load_table(path, split="part")


def test_a_summary_says_rows_grades_and_queries():
    table = ScoreTable.of({"x": np.arange(6.0), "city": ["A"] * 6}, [0, 2, 0, 0, 1, 3], [0, 0, 1, 2, 2, 2])
    summary = table.summary()
    for part in ("6 rows", "2 features (1 of words)", "3 relevant", "0 to 3", "3 queries of 1 to 3"):
        assert part in summary


def test_a_column_that_is_named_for_a_role_is_not_taken_for_another(tmp_path):
    path = written(tmp_path, "x,query\n1,0\n2,2\n3,0\n4,2\n")
    table = load_table(path, label="query")
    assert table.relevance.tolist() == [0, 2, 0, 2] and table.query is None and list(table.features) == ["x"]


def test_a_table_is_made_of_what_is_in_memory():
    columns = {"age": [20, 30, None], "city": np.array(["A", "", "B"]), "old": torch.tensor([True, False, True])}
    table = ScoreTable.of(columns, torch.tensor([True, False, True]), query=torch.tensor([9, 4, 9]))
    np.testing.assert_array_equal(table.features["age"], [20, 30, np.nan])
    assert table.features["city"].tolist() == ["A", None, "B"] and table.features["old"].tolist() == [1, 0, 1]
    assert table.query.tolist() == [1, 0, 1] and table.query_names == ("4", "9")
    for wrong, message in (
        ({"features": [[1.0, np.inf]]}, "row 0: 'x1' is infinite"),
        ({"features": [1.0, 2.0]}, r"\(2,\)"),
        ({"features": [[1.0], [2.0]], "relevance": [0, -1]}, "row 1 is -1"),
        ({"features": [[1.0], [2.0]], "relevance": [0.0, np.nan]}, "row 1 is nan"),
        ({"features": [[1.0], [2.0]], "relevance": [1]}, "2 rows; got 1"),
        ({"features": [[1.0], [2.0]], "query": [0, np.nan]}, "query of row 1 is missing"),
        ({"features": [[1.0], [2.0]], "query": [None, "a"]}, "query of row 0 is missing"),
        ({"features": {"x": [1.0], "y": [1.0, 2.0]}}, "of the same length"),
    ):
        with pytest.raises(ValueError, match=message):
            ScoreTable.of(**wrong)


def test_a_subset_numbers_its_queries_anew():
    table = ScoreTable.of({"x": np.arange(6.0)}, query=["a", "a", "b", "b", "c", "c"])
    part = table.subset([2, 3, 5])
    assert part.query.tolist() == [0, 0, 1] and part.query_names == ("b", "c")
    assert part.features["x"].tolist() == [2, 3, 5] and part.rows.tolist() == [2, 3, 5]
    assert table.subset(torch.tensor([True, False, False, False, False, True])).query_names == ("a", "c")


# ------------------------------------------------------------------------------------------------------------ bad input

WRONG = {
    "a column that is not there": ("x,label\n1,0\n2,1\n", {"label": "lable"}, r"rows\.csv.*'lable'.*x"),
    "a feature that is not there": ("age,label\n1,0\n2,1\n", {"features": ["agee"]}, r"'agee'.*'age'"),
    "a feature that is the label": ("age,label\n1,0\n2,1\n", {"features": ["age", "label"]}, "'label'.*features"),
    "a column to drop that is not there": ("age,label\n1,0\n2,1\n", {"drop": ["id"]}, r"'id'.*age"),
    "a label that is empty": ("x,label\n1,0\n2,\n3,1\n", {}, "line 3.*'label'"),
    "a label that is constant": ("x,label\n1,0\n2,0\n", {}, r"all 2 rows of rows\.csv.*'label' = 0.*label='NAME'"),
    "a label that is negative": ("x,label\n1,1\n2,-1\n", {}, "line 3.*-1.*positive=1"),
    "a label that is infinite": ("x,label\n1,1\n2,inf\n", {}, "line 3.*'label' is inf;"),
    "labels that are all above 0": ("x,label\n1,2\n2,1\n3,2\n", {}, "1, 2.*positive='1'"),
    "a label of words": ("x,label\n1,no\n2,yes\n3,no\n", {}, "no, yes.*positive='yes'"),
    "no row with the positive label": ("x,label\n1,no\n2,yes\n", {"positive": "oui"}, "'oui'.*no, yes"),
    "a query that comes back": (
        "q,x,label\na,1,0\nb,2,1\na,3,1\n",
        {"query": "q"},
        r"rows\.csv, line 4.*'a'.*rows\.csv, line 2.*'q'",
    ),
    "a query that is empty": ("q,x,label\na,1,0\n,2,1\n", {"query": "q"}, "line 3: 'q'"),
    "an infinite feature": ("x,label\n1,0\n-inf,1\n", {}, "line 3.*'x' is infinite"),
    "a word among numbers": ("x,label\n1,0\n2,1\n3,0\nabc,1\n", {}, r"line 5.*'x' is 'abc'.*categorical=\['x'\]"),
    "a number for Python alone": ("x,label\n1,0\n2,1\n3,0\n1_000,1\n", {}, "line 5.*'1_000'"),
    "no header": ("1,0\n2,1\n", {}, "no column 'label'. It has 1, 0"),
    "no header, and a value twice": ("1,0,0\n2,0,1\n", {}, "line 1.*'0' twice.*no header"),
    "no rows": ("x,label\n", {}, r"rows\.csv has no rows"),
    "nothing": ("", {}, r"rows\.csv has no rows"),
    "a row that is too short": ("x,y,label\n1,2,0\n1,2\n", {}, "line 3 has 2 fields"),
    "no feature": ("label\n0\n1\n", {}, r"rows\.csv has no column for a feature"),
    "one relevant row": ("x,label\n1,0\n2,0\n3,1\n", {}, "1 relevant and 2 irrelevant"),
    "one query": ("query,x,label\n1,1,0\n1,2,1\n", {}, "one query"),
    "a fraction of all": ("x,label\n1,0\n2,1\n", {"test_fraction": 1}, "test_fraction.*1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_csv_that_is_wrong_is_refused_in_one_line(case, tmp_path):
    text, settings, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as caught:
        load_table(written(tmp_path, text), **settings)
    assert "\n" not in str(caught.value)


WRONG_LINES = {
    "a value that is no number": ("1 1:0.5\n0 1:x\n", r"rows\.txt, line 2.*'0 1:x'"),
    "an infinite value": ("1 1:0.5\n0 1:inf\n", r"rows\.txt, line 2.*infinite"),
    "an infinite grade": ("1 1:0.5\ninf 1:1\n", r"rows\.txt, line 2.* is inf;"),
    "a grade for Python alone": ("1 1:0.5\n1_0 1:1\n", r"rows\.txt, line 2.*'1_0 1:1'"),
    "a grade that is no number": ("1 1:0.5\ngood 1:1\n", r"rows\.txt, line 2.*'good'"),
    "another form": ("1 1:0.5\n0 1=2\n", r"rows\.txt, line 2.*0 1=2"),
    "two colons": ("1 1:0.5\n0 1:2:3\n", r"rows\.txt, line 2"),
    "a feature twice": ("1 1:0.5 1:0.6\n0 1:1\n", r"rows\.txt, line 1.*sorted and unique"),
    "features that do not ascend": ("1 1:0.5\n0 3:1 2:1\n", r"rows\.txt, line 2.*sorted and unique"),
    "a query id in some lines": ("1 qid:1 1:0.5\n0 1:1\n", r"rows\.txt, line 2 has no query id"),
    "a negative grade": ("1 1:0.5\n-1 1:1\n", r"rows\.txt, line 2.*-1"),
    "a query that comes back": ("1 qid:1 1:1\n0 qid:2 1:1\n0 qid:1 1:1\n", r"line 3: the query '1'.*line 1"),
    "another kind of file": ("hello\n", r"rows\.txt.*svmlight"),
    "nothing": ("\n# only a comment\n", r"rows\.txt.*svmlight"),
}


@pytest.mark.parametrize("case", WRONG_LINES)
def test_lines_of_svmlight_that_are_wrong_are_refused_in_one_line(case, tmp_path):
    text, message = WRONG_LINES[case]
    with pytest.raises(ValueError, match=message) as caught:
        load_table(written(tmp_path, text, "rows.txt"))
    assert "\n" not in str(caught.value)


def test_arrays_of_an_npz_that_are_wrong_are_refused(tmp_path):
    path = tmp_path / "rows.npz"
    features = np.ones((3, 2))
    features[1, 1] = np.inf
    for arrays, message in (
        ({"X": features, "y": [0, 1, 1]}, "row 1: 'x1' is infinite"),
        ({"X": np.ones((3, 2)), "y": [0, 1]}, r"'y' has the shape \(2,\); "),
        ({"X": np.ones((3, 2, 2)), "y": [0, 1, 1]}, r"'X'.*\(3, 2, 2\)"),
        ({"X": np.ones((0, 2)), "y": []}, "no rows"),
        ({"X": np.ones((2, 2)), "x1": [1, 2], "y": [0, 1]}, "'x1'"),
        ({"X": np.ones((3, 2)), "y": [0, np.nan, 1]}, "row 1: the label 'y' is empty"),
        ({"X": np.ones((3, 2)), "y": [0, -1, 1]}, "row 1.*-1"),
        ({"X": np.ones((3, 2)), "y": [0, 1e39, 1]}, "row 1: the label 'y' is 1e.39"),  # infinite in float32
        ({"X": np.ones((3, 2)), "y": [0, 1j, 1]}, "row 0: 'y' is a complex"),
        ({"X": np.ones((3, 2))}, "'label'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            load_table(path)


def test_a_column_of_lists_is_refused_and_can_be_left_out(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"odd": [[1, 2], [3, 4]], "x": [1, 2], "label": [0, 1]}), path)
    with pytest.raises(ValueError, match=r"'odd'.*drop=\['odd'\]"):
        load_table(path, label=None)
    with spelled(as_keys("data.load", {})), pytest.raises(ValueError, match=r"'data\.load\.drop=\[odd\]'"):
        load_table(path, label=None)
    assert list(load_table(path, label=None, drop=["odd"]).features) == ["x", "label"]


def test_two_columns_of_one_name_in_a_parquet_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0]), pyarrow.array([0, 1])]
    parquet.write_table(pyarrow.table(columns, names=["x", "x", "label"]), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows\.parquet has the column 'x' twice$"):
        load_table(tmp_path / "rows.parquet")


def test_dates_of_a_parquet_are_words_as_in_a_csv_and_are_left_out_of_the_encoding(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from datetime import date, datetime

    from pyarrow import parquet

    days = [date(2020, 1, 1), None, date(2020, 1, 3)]
    columns = {"day": days, "at": [datetime(2020, 1, day) for day in (1, 2, 3)], "x": [1, 3, 2], "label": [0, 1, 0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    table = load_table(tmp_path / "rows.parquet", label=None)
    assert table.features["day"].tolist() == ["2020-01-01", None, "2020-01-03"]
    assert {"day", "at"} <= set(Encoding.fitted(table, fewest=2).left_out)
    moments = np.array(["2020-01-01", "NaT"], dtype="datetime64[ns]")
    assert ScoreTable.of({"at": moments}).features["at"].tolist()[1] is None


def test_a_column_without_a_name_and_one_that_counts_the_rows_are_noted(tmp_path):
    path = written(tmp_path, ",id,x,label\n0,7,1.5,0\n1,9,2,1\n2,8,3,0\n3,10,4,1\n")
    table = load_table(path)
    assert list(table.features) == ["id", "x"] and len(table.notes) == 2
    assert "without a name are left out: 1." in table.notes[0] and "drop=['id']" in table.notes[1]
    assert load_table(path, drop=["", "id"]).notes == () and load_table(path, features=["id"]).notes == ()
    assert list(load_table(path, features=["", "x"]).features) == ["", "x"]
    path = written(tmp_path, "x,label,,\n1.5,0,,\n2,1,,\n3,0,,\n2.5,1,,\n")  # a spreadsheet with empty columns
    table = load_table(path)
    assert list(table.features) == ["x"] and "without a name are left out: 2." in table.notes[0]
    np.savez(tmp_path / "rows.npz", x=[1.5, 2.5, 3.5], gap=[1, 2, np.nan], twice=[1, 1, 3], y=[0, 1, 0])
    assert load_table(tmp_path / "rows.npz", label=None, drop=["y"]).notes == ()


def test_a_relevant_label_that_most_rows_have_is_noted_unless_it_was_named(tmp_path):
    path = written(tmp_path, "q,x,ok\n" + "".join(f"{row // 5},{row % 7},{row % 5 != 3}\n" for row in range(20)))
    (note,) = load_table(path, label="ok").notes
    assert "16 of 20 rows" in note and "positive='False'" in note
    assert load_table(path, label="ok", positive="true").notes == load_table(path, label="ok", query="q").notes == ()
    assert load_table(path, label="ok", positive="False").notes == ()


def test_categories_that_are_whole_numbers_are_the_same_with_and_without_a_decimal_point(tmp_path):
    path = written(tmp_path, "zip,x,label\n94110.0,1,0\n94110,2,1\n,3,0\n1.05,4,1\n-7.00,5,0\n")
    words = load_table(path, label=None, categorical=["zip"]).features["zip"].tolist()
    assert words == ["94110", "94110", None, "1.05", "-7"]
    path = written(tmp_path, "version,label\nv1.0,0\n1.0,1\nb,0\na,1\n")  # found to be words: left as they are
    assert load_table(path, label=None).features["version"].tolist() == ["v1.0", "1.0", "b", "a"]


def test_most_words_that_are_in_no_category_are_told():
    encoding = Encoding.fitted(ScoreTable.of({"zip": ["a", "a", "b", "b"], "x": [1, 2, 3, 4]}), fewest=2)
    [sentence] = encoding.unknown(ScoreTable.of({"zip": ["a", "c", "d", ""], "x": [1, 2, 3, 4]}))
    assert "zip: 2 of 3 values" in sentence and "'c'" in sentence
    assert encoding.unknown(ScoreTable.of({"zip": ["a", "c", "b", ""], "x": [1, 2, 3, 4]})) == []


def test_a_data_frame_is_columns_by_name():
    frame = pytest.importorskip("pandas").DataFrame({"age": [20.0, None], "city": ["A", None]})
    table = ScoreTable.of(frame, [0, 1])
    assert list(table.features) == ["age", "city"] and table.features["city"].tolist() == ["A", None]
    np.testing.assert_array_equal(table.features["age"], [20, np.nan])


def test_what_pandas_calls_missing_is_missing():
    pandas = pytest.importorskip("pandas")
    day = pandas.Series(pandas.to_datetime(["2020-01-01", None], utc=True))
    city, seen = pandas.Series(["A", None], dtype="string"), pandas.Series([True, None], dtype="boolean")
    features = ScoreTable.of(pandas.DataFrame({"city": city, "seen": seen, "day": day}), [0, 1]).features
    assert features["city"].tolist() == ["A", None] and features["day"].tolist()[1] is None
    np.testing.assert_array_equal(features["seen"], [1, np.nan])
    with pytest.raises(ValueError, match="query of row 1 is missing"):
        ScoreTable.of([[1.0], [2.0]], [0, 1], city)


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_two_columns_of_one_name_in_a_data_frame_are_refused(names):
    frame = pytest.importorskip("pandas").DataFrame([[1, 2], [3, 4]], columns=names)
    with pytest.raises(ValueError, match=f"the column '{names[1]}' twice"):
        ScoreTable.of(frame, [0, 1])


ODD = (
    "inf",
    "-1",
    "1e400",
    "9" * 30,
    "1_0",
    "",
    ",",
    "\n",
    "\r",
    '"',
    ":",
    "qid:",
    "#",
    "\t",
    "\0",
    "\u2028",
    "é",
    "?",
)


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "rows.npz", "rows.parquet", "rank.train.query"])
def test_a_damaged_file_is_read_or_refused_in_one_line(name, tmp_path):
    path = tmp_path / name
    if name == "rows.csv":
        written(
            tmp_path, "qid,x,city,label\n" + "".join(f"{i // 3},{i * 0.5},{'ABC'[i % 3]},{i % 2}\n" for i in range(12))
        )
    elif name == "rows.txt":
        written(tmp_path, "".join(f"{i % 3} qid:{i // 3} 1:{i * 0.5} 4:{i}\n" for i in range(12)), name)
    elif name == "rows.npz":
        np.savez(path, X=np.arange(24.0).reshape(12, 2), y=np.arange(12) % 2, query=np.arange(12) // 3)
    elif name == "rows.parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"x": np.arange(12.0), "label": np.arange(12) % 2}), path)
    else:
        written(tmp_path, "6\n6\n", name)
        written(tmp_path, "".join(f"{i % 3} 1:{i * 0.5}\n" for i in range(12)), "rank.train")
    whole, root = path.read_bytes(), path.with_suffix("") if name.endswith("query") else path
    assert len(load_table(root)) == 12
    generator = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(int(generator.integers(1, 4))):
            start = int(generator.integers(len(damaged) + 1))
            end = start + int(generator.integers(6))
            damaged[start:end] = ODD[int(generator.integers(len(ODD)))].encode()
        path.write_bytes(damaged)
        try:
            table = load_table(root)
            Encoding.fitted(table.part("train"), fewest=1).encode(table)
        except (ValueError, OSError) as error:
            assert str(error) and "\n" not in str(error)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "rows.csv"))):
        load_table(tmp_path / "rows.csv")


@pytest.mark.parametrize("positive", ["1", 1, 1.0])
def test_the_positive_label_may_be_a_number_or_a_word(positive, tmp_path):
    for labels in (("-1", "1", "-1"), ("0.5", "1.0", "2")):
        path = written(tmp_path, "x,label\n" + "".join(f"{x},{label}\n" for x, label in enumerate(labels * 2)))
        assert load_table(path, positive=positive).relevance.tolist() == [0, 1, 0] * 2
    path = written(tmp_path, "x,label\n1,Yes\n2,no\n3,Yes\n4,no\n")
    assert load_table(path, positive="Yes").relevance.tolist() == [1, 0, 1, 0]
    path = written(tmp_path, "x,label\n1,True\n2,False\n3,true\n4,false\n")
    assert load_table(path).relevance.tolist() == [1, 0, 1, 0]


def test_a_positive_label_is_not_joined_with_one_in_other_capitals(tmp_path):
    path = written(tmp_path, "x,label\n1,Yes\n2,no\n3,yes\n4,no\n4,yes\n")
    assert load_table(path, positive="yes", test_fraction=None).relevance.tolist() == [0, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="no row of rows.csv has the label 'YES'; 'label' has Yes, no, yes"):
        load_table(path, positive="YES", test_fraction=None)


def test_a_quantity_as_label_is_noted(tmp_path):
    amounts = np.random.default_rng(0).lognormal(size=50).round(2)
    amounts[0] = 0
    path = written(tmp_path, "x,label\n" + "".join(f"{row % 9},{amount}\n" for row, amount in enumerate(amounts)))
    (note,) = load_table(path, test_fraction=None).notes
    assert "looks like a quantity" in note and "49 of 50 rows" in note and "label='NAME'" in note
    path = written(tmp_path, "x,label\n" + "".join(f"{row % 9},{row % 5}\n" for row in range(50)))
    assert not any("quantity" in note for note in load_table(path).notes)


def test_ids_in_a_random_part_of_a_table_are_noted(tmp_path):
    g = np.random.default_rng(0)
    ids, cents = g.choice(1000, 100, replace=False), g.integers(0, 5000, 100)
    assert len(np.unique(cents)) < 100
    lines = [f"{one},{other},{row % 3 == 0:d}" for row, (one, other) in enumerate(zip(ids, cents, strict=True))]
    (note,) = load_table(written(tmp_path, "\n".join(["patient,cents,label", *lines]))).notes
    assert "drop=['patient']" in note


def test_a_query_that_trains_is_left_out_of_the_test(tmp_path):
    rows = [
        f"{query},{10 * query + row},{row % 2},{'test' if row > 1 or query > 7 else 'train'}"
        for query in range(10)
        for row in range(4)
    ]
    table = load_table(written(tmp_path, "\n".join(["query,x,label,split", *rows])))
    assert {*table.query[table.split == "test"].tolist()} == {8, 9} and len(table) == 8 * 2 + 2 * 4
    assert any("8 of 10 queries of test are in train, too, and are left out" in note for note in table.notes)
    rows = rows[: 8 * 4]
    with pytest.raises(ValueError, match="all 8 queries of test are in train, too"):
        load_table(written(tmp_path, "\n".join(["query,x,label,split", *rows])))


def test_a_query_in_the_files_of_two_splits_is_known_by_its_rows(tmp_path):
    def lines(queries, shift):
        g = np.random.default_rng(0)
        rows = {query: g.normal(size=4) + (0 if query < 5 else shift) for query in queries}
        return "".join(f"{row % 2} qid:{q} 1:{x:.6f}\n" for q, each in rows.items() for row, x in enumerate(each))

    written(tmp_path, lines(range(10), 0), "train.txt")
    written(tmp_path, lines(range(10), 5), "test.txt")  # the same ids, but five of them are other queries
    table = load_table(tmp_path)
    assert (table.split == "test").sum() == 5 * 4
    assert any("5 of 10 queries of test are in train" in note for note in table.notes)


def test_rows_of_one_list_that_are_in_two_parts_are_counted(tmp_path):
    x = np.random.default_rng(0).normal(size=60).round(6)
    for name, part in (("train", x[:50]), ("test", x[40:])):
        written(
            tmp_path, "x,label\n" + "".join(f"{value},{row % 2}\n" for row, value in enumerate(part)), f"{name}.csv"
        )
    assert "10 of 20 rows of test equal a row of train in all features." in load_table(tmp_path).notes
    few = "x,label\n" + "".join(f"{row % 3},{row % 2}\n" for row in range(50))  # equal rows say nothing here
    for name in ("train", "test"):
        written(tmp_path, few, f"{name}.csv")
    assert not any("equal" in note for note in load_table(tmp_path).notes)


def test_a_label_that_is_the_same_in_all_rows_is_told_before_a_positive_one_is_asked_for(tmp_path):
    path = written(tmp_path, "x,label\n1,no\n2,no\n3,no\n4,no\n")
    for positive in (None, "yes", "no"):
        with pytest.raises(ValueError, match="all 4 rows of .* have the label 'label' = no; at least two different"):
            load_table(path, positive=positive)


# ----------------------------------------------------------------------------------------------------------- real files


@real
def test_a_real_table_is_read_and_its_training_rows_are_standardised():
    table = load_table(TABLES / "cardio.npz")
    train = table.part("train")
    encoded = Encoding.fitted(train).encode(train)
    assert len(table) == 1831 and int(table.relevance.sum()) == 176
    torch.testing.assert_close(encoded.mean(0), torch.zeros(encoded.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoded.std(0, correction=0), torch.ones(encoded.shape[1]), atol=1e-4, rtol=0)


@real
def test_the_example_of_lightgbm_is_read_with_its_queries():
    table = load_table(TABLES / "lightgbm")
    train, test = table.part("train"), table.part("test")
    assert len(train.query_names) == 201 and len(test.query_names) == 50
    assert table.relevance.unique().tolist() == [0, 1, 2, 3, 4]


def test_a_value_null_of_letor_is_missing_and_the_grade_minus_one_is_not_judged(tmp_path):
    lines = ["-1 qid:1 1:NULL 2:.5", "2 qid:1 1:3 2:null", "0 qid:1 1:1 2:.25", "0 qid:2 1:2 2:NaN", "-1 qid:3 1:1 2:1"]
    (tmp_path / "rank.txt").write_text("\n".join(lines), encoding="utf-8")
    table = load_table(tmp_path / "rank.txt", test_fraction=None)
    assert table.rows.tolist() == [2, 3, 4] and table.relevance.tolist() == [2, 0, 0]
    assert table.query_names == ("1", "2")
    np.testing.assert_array_equal(table.features["x1"], [3, 1, 2])
    np.testing.assert_array_equal(table.features["x2"], [np.nan, 0.25, np.nan])
    assert any("2 of 5 rows have the grade -1" in note for note in table.notes)
    (tmp_path / "rank.txt").write_text("1 qid:1 1:NULL 2:x", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 .*1:NULL 2:x"):
        load_table(tmp_path / "rank.txt")


@pytest.mark.parametrize(
    "lines",
    [
        "-1 qid:1 1:1\n1 qid:1 1:2",
        "-1 1:1\n1 1:2\n0 1:3",
        "-1 qid:1 1:1\n-2 qid:1 1:2\n0 qid:1 1:3\n1 qid:1 1:4",
    ],
)
def test_other_negative_grades_are_refused(lines, tmp_path):
    (tmp_path / "rank.txt").write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match="is -[12]; grades must be in 0 .* positive=1"):
        load_table(tmp_path / "rank.txt")
