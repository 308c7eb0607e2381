"""A search without a download: the first sentence of a docstring asks for the rest of it.

    python -m rankgrad_papers.studies.docstrings FOLDER

The docstrings are those of public functions and classes of numpy, scipy and scikit-learn, as they are installed. Their
files are read and not run. FOLDER gets a folder for each of three folds, 1 to 3, in the layout of BEIR: all have the
same documents and questions, and the test of a fold has the questions of a third of the modules (scipy.stats, ...). So
a model is judged on modules that it was not trained on.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("numpy", "scipy", "sklearn")
LEFT_OUT = ("tests", "externals", "_lib", "_utils", "_typing", "_loss", "f2py", "distutils", "testing", "conftest")
PAIRS, FOLDS = 1000, 3
LONGEST = 1500  # characters of a document
SHORTEST = (20, 100)  # characters of a question, and of a document


@dataclass(frozen=True)
class Described:
    """A public function or class.

    Attributes:
        name: with its module.
        module: package and sub-package, such as scipy.stats.
        question: first paragraph of its docstring.
        document: the rest.
    """

    name: str
    module: str
    question: str
    document: str


def described(package: str) -> Iterator[Described]:
    """The public functions and classes of an installed package that have a docstring of several paragraphs."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    for file in sorted(folder.rglob("*.py")):
        parts = (package, *file.relative_to(folder).with_suffix("").parts)
        if {*parts} & {*LEFT_OUT}:
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                question, _, document = (ast.get_docstring(node) or "").strip().partition("\n\n")
                question, document = (" ".join(text.split()) for text in (question, document))
                if len(question) >= SHORTEST[0] and len(document) >= SHORTEST[1]:
                    module = ".".join(parts[:2]) if len(parts) > 2 else package
                    yield Described(".".join((*parts, node.name)), module, _words(question), document[:LONGEST])


def _words(text: str) -> str:
    """A text without the marks of reStructuredText."""
    return re.sub(r":\w+:|[`*]", "", text)


def sample(pairs: int = PAIRS) -> list[Described]:
    """Some of the functions and classes, drawn by a seed. No question and no document occurs twice."""
    found = {each.question: each for package in PACKAGES for each in described(package)}
    found = {each.document: each for each in found.values()}
    kept = sorted(found.values(), key=lambda each: each.name)
    random.Random(0).shuffle(kept)
    return kept[:pairs]


def folds_of(rows: Sequence[Described], folds: int = FOLDS) -> dict[str, int]:
    """Module -> its fold, 1 .. folds. The largest module goes first, each to the fold with the fewest questions."""
    sizes = {module: sum(each.module == module for each in rows) for module in sorted({each.module for each in rows})}
    filled, found = [0] * folds, {}
    for module in sorted(sizes, key=lambda name: -sizes[name]):
        fold = filled.index(min(filled))
        filled[fold] += sizes[module]
        found[module] = fold + 1
    return found


def write(folder: Path, rows: Sequence[Described]) -> None:
    """Write a folder of BEIR for each fold."""
    of_fold = folds_of(rows)
    for fold in range(1, FOLDS + 1):
        place = folder / str(fold)
        (place / "qrels").mkdir(parents=True, exist_ok=True)
        for name, texts in (
            ("corpus", [each.document for each in rows]),
            ("queries", [each.question for each in rows]),
        ):
            lines = [json.dumps({"_id": each.name, "text": text}) for each, text in zip(rows, texts, strict=True)]
            (place / f"{name}.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        for part, inside in (("train", False), ("test", True)):
            judged = [f"{each.name}\t{each.name}\t1" for each in rows if (of_fold[each.module] == fold) == inside]
            text = "\n".join(["query-id\tcorpus-id\tscore", *judged, ""])
            (place / "qrels" / f"{part}.tsv").write_text(text, encoding="utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Write the folders, and say how many questions each fold has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    given = parser.parse_args(words)
    rows = sample()
    write(given.folder, rows)
    for fold in range(1, FOLDS + 1):
        modules = [module for module, own in folds_of(rows).items() if own == fold]
        questions = sum(each.module in modules for each in rows)
        print(f"{given.folder / str(fold)}: {questions} test questions of {', '.join(sorted(modules))}")


if __name__ == "__main__":
    main()
