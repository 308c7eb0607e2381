"""Self-contained HTML pages about one run or several runs of one kind.

All important content is readable without the script, which sorts, filters and enlarges. The page can be used with the
keyboard, follows the reader's light or dark scheme, and can be printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from rankgrad.common.text import duration

from ..runs.log import TEST
from ..runs.run_warnings import together
from . import tables
from .content import Extent, Method, RunContent, Section, data_name, named, one_kind, read_runs
from .glossary import short
from .html import charts
from .html.images import Images
from .html.templates import render, write_page
from .html.text import enumeration, number

MOST_RUNS = 8  # number of colours and dashes that readers can distinguish


def write_report(
    path: str | os.PathLike[str],
    runs: Sequence[RunContent],
    *,
    title: str | None = None,
    projection: Method = "pca",
    queries: int = Extent.queries,
    points: int = Extent.points,
    items: int = Extent.items,
) -> Path:
    """Write the page of one run, or of several side by side. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        runs: 1 to 8 runs of one kind, from `read_runs`.
        title: heading; None: data and runs.
        projection: see `Extent`; for retrieval runs only, as the following arguments.
        queries: see `Extent`.
        points: see `Extent`.
        items: see `Extent`.

    Returns:
        The path written.

    Raises:
        ValueError: no run or more than 8; runs of two kinds; an argument out of range; embeddings that are not finite.
        FileNotFoundError: the folder does not exist.

    >>> import tempfile, torch
    >>> from rankgrad.evaluation import evaluate
    >>> from rankgrad_workbench.tasks.retrieval.page import Content
    >>> after = evaluate(torch.eye(2)[[0, 0, 1, 1]], [0, 0, 1, 1], clusters="none")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Path(folder, "mine.html"), [Content("mine", after=after)])
    ...     print("mAP@R" in page.read_text(encoding="utf-8"))
    True
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"a report shows 1 to {MOST_RUNS} runs; got {len(runs)}")
    return _write(path, runs, title, Extent(projection, queries, points, items))


def write_comparison(
    path: str | os.PathLike[str], runs: Mapping[str, Sequence[Path]], *, title: str | None = None
) -> Path:
    r"""Write one page about all runs of a comparison: metrics of every run, and all sections for one run per variant.

    The mean and standard deviation over the seeds come first. The other sections show the first run of each variant
    side by side; the curves of its other seeds are pale. At most 8 variants are shown in these sections.

    Args:
        path: the file; its folder must exist.
        runs: name of a variant -> folders of its runs, one for each seed. Of an unfinished run, the page shows the last
            evaluation.
        title: heading; None: data and variants.

    Returns:
        The path written.

    Raises:
        ValueError: no run; runs of two kinds.
        FileNotFoundError: the folder of the page does not exist, or a folder is not a run.

    >>> import tempfile
    >>> from omegaconf import OmegaConf
    >>> from rankgrad_workbench.settings import compose
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = {"pnp": [Path(folder, "pnp-seed0"), Path(folder, "pnp-seed1")]}
    ...     for run in runs["pnp"]:
    ...         run.mkdir()
    ...         OmegaConf.save(compose(["loss=pnp"]), run / "config.yaml", resolve=True)
    ...     page = write_comparison(Path(folder, "compare.html"), runs)
    ...     print("pnp" in page.read_text(encoding="utf-8"))
    True
    """
    folders = {name: list(of_variant) for name, of_variant in runs.items() if len(of_variant)}
    if not folders:
        raise ValueError("a comparison needs at least one run; got none")
    first = dict(zip(folders, read_runs([each[0] for each in list(folders.values())[:MOST_RUNS]]), strict=False))
    light = iter(read_runs([folder for each in folders.values() for folder in each], pictures=False))
    every = {name: [next(light) for _ in each] for name, each in folders.items()}
    summed, shown = (
        [replace(run, name=name, siblings=tuple(every[name][1:]), variant=True) for name, run in of.items()]
        for of in ({name: each[0] for name, each in every.items()}, first)
    )
    notes = []
    if len(folders) > len(shown):
        notes.append(f"Curves, examples and tables below show the first {len(shown)} of {len(folders)} variants.")
    seeds = max(map(len, folders.values()))
    if seeds > 1:
        notes.append("Below the table of all runs, the page shows only the first run of each variant.")
    return _write(path, shown, title, Extent(), [tables.seeds(summed)], notes, summed)


def _write(
    path: str | os.PathLike[str],
    runs: Sequence[RunContent],
    title: str | None,
    extent: Extent,
    before: Sequence[Section] = (),
    notes: Sequence[str] = (),
    every: Sequence[RunContent] = (),
) -> Path:
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    one_kind({run.name: run.kind for run in runs})
    images = Images()
    own, more_notes = runs[0].sections(runs, images, extent)
    results, others = own[:1], own[1:]
    sections = [*before, *results, _curves(runs), *others, tables.configuration(runs)]
    sections = [section for section in sections if section.body]
    return write_page(
        path,
        "report/page.html",
        styles=[
            "report/html/base.css",
            "report/html/sections.css",
            "report/html/neighbours.css",
            "report/page.css",
        ],
        script="report/page.js",
        images=images,
        title=title or _title(runs),
        facts=_facts(runs[0]) if len(runs) == 1 else [],
        runs=runs,
        notes=[*notes, *_about(runs), *_warned(every or runs), *more_notes],
        sections=sections,
        data={name: value for section in sections for name, value in section.data.items()},
    )


def _title(runs: Sequence[RunContent]) -> str:
    """Names of the data and the runs. If the name of a run begins with that of its data, this part is removed."""
    data = [name for name in dict.fromkeys(data_name(run.config) for run in runs) if name]
    names = [run.name.removeprefix(f"{data[0]}-") if len(data) == 1 else run.name for run in runs]
    return ": ".join(filter(None, (enumeration(data), enumeration(names, 4))))


def _facts(run: RunContent) -> list[tuple[str, str]]:
    """Data, loss, model, seed, steps and training time, for the head of the page."""
    known = {
        "data": data_name(run.config),
        "loss": run.loss,
        "model": named(run.config.get("model")),
        "seed": str(run.config.get("seed", "")),
        "steps": f"{run.facts['steps']:,}" if "steps" in run.facts else "",
    }
    if (seconds := run.facts.get("train_seconds")) is not None:
        known["training"] = duration(seconds)
    return [(name, value) for name, value in known.items() if value]


def _about(runs: Sequence[RunContent]) -> list[str]:
    """The notes of the runs and of their evaluations; with several runs, each note names its runs."""
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in (*run.notes, *getattr(run.after, "notes", ())):
            by_note.setdefault(note, []).append(run.name)
    if len(runs) == 1:
        return list(by_note)
    return [note if len(names) == len(runs) else f"{enumeration(names)}: {note}" for note, names in by_note.items()]


def _warned(runs: Sequence[RunContent]) -> list[str]:
    """The warnings of the runs; with several runs, each names its run and its seeds."""
    if len(runs) == 1 and not runs[0].variant:
        return list(map(str, runs[0].warned))
    seeds = {run.name: [(each.config.get("seed", 0), each.warned) for each in (run, *run.siblings)] for run in runs}
    return together({name: dict(of) for name, of in seeds.items()})


def _curves(runs: Sequence[RunContent]) -> Section:
    """A chart for each logged name: the loss first, then the evaluations. Each loss has a chart, and its own scale."""
    several = len(runs) > 1 or bool(runs[0].siblings)
    drawn, constant = [], []
    names = dict.fromkeys(name for run in runs for name, points in run.curves.items() if points)
    for name in sorted(names, key=lambda name: (name != "loss", not name.startswith(TEST))):
        for title, kinds in _charts(name, runs).items():
            series = [
                charts.Series(runs[kind].name if several else "", each.curves[name], kind, pale=each is not runs[kind])
                for kind in kinds
                for each in (runs[kind], *runs[kind].siblings)
                if each.curves.get(name)
            ]
            values = {value for one in series for _, value in one.points}
            # a line that never moves says nothing as a chart; three points, because two may be equal by chance
            if name != "loss" and len(values) == 1 and all(len(one.points) > 2 for one in series):
                constant.append((name, number(*values), short(name)))
            elif series:
                drawn.append(charts.lines(title, series, "step", meaning=short(name)))
    pale = any(run.siblings for run in runs)
    body = render("report/curves.html", runs=runs, curves=drawn, constant=constant, pale=pale)
    return Section("curves", "Training", body if drawn else Markup())


def _charts(name: str, runs: Sequence[RunContent]) -> dict[str, list[int]]:
    """Title of each chart of a logged name -> the numbers of its runs. Values of two losses have no common scale."""
    of_loss: list[tuple[object, list[int]]] = []
    for kind, run in enumerate(runs):
        loss = run.config.get("loss") if name == "loss" else None
        same = next((kinds for other, kinds in of_loss if other == loss), None)
        if same is None:
            of_loss.append((loss, [kind]))
        else:
            same.append(kind)
    if len(of_loss) == 1:
        return {name: of_loss[0][1]}
    return {f"{name} of {enumeration([runs[kind].name for kind in kinds])}": kinds for _, kinds in of_loss}


__all__ = ["write_comparison", "write_report"]
