"""Files of texts become tables, and what is wrong with them is named with its row."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from rankgrad.common.checks import spelled
from rankgrad_workbench.datasets.division import CALLED
from rankgrad_workbench.datasets.text import load_text, read_texts
from rankgrad_workbench.settings.spelling import as_keys, as_options

HEADER = "text,label,topic,part,who"
ROWS = [
    ("where is my card", "card", "bank", "train", "ann"),
    ("lost, again", "card", "bank", "test", "bob"),
    ("a café\nin town", "food", "out", "dev", "ann"),
    ('say "hi"', "talk", "out", "train", "eve"),
]
COLUMNS = {"super_label": "topic", "split": "part", "group": "who"}


def quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def as_csv(sign: str = ",") -> str:
    return "\n".join([HEADER.replace(",", sign), *(sign.join(map(quoted, row)) for row in ROWS)]) + "\n"


def written(folder: Path, kind: str) -> Path:
    path = folder / f"mine.{kind}"
    records = [dict(zip(HEADER.split(","), row, strict=True)) for row in ROWS]
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with an extra")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    else:
        path.write_text(as_csv("\t" if kind == "tsv" else ","), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_table(kind, tmp_path):
    table = load_text(written(tmp_path, kind), **COLUMNS)
    assert table.name == "mine" and table.texts == tuple(row[0] for row in ROWS)
    assert table.class_names == ("card", "food", "talk") and table.label.tolist() == [0, 0, 1, 2]
    assert table.super_names == ("bank", "out") and table.super_label.tolist() == [0, 0, 1, 1]
    assert table.split == ("train", "test", "val", "train") and table.splits == ("train", "val", "test")
    assert table.group == ("ann", "bob", "ann", "eve") and len(table) == 4
    train = table.select("train")
    assert train.texts == ("where is my card", 'say "hi"') and train.label.tolist() == [0, 2]
    assert (
        train.super_label.tolist() == [0, 1]
        and train.group == ("ann", "eve")
        and train.class_names == table.class_names
    )


def test_a_plain_file_needs_two_columns_and_may_have_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufefftext;label\nein Käse;3\nzwei;1\n".encode())
    table = load_text(path, delimiter=";")
    assert table.texts == ("ein Käse", "zwei") and table.class_names == ("1", "3")
    assert table.split == ("train", "train") and table.super_label is None and table.group is None
    with pytest.raises(ValueError, match="split 'test'; it has train"):
        table.select("test")


BAD = {
    "missing column": (b"texts,label\na,b\n", r"a.csv has no column 'text'. It has texts, label\. .*: text='NAME'$"),
    "other delimiter": (b"text;label\na;b\n", r"no column 'text'.* separated by ';': delimiter=';'$"),
    "strangers": (b"a1,b1\na,b\n", "and no column 'label'. It has a1, b1. .*: text='NAME' label='NAME'$"),
    "empty text": (b"text,label\na,b\n  ,b\n", "a.csv, line 3: 'text' is empty"),
    "empty label": (b"text,label\na,b\nc,\n", "a.csv, line 3: 'label' is empty"),
    "nan": (b"text,label\na,nan\n", "a.csv, line 2: 'label' is empty or nan"),
    "comma in a text": (b"text,label\na,b\nwell, no,b\n", "a.csv, line 3 has 3 fields, the header 2: .* double quotes"),
    "field too few": (b"text,label\na\n", "a.csv, line 2 has 1 fields, the header 2"),
    "latin-1": ("text,label\na,b\ncafé,b\n".encode("latin-1"), "a.csv, line 3: byte 0xe9 is not UTF-8"),
    "utf-16": ("text,label\na,b\n".encode("utf-16"), "a.csv is UTF-16 .* byte order mark"),
    "open quote": (b'text,label\n"a,b\nc,d\ne,f\n', "line 2: unexpected end of data.* double quote must end with one"),
    "quote in a quote": (b'text,label\n"a "b" c",d\n', "a.csv, line 2: .* double quotes in it are written twice"),
    "long text": (b"text,label\na,b\n" + b"a" * 200_000 + b",b\n", "line 3: .* longer than that needs a jsonl"),
    "column twice": (b"text,text\na,b\n", "a.csv, line 1: .* column 'text' twice"),
    "no rows": (b"text,label\n", "a.csv has no rows"),
    "nothing": (b"", "a.csv has no rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_named_with_its_row(case, tmp_path):
    content, told = BAD[case]
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=told):
        load_text(tmp_path / "a.csv")


def test_rows_that_contradict_each_other_are_both_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label,part\na,x,train\nb,x,train\na,x,train\na,x,test\n")
    with pytest.raises(ValueError, match=r"line 5 .*line 2, 'a', but part is 'test' here and 'train' there"):
        load_text(path, split="part")
    assert len(load_text(path)) == 4  # twice in one split is no leak
    for one, other, last in (("train", "Training", "test"), ("query", "gallery", "train")):  # one split, two words
        path.write_text(f"text,label,split\na,x,{one}\na,x,{other}\nb,y,{last}\n")
        assert load_text(path).texts == ("a", "a", "b")
    path.write_text("text,label,part,topic\na,x,train,t\nb,x,train,u\n")
    with pytest.raises(ValueError, match="line 3 .*line 2, 'x', but topic is 'u' here and 't' there"):
        load_text(path, super_label="topic")
    path.write_text("text,label,part\na,x,trained\n")
    with pytest.raises(ValueError, match="line 2: .*; got 'trained'"):
        load_text(path, split="part")


def test_splits_in_a_column_have_the_names_that_folders_have(tmp_path):
    path = tmp_path / "a.csv"
    names = [name for called in CALLED.values() for name in called]
    path.write_text("text,label,split\n" + "".join(f"{row},x,{name.title()}\n" for row, name in enumerate(names)))
    assert load_text(path).split == tuple(split for split, called in CALLED.items() for _ in called)


@pytest.mark.parametrize("split", ["train", "test", "val"])
def test_a_file_of_one_split_is_refused_with_the_setting_that_divides_it(split, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label,split\na,x,{split}\nb,y,{split}\n")
    with pytest.raises(ValueError, match=f"split {split}; .*split=None"):
        load_text(path)
    assert load_text(path, split=None).splits == ("train",)


def test_a_text_under_two_labels_is_told_as_that_where_classes_are_divided(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x\nb,y\na,y\nc,z\nb,z\nd,w\n")
    for seed in range(4):  # on whatever side the two labels are
        with pytest.raises(ValueError, match="line 4 .*line 2, 'a', but label is 'y' here and 'x' there"):
            load_text(path, test_fraction=0.5, seed=seed)
    assert len(load_text(path)) == 6  # nothing is divided


def test_messages_of_the_command_name_its_options(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sentence;intent\na;b\n")
    with spelled(as_options({})), pytest.raises(ValueError, match="--delimiter ';'$"):
        read_texts(path)
    assert read_texts(path, text="sentence", delimiter=";").texts == ("a",)


def test_a_tab_can_be_typed_as_its_escape(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\tlabel\na\tx\n")
    with spelled(as_keys("data.load", {})), pytest.raises(ValueError) as caught:
        load_text(path)
    (advice,) = (word for word in shlex.split(str(caught.value).split("separated by ")[1]) if "=" in word)
    assert load_text(path, delimiter=advice.partition("=")[2]).texts == ("a",)


def test_lines_of_json_are_named_too(tmp_path):
    path = tmp_path / "a.jsonl"
    for content, told in (
        ('{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2 has no column 'label'. It has text. .*label='NAME'"),
        ('{"text": "a", "label": 1}\n\n{oops\n', "line 3 is not JSON"),
        ("[1]\n", "line 1 must be an object with columns; got list"),
        ('{"text": "a", "label": 1}\n' + "[" * 10**5 + "\n", "line 2 is not JSON"),
        ('{"text": "a", "label": NaN}\n', "line 1: 'label' is empty"),
        ('{"text": "a", "label": null}\n', "line 1: 'label' is empty"),
        ('{"text": "a", "label": true}\n', "line 1: 'label' must be a text or a whole number; got True"),
        ('{"text": "a", "label": 0.5}\n', "line 1: 'label' must be a text or a whole number; got 0.5"),
        ('{"text": "a \\ud83d", "label": 1}\n', "line 1: 'text' has a lone surrogate"),
        ('{"text": ["a"], "label": 1}\n', "line 1: 'text' must be a text or a whole number"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=told):
            load_text(path)
    path.write_text('{"text": "a", "label": 2.0}\n{"text": "b", "label": 10}\n')
    assert load_text(path).class_names == ("10", "2")


def test_long_names_are_shortened_in_messages(tmp_path):
    path, long = tmp_path / "a.csv", "x" * 50_000
    for content, options in (
        (f"text,label\na,{long}\na,b\nc,d\ne,f\n", {"test_fraction": 0.5}),
        (f"text,label,super_label\na,{long},{long}\nb,{long},b\n", {}),
        (f"text,label,split\na,b,{long}\n", {}),
        (f"{long},label\na,b\n", {}),
        (f"text,label,split\na,{long}|{long},train\n", {"separator": "|"}),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match="a.csv") as caught:
            load_text(path, **options)
        assert "x..." in str(caught.value) and len(str(caught.value)) < 1000
    path.write_text(f"text,label\na,{long}\nb,{long.upper()}\n")
    summary = load_text(path).summary()
    assert "one text only (XXX" in summary and "'xxx" in summary and len(summary) < 1000


def test_a_text_may_have_characters_that_end_a_line_elsewhere(tmp_path):
    text = "one\u2028two\u0085three\x0cfour"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "label": "a"}, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "a.txt").write_bytes(f"{text}\r\nfive\rsix\n".encode())
    assert read_texts(tmp_path / "a.jsonl").texts == (text,)
    assert read_texts(tmp_path / "a.txt").texts == (text, "five", "six")
    assert read_texts(tmp_path / "a.txt").names == ("line 1", "line 2", "line 3")


@pytest.mark.parametrize(
    ("labels", "told"), [("aaa", r"there are 1 class\(es\) in all"), ("aab", r"there are 2 class\(es\) in all")]
)
def test_too_few_classes_to_be_divided_are_said_when_the_file_is_read(labels, told, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("text,label\n" + "".join(f"text {row},{label}\n" for row, label in enumerate(labels)))
    assert len(load_text(path)) == 3  # all of it is for training
    with pytest.raises(ValueError, match=f"{told}.*ranking needs at least two in each split. Add classes, change"):
        load_text(path, test_fraction=0.5)


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*a.csv"):
        load_text(tmp_path / "a.csv")
    (tmp_path / "a.xlsx").write_bytes(b"x")
    with pytest.raises(FileNotFoundError, match="a folder is for data=folder"):
        load_text(tmp_path)
    with pytest.raises(ValueError, match=r"a.xlsx .*\.csv, .tsv, .jsonl, .parquet"):
        load_text(tmp_path / "a.xlsx")
    pytest.importorskip("pyarrow", reason="pyarrow comes with an extra")
    (tmp_path / "a.parquet").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match="a.parquet .*damaged"):
        load_text(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match="delimiter .*; got ', '"):
        load_text(tmp_path / "b.csv", delimiter=", ")
