"""Write, read and evaluate the scores of a finished run; evaluate its model on another file, or score its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad.common.checks import spelled
from rankgrad.common.checks import tensor as as_tensor
from rankgrad.common.files import AGAIN
from rankgrad.common.text import brief, shown
from rankgrad.evaluation import Bootstrap
from rankgrad.scores.evaluation import OF_ONE_LIST, OF_QUERIES, ScoreReport, alike, evaluate_scores
from rankgrad.scores.rows import JudgedRows

from ...datasets.tabular import AUTO, no_columns
from ...files import read_npz, write_npz
from ...files.tables.written import write_columns
from ...runs.folder import Run
from ...settings import ConfigError, load, parsed, plain
from ...settings.spelling import of_saved
from .model import Ranker, load_ranker
from .reading import files_of, read_columns
from .table import AUTOMATIC, ScoreTable, copies_of, load_table, marks_of

FORMATS = (".csv", ".parquet", ".npz")  # of scores
Array = npt.NDArray[Any]


def save_scores(path: Path, scores: Tensor, table: JudgedRows, trained: Array | None = None) -> None:
    """Write an npz with the columns row (its number in the file), score, relevance, and query if rows have queries.

    Args:
        path: the file.
        scores: [row].
        table: the rows, with relevance.
        trained: hashes of the training rows, by which `evaluate_run` knows them in another file.

    >>> import tempfile
    >>> table = ScoreTable.of(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scores(Path(folder, "scores.npz"), torch.tensor([0.25, 0.5]), table)
    ...     with np.load(Path(folder, "scores.npz")) as columns:
    ...         print(columns["score"], columns["relevance"])
    [0.25 0.5 ] [0. 1.]
    """
    assert table.relevance is not None
    columns: dict[str, Any] = {"row": table.rows, "score": scores.numpy(), "relevance": table.relevance.numpy()}
    if table.query is not None:
        columns |= {"query": table.query.numpy(), "query_names": np.array(table.query_names)}
    if trained is not None:
        columns["trained"] = trained
    write_npz(path, columns)


def read_scores(path: Path) -> tuple[Tensor, JudgedRows]:
    """Read a file of `save_scores`: the [row] scores, and the rows without their features.

    Raises:
        FileNotFoundError: the file does not exist.
        TypeError, ValueError: it is another file, or it is damaged.

    >>> import tempfile
    >>> table = ScoreTable.of(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scores(Path(folder, "scores.npz"), torch.tensor([0.25, 0.5]), table)
    ...     scores, rows = read_scores(Path(folder, "scores.npz"))
    >>> scores, rows.relevance
    (tensor([0.2500, 0.5000]), tensor([0., 1.]))
    """
    columns = read_npz(path, "row", "score", "relevance")
    query, names = columns.get("query"), columns.get("query_names", np.empty(0, dtype=str))
    if query is not None and not (query.dtype.kind in "iu" and ((query >= 0) & (query < len(names))).all()):
        raise ValueError(f"{shown(path)} is damaged: query must number the {len(names)} query_names from 0 on")
    table = JudgedRows(
        as_tensor(columns["relevance"], "relevance").float(),
        None if query is None else torch.from_numpy(query.astype(np.int64)),
        tuple(map(str, names.tolist())),
        rows=columns["row"],
        name=shown(path.parent.name),
    )
    return as_tensor(columns["score"], "score"), table


def evaluate_run(
    folder: Path,
    *,
    root: Path | None = None,
    extra: Sequence[str] = (),
    bootstrap: int = 1000,
    device: torch.device | str = "cpu",
    trust: Sequence[str] = (),
) -> ScoreReport:
    r"""Evaluate the test rows of a run again, or all rows of another file with the model of the run.

    Args:
        folder: folder of a finished run.
        root: another file with the columns and the label of the training; None: evaluate the run's test rows. Rows or
            queries of the training are left out, and `notes` has their number.
        extra: names of more metrics, see `evaluate_scores`.
        bootstrap: number of resamples for the intervals; 0: none.
        device: where the rows of another file are scored.
        trust: packages whose classes the settings may name, see `config.load`.

    Raises:
        FileNotFoundError: the run is not finished, or a file does not exist.
        ValueError: a file is damaged, lacks a column, or cannot be ranked.

    >>> import tempfile
    >>> table = ScoreTable.of(torch.zeros(4, 1), torch.tensor([1, 0, 1, 0]))
    >>> scores = torch.tensor([0.9, 0.8, 0.7, 0.1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     _ = run.config.write_text("task: scores\n")
    ...     save_scores(run.scores, scores, table)
    ...     _ = run.after.write_text(evaluate_scores(scores, table, intervals=0).to_json())
    ...     print(evaluate_run(run.folder, extra=["P@2"], bootstrap=0).values["P@2"])
    0.5
    """
    run = Run(folder)
    if not run.finished:
        raise FileNotFoundError(f"{shown(run.after)} does not exist: give the folder of a finished run")
    notes: list[str] = []
    if root is None:
        scores, table = read_scores(run.scores)
    else:
        load(run.config, trust)  # refuses settings that would run something
        given, ranker = reading_of(run), load_ranker(run.weights)
        own = {"split": None, "test_fraction": None, "features": ranker.encoding.names, "drop": ()}
        with spelled(of_saved("root")):
            table = load_table(root, **{**given, **own, "categorical": [*ranker.encoding.words]})
        table, notes = _not_trained_on(table, ranker, run)
        scores = ranker.score(table, device)
        notes += ranker.encoding.unknown(table)
    seed = ScoreReport.from_json(run.after).settings.get("seed", 0)
    metrics = [*(OF_ONE_LIST if table.query is None else OF_QUERIES), *extra]
    report = evaluate_scores(
        scores, table, metrics=list(dict.fromkeys(metrics)), intervals=Bootstrap(resamples=bootstrap, seed=seed)
    )
    return replace(report, notes=(*report.notes, *notes))


def _not_trained_on(table: ScoreTable, ranker: Ranker, run: Run) -> tuple[ScoreTable, list[str]]:
    """The rows, or whole queries, that the run was not trained on, and a sentence about the others.

    Raises:
        ValueError: it was trained on all of them.
    """
    trained = read_npz(run.scores, "trained")["trained"]
    marks = np.concatenate([marks_of(rows) for rows in ranker.encoded(table)])
    known = copies_of(marks, None if table.query is None else table.query.numpy(), trained)
    if not known.any():
        return table, []
    what, count, every = "rows", int(known.sum()), len(table)
    if table.query is not None:
        what, count, every = "queries", len(np.unique(table.query.numpy()[known])), len(table.query_names)
    if known.all():
        raise ValueError(f"all {every} {what} of {table.name} are training {what} of the run. Give rows that are new")
    return table.subset(~known), [f"{count} of {every} {what} are training {what} of the run and are left out."]


def reading_of(run: Run) -> dict[str, Any]:
    """The settings `data.load` of a run, whose file may come from somebody else.

    Raises:
        ConfigError: there are none, or one has the wrong kind.
    """
    try:
        section = plain(parsed(run.config))
        for name in ("data", "load"):
            section = section.get(name)
            if not isinstance(section, dict):
                raise ConfigError(f"{name} must hold settings; got {brief(section)}. {AGAIN}")
        for name, value in section.items():
            many = isinstance(value, list) and name in ("features", "drop", "categorical")
            one = str if name in ("label", "query", "split", "delimiter") else (str, int, float)
            if not all(isinstance(each, str) for each in value) if many else not isinstance(value, (one, NoneType)):
                raise ConfigError(f"data.load.{name} must be text or empty; got {brief(value)}. {AGAIN}")
    except ConfigError as error:
        raise ConfigError(f"{shown(run.config)}: {error}") from None
    return dict(section)


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
    >>> from rankgrad_workbench.tasks.scores.model import Encoding, build_model, save_ranker
    >>> from rankgrad_workbench.tasks.scores.settings import Model
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
    run = Run(model if model.is_dir() else model.parent)
    ranker = load_ranker(run.weights if model.is_dir() else model)
    encoding, trained = ranker.encoding, reading_of(run) if run.config.is_file() else {}
    name = trained.get("query", AUTO) if query == AUTO else query
    names = AUTOMATIC["query"] if name == AUTO else (name,)
    if delimiter is None and file.suffix.lower() != ".tsv":
        delimiter = trained.get("delimiter")
    own: dict[str, Any] = {"label": None, "query": None, "split": None, "delimiter": delimiter}
    table = load_table(file, features=encoding.names, categorical=[*encoding.words], **own)
    read = read_columns(files_of(file), names.__contains__, names.__contains__, delimiter)
    there = next((name for name in names if name in read.values), None)
    if query not in (None, AUTO, there):
        raise ValueError(no_columns(shown(file), {"query": query}, read.names))
    ids = {} if there is None else {"query": np.array([word or "" for word in read.column(there, True, {""})])}
    scores = ranker.score(table)
    write = write_npz if out.suffix.lower() == ".npz" else write_columns
    write(out, {"row": table.rows, **ids, "score": scores.numpy()})
    return len(table), [*encoding.unknown(table), *alike(scores)]


__all__ = ["evaluate_run", "predict_file", "read_scores", "save_scores"]
