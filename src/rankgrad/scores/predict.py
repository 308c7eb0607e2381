"""Scores of the rows of a new file, by the model of a run."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets.tabular import AUTO
from ..extras import missing
from ..files import atomic_write, shown, write_npz, write_text
from ..models.record import WEIGHTS
from .model import load_ranker
from .table import load_table

FORMATS = (".csv", ".parquet", ".npz")


def predict_file(model: Path, file: Path, out: Path, *, query: str | None = AUTO, delimiter: str | None = None) -> int:
    """Write the scores of a file's rows: columns row, query if there are queries, and score.

    Args:
        model: folder of a run, or its model.pt.
        file: csv, tsv, parquet, npz or svmlight with the columns of training. A label is not needed, and not read.
        out: csv, parquet or npz.
        query: column of the query ids; "auto": called query or qid, if there is one.
        delimiter: of a csv; None: comma, in a tsv tab.

    Returns:
        Number of rows.

    Raises:
        FileNotFoundError: no such run or file, or no folder to write into.
        ValueError: another format, a column that is missing.
    """
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"scores are written as {', '.join(FORMATS)}; got {shown(out)}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {shown(out.name)} into")
    ranker = load_ranker(model / WEIGHTS if model.is_dir() else model)
    encoding = ranker.encoding
    table = load_table(
        file,
        label=None,
        query=query,
        split=None,
        features=encoding.names,
        categorical=encoding.categorical,
        delimiter=delimiter,
    )
    columns: dict[str, Any] = {"row": table.rows}
    if table.query is not None:
        columns["query"] = np.array(table.query_names)[table.query.numpy()]
    _write(out, {**columns, "score": ranker.score(table).numpy()})
    return len(table)


def _write(out: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    kind = out.suffix.lower()
    if kind == ".npz":
        write_npz(out, columns)
    elif kind == ".parquet":
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise ModuleNotFoundError(missing("pyarrow"), name="pyarrow") from None
        with atomic_write(out) as file:
            parquet.write_table(pyarrow.table(columns), file)
    else:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        write_text(out, text.getvalue())


__all__ = ["predict_file"]
