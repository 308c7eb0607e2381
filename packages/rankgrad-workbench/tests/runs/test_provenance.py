"""The commit and the processor that runs and files of results name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import rankgrad
from rankgrad_workbench.runs import provenance


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_clone_has_its_commit_and_says_whether_the_code_was_changed(tmp_path, monkeypatch):
    package = tmp_path / "src" / "rankgrad"
    package.mkdir(parents=True)
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    assert (
        provenance.commit.__wrapped__() == rankgrad.__version__
    )  # installed below another project, which does not track it
    (tmp_path / "notes.txt").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    name = git(tmp_path, "rev-parse", "HEAD")[:12]
    (tmp_path / "notes.txt").write_text("more")  # a file of results, for example
    assert provenance.commit.__wrapped__() == name
    (package / "__init__.py").write_text("x = 1")
    assert provenance.commit.__wrapped__() == f"{name}{provenance.CHANGED}"


def test_without_git_it_is_the_version(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance.commit.__wrapped__() == rankgrad.__version__


def test_the_processor_has_a_name():
    assert provenance.made_by()[provenance.PROCESSOR]
