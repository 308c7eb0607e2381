"""Score the rows of a new file with the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown
from rankgrad.scores.evaluation import alike

from ...datasets.tabular import AUTO
from ...files import write_npz
from ...files.tables.written import write_columns
from ...models.record import WEIGHTS
from ...runs.folder import Run
from ...settings import ConfigError, parsed, plain
from .model import load_ranker
from .saved import reading_of
from .table import AUTOMATIC, load_rows

FORMATS = (".csv", ".parquet", ".npz")


def predict_file(
    model: Path, file: Path, out: Path, *, query: str | None = AUTO, delimiter: str | None = None
) -> tuple[int, list[str]]:
    r"""Write the scores of a file's rows: columns row, query if there are queries, and score.

    The score of a row does not depend on other rows, so the rows of a query need not follow each other.

    Args:
        model: folder of a run, or its model.pt.
        file: any format of `tables.formats`, with the columns of training. A label is not needed, and not read.
        out: csv, parquet or npz.
        query: column of the query ids; "auto": the column of the training, if the file has it; None: no ids are
            written.
        delimiter: delimiter of a csv; None: that of the training. A tsv has tabs.

    Returns:
        The number of rows, and remarks on the scores, one sentence each.

    Raises:
        FileNotFoundError: the run, the file or the folder of `out` does not exist.
        ValueError: the format is unknown, or a column is missing.

    >>> import tempfile
    >>> from rankgrad_workbench.tasks.scores.encoding import Encoding
    >>> from rankgrad_workbench.tasks.scores.model import build_model, save_ranker
    >>> from rankgrad_workbench.tasks.scores.settings import Model
    >>> from rankgrad_workbench.tasks.scores.table import load_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, rows, out = (Path(folder, name) for name in ("model.pt", "rows.csv", "scores.csv"))
    ...     _ = rows.write_text("amount\n12.5\n900\n7\n")
    ...     encoding = Encoding.fitted(load_table(rows, label=None))
    ...     save_ranker(model, build_model(Model("linear"), encoding.width), encoding, Model("linear"))
    ...     print(predict_file(model, rows, out)[0], out.read_text().splitlines()[0])
    3 row,score
    """
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"scores are written as {', '.join(FORMATS)}; got {shown(out)}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {shown(out.name)} into")
    ranker = load_ranker(model / WEIGHTS if model.is_dir() else model)
    encoding, trained = ranker.encoding, _trained_with(model if model.is_dir() else model.parent)
    names: str | tuple[str, ...] = query or ()
    if query == AUTO:
        names = AUTOMATIC["query"] if trained.get("query", AUTO) == AUTO else (trained["query"],)
    if delimiter is None and file.suffix.lower() != ".tsv":
        delimiter = trained.get("delimiter")
    table, ids = load_rows(file, encoding.names, categorical=[*encoding.words], query=names, delimiter=delimiter)
    columns: dict[str, Any] = {"row": table.rows}
    if ids is not None:
        columns["query"] = np.array(["" if word is None else word for word in ids.tolist()])
    scores = ranker.score(table)
    write = write_npz if out.suffix.lower() == ".npz" else write_columns
    write(out, {**columns, "score": scores.numpy()})
    return len(table), [*encoding.unknown(table), *alike(scores)]


def _trained_with(folder: Path) -> dict[str, Any]:
    """The settings with which the run read its file; {} for a model without its run.

    Raises:
        ConfigError: naming the file, which may come from somebody else.
    """
    config = Run(folder).config
    if not config.is_file():
        return {}
    try:
        return reading_of(plain(parsed(config)))
    except ConfigError as error:
        raise ConfigError(f"{shown(config)}: {error}") from None


__all__ = ["predict_file"]
