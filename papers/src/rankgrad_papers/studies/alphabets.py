"""Leave one alphabet of Omniglot out: every method is tuned on the other seven, then tested on the eighth.

    python -m rankgrad_papers.studies.alphabets --data-root DIR adaptive_roadmap pml/multi_similarity

A cell is a method and an alphabet. Its search uses only the seven training alphabets. Then three seeds are trained on
them, and tested on the alphabet that was left out. The values of a cell are added to the csv when its last seed ends.
If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from rankgrad.ranks.normalize import unit_rows
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.runs.compare import compare_variants, folders_of, own_settings
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.tuning.tune import tune

from ..values import add_lines, append, cells, made_of
from . import command

ALPHABETS = (
    *("Balinese", "Early_Aramaic", "Greek", "Japanese_(katakana)"),
    *("Korean", "Latin", "Sanskrit", "Tagalog"),
)
TRIALS, FOLDS, SEEDS = 6, 2, (0, 1, 2)
METRICS = ("R@1", "mAP@R", "AP")
POOLED = "AP of all pairs"

#: Settings of all trainings: the short recipe, upright letters.
SHARED = ("data=omniglot", "data.load.turns=1", "recipe=small", "evaluation.bootstrap=0", "evaluation.clusters=none")

_MOVING = (
    "loss.losses.calibration.quantiles=[0.5,0.99]",
    *(
        "loss.losses.calibration.alpha=0.9",
        "loss.losses.calibration.beta=0.6",
    ),  # without effect beside quantiles, so not searched
)
#: Method -> its settings, the loss first. The search does not change these settings.
METHODS: Mapping[str, Sequence[str]] = {
    "adaptive_roadmap": ("loss=adaptive_roadmap",),
    "info_nce": ("loss=info_nce",),
    "pml/multi_similarity": ("loss=pml/multi_similarity",),
    "pml/triplet": ("loss=pml/batch_hard_triplet",),
    # ranks or thresholds: SupAP's share of the default loss, and the moving thresholds with losses of pairs
    "pml/multi_similarity + thresholds": ("loss=pml/multi_similarity+calibration", *_MOVING),
    "pml/contrastive + thresholds": ("loss=pml/contrastive+calibration", *_MOVING),
    "pml/triplet + thresholds": ("loss=pml/batch_hard_triplet+calibration", *_MOVING),
    "SupAP's share 0": ("loss=adaptive_roadmap", "loss.weight=1"),
    "SupAP's share .1": ("loss=adaptive_roadmap", "loss.weight=0.9"),
    "SupAP's share .25": ("loss=adaptive_roadmap", "loss.weight=0.75"),
    "SupAP's share .5": ("loss=adaptive_roadmap", "loss.weight=0.5"),
    "SupAP's share 1": ("loss=supap",),
    # more opponents
    "pml/contrastive": ("loss=pml/contrastive",),
    "pml/supcon": ("loss=pml/supcon",),
    "pml/proxy_anchor": ("loss=pml/proxy_anchor",),
    "pml/n_pair": ("loss=pml/n_pair",),
}
UNTUNED = ", defaults"  # METHOD, defaults: the loss with its defaults, without a search


def cell(method: str, alphabet: str, data_root: str, work: Path, jobs: int) -> tuple[list[Path], str]:
    """Search and train a cell. Return the folders of its runs, one for each seed, and the chosen settings."""
    words = [*SHARED, f"data.root={data_root}", f"+data.load.test_alphabets=['{alphabet}']"]
    name = method.removesuffix(UNTUNED)
    loss, *more = METHODS[name]
    loss = loss.partition("=")[2]
    if method.endswith(UNTUNED):
        rest = [*words, *more]
        compare_variants({loss: own_settings(loss, rest, "train")}, SEEDS, rest, work, jobs)
        return folders_of([loss], SEEDS, work)[loss], ""
    searched = [f"trials={TRIALS}", f"folds={FOLDS}", f"seeds={','.join(map(str, SEEDS))}", "threads=1"]
    outcome = tune([f"loss={loss}", *words, *more, *searched], work, jobs)
    return list(outcome.runs[loss]), " ".join(outcome.winners[loss].settings)


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run in per cent. One of them is the AP of all pairs of test images in one list."""
    values = run.read_values()
    columns = read_npz(run.embeddings, "embeddings", "labels")
    pooled = pooled_ap(columns["embeddings"], columns["labels"])
    return {name: 100 * values[name] for name in METRICS} | {POOLED: 100 * pooled}


def pooled_ap(embeddings: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> float:
    """AP of the list of all pairs of items, sorted by cosine. As in the evaluation, a zero row has cosine 0.

    >>> pooled_ap(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), np.array([5, 5, 6]))
    1.0
    """
    from sklearn.metrics import average_precision_score

    rows = unit_rows(torch.from_numpy(embeddings)).numpy()
    one, other = np.triu_indices(len(rows), 1)
    return float(average_precision_score(labels[one] == labels[other], (rows @ rows.T)[one, other]))


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet."""
    parser = command.parser_of(__doc__, "folder with Omniglot", "papers/results/omniglot/alphabets.csv", "alphabets")
    parser.add_argument("methods", nargs="*", help=f"of {', '.join(METHODS)}; METHOD{UNTUNED}: without a search")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trainings at a time")
    given = parser.parse_args(words)
    command.known(parser, [name.removesuffix(UNTUNED) for name in given.methods], METHODS, "method")
    methods = given.methods or list(METHODS)
    chosen = given.values.with_name(f"{given.values.stem}-chosen.csv")
    for alphabet in ALPHABETS:
        for method in methods:
            there = cells(given.values)
            left = [seed for seed in SEEDS if ((("method", method),), alphabet, str(seed)) not in there]
            if not left:
                continue
            work = given.runs / alphabet / "".join(c if c.isalnum() else "-" for c in method)
            runs, settings = cell(method, alphabet, given.data_root, work, given.jobs)
            numbers = [measured(Run(folder)) for folder in runs]
            for seed, folder, values in zip(SEEDS, runs, numbers, strict=True):
                if seed in left:  # an interrupted command had written the others
                    made = made_of(folder)
                    append(given.values, {"method": method}, values, unit=alphabet, seed=str(seed), made=made)
            add_lines(chosen, [{"method": method, "alphabet": alphabet, "settings": settings}])
            print(f"{method}, {alphabet}: mAP@R {np.mean([each['mAP@R'] for each in numbers]):.1f}", flush=True)


if __name__ == "__main__":
    command.run(main)
