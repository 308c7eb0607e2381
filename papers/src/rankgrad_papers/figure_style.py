"""The style of all figures: colours, two widths, and functions that make and write a figure.

Figures are drawn at their printed width, one or two columns of a page, so that font sizes are true. The colours are
those of Okabe and Ito, which colour-blind readers can distinguish. Dashes and markers differ, too, so that figures are
readable in grey. In all figures, green and solid means relevant; vermilion and hollow means irrelevant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rankgrad_workbench.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY, PALE = "#CC79A7", "#56B4E9", "#222222", "#6B6F76", "#DDDDDA"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
RELEVANT, IRRELEVANT = GREEN, VERMILION
SURFACE = "cividis"  # colour map: even steps of lightness, readable for colour-blind people
FORMATS = (".svg", ".png", ".pdf")
ONE, TWO = 3.3, 6.9  # inches: width of one and two columns of a page
SMALL = 7.0  # points: smallest font size

SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "figure.titlesize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    # text stays text in svg and pdf; equal data gives equal files
    "svg.fonttype": "none",
    "svg.hashsalt": "rankgrad",
    "pdf.fonttype": 42,
}

R = TypeVar("R")


def styled(draw: Callable[..., R]) -> Callable[..., R]:
    """Decorator of a function that draws: the settings above are active only inside it."""

    @wraps(draw)
    def inside(*arguments: Any, **options: Any) -> R:
        import matplotlib

        with matplotlib.rc_context(SETTINGS):
            return draw(*arguments, **options)

    return inside


def figure(width: float, height: float) -> Figure:
    """An empty figure for files, size in inches. It has no window and no pyplot state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def letters(axes: Sequence[Any]) -> None:
    """Put (a), (b), ... before the titles of the panels."""
    for letter, panel in zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False):
        panel.set_title(f"({letter}) {panel.get_title(loc='left')}".rstrip(), loc="left")


def check_format(path: Path) -> None:
    """Raise unless `save` can write a file with this extension.

    Raises:
        ValueError: another extension.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"a figure must be {', '.join(FORMATS)}; got {str(path)!r}")


def save(drawing: Figure, path: Path, dpi: int = 200) -> Path:
    """Write a figure; equal figures give equal files.

    Args:
        drawing: result of a `draw` function.
        path: file; its extension decides the format: pdf, png or svg. Its folder is made if needed.
        dpi: dots per inch of a png.

    Raises:
        ValueError: another extension.
    """
    import matplotlib

    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    fonts = logging.getLogger("fontTools")  # warns of the dates in matplotlib's own font
    level = fonts.level
    fonts.setLevel(logging.ERROR)
    try:
        with matplotlib.rc_context(SETTINGS), atomic_write(path) as file:
            drawing.savefig(file, format=path.suffix[1:], dpi=dpi, metadata=undated)
    finally:
        fonts.setLevel(level)
    return path
