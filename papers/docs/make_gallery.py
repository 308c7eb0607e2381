"""Draws the gallery: papers/docs/gallery.md and papers/docs/gallery/.

    python papers/docs/make_gallery.py                      what needs nothing, and the page
    python papers/docs/make_gallery.py --work runs/gallery  everything; short runs on glyphs are trained there

Runs that are finished are kept. The page is made of `rankgrad_papers.experiments.figures` and of the table
`FROM_RUNS` below; each picture stands for the commands above it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankgrad_papers.experiments import catalogue, figures
from rankgrad_workbench.cli import main as rankgrad

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "gallery.md", HERE / "gallery"
DPI = 180
COLOURS = 128  # of a picture: nobody sees a difference, and it has half the bytes
SMOOTH = ("rambo/fig1", "rambo/fig5", "rambo/fig6", "pnp/fig1")  # surfaces, in which one would

SHORT = "loss=smooth_ap,roadmap seeds=0 data=glyphs recipe=small trainer.max_epochs=1"
COMPARED = "runs/glyphs/smooth_ap-seed0 runs/glyphs/roadmap-seed0"
SWEPT = "--stand-in omniglot --data-root DIR --seeds 0,1,2 threads=1 -o runs/omniglot"
RESULTS = HERE.parent / "results" / "omniglot"  # what that came to: sweeps are drawn from there


@dataclass(frozen=True)
class FromRuns:
    """How a picture of runs was made.

    Attributes:
        commands: in their order; the last one draws.
        said: about this picture, after the sentence of the figure.
        more: figures that are drawn in the same way of other data, and have no picture of their own.
    """

    commands: Sequence[str]
    said: str
    more: Sequence[str] = ()


SWEEPS = ("pnp/fig8", "roadmap/fig4", "roadmap/fig5", "roadmap/fig12")
_GLYPHS = "Here: a small network after one epoch on the built-in glyphs. The queries are chosen at random, by seed."
_STAND_IN = (
    "Here: a small network on Omniglot, three seeds. This says nothing about the paper's numbers. The points are in "
    "[results](results.md)."
)

FROM_RUNS: Mapping[str, FromRuns] = {
    "rambo/fig6": FromRuns(["rankgrad paper-figure rambo/fig6"], ""),  # its sorter takes minutes
    "rambo/table1": FromRuns(
        [
            "python -m benchmarks scaling --json scaling.json",
            "rankgrad paper-figure rambo/table1 --results scaling.json",
        ],
        "Here: the benchmark's own numbers, see [its page](../../benchmarks/README.md).",
    ),
    "rambo/fig4": FromRuns(
        [
            f"rankgrad compare {SHORT} -o runs/glyphs",
            "rankgrad paper-figure rambo/fig4 --run runs/glyphs/roadmap-seed0",
        ],
        _GLYPHS,
    ),
    "pnp/fig7": FromRuns(
        ["rankgrad paper-figure pnp/fig7 --run runs/glyphs/roadmap-seed0 --show failures"],
        _GLYPHS + " Only queries whose nearest image is wrong.",
    ),
    **{
        name: FromRuns(
            [f"rankgrad reproduce {name} {SWEPT}", f"rankgrad paper-figure {name} --runs runs/omniglot"], _STAND_IN
        )
        for name in SWEEPS
    },
    "roadmap/fig6": FromRuns(
        [f"rankgrad paper-figure roadmap/fig6 --run {COMPARED} --show differ --queries 3"],
        _GLYPHS
        + " Only queries whose nearest image is right in one run and wrong in the other. The supplement's three "
        "figures are the same for runs on CUB, SOP and iNaturalist, with `-k 10`.",
        ("roadmap/fig13", "roadmap/fig14", "roadmap/fig15"),
    ),
}

HEAD = """\
# Gallery

This page shows every figure of the papers that can be drawn here, with its command. `rankgrad paper-figure` lists them.

* `-o FILE.pdf` or `.svg` gives vector graphics. `--json FILE` gives the numbers.
* The widths are those of one and of two columns of a page.
* In Python, `rankgrad_papers.analysis.FIGURES` has the function that computes a figure and the function that draws it.

This page is made by `python papers/docs/make_gallery.py --work runs/gallery`.
"""


def page() -> str:
    """The text of the gallery."""
    parts = [HEAD]
    known = figures.drawables()
    others = {name for made in FROM_RUNS.values() for name in made.more}
    for paper, title in catalogue.PAPERS.items():
        name, _, source = title.partition(": ")
        parts.append(f"## {name}\n\n{source}")
        for name, figure in known.items():
            if figure.paper != paper or name in others:
                continue
            made = FROM_RUNS.get(name, FromRuns([f"rankgrad paper-figure {name}"], ""))
            note = figure.note.replace("*", r"\*")
            parts += [
                f"### {', '.join([name, *made.more])}",
                "\n".join(["```bash", *made.commands, "```"]),
                _filled(f"**{_capital(figure.title)}.**", figure.sees, made.said, note),
                f"![{figure.title}](gallery/{figure.stem}.png)",
            ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _capital(text: str) -> str:
    return text if text.startswith("mAP") else text[:1].upper() + text[1:]


def _filled(*parts: str) -> str:
    text = " ".join(part for part in parts if part)
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def draw(name: str, arguments: Sequence[str] = ()) -> None:
    """Draw one figure into the folder of the pictures."""
    path = IMAGES / f"{figures.drawables()[name].stem}.png"
    _do(["paper-figure", name, *arguments, "-o", str(path), "--dpi", str(DPI)])
    if name not in SMOOTH:
        _small(path)
    print(f"{path.relative_to(HERE)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def _small(path: Path) -> None:
    from PIL import Image

    buffer = io.BytesIO(path.read_bytes())
    Image.open(buffer).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _do(words: Sequence[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        status = rankgrad(list(words))
    if status:
        raise SystemExit(f"failed: rankgrad {shlex.join(words)}")


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all)")
    parser.add_argument("--work", type=Path, help="folder for the runs; without, figures of runs are left as they are")
    arguments = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or figures.drawables():
        if name not in FROM_RUNS:
            if figures.find(name).needs == "nothing":
                draw(name)
        elif name == "rambo/table1":
            draw(name, ["--results", str(HERE.parents[1] / "benchmarks" / "results.json")])
        elif name in SWEEPS:
            draw(name, ["--runs", str(RESULTS / f"{figures.drawables()[name].stem}.csv")])
        elif arguments.work is not None:
            with _inside(arguments.work):
                *before, last = [shlex.split(command)[1:] for command in FROM_RUNS[name].commands]
                for words in before:
                    _do(words)
                draw(name, [] if name == "rambo/fig6" else last[2:])
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
