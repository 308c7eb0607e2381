"""Draw a figure of the four papers.

Without a NAME, list all figures with their content and the data that they need.

  rankgrad paper-figure
  rankgrad paper-figure rambo/fig1                                         writes rambo-fig1.png
  rankgrad paper-figure rambo/fig1 -o landscape.pdf --json landscape.json  as a pdf, with its numbers
  rankgrad paper-figure roadmap/fig4 --runs runs/reproduce                 curves over a setting, from runs
  rankgrad paper-figure pnp/fig8 --runs runs/compare --over loss.alpha     curves over your own setting
  rankgrad paper-figure roadmap/fig6 --run RUN RUN --show differ           retrieved images for the same queries
  rankgrad paper-figure rambo/table1 --results benchmarks/results.json     time and memory against the batch size
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rankgrad_workbench.cli.arguments import add_trust

if TYPE_CHECKING:
    from ..experiments.figures import Drawable, Drawn


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="figure, such as roadmap/fig3")
    parser.add_argument("-o", "--out", type=Path, help="file to write: .png, .pdf or .svg (default: NAME.png)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")
    runs = parser.add_argument_group("curves over a setting")
    runs.add_argument("--runs", type=Path, nargs="+", metavar="DIR", help="folders of runs, or one csv")
    runs.add_argument("--over", metavar="KEY", help="setting on the axis (default: the settings of the figure)")
    runs.add_argument("--metric", help="metric, such as R@1 (default: that of the figure)")
    runs.add_argument(
        "--rule", choices=("best", "held_out", "last"), help="evaluation to use of a run (default: as in the figure)"
    )
    add_examples(parser.add_argument_group("retrieved examples"))
    parser.add_argument("--results", type=Path, metavar="FILE", help="results of the benchmarks, for rambo/table1")
    add_picture(parser)


def add_examples(group: argparse._ActionsContainer, required: bool = False) -> None:
    """Add the options of retrieved examples."""
    # dest is not `run`, which is the function of the command
    what = "folders of finished runs"
    group.add_argument("--run", dest="run_", type=Path, nargs="+", metavar="RUN", required=required, help=what)
    what = "queries: any (default), wrong in all runs, or wrong in some runs"
    group.add_argument("--show", choices=("random", "failures", "differ"), help=what)
    group.add_argument("--queries", type=int, help="number of queries (default: 4)")
    group.add_argument("-k", type=int, help="images per query (default: 8)")
    group.add_argument("--seed", type=int, help="seed of the choice of queries (default: 0)")
    group.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the images, if they were moved")


def add_picture(parser: argparse.ArgumentParser) -> None:
    """Add the options of all figures."""
    parser.add_argument("--dpi", type=int, default=200, help="dots per inch of a png (default: 200)")
    add_trust(parser)


def drawn_examples(arguments: argparse.Namespace) -> Drawn:
    """The retrieved examples of runs."""
    from rankgrad_workbench.settings import packages

    from ..experiments import figures

    if arguments.dpi < 1:
        raise ValueError(f"--dpi is a number of dots per inch, such as 200; got {arguments.dpi}")
    given = {name: value for name in OPTIONS["run"][1:] if (value := getattr(arguments, name)) is not None}
    chosen = {"choice" if name == "show" else name: value for name, value in given.items()}
    return figures.draw_examples(arguments.run_, **chosen, trust=packages(arguments.trust))


# Need of a figure -> options that belong to it.
OPTIONS = {
    "nothing": (),
    "runs": ("runs", "over", "metric", "rule"),
    "run": ("run_", "show", "queries", "k", "seed", "data_root"),
    "results": ("results",),
}


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """List the figures, or draw."""
    from .. import figure_style as style
    from ..experiments import figures

    name, out = arguments.name, arguments.out
    if arguments.dpi < 1:
        raise ValueError(f"--dpi is dots per inch and must be >= 1, such as 200; got {arguments.dpi}")
    if name is None:
        if any(value is not None for value in (out, arguments.json, arguments.runs, arguments.run_, arguments.results)):
            raise ValueError(
                "no figure is given: use rankgrad paper-figure NAME -o FILE; rankgrad paper-figure lists the names"
            )
        print(figures.listing())
        return
    figure = figures.find(name)
    for need, names in OPTIONS.items():
        given = [option for option in names if need != figure.needs and getattr(arguments, option) is not None]
        if given:
            flag = f"-{given[0]}" if len(given[0]) == 1 else f"--{given[0].strip('_').replace('_', '-')}"
            takes = figures.NEEDS[figure.needs]
            raise ValueError(f"{flag} does not belong to {figure.id}, which needs {takes}")
    path = out or Path(f"{figure.stem}.png")
    style.check_format(path)
    drawn = _drawn(figure, arguments)
    print(figures.text(figure, drawn.found))
    print(f"wrote {style.save(drawn.drawing, path, arguments.dpi)}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(figures.json_text(figure, drawn.found), encoding="utf-8")
        print(f"wrote {arguments.json}")


def _drawn(figure: Drawable, arguments: argparse.Namespace) -> Drawn:
    """Draw the figure from its data."""
    from rankgrad_workbench.settings import packages

    from ..experiments import figures

    given = {option: value for option in OPTIONS[figure.needs] if (value := getattr(arguments, option)) is not None}
    if figure.needs == "nothing":
        return figures.draw(figure)
    source = given.pop(OPTIONS[figure.needs][0], None)
    if source is None:
        raise ValueError(f"{figure.id} ({figure.title}) is drawn from results: {figures.NEEDS[figure.needs]}")
    trust = packages(arguments.trust)
    if figure.needs == "runs":
        return figures.draw_runs(figure, source, **given, trust=trust)
    if figure.needs == "run":
        return drawn_examples(arguments)
    return figures.draw_growth(source)
