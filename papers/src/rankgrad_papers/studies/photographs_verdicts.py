"""Verdicts on the hypotheses D2 to D10 of papers/docs/hypotheses.md, from the files of the photographs.

    python -m rankgrad_papers.studies.photographs_verdicts

It trains nothing. Each line has the metric, the comparison, the difference in points and its 95 % interval. The
interval is over the seeds that both sides have. For D1 see `matrix_verdicts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ..values import read
from . import command
from .compared import Compared

DATA = "photographs"
SMOOTH, BOUND, BOTH = "SmoothAP [2] (H- no, Lcalibr no)", "SupAP (H- yes, Lcalibr no)", "ROADMAP (H- yes, Lcalibr yes)"
SHARE = "mAP@R kept of 40 % wrong labels"

ByUnit = Mapping[str, float]


class Photographs:
    """The files of the photographs, and the comparisons from them.

    Args:
        folder: folder with the values of the tables (`roadmap-table2.csv` and others) and of the study
            (`finetuned.csv`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, name: str, metric: str, row: str, **setting: str) -> ByUnit:
        """Seed -> value of a row of a paper's table."""
        return read(self.folder / f"{name}.csv").units({"row": row, **setting}, metric)

    def study(self, metric: str, row: str) -> ByUnit:
        """Seed -> value of a row of the study."""
        return self.table("finetuned", metric, row)

    def bound(self) -> Iterator[Compared]:
        """D2: the upper bound against Smooth-AP. The first weights decide. The second weights are also shown."""
        yield from self._of_parts("SupAP − Smooth-AP", BOUND, SMOOTH)

    def calibration(self) -> Iterator[Compared]:
        """D3: the calibration added to the bound. The first weights decide. The second weights are also shown."""
        yield from self._of_parts("ROADMAP − SupAP", BOTH, BOUND)

    def _of_parts(self, what: str, *rows: str) -> Iterator[Compared]:
        for name, weights in (("roadmap-table2-first", "first"), ("roadmap-table2", "second")):
            yield _compared("mAP@R", f"{what}, {weights} weights", *(self.table(name, "mAP@R", row) for row in rows))

    def small_batches(self) -> Iterator[Compared]:
        """D4: the effect of the calibration in small batches, minus its effect in large batches."""
        gains = []
        for images, batch in ((32, "32"), (116, "128")):  # here the table's batches of 128 to 384 images all have 116
            both, bound = (self.table("roadmap-table6", "mAP@R", row, batch_size=batch) for row in (BOTH, BOUND))
            yield _compared("mAP@R", f"ROADMAP − SupAP, batches of {images}", both, bound)
            gains.append({seed: value - bound[seed] for seed, value in both.items() if seed in bound})
        yield _compared("mAP@R", "the first minus the second", *gains)

    def gap(self) -> Iterator[Compared]:
        """D5: the decomposability gap with the calibration, minus the gap without it."""
        rows = ("ROADMAP (Lcalibr added to SupAP)", "SupAP")
        yield _compared("DG_AP", "ROADMAP − SupAP", *(self.table("roadmap-table9", "DG_AP", row) for row in rows))

    def variants(self) -> Iterator[Compared]:
        """D6: comparisons of PNP's variants."""
        for pair in (("Ds", "O"), ("Dq", "O"), ("O", "Iu")):
            yield _compared("R@1", " − ".join(pair), *(self.table("pnp-table1", "R@1", f"PNP-{name}") for name in pair))

    def pnp(self) -> Iterator[Compared]:
        """D7: PNP-Dq against Smooth-AP, with the original classes and with classes merged by three."""
        dq, smooth = self.table("pnp-table1", "R@1", "PNP-Dq"), self.table("roadmap-table2", "R@1", SMOOTH)
        yield _compared("R@1", "Dq − Smooth-AP", dq, smooth)
        merged = (self.table("pnp-table6", "R@1", row) for row in ("PNP-Dq", "Smooth-AP"))
        yield _compared("R@1", "Dq − Smooth-AP, classes merged", *merged)

    def memory(self) -> Iterator[Compared]:
        """D8: the effect of a memory of three batches, with the papers' learning rate and with that of the recipe."""
        slow = "rambo_recall, rate 1e-5"
        yield _compared(
            "R@1", "memory − none, rate 1e-5", *(self.study("R@1", row) for row in (f"{slow}, memory", slow))
        )
        usual = (self.table("rambo-table7", "R@1", row) for row in ("Full RaMBO", "RaMBO: No batch memory"))
        yield _compared("R@1", "memory − none, rate of the recipe", *usual)

    def wrong_labels(self) -> Iterator[Compared]:
        """D9: mAP@R with 40 % wrong labels, as a share of mAP@R without wrong labels."""
        for other in ("pml/multi_similarity", "pml/triplet", "adaptive_roadmap"):
            yield _compared(SHARE, f"supap − {other}", self._kept("supap"), self._kept(other))

    def _kept(self, loss: str) -> ByUnit:
        clean, wrong = (self.study("mAP@R", row) for row in (loss, f"{loss}, wrong labels 0.4"))
        return {seed: 100 * value / clean[seed] for seed, value in wrong.items() if seed in clean}

    def groups(self) -> Iterator[Compared]:
        """D10: losses trained on classes and groups, against the bound trained on classes."""
        for loss in ("h_ap", "supndcg"):
            yield _compared(
                "H-AP", f"{loss} − supap", *(self.study("H-AP", row) for row in (f"{loss}, groups", "supap"))
            )


#: Hypothesis -> the function that compares for it.
JUDGED: Mapping[str, Callable[[Photographs], Iterator[Compared]]] = {
    "D2": Photographs.bound,
    "D3": Photographs.calibration,
    "D4": Photographs.small_batches,
    "D5": Photographs.gap,
    "D6": Photographs.variants,
    "D7": Photographs.pnp,
    "D8": Photographs.memory,
    "D9": Photographs.wrong_labels,
    "D10": Photographs.groups,
}


def _compared(metric: str, what: str, one: ByUnit, other: ByUnit) -> Compared:
    return Compared.of(DATA, metric, what, one, other)


def told(photographs: Photographs) -> Iterator[str]:
    """All verdicts as lines of text."""
    for hypothesis, lines in JUDGED.items():
        yield from (f"{hypothesis:<5}{line}" for line in lines(photographs))


def main(words: Sequence[str] | None = None) -> None:
    """Print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--values", type=Path, default=Path("papers/results/photographs"), metavar="DIR", help="folder of the values"
    )
    for line in told(Photographs(parser.parse_args(words).values)):
        print(line)


if __name__ == "__main__":
    command.run(main)
