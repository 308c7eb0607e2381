"""Write, read and evaluate the scores of a finished run; or evaluate its model on another file."""

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
from rankgrad.scores.evaluation import OF_ONE_LIST, OF_QUERIES, ScoreReport, evaluate_scores
from rankgrad.scores.rows import JudgedRows

from ...files import read_npz, write_npz
from ...runs.folder import Run
from ...settings.allowed import ConfigError
from ...settings.spelling import of_saved
from .copies import copies_of, marks_of
from .model import Ranker, load_ranker
from .table import ScoreTable, load_table

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
    ...     _ = run.after.write_text(evaluate_scores(scores, table, bootstrap=0).to_json())
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
        from ...settings import load, plain

        given = reading_of(plain(load(run.config, trust)))
        ranker = load_ranker(run.weights)
        own = {"split": None, "test_fraction": None, "features": ranker.encoding.names, "drop": ()}
        with spelled(of_saved("root")):
            table = load_table(root, **{**given, **own, "categorical": [*ranker.encoding.words]})
        table, notes = _not_trained_on(table, ranker, run)
        scores = ranker.score(table, device)
        notes += ranker.encoding.unknown(table)
    seed = ScoreReport.from_json(run.after).settings.get("seed", 0)
    metrics = [*(OF_ONE_LIST if table.query is None else OF_QUERIES), *extra]
    report = evaluate_scores(scores, table, metrics=list(dict.fromkeys(metrics)), bootstrap=bootstrap, seed=seed)
    return replace(report, notes=(*report.notes, *notes))


def _not_trained_on(table: ScoreTable, ranker: Ranker, run: Run) -> tuple[ScoreTable, list[str]]:
    """The rows, or whole queries, that the run was not trained on, and a sentence about the others.

    Raises:
        ValueError: it was trained on all of them.
    """
    trained = read_npz(run.scores).get("trained") if run.scores.exists() else None
    if trained is None:
        return table, ["The run does not say which rows it was trained on; some of these may be among them."]
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


def reading_of(settings: Any) -> dict[str, Any]:
    """The settings `data.load` of a run, whose file may come from somebody else.

    Raises:
        ConfigError: there are none, or one has the wrong kind.

    >>> reading_of({"data": {"load": {"query": None, "delimiter": ";", "drop": ["id"]}}})
    {'query': None, 'delimiter': ';', 'drop': ['id']}
    >>> reading_of({"data": None})
    Traceback (most recent call last):
        ...
    rankgrad_workbench.settings.allowed.ConfigError: data must hold settings; got None. ...
    """
    section = settings
    for name in ("data", "load"):
        section = section.get(name)
        if not isinstance(section, dict):
            raise ConfigError(f"{name} must hold settings; got {brief(section)}. {AGAIN}")
    for name, value in section.items():
        many = isinstance(value, list) and name in ("features", "drop", "categorical")
        one = str if name in ("label", "query", "split", "delimiter") else (str, int, float)
        if not all(isinstance(each, str) for each in value) if many else not isinstance(value, (one, NoneType)):
            raise ConfigError(f"data.load.{name} must be text or empty; got {brief(value)}. {AGAIN}")
    return dict(section)


__all__ = ["evaluate_run", "read_scores", "reading_of", "save_scores"]
