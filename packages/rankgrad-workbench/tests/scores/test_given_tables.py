"""Tables of any library, labels that are no grades, and a report that cannot be written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankgrad.evaluation import evaluate
from rankgrad_workbench.tasks.scores.table import ScoreTable, load_table


def test_a_table_of_pyarrow_is_read_as_a_mapping_is():
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"age": [20.0, 70.0, 30.0], "town": ["a", "b", "a"]}
    found, want = (ScoreTable.of(given, [0, 1, 0]) for given in (pyarrow.table(columns), columns))
    assert [*found.features] == [*want.features] == ["age", "town"]
    assert found.relevance.equal(want.relevance)
    for name, column in want.features.items():
        assert np.array_equal(np.asarray(found.features[name]), np.asarray(column))


@pytest.mark.parametrize("label", [2**31 - 1, 1e30])
def test_a_label_that_stands_for_a_missing_one_is_no_grade(tmp_path, label):
    (tmp_path / "rows.csv").write_text(f"a,label\n1,0\n2,1\n3,{label}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 4: the label .* grades must be in 0 .. 1e.09"):
        load_table(tmp_path / "rows.csv", test_fraction=None)


def test_a_report_that_cannot_be_written_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    report = evaluate(torch.eye(4)[:, :2] + 0.1, [0, 0, 1, 1], intervals=0)
    path = tmp_path / "report.json"
    path.write_text("earlier")
    monkeypatch.setattr("os.replace", lambda *names, **options: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        report.to_json(path)
    assert path.read_text() == "earlier"
