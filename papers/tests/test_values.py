"""Files of measured values: read, added to cell by cell, and what they say."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from rankgrad.evaluation.statistics import FEWEST, paired_t_test
from rankgrad_papers.values import add_lines, append, cells, difference, read
from rankgrad_workbench.runs.provenance import made_by

ONE, OTHER = {"loss": "supap", "rate": ".01"}, {"loss": "pnp", "rate": ".01"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two losses, eight alphabets, two seeds of each."""
    path = tmp_path / "values.csv"
    for alphabet in range(8):
        for seed in range(2):
            append(path, ONE, {"R@1": 70 + alphabet + seed, "mAP@R": 30.0}, unit=f"a{alphabet}", seed=f"{seed}")
            append(path, OTHER, {"R@1": 69 + 1.5 * alphabet - seed}, unit=f"a{alphabet}", seed=f"{seed}")
    return path


def test_a_cell_comes_back_as_it_was_added(file):
    found = read(file)
    head, first, *_ = csv.reader(file.read_text().splitlines())
    assert head == ["loss", "rate", "unit", "seed", "metric", "value", "commit", "processor"]
    assert first == ["supap", ".01", "a0", "0", "R@1", "70", *made_by().values()] and all(first)
    assert found.settings == [ONE, OTHER] and found.metrics == ["R@1", "mAP@R"] and found.of_units
    assert (tuple(ONE.items()), "a7", "1") in cells(file) and len(cells(file)) == 32


def test_a_queue_goes_on_where_the_file_ends(file):
    with pytest.raises(ValueError, match="loss=supap and rate=.01 .*seed=1"):
        append(file, ONE, {"R@1": 1.0}, unit="a0", seed="1")
    with pytest.raises(ValueError, match="loss, rate, unit, seed, metric, value"):
        append(file, {"loss": "supap"}, {"R@1": 1.0}, unit="a8", seed="0")
    append(file, dict(reversed(ONE.items())), {"R@1": 1.0}, unit="a8", seed="0")
    assert read(file).units(ONE, "R@1")["a8"] == 1.0
    assert cells(file.with_name("another.csv")) == set()


def test_values_from_before_commit_and_processor_were_recorded_stay_and_are_read(tmp_path):
    path = tmp_path / "values.csv"
    path.write_text('loss,seed,metric,value\n"supap, a",0,R@1,70\n', encoding="utf-8")
    old = read(path)
    append(path, {"loss": "pnp"}, {"R@1": 71.0}, seed="0", made={"commit": "abc", "processor": "a, b"})
    rows = [*csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    assert [(row["loss"], row["commit"], row["processor"]) for row in rows] == [
        ("supap, a", "", ""),
        ("pnp", "abc", "a, b"),
    ]
    assert [*read(path)][:1] == [*old] and read(path).settings == [{"loss": "supap, a"}, {"loss": "pnp"}]
    add_lines(tmp_path / "chosen.csv", [{"loss": "pnp", "settings": "x=1"}])
    add_lines(tmp_path / "chosen.csv", [{"settings": "x=2", "loss": "ap"}])
    chosen = [*csv.DictReader((tmp_path / "chosen.csv").read_text(encoding="utf-8").splitlines())]
    assert [row["settings"] for row in chosen] == ["x=1", "x=2"] and all(row["commit"] for row in chosen)


def test_seeds_are_averaged_within_their_unit(file):
    assert read(file).units(ONE, "R@1") == {f"a{n}": 70.5 + n for n in range(8)}


def test_a_difference_is_one_of_units_that_both_have(file):
    append(file, ONE, {"R@1": 0.0}, unit="a8", seed="0")
    found, values = read(file), [(70.5 + n, 68.5 + 1.5 * n) for n in range(8)]
    told = difference(found.units(ONE, "R@1"), found.units(OTHER, "R@1"))
    assert told == paired_t_test([a for a, _ in values], [b for _, b in values])
    assert told.mean == pytest.approx(statistics.mean(a - b for a, b in values)) and told.n == 8
    assert difference(found.units(ONE, "mAP@R"), found.units(OTHER, "mAP@R")) is None


def test_fewer_than_six_units_have_an_interval_and_no_p():
    one = {str(unit): 2.0 + unit**2 for unit in range(FEWEST)}
    assert difference(one, dict.fromkeys(one, 1.0)).p is not None
    few = difference(one, dict.fromkeys(list(one)[:-1], 1.0))
    assert few.n == FEWEST - 1 and few.p is None and few.low < few.mean < few.high


def test_a_setting_is_named_by_what_it_alone_has(file):
    found = read(file)
    assert found.units({"loss": "pnp"}, "R@1") == found.units(OTHER, "R@1")
    with pytest.raises(ValueError, match="rate=.01 .*values.csv"):
        found.units({"rate": ".01"}, "R@1")
    with pytest.raises(ValueError, match="no loss=ap"):
        found.units({"loss": "ap"}, "R@1")


def test_files_of_reproduce_are_read_and_the_data_sets_of_a_stand_in_are_one(tmp_path):
    path = tmp_path / "x.csv"
    head = "row,dataset,varies,metric,by_seed,settings,label\n"
    path.write_text(head + "".join(f"SupAP,{data},t=1,R@1,0:71.5 1:70,loss=supap,small\n" for data in ("sop", "cub")))
    assert read(path).units({"row": "SupAP"}, "R@1") == {"0": 71.5, "1": 70.0}
    path.write_text(head + "".join(f"SupAP,{data},t=1,R@1,0:71.5,loss=supap,\n" for data in ("sop", "cub")))
    assert [setting["dataset"] for setting in read(path).settings] == ["sop", "cub"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss,seed,metric,value\nsupap,0,R@1,70\nsupap,0,R@1,71\n", "loss=supap, R@1 twice: seed=0"),
        ("loss,seed,metric,value\nsupap,0,R@1,high\n", "line 2: value must be a number; got 'high'"),
        ("loss,metric,value\nsupap,R@1,70\n", "columns metric, value, and seed or unit"),
    ],
)
def test_a_file_that_holds_no_values_is_refused(tmp_path, text, message):
    path = tmp_path / "values.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read(path)
