from __future__ import annotations

import base64
import io
import math
import os
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad import metrics
from rankgrad.evaluation import Report, evaluate
from rankgrad.report import QueryExample, RetrievedItem, retrieval_gallery, write_report
from rankgrad.report.html import _running_mean, _thinned, _ticks

PIL = pytest.importorskip("PIL.Image", reason="images of a report need Pillow: the extra rankgrad[train]")

VOID = {"meta", "link", "br", "input", "wbr", "img"}


class Page(HTMLParser):
    """A page as a reader's browser sees it: text, tags and attributes; fails on tags that do not balance."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"attribute given twice: {tag} {attrs}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            found
            for name, found in self.tags
            if name == tag and all(value in found.get(key, "").split() for key, value in wanted.items())
        ]


def picture(seed: int, channels: int = 1, height: int = 28, width: int = 28) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (channels, height, width), dtype=torch.uint8, generator=generator)


def a_report(shift: float = 0.0) -> Report:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    centres = F.one_hot(labels).float() * shift
    return evaluate(
        centres + torch.randn(40, 4, generator=generator),
        labels,
        class_names=["a", "b", "c", "d"],
        super_labels=labels // 2,
        super_names=["low", "high"],
        bootstrap=50,
        clusters="none",
    )


def an_example(group: str = "", hit: bool = True, seed: int = 0) -> QueryExample:
    items = tuple(
        RetrievedItem(picture(seed + rank), f"class{rank}", 1 - rank / 10, rank, hit if rank == 1 else rank % 2 == 0)
        for rank in (1, 2, 3)
    )
    return QueryExample(picture(seed), f"file{seed}.png", "class1", items, 0.5, group)


BEFORE, AFTER = a_report(), a_report(3.0)


def write(tmp_path: Path, **changes: Any) -> Page:
    arguments: dict[str, Any] = {
        "title": "A run",
        "config": {"data": {"name": "glyphs"}, "loss": {"_target_": "rankgrad.losses.SmoothAPLoss", "tau": 0.01}},
        "curves": {"loss": [(0, 1.0), (10, 0.5), (20, 0.25)]},
        "before": BEFORE,
        "after": AFTER,
        "gallery": [an_example()],
        "notes": [],
    }
    path = write_report(tmp_path / "report.html", **{**arguments, **changes})
    assert path == tmp_path / "report.html" and [p.name for p in tmp_path.iterdir()] == ["report.html"]
    return Page(path)


# -------------------------------------------------------------------------------------------------------- the page


def test_page_loads_nothing_and_runs_nothing(tmp_path):
    page = write(tmp_path)
    links = [value for _, found in page.tags for name, value in found.items() if name in ("src", "href", "srcset")]
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert not page.all("script") and "url(" not in page.source and "@import" not in page.source
    assert not any(name.startswith("on") for _, found in page.tags for name in found)
    (policy,) = [found for found in page.all("meta") if "http-equiv" in found]
    assert "default-src 'none'" in policy["content"]


def test_every_reference_within_the_page_has_its_target_and_ids_are_unique(tmp_path):
    page = write(tmp_path, gallery=[an_example(seed=0), an_example(seed=1)])
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    targets = {
        value[1:] for _, found in page.tags for name, value in found.items() if name == "href" and value[0] == "#"
    }
    labelled = {value for _, found in page.tags for name, value in found.items() if name == "aria-labelledby"}
    assert targets | labelled <= set(ids)


def test_table_shows_both_evaluations_their_intervals_and_the_change(tmp_path):
    page = write(tmp_path)
    for name in ("R@1", "R@4", "mAP@R", "AP"):
        was, now = BEFORE.values[name], AFTER.values[name]
        low, high = AFTER.intervals[name]
        expected = (
            rf"{name}.{{0,90}}{100 * was:.1f}.{{0,20}}{100 * now:.1f}\s?{100 * low:.1f} to {100 * high:.1f}\s?"
            rf"\+{100 * (now - was):.1f}"
        )
        assert re.search(expected, page.text), (name, page.text[:900])
    assert "its 95 % interval" in page.text and "queries: 40" in page.text


def test_distances_are_numbers_and_not_percentages(tmp_path):
    page = write(tmp_path)
    assert f"{AFTER.values['dists_inter']:.4g}" in page.text
    assert f"{100 * AFTER.values['dists_inter']:.1f}" not in page.text


def test_run_without_evaluation_before_training_has_one_column_of_numbers(tmp_path):
    page = write(tmp_path, before=None)
    assert "change" not in page.text and "before" not in page.text
    assert f"{100 * AFTER.values['AP']:.1f}" in page.text


def test_heading_says_what_was_trained_on_what(tmp_path):
    page = write(tmp_path)
    assert "data glyphs" in page.text and "loss SmoothAPLoss" in page.text
    assert page.text.count("A run") == 2  # title and heading


def test_configuration_is_listed_flat_with_every_value(tmp_path):
    page = write(tmp_path, config={"a": {"b": {"c": 1}, "empty": {}}, "list": [1, 2], "none": None})
    assert re.search(r"a\.b\.c\s*1", page.text)
    assert re.search(r"a\.empty\s*\{\}", page.text) and re.search(r"list\s*\[1, 2\]", page.text)
    assert re.search(r"none\s*None", page.text) and re.search(r"protocol\s*leave-one-out", page.text)


def test_hardest_classes_come_first_and_are_as_many_as_promised(tmp_path):
    rows = tuple(
        {"class": c, "name": f"k{c:02}", "queries": 5, "counted": 5, "AP": (c * 7 % 40) / 40} for c in range(40)
    )
    rows += ({"class": 40, "name": "lonely", "queries": 1, "counted": 0, "AP": None},)
    page = write(tmp_path, after=Stub(per_class=rows))
    shown = re.findall(r"k\d\d", page.text)
    assert shown == [row["name"] for row in sorted(rows[:40], key=lambda row: row["AP"])[:15]]
    assert "The 15 of 41 classes" in page.text and "lonely" not in page.text


def test_super_labels_have_their_own_table(tmp_path):
    page = write(tmp_path)
    assert "By super-label" in page.text
    assert re.search(r"(high|low)\s*20", page.text)


@dataclass
class Stub:
    """A report written by somebody else: the page must need no more than it says it needs."""

    values: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    per_class: tuple[dict[str, Any], ...] = ()
    per_super_label: tuple[dict[str, Any], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def test_sections_without_content_are_left_out_with_their_links(tmp_path):
    page = write(tmp_path, before=None, after=Stub(), curves={}, gallery=[], config={})
    assert not page.all("section") and page.all("nav") and not re.search("Training|Configuration|Hardest", page.text)


def test_values_that_could_not_be_computed_show_as_a_dash(tmp_path):
    page = write(tmp_path, before=Stub(values={"AP": math.nan}), after=Stub(values={"AP": 0.5, "R@1": math.nan}))
    assert "nan" not in page.text.lower()
    assert re.search(r"whole ranking\s*–\s*50.0\s*–", page.text)


@pytest.mark.parametrize("change", ["-", "0"])
def test_losses_and_standstill_are_signed(tmp_path, change):
    after = 0.4 if change == "-" else 0.5
    page = write(tmp_path, before=Stub(values={"AP": 0.5}), after=Stub(values={"AP": after}))
    assert ("\N{MINUS SIGN}10.0" in page.text) == (change == "-")
    assert "+" not in re.sub(r"rankgrad \S+", "", page.text)


def test_text_from_outside_cannot_become_markup(tmp_path):
    evil = "<script>alert('x')</script>\"'&\x00\udcff"
    item = RetrievedItem(picture(1), evil, 0.5, 1, True)
    after = Stub(
        values={"AP": 0.5, evil: 0.1},
        per_class=({"name": evil, "queries": 2, "AP": 0.5},),
        counts={evil: 1},
        settings={evil: evil},
        notes=(evil,),
    )
    page = write(
        tmp_path,
        title=evil,
        config={"data": evil, evil: {evil: evil}},
        curves={evil: [(0, 1), (1, 2)]},
        before=None,
        after=after,
        gallery=[QueryExample(picture(0), evil, evil, (item,), 0.5, evil)],
        notes=[evil],
    )
    assert not page.all("script") and "<script" not in page.source
    assert page.text.count("alert('x')</script>\"'&\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}") >= 10
    assert page.all("svg", role="img")[0]["aria-label"].startswith("<script>")  # as text, in full


def test_same_run_gives_the_same_bytes_and_replaces_the_old_page(tmp_path):
    first = write(tmp_path).source
    (tmp_path / "report.html").write_text("old")
    assert write(tmp_path).source == first


def test_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    first = write(tmp_path).source

    def die(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, title="Other")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == first and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FileNotFoundError, match="no folder .*none to write r.html into"):
        write_report(tmp_path / "none" / "r.html", title="", config={}, curves={}, before=None, after=AFTER, gallery=[])


# -------------------------------------------------------------------------------------------------------- curves


def test_curve_is_drawn_where_its_values_are(tmp_path):
    page = write(tmp_path, curves={"loss": [(0, 1.0), (10, 0.0), (20, 1.0)]})
    (line,) = page.all("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line["points"].split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and y0 == y2 and y1 > y0  # svg counts downwards
    (drawing,) = [found for found in page.all("svg", role="img") if found["aria-label"].startswith("loss")]
    assert drawing["aria-label"] == "loss: 1 at step 0, 1 at step 20"
    assert len(page.all("circle")) == 3


@pytest.mark.parametrize(
    "points",
    [[(5, 2.0)], [(0, 0.0), (1, 0.0)], [(0, -1e-9), (1, 1e-9)], [(0, 1e30), (3, -1e30)], [(0, 1.0), (0, 2.0)]],
)
def test_odd_curves_stay_inside_their_frame(tmp_path, points):
    page = write(tmp_path, curves={"c": points})
    (line,) = page.all("polyline")
    for point in line["points"].split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 360 and 0 <= y <= 190
    assert page.all("text")


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path):
    page = write(tmp_path, curves={"c": [(0, 1.0), (1, math.nan), (2, math.inf), (3, 0.5)], "d": [(0, math.nan)]})
    assert "2 of 4 values are not finite" in page.text and "1 of 1 values are not finite" in page.text
    assert len(page.all("polyline")) == 1


def test_long_curves_are_thinned_without_losing_their_peaks():
    points = [(float(x), math.sin(x / 50)) for x in range(10_000)]
    points[4321] = (4321.0, 9.0)
    thin = _thinned(points, 240)
    assert len(thin) <= 480 and (4321.0, 9.0) in thin and thin == sorted(thin)
    mean = _running_mean([(float(x), float(x % 2)) for x in range(600)], 60)
    assert len(mean) == 60 and all(y == 0.5 for _, y in mean)


@pytest.mark.parametrize("span", [(0, 1), (-3, 7), (0.031, 0.0314), (1e5, 3e6), (-1e-8, 1e-8)])
def test_ticks_are_few_round_and_inside(span):
    ticks = _ticks(*span, 5)
    assert 2 <= len(ticks) <= 6
    assert all(span[0] - 1e-9 * abs(span[0]) <= tick <= span[1] + 1e-9 * abs(span[1]) for tick in ticks)
    assert all(len(f"{abs(tick):.10e}".split("e")[0].rstrip("0")) <= 6 for tick in ticks)


# ------------------------------------------------------------------------------------------------------- pictures


def stored(page: Page) -> dict[str, np.ndarray]:
    found = {}
    for attributes in page.all("image"):
        kind, data = attributes["href"].split(";base64,")
        with PIL.open(io.BytesIO(base64.b64decode(data))) as image:
            assert kind == f"data:image/{image.format.lower()}"
            found[attributes["id"]] = np.asarray(image)
    return found


def test_images_arrive_pixel_by_pixel_and_once_each(tmp_path):
    shared = picture(7)
    items = tuple(RetrievedItem(shared.clone(), "a", 0.5, rank, True) for rank in (1, 2))
    page = write(tmp_path, gallery=[QueryExample(picture(8, 3, 20, 30), "q", "a", items, 1.0)])
    images = stored(page)
    assert len(images) == 2
    shown = [found["href"][1:] for found in page.all("use")]
    assert shown[1] == shown[2] != shown[0]
    assert np.array_equal(images[shown[1]], shared[0].numpy())
    assert np.array_equal(images[shown[0]], picture(8, 3, 20, 30).permute(1, 2, 0).numpy())


def test_large_photographs_are_stored_small(tmp_path):
    noise = F.interpolate(torch.rand(1, 3, 40, 30) * 255, size=(800, 600), mode="bicubic").clamp(0, 255).byte()[0]
    page = write(tmp_path, gallery=[QueryExample(noise, "q", "a", (), 1.0)])
    (image,) = stored(page).values()
    assert image.shape == (128, 96, 3) and len(page.source) < 60_000
    assert page.all("image")[0]["height"] == "800"  # keeps its shape on the page


@pytest.mark.parametrize("shape", [(28, 28), (2, 8, 8), (4, 8, 8), (1, 0, 8)])
def test_images_of_another_kind_are_refused(tmp_path, shape):
    bad = QueryExample(torch.zeros(shape, dtype=torch.uint8), "q", "a", (), 1.0)
    with pytest.raises(
        ValueError, match=re.escape(f"must be uint8 [1 or 3, height, width]; got torch.uint8 {[*shape]}")
    ):
        write(tmp_path, gallery=[bad])
    with pytest.raises(ValueError, match="got torch.float32"):
        write(tmp_path, gallery=[QueryExample(torch.zeros(1, 8, 8), "q", "a", (), 1.0)])
    assert not list(tmp_path.iterdir())


def test_right_and_wrong_differ_by_frame_mark_and_words(tmp_path):
    page = write(tmp_path, gallery=[an_example(hit=False)])
    kinds = [found["class"] for found in page.all("li") if found.get("class") in ("ok", "no")]
    assert kinds == ["no", "ok", "no"]
    assert page.text.count("✗wrong, rank 1") == 1 and page.text.count("✓right, rank 2") == 1
    assert re.search(r"\.ok \.pic \{ border: 3px solid", page.source)
    assert re.search(r"\.no \.pic \{ border: 3px dashed", page.source)
    assert "0.900" in page.text and "AP 50.0" in page.text and "file0.png" in page.text


def test_queries_can_be_filtered_by_their_first_item(tmp_path):
    empty = QueryExample(picture(3), "q", "a", (), math.nan)
    page = write(tmp_path, gallery=[an_example(hit=True), an_example(hit=False, seed=9), empty])
    kinds = [found["class"].split()[-1] for found in page.all("article")]
    assert kinds == ["first-right", "first-wrong", "first-wrong"]
    assert "no relevant item" in page.text and "all 3 queries" in page.text
    assert [found["id"] for found in page.all("input", type="radio")] == ["show-all", "show-wrong", "show-right"]


def test_groups_have_one_heading_each(tmp_path):
    page = write(tmp_path, gallery=[an_example("One", seed=0), an_example("One", seed=5), an_example("Two", seed=10)])
    assert page.text.count("One") == 1 and page.text.count("Two") == 1


# -------------------------------------------------------------------------------------------------------- gallery


def blank(row: int) -> Tensor:
    return torch.full((1, 4, 4), row % 256, dtype=torch.uint8)


@pytest.fixture
def clusters() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60) % 6
    return F.one_hot(labels).float() * 2 + torch.randn(60, 6, generator=generator), labels


def test_gallery_holds_the_nearest_others_by_cosine_and_the_exact_ap(clusters):
    embeddings, labels = clusters
    names = [f"n{row}" for row in range(60)]
    (found,) = retrieval_gallery(blank, embeddings, labels, list("abcdef"), queries=[7], k=5, names=names)
    unit = F.normalize(embeddings, dim=1)
    scores = unit[7] @ unit.T
    scores[7] = -2
    order = scores.argsort(descending=True)[:5].tolist()
    assert [int(item.image[0, 0, 0]) for item in found.items] == order
    assert [item.rank for item in found.items] == [1, 2, 3, 4, 5]
    assert [item.correct for item in found.items] == [bool(labels[row] == labels[7]) for row in order]
    assert [item.class_name for item in found.items] == ["abcdef"[labels[row]] for row in order]
    torch.testing.assert_close(torch.tensor([item.score for item in found.items]), scores[order])
    valid = torch.ones(60, dtype=torch.bool)
    valid[7] = False
    exact = metrics.average_precision(scores[None], (labels == labels[7])[None] & valid, valid[None])
    assert found.average_precision == pytest.approx(exact.item(), abs=1e-9)
    assert found.name == "n7" and found.class_name == "b" and torch.equal(found.image, blank(7))
    full = scores.argsort(descending=True)
    assert found.first_right == 1 + int((labels[full] == labels[7]).nonzero()[0])


def test_gallery_mixes_random_worst_and_best_without_repeating_a_query(clusters):
    embeddings, labels = clusters
    ap = evaluate(embeddings, labels, bootstrap=0, clusters="none").per_query["AP"]
    found = retrieval_gallery(blank, embeddings, labels, list("abcdef"), random=5, worst=4, best=3)
    rows = [int(example.name[1:]) for example in found]
    assert [example.group for example in found] == ["Random queries"] * 5 + ["Lowest AP"] * 4 + ["Highest AP"] * 3
    assert len(set(rows)) == 12
    np.testing.assert_allclose([example.average_precision for example in found], ap[rows])
    np.testing.assert_allclose(ap[rows[5:9]], np.sort(ap)[:4])
    np.testing.assert_allclose(ap[rows[9:]], np.sort(ap)[::-1][:3])


def test_gallery_is_chosen_by_its_seed_and_by_given_precisions(clusters):
    embeddings, labels = clusters

    def rows(**options: Any) -> list[str]:
        return [e.name for e in retrieval_gallery(blank, embeddings, labels, list("abcdef"), **options)]

    assert rows(seed=1) == rows(seed=1) != rows(seed=2)
    given = torch.linspace(1, 0, 60)
    given[59] = torch.nan  # would be the worst, but has no relevant item
    assert rows(random=0, worst=3, best=2, average_precision=given) == ["#58", "#57", "#56", "#0", "#1"]


def test_queries_without_relevant_item_are_not_drawn_but_can_be_asked_for():
    points, labels = torch.eye(5)[:, :3] + 0.1, torch.tensor([0, 0, 1, 2, 2])
    found = retrieval_gallery(blank, points, labels, ["a", "b", "c"], k=99)
    assert sorted(example.name for example in found) == ["#0", "#1", "#3", "#4"]
    assert all(len(example.items) == 4 for example in found)
    (lonely,) = retrieval_gallery(blank, points, labels, ["a", "b", "c"], queries=[2])
    assert math.isnan(lonely.average_precision) and lonely.first_right is None
    assert not any(item.correct for item in lonely.items)
    assert retrieval_gallery(blank, points, torch.arange(5), list("abcde")) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": torch.zeros(1, 3), "labels": torch.zeros(1, dtype=torch.long)}, "at least two images"),
        ({"labels": torch.zeros(4, dtype=torch.long)}, r"labels must be \[5\] long"),
        ({"labels": torch.zeros(5)}, r"labels must be \[5\] long.*float32"),
        ({"labels": torch.full((5,), 3)}, "labels run from 3 to 3, but there are 2 class names"),
        ({"names": ["x"]}, r"names needs one entry per image \(5\); got 1"),
        ({"queries": [5]}, r"queries must be rows 0 .. 4; got \[5\]"),
        ({"k": 0}, "k is a number of items"),
        ({"average_precision": torch.zeros(3)}, r"average_precision must be \[5\]; got \[3\]"),
        ({"embeddings": torch.full((5, 2), torch.nan)}, "finite|NaN|nan"),
    ],
)
def test_gallery_refuses_input_out_of_step(change, message):
    arguments = {"embeddings": torch.rand(5, 2), "labels": torch.tensor([0, 0, 1, 1, 1]), "class_names": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        retrieval_gallery(blank, **{**arguments, **change})


# ------------------------------------------------------------------------------------------------------- real data


def test_report_of_thirty_real_queries_stays_under_two_megabytes(tmp_path):
    root = os.environ.get("RANKGRAD_DATA")
    if not root:
        pytest.skip("RANKGRAD_DATA names no folder with omniglot/")
    with np.load(Path(root) / "omniglot" / "omniglot_small.npz") as file:
        rows = np.flatnonzero(file["is_test"])
        ink = np.unpackbits(file["images"][rows], axis=1)[:, : 105 * 105].reshape(-1, 1, 105, 105)
        labels = torch.from_numpy(file["label"][rows].astype(np.int64))
        names = [str(name) for name in file["class_names"]]
    images = F.adaptive_avg_pool2d(torch.from_numpy(ink).float(), 28)
    drawn = (255 * (1 - images)).round().byte()
    pixels = images.flatten(1)
    gallery = retrieval_gallery(drawn.__getitem__, pixels, labels, names, random=14, worst=10, best=6)
    after = evaluate(pixels, labels, class_names=dict(enumerate(names)), bootstrap=20, clusters="none")
    page = write(tmp_path, before=None, after=after, gallery=gallery)
    assert len(gallery) == 30 and len(page.all("use")) == 330
    assert len(page.source) < 1_000_000 and len(stored(page)) <= 330
    assert "34.2" in page.text  # R@1 of raw pixels in this protocol, published with the data's anchors
