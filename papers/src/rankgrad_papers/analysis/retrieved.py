"""The retrieved images of finished runs for the same queries, as a figure (RaMBO Fig. 4; PNP 7; ROADMAP 6, 13 to 15).

The authors of papers choose their queries by hand. Here queries are drawn at random with a seed: from all queries, from
those that every run gets wrong, or from those that some runs get right and others wrong. The figure says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad import search
from rankgrad.common.checks import one_of
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.report.content import short_names
from rankgrad_workbench.runs.folder import Run, check_kind

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rankgrad_workbench.datasets.base import Table

Choice = Literal["random", "failures", "differ"]
# Explanation of each choice, printed under the figure.
CHOICES: Mapping[str, str] = {
    "random": "drawn from all",
    "failures": "drawn from those whose nearest image is wrong in every run",
    "differ": "drawn from those whose nearest image is right in some runs and wrong in others",
}
SIDE = 160  # pixels: the longer side of a drawn image


@dataclass(frozen=True)
class Item:
    """One retrieved image.

    Attributes:
        row: of the test split.
        class_name: its class.
        score: cosine to the query.
        rank: 1 is the nearest.
        correct: whether it has the query's class.
    """

    row: int
    class_name: str
    score: float
    rank: int
    correct: bool


@dataclass(frozen=True)
class Query:
    """One query and its retrieved images in each run.

    Attributes:
        row: of the test split.
        name: name of the image.
        class_name: its class.
        items: per run, the nearest images, best first.
        first_right: per run, rank of the first image of the query's class.
    """

    row: int
    name: str
    class_name: str
    items: tuple[tuple[Item, ...], ...]
    first_right: tuple[int, ...]


@dataclass(frozen=True)
class RetrievedExamples:
    """The retrieved images of every run for the same queries.

    Attributes:
        data: name of the data set.
        runs: names of the runs.
        chosen: key of `CHOICES`.
        among: number of queries from which these were drawn.
        seed: of the random choice.
        queries: in the order in which they were drawn.
        image: row of the test split -> uint8 [channel, height, width].
    """

    data: str
    runs: tuple[str, ...]
    chosen: str
    among: int
    seed: int
    queries: tuple[Query, ...]
    image: Callable[[int], Tensor]

    def __str__(self) -> str:
        """A line per query and run: + (right) or - (wrong) in order of rank, and the rank of the first right image."""
        width = max(len(name) for name in self.runs)
        lines = [f"{len(self.queries)} queries of {self.data}, {_said(self)} ({self.among}), seed {self.seed}"]
        for query in self.queries:
            for name, items, first in zip(self.runs, query.items, query.first_right, strict=True):
                signs = "".join("+" if item.correct else "-" for item in items)
                lines.append(f"{query.name}  {name:{width}}  {signs}  first right: {first}")
        return "\n".join(lines)


def compute(
    runs: Sequence[Path],
    *,
    choice: Choice = "random",
    queries: int = 4,
    k: int = 8,
    seed: int = 0,
    data_root: Path | None = None,
    trust: Sequence[str] = (),
) -> RetrievedExamples:
    """Read the embeddings of finished runs and find the nearest images of some queries.

    Args:
        runs: folders; all runs must have the same test set.
        choice: see `CHOICES`.
        queries: largest number of queries.
        k: items per query.
        seed: of the random choice.
        data_root: folder of the images; None: the folder in the settings of the run.
        trust: packages whose classes the settings may name, see `config.load`.

    Raises:
        ValueError: no run is given, a run is not finished or of another kind, the test sets differ, or no query fits
            the choice.
    """
    from rankgrad_workbench.datasets.base import Table
    from rankgrad_workbench.settings import load, replaced
    from rankgrad_workbench.tasks.retrieval.building import load_table
    from rankgrad_workbench.tasks.retrieval.settings import settings_of

    one_of(choice, "choice", (*CHOICES,))
    if not runs or queries < 1 or k < 1:
        raise ValueError(f"need at least one run, query and item; got {len(runs)}, {queries} and {k}")
    for folder in runs:
        check_kind(folder, "retrieval")
        if not Run(folder).finished:
            raise ValueError(f"{folder} is not a finished run: give the folder of a finished run of rankgrad train")
    config = load(Run(runs[0]).config, trust)
    if data_root is not None:
        root = str(data_root.absolute())
        config = replaced(config, {"data.root": root, "data.load.root": root})
    table = load_table(settings_of(config)).select(config.evaluation.split)
    if not isinstance(table, Table):
        raise ValueError(f"this figure needs images, but {table.name} has {table.takes}: use rankgrad report for them")
    embedded = [_embeddings(folder, table) for folder in runs]
    names = short_names([folder.absolute() for folder in runs])
    return among(table, embedded, names, choice=choice, queries=queries, k=k, seed=seed)


def among(
    table: Table,
    embeddings: Sequence[Tensor],
    names: Sequence[str],
    *,
    choice: Choice = "random",
    queries: int = 4,
    k: int = 8,
    seed: int = 0,
) -> RetrievedExamples:
    """`compute` for given embeddings.

    Args:
        table: the images; its protocol decides which are queries and which are the gallery.
        embeddings: per run, [image, dim] float in the order of the table.
        names: per run.
        choice: see `CHOICES`.
        queries: largest number of queries.
        k: items per query.
        seed: of the random choice.

    Raises:
        ValueError: no query fits the choice.
    """
    from rankgrad_workbench.datasets.base import ImageSet
    from rankgrad_workbench.datasets.protocols import trials

    trial = trials(table)[0]
    asked, gallery = trial.query, trial.query if trial.gallery is None else trial.gallery
    label = table.label
    others = torch.bincount(label[gallery], minlength=int(label.max()) + 1)[label[asked]]
    asked = asked[others > (1 if trial.gallery is None else 0)]  # a query needs a relevant item
    units = [F.normalize(each.float(), dim=1) for each in embeddings]

    def nearest(unit: Tensor, rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
        most = min(most, len(gallery) - int(trial.gallery is None))
        scores, columns = search.topk(unit[rows], unit[gallery], most, ids=rows, ref_ids=gallery)
        return scores, gallery[columns]

    if choice != "random":
        right = torch.stack([label[nearest(unit, asked, 1)[1].squeeze(1)] == label[asked] for unit in units])
        asked = asked[~right.any(0) if choice == "failures" else right.any(0) & ~right.all(0)]
    if not len(asked):
        hint = "choose random" if len(units) > 1 or choice == "failures" else "give two runs that differ, or random"
        raise ValueError(f"{table.name} has no query for choice={choice!r} ({CHOICES[choice]}): {hint}")
    drawn = torch.randperm(len(asked), generator=torch.Generator().manual_seed(seed))[:queries]
    rows = asked[drawn]
    lists = [nearest(unit, rows, k) for unit in units]
    first = [_first_right(unit, rows, gallery, label) for unit in units]
    images = ImageSet(table)
    return RetrievedExamples(
        data=table.name,
        runs=tuple(names),
        chosen=choice,
        among=len(asked),
        seed=seed,
        queries=tuple(
            Query(
                row,
                table.names[row],
                table.class_names[int(label[row])],
                tuple(_items(table, row, scores[n], items[n]) for scores, items in lists),
                tuple(int(ranks[n]) for ranks in first),
            )
            for n, row in enumerate(rows.tolist())
        ),
        image=lambda row: images[row][0],
    )


def _items(table: Table, query: int, scores: Tensor, rows: Tensor) -> tuple[Item, ...]:
    wanted = int(table.label[query])
    return tuple(
        Item(row, table.class_names[int(table.label[row])], score, rank, int(table.label[row]) == wanted)
        for rank, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True), 1)
    )


def _first_right(unit: Tensor, rows: Tensor, gallery: Tensor, label: Tensor) -> Tensor:
    """[query] rank of the first relevant item; of equal scores the first row of the gallery is ranked higher."""
    own = search.Candidates(ids=rows, ref_ids=gallery)
    ranks = search.rank_relevant(unit[rows], label[rows], unit[gallery], label[gallery], own)
    first = torch.full((len(rows),), math.inf, dtype=ranks.index.rank.dtype)
    return first.scatter_reduce(0, ranks.index.query.cpu(), ranks.index.rank.cpu(), "amin")


def _embeddings(folder: Path, table: Table) -> Tensor:
    """[image, dim] in the order of the table."""
    file = read_npz(folder / "embeddings.npz", "names", "embeddings")
    parts = [(file["names"], file["embeddings"])]
    if "ref_names" in file:
        parts.append((file["ref_names"], file["ref_embeddings"]))
    names = [str(name) for part, _ in parts for name in part]
    values = torch.from_numpy(np.concatenate([part for _, part in parts]))
    place = {name: row for row, name in enumerate(names)}
    if len(place) != len(names) or set(place) != set(table.names):
        raise ValueError(
            f"{folder} was evaluated on other images than the {len(table)} of {table.name}: all runs must have the "
            "same test set. If its images have moved, give their folder with --data-root"
        )
    return values[[place[name] for name in table.names]]


@style.styled
def draw(results: RetrievedExamples) -> Figure:
    """A row per query and run: the query, then its nearest images with rank and cosine.

    Right images have a solid green frame and a tick; wrong ones have a dashed vermilion frame and a cross. Grey images
    that are mostly black are inverted, so that ink is dark on white.
    """
    from matplotlib.lines import Line2D

    most = max(len(items) for query in results.queries for items in query.items)
    several = len(results.runs) > 1
    left, right, gap, below, between = 0.24 if several else 0.04, 0.3, 0.1, 0.17, 0.1
    tile = min((style.TWO - left - right - gap) / (most + 1), 0.95)
    row_height, rows = tile + below, len(results.queries) * len(results.runs)
    head, foot = 0.05, 0.42
    height = head + rows * row_height + (len(results.queries) - 1) * between + foot
    drawing = style.figure(style.TWO, height)
    drawing.set_layout_engine("none")
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, style.TWO), ylim=(0, height))
    axes.set_axis_off()
    top = height - head
    for query in results.queries:
        for run, items in enumerate(query.items):
            y = top - tile
            if run == 0:
                _image(axes, results.image(query.row), left, y, tile)
                _frame(axes, left, y, tile, style.BLACK, "-")
                axes.text(left + tile / 2, y - 0.03, "query", ha="center", va="top", fontsize=style.SMALL)
            if several:
                axes.text(0.12, y + tile / 2, _short(results.runs[run], tile), rotation=90, ha="center", va="center")
            for item in items:
                x = left + gap + item.rank * tile
                colour, dash = (style.RELEVANT, "-") if item.correct else (style.IRRELEVANT, (0, (3, 1.5)))
                _image(axes, results.image(item.row), x, y, tile)
                _frame(axes, x, y, tile, colour, dash)
                text = f"{item.rank} {'✓' if item.correct else '✗'} {item.score:.2f}"
                axes.text(x + tile / 2, y - 0.03, text, ha="center", va="top", fontsize=style.SMALL, color=colour)
            if not any(item.correct for item in items):
                text = f"✓ at {query.first_right[run]}"
                x = style.TWO - 0.14
                axes.text(x, y + tile / 2, text, rotation=90, ha="center", va="center", fontsize=style.SMALL)
            top -= row_height
        top -= between
    handles = [
        Line2D([], [], color=style.RELEVANT, linewidth=1.8, label="✓ right"),
        Line2D([], [], color=style.IRRELEVANT, linewidth=1.8, linestyle=(0, (3, 1.5)), label="✗ wrong"),
    ]
    drawing.legend(handles=handles, loc="lower right", ncols=2, borderaxespad=0.3)
    text = f"{results.data}: queries {_said(results)}\n({results.among}), seed {results.seed}; rank and cosine"
    axes.text(left, 0.06, text, va="bottom", linespacing=1.3)
    return drawing


def _said(results: RetrievedExamples) -> str:
    """The explanation of the choice of queries."""
    text = CHOICES[results.chosen]
    return text if len(results.runs) > 1 else text.removesuffix(" in every run")


def _short(name: str, inches: float) -> str:
    """The name, cut to the letters that fit in this length."""
    most = max(int(inches / 0.062), 6)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _image(axes: Any, image: Tensor, x: float, y: float, side: float) -> None:
    """Draw an image inside a square; the aspect ratio is kept."""
    height, width = image.shape[-2:]
    longest = max(height, width)
    if longest > SIDE:
        size = (max(round(height * SIDE / longest), 1), max(round(width * SIDE / longest), 1))
        image = F.interpolate(image[None].float(), size, mode="area")[0].round().to(torch.uint8)
    if len(image) == 1:
        pixels = image[0].numpy()
        pixels = 255 - pixels if pixels.mean() < 100 else pixels
        shown: Any = {"cmap": "gray", "vmin": 0, "vmax": 255}
    else:
        pixels, shown = image.permute(1, 2, 0).numpy(), {}
    inner = side - 0.1  # room for frames
    w, h = inner * width / longest, inner * height / longest
    left, low = x + (side - w) / 2, y + (side - h) / 2
    axes.imshow(pixels, extent=(left, left + w, low, low + h), aspect="auto", interpolation="antialiased", **shown)


def _frame(axes: Any, x: float, y: float, side: float, colour: str, dash: Any) -> None:
    from matplotlib.patches import Rectangle

    corner, inner = (x + 0.03, y + 0.03), side - 0.06
    width = 1.8 if colour != style.BLACK else 0.8
    axes.add_patch(Rectangle(corner, inner, inner, fill=False, edgecolor=colour, linestyle=dash, linewidth=width))
