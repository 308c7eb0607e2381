"""Files -> `Collection`: a folder of BEIR, qrels of TREC beside a corpus, and tables of pairs or triplets of texts."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankgrad.common.checks import integer, setting
from rankgrad.common.text import brief, shown

from ...datasets.tabular import AUTO, as_split, word
from ...datasets.text import LINES, plain_lines
from ...files.tables.delimited import other_delimiter
from ...files.tables.formats import of_texts, read_rows
from ...files.tables.parts import is_part
from ...files.tables.text import kind_of, stem_of
from ...files.tables.users import INTERACTIONS, are_interactions
from ...trec.alike import Alike, pairs_alike
from ...trec.files import DOCUMENT as NAMES_OF_DOCUMENTS
from ...trec.files import QRELS
from ...trec.files import QUERY as NAMES_OF_QUERIES
from ...trec.files import read as read_list
from .collection import Collection, Judged, NamedTexts, StoredTexts, digest
from .layout import LAYOUTS, judgements, of_splits, tables

# Names of columns in the wild, ours first.
NAME = ("_id", "id", "docid", "doc_id", "document_id", "query_id", "qid", "pid", "docno")
TEXT = ("text", "contents", "content", "document", "passage", "query", "question")
QUERY = ("query", "anchor", "question", "sentence1")
DOCUMENT = ("document", "passage", "doc", "text", "answer", "sentence2")
GRADE = ("grade", "label", "relevance", "rel", "score")
SCORE = ("score", "teacher")
POSITIVE = ("pos", "positive", "positives", "positive_passages", "positive_ctxs")
NEGATIVE = ("neg", "negative", "negatives", "negative_passages", "negative_ctxs", "hard_negative_ctxs")
FEW_KNOWN = 0.5  # below this fraction of known names, judgements are those of another collection
HIGHEST_SCORE = 1e30  # that losses take


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
    longest: int = 20_000,
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
        longest: number of characters that are kept of a document.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the layout is unknown; a row is damaged; the judgements are those of another collection.
    """
    path = Path(root)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {shown(path)}")
    made = _Builder(integer(longest, f"{setting('longest')} is a number of characters", low=1), delimiter)
    made.said += [
        f"one of several parts, of which the others are not read: {brief(Path(file).name)}"
        for file in (path, corpus, queries)
        if file is not None and is_part(Path(file))
    ]
    if path.is_dir():
        _read_folder(path, made, corpus, queries, (query, document, grade, None))
    elif corpus or queries:
        made.read_texts(_needed(corpus, "corpus"), made.documents)
        made.read_texts(_needed(queries, "queries"), made.queries)
        made.read_judgements(path, "")
    elif kind_of(path) in of_texts() and not (query == AUTO and _holds_names(path, delimiter)):
        made.read_pairs(path, (query, document, grade, split), "")
    else:
        raise ValueError(
            f"{shown(path)} is no table of texts ({', '.join(of_texts())}). If it holds names of queries and "
            f"documents, their texts are needed: {setting('corpus', 'FILE')} and {setting('queries', 'FILE')}"
        )
    return made.collection(path)


def _read_folder(
    path: Path, made: _Builder, corpus: str | None, queries: str | None, columns: tuple[str, str, str, None]
) -> None:
    """The files of a folder: documents, queries and judgements, or tables of pairs that are named after splits."""
    found = tables(path)
    if corpus or "corpus" in found:
        if not (queries or "queries" in found):
            raise ValueError(f"{shown(path)} has no queries.jsonl. Needed: {LAYOUTS}")
        for given, name, table in ((corpus, "corpus", made.documents), (queries, "queries", made.queries)):
            for file in [_needed(given, name)] if given else found[name]:
                made.read_texts(file, table)
        chosen, other = judgements(path)
        for file, part in chosen:
            made.read_judgements(file, part)
        what = "files of judgements that are not named after a split, not read"
    else:
        chosen, other = of_splits(file for files in found.values() for file in files)
        if not chosen:
            images = "" if found else " For folders of images: data=folder without task=search."
            raise ValueError(f"{shown(path)} holds no queries and documents.{images} Needed: {LAYOUTS}")
        for file, part in chosen:
            made.read_pairs(file, columns, part)
        what = "tables that are not named after a split, not read"
    made.said += [f"{what}: {', '.join(map(brief, other))}"] * bool(other)


def read_named(
    root: str | Path,
    what: Literal["corpus", "queries"],
    text: str = AUTO,
    delimiter: str | None = None,
    longest: int = 20_000,
) -> NamedTexts:
    """The documents or the queries of a collection; or of a file with a text a row, or a line (txt), and maybe names.

    Args:
        root: folder or file.
        what: "corpus" or "queries".
        text: column of the texts; "auto": the first of `TEXT`.
        delimiter: of a csv.
        longest: number of characters that are kept of a text.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a row is damaged.
    """
    path = Path(root)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {shown(path)}")
    files = tables(path).get(what, []) if path.is_dir() else [path]
    table_of_pairs = text == AUTO and path.is_file() and _holds_pairs(path, delimiter)
    if not files or table_of_pairs:
        collection = read(path, delimiter=delimiter, longest=longest)
        return replace(collection.documents if what == "corpus" else collection.queries, notes=collection.notes)
    made = _Builder(longest, delimiter)
    if is_part(path):
        made.said.append(f"one of several parts, of which the others are not read: {brief(path.name)}")
    table = made.documents if what == "corpus" else made.queries
    for file in files:
        made.read_texts(file, table, text, needs_name=False)
    empty = sum(each == digest("") for each in table.digests)
    made.said += [f"documents without text: {empty:,}; a search may find them"] * bool(empty)
    return replace(table.frozen(), notes=made.notes())


def beginning(text: str, longest: int = 240) -> str:
    """The beginning of a text, up to the end of a word if it has words."""
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0] or text[:longest]} …"


def _needed(file: str | Path | None, name: str) -> Path:
    """A file that must be given and exist."""
    if file is None:
        raise ValueError(f"{setting(name, 'FILE')} is needed, too. Needed: {LAYOUTS}")
    if Path(file).is_dir():
        raise IsADirectoryError(f"{shown(file)} is a folder; a file is needed: {setting(name, 'FILE')}")
    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no file {shown(file)}")
    return Path(file)


def _holds_names(path: Path, delimiter: str | None) -> bool:
    """Whether a table has columns for names of queries and documents, and none for queries."""
    row = _first_row(path, delimiter)
    return not _first(row, QUERY) and bool(_first(row, NAMES_OF_QUERIES) and _first(row, NAMES_OF_DOCUMENTS))


def _holds_pairs(path: Path, delimiter: str | None) -> bool:
    """Whether a file is a table of queries with documents."""
    row = {} if kind_of(path) == LINES else _first_row(path, delimiter)
    return bool(_first(row, QUERY) and (_first(row, DOCUMENT) or any(map(_is_list, row))))


def _first_row(path: Path, delimiter: str | None) -> Mapping[str, Any]:
    return next((row for _, row in read_rows(path, delimiter)), {})


class _Table:
    """Names and texts, each name once. The texts are in a file."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.row: dict[str, int] = {}
        self.texts = StoredTexts()
        self.digests = array("Q")
        self.by_text: dict[int, int] = {}
        self.other_texts: list[str] = []  # where a name comes again with another text

    def add(self, name: str, text: str, place: str) -> int:
        """The row of a name. A name may come again with the same text."""
        known = self.row.get(name)
        if known is None:
            self.row[name] = known = len(self.texts)
            self.texts.append(text)
            self.digests.append(digest(text))
        elif self.digests[known] != digest(text):
            self.other_texts.append(f"{place}: the {self.what} {brief(name)!r} is there before, with another text")
        return known

    def of_text(self, text: str, place: str) -> int:
        """The row of a text without a name: it is named after its place among the different texts."""
        known = digest(text)
        if known not in self.by_text:
            self.by_text[known] = self.add(f"{self.what[0]}{len(self.texts) + 1}", text, place)
        return self.by_text[known]

    def frozen(self) -> NamedTexts:
        if self.other_texts:
            more = f" ({len(self.other_texts):,} rows are like this)" if self.other_texts[1:] else ""
            raise ValueError(f"{self.other_texts[0]}{more}; give it another name")
        return NamedTexts(tuple(self.row), self.texts)


class _Builder:
    """What was read so far."""

    def __init__(self, longest: int, delimiter: str | None) -> None:
        self.longest, self.delimiter = longest, delimiter
        self.documents, self.queries = _Table("document"), _Table("query")
        self.pairs: dict[tuple[int, int], tuple[float, float]] = {}
        self.split: dict[int, str] = {}
        self.counted: Counter[str] = Counter()
        self.grades: Counter[float] = Counter()  # as they are in the files
        self.said: list[str] = []

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
        if isinstance(row, Mapping):
            column = _first(row, TEXT if text == AUTO else (text,))
            if column is None:
                needed = TEXT[0] if text == AUTO else text
                raise ValueError(f"{place} has no text: a column {needed!r} is needed; it has {_columns(row)}")
            parts = {" in 'title'": row.get("title"), f" in {column!r}": row[column]}
        else:
            parts = {"": row}
        for where, part in parts.items():
            if not (part is None or isinstance(part, (str, int, float))):
                raise ValueError(f"{place}: a text is needed{where}; got {type(part).__name__}")
        # a float that is not a number is how pandas writes a missing text
        found = " ".join(
            str(part)
            for part in parts.values()
            if part is not None and not (isinstance(part, float) and math.isnan(part))
        ).strip()
        found = found.encode("utf-8", "replace").decode("utf-8")
        if not found and table is self.queries:
            raise ValueError(f"{place}: the query has no text; give it one or remove the row")
        if len(found) > self.longest:
            self.counted[f"{table.what} texts cut after {self.longest:,} characters"] += 1
        return found[: self.longest]

    # --------------------------------------------------------------------------------------------- judgements by names

    def read_judgements(self, file: Path, split: str) -> None:
        """The rows of a file of judgements by names, as `trec.files` reads it."""
        known = total = 0
        missing: dict[str, dict[str, int]] = {"queries": {}, "documents": {}}  # name -> first line
        for part in read_list(file, QRELS).parts():
            row = self.queries.row.get(part.query)
            lines = part.lines or [0] * len(part.documents)
            for document, grade, line in zip(part.documents, part.values.tolist(), lines, strict=True):
                total += 1
                at = self.documents.row.get(document)
                if row is None or at is None:
                    what, name = ("queries", part.query) if row is None else ("documents", document)
                    missing[what].setdefault(name, line)
                    self.counted[f"judgements of {what} that are not there, left out"] += 1
                    continue
                known += 1
                self.judge(row, at, grade, math.nan, f"{shown(file)}, line {line}")
                self._place(row, split)
        _need_rows(total, file)
        alike = Alike()
        for what, table in (("queries", self.queries), ("documents", self.documents)):
            alike.found[what] += pairs_alike(missing[what], table.row)
        told = [alike.told(what) for what in missing if alike.found[what]]
        self.said += [f"in {shown(file)}, {each}" for each in told]
        if known < FEW_KNOWN * total:
            told = told or [
                f"{what} that are not there: the first is {brief(name)!r} in line {line}"
                for what, names in missing.items()
                for name, line in [*names.items()][:1]
            ]
            raise ValueError(
                f"{shown(file)}: {total - known:,} of {total:,} judgements have names of another collection "
                f"({'; '.join(told)}). Give the corpus and the queries that were judged"
            )

    def judge(self, query: int, document: int, grade: float, score: float, place: str) -> None:
        """Add a judgement."""
        if not (math.isfinite(grade) and grade == int(grade) and abs(grade) < 2**31):
            raise ValueError(
                f"{place}: a grade is a whole number below 2^31, 0: irrelevant; got {grade:g}. Scores of a teacher are "
                "a column 'score' beside the grade"
            )
        self.grades[grade] += 1
        if grade < 0:
            self.counted["grades below 0, taken as 0"] += 1
            grade = 0.0
        before = self.pairs.get((query, document))
        if before is not None and before[0] != grade:
            names = [brief(list(table.row)[row]) for table, row in ((self.queries, query), (self.documents, document))]
            raise ValueError(
                f"{place}: the query {names[0]!r} and the document {names[1]!r} have the grades {before[0]:g} and "
                f"{grade:g}; keep one"
            )
        if before is not None:
            self.counted["pairs of query and document that come twice; the first is kept"] += 1
            return
        self.pairs[query, document] = grade, score

    def _place(self, query: int, split: str) -> None:
        """Put a query into a split; the last one counts."""
        if split and self.split.get(query, split) != split:
            self.counted[f"queries of two splits, used in the last one ({split})"] += 1
        self.split[query] = split or self.split.get(query, "")

    # ------------------------------------------------------------------------------------------------- tables of texts

    def read_pairs(self, file: Path, columns: tuple[str, str, str, str | None], split: str) -> None:
        """A table whose rows have the texts of queries and documents."""
        query, document, grade, of_split = columns
        place = ""
        for place, row in read_rows(file, self.delimiter):
            text = _column(row, query, QUERY, place, "query")
            name = _first(row, ("query_id", "qid", "query-id"))
            asked = self.text_of(row[text], place, self.queries)
            at = (
                self.queries.of_text(asked, place)
                if name is None
                else self.queries.add(word(row[name], name, place), asked, place)
            )
            given = of_split if of_split != AUTO else "split" if "split" in row else None
            self._place(at, split if given is None else as_split(word(row[given], given, place), place))
            lists = [name for name in row if _is_list(name)]
            if lists and document == AUTO:
                self._lists(row, at, lists, place)
            else:
                self._pair(row, at, document, grade, place)
        _need_rows(place, file)

    def _lists(self, row: Mapping[str, Any], query: int, lists: Sequence[str], place: str) -> None:
        """A row with relevant and irrelevant documents: one, or a list, in each column."""
        documents, scores = _listed(row, lists), _scores(row, place)
        filled = [not _blank(value) for value, _ in documents]
        if len(scores) == len(documents):
            scores = [*compress(scores, filled)]
        documents = [*compress(documents, filled)]
        self.counted["empty places in lists of documents, left out"] += len(filled) - len(documents)
        if scores and len(scores) != len(documents):
            raise ValueError(
                f"{place} has {len(scores)} scores for {len(documents)} documents; give one for each, relevant ones "
                "first"
            )
        for (value, grade), score in zip(documents, scores or [math.nan] * len(documents), strict=True):
            self.judge_once(query, self._document(value, place), grade, score, place)

    def judge_once(self, query: int, document: int, grade: float, score: float, place: str) -> None:
        """Add a judgement of a triplet: a document that is relevant in one row is relevant, also if another row has it
        as a negative.
        """
        before = self.pairs.get((query, document))
        if before is not None and before[0] != grade:
            self.counted["documents that are relevant and irrelevant to a query, taken as relevant"] += 1
            self.pairs[query, document] = (1.0, score if grade > before[0] else before[1])
        elif before is None:
            self.judge(query, document, grade, score, place)

    def _pair(self, row: Mapping[str, Any], query: int, document: str, grade: str, place: str) -> None:
        """A row with one document and its grade."""
        text = _column(row, document, DOCUMENT, place, "document")
        column = grade if grade != AUTO else _first(row, GRADE)
        if column is not None and column not in row:
            raise ValueError(f"{place} has no column {column!r}. It has {_columns(row)}")
        worth = 1.0 if column is None else _number(row[column], place, column)
        score = _first(row, [name for name in SCORE if name != column])
        name = _first(row, ("document_id", "doc_id", "docid", "corpus-id"))
        at = self._document(row[text] if name is None else {"docid": row[name], "text": row[text]}, place)
        self.judge(query, at, worth, math.nan if score is None else _score(row[score], place, score), place)

    def _document(self, value: Any, place: str) -> int:
        """The row of a document: a text, or an object with title and text, and possibly with a name."""
        text = self.text_of(value, place, self.documents)
        name = _first(value, NAME) if isinstance(value, Mapping) else None
        return (
            self.documents.of_text(text, place)
            if name is None
            else self.documents.add(word(value[name], name, place), text, place)
        )

    # ----------------------------------------------------------------------------------------------------------- result

    def collection(self, path: Path) -> Collection:
        """Everything that was read from a folder or file.

        Raises:
            ValueError: there is no document, no query, or no relevant pair.
        """
        columns = np.array([(*pair, *found) for pair, found in sorted(self.pairs.items())], np.float64).reshape(-1, 4).T
        judged = Judged(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3])
        if not (judged.grade > 0).any():
            raise ValueError(
                f"{shown(path)}: none of the {len(judged):,} judgements is relevant (a grade above 0), so there is "
                "nothing to train or test on"
            )
        split = np.array([self.split.get(row, "") for row in range(len(self.queries.texts))], object)
        unjudged = len(split) - len(np.unique(judged.query))
        unscored = int(np.isnan(judged.score).sum())
        notes = [*self.notes()]
        notes += [f"queries without a judgement, not used: {unjudged:,}"] * (unjudged > 0)
        if 0 < unscored < len(judged):
            notes.append(f"judgements without a score of the teacher, beside others that have one: {unscored:,}")
        scored = Counter(judged.score[~np.isnan(judged.score)].tolist())
        for what, values in (("grade", self.grades), ("score of the teacher", scored)):
            for value in far(sorted(values)):
                notes.append(
                    f"judgements with the {what} {value:.10g}, far from all others: {values[value]:,}. If it marks a "
                    "missing one, remove these rows"
                )
        name = stem_of(path) if path.is_file() else path.name
        return Collection(name, self.documents.frozen(), self.queries.frozen(), judged, split, tuple(notes))


def far(values: Sequence[float]) -> list[float]:
    """Values that look like a mark for a missing value: at an end, and far from all others.

    Args:
        values: different ones, in ascending order.

    >>> far([-999, 0, 1, 2, 65535]), far([0, 1, 2, 3]), far([0, 25, 50, 75, 100])
    ([65535, -999], [], [])
    """
    found, rest = [], list(values)
    for end in (-1, 0):
        while len(rest) > 1:
            others = rest[:-1] if end else rest[1:]
            gap = abs(rest[end] - others[end])
            if abs(rest[end]) < 99 or gap <= 3 * (others[-1] - others[0]):
                break
            found.append(rest[end])
            rest = others
    return found


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
    made, found, column = _Builder(20_000, None), [], ""
    for place, row in rows:
        asked = made.text_of(row[_column(row, query, QUERY, place, "query")], place, made.queries)
        lists = [name for name in row if _is_list(name)] if document == AUTO else []
        values = [value for value, _ in _listed(row, lists) if not _blank(value)]
        if not lists:
            values = [row[_column(row, document, DOCUMENT, place, "document")]]
        kind = "scores" if lists else "score" if _first(row, GRADE) not in (None, "score") else "teacher"
        if column not in ("", kind):
            raise ValueError(f"{place} has other columns than the rows before it; it has {_columns(row)}")
        column = kind
        found.append((asked, [made.text_of(value, place, made.documents) for value in values]))
    return found, column


def _listed(row: Mapping[str, Any], lists: Sequence[str]) -> list[tuple[Any, float]]:
    """The documents of a row that has them in lists, with their grades: relevant ones first. Places may be empty."""
    documents: list[tuple[Any, float]] = []
    for name in sorted(lists, key=lambda name: not _is_relevant(name)):
        values = row[name] if isinstance(row[name], (list, tuple)) else [] if row[name] is None else [row[name]]
        documents += [(value, float(_is_relevant(name))) for value in values]
    return documents


def _is_relevant(column: str) -> bool:
    return column in POSITIVE or column.rpartition("_")[0] in POSITIVE


def _blank(value: Any) -> bool:
    """Whether a place of a table is empty; NaN is how pandas writes such a place."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == "" or str(value).isspace()


def _scores(row: Mapping[str, Any], place: str) -> list[float]:
    """The scores of the documents of a row that has them in lists; empty: there are none."""
    found: list[float] = []
    for name in ("scores",) if row.get("scores") is not None else ("pos_scores", "neg_scores"):
        values = row.get(name)
        if not (values is None or isinstance(values, (list, tuple))):
            raise ValueError(f"{place}: {name!r} must be a list; got {brief(repr(values))}")
        found += [_score(value, place, name) for value in values or ()]
    return found


def _score(value: Any, place: str, column: str) -> float:
    """A score of a teacher; NaN: there is none."""
    found = math.nan if _blank(value) else _number(value, place, column)
    if abs(found) > HIGHEST_SCORE:
        raise ValueError(f"{place}: a score must be a finite number up to {HIGHEST_SCORE:g}; got {found:g}")
    return found


def _is_list(column: str) -> bool:
    """Whether a column holds relevant or irrelevant documents: pos, negative_3, ..."""
    stem, _, number = column.rpartition("_")
    return column in (*POSITIVE, *NEGATIVE) or (number.isdigit() and stem in (*POSITIVE, *NEGATIVE))


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _columns(row: Mapping[str, Any]) -> str:
    return ", ".join(map(brief, row)) or "nothing"


def _column(row: Mapping[str, Any], given: str, usual: Sequence[str], place: str, role: str) -> str:
    """The column of a role."""
    found = given if given != AUTO else _first(row, usual)
    if found is None or found not in row:
        kind = other_delimiter([*row])
        if "label" in row:
            of_text = "text" in row
            kind = ". Texts with a class: data=text" if of_text else ". Rows with a label: task=scores data=table"
        elif role == "query" and _first(row, NAME) and _first(row, TEXT):
            kind = ". Documents or queries alone: give their folder, or a file of judgements with both"
        elif are_interactions(row):
            kind = f". {INTERACTIONS}"
        raise ValueError(
            f"{place} has no column {(usual[0] if found is None else found)!r}. It has {_columns(row)}. Say which to "
            f"take: {setting(role, 'NAME')}{kind}"
        )
    return found


def _need_rows(there: object, file: Path) -> None:
    if not there:
        raise ValueError(f"{shown(file)} has no rows")


def _number(value: Any, place: str, column: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{place}: {column!r} must be a number; got {brief(repr(value))}") from None


__all__ = ["LAYOUTS", "beginning", "read", "read_named", "table_texts"]
