"""What is published: one version, bounds that are tested, and a wheel with everything that the package reads."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import rankgrad

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


def bounds() -> dict[str, str]:
    """Package -> its lower bound, of everything that users install: the core and the extras but docs, dev, release."""
    text = PYPROJECT.partition("\n# The documentation site")[0].partition("[project]")[2]
    text += (ROOT / "packages" / "rankgrad-workbench" / "pyproject.toml").read_text("utf-8").partition("[project]")[2]
    return dict(re.findall(r'"([A-Za-z][\w-]*)>=([\d.]+)"', text))


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds():
    lines = (ROOT / "constraints-min.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert pinned == bounds() and len(pinned) > 20


def test_the_newest_versions_that_are_tested_are_within_the_bounds():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {name.lower(): version for name, _, version in (line.partition("==") for line in lines)}
    assert {name.lower() for name in bounds()} <= set(pinned)
    number = re.compile(r"\d+")
    for name, low in bounds().items():
        assert [*map(int, number.findall(pinned[name.lower()]))] >= [*map(int, number.findall(low))], name


def test_the_version_is_written_once_and_each_python_is_named():
    assert f'"{rankgrad.__version__}"' not in PYPROJECT and "rankgrad._version.__version__" in PYPROJECT
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", PYPROJECT)
    assert named == [f"3.{minor}" for minor in range(10, 15)] and f'requires-python = ">={named[0]}"' in PYPROJECT


def test_all_addresses_of_the_project_are_those_of_pyproject():
    home = re.search(r'Repository = "(.+)"', PYPROJECT)
    assert home is not None
    owner = home[1].rpartition("/")[0]
    for file in ("CITATION.cff", "README.md", "CONTRIBUTING.md", ".github/ISSUE_TEMPLATE/config.yml"):
        text = (ROOT / file).read_text("utf-8")
        assert set(re.findall(r"https://[\w.]+/[\w-]+/rankgrad\b", text)) <= {home[1]}, file
    assert all(address.startswith((owner, "https://rankgrad.")) for address in re.findall(r'= "(https:.+)"', PYPROJECT))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree(out))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


def tree(out: Path) -> Path:
    """The files that git has, in a folder of their own: a build leaves things where it runs."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs git and a clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/")):
            (out / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (out / "tree" / name).write_bytes((ROOT / name).read_bytes())
    return out / "tree"


def metadata(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "rankgrad").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == package
    assert "rankgrad/py.typed" in held
    assert sum(info.compress_size for info in wheel.infolist()) < 2**20


@pytest.mark.slow
def test_the_page_of_the_wheel_has_whole_addresses(wheel):
    read = metadata(wheel)
    links = re.findall(r"\]\(([^)\s]+)\)", read.get_payload())
    assert read["Version"] == rankgrad.__version__ and len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert [link for link in links if "/rankgrad/" in link and f"/v{rankgrad.__version__}/" not in link] == []
    assert {"Repository", "Documentation", "Issues", "Changelog"} == {
        entry.partition(",")[0] for entry in read.get_all("Project-URL")
    }


@pytest.mark.slow
def test_without_extras_torch_and_numpy_are_all_that_is_needed(wheel):
    core = [entry for entry in metadata(wheel).get_all("Requires-Dist") if "extra ==" not in entry]
    assert sorted(re.match(r"[\w-]+", entry)[0] for entry in core) == ["numpy", "torch"]
