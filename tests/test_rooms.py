"""The rooms of the packages: a library that stands alone, a workbench beside it, and imports in one direction."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import rankgrad

ROOT = Path(__file__).parents[1]
LIBRARY, WORKBENCH = "rankgrad", "rankgrad_workbench"
#: Package -> its folder.
PACKAGES = {
    LIBRARY: ROOT / "src" / LIBRARY,
    WORKBENCH: ROOT / "packages" / "rankgrad-workbench" / "src" / WORKBENCH,
    "rankgrad_detection": ROOT / "packages" / "rankgrad-detection" / "src" / "rankgrad_detection",
    "rankgrad_papers": ROOT / "papers" / "src" / "rankgrad_papers",
}
#: Package -> most names on its first floor.
MOST_NAMES = {LIBRARY: 10, WORKBENCH: 12}
#: A room whose folders are rooms themselves.
FLOOR = "tasks"
#: Public names that are found in packages beside the library.
ELSEWHERE = {"datasets", "detection", "fit", "fit_scores", "fit_search", "trec"}


def test_every_public_name_is_listed_and_is_there_when_it_is_first_asked_for():
    public = {*rankgrad.__all__, *(ELSEWHERE - {"detection"})}
    assert public <= {*dir(rankgrad)}
    for name in public - {"__version__"}:
        assert rankgrad.__getattr__(name) is getattr(rankgrad, name)
    with pytest.raises(AttributeError, match="losse"):
        rankgrad.losse  # noqa: B018 - that is the question


@pytest.mark.parametrize("package", MOST_NAMES)
def test_the_first_floor_of_a_package_is_small(package):
    folder = PACKAGES[package]
    names = {path.parent.name for path in folder.glob("*/__init__.py")}
    names |= {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert len(names) <= MOST_NAMES[package], sorted(names)


def room(parts: tuple[str, ...]) -> str:
    """The room of a module: its first name, of a task the first two."""
    return "/".join(parts[:2]) if parts[0] == FLOOR and len(parts) > 1 else parts[0]


@cache
def modules(package: str) -> dict[tuple[str, ...], Path]:
    """Names of a module below a package -> its file."""
    found = {}
    for path in PACKAGES[package].rglob("*.py"):
        parts = path.relative_to(PACKAGES[package]).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return {parts: path for parts, path in found.items() if parts and not parts[0].startswith("_")}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(package: str) -> dict[tuple[str, str], list[str]]:
    """(room, room of the package that it imports) -> the names, also of imports inside functions."""
    there = modules(package)
    found: dict[tuple[str, str], list[str]] = {}
    for parts, path in there.items():
        inside = parts if path.name == "__init__.py" else parts[:-1]
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = (*inside[: len(inside) + 1 - node.level], *(node.module or "").split("."))
            base = tuple(name for name in base if name)
            for name in (each.name for each in node.names):
                target = (*base, name) if (*base, name) in there else base
                if target in there and room(target) != room(parts):
                    found.setdefault((room(parts), room(target)), []).append(name)
    return found


def test_the_library_names_the_other_packages_only_where_they_are_found():
    named = re.compile(r"rankgrad_(workbench|detection|papers)")
    found = {
        path.relative_to(PACKAGES[LIBRARY]).as_posix()
        for path in PACKAGES[LIBRARY].rglob("*.py")
        if named.search(path.read_text("utf-8"))
    }
    assert found == {"__init__.py", "__main__.py", "common/extras.py"}  # which says what to install


ABSENT = ("omegaconf", "hydra", "lightning", "pandas", "pyarrow", "torchvision", "timm", "yaml", "jinja2", "matplotlib")
ABSENT = (*ABSENT, "filelock", WORKBENCH, "rankgrad_detection", "rankgrad_papers")
IMPORTED = """
import importlib, sys

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {absent} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
for name in {names}:
    importlib.import_module(name)
"""
#: Adapters of frameworks that bring none of the absent packages -> the framework.
LIGHT = {"sklearn": "sklearn", "boosting": "numpy", "lightgbm": "lightgbm", "xgboost": "xgboost"}


def test_the_library_and_its_light_adapters_are_imported_where_no_package_of_training_is():
    own = [".".join((LIBRARY, *parts)) for parts in modules(LIBRARY) if parts[0] != "adapters"]
    light = [f"{LIBRARY}.adapters.{name}" for name, needs in LIGHT.items() if importlib.util.find_spec(needs)]
    program = IMPORTED.format(absent=ABSENT, names=[*own, *light])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert len(own) > 60 and done.returncode == 0, done.stdout + done.stderr


def test_a_task_imports_no_other_task():
    tasks = {f"tasks/{path.parent.name}" for path in PACKAGES[WORKBENCH].glob("tasks/*/__init__.py")}
    assert len(tasks) >= 3
    assert not [edge for edge in imports(WORKBENCH) if set(edge) <= tasks]


@pytest.mark.parametrize(("package", "least"), [(LIBRARY, 15), (WORKBENCH, 45)])
def test_rooms_import_one_another_in_one_direction(package, least):
    edges = set(imports(package))
    assert len(edges) > least
    while edges:  # take away the rooms that nothing is imported into, until nothing is left
        above = {each for each, _ in edges} - {each for _, each in edges}
        assert above, f"a circle among {sorted({each for edge in edges for each in edge})}"
        edges = {edge for edge in edges if edge[0] not in above}


def test_no_import_of_the_workbench_climbs_to_the_tasks_or_to_what_is_made_of_them():
    def floor(name: str) -> int:
        return {"tasks": 1, "index": 2, "cli": 3}.get(name.partition("/")[0], 0)

    edges = imports(WORKBENCH)
    assert not {edge for edge in edges if floor(edge[0]) < floor(edge[1])}
    assert {floor(edge[0]) for edge in edges} == {0, 1, 2, 3}


@pytest.mark.parametrize("package", MOST_NAMES)
def test_no_room_imports_what_another_keeps_to_itself(package):
    private = {e: [n for n in names if n.startswith("_") and n != "_version"] for e, names in imports(package).items()}
    assert not any(private.values()), private


def test_the_design_page_lists_every_room_and_no_other():
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = page[page.index("## Modules") : page.index("## Where does a change go?")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    listed = [name.rstrip("/") for name in re.findall(r"`([\w/]+)`", "\n".join(cells))]
    rooms = {room(parts) for package in MOST_NAMES for parts in modules(package)}
    assert sorted(listed) == sorted(rooms)


def test_folders_of_tests_are_called_after_the_rooms():
    folders = {
        path.parent.name for tests in ("tests", "packages/*/tests") for path in ROOT.glob(f"{tests}/*/test_*.py")
    }
    rooms = {path.name for package in PACKAGES.values() for path in package.rglob("*") if path.is_dir()}
    assert len(folders) > 15 and folders - rooms == {"benchmarks", "docs"}


def test_a_class_has_a_name_of_its_own():
    # except in adapters: they offer the same class for several frameworks
    places: dict[str, list[str]] = {}
    for package in MOST_NAMES:
        for parts, path in modules(package).items():
            for node in parsed(path).body if parts[0] != "adapters" else ():
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(path.as_posix())
    assert not {name: where for name, where in places.items() if len(where) > 1}
