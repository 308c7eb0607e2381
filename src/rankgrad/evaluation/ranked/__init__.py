"""Runs and judgements -> `Evaluation`: the measures of trec_eval and ir_measures, with intervals and paired tests.

A run is a list of documents with scores for each query; judgements say which documents are relevant, and how much.
Both come from files (`reading`), dictionaries, columns or matrices (`rows`).
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...checks import integer, number, unknown
from ...files import atomic_write, shown, write_text
from ...tables import aligned
from .comparison import Difference, differences, intervals, pairs_of
from .measures import USUAL, Lists, asked, averaged, meaning, summed
from .placing import Judgements, Placed, placed, some
from .reading import QRELS, RUN, read
from .rows import Source, from_columns, from_mapping, from_matrix, from_scores
from .texts import Array

__all__ = ["Difference", "Evaluation", "evaluate", "from_columns", "from_mapping", "from_matrix", "from_scores"]

Run = str | os.PathLike[str] | Source | Mapping[Any, Mapping[Any, float]]
PADDED = 0.05  # share of documents at the lowest score from which on it may be padding
MOST_TESTS = 20  # lines of tests in a printed table
Groups = str | os.PathLike[str] | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation of one or several runs found.

    Attributes:
        runs: their names.
        measures: their names.
        queries: names, in the order of their bytes.
        values: run -> measure -> one number: a mean over the queries, of counts a sum, of gm_map a geometric mean.
        per_query: run -> measure -> [query] float64; NaN where a query is not counted for the run.
        intervals: run -> measure -> (low, high) of the bootstrap over queries; of means only.
        differences: between the runs, by each measure that is a mean; empty for a single run.
        groups: name -> [member] rows of its queries.
        of_groups: a row for each group, run and measure: group, queries, run, measure, value, low, high.
        between_groups: differences as above, in each group.
        meanings: measure -> what it says.
        settings: everything that the numbers follow from but the files.
        notes: what a reader should know, one sentence each.
    """

    runs: tuple[str, ...]
    measures: tuple[str, ...]
    queries: tuple[str, ...]
    values: dict[str, dict[str, float]]
    per_query: dict[str, dict[str, Array]]
    intervals: dict[str, dict[str, tuple[float, float]]]
    differences: tuple[Difference, ...]
    groups: dict[str, Array]
    of_groups: tuple[dict[str, Any], ...]
    between_groups: tuple[Difference, ...]
    meanings: dict[str, str]
    settings: dict[str, Any]
    notes: tuple[str, ...]

    def by_query(self, run: str) -> dict[str, dict[str, float]]:
        """Query -> measure -> value, of the queries that count for a run: what pytrec_eval returns."""
        columns = self.per_query[run]
        inside = np.flatnonzero(~np.isnan(next(iter(columns.values())))).tolist()
        return {self.queries[row]: {name: float(column[row]) for name, column in columns.items()} for row in inside}

    def lines(self, run: str, *, every: bool = False) -> list[str]:
        """The lines that trec_eval prints of these measures.

        Args:
            run: its name.
            every: for each query too, as `trec_eval -q` does.
        """
        printed = []
        for row, query in enumerate(self.queries) if every else ():
            for name, column in self.per_query[run].items():
                if name not in ("num_q", "gm_map") and not np.isnan(column[row]):
                    printed.append(f"{name:<22}\t{shown(query)}\t{_printed(name, float(column[row]))}")
        return [*printed, *(f"{name:<22}\tall\t{_printed(name, value)}" for name, value in self.values[run].items())]

    def __str__(self) -> str:
        head = ["measure", *map(shown, self.runs)]
        rows = [[name, *(self._cell(run, name) for run in self.runs)] for name in self.measures]
        sure = f"in brackets: {100 * self.settings['confidence']:g} % interval over queries"
        tested = [["difference", "measure", "mean", "interval", "p (Holm)", "detectable"]]
        shown_tests = [found for found in self.differences if found.measure == self.differences[0].measure][:MOST_TESTS]
        for found in shown_tests:
            tested.append(
                [
                    f"{shown(found.run)} - {shown(found.other)}",
                    found.measure,
                    f"{found.mean:+.4f}",
                    f"{found.low:+.4f} to {found.high:+.4f}",
                    f"{found.corrected:.2g}",
                    f"{found.detectable:.4f}",
                ]
            )
        left = len(self.differences) - len(shown_tests)
        parts = [aligned([head, *rows]), *([sure] if any(self.intervals.values()) else [])]
        if self.differences:
            parts += ["", aligned(tested, left=2)]
            if left:
                parts.append(
                    f"{left:,} more tests, of the other measures and runs, are in `differences` and on the page"
                )
        return "\n".join([*parts, *(["", *self.notes] if self.notes else [])])

    def _cell(self, run: str, name: str) -> str:
        around = self.intervals[run].get(name)
        return _printed(name, self.values[run][name]) + (f" [{around[0]:.3f}, {around[1]:.3f}]" if around else "")

    def to_json(self) -> str:
        """Everything, as JSON."""
        found = asdict(self)
        found["version"] = 1
        return json.dumps(_plain(found), allow_nan=False)

    def write(self, folder: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write a page, and beside it the numbers as csv and json.

        evaluation.html, evaluation.json, values.csv, per-query.csv, and where there is something to write
        differences.csv and groups.csv.

        Args:
            folder: made if it is not there. Files of these names are replaced.
            title: heading of the page; None: the names of the runs.

        Returns:
            The page.
        """
        from .page import write_page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "evaluation.json", self.to_json() + "\n")
        bounds = {(run, name): self.intervals[run].get(name, ("", "")) for run in self.runs for name in self.measures}
        rows = [[run, name, self.values[run][name], *bounds[run, name]] for run in self.runs for name in self.measures]
        _write_csv(folder / "values.csv", ["run", "measure", "value", "low", "high"], rows)
        with_each = []
        for run in self.runs:
            columns = [column.tolist() for column in self.per_query[run].values()]
            with_each += [[run, *row] for row in zip(self.queries, *columns, strict=True) if row[1] == row[1]]
        _write_csv(folder / "per-query.csv", ["run", "query", *self.measures], with_each)
        if self.differences:
            found = [asdict(each) for each in (*self.differences, *self.between_groups)]
            _write_csv(folder / "differences.csv", list(found[0]), [list(row.values()) for row in found])
        if self.of_groups:
            names = list(self.of_groups[0])
            _write_csv(folder / "groups.csv", names, [list(row.values()) for row in self.of_groups])
        return write_page(folder / "evaluation.html", self, title=title)


def evaluate(
    runs: Run | Sequence[str | os.PathLike[str]] | Mapping[str, Run],
    qrels: Run,
    measures: Sequence[str] = USUAL,
    *,
    level: int = 1,
    gains: Mapping[int, float] | None = None,
    missing: Literal["zero", "skip"] = "zero",
    depth: int | None = None,
    judged_only: bool = False,
    groups: Groups | None = None,
    baseline: str | None = None,
    bootstrap: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    trec_eval: Literal[9, 10] = 10,
) -> Evaluation:
    """Measure ranked lists against judgements, with the numbers of trec_eval.

    Documents are ranked by their scores, highest first; of equal scores the later name (in the order of bytes) comes
    first. Documents that are not judged count as irrelevant, except in bpref; relevant documents that were not
    retrieved count as missed.

    Args:
        runs: name -> run, or one or several files, called by their names. A run is a file (`reading.read`), a mapping
            query -> document -> score, or what `from_columns`, `from_matrix` and `from_scores` make of arrays.
        qrels: judgements, in any of these forms, with integer grades in the place of scores.
        measures: names as `measures.asked` takes them; "official" are those that trec_eval prints by itself.
        level: lowest grade that is relevant. A measure may have its own: "AP(rel=2)".
        gains: grade -> what it is worth to ndcg; other grades are worth themselves.
        missing: what a judged query without a list counts. "zero": 0 for every measure (trec_eval -c); "skip": it is
            left out of the means of this run, and of its tests.
        depth: lists are cut after so many documents (trec_eval -M).
        judged_only: documents without a judgement are taken out of the lists (trec_eval -J).
        groups: query -> group, or a csv with the columns query and group, where a query may stand several times.
        baseline: a run; the others are tested against it alone. None: each against each.
        bootstrap: resamples of the queries for the intervals; 0: none.
        confidence: coverage of the intervals.
        seed: of the bootstrap.
        trec_eval: whose numbers. 10 compares scores in double precision and rounds recall points; 9, and pytrec_eval,
            in single precision, and cuts recall points off after adding .9.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a damaged file, a document twice in one list, a score that is no number, a measure that is not
            known, no query that is in both; naming file and line.
        TypeError: a run of another kind.

    >>> run = {"q1": {"d1": 0.9, "d2": 0.8, "d3": 0.7}, "q2": {"d1": 0.5}}
    >>> found = evaluate({"mine": run}, {"q1": {"d2": 1}, "q2": {"d1": 2, "d9": 1}}, ["map", "nDCG@10"], bootstrap=0)
    >>> found.values["mine"]["map"], round(found.by_query("mine")["q2"]["ndcg_cut_10"], 4)
    (0.5, 0.7602)
    """
    wanted = asked(measures)
    level = integer(level, "level is the lowest relevant grade", low=1)
    bootstrap = integer(bootstrap, "bootstrap is a number of resamples", low=0)
    seed = integer(seed, "seed begins the random numbers of the bootstrap", low=0)
    if not 0 < number(confidence, "confidence is a coverage") < 1:
        raise ValueError(f"confidence is a coverage and must lie between 0 and 1; got {confidence}")
    if depth is not None:
        depth = integer(depth, "depth counts the documents of a list", low=1)
    if missing not in ("zero", "skip"):
        raise ValueError(f"missing must be 'zero' or 'skip'; got {missing!r}")
    if trec_eval not in (9, 10):
        raise ValueError(f"trec_eval is the version whose numbers are wanted, 9 or 10; got {trec_eval!r}")
    sources = _runs(runs)
    if baseline is not None and baseline not in sources:
        raise ValueError(unknown("baseline", baseline, sources))
    judgements = Judgements.of(_source(qrels, "qrels", "qrels"))
    of_group = {} if groups is None else _groups(groups, judgements.queries)

    values: dict[str, dict[str, float]] = {}
    per_query: dict[str, dict[str, Array]] = {}
    around: dict[str, dict[str, tuple[float, float]]] = {}
    means = [str(measure) for measure in averaged(wanted)]
    notes: list[str] = []
    everyone = np.arange(len(judgements.queries))
    for name, source in sources.items():
        found = placed(source, judgements, single=trec_eval == 9)
        notes += _about(name if len(sources) > 1 else "", found, judgements, missing)
        inside = found.listed > 0 if missing == "skip" else np.ones(len(everyone), bool)
        found = found if depth is None else found.cut(depth)
        found = found.judged_only() if judged_only else found
        lists = Lists(found, judgements, dict(gains or {}), early=trec_eval == 9)
        columns = {str(measure): measure.values(lists, level) for measure in wanted}
        values[name] = {str(measure): summed(measure, columns[str(measure)][inside]) for measure in wanted}
        per_query[name] = {each: np.where(inside, column, np.nan) for each, column in columns.items()}
        around[name] = _bounds(per_query[name], means, everyone, bootstrap, confidence, seed)
    unanswerable = int((Lists(found, judgements).relevant(level).known == 0).sum())
    if unanswerable:
        notes.append(
            f"Judged queries without a relevant document: {unanswerable:,} of {len(judgements.queries):,}. They count "
            "0, as in trec_eval."
        )
    pairs = pairs_of(list(sources), baseline)
    tested, inside_groups = [], []
    if pairs:
        try:
            tested = differences(per_query, means, pairs, {"": everyone}, confidence)
            inside_groups = differences(per_query, means, pairs, of_group, confidence)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("scipy"):
                raise
            notes.append("No tests between the runs: they need scipy, which is not installed.")
    return Evaluation(
        runs=tuple(sources),
        measures=tuple(map(str, wanted)),
        queries=judgements.queries,
        values=values,
        per_query=per_query,
        intervals=around,
        differences=tuple(tested),
        groups=of_group,
        of_groups=tuple(_group_rows(per_query, means, of_group, bootstrap, confidence, seed)),
        between_groups=tuple(inside_groups),
        meanings={str(measure): meaning(measure) for measure in wanted},
        settings={
            "level": level,
            "gains": {str(grade): gain for grade, gain in (gains or {}).items()},
            "missing": missing,
            "depth": depth,
            "judged_only": judged_only,
            "baseline": baseline,
            "bootstrap": bootstrap,
            "confidence": confidence,
            "seed": seed,
            "trec_eval": trec_eval,
            "judgements": len(judgements.grades),
        },
        notes=tuple(notes),
    )


# ---------------------------------------------------------------------------------------------------------- the input


def _runs(runs: Any) -> dict[str, Source]:
    if isinstance(runs, (str, os.PathLike, Source)):
        runs = [runs]
    if isinstance(runs, Mapping):
        single = next((each for each in runs.values() if isinstance(each, Mapping) and each), None)
        if single is not None and not isinstance(next(iter(single.values())), Mapping):
            raise TypeError(
                "runs is a mapping from the name of a run to the run, and this is one run, a mapping from queries to "
                "documents: give {'a name': it}"
            )
        named = {str(name): _source(run, str(name), "run") for name, run in runs.items()}
    else:
        sources = [_source(run, "", "run") for run in runs]
        short = [run.name if isinstance(run, Source) else _called(Path(run)) for run in runs]
        # files of one name in different folders are called by their paths
        called = [one if short.count(one) == 1 else each.name for one, each in zip(short, sources, strict=True)]
        named = dict(zip(called, sources, strict=True))
        if len(named) < len(sources):
            twice = next(name for name in called if called.count(name) > 1)
            raise ValueError(f"the run {twice!r} was given twice")
    if not named:
        raise ValueError("there is no run to evaluate")
    return named


def _called(path: Path) -> str:
    """A file by its name, without the endings of its kind."""
    name = path.name.removesuffix(".gz")
    for ending in (".trec", ".run", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".res"):
        name = name.removesuffix(ending)
    return name or path.name


def _source(given: Any, name: str, what: str) -> Source:
    if isinstance(given, Source):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read(given, RUN if what == "run" else QRELS)
    if isinstance(given, Mapping):
        return from_mapping(given, repr(name))
    raise TypeError(
        f"a {what} is a file, a mapping query -> document -> number, or what from_columns, from_matrix and from_scores "
        f"make of arrays; got {type(given).__name__}"
    )


def _groups(given: Groups, queries: Sequence[str]) -> dict[str, Array]:
    """Group -> rows of its queries; queries that are not judged are left out."""
    if isinstance(given, Mapping):
        pairs = [(str(query), str(group)) for query, group in given.items()]
    else:
        pairs = _group_file(Path(given))
    row = {query: place for place, query in enumerate(queries)}
    found: dict[str, set[int]] = {}
    for query, group in pairs:
        if query in row:
            found.setdefault(group, set()).add(row[query])
    if not found:
        raise ValueError(f"none of the {len(pairs)} queries with a group is judged")
    return {group: np.array(sorted(rows)) for group, rows in sorted(found.items())}


def _group_file(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is None or not {"query", "group"} <= set(reader.fieldnames):
            raise ValueError(
                f"{shown(path)} must have a header with the columns query and group; it has "
                f"{', '.join(map(shown, reader.fieldnames or ())) or 'nothing'}"
            )
        found = []
        for row in reader:
            if not row["query"] or not row["group"]:
                raise ValueError(f"{shown(path)}, line {reader.line_num}: a query and a group are needed")
            found.append((row["query"], row["group"]))
        return found


def _about(name: str, found: Placed, judgements: Judgements, missing: str) -> list[str]:
    """What is done about queries that are on one side only, and about scores that look like padding."""
    run = f"the run {shown(name)}" if name else "the run"
    notes = []
    lacking = [judgements.queries[row] for row in np.flatnonzero(found.listed == 0).tolist()]
    if lacking:
        fate = "count 0 in every measure" if missing == "zero" else "are left out of the means"
        notes.append(
            f"Judged queries without a list in {run}: {len(lacking):,} of {len(judgements.queries):,} "
            f"({some(lacking)}). They {fate}."
        )
    if found.unknown:
        notes.append(
            f"Queries of {run} without judgements: {len(found.unknown):,} ({some(found.unknown)}). They are left out."
        )
    listed = int(found.listed.sum())
    if found.at_lowest > max(PADDED * listed, 2 * int((found.listed > 0).sum())):
        notes.append(
            f"Documents of {run} with the lowest score, {found.lowest:g}: {found.at_lowest:,} of {listed:,}. They "
            "count as retrieved. If this score marks documents that were not retrieved, leave them out of the run."
        )
    return notes


# --------------------------------------------------------------------------------------------------------- the output


def _bounds(
    columns: Mapping[str, Array], means: Sequence[str], rows: Array, bootstrap: int, confidence: float, seed: int
) -> dict[str, tuple[float, float]]:
    return intervals({name: columns[name] for name in means}, rows, bootstrap, confidence, seed)


def _group_rows(
    per_query: Mapping[str, Mapping[str, Array]],
    means: Sequence[str],
    groups: Mapping[str, Array],
    bootstrap: int,
    confidence: float,
    seed: int,
) -> list[dict[str, Any]]:
    found = []
    for group, rows in groups.items():
        for run, columns in per_query.items():
            bounds = _bounds(columns, means, rows, bootstrap, confidence, seed)
            for name in means:
                known = columns[name][rows]
                known = known[~np.isnan(known)]
                low, high = bounds.get(name, (None, None))
                row = {"group": group, "queries": len(known), "run": run, "measure": name}
                found.append(row | {"value": float(known.mean()) if len(known) else None, "low": low, "high": high})
    return found


def _printed(name: str, value: float) -> str:
    """A number as trec_eval prints it."""
    return f"{value:.0f}" if name.startswith("num_") else f"{value:6.4f}"


def _write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic_write(path) as opened, io.TextIOWrapper(opened, encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def _plain(value: Any) -> Any:
    """What json knows; NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return None if isinstance(value, float) and value != value else value
