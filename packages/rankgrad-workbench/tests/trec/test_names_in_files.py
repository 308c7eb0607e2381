"""Names of queries and documents in files: signs that divide fields, and names that only look alike."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from rankgrad import trec
from rankgrad_workbench.tasks.search.evaluation import words
from rankgrad_workbench.trec.files import is_field

#: Signs at which `str.split`, `str.splitlines` or the C library divide a text, and other control characters.
DIVIDING = [
    *map(chr, [*range(1, 0x20), *range(0x7F, 0xA1), 0x1680, 0x2003, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]),
]
HARMLESS = ["\u00e9", "e\u0301", "\u200b", "\ufeff", "\u4e2d", "\U0001f600", "\u00ad", '"', "#", "\\"]


def of_text(folder: Path, run: str, qrels: str = "q 0 d 1\n") -> trec.Evaluation:
    (folder / "a.run").write_bytes(run.encode())
    (folder / "a.qrels").write_bytes(qrels.encode())
    return trec.evaluate(folder / "a.run", folder / "a.qrels", ["map", "num_ret"], intervals=0)


@pytest.mark.parametrize("sign", DIVIDING, ids=ascii)
def test_a_sign_that_divides_names_is_refused_in_text_and_never_written(sign, tmp_path):
    name = f"a{sign}b"
    assert not is_field(name)
    for run in ({"q": {name: 1.0}}, {name: {"d": 1.0}}):
        with pytest.raises(ValueError, match="white space or a control character"):
            trec.write_run(run, tmp_path / "mine.run")
    with pytest.raises(ValueError, match="white space or a control character"):
        trec.write_run({"q": {"d": 1.0}}, tmp_path / "mine.run", tag=name)
    [field, other] = words([name, "a_b"])
    assert field not in (name, other) and is_field(field)
    if sign in "\t\n":  # between fields and lines
        return
    for run, qrels in (
        (f"q Q0 {name} 7 9.5 t\n", "q 0 d 1\n"),
        (f"{name} Q0 d 7 9.5 t\n", "q 0 d 1\n"),
        ("q Q0 d 7 9.5 t\n", f"q 0 {name} 1\n"),
        ("q Q0 d 7 9.5 t\n", f"{name} 0 d 1\n"),
    ):
        with pytest.raises(ValueError, match="line 1 has"):
            of_text(tmp_path, run, qrels)


@pytest.mark.parametrize("sign", DIVIDING, ids=ascii)
def test_a_table_may_hold_names_with_signs_that_divide_text(sign, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"query": "q", "document": f"a{sign}b", "score": 1.0}))
    (tmp_path / "q.json").write_text(json.dumps({"q": {f"a{sign}b": 1}}))
    found = trec.evaluate(tmp_path / "a.jsonl", tmp_path / "q.json", ["map"], intervals=0)
    assert found.values["a"]["map"] == 1


@pytest.mark.parametrize("sign", HARMLESS, ids=ascii)
def test_a_written_run_with_other_signs_comes_back(sign, tmp_path):
    run = {"q": {f"a{sign}b": 2.0, "a": 1.0, f"b{sign}": 1.0}}
    trec.write_run(run, tmp_path / "mine.run")
    found = trec.evaluate(tmp_path / "mine.run", {"q": {f"a{sign}b": 1}}, ["recip_rank", "num_ret"], intervals=0)
    assert found.values["mine"] == {"recip_rank": 1, "num_ret": 3}


def test_a_name_with_a_space_is_told_and_not_read_as_rank_and_score(tmp_path):
    for run in ("q Q0 my doc 7 9.5 t\n", "q Q0 doc 5 7 9.5 t\n", "my q Q0 doc 7 9.5 t\n"):
        with pytest.raises(ValueError, match=r"line 1 has 7 fields.*Names have no spaces"):
            of_text(tmp_path, run)
    assert of_text(tmp_path, "q Q0 d 7 9.5 my system\n").values["a"]["map"] == 1
    assert of_text(tmp_path, "# caf\xe9\u2028\x07 comment\nq Q0 d 7 9.5 t\r\n").values["a"]["map"] == 1


ALIKE = [
    *(("caf\u00e9", "cafe\u0301"), ("d1 ", "d1"), ("1.0", "1"), ("D1", "d1"), ("007", "7"), ("d\u200b1", "d1")),
    ("\uff44\uff11", "d1"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_are_told(one, other):
    for here, there in ((one, other), (other, one)):
        found = trec.evaluate({"a": {"q": {here: 1.0, "x": 2.0}}}, {"q": {there: 1, "y": 1}}, ["map"], intervals=0)
        [note] = [note for note in found.notes if "look alike" in note]
        assert ascii(here) in note and ascii(there) in note
        found = trec.evaluate({"a": {"q": {here: 1.0, "y": 2.0}}}, {"q": {there: 1, "y": 1}}, ["map"], intervals=0)
        assert any("look alike" in note for note in found.notes)  # also where others are the same
        with pytest.raises(ValueError, match="look alike") as raised:
            trec.evaluate({"a": {here: {"d": 1.0}}}, {there: {"d": 1}}, ["map"])
        assert ascii(here) in str(raised.value) and ascii(there) in str(raised.value)


def test_other_names_do_not_look_alike():
    for one, other in (("d1", "d2"), ("1.5", "1"), ("10", "1"), ("a b", "ab")):
        found = trec.evaluate({"a": {"q": {one: 1.0}}}, {"q": {other: 1}}, ["map"], intervals=0)
        assert not any("look alike" in note for note in found.notes)
        assert any("No document of the run is judged" in note for note in found.notes)


@pytest.mark.parametrize("code", [-999, 999, 65535, 2147483647, 32767, 9999, -9999])
def test_grades_that_may_stand_for_a_missing_value_get_a_note(code):
    found = trec.evaluate({"a": {"q": {"d": 1.0}}}, {"q": {"d": code, "e": 1}}, ["map"], intervals=0)
    assert any("may stand for a missing value" in note and f"{code} (1)" in note for note in found.notes)
    found = trec.evaluate({"a": {"q": {"d": 1.0}}}, {"q": {"d": -2, "e": 4}}, ["map"], intervals=0)
    assert not any("missing value" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.tsv", '"query"\t"document"\t"grade"\n"q"\t"d"\t"1"\n'),
        ("q.tsv", "sep=\t\nquery\tdocument\tgrade\nq\td\t1\n"),
        ("q.csv", "sep=\t\nquery\tdocument\tgrade\nq\td\t1\n"),
        ("q.jsonl", '{"query": "q", "document": "d", "grade": 1}\r{"query": "q", "document": "e", "grade": 0}\r'),
        ("q.tsv", "query-id\tcorpus-id\tscore\r\nq\td\t1\r\n"),
    ],
)
def test_a_quoted_tsv_and_one_that_names_its_delimiter_are_read(name, content, tmp_path):
    (tmp_path / name).write_bytes(content.encode())
    assert trec.evaluate({"a": {"q": {"d": 1.0}}}, tmp_path / name, ["map"], intervals=0).values["a"]["map"] == 1


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("q.csv", "query\tdocument\tgrade\nq\td\t1\n", "by tabs in a .tsv"),
        ("q.jsonl", '{"query": 1.0, "document": "d", "grade": 1}\n', "as texts or integers"),
        ("q.json", '[{"query": "q", "document": 1.5, "grade": 1}]', "as texts or integers"),
    ],
)
def test_the_message_has_the_remedy(name, content, remedy, tmp_path):
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(ValueError, match=remedy):
        trec.evaluate({"a": {"q": {"d": 1.0}}}, tmp_path / name, ["map"])


def test_decimals_as_names_in_a_parquet_are_refused_with_the_remedy(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for names in ([1.0], [Decimal("1.00")]):
        table = {"query": pyarrow.array(names), "document": ["d"], "grade": [1]}
        parquet.write_table(pyarrow.table(table), tmp_path / "q.parquet")
        with pytest.raises(ValueError, match="as texts or integers"):
            trec.evaluate({"a": {"1": {"d": 1.0}}}, tmp_path / "q.parquet", ["map"])


CODE = """
import sys
from rankgrad import trec
from rankgrad_workbench.cli import main
found = trec.evaluate("a.run", "a.qrels", intervals=10)
trec.write_run(trec.fuse({"a": "a.run", "b": trec.from_matrix([["d"]], [[1.0]], ["q"])}), "fused.run")
assert main(["evaluate", "a.run", "fused.run", "--qrels", "a.qrels", "-o", "out"]) == 0
print([name for name in ("torch", "lightning", "omegaconf") if name in sys.modules])
"""


def test_run_files_are_evaluated_without_torch(tmp_path):
    of_text(tmp_path, "q Q0 d 1 2.0 t\n")
    done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("missing", ["zero", "skip"])
@pytest.mark.parametrize("baseline", [None, "old"])
def test_a_run_that_finds_nothing_for_more_than_a_few_queries_gets_no_verdict_but_the_count(
    missing, baseline, tmp_path
):
    qrels = {f"q{n}": {"d": 1} for n in range(40)}
    new = {query: {"d": 1.0} for query in qrels}
    old = {query: {"x": 2.0, "d": 1.0} for query in [*qrels][:30]}
    found = trec.evaluate({"new": new, "old": old}, qrels, ["map"], baseline=baseline, missing=missing, intervals=0)
    said = "old finds nothing for 10 of 40 queries, so it is not compared with other runs."
    assert not found.differences and said in found.notes and said in str(found)
    page = found.write(tmp_path).read_text(encoding="utf-8")
    assert said in page and "ahead" not in page and "behind" not in page and "highest mean" not in page
    some = trec.evaluate({"new": new, "old": old, "other": {q: {"x": 2.0, "d": 1.0} for q in qrels}}, qrels, ["map"])
    assert {(each.run, each.other) for each in some.differences} == {("other", "new")}
    few = {query: {"x": 2.0, "d": 1.0} for query in [*qrels][:38]}
    assert trec.evaluate({"new": new, "old": few}, qrels, ["map"], intervals=0).differences


def test_a_run_of_which_no_document_is_judged_could_not_work_and_is_not_compared():
    qrels = {f"q{n}": {"d": 1} for n in range(10)}
    runs = {"new": {query: {"d": 1.0} for query in qrels}, "old": {query: {"D": 1.0} for query in qrels}}
    found = trec.evaluate(runs, qrels, ["map"], intervals=0)
    assert not found.differences and any("look alike" in note for note in found.notes)
