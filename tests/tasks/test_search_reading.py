"""Queries, documents and judgements in every layout, and what is wrong with them in one line or a count."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from small_searches import beir, settings, write_lines

from rankgrad.tasks.search.division import divided
from rankgrad.tasks.search.reading import read
from rankgrad.tasks.search.settings import SearchSettings
from rankgrad.workbench.cli import main
from rankgrad.workbench.config import ConfigError, compose, plain, typed

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


@pytest.mark.parametrize("name", ["qrels.txt", "qrels.trec"])
def test_judgements_of_trec_with_a_corpus(tmp_path, name):
    root = folder(tmp_path / "colours")
    (tmp_path / name).write_text("1 0 a 2\n1 0 b 0\n2 0 b 1\n")
    made = read(tmp_path / name, corpus=str(root / "corpus.jsonl"), queries=str(root / "queries.jsonl"))
    assert judged(made) == JUDGED and made.split.tolist() == ["", ""]
    with pytest.raises(ValueError, match="their texts are needed: corpus='FILE' and queries='FILE'|corpus=.*queries="):
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
    assert any("relevant and irrelevant" in note for note in made.notes)


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
        ("1\ta\t2\n1\ta\t2\n", "pairs of query and document that come twice; the first is kept: 1"),
        ("1\ta\t2\n", "queries without a judgement, not used: 1"),
    ],
)
def test_what_can_be_left_out_is_counted(tmp_path, qrels, note):
    assert note in read(folder(tmp_path / "colours", qrels)).notes


@pytest.mark.parametrize(
    ("qrels", "error"),
    [
        ("1\tx\t1\n2\ty\t1\n", r"test.tsv: 2 of 2 judgements have names of another collection .*'x' in line 2"),
        ("1\ta\t1\n1\ta\t2\n", r"test.tsv, line 3: the query '1' and the document 'a' have the grades 1 and 2"),
        ("1\ta\t0.5\n", r"test.tsv, line 2: a grade is a whole number"),
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
    assert "documents without text: 1;" in told and "text of an earlier one: 1;" in told
    with pytest.raises(ValueError, match="line 4: the document 'b' is there before, with another text"):
        read(folder(tmp_path / "other", corpus=[*CORPUS, {"_id": "b", "text": "a grey whale"}]))


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([{"text": "a red fox"}], r"line 1 has no name: a column '_id', 'id', 'docid' is needed; it has text"),
        ([{"_id": "a"}], r"line 1 has no text: a column 'text' is needed; it has _id"),
        ([{"_id": "a", "text": ["x"]}], r"line 1: a text is needed; got list"),
    ],
)
def test_a_damaged_corpus(tmp_path, rows, error):
    with pytest.raises(ValueError, match=error):
        read(folder(tmp_path / "colours", corpus=rows))


def test_a_query_needs_a_text(tmp_path):
    with pytest.raises(ValueError, match="line 1: the query has no text"):
        read(folder(tmp_path / "colours", queries=[{"_id": "1", "text": " "}]))


def test_a_folder_that_is_no_collection_names_what_is_needed(tmp_path):
    with pytest.raises(ValueError, match=r"holds no queries and documents. .*: a folder with corpus.jsonl"):
        read(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", CORPUS)
    with pytest.raises(ValueError, match=r"has no queries.jsonl"):
        read(tmp_path)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    with pytest.raises(ValueError, match=r"has no judgements: qrels/train.tsv"):
        read(tmp_path)


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
    assert f"task=search data.root={root}" in fails(capsys, "train", "data=text", f"data.root={root}")
    assert f"task=search data.root={root}" in fails(capsys, "train", str(root))
    triplets = table(tmp_path / "triplets.csv", [{"query": "one", "positive": "first", "negative": "wrong"}])
    assert "task=search" in fails(capsys, "train", "data=text", f"data.root={triplets}")
    assert "task=search" in fails(capsys, "train", "task=scores", f"data.root={triplets}")
    intents = table(tmp_path / "intents.csv", [{"text": "my card", "label": "card"}, {"text": "a fee", "label": "fee"}])
    assert "data=text" in fails(capsys, "train", "task=search", f"data.root={intents}")
    numbers = table(tmp_path / "rows.csv", [{"x": 1, "y": 2, "label": 1}, {"x": 1, "y": 2, "label": 0}])
    assert "task=scores" in fails(capsys, "train", "task=search", f"data.root={numbers}")
    photos = tmp_path / "photos" / "cats"
    photos.mkdir(parents=True)
    (photos / "1.jpg").write_bytes(b"")
    assert "data=folder" in fails(capsys, "train", "task=search", f"data.root={tmp_path / 'photos'}")
