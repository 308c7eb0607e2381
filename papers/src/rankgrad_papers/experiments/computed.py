"""Tables that need no training. They are read from the settings, or measured in a minute."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from rankgrad import losses
from rankgrad_workbench.files import write_text
from rankgrad_workbench.runs.provenance import made_by
from rankgrad_workbench.settings import ConfigError, compose

from ..analysis import auc_slopes
from .catalogue import Entry
from .numbers import find, select
from .page import Sheet

# RaMBO's table 9 (= table 1 of its supplement): row -> setting; data set -> experiment.
HYPERPARAMETERS = {"lr": "optimizer.lr", "margin": "loss.margin", "lambda": "loss.lambda_"}
EXPERIMENTS = {"sop": "rambo/sop_loglog", "inshop": "rambo/inshop_log", "cub": "rambo/cub_loglog"}
# Lengths of lists for the fitted growth in table 1.
LENGTHS = (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000)
SHORTER = (128, 256, 512, 1024)  # for a network, whose number of weights grows with the square of the length
STEPS = (0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01)


@dataclass(frozen=True)
class Computed:
    """A table and notes on it."""

    sheet: Sheet
    notes: Sequence[str]


def make(entry: Entry, out: Path, dry_run: bool = False) -> str:
    """Make an entry below `out`, as ID.md, .csv, .tex and .json; returns its text.

    Raises:
        ConfigError: the entry has no computation.
    """
    stem = entry.id.replace("/", "-")
    if dry_run:
        return f"computes {entry.id} ({entry.time}) into {out / stem}.md, .csv, .tex, .json"
    out.mkdir(parents=True, exist_ok=True)
    if entry.how == "bench":
        return _timed(out / stem)
    if entry.id not in COMPUTED:
        raise ConfigError(f"no computation for {entry.id}; known: {', '.join(COMPUTED)}")
    result = COMPUTED[entry.id]()
    sheet, head = result.sheet, f"{entry.id}: {entry.title}"
    text = "\n\n".join([f"# {head}", sheet.markdown(), "\n".join(f"* {note}" for note in result.notes)]) + "\n"
    table = "\n".join([f"% {head}", r"\begin{table}", r"\centering", sheet.latex(), r"\end{table}"]) + "\n"
    content = {"id": entry.id, "columns": list(sheet.columns), "rows": [list(row) for row in sheet.rows]}
    write_text(out / f"{stem}.md", text)
    write_text(out / f"{stem}.tex", table)
    write_text(out / f"{stem}.csv", sheet.csv())
    write_text(out / f"{stem}.json", json.dumps(content | {"notes": list(result.notes), **made_by()}, indent=1) + "\n")
    return f"{text}\nwrote {out / stem}.md, .csv, .tex, .json"


def _timed(stem: Path) -> str:
    """RaMBO's table 6: the time for a long list, on one thread."""
    from ..timing.clocks import threads
    from ..timing.long_list import long_list
    from ..timing.results import Options, as_text

    with threads(1):
        result = long_list(Options())
    text = "\n\n".join(as_text(table) for table in result.tables)
    write_text(stem.with_suffix(".md"), text + "\n")
    write_text(stem.with_suffix(".json"), json.dumps([asdict(table) for table in result.tables], indent=1) + "\n")
    return (
        f"{text}\n\nThe two longest lists of the paper's table: make bench ARGS='long_list --long'\n"
        "Its row of a GPU: make bench ARGS='long_list --device cuda'"
    )


def hyperparameters() -> Computed:
    """RaMBO's table 9: the settings of our experiments beside the printed ones."""
    rows = []
    for data, experiment in EXPERIMENTS.items():
        config = compose([f"experiment={experiment}", "data.root=DIR"])
        for name, key in HYPERPARAMETERS.items():
            group, _, leaf = key.partition(".")
            ours, number = float(config[group][leaf]), find("rambo", 9, name, "hyperparameter", {"dataset": data})
            assert number is not None and number.value is not None
            same = "yes" if math.isclose(ours, number.value) else "no"
            rows.append([data, name, key, f"{ours:g}", number.text, same])
    notes = [f"Read from the experiments {', '.join(EXPERIMENTS.values())}; their log and loglog twins share them."]
    return Computed(Sheet(["data", "name", "setting", "here", "paper", "equal"], rows), notes)


def complexity() -> Computed:
    """RaMBO's table 1: the growth in the paper, and the measured growth if the method is in this library."""
    from ..timing.clocks import threads

    with threads(1):
        measured = {
            "RaMBO": growth(losses.RaMBOAPLoss().from_scores),
            "FastAP [4]": growth(losses.FastAPLoss().from_scores),
            "SoDeep [10]": growth(_sorted_by_network, SHORTER),
        }
    rows = []
    for number in select("rambo", 1, metric="complexity"):
        general = find("rambo", 1, number.row, "general_ranking", {})
        stated = number.note.partition(" forward")[0]
        here = f"n^{measured[number.row]:.2f}" if number.row in measured else "-"
        rows.append([number.row, stated, "yes" if general is not None and general.value else "no", here])
    lengths = f"{LENGTHS[0]:,} to {LENGTHS[-1]:,}"
    notes = [
        "n negatives, p positives, L bins, h hidden units of a network (about n).",
        f"Here: exponent of the processor time of one list, forward and backward, over {lengths} scores with 10 "
        "positives, least squares on logarithms of the shortest of seven.",
        f"SoDeep over {SHORTER[0]:,} to {SHORTER[-1]:,} scores: an untrained network of each length, 32 hidden units.",
        "Mohapatra et al., Chen et al. and Yue et al. are not in this library.",
        "RaMBO's loss here does not sort the negatives. Constant costs lower the exponent.",
    ]
    return Computed(Sheet(["method", "forward + backward (paper)", "general", "measured here"], rows), notes)


def _sorted_by_network(scores: Tensor, relevant: Tensor) -> Tensor:
    """Sum of the relevant items' ranks by SoDeep's network, untrained: its time does not depend on its weights."""
    from ..sodeep import Sorter

    return _network(Sorter, scores.shape[1])(scores)[relevant].sum()


@cache
def _network(kind: Callable[[int], Callable[[Tensor], Tensor]], items: int) -> Callable[[Tensor], Tensor]:
    return kind(items)


def growth(loss: Callable[[Tensor, Tensor], Tensor], lengths: Sequence[int] = LENGTHS, positives: int = 10) -> float:
    """Exponent a of time ~ n^a for a loss of one list."""
    points = []
    for n in lengths:
        generator = torch.Generator().manual_seed(0)
        # in [-1, 1]: histogram losses take cosines
        scores = (2 * torch.rand(1, n, generator=generator) - 1).requires_grad_()
        relevant = torch.zeros(1, n, dtype=torch.bool)
        relevant[0, torch.randperm(n, generator=generator)[:positives]] = True
        seconds = []
        for _ in range(8):
            start = time.process_time()
            loss(scores, relevant).backward()  # type: ignore[no-untyped-call]
            seconds.append(time.process_time() - start)
        points.append((math.log(n), math.log(max(min(seconds[1:]), 1e-6))))  # the first also loads and allocates
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def slopes(batches: int = 20, size: int = 128) -> Computed:
    """The slope of AUC's sigmoid for a step, 5.3 / step, and the error of the estimated area."""
    slopes = auc_slopes.compute(STEPS, [auc_slopes.DEFAULT], batches=batches, size=size)
    rows = [
        [f"{step:g}", f"{round(2 / step)}", f"{auc_slopes.DEFAULT / step:g}", f"{error:.4f}"]
        for step, error in zip(STEPS, slopes.errors[0].tolist(), strict=True)
    ]
    notes = [
        "The paper's table of slopes is not in its public parts. 5.3 / step is this library's choice: the logistic "
        "function closest in least squares to the ramp by which the trapezoid rule spreads a score over one step.",
        f"Mean error: of the estimated against the exact area, {batches} batches of {size} hardest pairs drawn "
        "uniformly from random intervals of [-0.5, 1].",
    ]
    return Computed(Sheet(["step", "intervals", "slope", "mean error of the area"], rows), notes)


COMPUTED: Mapping[str, Callable[[], Computed]] = {
    "rambo/table1": complexity,
    "rambo/table9": hyperparameters,
    "auc/slopes": slopes,
}
