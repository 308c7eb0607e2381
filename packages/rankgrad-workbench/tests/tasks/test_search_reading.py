"""Queries, documents and judgements in every layout, and what is wrong with them in one line or a count."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from small_searches import beir, settings, write_lines

from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import ConfigError, compose, plain, typed
from rankgrad_workbench.tasks.search.division import divided
from rankgrad_workbench.tasks.search.reading import read, read_named
from rankgrad_workbench.tasks.search.settings import SearchSettings

CORPUS = [
    {"_id": "a", "title": "Red", "text": "a red fox"},
    {"_id": "b", "text": "a blue whale"},
    {"_id": "c", "title": "", "text": "a green frog"},
]
QUERIES = [{"_id": "1", "text": "which is red"}, {"_id": "2", "text": "which is blue"}]
JUDGED = {
    ("which is red", "Red a red fox"): 2,
    ("which is red", "a blue whale"): 0,
    ("which is blue", "a blue whale"): 1,
}


def folder(where: Path, qrels: str = "1\ta\t2\n1\tb\t0\n2\tb\t1\n", corpus=CORPUS, queries=QUERIES) -> Path:
    (where / "qrels").mkdir(parents=True)
    write_lines(where / "corpus.jsonl", corpus)
    write_lines(where / "queries.jsonl", queries)
    (where / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    return where


def judged(collection) -> dict[tuple[str, str], float]:
    pairs = collection.judged
    queries, documents = collection.queries.texts, collection.documents.texts
    return {
        (queries[query], documents[document]): grade
        for query, document, grade in zip(pairs.query, pairs.document, pairs.grade, strict=True)
    }


def table(file: Path, rows: list[dict[str, object]]) -> Path:
    if file.suffix == ".jsonl":
        return write_lines(file, rows)
    if file.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), file)
        return file
    with open(file, "w", newline="") as opened:
        writer = csv.DictWriter(opened, [*rows[0]], delimiter="\t" if file.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_a_folder_of_beir(tmp_path):
    made = read(folder(tmp_path / "colours"))
    assert (made.name, made.documents.names, made.queries.names) == ("colours", ("a", "b", "c"), ("1", "2"))
    assert judged(made) == JUDGED and made.split.tolist() == ["test", "test"]


@pytest.mark.parametrize("mark", [-999, -9999, 65535, 2147483647])
def test_a_mark_for_a_missing_grade_or_score_is_noted(tmp_path, mark):
    made = read(folder(tmp_path / "colours", f"1\ta\t2\n1\tb\t{mark}\n2\tb\t1\n"))
    assert any(f"the grade {mark}, which often means that there is none: 1" in note for note in made.notes)
    scores = [0.1, 0.7, -3.5, mark, mark]
    rows = [{"query": "one", "document": f"no {row}", "grade": 1, "score": score} for row, score in enumerate(scores)]
    made = read(table(tmp_path / "pairs.jsonl", rows))
    assert any(f"the score of the teacher {mark}, which often means that there is none" in note for note in made.notes)


def test_grades_and_scores_as_they_usually_are_bring_no_note(tmp_path):
    rows = [{"query": "one", "document": f"no {row}", "grade": row % 4, "score": 25 * row} for row in range(9)]
    assert not read(table(tmp_path / "pairs.jsonl", rows)).notes
    assert not read(table(tmp_path / "percent.jsonl", [{**row, "grade": 25 * row["grade"]} for row in rows])).notes


def test_ids_of_every_type_and_quoted_judgements_are_read(tmp_path):
    from decimal import Decimal

    root = folder(tmp_path / "colours")
    rows = [{"_id": Decimal(row), "text": each["text"]} for row, each in enumerate(CORPUS)]
    (root / "corpus.jsonl").unlink()
    table(root / "corpus.parquet", rows)
    (root / "qrels" / "test.tsv").write_text('"query-id"\t"corpus-id"\t"score"\n"1"\t"0"\t"2"\n"2"\t"1"\t"1"\n')
    assert judged(read(root)) == {("which is red", "a red fox"): 2, ("which is blue", "a blue whale"): 1}


@pytest.mark.parametrize("sign", ["\t", "\\t", "<tab>"])
def test_a_line_above_the_header_may_name_a_tab_in_every_spelling(tmp_path, sign):
    (tmp_path / "pairs.csv").write_text(f"sep={sign}\nquery\tdocument\none\tfirst\n")
    assert judged(read(tmp_path / "pairs.csv")) == {("one", "first"): 1}


def test_lines_may_end_with_a_carriage_return_alone(tmp_path):
    root = folder(tmp_path / "colours")
    (root / "corpus.jsonl").write_bytes((root / "corpus.jsonl").read_bytes().replace(b"\n", b"\r"))
    assert judged(read(root)) == JUDGED


@pytest.mark.parametrize("name", ["qrels.txt", "qrels.trec"])
def test_judgements_of_trec_with_a_corpus(tmp_path, name):
    root = folder(tmp_path / "colours")
    (tmp_path / name).write_text("1 0 a 2\n1 0 b 0\n2 0 b 1\n")
    made = read(tmp_path / name, corpus=str(root / "corpus.jsonl"), queries=str(root / "queries.jsonl"))
    assert judged(made) == JUDGED and made.split.tolist() == ["", ""]
    with pytest.raises(ValueError, match="their texts are needed, data.load.corpus=FILE and data.load.queries=FILE"):
        read(tmp_path / name)


def test_files_may_be_gzipped(tmp_path):
    root = folder(tmp_path / "colours")
    (root / "corpus.jsonl.gz").write_bytes(gzip.compress((root / "corpus.jsonl").read_bytes()))
    (root / "corpus.jsonl").unlink()
    assert judged(read(root)) == JUDGED


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("columns", [("query", "document", "grade"), ("question", "passage", "label")])
def test_a_table_of_pairs_with_grades(tmp_path, ending, columns):
    rows = [dict(zip(columns, (query, document, grade), strict=True)) for (query, document), grade in JUDGED.items()]
    assert judged(read(table(tmp_path / f"pairs{ending}", rows))) == JUDGED


def test_columns_by_name_splits_and_scores(tmp_path):
    rows = [
        {"ask": "one", "found": "first", "worth": 1, "score": 2.5, "split": "train"},
        {"ask": "two", "found": "second", "worth": 0, "score": -1.0, "split": "test"},
    ]
    made = read(table(tmp_path / "pairs.csv", rows), query="ask", document="found", grade="worth")
    assert judged(made) == {("one", "first"): 1, ("two", "second"): 0}
    assert made.split.tolist() == ["train", "test"] and made.judged.score.tolist() == [2.5, -1.0]
    with pytest.raises(ValueError, match=r"line 2 has no column 'query'. It has ask, found, .*query="):
        read(tmp_path / "pairs.csv")


def test_lists_of_positives_and_negatives_with_scores(tmp_path):  # FlagEmbedding
    rows = [
        {"query": "one", "pos": ["first", "best"], "neg": ["wrong"], "pos_scores": [3, 4], "neg_scores": [1]},
        {"query": "two", "pos": ["second"], "neg": [], "prompt": "as ever"},
        {"query": "three", "pos": ["third"], "neg": ["first", "best"], "scores": [3, 2, 1]},
    ]
    made = read(table(tmp_path / "train.jsonl", rows))
    assert judged(made) == {
        **{("one", "first"): 1, ("one", "best"): 1, ("one", "wrong"): 0, ("two", "second"): 1},
        **{("three", "third"): 1, ("three", "first"): 0, ("three", "best"): 0},
    }
    assert sorted(made.judged.score[~np.isnan(made.judged.score)].tolist()) == [1, 1, 2, 3, 3, 4]
    rows[0]["pos_scores"] = [3]
    with pytest.raises(ValueError, match="line 1 has 2 scores for 3 documents"):
        read(table(tmp_path / "train.jsonl", rows))


def test_passages_with_names(tmp_path):  # tevatron
    rows = [
        {
            "query_id": "q7",
            "query": "one",
            "positive_passages": [{"docid": "p1", "title": "The", "text": "first"}],
            "negative_passages": [{"docid": "p2", "title": "", "text": "wrong"}],
        }
    ]
    made = read(table(tmp_path / "train.jsonl", rows))
    assert (made.queries.names, made.documents.names) == (("q7",), ("p1", "p2"))
    assert judged(made) == {("one", "The first"): 1, ("one", "wrong"): 0}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_anchors_positives_and_numbered_negatives(tmp_path, ending):  # sentence-transformers
    rows = [
        {"anchor": "one", "positive": "first", "negative_1": "wrong", "negative_2": "worse"},
        {"anchor": "one", "positive": "wrong", "negative_1": "worse", "negative_2": "first"},
    ]
    made = read(table(tmp_path / f"triplets{ending}", rows))
    assert judged(made) == {("one", "first"): 1, ("one", "wrong"): 1, ("one", "worse"): 0}
    assert "judgements of pairs that are judged before; their highest grade counts: 3" in made.notes


def test_files_named_after_splits(tmp_path):
    for part, query in (("train", "one"), ("dev", "two"), ("test", "three")):
        write_lines(tmp_path / f"{part}.jsonl", [{"query": query, "pos": ["that"]}])
    assert sorted(zip(*(lambda c: (c.queries.texts, c.split.tolist()))(read(tmp_path)), strict=True)) == [
        ("one", "train"),
        ("three", "test"),
        ("two", "val"),
    ]


@pytest.mark.parametrize(
    ("qrels", "note"),
    [
        ("1\ta\t2\n2\tb\t1\n2\tz\t1\n", "judgements of documents that are not there, left out: 1"),
        ("1\ta\t2\n2\tb\t1\n9\tb\t1\n", "judgements of queries that are not there, left out: 1"),
        ("1\ta\t2\n2\tb\t-2\n", "grades below 0, taken as 0: 1"),
        ("1\ta\t2\n1\ta\t1\n", "judgements of pairs that are judged before; their highest grade counts: 1"),
        ("1\ta\t2\n", "queries without a judgement, not used: 1"),
    ],
)
def test_what_can_be_left_out_is_counted(tmp_path, qrels, note):
    assert note in read(folder(tmp_path / "colours", qrels)).notes


@pytest.mark.parametrize(
    ("qrels", "error"),
    [
        (
            "1\tx\t1\n2\ty\t1\n",
            r"test.tsv: 2 of 2 judgements have names of another .*line 2, query '1', document 'x'",
        ),
        ("1\ta\t0.5\n", r"test.tsv, line 2, query '1', document 'a': a grade is a whole number"),
        ("1\ta\t0\n", r"none of the 1 judgements is relevant"),
        ("1\ta\tmany\n", r"test.tsv, line 2: .*finite number"),
    ],
)
def test_what_cannot_be_is_one_line_with_file_and_row(tmp_path, qrels, error):
    with pytest.raises(ValueError, match=error):
        read(folder(tmp_path / "colours", qrels))


def test_documents_twice_empty_and_long(tmp_path):
    corpus = [
        *CORPUS,
        CORPUS[1],
        {"_id": "e", "text": ""},
        {"_id": "l", "text": "x" * 100_000},
        {"_id": "f", "text": "a green frog"},
    ]
    made = read(folder(tmp_path / "colours", corpus=corpus))
    assert len(made.documents) == 6 and len(made.documents.texts[4]) == 20_000
    told = made.summary()
    assert "document lines that come twice; the first is kept: 1" in told
    assert "document texts cut after 20,000 characters" in told
    assert "documents without text, which are left out of the training: 1" in told
    assert "documents with the text of an earlier one; a copy of a relevant document is never a wrong answer: 1" in told
    with pytest.raises(ValueError, match="line 4: the document 'b' is there before, with another text; give"):
        read(folder(tmp_path / "other", corpus=[*CORPUS, {"_id": "b", "text": "a grey whale"}]))


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"text": "a red fox"}], r"line 1 has no name: a column '_id', 'id', 'docid' is needed; it has text"),
        ([{"_id": "a"}], r"line 1 has no text: a column 'text' is needed; it has _id"),
        ([{"_id": "a", "text": ["x"]}], r"line 1: a text is needed in 'text'; got list"),
    ],
)
def test_a_damaged_corpus(tmp_path, rows, error):
    with pytest.raises(ValueError, match=error):
        read(folder(tmp_path / "colours", corpus=rows))


def test_a_query_needs_a_text(tmp_path):
    with pytest.raises(ValueError, match="line 1: the query has no text"):
        read(folder(tmp_path / "colours", queries=[{"_id": "1", "text": " "}]))


def test_a_folder_that_is_no_collection_names_what_is_needed(tmp_path):
    with pytest.raises(ValueError, match=r"holds no queries and documents .*: a folder with corpus.jsonl"):
        read(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    with pytest.raises(FileNotFoundError, match=r"has no queries: a file is needed, queries.jsonl"):
        read(tmp_path)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    with pytest.raises(ValueError, match=r"has no judgements: qrels/train.tsv"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_rows_is_named(tmp_path, name, content):
    root = folder(tmp_path / "colours")
    (root / name).write_text(content)
    with pytest.raises(ValueError, match=rf"colours/{name} has no rows"):
        read(root)


def test_a_table_without_rows_is_named(tmp_path):
    (tmp_path / "pairs.csv").write_text("query,document,grade\n")
    with pytest.raises(ValueError, match=r"pairs.csv has no rows"):
        read(tmp_path / "pairs.csv")


def test_a_file_is_not_preferred_to_another_without_a_word(tmp_path):
    root = folder(tmp_path / "colours")
    (root / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id": "a", "text": "a red fox"}\n'))
    with pytest.raises(ValueError, match=r"colours holds corpus.jsonl and corpus.jsonl.gz; keep one"):
        read(root)
    with pytest.raises(ValueError, match=r"keep one"):
        read_named(root, "corpus")
    for ending in ("csv", "jsonl"):
        table(tmp_path / f"train.{ending}", [{"query": "one", "document": "first"}])
    with pytest.raises(ValueError, match=r"holds train.csv and train.jsonl; keep one"):
        read(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("corpus-00000-of-00002.jsonl", "corpus-00001-of-00002.jsonl"),
        ("corpus_1.jsonl", "corpus_2.jsonl"),
        ("corpus.jsonl", "corpus_2.jsonl"),
        ("corpus/test-00000-of-00002.jsonl", "corpus/test-00001-of-00002.jsonl"),
    ],
)
def test_a_corpus_may_be_in_parts(tmp_path, names):
    root = folder(tmp_path / "colours")
    (root / "corpus.jsonl").unlink()
    for name, rows in zip(names, (CORPUS[:2], CORPUS[2:]), strict=True):
        (root / name).parent.mkdir(exist_ok=True)
        write_lines(root / name, rows)
    assert judged(read(root)) == JUDGED and read(root).documents.names == ("a", "b", "c")
    assert read_named(root, "corpus").names == ("a", "b", "c")


def test_judgements_of_a_split_may_be_in_parts_and_files_that_are_not_read_are_named(tmp_path):
    root = folder(tmp_path / "colours")
    (root / "qrels" / "test.tsv").unlink()
    table(root / "qrels" / "test-00000-of-00001.parquet", [{"query-id": "1", "corpus-id": "a", "score": 2}])
    for name in (".hidden", "README.md"):
        (root / "qrels" / name).write_text("no judgements")
    assert read(root).split.tolist() == ["test", ""] and not any("not read" in note for note in read(root).notes)
    (root / "qrels" / "more.tsv").write_text("query-id\tcorpus-id\tscore\n2\tb\t1\n")
    assert "files that are not named after a split, not read: more.tsv" in read(root).notes


@pytest.mark.parametrize("qrels", ["1\ta\t2\n2\tb\t1\n", "topic\tdoc\tgain\n1\ta\t2\n"])
def test_three_columns_of_judgements_need_a_header(tmp_path, qrels):
    root = folder(tmp_path / "colours")
    (root / "qrels" / "test.tsv").write_text(qrels)
    with pytest.raises(ValueError, match=r"line 1 has 3 fields.*columns query, document and grade"):
        read(root)


def test_a_column_too_many_is_named_with_its_line(tmp_path):
    with pytest.raises(ValueError, match=r"test.tsv, line 3 has 4 fields, the header 3"):
        read(folder(tmp_path / "colours", "1\ta\t2\n1\t0\ta\t2\n"))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"_id": "z", "title": ["a"], "text": "b"}, r"line 4: a text is needed in 'title'; got list"),
        ({"_id": "z", "text": {"en": "b"}}, r"line 4: a text is needed in 'text'; got dict"),
    ],
)
def test_a_text_that_is_none_is_named_with_its_column(tmp_path, row, error):
    with pytest.raises(ValueError, match=error):
        read(folder(tmp_path / "colours", corpus=[*CORPUS, row]))


def test_lists_in_any_order_have_the_scores_of_relevant_documents_first(tmp_path):
    row = {"query": "one", "neg": ["wrong", ""], "pos": ["first", None, "best"]}
    for scores in ({"scores": [4, 9, 3, 1, 9]}, {"scores": [4, 3, 1]}, {"pos_scores": [4, 3], "neg_scores": [1]}):
        made = read(write_lines(tmp_path / "train.jsonl", [row | scores]))
        found = {
            made.documents.texts[row]: score for row, score in zip(made.judged.document, made.judged.score, strict=True)
        }
        assert found == {"first": 4, "best": 3, "wrong": 1}
        assert "empty places for documents, left out: 2" in made.notes


@pytest.mark.parametrize(
    ("scores", "error"),
    [
        ({"scores": 1}, r"line 1 has 1 scores for 2 documents"),
        ({"scores": [1, "high"]}, r"line 1: 'scores' must be a number; got 'high'"),
        ({"scores": [1, float("inf")]}, r"line 1: a score must be a finite number up to 1e\+30; got inf"),
        ({"scores": [1e39, 1]}, r"line 1: a score must be a finite number up to 1e\+30; got 1e\+39"),
    ],
)
def test_wrong_scores_are_named(tmp_path, scores, error):
    with pytest.raises(ValueError, match=error):
        read(write_lines(tmp_path / "train.jsonl", [{"query": "one", "pos": ["first"], "neg": ["wrong"], **scores}]))


def test_a_missing_score_is_none(tmp_path):
    rows = [{"query": "one", "document": "first", "grade": 1, "score": ""}]
    rows.append({"query": "one", "document": "wrong", "grade": 0, "score": "0.5"})
    made = read(table(tmp_path / "pairs.csv", rows))
    assert np.isnan(made.judged.score).tolist() == [True, False]
    assert "judgements without a score of the teacher, beside others that have one: 1" in made.notes
    lists = write_lines(tmp_path / "t.jsonl", [{"query": "one", "pos": ["a"], "neg": ["b"], "scores": [None, 2]}])
    assert np.isnan(read(lists).judged.score).tolist() == [True, False]


def test_a_query_whose_documents_are_missing_is_counted(tmp_path):
    rows = [{"query": "one", "pos": ["first"]}, {"query": "two", "pos": None, "neg": []}]
    assert "queries without a judgement, not used: 1" in read(write_lines(tmp_path / "t.jsonl", rows)).notes


def test_the_wrong_file_of_a_collection_is_answered_with_the_right_place(tmp_path):
    root = folder(tmp_path / "colours")
    for name in ("corpus.jsonl", "queries.jsonl"):
        with pytest.raises(ValueError, match=r"no column 'query'.*Documents or queries alone: give their folder"):
            read(root / name)
    with pytest.raises(ValueError, match=r"their texts are needed, data.load.corpus=FILE"):
        read(root / "qrels" / "test.tsv")
    qrels = str(root / "qrels" / "test.tsv")
    with pytest.raises(FileNotFoundError, match=r"colours has no corpus: a file is needed, .*corpus='FILE'"):
        read(qrels, corpus=str(root), queries=str(root / "queries.jsonl"))
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"table.xlsx is no table of texts \(.csv, .tsv, .jsonl, .parquet\)"):
        read(tmp_path / "table.xlsx")
    (tmp_path / "pairs.csv").write_text("query;document;grade\na;b;1\n")
    with pytest.raises(ValueError, match=r"columns seem to be separated by ';': delimiter=';'"):
        read(tmp_path / "pairs.csv")


def test_a_grade_that_no_metric_takes_is_refused_with_its_row(tmp_path):
    with pytest.raises(ValueError, match=r"test.tsv, line 2, .*: a grade is a whole number below 2\^31"):
        read(folder(tmp_path / "colours", f"1\ta\t{2**31}\n"))


def test_no_relevant_judgement_names_the_place(tmp_path):
    with pytest.raises(ValueError, match=rf"{tmp_path}/colours: none of the 1 judgements is relevant"):
        read(folder(tmp_path / "colours", "1\ta\t0\n"))


# ----------------------------------------------------------------------------------------------------------- division


def parts(root: Path, *more: str) -> dict[str, list[str]]:
    made = typed(SearchSettings, plain(compose(settings(root, *more))))
    collection = divided(read(root), made)
    return {
        split: [collection.queries.names[row] for row in collection.rows(split)] for split in ("train", "val", "test")
    }


def test_queries_are_divided_by_a_seed_and_folds_cover_them_once(tmp_path):
    root = beir(tmp_path / "data")
    one, again, other = parts(root), parts(root), parts(root, "data.seed=1")
    assert one == again != other and [len(each) for each in one.values()] == [34, 8, 18]
    whole = ["data.test_fraction=0", "evaluation.split=val"]
    held = [parts(root, f"fold={fold}/3", *whole)["test"] for fold in (1, 2, 3)]
    assert sorted(sum(held, [])) == sorted(sum(one.values(), [])) and [*map(len, held)] == [20, 20, 20]


def test_test_queries_alone_are_divided_and_a_seen_query_is_reported(tmp_path):
    made = parts(beir(tmp_path / "data", {"test": range(60)}))
    assert all(made.values())
    root = beir(tmp_path / "other", {"train": range(30), "test": range(20, 60)})
    assert {*parts(root)["test"]} == {f"q{row}" for row in range(20, 60)}
    assert "queries of two splits, used in the last one (test): 10" in read(root).notes
    with pytest.raises(ConfigError, match="go together"):
        parts(root, "fold=1/3")


@pytest.mark.parametrize("names", [["train"], ["train", "dev"]])
def test_of_training_queries_alone_a_test_is_drawn(tmp_path, names):
    step = 60 // len(names)
    root = beir(tmp_path / "data", {name: range(step * at, step * (at + 1)) for at, name in enumerate(names)})
    made = parts(root)
    assert all(made.values()) and sum(map(len, made.values())) == 60


def test_queries_with_one_text_are_in_one_part(tmp_path):
    root = beir(tmp_path / "data")
    lines = (root / "queries.jsonl").read_text().splitlines()
    rows = [{**json.loads(line), "text": f"which {row // 3}"} for row, line in enumerate(lines)]
    write_lines(root / "queries.jsonl", rows)
    made = {part: {int(name[1:]) // 3 for name in names} for part, names in parts(root).items()}
    assert all(made.values()) and not made["train"] & made["test"] and not made["train"] & made["val"]


@pytest.mark.parametrize(
    ("qrels", "more", "error"),
    [
        ({"all": "1\ta\t1\n"}, [], "with a relevant document: 1, but none to test on"),
        (
            {"all": "1\ta\t1\n2\tb\t1\n"},
            ["data.test_fraction=0"],
            "document: 2, but none to test on, with data.test_fraction=0 ",
        ),
        ({"train": "1\ta\t1\n", "test": "2\tb\t0\n"}, [], "document: 1, but none to test on"),
        (
            {"all": "1\ta\t1\n2\tb\t1\n"},
            ["fold=3/3", "evaluation.split=val"],
            "document: 2, but none to test on, .*fold=3/3",
        ),
    ],
)
def test_a_part_without_queries_says_why(tmp_path, qrels, more, error):
    root = folder(tmp_path / "colours")
    (root / "qrels" / "test.tsv").unlink()
    for name, rows in qrels.items():
        (root / "qrels" / f"{name}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    with pytest.raises(ConfigError, match=error):
        parts(root, "evaluation.select=false", *more)


# ----------------------------------------------------------------------------------------------------------- commands


def test_the_collection_is_described_before_anything_is_trained(tmp_path, capsys):
    root = beir(tmp_path / "data", {"train": range(30), "test": range(30, 60)})
    assert main(["datasets", "search", "--root", str(root)]) == 0
    told = capsys.readouterr().out
    assert "96 documents" in told and "60 queries" in told and "60 of grade 2" in told


def fails(capsys, *words: str) -> str:
    assert main([*words]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    return error


def test_data_of_another_task_is_answered_with_its_command(tmp_path, capsys):
    root = beir(tmp_path / "data")
    assert f"task=search data.root={root}" in fails(capsys, "train", str(root))
    intents = table(tmp_path / "intents.csv", [{"text": "my card", "label": "card"}, {"text": "a fee", "label": "fee"}])
    assert "Texts with a class: data=text" in fails(capsys, "train", "task=search", f"data.root={intents}")
    numbers = table(tmp_path / "rows.csv", [{"x": 1, "y": 2, "label": 1}, {"x": 1, "y": 2, "label": 0}])
    assert "Rows with a label: task=scores" in fails(capsys, "train", "task=search", f"data.root={numbers}")
    photos = tmp_path / "photos" / "cats"
    photos.mkdir(parents=True)
    (photos / "1.jpg").write_bytes(b"")
    assert "data=folder" in fails(capsys, "train", "task=search", f"data.root={tmp_path / 'photos'}")
