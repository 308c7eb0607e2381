"""Self-contained HTML pages about one run or several runs of one kind.

All important content is readable without the script, which sorts, filters and enlarges. The page can be used with the
keyboard, follows the reader's light or dark scheme, and can be printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from markupsafe import Markup

from rankgrad.common.text import duration

from ..runs.history import TEST
from ..runs.run_warnings import together
from . import tables
from .content import Extent, RunContent, Section, data_name, named, read_runs
from .glossary import short
from .html import charts
from .html.images import Images
from .html.templates import render, write_page
from .html.text import enumeration, number

MOST_RUNS = 8  # number of colours and dashes that readers can distinguish
STYLES = [f"report/{name}.css" for name in ("html/base", "html/sections", "html/neighbours", "page")]


def write_report(
    path: str | os.PathLike[str],
    runs: Sequence[RunContent],
    *,
    title: str | None = None,
    extent: Extent = Extent(),  # noqa: B008
) -> Path:
    """Write the page of one run, or of several side by side. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        runs: 1 to 8 runs of one kind, from `read_runs`.
        title: heading; None: data and runs.
        extent: how much the page shows of retrieval runs.

    Returns:
        The path written.

    Raises:
        ValueError: no run or more than 8; runs of two kinds; embeddings that are not finite.
        FileNotFoundError: the folder does not exist.

    >>> import tempfile, torch
    >>> from rankgrad.evaluation import evaluate
    >>> from rankgrad_workbench.tasks.retrieval.page import Content
    >>> after = evaluate(torch.eye(2)[[0, 0, 1, 1]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Path(folder, "mine.html"), [Content("mine", after=after)])
    ...     print("mAP@R" in page.read_text(encoding="utf-8"))
    True
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"a report shows 1 to {MOST_RUNS} runs; got {len(runs)}")
    return _write(path, runs, title, extent)


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
    light = iter(read_runs([folder for each in folders.values() for folder in each], pictures=False))
    every = []
    for name, of_variant in folders.items():
        first, *others = islice(light, len(of_variant))
        every.append(replace(first, name=name, siblings=tuple(others), variant=True))
    shown = [
        replace(run, name=each.name, siblings=each.siblings, variant=True)
        for run, each in zip(read_runs([each[0] for each in folders.values()][:MOST_RUNS]), every, strict=False)
    ]
    notes = []
    if len(every) > len(shown):
        notes.append(f"Curves, examples and tables below show the first {len(shown)} of {len(every)} variants.")
    if any(run.siblings for run in every):
        notes.append("Below the table of all runs, the page shows only the first run of each variant.")
    return _write(path, shown, title, Extent(), [tables.seeds(every)], notes, every)


def _write(
    path: str | os.PathLike[str],
    runs: Sequence[RunContent],
    title: str | None,
    extent: Extent,
    before: Sequence[Section] = (),
    notes: Sequence[str] = (),
    every: Sequence[RunContent] = (),
) -> Path:
    for run in runs:
        if run.kind != runs[0].kind:
            raise ValueError(
                f"all runs of a page must be of one kind: {runs[0].name} is of {runs[0].kind}, {run.name} of {run.kind}"
            )
    images = Images()
    (results, *others), more_notes = runs[0].sections(runs, images, extent)
    sections = [*before, results, _curves(runs), *others, tables.configuration(runs)]
    sections = [section for section in sections if section.body]
    return write_page(
        path,
        "report/page.html",
        styles=STYLES,
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
    steps, seconds = run.facts.get("steps"), run.facts.get("train_seconds")
    known = {
        "data": data_name(run.config),
        "loss": run.loss,
        "model": named(run.config.get("model")),
        "seed": str(run.config.get("seed", "")),
        "steps": "" if steps is None else f"{steps:,}",
        "training": "" if seconds is None else duration(seconds),
    }
    return [(name, value) for name, value in known.items() if value]


def _about(runs: Sequence[RunContent]) -> list[str]:
    """The notes of the runs and of their evaluations; a note that not all runs have names its runs."""
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in (*run.notes, *getattr(run.after, "notes", ())):
            by_note.setdefault(note, []).append(run.name)
    return [note if len(names) == len(runs) else f"{enumeration(names)}: {note}" for note, names in by_note.items()]


def _warned(runs: Sequence[RunContent]) -> list[str]:
    """The warnings of the runs; with several runs, each names its run and its seeds."""
    if len(runs) == 1 and not runs[0].variant:
        return list(map(str, runs[0].warned))
    return together({run.name: {r.config.get("seed", 0): r.warned for r in (run, *run.siblings)} for run in runs})


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
    of_loss: dict[str, list[int]] = {}
    for kind, run in enumerate(runs):
        of_loss.setdefault(str(run.config.get("loss")) if name == "loss" else "", []).append(kind)
    if len(of_loss) == 1:
        return {name: list(range(len(runs)))}
    return {f"{name} of {enumeration([runs[kind].name for kind in kinds])}": kinds for kinds in of_loss.values()}


__all__ = ["write_comparison", "write_report"]
