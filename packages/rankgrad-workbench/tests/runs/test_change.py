"""What training changed: a paired test over classes or queries, in words where it finds nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import copied
from small_runs import make_photos, small, train

from rankgrad.evaluation import evaluate
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.run_warnings import below_before, blind, change, network, remarks_of, told
from rankgrad_workbench.tasks.retrieval import task as retrieval


def of_queries(values: list[Any]) -> dict[str, Any]:
    return {
        "values": {"mAP@R": float(np.nanmean(np.array(values, dtype=float)))},
        "per_query": {"mAP@R": values},
        "counts": {"counted": len(values)},
    }


def test_one_query_of_fifteen_is_no_change_and_all_of_them_are():
    before = of_queries([0.5] * 15)
    worse = change(before, of_queries([0.1] + [0.5] * 14), "mAP@R")
    assert worse is not None and worse.after < worse.before and not worse.certain
    all_worse = change(before, of_queries([0.1] * 15), "mAP@R")
    assert all_worse is not None and all_worse.certain and str(all_worse).endswith("over 15 queries)")


def test_classes_are_paired_and_not_their_queries():
    rng = np.random.default_rng(0)
    labels = torch.arange(8).repeat_interleave(5)
    reports = []
    for spread in (1.0, 0.9):
        points = torch.eye(8)[labels] + spread * torch.from_numpy(rng.normal(size=(40, 8))).float()
        reports.append(evaluate(points, labels, intervals=0))
    before, after = map(vars, reports)
    found = change(before, after, "AP")
    assert found is not None and found.over == "classes" and found.found is not None and found.found.n == 8
    assert found.found.mean == pytest.approx(found.after - found.before)
    # json gives the same as the report itself
    plain = [json.loads(report.to_json()) for report in reports]
    assert change(plain[0], plain[1], "AP") == found
    several = torch.nn.functional.one_hot(labels, 8).bool()
    several[::2, 0] = True  # a query in two classes: classes are no groups of queries
    found = change(before, {**vars(evaluate(points, several, intervals=0))}, "AP")
    assert found is not None and found.over == "queries"


def test_queries_that_count_in_one_of_the_reports_alone_are_left_out():
    nan = float("nan")
    before, after = of_queries([0.5] * 6 + [nan]), of_queries([0.1] * 5 + [None, 0.4])
    before["values"], after["values"] = {"mAP@R": 0.5}, {"mAP@R": 0.1}
    found = change(before, after, "mAP@R")
    assert found is not None and found.found is None and not found.certain  # five are too few


def test_of_one_list_the_value_before_must_lie_above_the_interval_after(tmp_path):
    run = Run(copied("scores", tmp_path / "run"))
    content = json.loads(run.after.read_text())
    content["values"]["AP"], content["intervals"]["AP"] = 0.5, [0.3, 0.7]
    run.after.write_text(json.dumps(content))
    for before, warned in ((0.6, 0), (0.8, 1)):
        run.before.write_text(json.dumps({**json.loads(run.before.read_text()), "values": {"AP": before}}))
        assert len(below_before(run)) == warned and remarks_of(run) == []


@pytest.mark.parametrize("count", [2, 5])
def test_of_fewer_than_six_queries_there_is_no_test_and_it_is_said(count):
    said = told(of_queries([0.1] * count), of_queries([0.9] * count), "mAP@R", "untrained")
    assert said == "mAP@R +80.0 by training: too few queries to tell this from chance"


def test_a_gain_that_no_test_finds_is_said_and_one_that_it_finds_is_not():
    before = of_queries([0.5] * 15)
    lucky = told(before, of_queries([1.0, 0.8] + [0.5] * 13), "mAP@R", "untrained")
    assert lucky.startswith("No measurable difference by training: mAP@R +5.3 (") and "over 15 queries" in lucky
    assert told(before, of_queries([0.9] * 15), "mAP@R", "untrained") == ""


def test_a_network_that_could_not_work_is_no_baseline():
    alike = {"gallery": 100, "duplicates": 90, "zero_vectors": 0, "counted": 20}
    before, after = of_queries([0.0] * 20), of_queries([0.9] * 20)
    before["counts"], after["counts"] = alike, {**alike, "duplicates": 1}
    assert blind(before, after) == 89
    said = told(before, after, "mAP@R", "untouched")
    assert said.startswith("The untouched network gives 89 items of the gallery the embedding of another item")
    after["counts"] = alike  # the data have these copies, whatever the network
    assert blind(before, after) == 0 and told(before, after, "mAP@R", "untouched") == ""


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"model": {"kind": "timm", "weights": "resnet.pt"}}, "untouched"),
        ({"model": {"kind": "sentence_transformer", "name": "x"}}, "untouched"),
        ({"model": {"kind": "convnet"}, "init": "runs/x"}, "untouched"),
        ({"model": {"kind": "timm", "pretrained": False}}, "untrained"),
        ({"model": {"kind": "mlp"}}, "untrained"),
        ({}, "untrained"),
        ({"model": "convnet"}, "untrained"),
    ],
)
def test_a_network_that_was_trained_before_is_untouched(config, wanted):
    assert network(config) == wanted


def test_the_remark_is_on_the_page_and_in_the_last_lines_and_no_warning_is(tmp_path):
    run = Run(copied("retrieval", tmp_path / "run"))
    for path, values in ((run.before, [0.5] * 15), (run.after, [0.4] + [0.5] * 14)):
        content = json.loads(path.read_text())
        content["values"] |= {"mAP@R": float(np.mean(values)), "R@1": 0.5}
        content["per_query"] = {"mAP@R": values, "R@1": [0.5] * 15}
        content |= {"per_class": [], "without_relevant": []}
        path.write_text(json.dumps(content))
    assert below_before(run) == []
    assert remarks_of(run)[0].startswith("No measurable difference by training: mAP@R -0.7 (")
    page = write_report(tmp_path / "page.html", read_runs([run.folder], pictures=False)).read_text()
    assert "No measurable difference by training" in page and "made the network worse" not in page
    assert "No measurable difference by training" in retrieval.summary(run)


def test_copies_between_train_and_test_stand_beside_the_numbers(tmp_path):
    photos = make_photos(tmp_path / "photos", classes=10)
    for split, classes in (("train", range(5)), ("test", range(5, 10))):
        for number in classes:
            shutil.move(photos / f"class {number}", photos / split / f"class {number}")
    shutil.copy(photos / "train" / "class 0" / "0.png", photos / "test" / "class 5" / "copy.png")
    (photos / "train" / "class 9").mkdir()
    shutil.copy(photos / "train" / "class 1" / "0.png", photos / "train" / "class 9" / "one.png")
    run = train(*small(photos), f"out={tmp_path / 'run'}")
    said = "2 image(s) are copies of another image (identical files); in two splits: 1"
    shared = "1 class is in both train and test: not a test on unseen classes."
    facts = json.loads(run.facts.read_text())["remarks"]
    assert any(each.startswith(said) for each in facts) and shared in facts
    head = run.page.read_text().partition("<section")[0]
    for text in (head, retrieval.summary(run)):
        assert said in text and shared in text
    assert "duplicates" not in run.page.read_text()
    lean = Run(Path(shutil.copytree(run.folder, tmp_path / "damaged")))
    lean.facts.write_text(json.dumps({**json.loads(run.facts.read_text()), "remarks": [None]}))
    with pytest.raises(ValueError, match="remarks is not as a run writes it"):
        lean.read_facts()
