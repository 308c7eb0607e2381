"""The size of the house: lines of code of each room, with a limit that a change must pay for."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

from test_rooms import LIBRARY, modules, room

BUDGET: dict[str, int] = json.loads(Path(__file__).with_name("budget.json").read_text(encoding="utf-8"))
#: Tokens that are no code.
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text: str) -> int:
    """Lines that hold code: no docstrings, comments and blank lines."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - prose)


def rooms() -> Counter[str]:
    """Room -> its lines of code."""
    found: Counter[str] = Counter()
    for parts, path in modules().items():
        found[room(parts)] += lines_of_code(path.read_text(encoding="utf-8"))
    return found


def test_lines_of_code_are_counted_without_prose():
    text = '"""Title."""\n\nimport os  # why\n\n\ndef f():\n    """What."""\n    # how\n    return """a\nb"""\n'
    assert lines_of_code(text) == 4


def test_no_room_is_larger_than_its_budget():
    found = rooms()
    limits = {name: limit for name, limit in BUDGET.items() if name not in ("library", "all")}
    larger = {name: (lines, limits.get(name, 0)) for name, lines in found.items() if lines > limits.get(name, 0)}
    assert not larger, "(lines, budget): delete something, or raise the budget in tests/budget.json and say why"
    assert set(limits) <= set(found), "a room of the budget does not exist"
    assert sum(found[name] for name in LIBRARY) <= BUDGET["library"] and sum(found.values()) <= BUDGET["all"]
