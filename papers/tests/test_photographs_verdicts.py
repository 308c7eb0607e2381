"""The verdicts of the photographs, on values whose differences can be computed by hand."""

from __future__ import annotations

import csv

import pytest

from rankgrad_papers.studies import photographs_verdicts
from rankgrad_papers.studies.photographs import ROWS
from rankgrad_papers.studies.photographs_verdicts import LINES, SHARE, compared, told, units
from rankgrad_papers.values import append

TABLES = {
    "roadmap-table2": {
        ("SmoothAP [2] (H- no, Lcalibr no)", ""): {"mAP@R": 3.0, "R@1": 20.0},
        ("SupAP (H- yes, Lcalibr no)", ""): {"mAP@R": 4.0, "R@1": 21.0},
        ("ROADMAP (H- yes, Lcalibr yes)", ""): {"mAP@R": 3.5, "R@1": 22.0},
    },
    "roadmap-table2-first": {
        ("SmoothAP [2] (H- no, Lcalibr no)", ""): {"mAP@R": 3.0},
        ("SupAP (H- yes, Lcalibr no)", ""): {"mAP@R": 2.0},
        ("ROADMAP (H- yes, Lcalibr yes)", ""): {"mAP@R": 2.5},
    },
    "roadmap-table6": {
        (row, batch): {"mAP@R": value + 10 * (batch == "32") * ("ROADMAP" in row)}
        for row, value in (("SupAP (H- yes, Lcalibr no)", 4.0), ("ROADMAP (H- yes, Lcalibr yes)", 6.0))
        for batch in ("32", "128", "384")
    },
    "roadmap-table9": {("SupAP", ""): {"DG_AP": 15.0}, ("ROADMAP (Lcalibr added to SupAP)", ""): {"DG_AP": 16.0}},
    "pnp-table1": {
        (f"PNP-{name}", ""): {"R@1": value} for name, value in (("O", 24.0), ("Iu", 23.0), ("Ds", 26.0), ("Dq", 21.0))
    },
    "pnp-table6": {("PNP-Dq", ""): {"R@1": 18.0}, ("Smooth-AP", ""): {"R@1": 15.0}},
    "rambo-table7": {("Full RaMBO", ""): {"R@1": 22.0}, ("RaMBO: No batch memory", ""): {"R@1": 24.0}},
}
#: Row -> mAP@R.
STUDY = {"supap": 4.0, "supap, wrong labels 0.4": 3.0, "pml/triplet": 2.0, "pml/triplet, wrong labels 0.4": 1.0}
STUDY = {row: STUDY.get(row, 5.0) for row in ROWS}


@pytest.fixture
def folder(tmp_path):
    for name, rows in TABLES.items():
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(["row", "dataset", "batch_size", "metric", "by_seed", "label"])
            for (row, batch), numbers in rows.items():
                for metric, value in numbers.items():
                    by_seed = f"0:{value} 1:{value + 1} 2:{value + 2}"
                    writer.writerows([row, data, batch, metric, by_seed, "stand-in"] for data in ("sop", "cub"))
    for place, (row, value) in enumerate(STUDY.items()):
        for seed in (0, 1):
            append(
                tmp_path / "finetuned.csv", {"row": row}, {"mAP@R": value, "R@1": place, "H-AP": -place}, seed=str(seed)
            )
    return tmp_path


def judged(folder, hypothesis):
    return {line.what: line.difference for line in compared(folder, hypothesis)}


def test_the_tables_are_compared_row_with_row(folder):
    assert judged(folder, "D2") == {"SupAP − Smooth-AP, first weights": -1, "SupAP − Smooth-AP, second weights": 1}
    assert judged(folder, "D3") == {"ROADMAP − SupAP, first weights": 0.5, "ROADMAP − SupAP, second weights": -0.5}
    assert judged(folder, "D5") == {"ROADMAP − SupAP": 1}
    assert judged(folder, "D6") == {"Ds − O": 2, "Dq − O": -3, "O − Iu": 1}
    assert judged(folder, "D7") == {"Dq − Smooth-AP": 1, "Dq − Smooth-AP, classes merged": 3}


def test_small_batches_are_judged_by_the_difference_of_two_differences(folder):
    first, second, both = compared(folder, "D4")
    assert (first.difference, second.difference, both.difference) == (12, 2, 10)


def test_a_memory_is_compared_at_both_rates(folder):
    places = {row: place for place, row in enumerate(STUDY)}
    slow = places["rambo_recall, rate 1e-5, memory"] - places["rambo_recall, rate 1e-5"]
    assert judged(folder, "D8") == {"memory − none, rate 1e-5": slow, "memory − none, rate of the recipe": -2}


def test_wrong_labels_are_judged_by_the_share_that_is_kept(folder):
    lines = list(compared(folder, "D9"))
    assert {line.metric for line in lines} == {SHARE}
    assert [line.difference for line in lines] == [75 - 100, 75 - 50, 75 - 100]


def test_groups_are_compared_with_the_bound_on_classes(folder):
    places = {row: place for place, row in enumerate(STUDY)}
    assert judged(folder, "D10") == {
        f"{loss} − supap": places["supap"] - places[f"{loss}, groups"] for loss in ("h_ap", "supndcg")
    }


def test_seeds_that_one_side_lacks_do_not_count(folder):
    append(folder / "finetuned.csv", {"row": "supap"}, {"mAP@R": 900.0, "R@1": 0.0, "H-AP": 900.0}, seed="7")
    before = judged(folder, "D9")
    assert before["supap − pml/triplet"] == 25


def test_the_command_tells_every_hypothesis_and_its_interval(folder, capsys):
    photographs_verdicts.main(["--values", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(told(folder))
    assert {line.split()[0] for line in lines} == set(LINES) == {f"D{number}" for number in range(2, 11)}
    assert [line for line in lines if line.startswith("D3")][1].endswith("-0.50 (-0.50 to -0.50)")


def test_a_row_that_is_not_there_is_named_and_so_is_a_file(folder):
    (folder / "roadmap-table9.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"roadmap-table9\.csv"):
        judged(folder, "D5")
    with pytest.raises(ValueError, match="PNP-Ds"):
        units(folder, "R@1", ("pnp-table6", "PNP-Ds"))
