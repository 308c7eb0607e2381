"""`rankgrad paper-figure`: figures draw and can be read; curves over runs; retrieved examples; errors; the gallery."""

from __future__ import annotations

import json
import re
import runpy
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_runs import a_run, rand, tiles, two_of_photos

from rankgrad_papers import figure_style as style
from rankgrad_papers.analysis import (
    FIGURES,
    auc_slopes,
    batch_bias,
    decomposability,
    gradients,
    landscapes,
    margin_collapse,
    pnp_toy,
    retrieved,
)
from rankgrad_papers.experiments import catalogue, figures, picture, sweep
from rankgrad_papers.experiments.grid import grids
from rankgrad_papers.experiments.reproduce import reproduce
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import ConfigError

matplotlib = pytest.importorskip("matplotlib")
from drawn_text import boxes, faults, well_drawn  # noqa: E402  (needs matplotlib)

ROOT = Path(__file__).parents[2]


def small_toy(layout: str) -> pnp_toy.Toy:
    """Fewer points and hardly any training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pnp_toy, "POINTS", 20)
        return pnp_toy.compute(layout, seeds=(0, 1), steps=2)


# What is slow, on coarser grids, fewer draws and fewer steps than a figure has.
QUICK: Mapping[str, Callable[[], Any]] = {
    "rambo/fig1": partial(landscapes.compute, "1", ticks=9),
    "rambo/fig5": partial(landscapes.compute, "5", ticks=9),
    "rambo/fig6": partial(landscapes.compute, "6", ticks=9),
    "rambo/fig2": partial(batch_bias.compute, items=2048, batches=2),
    "rambo/fig3": partial(margin_collapse.compute, steps=40),
    "auc/slopes": partial(auc_slopes.compute, batches=2),
    "pnp/fig6": partial(small_toy, "squares"),
    "pnp/fig6-ring": partial(small_toy, "ring"),
    "roadmap/bounds": partial(decomposability.bounds, "unequal", draws=40),
}


# ------------------------------------------------------------------------------------------------------ the studies


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_study_draws_without_a_warning_and_no_letters_overlap_or_leave_the_canvas(name, tmp_path):
    found = QUICK.get(name, FIGURES[name].compute)()
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", r".* deprecated( -|,) use ")  # pyparsing's, of an older matplotlib
        drawing = FIGURES[name].draw(found)
        well_drawn(drawing)
        assert style.save(drawing, tmp_path / "folder" / "figure.svg").stat().st_size > 1000
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_study_can_be_read_with_its_real_numbers_too(name):
    well_drawn(FIGURES[name].draw(FIGURES[name].compute()))


def test_letters_that_overlap_or_leave_the_canvas_would_be_noticed():
    drawing = style.figure(2, 1)
    drawing.text(0.5, 0.5, "one")
    drawing.text(0.52, 0.52, "two")
    drawing.text(-0.1, 0.1, "out")
    assert sorted(fault.split("'")[1] for fault in faults(drawing)) == ["one", "out"]
    assert len(boxes(drawing)) == 3


@pytest.mark.parametrize("ending", [".svg", ".pdf"])
def test_equal_numbers_give_equal_files(ending, tmp_path, caplog):
    results = gradients.toy()
    drawings = {name: gradients.draw_toy(results, ["SupAP"]) for name in "ab"}
    one, two = (style.save(drawing, tmp_path / f"{name}{ending}").read_bytes() for name, drawing in drawings.items())
    assert one == two
    if ending == ".svg":
        assert b"<text" in one  # letters stay letters
    assert not caplog.records  # fontTools warns of the dates of a font


def test_the_panel_of_sodeep_is_drawn_as_soon_as_its_sorter_is_kept(tmp_path, monkeypatch):
    from rankgrad_papers import sodeep

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert landscapes.learned() == {}
    path = sodeep.sorter_file(sodeep.Recipe(20))
    path.parent.mkdir(parents=True)
    sodeep.store._write(sodeep.Sorter(20), path)
    found = landscapes.compute("6", sorters=landscapes.learned(), ticks=3)
    assert list(found.surfaces) == ["exact", "blackbox, λ=0.5", "SoDeep", "soft bins, 10"]
    well_drawn(landscapes.draw(found))


def test_push_of_the_auc_loss_between_two_thresholds_is_that_of_its_gradient():
    """Hardest irrelevant scores spread evenly; the gradient of one relevant score, moved over one step."""
    from rankgrad.losses import AUCLoss

    step, product = 0.1, 5.3
    spread = torch.linspace(-0.9, 0.9, 3601, dtype=torch.float64)  # a multiple of the steps, finely
    found = auc_slopes.compute([step], [product], batches=1, points=5)
    pushes = []
    for place in found.position.tolist():
        scores = torch.stack([torch.full_like(spread, 0.2 + place * step), spread], dim=1).requires_grad_()
        loss = AUCLoss(step=step, slope=product / step).from_scores(scores, torch.tensor([True, False]).expand(3601, 2))
        loss.backward()
        assert scores.grad is not None
        pushes.append(-float(scores.grad[:, 0].sum()))
    ours = torch.tensor(pushes, dtype=torch.float64)
    torch.testing.assert_close(ours / ours[0], found.push[0] / found.push[0, 0], rtol=2e-3, atol=0)


def test_evenness_of_the_push_is_that_of_the_specification():
    expected = {3.0: 0.93, 4.0: 0.75, 5.0: 0.54, 5.18: 0.50, 6.0: 0.36, 8.0: 0.14, 10.0: 0.05, 20.0: 0.0004}
    found = auc_slopes.compute([0.5], list(expected), batches=1)
    for value, known in zip(found.evenness.tolist(), expected.values(), strict=True):
        assert value == pytest.approx(known, abs=0.005)
    torch.testing.assert_close(found.push[:, :-1].mean(1), torch.ones(8, dtype=torch.float64), rtol=0, atol=1e-3)


def test_slopes_refuse_what_is_not_positive():
    with pytest.raises(ValueError, match=r"must be > 0; got \[0.1\] and \[0.0\]"):
        auc_slopes.compute([0.1], [0.0])


# ------------------------------------------------------------------------------------------- the list and the command


def test_figures_are_named_as_in_the_catalogue():
    entries = {entry.id: entry for entry in catalogue.entries()}
    assert set(FIGURES) <= set(figures.drawables()) <= set(entries)
    drawn = {entry.id for entry in entries.values() if entry.how == "figure" and entry.same_as is None}
    assert drawn == set(FIGURES) - {"auc/slopes"}  # a table that is drawn as well
    swept = {name for name, grid in grids().items() if sweep.axes(grid)}
    assert swept == {name for name, each in figures.drawables().items() if each.needs == "runs"}
    assert {"fig4", "fig7", "fig6", "fig13", "fig14", "fig15"} == {
        each.id.partition("/")[2] for each in figures.drawables().values() if each.needs == "run"
    }


def test_the_listing_says_of_each_figure_what_one_sees_and_what_it_needs(capsys):
    assert main(["paper-figure"]) == 0
    shown = capsys.readouterr().out
    for each in figures.drawables().values():
        need = figures.NEEDS[each.needs].partition(" ")[0].rstrip(":")
        assert re.search(rf"^  {each.id} .* {need} .*{re.escape(each.sees)}$", shown, re.MULTILINE), each.id
        assert each.sees.endswith(".") and (each.needs != "nothing" or each.seconds)
    assert all(title in shown for title in catalogue.PAPERS.values())


def test_a_figure_is_written_as_asked_with_its_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["paper-figure", "roadmap/fig8"]) == 0
    assert (tmp_path / "roadmap-fig8.png").read_bytes().startswith(b"\x89PNG")
    assert "SupAP" in capsys.readouterr().out
    assert main(["paper-figure", "roadmap/fig11", "-o", "a/b.pdf", "--json", "c/d.json"]) == 0
    assert Path("a/b.pdf").read_bytes().startswith(b"%PDF")
    content = json.loads(Path("c/d.json").read_text())
    assert content["id"] == "roadmap/fig11" and content["numbers"]["delta"] == pytest.approx(0.04595, abs=5e-6)
    assert len(content["numbers"]["slopes"]["sigmoid"]) == 801


def test_a_figure_that_repeats_another_is_that_one():
    assert figures.find("rambo/supp-fig2").id == "rambo/fig6"


def test_reproduce_draws_a_figure_with_its_numbers_and_says_how_examples_are_drawn(tmp_path):
    text = reproduce("roadmap/fig10", out=tmp_path)
    assert "gap 0.1895" in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".pdf", ".json"}
    assert "draws roadmap/fig10" in reproduce("roadmap/fig10", out=tmp_path / "dry", dry_run=True)
    with pytest.raises(ConfigError, match="rankgrad paper-figure roadmap/fig6 --run RUN"):
        reproduce("roadmap/fig6", out=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rambo/fig7"], "no figure 'rambo/fig7'; did you mean 'rambo/fig"),
        (["rambo/table2"], "is not a figure: training runs: rankgrad reproduce rambo/table2"),
        (["roadmap/fig8", "-o", "x.bmp"], "a figure must be .svg, .png, .pdf; got 'x.bmp'"),
        (["roadmap/fig8", "--runs", "x"], "--runs does not belong to roadmap/fig8, which needs nothing"),
        (["roadmap/fig4", "-k", "3"], "-k does not belong to roadmap/fig4, which needs --runs DIR"),
        (["roadmap/fig6", "--over", "loss.tau"], "--over does not belong to roadmap/fig6, which needs --run RUN"),
        (["roadmap/fig4"], "is drawn from results: --runs DIR"),
        (["roadmap/fig6"], "is drawn from results: --run RUN [RUN ...]"),
        (["rambo/table1"], "is drawn from results: --results FILE"),
        (["rambo/table1", "--results", "nowhere.json"], "nowhere.json does not exist: make bench"),
        (["roadmap/fig4", "--runs", "nowhere"], "nowhere does not exist: give a folder of runs"),
        (["roadmap/fig4", "--runs", "."], "no finished run below ."),
        (["roadmap/fig6", "--run", "."], ". is not a finished run"),
        (["roadmap/fig8", "--dpi", "0"], "--dpi is dots per inch"),
        (["-o", "x.png"], "no figure is given: use rankgrad paper-figure NAME -o FILE"),
    ],
)
def test_errors_say_what_to_do(arguments, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["paper-figure", *arguments]) == 2
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_records_become_plain_numbers_and_large_arrays_their_shape():
    found = figures.plain(landscapes.compute("1", ticks=80))
    assert found["plane"]["scores"] == "6400 x 20 numbers, left out" and len(found["surfaces"]["exact"]) == 80
    assert figures.plain(retrieved.RetrievedExamples("d", ("a",), "random", 1, 0, (), print)) == {
        "data": "d",
        "runs": ["a"],
        "chosen": "random",
        "among": 1,
        "seed": 0,
        "queries": [],
    }
    json.dumps(found)


# ---------------------------------------------------------------------------------------------------- growth measured


def growth() -> dict[str, Any]:
    """A file of results, as the benchmarks write it."""
    from rankgrad_papers.timing.growth import MEMORY, TIME

    columns = ["loss", "B=64", "B=128", "B=256", "exponent"]
    rows = [["GEMM", 1.0, 2.0, 8.0, 2.0], ["supap", 2.0, 6.0, 24.0, 2.0], ["supap as printed", 9.0, 70.0, None, 3.0]]
    tables = [{"title": title, "columns": columns, "rows": rows, "note": ""} for title in (TIME, MEMORY)]
    return {"suites": {"scaling": {"tables": tables}}}


def test_growth_is_drawn_from_a_file_of_results(tmp_path, capsys):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(growth()))
    drawn = figures.draw_growth(path)
    well_drawn(drawn.drawing)
    assert [axes.get_yscale() for axes in drawn.drawing.axes] == ["log", "log"]
    names = [text.get_text() for text in drawn.drawing.axes[0].get_legend().get_texts()]
    assert len(names) == 3 and any("B^{3.0}" in name or "B^{2.0}" in name for name in names)
    assert main(["paper-figure", "rambo/table1", "--results", str(path), "-o", str(tmp_path / "growth.png")]) == 0
    path.write_text(json.dumps({"suites": {"in_batch": {}}}))
    assert main(["paper-figure", "rambo/table1", "--results", str(path)]) == 2
    assert "has no suite scaling" in capsys.readouterr().err


def test_growth_with_lists_and_their_length_stands_below_that_with_the_batch():
    from rankgrad_papers.timing import growth
    from rankgrad_papers.timing.results import ResultTable

    tables = []
    for axis, head in ((growth.LISTS, "lists"), (growth.BATCH, "B"), (growth.LENGTH, "n")):
        columns = ("loss", f"{head}=16", f"{head}=10000", "exponent")
        tables += [ResultTable(title, columns, [["supap, tiles", 1.0, 5.0, 1.5]]) for title in growth.titles(axis)]
    drawn = growth.draw(tables)
    well_drawn(drawn)
    assert [axes.get_xlabel() for axes in drawn.axes[::2]] == [*growth.LABELS.values()]
    symbols = [axes.get_legend().get_texts()[0].get_text() for axes in drawn.axes[::2]]
    assert [symbol in text for symbol, text in zip("BnL", symbols, strict=True)] == [True] * 3


# ----------------------------------------------------------------------------------------------- curves over a setting


# The batches of all points of PNP's figure 8.
OF_112 = ["sampler.classes_per_batch=28", "sampler.samples_per_class=4"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNP-Dq over alpha with two seeds, and one run of another loss."""
    out, table = tmp_path_factory.mktemp("runs"), tiles()
    for alpha in (1, 4, 8):
        for seed in (0, 1):
            settings = ["loss=pnp", f"loss.alpha={alpha}", *OF_112, f"seed={seed}", "threads=1"]
            a_run(out / f"pnp-{alpha}-seed{seed}", settings, 0.5 + alpha / 100 + seed / 50, table, rand(16, 3))
    a_run(out / "other", ["loss=smooth_ap", *OF_112], 0.3, table, rand(16, 3))
    return out


@pytest.mark.slow
def test_runs_are_placed_on_the_axes_of_a_figure_by_their_settings(runs):
    found = sweep.read([runs], grids()["pnp/fig8"])
    alpha = [point for point in found.points if point.axis == "α (PNP-Dq)"]
    assert [(p.row, p.place, p.metric) for p in sorted(alpha, key=lambda p: p.place)] == [
        ("PNP", 1.0, "R@1"),
        ("PNP", 4.0, "R@1"),
        ("PNP", 8.0, "R@1"),
    ]
    assert {p.place: dict(p.values) for p in alpha}[4.0] == pytest.approx({0: 54.0, 1: 56.0})
    assert "glyphs" in found.title and "smooth" not in str(found).lower()
    well_drawn(picture.curves(found))


def test_runs_are_drawn_over_any_setting_of_ones_own(runs, tmp_path, capsys):
    found = sweep.read([runs], grids()["pnp/fig8"], over="loss.alpha", metric="R@1")
    assert {(p.row, p.axis, p.place, len(p.values)) for p in found.points} == {
        ("PNP", "loss.alpha", place, 2) for place in (1.0, 4.0, 8.0)
    }
    out = tmp_path / "alpha.png"
    command = ["paper-figure", "pnp/fig8", "--runs", str(runs), "--over", "loss.alpha", "-o", str(out)]
    assert main(command) == 0 and out.exists()
    assert "loss.alpha = 4  R@1  0:54 1:56" in capsys.readouterr().out


def test_the_curve_is_the_mean_over_seeds_and_its_bars_the_standard_deviation(runs):
    drawing = picture.curves(sweep.read([runs], grids()["pnp/fig8"], over="loss.alpha"))
    [axes] = drawing.axes
    [container] = axes.containers
    line, _, [bars] = container.lines
    assert line.get_ydata() == pytest.approx([52.0, 55.0, 59.0]) and line.get_xdata() == pytest.approx([1, 4, 8])
    lengths = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
    assert lengths == pytest.approx([2 * 2**0.5] * 3)  # of values 2 apart: sqrt(2) up and down


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"over": "loss.alpa"}, "unknown setting 'loss.alpa'; did you mean 'loss.alpha'"),
        ({"over": "data.name"}, "data.name is not a number in any of these runs"),
        ({"metric": "R@9"}, "has no R@9 over α"),
    ],
)
def test_a_sweep_that_cannot_be_drawn_says_why(runs, options, text):
    with pytest.raises(ConfigError, match=text):
        sweep.read([runs], grids()["pnp/fig8"], **options)


def test_what_else_differs_between_runs_names_their_curves(runs):
    found = sweep.read([runs], grids()["pnp/fig8"], over="loss.tau")
    assert {point.row for point in found.points} == {"PNP, alpha 1", "PNP, alpha 4", "PNP, alpha 8", "SmoothAP"}


def test_two_runs_of_the_same_place_and_seed_are_refused(tmp_path):
    for name in "ab":
        a_run(tmp_path / name, ["loss=pnp", *OF_112], 0.5, tiles(), rand(16, 3))
    with pytest.raises(ConfigError, match=r"two runs below .*seed 0; .*b\."):
        sweep.read([tmp_path], grids()["pnp/fig8"])


@pytest.mark.slow
def test_runs_that_belong_to_no_place_are_told_what_differs_between_them(runs):
    with pytest.raises(ConfigError, match="7 runs .*roadmap/fig12 .*--over loss"):
        sweep.read([runs], grids()["roadmap/fig12"])


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """ID.csv of a stand-in for figure 12, as `rankgrad reproduce` writes them."""
    from rankgrad_papers.experiments import outcome, page

    grid = grids()["roadmap/fig12"]
    label = "stand-in: small convnet on the built-in glyphs"
    lines = []
    for number, cell in enumerate(grid.cells):
        labels = {axis: f"{place:g}" for axis, place in cell.varies.items()}
        lines.append(
            outcome.ResultLine("ROADMAP", labels, (cell,), {}, {"mAP@R": {0: 10.0 + number, 1: 12.0 + number}}, {})
        )
    found = outcome.Outcome(grid, "best", label, "glyphs", (), tuple(lines), (), (), (0, 1))
    (tmp_path / "roadmap-fig12.csv").write_text(page.csv_text(found), encoding="utf-8")
    picture.picture(found, tmp_path / "roadmap-fig12.png")
    return tmp_path


def test_folder_and_csv_of_reproduce_give_the_same_points(results):
    grid = grids()["roadmap/fig12"]
    found = [sweep.read([path], grid) for path in (results, results / "roadmap-fig12.csv")]
    assert found[0] == found[1] and len(found[0].points) == 11
    well_drawn(picture.curves(found[0]))
    assert "stand-in" in picture.curves(found[0]).get_suptitle()


def test_a_csv_of_ones_own_needs_four_columns(tmp_path):
    grid, path = grids()["roadmap/fig4"], tmp_path / "mine.csv"
    path.write_text(
        "row,varies,metric,by_seed\nmine,λ=0.5,mAP@R,0:20 1:22\nmine,λ=0.9,mAP@R,0:19\nmine,x=1,mAP@R,0:1\n"
    )
    found = sweep.read([path], grid)
    assert [(p.row, p.axis, p.place, dict(p.values)) for p in found.points] == [
        ("mine", "λ", 0.5, {0: 20.0, 1: 22.0}),
        ("mine", "λ", 0.9, {0: 19.0}),
    ]
    path.write_text("row,varies,metric\n")
    with pytest.raises(ConfigError, match="no column by_seed.*row, varies, metric"):
        sweep.read([path], grid)
    path.write_text("row,varies,metric,by_seed\nmine,λ=0.5,mAP@R,20\n")
    with pytest.raises(ConfigError, match="line 2: .* got 'λ=0.5' and '20'"):
        sweep.read([path], grid)
    path.write_text("row,varies,metric,by_seed\nmine,τ=0.5,mAP@R,0:20\n")
    with pytest.raises(ConfigError, match="has no mAP@R over λ, ρ, α − β"):
        sweep.read([path], grid)


def test_other_files_are_refused(tmp_path, runs):
    grid = grids()["roadmap/fig4"]
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(ConfigError, match=r"a file of results must be a \.csv.* Runs are given by their folder"):
        sweep.read([tmp_path / "x.txt"], grid)
    with pytest.raises(ConfigError, match="give one file of results"):
        sweep.read([tmp_path / "x.txt", runs], grid)
    with pytest.raises(ConfigError, match="--over and --rule need folders of runs"):
        sweep.read([tmp_path / "x.txt"], grid, over="loss.tau")


# -------------------------------------------------------------------------------------------------- retrieved examples


def test_a_figure_of_examples_is_drawn_from_the_folders_of_runs(tmp_path, capsys):
    out, numbers = tmp_path / "x.png", tmp_path / "x.json"
    runs = [str(run) for run in two_of_photos(tmp_path)]
    command = ["paper-figure", "roadmap/fig6", "--run", *runs, "--queries", "2", "-k", "3", "-o", str(out)]
    assert main([*command, "--json", str(numbers)]) == 0
    assert out.exists() and "first right: " in capsys.readouterr().out
    content = json.loads(numbers.read_text())["numbers"]
    assert content["runs"] == ["pnp", "smooth_ap"] and len(content["queries"]) == 2
    assert len(content["queries"][0]["items"][1]) == 3


# --------------------------------------------------------------------------------------------------------- the gallery


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "papers" / "docs" / "make_gallery.py"))


def test_the_gallery_page_is_the_scripts_and_names_exactly_the_figures_that_exist(script):
    text = (ROOT / "papers" / "docs" / "gallery.md").read_text("utf-8")
    assert text == script["page"]()
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    named = [name for heading in headings for name in heading.split(", ")]
    assert sorted(named) == sorted(figures.drawables())


def test_every_picture_of_the_gallery_is_there_and_shown(script):
    folder = ROOT / "papers" / "docs" / "gallery"
    text = (ROOT / "papers" / "docs" / "gallery.md").read_text("utf-8")
    shown = re.findall(r"\]\(gallery/([^)]+)\)", text)
    assert sorted(shown) == sorted(path.name for path in folder.iterdir())
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3e6


def test_the_gallery_is_linked():
    assert all(
        "(gallery.md)" in (ROOT / "papers" / "docs" / f"{page}.md").read_text("utf-8") for page in ["reproducing"]
    )
    assert "(papers/docs/gallery.md)" in (ROOT / "README.md").read_text("utf-8")
