"""Runs of detectors on a page, one or several: their numbers, curves, mistakes and pictures, from the folder alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_pages import Page
from kept_detectors import copied as kept_copy
from kept_runs import kept
from voc_trees import shapes

from rankgrad_detection.page import MEANING
from rankgrad_detection.pictures import WRONG
from rankgrad_workbench.cli import main
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_comparison, write_report


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


def copied(folder: Path, voc: Path, kind: str = "detector", **numbers: float) -> Path:
    """A detector's run whose images are here; with other numbers, if some are given."""
    kept_copy(kind, folder, voc=voc)
    if numbers:
        content = results(folder)
        content["values"] |= numbers
        (folder / "metrics.json").write_text(json.dumps(content))
    return folder


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def test_the_command_writes_the_page_of_a_detector(voc, tmp_path, capsys):
    run = copied(tmp_path / "voc_folder-ap", voc)
    assert main(["report", str(run)]) == 0
    assert f"wrote {run / 'report.html'}" in capsys.readouterr().out
    page, content = Page(run / "report.html"), results(run)
    assert page.text.count("voc_folder: ap") == 2  # data and run, in title and heading
    links = [found["href"] for found in page.all("a")]
    parts = ["results", "curves", "precision", "classes", "mistakes", "pictures", "configuration"]
    assert links == ["#content", *(f"#{part}" for part in parts)] and not page.all("details", class_="query")
    assert f"95 %{100 * content['values'].pop('AP50_95'):.1f} %" in page.text
    for name, value in content["values"].items():
        assert re.search(
            rf"{name} ?[^%]* or more{100 * value:.1f} %", page.text.replace("50 %", "50").replace("75 %", "75")
        ), name
    assert "images: 3 · objects: 6" in page.text and "loss DetectionAPLoss" in page.text
    assert "ranking.warmup" in page.text
    assert re.search("ranking/loss[^a-z]*1 \N{MINUS SIGN} AP over the proposals", page.text)
    curves = [found["aria-label"] for found in page.all("svg", role="img")]
    assert [label.split(":")[0] for label in curves[-2:]] == ["disc", "square"]


def test_classes_of_a_detector_can_be_sorted_by_everything_that_was_measured(voc, tmp_path):
    run = copied(tmp_path / "run", voc)
    table = Page(write_report(tmp_path / "r.html", read_runs([run]))).data["tables"]["class"]
    shares = ["AP50_11", "AP75", "AP75_11", "AP50_95", "found at all", "best F1"]
    assert table["columns"] == ["class", "objects", "detections", *shares, "at score", "AP50"]
    assert table["formats"] == ["", "count", "count", *["share"] * 6, "score", "share"]
    for name, objects, detections, eleven, _, _, coco, *_, score, area in table["rows"]:
        assert coco == pytest.approx(results(run)["coco"][name], abs=5e-5)
        expected = results(run)["per_class"][name]["AP50"]
        assert (objects, detections) == (expected["objects"], expected["detections"])
        assert area == pytest.approx(expected["area"], abs=5e-5) and eleven == pytest.approx(
            expected["eleven"], abs=5e-5
        )
        assert score == (None if expected["threshold"] is None else pytest.approx(expected["threshold"], abs=5e-5))


def test_mistakes_and_pictures_come_from_the_detections_that_the_run_has_left(voc, tmp_path):
    run = copied(tmp_path / "run", voc)
    (content,) = read_runs([run])
    page = Page(write_report(tmp_path / "r.html", [content]))
    counted = dict.fromkeys(MEANING, 0)
    for image in content.marked:  # type: ignore[attr-defined]
        for mark in image:
            counted[mark.kind] += 1
    assert counted["hit"] + counted["missed"] == 6
    for kind, text in MEANING.items():
        assert f"{text}{counted[kind]}" in page.text
    pictures = page.all("img")
    assert len(pictures) == 2 and all(
        found["src"].startswith("data:image/") for found in pictures
    )  # evaluation.pictures
    wrong = sum(counted[kind] for kind in WRONG)
    totals = [tuple(map(int, re.findall(r"(\d+) (?:right|wrong|missed)", found["alt"]))) for found in pictures]
    assert all(len(total) == 3 for total in totals) and sum(total[1] for total in totals) <= wrong


@pytest.mark.slow
def test_detectors_stand_side_by_side(voc, tmp_path):
    runs = [copied(tmp_path / "ap-seed0", voc), copied(tmp_path / "cross-seed0", voc, AP50=0.01)]
    assert main(["report", *map(str, runs), "-o", str(tmp_path / "both.html")]) == 0
    page = Page(tmp_path / "both.html")
    assert page.text.count("voc_folder: ap, cross") == 2
    first = results(runs[0])["values"]["AP50"]
    assert f"ap{100 * first:.1f}cross1.0" in page.text and len(page.all("li", class_="best")) == 9  # all but one tile
    assert page.data["tables"]["class"]["columns"][2:] == [
        "AP50 ap",
        "AP50 cross",
        "AP75 ap",
        "AP75 cross",
        "range of AP50",
    ]
    assert (
        len(page.all("img")) == 4
        and [found["alt"] for found in page.all("img")][::2] == [found["alt"] for found in page.all("img")][1::2]
    )
    path = write_comparison(tmp_path / "compare.html", {"ap": runs[:1], "cross": runs[1:]})
    assert f"ap1{100 * first:.1f}" in Page(path).text


def test_detectors_on_other_images_have_no_pictures_in_common(voc, tmp_path):
    runs = [copied(tmp_path / name, voc) for name in ("one", "other")]
    other = shapes(tmp_path / "voc")
    for old in ("008", "009", "010"):
        for folder, ending in (("JPEGImages", "jpg"), ("Annotations", "xml")):
            (other / folder / f"{old}.{ending}").rename(other / folder / f"x{old}.{ending}")
    (other / "ImageSets" / "Main" / "test.txt").write_text("x008\nx009\nx010\n")
    config = (runs[1] / "config.yaml").read_text()
    (runs[1] / "config.yaml").write_text(config.replace(str(voc), str(other)))
    with np.load(runs[1] / "detections.npz") as file:
        columns = {name: file[name] for name in file.files}
    np.savez(runs[1] / "detections.npz", **{**columns, "names": np.array(["x008", "x009", "x010"])})
    page = Page(write_report(tmp_path / "both.html", read_runs(runs)))
    assert not page.all("img") and "No image is in all runs" in page.text and "objects missed" in page.text


def test_a_detector_whose_images_are_gone_keeps_its_numbers(voc, tmp_path):
    run = copied(tmp_path / "run", tmp_path / "nowhere")
    page = Page(write_report(tmp_path / "r.html", read_runs([run])))
    assert "No pictures: the images or the detections of the run cannot be read" in page.text
    assert not page.all("img") and "AP50" in page.text and "Precision over recall" in page.text
    moved = copied(tmp_path / "moved", voc)
    with np.load(moved / "detections.npz") as file:
        columns = {name: file[name] for name in file.files}
    np.savez(moved / "detections.npz", **{**columns, "names": np.array(["a", "b", "c"])})
    page = Page(write_report(tmp_path / "r.html", read_runs([moved])))
    assert "detections.npz has other images than the 3 of" in page.text


@pytest.mark.slow
def test_a_detector_that_is_not_finished_is_shown_as_far_as_it_is(voc, tmp_path):
    run = copied(tmp_path / "run", voc, "detector-interrupted")
    page = Page(write_report(tmp_path / "r.html", read_runs([run])))
    assert "This run is not finished" in page.text and f"rankgrad detect train resume={run}" in page.text
    assert page.all("polyline") and not page.all("img")


@pytest.mark.slow
def test_one_page_is_of_one_kind_of_run(voc, tmp_path, capsys):
    runs = [copied(tmp_path / "detector", voc), kept("retrieval")]
    assert main(["report", *map(str, runs), "-o", str(tmp_path / "both.html")]) != 0
    said = capsys.readouterr().err.strip()
    wanted = "must be of one kind: detector is of detection, retrieval of retrieval"
    assert wanted in said and len(said.splitlines()) == 1 and not (tmp_path / "both.html").exists()
    mixed = [read_runs([run])[0] for run in runs]
    with pytest.raises(ValueError, match="detector is of detection"):
        write_report(tmp_path / "both.html", mixed)


def test_what_is_for_runs_that_retrieve_is_refused(voc, tmp_path, capsys):
    run = copied(tmp_path / "run", voc)
    assert main(["report", str(run), "--map", "tsne"]) != 0
    assert "projection, queries, points and items are for retrieval runs" in capsys.readouterr().err
