"""Metrics of a run, of embeddings, or of run files against judgements."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import aligned
from .machine import add_machine, machine, say
from .ranked import add_ranked, run_ranked, without_qrels
from .trust import add_trust

if TYPE_CHECKING:
    import torch

HELP = """\
Measure retrieval exactly: of a run, of embeddings in a file (npz or parquet), or of run files against judgements.

  rankgrad evaluate RUN_OR_FILE
  rankgrad evaluate RUN.trec [RUN2.trec ...] --qrels QRELS [-o FOLDER]

An npz holds embeddings [n, d] and labels [n] (integers or strings). It may also hold ids, groups (such as cameras),
weights, super_labels, class_names and super_names. A gallery of its own is ref_embeddings, ref_labels, ref_ids and
ref_groups. docs/evaluation.md explains each. A parquet holds the same as columns; embedding, label and group are known
too. Started by torchrun, several processes share the queries.

A run file lists documents with scores for each query: TREC's text, csv, tsv, json, jsonl or parquet, with or without
gzip. docs/evaluating-runs.md explains the measures. Several runs are tested against one another.
"""

SETTING = re.compile(r"[A-Za-z_][\w.]*=")
OF_EMBEDDINGS = {"ks": "1,2,4,8", "extra": "", "similarity": "cosine", "clusters": "auto", "levels": False}


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sources", type=Path, nargs="+", metavar="RUN_OR_FILE")
    parser.add_argument("-k", "--ks", default="1,2,4,8", help="cut-offs of R@K, comma-separated")
    parser.add_argument(
        "-e",
        "--extra",
        default="",
        help="more metrics, comma-separated: AP@10, MRR@10, fall-out@10, FNMR@FMR=0.001, ...",
    )
    parser.add_argument(
        "--similarity",
        choices=("cosine", "inner product", "euclidean"),
        default="cosine",
        help="what the gallery is ranked by",
    )
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples of the intervals; 0: none")
    parser.add_argument("--clusters", choices=("auto", "none"), default="auto", help="k-means for NMI, or not")
    parser.add_argument("--levels", action="store_true", help="super-labels too, with H-AP and H-NDCG")
    parser.add_argument(
        "-o", "--out", type=Path, help="also write the report as json; with --qrels a folder: page, csv, json"
    )
    add_ranked(parser)
    add_machine(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the report of a run or of embeddings, worked out by all processes that were started together."""
    from ..distributed import PATIENCE, group

    for source in arguments.sources:
        if SETTING.match(str(source)) and not source.exists():
            raise ValueError(f"evaluate takes no settings; got {str(source)!r}. See rankgrad evaluate --help")
    if arguments.qrels:
        for name, default in OF_EMBEDDINGS.items():
            if getattr(arguments, name) != default:
                raise ValueError(f"--{name} is for embeddings; run files are measured by -m MEASURES")
        run_ranked(arguments)
        return
    without_qrels(arguments)
    device = machine(arguments)
    with group(timeout=PATIENCE):
        _evaluate(arguments, device)


def _evaluate(arguments: argparse.Namespace, device: torch.device) -> None:
    import numpy as np

    from ..datasets.vectors import embedding_columns
    from ..distributed import on_first
    from ..evaluation import Report, evaluate
    from ..evaluation.measures import meaning
    from ..files import shown
    from ..runs.embeddings import by_levels, evaluated_columns
    from ..runs.folder import Run

    [source] = arguments.sources
    run = Run(source)
    if source.is_dir():
        source = run.embeddings
        if run.interrupted and run.kind == "retrieval":
            from ..config import packages
            from ..training.unfinished import evaluated

            source, _ = evaluated(run, packages(arguments.trust))
            say(f"{shown(run.folder)} is not finished: this is its {source.stem.replace('-', ' ')}\n")
    if not source.exists():
        raise FileNotFoundError(
            f"{source} does not exist: give the folder of a finished run, or an npz or parquet file"
        )
    if arguments.out and not arguments.out.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.out.parent} to write {arguments.out.name} into")
    columns = embedding_columns(source, "embeddings", "labels")
    if columns.get("class_names", np.array([])).tolist() == [""]:
        raise ValueError(f"the rows of {shown(source)} have no classes: there is nothing to be right or wrong")
    if arguments.levels:
        columns = by_levels(columns)
    try:
        ks = tuple(int(k) for k in arguments.ks.split(","))
    except ValueError:
        raise ValueError(f"--ks takes integers such as 1,10,100; got {arguments.ks!r}") from None
    done = run.after
    # k-means and intervals of a run are those of its own report
    seed = Report.from_json(done).settings.get("seed", 0) if done.exists() else 0
    report = evaluate(
        columns["embeddings"],
        columns["labels"],
        ks=ks,
        extra=[name.strip() for name in arguments.extra.split(",") if name.strip()],
        similarity=arguments.similarity,
        bootstrap=arguments.bootstrap,
        clusters=arguments.clusters,
        seed=seed,
        progress=True,
        device=device,
        shared=True,
        **evaluated_columns(columns),
    )
    say(f"{report}\n\n{aligned([(name, meaning(name)) for name in report.values], left=2)}")
    if arguments.out:
        on_first(lambda: report.to_json(arguments.out))
        say(f"wrote {arguments.out}")
