"""Tables of rows to be scored: what is read of files, and what is refused with a line that names the row."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rankgrad.scores.encoding import Encoding
from rankgrad.scores.table import load_table

TABLES = Path(os.environ.get("RANKGRAD_DATA", "")) / "tables"
real = pytest.mark.skipif(not (TABLES / "cardio.npz").is_file(), reason="needs RANKGRAD_DATA/tables")
MIXED = "age,city,label\n20,A,0\n,B,1\n40,A,0\n30,,1\n"


def written(folder: Path, text: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_becomes_columns_of_numbers_and_of_words_with_missing_values(tmp_path):
    table = load_table(written(tmp_path, MIXED))
    np.testing.assert_array_equal(table.features["age"], [20, np.nan, 40, 30])
    assert table.features["city"].tolist() == ["A", "B", "A", None]
    assert table.relevance.tolist() == [0, 1, 0, 1] and table.query is None
    assert sorted(table.split) == ["test", "test", "train", "train"]
    assert table.place(1) == "rows.csv, line 3"


def test_the_same_rows_as_csv_npz_and_parquet_give_the_same_encoding(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"age": [20, None, 40, 30], "city": ["A", "B", "A", None], "label": [0, 1, 0, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", age=[20, np.nan, 40, 30], city=["A", "B", "A", ""], label=[0, 1, 0, 1])
    written(tmp_path, MIXED)
    tables = [load_table(tmp_path / f"rows.{kind}") for kind in ("csv", "npz", "parquet")]
    encoded = [Encoding.fitted(table, fewest=1).encode(table) for table in tables]
    assert encoded[0].shape == (4, 4)
    assert torch.equal(encoded[0], encoded[1]) and torch.equal(encoded[0], encoded[2])


@real
def test_a_real_table_is_read_and_its_training_rows_are_standardised():
    table = load_table(TABLES / "cardio.npz")
    train = table.part("train")
    encoded = Encoding.fitted(train).encode(train)
    assert len(table) == 1831 and int(table.relevance.sum()) == 176
    torch.testing.assert_close(encoded.mean(0), torch.zeros(encoded.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoded.std(0, correction=0), torch.ones(encoded.shape[1]), atol=1e-4, rtol=0)
