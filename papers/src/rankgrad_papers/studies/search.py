"""Is a trained search better than BM25? Cranfield in five folds of questions, each judged once.

    python -m rankgrad_papers.studies.search --data-root DIR --encoder MINILM

DIR has the folder cranfield, in the layout of BEIR. The encoder is a folder of sentence-transformers. A training is
`rankgrad train task=search` with its defaults, and those of `SYSTEMS`. The csv has the means of each fold. The values
of each question are in queries.csv beside it. The command ends with the differences that the hypotheses are about. If
it is interrupted, run it again and it continues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankgrad.tasks.search import task
from rankgrad.tasks.search.evaluation import BM25, FUSED, MAIN, TRAINED, UNTRAINED, SearchReport
from rankgrad.workbench.config import compose

from ..values import append, cells, difference, read
from . import command

FOLDS = 5
# On a CPU, MiniLM takes a minute to embed the documents, and one and a half seconds for a step with these batches.
_SMALL = ("model.max_tokens=64", "sampler.queries_per_batch=16", "sampler.positives_per_query=1")
#: System -> settings of its training.
SYSTEMS: Mapping[str, Sequence[str]] = {
    "ngrams": (),
    "ngrams list_net": ("loss=list_net", "loss.tau=1"),
    "ngrams list_net tau=.1": ("loss=list_net", "loss.tau=0.1"),
    "minilm": ("model=sentence_transformer", *_SMALL),
}
#: Pairs of systems whose difference over the questions is told.
COMPARED = (
    ("ngrams + BM25", BM25),
    ("ngrams", "ngrams untrained"),
    ("ngrams list_net", "ngrams"),
    ("ngrams list_net tau=.1", "ngrams"),
    ("ngrams", BM25),
    ("minilm", "minilm untrained"),
    ("minilm", BM25),
    ("minilm + BM25", BM25),
)


def names_of(system: str) -> dict[str, str]:
    """System of a report -> its name in the csv. BM25, and a model without training, do not depend on the loss."""
    model = system.split()[0]
    return {TRAINED: system, FUSED: f"{system} + BM25", UNTRAINED: f"{model} untrained", BM25: BM25}


def trained(system: str, fold: int, seed: int, root: Path, encoder: Path | None) -> SearchReport:
    """The report of a training, on the questions of the fold."""
    words = [*SYSTEMS[system], *([f"model.name={encoder}"] if system.startswith("minilm") else [])]
    with tempfile.TemporaryDirectory() as folder:
        kept = [f"data.root={root}", f"out={folder}/run", f"seed={seed}", "loggers=[]"]
        whole = ["data.test_fraction=0", f"fold={fold}/{FOLDS}", "evaluation.split=val"]
        run = task.train(compose(["task=search", *whole, *kept, *words]), quiet=True)
        return SearchReport.from_json(run.after)


def add(report: SearchReport, system: str, fold: int, seed: int, folds: Path, queries: Path) -> None:
    """Add what the files do not have yet: the questions first, so that a fold with its means is complete."""
    known = {path: cells(path) for path in (queries, folds)}

    def put(path: Path, name: str, unit: str, numbers: Mapping[str, float]) -> None:
        if ((("system", name),), unit, str(seed)) not in known[path]:
            hundred = {metric: 100 * value for metric, value in numbers.items()}
            append(path, {"system": name}, hundred, unit=unit, seed=str(seed))

    names = names_of(system)
    for there, found in report.systems.items():
        for query, value in zip(report.query_names, found["per_query"], strict=True):
            put(queries, names[there], query, {MAIN: value})
    for there, found in report.systems.items():
        put(folds, names[there], str(fold), found["values"])


def compared(queries: Path) -> list[str]:
    """A line for each pair of `COMPARED` that has the same questions."""
    values, lines = read(queries), []
    there = {setting["system"] for setting in values.settings}
    for one, other in COMPARED:
        if {one, other} <= there:
            found = difference(*(values.units({"system": name}, MAIN) for name in (one, other)))
            if found is not None:
                p = "none" if found.p is None else f"{found.p:.2g}"
                bounds = f"{found.low:+.1f} to {found.high:+.1f}"
                lines.append(f"{one} - {other}: {found.mean:+.1f} {MAIN} ({bounds}), p {p}, {found.n} questions")
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Train what the csv does not have yet, and print the differences."""
    parser = command.parser_of(__doc__, "folder of the data sets", "docs/results/search/cranfield.csv")
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="all-MiniLM-L6-v2; needed for minilm")
    parser.add_argument("--systems", nargs="+", default=[*SYSTEMS], choices=[*SYSTEMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args(words)
    if given.encoder is None and "minilm" in given.systems:
        parser.error("minilm needs --encoder DIR; or choose others: --systems ngrams")
    given.values.parent.mkdir(parents=True, exist_ok=True)
    queries = given.values.with_name("queries.csv")
    for seed in given.seeds:
        for system in given.systems:
            for fold in range(1, FOLDS + 1):
                # the last cell of a fold that depends on the system
                if ((("system", f"{system} + BM25"),), str(fold), str(seed)) in cells(given.values):
                    continue
                report = trained(system, fold, seed, given.data_root / "cranfield", given.encoder)
                add(report, system, fold, seed, given.values, queries)
                print(f"{system}, fold {fold}, seed {seed}", flush=True)
    print("\n".join(compared(queries)))


if __name__ == "__main__":
    command.run(main)
