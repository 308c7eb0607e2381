"""Score the rows of a file with a model of `rankgrad train task=scores`."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Score every row of a file with a model that `rankgrad train task=scores` trained.

  rankgrad predict RUN new.csv -o scores.csv
  rankgrad predict RUN new.parquet -o scores.parquet --query qid

The file needs the columns that the model was trained with, in any order. It needs no label. The output has the columns
row (the line in a csv, otherwise the row number from 0), query (if the file has queries) and score. A higher score
means more relevant.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or its model.pt")
    parser.add_argument("file", type=Path, metavar="FILE", help="csv, tsv, parquet or npz")
    parser.add_argument("-o", "--out", type=Path, required=True, help="csv, parquet or npz to write")
    parser.add_argument(
        "--query",
        default="auto",
        metavar="COLUMN",
        help="column of the query ids (default: query or qid, if it exists)",
    )
    parser.add_argument("--delimiter", metavar="SIGN", help="column separator of a csv (default: comma)")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the scores."""
    from ..checks import as_options, spelled
    from ..scores.predict import predict_file

    with spelled(as_options({"root": "FILE"})):
        rows = predict_file(
            arguments.model, arguments.file, arguments.out, query=arguments.query, delimiter=arguments.delimiter
        )
    print(f"wrote {arguments.out}: {rows} rows")
