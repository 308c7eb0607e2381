"""Lists of several systems -> `SearchReport`: metrics, intervals, paired tests, a verdict in words, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import aligned
from rankgrad.evaluation import Bootstrap
from rankgrad.evaluation.json_report import DIFFERENCE, JSONReport

from ... import trec
from ...files import write_text
from ...trec.comparison import chance, is_silent
from ...trec.files import as_field
from ...trec.lists import Source
from .bm25 import Words
from .collection import Array, Collection
from .encoders import Found
from .reading import beginning
from .sizes import Size

#: Name of a metric here -> its name in `trec`.
METRICS = {"NDCG@10": "ndcg_cut_10", "MRR@10": "recip_rank_10", "Recall@100": "recall_100"}
MAIN = "NDCG@10"
BEFORE, TRAINED, BM25 = "before training", "trained", "BM25"
BEFORE_FUSED, FUSED = f"{BEFORE} + {BM25}", f"{TRAINED} + {BM25}"
#: What is handed over, in the order of what it asks for -> what that is.
_ONCE, _AGAIN = "the documents are embedded once", "the documents are embedded again"
PRICES = {BM25: "no embeddings", BEFORE: _ONCE, BEFORE_FUSED: _ONCE, TRAINED: _AGAIN, FUSED: _AGAIN}
#: System -> its file of lists in TREC's form.
LISTS = {BEFORE: "before.trec", TRAINED: "trained.trec", BM25: "bm25.trec", FUSED: "fusion.trec"}
LISTS |= {BEFORE_FUSED: "before-fusion.trec"}
QRELS = "qrels.trec"
# words of notes on files of others: BM25 has no list for a query whose words no document has, and may give equal
# scores to all documents of a list
OF_RUN_FILES = ("Judged queries without a list", "Documents of the run", "not compared with other runs")
EXAMPLES, SHOWN, LONGEST = 8, 5, 240  # queries of each kind, documents of a list, characters of a text on the page


# Shapes of the records of a report, see `json_report.fits`.
VALUES: Any = {**dict.fromkeys(METRICS, float), str: float}
DOCUMENT: Any = {"name": str, "text": str, "grade": (float, None)}
EXAMPLE: Any = {"name": str, "text": str, "values": {"trained": float, str: float}, "found": {str: [DOCUMENT]}}
EXAMPLE |= {"missed": [DOCUMENT]}
#: Of `systems.Chosen`.
CHOSEN: Any = {"words": {"language": (str, None), "k1": float, "b": float}, "weights": {str: [float]}}
CHOSEN |= {"system": (str, None), "values": {str: float}}
LESS: Any = {"mean": float, "low": float, "high": float}
SIZE: Any = {"name": str, "bytes": int, "values": VALUES, "difference": (None, LESS)}


@dataclass(frozen=True, eq=False)
class SearchReport(JSONReport):
    """The result of a run: the trained model, and the systems that it is compared with.

    Attributes:
        values: metric -> mean of the trained model over the test queries.
        intervals: metric -> (low, high) of the bootstrap over queries.
        per_query: metric -> [query] of the trained model.
        systems: system -> "values", "intervals", and "per_query" with the main metric.
        tests: paired tests, see `trec.Difference`; the p are corrected by Holm over all tests of a metric.
        verdict: sentences: is the model better than BM25, and than it was before.
        examples: best and worst queries: what each system found, and what was missed.
        query_names: [query] names.
        counts: queries, documents, judgements.
        settings: of the evaluation.
        notes: remarks, one sentence each.
        sizes: smaller embeddings of the trained model: "name", "bytes" of a document, "values", and "difference" from
            the whole embeddings in the main metric; see `sizes`.
    """

    systems: dict[str, Any]
    tests: list[dict[str, Any]]
    verdict: tuple[str, ...]
    examples: list[dict[str, Any]]
    query_names: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
    sizes: tuple[dict[str, Any], ...] = ()

    kind = "a report of a search"
    shapes = {
        **JSONReport.shapes,
        "counts": {"queries": int, "documents": int, str: int},
        "settings": {"confidence": float, "chosen": (CHOSEN, None)},
        "values": VALUES,
        "systems": {str: {"values": VALUES, "intervals": {str: [float]}, "per_query": [(float, None)]}},
        "tests": [DIFFERENCE],
        **{"verdict": [str], "query_names": [str], "examples": [EXAMPLE], "sizes": [SIZE]},
    }

    @classmethod
    def _fitting(cls, content: dict[str, Any]) -> dict[str, bool]:
        around = [bounds for each in content["systems"].values() for bounds in each["intervals"].values()]
        return super()._fitting(content) | {"systems": all(len(bounds) == 2 for bounds in around)}

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> dict[str, Any]:
        return super()._restored(content) | {name: tuple(content[name]) for name in ("verdict", "query_names", "sizes")}

    def __str__(self) -> str:
        systems = [["per cent", *METRICS]]
        for name, found in self.systems.items():
            around = {each: f" [{100 * low:.1f}, {100 * high:.1f}]" for each, (low, high) in found["intervals"].items()}
            systems.append([name, *(f"{100 * found['values'][each]:.1f}{around.get(each, '')}" for each in METRICS)])
        tests = [["difference", MAIN, "p (Holm)"]]
        for test in (test for test in self.tests if test["metric"] == MAIN):
            tests.append([f"{test['run']} - {test['other']}", _points(test), chance(test["corrected"])])
        sizes = [["embedding", "bytes", *METRICS, f"difference in {MAIN}"]]
        for size in self.sizes:
            values = [f"{100 * size['values'][each]:.1f}" for each in METRICS]
            sizes.append([size["name"], f"{size['bytes']:,}", *values, _points(size["difference"])])
        said = "\n\n".join(aligned(rows) for rows in (systems, tests, sizes) if len(rows) > 1)
        return "\n".join([said, "", *self.verdict, *self.notes])


def _points(difference: Mapping[str, float] | None) -> str:
    """A difference with its interval, in points."""
    if difference is None:
        return ""
    mean, low, high = (100 * difference[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def main_values(found: Found, collection: Collection, rows: Array, split: str) -> Array:
    """[query] NDCG@10 of lists for these queries of a split, in their order."""
    runs = {TRAINED: as_run(found, collection, rows)}
    made = trec.evaluate(runs, collection.qrels(split), [METRICS[MAIN]], intervals=0)
    place = {name: at for at, name in enumerate(made.queries)}
    order = [place[collection.queries.names[row]] for row in rows.tolist()]
    values: Array = made.per_query[TRAINED][METRICS[MAIN]][order]
    return values


def as_run(found: Found, collection: Collection, rows: Array) -> Source:
    """The lists by the names of queries and documents. Of equal scores the later name is first, as in trec_eval.

    Args:
        found: the lists; all may be empty, as those of BM25 are if queries and documents share no word.
        collection: queries and documents.
        rows: [query] rows of the queries.
    """
    names = np.array([*collection.documents.names, ""], object)[found.document]
    queries = [collection.queries.names[row] for row in rows.tolist()]
    return replace(trec.from_matrix(names.astype(str), found.score, queries), empty=True)


def write_lists(folder: Path, lists: Mapping[str, Found], collection: Collection) -> None:
    """Write the lists of each system, and the judgements of the test queries, as files of TREC into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = collection.rows("test")
    queries = replace(collection.queries, names=words(collection.queries.names, first=True))
    documents = replace(collection.documents, names=words(collection.documents.names))
    named = replace(collection, queries=queries, documents=documents)
    for system, found in lists.items():
        trec.write_run(as_run(found, named, rows), folder / LISTS[system], *words([system]))
    judged = [(query, *each) for query, grades in named.qrels("test").items() for each in grades.items()]
    write_text(folder / QRELS, "".join(f"{query} 0 {document} {grade}\n" for query, document, grade in judged))


def words(names: Sequence[str], first: bool = False) -> Sequence[str]:
    """Names as fields of a file of TREC: without white space and control characters, and all different.

    Args:
        names: all different.
        first: whether they begin a line, where # begins a comment.

    >>> words(["a b", "a_b", "#1"]), words(["#1"], first=True)
    (['a_b_0', 'a_b_1', '#1_2'], ['_#1'])
    """
    made = ["_" * (first and name.startswith("#")) + as_field(name) for name in names]
    return made if len({*made}) == len(made) else [f"{word}_{row}" for row, word in enumerate(made)]


def _evaluated(systems: Mapping[str, Found], collection: Collection, split: str, **how: Any) -> trec.Evaluation:
    runs = {name: as_run(found, collection, collection.rows(split)) for name, found in systems.items()}
    return trec.evaluate(runs, collection.qrels(split), list(METRICS.values()), **how)


def _values(found: trec.Evaluation, name: str) -> dict[str, float]:
    return {ours: found.values[name][theirs] for ours, theirs in METRICS.items()}


def evaluate_systems(
    systems: Mapping[str, Found],
    collection: Collection,
    split: str = "test",
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    pretrained: bool = False,
    smaller: Mapping[str, Size] | None = None,
    chosen: Mapping[str, Any] | None = None,
    kept: str | None = None,
) -> SearchReport:
    """Compare the trained model with other systems.

    Args:
        systems: name -> lists of the queries `collection.rows(split)`; one is `TRAINED`.
        collection: queries, documents and judgements.
        split: whose queries are the test.
        bootstrap: number of resamples of the queries for the intervals.
        seed: of the bootstrap.
        pretrained: whether the untrained model is one that could be used as it is.
        smaller: smaller embeddings of the trained model, the whole ones first, see `sizes`.
        chosen: what the validation queries have chosen, see `systems.Chosen`; None: nothing was chosen.
        kept: why the model is kept as it was before the training; None: it is not.
    """
    rows = collection.rows(split)
    names = [collection.queries.names[row] for row in rows.tolist()]
    found = _evaluated(systems, collection, split, intervals=Bootstrap(resamples=bootstrap, seed=seed))
    order = [found.queries.index(name) for name in names]
    table: dict[str, Any] = {
        name: {
            "values": _values(found, name),
            "intervals": {ours: found.intervals[name][theirs] for ours, theirs in METRICS.items() if bootstrap},
            "per_query": found.per_query[name][METRICS[MAIN]][order].tolist(),
        }
        for name in systems
    }
    back = {theirs: ours for ours, theirs in METRICS.items()}
    tests = [asdict(each) | {"metric": back[each.metric]} for each in found.differences]
    silent = int((systems[BM25].document < 0).all(1).sum()) if BM25 in systems else 0
    notes = [note for note in found.notes if not any(words in note for words in OF_RUN_FILES)]
    if silent:
        notes.append(f"Queries without a word of any document, for which BM25 finds nothing: {silent:,}.")
    if chosen is not None:
        notes.append(f"BM25 has {Words(**chosen['words'])}.")
    return SearchReport(
        values=table[TRAINED]["values"],
        intervals=table[TRAINED]["intervals"],
        per_query={ours: found.per_query[TRAINED][theirs][order] for ours, theirs in METRICS.items()},
        systems=table,
        tests=tests,
        verdict=tuple(verdict(table, tests, 1 - found.settings["confidence"], pretrained, kept, silent, chosen)),
        examples=_examples(systems, table, collection, rows, split),
        query_names=tuple(names),
        counts={"queries": len(rows), "documents": len(collection.documents)}
        | {"judgements": found.settings["judgements"]},
        settings={name: found.settings[name] for name in ("bootstrap", "confidence", "seed")}
        | {"chosen": chosen, "kept": kept},
        notes=tuple(notes),
        sizes=_sized(smaller or {}, collection, split),
    )


def _sized(smaller: Mapping[str, Size], collection: Collection, split: str) -> tuple[dict[str, Any], ...]:
    """The rows of `SearchReport.sizes`."""
    if not smaller:
        return ()
    lists = {name: size.found for name, size in smaller.items()}
    found = _evaluated(lists, collection, split, intervals=0, baseline=next(iter(smaller)))
    less = {each.run: asdict(each) for each in found.differences if each.metric == METRICS[MAIN]}
    return tuple(
        {"name": name, "bytes": size.bytes, "values": _values(found, name), "difference": less.get(name)}
        for name, size in smaller.items()
    )


def verdict(
    systems: Mapping[str, Any],
    tests: Sequence[Mapping[str, Any]],
    level: float = 0.05,
    pretrained: bool = False,
    kept: str | None = None,
    silent: int = 0,
    chosen: Mapping[str, Any] | None = None,
) -> list[str]:
    """What the tests of the main metric say, in words.

    Args:
        systems: see `SearchReport`.
        tests: see `SearchReport`.
        level: significance level of a corrected p.
        pretrained: whether the untrained model is one that could be used as it is. What is below BM25 or below such a
            model should not be used.
        kept: see `evaluate_systems`.
        silent: number of queries for which BM25 finds nothing. If these are more than a few, it is no baseline.
        chosen: see `evaluate_systems`.

    >>> values = {"before training": 0.2, "trained": 0.3, "BM25": 0.4}
    >>> systems = {name: {"values": {"NDCG@10": value}} for name, value in values.items()}
    >>> test = {"run": "BM25", "other": "trained", "metric": "NDCG@10", "mean": 0.1, "corrected": 0.001}
    >>> verdict(systems, [test])
    ['Do not use this model: it is below BM25, which you had (NDCG@10 30.0 and 40.0, p 0.001).']
    """
    main = {name: each["values"][MAIN] for name, each in systems.items()}

    compared = partial(_compared, main, tests, level)
    queries = len(systems[TRAINED].get("per_query", ()))
    works, said = not is_silent(silent, queries), [] if kept is None else [kept]
    if (system := (chosen or {}).get("system")) in main:
        own = TRAINED if kept is not None else BEFORE if pretrained else BM25
        had = max((name for name in (BM25, own) if name in main), key=main.__getitem__)
        said.insert(0, _handed_over(system, had, compared(system, had), kept is not None))
    if not works:
        said.append(
            f"No verdict against BM25: it finds nothing for {silent:,} of {queries:,} questions, so it is no baseline "
            "here."
        )
    for other, there in ((BM25, works), (BEFORE, pretrained and kept is None)):
        if there and other in main:
            sign, numbers = compared(TRAINED, other)
            called = "BM25" if other == BM25 else "the model without training"
            said.append(
                {
                    -1: f"Do not use this model: it is below {called}, which you had {numbers}.",
                    0: f"No measurable difference from {called} {numbers}.",
                    1: f"Better than {called} {numbers}.",
                }[sign]
            )
    if FUSED in main:
        best = max((BM25, TRAINED), key=main.__getitem__) if works else TRAINED
        sign, numbers = compared(FUSED, best)
        words = {1: "is better than", -1: "is below", 0: "shows no measurable difference from"}[sign]
        said.append(f"The fusion with BM25 {words} {'BM25' if best == BM25 else 'the model'} alone {numbers}.")
    return said


def _compared(
    main: Mapping[str, float], tests: Sequence[Mapping[str, Any]], level: float, one: str, other: str
) -> tuple[int, str]:
    """(1: better, -1: worse, 0: no measurable difference; the numbers in brackets)."""
    test = next((t for t in tests if t["metric"] == MAIN and {t["run"], t["other"]} == {one, other}), None)
    p = test["corrected"] if test else None
    how = f"p {chance(p)}" if p is not None else "too few queries for a test" if test else "not tested"
    sign = 0 if test is None or p is None or p >= level else 1 if (test["mean"] > 0) == (test["run"] == one) else -1
    return sign, f"({MAIN} {100 * main[one]:.1f} and {100 * main[other]:.1f}, {how})"


def _handed_over(system: str, had: str, compared: tuple[int, str], kept: bool) -> str:
    """Which system to use, and how it is on the test queries beside the best that there was without training."""
    was = "the model as it was"
    model = was if kept else "the trained model"
    called = {BM25: BM25, BEFORE: was, BEFORE_FUSED: f"the fusion of {was} with BM25"}
    called |= {TRAINED: model, FUSED: f"the fusion of {model} with BM25"}
    price = _ONCE if kept and system != BM25 else PRICES[system]
    said = f"Use {called[system]} ({price}), which the validation queries chose"
    if system == had:
        return f"{said}."
    beside = {1: "better than", 0: "no measurable difference from", -1: "below"}[compared[0]]
    return f"{said}: on the test queries {beside} {called[had]}, which you had {compared[1]}."


def _examples(
    systems: Mapping[str, Found], table: Mapping[str, Any], collection: Collection, rows: Array, split: str
) -> list[dict[str, Any]]:
    """The queries with the lowest and the highest main metric of the trained model."""
    value = np.array(table[TRAINED]["per_query"])
    gap = value - np.array(table[BM25]["per_query"]) if BM25 in table else value
    worst = np.lexsort((gap, value))
    judged, documents, queries = collection.qrels(split), collection.documents, collection.queries
    place = {name: row for row, name in enumerate(documents.names)}
    shown = []
    for at in dict.fromkeys([*worst[:EXAMPLES].tolist(), *worst[::-1][:EXAMPLES].tolist()]):
        grades = judged[queries.names[rows[at]]]

        def told(found: Iterable[int], grades: Mapping[str, int] = grades) -> list[dict[str, Any]]:
            parts = [(documents.names[row], beginning(documents.texts[row], LONGEST)) for row in found if row >= 0]
            return [{"name": name, "text": text, "grade": grades.get(name)} for name, text in parts[:SHOWN]]

        lists = {name: systems[name].document[at].tolist() for name in (TRAINED, BM25) if name in systems}
        seen = {row for found in lists.values() for row in found[:10]}
        missed = [place[name] for name, grade in grades.items() if grade > 0 and place[name] not in seen]
        shown.append(
            {
                "name": queries.names[rows[at]],
                "text": beginning(queries.texts[rows[at]], 2 * LONGEST),
                "values": {system: table[system]["per_query"][at] for system in systems},
                "found": {system: told(found[:SHOWN]) for system, found in lists.items()},
                "missed": told(missed[:SHOWN]),
            }
        )
    return shown


__all__ = ["SearchReport", "evaluate_systems", "verdict"]
