"""The growth of time and memory with the batch, the length of a list and the number of lists, as one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import figure_style as style
from ..figure_style import check_format
from .results import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BATCH", "LENGTH", "LISTS", "MEMORY", "STYLES", "TIME", "check_format", "draw", "figure", "titles"]

BATCH, LENGTH, LISTS = "the batch", "the length of a list", "the number of lists"
LABELS = {BATCH: "batch size B", LENGTH: "items n of a list", LISTS: "lists of 1 000 items"}


def titles(axis: str) -> tuple[str, str]:
    """The titles of the tables of time and of memory.

    >>> titles(BATCH)
    ('Growth with the batch: time, ms', 'Growth with the batch: peak memory, MiB')
    """
    return f"Growth with {axis}: time, ms", f"Growth with {axis}: peak memory, MiB"


TIME, MEMORY = titles(BATCH)

# Our losses have solid lines; formulas of papers and code of others have dashed lines and hollow markers.
STYLES: dict[str, tuple[str, str, str, str]] = {
    "supap": ("SupAP", style.BLUE, "o", "-"),
    "smooth_ap": ("Smooth-AP", style.VERMILION, "s", "-"),
    "rambo_ap": ("RaMBO AP", style.GREEN, "D", "-"),
    "fastap": ("FastAP", style.PURPLE, "v", "-"),
    "supap as printed": ("SupAP as printed", style.BLUE, "o", "--"),
    "smooth_ap as printed": ("Smooth-AP as printed", style.VERMILION, "s", "--"),
    "PML SmoothAPLoss": ("Smooth-AP, PML", style.ORANGE, "^", "--"),
    "GEMM": ("matrix product", style.GREY, "X", ":"),
    "softmax, tiles": ("softmax by tiles", style.GREEN, "D", "-"),
    "softmax, matrix": ("softmax, one matrix", style.GREEN, "D", "--"),
    "supap, tiles": ("SupAP by tiles", style.BLUE, "o", "-"),
    "supap, matrix": ("SupAP, one matrix", style.BLUE, "o", "--"),
    "softmax": ("softmax", style.GREEN, "D", "-"),
    "lambda": ("LambdaLoss, k=10", style.PURPLE, "v", "-"),
    "soft_rank": ("soft_rank", style.ORANGE, "^", "-"),
}


def figure(tables: Sequence[ResultTable], path: Path) -> None:
    """Draw the tables of the suites `scaling` or `growth` into a file.

    Args:
        tables: results of the suite.
        path: file to write. Its ending chooses the format: svg, png or pdf.

    Raises:
        ValueError: the file has another ending.
    """
    check_format(path)
    style.save(draw(tables), path)


@style.styled
def draw(tables: Sequence[ResultTable]) -> Figure:
    """Time and memory, both on logarithmic axes, exponents in the legend; a row of two panels for each axis."""
    by_title = {table.title: table for table in tables}
    axes_of = [axis for axis in LABELS if titles(axis)[0] in by_title]
    drawing = style.figure(style.TWO, 3.9 * len(axes_of))
    panels = drawing.subplots(len(axes_of), 2, squeeze=False)
    for row, axis in zip(panels, axes_of, strict=True):
        for axes, title, label in zip(row, titles(axis), ("time of a step, ms", "peak memory, MiB"), strict=True):
            _panel(axes, by_title[title], label, LABELS[axis])
            axes.set_title(label.partition(" ")[0] if label.startswith("time") else "memory")
    style.letters([*panels.flat])
    return drawing


def _panel(axes: Any, table: ResultTable, label: str, of: str) -> None:
    sizes = [int(head.partition("=")[2]) for head in table.columns[1:-1]]
    symbol = table.columns[1].partition("=")[0]
    symbol = symbol if len(symbol) == 1 else "L"
    for name, *cells, exponent in table.rows:
        if name not in STYLES:
            continue
        text, colour, marker, line = STYLES[str(name)]
        points = [(size, cell) for size, cell in zip(sizes, cells, strict=True) if isinstance(cell, float) and cell > 0]
        if not points:
            continue
        if isinstance(exponent, float):
            text += f": ${symbol}^{{{exponent:.1f}}}$"
        hollow = {"markerfacecolor": "white"} if line != "-" else {}
        axes.plot(*zip(*points, strict=True), line, color=colour, marker=marker, label=text, **hollow)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:,}".replace(",", " ") if size >= 10_000 else f"{size}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(of)
    axes.set_ylabel(label)
    axes.grid(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, columnspacing=1)
