"""Pages in a real browser: nothing in the console, what sorts and filters does, and a keyboard is enough."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import SHOTS, Browser, lands, shot, started, table_of
from kept_runs import copied
from report_contents import SMOOTH_AP, content, large
from small_runs import make_photos

from rankgrad import trec
from rankgrad_workbench.index.query import Answer, Hit, write_answers
from rankgrad_workbench.report.content import Extent
from rankgrad_workbench.report.writing import write_comparison, write_report
from rankgrad_workbench.tasks.retrieval.page import Content
from rankgrad_workbench.trec.page import write_folder as write

pytest.importorskip("PIL.Image", reason="images of a report need Pillow: the extra rankgrad[train]")

VISIBLE = "[...document.querySelectorAll('.query')].filter(card => !card.hidden)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    config = {"data": {"name": "glyphs"}, "loss": SMOOTH_AP, "seed": 0}
    evil = content()
    assert evil.space is not None
    names = tuple(f"<img src=x onerror=alert(1)>{row}" for row in range(40))
    alike = tuple(f"pnp:variant=Ds+optimizer.lr=0.001+label_noise=0.{number}" for number in range(8))
    runs: dict[str, list[Content]] = {
        "single": [content()],
        "several": [content(), content("two", spread=1.2, config=config), content("three", spread=0.9)],
        "large": [large()],
        "empty": [Content("empty")],
        "evil": [replace(evil, name="<b>evil</b>", space=replace(evil.space, names=names), pictures=None)],
        "long": [
            replace(run, space=replace(evil.space, super_names=("superlabel" * 40, "odd"), class_names=alike))
            for run in (content("a-run-with-a-name-" * 5), content("other-name-" * 6))
        ],
    }
    made = {
        name: write_report(folder / f"{name}.html", of, extent=Extent(queries=120 if name == "large" else 4000))
        for name, of in runs.items()
    }
    files = sorted(make_photos(folder / "photos", classes=2).rglob("*.png"))
    hits = tuple(Hit(n, 1 - n / 9, file.parent.name, file.name, file) for n, file in enumerate(files, 1))
    answers = [Answer(file, hits) for file in (*files[:2], folder / "lost.png")]
    made["compared"] = write_comparison(folder / "compared.html", seeds(folder / "seeds"))
    made["search"] = write_answers(folder / "search.html", answers, facts={"index": "photos.index"})
    made["trec"] = run_files(folder / "trec")
    return made


def seeds(folder: Path) -> dict[str, list[Path]]:
    """Three variants of four seeds each: copies of one run with other values."""
    runs: dict[str, list[Path]] = {}
    for name in ("supap", "pml/batch_hard_triplet:margin=0.2+optimizer.lr=0.001", "adaptive_roadmap"):
        runs[name] = [copied("retrieval", folder / f"{len(runs)}-seed{seed}") for seed in range(4)]
        for seed, run in enumerate(runs[name]):
            config, after = run / "config.yaml", json.loads((run / "after.json").read_text())
            config.write_text(re.sub(r"^seed: .*$", f"seed: {seed}", config.read_text(), flags=re.MULTILINE))
            for number, metric in enumerate(after["values"]):
                after["values"][metric] = (5 * len(runs) + seed + number) / 40
            (run / "after.json").write_text(json.dumps(after))
    return runs


def run_files(folder: Path) -> Path:
    """The page of some runs, one with a name that is long and another that is markup."""
    judged = {f"q{query}": {f"d{document}": document % 3 for document in range(12)} for query in range(30)}
    runs = {
        name: {query: {d: (int(d[1:]) * step + int(query[1:])) % 13 for d in row} for query, row in judged.items()}
        for name, step in (("<img src=x onerror=alert(1)>", 5), ("short", 7), ("a-name-that-goes-on-" * 6, 3))
    }
    groups = dict.fromkeys(judged, "a group of queries")
    return write(trec.evaluate(runs, judged, groups=groups, intervals=20), folder)


def focus(browser: Browser) -> Any:
    """Text, class and tag of what has the focus."""
    return browser.run("[document.activeElement.tagName, document.activeElement.className, document.activeElement.id]")


OPENED = ("single", "several", "large", "empty", "evil", "long")
DARK_TOO = ("single",)  # the others have the same style sheet


@pytest.mark.parametrize(
    ("name", "dark"),
    [
        *(pytest.param(name, False, id=f"{name}-light") for name in OPENED),
        *(
            pytest.param(name, True, id=f"{name}-dark", marks=() if name in DARK_TOO else pytest.mark.slow)
            for name in OPENED
        ),
    ],
)
def test_page_opens_without_a_word_in_the_console_and_asks_for_nothing(browser, pages, name, dark):
    seconds = browser.open(pages[name], dark=dark)
    print(f"{name}: {pages[name].stat().st_size / 1e6:.1f} MB, loaded and painted in {seconds:.2f} s")
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.run("document.documentElement.classList.contains('live')")
    assert browser.run("document.querySelectorAll('img, b > b').length") == 0
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 20, 23)") == dark
    shot(browser, f"{name}-{'dark' if dark else 'light'}")
    for part in browser.run("[...document.querySelectorAll('section')].map(section => section.id)"):
        shot(browser, f"{name}-{'dark' if dark else 'light'}-{part}", f"#{part}")


def test_pictures_are_decoded_where_they_are_seen(browser, pages):
    browser.open(pages["single"])
    shown = (
        "[...document.querySelectorAll('#gallery .pic')].slice(0, 5)"
        ".map(pic => getComputedStyle(pic).backgroundImage.slice(0, 22))"
    )
    browser.run("document.querySelector('#gallery').scrollIntoView()")
    assert browser.run(shown) == ['url("data:image/png;ba'] * 5
    assert browser.run("getComputedStyle(document.querySelector('.query')).contentVisibility") == "auto"


def test_page_is_as_wide_as_a_telephone(browser, pages):
    for name in ("single", "several", "long", "search", "trec"):
        browser.open(pages[name], width=390, height=800, script=name not in ("search", "trec"))
        assert browser.run("document.documentElement.scrollWidth") <= 390, name
        shot(browser, f"{name}-narrow")
        for part in ("gallery", "pictures"):
            if browser.run(f"document.getElementById('{part}') !== null"):
                shot(browser, f"{name}-narrow-{part}", f"#{part}")


@pytest.mark.parametrize(
    ("name", "every"),
    [
        pytest.param("single", 4, id="single-some"),
        *(pytest.param(n, 1, id=n, marks=pytest.mark.slow) for n in ("single", "several", "large")),
    ],
)
def test_links_land_on_their_sections_and_stay_there(browser, pages, name, every):
    browser.open(pages[name])
    for part in browser.run("[...document.querySelectorAll('section')].map(section => section.id)")[1::every]:
        browser.open(pages[name])
        browser.call("Emulation.setEmulatedMedia", features=[])  # as most readers have it: motion is welcome
        browser.click(f"nav a[href='#{part}']")
        assert lands(browser, part), part
    browser.open(pages[name], part="#configuration")
    assert lands(browser, "configuration")


def test_long_names_end_in_an_ellipsis_and_leave_the_page_as_wide_as_it_is(browser, pages):
    browser.open(pages["long"])
    cut = (
        "[...document.querySelectorAll('.facts .cut, thead .cut, .ranking .cut')].map(name => [name.title.length, "
        "name.scrollWidth > name.clientWidth || name.scrollHeight > name.clientHeight, "
        "getComputedStyle(name).overflow])"
    )
    found = browser.run(cut)
    assert len(found) >= 10 and all(length > 32 and hidden and how == "hidden" for length, hidden, how in found)
    assert browser.run("document.documentElement.scrollWidth") <= 1280


def test_names_in_tables_that_differ_at_the_end_are_shown_whole(browser, pages):
    hidden = (
        "[...document.querySelectorAll('tbody th .cut')].filter(name => name.title.startsWith('pnp'))"
        ".map(name => name.scrollWidth > name.clientWidth || name.scrollHeight > name.clientHeight)"
    )
    for width in (1280, 390):
        browser.open(pages["long"], width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        found = browser.run(hidden)
        assert found and not any(found)


def test_answers_of_a_search_are_seen_without_a_script(browser, pages):
    browser.open(pages["search"], dark=True)
    assert browser.messages == [] and browser.run("document.scripts.length") == 0
    shown = "[...document.querySelectorAll('.pic')].map(pic => getComputedStyle(pic).backgroundImage.slice(0, 15))"
    assert browser.run(shown) == [*['url("data:image'] * 22, "none", *['url("data:image'] * 10]
    assert browser.run("document.querySelectorAll('li svg.bar').length") == 30
    bars = browser.run("[...document.querySelectorAll('svg.bar rect')].slice(0, 3).map(bar => bar.width.baseVal.value)")
    assert bars == pytest.approx([100 * (1 - n / 9) for n in (1, 2, 3)], abs=0.06)
    shot(browser, "search-dark")
    assert browser.pdf().startswith(b"%PDF")


def test_page_of_run_files_runs_no_script(browser, pages):
    browser.open(pages["trec"])
    assert browser.messages == [] and browser.requests == [pages["trec"].as_uri()]
    assert browser.run("document.scripts.length + document.images.length") == 0
    assert browser.run("document.documentElement.scrollWidth") <= 1280
    shot(browser, "trec")


def test_without_script_everything_but_the_controls_is_there(browser, pages):
    try:
        browser.open(pages["single"], script=False, part="#gallery")  # what is out of sight is not in the tree
        deadline = time.monotonic() + 20
        words = ""
        while "right, rank" not in words and time.monotonic() < deadline:  # the cards are laid out after the jump
            tree = browser.call("Accessibility.getFullAXTree")["nodes"]
            words = " ".join(str(node.get("name", {}).get("value", "")) for node in tree if not node["ignored"])
        for text in ("R@1", "query of class", "right, rank", "similarity", "even", "By class", "Map of 40 embeddings"):
            assert text in words, text
        assert "Colour by" not in words and "Filter" not in words
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


# ---------------------------------------------------------------------------------------------------------- tables


def test_headings_sort_up_and_down_and_say_so(browser, pages):
    browser.open(pages["large"])
    given = json.loads(browser.run("document.getElementById('data').textContent"))["tables"]["class"]["rows"]
    assert table_of(browser, "class")[0][-1] == "0.0"
    browser.click("[data-table=class] thead th:nth-child(3) button")
    lowest = sorted(given, key=lambda row: row[2])[:50]
    expected = [pytest.approx(100 * row[2], abs=0.051) for row in lowest]  # halves are rounded in another way
    assert [float(row[2]) for row in table_of(browser, "class")] == expected
    browser.click("[data-table=class] thead th:nth-child(3) button")
    highest = sorted(given, key=lambda row: -row[2])[:50]
    expected = [pytest.approx(100 * row[2], abs=0.051) for row in highest]
    assert [float(row[2]) for row in table_of(browser, "class")] == expected
    sorts = "[...document.querySelectorAll('[data-table=class] th')].map(head => head.getAttribute('aria-sort'))"
    assert [sort for sort in browser.run(sorts) if sort] == ["descending"]
    assert browser.run("document.getElementById('said').textContent") == "sorted by R@1, highest first"
    browser.click("[data-table=class] thead th:nth-child(1) button")
    assert table_of(browser, "class")[0][0] == "object 0" and browser.messages == []


def test_table_is_filtered_and_turned_page_by_page(browser, pages):
    browser.open(pages["large"])
    status = "document.querySelector('[data-table=class] .status').textContent"
    assert browser.run(status) == "1 to 50 of 11,000"
    browser.click("[data-table=class] .on")
    assert browser.run(status) == "51 to 100 of 11,000"
    browser.click("[data-table=class] .back")
    assert browser.run("document.querySelector('[data-table=class] .back').disabled")
    browser.click("[data-table=class] input")
    browser.type("OBJECT 1234")
    names = sorted(row[0] for row in table_of(browser, "class"))
    assert names == ["object 1234"] and browser.run(status) == "1 matching, of 11,000"
    browser.type("x")
    assert table_of(browser, "class") == [] and browser.run(status) == "0 matching, of 11,000"


def test_rows_are_reached_with_arrow_keys(browser, pages):
    browser.open(pages["single"])
    browser.run("document.querySelector('[data-table=class] tbody tr').focus()")
    browser.press("ArrowDown", "ArrowDown", "ArrowUp")
    place = "[...document.querySelectorAll('[data-table=class] tbody tr')].indexOf(document.activeElement)"
    assert browser.run(place) == 1
    browser.press("End")
    assert browser.run(place) == 7
    assert browser.run("document.querySelectorAll('[data-table=class] tbody tr[tabindex=\"0\"]').length") == 1
    browser.press("Enter")  # leads to the images of the class
    name = browser.run("document.getElementById('show-class').value")
    assert name.startswith("class") and focus(browser)[1].endswith("cell")
    assert browser.run(f"{VISIBLE}.every(card => card.dataset.class === {json.dumps(name)})")


# --------------------------------------------------------------------------------------------------------- gallery


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.run(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
        " for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind)); })()"
    )


def test_queries_are_filtered_by_reason_first_item_and_class(browser, pages):
    browser.open(pages["several"])
    total = browser.run(f"{VISIBLE}.length")
    for reason in ("worst", "best", "failures", "disagree"):
        choose(browser, "#show-reason", reason)
        why = browser.run(f"{VISIBLE}.map(card => card.dataset.why)")
        assert 0 < len(why) < total and all(reason in words.split() for words in why)
        option = browser.run("document.getElementById('show-reason').selectedOptions[0].textContent")
        assert option.endswith(f"({len(why)})")
        assert browser.run("document.getElementById('shown').textContent") == f"{len(why)} queries"
    choose(browser, "#show-reason", "")
    choose(browser, "#show-first", "wrong")
    wrong = browser.run(f"{VISIBLE}.map(card => card.querySelectorAll('ol li:first-child .no').length)")
    assert 0 < len(wrong) < total and min(wrong) >= 1
    choose(browser, "#show-class", "class3")
    assert set(browser.run(f"{VISIBLE}.map(card => card.dataset.class)")) == {"class3"}
    browser.click("#show-all")
    assert browser.run(f"{VISIBLE}.length") == total and browser.messages == []


def test_class_filter_offers_every_class_and_says_what_it_finds(browser, pages):
    browser.open(pages["large"])
    said, options = (
        "document.getElementById('shown').textContent",
        "document.getElementById('show-classes').options.length",
    )
    assert browser.run(options) == 0
    browser.click("#show-class")
    assert browser.run(options) == 11_000
    shown = browser.run(f"{VISIBLE}.map(card => card.dataset.class)")
    browser.type(shown[0].upper())
    assert set(browser.run(f"{VISIBLE}.map(card => card.dataset.class)")) == {shown[0]}
    other = next(f"object {label}" for label in range(11_000) if f"object {label}" not in shown)
    choose(browser, "#show-class", other)
    assert browser.run(f"{VISIBLE}.length") == 0
    assert browser.run(said) == f"0 queries: the page shows {len(shown)} of 60,000 queries, none of this class"
    choose(browser, "#show-class", "no such class")
    assert browser.run(said) == "0 queries: no class has this name"
    browser.click("#show-all")
    assert browser.run(said) == f"{len(shown)} queries" and browser.messages == []


def test_pictures_are_walked_through_and_enlarged_by_keyboard(browser, pages):
    browser.open(pages["several"])
    stops = browser.run(
        "[...document.querySelectorAll('.query')].map(c => c.querySelectorAll('[tabindex=\"0\"]').length)"
    )
    assert set(stops) == {1}  # in a card; the arrow keys lead on to the next one that is open
    browser.run("document.querySelector('#open-all').focus()")
    browser.press("Tab", "Tab")
    at = (
        "(() => { const e = document.activeElement, c = e.closest('.query'); const s = [...c.querySelectorAll('ol')];"
        " const o = e.closest('ol'), i = o ? [...o.querySelectorAll('.cell')].indexOf(e) : -1;"
        " return [c.id, s.indexOf(o), i]; })()"
    )
    assert browser.run(at) == ["q0", -1, -1]
    browser.press("ArrowRight", "ArrowRight")
    assert browser.run(at) == ["q0", 0, 1]
    browser.press("ArrowDown", "ArrowDown")
    assert browser.run(at) == ["q0", 2, 1]
    browser.press("ArrowDown", "End")
    assert browser.run(at) == ["q1", 0, 9]
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    assert browser.run("document.getElementById('large').open")
    words = browser.run("document.getElementById('large-body').textContent")
    assert "query" in words and ", rank 10, similarity" in words.replace("\n", " ")
    assert browser.run("document.querySelectorAll('#large .pic').length") == 2
    shot(browser, "several-enlarged")
    browser.press("Escape")
    assert not browser.run("document.getElementById('large').open") and browser.run(at) == ["q1", 0, 9]
    browser.press("Home", "ArrowUp", " ")
    assert browser.run("document.querySelectorAll('#large .pic').length") == 1  # the query alone


def test_the_first_cards_are_open_and_the_others_a_click_away(browser, pages):
    browser.open(pages["single"])
    opened = f"{VISIBLE}.map(card => card.open)"
    assert browser.run(opened) == [True] * 5 + [False] * 35
    lines = browser.run(f"{VISIBLE}.map(card => card.querySelector('summary').textContent)")
    assert all(re.search(r"Shown because: [a-zA-Z, ]+\. AP \d", line) for line in lines)
    assert browser.run("document.querySelector('#gallery').scrollHeight") < 5 * 240 + 35 * 70 + 300
    browser.click("#q7 summary")
    assert browser.run(opened)[7]
    browser.press("Tab", "ArrowRight")
    assert browser.run("document.activeElement.closest('.query').id") == "q7"
    browser.press("ArrowUp")
    assert browser.run("document.activeElement.closest('.query').id") == "q4"  # those between are folded
    choose(browser, "#show-reason", "worst")
    shown = browser.run(opened)
    assert shown == [True] * min(5, len(shown)) + [False] * max(0, len(shown) - 5) and len(shown) > 5
    browser.click("#open-all")
    assert all(browser.run(opened)) and browser.run("document.querySelector('#open-all').textContent") == "Fold all"
    browser.click("#open-all")
    assert not any(browser.run(opened)) and browser.messages == []


def test_all_numbers_of_a_comparison_are_read_on_a_telephone(browser, pages):
    outside = (
        "[...document.querySelectorAll('.stacked td, .stacked tbody th')].filter(cell => cell.clientWidth)"
        ".filter(cell => cell.getBoundingClientRect().right > innerWidth || cell.scrollWidth > cell.clientWidth + 1)"
        ".map(cell => cell.textContent)"
    )
    browser.open(pages["compared"], width=390, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("document.querySelectorAll('.stacked').length") >= 4 and browser.run(outside) == []
    heads = browser.run(
        "[...document.querySelectorAll('#seeds tbody tr:first-child td')].map(cell => cell.dataset.head)"
    )
    assert heads[:5] == ["number", "R@1", "R@4", "mAP@R", "AP"] and "detectable difference" in heads
    for part in ("seeds", "results"):
        shot(browser, f"compared-narrow-{part}", f"#{part}")
    browser.open(pages["compared"])
    assert browser.run("getComputedStyle(document.querySelector('.stacked td')).display") == "table-cell"
    for part in ("seeds", "results", "gallery"):
        shot(browser, f"compared-{part}", f"#{part}")


def test_a_click_enlarges_a_picture(browser, pages):
    browser.open(pages["single"])
    browser.click("#q1 li:nth-child(2) .cell")
    assert browser.run("document.getElementById('large').open")
    assert "rank 2" in browser.run("document.getElementById('large-body').textContent")
    browser.click("#large .close")
    assert not browser.run("document.getElementById('large').open") and browser.messages == []


# ------------------------------------------------------------------------------------------------------------- map


def test_map_is_coloured_and_highlighted(browser, pages):
    browser.open(pages["several"])
    maps = "[...document.querySelectorAll('.map > svg')]"
    kinds = f"{maps}.map(map => [...map.children].map(path => path.getAttribute('class')))"
    assert browser.run(kinds) == [["g1", "g0", "at-point"]] * 3
    choose(browser, "#map-colour", "class")
    assert all(len(of) == 9 for of in browser.run(kinds))
    choose(browser, "#map-colour", "ok1")
    assert all({"gok", "gno"} <= set(of) for of in browser.run(kinds))
    names = "[...document.querySelectorAll('#map-legend li')].map(entry => entry.textContent)"
    assert sorted(browser.run(names)) == ["nearest item right", "nearest item wrong"]
    browser.click("#map-legend button")
    assert all("faint" in of and len(of) == 3 for of in browser.run(kinds))
    choose(browser, "#map-colour", "super")
    browser.click("#map-class")
    browser.type("class5")
    dots = f"{maps}.map(map => map.querySelector('.g0, .g1').getAttribute('d').split('M').length - 1)"
    assert browser.run(dots) == [5, 5, 5] and browser.messages == []
    shot(browser, "several-map-one-class", "#map")


def test_points_of_the_map_are_named_by_pointer_and_by_keyboard(browser, pages):
    browser.open(pages["several"])
    browser.run("document.querySelector('.map').scrollIntoView({block: 'center'})")
    given = json.loads(browser.run("document.getElementById('data').textContent"))["map"]
    drawing = "document.querySelectorAll('.map > svg')[1].getBoundingClientRect()"
    frame = f"(() => {{ const b = {drawing}; return [b.x, b.y, b.width]; }})()"
    left, top, width = browser.run(frame)
    browser.move(left + given["runs"][1]["x"][7] / 1000 * width, top + given["runs"][1]["y"][7] / 1000 * width)
    assert given["name"][7] in browser.run("document.getElementById('tip').textContent")
    assert browser.run(f"document.querySelector('#tip .i{given['picture'][7]}') !== null")
    assert browser.run("[...document.querySelectorAll('.at-point')].every(mark => mark.getAttribute('d') !== '')")
    shot(browser, "several-map-tip")
    browser.move(5, 5)
    assert browser.run("document.getElementById('tip').hidden")
    browser.run("document.querySelector('.map > svg').focus()")
    browser.press("ArrowRight")
    first = browser.run("document.getElementById('said').textContent")
    seen = {first}
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        browser.press(key)
        seen.add(browser.run("document.getElementById('said').textContent"))
    assert first.startswith("class") and len(seen) >= 3
    browser.press("Enter")
    assert focus(browser)[1].endswith("cell") and browser.messages == []


# ----------------------------------------------------------------------------------------------------------- others


def test_tab_reaches_every_part_and_the_focus_is_seen(browser, pages):
    browser.open(pages["single"])
    sections = set()
    for step in range(120):  # each of the 40 cards has a line that opens it
        browser.press("Tab")
        where, outline = browser.run(
            "(() => { const e = document.activeElement, s = e.closest('section'); "
            "return [s ? s.id : null, getComputedStyle(e).outlineStyle]; })()"
        )
        if browser.run("document.activeElement === document.body"):
            break
        if where is not None:
            sections.add(where)
        if step == 0:
            assert browser.run("document.activeElement.textContent") == "Skip to content"
        assert outline in ("solid", "auto")
    assert {"results", "gallery", "confusions", "classes", "map", "configuration"} <= sections


def test_everything_that_is_worked_has_a_name(browser, pages):
    browser.open(pages["several"])
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    worked = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "application", "img", "image"}
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in worked and not node.get("name", {}).get("value")
    ]
    assert nameless == []
    roles = {node["role"]["value"] for node in nodes if not node["ignored"]}
    assert {"banner", "main", "navigation", "contentinfo"} <= roles


def test_page_prints(browser, pages, tmp_path):
    browser.open(pages["single"], dark=True)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 50_000
    if SHOTS:
        (Path(SHOTS) / "single.pdf").write_bytes(printed)
