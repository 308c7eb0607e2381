"""How the figures of `analysis` look: one set of colours, one way to make a figure, one way to write it.

Colours are Okabe and Ito's, which the colour-blind tell apart; dashes and markers differ too, so that the figures
survive a grey printer. Green and solid is relevant, vermilion and hollow is irrelevant, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY, PALE = "#CC79A7", "#56B4E9", "#222222", "#6B6F76", "#DDDDDA"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
RELEVANT, IRRELEVANT = GREEN, VERMILION
FORMATS = (".pdf", ".png", ".svg")

SETTINGS: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
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


def save(drawing: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure; equal figures give equal files.

    Args:
        drawing: what a `draw` function returned.
        path: file; the ending says as what: pdf, png or svg. Its folder is made.
        dpi: of a png, dots per inch.

    Raises:
        ValueError: another ending.
    """
    import matplotlib

    if path.suffix not in FORMATS:
        raise ValueError(f"a figure is written as {', '.join(FORMATS)}; got {str(path)!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
    with matplotlib.rc_context(SETTINGS):
        drawing.savefig(path, dpi=dpi, metadata=undated)
    return path
