"""A partial download is refused with the names of the missing parts, at every door that takes parts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from small_searches import beir

from rankgrad import trec
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.text import read_texts
from rankgrad_workbench.datasets.vectors import embedding_columns
from rankgrad_workbench.files.tables.formats import read_arrays, read_rows
from rankgrad_workbench.files.tables.parts import need_all
from rankgrad_workbench.index import Index
from rankgrad_workbench.tasks.search.reading import read, read_named

ROWS = [{"_id": name, "text": f"a {name} fox"} for name in ("red", "grey")]


def written(file: Path) -> Path:
    """A file of two rows, in the format of its name."""
    file.parent.mkdir(exist_ok=True)
    if file.suffix == ".npz":
        np.savez(file, embeddings=np.eye(2, dtype=np.float32), names=["a", "b"], labels=[0, 1])
    elif file.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(ROWS), file)
    else:
        sign = "\t" if ".tsv" in file.name else ","
        lines = [json.dumps(row) for row in ROWS]
        if ".jsonl" not in file.name:
            lines = [sign.join(ROWS[0]), *(sign.join(row.values()) for row in ROWS)]
        text = "".join(f"{line}\n" for line in lines).encode()
        file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (["corpus-00000-of-00002"], "corpus-00001-of-00002"),
        (["corpus-00001-of-00002"], "corpus-00000-of-00002"),
        (["corpus-00000-of-00003", "corpus-00002-of-00003"], "corpus-00001-of-00003"),
        (["corpus-1-of-3", "corpus-3-of-3"], "corpus-2-of-3"),
        (["corpus-00000-of-00002-0a1b2c3d4e5f6a7b"], "corpus-00001-of-00002-0a1b2c3d4e5f6a7b"),
        (["corpus/part_0_of_2"], "part_1_of_2"),
        (["corpus_1", "corpus_3"], "corpus_2"),
        (["corpus_2"], "corpus_1"),
        (["corpus", "corpus_3"], "corpus_2"),
        (["corpus-00003"], "corpus-00001"),
    ],
)
def test_a_corpus_with_a_missing_part_is_refused(tmp_path, ending, there, missing):
    root = beir(tmp_path / "data")
    (root / "corpus.jsonl").unlink()
    for name in there:
        written(root / f"{name}.{ending}")
    for reading in (read, lambda path: read_named(path, "corpus")):
        with pytest.raises(ValueError, match=rf"missing: .*{missing}\.{ending}") as error:
            reading(root)
        assert "\n" not in str(error.value)


def test_parts_of_two_tables_side_by_side_are_refused(tmp_path):
    root = beir(tmp_path / "data")
    (root / "corpus.jsonl").unlink()
    for name in ("0-of-2", "1-of-2", "0-of-3", "1-of-3", "2-of-3"):
        written(root / f"corpus-{name}.jsonl")
    with pytest.raises(ValueError, match=r"parts of two tables, .*of-2.* and .*of-3"):
        read(root)


def test_judgements_with_a_missing_part_are_refused(tmp_path):
    root = beir(tmp_path / "data")
    (root / "qrels" / "all.tsv").rename(root / "qrels" / "test-00001-of-00002.tsv")
    with pytest.raises(ValueError, match="missing: test-00000-of-00002.tsv"):
        read(root)
    with pytest.raises(ValueError, match="missing: test-00000-of-00002.tsv"):
        trec.evaluate({"it": {"q0": {"a": 1.0}}}, str(root / "qrels" / "test-00001-of-00002.tsv"))


def test_one_file_that_says_it_is_a_part_is_refused_at_every_door(tmp_path, capsys):
    for ending in ("jsonl", "jsonl.gz", "csv", "tsv", "parquet"):
        with pytest.raises(ValueError, match=f"missing: t-00001-of-00002.{ending}"):
            next(iter(read_rows(written(tmp_path / f"t-00000-of-00002.{ending}"), None)))
    file = written(tmp_path / "e-00001-of-00003.npz")
    doors = [
        lambda: Index.load(file),
        lambda: embedding_columns(file),
        lambda: read_arrays(file, lambda name: True, lambda name: True),
        lambda: read_texts(written(tmp_path / "e-1-of-3.txt")),
    ]
    for door in doors:
        with pytest.raises(ValueError, match=r"missing: e-(00000|0)-of-"):
            door()
    for words in (["index", file], ["evaluate", file]):
        assert main([*map(str, words)]) == 2
        assert "missing: e-00000-of-00003.npz, e-00002-of-00003.npz" in capsys.readouterr().err


def test_a_part_that_is_given_alone_while_the_others_are_beside_it_is_noted(tmp_path):
    for part in (0, 1):
        written(tmp_path / f"corpus-{part}-of-2.jsonl")
    found = read_named(tmp_path / "corpus-0-of-2.jsonl", "corpus")
    assert found.notes == ("one of several parts, of which the others are not read: corpus-0-of-2.jsonl",)


def test_a_year_is_no_number_of_a_part(tmp_path):
    need_all([written(tmp_path / f"corpus-{year}.csv") for year in (2019, 2024)])
    need_all([written(tmp_path / name) for name in ("queries.csv", "queries_2.csv")])
