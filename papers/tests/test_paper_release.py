"""What is published of the laboratory: the version of the library, entry points for all that it has, all its files."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rankgrad
from rankgrad.common import extras
from rankgrad.common.plugins import GROUPS, Plugin
from rankgrad.workbench.config import options
from rankgrad_papers._version import __version__
from rankgrad_papers.datasets import DATASETS
from rankgrad_papers.experiments.catalogue import entries as catalogue_entries
from rankgrad_papers.sodeep import losses

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "src" / "rankgrad_papers"
PROJECT: dict[str, Any] = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
ENTRIES: dict[str, dict[str, str]] = PROJECT["entry-points"]


def test_the_version_and_the_version_that_is_required_are_those_of_the_library():
    assert __version__ == rankgrad.__version__
    assert PROJECT["dependencies"] == [f"rankgrad[train]=={rankgrad.__version__}"]
    assert PROJECT["optional-dependencies"] == {"detection": [f"rankgrad-detection=={rankgrad.__version__}"]}


def test_entry_points_name_every_data_set_command_and_loss():
    found = {name: entry for name, entry in ENTRIES["rankgrad.datasets"].items() if not name.startswith("_")}
    assert found == {name: f"rankgrad_papers.datasets:{loader.__name__}" for name, loader in DATASETS.items()}
    files = {path.stem for path in (PACKAGE / "commands").glob("*.py")} - {"__init__"}
    assert ENTRIES["rankgrad.commands"] == {
        name.replace("_", "-"): f"rankgrad_papers.commands.{name}" for name in files
    }
    own = {name for name, each in vars(losses).items() if inspect.isclass(each) and each.__module__ == losses.__name__}
    assert {entry.partition(":")[2] for entry in ENTRIES["rankgrad.losses"].values()} == own


def test_every_entry_point_is_of_a_known_group_and_can_be_loaded():
    assert set(ENTRIES) == {f"rankgrad.{group}" for group in GROUPS} - {"rankgrad.metrics", "rankgrad.tasks"}
    for group, entries in ENTRIES.items():
        for name, value in entries.items():
            plugin = Plugin(group.removeprefix("rankgrad."), name, value, PROJECT["name"], __version__)
            if plugin.group == "configs":
                assert plugin.folder() == PACKAGE / "configs"
            else:
                assert callable(getattr(plugin.load(), "run", plugin.load()))


def test_the_library_knows_each_name_that_is_added_for_its_hint():
    public = {group: [name for name in entries if name[0] != "_"] for group, entries in ENTRIES.items()}
    want = {
        "command": public["rankgrad.commands"],
        "data set": public["rankgrad.datasets"],
        "loss": public["rankgrad.losses"],
        "recipe": [path.stem for path in (PACKAGE / "configs" / "recipe").glob("*.yaml")],
    }
    assert {kind: sorted(names) for kind, names in extras.LABORATORY.items()} == {k: sorted(v) for k, v in want.items()}
    drawn = [entry.id for entry in catalogue_entries()]
    trained = [name for tree in ("train", "detect") for name in options("experiment", tree) if "/" in name]
    assert drawn and trained and {name.partition("/")[0] for name in drawn + trained} == set(extras.PAPERS)


def test_files_of_settings_are_of_data_sets_that_are_registered():
    files = {path.stem for path in (PACKAGE / "configs" / "data").glob("*.yaml")}
    assert files and files <= set(DATASETS)


def test_the_page_of_the_index_has_whole_addresses_and_the_package_its_licence():
    links = re.findall(r"\]\(([^)\s]+)\)", (HOME / "README.md").read_text("utf-8"))
    assert links and all(link.startswith("https://") for link in links)
    assert set(PROJECT["urls"]) >= {"Repository", "Documentation"}
    assert (HOME / "LICENSE").read_text("utf-8") == (HOME.parent / "LICENSE").read_text("utf-8")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs git and a clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (HOME / name).is_file() and not name.startswith("tests/"):
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tree" / name).write_bytes((HOME / name).read_bytes())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "-w", str(tmp_path), str(tmp_path / "tree")], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert held == {path.relative_to(HOME / "src").as_posix() for path in files}
