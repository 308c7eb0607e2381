"""Reproducing: the papers' numbers, the catalogue, the grids, their stand-ins, and what comes out of the runs."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from children_here import Here
from marks import slow, slow_unless
from omegaconf import OmegaConf
from small_runs import FEW_WEIGHTS as TINY
from small_runs import die_after_writes

from rankgrad.evaluation import Report
from rankgrad.losses import RaMBORecallLoss
from rankgrad_papers.analysis.decomposability import class_batches
from rankgrad_papers.experiments import catalogue, computed, measures, merged, outcome, page, picture, standin
from rankgrad_papers.experiments import reproduce as reproduce_module
from rankgrad_papers.experiments.grid import Cell, Grid, grids, parse
from rankgrad_papers.experiments.numbers import Number, find, numbers, select
from rankgrad_papers.experiments.reproduce import collect, planned, reproduce
from rankgrad_papers.experiments.sweep import drawn, from_outcome, read
from rankgrad_papers.figure_style import figure, save
from rankgrad_papers.timing.results import Result, ResultTable
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import DATASETS, load_glyphs
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.datasets.folds import with_val
from rankgrad_workbench.runs import compare as compare_module
from rankgrad_workbench.runs.children import Children
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import evaluations
from rankgrad_workbench.runs.launchers import RunCommand
from rankgrad_workbench.runs.provenance import made_by
from rankgrad_workbench.settings import ConfigError, compose, load, make, options
from rankgrad_workbench.tasks.retrieval import building
from rankgrad_workbench.tasks.retrieval import task as runs
from rankgrad_workbench.tasks.retrieval.settings import settings_of

pytestmark = pytest.mark.usefixtures("no_page")

LABEL = "stand-in: small convnet on the built-in glyphs, not the paper's data; paper's numbers are not comparable"
# What a table needs beyond the paper's rows; everything else must have a printed number.
WITHOUT_NUMBER = {("PNP-Ib", ""), ("RaMBO: No margin", ""), ("SupAP", "DG_AP"), (None, "DG_AP")}


# ------------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("stand_in", slow_unless({"glyphs"}, [None, "glyphs"]))
def test_rambos_published_variant_can_be_set(tmp_path, stand_in):
    published = ["loss.aggregation=pooled", "loss.rank_factor=4"]
    how = {"data_roots": [] if stand_in else [str(tmp_path)], "stand_in": stand_in, "seeds": "0", "dry_run": True}
    lines = reproduce("rambo/table3", published, tmp_path / "out", **how).splitlines()
    commands = [shlex.split(line.partition("rankgrad train ")[2]) for line in lines if "rankgrad train" in line]
    assert len(commands) == 2
    for words in commands:
        config = compose([word for word in words if not word.startswith("out=")])
        loss = make(config.loss, slot="loss")
        assert (loss.aggregation, loss.rank_factor) == ("pooled", 4) and config.memory.batches == 3
        assert loss.penalty(torch.ones(1)) == RaMBORecallLoss(weight=loss.weight).penalty(torch.full((1,), 4.0))


@pytest.mark.parametrize(
    ("paper", "table", "row", "metric", "where", "text", "std"),
    [
        ("rambo", 2, "RaMBO log", "R@1", {"dataset": "sop"}, "77.8", ""),
        ("rambo", 4, "RaMBO log log", "R@50", {}, "98.5", ""),
        ("rambo", 7, "RaMBO: No batch memory", "R@1", {"dataset": "sop"}, "72.4", ""),
        ("auc", 1, "AUC", "R@8", {"image_size": 256}, "89.45", ""),
        ("pnp", 1, "PNP-Dq", "dists@intra", {"batch_size": "112"}, "0.380", ""),
        ("pnp", 7, "Smooth-AP", "R@5", {"dataset": "vehicleid_large"}, "93.2", ""),
        ("roadmap", 4, "ROADMAP (ours)", "R@1", {"dataset": "cub", "backbone": "ResNet-50"}, "64.05", "0.51"),
        ("roadmap", 6, "SupAP (H- yes, Lcalibr no)", "mAP@R", {"dataset": "sop", "batch_size": 384}, "55.78", ""),
        ("roadmap", 8, "ROADMAP (ours)", "mAP@R", {"dataset": "cub", "dim": 2048}, "28.8", ""),
    ],
)
def test_a_number_is_found_as_it_is_printed(paper, table, row, metric, where, text, std):
    number = find(paper, table, row, metric, where)
    assert number is not None and (number.text, number.std) == (text, std) and number.value == float(text)


def test_numbers_that_are_words_missing_or_several_are_told_apart():
    words = find("rambo", 1, "RaMBO", "complexity", {})
    assert words is not None and words.value is None and words.note.startswith("O(n log n)")
    assert find("rambo", 7, "RaMBO: No margin", "R@1", {"dataset": "sop"}) is None
    with pytest.raises(ValueError, match="'AUC' .*image_size 224; .*image_size 256"):
        find("auc", 1, "AUC", "R@1", {})


def test_every_line_of_the_file_is_a_number_with_its_place():
    keys = [(n.paper, n.table, n.row, tuple(n.where.items()), n.metric) for n in numbers()]
    assert len(set(keys)) == len(keys) == 938
    assert {n.paper for n in numbers()} == set(catalogue.PAPERS)
    assert all(n.text or n.note for n in numbers())


# ----------------------------------------------------------------------------------------------------- the catalogue


def test_ids_are_unique_and_every_table_with_numbers_is_listed():
    ids = [entry.id for entry in catalogue.entries()]
    assert len(set(ids)) == len(ids)
    assert {f"{n.paper}/table{n.table}" for n in numbers()} <= set(ids)
    assert {entry.id for entry in catalogue.entries() if entry.how == "runs"} == set(grids())
    known = [entry for entry in catalogue.entries() if entry.how == "computed" and entry.same_as is None]
    assert {entry.id for entry in known} == set(computed.COMPUTED)


def test_the_listing_names_everything_and_says_what_is_not_there(capsys):
    assert main(["reproduce"]) == 0
    shown = capsys.readouterr().out
    for entry in catalogue.entries():
        assert re.search(rf"^  {entry.id} .*{re.escape(entry.title)}$", shown, re.MULTILINE), entry.id
    assert "detection  training runs of detectors: rankgrad reproduce ID" in shown


def test_an_entry_that_repeats_another_is_that_one():
    assert catalogue.find("rambo/supp-table1").id == "rambo/table9"
    named = [entry.same_as for entry in catalogue.entries() if entry.same_as]
    assert named and all(catalogue.find(name).id == name for name in named)


# --------------------------------------------------------------------------------------------------------- the grids


def test_every_row_of_a_papers_own_method_is_a_cell_and_every_cell_has_its_number():
    for grid in grids().values():
        if not grid.table:
            continue
        found = {}
        for cell in grid.cells:
            for metric in cell.metrics:
                number = find(grid.paper, grid.table, cell.row, metric, cell.where)
                allowed = {(cell.row, ""), (cell.row, metric), (None, metric)} & WITHOUT_NUMBER
                assert number is not None or allowed, (grid.id, cell.row, metric, dict(cell.where))
                found[id(number)] = number
        own = [number for number in select(grid.paper, grid.table) if number.own]
        assert own and all(id(number) in found for number in own), grid.id


@pytest.mark.parametrize("stand_in", ["omniglot", "glyphs"])  # photographs have too few classes for large batches
def test_what_a_table_varies_varies_in_the_stand_in(stand_in):
    for grid in grids().values():
        settings = {n: tuple(standin.translate(cell.settings, stand_in)) for n, cell in enumerate(grid.cells)}
        lines = outcome.group(grid, settings, stand_in=True)
        places = {(settings[n], tuple(cell.varies)) for n, cell in enumerate(grid.cells)}  # a run may be on two axes
        assert len(lines) == len(places) > 1 and len(set(settings.values())) > 1, grid.id
        assert sorted(number for line in lines for number in line) == list(range(len(grid.cells)))
        for line in lines:
            assert len({settings[number] for number in line}) == 1


def test_experiments_of_all_cells_exist():
    named = {cell.experiment for grid in grids().values() for cell in grid.cells}
    assert named - set(options("experiment")) == set()


def last_cell(name: str) -> Grid:
    return replace(grids()[name], cells=grids()[name].cells[-1:], t_test=None)


EACH = ("rambo/table7", "auc/table2", "pnp/table7", "roadmap/table5")  # one of each paper


@pytest.mark.parametrize("name", slow_unless(EACH, sorted(grids())))
def test_the_last_cell_of_a_table_composes_in_a_stand_in(name):
    grid = last_cell(name)
    [settings] = planned(grid, [], {}, "glyphs").settings.values()  # composing is part of planning
    own = standin.translate(grid.cells[0].settings, "glyphs")
    assert {"data=glyphs", "recipe=small", *own} <= set(settings)


@pytest.mark.parametrize("name", slow_unless({"rambo/table7", "auc/table2"}, EACH))
def test_the_last_cell_of_a_table_composes_at_full_size(name, tmp_path):
    grid = last_cell(name)
    [settings] = planned(grid, [], {"": tmp_path}, None).settings.values()
    own = {*grid.cells[0].settings, *grid.cells[0].full_only}
    assert {f"experiment={grid.cells[0].experiment}", f"data.root={tmp_path}", *own} <= set(settings)


@pytest.mark.slow
@pytest.mark.parametrize("stand_in", [None, "omniglot", "glyphs", "photographs"])
@pytest.mark.parametrize("name", sorted(grids()))
def test_all_cells_compose_and_their_losses_are_made(name, stand_in, tmp_path):
    roots = {} if stand_in == "glyphs" else {"": tmp_path}
    plan = planned(grids()[name], [], roots, stand_in)
    assert len(plan.settings) == len(grids()[name].cells) and not plan.skipped
    for number, settings in plan.settings.items():
        config = compose(settings)
        config.derived.num_classes, config.derived.embedding_size = 4, 8
        make(config.loss, slot="loss")
        wanted = {int(m[2:]) for m in grids()[name].cells[number].metrics if m.startswith("R@")}
        assert wanted <= set(config.evaluation.ks)


def test_a_cell_takes_settings_of_table_column_and_row_and_later_ones_win():
    grid = parse(
        """
id: roadmap/table2
title: t
rule: last
metrics: [R@1]
settings: [loss=pnp, loss.b=1]
columns:
  - {where: {dataset: cub}, experiment: roadmap/cub, settings: [loss.b=2], full_only: [trainer.max_epochs=3]}
  - {where: {dataset: sop}, experiment: roadmap/sop, varies: {x: 0.5}, metrics: [mAP@R]}
rows:
  - {row: a, settings: [loss.b=3, loss.tau=1]}
  - {row: b, only: {dataset: [sop, inshop]}, where: {dim: 64}, metrics: [NMI], against: a}
""",
        "t.yaml",
    )
    assert [(c.row, dict(c.where), c.settings, c.full_only, c.metrics, c.against) for c in grid.cells] == [
        ("a", {"dataset": "cub"}, ("loss=pnp", "loss.b=3", "loss.tau=1"), ("trainer.max_epochs=3",), ("R@1",), None),
        ("a", {"dataset": "sop"}, ("loss=pnp", "loss.b=3", "loss.tau=1"), (), ("mAP@R",), None),
        ("b", {"dataset": "sop", "dim": "64"}, ("loss=pnp", "loss.b=1"), (), ("NMI",), "a"),
    ]
    assert dict(grid.cells[1].varies) == {"x": 0.5} and grid.seeds == (0,) and grid.table == "2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("metrics: [R@1]", "metric: [R@1]"), "unknown metric"),
        (("rule: last", "rule: first"), "rule must be best, held_out, last; got 'first'"),
        (("row: a", "name: a"), "unknown name"),
        (("title: t\n", ""), "t.yaml has no title:"),
        (("metrics: [R@1]\n", ""), "no metrics for row 'a'"),
        (("row: a}", "row: a, against: c}"), "there is no row 'c'"),
    ],
)
def test_a_table_with_a_mistake_is_refused(change, message):
    text = "id: a/table1\ntitle: t\nrule: last\nmetrics: [R@1]\ncolumns:\n  - {experiment: x}\nrows:\n  - {row: a}\n"
    assert len(parse(text, "t.yaml").cells) == 1
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(text.replace(*change), "t.yaml")


# ------------------------------------------------------------------------------------------------------ the stand-ins


def test_image_sides_and_embeddings_are_scaled_and_nothing_else_is():
    given = ["loss=pnp", "data.size=224", "model.embedding_size=512", "sampler.classes_per_batch=96", "memory=sum"]
    sides = ["data.train_transform.size=28", "data.eval_transform.size=28"]
    rest = ["sampler.classes_per_batch=96", "memory=sum"]
    expected = ["loss=pnp", *sides, "data.load.size=28", "model.embedding_size=128", *rest]
    assert standin.translate(given, "omniglot") == expected
    assert standin.translate(given, "glyphs") == [s for s in expected if s != "data.load.size=28"]


def letters() -> Table:
    """Ten training classes of four images, then three test classes of two."""
    label = torch.cat([torch.arange(10).repeat_interleave(4), torch.arange(10, 13).repeat_interleave(2)])
    split = ("train",) * 40 + ("test",) * 6
    names = tuple(map(str, range(46)))
    images = torch.zeros(46, 1, 2, 2, dtype=torch.uint8)
    return Table("letters", label, tuple("abcdefghijXYZ"), split, names, channels=1, images=images)


def test_merged_training_classes_keep_the_test_set_and_every_image():
    plain, table = letters(), merged.load_merged(letters, merge=3)
    train, old = table.select("train"), plain.select("train").label
    assert sorted(torch.unique(train.label, return_counts=True)[1].tolist()) == [12, 12, 16]
    assert all(len(torch.unique(train.label[old == label])) == 1 for label in range(10))
    assert len(table.class_names) == 6 == int(table.label.max()) + 1
    test = table.select("test")
    assert [table.class_names[label] for label in test.label.tolist()] == [*"XXYYZZ"]
    assert torch.equal(merged.load_merged(letters, merge=3).label, table.label)
    assert not torch.equal(merged.load_merged(letters, merge=3, merge_seed=1).label, table.label)
    assert torch.equal(merged.load_merged(letters, merge=1).label, plain.label)
    with pytest.raises(ValueError, match="merge is a number of classes .*1 .. 10.*got 0"):
        merged.load_merged(letters, merge=0)


# ------------------------------------------------------------------------------------------------------ running them


def of_settings(patch: pytest.MonkeyPatch, load: Callable[..., Table]) -> None:
    """Let settings that say data=glyphs load this."""

    def load_glyphs(seed: int = 0, hard: float = 0.6) -> Table:  # the name that is looked up
        return load(seed, hard)

    patch.setitem(DATASETS, "glyphs", load_glyphs)


@cache
def few_glyphs(seed: int = 0, hard: float = 0.6) -> Table:
    """Every tenth class of the glyphs."""
    table = load_glyphs(seed, hard)
    return table.take([row for row, label in enumerate(table.label.tolist()) if label % 10 == 0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Here, str]]:
    """Table 9 of ROADMAP on glyphs: two cells, two seeds, one of which dies on the way."""
    out, here = tmp_path_factory.mktemp("reproduce"), Here()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_module, "Children", here)
        of_settings(patch, few_glyphs)
        with pytest.MonkeyPatch.context() as deadly:
            die_after_writes(deadly, 1)
            with pytest.raises(ConfigError) as error:
                reproduce("roadmap/table9", TINY, out, stand_in="glyphs", seeds="0,1")
        text = str(error.value)
        assert len(here.calls) == 4 and "these runs failed:\nloss=supap" in text and text.count("exit -9") == 2
        here.calls.clear()
        text = reproduce("roadmap/table9", TINY, out, stand_in="glyphs", seeds="0,1")
        counts = Report.from_json(next((out / "runs").glob("*/after.json"))).counts
        assert counts["queries"] == len(few_glyphs().select("test"))  # a run is small
        yield out, here, text


@pytest.mark.slow
def test_every_cell_of_every_table_trains_in_a_stand_in(tmp_path, monkeypatch):
    glyphs = load_glyphs()
    kept = [row for row, label in enumerate(glyphs.label.tolist()) if glyphs.split[row] == "train" or label % 10 == 0]
    small = glyphs.take(kept)
    of_settings(monkeypatch, lambda seed, hard: small)
    short = ["model.widths=[4,4,4,128]", "sampler.batches_per_epoch=1", *TINY[4:]]
    distinct = {
        tuple(settings): number
        for grid in grids().values()
        for number, settings in enumerate(planned(grid, short, {}, "glyphs").settings.values())
    }
    assert len(distinct) > 80
    for number, settings in enumerate(distinct):
        run = runs.train(compose([*settings, f"out={tmp_path / str(number)}"]), quiet=True)
        assert 0 < Report.from_json(run.after).values["R@1"] < 1, settings


def test_a_run_that_died_is_resumed_and_finished_ones_are_kept(whole):
    out, here, text = whole
    assert len(here.calls) == 1
    resumed, threads = here.calls[0]
    assert threads.startswith("threads=")
    assert resumed.startswith(f"resume={out / 'runs'}/loss=supap") and resumed.endswith("-seed0")
    assert all(Run(folder).finished for folder in (out / "runs").iterdir()) and len([*(out / "runs").iterdir()]) == 4
    assert reproduce("roadmap/table9", TINY, out, stand_in="glyphs", seeds="0,1") == text
    assert len(here.calls) == 1


def test_all_pages_are_written_and_all_say_that_it_is_a_stand_in(whole):
    out, _, text = whole
    pages = {kind: out / f"roadmap-table9.{kind}" for kind in ("md", "csv", "tex", "json", "png")}
    assert f"**{LABEL}**" in pages["md"].read_text("utf-8") and text.startswith(pages["md"].read_text("utf-8"))
    lines = [*csv.DictReader(pages["csv"].read_text("utf-8").splitlines())]
    assert lines and all(line["label"] == LABEL and line["ours_on"] == "glyphs" for line in lines)
    assert all(line["difference"] == "" for line in lines)
    assert LABEL in pages["tex"].read_text("utf-8").splitlines()[0]
    assert LABEL.replace("'", "'") in pages["tex"].read_text("utf-8").partition(r"\caption{")[2]
    assert json.loads(pages["json"].read_text("utf-8"))["label"] == LABEL
    assert pages["png"].read_bytes().startswith(b"\x89PNG")


def test_the_numbers_are_those_of_the_runs(whole):
    out, _, _ = whole
    plan = planned(grids()["roadmap/table9"], TINY, {}, "glyphs", (0, 1))
    found = collect(plan, out, "last")
    supap, roadmap = found.lines
    assert (supap.row, roadmap.row) == ("SupAP", "ROADMAP (Lcalibr added to SupAP)")
    gaps = [[100 * slow_gap(line.runs[seed]) for seed in (0, 1)] for line in found.lines]
    assert [*supap.values["DG_AP"].values()] == pytest.approx(gaps[0], rel=1e-9)
    decrease = [100 * (a - b) / a for a, b in zip(*gaps, strict=True)]
    assert [*roadmap.values["DG_AP_relative_decrease_percent"].values()] == pytest.approx(decrease, rel=1e-6)
    assert roadmap.paper["DG_AP_relative_decrease_percent"]["sop"].text == "5.4"
    row = next(line for line in page.results(found)[0][1].rows if line[0] == roadmap.row)
    assert f"{statistics.mean(decrease):.1f} ± {statistics.stdev(decrease):.1f}" in row and "3.7 / 5.4" in row
    made = [load(run.config) for line in found.lines for run in line.runs.values()]
    assert [config.seed for config in made] == [0, 1, 0, 1] and len({c.sampler.classes_per_batch for c in made}) == 1


def slow_gap(run: Run) -> float:
    """DG_AP of one query after the other, by sorting."""
    file = np.load(run.folder / "embeddings.npz")
    labels = torch.from_numpy(file["labels"])
    unit = torch.nn.functional.normalize(torch.from_numpy(file["embeddings"]).double(), dim=1)
    batch = class_batches(labels, 64, 4)
    total = 0.0
    for query in range(len(unit)):
        scores, relevant = unit @ unit[query], labels == labels[query]
        others = torch.arange(len(unit)) != query

        def ap(inside: torch.Tensor, scores: torch.Tensor = scores, relevant: torch.Tensor = relevant) -> float | None:
            order = scores[inside].argsort(descending=True)
            hits = relevant[inside][order].double()
            if not hits.sum():
                return None
            precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
            return float((precision * hits).sum() / hits.sum())

        parts = [ap(others & (batch == b)) for b in torch.unique(batch).tolist()]
        known = [part for part in parts if part is not None]
        whole_ap = ap(others)
        assert whole_ap is not None
        total += statistics.mean(known) - whole_ap
    return total / len(unit)


def test_tables_in_one_folder_share_their_runs_and_a_dry_run_says_so(whole, capsys):
    out, here, _ = whole
    command = ["reproduce", "roadmap/table2", "--stand-in", "glyphs", "--seeds", "0,1", "-o", str(out), "--dry-run"]
    assert main([*command, *TINY]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["to"] * 2 + ["finished"] * 4 + ["6"]
    assert "rankgrad train data=glyphs recipe=small" in lines[0] and "loss=smooth_ap" in lines[0]
    cells = [line for line in printed if line.startswith("#")]  # nine of the paper's are three runs here; no hours
    assert len(cells) == 9 and cells[0] == "# SmoothAP [2] (H- no, Lcalibr no), cub"
    assert len(here.calls) == 1 and not (out / "roadmap-table2.md").exists()


def test_other_settings_need_another_folder(whole):
    out, _, _ = whole
    with pytest.raises(ConfigError, match="other settings: .* --out"):
        reproduce("roadmap/table9", ["optimizer.lr=1e-3"], out, stand_in="glyphs")
    with pytest.raises(ConfigError, match="other settings"):
        reproduce("roadmap/table9", TINY, out, stand_in="omniglot", data_roots=[str(out)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["roadmap/tabel2"], "no table or figure 'roadmap/tabel2'; did you mean 'roadmap/table2'?"),
        (["rambo/table5"], "nothing to run: no voc: give its folder with --data-root voc=DIR"),
        (["rambo/table5", "--stand-in", "glyphs"], "unknown stand-in 'glyphs' for this table; known: bccd"),
        (["rambo/table5", "--stand-in", "bccd"], "--stand-in bccd reads files: give their folder with --data-root DIR"),
        (["roadmap/fig13"], "rankgrad paper-figure roadmap/fig13 --run RUN"),
        (["roadmap/table2"], "nothing to run: no cub: give its folder with --data-root cub=DIR"),
        (
            ["roadmap/table2", "--stand-in", "omniglot"],
            "--stand-in omniglot reads files: give their folder with --data-root DIR",
        ),
        (["roadmap/table2", "--stand-in", "glyphs", "--data-root", "."], "glyphs are built in and read no files"),
        (["roadmap/table2", "--data-root", "sop=nowhere"], "nowhere does not exist. Give DIR, or NAME=DIR of"),
        (["roadmap/table2", "--stand-in", "glyphs", "loss=pnp"], "roadmap/table2 itself sets loss: remove loss=pnp"),
        (["roadmap/table9", "--stand-in", "glyphs", "lean=true"], "needs the embeddings or weights of its runs"),
        (["roadmap/table2", "--stand-in", "glyphs", "seed=1"], "seed= cannot be set for all runs of a table"),
        (["roadmap/table2", "--stand-in", "glyphs", "data=sop"], "--data-root and --stand-in choose the data"),
        (
            ["roadmap/table2", "--stand-in", "glyphs", "--seeds", "a"],
            "seeds must be integers such as 0,1,2 or 0..9: ",
        ),
        (["roadmap/table2", "--stand-in", "glyphs", "optimizer.rate=1"], "unknown setting 'optimizer.rate'"),
        (["roadmap/table2", "--stand-in", "glyphs", "-j", "0"], "--jobs must be >= 1; got 0"),
        (["rambo/table9", "--stand-in", "glyphs"], "rambo/table9 trains nothing: remove --stand-in"),
        (["loss=pnp"], "no table is given: use rankgrad reproduce ID loss=pnp"),
    ],
)
def test_what_does_not_fit_is_said_before_the_first_run(tmp_path, capsys, arguments, message):
    assert main(["reproduce", *arguments, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_at_full_size_only_what_there_is_data_for_runs_with_the_roots_given(tmp_path):
    plan = planned(grids()["roadmap/table2"], ["trainer.max_epochs=7"], {"cub": tmp_path}, None)
    assert [grids()["roadmap/table2"].cells[number].dataset for number in plan.settings] == ["cub"] * 3
    assert set(plan.skipped.values()) == {f"no {d}: give its folder with --data-root {d}=DIR" for d in DATA_LEFT}
    configs = [compose(settings) for settings in plan.settings.values()]
    assert {config.data.root for config in configs} == {str(tmp_path)} and {c.trainer.max_epochs for c in configs} == {
        7
    }
    kinds = [config.loss._target_.rpartition(".")[2] for config in configs]
    assert kinds == ["SmoothAPLoss", "SupAPLoss", "ROADMAPLoss"]


DATA_LEFT = ("sop", "inaturalist")


def test_list_lengths_that_an_experiment_lacks_are_added(tmp_path):
    grid = grids()["roadmap/table2"]
    cells = tuple(replace(cell, metrics=("R@1", "R@3")) for cell in grid.cells[:1])
    [settings] = planned(replace(grid, cells=cells), [], {"": tmp_path}, None).settings.values()
    assert list(compose(settings).evaluation.ks) == [1, 2, 3, 4, 8]


# ----------------------------------------------------------------------------------------------------- what they report


def fake_run(folder: Path, r1: tuple[float, ...], seconds: float | None = 120.0) -> Run:
    """A finished run of as many epochs as it has values of R@1; the last is the result."""
    run = Run(folder)
    (folder / "logs").mkdir(parents=True)
    rows = [f"{epoch},{epoch},{value},{value / 2}" for epoch, value in enumerate(r1[:-1])]
    (folder / "logs" / "metrics.csv").write_text("\n".join(["epoch,step,test/R@1,test/mAP@R", *rows]) + "\n")
    values = {"R@1": r1[-1], "mAP@R": r1[-1] / 2, "dists_intra": 0.25}
    counts = dict.fromkeys(("queries", "counted", "gallery", "classes"), 4)
    settings = {"protocol": "leave one out", "similarity": "cosine"}
    Report(values, {}, {}, torch.zeros(0).numpy(), (), (), (), counts, settings).to_json(run.after)
    OmegaConf.save(compose([f"trainer.max_epochs={len(r1)}", f"out={folder}"]), run.config, resolve=True)
    (folder / "facts.json").write_text(json.dumps({"train_seconds": seconds, "steps": len(r1)}))
    return run


def test_both_rules_of_reporting(tmp_path):
    run = fake_run(tmp_path / "run", (0.5, 0.8, 0.7))
    assert measures.measure(run, "R@1", "best") == pytest.approx(80) and measures.measure(run, "R@1", "last") == 70
    assert measures.measure(run, "mAP@R", "best") == pytest.approx(40)
    assert measures.measure(run, "dists@intra", "last") == 0.25  # a distance, not a share
    assert measures.measure(run, "R@5", "last") is None


def test_time_of_an_epoch_is_that_of_training_over_the_epochs(tmp_path):
    assert measures.measure(fake_run(tmp_path, (0.1, 0.2)), "minutes_per_epoch", "last") == 1.0


def test_another_test_set_is_evaluated_with_the_weights_of_the_run_and_once(whole, monkeypatch):
    out, _, _ = whole
    run = Run(next((out / "runs").glob("loss=roadmap*-seed1")))
    last = measures.checkpoint(run, "last")
    same = measures.other_test(run, ["data.load.seed=0"], last)
    assert same.values == pytest.approx(Report.from_json(run.after).values)
    other = measures.other_test(run, ["data.load.seed=1"], last)
    assert other.values["R@1"] != Report.from_json(run.after).values["R@1"]
    monkeypatch.setattr(measures, "load_weights", None)
    assert measures.other_test(run, ["data.load.seed=1"], last) == other
    for path in run.folder.glob("after-*"):
        path.unlink()


def test_nmi_comes_from_the_embeddings_where_training_did_not_compute_it(whole):
    out, _, _ = whole
    run = Run(next((out / "runs").glob("loss=roadmap*-seed1")))
    assert "NMI" not in Report.from_json(run.after).values
    value = measures.measure(run, "NMI", "best")
    assert value is not None and 0 < value < 100 and measures.measure(run, "NMI", "last") == value


@pytest.fixture(scope="module")
def falling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run that is best early, and has classes held out of training."""
    short = ["data=glyphs", "recipe=small", *TINY[:4], "trainer.enable_progress_bar=false", "threads=1"]
    more = ["trainer.max_epochs=4", "evaluation.every=1", "optimizer.lr=0.5", "evaluation.bootstrap=0"]
    with pytest.MonkeyPatch.context() as patch:
        of_settings(patch, few_glyphs)
        out = tmp_path_factory.mktemp("falling") / "run"
        yield runs.train(compose([*short, *more, "evaluation.keep_best=val", f"out={out}"]), quiet=True)


def test_all_numbers_of_a_run_are_of_the_weights_that_the_rule_chooses(falling, monkeypatch):
    of_settings(monkeypatch, few_glyphs)
    chosen, last = (measures.checkpoint(falling, rule) for rule in ("held_out", "last"))
    table = evaluations(falling)
    assert chosen.steps == max(table, key=lambda step: (table[step]["val/R@1"], -step)) < last.steps
    assert chosen.there and chosen.values == table[chosen.steps]
    # the weights that were kept have these numbers: another "test set" that is the same one
    again = measures.other_test(falling, ["data.load.seed=0"], chosen).values
    assert {name: again[name] for name in again} == pytest.approx({name: chosen.values[name] for name in again})
    assert again["R@1"] != Report.from_json(falling.after).values["R@1"]
    for metric in ("NMI", "DG_AP"):
        held_out, after = (measures.measure(falling, metric, rule) for rule in ("held_out", "last"))
        assert held_out is not None and after is not None and held_out != after
    assert measures.measure(falling, "R@1", "best") >= measures.measure(falling, "R@1", "held_out")


def test_weights_that_were_not_kept_give_no_number(falling, tmp_path):
    copy = Run(tmp_path / "copy")
    shutil.copytree(falling.folder, copy.folder)
    copy.best.unlink()
    for path in copy.folder.glob("*-of-step-*"):
        path.unlink()
    assert measures.measure(copy, "NMI", "held_out") is None and measures.measure(copy, "R@1", "held_out") is not None
    assert measures.measure(fake_run(tmp_path / "run", (0.5, 0.8)), "R@1", "held_out") is None  # nothing held out


@pytest.mark.slow
def test_the_rule_that_selects_on_training_classes_holds_a_tenth_of_them_out(tmp_path):
    for name in ("roadmap/table2", "pnp/table6"):
        grid = replace(grids()[name], cells=grids()[name].cells[:1], t_test=None)
        [settings] = planned(grid, [], {}, "glyphs", held_out=True).settings.values()
        assert "evaluation.keep_best=val" in settings and not any("held_out" in each for each in settings)
        for stand_in in (None, "omniglot"):
            [settings] = planned(grid, [], {"": tmp_path}, stand_in, held_out=True).settings.values()
            config = compose(settings)
            merges = name == "pnp/table6"
            assert config.evaluation.keep_best == "val" and (config.data.load._target_ == LOAD_MERGED) == merges
            assert (config.data.load if merges else config).held_out == 0.1
            assert config.data.load.get("merge", 1) == (3 if merges else 1)


LOAD_MERGED = "rankgrad_papers.experiments.merged.load_merged"


def test_held_out_classes_are_those_that_earlier_runs_held_out():
    made = with_val(letters(), 0.3)
    assert made.split == merged.load_merged(letters, held_out=0.3).split
    assert torch.equal(made.label, letters().label) and made.splits == ("train", "val", "test")
    assert made.split != with_val(letters(), 0.3, seed=1).split
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))  # of the first version
    assert torch.equal(torch.unique(made.select("val").label), order[7:].sort().values)


def test_held_out_classes_leave_training_whole_and_unmerged():
    plain, table = letters(), merged.load_merged(letters, merge=2, held_out=0.3)
    assert [len(torch.unique(table.select(split).label)) for split in ("train", "val", "test")] == [3, 3, 3]
    assert {table.class_names[i] for i in table.select("val").label.tolist()} <= set("abcdefghij")
    assert len(table.select("train")) == 28 and len(table.select("val")) == 12 and table.names == plain.names
    with pytest.raises(ValueError, match="held_out is a fraction"):
        merged.load_merged(letters, held_out=1.0)
    with pytest.raises(ValueError, match="leaves only 1 for training"):
        merged.load_merged(letters, held_out=0.9)
    with pytest.raises(ValueError, match="3 training classes.* 2"):
        merged.load_merged(letters, merge=2, held_out=0.7)
    with pytest.raises(ValueError, match="has a split val already"):
        merged.load_merged(lambda: merged.load_merged(letters, held_out=0.3), held_out=0.3)


def test_a_choice_that_cannot_be_made_is_refused_before_training():
    with pytest.raises(ConfigError, match="keep_best=val needs held-out classes"):
        building.to_choose_on(settings_of(compose(["data=glyphs", "evaluation.keep_best=val"])), letters())
    assert building.to_choose_on(settings_of(compose(["data=glyphs"])), letters()) is None


# -------------------------------------------------------------------------------------------------------- their pages


def line(row: str, values: Mapping[str, Mapping[int, float]], paper: str, dataset: str = "cub", std: str = "") -> Any:
    where = {"dataset": dataset}
    cell = Cell(row, where, {}, "roadmap/cub", ("loss=x_y",), (), tuple(values))
    number = Number("roadmap", "4", row, True, where, "R@1", paper, std, "a note")
    return outcome.ResultLine(row, where, (cell,), {}, values, {"R@1": {dataset: number}})


def whole_outcome(label: str | None) -> outcome.Outcome:
    lines = (
        line("A & B", {"R@1": {0: 61.0, 1: 63.0}, "mAP@R": {0: 20.0, 1: 21.0}}, "62.45", std="0.48"),
        line("ours", {"R@1": {0: 64.0, 1: 67.0}, "mAP@R": {0: 25.0, 1: 25.5}}, "64.05"),
        line("ours", {"R@1": {0: 80.0}, "mAP@R": {}}, "82.20", dataset="sop"),
    )
    cells = tuple(each.cells[0] for each in lines)
    grid = Grid("roadmap/table4", "five runs", "best", (0, 1), cells, t_test="ours", notes=("a grid's note",))
    tests = tuple(outcome.t_tests(lines, "ours", grid.metrics))
    other = find("roadmap", 4, "FastAP [3]", "R@1", {"dataset": "cub", "backbone": "DeiT-S"})
    assert other is not None
    data = None if label is None else "glyphs"
    return outcome.Outcome(grid, "best", label, data, ("a=1",), lines, tests, (other,), (0, 1), ("x: why",))


def test_at_full_size_our_cell_stands_beside_the_papers_with_the_difference():
    text = page.markdown(whole_outcome(None))
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    assert rows[0] == rows[4] == ["method", "R@1", "paper", "diff", "mAP@R", "seeds"]
    assert rows[2][:5] == ["A & B", "62.00 ± 1.41", "62.45 ± 0.48", "-0.45", "20.5 ± 0.7"]
    assert rows[3][:5] == ["ours", "65.50 ± 2.12", "64.05", "+1.45", "25.2 ± 0.4"]
    assert rows[6][:5] == ["ours", "80.00", "82.20", "-2.20", "-"]
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## cub", "## sop"]
    assert "stand-in" not in text and "a grid's note" in text and "x: why" in text and "a note" in text
    assert ["FastAP [3]", "cub", "DeiT-S", "128", "73.42 ± 0.22"] in rows
    lines = [*csv.DictReader(page.csv_text(whole_outcome(None)).splitlines())]
    assert (lines[0]["difference"], lines[0]["ours_on"], lines[0]["by_seed"]) == ("-0.45", "cub", "0:61 1:63")


def test_a_stand_in_prints_no_difference_anywhere():
    stood = whole_outcome(LABEL)
    [(_, sheet)] = page.results(stood)
    assert "diff" not in sheet.columns and sheet.columns[3] == "paper: cub / sop" and LABEL in page.markdown(stood)
    assert "+1.45" not in page.markdown(stood) and "1.45" not in page.latex(stood)
    assert all(row["difference"] == "" for row in csv.DictReader(page.csv_text(stood).splitlines()))
    assert page.latex(stood).count(LABEL) == 3  # at the top, and in the caption of both tables


OFF = "cub does not have the published counts. Its results are not comparable with those of papers"


def other_counts() -> outcome.Outcome:
    """The outcome at full size, with other counts of cub, and those that are published of sop."""
    whole = whole_outcome(None)
    return replace(whole, lines=(*(replace(each, off_counts=OFF) for each in whole.lines[:2]), whole.lines[2]))


def test_data_with_other_counts_have_no_difference_and_every_file_says_so(tmp_path, monkeypatch):
    found = other_counts()
    text = page.markdown(found)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    assert rows[2][:5] == ["A & B", "62.00 ± 1.41", "62.45 ± 0.48", "-", "20.5 ± 0.7"] and rows[3][3] == "-"
    assert rows[6][:4] == ["ours", "80.00", "82.20", "-2.20"]  # of sop, whose counts are right
    assert text.splitlines()[2] == f"**{OFF}**"
    lines = [*csv.DictReader(page.csv_text(found).splitlines())]
    assert {(each["dataset"], each["difference"], each["off_counts"]) for each in lines if each["paper"]} == {
        ("cub", "", OFF),
        ("sop", "-2.2", ""),
    }
    assert page.latex(found).count(OFF) == 4 and "+1.45" not in page.latex(found)  # the top, and three captions
    content = json.loads(page.json_text(found))
    assert content["off_counts"] == [OFF] and [each["off_counts"] for each in content["lines"]] == [OFF, OFF, ""]
    drawn = []
    monkeypatch.setattr(picture, "save", lambda drawing, path: drawn.append(drawing))
    picture.picture(found, tmp_path / "x.png")
    assert OFF in drawn[0].get_suptitle().replace("\n", " ")
    left = [points for axis in drawn[0].axes[:2] for points in axis.collections if points.get_zorder() == 4]
    assert not left  # of the panel of cub: no number of the paper


def test_a_figure_from_a_file_with_other_counts_says_so(tmp_path):
    found = relative_sweep()
    found = replace(found, lines=tuple(replace(each, off_counts=OFF) for each in found.lines))
    (tmp_path / "a.csv").write_text(page.csv_text(found), encoding="utf-8")
    sweep = read([tmp_path / "a.csv"], found.grid)
    assert sweep.label == OFF and {point.data for point in sweep.points} == {"cub"}


@pytest.mark.parametrize(
    ("fact", "told"),
    [({}, "does not say which counts its data has"), ({"off_counts": OFF}, OFF), ({"off_counts": ""}, None)],
)
def test_the_counts_are_those_that_a_run_noted_when_it_read_its_data(tmp_path, fact, told):
    run = fake_run(tmp_path / "run", (0.5,))
    run.facts.write_text(json.dumps({"train_seconds": 1.0, "steps": 1, **fact}))
    grid = grids()["roadmap/table2"]
    found = outcome.outcome_line(grid, [0], {0: run}, "last", stand_in=False)
    assert told in found.off_counts if told else found.off_counts == ""
    assert outcome.outcome_line(grid, [0], {0: run}, "last", stand_in=True).off_counts == ""


def test_latex_escapes_what_it_must():
    text = page.latex(whole_outcome(None))
    assert r"A \& B" in text and "62.00 $\\pm$ 1.41" in text and r"\toprule" in text
    assert page._escape("50 % of a_b, H⁻") == r"50 \% of a\_b, H$^{-}$"


@pytest.mark.parametrize("label", [LABEL, None])
def test_the_picture_shows_the_paper_at_full_size_only_and_says_what_it_is(label, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(picture, "save", lambda drawing, path: drawn.append(drawing))
    picture.picture(whole_outcome(label), tmp_path / "x.png")
    [drawing] = drawn
    title = drawing.get_suptitle().replace("\n", " ")
    assert "five runs" in title and (LABEL in title) == (label is not None)
    [legend] = drawing.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert ("paper" in names) == (label is None) and "ours, mean ± standard deviation" in names


def test_a_sweep_is_drawn_as_curves(tmp_path, monkeypatch):
    cells, lines = [], []
    for place in (1.0, 10.0, 100.0):
        cell = Cell("ROADMAP", {"dataset": "sop"}, {"ρ": place}, "roadmap/sop", (), (), ("mAP@R",))
        cells.append(cell)
        labels = {"dataset": "sop", "ρ": f"{place:g}"}
        lines.append(outcome.ResultLine("ROADMAP", labels, (cell,), {}, {"mAP@R": {0: place, 1: place + 2}}, {}))
    grid = Grid("roadmap/fig12", "t", "best", (0, 1), tuple(cells))
    found = outcome.Outcome(grid, "best", None, None, (), tuple(lines), (), (), (0, 1))
    drawn: list[Any] = []
    monkeypatch.setattr(picture, "save", lambda drawing, path: drawn.append(drawing))
    picture.picture(found, tmp_path / "x.png")
    [axis] = drawn[0].axes
    assert axis.get_xscale() == "log" and axis.get_xlabel() == "ρ, sop"
    assert axis.lines[0].get_xdata().tolist() == [1, 10, 100] and axis.lines[0].get_ydata().tolist() == [2, 11, 101]


def places(name: str) -> dict[str, list[float]]:
    """Axis -> places of a figure, those of its first data set."""
    found: dict[str, list[float]] = {}
    first = grids()[name].cells[0].dataset
    for cell in grids()[name].cells:
        for axis, place in cell.varies.items():
            if cell.dataset == first:
                found.setdefault(axis, []).append(place)
    return found


def test_the_figures_vary_what_the_papers_vary_over_the_ranges_that_their_texts_name():
    four = places("roadmap/fig4")
    assert {0, 0.2, 0.5, 0.8, 1} <= set(four["λ"]) and {0, 10, 100, 10_000} <= set(four["ρ"])
    assert {0.1, 0.4, 0.6} <= set(four["α − β"])
    [baseline] = [cell for cell in grids()["roadmap/fig4"].cells if not cell.varies]
    assert baseline.row == "SupAP" and "loss=supap" in baseline.settings
    twelve = grids()["roadmap/fig12"]
    assert {cell.row for cell in twelve.cells} == {"SupAP"} and all("loss=supap" in c.settings for c in twelve.cells)
    span = {axis: (min(each), max(each)) for axis, each in places("roadmap/fig12").items()}
    assert span == {"τ": (1e-3, 1.0), "ρ": (0.1, 1e4)}
    assert grids()["roadmap/fig5"].metrics == ("mAP@R", measures.INCREASE)
    assert {cell.dataset for cell in grids()["pnp/fig8"].cells} == {"sop", "vehicleid"}


@pytest.mark.slow
def test_deit_in_roadmaps_table_3_has_the_batches_of_the_rows_that_table_7_repeats(tmp_path):
    grid = grids()["roadmap/table3"]
    for number, settings in planned(grid, [], {"": tmp_path}, None).settings.items():
        where, sampler = grid.cells[number].where, compose(settings).sampler
        size = sampler.classes_per_batch * sampler.samples_per_class
        expected = 384 if where["backbone"] == "DeiT-S" or where["dataset"] == "inaturalist" else 64
        assert size == expected, dict(where)


def relative_sweep() -> outcome.Outcome:
    """Figure 5 with two seeds: SupAP 20 and 25, and with the calibration 22 and 20."""
    grid = grids()["roadmap/fig5"]
    kept = [cell for cell in grid.cells if cell.dataset == "cub" and cell.varies["batch size"] == 32]
    values = {"SupAP": {0: 20.0, 1: 25.0}, "ROADMAP (Lcalibr added to SupAP)": {0: 22.0, 1: 20.0}}
    lines = [
        outcome.ResultLine(c.row, {"dataset": "cub", "batch size": "32"}, (c,), {}, {"mAP@R": values[c.row]}, {})
        for c in kept
    ]
    whole = outcome.relative(lines)
    return outcome.Outcome(replace(grid, cells=tuple(kept)), "best", None, None, (), tuple(whole), (), (), (0, 1))


def test_the_relative_increase_is_that_of_each_seed_in_per_cent_of_the_other_method():
    found = relative_sweep()
    assert measures.INCREASE not in found.lines[0].values
    assert found.lines[1].values[measures.INCREASE] == {0: pytest.approx(10), 1: pytest.approx(-20)}
    sweep = from_outcome(found, drawn(found.grid))
    assert [(point.row, point.metric) for point in sweep.points if point.values] == [
        ("ROADMAP (Lcalibr added to SupAP)", measures.INCREASE)
    ]


def test_a_method_that_does_not_vary_is_a_line_through_every_panel(monkeypatch, tmp_path):
    supap = Cell("SupAP", {"dataset": "sop"}, {}, "roadmap/sop", (), (), ("mAP@R",))
    cells = [supap]
    lines = [outcome.ResultLine("SupAP", {"dataset": "sop"}, (supap,), {}, {"mAP@R": {0: 30.0, 1: 32.0}}, {})]
    for axis, place in (("λ", 0.0), ("λ", 0.5), ("ρ", 0.0), ("ρ", 1.0), ("ρ", 1e4)):
        cell = Cell("ROADMAP", {"dataset": "sop"}, {axis: place}, "roadmap/sop", (), (), ("mAP@R",))
        labels = {"dataset": "sop", axis: f"{place:g}"}
        cells.append(cell)
        lines.append(outcome.ResultLine("ROADMAP", labels, (cell,), {}, {"mAP@R": {0: 20 + place / 1000}}, {}))
    grid = Grid("roadmap/fig4", "t", "best", (0, 1), tuple(cells))
    found = outcome.Outcome(grid, "best", None, None, (), tuple(lines), (), (), (0, 1))
    drawing = picture.curves(from_outcome(found, ["mAP@R"]))
    left, right = drawing.axes
    for axis in (left, right):
        assert any(set(line.get_ydata()) == {31.0} for line in axis.lines)
    assert left.get_xscale() == "linear" and right.get_xscale() == "symlog"  # 0 among powers of ten
    assert {text.get_text() for text in drawing.legends[0].get_texts()} == {"SupAP", "ROADMAP"}
    (tmp_path / "roadmap-fig4.csv").write_text(page.csv_text(found))
    again = read([tmp_path / "roadmap-fig4.csv"], grid)
    assert {(p.row, p.axis, p.place) for p in again.points} == {
        (p.row, p.axis, p.place) for p in from_outcome(found, ["mAP@R"]).points
    }


def test_t_tests_pair_the_seeds_that_both_have_within_a_column():
    lines = [
        line("ours", {"R@1": {0: 5.0, 1: 7.0, 2: 9.0}}, "1"),
        line("a", {"R@1": {1: 6.0, 2: 7.0, 3: 0.0}}, "1"),
        line("a", {"R@1": {0: 1.0, 1: 2.0}}, "1", dataset="sop"),
        line("b", {"R@1": {0: 1.0}}, "1"),
    ]
    [test] = outcome.t_tests(lines, "ours", ["R@1"])
    assert (test.other, test.n, test.difference) == ("a", 2, 1.5)


# -------------------------------------------------------------------------------------------------- without training


def test_rambos_hyperparameters_are_those_of_the_experiments(tmp_path):
    text = reproduce("rambo/supp-table1", out=tmp_path)
    rows = [*csv.DictReader((tmp_path / "rambo-table9.csv").read_text().splitlines())]
    assert len(rows) == 9 and all(row["equal"] == "yes" for row in rows)
    assert {
        "data": "cub",
        "name": "lambda",
        "setting": "loss.lambda_",
        "here": "0.2",
        "paper": "0.2",
        "equal": "yes",
        **made_by(),
    } in rows
    assert "| inshop | margin" in text and all((tmp_path / f"rambo-table9.{k}").exists() for k in ("md", "tex", "json"))


def test_growth_of_a_loss_that_is_quadratic_is_two(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(computed.time, "process_time", lambda: clock.now)

    def loss(scores: torch.Tensor, relevant: torch.Tensor) -> torch.Tensor:
        clock.now += scores.shape[1] ** 2 * 1e-6
        assert relevant.sum() == 10
        return scores.sum()

    assert computed.growth(loss, lengths=(100, 200, 400)) == pytest.approx(2.0)


def test_complexities_are_the_papers_beside_measured_growth(monkeypatch):
    monkeypatch.setattr(computed, "growth", lambda loss, lengths=(): 1.25)
    rows = {row[0]: row[1:] for row in computed.complexity().sheet.rows}
    assert rows["RaMBO"] == ["O(n log n)", "yes", "n^1.25"] and rows["Yue et al. [68]"] == ["O(n^2)", "no", "-"]
    assert rows["SoDeep [10]"] == ["O((n+p)h^2)", "yes", "n^1.25"]


def test_the_time_of_a_sorting_network_is_that_of_its_ranks():
    scores = torch.linspace(-1, 1, 16).unsqueeze(0).requires_grad_()
    relevant = torch.arange(16).unsqueeze(0) < 4
    value = computed._sorted_by_network(scores, relevant)
    value.backward()
    assert value.shape == () and scores.grad.abs().sum() > 0


def test_slopes_of_auc_follow_the_step_and_small_steps_estimate_the_area_better():
    rows = [[float(text) for text in row] for row in computed.slopes(batches=4).sheet.rows]
    assert all(step * slope == pytest.approx(5.3) and steps == round(2 / step) for step, steps, slope, _ in rows)
    errors = [row[3] for row in rows]
    assert errors[0] > 10 * errors[3] > 0 and errors[-1] < 0.005


def test_long_lists_are_measured_by_the_benchmark(tmp_path, monkeypatch):
    found = Result([ResultTable("Long lists", ("scores", "ms"), [["100,000", 3.0]])], [])
    monkeypatch.setattr("rankgrad_papers.timing.long_list.long_list", lambda options: found)
    shown = reproduce("rambo/table6", out=tmp_path)
    assert "100,000  3.00" in shown and "--long" in shown and "--device cuda" in shown
    assert "100,000" in (tmp_path / "rambo-table6.md").read_text()
    assert json.loads((tmp_path / "rambo-table6.json").read_text())[0]["rows"] == [["100,000", 3.0]]
    assert "computes rambo/table9" in reproduce("rambo/table9", out=tmp_path / "dry", dry_run=True)
    assert not (tmp_path / "dry").exists()


# -------------------------------------------------------------------------------------------------- links, launchers


def test_what_reproduce_writes_takes_the_place_of_links(tmp_path):
    out, names = tmp_path / "out", [f"rambo-table9.{ending}" for ending in ("md", "tex", "csv", "json", "png")]
    out.mkdir()
    for name in names:
        (out / name).symlink_to(tmp_path / name)  # who follows it makes a file outside
    computed.make(catalogue.find("rambo/table9"), out)
    save(figure(1, 1), out / names[-1])
    assert all((out / name).is_file() for name in names) and [*tmp_path.iterdir()] == [out]


class Done:
    """A run that has ended well."""

    returncode = 0

    def poll(self) -> int:
        return self.returncode

    wait = terminate = poll


class Elsewhere:
    """A launcher that trains nothing: it keeps the runs that it is given."""

    shares_cores = False

    def __init__(self) -> None:
        self.runs: list[RunCommand] = []

    def start(self, run: RunCommand, children: Any) -> Any:
        self.runs.append(run)
        return children.add(Done())


def test_a_table_hands_its_runs_to_the_launcher(tmp_path, monkeypatch):
    elsewhere = Elsewhere()
    read = lambda words: (elsewhere, [word for word in words if "launcher" not in word])  # noqa: E731
    monkeypatch.setattr(reproduce_module, "read_launcher", read)
    monkeypatch.setattr("rankgrad_workbench.runs.compare.Children", Children)  # which `whole` has replaced
    monkeypatch.setattr(reproduce_module, "collect", lambda *_: None)
    monkeypatch.setattr(reproduce_module, "write", lambda *_: "")
    reproduce("roadmap/table9", ["launcher=submitit", "launcher.timeout_min=5"], tmp_path, stand_in="glyphs", seeds="0")
    assert len(elsewhere.runs) == 2 and not any("launch" in word for run in elsewhere.runs for word in run.settings)


@pytest.mark.parametrize(("name", "points", "runs"), [("roadmap/fig12", 11, 10), *slow(("roadmap/fig4", 22, 20))])
def test_the_published_point_of_several_curves_is_trained_once(name, points, runs):
    grid = grids()[name]
    plan = planned(grid, [], {}, "glyphs")
    assert len(plan.settings) == points and len(set(plan.settings.values())) == runs
    composed = [OmegaConf.to_yaml(compose(each).loss) for each in dict.fromkeys(plan.settings.values())]
    assert len(set(composed)) == runs  # no two runs train the same loss
