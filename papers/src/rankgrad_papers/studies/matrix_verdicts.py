"""Verdicts on the hypotheses D1, E1 to E3, F1 and H1 of papers/docs/hypotheses.md, from the files of the matrix.

    python -m rankgrad_papers.studies.matrix_verdicts

It trains nothing. Each line has a data set, the comparison, the difference in points and its 95 % interval. The
interval of one set is over its seeds. The interval of all sets is over the sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ..values import Values, read
from . import command
from .alphabets import POOLED
from .compared import Compared
from .matrix import COLUMNS, LOSSES, MADE, OTHER, SETS, chosen

ALL = "all sets"
RECALL = "mAP@R"
#: D1 compares the best loss of ranks with the best loss of pairs.
OF_RANKS = ("supap", "lambda", "recall_at_k", "adaptive_roadmap")
OF_PAIRS = ("pml/multi_similarity", "pml/triplet")


class Matrix:
    """The files of the matrix.

    Args:
        values: file of the tests. The file of the choices is beside it.
    """

    def __init__(self, values: Path) -> None:
        self.values: Values = read(values)
        picked = values.with_name(f"{values.stem}-chosen.csv")
        lines = {data: chosen(picked, data) for data in SETS}
        tested = {dict(each.setting)["set"] for each in self.values}
        #: set -> (loss, metric) -> number of the trial that the loss kept for the metric
        self.kept: Mapping[str, Mapping[tuple[str, str], str]] = {
            data: {(line["loss"], line["column"]): line["trial"] for line in its}
            for data, its in lines.items()
            if its and data in tested
        }
        #: set -> (loss, metric) -> mean over the folds
        self.on_folds: Mapping[str, Mapping[tuple[str, str], float]] = {
            data: {(line["loss"], line["column"]): float(line["mean"]) for line in lines[data]} for data in self.kept
        }
        #: set -> (metric, MADE or OTHER) -> loss
        self.named: Mapping[str, Mapping[tuple[str, str], str]] = {
            data: {(line["column"], line["named"]): line["loss"] for line in lines[data]} for data in self.kept
        }

    def test(self, data: str, loss: str, metric: str, kept_for: str | None = None) -> dict[str, float]:
        """Seed -> value on the test classes.

        Args:
            data: name of the set.
            loss: a row of the matrix.
            metric: name of the metric.
            kept_for: the metric for which the trial was kept; None: the same metric.
        """
        trial = self.kept[data][loss, kept_for or metric]
        return self.values.units({"set": data, "loss": loss, "trial": trial}, metric)

    def mean(self, data: str, loss: str, metric: str, kept_for: str | None = None) -> float:
        """Mean of `test`."""
        return fmean(self.test(data, loss, metric, kept_for).values())

    def against(self, one: str, other: str, metric: str) -> list[Compared]:
        """One loss minus another on each set (F1, H1)."""
        what = f"{one} − {other}"
        return [
            Compared.of(data, metric, what, self.test(data, one, metric), self.test(data, other, metric))
            for data in self.kept
        ]

    def diagonal(self) -> list[Compared]:
        """E1: the loss that is made for a metric, minus the loss that is named as the best of the others."""
        found = []
        for metric in COLUMNS:
            made, other = dict[str, float](), dict[str, float]()
            for data in self.kept:
                one, two = (self.named[data][metric, what] for what in (MADE, OTHER))
                tests = (self.test(data, loss, metric) for loss in (one, two))
                found.append(Compared.of(data, metric, f"{one} − {two}", *tests))
                made[data], other[data] = self.mean(data, one, metric), self.mean(data, two, metric)
            found.append(Compared.of(ALL, metric, f"{one} − best of the others", made, other))
        return found

    def wins(self) -> dict[str, list[str]]:
        """E2: set -> the metrics whose own loss is the best of all losses on the test classes."""
        return {data: [metric for metric in COLUMNS if self._wins(data, metric)] for data in self.kept}

    def _wins(self, data: str, metric: str) -> bool:
        best = max(LOSSES, key=lambda loss: self.mean(data, loss, metric))
        return LOSSES[best].column == metric

    def chosen_by(self) -> list[Compared]:
        """E3: the trial kept for the metric that is reported, minus the trial kept for mAP@R."""
        others = [metric for metric in COLUMNS if metric != RECALL]
        what, named = "chosen by the metric − chosen by mAP@R", ", ".join(others)
        own, usual = dict[str, float](), dict[str, float]()
        for data in self.kept:
            own[data] = fmean(self.mean(data, loss, metric) for loss in LOSSES for metric in others)
            usual[data] = fmean(self.mean(data, loss, metric, RECALL) for loss in LOSSES for metric in others)
        each = [Compared(data, named, what, own[data] - usual[data], None) for data in self.kept]
        return [*each, Compared.of(ALL, named, what, own, usual)]

    def ranks_and_pairs(self) -> list[Compared]:
        """D1: the best loss of ranks minus the best loss of pairs. The means over the folds name both."""
        found = []
        for data in self.kept:
            one, two = (max(of, key=lambda loss: self.on_folds[data][loss, RECALL]) for of in (OF_RANKS, OF_PAIRS))
            tests = (self.test(data, loss, RECALL) for loss in (one, two))
            found.append(Compared.of(data, RECALL, f"{one} − {two}", *tests))
        return found

    def overall(self) -> dict[str, float]:
        """Loss -> mean over the sets and the four metrics. If E1 fails, the pages name the best of these."""
        return {
            loss: fmean(self.mean(data, loss, metric) for data in self.kept for metric in COLUMNS) for loss in LOSSES
        }

    def lines(self, hypothesis: str) -> list[Compared]:
        """The comparisons of D1, E1, E3, F1 or H1."""
        of: dict[str, Callable[[], list[Compared]]] = {
            "D1": self.ranks_and_pairs,
            "E1": self.diagonal,
            "E3": self.chosen_by,
            "F1": lambda: self.against("adaptive_roadmap", "pml/multi_similarity", POOLED),
            "H1": lambda: self.against("adaptive_triplet", "adaptive_roadmap", RECALL),
        }
        return of[hypothesis]()


def told(matrix: Matrix) -> Iterator[str]:
    """All verdicts as lines of text."""
    for hypothesis in ("D1", "E1", "E3", "F1", "H1"):
        for line in matrix.lines(hypothesis):
            yield f"{hypothesis}  {line}"
    wins = matrix.wins()
    yield f"E2  {sum(map(len, wins.values()))} of {len(COLUMNS) * len(wins)}: " + "; ".join(
        f"{data}: {', '.join(metrics) or 'none'}" for data, metrics in wins.items()
    )
    for loss, value in sorted(matrix.overall().items(), key=lambda item: -item[1]):
        yield f"mean of all  {loss:<24}{value:.2f}"


def main(words: Sequence[str] | None = None) -> None:
    """Print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=Path, default=Path("papers/results/matrix/matrix.csv"))
    for line in told(Matrix(parser.parse_args(words).values)):
        print(line)


if __name__ == "__main__":
    command.run(main)
