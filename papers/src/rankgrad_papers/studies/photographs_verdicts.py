"""Verdicts on the hypotheses D2 to D10 of papers/docs/hypotheses.md, from the files of the photographs.

    python -m rankgrad_papers.studies.photographs_verdicts

It trains nothing. Each line has the metric, the comparison, the difference in points and its 95 % interval. The
interval is over the seeds that both sides have. For D1 see `matrix_verdicts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..values import read
from . import command
from .compared import Compared

DATA = "photographs"
SMOOTH, BOUND, BOTH = "SmoothAP [2] (H- no, Lcalibr no)", "SupAP (H- yes, Lcalibr no)", "ROADMAP (H- yes, Lcalibr yes)"
SHARE = "mAP@R kept of 40 % wrong labels"

Row = tuple[str, ...]  # name of a table of a paper, or of the study; row; and batch size, where the table has several
_STUDY, _GAP, _PARTS, _SLOW = "finetuned", "roadmap-table9", "rambo-table7", "rambo_recall, rate 1e-5"
_WEIGHTS = (("roadmap-table2-first", "first"), ("roadmap-table2", "second"))

#: Hypothesis -> its comparisons: metric, name, and two rows, of which the second is subtracted.
LINES: Mapping[str, Sequence[tuple[str, str, Row, Row]]] = {
    # the upper bound against Smooth-AP, and the calibration added to it; the first weights decide
    "D2": [("mAP@R", f"SupAP − Smooth-AP, {which} weights", (name, BOUND), (name, SMOOTH)) for name, which in _WEIGHTS],
    "D3": [("mAP@R", f"ROADMAP − SupAP, {which} weights", (name, BOTH), (name, BOUND)) for name, which in _WEIGHTS],
    # the calibration in small and in large batches; here the table's batches of 128 to 384 images all have 116
    "D4": [
        ("mAP@R", f"ROADMAP − SupAP, batches of {n}", ("roadmap-table6", BOTH, size), ("roadmap-table6", BOUND, size))
        for n, size in ((32, "32"), (116, "128"))
    ],
    "D5": [("DG_AP", "ROADMAP − SupAP", (_GAP, "ROADMAP (Lcalibr added to SupAP)"), (_GAP, "SupAP"))],
    "D6": [
        ("R@1", f"{one} − {other}", ("pnp-table1", f"PNP-{one}"), ("pnp-table1", f"PNP-{other}"))
        for one, other in (("Ds", "O"), ("Dq", "O"), ("O", "Iu"))
    ],
    "D7": [  # with the original classes, and with classes merged by three
        ("R@1", "Dq − Smooth-AP", ("pnp-table1", "PNP-Dq"), ("roadmap-table2", SMOOTH)),
        ("R@1", "Dq − Smooth-AP, classes merged", ("pnp-table6", "PNP-Dq"), ("pnp-table6", "Smooth-AP")),
    ],
    "D8": [  # a memory of three batches, with the papers' learning rate and with that of the recipe
        ("R@1", "memory − none, rate 1e-5", (_STUDY, f"{_SLOW}, memory"), (_STUDY, _SLOW)),
        ("R@1", "memory − none, rate of the recipe", (_PARTS, "Full RaMBO"), (_PARTS, "RaMBO: No batch memory")),
    ],
    "D9": [
        (SHARE, f"supap − {other}", (_STUDY, "supap"), (_STUDY, other))
        for other in ("pml/multi_similarity", "pml/triplet", "adaptive_roadmap")
    ],
    "D10": [
        ("H-AP", f"{loss} − supap", (_STUDY, f"{loss}, groups"), (_STUDY, "supap")) for loss in ("h_ap", "supndcg")
    ],
}


def units(folder: Path, metric: str, row: Row) -> Mapping[str, float]:
    """Seed -> value of a row."""
    name, text, *size = row
    if metric == SHARE:  # mAP@R with wrong labels, as a share of mAP@R without them
        clean, wrong = (units(folder, "mAP@R", (name, each)) for each in (text, f"{text}, wrong labels 0.4"))
        return {seed: 100 * value / clean[seed] for seed, value in wrong.items() if seed in clean}
    return read(folder / f"{name}.csv").units({"row": text, **dict(zip(["batch_size"], size, strict=False))}, metric)


def compared(folder: Path, hypothesis: str) -> Iterator[Compared]:
    """The comparisons of a hypothesis, from the files of a folder."""
    gains = []
    for metric, what, *rows in LINES[hypothesis]:
        one, other = (units(folder, metric, row) for row in rows)
        yield Compared.of(DATA, metric, what, one, other)
        gains.append({seed: value - other[seed] for seed, value in one.items() if seed in other})
    if hypothesis == "D4":
        yield Compared.of(DATA, "mAP@R", "the first minus the second", *gains)


def told(folder: Path) -> Iterator[str]:
    """All verdicts as lines of text."""
    for hypothesis in LINES:
        yield from (f"{hypothesis:<5}{line}" for line in compared(folder, hypothesis))


def main(words: Sequence[str] | None = None) -> None:
    """Print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--values", type=Path, default=Path("papers/results/photographs"), metavar="DIR", help="folder of the values"
    )
    print("\n".join(told(parser.parse_args(words).values)))


if __name__ == "__main__":
    command.run(main)
