"""Retrieved examples: which queries are drawn, what is nearest, how it is shown; and `rankgrad figure --run`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from drawn_runs import rand, tiles, two_of_photos
from small_runs import make_photos

from rankgrad_papers.analysis import retrieved
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets.base import Table

pytest.importorskip("matplotlib")
from drawn_text import well_drawn


def turned(table: Table, degrees: Mapping[int, float]) -> torch.Tensor:
    """Embeddings on a circle: class c at 60 c degrees, each image a little off, some rows elsewhere."""
    angle = table.label * 60.0 + torch.arange(len(table)) % 4
    for row, place in degrees.items():
        angle[row] = place
    return torch.stack([angle.deg2rad().cos(), angle.deg2rad().sin()], dim=1)


def test_neighbours_are_those_of_a_sort_by_cosine_without_the_query():
    table, embeddings = tiles(), rand(16, 3, seed=3)
    found = retrieved.among(table, [embeddings], ["one"], queries=5, k=4)
    unit = torch.nn.functional.normalize(embeddings, dim=1).double()
    for query in found.queries:
        scores = unit @ unit[query.row]
        scores[query.row] = -2
        order = scores.argsort(descending=True).tolist()
        assert [item.row for item in query.items[0]] == order[:4]
        assert [item.score for item in query.items[0]] == pytest.approx(scores[order[:4]].tolist(), abs=1e-6)
        own = table.label[query.row]
        assert [item.correct for item in query.items[0]] == [bool(table.label[row] == own) for row in order[:4]]
        assert query.first_right == (1 + next(n for n, row in enumerate(order) if table.label[row] == own),)


def test_failures_are_wrong_in_every_run_and_those_that_differ_in_some():
    table = tiles()
    good, bad = turned(table, {}), turned(table, {0: 125.0, 5: 185.0})
    failures = retrieved.among(table, [bad], ["bad"], choice="failures", queries=9)
    assert {query.row for query in failures.queries} == {0, 5} and failures.among == 2
    differ = retrieved.among(table, [good, bad], ["good", "bad"], choice="differ", queries=9)
    assert {query.row for query in differ.queries} == {0, 5}
    assert all(query.items[0][0].correct and not query.items[1][0].correct for query in differ.queries)
    both = retrieved.among(table, [bad, turned(table, {5: 185.0})], "xy", choice="failures", queries=9)
    assert {query.row for query in both.queries} == {5}
    with pytest.raises(ValueError, match="every run.: choose random"):
        retrieved.among(table, [good], ["good"], choice="failures")
    with pytest.raises(ValueError, match="give two runs that differ, or random"):
        retrieved.among(table, [good], ["good"], choice="differ")


def test_a_gallery_of_its_own_is_what_is_searched():
    plain = tiles()
    role = tuple("query" if row % 4 == 0 else "gallery" for row in range(16))
    table = Table(
        "divided",
        plain.label,
        plain.class_names,
        plain.split,
        plain.names,
        channels=1,
        images=plain.images,
        role=role,
        protocol="query_gallery",
    )
    found = retrieved.among(table, [rand(16, 3)], ["one"], queries=9, k=99)
    assert {query.row for query in found.queries} == {0, 4, 8, 12}
    for query in found.queries:
        assert sorted(item.row for item in query.items[0]) == [row for row in range(16) if row % 4]


def test_the_draw_of_queries_is_the_seeds():
    table, embeddings = tiles(), rand(16, 3)
    one, two, other = (
        [q.row for q in retrieved.among(table, [embeddings], "x", seed=seed).queries] for seed in (1, 1, 2)
    )
    assert one == two != other


def test_right_and_wrong_differ_in_sign_and_dash_and_not_in_colour_alone():
    table = tiles()
    found = retrieved.among(table, [turned(table, {0: 125.0}), rand(16, 2)], ["a", "b"], queries=3, k=5)
    drawing = retrieved.draw(found)
    well_drawn(drawing)
    [axes] = drawing.axes
    wrong = sum(not item.correct for query in found.queries for items in query.items for item in items)
    right = 2 * 3 * 5 - wrong
    texts = [text.get_text() for text in axes.texts]
    assert sum(re.fullmatch(r"\d ✓ -?[01]\.\d\d", text) is not None for text in texts) == right > 0
    assert sum(re.fullmatch(r"\d ✗ -?[01]\.\d\d", text) is not None for text in texts) == wrong > 0
    dashed = [patch for patch in axes.patches if patch.get_linestyle() not in ("-", "solid")]
    assert len(dashed) == wrong and len(axes.patches) == 3 + 30


def test_images_keep_their_proportions_and_large_ones_become_small():
    wide = torch.randint(0, 256, (3, 200, 400), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    table = tiles()
    found = retrieved.among(table, [rand(16, 3)], ["one"], queries=1, k=2)
    drawing = retrieved.draw(retrieved.RetrievedExamples(**{**vars(found), "image": lambda row: wide}))
    for image in drawing.axes[0].get_images():
        left, right, low, high = image.get_extent()
        assert (right - left) == pytest.approx(2 * (high - low)) and image.get_array().shape == (80, 160, 3)


@pytest.fixture(scope="module")
def photo_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_of_photos(tmp_path_factory.mktemp("photos"))


def test_the_command_shows_runs_side_by_side(photo_runs, tmp_path, capsys):
    command = ["figure", "--run", *map(str, photo_runs), "--queries", "2", "-k", "3"]
    assert main([*command, "-o", str(tmp_path / "x.png")]) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    found = retrieved.compute(photo_runs, queries=2, k=3)
    assert str(found) in shown and found.runs == ("pnp", "smooth_ap")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "x.bmp"], "a figure must be .svg, .png, .pdf; got 'x.bmp'"),
        (["--dpi", "0"], "--dpi is a number of dots per inch, such as 200; got 0"),
        (["--run", "."], ". is not a finished run"),
        (["--queries", "0"], "at least one run, query and item"),
    ],
)
def test_the_command_says_what_is_wrong_and_writes_nothing(photo_runs, tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(["figure", "--run", str(photo_runs[0]), *words]) == 2
    assert told in capsys.readouterr().err and [*tmp_path.iterdir()] == []


def test_images_that_have_moved_are_found_again_and_other_images_are_refused(photo_runs, tmp_path, capsys):
    moved = tmp_path / "moved"
    make_photos(moved, classes=6, per_class=4)
    assert retrieved.compute([photo_runs[0]], data_root=moved).data == "moved"
    make_photos(tmp_path / "others", classes=6, per_class=3)
    with pytest.raises(ValueError, match="other images .* --data-root"):
        retrieved.compute([photo_runs[0]], data_root=tmp_path / "others")


def test_examples_refuse_unknown_choices_and_empty_ones(photo_runs):
    with pytest.raises(ValueError, match="'random', 'failures' or 'differ'; got 'best'"):
        retrieved.compute(photo_runs, choice="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one run, query and item"):
        retrieved.compute(photo_runs, k=0)
