"""Numbers on the pages are those of the files that hold them: `make tables` writes them, and text is compared."""

from __future__ import annotations

import csv
import re
import runpy
import statistics
from itertools import product
from pathlib import Path

import pytest

from rankgrad_papers.values import append, read

ROOT = Path(__file__).parents[2]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
RESULTS = sorted((ROOT / "papers" / "results").rglob("*.csv"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "papers" / "docs").glob("*.md")),
    *sorted((ROOT / "papers" / "results").rglob("*.md")),
]
PAIR = re.compile(r"(\d*\.?\d+) ± (\d*\.?\d+)")
P_VALUE = re.compile(r"\b[pt] ?[=<>] ?\d*\.\d")
TESTED = re.compile(r"(^| )(std$|p$|p \()")  # the head of a column that needs values


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in ("results.md", "results-scores.md") else ())
        for page in MAKER["PAGES"]
    ],
    ids=lambda page: page.name,
)
def test_parts_of_a_page_are_as_their_sources(page):
    assert page.read_text("utf-8") == MAKER["filled"](page), "run `make tables`"


@pytest.mark.slow
def test_a_table_with_another_number_would_be_noticed(tmp_path):
    page, text = tmp_path / "results.md", (ROOT / "papers" / "docs" / "results.md").read_text("utf-8")
    start = text.index("<!-- table ")
    end = text.index("<!-- end -->", start)
    page.write_text(text[:start] + re.sub(r"\b\d\d\.\d\b", "99.9", text[start:end], count=1) + text[end:], "utf-8")
    assert page.read_text("utf-8") != text and MAKER["filled"](page) == text


@pytest.fixture
def made(tmp_path, monkeypatch):
    """`make tables` over a folder with one file of values: two losses, six alphabets, two seeds of each."""
    for alphabet, seed in product(range(6), range(2)):
        for loss, shift in (("a", 0.0), ("b", 1.0 + alphabet / 10)):
            numbers = {"R@1": 70.0 + alphabet + seed + shift, "mAP@R": 30.0 - alphabet + seed}
            append(tmp_path / "x.csv", {"loss": loss}, numbers, unit=str(alphabet), seed=str(seed))
    monkeypatch.setitem(MAKER["table"].__globals__, "RESULTS", tmp_path)
    return MAKER


def test_a_table_of_values_has_their_means_and_deviations_over_the_units(made):
    assert made["table"]("x.csv") == (
        "| loss | units | R@1 | mAP@R |\n| --- | --: | --: | --: |\n"
        "| a | 6 | 73.0 ± 1.9 | 28.0 ± 1.9 |\n| b | 6 | 74.2 ± 2.1 | 28.0 ± 1.9 |\n"
    )
    assert made["table"]("x.csv: loss, R@1; where loss=b").splitlines()[2:] == ["| b | 6 | 74.2 ± 2.1 |"]


def test_a_difference_has_its_interval_and_a_p_for_six_units(made, tmp_path):
    assert made["table"]("x.csv: R@1; R@1 against loss=a").splitlines()[-1] == (
        "| b | 6 | 74.2 ± 2.1 | + 1.2 | + 1.1 to + 1.4 | 1.6e-05 |"
    )
    assert made["difference"]("x.csv: R@1; loss=b; loss=a") == "+ 1.2 (+ 1.1 to + 1.4)"
    path = tmp_path / "x.csv"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if line.split(",")[1] != "5"))
    table = made["table"]("x.csv: R@1; R@1 against loss=a")
    assert "| b | 5 | 73.7 ± 1.7 | + 1.2 | + 1.0 to + 1.4 |" in table and "p (Holm)" not in table


def test_values_over_a_number_are_counted(made):
    assert made["table"]("x.csv: R@1; R@1 over 73.4").splitlines() == [
        "| loss | units | R@1 | R@1 over 73.4 |",
        "| --- | --: | --: | --: |",
        "| a | 6 | 73.0 ± 1.9 | 3 of 6 |",
        "| b | 6 | 74.2 ± 2.1 | 4 of 6 |",
    ]


def test_metrics_of_two_settings_are_corrected_together(made):
    table = made["metrics"]("x.csv: loss=b; loss=a")
    assert table.splitlines()[0] == "| metric | b | a | difference | 95 % interval | p (Holm) |"
    assert table.splitlines()[2] == "| R@1 | 74.2 ± 2.1 | 73.0 ± 1.9 | + 1.2 | + 1.1 to + 1.4 | 1.6e-05 |"


def test_a_difference_within_a_sentence_is_written_into_it(made, tmp_path):
    page = tmp_path / "page.md"
    mark = "<!-- difference x.csv: R@1; loss=b; loss=a -->"
    page.write_text(f"b is ahead by {mark}9.9<!-- end --> R@1, {mark}<!-- end -->.\n")
    assert made["filled"](page).count(f"{mark}+ 1.2 (+ 1.1 to + 1.4)<!-- end -->") == 2
    assert made["difference"]("x.csv: R@1; loss=b; x.csv: loss=a") == "+ 1.2 (+ 1.1 to + 1.4)"
    assert made["share"]("x.csv: R@1; loss=a; loss=a") == "100 % (100 to 100)"
    mark = "<!-- share x.csv: R@1; loss=a; loss=a -->"
    (tmp_path / "page.md").write_text(f"a keeps {mark}99 %<!-- end -->.\n", encoding="utf-8")
    assert made["filled"](tmp_path / "page.md") == f"a keeps {mark}100 % (100 to 100)<!-- end -->.\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_difference_begins_no_line_which_would_end_its_paragraph(page):
    # Markdown reads a line that begins with a comment as a block of HTML
    begins = [
        line
        for line in page.read_text("utf-8").splitlines()
        if line.lstrip().startswith(("<!-- difference", "<!-- share"))
    ]
    assert not begins, "put it behind the words before it"


def of_values(path: Path) -> bool:
    """Whether a csv holds every value, and not what was computed from them."""
    with path.open(encoding="utf-8", newline="") as opened:
        return not {"value", "by_seed"}.isdisjoint(next(csv.reader(opened)))


VALUES = {path: read(path) for path in RESULTS if of_values(path)}


def known() -> list[tuple[float, float]]:
    """Mean and deviation of every setting whose values a csv holds, and those that the papers print."""
    found = []
    for values in VALUES.values():
        for setting, metric in product(values.settings, values.metrics):
            numbers = list(values.units(setting, metric).values())
            if len(numbers) > 1:
                found.append((abs(statistics.mean(numbers)), statistics.stdev(numbers)))
    for path in VALUES:
        with path.open(encoding="utf-8", newline="") as opened:
            printed = [(row.get("paper"), row.get("paper_std")) for row in csv.DictReader(opened)]
        found += [(float(mean), float(deviation)) for mean, deviation in printed if mean and deviation]
    return found


def near(printed: str, value: float) -> bool:
    """Whether a value is printed so; text of a half may be rounded either way."""
    return abs(float(printed) - value) <= 0.5 * 10 ** -len(printed.partition(".")[2]) + 5e-5


KNOWN = known()


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_mean_and_deviation_of_a_page_is_in_a_file_of_results(page):
    strange = [m[0] for m in PAIR.finditer(prose(page)) if not any(near(m[1], a) and near(m[2], b) for a, b in KNOWN)]
    assert strange == []


def test_a_number_without_a_file_would_be_noticed():
    assert len(KNOWN) > 200 and not any(near("12.3", a) and near("4.5", b) for a, b in KNOWN)


@pytest.mark.parametrize("path", sorted({*RESULTS} - {*VALUES}), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_without_values_has_no_deviation_and_no_p(path):
    with path.open(encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    assert [name for name in head if TESTED.search(name)] == []
    assert [cell for row in rows for cell in row if "±" in cell or P_VALUE.search(cell)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_of_a_page_has_a_p_value(page):
    lines = [line for line in prose(page).splitlines() if "rbp" not in line]  # whose p is a persistence
    assert P_VALUE.findall("\n".join(lines)) == []


def test_a_p_without_values_would_be_noticed():
    assert all(P_VALUE.search(text) for text in ("(p = .02)", "p < .001, five seeds", "p=0.5", "t = 2.8"))
    assert all(TESTED.search(name) for name in ("p", "p (Holm)", "R@1 p", "mAP@R std"))
    assert not P_VALUE.search("top = 5") and not TESTED.search("mAP@R") and not TESTED.search("pull")


def test_what_reproduce_wrote_of_the_values_is_what_they_give():
    for path in VALUES:
        with path.open(encoding="utf-8", newline="") as opened:
            rows = [row for row in csv.DictReader(opened) if row.get("by_seed")]
        for row in rows:
            numbers = [float(pair.partition(":")[2]) for pair in row["by_seed"].split()]
            assert float(row["ours"]) == pytest.approx(statistics.mean(numbers), rel=1e-4), (path.name, row["row"])
            assert float(row["ours_std"]) == pytest.approx(statistics.stdev(numbers), rel=1e-3, abs=1e-5)


def test_the_page_of_benchmarks_is_that_of_its_numbers():
    folder = ROOT / "benchmarks"
    assert {*MAKER["MEASURED"], "runs"} == {path.stem for path in folder.glob("*.json")}
    assert (folder / "README.md").read_text("utf-8") == MAKER["measured"](), "run `make tables`"


def test_the_tables_of_data_sets_are_those_of_their_registries():
    make = runpy.run_path(str(ROOT / "docs" / "make_datasets.py"))
    for page in make["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert make["written"](page, text) == text, "write them anew: python docs/make_datasets.py"
        wrong = text.replace("| `cub` |", "| `bird` |").replace("| `text` |", "| `words` |")
        assert wrong != text and make["written"](page, wrong) == text
