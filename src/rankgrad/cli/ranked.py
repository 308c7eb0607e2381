"""`rankgrad evaluate RUN.trec ... --qrels QRELS`: run files and judgements."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

NEEDS = ("measures", "level", "gains", "missing", "depth", "judged_only", "groups", "baseline", "trec_eval", "lines")


def add_ranked(parser: argparse.ArgumentParser) -> None:
    """Add the options of `evaluate --qrels`."""
    group = parser.add_argument_group("run files against judgements")
    group.add_argument("--qrels", type=Path, metavar="FILE", help="judgements: TREC's qrels, csv, tsv, json, parquet")
    group.add_argument(
        "-m", "--measures", help="map,nDCG@10,P.5,10,official; names of trec_eval, ir_measures or ranx, comma-separated"
    )
    group.add_argument("--level", type=int, help="lowest grade that is relevant (default: 1)")
    group.add_argument("--gains", metavar="GRADE=GAIN,...", help="what grades are worth to ndcg; others: themselves")
    group.add_argument(
        "--missing", choices=("zero", "skip"), help="what a judged query without a list counts (default: zero)"
    )
    group.add_argument("--depth", type=int, help="cut lists after so many documents")
    group.add_argument("--judged-only", action="store_true", help="take documents without a judgement out of the lists")
    group.add_argument("--groups", type=Path, metavar="CSV", help="groups of queries: columns query and group")
    group.add_argument("--baseline", metavar="NAME", help="test the other runs against this one alone")
    group.add_argument("--trec-eval", type=int, choices=(9, 10), help="whose numbers; 9: pytrec_eval's (default: 10)")
    group.add_argument(
        "--lines", choices=("all", "each"), help="print the lines of trec_eval; each: of each query too (-q)"
    )


def without_qrels(arguments: argparse.Namespace) -> None:
    """Raise if an option was given that needs --qrels.

    Raises:
        ValueError: naming it.
    """
    given = [name for name in NEEDS if getattr(arguments, name)]
    if given or len(arguments.sources) > 1:
        what = f"--{given[0].replace('_', '-')}" if given else f"{len(arguments.sources)} files"
        raise ValueError(f"{what} can only be given with --qrels FILE, the judgements of run files")


def run_ranked(arguments: argparse.Namespace) -> None:
    """Print the numbers of run files, and write their page.

    Raises:
        ValueError: by `evaluation.ranked.evaluate`, or an option does not fit.
    """
    from ..evaluation.ranked import evaluate, write

    options: dict[str, Any] = {name: getattr(arguments, name) for name in NEEDS if getattr(arguments, name) is not None}
    lines = options.pop("lines", None)
    if "measures" in options:
        # a comma before a number belongs to the measure: P.5,10
        options["measures"] = re.split(r",(?![\d.]+(?:,|$)|[^(]*\))", options["measures"])
    elif lines:
        options["measures"] = ["official"]
    if "gains" in options:
        options["gains"] = _gains(options["gains"])
    if arguments.out and arguments.out.is_file():
        raise ValueError(f"{arguments.out} is a file; with --qrels, -o names a folder for the page and its numbers")
    evaluation = evaluate(arguments.sources, arguments.qrels, bootstrap=arguments.bootstrap, **options)
    if lines:
        for run in evaluation.runs:
            print("\n".join(evaluation.lines(run, every=lines == "each")))
        for note in evaluation.notes:
            print(f"rankgrad: {note}", file=sys.stderr)
    else:
        print(evaluation)
    if arguments.out:
        page = write(evaluation, arguments.out)
        print(f"wrote {page}, and beside it the numbers as csv and json", file=sys.stderr)


def _gains(text: str) -> dict[int, float]:
    try:
        return {int(grade): float(gain) for grade, gain in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ValueError(f"--gains takes GRADE=GAIN pairs such as 1=1,2=3; got {text!r}") from None
