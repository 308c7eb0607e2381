"""Metrics of a run or of embeddings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .trust import add_trust

HELP = """\
Exact retrieval metrics of a run or of embeddings in an npz file.

An npz holds embeddings [n, d] and labels [n]; optionally ids, super_labels, class_names, super_names, and for a
separate gallery ref_embeddings, ref_labels, ref_ids.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", type=Path, metavar="RUN_OR_NPZ")
    parser.add_argument("-k", "--ks", default="1,2,4,8", help="cut-offs of R@K, comma-separated")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples of the intervals; 0: none")
    parser.add_argument("--clusters", choices=("auto", "none"), default="auto", help="k-means for NMI, or not")
    parser.add_argument("-o", "--out", type=Path, help="also write the report as json")
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the report of a run or of embeddings."""
    from ..evaluation import evaluate
    from ..files import read_npz

    source = arguments.source / "embeddings.npz" if arguments.source.is_dir() else arguments.source
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist: give the folder of a finished run, or an npz file")
    if arguments.out and not arguments.out.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.out.parent} to write {arguments.out.name} into")
    columns = read_npz(source, "embeddings", "labels")
    known = ("ids", "super_labels", "class_names", "super_names", "ref_embeddings", "ref_labels", "ref_ids")
    options: dict[str, Any] = {name: columns[name] for name in known if name in columns}
    for name in ("class_names", "super_names"):
        if name in options:
            options[name] = [str(text) for text in options[name]]
    try:
        ks = tuple(int(k) for k in arguments.ks.split(","))
    except ValueError:
        raise ValueError(f"--ks takes integers such as 1,10,100; got {arguments.ks!r}") from None
    made = arguments.source / "config.yaml"
    seed = 0
    if made.exists():  # of a run: then k-means and intervals are those of after.json
        from ..config import load, packages

        seed = load(made, packages(arguments.trust)).seed
    report = evaluate(
        columns["embeddings"],
        columns["labels"],
        ks=ks,
        bootstrap=arguments.bootstrap,
        clusters=arguments.clusters,
        seed=seed,
        progress=True,
        **options,
    )
    print(report)
    if arguments.out:
        report.to_json(arguments.out)
        print(f"wrote {arguments.out}")
