"""What is published of the laboratory: the version of the library, entry points for all that it has, all its files."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from released import Package

import rankgrad
from rankgrad.common.plugins import GROUPS
from rankgrad_papers._version import __version__
from rankgrad_papers.datasets import DATASETS
from rankgrad_papers.experiments.catalogue import entries as catalogue_entries
from rankgrad_papers.sodeep import losses
from rankgrad_workbench.files import elsewhere
from rankgrad_workbench.settings import options

HERE = Package(Path(__file__).parents[1], __version__)


def test_the_package_has_the_version_licence_and_addresses_of_the_library():
    HERE.check()
    assert HERE.project["optional-dependencies"] == {"detection": [f"rankgrad-detection=={rankgrad.__version__}"]}


def test_entry_points_name_every_data_set_command_and_loss():
    found = {name: entry for name, entry in HERE.entries["rankgrad.datasets"].items() if not name.startswith("_")}
    assert found == {name: f"rankgrad_papers.datasets:{loader.__name__}" for name, loader in DATASETS.items()}
    files = {path.stem for path in (HERE.folder / "commands").glob("*.py")} - {"__init__"}
    assert HERE.entries["rankgrad.commands"] == {
        name.replace("_", "-"): f"rankgrad_papers.commands.{name}" for name in files
    }
    own = {name for name, each in vars(losses).items() if inspect.isclass(each) and each.__module__ == losses.__name__}
    assert {entry.partition(":")[2] for entry in HERE.entries["rankgrad.losses"].values()} == own


def test_every_entry_point_is_of_a_known_group_and_can_be_loaded():
    assert set(HERE.entries) == {f"rankgrad.{group}" for group in GROUPS} - {
        "rankgrad.metrics",
        "rankgrad.tasks",
    }
    for plugin in HERE.plugins():
        if plugin.group != "configs":
            assert callable(getattr(plugin.load(), "run", plugin.load()))


def test_the_library_knows_each_name_that_is_added_for_its_hint():
    public = {group: [name for name in entries if name[0] != "_"] for group, entries in HERE.entries.items()}
    want = {
        "command": public["rankgrad.commands"],
        "data set": public["rankgrad.datasets"],
        "loss": public["rankgrad.losses"],
        "recipe": [path.stem for path in (HERE.folder / "configs" / "recipe").glob("*.yaml")],
    }
    assert {kind: sorted(elsewhere.LABORATORY[kind]) for kind in want} == {k: sorted(v) for k, v in want.items()}
    drawn = [entry.id for entry in catalogue_entries()]
    trained = [name for tree in ("train", "detect") for name in options("experiment", tree) if "/" in name]
    assert drawn and trained and {name.partition("/")[0] for name in drawn + trained} == set(elsewhere.PAPERS)


def test_files_of_settings_are_of_data_sets_that_are_registered():
    files = {path.stem for path in (HERE.folder / "configs" / "data").glob("*.yaml")}
    assert files and files <= set(DATASETS)


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    HERE.check_wheel(tmp_path)
