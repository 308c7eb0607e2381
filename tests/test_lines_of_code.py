"""The size of the house: lines of code of each package, with a limit that a change must pay for."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from functools import cache
from pathlib import Path

import pytest
from test_rooms import MOST_NAMES, PACKAGES, modules

#: Package -> most lines: now, and in the last release, which no later limit exceeds.
BUDGET: dict[str, dict[str, int]] = json.loads(Path(__file__).with_name("budget.json").read_text(encoding="utf-8"))
SCREEN = 60  # lines of a function
#: Tokens that are no code.
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(text: str, tree: ast.Module) -> set[int]:
    """Numbers of the lines that hold code: no docstrings, comments and blank lines."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return code - prose


@cache
def measured(path: Path) -> tuple[int, list[tuple[str, int]]]:
    """Lines of code of a file, and of each of its functions. A file is read once."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code = code_of(text, tree)
    functions = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return len(code), [(f.name, len(code.intersection(range(f.lineno, (f.end_lineno or 0) + 1)))) for f in functions]


def test_lines_of_code_are_counted_without_prose():
    text = '"""Title."""\n\nimport os  # why\n\n\ndef f():\n    """What."""\n    # how\n    return """a\nb"""\n'
    assert len(code_of(text, ast.parse(text))) == 4


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_is_larger_than_its_budget(package):
    lines = sum(measured(path)[0] for path in PACKAGES[package].rglob("*.py"))
    assert lines <= BUDGET["limit"][package], f"{lines} lines of code: a raise needs an equal cut elsewhere"


def test_a_budget_only_falls():
    higher = {name: limit for name, limit in BUDGET["limit"].items() if limit > BUDGET["last release"][name]}
    assert not higher, "above the last release: a raise needs an equal cut elsewhere"
    assert BUDGET["limit"].keys() == BUDGET["last release"].keys() == PACKAGES.keys()


@pytest.mark.parametrize("package", MOST_NAMES)
def test_no_function_is_longer_than_a_screen(package):
    found = [(*parts, *function) for parts, path in modules(package).items() for function in measured(path)[1]]
    assert found and not [function for function in found if function[-1] > SCREEN]
