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
    parser.add_argument("file", type=Path, metavar="FILE", help=f"rows: {', '.join(FORMATS)}")
    parser.add_argument("-o", "--out", type=Path, required=True, help="csv, parquet or npz to write")
    parser.add_argument(
        "--query",
        default="auto",
        metavar="COLUMN",
        help="column of the query ids; none: write no ids (default: the column of the training, if the file has it)",
    )
    parser.add_argument("--delimiter", metavar="SIGN", help="column separator of a csv (default: that of the training)")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the scores."""
    require("the folder of a run, or its model.pt", arguments.model)
    require("a file of rows", arguments.file)
    from rankgrad.common.checks import spelled

    from ..tasks.scores.predict import predict_file
    from .outputs import check_output

    check_output(arguments.out, "-o", arguments.file, arguments.model)
    query = None if arguments.query == "none" else arguments.query
    with spelled(_spell):
        rows, notes = predict_file(
            arguments.model, arguments.file, arguments.out, query=query, delimiter=arguments.delimiter
        )
    print("\n".join([f"wrote {arguments.out}: {rows} rows", *notes]))


def _spell(name: str, *value: object) -> str:
    """An option of this command, or a setting of the training, which decides how the columns are read."""
    from ..settings.spelling import as_keys, as_options

    if name in ("root", "query", "delimiter"):
        return as_options({"root": "FILE"})(name, *value)
    return f"{as_keys('data.load', {})(name, *value)} in the training"
