"""What holds for each package of this clone beside the library: its version, its page, its files."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankgrad
from rankgrad.common.plugins import Plugin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[1]


class Package:
    """A package of this clone.

    Args:
        home: folder of pyproject.toml.
        version: of the imported package.
    """

    def __init__(self, home: Path, version: str) -> None:
        self.home, self.version = home, version
        self.project: dict[str, Any] = tomllib.loads((home / "pyproject.toml").read_text("utf-8"))["project"]
        self.entries: dict[str, dict[str, str]] = self.project.get("entry-points", {})
        self.folder = home / "src" / self.project["name"].replace("-", "_")

    def plugins(self) -> Iterator[Plugin]:
        """One for each entry point."""
        for group, entries in self.entries.items():
            for name, value in entries.items():
                yield Plugin(group.removeprefix("rankgrad."), name, value, self.project["name"], self.version)

    def check(self) -> None:
        """The library's version, whole addresses on the page of the index, the library's licence, all settings."""
        assert self.version == rankgrad.__version__
        below = "rankgrad" if self.project["name"] == "rankgrad-workbench" else "rankgrad-workbench"
        assert self.project["dependencies"][0] == f"{below}=={rankgrad.__version__}"
        links = re.findall(r"\]\(([^)\s]+)\)", (self.home / "README.md").read_text("utf-8"))
        assert links and all(link.startswith("https://") for link in links)
        assert set(self.project["urls"]) >= {"Repository", "Documentation"}
        assert (self.home / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
        brought = [each.folder() for each in self.plugins() if each.group == "configs"]
        assert brought == ([self.folder / "configs"] if self.entries else [])

    def check_wheel(self, out: Path) -> None:
        """The wheel, built below `out`, holds every file of the package and nothing else."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=self.home, capture_output=True, text=True, check=False)
        if listed.returncode:
            pytest.skip("needs git and a clone")
        for name in filter(None, listed.stdout.split("\0")):
            if (self.home / name).is_file() and not name.startswith("tests/"):
                (out / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
                (out / "tree" / name).write_bytes((self.home / name).read_bytes())
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-deps"]
        words = [*pip, "--no-build-isolation", "-w", str(out), str(out / "tree")]
        subprocess.run(words, check=True, capture_output=True)
        (wheel,) = out.glob("*.whl")
        held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        files = [path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert held == {path.relative_to(self.home / "src").as_posix() for path in files}
