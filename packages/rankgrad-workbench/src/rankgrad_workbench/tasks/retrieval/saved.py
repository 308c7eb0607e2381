"""A run, or a file of embeddings -> its report again, with other metrics or on other data if it is asked for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rankgrad.batches.distributed import on_first, world
from rankgrad.common.text import shown
from rankgrad.evaluation import Report, evaluate

from ...datasets.vectors import embedding_columns
from ...runs.embeddings import by_levels, evaluated_columns
from ...runs.folder import Run

OF_TEXT = (".run", ".trec", ".res", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".gz")  # no file of embeddings


def evaluate_run(
    source: Path,
    *,
    root: Path | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    extra: Sequence[str] = (),
    similarity: Literal["cosine", "inner product", "euclidean"] = "cosine",
    clusters: Literal["auto", "none"] = "auto",
    levels: bool = False,
    bootstrap: int = 1000,
    device: torch.device | str = "cpu",
    trust: Sequence[str] = (),
) -> Report:
    """Evaluate the embeddings of a run, or those of a file.

    Args:
        source: folder of a run, or an npz or parquet of embeddings. The state of an unfinished run is evaluated.
        root: other data like that of the run: a folder of images, or a file. Its test rows are evaluated; if it has no
            split, all its rows. Rows of the training are left out, and `notes` has their number. None: the embeddings.
        ks: see `evaluation.evaluate`.
        extra: likewise.
        similarity: likewise.
        clusters: likewise.
        bootstrap: likewise.
        levels: use super-labels as a second, weaker level of relevance.
        device: where the rows are compared.
        trust: packages whose classes the settings of an unfinished run may name.

    Raises:
        FileNotFoundError: there is no such run or file.
        ValueError: a file is damaged, its rows cannot be evaluated, or all rows of other data were trained on.
    """
    file, run = source, Run(source)
    if root is not None:
        if not run.config.exists():
            raise ValueError(f"{shown(source)} is no run, so it has no model for the data of --root")
        from .other_data import evaluate_on, is_own_data

        if not is_own_data(run, root, trust):
            how: dict[str, Any] = {"ks": ks, "extra": extra, "similarity": similarity, "clusters": clusters}
            how |= {"levels": levels, "bootstrap": bootstrap, "device": device}
            return evaluate_on(run, _weights(run, trust), root, trust, **how)
    if source.is_dir():
        if not run.config.exists() and not run.embeddings.exists():
            raise FileNotFoundError(
                f"{source} is not the folder of a run. To evaluate a model on your own data: rankgrad embed RUN "
                f"{shlex.quote(str(source))}, then rankgrad evaluate on the file that it writes"
            )
        file = _of_state(run, trust) if run.interrupted else run.embeddings
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist; give the folder of a finished run, or an npz or parquet file")
    if file.suffix.lower() in OF_TEXT:
        raise ValueError(
            f"{shown(file)} is no file of embeddings (npz or parquet). If it is a TREC run file, add its judgements: "
            '--qrels FILE. If it has scores of rows, see docs/scores.md, "Evaluate scores"'
        )
    columns = embedding_columns(file, "embeddings", "labels")
    if columns.get("class_names", np.array([])).tolist() == [""]:
        raise ValueError(f"the rows of {shown(file)} have no classes, so there is nothing to measure")
    if levels:
        columns = by_levels(columns)
    # a run's seed gives the same k-means and intervals as in its own report
    seed = Report.from_json(run.after).settings.get("seed", 0) if run.after.exists() else 0
    return evaluate(
        columns["embeddings"],
        columns["labels"],
        ks=ks,
        extra=extra,
        similarity=similarity,
        bootstrap=bootstrap,
        clusters=clusters,
        seed=seed,
        progress=True,
        device=device,
        shared=True,
        **evaluated_columns(columns),
    )


def _weights(run: Run, trust: Sequence[str]) -> Path:
    """The file of a run's model, also if the run is not finished."""
    if run.weights.exists() and not run.interrupted:
        return run.weights
    from .unfinished import saved_weights

    return on_first(lambda: saved_weights(run, trust))


def _of_state(run: Run, trust: Sequence[str]) -> Path:
    """The embeddings of a run that is not finished, by its saved model."""
    from .unfinished import evaluated

    embeddings, _ = evaluated(run, trust)
    if world()[0] == 0:
        print(f"{shown(run.folder)} is not finished; its model at {embeddings.stem.replace('-', ' ')} is evaluated\n")
    return embeddings


__all__ = ["evaluate_run"]
