"""Writes the tables of the pages on data sets from their registries: python docs/make_datasets.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from rankgrad_papers import datasets as of_papers
from rankgrad_papers.datasets.official import Official
from rankgrad_workbench.datasets import DATASETS

ROOT = Path(__file__).parents[1]
PAGES = {ROOT / "docs" / "datasets.md": ("names",), ROOT / "papers" / "docs" / "datasets.md": ("papers", "published")}


def tables() -> dict[str, list[list[str]]]:
    """Name of a table -> its rows, the head first."""

    def named(loaders: Mapping[str, Callable[..., object]]) -> list[list[str]]:
        return [["`data=`", "what"], *([f"`{name}`", _first_line(load.__doc__)] for name, load in loaders.items())]

    head = ["`data=`", "what", "train: images / classes", "test", "super-labels", "protocol", "R@K in papers"]
    published = [head, *(_row(name, official) for name, official in of_papers.OFFICIAL.items())]
    return {"names": named(DATASETS), "papers": named(of_papers.DATASETS), "published": published}


def _first_line(text: str | None) -> str:
    return (text or "").splitlines()[0]


def _row(name: str, official: Official) -> list[str]:
    counts = {part: f"{_number(images)} / {_number(classes)}" for part, (images, classes) in official.counts.items()}
    train, test = counts.pop("train"), ", ".join(f"{part} {count}" for part, count in counts.items())
    return [
        f"`{name}`",
        official.title,
        train,
        test.removeprefix("test ") if len(counts) == 1 else test,
        "–" if official.super_labels is None else str(official.super_labels),
        ", ".join(f"`{protocol}`" for protocol in official.protocols),
        ", ".join(map(str, official.ks)),
    ]


def _number(count: int) -> str:
    """Thousands set apart by a narrow gap, as the page has them."""
    return f"{count:,}".replace(",", " ")


def written(path: Path, page: str) -> str:
    """The page with its tables as they should be."""
    for name in PAGES[path]:
        head, *rows = tables()[name]
        lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
        begin, end = f"<!-- {name}: made by docs/make_datasets.py -->", f"<!-- end of {name} -->"
        block = "\n".join([begin, *lines, end])
        page, found = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, block=block: block, page, flags=re.DOTALL
        )
        if found != 1:
            raise ValueError(f"{path} needs the lines {begin!r} and {end!r} once each")
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path, path.read_text(encoding="utf-8")), encoding="utf-8")
