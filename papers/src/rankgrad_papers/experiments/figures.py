"""The figures of `rankgrad paper-figure`: studies, curves over runs, retrieved examples, growth with the batch size."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from rankgrad.common.checks import closest
from rankgrad.common.text import aligned
from rankgrad_workbench.files import write_text
from rankgrad_workbench.settings import ConfigError

from .. import figure_style as style
from ..analysis import FIGURES, WORDS
from . import catalogue
from .catalogue import PAPERS, Entry
from .grid import grids

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Needs = Literal["nothing", "runs", "run", "results"]
# Need of a figure -> explanation for the user.
NEEDS: Mapping[Needs, str] = {
    "nothing": "nothing",
    "runs": "--runs DIR: a folder of rankgrad reproduce or compare, or a csv of results",
    "run": "--run RUN [RUN ...]: folders of finished runs, of any data set",
    "results": "--results FILE: of make bench ARGS='scaling --json FILE'",
}
LARGEST = 100_000  # numbers of an array in a json; of a larger array only the shape is written

_RETRIEVED = "The same queries in every run, with a frame and a sign for right and wrong neighbours."


@dataclass(frozen=True)
class Drawable:
    """One figure.

    Attributes:
        id: as in the catalogue.
        title: what it shows.
        sees: what to look for, one sentence.
        needs: see `NEEDS`.
        seconds: rough time on one core; None if it depends on the data.
        note: how it differs from the paper's figure; empty if it does not.
    """

    id: str
    title: str
    sees: str
    needs: Needs
    seconds: float | None = None
    note: str = ""

    @property
    def paper(self) -> str:
        """rambo, auc, pnp or roadmap."""
        return self.id.partition("/")[0]

    @property
    def stem(self) -> str:
        """Name of its files."""
        return self.id.replace("/", "-")


@dataclass(frozen=True)
class Drawn:
    """A figure and its numbers.

    Attributes:
        drawing: the figure.
        found: record of its numbers; `str` gives a readable text.
    """

    drawing: Figure
    found: Any


@dataclass(frozen=True)
class Growth:
    """Tables of a benchmark, also as text."""

    tables: Sequence[Any]
    text: str

    def __str__(self) -> str:
        """The tables."""
        return self.text


@cache
def drawables() -> Mapping[str, Drawable]:
    """Id -> figure, in the order of the catalogue."""
    by_id: dict[str, Drawable] = {}
    for entry in catalogue.entries():
        if entry.same_as is not None:
            continue
        if entry.id in FIGURES:
            study = FIGURES[entry.id]
            by_id[entry.id] = Drawable(entry.id, study.title, study.sees, "nothing", study.seconds, study.note)
        elif entry.how == "examples":
            by_id[entry.id] = Drawable(entry.id, entry.title, _RETRIEVED, "run")
        elif entry.how == "runs" and any(cell.varies for cell in grids()[entry.id].cells):
            by_id[entry.id] = Drawable(entry.id, entry.title, WORDS[entry.id]["sees"], "runs")
        elif entry.id == "rambo/table1":
            by_id[entry.id] = Drawable(
                entry.id, "growth of time and memory with the batch", WORDS[entry.id]["sees"], "results"
            )
    return by_id


def find(name: str) -> Drawable:
    """The figure with a name; if it repeats another figure, the other figure.

    Raises:
        ConfigError: the name is unknown or that of a table.
    """
    known = drawables()
    try:
        entry = catalogue.find(name)
    except ConfigError:
        raise ConfigError(f"no figure {name!r}{closest(name, known)} rankgrad paper-figure lists them") from None
    if entry.id not in known:
        raise ConfigError(f"{entry.id} ({entry.title}) is not a figure: {entry.way}")
    return known[entry.id]


def listing() -> str:
    """All figures as text, paper by paper: name, seconds, needs, content."""
    shown = drawables().values()
    needed = {need: text.partition(":")[0].split()[0] for need, text in NEEDS.items()}
    times = ["" if figure.seconds is None else f"{figure.seconds:g} s" for figure in shown]
    cells = [(f"  {f.id}", time, needed[f.needs], f.sees) for f, time in zip(shown, times, strict=True)]
    rows = aligned(cells, left=4).splitlines()
    lines = []
    for paper, title in PAPERS.items():
        lines += ["", title, *(row for figure, row in zip(shown, rows, strict=True) if figure.paper == paper)]
    lines += ["", "What a figure needs:", *(f"  {text}" for need, text in NEEDS.items() if need != "nothing")]
    return "\n".join(lines[1:])


def draw(figure: Drawable) -> Drawn:
    """Draw a figure that needs no data."""
    if figure.needs != "nothing":
        raise ConfigError(f"{figure.id} ({figure.title}) is drawn from results: {NEEDS[figure.needs]}")
    study = FIGURES[figure.id]
    computed = study.compute()
    return Drawn(study.draw(computed), computed)


def draw_runs(figure: Drawable, paths: Sequence[Path], **options: Any) -> Drawn:
    """Draw curves over runs; see `sweep.read` for the options."""
    from . import picture, sweep

    swept = sweep.read(paths, grids()[figure.id], **options)
    return Drawn(picture.curves(swept), swept)


def draw_examples(runs: Sequence[Path], **options: Any) -> Drawn:
    """Draw the retrieved images of runs; see `report.examples.compute` for the options."""
    from ..analysis import retrieved as examples

    shown = examples.compute(runs, **options)
    return Drawn(examples.draw(shown), shown)


def draw_growth(path: Path) -> Drawn:
    """Draw the suite `scaling` from a file of results of the benchmarks.

    Raises:
        ConfigError: the file does not exist, or does not contain this suite.
    """
    from ..timing import growth, results

    how = f"{NEEDS['results'].partition('of ')[2]} writes one"
    if not path.exists():
        raise ConfigError(f"{path} does not exist: {how}")
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))["suites"]["scaling"]["tables"]
        tables_read = [results.ResultTable(**table) for table in tables]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} has no suite scaling ({type(error).__name__}: {error}): {how}") from None
    return Drawn(growth.draw(tables_read), Growth(tables_read, "\n\n".join(map(results.as_text, tables_read))))


def make(entry: Entry, out: Path, dry_run: bool = False) -> str:
    """Draw an entry of the catalogue below `out`, as ID.png, .pdf and .json; returns its numbers as text."""
    figure = drawables()[entry.id]
    path = out / figure.stem
    if dry_run:
        return f"draws {figure.id} ({entry.time}) into {path}.png, .pdf, .json"
    drawn = draw(figure)
    for ending in (".png", ".pdf"):
        style.save(drawn.drawing, Path(f"{path}{ending}"))
    write_text(Path(f"{path}.json"), json_text(figure, drawn.found))
    return f"{text(figure, drawn.found)}\n\nwrote {path}.png, .pdf, .json"


def text(figure: Drawable, result: Any) -> str:
    """Title, numbers and note of a figure."""
    numbers = "\n".join(map(str, result)) if isinstance(result, list) else str(result)
    if numbers.startswith(f"{type(result).__name__}("):  # a record without its own __str__
        numbers = ""
    return "\n".join(part for part in (f"{figure.id}: {figure.title}", numbers, figure.note) if part)


def json_text(figure: Drawable, result: Any) -> str:
    """The numbers of a figure as json."""
    content = {"id": figure.id, "title": figure.title, "note": figure.note, "numbers": plain(result)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """A record as lists, mappings, numbers and texts. Functions are left out; of large arrays only the shape is kept.

    >>> import torch
    >>> plain({"a": torch.tensor([1.0, float("nan")]), "b": (2, "c")})
    {'a': [1.0, None], 'b': [2, 'c']}
    """
    if isinstance(value, Tensor):
        if value.numel() > LARGEST:
            return f"{' x '.join(map(str, value.shape))} numbers, left out"
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return plain({name: each for name, each in fields.items() if isinstance(each, Tensor) or not callable(each)})
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (bool, int, str, type(None))) else str(value)
