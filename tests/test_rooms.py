"""The rooms of the package: those that the design page lists, importing one another in one direction."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import rankgrad

ROOT = Path(__file__).parents[1] / "src" / "rankgrad"


def test_every_public_name_is_listed_and_is_there_when_it_is_first_asked_for():
    public = {*rankgrad.__all__, "fit"}
    assert public <= {*dir(rankgrad)}
    for name in public - {"__version__"}:
        assert rankgrad.__getattr__(name) is getattr(rankgrad, name)
    with pytest.raises(AttributeError, match="losse"):
        rankgrad.losse  # noqa: B018 - that is the question


def test_the_top_of_the_package_is_small():
    long = [path.name for path in ROOT.glob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 15]
    assert len(long) <= 22, long


def rooms() -> set[str]:
    """Folders, and files of more than 15 lines, at the top of the package."""
    found = {path.parent.name + "/" for path in ROOT.glob("*/__init__.py")}
    long = (path for path in ROOT.glob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 15)
    return found | {path.name for path in long} - {"__init__.py"}


def test_the_design_page_lists_every_room_and_no_other():
    page = (ROOT.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    table = page[page.index("## Modules") : page.index("## Where does a change go?")]
    listed = re.findall(
        r"`(\w+(?:\.py|/))`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
    )
    assert sorted(listed) == sorted(rooms())


@cache
def imports() -> dict[tuple[str, str], list[str]]:
    """(room, room it imports) -> the names, also of imports inside functions."""
    there = {room.removesuffix("/").removesuffix(".py") for room in rooms()}
    found: dict[tuple[str, str], list[str]] = {}
    for path in ROOT.rglob("*.py"):
        inside = path.relative_to(ROOT).parts
        room = inside[0].removesuffix(".py")
        if room == "tasks" and len(inside) > 2:  # a kind of run; only the table of all kinds is above the others
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level < len(inside) or room not in there:
                continue  # of something else, or of the same room
            first = (node.module or "").split(".")[0]
            for other in [first] if first else [each.name for each in node.names]:
                if other in there and other != room:
                    found.setdefault((room, other), []).extend(each.name for each in node.names)
    return found


def test_rooms_import_one_another_in_one_direction():
    edges = set(imports())
    assert len(edges) > 100
    while edges:  # take away the rooms that nothing is imported into, until nothing is left
        above = {room for room, _ in edges} - {room for _, room in edges}
        assert above, f"a circle among {sorted({room for edge in edges for room in edge})}"
        edges = {edge for edge in edges if edge[0] not in above}


def test_no_room_imports_what_another_keeps_to_itself():
    private = {edge: [n for n in names if n.startswith("_") and n != "_version"] for edge, names in imports().items()}
    assert not any(private.values()), private


def test_folders_of_tests_are_called_after_the_rooms():
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()}
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
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
