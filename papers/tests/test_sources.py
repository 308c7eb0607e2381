"""Where the settings of the papers' experiments come from: nothing without a source, no source that there is not."""

from __future__ import annotations

import re
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from rankgrad_papers.experiments import sources
from rankgrad_papers.experiments.grid import Grid, grids
from rankgrad_papers.experiments.sources import Setting, of_experiment, of_loss, of_table, parsed
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import GROUPS, ConfigError

GRIDS = [grid for command in ("train", "detect train") for grid in grids(command).values()]
EXPERIMENTS = [(name, tree) for tree in ("train", "detect") for name in sources.experiments(tree)]
ROOT = Path(__file__).parents[2]


def without(settings: Sequence[Setting]) -> list[str]:
    return [setting.key for setting in settings if setting.source is None]


@pytest.mark.parametrize(("name", "tree"), EXPERIMENTS)
def test_every_setting_of_an_experiment_has_a_source(name, tree):
    found = of_experiment(name, tree)
    assert len(found) > 30 and without(found) == []


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.id)
def test_everything_that_a_table_sets_has_a_source_and_no_source_is_left_over(grid):
    found = of_table(grid)
    assert without(found) == []
    assert set(grid.sources) == {setting.key for setting in found}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.id)
def test_the_losses_of_a_table_have_sources(grid):
    for loss in sources.losses_of(grid):
        assert without(of_loss(loss, grid.tree)) == [], loss


def test_an_experiment_of_a_paper_names_only_its_own_paper_or_one_that_it_follows():
    follows = {"auc": {"rambo"}, "pnp": {"roadmap"}}
    for name, tree in EXPERIMENTS:
        paper = name.partition("/")[0]
        for setting in of_experiment(name, tree):
            papers = {place.partition(" ")[0] for place in setting.source.places} - {"code", "ours"}
            assert papers <= {paper} | follows.get(paper, set()), (name, setting)


def test_a_setting_without_a_source_is_found(monkeypatch):
    written = sources._written

    def forgotten(name: str, tree: str):
        return {
            key: (value, None if key == "optimizer.lr" else source)
            for key, (value, source) in written(name, tree).items()
        }

    monkeypatch.setattr(sources, "_written", forgotten)
    assert without(of_experiment("rambo/cub_log")) == ["optimizer.lr"]
    grid = grids()["roadmap/table2"]
    assert without(of_table(replace(grid, sources={"loss": "[roadmap table 2]", "rule": "as it was"}))) == [
        "rule",
        "seeds",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rambo B.1] pairs", r"there is no place \[rambo B.1\]"),
        ("[roadmap table 10]", r"there is no place \[roadmap table 10\]; did you mean 'table 1"),
        ("[paper] said so", r"there is no place \[paper\]"),
        ("[pnp Experimental Setup] [coda]", r"there is no place \[coda\]"),
    ],
)
def test_a_place_that_a_paper_has_not_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parsed(text, "a file")


def test_a_source_is_brackets_and_words():
    found = parsed("[rambo A] [code] theirs [not a place]", "a file")
    assert (found.places, found.words) == (("rambo A", "code"), "theirs [not a place]")
    assert parsed("only words", "a file") is None and parsed("", "a file") is None


def test_the_last_file_that_sets_a_value_gives_its_source():
    found = {setting.key: setting for setting in of_experiment("roadmap/deit_cub")}
    assert str(found["optimizer.weight_decay"].source) == "code" and found["optimizer.weight_decay"].value == "0.0005"
    assert found["sampler.classes_per_batch"].source.places == ("roadmap table 4",)
    assert found["loss.tau"].source.places == ("roadmap 4",)
    assert found.get("memory") is None


@pytest.mark.parametrize(("name", "tree"), EXPERIMENTS)
def test_the_value_beside_a_source_is_the_value_of_the_experiment(name, tree):
    config = sources._composed(name, tree)
    for key, (text, _) in sources._written(name, tree).items():
        value = yaml.safe_load(text)
        if key not in GROUPS and "${" not in text:
            same = OmegaConf.select(config, key)
            same = OmegaConf.to_container(same) if OmegaConf.is_config(same) else same
            assert same == (float(value) if isinstance(same, float) else value), key


def test_the_command_prints_the_sources_and_stops(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "rambo/table2", "--sources"]) == 0
    shown = capsys.readouterr().out
    assert "experiment=rambo/sop_loglog" in shown and "loss=rambo_recall" in shown
    assert any(line.split() == "optimizer.lr 3e-06 rambo table 9".split() for line in shown.splitlines())
    assert "None" not in shown and not list(tmp_path.iterdir())
    assert main(["reproduce", "rambo/fig1", "--sources"]) == 2
    assert "has no runs, and so no sources of settings" in capsys.readouterr().err
    assert main(["reproduce", "--sources"]) == 2
    assert "no table is given" in capsys.readouterr().err


def test_the_page_of_the_docs_is_what_the_files_say():
    made = runpy.run_path(str(ROOT / "papers" / "docs" / "make_sources.py"))["page"]()
    assert (ROOT / "papers" / "docs" / "sources.md").read_text(encoding="utf-8") == made, (
        "run python papers/docs/make_sources.py"
    )


def test_grids_without_sources_are_still_grids():
    assert Grid("a/table1", "t", "last", (0,), ()).sources == {}


def test_what_a_paper_does_not_name_is_a_choice_of_ours():
    for name, tree in EXPERIMENTS:
        for setting in of_experiment(name, tree):
            unnamed = re.search(r"\bpaper (names no|gives no|does not say)", setting.source.words)
            assert not unnamed or setting.source.places[-1] == "ours", (name, setting)


def test_larger_crops_of_roadmap_are_cut_from_images_of_the_size_that_its_text_has():
    for name in ("roadmap/sota_cub", "roadmap/sota_sop"):
        values = {setting.key: setting.value for setting in of_experiment(name)}
        assert (values["data.size"], values["data.train_transform.resize"]) == ("256", "256"), name


def test_all_points_of_pnps_figure_8_have_batches_of_one_size():
    sizes = {
        int(words["sampler.classes_per_batch"]) * int(words["sampler.samples_per_class"])
        for words in (dict(word.split("=", 1) for word in cell.settings) for cell in grids()["pnp/fig8"].cells)
    }
    assert sizes == {112}
