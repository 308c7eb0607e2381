"""The growth of time and memory with the batch, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .results import Table
from .scaling import MEMORY, TIME

FORMATS = (".svg", ".png", ".pdf")
# Okabe and Ito's colours, which the colour-blind tell apart; markers and dashes differ too. Ours are solid.
STYLES: dict[str, tuple[str, str, str, str]] = {
    "supap": ("SupAP", "#0072B2", "o", "-"),
    "smooth_ap": ("Smooth-AP", "#D55E00", "s", "-"),
    "rambo_ap": ("RaMBO AP", "#009E73", "D", "-"),
    "fastap": ("FastAP", "#CC79A7", "v", "-"),
    "supap as printed": ("SupAP as printed", "#0072B2", "o", "--"),
    "smooth_ap as printed": ("Smooth-AP as printed", "#D55E00", "s", "--"),
    "PML SmoothAPLoss": ("Smooth-AP, PML", "#E69F00", "^", "--"),
    "GEMM": ("matrix product", "#555555", "x", ":"),
}


def figure(tables: Sequence[Table], path: Path) -> None:
    """Draw the tables of the suite `scaling` into a file.

    Args:
        tables: its results.
        path: what to write; the ending says as what: svg, png or pdf.

    Raises:
        ValueError: another ending.
    """
    check_format(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # text stays text in an svg, and the same numbers give the same file
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rankgrad", "font.size": 10}):
        drawing = Figure(figsize=(9.5, 5.2), layout="constrained")
        FigureCanvasAgg(drawing)
        by_title = {table.title: table for table in tables}
        for axes, title, label in zip(
            drawing.subplots(1, 2), (TIME, MEMORY), ("time of a step, ms", "peak memory, MiB"), strict=True
        ):
            _panel(axes, by_title[title], label)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
        drawing.savefig(path, dpi=150, metadata=metadata)


def check_format(path: Path) -> None:
    """Raise unless the ending of a file is one that `figure` can write."""
    if path.suffix not in FORMATS:
        raise ValueError(f"a figure is written as {', '.join(FORMATS)}; got {str(path)!r}")


def _panel(axes: Any, table: Table, label: str) -> None:
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
        axes.plot(*zip(*points, strict=True), line, color=colour, marker=marker, markersize=5, label=text, **hollow)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.set_xlabel("batch size B")
    axes.set_ylabel(label)
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
