"""What a docstring names is there: each argument of its signature and no other, and attributes that the class has.

What users call has an example.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankgrad

MODULES = [
    found.name for found in pkgutil.walk_packages(rankgrad.__path__, "rankgrad.") if not found.name.endswith("__main__")
]
REFERENCE = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.rst"))
DIRECTIVE = re.compile(r"\.\. auto(module|class|function):: (\S+)")
ENTRY = re.compile(r" {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:")


def named(doc: str | None, section: str) -> list[str]:
    """The names of a section: `Args` or `Attributes`."""
    _, begins, rest = inspect.cleandoc(doc or "").partition(f"{section}:\n")
    lines = []
    for line in rest.splitlines() if begins else []:
        if line and not line.startswith(" "):
            break
        lines.append(line)
    return [name for line in lines if (entry := ENTRY.match(line)) for name in entry[1].split(", ")]


def objects(module: Any) -> Iterator[tuple[str, Any]]:
    """Classes, functions and methods that a module defines."""
    for name, each in vars(module).items():
        if getattr(each, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(each):
            yield name, each
            methods = vars(each).items()
            yield from ((f"{name}.{method}", called) for method, called in methods if inspect.isfunction(called))
        elif inspect.isfunction(each):
            yield name, each


def has(kind: type, name: str) -> bool:
    """Whether instances have an attribute: a field, a property, or one that a method sets."""
    return any(
        name in vars(base)
        or name in getattr(base, "__annotations__", {})
        or (base.__module__.startswith("rankgrad") and f"self.{name}" in inspect.getsource(base))
        for base in kind.__mro__
    )


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_name_what_is_there(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    for of, each in objects(module):
        if inspect.isclass(each):
            assert [one for one in named(each.__doc__, "Attributes") if not has(each, one)] == [], of
        arguments = {one.lstrip("*") for one in named(each.__doc__, "Args")}
        if not arguments:
            continue
        known = inspect.signature(each).parameters
        open_ended = any(one.kind is one.VAR_KEYWORD for one in known.values())
        assert open_ended or arguments <= set(known), f"{of}: {arguments - set(known)}"
        listed = {one.name for one in known.values() if one.name[0] != "_" and one.kind is not one.VAR_KEYWORD}
        missing = listed - arguments - {"self", "cls"}
        assert not missing, f"{of}: {missing}"


WITHOUT_EXAMPLE = {  # name -> why
    "rankgrad.adapters.cross_encoder.CrossEncoderLoss": "needs the files of a model, see docs/frameworks.md",
    "rankgrad_workbench.datasets.glyphs.load_glyphs": "draws 8436 images; docs/datasets.md calls it",
    "rankgrad_workbench.index.export.export": "needs a trained model; docs/finding-images.md calls it",
    "rankgrad_workbench.index.embed.embed_file": "needs a trained model; docs/finding-images.md calls it",
    "rankgrad_workbench.index.query.find": "needs a trained model; docs/finding-images.md calls it",
    "rankgrad_workbench.runs.compare.compare": "trains each run in a process of its own",
    "rankgrad_workbench.tasks.retrieval.task.train": "trains; docs/training.md calls it",
}


def shown(page: Path) -> Iterator[Any]:
    """What a page of the reference lists."""
    for kind, name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        place, _, last = (name, "", "") if kind == "module" else name.rpartition(".")
        module = importlib.import_module(place)
        own = [each for each, _ in objects(module) if each[0] != "_" and "." not in each]
        yield from (getattr(module, each) for each in ([last] if last else getattr(module, "__all__", own)))


def needs_example(each: Any) -> bool:
    """Whether users call it: functions, and classes with arguments. Errors and protocols are not called."""
    if not inspect.isclass(each):
        return inspect.isfunction(each)
    return (
        bool(named(each.__doc__, "Args"))
        and not issubclass(each, Exception)
        and not getattr(each, "_is_protocol", False)
    )


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in REFERENCE])
def test_what_users_call_has_an_example(page):
    try:
        listed = list(shown(page))
    except ImportError as error:
        pytest.skip(str(error))
    assert listed
    for each in filter(needs_example, listed):
        name = f"{each.__module__}.{each.__qualname__}"
        assert (">>>" in (each.__doc__ or "")) != (name in WITHOUT_EXAMPLE), name
