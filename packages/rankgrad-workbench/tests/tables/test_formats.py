"""The table of formats: each file is read by its row, and a new row is enough for every reader."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from rankgrad_workbench.datasets import load_manifest, load_text
from rankgrad_workbench.datasets.vectors import load_table as load_vectors
from rankgrad_workbench.files.tables.arrow import Arrays
from rankgrad_workbench.files.tables.formats import FORMATS, Format, of_arrays, of_texts, read_rows
from rankgrad_workbench.settings.hints import data_settings
from rankgrad_workbench.tasks.scores.table import ScoreTable, load_table
from rankgrad_workbench.tasks.search.reading import read

LINES = "2 qid:7 1:0.5 3:0.25\n0 qid:7 2:1\n\n1 qid:3 1:1.5 # a comment\n0 qid:3 3:2\n"


def test_formats_of_texts_have_rows_and_formats_of_arrays_have_columns():
    assert of_texts() == (".csv", ".tsv", ".jsonl", ".parquet")
    assert of_arrays() == (".parquet", ".npz", ".svm", ".svmlight", ".libsvm")
    assert all(each.rows or each.arrays for each in FORMATS.values())
    assert all(each.rows for each in FORMATS.values() if not each.typed)


def test_every_format_is_named_where_users_look_for_it():
    page = Path(__file__).parents[4].joinpath("docs", "scores.md").read_text("utf-8")
    part = page[page.index("## Which files are read") :]
    named = set(re.findall(r"`(\.[a-z]+)`", part[: part.index("\n* ")]))
    assert named == set(FORMATS)


@pytest.mark.parametrize("suffix", [".svm", ".svmlight", ".libsvm", ".txt", ".svm.gz"])
def test_lines_of_svmlight_are_read_under_each_of_their_names(suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(gzip.compress(LINES.encode()) if suffix.endswith(".gz") else LINES.encode())
    table = load_table(path)
    assert table.relevance.tolist() == [2, 0, 1, 0] and table.query_names == ("7", "3")
    assert table.features["x3"].tolist() == [0.25, 0, 0, 2] and table.place(2) == f"rows{suffix}, line 4"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1 1:0.5\nhello\n", r"rows\.svm, line 2 .*qid:7 1:0\.5.*'hello'"),
        ("1 1:0.5\n0 1_0:2\n", r"rows\.svm, line 2 .*'0 1_0:2'"),
        ("1 1:0.5\n0 99999999999:2\n", r"rows\.svm, line 2 .*99999999999"),
        ("1 qid:7 1:0.5\n0 2:2\n", r"rows\.svm, line 2 has no query id, unlike"),
        ("1 2:1 1:2\n", r"rows\.svm, line 1 .*sorted and unique"),
        ("1 0.5 0.25\n", r"rows\.svm, line 1.*qid:7 1:0\.5.*'1 0\.5 0\.25'"),
        ("1 1:0.5\n0 1:inf\n", r"rows\.svm, line 2: 'x1' is infinite"),
        ("1 1:0.5 2:word 3:1\n0 1:1\n", r"rows\.svm, line 1 .*'1 1:0\.5 2:word 3:1'"),
        ("# nothing\n", r"rows\.svm has no rows"),
    ],
)
def test_a_file_with_a_suffix_of_svmlight_is_refused_with_the_line_and_what_came(lines, message, tmp_path):
    (tmp_path / "rows.svm").write_text(lines)
    with pytest.raises(ValueError, match=message):
        load_table(tmp_path / "rows.svm")


def test_a_word_for_a_missing_value_is_missing_in_svmlight(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:NULL 2:3\n0 1:4 2:nan\n")
    table = load_table(tmp_path / "rows.svm", test_fraction=None)
    np.testing.assert_array_equal(table.features["x1"], [np.nan, 4])
    np.testing.assert_array_equal(table.features["x2"], [3, np.nan])


def test_rows_of_a_jsonl_can_be_scored_and_a_name_that_a_row_lacks_is_a_missing_value(tmp_path):
    rows = [{"x": 1.5, "city": "A", "label": 0}, {"city": "B", "label": 1}, {"x": 3, "label": 0, "late": 2}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)))
    table = load_table(path, test_fraction=None)
    np.testing.assert_array_equal(table.features["x"], [1.5, np.nan, 3])
    np.testing.assert_array_equal(table.features["late"], [np.nan, np.nan, 2])
    assert table.features["city"].tolist() == ["A", "B", None] and table.place(1) == "rows.jsonl, line 3"
    path.write_text('{"x": 1, "label": 0}\n{"x": [1], "label": 1}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: 'x' is a list.*drop=\['x'\]"):
        load_table(path)
    path.write_text('{"x": 1, "label": 0}\n{"x": \n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2 is not JSON"):
        load_table(path)


@pytest.mark.parametrize("name", ["rows.npz", "rows.svm", "rows.odd", "rows"])
def test_a_file_without_texts_is_refused_with_the_formats_that_have_them(name, tmp_path):
    (tmp_path / name).write_bytes(b"1 1:2\n")
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is not one of {', '.join(of_texts())}"):
        load_text(tmp_path / name)


@pytest.mark.parametrize("name", ["rows.csv", "rows.odd", "rows"])
def test_a_file_without_columns_of_numbers_is_refused_with_the_formats_that_have_them(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"{re.escape(name)}.*{re.escape(', '.join(of_arrays()))}"):
        load_vectors(tmp_path / name)


def test_columns_that_are_not_read_may_have_any_shape(tmp_path):
    np.savez(tmp_path / "rows.npz", x=[1.0, 2.0, 3.0], y=[0, 1, 0], names=["a", "b"], maps=np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"'names' has the shape"):
        load_table(tmp_path / "rows.npz", test_fraction=None, drop=["maps"])
    with pytest.raises(ValueError, match=r"'maps' has the shape \(3, 2\).*drop=\['maps'\]"):
        load_table(tmp_path / "rows.npz", test_fraction=None, drop=["names"])
    table = load_table(tmp_path / "rows.npz", test_fraction=None, drop=["names", "maps"])
    assert list(table.features) == ["x"]


def test_a_list_of_numbers_called_x_in_a_parquet_is_a_matrix_as_in_an_npz(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"X": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}), tmp_path / "rows.parquet")
    table = load_table(tmp_path / "rows.parquet", test_fraction=None)
    assert {name: column.tolist() for name, column in table.features.items()} == {"x0": [1, 3], "x1": [2, 4]}


def test_a_table_in_memory_keeps_its_own_numbers():
    given = np.array([[1.0, 2.0], [3.0, 4.0]])
    table = ScoreTable.of(given, [0, 1])
    named = ScoreTable.of({"a": given[:, 0]}, [0, 1])
    given[:] = 9
    assert table.features["x0"].tolist() == named.features["a"].tolist() == [1, 3]


@pytest.fixture
def lists():
    """A format of one JSON list, whose rows have types."""
    FORMATS[".list"] = Format("item", lambda path, delimiter: enumerate(json.loads(path.read_text()), 1))
    yield ".list"
    del FORMATS[".list"]


def test_a_row_in_the_table_is_enough_for_texts_images_search_scores_and_hints(lists, tmp_path):
    def written(name, *rows):
        path = tmp_path / f"{name}{lists}"
        path.write_text(json.dumps(rows))
        return path

    texts = written("texts", {"text": "a b", "label": "x"}, {"text": "c", "label": "y"})
    assert load_text(texts).texts == ("a b", "c")
    assert [place for place, _ in read_rows(texts, None)] == [f"{texts}, item 1", f"{texts}, item 2"]
    images = written("images", {"path": "a.png", "label": "x"}, {"path": "b.png"})
    with pytest.raises(ValueError, match=r"images\.list.*'label'"):
        load_manifest(images)
    rows = load_table(written("rows", {"x": 1, "label": 0}, {"x": 2.5, "label": 1}), test_fraction=None)
    assert rows.features["x"].tolist() == [1, 2.5] and rows.place(1) == "rows.list, item 2"
    pairs = written("pairs", {"query": "what", "pos": ["this"], "neg": ["that"]})
    assert len(read(pairs).documents.texts) == 2
    assert "data=table" not in data_settings(str(rows.name))
    (tmp_path / "x.odd").touch()
    with pytest.raises(ValueError, match=r"\.list"):  # the formats that are known
        load_text(tmp_path / "x.odd")


def test_a_format_of_columns_is_enough_for_vectors_and_scores(tmp_path):
    FORMATS[".cols"] = Format(
        "row",
        arrays=lambda path, wanted, words: Arrays({"embeddings": np.eye(2, dtype=np.float32), "label": np.arange(2)}),
    )
    try:
        (tmp_path / "x.cols").touch()
        assert load_vectors(tmp_path / "x.cols").vectors.tolist() == [[1, 0], [0, 1]]
        with pytest.raises(ValueError, match=r"'embeddings' has the shape \(2, 2\)"):
            load_table(tmp_path / "x.cols")
        assert data_settings("x.cols").startswith("data=table data.root=x.cols")
    finally:
        del FORMATS[".cols"]


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("x.svm", "task=scores data.root=x.svm"),
        ("x.npz", "data=table data.root=x.npz"),
        ("x.csv", "task=search data.root=x.csv"),
    ],
)
def test_a_path_alone_is_answered_with_the_settings_for_its_format(path, settings):
    assert settings in data_settings(path)
