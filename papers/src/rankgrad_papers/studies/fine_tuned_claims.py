"""Claims of the papers where they claim them: wrong labels, batches, memory, margin, λ, and SGD.

    python -m rankgrad_papers.studies.fine_tuned_claims --data-root DIR --weights lite0.safetensors --encoder MINILM
    python -m rankgrad_papers.studies.fine_tuned_claims --verdicts

The data sets, networks and folds are those of `fine_tuned`. A training is `rankgrad train` with its defaults for a
pretrained network and 100 batches, and one thing changed. Beside the metrics it has the decomposability gap of AP on
the test classes. A cell is added to the csv when its training ends. If the command is interrupted, run it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rankgrad_workbench.runs.folder import Run

from ..experiments.measures import GAP, measure
from ..trainings import Training, train_missing
from ..values import Values, read
from . import command, fine_tuned
from .fine_tuned import DATA, FOLDS, SHARED, settings_of

LABELS = ("supap", "adaptive_roadmap", "info_nce", "pml/multi_similarity")
#: What is changed -> (its settings, the losses that are trained with it). The base changes nothing.
CHANGED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "base": ((), (*LABELS, "roadmap", "rambo_recall")),
    "20 % wrong labels": (("label_noise=0.2",), LABELS),
    "no margin": (("loss.margin=0",), ("rambo_recall",)),
    "memory": (("memory=rows",), ("rambo_recall",)),
    "batch 32": (("sampler.classes_per_batch=8",), ("supap", "roadmap")),
    "λ = 0.2": (("loss.lambda_=0.2",), ("rambo_recall",)),
    "λ = 20": (("loss.lambda_=20",), ("rambo_recall",)),
    "SGD": (("optimizer.name=sgd",), ("adaptive_roadmap", "info_nce")),
    "SGD, rate .003": (("optimizer.name=sgd", "optimizer.lr=0.003"), ("adaptive_roadmap", "info_nce")),
    "batch 512": (("sampler.samples_per_class=32", "sub_batch=64"), ("supap",)),
}


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run after and before its training, and its decomposability gap, in per cent."""
    gap = measure(run, GAP, "last")
    return fine_tuned.measured(run) | ({} if gap is None else {GAP: gap})


def difference(values: Values, metric: str, one: tuple[str, str], other: tuple[str, str]) -> dict[str, float]:
    """Data set and fold -> value of one (loss, change) minus that of another, where both were trained."""
    found: dict[str, float] = {}
    for data in DATA:
        keys = [{"data": data, "loss": loss, "changed": changed} for loss, changed in (one, other)]
        if all(key in values.settings for key in keys):
            first, second = (values.units(key, metric) for key in keys)
            found |= {f"{data} {fold}": first[fold] - second[fold] for fold in first if fold in second}
    return found


def verdicts(path: Path) -> Iterator[str]:
    """A line for each change: what it adds to a loss, fold by fold, and for the two comparisons of losses."""
    values = read(path)
    pairs = [((loss, changed), (loss, "base")) for changed, (_, losses) in CHANGED.items() for loss in losses]
    pairs += [(("roadmap", changed), ("supap", changed)) for changed in ("base", "batch 32")]
    for one, other in pairs:
        for metric in ("R@1", "mAP@R", GAP):
            found = difference(values, metric, one, other) if one != other else {}
            if found:
                each = ", ".join(f"{name} {value:+.1f}" for name, value in found.items())
                yield f"{metric} of {', '.join(one)} − {', '.join(other)}: {each}"


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet, fold by fold and change by change."""
    parser = fine_tuned.parser_of(__doc__, "claims.csv", ("grocery", "banking77"))
    parser.add_argument("--folds", nargs="+", default=["1/3"], choices=FOLDS)
    parser.add_argument("--changed", nargs="+", default=[*CHANGED], choices=[*CHANGED], metavar="NAME")
    given = parser.parse_args(words)
    if fine_tuned.told(parser, given, lambda: verdicts(given.values)):
        return
    for fold in given.folds:
        for changed in given.changed:
            for data in given.data:
                shared = [*SHARED, f"fold={fold}", *settings_of(data, given.data_root, given.weights, given.encoder)]
                settings, losses = CHANGED[changed]
                rows = []
                for loss in losses:
                    key = {"data": data, "loss": loss, "changed": changed}
                    rows.append(Training(", ".join(key.values()), key, [f"loss={loss}", *settings], unit=fold))
                work = given.runs / f"{data} {fold} claims".replace("/", " of ")
                train_missing(rows, given.values, work, shared, measured)


if __name__ == "__main__":
    command.run(main)
