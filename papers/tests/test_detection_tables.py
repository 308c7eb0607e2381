"""Detectors in RaMBO's tables: their experiments, their cells, their stand-in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from marks import slow_unless
from small_detectors import QUICK, TINY
from voc_trees import shapes

from rankgrad_papers.experiments.grid import grids
from rankgrad_papers.experiments.numbers import find, select
from rankgrad_papers.experiments.reproduce import planned, reproduce
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose, flat, options, plain


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


@pytest.mark.slow
def test_experiments_are_those_of_rambos_tables_with_its_values():
    names = [name for name in options("experiment", "detect") if name.startswith("rambo/")]
    toolbox = "rambo/voc07_r50_toolbox"
    assert names == ["rambo/voc0712_r101", "rambo/voc0712_r50", "rambo/voc0712_x101", "rambo/voc07_r50", toolbox]
    for name in names[:-1]:
        config = compose([f"experiment={name}", "data.root=x"], "detect")
        assert (config.trainer.max_epochs, plain(config.optimizer.milestones), config.sampler.batch_size) == (
            12,
            [9],
            8,
        )
        loss = config.loss
        assert (loss.lambda_, loss.margin, loss.memory, plain(loss.weights)) == (0.5, 0.15, 7, [2, 1])
        assert config.data.test == "2007/test" and config.data.classes == "voc" and config.model.pretrained is True
        years = {"07": "2007/trainval", "0712": "2007/trainval+2012/trainval"}
        assert config.data.train == years[re.match(r"rambo/voc(\d+)_", name)[1]]
        backbone = {"r50": "resnet50", "r101": "resnet101", "x101": "resnext101_32x4d"}[name.rpartition("_")[2]]
        assert config.model.backbone == backbone
        # section 5.2's rate; 320 000 elements (section 5.3) are all proposals; the memory is that of L_AP, so of both
        assert (config.optimizer.lr, loss.memory_for) == (0.1, "both")
        assert config.sampler.batch_size * config.model.rois * 20 == 320_000 and config.model.positive_share == 1.0
        classifier = compose([f"experiment={name}", "data.root=x", "loss=cross_entropy"], "detect").loss
        assert plain(classifier) == {"name": "cross_entropy"}
    text, code = (flat(plain(compose([f"experiment={n}", "data.root=x"], "detect"))) for n in names[-2:])
    assert {key: code[key] for key in code if code[key] != text[key]} == {
        "model.rois": 512,
        "model.positive_share": 0.25,
        "optimizer.lr": 0.01,
        "loss.memory_for": "map",
    }


def test_every_row_of_the_papers_own_method_is_a_cell_and_every_cell_has_its_number():
    for grid in grids("detect train").values():
        numbers = {id(find(grid.paper, grid.table, cell.row, "AP50", cell.where)) for cell in grid.cells}
        assert len(numbers) == len(grid.cells) and numbers == {id(n) for n in select(grid.paper, grid.table)}
        assert {cell.experiment for cell in grid.cells} <= set(options("experiment", "detect"))
    assert set(grids("detect train")) == {"rambo/table5", "rambo/table8"} and not set(grids()) & set(
        grids("detect train")
    )


@pytest.mark.parametrize("stand_in", slow_unless({"bccd"}, [None, "bccd"]))
def test_the_runs_of_a_table_compose_and_differ(tmp_path, stand_in):
    plan = planned(grids("detect train")["rambo/table8"], [], {"": tmp_path}, stand_in)
    assert len(set(plan.settings.values())) == 5 and not plan.skipped
    chosen = {next(s for s in settings if s.startswith("data.train=")) for settings in plan.settings.values()}
    assert chosen == {"data.train=train" if stand_in else "data.train=2007/trainval"}


def test_a_table_lists_its_commands_and_runs_that_two_cells_share_once(tmp_path):
    text = reproduce("rambo/table5", data_roots=[str(tmp_path)], stand_in="bccd", dry_run=True, out=tmp_path)
    cells, lines = ([x for x in text.splitlines() if x.startswith("#") == named] for named in (True, False))
    assert lines[-1] == "12 runs" and len(lines) == 13  # two losses, two lists, three seeds
    assert cells[0] == "# Faster R-CNN CE (training 07), voc07, ResNet-50" and len(cells) == 8
    assert all("rankgrad detect train experiment=bccd" in line for line in lines[:-1])


@pytest.mark.slow
def test_a_table_trains_its_cells_and_shows_them_beside_the_papers(tree, tmp_path, monkeypatch):
    grid = grids("detect train")["rambo/table8"]
    small = replace(grid, cells=grid.cells[:2])
    monkeypatch.setattr("rankgrad_papers.experiments.reproduce.grids", lambda command: {grid.id: small})
    text = reproduce(
        "rambo/table8", [*TINY, *QUICK[:-2], "threads=1"], tmp_path, data_roots=[str(tree)], stand_in="bccd", seeds="0"
    )
    assert re.search(r"^\| Faster R-CNN \(RaMBO no\) +\| +\d+\.\d \| +74\.2 \|", text, re.MULTILINE)
    assert "stand-in: small detector on BCCD" in text
    assert json.loads((tmp_path / "rambo-table8.json").read_text())["lines"][1]["values"]["AP50"]["0"] >= 0


@pytest.mark.parametrize("words", [["--dry-run"], ["--sources"]])
def test_without_the_package_of_detectors_their_tables_say_what_to_install_and_others_are_listed(
    words, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("RANKGRAD_PLUGINS", "rankgrad-papers")
    assert main(["reproduce", "rambo/table8", *words]) == 2
    told = capsys.readouterr().err
    assert "In a clone: pip install ./packages/rankgrad-detection." in told and told.count("\n") == 1
    assert main(["reproduce"]) == 0 and main(["reproduce", "rambo/table2", *words, "--data-root", str(tmp_path)]) == 0
