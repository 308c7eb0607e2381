"""Columns that are written are read again as they were."""

from __future__ import annotations

import numpy as np
import pytest

from rankgrad_workbench.files.tables.formats import read_rows
from rankgrad_workbench.files.tables.written import write_columns

WORDS = ["a, b", 'say "x"', "two\nlines", "", "; é"]


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.parquet", ",")])
def test_words_and_numbers_are_read_again(tmp_path, name, sign):
    write_columns(tmp_path / name, {"text": WORDS, "score": np.arange(5) / 4}, sign)
    rows = [dict(row) for _, row in read_rows(tmp_path / name, None if name.endswith("parquet") else sign)]
    assert [row["text"] or "" for row in rows] == WORDS
    assert [float(row["score"]) for row in rows] == [0, 0.25, 0.5, 0.75, 1]


def test_columns_of_unequal_length_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_columns(tmp_path / "a.csv", {"text": ["a", "b"], "score": [1.0]})
    assert not [*tmp_path.iterdir()]
