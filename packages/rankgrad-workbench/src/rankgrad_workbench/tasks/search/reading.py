"""Files -> `Collection`: a folder of BEIR, qrels of TREC beside a corpus, and tables of pairs or triplets of texts."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankgrad.common.checks import setting
from rankgrad.common.text import brief, shown

from ...datasets.division import CALLED, split_called
from ...datasets.tabular import AUTO, as_split, word
from ...datasets.text import LINES, plain_lines
from ...files.tables.delimited import other_delimiter
from ...files.tables.formats import of_texts, read_rows
from ...files.tables.parts import called, is_part, need_all
from ...files.tables.text import kind_of, stem_of
from ...trec import CODES
from ...trec.files import QRELS
from ...trec.files import read as read_list
from .collection import Collection, Judged, NamedTexts, StoredTexts, digest

LAYOUTS = (
    "a folder with corpus.jsonl, queries.jsonl and qrels/ (BEIR, MTEB); a table (jsonl, csv, parquet) with the columns "
    "query, document and grade, or query, pos and neg, or anchor, positive and negative; or a table of names with "
    "data.load.corpus=FILE and data.load.queries=FILE"
)


def tables(folder: Path) -> dict[str, list[Path]]:
    """What the tables of a folder are called -> the files: one, or its parts. Tables in the sub-folders corpus and
    queries are called after these.

    Raises:
        ValueError: two files have the same name with other endings, or a part is missing.
    """
    files = [(called(file), file) for file in folder.iterdir()]
    for name in ("corpus", "queries"):
        files += [(name, file) for file in (folder / name).iterdir()] if (folder / name).is_dir() else []
    return _grouped((name, file) for name, file in files if file.is_file() and kind_of(file) in of_texts())


def judgements(folder: Path) -> tuple[list[tuple[Path, str]], list[str]]:
    """(files of judgements with their splits, names of files that are not read): those in qrels/, else qrels*. A file
    with another name than a split is read only if no file is named after one.

    Raises:
        ValueError: there is none.
    """
    inside = folder / "qrels"
    files = [*(inside.iterdir() if inside.is_dir() else folder.glob("qrels*"))]
    there = [file for file in files if file.is_file() and not file.name.startswith(".") and file.suffix != ".md"]
    if not there:
        raise ValueError(
            f"{shown(folder)} has no judgements: qrels/train.tsv, qrels/test.tsv, or qrels.tsv. Needed: {LAYOUTS}"
        )
    found = _grouped((re.sub("^qrels[-_.]", "", called(file)), file) for file in there)
    chosen, other = of_splits(found)
    return (chosen, other) if chosen else ([(file, "") for files in found.values() for file in files], [])


def of_splits(found: Mapping[str, list[Path]]) -> tuple[list[tuple[Path, str]], list[str]]:
    """(files that are named after a split, with it: train first; names of the other files)."""
    named = [(file, split_called(name)) for name, files in found.items() for file in files]
    # the test comes last: a query in several files is a test query
    chosen = sorted((each for each in named if each[1]), key=lambda each: list(CALLED).index(each[1]))
    return chosen, [file.name for file, split in named if not split]


def _grouped(named: Iterable[tuple[str, Path]]) -> dict[str, list[Path]]:
    """Name -> files. Parts are complete, and no two files differ only by their endings."""
    found: dict[str, list[Path]] = {}
    first: dict[Path, Path] = {}
    for name, file in sorted(named, key=lambda each: each[1]):
        before = first.setdefault(file.with_name(stem_of(file)), file)
        if before is not file:
            raise ValueError(f"{shown(file.parent)} holds {before.name} and {file.name}; keep one")
        found.setdefault(name, []).append(file)
    for files in found.values():
        need_all(files)
    return found


# Names of columns in the wild, ours first.
NAME = ("_id", "id", "docid", "doc_id", "document_id", "query_id", "qid", "pid", "docno")
TEXT = ("text", "contents", "content", "document", "passage", "query", "question")
QUERY = ("query", "anchor", "question", "sentence1")
DOCUMENT = ("document", "passage", "doc", "text", "answer", "sentence2")
DOCUMENT_NAME = ("document_id", "doc_id", "docid", "corpus-id")
GRADE = ("grade", "label", "relevance", "rel", "score")
SCORE = ("score", "teacher")
POSITIVE = ("pos", "positive", "positives", "positive_passages", "positive_ctxs")
NEGATIVE = ("neg", "negative", "negatives", "negative_passages", "negative_ctxs", "hard_negative_ctxs")
FEW_KNOWN = 0.5  # below this fraction of known names, judgements are those of another collection
LONGEST = 20_000  # characters that are kept of a text
HIGHEST_SCORE = 1e30  # that losses take
OTHER = (
    "Documents or queries alone: give their folder. Names of queries and documents: their texts are needed, "
    "data.load.corpus=FILE and data.load.queries=FILE (evaluate: --corpus FILE and --queries FILE). Texts with a "
    "class: data=text. Rows with a label: task=scores data=table. Users and items: see docs/recommenders.md"
)


def read(
    root: str | Path,
    *,
    corpus: str | None = None,
    queries: str | None = None,
    query: str = AUTO,
    document: str = AUTO,
    grade: str = AUTO,
    split: str | None = AUTO,
    delimiter: str | None = None,
) -> Collection:
    """Read a collection, whatever its layout: see `LAYOUTS`.

    Args:
        root: folder or file.
        corpus: file of the documents, with a name and a text each; None: in the folder, or the texts are in the table.
        queries: file of the queries, likewise.
        query: column of the queries in a table; "auto": the first of `QUERY` that it has.
        document: column of the documents; "auto": the first of `DOCUMENT`.
        grade: column of the grades; "auto": the first of `GRADE`; without one, every pair is relevant.
        split: column of the splits of the queries; "auto": split, if it exists; None: none.
        delimiter: of a csv.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the layout is unknown; a row is damaged; the judgements are those of another collection.
    """
    path = Path(root)
    made = _Builder(delimiter, [path, corpus, queries])
    found = tables(path) if path.is_dir() else {}
    given = {"corpus": corpus, "queries": queries}
    texts = {name: [Path(file)] if file else found.get(name, []) for name, file in given.items()}
    if any(texts.values()):
        for name, table in (("corpus", made.documents), ("queries", made.queries)):
            if not texts[name] or not texts[name][0].is_file():
                raise FileNotFoundError(
                    f"{shown(given[name] or path)} has no {name}: a file is needed, {name}.jsonl in a folder or "
                    f"{setting(name, 'FILE')}. Needed: {LAYOUTS}"
                )
            for file in texts[name]:
                made.read_texts(file, table)
        chosen, other = judgements(path) if path.is_dir() else ([(path, "")], [])
        for file, part in chosen:
            made.read_judgements(file, part)
    else:
        chosen, other = of_splits(found) if path.is_dir() else ([(path, "")], [])
        if not chosen:
            raise ValueError(
                f"{shown(path)} holds no queries and documents (folders of images: data=folder without task=search). "
                f"Needed: {LAYOUTS}"
            )
        if kind_of(chosen[0][0]) not in of_texts():
            raise ValueError(f"{shown(path)} is no table of texts ({', '.join(of_texts())}). {OTHER}")
        for file, part in chosen:
            made.read_pairs(file, (query, document, grade, split), part)
    made.said += [f"files that are not named after a split, not read: {', '.join(map(brief, other))}"] * bool(other)
    return made.collection(path)


def read_named(
    root: str | Path,
    what: Literal["corpus", "queries"],
    text: str = AUTO,
    delimiter: str | None = None,
) -> NamedTexts:
    """The documents or the queries of a collection; or of a file with a text a row, or a line (txt), and maybe names.

    Args:
        root: folder or file.
        what: "corpus" or "queries".
        text: column of the texts; "auto": the first of `TEXT`.
        delimiter: of a csv.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a row is damaged.
    """
    path = Path(root)
    made = _Builder(delimiter, [path])
    files = tables(path).get(what, []) if path.is_dir() else [path]
    if not files or (path.is_file() and text == AUTO and _holds_pairs(path, delimiter)):
        collection = read(path, delimiter=delimiter)
        return replace(collection.documents if what == "corpus" else collection.queries, notes=collection.notes)
    table = made.documents if what == "corpus" else made.queries
    for file in files:
        made.read_texts(file, table, text, needs_name=False)
    made.counted["documents without text, which a search may find"] = sum(each == digest("") for each in table.digests)
    return NamedTexts(tuple(table.row), table.texts, made.notes())


def beginning(text: str, longest: int = 240) -> str:
    """The beginning of a text, up to the end of a word if it has words."""
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0] or text[:longest]} …"


def _holds_pairs(path: Path, delimiter: str | None) -> bool:
    """Whether a file is a table of queries with documents."""
    row = {} if kind_of(path) == LINES else next((row for _, row in read_rows(path, delimiter)), {})
    return bool(_first(row, QUERY) and (_first(row, DOCUMENT) or any(map(_is_list, row))))


class _Table:
    """Names and texts, each name once. The texts are in a file."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.row: dict[str, int] = {}
        self.texts = StoredTexts()
        self.digests = array("Q")
        self.by_text: dict[int, int] = {}

    def add(self, name: str, text: str, place: str) -> int:
        """The row of a name. A name may come again with the same text."""
        known = self.row.setdefault(name, len(self.texts))
        if known == len(self.texts):
            self.texts.append(text)
            self.digests.append(digest(text))
        elif self.digests[known] != digest(text):
            raise ValueError(
                f"{place}: the {self.what} {brief(name)!r} is there before, with another text; give it another name"
            )
        return known

    def add_row(self, row: Any, names: Sequence[str], text: str, place: str) -> int:
        """The row of a text with the first of some names; without any, it is named after its place among the texts."""
        name = _first(row, names) if isinstance(row, Mapping) else None
        if name is not None:
            return self.add(word(row[name], name, place), text, place)
        known = digest(text)
        if known not in self.by_text:
            self.by_text[known] = self.add(f"{self.what[0]}{len(self.texts) + 1}", text, place)
        return self.by_text[known]


class _Builder:
    """What was read so far.

    Args:
        delimiter: of a csv.
        files: those that are read; the first one must exist.
    """

    def __init__(self, delimiter: str | None, files: Sequence[Path | str | None] = ()) -> None:
        self.delimiter = delimiter
        self.documents, self.queries = _Table("document"), _Table("query")
        self.pairs: dict[tuple[int, int], tuple[float, float]] = {}  # (query, document) -> (grade, score)
        self.split: dict[int, str] = {}
        self.counted: Counter[str] = Counter()
        if files and not Path(str(files[0])).exists():
            raise FileNotFoundError(f"there is no file or folder {shown(files[0])}")
        parts = [Path(file) for file in files if file is not None and is_part(Path(file))]
        self.said = [f"one of several parts, of which the others are not read: {brief(part.name)}" for part in parts]

    def notes(self) -> tuple[str, ...]:
        """What was left out, one sentence each."""
        return (*self.said, *(f"{what}: {count:,}" for what, count in self.counted.items() if count))

    # ---------------------------------------------------------------------------------------------- corpus and queries

    def read_texts(self, file: Path, table: _Table, text: str = AUTO, needs_name: bool = True) -> None:
        """The rows of a file of names and texts. Rows without a name are refused, or named after their line."""
        place = ""
        for place, row in plain_lines(file) if kind_of(file) == LINES else read_rows(file, self.delimiter):
            name = _first(row, NAME)
            if name is None and needs_name:
                raise ValueError(
                    f"{place} has no name: a column {', '.join(map(repr, NAME[:3]))} is needed; it has {_columns(row)}"
                )
            called = place.rpartition(", ")[2] if name is None else word(row[name], name, place)
            known = len(table.texts)
            if table.add(called, self.text_of(row, place, table, text), place) < known:
                self.counted[f"{table.what} lines that come twice; the first is kept"] += 1
        _need_rows(place, file)

    def text_of(self, row: Any, place: str, table: _Table, text: str = AUTO) -> str:
        """Title and text of a row, or a text itself."""
        parts = {"text": row}
        if isinstance(row, Mapping):
            column = _first(row, TEXT if text == AUTO else (text,))
            if column is None:
                needed = TEXT[0] if text == AUTO else text
                raise ValueError(f"{place} has no text: a column {needed!r} is needed; it has {_columns(row)}")
            parts = {"title": row.get("title"), column: row[column]}
        for name, part in parts.items():
            if not (part is None or isinstance(part, (str, int, float))):
                raise ValueError(f"{place}: a text is needed in {name!r}; got {type(part).__name__}")
        found = " ".join(str(part) for part in parts.values() if not _blank(part)).strip()
        found = found.encode("utf-8", "replace").decode("utf-8")
        if not found and table is self.queries:
            raise ValueError(f"{place}: the query has no text; give it one or remove the row")
        if len(found) > LONGEST:
            self.counted[f"{table.what} texts cut after {LONGEST:,} characters"] += 1
        return found[:LONGEST]

    # ------------------------------------------------------------------------------------------------------ judgements

    def read_judgements(self, file: Path, split: str) -> None:
        """The rows of a file of judgements by names, as `trec.files` reads it."""
        known = total = 0
        missing: dict[str, str] = {}  # queries or documents -> place of the first that is not there
        for part in read_list(file, QRELS).parts():
            row = self.queries.row.get(part.query)
            for number, (document, grade) in enumerate(zip(part.documents, part.values.tolist(), strict=True)):
                total += 1
                at = self.documents.row.get(document)
                if row is None or at is None:
                    what = "queries" if row is None else "documents"
                    missing.setdefault(what, part.place(number))
                    self.counted[f"judgements of {what} that are not there, left out"] += 1
                    continue
                known += 1
                self.judge(row, at, grade, math.nan, f"{shown(file)}, {part.place(number)}")
                self.place(row, split)
        _need_rows(total, file)
        if known < FEW_KNOWN * total:
            told = [f"{what}: the first in {place}" for what, place in missing.items()]
            raise ValueError(
                f"{shown(file)}: {total - known:,} of {total:,} judgements have names of another collection "
                f"({'; '.join(told)}). Give the corpus and the queries that were judged"
            )

    def read_pairs(self, file: Path, columns: tuple[str, str, str, str | None], split: str) -> None:
        """A table whose rows have the texts of queries and documents; its column of splits is read if split is ""."""
        query, document, grade, of_split = columns
        place = ""
        for place, row in read_rows(file, self.delimiter):
            asked = self.text_of(row[_column(row, query, QUERY, place, "query")], place, self.queries)
            at = self.queries.add_row(row, ("query_id", "qid", "query-id"), asked, place)
            column = of_split if of_split != AUTO else "split" if "split" in row else None
            self.place(at, as_split(word(row[column], column, place), place) if column and not split else split)
            for value, worth, score in self.documents_of(row, place, document, grade)[0]:
                text = self.text_of(value, place, self.documents)
                self.judge(at, self.documents.add_row(value, NAME, text, place), worth, score, place)
        _need_rows(place, file)

    def documents_of(
        self, row: Mapping[str, Any], place: str, document: str = AUTO, grade: str = AUTO
    ) -> tuple[list[tuple[Any, float, float]], str]:
        """(document, grade, score of a teacher or NaN) of each document of a row; and the column for such scores."""
        lists = sorted(filter(_is_list, row), key=lambda name: not _is_relevant(name)) if document == AUTO else []
        if lists:
            there = [(value, float(_is_relevant(name))) for name in lists for value in _listed(row[name])]
            scores, column = _scores(row, place), "scores"
        else:
            text, name = _column(row, document, DOCUMENT, place, "document"), _first(row, DOCUMENT_NAME)
            graded = _first(row, GRADE) if grade == AUTO else _column(row, grade, GRADE, place, "grade")
            scored = _first(row, [name for name in SCORE if name != graded])
            value = row[text] if name is None or _blank(row[text]) else {"docid": row[name], "text": row[text]}
            there = [(value, 1.0 if graded is None else _number(row[graded], place, graded))]
            scores = [] if scored is None else [_score(row[scored], place, scored)]
            column = "teacher" if graded in (None, "score") else "score"
        filled = [not _blank(value) for value, _ in there]
        if len(scores) == len(there):
            scores = [*compress(scores, filled)]
        there = [*compress(there, filled)]
        self.counted["empty places for documents, left out"] += len(filled) - len(there)
        if scores and len(scores) != len(there):
            raise ValueError(
                f"{place} has {len(scores)} scores for {len(there)} documents; give one for each, relevant ones first"
            )
        return [(*each, score) for each, score in zip(there, scores or [math.nan] * len(there), strict=True)], column

    def judge(self, query: int, document: int, grade: float, score: float, place: str) -> None:
        """Add a judgement. Of several for a pair, the highest grade counts: what answers in one row is an answer."""
        if not (math.isfinite(grade) and grade == int(grade) and abs(grade) < 2**31):
            raise ValueError(
                f"{place}: a grade is a whole number below 2^31, 0: irrelevant; got {grade:g}. Scores of a teacher are "
                "a column 'score' beside the grade"
            )
        if (query, document) in self.pairs:
            self.counted["judgements of pairs that are judged before; their highest grade counts"] += 1
            if grade <= self.pairs[query, document][0]:
                return
        self.pairs[query, document] = grade, score

    def place(self, query: int, split: str) -> None:
        """Put a query into a split; the last one counts."""
        if split and self.split.get(query, split) != split:
            self.counted[f"queries of two splits, used in the last one ({split})"] += 1
        self.split[query] = split or self.split.get(query, "")

    def collection(self, path: Path) -> Collection:
        """Everything that was read from a folder or file.

        Raises:
            ValueError: there is no document, no query, or no relevant pair.
        """
        columns = np.array([(*pair, *found) for pair, found in sorted(self.pairs.items())], np.float64).reshape(-1, 4).T
        (query, document), (grade, score) = columns[:2].astype(np.int64), columns[2:]
        if not (grade > 0).any():
            raise ValueError(
                f"{shown(path)}: none of the {len(grade):,} judgements is relevant (a grade above 0), so there is "
                "nothing to train or test on"
            )
        split = np.array([self.split.get(row, "") for row in range(len(self.queries.texts))], object)
        self.counted["grades below 0, taken as 0"] = int((grade < 0).sum())
        self.counted["queries without a judgement, not used"] = len(split) - len(np.unique(query))
        unscored = int(np.isnan(score).sum())
        if unscored < len(score):
            self.counted["judgements without a score of the teacher, beside others that have one"] = unscored
        for what, values in (("grade", grade), ("score of the teacher", score)):
            for value in values[np.isin(np.abs(values), CODES)].tolist():
                self.counted[f"judgements with the {what} {value:.10g}, which often means that there is none"] += 1
        name = stem_of(path) if path.is_file() else path.name
        judged = Judged(query, document, grade.clip(min=0), score)
        documents, queries = (NamedTexts(tuple(each.row), each.texts) for each in (self.documents, self.queries))
        return Collection(name, documents, queries, judged, split, self.notes())


def table_texts(
    rows: Sequence[tuple[str, Mapping[str, Any]]], query: str = AUTO, document: str = AUTO
) -> tuple[list[tuple[str, list[str]]], str]:
    """The texts of the pairs of a table, and the column that has their scores.

    Args:
        rows: (file and line, columns) of each.
        query: column of the queries, see `read`.
        document: column of the documents, see `read`.

    Returns:
        [row] the query, and its documents in the order of their scores; and "scores" for rows with lists of documents.
        For rows with one document: "score"; "teacher" where `read` would take a score as the grade.
    """
    made, found, columns = _Builder(None), [], set()
    for place, row in rows:
        asked = made.text_of(row[_column(row, query, QUERY, place, "query")], place, made.queries)
        documents, column = made.documents_of(row, place, document)
        columns.add(column)
        if len(columns) > 1:
            raise ValueError(f"{place} has other columns than the rows before it; it has {_columns(row)}")
        found.append((asked, [made.text_of(value, place, made.documents) for value, _, _ in documents]))
    return found, columns.pop()


def _is_list(column: str) -> bool:
    """Whether a column holds relevant or irrelevant documents: pos, negative_3, ..."""
    return _stem(column) in (*POSITIVE, *NEGATIVE)


def _is_relevant(column: str) -> bool:
    return _stem(column) in POSITIVE


def _stem(column: str) -> str:
    return re.sub(r"_\d+$", "", column)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _blank(value: Any) -> bool:
    """Whether a place of a table is empty; NaN is how pandas writes such a place."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == "" or str(value).isspace()


def _scores(row: Mapping[str, Any], place: str) -> list[float]:
    """The scores of the documents of a row that has them in lists; empty: there are none."""
    found: list[float] = []
    for name in ("scores",) if row.get("scores") is not None else ("pos_scores", "neg_scores"):
        found += [_score(value, place, name) for value in _listed([] if row.get(name) is None else row[name])]
    return found


def _score(value: Any, place: str, column: str) -> float:
    """A score of a teacher; NaN: there is none."""
    found = math.nan if _blank(value) else _number(value, place, column)
    if abs(found) > HIGHEST_SCORE:
        raise ValueError(f"{place}: a score must be a finite number up to {HIGHEST_SCORE:g}; got {found:g}")
    return found


def _number(value: Any, place: str, column: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{place}: {column!r} must be a number; got {brief(repr(value))}") from None


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _columns(row: Mapping[str, Any]) -> str:
    return ", ".join(map(brief, row)) or "nothing"


def _column(row: Mapping[str, Any], given: str, usual: Sequence[str], place: str, role: str) -> str:
    """The column of a role."""
    found = _first(row, usual if given == AUTO else (given,))
    if found is None:
        raise ValueError(
            f"{place} has no column {usual[0] if given == AUTO else given!r}. It has {_columns(row)}. Say which to "
            f"take: {setting(role, 'NAME')}{other_delimiter([*row])}. {OTHER}"
        )
    return found


def _need_rows(there: object, file: Path) -> None:
    if not there:
        raise ValueError(f"{shown(file)} has no rows")


__all__ = ["LAYOUTS", "beginning", "read", "read_named", "table_texts"]
