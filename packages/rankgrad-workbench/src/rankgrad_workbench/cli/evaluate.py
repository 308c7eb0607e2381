"""Compute ranking metrics for a training run, for embeddings in a file (npz or parquet), or for TREC run files.

  rankgrad evaluate RUN_OR_FILE
  rankgrad evaluate RUN --root PLACE      on other images, texts or rows; what the run was trained on is left out.
                                          A run of task=search: another collection, by the model, BM25 and their fusion
  rankgrad evaluate RUN.trec [RUN2.trec ...] --qrels QRELS [-o FOLDER]

An npz holds embeddings [n, d] and labels [n] (integers or strings). It may also hold ids, groups (such as cameras),
weights, super_labels, class_names and super_names. Without a gallery, every row is compared with all others. A separate
gallery has the names ref_embeddings, ref_labels, ref_ids and ref_groups. docs/evaluation.md explains each name. A
parquet file has the same names as columns. If several processes are started with torchrun, they share the queries.

A TREC run file lists documents with scores for each query. It may be text, csv, tsv, json, jsonl or parquet, and
compressed by gzip. --qrels has the judgements: which documents are relevant for which query. docs/evaluating-runs.md
explains the metrics. If there are several run files, significance tests compare them.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

from .arguments import add_machine, add_trust, machine, require, say
from .trec import add_trec, run_trec, without_qrels


def integers(text: str) -> tuple[int, ...]:
    """The numbers of a list with commas."""
    return tuple(map(int, text.split(",")))


def names(text: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


# Arguments of a kind's `evaluate_run` that are options of this command.
OPTIONS: dict[str, dict[str, Any]] = {
    "ks": dict(type=integers, help="values of K for R@K (default: 1,2,4,8)"),
    "extra": dict(type=names, help="more metrics: AP@10,MRR@10,fall-out@10,FNMR@FMR=0.001,P@10, ..."),
    "similarity": dict(choices=("cosine", "inner product", "euclidean"), help="of the ranking (default: cosine)"),
    "root": dict(type=Path, metavar="PLACE", help="other data like the run's (task=search: collection)"),
    "corpus": dict(type=Path, metavar="FILE", help="for task=search: documents, if --root is qrels"),
    "queries": dict(type=Path, metavar="FILE", help="for task=search: queries, if --root is qrels"),
    "lists": dict(type=Path, metavar="DIR", help="for task=search: folder for the lists of each system as TREC files"),
    "bootstrap": dict(type=int, help="bootstrap resamples for the intervals; 0: none (default: 1000)"),
    "clusters": dict(choices=("auto", "none"), help="auto: compute NMI by k-means; none: skip it"),
    "levels": dict(action="store_const", const=True, help="super-labels are weakly relevant: adds H-AP and H-NDCG"),
}
SHORT = {"ks": "-k", "extra": "-e"}


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = "folder of a run, embeddings, or TREC run files"
    parser.add_argument("sources", type=Path, nargs="+", metavar="RUN_OR_FILE", help=what)
    for name, how in OPTIONS.items():
        parser.add_argument(*([SHORT[name]] if name in SHORT else []), f"--{name}", **how)
    what = "json file to write; with --qrels: folder for a page, csv and json"
    parser.add_argument("-o", "--out", type=Path, help=what)
    add_trec(parser)
    add_machine(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the report of a run, of embeddings or of run files. Several processes share the work."""
    require("the folder of a finished run, or an npz or parquet file", *arguments.sources)
    require("a file or folder of data", arguments.root, arguments.corpus, arguments.queries)
    given = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    if arguments.qrels:
        _refuse(given, {"bootstrap"}, "for run files, choose metrics with -m METRICS")
        run_trec(arguments)
        return
    without_qrels(arguments)
    from rankgrad.batches.distributed import PATIENCE, group

    from .outputs import check_output

    check_output(arguments.out, "-o", *arguments.sources, endings=(".json",))
    device = machine(arguments)
    with group(timeout=PATIENCE):
        _evaluate(arguments, {**given, "device": device, "progress": True})


def _refuse(given: Collection[str], known: Collection[str], why: str) -> None:
    """Raise if an option is given that nothing reads."""
    for name in given:
        if name in OPTIONS and name not in known:
            raise ValueError(f"--{name} cannot be given here: {why}. It is: {OPTIONS[name]['help']}")


def _evaluate(arguments: argparse.Namespace, given: dict[str, Any]) -> None:
    """Evaluate a run by the module of its kind, whose `evaluate_run` says by its arguments which options it takes."""
    from rankgrad.batches.distributed import on_first
    from rankgrad.common.checks import spelled
    from rankgrad.common.text import aligned, shown
    from rankgrad.evaluation.measures import meaning

    from ..files import write_text
    from ..runs.folder import Run
    from ..settings.allowed import packages
    from ..settings.kinds import TASKS
    from ..settings.spelling import as_options

    [source] = arguments.sources
    kind = Run(source).kind
    if not TASKS[kind].evaluates:
        raise ValueError(f"{shown(source)} holds a run of task={kind}, which rankgrad evaluate cannot measure")
    evaluate_run = import_module(TASKS[kind].evaluates).evaluate_run
    taken = inspect.signature(evaluate_run).parameters
    _refuse(given, taken, f"{shown(source)} is of task={kind}")
    given["trust"] = packages(arguments.trust)
    with spelled(as_options({})):
        report = evaluate_run(source, **{name: value for name, value in given.items() if name in taken})
    meanings = [(name, told) for name in report.values if (told := meaning(name))]
    say(str(report) + (f"\n\n{aligned(meanings, left=2)}" if meanings else ""))
    if arguments.out:
        on_first(lambda: write_text(arguments.out, report.to_json() + "\n"))
        say(f"wrote {arguments.out}")
