"""`rankgrad evaluate RUN.trec ... --qrels QRELS`: measure TREC run files."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from rankgrad.common.text import shown

FUSED = "fusion"  # name of the fused run


def metrics(text: str) -> list[str]:
    """The metrics of a list with commas or spaces. A comma before a number is part of a metric: P.5,10."""
    listed = re.sub(r"\s*,\s*|\s+(?![^(]*\))", ",", text.strip())
    return re.split(r",(?![\d.]+(?:,|$)|[^(]*\))", listed)


def gains(text: str) -> dict[int, float]:
    """The gain of each grade."""
    return {int(grade): float(gain) for grade, gain in (part.split("=") for part in text.split(","))}


#: Options that need --qrels.
OPTIONS: dict[str, dict[str, Any]] = {
    "metrics": dict(type=metrics, help="as trec_eval, ir_measures or ranx: map,nDCG@10,P.5,10; official: trec_eval's"),
    "level": dict(type=int, help="lowest grade that counts as relevant (default: 1)"),
    "gains": dict(type=gains, metavar="GRADE=GAIN,...", help="gains for nDCG, as 1=1,2=3 (default: the grade)"),
    "missing": dict(choices=("zero", "skip"), help="judged queries that a run file lacks: count 0 (default), or none"),
    "depth": dict(type=int, help="number of documents that are kept of each list (default: all)"),
    "judged_only": dict(action="store_true", help="remove documents without a judgement from the lists"),
    "groups": dict(type=Path, metavar="CSV", help="file with the columns query and group: also report each group"),
    "baseline": dict(metavar="NAME", help="compare every other run only with this one (default: all pairs)"),
    "fuse": dict(action="store_true", help="add the reciprocal rank fusion of all run files as a run named fusion"),
    "trec_eval": dict(type=int, choices=(9, 10), help="version whose numbers are printed (default: 10)"),
    "lines": dict(choices=("all", "each"), help="print the lines of trec_eval: means, or also each query as with -q"),
}


def add_trec(parser: argparse.ArgumentParser) -> None:
    """Add the options of `evaluate --qrels`."""
    group = parser.add_argument_group("options for TREC run files")
    what = "judgements of documents: a TREC qrels file, csv, tsv, json or parquet"
    group.add_argument("--qrels", type=Path, metavar="FILE", help=what)
    for name, how in OPTIONS.items():
        group.add_argument(*(["-m"] if name == "metrics" else []), f"--{name.replace('_', '-')}", **how)


def without_qrels(arguments: argparse.Namespace) -> None:
    """Raise if an option, or several sources, need --qrels."""
    given = [f"--{name.replace('_', '-')}" for name in OPTIONS if getattr(arguments, name)]
    if len(arguments.sources) > 1:
        told = " ".join(map(shown, arguments.sources))
        given.append(f"more than one file (to compare runs or embeddings: rankgrad report {told})")
    if given:
        raise ValueError(f"{given[0]} also needs the judgements of the run files: --qrels FILE")


def run_trec(arguments: argparse.Namespace) -> None:
    """Print the metrics of run files, and write their page.

    Raises:
        ValueError: see `trec.evaluate`.
    """
    from ..trec import evaluate, fuse
    from ..trec.sources import runs_of

    options = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    lines, fused = options.pop("lines", None), options.pop("fuse")
    if lines:
        options.setdefault("metrics", ["official"])
    _check_folder(arguments)
    runs: dict[str, Any] = dict(runs_of(arguments.sources))
    if fused:
        if FUSED in runs:
            raise ValueError(f"--fuse names its run {FUSED!r}, and a run file has this name: rename the file")
        runs[FUSED] = fuse(runs)
    options |= {} if arguments.bootstrap is None else {"intervals": arguments.bootstrap}
    evaluation = evaluate(runs, arguments.qrels, **options)
    if lines:
        for run in evaluation.runs:
            print("\n".join(evaluation.lines(run, every=lines == "each")))
        for note in evaluation.notes:
            print(f"rankgrad: {note}", file=sys.stderr)
    else:
        print(evaluation)
    if arguments.out:
        from ..report.html.text import enumeration

        judgements = Path(arguments.qrels.name.removesuffix(".gz")).stem
        page = evaluation.write(arguments.out, title=f"{judgements}: {enumeration(list(evaluation.runs), 4)}")
        print(f"wrote {page}, and the numbers as csv and json in the same folder", file=sys.stderr)


def _check_folder(arguments: argparse.Namespace) -> None:
    """Raise if -o is a file, or if a file that is read would be replaced."""
    from ..trec.result import FILES

    if not arguments.out:
        return
    if arguments.out.is_file():
        raise ValueError(f"{arguments.out} is a file; with --qrels, -o is a folder for the page and its numbers")
    for path in (*arguments.sources, arguments.qrels, arguments.groups):
        if path and path.resolve() in {(arguments.out / name).resolve() for name in FILES}:
            raise ValueError(f"-o {arguments.out} would replace {path}, which is read here; give another folder")
