"""What continuous integration runs exists here, and a person can run it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_make_targets_and_nothing_else(path):
    commands = [step["run"].split() for step in steps(path) if "run" in step]
    assert commands
    for program, target, *settings in commands:
        assert program == "make" and target in TARGETS
        assert all(re.fullmatch(r"[A-Z]+=\S*", setting) for setting in settings)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_an_end(path):
    read_only = {"contents": "read"}
    assert read(path)["permissions"] == read_only
    for job in read(path)["jobs"].values():
        asked = job.get("permissions", read_only)
        assert asked == read_only or "environment" in job, "more rights only where a release or a site goes out"
        assert "timeout-minutes" in job or "environment" in job


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_an_action_is_one_commit_whose_version_is_beside_it(path):
    used = re.findall(r"uses: (.*)", path.read_text("utf-8"))
    known = [line for line in used if re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]
    assert used and set(used) - set(known) <= {"pypa/gh-action-pypi-publish@release/v1"}


def test_what_runs_before_a_commit_is_what_make_check_runs():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert repo["repo"] == "local" and {hook["language"] for hook in repo["hooks"]} == {"system"}  # our own versions
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("check: $(READY)\n")[2].partition("\n\n")[0]
    checked = [line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in recipe.splitlines()]
    assert [hook["entry"] for hook in repo["hooks"]] == checked


def test_a_package_is_published_without_a_password():
    publish = read(ROOT / ".github" / "workflows" / "publish.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and set(publish["needs"]) == {"build", "test"}
    assert "secrets." not in "".join(path.read_text("utf-8") for path in WORKFLOWS)


def test_every_python_that_the_package_names_is_tested():
    matrix = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["newest"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert matrix == named


def installs(target: str, venv: Path) -> list[str]:
    """What `make TARGET` would install into an environment, as it is now: folders and extras."""
    words = ["make", "--dry-run", "--no-print-directory", target, f"VENV={venv}"]
    own = {name: value for name, value in os.environ.items() if "MAKE" not in name}  # not that of `make test`
    lines = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = [line.replace('"', "") for line in lines if " -m pip install " in line and "--upgrade" not in line]
    return [
        " ".join(word for word in line.split() if re.fullmatch(r"\.[./\w-]*|rankgrad\[\w+\]", word)) for line in lines
    ]


def test_what_a_target_needs_is_added_to_an_installed_package_which_is_not_taken_away_under_runs_that_train(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    both, others = ". ./packages/rankgrad-workbench", "./packages/rankgrad-detection ./papers"
    assert installs("demo", tmp_path) == [both]
    (tmp_path / ".installed").touch()
    assert installs("demo", tmp_path) == []
    for target in ("docs", "test", "test-library"):
        assert installs(target, tmp_path) == [f"rankgrad[dev] {others}"]
    (tmp_path / ".ready").touch()
    for target in ("demo", "docs", "test", "test-library"):
        assert installs(target, tmp_path) == []


def test_contributing_describes_each_target_of_the_workflows():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    run = {step["run"].split()[1] for path in WORKFLOWS for step in steps(path) if "run" in step} - {"check-tag"}
    assert [target for target in sorted(run) if f"`make {target}`" not in text] == []
    assert set(re.findall(r"`make ([\w-]+)", text)) <= TARGETS


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_is_whole(path):
    form = read(path)
    if path.stem == "config":
        assert {link["url"].rpartition("/security/")[1] for link in form["contact_links"]} == {"/security/"}
    else:
        assert {"name", "description", "body"} <= set(form)
        assert all("label" in part["attributes"] for part in form["body"])
