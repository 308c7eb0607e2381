"""The rooms of the package: a library that stands alone, a workbench beside it, and imports in one direction."""

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

ROOT = Path(__file__).parents[1] / "src" / "rankgrad"
#: The library: what a stranger reads first. It needs torch and numpy alone.
LIBRARY = {"common", "ranks", "losses", "metrics", "tables", "search", "batches", "evaluation", "scores", "testing"}
#: Rooms whose folders are rooms themselves.
FLOORS = {"tasks", "workbench"}
MOST_NAMES = 15


def test_every_public_name_is_listed_and_is_there_when_it_is_first_asked_for():
    public = {*rankgrad.__all__, "fit", "fit_search"}
    assert public <= {*dir(rankgrad)}
    for name in public - {"__version__"}:
        assert rankgrad.__getattr__(name) is getattr(rankgrad, name)
    with pytest.raises(AttributeError, match="losse"):
        rankgrad.losse  # noqa: B018 - that is the question


def test_the_top_of_the_package_is_small():
    assert len(top()) <= MOST_NAMES, sorted(top())


def top() -> set[str]:
    """What one sees first: folders, and files that are not dunder or private."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    return folders | {path.stem for path in ROOT.glob("*.py") if not path.stem.startswith("_")}


def room(parts: tuple[str, ...]) -> str:
    """The room of a module: its first name, below tasks and the workbench the first two."""
    return "/".join(parts[:2]) if parts[0] in FLOORS and len(parts) > 1 else parts[0]


def modules() -> dict[tuple[str, ...], Path]:
    """Names of a module below rankgrad -> its file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return {parts: path for parts, path in found.items() if parts and not parts[0].startswith("_")}


@cache
def imports() -> dict[tuple[str, str], list[str]]:
    """(room, room it imports) -> the names, also of imports inside functions."""
    there = modules()
    found: dict[tuple[str, str], list[str]] = {}
    for parts, path in there.items():
        package = parts if path.name == "__init__.py" else parts[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = (*package[: len(package) + 1 - node.level], *(node.module or "").split("."))
            base = tuple(name for name in base if name)
            for name in (each.name for each in node.names):
                target = (*base, name) if (*base, name) in there else base
                if target in there and room(target) != room(parts):
                    found.setdefault((room(parts), room(target)), []).append(name)
    return found


def test_the_library_imports_nothing_of_the_rest():
    climbing = {edge for edge in imports() if edge[0] in LIBRARY and edge[1] not in LIBRARY}
    assert not climbing and len({edge[0] for edge in imports()} & LIBRARY) >= 7


#: Adapters that stand on the library alone, so that their extra is enough.
OF_LIBRARY = ("sklearn", "boosting", "lightgbm", "xgboost")


@pytest.mark.parametrize("name", OF_LIBRARY)
def test_an_adapter_of_the_library_imports_nothing_else_of_ours(name):
    found = set()
    for node in ast.walk(ast.parse(modules()["adapters", name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 2:
            found |= {(node.module or each.name).split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {"adapters." + (node.module or "")}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            assert not any(each.split(".")[0] == "rankgrad" for each in names)
    assert found and found <= (LIBRARY - {"tables"}) | {f"adapters.{each}" for each in OF_LIBRARY}


ABSENT = ("omegaconf", "hydra", "lightning", "pandas", "pyarrow", "torchvision", "timm", "yaml", "jinja2", "matplotlib")
IMPORTED = """
import importlib, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Absent())
for name in {names}:
    importlib.import_module("rankgrad.adapters." + name)
ours = {{name.split(".")[1] for name in sys.modules if name.startswith("rankgrad.")}}
print(*sorted(ours & {{"tasks", "workbench", "models", "datasets"}}))
"""


def test_adapters_of_the_library_are_imported_where_no_package_of_training_is():
    names = [name for name in OF_LIBRARY if name == "boosting" or importlib.util.find_spec(name)]
    program = IMPORTED.format(absent=ABSENT, names=names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_a_task_imports_no_other_task():
    tasks = {f"tasks/{path.parent.name}" for path in ROOT.glob("tasks/*/__init__.py")}
    assert len(tasks) >= 2
    assert not [edge for edge in imports() if set(edge) <= tasks]


def test_rooms_import_one_another_in_one_direction():
    edges = set(imports())
    assert len(edges) > 100
    while edges:  # take away the rooms that nothing is imported into, until nothing is left
        above = {each for each, _ in edges} - {each for _, each in edges}
        assert above, f"a circle among {sorted({each for edge in edges for each in edge})}"
        edges = {edge for edge in edges if edge[0] not in above}


def test_no_import_climbs_to_the_tasks_or_to_what_is_made_of_them():
    def floor(name: str) -> int:
        return {"tasks": 1, "workbench/index": 2, "workbench/cli": 3}.get(re.sub("^tasks/.*", "tasks", name), 0)

    climbing = {edge for edge in imports() if floor(edge[0]) < floor(edge[1])}
    climbing -= {("adapters", "tasks/scores")}  # estimators stand on its parts
    assert not climbing and {floor(edge[0]) for edge in imports()} == {0, 1, 2, 3}


def test_no_room_imports_what_another_keeps_to_itself():
    private = {edge: [n for n in names if n.startswith("_") and n != "_version"] for edge, names in imports().items()}
    assert not any(private.values()), private


def test_the_design_page_lists_every_room_and_no_other():
    page = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    table = page[page.index("## Modules") : page.index("## Where does a change go?")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    listed = [name.rstrip("/") for name in re.findall(r"`([\w/]+)`", "\n".join(cells))]
    assert sorted(listed) == sorted({room(parts) for parts in modules()} - FLOORS)


def test_folders_of_tests_are_called_after_the_rooms():
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    rooms = {path.name for path in ROOT.rglob("*") if path.is_dir()}
    assert len(folders) > 15 and folders - rooms == {"benchmarks", "docs"}


def test_a_class_has_a_name_of_its_own():
    # except in adapters: they offer the same class for several frameworks
    places: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        if "adapters" not in path.relative_to(ROOT).parts:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert not {name: where for name, where in places.items() if len(where) > 1}
