"""Ranked lists against judgements: trec_eval's numbers from any form of input, and what is said of wrong input."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_pages import Page
from scipy import stats

from rankgrad import trec
from rankgrad.evaluation.statistics import detectable
from rankgrad_workbench.cli import main
from rankgrad_workbench.trec import Evaluation, comparison, evaluate, files, judged, lists
from rankgrad_workbench.trec.names import metrics_of
from rankgrad_workbench.trec.page import write_folder as write

GOLDEN = json.loads((Path(__file__).parent / "trec_eval.json").read_text(encoding="utf-8"))["cases"]
OFFICIAL = Path(__file__).parent / "trec_eval"  # files of trec_eval's own tests


def printed(found: Evaluation) -> dict[str, dict[str, str]]:
    """Query, or "all" -> measure -> the number as it is printed."""
    table: dict[str, dict[str, str]] = {}
    for line in found.lines(found.runs[0], every=True):
        measure, query, value = (word.strip() for word in line.split("\t"))
        table.setdefault(query, {})[measure] = value
    return table


def files_of(folder: Path, run: list[str], qrels: list[str]) -> tuple[Path, Path]:
    (folder / "a.run").write_text("\n".join(run) + "\n", encoding="utf-8")
    (folder / "a.qrels").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    return folder / "a.run", folder / "a.qrels"


def mapping(lines: list[str], value: int) -> dict[str, dict[str, float]]:
    """Query -> document -> number, of lines of TREC's text."""
    found: dict[str, dict[str, float]] = {}
    for fields in map(str.split, lines):
        found.setdefault(fields[0], {})[fields[2]] = float(fields[value])
    return found


RUN, QRELS = mapping(GOLDEN[0]["run"], 4), mapping(GOLDEN[0]["qrels"], 3)
NUMBERS = ["map", "ndcg", "bpref", "err", "rbp", "judged_5", "num_ret"]


def numbers(run: Any, qrels: Any = QRELS) -> dict[str, dict[str, float]]:
    """What is found for each query."""
    found = evaluate(run, qrels, NUMBERS, intervals=0)
    return found.by_query(found.runs[0])


# ---------------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["about"])
def test_the_digits_are_those_that_trec_eval_prints(tmp_path, case):
    run, qrels = files_of(tmp_path, case["run"], case["qrels"])
    assert printed(evaluate(run, qrels, intervals=0, **case["options"])) == case["printed"]


PARAMETERS = ["iprec_at_recall.0.1,.2,.25,.5,.75", "P.3,5,7", "recall.20,2000", "success.2,5,20", "ndcg_cut.10,20,23"]
ALL = [
    *("official", "num_nonrel_judged_ret", "11pt_avg", "ndcg", "set_P", "set_recall", "set_F", "success.1,5,10"),
    *(f"{name}.5,10,15,20,30,100,200,500,1000" for name in ("map_cut", "ndcg_cut", "recall")),
]


@pytest.mark.parametrize(
    ("run", "qrels", "output", "measures", "options"),
    [
        ("results.test", "qrels.test", "out.test.aq", ALL, {}),
        ("results.test", "qrels.test.with-comments", "out.test", ["official"], {}),
        ("results.trunc", "qrels.test", "out.test.aqc", ALL, {}),
        ("results.trunc", "qrels.test", "out.test.aqcM", ALL, {"depth": 100}),
        ("results.test", "qrels.rel_level", "out.test.aql", ALL, {"level": 2}),
        ("results.test", "qrels.test", "out.test.meas_params", PARAMETERS, {}),
    ],
)
def test_the_digits_are_those_of_trec_evals_own_tests(run, qrels, output, measures, options):
    found = printed(evaluate(OFFICIAL / f"{run}.gz", OFFICIAL / f"{qrels}.gz", measures, intervals=0, **options))
    expected: dict[str, dict[str, str]] = {}
    for line in gzip.decompress((OFFICIAL / f"{output}.gz").read_bytes()).decode().splitlines():
        measure, query, value = (word.strip() for word in line.split("\t"))
        expected.setdefault(query, {})[measure] = value
    for query, values in expected.items():
        assert found[query] == {name: values[name] for name in found[query]}


def test_gains_of_grades_are_those_of_trec_evals_own_test():
    files = (OFFICIAL / "results.test.gz", OFFICIAL / "qrels.test.gz")
    found = evaluate(*files, ["ndcg"], gains={1: 3, 2: 9, 4: 4.5}, intervals=0)
    output = gzip.decompress((OFFICIAL / "out.test.meas_params.gz").read_bytes()).decode()
    [value] = re.findall(r"ndcg_1=3,2=9,4=4.5\s+all\s+(\S+)", output)
    assert found.lines(found.runs[0])[0].split()[-1] == value


@pytest.mark.parametrize(
    ("name", "value", "digits"),
    [
        ("ERR@20", 0.220497, 5),  # gdeval rounds every query to five digits
        ("nDCG(dcg='exp-log2')@10", 0.255303, 5),
        ("RBP(p=0.8, rel=2)", 0.2631368681014437, 12),
    ],
)
def test_measures_that_trec_eval_lacks_have_the_numbers_of_ir_measures(name, value, digits):
    """Of ir_measures 0.4.3, which asks gdeval and cwl-eval."""
    found = evaluate(OFFICIAL / "results.test.gz", OFFICIAL / "qrels.rel_level.gz", [name], intervals=0)
    [values] = found.values.values()
    assert next(iter(values.values())) == pytest.approx(value, abs=10.0**-digits)


def test_judged_has_the_number_of_ir_measures_and_leaves_out_negative_grades():
    files = [(OFFICIAL / "results.test.gz", OFFICIAL / f"qrels.{name}.gz") for name in ("test", "rel_level")]
    found = [evaluate(*each, ["Judged@100"], intervals=0).values["results.test"]["judged_100"] for each in files]
    assert found == pytest.approx([0.9033333333333333, 0.7933333333333333])  # the same documents, some of grade -1


def by_hand(run: dict[str, float], judged: dict[str, float]) -> dict[str, float]:
    """Measures of ir_measures that trec_eval lacks, of one query, by loops over their definitions."""
    order = sorted(run, key=lambda name: (run[name], name), reverse=True)
    goes_on, err, rbp = 1.0, 0.0, 0.0
    for place, name in enumerate(order):
        stops = (2 ** max(judged.get(name, 0), 0) - 1) / 2**4
        err += goes_on * stops / (place + 1)
        goes_on *= 1 - stops
        rbp += 0.2 * 0.8**place * (judged.get(name, 0) >= 1)
    return {"err": err, "rbp(p=0.8)": rbp, "judged_5": sum(name in judged for name in order[:5]) / min(5, len(order))}


def test_err_rbp_and_judged_are_what_their_definitions_say():
    found = numbers({"a": RUN})
    for query in QRELS:
        for name, value in by_hand(RUN[query], QRELS[query]).items():
            assert found[query][name] == pytest.approx(value, rel=1e-12)


def test_err_of_a_short_list_is_that_of_gdeval():
    found = evaluate({"a": {"1": {"x": 3.0, "y": 2.0, "z": 1.0}}}, {"1": {"x": 4, "y": 0, "z": 1}}, ["ERR@20"])
    assert found.values["a"]["err_20"] == pytest.approx(15 / 16 + (1 / 16) * (1 / 16) / 3)


def test_scores_that_differ_only_in_double_precision_are_ties_in_version_9():
    run, qrels = {"a": {"q": {"low": 1.0, "high": 1.0 + 1e-12}}}, {"q": {"low": 1}}
    ranks = {version: evaluate(run, qrels, ["RR"], trec_eval=version).values["a"]["recip_rank"] for version in (9, 10)}
    assert ranks == {9: 1.0, 10: 0.5}  # tied, "low" is the later name


def test_of_equal_scores_the_later_name_comes_first_also_where_names_are_integers():
    documents, scores = np.array([[2, 10, 9]]), np.ones((1, 3))
    found = [
        evaluate({"a": trec.from_matrix(documents, scores)}, {"0": {str(name): 1}}, ["RR"]).values["a"]["recip_rank"]
        for name in (9, 2, 10)
    ]
    assert found == pytest.approx([1, 1 / 2, 1 / 3])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *(
            ("nDCG@10", "ndcg_cut_10"),
            ("AP(rel=2)", "map(rel=2)"),
            ("P(rel=2)@5", "P_5(rel=2)"),
            ("R@100", "recall_100"),
        ),
        *(("recall", "set_recall"), ("precision", "set_P"), ("r-precision", "Rprec"), ("f1", "set_F")),
    ],
)
def test_names_of_ir_measures_and_ranx_mean_the_same_as_trec_evals(name, shown):
    assert list(map(str, metrics_of([name]))) == [shown] == list(map(str, metrics_of([shown])))


@pytest.mark.parametrize(
    "name",
    [
        *("nDCG@0", "P", "rbp.95", "map_10.5", "nope", "P_5(p=0.8)", "rbp(p=1.5)", "iprec_at_recall_2"),
        *("P_" + "9" * 400, "map(rel=inf)", "map(rel=2.5)"),
    ],
)
def test_a_measure_that_there_is_not_is_named(name):
    with pytest.raises(ValueError, match="metric") as raised:
        metrics_of([name])
    assert repr(name) in str(raised.value)


def test_expected_reciprocal_rank_takes_grades_of_which_the_power_of_two_overflows():
    found = evaluate({"a": {"q": {"x": 2.0, "y": 1.0}}}, {"q": {"x": 1999, "y": 2000}}, ["err(max_grade=2000)@5"])
    assert found.values["a"]["err_5(max_grade=2000)"] == pytest.approx(1 / 2 + 1 / 2 * 1 / 2)


# ------------------------------------------------------------------------------------------------------------ the input


def rows_of_run() -> list[tuple[str, str, float]]:
    return [(query, document, score) for query, scores in RUN.items() for document, score in scores.items()]


def written(folder: Path, kind: str) -> Path:
    """The run in a file of a kind."""
    path, table = folder / f"a.{kind}", rows_of_run()
    plain = path.with_suffix("") if kind.endswith("gz") else path
    if kind in ("csv", "tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            writer.writerow(["score", "query", "document"])
            writer.writerows((score, query, document) for query, document, score in table)
    elif kind == "json":
        path.write_text(json.dumps(RUN), encoding="utf-8")
    elif kind == "jsonl":
        names = ("query", "doc_id", "score")
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in table), encoding="utf-8")
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        queries, documents, scores = zip(*table, strict=True)
        columns = {"query": pyarrow.array(queries).dictionary_encode(), "docid": documents, "score": scores}
        parquet.write_table(pyarrow.table(columns), path)
    else:
        text = "".join(f"{query}\tQ0 {document}  1 {score!r} a b\n" for query, document, score in table)
        plain.write_text(text, encoding="utf-8")
        if kind.endswith("gz"):
            path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet", "trec", "trec.gz"])
def test_a_run_has_the_same_numbers_from_any_file(tmp_path, kind):
    assert numbers(written(tmp_path, kind)) == numbers({"a": RUN})


def test_a_run_has_the_same_numbers_from_columns_and_matrices():
    queries, documents, scores = zip(*rows_of_run(), strict=True)
    expected = numbers({"a": RUN})
    assert numbers({"a": trec.from_columns(queries, documents, scores)}) == expected
    width = max(map(len, RUN.values())) + 3
    names = [[*each, *[""] * (width - len(each))] for each in RUN.values()]
    values = [[*each.values(), *[99.0] * (width - len(each))] for each in RUN.values()]
    assert numbers({"a": trec.from_matrix(names, values, queries=list(RUN))}) == expected


def test_places_of_no_document_and_scores_of_minus_infinity_are_not_retrieved():
    short = {"0": {"0": 3.0, "2": 1.0}, "1": {"1": 2.0}}
    qrels = {"0": {"2": 1, "1": 1}, "1": {"0": 1}}
    expected = numbers({"a": short}, qrels)
    scores = np.array([[3.0, -np.inf, 1.0], [-np.inf, 2.0, -np.inf]])
    assert numbers({"a": trec.from_scores(scores)}, qrels) == expected
    lists = trec.from_matrix([[0, 2], [1, -1]], [[3.0, 1.0], [2.0, 5.0]])
    assert numbers({"a": lists}, qrels) == expected


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_size_of_the_parts_that_are_read_does_not_matter(tmp_path, monkeypatch, size):
    expected = numbers({"a": RUN})
    monkeypatch.setattr(files, "AT_ONCE", size)
    monkeypatch.setattr(files, "BYTES", 5 * size)
    columns = list(zip(*rows_of_run(), strict=True))
    together = trec.from_columns(*columns)
    apart = trec.from_columns(*(column[::2] + column[1::2] for column in columns))
    for run in (RUN, together, apart):
        assert numbers({"a": run}) == expected
    for kind in ("trec", "csv", "jsonl"):
        assert numbers(written(tmp_path, kind)) == expected


def test_numbers_are_read_as_python_reads_them():
    generator = np.random.default_rng(0)
    values = [f"{value:.{digits}{kind}}" for value in generator.normal(size=50) * 10.0 ** generator.integers(-9, 9, 50)
              for digits in (0, 6, 17) for kind in "feg"]  # fmt: skip
    assert [files._number(value) for value in values] == list(map(float, values))
    assert all(np.isnan(files._number(text)) for text in ("1_0", "\u0661", "", "1.2.3", "0x1"))


# ------------------------------------------------------------------------------------------------------- what is wrong


GOOD = ["1 Q0 d1 1 3.5 a", "1 Q0 d2 2 2.5 a"]


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ([*GOOD, "1 Q0 d3 3"], ("line 3", "4 fields")),
        ([*GOOD, "", "# note", "1 Q0 d3 3 high a"], ("line 5", "'high'")),
        ([*GOOD, "1 Q0 d3 3 nan a"], ("line 3", "'nan'")),
        ([*GOOD, "1 Q0 d3 3 -inf a"], ("line 3", "'-inf'")),
        ([*GOOD, "1 Q0 d3 3 1e400 a"], ("line 3", "'1e400'")),
        ([*GOOD, "1 Q0 d1 3 0.5 a"], ("line 3", "'d1'", "line 1")),
        (["7 Q0 d1 1 3.5 a"], ("'7'", "'1'")),
        ([""], ("no rows",)),
    ],
)
def test_a_damaged_run_is_refused_with_file_and_line(tmp_path, run, words):
    paths = files_of(tmp_path, run, ["1 0 d1 1"])
    with pytest.raises(ValueError, match="a.run") as raised:
        evaluate(*paths)
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(
    ("qrels", "words"),
    [
        (["1 0 d1 1", "1 0 d1 2"], ("line 2", "'d1'", "line 1")),
        (["1 0 d1 0.5"], ("'d1'", "0.5")),
        (["1 0 d1 99999999999999999999"], ("line 1", "2^31", "1e+20")),
        (["1 0 d1 1 extra"], ("line 1", "5 fields")),
    ],
)
def test_damaged_judgements_are_refused_with_file_and_line(tmp_path, qrels, words):
    paths = files_of(tmp_path, GOOD, qrels)
    with pytest.raises(ValueError, match="a.qrels") as raised:
        evaluate(*paths)
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.trec.gz", gzip.compress("\n".join(GOOD * 50).encode(), mtime=0)[:-12], ()),
        ("a.trec.gz", b"no gzip", ()),
        ("a.trec", gzip.compress(b"1 Q0 d1 1 3.5 a\n", mtime=0), ("is a gzip file", ".gz")),
        ("a.trec", "\n".join(GOOD).encode("utf-16"), ("line 1", "U+0000", "UTF-8")),
        ("a.trec", b"1 Q0 d1 1 3.5 a\n1 Q0 d\0 2 2.5 a\n", ("line 2", "U+0000")),
        ("a.trec", b"1 Q0 d1 1 3.5 a\r\n1 Q0 d2 2 2.5 a\r1 Q0 d3 3 1.5 a\n", ("line 2", "U+000D")),
        ("a.csv", b"query,doc\n1,d1\n", ("'score'", "query, doc")),
        ("a.csv", b"query;doc;score\n1;d1;1\n", ("'query'", "a first line such as sep=;")),
        ("a.trec", b"1 Q0 d1 1 3.5 a\n#1 Q0 d1 1 3.5 a\n", ("line 2 begins with #", "a .tsv with a header")),
        ("a.trec", b"1,Q0,d1,1,3.5,a\n", ("line 1 has 1 field;", "read from a .csv")),
        ("a.trec", b"1 d1 3.5\n", ("line 1 has 3 fields;", "columns query, document and score")),
        ("a.csv", b"query,document,score\n1,d1\n", ("line 2", "2 fields")),
        ("a.csv", b"query,document,score\n1,d1,\xff\n", ("UTF-8",)),
        ("a.csv", b"query,document,score\n1,,2.5\n", ("line 2", "document")),
        ("a.csv", b"query,query,document,score\n1,2,d1,2.5\n", ("'query'",)),
        ("a.json", b'{"1": {"d1": 1, "d1": 2}}', ("'d1'",)),
        ("a.json", b'{"1": {"d1": 1}', ()),
        ("a.jsonl", b'{"query": 1, "document": "d1", "score": 1}\n{"query": 1}\n', ("line 2", "'document'")),
        ("a.json", b"[]", ("no rows",)),
        ("a.json", b'{"1": {"d1": 1e999}}', ("'1'", "'d1'", "inf")),
        ("a.jsonl", b'{"query": 1, "document": null, "score": 1}\n', ("line 1", "'document'", "None")),
        ("a.parquet", b"PAR1", ()),
        ("a.parquet", b"PAR1" + bytes(1000) + b"PAR1", ()),
    ],
)
def test_a_damaged_file_of_another_kind_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name) as raised:
        evaluate(tmp_path / name, {"1": {"d1": 1}})
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("score", ["1.0", "high"], "line 2: the score must be a finite number; got 'high'"),
        ("score", [{"a": 1}, {"a": 2}], "line 1: the score must be a finite number; got"),
        ("document", [[1], [2]], "line 1: 'document' must be a string or an integer; got \\[1"),
        ("document", [b"\xff", b"d2"], "line 1: 'document' must be a string or an integer; got b'"),
    ],
)
def test_a_column_of_a_parquet_that_has_other_values_is_named(tmp_path, column, values, message):
    import pyarrow
    from pyarrow import parquet

    columns = {"query": ["1", "1"], "document": ["d1", "d2"], "score": [2.0, 1.0], column: values}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=f"a.parquet, {message}"):
        evaluate(tmp_path / "a.parquet", {"1": {"d1": 1}})


def test_only_a_comment_may_begin_with_the_sign_of_a_comment(tmp_path):
    (tmp_path / "a.run").write_text("#query Q0 document rank score tag\n# 1 Q0 d9 1 9.5 a\n1 Q0 d1 1 3.5 a\n")
    assert "1.0000" in str(evaluate(tmp_path / "a.run", {"1": {"d1": 1}}, ["map"]))
    (tmp_path / "a.qrels").write_text("1 0 d1 1\n#1 0 d2 1\n")
    with pytest.raises(ValueError, match=r"a.qrels, line 2 begins with #"):
        evaluate(tmp_path / "a.run", tmp_path / "a.qrels")
    with pytest.raises(ValueError, match="the query '#1' .*begins with #"):
        trec.write_run({"#1": {"d": 1.0}}, tmp_path / "b.run")


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_no_finite_number_is_refused_with_query_and_document(score):
    with pytest.raises(ValueError, match=r"'q'.*'d'"):
        evaluate({"a": {"q": {"d": score}}}, {"q": {"d": 1}})


def test_a_folder_and_a_name_of_nothing_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        evaluate(tmp_path, QRELS)
    with pytest.raises(FileNotFoundError, match="there is no file .*lost.run$"):
        evaluate(tmp_path / "lost.run", QRELS)


def test_a_score_that_is_no_number_at_all_is_refused_with_query_and_document():
    with pytest.raises(TypeError, match=r"'q'.*'d2'.*'high'"):
        evaluate({"a": {"q": {"d": 1.0, "d2": "high"}}}, {"q": {"d": 1}})


def test_nan_in_a_matrix_of_scores_is_refused_and_not_taken_for_a_document_that_was_not_retrieved():
    with pytest.raises(ValueError, match="nan"):
        evaluate({"a": trec.from_scores(np.array([[1.0, np.nan]]))}, {"0": {"1": 1}})


@pytest.mark.parametrize(("gains", "named"), [({"2": 3.0}, "'2'"), ({2: float("nan")}, "nan"), ({2: "x"}, "'x'")])
def test_gains_must_be_numbers_of_integer_grades(gains, named):
    with pytest.raises(ValueError, match="gain") as raised:
        evaluate({"a": RUN}, QRELS, ["ndcg"], gains=gains)
    assert named in str(raised.value)


def test_measures_that_are_no_means_have_no_intervals_and_no_tests():
    found = evaluate({"a": RUN, "b": RUN}, QRELS, ["num_rel(rel=2)", "gm_map", "rbp(p=0.9)", "P_5(rel=2)"])
    assert found.means == ("rbp(p=0.9)", "P_5(rel=2)") == tuple(found.intervals["a"])
    assert {each.metric for each in found.differences} == set(found.means)


def test_a_grade_whose_gain_is_beyond_what_floats_hold_is_refused():
    with pytest.raises(ValueError, match=r"50.*2000"):
        evaluate({"a": {"q": {"d": 1.0}}}, {"q": {"d": 2000}}, ["nDCG(dcg=exp-log2)@10"])


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_the_largest_integers_name_documents_as_they_are_written(kind):
    values = np.array([np.iinfo(kind).max, np.iinfo(kind).min], kind)
    assert lists.names(values) == list(map(str, values.tolist()))


def test_tied_documents_are_in_the_reverse_order_of_their_bytes():
    words = ["b" * 100, "a", "b" * 99, "z", "\u00e4", "B", "\U0001f600", "\uffff"]
    ranks = judged.ranks_in_list(words, np.array([1.0, 1, 1, 2, 1, 1, 1, 1]))
    order = sorted((word for word in words if word != "z"), key=str.encode, reverse=True)
    assert [word for _, word in sorted(zip(ranks.tolist(), words, strict=True))] == ["z", *order]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"query,topic\n1,a\n", ("query", "topic")),
        (b"query,group\n1,\n", ("line 2",)),
        (b"query,group\n1,a\n2,\xff\n", ("UTF-8",)),
        (b'query,group\n1,"a\n', ("end of data",)),
        (b"", ("query and a group",)),
    ],
)
def test_a_damaged_file_of_groups_is_named(tmp_path, content, words):
    (tmp_path / "topics.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"topics\.csv") as raised:
        evaluate({"a": {"1": {"d1": 1.0}}}, {"1": {"d1": 1}}, groups=tmp_path / "topics.csv")
    assert all(word in str(raised.value) for word in words), raised.value


def test_memory_does_not_grow_with_a_run_file_whose_lists_stand_together(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BYTES", 2**14)

    def peak(queries: int) -> int:
        path = tmp_path / f"{queries}.run"
        with path.open("w", encoding="utf-8") as file:
            for query in range(queries):
                file.writelines(f"q{query} Q0 d{rank} {rank} {-rank} a\n" for rank in range(200))
        tracemalloc.start()
        try:
            evaluate(path, {"q0": {"d3": 1}}, ["map"], intervals=0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # loads what is loaded once
    small, large = peak(100), peak(800)
    assert large < 1.5 * small


def test_a_run_that_is_given_without_a_name_is_told_how_to_give_one():
    with pytest.raises(TypeError, match="name"):
        evaluate(RUN, QRELS)


def test_a_query_on_one_side_only_is_told_and_counts_as_metrics_of():
    run, qrels = {"q1": {"d": 1.0}, "q3": {"d": 1.0}}, {"q1": {"d": 1}, "q2": {"d": 1}}
    zero, skip = (evaluate({"a": run}, qrels, ["map"], missing=how) for how in ("zero", "skip"))
    assert (zero.values["a"]["map"], skip.values["a"]["map"]) == (0.5, 1.0)
    assert list(zero.by_query("a")) == ["q1", "q2"] and list(skip.by_query("a")) == ["q1"]
    assert any("q2" in note for note in zero.notes) and any("q3" in note for note in zero.notes)


# --------------------------------------------------------------------------------------------- tests, groups, the page


@pytest.fixture(scope="module")
def several() -> Evaluation:
    generator = np.random.default_rng(5)
    qrels = {f"q{q}": {f"d{d}": int(generator.integers(3)) for d in range(20)} for q in range(40)}
    runs = {
        f"<{name}>": {
            q: {d: grade + noise * float(generator.normal()) for d, grade in judged.items()}
            for q, judged in qrels.items()
        }
        for name, noise in (("good", 0.5), ("same", 0.5), ("bad", 3.0))
    }
    del runs["<same>"]["q3"]
    groups = {f"q{q}": "even" if q % 2 == 0 else "odd" for q in range(40)}
    return evaluate(runs, qrels, ["map", "ndcg_cut_5", "num_rel_ret"], groups=groups, intervals=200)


def test_every_pair_is_tested_by_the_paired_t_test_with_holms_correction(several):
    tests = [each for each in several.differences if each.metric == "map"]
    assert [(each.run, each.other) for each in tests] == [
        ("<same>", "<good>"), ("<bad>", "<good>"), ("<bad>", "<same>")]  # fmt: skip
    for each in tests:
        one, other = (several.per_query[run]["map"] for run in (each.run, each.other))
        assert each.p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert max(each.corrected / each.p for each in tests) == pytest.approx(3)


def test_fewer_than_six_queries_have_an_interval_and_no_p(several, tmp_path):
    queries = several.queries[:5]
    runs, qrels = (
        {name: {query: {"d": 1.0 + place * at} for place, query in enumerate(queries)} for at, name in enumerate("ab")},
        {query: {"d": 1} for query in queries},
    )
    runs["b"][queries[0]] = {"other": 2.0, "d": 1.0}
    found = evaluate(runs, qrels, ["map"], intervals=0)
    [each] = found.differences
    assert (each.p, each.corrected, each.detectable) == (None, None, None) and each.low < each.mean < each.high
    assert any("no p-value" in note for note in found.notes) and " -" in str(found)
    page = Page(write(found, tmp_path))
    assert "map: too few queries for a p" in page.text and "pair differs" not in page.text
    assert "There are too few queries for a test." in page.text


def test_a_run_is_tested_against_the_baseline_alone():
    assert comparison.pairs_of(["a", "b", "c"], "b") == [("a", "b"), ("c", "b")]


def test_a_difference_of_the_detectable_size_is_found_with_a_chance_of_80_percent():
    size = detectable(1.0, 30, 0.01)
    drawn = np.random.default_rng(0).normal(size, 1.0, (20_000, 30))
    assert (stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.01).mean() == pytest.approx(0.8, abs=0.015)


def test_equal_runs_have_no_detectable_difference(tmp_path):
    queries = {f"{name} {n}": row for n in range(6) for name, row in QRELS.items()}
    run = {f"{name} {n}": row for n in range(6) for name, row in RUN.items()}
    found = evaluate({"a": run, "b": run}, queries, ["map"], intervals=0)
    [each] = found.differences
    assert (each.mean, each.p, each.detectable) == (0, 1, None) and "0.0000\n" not in f"{found}\n".partition(
        "detectable"
    )[2]
    assert "<td>0.0000</td>" not in write(found, tmp_path).read_text()


def test_measures_are_separated_by_commas_or_spaces(tmp_path, capsys):
    run, judged = tmp_path / "a.run", tmp_path / "q.txt"
    run.write_text("q1 Q0 d1 1 0.9 r\nq1 Q0 d2 2 0.8 r\n")
    judged.write_text("q1 0 d1 1\n")
    shown = []
    for words in (
        ["-m", "map,P.5,10"],
        ["--metrics", "map, P.5 P.10"],
        ["-m", "map P.5,10 "],
    ):
        for order in ([str(run), *words, "--qrels", str(judged)], [*words, str(run), "--qrels", str(judged)]):
            assert main(["evaluate", *order]) == 0
            shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1 and "P_10" in shown[0]


def test_the_value_of_a_group_is_the_mean_of_its_queries(several):
    rows = {(row["group"], row["run"], row["metric"]): row for row in several.of_groups}
    even = [int(query[1:]) % 2 == 0 for query in several.queries]
    expected = several.per_query["<bad>"]["map"][even].mean()
    row = rows["even", "<bad>", "map"]
    assert row["queries"] == 20 and row["value"] == pytest.approx(expected) and row["low"] < expected < row["high"]


def test_the_page_shows_the_runs_and_its_files_hold_every_number(several, tmp_path):
    page = Page(write(several, tmp_path / "new"))
    assert all(f"<{name}>" in page.text for name in ("good", "same", "bad")) and not page.inside["script"]
    assert "q3" in page.text and "Groups of queries" in page.text
    with (tmp_path / "new" / "per-query.csv").open(encoding="utf-8", newline="") as file:
        table = {(row["run"], row["query"]): float(row["map"]) for row in csv.DictReader(file)}
    for run in several.runs:
        assert [table[run, query] for query in several.queries] == several.per_query[run]["map"].tolist()
    found = json.loads((tmp_path / "new" / "evaluation.json").read_text(encoding="utf-8"))
    assert found["values"] == several.values
    with (tmp_path / "new" / "differences.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(several.differences)


def test_the_page_begins_with_what_the_tests_of_the_first_measure_found(several, tmp_path):
    values = {run: several.values[run]["map"] for run in several.runs}
    best, *others = sorted(values, key=lambda run: -values[run])
    p = {frozenset((each.run, each.other)): each.corrected for each in several.differences if each.metric == "map"}
    (behind,), (level,) = ([run for run in others if (p[frozenset((run, best))] < 0.05) == sure] for sure in (1, 0))
    text = Page(write(several, tmp_path)).text
    words = f"{best} has the highest mean. {behind} is behind {best}. No difference from {best} was found for {level}."
    assert 0 < text.index(words) < text.index("Means over the queries")


def test_with_a_baseline_the_page_says_which_runs_are_ahead_of_it(tmp_path):
    queries = [f"q{n}" for n in range(8)]
    right = [3.0, 3.0, 3.0, 2.5, 3.0, 3.0, 2.5, 3.0]  # rank 1 or 2 of the relevant document; 3 in the baseline
    runs = {
        "old": {query: {"d1": 1.0, "d2": 2.75, "d3": 2.0} for query in queries},
        "new": {query: {"d1": score, "d2": 2.75, "d3": 2.0} for query, score in zip(queries, right, strict=True)},
    }
    found = evaluate(runs, {query: {"d1": 1} for query in queries}, ["recip_rank"], baseline="old", intervals=0)
    text = Page(write(found, tmp_path)).text
    assert "new is ahead of old." in text and "highest mean" not in text


def test_the_page_counts_only_pairs_that_differ_on_some_query_for_what_is_detectable(tmp_path):
    run, qrels = ({f"{query} {n}": row for n in range(6) for query, row in each.items()} for each in (RUN, QRELS))
    runs = {"a": run, "same": run, "b": {query: dict.fromkeys(scores, 1.0) for query, scores in run.items()}}
    found = evaluate(runs, qrels, ["map", "num_ret", "judged_1000"], intervals=0)
    sizes = {(each.run, each.other, each.metric): each.detectable for each in found.differences}
    page = Page(write(found, tmp_path))
    assert f"map: 0 of 3 pairs differ; detectable: {sizes['b', 'a', 'map']:.4f}" in page.text
    assert "judged_1000: 0 of 3 pairs differ" in page.text and "judged_1000: 0 of 3 pairs differ;" not in page.text


def test_a_page_of_one_run_and_of_many_can_be_written(tmp_path):
    for count in (1, 9):
        runs = {f"run{place}": {query: dict(list(row.items())[place:]) for query, row in RUN.items()}
                for place in range(count)}  # fmt: skip
        found = evaluate(runs, QRELS, ["map", "num_ret"], intervals=10)
        page = Page(write(found, tmp_path))
        assert all(name in page.text for name in runs)


def test_the_page_shows_the_first_of_many_groups_and_the_csv_all(tmp_path):
    queries = [f"q{number}" for number in range(302)]
    groups = {query: f"group {number:03}" for number, query in enumerate(queries)}
    runs = {"a": {query: {"d1": 1.0} for query in queries}}
    page = Page(write(evaluate(runs, {q: {"d1": 1} for q in queries}, ["map"], groups=groups), tmp_path))
    assert "map in the first 200 of 302 groups" in page.text
    assert "group 199" in page.text and "group 200" not in page.text
    assert len((tmp_path / "groups.csv").read_text(encoding="utf-8").splitlines()) == 303


def test_many_runs_are_printed_as_rows_and_few_as_columns():
    for count, first in ((4, "metric"), (5, "run")):
        found = evaluate({f"r{place}": RUN for place in range(count)}, QRELS, ["map", "P_5"], intervals=5)
        head, *rows = str(found).split("\n\n")[0].splitlines()
        assert head.split()[0] == first
        assert [row.split()[0] for row in rows[:2]] == (["map", "P_5"] if first == "metric" else ["r0", "r1"])


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_command_prints_the_lines_of_trec_eval(tmp_path, capsys):
    run, qrels = files_of(tmp_path, GOLDEN[0]["run"], GOLDEN[0]["qrels"])
    assert main(["evaluate", str(run), "--qrels", str(qrels), "--lines", "all"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {name: value for name, _, value in lines}["map"] == GOLDEN[0]["printed"]["all"]["map"]


def test_the_command_writes_a_page_of_several_runs_and_says_what_was_left_out(tmp_path, capsys):
    run, qrels = files_of(tmp_path, GOLDEN[0]["run"], GOLDEN[0]["qrels"])
    (tmp_path / "b.run").write_text("301 Q0 d1 1 2.0 b\n9 Q0 d5 1 2.0 b\n", encoding="utf-8")
    groups = tmp_path / "groups.csv"
    groups.write_text("query,group\n301,one\n9,one\n", encoding="utf-8")
    more = ["-m", "P.5,10,nDCG@10", "--groups", str(groups), "-o", str(tmp_path / "out"), "--bootstrap", "0"]
    assert main(["evaluate", str(run), str(tmp_path / "b.run"), "--qrels", str(qrels), *more]) == 0
    shown = capsys.readouterr().out
    assert "P_5" in shown and "P_10" in shown and "ndcg_cut_10" in shown and "in the run b: 1 of 3 (q_10)" in shown
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("differences.csv", "evaluation.html", "evaluation.json", "groups.csv", "per-query.csv", "values.csv")
    ]
    title = (tmp_path / "out" / "evaluation.html").read_text("utf-8").partition("<title>")[2].partition("</title>")[0]
    assert title.startswith(f"{qrels.stem}: ") and title.endswith("b")  # the judgements, and the runs


def test_tables_of_an_earlier_evaluation_do_not_stay(tmp_path):
    judged = {"q1": {"d1": 1}, "q2": {"d1": 1}}
    runs = {name: {query: {"d1": 1.0, "d2": 2.0} for query in judged} for name in ("a", "b")}
    out = tmp_path / "out"
    write(trec.evaluate(runs, judged, groups={"q1": "x", "q2": "y"}, intervals=0), out)
    assert {"differences.csv", "groups.csv"} < {path.name for path in out.iterdir()}
    one = trec.evaluate({"a": runs["a"]}, judged, intervals=0)
    write(one, out)
    assert sorted(path.name for path in out.glob("*.csv")) == ["per-query.csv", "values.csv"]
    (out / "groups.csv").write_text("query,group\nq1,x\n", encoding="utf-8")
    write(one, out)
    assert (out / "groups.csv").read_text(encoding="utf-8") == "query,group\nq1,x\n"


def test_a_file_in_the_place_of_the_folder_is_told_before_the_work(tmp_path, capsys):
    run, qrels = files_of(tmp_path, GOLDEN[0]["run"], GOLDEN[0]["qrels"])
    assert main(["evaluate", str(run), "--qrels", str(qrels), "-o", str(run)]) == 2
    printed = capsys.readouterr()
    assert "folder" in printed.err and not printed.out


def test_a_file_that_is_read_is_not_replaced_by_a_result(tmp_path, capsys):
    run, qrels = files_of(tmp_path, GOLDEN[0]["run"], GOLDEN[0]["qrels"])
    groups = tmp_path / "groups.csv"
    groups.write_text("query,group\n301,one\n", encoding="utf-8")
    assert main(["evaluate", str(run), "--qrels", str(qrels), "--groups", str(groups), "-o", str(tmp_path)]) == 2
    assert f"would replace {groups}, which is read here" in capsys.readouterr().err
    assert groups.read_text(encoding="utf-8") == "query,group\n301,one\n"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["a.run", "b.run"], "--qrels"),
        (["a.run", "--level", "2"], "--level"),
        (["a.run", "--qrels", "x", "-k", "5"], "--ks"),
    ],
)
def test_options_that_do_not_go_together_are_named(capsys, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    for name in ("a.run", "b.run", "x"):
        (tmp_path / name).write_text("q Q0 d 1 1 t\n")
    assert main(["evaluate", *words]) == 2
    assert named in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- fusion, and writing


def drawn_runs(seed: int, systems: int = 3) -> dict[str, dict[str, dict[str, float]]]:
    """Runs with equal scores, and with queries that only some of them have."""
    g = np.random.default_rng(seed)
    return {
        f"s{system}": {
            f"q{query}": {
                f"d{document}": float(g.integers(0, 9)) for document in g.permutation(12)[: g.integers(1, 12)]
            }
            for query in g.permutation(6)[:4]
        }
        for system in range(systems)
    }


def fused_slowly(runs: Any, k: float, weights: dict[str, float], depth: int | None) -> dict[str, list[tuple[str, Any]]]:
    found: dict[str, dict[str, Fraction]] = {}
    for name, run in runs.items():
        for query, listed in run.items():
            order = sorted(listed, key=lambda document: (listed[document], document), reverse=True)
            for rank, document in enumerate(order, start=1):
                scores = found.setdefault(query, {})
                scores[document] = scores.get(document, Fraction(0)) + Fraction(weights[name]) / Fraction(k + rank)
    return {q: sorted(each.items(), key=lambda x: (x[1], x[0]), reverse=True)[:depth] for q, each in found.items()}


@pytest.mark.parametrize(("k", "depth", "weights"), [(60, None, [1, 1, 1]), (0, 3, [1, 1, 1]), (2.5, 5, [2, 1, 0.5])])
def test_fusion_equals_a_slow_one_in_fractions(k, depth, weights, tmp_path):
    for seed in range(4):
        runs = drawn_runs(seed)
        wanted = fused_slowly(runs, k, dict(zip(runs, weights, strict=True)), depth)
        paths = [trec.write_run(run, tmp_path / f"{name}.run.gz", name) for name, run in runs.items()]
        named = dict(zip(runs, weights, strict=True))
        for given in (runs, paths):
            found = trec.fuse(given, k, depth, weights=named)
            assert {*found} == {*wanted}
            for query, listed in found.items():
                assert list(listed) == [document for document, _ in wanted[query]]
                assert list(listed.values()) == pytest.approx([float(score) for _, score in wanted[query]], rel=1e-15)
        assert found == trec.fuse(dict(reversed(runs.items())), k, depth, weights=named)


def test_a_run_that_was_written_is_the_same_run(tmp_path):
    [run] = drawn_runs(5, 1).values()
    qrels = {query: {"d1": 1, "d2": 2} for query in run}
    path = trec.write_run(run, tmp_path / "mine.run", tag="mine")
    for line in path.read_text().splitlines():
        query, q0, document, rank, score, tag = line.split(" ")
        assert q0 == "Q0" and tag == "mine" and run[query][document] == float(score) and int(rank) >= 1
    assert numbers({"a": run}, qrels) == numbers([path], qrels)
    for wrong in ({"q 1": {"d": 1.0}}, {"q": {"": 1.0}}, {"q": {"a\u2003b": 1.0}}):
        with pytest.raises(ValueError, match="white space"):
            trec.write_run(wrong, tmp_path / "wrong.run")
    with pytest.raises(ValueError, match="tag"):
        trec.write_run(run, tmp_path / "wrong.run", tag="my system")
    with pytest.raises(ValueError, match="finite"):
        trec.write_run({"q": {"d": float("nan")}}, tmp_path / "wrong.run")
    assert not (tmp_path / "wrong.run").exists()


def test_the_command_adds_the_fusion_with_its_tests(tmp_path, capsys):
    g = np.random.default_rng(0)
    qrels = {f"q{query}": {f"d{query}": 1} for query in range(12)}
    for name in ("one", "two"):
        run = {query: {f"d{document}": float(g.random()) for document in range(12)} for query in qrels}
        trec.write_run(run, tmp_path / f"{name}.run", name)
    lines = [f"{query} 0 {document} 1\n" for query, each in qrels.items() for document in each]
    (tmp_path / "q.qrels").write_text("".join(lines))
    paths = [str(tmp_path / f"{name}.run") for name in ("one", "two")]
    command = ["--qrels", str(tmp_path / "q.qrels"), "-m", "map", "--fuse", "-o", str(tmp_path / "out")]
    assert main(["evaluate", *paths, *command]) == 0
    assert "fusion - one" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert content["runs"] == ["one", "two", "fusion"] and "map" in content["intervals"]["fusion"]
    wanted = evaluate({"fusion": trec.fuse(paths)}, qrels, ["map"], intervals=0).values["fusion"]["map"]
    assert content["values"]["fusion"]["map"] == wanted
    assert main(["evaluate", paths[0], *command]) == 2
    assert "two or more runs" in capsys.readouterr().err
    assert main(["evaluate", paths[0], "--fuse"]) == 2
    assert "--qrels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": {"a": 1}}, "for the runs a, b; got a"),
        ({"weights": {"a": 1, "b": -1}}, "the weight of a run"),
        ({"weights": {"a": 1, "c": 1}}, "for the runs a, b; got a, c"),
        ({"k": -1}, "k is added to every rank"),
        ({"depth": 0}, "depth is a number of documents"),
    ],
)
def test_wrong_options_of_a_fusion_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        trec.fuse({"a": RUN, "b": RUN}, **given)
