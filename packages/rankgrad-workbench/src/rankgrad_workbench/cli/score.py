"""Score the pairs of query and document of a file with a cross-encoder. A search learns from such a teacher's scores by
loss=list_distillation or loss=margin_mse.

  rankgrad score CROSS_ENCODER pairs.csv -o scored.csv         query, document, grade: adds the column score
  rankgrad score CROSS_ENCODER lists.jsonl -o scored.jsonl     query, pos, neg: adds a list scores to each row
  rankgrad train task=search data.root=scored.jsonl loss=list_distillation

CROSS_ENCODER is the folder of a model of sentence-transformers with one label; its logits are written. If the command
is interrupted, run it again and it continues. The command reads nothing from the network without --download.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_machine, machine, require, say

GOES_ON = True


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("model", metavar="CROSS_ENCODER", help="folder of a CrossEncoder; with --download also a name")
    add("file", type=Path, metavar="FILE", help="jsonl, csv, tsv or parquet with texts")
    add("-o", "--out", type=Path, required=True, help="file to write: jsonl, csv, tsv or parquet")
    add("--query", default="auto", metavar="COLUMN", help="column of the queries (default: query, ...)")
    add("--document", default="auto", metavar="COLUMN", help="column of the documents (default: document, ...)")
    add("--delimiter", metavar="SIGN", help="column separator of a csv (default: comma)")
    add("--batch-size", type=int, default=32, help="pairs in a batch (default: 32)")
    add("--max-tokens", type=int, help="cut pairs after this number of tokens (default: the model's)")
    add("--download", action="store_true", help="read the model from the hub if it is no folder")
    add_machine(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the scores. Several processes share the work."""
    require("a file of texts", arguments.file)
    from rankgrad.batches.distributed import PATIENCE, group
    from rankgrad.common.checks import spelled

    from ..index.teacher import score_file
    from ..settings.spelling import as_options
    from .outputs import check_output

    check_output(arguments.out, "-o", arguments.file)
    device, names = machine(arguments), ("query", "document", "delimiter", "batch_size", "max_tokens", "download")
    given = {name: getattr(arguments, name) for name in names}
    with group(timeout=PATIENCE), spelled(as_options({})):
        pairs, column = score_file(arguments.model, arguments.file, arguments.out, device=device, **given)
    say(f"wrote {arguments.out}: {pairs:,} pairs, scored in the column {column}")
