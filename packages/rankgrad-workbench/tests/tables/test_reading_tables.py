"""Files of rows: one reader for texts, lists of images, rows to score, run files and groups of queries."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
from decimal import Decimal

import numpy as np
import pytest

from rankgrad_workbench.datasets import load_folder, load_manifest, load_text
from rankgrad_workbench.datasets.protocols import trials
from rankgrad_workbench.datasets.text import read_texts
from rankgrad_workbench.datasets.vectors import load_table as load_vectors
from rankgrad_workbench.tasks.scores.table import load_table
from rankgrad_workbench.tasks.search.reading import read_named
from rankgrad_workbench.trec import evaluate

QUESTIONS = [(f"question {row} of a customer", ("card", "fee", "limit")[row % 3]) for row in range(12)]


def swallowing(rows, sign, first=3, last=9):
    """A file whose row `first` begins with a double quote, and whose row `last` has one at the end of the text."""
    cells = [[str(cell) for cell in row] for row in rows]
    text = max(range(len(cells[0])), key=lambda place: len(cells[0][place]))
    cells[first][text] = '"' + cells[first][text]
    cells[last][text] += '"'
    return "\n".join(sign.join(row) for row in cells) + "\n"


def lines_of(kind):
    """Header and rows of each kind of file, and a function that reads it."""
    names = [f"a name of {row} words" for row in range(12)]
    if kind == "texts":
        return [("text", "label"), *QUESTIONS], load_text
    if kind == "texts, label first":
        return [("label", "text"), *((label, text) for text, label in QUESTIONS)], load_text
    if kind == "texts with ids":
        return [("text", "id", "label"), *((text, f"i{row}", label) for row, (text, label) in enumerate(QUESTIONS))], (
            load_text
        )
    if kind == "all labels differ":
        return [("text", "label"), *((text, f"label{row}") for row, (text, _) in enumerate(QUESTIONS))], load_text
    if kind == "images":
        return [("path", "label"), *((f"{text}.png", label) for text, label in QUESTIONS)], load_manifest
    if kind == "rows to score":
        rows = [("title", "amount", "label"), *((name, row * 1.5, row % 2) for row, name in enumerate(names))]
        return rows, load_table
    if kind == "run":
        rows = [("query", "document", "score"), *((f"q{row % 3}", name, row / 7) for row, name in enumerate(names))]
        return rows, lambda path: evaluate(path, {"q1": {"a": 1}})
    rows = [("query", "group"), *((name, f"g{row % 2}") for row, name in enumerate(names))]
    return rows, lambda path: evaluate({"a": {"1": {"d": 1.0}}}, {"1": {"d": 1}}, groups=path)


KINDS = [
    "texts",
    "texts, label first",
    "texts with ids",
    "all labels differ",
    "images",
    "rows to score",
    "run",
    "groups",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("first", "last"), [(3, 9), (3, 4), (1, 12)])
def test_rows_between_two_double_quotes_are_refused_with_both_lines(kind, end, first, last, tmp_path):
    rows, read = lines_of(kind)
    path = tmp_path / "rows.csv"
    path.write_bytes(swallowing(rows, ",", first, last).replace("\n", end).encode())
    with pytest.raises(ValueError, match=rf"rows\.csv, line {first + 1}: the double quote .* in line {last + 1}, and "):
        read(path)


def test_the_delimiter_may_be_another(tmp_path):
    rows, read = lines_of("texts")
    (tmp_path / "rows.tsv").write_text(swallowing(rows, "\t"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 4: the double quote .* line 10"):
        read(tmp_path / "rows.tsv")
    (tmp_path / "rows.csv").write_text("sep=;\n" + swallowing(rows, ";"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 5: the double quote .* line 11"):
        read(tmp_path / "rows.csv")


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.csv.gz", "sep"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("first", "last"), [(3, 9), (3, 4), (1, 12), (5, 12)])
@pytest.mark.parametrize(
    "read", [read_texts, lambda path: read_named(path, "corpus"), lambda path: read_named(path, "queries")]
)
def test_rows_of_an_only_column_between_two_double_quotes_are_refused(name, end, first, last, read, tmp_path):
    rows = [("text",), *((f"question {row}{' of a' * (row % 3)} customer",) for row in range(12))]
    content, above = swallowing(rows, ",", first, last).replace("\n", end), 0
    if name == "sep":
        name, content, above = "rows.csv", f"sep=;{end}{content}", 1
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    at = rf"line {first + 1 + above}: the double quote .* in line {last + 1 + above}, and "
    with pytest.raises(ValueError, match=at):
        read(path)


@pytest.mark.parametrize(
    "rows",
    [
        ['"one\ntwo"', "a longer question", "another long one"],
        ['"Dear all,\n\nthanks, and bye.\n\nMe"', "a longer question", "another long one"],
        ['"of a customer\nand of another"', '"Hello, a question"', "another long one"],
        ['"of a customer\nand of another"', '"a ""good"" question"', "another long one"],
        ['"of a customer\nand of another"', '"a good question"', '"another long one"'],
        ['"first of a text\nend of the text"', '"of a customer\nand of another"', '"of a customer\nand of another"'],
    ],
)
def test_a_text_of_several_lines_in_an_only_column_stays_one(rows, tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join(["text", *rows]), encoding="utf-8")
    texts = tuple(row.strip('"').replace('""', '"') for row in rows)
    assert read_texts(tmp_path / "rows.csv").texts == texts


@pytest.mark.parametrize(
    "text",
    [
        "one\ntwo",
        "Hello, world\nbye",
        "Hello, world\nbye, now\nand so on",
        "12 Main St,\nLondon",
        "Dear all,\n\nthanks, and bye.\n\nMe",
        'He said ""no, never"",\nand left',
        "a,b\nc,d\ne,f",
        "one\ttwo\nthree",
    ],
)
@pytest.mark.parametrize("label_first", [False, True])
def test_a_text_of_several_lines_stays_one(text, label_first, tmp_path):
    rows = [(f'"{text}"', "card"), *QUESTIONS]
    order = [row[::-1] if label_first else row for row in [("text", "label"), *rows]]
    (tmp_path / "rows.csv").write_text("\n".join(map(",".join, order)), encoding="utf-8")
    table = load_text(tmp_path / "rows.csv")
    assert table.texts[0] == text.replace('""', '"')
    assert len(table.texts) == 13 and table.names[1] == f"line {2 + text.count(chr(10)) + 1}"


def test_a_first_line_of_excel_names_the_delimiter(tmp_path):
    for first in ("sep=;", "SEP=;", '"sep=;"'):
        (tmp_path / "rows.csv").write_text(f"{first}\r\ntext;label\r\nWhere, please?;card\r\n", encoding="utf-8")
        table = load_text(tmp_path / "rows.csv")
        assert (table.texts, table.class_names, table.names) == (("Where, please?",), ("card",), ("line 3",))
    (tmp_path / "scores.csv").write_text("sep=;\namount;label\n1.5;0\n2.5;1\n3.5;1\n4.5;0\n", encoding="utf-8")
    assert load_table(tmp_path / "scores.csv", test_fraction=None).features["amount"].tolist() == [1.5, 2.5, 3.5, 4.5]


def test_files_may_be_gzipped(tmp_path):
    contents = {
        "texts.csv.gz": "text,label\na,x\nb,y\n",
        "texts.jsonl.gz": '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n',
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
        table = load_text(tmp_path / name)
        assert (table.name, table.texts, table.class_names) == ("texts", ("a", "b"), ("x", "y"))
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert read_texts(tmp_path / "lines.txt.gz").texts == ("a", "b")
    for name, content in {"rows.csv.gz": "amount,label\n1,0\n2,1\n", "rows.gz": "0 1:1\n1 1:2\n"}.items():
        (tmp_path / name).write_bytes(gzip.compress(content.encode()))
        assert load_table(tmp_path / name, test_fraction=None).features.iloc[:, 0].tolist() == [1, 2]
    (tmp_path / "texts.csv.gz").write_bytes(b"text,label\na,x\n")
    with pytest.raises(ValueError, match=r"texts\.csv\.gz is damaged or not a gzip file"):
        load_text(tmp_path / "texts.csv.gz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"text,label\n", mtime=0), "is a gzip file: its name must end in .gz"),
        (b"PK\x03\x04rest", "is a zip file, as an .xlsx is"),
        (bz2.compress(b"text,label\n"), "is a bzip2 file: unpack it"),
        (lzma.compress(b"text,label\n"), "is an xz file: unpack it"),
        (b"PAR1rest", "is a parquet: its name must end in .parquet"),
        (b"7z\xbc\xaf\x27\x1crest", "is a 7z file: unpack it"),
        (b"Rar!\x1a\x07\x00rest", "is a rar file: unpack it"),
        (bytes(257) + b"ustar\x00", "is a tar file: unpack it"),
    ],
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.txt", "rows.run"])
def test_a_file_that_is_packed_is_named(content, message, name, tmp_path):
    (tmp_path / name).write_bytes(content)
    read = read_texts if name != "rows.run" else lambda path: evaluate(path, {"q": {"d": 1}})
    with pytest.raises(ValueError, match=re.escape(f"{name} {message}")):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["photos.zip", "photos.tar.gz", "photos.7z"])
@pytest.mark.parametrize("load", [load_folder, load_manifest, load_text, load_vectors, read_texts])
def test_a_packed_data_set_is_to_be_unpacked(name, load, tmp_path):
    tar = bytes(257) + b"ustar\x00"
    contents = {"zip": b"PK\x03\x04", "7z": b"7z\xbc\xaf\x27\x1c", "gz": gzip.compress(tar)}
    (tmp_path / name).write_bytes(contents[name.rpartition(".")[2]])
    with pytest.raises(ValueError, match=rf"{name} is a .* file.*: unpack it"):
        load(tmp_path / name)


def test_lines_of_json_may_end_in_a_carriage_return_alone(tmp_path):
    rows = [b'{"text": "a", "label": "x"}', b"", b'{"text": "b", "label": "y"}']
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\r".join(rows))
    table = load_text(tmp_path / "rows.jsonl")
    assert table.texts == ("a", "b") and table.names == ("line 1", "line 3")
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join([*rows, b'{"text": "\xff"}']))
    with pytest.raises(ValueError, match="line 4: byte 0xff is not UTF-8"):
        load_text(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("first", ["sep=\t", "sep=\\t", '"sep=\t"', "sep=<tab>"])
def test_a_first_line_may_name_a_tab(first, tmp_path):
    (tmp_path / "rows.csv").write_text(f"{first}\ntext\tlabel\na, b\tx\n", encoding="utf-8")
    assert load_text(tmp_path / "rows.csv").texts == ("a, b",)


@pytest.mark.parametrize("head", ["text\tlabel", '"text"\t"label"'])
def test_a_file_of_quoted_fields_under_another_name_is_told_its_delimiter(head, tmp_path):
    (tmp_path / "rows.csv").write_text(f'{head}\n"a"\t"x"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"seem to be separated by '\\t': delimiter='\\t'"):
        load_text(tmp_path / "rows.csv")


def test_decimal_numbers_of_a_parquet_are_names_if_they_are_whole(tmp_path):
    decimals = [Decimal("1.00"), Decimal("12345678901234567890")]
    table = load_text(parquet_of(tmp_path / "rows.parquet", text=["a", "b"], label=decimals))
    assert table.class_names == ("1", "12345678901234567890")
    with pytest.raises(ValueError, match=r"row 1: 'label' must be a text or a whole number; got Decimal\('1\.5'\)"):
        load_text(parquet_of(tmp_path / "rows.parquet", text=["a"], label=[Decimal("1.5")]))


def long_csv(rows=200, seed=0, words=True):
    draw = random.Random(seed)
    cells = ["", "NA", "nan", "Null", "?"]
    lines = ["amount,city,code,label"]
    for row in range(rows):
        amount = draw.choice(cells) if row % 7 == 6 else f"{draw.gauss(0, 1)!r}"
        city = draw.choice(["Bonn", " Köln ", "NA", ""]) if words else "1.5"
        lines.append(f"{amount},{city},{draw.choice(['1', '1.0', '2', ''])},{row % 2}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_csv_is_read_as_its_rows_one_by_one(name, end, quote, tmp_path):
    lines = [line.split(",") for line in long_csv().splitlines()]
    content = end.join(",".join(f"{quote}{cell}{quote}" for cell in row) for row in lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    table = load_table(tmp_path / name, categorical=["code"], test_fraction=None)
    assert table.rows.tolist() == list(range(2, 202))
    missing = {"", "na", "nan", "null", "?"}
    for row, (amount, city, code, label) in enumerate(lines[1:]):
        found = table.features.iloc[row]
        assert np.isnan(found["amount"]) if amount.lower() in missing else found["amount"] == float(amount)
        assert found["city"] == (None if city.lower() in missing else city.strip())
        assert found["code"] == (code.replace(".0", "") or None)
        assert table.relevance[row] == int(label)


WRONG = {
    "a word": ("word,Bonn,1,0", "line 160: 'amount' is 'word', but most"),
    "a field more": ("0.5,Bonn,1,0,7", "line 160 has 5 fields, the header 4"),
    "infinite": ("1e999,Bonn,1,0", "line 160: 'amount' is infinite"),
    "no number": ("1_0,Bonn,1,0", "line 160: 'amount' is '1_0'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_of_a_long_csv_is_named(case, tmp_path, monkeypatch):
    wrong, message = WRONG[case]
    lines = long_csv().split("\n")
    lines[159] = wrong
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_table(tmp_path / "rows.csv", test_fraction=None)


@pytest.mark.parametrize("change", ["quotes", "a text of two lines", "empty lines", "end"])
def test_other_lines_of_a_long_csv_are_read_row_by_row(change, tmp_path, monkeypatch):
    lines = long_csv().split("\n")
    if change == "quotes":
        lines[120] = '0.5,"Bonn, Rhein",1,0'
    elif change == "a text of two lines":
        lines[120] = '0.5,"Bonn\nRhein",1,0'
    elif change == "empty lines":
        lines[120] += "\n\n"
    else:
        lines += ["", ""]
    (tmp_path / "rows.csv").write_text("\r\n".join("\n".join(lines).split("\n")), encoding="utf-8", newline="")
    table = load_table(tmp_path / "rows.csv", test_fraction=None)
    assert len(table) == 200 and table.rows[-1] == 201 + {"empty lines": 2, "a text of two lines": 1}.get(change, 0)
    cities = {"quotes": "Bonn, Rhein", "a text of two lines": "Bonn\r\nRhein"}
    assert table.features["city"][119] == cities.get(change, table.features["city"][119])


def test_rows_between_two_quotes_of_a_long_csv_are_refused(tmp_path, monkeypatch):
    lines = [line.split(",") for line in long_csv().splitlines()]
    for row in lines[20:90:3]:
        row[1] = '"Bonn, Rhein"'
    lines[100][1], lines[110][1] = '"Koblenz', 'Mainz"'
    (tmp_path / "rows.csv").write_text("\n".join(map(",".join, lines)), encoding="utf-8")
    with pytest.raises(ValueError, match="line 101: the double quote .* closed only in line 111"):
        load_table(tmp_path / "rows.csv", test_fraction=None)


PRICES = ["{}.5%", "${}", "{} EUR", "USD {}", "({})", "{}'250", "\u2212{}", "{} kg", "€ {},5", "-{} %", "{}\u202f250"]
PRICES += [
    "US$ {}",
    "Rs. {}",
    "kr {}",
    "{}¢",
    "<{}",
    "~{}",
    "≥{}",
    "{}-",
    "'{}",
    "={}",
    "{} °C",
    "{}°",
    "1,{}e-3",
    "{}_250",
]
PRICES += ["{}e3 EUR", "{} pcs."]


@pytest.mark.parametrize("written", PRICES)
def test_numbers_that_only_people_read_are_refused(written, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    cells = [written.format(row) for row in range(1, 9)]
    lines = [f"{cell};{row % 2}" for row, cell in enumerate(cells)]
    (tmp_path / "rows.csv").write_text("\n".join(["price;label", *lines]), encoding="utf-8")
    parquet.write_table(pa.table({"price": cells, "label": [0, 1] * 4}), tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        with pytest.raises(ValueError, match=r"'price' is .*; write numbers with a point .* categorical="):
            load_table(tmp_path / name, delimiter=";")
        table = load_table(tmp_path / name, delimiter=";", categorical=["price"], test_fraction=None)
        assert table.features["price"].tolist() == cells


@pytest.mark.parametrize("word", ["{}B", "{}th", "192.168.0.{}", "0{}.02.2020", "{} Main St", "A{}", "10:0{}"])
def test_words_with_digits_are_words(word, tmp_path):
    cells = [word.format(row) for row in range(1, 9)]
    (tmp_path / "rows.csv").write_text("\n".join(["w,label", *(f"{c},{r % 2}" for r, c in enumerate(cells))]))
    assert load_table(tmp_path / "rows.csv", test_fraction=None).features["w"].tolist() == cells


def parquet_of(path, **columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    return path


def test_large_integers_with_gaps_and_texts_without_a_mark_are_read_from_a_parquet(tmp_path):
    import pyarrow as pa

    ids = pa.array([2**62 + 1, None, 2**62 + 3, 7], pa.int64())
    cities = [b"Bonn", "K\u00f6ln".encode(), None, b"Bonn"]
    path = parquet_of(tmp_path / "rows.parquet", id=ids, city=cities, label=[0, 1, 0, 1])
    table = load_table(path, test_fraction=None)
    np.testing.assert_array_equal(table.features["id"], [2.0**62, np.nan, 2.0**62, 7])
    assert table.features["city"].tolist() == ["Bonn", "K\u00f6ln", None, "Bonn"]
    table = load_table(path, categorical=["id"], test_fraction=None)
    assert table.features["id"].tolist() == [str(2**62 + 1), None, str(2**62 + 3), "7"]
    path = parquet_of(tmp_path / "texts.parquet", text=[b"a", b"b"], label=pa.array([b"x", b"y"], pa.large_binary()))
    assert (load_text(path).texts, load_text(path).class_names) == (("a", "b"), ("x", "y"))
    path = parquet_of(tmp_path / "images.parquet", text=[b"\xff\xd8", b"b"], label=["x", "y"])
    with pytest.raises(ValueError, match=r"images\.parquet, row 1: 'text' must be a text"):
        load_text(path)


@pytest.mark.parametrize("word", ["NA", "null", "nan", "n/a", "?"])
def test_a_word_for_a_missing_value_is_an_id_and_may_be_the_relevant_label(word, tmp_path):
    rows = [f"{row},{row / 3},{word if row < 4 else 'EU'},{word if row % 2 else 'b'}" for row in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,query,label", *rows]), encoding="utf-8")
    table = load_table(tmp_path / "rows.csv", positive=word, test_fraction=None)
    assert table.query_names == (word, "EU")
    assert table.relevance.tolist() == [0, 1] * 4
    with pytest.raises(ValueError, match="line 3: the label 'label' is empty"):
        load_table(tmp_path / "rows.csv", test_fraction=None)
    numbers = [row.replace(",b", ",0") for row in rows]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,query,label", *numbers]), encoding="utf-8")
    assert load_table(tmp_path / "rows.csv", positive=word, test_fraction=None).relevance.tolist() == [0, 1] * 4


def test_an_empty_id_and_an_empty_label_are_said_to_be_empty(tmp_path):
    (tmp_path / "rows.csv").write_text("a,query,label\n1,q,0\n2,,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 3: 'query' is empty"):
        load_table(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text("a,label\n1,0\n2,\n3,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 3: the label 'label' is empty"):
        load_table(tmp_path / "rows.csv")


@pytest.mark.parametrize("kind", ["text", "manifest", "vectors"])
@pytest.mark.parametrize("train", [True, False])
def test_queries_and_a_gallery_may_stand_in_the_column_of_splits(kind, train, tmp_path):
    splits = [*(["train"] * 2 if train else []), "query", "Gallery", "gallery"]
    labels = ["a", "b", "c", "c", "d"][-len(splits) :]
    if kind == "vectors":
        np.savez(tmp_path / "rows.npz", embeddings=np.eye(5)[: len(splits)], labels=labels, split=splits)
        table = load_vectors(tmp_path / "rows.npz")
    else:
        column, load = ("text", load_text) if kind == "text" else ("path", load_manifest)
        rows = [f"{row}.png,{label},{split}" for row, (label, split) in enumerate(zip(labels, splits, strict=True))]
        (tmp_path / "rows.csv").write_text("\n".join([f"{column},label,split", *rows]), encoding="utf-8")
        table = load(tmp_path / "rows.csv", **({} if kind == "text" else {"check": False}))
    assert table.protocol == "query_gallery" and set(table.split) == {"test", *(["train"] if train else [])}
    (trial,) = trials(table.select("test"))
    assert (trial.query.tolist(), trial.gallery.tolist()) == ([0], [1, 2])


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (["train", "query"], "needs query and gallery, and no test; it has query"),
        (["train", "gallery"], "needs query and gallery, and no test; it has gallery"),
        (["query", "gallery", "test"], "needs query and gallery, and no test; it has gallery, query, test"),
    ],
)
def test_queries_need_a_gallery_and_no_other_test(splits, message, tmp_path):
    rows = [f"text {row},a,{split}" for row, split in enumerate(splits)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label,split", *rows]), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path / "rows.csv")
