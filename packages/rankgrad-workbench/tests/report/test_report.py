from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import math
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from html_pages import Page
from kept_runs import copied
from report_contents import SMOOTH_AP, Soft, content, divided, large, picture, report, space, table
from small_runs import cut_off, make_photos, small, train
from torch import Tensor
from torch.nn import functional as F

import rankgrad_workbench
from rankgrad.common.progress import steps
from rankgrad.common.text import shown
from rankgrad.evaluation import METRICS, Protocol, evaluate
from rankgrad.evaluation.statistics import paired_over_groups, paired_t_test
from rankgrad_workbench.cli import main
from rankgrad_workbench.report import glossary
from rankgrad_workbench.report.content import Extent, read_runs, short_names
from rankgrad_workbench.report.html import charts
from rankgrad_workbench.report.html.images import Images
from rankgrad_workbench.report.writing import write_comparison, write_report
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.tasks.retrieval.page import Content, Pictures, Space, sections
from rankgrad_workbench.tasks.retrieval.page import measured as numbers
from rankgrad_workbench.tasks.retrieval.page import read as read_run
from rankgrad_workbench.tasks.retrieval.page.measured import choose, match

PIL = pytest.importorskip("PIL.Image", reason="images of a report need Pillow: the extra rankgrad[train]")


def write(folder: Path, *runs: Content, **options: Any) -> Page:
    path = write_report(folder / "report.html", runs or [content()], **options)
    assert path == folder / "report.html" and [p.name for p in folder.iterdir()] == ["report.html"]
    return Page(path)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return write(tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Page:
    config = {"data": {"name": "glyphs"}, "loss": SMOOTH_AP, "model": {"kind": "convnet"}, "seed": 0}
    other = content("two", spread=1.2, config=config)
    return write(tmp_path_factory.mktemp("several"), content(), other, content("three", spread=0.4))


# ------------------------------------------------------------------------------------------- numbers of embeddings


def all_pairs(of: Space, rows: Tensor) -> list[tuple[int, int, float, bool]]:
    """(query, item, cosine, relevant) of every pair, by loops."""
    items, item_labels = of.items.embeddings, of.items.labels
    return [
        (query, item, float(of.embeddings[query] @ items[item]), bool(of.labels[query] == item_labels[item]))
        for query in rows.tolist()
        for item in range(len(items))
        if not (of.gallery is None and item == query)
    ]


SPACES = {"leave-one-out": space, "divided": divided}


@pytest.mark.parametrize("kind", SPACES)
def test_similarities_are_those_of_every_pair(kind):
    of = SPACES[kind]()
    rows = torch.tensor([1, 4, 9, 12])
    found = numbers.similarities(of, rows)
    pairs = all_pairs(of, rows)
    for counts, relevant in ((found.positive, True), (found.negative, False)):
        values = [score for _, _, score, right in pairs if right == relevant]
        expected = np.histogram(values, numbers.BINS, (-1, 1))[0]
        assert counts.tolist() == expected.tolist() and counts.sum() == len(values) > 0
    best = [max(score for query, _, score, right in pairs if right and query == row) for row in rows.tolist()]
    torch.testing.assert_close(found.best, torch.tensor(best))


def test_similarities_do_not_depend_on_the_size_of_a_block(monkeypatch):
    of, rows = space(), torch.arange(40)
    whole = numbers.similarities(of, rows)
    monkeypatch.setattr(numbers, "BLOCK", 7)
    parts = numbers.similarities(of, rows)
    assert torch.equal(whole.positive, parts.positive) and torch.equal(whole.negative, parts.negative)


@pytest.mark.parametrize("kind", SPACES)
def test_precision_at_recall_is_that_of_the_list_that_is_just_long_enough(kind):
    of = SPACES[kind]()
    rows = torch.arange(3, 14)
    found = numbers.ranked(of, rows)
    total = np.zeros(numbers.LEVELS)
    for place, row in enumerate(rows.tolist()):
        pairs = sorted((-score, right) for query, _, score, right in all_pairs(of, rows) if query == row)
        hits = np.cumsum([right for _, right in pairs])
        precision = hits / np.arange(1, len(hits) + 1)
        for level in range(numbers.LEVELS):
            needed = math.ceil((level + 0.5) / numbers.LEVELS * hits[-1])
            total[level] += precision[np.flatnonzero(hits >= needed)[0]]
        right = np.array([right for _, right in pairs])
        assert found.ap[place] == pytest.approx(precision[right].mean(), abs=1e-12)
        assert found.first[place] == np.flatnonzero(right)[0] + 1
    np.testing.assert_allclose(found.precision.numpy(), total / len(rows), atol=1e-12)


def test_what_a_page_computes_has_progress_bars(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tqdm", reason="without tqdm only numbers are printed")
    for module in ("rankgrad.search", "rankgrad_workbench.tasks.retrieval.page.measured"):
        monkeypatch.setattr(f"{module}.steps", partial(steps, delay=0))  # as if it took long
    of = space()
    np.savez(tmp_path / "mine.npz", embeddings=of.embeddings, labels=of.labels)
    assert main(["report", str(tmp_path / "mine.npz"), "-o", str(tmp_path / "mine.html")]) == 0
    told = capsys.readouterr().err
    assert told.count("ranking: 100%") == 2  # of the evaluation, and of the curve
    assert "searching: 100%" in told and "comparing: 100%" in told


def test_area_under_precision_is_the_mean_ap():
    of = space(40, 8)  # 4 relevant items per query: a divisor of the number of levels
    found = numbers.ranked(of, torch.arange(40))
    assert float(found.precision.mean()) == pytest.approx(float(found.ap.mean()), abs=1e-12)
    given = evaluate(of.embeddings, of.labels, intervals=0)
    assert float(found.ap.mean()) == pytest.approx(given.values["AP"], abs=1e-12)


def test_queries_without_relevant_item_are_left_out_of_the_curve():
    of = space(9, 8)  # class 0 has two images, every other class one
    found = numbers.ranked(of, torch.arange(9))
    assert found.ap.isnan().tolist() == [False, *[True] * 7, False]
    assert float(found.precision.mean()) == pytest.approx(float(found.ap.nanmean()))


@pytest.mark.parametrize("fate", ["skip", "zero"])
def test_recall_curve_is_the_recall_of_the_report_at_every_length(fate):
    of = space(41, 9, spread=1.5)
    lonely = torch.cat([of.labels, torch.tensor([100])])
    embeddings = torch.cat([of.embeddings, -of.embeddings[:1]])
    ks = list(range(1, 42))
    given = evaluate(
        embeddings,
        lonely,
        protocol=Protocol(without_relevant=fate),
        metrics=[*METRICS, *(f"R@{k}" for k in ks)],
        intervals=0,
    )
    curve = numbers.recall_curve(given)
    assert curve[0][0] == 1 and len(curve) > 5
    for k, share in curve:
        assert share == pytest.approx(given.values[f"R@{k}"], abs=1e-12)
    assert curve[-1][1] == pytest.approx(given.values["R@41"], abs=1e-12)


@pytest.mark.parametrize("kind", SPACES)
def test_confusions_are_the_classes_of_wrong_nearest_items(kind):
    of = replace(SPACES[kind](), embeddings=space(spread=2.5).embeddings[: len(SPACES[kind]().embeddings)])
    rows = torch.arange(len(of.embeddings))
    scores, items = numbers.nearest(of, rows, 3)
    found = numbers.confusions(of, rows, scores[:, 0], items[:, 0])
    expected: Counter[tuple[str, str]] = Counter()
    for row in rows.tolist():
        _, item, _, right = max((p for p in all_pairs(of, rows) if p[0] == row), key=lambda pair: pair[2])
        if not right:
            expected[of.class_names[of.labels[row]], of.class_names[of.items.labels[item]]] += 1
    assert expected and sum(pair.queries for pair in found) == sum(expected.values())
    for pair in found:
        one, two = pair.classes
        assert one < two and pair.queries == expected[one, two] + expected[two, one]
        query, item = pair.example
        names = {of.class_names[of.labels[query]], of.class_names[of.items.labels[item]]}
        assert names == {one, two}
    assert [pair.queries for pair in found] == sorted((pair.queries for pair in found), reverse=True)


def test_map_is_the_projection_on_the_two_main_directions():
    of = space()
    placed, share = numbers.flatten(of, torch.tensor([3, 30, 7]))
    centred = (of.embeddings - of.embeddings.mean(0)).numpy()
    _, values, axes = np.linalg.svd(centred)
    expected = (centred @ axes[:2].T)[[3, 30, 7]]
    np.testing.assert_allclose(np.abs(placed.numpy()), np.abs(expected), atol=1e-5)
    assert share == pytest.approx((values[:2] ** 2).sum() / (values**2).sum(), abs=1e-6)
    again, _ = numbers.flatten(of, torch.tensor([3]))
    torch.testing.assert_close(again, placed[:1])


def test_other_map_keeps_clusters_together():
    pytest.importorskip("sklearn")
    of = space(60, 3, spread=0.05)
    placed, share = numbers.flatten(of, torch.arange(60), "tsne", seed=1)
    near = torch.cdist(placed, placed).fill_diagonal_(torch.inf).argmin(1)
    assert math.isnan(share) and torch.equal(of.labels[near], of.labels)


@pytest.mark.parametrize("points", [torch.ones(3, 1), torch.ones(2, 4), torch.eye(2)])
def test_map_of_hardly_anything_is_finite(points):
    of = Space(points, torch.zeros(len(points)).long(), tuple("abc")[: len(points)], ("one",))
    placed, _ = numbers.flatten(of, torch.arange(len(points)))
    assert placed.shape == (len(points), 2) and placed.isfinite().all()


def test_sample_is_whole_or_drawn_by_its_seed():
    assert torch.equal(numbers.sample(5, 5), torch.arange(5))
    drawn = numbers.sample(1000, 30, seed=1)
    assert len(drawn.unique()) == 30 and torch.equal(drawn, drawn.sort()[0])
    assert torch.equal(drawn, numbers.sample(1000, 30, seed=1)) and not torch.equal(
        drawn, numbers.sample(1000, 30, seed=2)
    )


# ---------------------------------------------------------------------------------------------------- same queries


def test_queries_are_matched_by_name_whatever_their_order():
    first, shuffled = content("A"), content("B")
    assert shuffled.space is not None and first.space is not None
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    moved = replace(
        shuffled.space,
        embeddings=shuffled.space.embeddings[order],
        labels=shuffled.space.labels[order],
        names=tuple(shuffled.space.names[row] for row in order.tolist()),
        super_labels=None,
    )
    rows_of, notes = match({0: first.space, 1: moved}, "AB")
    assert [len(rows) for rows in rows_of.values()] == [40, 40] and notes == []
    names = [
        [of.names[row] for row in rows.tolist()]
        for of, rows in zip((first.space, moved), rows_of.values(), strict=True)
    ]
    assert names[0] == names[1] == list(first.space.names)


def test_names_that_repeat_or_change_their_class_are_not_matched_and_said():
    def of(names: str, labels: list[int]) -> Space:
        return Space(torch.eye(len(names)), torch.tensor(labels), tuple(names), ("one", "two"))

    found, notes = match({0: of("abccd", [0, 1, 0, 1, 0]), 1: of("abcd", [0, 0, 0, 0])}, "AB")
    assert [rows.tolist() for rows in found.values()] == [[0, 4], [0, 3]]
    why = "queries of {} have no other of the same name and class in each run"
    assert notes == [f"3 of 5 {why.format('A')}: b, c", f"2 of 4 {why.format('B')}: b, c"]


def test_runs_without_common_query_show_the_first_alone(tmp_path):
    other = content("other")
    assert other.space is not None
    renamed = replace(other.space, names=tuple(f"x{name}" for name in other.space.names))
    page = write(tmp_path, content("first"), replace(other, space=renamed))
    assert "No query is in all runs" in page.text and "queries of first only" in page.text
    assert (
        page.all("details", class_="query") and "40 of 40 queries of first have no other of the same name" in page.text
    )


def test_runs_are_compared_on_the_queries_they_share(tmp_path):
    other = content("other", spread=1.0)
    assert other.space is not None
    fewer = replace(
        other.space,
        **{name: getattr(other.space, name)[10:] for name in ("embeddings", "labels", "names", "super_labels")},
    )
    page = write(tmp_path, content("first"), replace(other, space=fewer))
    assert "10 of 40 queries of first have no other" in page.text and "all 30 queries" in page.text.lower()
    assert len(page.data["map"]["name"]) == 30 and page.data["map"]["name"][0] == "class2/010.png"


# ------------------------------------------------------------------------------------------------------ the choice


def test_choice_by_each_reason():
    nan = math.nan
    ap = torch.tensor([[0.1, 0.9, nan, 0.5, 0.2, 1.0], [0.3, 0.9, nan, 0.1, 0.2, 1.0]], dtype=torch.float64)
    margin = torch.tensor([[0.3, nan, nan, 0.2, 0.2, nan], [nan, nan, nan, 0.9, 0.2, nan]])
    found = choose(ap, margin, {"worst": 2, "best": 9, "failures": 3, "disagree": 5, "random": 3})
    assert found["worst"] == [0, 4] and found["best"] == [5, 1, 3]
    assert found["failures"] == [3, 4]  # wrong in every run; query 0 is right in one
    assert found["disagree"] == [3, 0]
    assert found["random"] == []  # every query with a relevant item has a reason
    assert sorted(choose(ap, margin, {"random": 9, "worst": 1})["random"]) == [1, 3, 4, 5]


# ---------------------------------------------------------------------------------------------- paired differences


@pytest.mark.parametrize(("classes", "within"), [(9, 1e-12), (13, 0.03)])  # all signs are tried, and some are drawn
def test_paired_test_is_that_over_all_signs_of_whole_classes(classes, within):
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(classes), 4)
    run, other = generator.random(4 * classes) + 0.1, generator.random(4 * classes)
    sums = np.bincount(group, weights=run - other)
    all_signs = np.array(list(itertools.product([1, -1], repeat=classes)))
    exact = (np.abs(all_signs @ sums) >= abs(sums.sum()) - 1e-12).mean()
    found = paired_over_groups(run, other, group)
    assert 0.02 < exact < 0.9 and found.p == pytest.approx(exact, abs=within)
    assert found.mean == pytest.approx((run - other).mean())
    assert (found.better, found.worse) == ((run > other).sum(), (run < other).sum()) and found.n == 4 * classes


def test_paired_interval_is_that_of_a_mean_and_knows_that_queries_of_a_class_are_not_independent():
    generator = np.random.default_rng(1)
    run = 0.3 + generator.standard_normal(400)
    found, expected = paired_over_groups(run, np.zeros(400)), 1.96 * run.std() / 20
    assert found.low == pytest.approx(run.mean() - expected, abs=0.1 * expected)
    assert found.high == pytest.approx(run.mean() + expected, abs=0.1 * expected)
    # each query four times says no more than once, if it is known that they are one
    again = paired_over_groups(np.repeat(run, 4), np.zeros(1600), np.repeat(np.arange(400), 4))
    assert (again.low, again.high, again.p) == pytest.approx((found.low, found.high, found.p))
    assert paired_over_groups(np.repeat(run, 4), np.zeros(1600)).high < found.high - 0.4 * expected


def test_runs_without_any_difference_are_not_told_apart():
    found = paired_over_groups(np.ones(6), np.ones(6))
    assert (found.mean, found.low, found.high, found.p, found.better, found.worse) == (0, 0, 0, 1, 0, 0)
    with pytest.raises(ValueError, match="got 2, 3 and 2 groups"):
        paired_over_groups(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="got 0, 0"):
        paired_over_groups(np.ones(0), np.ones(0))


def test_fewer_than_six_classes_have_an_interval_and_no_p():
    run, group = np.arange(12.0), np.arange(12) // 2
    assert paired_over_groups(run, np.zeros(12), group).p == 2 / 2**6
    few = paired_over_groups(run[2:], np.zeros(10), group[2:])
    assert few.p is None and few.low < few.mean < few.high


def test_page_of_several_runs_shows_their_paired_differences(tmp_path):
    first, other = content("first"), content("other", spread=1.2)
    assert first.after is not None and other.after is not None and other.space is not None and first.space is not None
    labels = first.space.labels.numpy()
    wanted = paired_over_groups(other.after.per_query["AP"], first.after.per_query["AP"], labels)
    page = write(tmp_path, first, other)
    words = f"other AP {100 * wanted.mean:+.1f} {100 * wanted.low:+.1f} to {100 * wanted.high:+.1f} {wanted.p:.2g} "
    words += f"{wanted.better} {wanted.worse} {40 - wanted.better - wanted.worse}"
    row = re.escape(words.replace("-", "\N{MINUS SIGN}")).replace(r"\ ", r"\s?")
    assert re.search(row, page.text) and "Each run minus first on the same 40 queries" in page.text
    # the order of another run's queries does not matter
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    moved = replace(
        other.space,
        embeddings=other.space.embeddings[order],
        labels=other.space.labels[order],
        names=tuple(other.space.names[place] for place in order.tolist()),
        super_labels=None,
    )
    per_query = {name: values[order.numpy()] for name, values in other.after.per_query.items()}
    shuffled = replace(other, space=moved, after=replace(other.after, per_query=per_query))
    assert re.search(row, write(tmp_path, first, shuffled).text)


def test_page_of_several_runs_begins_with_what_the_comparison_found(tmp_path):
    first, worse, same = content("first"), content("worse", spread=3.0), content("same")
    text = write(tmp_path, first, worse, same).text
    words = "AP: worse is behind first. No difference from first was found for same."
    assert text.index("Results") < text.index(words) < text.index("In per cent")
    assert "ahead of" not in text and text.count("behind first") == len(first.headline)


def test_runs_on_other_galleries_have_no_differences(tmp_path):
    other = content("other", spread=3.0)
    assert other.space is not None and other.after is not None
    half = {name: getattr(other.space, name)[:20] for name in ("embeddings", "labels", "names", "super_labels")}
    per_query = {name: values[:20] for name, values in other.after.per_query.items()}
    smaller = replace(other, space=replace(other.space, **half), after=replace(other.after, per_query=per_query))
    text = write(tmp_path, content("first"), smaller).text
    assert "other searches among other images than first: 20, not 40." in text
    assert "behind first" not in text and "query by query" not in text


def test_runs_without_values_of_each_query_have_no_differences(tmp_path):
    other = content("other")
    assert other.after is not None
    for lacking in (replace(other.after, per_query={}), None):
        page = write(tmp_path, content("first"), replace(other, after=lacking))
        assert "query by query" not in page.text


# -------------------------------------------------------------------------------------------------------- glossary


def test_every_metric_of_an_evaluation_is_explained_where_it_is_shown(single):
    run = content()
    assert run.after is not None
    further = ["P@5", "Recall@5", "refined@5", "AP@5", "MRR@5", "NDCG@5", "fall-out@5", "FNMR@FMR=0.01"]
    given = evaluate(
        torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2), metrics=[*METRICS, "R@5", *further], intervals=0
    )
    for name in {*given.values, *run.after.values}:
        words, long = glossary.short(name), glossary.definition(name)
        assert words and long.endswith(".") and not re.search(r"[{}]|None", words + long), name
    for name in run.after.values:
        assert f"{name}{glossary.short(name)}" in single.text, name
    assert "lowest right score of a query against the highest wrong score of any query" in single.text
    assert (
        "What the metrics mean" in single.text and "It is high if one threshold works for all queries." in single.text
    )


def test_every_curve_of_a_training_is_explained(finished):
    names = set(curves(finished))
    assert {"loss", "grad_norm"} <= names and [name for name in names if not glossary.short(name)] == []
    assert glossary.short("something else") == glossary.definition("something else") == ""


def test_columns_and_charts_say_what_they_are_of(several):
    titles = {found.get("title") for found in several.all("th")}
    assert {"average precision over the whole ranking", "first item is right"} <= titles
    assert "test/R@1first item is right" in several.text.replace("test/\n", "test/")


# ------------------------------------------------------------------------------------------------------- templates


def templates() -> list[Path]:
    return sorted(Path(rankgrad_workbench.__file__).parent.rglob("*.html"))


def test_no_template_switches_the_escaping_off():
    assert len(templates()) > 12
    for path in templates():
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", path.read_text("utf-8")), path


def test_a_template_escapes_and_refuses_names_that_it_does_not_get(monkeypatch):
    from jinja2 import DictLoader, UndefinedError

    from rankgrad_workbench.report.html import templates as page

    made = page._templates().overlay(loader=DictLoader({"a": "{{ name }}<i>{{ name|short }}</i>", "b": "{{ nam }}"}))
    monkeypatch.setattr(page, "_templates", lambda: made)
    assert page.render("a", name="<b>\x00") == "&lt;b&gt;\\x00<i>&lt;b&gt;\\x00</i>"
    assert page.render("b", nam=page.Markup("<b>")) == "<b>"
    with pytest.raises(UndefinedError, match="'nam' is undefined"):
        page.render("b", name=1)


# -------------------------------------------------------------------------------------------------------- the page


def test_page_loads_nothing_and_runs_its_own_script_only(single):
    links = [value for _, found in single.tags for name, value in found.items() if name in ("src", "href", "srcset")]
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert not any(name.startswith("on") or name == "style" for _, found in single.tags for name in found)
    assert "@import" not in single.source and not re.findall(r"url\((?!data:image/)", single.source)
    (policy,) = [found["content"] for found in single.all("meta") if "http-equiv" in found]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'" and rules["img-src"] == "data:"

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    first, script = single.inside["script"]
    assert single.all("script")[0] == {"id": "data", "type": "application/json"} and json.loads(first)
    assert rules["script-src"] == digest(script)
    assert rules["style-src"] == " ".join(map(digest, single.inside["style"]))


@pytest.mark.parametrize("name", ["single", "several"])
def test_every_reference_within_the_page_has_its_target_and_ids_are_unique(name, request):
    page = request.getfixturevalue(name)
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for _, found in page.tags for key, value in found.items() if key == "href" and value[0] == "#"}
    labelled = {value for _, found in page.tags for key, value in found.items() if key in ("aria-labelledby", "list")}
    assert targets | labelled <= set(ids) and len(targets) > 7
    wanted = re.findall(r'(?:getElementById\("|one\("#)([\w-]+)', page.inside["script"][1])
    assert set(wanted) <= set(ids)


def test_every_part_has_a_heading_and_a_place_among_the_links(single):
    parts = (
        "Results",
        "Training",
        "Ranking",
        "Retrieved images",
        "Confused classes",
        "Classes",
        "Map",
        "Configuration",
    )
    for landmark in ("header", "nav", "main", "footer"):
        assert len(single.all(landmark)) == 1
    text = single.text
    for part in parts:
        assert text.count(part) >= 2, part
    assert len(single.all("section")) == len(single.all("h2")) == len(parts)


def test_table_shows_both_evaluations_their_intervals_and_the_change(single):
    run = content()
    assert run.before is not None and run.after is not None
    for name in ("R@1", "R@4", "mAP@R", "AP"):
        was, now = run.before.values[name], run.after.values[name]
        low, high = run.after.intervals[name]
        expected = (
            rf"{name}.{{0,90}}{100 * was:.1f}.{{0,20}}{100 * now:.1f}\s?{100 * low:.1f} to {100 * high:.1f}\s?"
            rf"\+{100 * (now - was):.1f}"
        )
        assert re.search(expected, single.text), (name, single.text[:900])
    assert "its 95 % confidence interval" in single.text and "queries: 40" in single.text


def test_tiles_show_the_headline_with_its_interval_and_what_it_was(single):
    run = content()
    assert run.before is not None and run.after is not None
    low, high = run.after.intervals["mAP@R"]
    value, was = run.after.values["mAP@R"], run.before.values["mAP@R"]
    words = (
        f"number of right items{100 * value:.1f} %{100 * low:.1f} to {100 * high:.1f}{100 * was:.1f} before training"
    )
    assert words in single.text


def test_several_runs_have_a_column_and_an_interval_each(several):
    runs = [content(), content(spread=1.2), content(spread=0.4)]
    for name in ("R@1", "AP"):
        cells = []
        for run in runs:
            assert run.after is not None
            low, high = run.after.intervals[name]
            cells.append(rf"{100 * run.after.values[name]:.1f}\s?{100 * low:.1f} to {100 * high:.1f}")
        assert re.search(rf"{name}.{{0,60}}" + r"\s?".join(cells), several.text)
    best = list(several.all("li", class_="best"))
    assert len(best) == 3  # one per tile


def test_distances_are_numbers_and_not_percentages(single):
    run = content()
    assert run.after is not None
    assert f"{run.after.values['dists_inter']:.4g}" in single.text
    assert f"{100 * run.after.values['dists_inter']:.1f}" not in single.text


def test_run_without_evaluation_before_training_has_one_column_of_numbers(tmp_path):
    page = write(tmp_path, content(before=None))
    results = page.text[page.text.index("In per cent") : page.text.index("Measured during")]
    assert "change" not in results and "before" not in results and "after" not in results


def test_heading_says_what_was_trained_on_what(single, several):
    for fact in ("data glyphs", "loss ROADMAPLoss", "model convnet", "seed 0", "steps 20", "training 12 s"):
        assert fact in single.text
    assert single.text.count("glyphs: one") == 2  # title and heading
    assert several.text.count("glyphs: one, two, three") == 2 and "two SmoothAPLoss" in several.text


def test_configuration_of_one_run_is_listed_flat_with_every_value(tmp_path):
    page = write(tmp_path, content(config={"a": {"b": {"c": 1}, "empty": {}}, "list": [1, 2], "none": None}))
    assert re.search(r"a\.b\.c\s*1", page.text)
    assert re.search(r"a\.empty\s*\{\}", page.text) and re.search(r"list\s*\[1, 2\]", page.text)
    assert re.search(r"none\s*None", page.text) and re.search(r"evaluation: protocol\s*leave-one-out", page.text)


def test_configuration_of_several_runs_begins_with_what_differs(several):
    text = several.text[several.text.index("What differs") :]
    differ, same = text[: text.index("settings that are the same")], text[text.index("settings that are the same") :]
    assert re.search(r"loss\._target_.{0,60}ROADMAPLoss.{0,60}SmoothAPLoss", differ)
    assert re.search(r"loss\.alpha\s*0\.8\s*–\s*0\.8", differ)
    assert "model.kind" in same and "model.kind" not in differ


def test_classes_are_all_there_for_the_script_and_the_hardest_for_those_without(tmp_path):
    rows = tuple(
        {"class": c, "name": f"k{c:03}", "queries": 5, "counted": 5, "AP": (c * 7 % 80) / 80} for c in range(80)
    )
    rows += ({"class": 80, "name": "lonely", "queries": 1, "counted": 0, "AP": None},)
    page = write(tmp_path, Content("run", after=report(per_class=rows)))
    hardest = [row["name"] for row in sorted(rows[:80], key=lambda row: row["AP"])]
    assert re.findall(r"k\d\d\d", page.text) == hardest[:50]
    assert "The 50 of 81 with the lowest AP" in page.text
    given = page.data["tables"]["class"]
    assert given["columns"] == ["class", "queries", "AP"] and len(given["rows"]) == 81
    assert given["rows"][:2] == [["k000", 5, 0.0], ["k023", 5, 0.0125]] and given["rows"][-1] == ["lonely", 1, None]
    assert given["sorted"] == 2


def test_classes_of_several_runs_stand_side_by_side_with_their_range(several):
    given = several.data["tables"]["class"]
    assert given["columns"][:5] == ["class", "queries", "AP one", "AP two", "AP three"]
    assert given["columns"][-1] == "range of AP"
    runs = [content(), content(spread=1.2), content(spread=0.4)]
    for row in given["rows"]:
        found = [next(r["AP"] for r in run.after.per_class if r["name"] == row[0]) for run in runs if run.after]
        assert row[2:5] == [round(value, 4) for value in found]
        assert row[-1] == pytest.approx(max(found) - min(found), abs=2e-4)


def test_filter_knows_all_classes_whatever_is_shown(tmp_path):
    run = content(spread=0.3)
    assert run.space is not None
    many = replace(run.space, class_names=tuple(f"k{label}" for label in range(8)))
    page = write(tmp_path, replace(run, space=many), extent=Extent(queries=5))
    assert page.data["gallery"] == {"classes": [f"k{label}" for label in range(8)], "queries": 40}
    assert len(page.all("details", class_="query")) <= 5


def test_long_names_are_shortened_and_whole_under_the_pointer(tmp_path):
    long = "a" * 60
    runs = [content(long), content("short")]
    page = write(tmp_path, *runs)
    cut = [found["title"] for found in page.all("span", class_="cut")]
    assert all(title.endswith(long) for title in cut) and len(cut) > 10 and long in page.text


def test_super_labels_have_their_own_table(single):
    assert [row[:2] for row in sorted(single.data["tables"]["super-label"]["rows"])] == [["even", 20], ["odd", 20]]
    assert "By super-label" in single.text


def test_parts_without_content_are_left_out_with_their_links(tmp_path):
    page = write(tmp_path, Content("nothing", after=report()))
    assert not page.all("section") and page.all("nav") and [found["href"] for found in page.all("a")] == ["#content"]
    assert page.data == {}


def test_values_that_could_not_be_computed_show_as_a_dash(tmp_path):
    run = Content("run", before=report(values={"AP": math.nan}), after=report(values={"AP": 0.5, "R@1": math.nan}))
    page = write(tmp_path, run)
    assert "nan" not in page.text.lower()
    assert re.search(r"whole ranking\s*–\s*50.0\s*–", page.text)


@pytest.mark.parametrize("after", [0.4, 0.5])
def test_losses_and_standstill_are_signed(tmp_path, after):
    page = write(tmp_path, Content("run", before=report(values={"AP": 0.5}), after=report(values={"AP": after})))
    assert ("\N{MINUS SIGN}10.0" in page.text) == (after < 0.5)
    assert "+" not in re.sub(r"rankgrad \S+", "", page.text)


def test_text_from_outside_cannot_become_markup(tmp_path):
    evil = "</script><script>alert('x')</script><!--\"'&\x00\udcff\u202egpj\u2066"  # \u202e turns what follows it
    of = space()
    marked = replace(
        of,
        names=tuple(f"{evil}{row}" for row in range(40)),
        class_names=tuple(f"{evil}{label}" for label in range(8)),
        super_names=(f"{evil}0", f"{evil}1"),
    )
    assert of.super_labels is not None
    after = evaluate(
        of.embeddings,
        of.labels,
        class_names=marked.class_names,
        super_labels=of.super_labels,
        super_names=marked.super_names,
        intervals=0,
    )
    after = replace(after, values={**after.values, evil: 0.1}, counts={**after.counts, evil: 1}, notes=(evil,))
    runs = [
        content(
            f"{evil}{number}",
            config={"data": {"name": evil}, "loss": {"_target_": evil}, evil: {evil: evil}, "only": number},
            curves={evil: [(0, 1), (1, 2)]},
            after=after,
            space=marked,
            pictures=Pictures(replace(table(of), names=marked.names, class_names=marked.class_names)),
            notes=(evil,),
        )
        for number in range(2)
    ]
    for number, page in enumerate([write(tmp_path, *runs), write(tmp_path, runs[0], title=evil)]):
        assert len(page.all("script")) == 2 and page.source.count("<script") == page.source.count("</script") == 2
        assert "<!--" not in page.source
        assert page.text.count(f"alert('x')</script><!--\"'&{shown(evil[-7:])}") > 100
        assert not re.search("[\x00\u202e\u2066]", page.source + json.dumps(page.data, ensure_ascii=False))
        assert any(row[0].startswith("</script><script>") for row in page.data["tables"]["class"]["rows"]), number
        assert page.data["map"]["classes"][0].startswith("</script>")


def test_same_run_gives_the_same_bytes_and_replaces_the_old_page(tmp_path, single):
    (tmp_path / "report.html").write_text("old")
    assert write(tmp_path).source == single.source


DEEP = b"[" * 10**5
DAMAGED = [
    *(("facts.json", text) for text in (b'{"steps": "x", "train_seconds": 1}', b'{"steps": 6}', b"[]", b"\xff", DEEP)),
    ("facts.json", b'{"steps": 6, "train_seconds": [1]}'),
    *((name, text) for name in ("before.json", "after.json") for text in (b"\x00\xff\x80", b"{}", b"1", DEEP)),
    *(("health.json", text) for text in (b'{"findings": [1]}', b'{"findings": 1}', b"{}", b"\xff", DEEP)),
    ("health.json", b'{"findings": [{"level": "warning"}]}'),
    *(("logs/metrics.csv", text) for text in (b"step,loss\nx,1\n", b"step,loss\n0,y\n", b"\xff\n", b"step\n0,1,2\n")),
]


@pytest.mark.parametrize(("name", "content"), DAMAGED, ids=lambda value: str(value)[:40])
def test_a_damaged_file_of_a_run_is_named_with_what_to_do(tmp_path, name, content):
    run = copied("retrieval", tmp_path / "run")
    (run / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"^{run / name} is .*damaged.* again"):
        read_runs([run], pictures=False)


def test_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    first = write(tmp_path).source

    def die(*names: object, **at: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, title="Other")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == first and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("runs", "message"), [(0, "a report shows 1 to 8 runs; got 0"), (9, "got 9")])
def test_what_cannot_be_written_is_refused(tmp_path, runs, message):
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "r.html", [Content(str(n)) for n in range(runs)])
    with pytest.raises(FileNotFoundError, match="none"):
        write_report(tmp_path / "none" / "r.html", [Content("a")])
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="must be >= 1; got .*queries=0"):
        Extent(queries=0)
    with pytest.raises(ValueError, match="must be 'pca' or 'tsne'; got 'umap'"):
        Extent("umap")


# --------------------------------------------------------------------------------------------- curves, histograms


def curve(tmp_path: Path, **curves: Any) -> Page:
    return write(tmp_path, Content("run", curves=curves))


def test_curve_is_drawn_where_its_values_are(tmp_path):
    page = curve(tmp_path, loss=[(0, 1.0), (10, 0.0), (20, 1.0)])
    (line,) = page.all("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line["points"].split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and y0 == y2 and y1 > y0  # svg counts downwards
    (drawing,) = page.all("svg", role="img")
    assert drawing["aria-label"] == "loss: 1 at step 0, 1 at step 20"
    (dots,) = page.all("path", class_="dots")
    assert dots["d"] == "".join(f"M{point.replace(',', ' ')}h0" for point in line["points"].split())


def test_curves_of_several_runs_share_a_chart_but_two_losses_have_two(several):
    drawings = [found["aria-label"] for found in several.all("svg", role="img")]
    same, other = [label for label in drawings if label.startswith("loss of")]
    assert same.startswith("loss of one, three: one: 1 at step 0") and "three: 1 at step 0" in same
    assert other.startswith("loss of two: two: 1 at step 0")
    (recall,) = [label for label in drawings if label.startswith("test/R@1")]
    assert all(f"{name}: 0.4 at step 10" in recall for name in ("one", "two", "three"))
    kinds = {found["class"] for found in several.all("polyline", class_="line")}
    assert kinds == {"line s0", "line s1", "line s2"}


@pytest.mark.parametrize(
    "points",
    [[(5, 2.0)], [(0, 0.0), (1, 0.0)], [(0, -1e-9), (1, 1e-9)], [(0, 1e30), (3, -1e30)], [(0, 1.0), (0, 2.0)]],
)
def test_odd_curves_stay_inside_their_frame(tmp_path, points):
    page = curve(tmp_path, c=points)
    (line,) = page.all("polyline")
    for point in line["points"].split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= charts.SMALL[0] and 0 <= y <= charts.SMALL[1]
    assert page.all("text")


def test_a_curve_that_never_moves_is_a_number_and_no_chart(tmp_path):
    same = [(0, 1.0), (1, 1.0), (2, 1.0)]
    page = curve(tmp_path, loss=same, counted=same, c=[(0, 1.0), (1, 1.0), (2, 1.5)])
    assert len(page.all("polyline")) == 2  # the loss is always drawn
    assert "The same in all steps: counted 1 (" in page.text
    assert "The same in all steps" not in curve(tmp_path, loss=same, c=[(0, 1.0), (1, 1.0)]).text


def test_values_that_are_not_finite_are_left_out(tmp_path):
    page = curve(tmp_path, c=[(0, 1.0), (1, math.nan), (2, math.inf), (3, 0.5)], d=[(0, math.nan)])
    assert len(page.all("polyline")) == 1


def test_long_curves_are_thinned_without_losing_their_peaks():
    points = [(float(x), math.sin(x / 50)) for x in range(10_000)]
    points[4321] = (4321.0, 9.0)
    thin = charts.thinned(points, 240)
    assert len(thin) <= 480 and (4321.0, 9.0) in thin and thin == sorted(thin)
    mean = charts.running_mean([(float(x), float(x % 2)) for x in range(600)], 60)
    assert len(mean) == 60 and all(y == 0.5 for _, y in mean)


@pytest.mark.parametrize("span", [(0, 1), (-3, 7), (0.031, 0.0314), (1e5, 3e6), (-1e-8, 1e-8)])
def test_ticks_are_few_round_and_inside(span):
    ticks = charts.ticks(*span, 5)
    assert 2 <= len(ticks) <= 6
    assert all(span[0] - 1e-9 * abs(span[0]) <= tick <= span[1] + 1e-9 * abs(span[1]) for tick in ticks)
    assert all(len(f"{abs(tick):.10e}".split("e")[0].rstrip("0")) <= 6 for tick in ticks)


def test_histograms_show_both_kinds_of_pairs(single):
    assert len(single.all("polyline", class_="positive")) == len(single.all("polyline", class_="negative")) == 1


# ------------------------------------------------------------------------------------------------------- pictures


def stored(page: Page) -> dict[str, np.ndarray]:
    found = {}
    for name, kind, data in re.findall(
        r"\.(i\d+)\{background-image:url\(data:image/(\w+);base64,([^)]*)\)\}", page.source
    ):
        with PIL.open(io.BytesIO(base64.b64decode(data))) as image:
            assert kind == image.format.lower()
            found[name] = np.asarray(image)
    return found


def test_images_are_stored_once_each_and_every_element_shows_its_own(several):
    images = stored(several)
    assert len(images) == 40 and "no picture" not in several.text
    expected = {f"class{row % 8}/{row:03}.png": picture(row)[0].numpy() for row in range(40)}
    given = several.data["map"]
    for name, number in zip(given["name"], given["picture"], strict=True):
        assert np.array_equal(images[f"i{number}"], expected[name])
    shown = [found["class"].split()[1] for found in several.all("span", class_="pic") if " i" in found["class"]]
    assert len(shown) > 300 and set(shown) <= set(images)


def test_large_photographs_are_stored_small():
    noise = F.interpolate(torch.rand(1, 3, 40, 30) * 255, size=(800, 600), mode="bicubic").clamp(0, 255).byte()[0]
    images = Images()
    assert images.add(noise) == images.add(noise.clone()) == "i0" and images.size < 20_000 and len(images) == 1
    data = re.findall(r"base64,([^)]*)", images.css())[0]
    with PIL.open(io.BytesIO(base64.b64decode(data))) as image:
        assert image.size == (72, 96) and image.format == "JPEG"


def test_right_and_wrong_differ_by_frame_mark_and_words(single):
    right, wrong = (len(single.all("div", class_=kind)) for kind in ("ok", "no"))
    assert right > 10 and wrong > 10
    assert single.text.count("✓ right, rank") == right and single.text.count("✗ wrong, rank") == wrong
    assert re.search(r"\.ok \.pic \{ border: 3px solid", single.source)
    assert re.search(r"\.no \.pic \{ border: 3px dashed", single.source)


def test_cards_hold_the_nearest_items_and_say_why_they_are_there(single):
    of = space()
    cards = single.all("details", class_="query")
    assert len(cards) == 40  # all of them: 24 of lowest AP, 12 of highest, and 4 others
    why = Counter(reason for card in cards for reason in card["data-why"].split())
    assert why["worst"] == 24 and why["best"] == 12 and 0 < why["failures"] <= 24 and why["random"] <= 4
    assert all(card["data-why"] == "random" for card in cards if "random" in card["data-why"])
    _, items = numbers.nearest(of, torch.arange(40), 10)
    wrong = (of.labels[items[:, 0]] != of.labels).sum()
    assert sum(card["data-first"] == "wrong" for card in cards) == int(wrong) > 0
    titles = [found["title"] for found in single.all("p", class_="name")]
    assert len(titles) == 400
    rows = {
        f"class{label}: {name}": row for row, (label, name) in enumerate(zip(of.labels.tolist(), of.names, strict=True))
    }
    found = Counter(tuple(rows[title] for title in titles[10 * card : 10 * card + 10]) for card in range(40))
    assert found == Counter(tuple(row) for row in items.tolist())


def test_cards_of_several_runs_show_a_strip_of_each_for_the_same_query(several):
    cards = len(several.all("details", class_="query"))
    assert len(several.all("p", class_="strip")) == 3 * cards and len(several.all("p", class_="name")) == 30 * cards
    assert any("disagree" in card["data-why"].split() for card in several.all("details", class_="query"))


def test_images_that_are_gone_are_said_and_the_page_is_written(tmp_path):
    run = content()
    assert run.pictures is not None
    moved = replace(
        run.pictures.source,
        images=None,
        paths=tuple(tmp_path / "gone" / f"{row}.png" for row in range(40)),
    )
    page = write(tmp_path, replace(run, pictures=Pictures(moved)))
    assert "No pictures: the images of the data set cannot be read (the first, class" in page.text
    assert not stored(page) and len(page.all("p", class_="name")) == 400
    some = replace(run.pictures.source, names=("renamed", *run.pictures.source.names[1:]))
    page = write(tmp_path, replace(run, pictures=Pictures(some)))
    assert (
        "1 images could not be read and are not shown (the first, class0/000.png" in page.text
        and len(stored(page)) == 39
    )


def test_an_image_whose_name_is_not_its_own_is_not_shown():
    of = space(4, 2)
    pictures = Pictures(replace(table(of), names=("a", "a", "b", "c")))
    assert pictures.get("a") is None and "or several" in pictures.failed["a"]
    shown = pictures.get("c")
    assert shown is not None and torch.equal(shown, picture(3))


# ------------------------------------------------------------------------------------------------- sixty thousand


def test_a_page_about_sixty_thousand_images_has_all_classes_and_a_sample_of_queries(tmp_path):
    page = write(tmp_path, large(), extent=Extent(queries=120))
    assert len(page.source.encode()) < 8_000_000
    assert len(page.data["tables"]["class"]["rows"]) == 11_000
    assert "chosen from 120 of 60,000 queries" in page.text and "120 of 60,000 queries, coloured by" in page.text
    assert "averaged over 120 of 60,000 queries" in page.text
    images = stored(page)
    assert len(images) > 500 and max(max(image.shape[:2]) for image in images.values()) == 96


def test_pictures_stop_where_they_become_too_many(tmp_path, monkeypatch):
    run = content(spread=0.2, pictures=Soft())  # no confusions, whose pictures stand outside the count
    whole = write(tmp_path, run)
    size = sum(map(len, whole.inside["style"][1:]))
    monkeypatch.setattr(sections, "CARD_BYTES", size * 0.5)
    monkeypatch.setattr(sections, "PICTURE_BYTES", size * 0.85)
    page = write(tmp_path, run)
    assert size * 0.85 < sum(map(len, page.inside["style"][1:])) < size
    assert 0 < len(page.all("details", class_="query")) < 20 < len(whole.all("details", class_="query"))
    without = page.data["map"]["picture"].count(None)
    assert 0 < without < 40 and f"{without} of the points have no picture" in page.text


@pytest.mark.slow
def test_a_page_about_three_runs_on_sixty_thousand_images_stays_under_twenty_megabytes(tmp_path):
    page = write(tmp_path, *(large(f"run {seed}", seed=seed) for seed in range(3)))
    assert 14_000_000 < len(page.source.encode()) < 20_000_000


# ------------------------------------------------------------------------------------------------------ real runs


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(*small(photos), f"out={tmp_path_factory.mktemp('finished') / 'run'}")


@pytest.fixture(scope="module")
def broken_off(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut") / "half"
    cut_off([*small(photos), f"out={folder}"], 4)
    return folder


def test_command_writes_the_page_that_training_wrote(finished, tmp_path, capsys):
    path = finished.folder / "report.html"
    written = path.read_text()
    path.unlink()
    assert main(["report", str(finished.folder)]) == 0
    assert path.read_text() == written and f"wrote {path}" in capsys.readouterr().out
    page = Page(path)
    assert len(page.all("details", class_="query")) == 25 and len(stored(page)) == 25
    assert main(["report", str(finished.folder), "-o", str(tmp_path / "x.html"), "--title", "My run", "-k", "3"]) == 0
    assert Page(tmp_path / "x.html").text.count("My run") == 2


def test_unfinished_run_is_shown_as_far_as_it_is(broken_off, finished, tmp_path):
    page = write(tmp_path, *read_runs([broken_off]))
    assert "This run is not finished: it has logged" in page.text and "rankgrad train resume=" in page.text
    assert "Training" in page.text and "Retrieved images" not in page.text
    both = write(tmp_path, *read_runs([broken_off, finished.folder]))
    assert "half: This run is not finished" in both.text and len(both.all("details", class_="query")) == 25


def test_numbers_of_an_unfinished_run_are_those_of_its_last_evaluation(tmp_path):
    run = Content("run", latest=(60, {"R@1": 0.25, "AP": 0.5}), notes=("not finished",))
    page = write(tmp_path, run)
    assert "first item is right25.0 %after 60 steps" in page.text and "not finished" in page.text


def test_run_whose_data_was_moved_has_a_page_without_pictures(finished, photos, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace(str(photos), str(tmp_path / "nowhere")))
    assert main(["report", str(copy)]) == 0
    page = Page(copy / "report.html")
    assert "No pictures: the images of the run cannot be read" in page.text and not stored(page)
    assert len(page.all("details", class_="query")) == 25
    (copy / "embeddings.npz").unlink()
    assert main(["report", str(copy)]) == 0
    page = Page(copy / "report.html")
    assert (
        "embeddings.npz cannot be read" in page.text and not page.all("details", class_="query") and "R@1" in page.text
    )
    (copy / "embeddings.npz").write_bytes(b"no npz")
    assert "embeddings.npz cannot be read" in " ".join(read_run(Run(copy)).notes)


def test_what_is_no_run_or_the_same_run_twice_is_refused(finished, tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run: it has no config.yaml" in capsys.readouterr().err
    assert main(["report", str(finished.folder), f"{finished.folder}/../run"]) == 2
    assert "more than once" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_comparison_is_one_page_over_all_runs(finished, broken_off, tmp_path):
    copies = {}
    for name in ("pnp-seed0", "pnp-seed1", "auc-seed0"):
        copies[name] = tmp_path / "runs" / name
        shutil.copytree(finished.folder, copies[name])
    changed = json.loads((copies["pnp-seed1"] / "after.json").read_text())
    changed["values"]["R@1"] = 0.125
    (copies["pnp-seed1"] / "after.json").write_text(json.dumps(changed))
    runs = {"pnp:alpha=1": [copies["pnp-seed0"], copies["pnp-seed1"]], "auc": [copies["auc-seed0"]]}
    path = write_comparison(tmp_path / "compare.html", runs)
    page, first = Page(path), changed_values(finished)["R@1"]
    mean, spread = (first + 0.125) / 2, abs(first - 0.125) / math.sqrt(2)
    assert f"pnp:alpha=12{100 * mean:.1f} ± {100 * spread:.1f}{100 * first:.1f} 12.5" in page.text
    assert f"auc1{100 * first:.1f}{100 * first:.1f}" in page.text
    assert re.search(
        r"photos\d: pnp:alpha=1, auc", page.text
    )  # called after the folder: every folder's kind is "folder"
    parts = [section["id"] for section in page.all("section")]
    assert parts[0] == "seeds" and parts.index("confusions") < parts.index("gallery")
    assert page.text.count("Shown because: ") == len(page.all("details", class_="query"))
    assert "Shown because: lowest AP" in page.text and "Shown because: ." not in page.text
    assert page.all("details", class_="query") and len(page.all("p", class_="strip")) == 2 * len(
        page.all("details", class_="query")
    )
    # behind the curve of the first run stands that of the other seed; a curve that never moves is not drawn
    moving = [name for name, points in curves(finished).items() if len({value for _, value in points}) > 1]
    assert (
        len(page.all("polyline", class_="raw")) == len(moving) >= 5
        and "Pale curves: the same with other seeds" in page.text
    )
    many = {f"loss {number}": [folder] for number, folder in enumerate([*copies.values(), broken_off])}
    for number in range(6):
        many[f"more {number}"] = [shutil.copytree(copies["auc-seed0"], tmp_path / "runs" / f"more{number}")]
    page = Page(write_comparison(tmp_path / "compare.html", many))
    assert "the first 8 of 10 variants" in page.text and page.text.count("more 5") == 1
    assert sum(tag == "section" for tag, _ in page.tags) >= 8
    with pytest.raises(ValueError, match="at least one run; got none"):
        write_comparison(tmp_path / "compare.html", {"pnp": []})


def test_a_comparison_tests_over_seeds_before_it_tests_over_the_queries_of_one_seed(finished, tmp_path):
    runs: dict[str, list[Path]] = {"pnp": [], "auc": []}
    of_pnp, of_auc = (0.5, 0.6, 0.52, 0.55, 0.58, 0.54), (0.625, 0.65, 0.62, 0.63, 0.66, 0.61)
    for loss, values in (("pnp", of_pnp), ("auc", of_auc)):
        for seed, value in enumerate(values):
            folder = Path(shutil.copytree(finished.folder, tmp_path / f"{loss}-seed{seed}"))
            config, after = folder / "config.yaml", json.loads((folder / "after.json").read_text())
            config.write_text(re.sub(r"^seed: .*$", f"seed: {seed}", config.read_text(), flags=re.MULTILINE))
            after["values"]["mAP@R"] = value
            (folder / "after.json").write_text(json.dumps(after))
            runs[loss].append(folder)
    for seeds in (6, 2):
        of = {loss: folders[:seeds] for loss, folders in runs.items()}
        text = Page(write_comparison(tmp_path / "compare.html", of)).text
        wanted = paired_t_test(of_auc[:seeds], of_pnp[:seeds])
        over = f"auc mAP@R {100 * wanted.mean:+.1f}"
        if seeds >= 4:
            over += f" {100 * wanted.low:+.1f} to {100 * wanted.high:+.1f} {wanted.p:.2g} {100 * wanted.detectable:.1f}"
        over += f" {seeds}"
        found = re.search(re.escape(over.replace("-", "\N{MINUS SIGN}")).replace(r"\ ", r"\s?"), text)
        assert found and found.start() < text.index("seed 0, query by query")
        assert ("one comparison of twenty" in text) == (seeds == 6) and "Other seeds may give another order" not in text
        assert ("auc is ahead of pnp." in text) == (seeds == 6)
        assert ("No difference from pnp was found for auc." in text) == (seeds == 6)  # the other metrics are equal
        assert seeds == 2 or text.index("mAP@R: auc is ahead of pnp.") < text.index("Mean ± standard deviation")
        assert ("p over seeds" in text) == (seeds == 6) and ("Two seeds" in text) == (seeds == 2)
    alone = Page(
        write_comparison(tmp_path / "compare.html", {loss: folders[:1] for loss, folders in runs.items()})
    ).text
    assert "p over seeds" not in alone and alone.index("One seed") < alone.index("query by query")


def changed_values(run: Run) -> dict[str, float]:
    values: dict[str, float] = json.loads(run.after.read_text())["values"]
    return values


def test_queries_and_gallery_of_a_run_are_kept_apart(tmp_path):
    of = divided()
    after = evaluate(
        of.embeddings, of.labels, ref_embeddings=of.items.embeddings, ref_labels=of.items.labels, intervals=0
    )
    whole = table(space())
    page = write(tmp_path, Content("run", after=after, space=of, pictures=Pictures(whole)))
    assert len(page.all("details", class_="query")) == 15 and len(page.all("p", class_="name")) == 150
    shown = {found["title"].split(": ")[1] for found in page.all("p", class_="name")}
    assert shown <= set(of.items.names)


def test_names_of_runs_are_as_short_as_can_be():
    assert short_names([Path("/a/pnp/0"), Path("/a/pnp/1")]) == ["0", "1"]
    assert short_names([Path("/a/pnp/0"), Path("/a/auc/0")]) == ["pnp/0", "auc/0"]
    assert short_names([Path("/a/only")]) == ["only"]


def test_evaluations_that_were_drawn_are_said_to_be_of_another_gallery(finished, monkeypatch):
    run = read_run(finished)
    assert run.after is not None
    drawn = replace(run.after, settings={**run.after.settings, "protocol": "one-gallery, 10 draws"})
    assert "is ranked against all others" in " ".join(read_run(finished, after=drawn).notes)
    assert "is ranked against all others" not in " ".join(run.notes)
