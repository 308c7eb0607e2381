"""What the papers' tables cost at full size: images counted from the settings."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest
import torch

from rankgrad.batches.samplers import class_batches
from rankgrad_papers.datasets import OFFICIAL
from rankgrad_papers.experiments.cost import FULL, HALF, work_of
from rankgrad_papers.experiments.grid import Grid, grids, merge
from rankgrad_papers.experiments.reproduce import reproduce
from rankgrad_workbench.settings import compose

PAPERS = Path(__file__).parents[1]
RATES = HALF, FULL  # images a second


@pytest.mark.slow
def test_a_dry_run_at_full_size_says_which_cell_a_command_fills_and_how_long_it_takes(tmp_path):
    asked = {"data_roots": [f"cub={tmp_path}"], "seeds": "0..1", "dry_run": True}
    lines = reproduce("roadmap/table2", out=tmp_path / "out", **asked).splitlines()
    assert lines[0] == "# SmoothAP [2] (H- no, Lcalibr no), cub: 0.3 h a run"
    assert [line.split()[0] for line in lines[:3]] == ["#", "to", "to"] and "seed=1" in lines[2]
    assert lines[-1].startswith("6 runs, 1.7 h left on one V100")
    larger = reproduce("roadmap/table2", ["data.size=448"], tmp_path / "out", **asked)
    assert "cub: 1.2 h a run" in larger  # four times the area
    every_image = ["sampler.samples_per_class=all", "trainer.precision=bf16-mixed"]
    assert "cub: 0.3 h a run" in reproduce("roadmap/table2", every_image, tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("experiment", "data", "classes", "super_labels"),
    [("roadmap/cub", "cub", 100, None), ("pnp/sop", "sop", 11318, None), ("roadmap/sop", "sop", 11318, 12)],
)
def test_the_images_counted_are_those_that_the_sampler_deals(experiment, data, classes, super_labels):
    images = OFFICIAL[data].counts["train"][0]
    config = compose([f"experiment={experiment}", "data.root=DIR"])
    labels = torch.arange(images) % classes
    above = None if super_labels is None else labels % super_labels
    sampler = class_batches(labels, above, seed=0, **config.sampler)
    dealt = config.trainer.max_epochs * sum(map(len, sampler.batches(0)))
    assert work_of([f"experiment={experiment}"], data).trained == pytest.approx(dealt, rel=0.01)


def _data(grid: Grid) -> list[str]:
    return [*dict.fromkeys(cell.data for cell in grid.cells)]


def test_each_row_of_what_full_size_costs_has_its_cells_runs_and_hours():
    committed = csv.DictReader((PAPERS / "results/full-size.csv").read_text(encoding="utf-8").splitlines())
    shown = {(row["`ID`"].strip("`"), row["`NAME`"].strip("`")): row for row in committed}
    assert [*shown] == [(name, data) for name, grid in grids().items() for data in _data(grid)]
    for (name, data), row in shown.items():
        grid = grids()[name]
        cells = [cell for cell in grid.cells if cell.data == data]
        different = {merge([f"experiment={cell.experiment}"], cell.settings, cell.full_only) for cell in cells}
        assert (int(row["cells"]), int(row["runs"])) == (len(cells), len(grid.seeds) * len(different))
        images = [1e6 * float(row[f"{what}, million"]) for what in ("trained", "embedded")]
        low, high = (sum(count / rate for count, rate in zip(images, rates, strict=True)) / 3600 for rates in RATES)
        rounding = 0.05 + sum(50_000 / rate for rate in FULL) / 3600
        assert low - rounding <= float(row["hours"]) <= high + rounding, row  # cells in both precisions are between


@pytest.mark.slow
def test_two_tables_of_what_full_size_costs_are_counted_from_the_settings():
    committed = csv.reader((PAPERS / "results/full-size.csv").read_text(encoding="utf-8").splitlines())
    shown = {(row[0], row[1]): row for row in committed}
    module = runpy.run_path(str(PAPERS / "docs" / "make_full_size.py"))
    for row in module["rows"]("rambo/table3", "roadmap/table5"):
        assert shown[row[0], row[1]] == row


@pytest.mark.slow
def test_the_whole_table_of_what_full_size_costs_is_that_of_the_settings():
    module = runpy.run_path(str(PAPERS / "docs" / "make_full_size.py"))
    assert module["PAGE"].read_text(encoding="utf-8") == module["written"]()
