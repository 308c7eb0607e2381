"""The library, detectors, the laboratory and the benchmarks: which imports which, and by which names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Folder -> packages that it does without. The tests of pages and of benchmarks are about all.
APART = {
    "src": ("rankgrad_detection", "rankgrad_papers", "benchmarks"),
    "tests": ("rankgrad_detection", "rankgrad_papers", "benchmarks"),
    "packages": ("rankgrad_papers", "benchmarks"),
    "papers": ("benchmarks",),
}


def files(folder: str) -> list[Path]:
    others = {ROOT / "tests" / "docs", ROOT / "tests" / "benchmarks"}
    return [path for path in (ROOT / folder).rglob("*.py") if others.isdisjoint(path.parents)]


def imports(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """The parts of each name that is imported, wherever it is: of `from a.b import c` a, b and c."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(each.name.split(".")) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((*(node.module or "").split("."), each.name) for each in node.names)


@pytest.mark.parametrize("folder", APART)
def test_a_folder_imports_nothing_of_those_that_stand_on_it(folder):
    texts = {path: path.read_text("utf-8") for path in files(folder)}
    named = {path: ast.parse(text) for path, text in texts.items() if any(name in text for name in APART[folder])}
    found = {(path.name, name) for path, tree in named.items() for name in imports(tree) if name[0] in APART[folder]}
    assert len(texts) > 15 and not found


def test_code_that_tests_of_the_library_start_in_other_processes_does_without_the_other_packages_too():
    others = re.compile("rankgrad_(papers|detection)")
    named = [p.name for p in files("tests") if others.search(p.read_text("utf-8")) and p != Path(__file__)]
    assert sorted(named) == ["test_extras.py", "test_rooms.py"]  # about packages that are not there, and of all


@pytest.mark.parametrize("folder", ["papers", "packages/rankgrad-detection"])
def test_a_package_uses_no_name_of_the_library_that_begins_with_an_underscore(folder):
    found = set()
    for path in (ROOT / folder / "src").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = [name for name in imports(tree) if name[0] == "rankgrad"]
        found |= {(path.name, name) for name in names if any(part.startswith("_") for part in name)}
        modules = {name[-1] for name in names}
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
        found |= {(path.name, n.value.id, n.attr) for n in used if getattr(n.value, "id", None) in modules}
    assert not found


def test_names_of_test_files_are_unique():
    names = [
        path.name for folder in ("tests", "papers/tests", "packages") for path in (ROOT / folder).rglob("test_*.py")
    ]
    assert len(names) > 100 and sorted(names) == sorted({*names})
