"""Measure the metrics of a run, of embeddings, or of TREC run files."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tables import aligned
from ..kinds import TASKS
from .machine import add_machine, machine, say
from .trec import add_trec, run_trec, without_qrels
from .trust import add_trust

if TYPE_CHECKING:
    import torch

    from ...evaluation import Report
    from ...tasks.scores.evaluation import ScoreReport
    from ...tasks.search.evaluation import SearchReport

LISTS = ("-m", "--measures", "-e", "--extra", "-k", "--ks")
HELP = """\
Compute ranking metrics for a training run, for embeddings in a file (npz or parquet), or for TREC run files.

  rankgrad evaluate RUN_OR_FILE
  rankgrad evaluate RUN --root new.csv    a run of task=scores, on other rows
  rankgrad evaluate RUN --root FOLDER     a run of task=search, on another collection: the model, BM25, and their fusion
  rankgrad evaluate RUN.trec [RUN2.trec ...] --qrels QRELS [-o FOLDER]

An npz holds embeddings [n, d] and labels [n] (integers or strings). It may also hold ids, groups (such as cameras),
weights, super_labels, class_names and super_names. Without a gallery, every row is compared with all others. A separate
gallery has the names ref_embeddings, ref_labels, ref_ids and ref_groups. docs/evaluation.md explains each name. A
parquet file has the same names as columns. If several processes are started with torchrun, they share the queries.

A TREC run file lists documents with scores for each query. It may be text, csv, tsv, json, jsonl or parquet, and
compressed by gzip. --qrels has the judgements: which documents are relevant for which query. docs/evaluating-runs.md
explains the measures. If there are several run files, significance tests compare them.
"""

SETTING = re.compile(r"[A-Za-z_][\w.]*=")
OF_TEXT = (".run", ".trec", ".res", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".gz")  # no file of embeddings
OF_EMBEDDINGS = {"ks": "1,2,4,8", "similarity": "cosine", "clusters": "auto", "levels": False}
OF_SEARCH = {"corpus": None, "queries": None, "lists": None}


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "sources", type=Path, nargs="+", metavar="RUN_OR_FILE", help="folder of a run, embeddings, or TREC run files"
    )
    parser.add_argument("-k", "--ks", default="1,2,4,8", help="values of K for R@K (default: 1,2,4,8)")
    parser.add_argument(
        "-e",
        "--extra",
        default="",
        help="more metrics, comma-separated: AP@10, MRR@10, fall-out@10, FNMR@FMR=0.001, ...; task=scores: P@10, ...",
    )
    parser.add_argument(
        "--similarity",
        choices=("cosine", "inner product", "euclidean"),
        default="cosine",
        help="similarity by which the gallery is ranked (default: cosine)",
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="PLACE",
        help="for a run of task=scores: file of rows; of task=search: collection (default: the test data of the run)",
    )
    parser.add_argument("--corpus", type=Path, metavar="FILE", help="for task=search: documents, if --root is qrels")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="for task=search: queries, if --root is qrels")
    parser.add_argument(
        "--lists", type=Path, metavar="DIR", help="for task=search: folder for the lists of each system as TREC files"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=1000, help="bootstrap resamples for the intervals; 0: none (default: 1000)"
    )
    parser.add_argument(
        "--clusters", choices=("auto", "none"), default="auto", help="auto: compute NMI by k-means; none: skip it"
    )
    parser.add_argument(
        "--levels",
        action="store_true",
        help="use super-labels as a second, weaker level of relevance; adds H-AP and H-NDCG",
    )
    parser.add_argument(
        "-o", "--out", type=Path, help="json file to write; with --qrels: folder for a page, csv and json"
    )
    add_trec(parser)
    add_machine(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the report of a run, of embeddings or of run files. Several processes share the work."""
    from ...batches.distributed import PATIENCE, group

    for source in arguments.sources:
        if SETTING.match(str(source)) and not source.exists():
            raise ValueError(f"evaluate takes no settings; got {str(source)!r}. See rankgrad evaluate --help")
    if arguments.qrels:
        none = {**OF_EMBEDDINGS, **OF_SEARCH, "extra": "", "root": None}
        _refuse(arguments, none, "for run files, choose measures with -m MEASURES")
        run_trec(arguments)
        return
    without_qrels(arguments)
    device = machine(arguments)
    with group(timeout=PATIENCE):
        _evaluate(arguments, device)


def _refuse(arguments: argparse.Namespace, defaults: Mapping[str, Any], why: str) -> None:
    """Raise if one of these options has another value than its default."""
    for name, default in defaults.items():
        if getattr(arguments, name) != default:
            raise ValueError(f"--{name} cannot be given here: {why}")


def _evaluate(arguments: argparse.Namespace, device: torch.device) -> None:
    from ...batches.distributed import on_first
    from ...common.files import write_text
    from ...evaluation.measures import meaning
    from ..runs.folder import Run
    from .outputs import check_output

    [source] = arguments.sources
    check_output(arguments.out, "-o", source)
    if arguments.out and not arguments.out.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.out.parent} to write {arguments.out.name} into")
    extra = [name.strip() for name in arguments.extra.split(",") if name.strip()]
    kind = Run(source).kind
    if (task := TASKS[kind]).evaluates != "evaluate":
        raise ValueError(f"{source} holds a run of task={kind}: measure it with rankgrad {task.evaluates} {source}")
    if kind != "search":
        _refuse(arguments, OF_SEARCH, "it is for a run of task=search")
    measure = {"scores": _of_scores, "search": _of_search}.get(kind, _of_embeddings)
    report = measure(arguments, source, extra, device)
    say(f"{report}\n\n{aligned([(name, meaning(name)) for name in report.values], left=2)}")
    if arguments.out:
        on_first(lambda: write_text(arguments.out, report.to_json() + "\n"))
        say(f"wrote {arguments.out}")


def _of_scores(arguments: argparse.Namespace, source: Path, extra: Sequence[str], device: torch.device) -> ScoreReport:
    from ...tasks.scores.saved import evaluate_run
    from ..config import packages

    _refuse(arguments, OF_EMBEDDINGS, f"{source} is a run of task=scores, and has no embeddings")
    trust = packages(arguments.trust) if arguments.root else ()  # for the test rows, no settings are read
    return evaluate_run(
        source, root=arguments.root, extra=extra, bootstrap=arguments.bootstrap, device=device, trust=trust
    )


def _of_search(arguments: argparse.Namespace, source: Path, extra: Sequence[str], device: torch.device) -> SearchReport:
    from ...batches.distributed import on_first
    from ...common.files import shown
    from ...tasks.search.evaluation import write_lists
    from ...tasks.search.saved import evaluate_run
    from ..config import packages
    from ..runs.folder import Run

    _refuse(arguments, {**OF_EMBEDDINGS, "extra": ""}, f"{source} is a run of task=search, whose measures are fixed")
    folder = arguments.lists
    if folder is not None and (folder.is_file() or Run(folder).config.exists()):
        raise ValueError(f"--lists {shown(folder)} is a file or a run; give another folder")
    found, collection = evaluate_run(
        source,
        root=arguments.root,
        corpus=arguments.corpus,
        queries=arguments.queries,
        bootstrap=arguments.bootstrap,
        device=device,
        progress=True,
        trust=packages(arguments.trust),
    )
    if folder is not None:
        on_first(lambda: write_lists(folder, found.lists, collection))
    return found.report


def _of_embeddings(arguments: argparse.Namespace, source: Path, extra: Sequence[str], device: torch.device) -> Report:
    import numpy as np

    from ...common.files import shown
    from ...datasets.vectors import embedding_columns
    from ...evaluation import Report, evaluate
    from ..runs.embeddings import by_levels, evaluated_columns
    from ..runs.folder import Run

    run = Run(source)
    if source.exists():
        _refuse(arguments, {"root": None}, "it is for a run of task=scores or task=search")
    if source.is_dir():
        source = run.embeddings
        if run.interrupted and run.kind == "retrieval":
            from ...tasks.retrieval.unfinished import evaluated
            from ..config import packages

            source, _ = evaluated(run, packages(arguments.trust))
            say(f"{shown(run.folder)} is not finished; its model at {source.stem.replace('-', ' ')} is evaluated\n")
    if not source.exists():
        if not run.config.exists() and run.folder.is_dir():
            raise FileNotFoundError(
                f"{run.folder} is not the folder of a run. To evaluate a model on your own data: rankgrad embed RUN "
                f"{shlex.quote(str(run.folder))}, then rankgrad evaluate on the file that it writes"
            )
        raise FileNotFoundError(
            f"{source} does not exist; give the folder of a finished run, or an npz or parquet file"
        )
    if source.suffix.lower() in OF_TEXT:
        raise ValueError(
            f"{shown(source)} is no file of embeddings (npz or parquet). If it is a TREC run file, add its judgements: "
            '--qrels FILE. If it has scores of rows, see docs/scores.md, "Evaluate scores"'
        )
    columns = embedding_columns(source, "embeddings", "labels")
    if columns.get("class_names", np.array([])).tolist() == [""]:
        raise ValueError(f"the rows of {shown(source)} have no classes, so there is nothing to measure")
    if arguments.levels:
        columns = by_levels(columns)
    try:
        ks = tuple(int(k) for k in arguments.ks.split(","))
    except ValueError:
        raise ValueError(f"--ks takes integers such as 1,10,100; got {arguments.ks!r}") from None
    done = run.after
    # a run's seed gives the same k-means and intervals as in its own report
    seed = Report.from_json(done).settings.get("seed", 0) if done.exists() else 0
    return evaluate(
        columns["embeddings"],
        columns["labels"],
        ks=ks,
        extra=extra,
        similarity=arguments.similarity,
        bootstrap=arguments.bootstrap,
        clusters=arguments.clusters,
        seed=seed,
        progress=True,
        device=device,
        shared=True,
        **evaluated_columns(columns),
    )
