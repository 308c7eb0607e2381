"""Which loss for a pretrained network? Every loss, tuned alike, on folds of classes of photographs and texts.

    python -m rankgrad_papers.studies.fine_tuned --data-root DIR --weights lite0.safetensors --encoder MINILM
    python -m rankgrad_papers.studies.fine_tuned --verdicts

DIR has the folders grocery, animals, banking77 and clinc150, the weights are those of timm's tf_efficientnet_lite0, and
the encoder is a folder of sentence-transformers. A training is `rankgrad train` with its defaults for a pretrained
network and 100 batches. The classes are divided into three folds: two are trained on, the third is the test. Each loss
has four trials, two values of its own setting with two rates. Its value on a fold is that of the trial with the best
mean mAP@R on the two other folds. With `--trials 1` there is no search: each loss has its defaults. A cell is added to
the csv when its training ends. If the command is interrupted, run it again and it continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

from rankgrad_workbench.runs.folder import Run

from ..trainings import Training, train_missing
from ..values import Values, read
from . import command
from .compared import Compared

DATA = ("grocery", "banking77", "animals", "clinc150")
FOLDS = ("1/3", "2/3", "3/3")
METRICS = ("R@1", "mAP@R", "AP")
#: Loss -> the two values of its own setting that its search tries. One is the default.
LOSSES: Mapping[str, tuple[str, str]] = {
    "adaptive_roadmap": ("weight=0.75", "weight=0.5"),
    "supap": ("tau=0.01", "tau=0.05"),
    "roadmap": ("weight=0.5", "weight=0.75"),
    "smooth_ap": ("tau=0.01", "tau=0.05"),
    "info_nce": ("tau=0.1", "tau=0.04"),
    "pnp": ("alpha=4", "alpha=1"),
    "rambo_ap": ("lambda_=4", "lambda_=1"),
    "rambo_recall": ("lambda_=4", "lambda_=1"),
    "fastap": ("bins=10", "bins=20"),
    "softbin_ap": ("bins=20", "bins=40"),
    "auc": ("step=0.1", "step=0.05"),
    "pml/multi_similarity": ("loss.base=0.5", "loss.base=0.7"),
    "pml/triplet": ("loss.margin=0.2", "loss.margin=0.05"),
    "pml/contrastive": ("loss.neg_margin=0.5", "loss.neg_margin=0.3"),
    "pml/supcon": ("loss.temperature=0.1", "loss.temperature=0.05"),
    "pml/proxy_anchor": ("loss.alpha=32", "loss.alpha=16"),
    "pml/normalized_softmax": ("loss.temperature=0.05", "loss.temperature=0.1"),
}
RATES = {"images": ("3e-4", "1e-4"), "texts": ("2e-5", "1e-4")}

SHARED = (
    *("evaluation.split=val", "evaluation.bootstrap=0", "evaluation.clusters=none", "threads=1", "seed=0"),
    *("sampler.batches_per_epoch=100", "trainer.max_epochs=1"),
)


def kind_of(data: str) -> str:
    """Images or texts."""
    return "texts" if data in ("banking77", "clinc150") else "images"


def settings_of(data: str, root: Path, weights: str, encoder: str) -> list[str]:
    """The settings of a data set and its network."""
    if kind_of(data) == "texts":
        return [f"data={data}", f"data.root={root / data}", "model=sentence_transformer", f"model.name={encoder}"]
    folder = root / data / "train" if data == "animals" else root / data
    size = 64 if data == "animals" else 96
    return [
        *("data=folder", f"data.root={folder}", f"data.size={size}", "data.load.test_fraction=0"),
        *("model=timm", "model.name=tf_efficientnet_lite0", f"model.weights={weights}"),
    ]


def _trials() -> Iterator[tuple[str, int, int]]:
    """(loss, index of its setting, index of the rate): the first trial of all losses, then the second ..."""
    for setting, rate in ((0, 0), (1, 0), (0, 1), (1, 1)):
        for loss in LOSSES:
            yield loss, setting, rate


def measured(run: Run) -> dict[str, float]:
    """The metrics of a run after its training in per cent, and those of the untouched network."""
    after, before = run.read_values(), run.read_before()
    untouched = {} if before is None else {f"{name} before": 100 * before.values[name] for name in METRICS}
    return {name: 100 * after[name] for name in METRICS} | untouched


def tuned(values: Values, data: str, loss: str, metric: str, trials: int = 4) -> dict[str, float]:
    """Fold -> value of the trial that is the best in mAP@R on the other folds, of the folds with all trials.

    Args:
        values: of the csv.
        data: name of the data set.
        loss: name of the loss.
        metric: name of the value.
        trials: number of trials of each loss. 1 is its first, with the default rate: nothing is chosen.
    """
    of: list[dict[str, dict[str, float]]] = []
    for setting, rate in [(own, rate) for name, own, rate in _trials() if name == loss][:trials]:
        key = {"data": data, "loss": loss, "setting": LOSSES[loss][setting], "rate": RATES[kind_of(data)][rate]}
        if key not in values.settings:
            return {}
        of.append({name: values.units(key, name) for name in ("mAP@R", metric)})
    folds = set.intersection(*(set(each["mAP@R"]) for each in of))
    if trials > 1 and len(folds) < 2:
        return {}

    def best(fold: str) -> dict[str, dict[str, float]]:
        others = folds - {fold}
        return max(of, key=lambda trial: fmean(trial["mAP@R"][other] for other in others)) if trials > 1 else of[0]

    return {fold: best(fold)[metric][fold] for fold in sorted(folds)}


def paired(
    values: Values, one: str, other: str, metric: str, trials: int = 4, *, by_fold: bool = False
) -> tuple[dict[str, float], dict[str, float]]:
    """The values of two losses where both were trained; the other may be "untouched".

    Args:
        values: of the csv.
        one: name of a loss.
        other: name of a loss, or "untouched": the network before the training with the first.
        metric: name of the value.
        trials: see `tuned`.
        by_fold: return the values of the folds, named "set fold". False: their mean for each data set.
    """
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for data in DATA:
        first = tuned(values, data, one, metric, trials)
        second = tuned(values, data, *((one, f"{metric} before") if other == "untouched" else (other, metric)), trials)
        both = sorted(set(first) & set(second))
        for into, of in zip(found, (first, second), strict=True):
            if by_fold:
                into.update({f"{data} {fold}": of[fold] for fold in both})
            elif both:
                into[data] = fmean(of[fold] for fold in both)
    return found


def verdicts(path: Path, trials: int = 4) -> Iterator[str]:
    """Two lines for each comparison of losses: its mean and interval over the data sets, and over the folds."""
    values = read(path)
    for metric in METRICS:
        untouched = [(loss, "untouched") for loss in LOSSES if f"{metric} before" in values.metrics]
        for one, other in [*combinations(LOSSES, 2), *untouched]:
            for unit in ("sets", "folds"):
                both = paired(values, one, other, metric, trials, by_fold=unit == "folds")
                if both[0]:
                    yield str(Compared.of(f"{unit}: {len(both[0])}", metric, f"{one} − {other}", *both))


def compared(values: Values, of_folds: Collection[str] = FOLDS) -> list[list[str]]:
    """The rows of a table: R@1 / mAP@R of each loss with its defaults, and their mean mAP@R over the data sets.

    A data set is measured on the given folds that most of them were trained on for one loss; a loss without all of
    these is blank. The row "untouched" is the network before any training. The losses are in the order of their mean.

    Args:
        values: of the csv.
        of_folds: the folds to show.
    """
    found: dict[str, dict[str, tuple[float, float]]] = {"untouched": {}}
    heads = {}
    for data in DATA:
        of = {loss: [tuned(values, data, loss, metric, 1) for metric in ("R@1", "mAP@R")] for loss in LOSSES}
        of = {loss: both for loss, both in of.items() if both[0]}
        trained = [[fold for fold in FOLDS if fold in of_folds and fold in first] for first, _ in of.values()]
        folds = max(trained, key=len, default=[])
        if not folds:
            continue
        heads[data] = f"{data}, {len(folds)} fold{'s' * (len(folds) > 1)}"
        one = next(loss for loss, both in of.items() if set(folds) <= set(both[0]))
        of["untouched"] = [tuned(values, data, one, f"{metric} before", 1) for metric in ("R@1", "mAP@R")]
        for name, (first, second) in of.items():
            if set(folds) <= set(first):
                both_means = fmean(first[fold] for fold in folds), fmean(second[fold] for fold in folds)
                found.setdefault(name, {})[data] = both_means
    means = {name: fmean(cell[1] for cell in of.values()) for name, of in found.items() if set(of) == set(heads)}
    order = ["untouched", *sorted((name for name in found if name != "untouched"), key=lambda it: -means.get(it, 0))]
    rows = [["loss", *heads.values(), "mean mAP@R"]]
    for name in order:
        cells = [
            f"{found[name][data][0]:.1f} / {found[name][data][1]:.1f}" if data in found[name] else "" for data in heads
        ]
        rows.append([name, *cells, f"{means[name]:.1f}" if name in means else ""])
    return rows


def parser_of(description: str | None, values: str, data: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options of the studies of fine-tuning: folders, weights, data sets by default, verdicts."""
    where = f"papers/results/fine-tuning/{values}"
    parser = command.parser_of(description, "folder of the data sets", where, "fine-tuned", required=False)
    parser.add_argument("--weights", metavar="FILE", help="of tf_efficientnet_lite0")
    parser.add_argument("--encoder", metavar="DIR", help="all-MiniLM-L6-v2")
    parser.add_argument("--data", nargs="+", default=data, choices=DATA)
    parser.add_argument("--verdicts", action="store_true", help="print the comparisons in the csv, and train nothing")
    return parser


def told(parser: argparse.ArgumentParser, given: argparse.Namespace, verdicts: Callable[[], Iterator[str]]) -> bool:
    """Whether only the verdicts were wanted, which are printed; otherwise a training needs its folders."""
    if given.verdicts:
        print("\n".join(verdicts()))
    elif None in (given.data_root, given.weights, given.encoder):
        parser.error("give --data-root, --weights and --encoder; or --verdicts, which trains nothing")
    return bool(given.verdicts)


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet, fold by fold."""
    parser = parser_of(__doc__, "losses.csv", DATA)
    parser.add_argument("--losses", nargs="+", default=[*LOSSES], choices=[*LOSSES], metavar="LOSS")
    parser.add_argument("--trials", type=int, default=4, help="number of trials of each loss, 1 to 4 (4)")
    given = parser.parse_args(words)
    if told(parser, given, lambda: verdicts(given.values, given.trials)):
        return
    wanted = [each for each in _trials() if each[0] in given.losses][: given.trials * len(given.losses)]
    for fold in FOLDS:
        for data in given.data:
            shared = [*SHARED, f"fold={fold}", *settings_of(data, given.data_root, given.weights, given.encoder)]
            rates = RATES[kind_of(data)]
            rows = []
            for loss, own, rate in wanted:
                setting = LOSSES[loss][own]
                key = {"data": data, "loss": loss, "setting": setting, "rate": rates[rate]}
                changed = [f"loss={loss}", f"loss.{setting}", f"optimizer.lr={rates[rate]}"]
                rows.append(Training(", ".join(key.values()), key, changed, unit=fold))
            train_missing(rows, given.values, given.runs / f"{data} {fold}".replace("/", " of "), shared, measured)


if __name__ == "__main__":
    command.run(main)
