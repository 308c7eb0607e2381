"""Pages of detectors in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, lands, shot, started, table_of
from kept_detectors import copied
from voc_trees import shapes

from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    voc = shapes(folder / "voc")
    runs = read_runs([copied("detector", folder / name, voc) for name in ("ap", "cross_entropy")])
    return {
        "detector": write_report(folder / "detector.html", runs[:1]),
        "detectors": write_report(folder / "detectors.html", runs),
    }


@pytest.mark.parametrize(("name", "dark"), [("detector", False), ("detector", True), ("detectors", False)])
def test_page_opens_without_a_word_in_the_console_and_shows_its_pictures(browser, pages, name, dark):
    browser.open(pages[name], dark=dark)
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.run("document.querySelectorAll('img, b > b').length") == (2 if name == "detector" else 4)
    assert browser.run("[...document.images].every(image => image.naturalWidth === 640)")
    shot(browser, f"{name}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("name", ["detector", "detectors"])
def test_page_is_as_wide_as_a_telephone(browser, pages, name):
    browser.open(pages[name], width=390, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    shot(browser, f"{name}-narrow-pictures", "#pictures")


@pytest.mark.slow
def test_links_land_on_their_sections_and_stay_there(browser, pages):
    browser.open(pages["detectors"])
    for part in browser.run("[...document.querySelectorAll('section')].map(section => section.id)")[1:]:
        browser.open(pages["detectors"])
        browser.call("Emulation.setEmulatedMedia", features=[])  # as most readers have it: motion is welcome
        browser.click(f"nav a[href='#{part}']")
        assert lands(browser, part), part


def test_classes_of_detectors_are_sorted(browser, pages):
    browser.open(pages["detector"])
    rows = table_of(browser, "class")
    assert [row[0] for row in sorted(rows, key=lambda row: float(row[-1]))] == [row[0] for row in rows]
    assert all(row[1] == "3" and 0 < float(row[2]) < 100 for row in rows)  # objects and detections are counts
    browser.click("[data-table=class] thead th:nth-child(3) button")
    browser.click("[data-table=class] thead th:nth-child(3) button")
    counts = [float(row[2]) for row in table_of(browser, "class")]
    assert counts == sorted(counts, reverse=True) and browser.messages == []
