"""The growth of time and memory with the batch size, as one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import figure_style as style
from ..figure_style import check_format
from .results import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MEMORY", "STYLES", "TIME", "check_format", "draw", "figure"]

TIME, MEMORY = "Growth with the batch: time, ms", "Growth with the batch: peak memory, MiB"  # titles of the tables

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
}


def figure(tables: Sequence[ResultTable], path: Path) -> None:
    """Draw the tables of the suite `scaling` into a file.

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
    """Time and memory against the batch, both on logarithmic axes, exponents in the legend."""
    drawing = style.figure(style.TWO, 3.9)
    by_title = {table.title: table for table in tables}
    panels = drawing.subplots(1, 2)
    for axes, title, label in zip(panels, (TIME, MEMORY), ("time of a step, ms", "peak memory, MiB"), strict=True):
        _panel(axes, by_title[title], label)
        axes.set_title(label.partition(" ")[0] if title == TIME else "memory")
    style.letters(panels)
    return drawing


def _panel(axes: Any, table: ResultTable, label: str) -> None:
    sizes = [int(head.removeprefix("B=")) for head in table.columns[1:-1]]
    for name, *cells, exponent in table.rows:
        if name not in STYLES:
            continue
        text, colour, marker, line = STYLES[str(name)]
        points = [(size, cell) for size, cell in zip(sizes, cells, strict=True) if isinstance(cell, float) and cell > 0]
        if not points:
            continue
        if isinstance(exponent, float):
            text += f": $B^{{{exponent:.1f}}}$"
        hollow = {"markerfacecolor": "white"} if line != "-" else {}
        axes.plot(*zip(*points, strict=True), line, color=colour, marker=marker, label=text, **hollow)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("batch size B")
    axes.set_ylabel(label)
    axes.grid(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, columnspacing=1)
