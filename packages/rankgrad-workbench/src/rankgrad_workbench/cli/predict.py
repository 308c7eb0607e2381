"""Score every row of a file with a model that `rankgrad train task=scores` trained.

  rankgrad predict RUN new.csv -o scores.csv
  rankgrad predict RUN new.parquet -o scores.parquet --query qid

The file needs the columns that the model was trained with, in any order. It needs no label. Its rows may stand in any
order, too. The output has the columns row (the line of a text file, otherwise the row number from 0), query (if the
file has queries) and score. A higher score means more relevant.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_run, require


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    from ..files.tables.formats import FORMATS

    add_run(parser)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help=f"rows: {', '.join(FORMATS)}")
    add("-o", "--out", type=Path, required=True, help="csv, parquet or npz to write")
    what = "column of the query ids; none: write no ids (default: the column of the training, if the file has it)"
    add("--query", default="auto", metavar="COLUMN", help=what)
    add("--delimiter", metavar="SIGN", help="column separator of a csv (default: that of the training)")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the scores."""
    require("the folder of a run, or its model.pt", arguments.model)
    require("a file of rows", arguments.file)
    from rankgrad.common.checks import spelled

    from ..settings.spelling import of_saved
    from ..tasks.scores.saved import predict_file
    from .outputs import check_output

    check_output(arguments.out, "-o", arguments.file, arguments.model)
    columns = {"query": None if arguments.query == "none" else arguments.query, "delimiter": arguments.delimiter}
    with spelled(of_saved("root", "query", "delimiter", root="FILE")):
        rows, notes = predict_file(arguments.model, arguments.file, arguments.out, **columns)
    print("\n".join([f"wrote {arguments.out}: {rows} rows", *notes]))
