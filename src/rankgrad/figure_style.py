"""How figures look: one set of colours, two widths, one way to make a figure, one way to write it.

Figures are drawn at the width that they are printed at, one or two columns of a page, so that letters have the size
they were given. Colours are Okabe and Ito's, which the colour-blind tell apart; dashes and markers differ too, so that
the figures survive a grey printer. Green and solid is relevant, vermilion and hollow is irrelevant, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY, PALE = "#CC79A7", "#56B4E9", "#222222", "#6B6F76", "#DDDDDA"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
RELEVANT, IRRELEVANT = GREEN, VERMILION
SURFACE = "cividis"  # of values over a plane: even steps of lightness, and made for the colour-blind
FORMATS = (".svg", ".png", ".pdf")
ONE, TWO = 3.3, 6.9  # inches: one and two columns of a page
SMALL = 7.0  # points: the smallest letters

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
    # text stays text in an svg and in a pdf, and the same numbers give the same file
    "svg.fonttype": "none",
    "svg.hashsalt": "rankgrad",
    "pdf.fonttype": 42,
}

R = TypeVar("R")


def styled(draw: Callable[..., R]) -> Callable[..., R]:
    """Decorator of a function that draws: inside it, and only there, the settings above hold."""

    @wraps(draw)
    def inside(*arguments: Any, **options: Any) -> R:
        import matplotlib

        with matplotlib.rc_context(SETTINGS):
            return draw(*arguments, **options)

    return inside


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, for files: it belongs to no window and to no pyplot state."""
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
    """Raise unless the ending of a file is one that `save` can write.

    Raises:
        ValueError: another ending.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"a figure is written as {', '.join(FORMATS)}; got {str(path)!r}")


def save(drawing: Figure, path: Path, dpi: int = 200) -> Path:
    """Write a figure; equal figures give equal files.

    Args:
        drawing: what a `draw` function returned.
        path: file; the ending says as what: pdf, png or svg. Its folder is made.
        dpi: of a png, dots per inch.

    Raises:
        ValueError: another ending.
    """
    import matplotlib

    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with matplotlib.rc_context(SETTINGS):
        with atomic_write(path) as file:
            drawing.savefig(file, format=path.suffix[1:], dpi=dpi, metadata=undated)
    return path
