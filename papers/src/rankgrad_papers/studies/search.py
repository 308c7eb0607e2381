"""Is a trained search better than BM25? Every question of a collection is judged once, by a model of another fold.

    python -m rankgrad_papers.studies.search --data-root DIR --encoder MINILM
    python -m rankgrad_papers.studies.search --collection docstrings --systems ngrams --data-root DIR

DIR has the folder cranfield, in the layout of BEIR: five folds of questions. The folders of docstrings are written
there: three folds of modules. The encoder is a folder of sentence-transformers. A training is
`rankgrad train task=search` with its defaults, and those of `SYSTEMS`. COLLECTION.csv has the means of each fold, and
COLLECTION-queries.csv the values of each question. The command ends with the differences that the hypotheses are about:
paired t-tests over the questions, corrected by Holm over all tests of the collection. If it is interrupted, run it
again and it continues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.evaluation import BEFORE, BEFORE_FUSED, BM25, FUSED, MAIN, TRAINED, SearchReport
from rankgrad_workbench.trec.comparison import chance, differences

from ..values import append, cells, read
from . import command, docstrings

#: Collection -> number of its folds.
FOLDS = {"cranfield": 5, "docstrings": docstrings.FOLDS}
# On a CPU, MiniLM takes a minute to embed the documents, and one and a half seconds for a step with these batches.
_SMALL = ("model.max_tokens=64", "sampler.queries_per_batch=16", "sampler.positives_per_query=1")
#: System -> settings of its training.
SYSTEMS: Mapping[str, Sequence[str]] = {
    "ngrams": (),
    "ngrams list_net": ("loss=list_net", "loss.tau=1"),
    "ngrams list_net tau=.1": ("loss=list_net", "loss.tau=0.1"),
    "minilm": ("model=sentence_transformer", *_SMALL),
}
#: Collection -> (hypothesis, system, system that it is compared with). papers/docs/hypotheses.md
COMPARED: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "cranfield": (
        ("S1", "ngrams + BM25", BM25),
        ("S2", "ngrams", "ngrams untrained"),
        ("S3", "minilm by highest value", "minilm untrained"),
        ("S5", "minilm", "minilm untrained"),
        ("S4", "ngrams list_net", "ngrams"),
        ("S4", "ngrams list_net tau=.1", "ngrams"),
        ("S6", "ngrams + weighted BM25", "ngrams + BM25"),
    ),
    "docstrings": (
        ("D1", "ngrams + BM25", BM25),
        ("D2", "ngrams", BM25),
        ("D3", "ngrams", "ngrams untrained"),
        ("D4", "ngrams + weighted BM25 to 1/32", BM25),
        ("D5", "ngrams + weighted BM25", BM25),
    ),
}


def names_of(system: str) -> dict[str, str]:
    """System of a report -> its name in the csv. BM25, and a model without training, do not depend on the loss."""
    model = system.split()[0]
    fused = {FUSED: f"{system} + learned BM25", BEFORE_FUSED: f"{model} untrained + learned BM25"}
    return {TRAINED: system, BEFORE: f"{model} untrained", BM25: BM25, **fused}


def data_of(collection: str, fold: int, root: Path) -> list[str]:
    """Settings: the training questions of a fold, and its test questions; and a BM25 of words as they stand.

    The folders of docstrings are written if they are not there.
    """
    words = ["bm25.language=null", "bm25.k1=1.5", "bm25.b=0.75"]
    if collection == "docstrings":
        if not (root / collection).exists():
            docstrings.write(root / collection, docstrings.sample())
        return [f"data.root={root / collection / str(fold)}", *words]
    whole = ["data.test_fraction=0", f"fold={fold}/{FOLDS[collection]}", "evaluation.split=val"]
    return [f"data.root={root / collection}", *whole, *words]


def trained(system: str, data: Sequence[str], seed: int, encoder: Path | None) -> SearchReport:
    """The report of a training, on the questions of a fold."""
    words = [*SYSTEMS[system], *([f"model.name={encoder}"] if system.startswith("minilm") else [])]
    with tempfile.TemporaryDirectory() as folder:
        kept = [f"out={folder}/run", f"seed={seed}", "loggers=[]"]
        run = task.train(compose(["task=search", *data, *kept, *words]), quiet=True)
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


def tested(collection: str, queries: Path) -> list[dict[str, str]]:
    """A row for each comparison of `COMPARED` whose systems have values, as the verdict of a run tests them."""
    values = read(queries)
    found = {setting["system"]: values.units({"system": setting["system"]}, MAIN) for setting in values.settings}
    names = sorted({query for each in found.values() for query in each})
    table = {system: {MAIN: np.array([each.get(name, np.nan) for name in names])} for system, each in found.items()}
    rows = [each for each in COMPARED[collection] if {*each[1:]} <= {*table}]
    tests = differences(table, [MAIN], [(one, other) for _, one, other in rows], 0.95)
    return [
        {
            "hypothesis": hypothesis,
            "difference": f"{test.run} − {test.other}",
            "questions": str(test.queries),
            MAIN: f"{test.mean:+.1f}",
            "95 % interval": f"{test.low:+.1f} to {test.high:+.1f}",
            "p": chance(test.p),
            "p (Holm)": chance(test.corrected),
        }
        for (hypothesis, _, _), test in zip(rows, tests, strict=True)
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Train what the csv does not have yet, and print the tests of the hypotheses."""
    parser = command.parser_of(__doc__, "folder of the data sets", "papers/results/search")
    parser.add_argument("--collection", default="cranfield", choices=[*FOLDS])
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="all-MiniLM-L6-v2; needed for minilm")
    parser.add_argument("--systems", nargs="+", default=[*SYSTEMS], choices=[*SYSTEMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args(words)
    if given.encoder is None and "minilm" in given.systems:
        parser.error("minilm needs --encoder DIR; or choose others: --systems ngrams")
    collection: str = given.collection
    means, queries = (given.values / f"{collection}{part}.csv" for part in ("", "-queries"))
    for seed, system, fold in product(given.seeds, given.systems, range(1, FOLDS[collection] + 1)):
        # the last cell of a fold that depends on the system
        if ((("system", f"{system} + learned BM25"),), str(fold), str(seed)) in cells(means):
            continue
        report = trained(system, data_of(collection, fold, given.data_root), seed, given.encoder)
        add(report, system, fold, seed, means, queries)
        print(f"{system}, fold {fold}, seed {seed}", flush=True)
    print("\n".join("  ".join(row.values()) for row in tested(collection, queries)))


if __name__ == "__main__":
    command.run(main)
