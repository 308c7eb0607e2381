"""Reported numbers of a run: its metrics by a rule, its time, its decomposability gap, results on another test set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rankgrad.evaluation import Bootstrap, Report, evaluate
from rankgrad_workbench.datasets.inspection import NOT_COMPARABLE
from rankgrad_workbench.files import read_json, read_npz, write_text
from rankgrad_workbench.models.weights import load_weights
from rankgrad_workbench.runs.folder import OFF_COUNTS, Run
from rankgrad_workbench.runs.history import CHOSEN_BY, Chooser, best

from ..analysis.decomposability import class_batches, gaps

# Rule of reporting -> the split on which it chooses the evaluation. "last" does not choose.
RULES: Mapping[str, Chooser] = {"best": "test", "held_out": "val"}
AP = ("AP50", "AP50_11", "AP75", "AP75_11")  # metrics of a detector
DISTANCES = {"dists@intra": "dists_intra", "dists@inter": "dists_inter"}
NMI = "NMI"
MINUTES, GAP, GAP_DECREASE = "minutes_per_epoch", "DG_AP", "DG_AP_relative_decrease_percent"
INCREASE = "mAP@R_relative_increase_percent"
# Metric that compares two methods -> (metric of each method, 1 for an increase or -1 for a decrease).
RELATIVE = {GAP_DECREASE: (GAP, -1), INCREASE: ("mAP@R", 1)}
# Metrics that need the embeddings or the weights of a run.
OF_EMBEDDINGS = frozenset({NMI, GAP, GAP_DECREASE})
# Batches of DG_AP [ours]; ROADMAP's table 9 does not give its batches.
GAP_BATCH, GAP_PER_CLASS = 64, 4


@dataclass(frozen=True)
class Checkpoint:
    """The evaluation of a run that is reported, and its weights.

    Attributes:
        steps: training steps before this evaluation.
        values: metrics of the evaluation.
        last: whether it is the one after training.
        weights: file of the weights, which exists only if the run kept it.
    """

    steps: int
    values: Mapping[str, float]
    last: bool
    weights: Path

    @property
    def there(self) -> bool:
        """Whether the weights were kept. The weights after training are always kept."""
        return self.last or (self.weights.exists() and load_weights(self.weights)[1]["steps"] == self.steps)

    def beside(self, run: Run, name: str) -> Path:
        """The file in the run for a result that is computed with these weights."""
        return run.folder / (f"{name}.json" if self.last else f"{name}-of-step-{self.steps}.json")


def checkpoint(run: Run, rule: str) -> Checkpoint | None:
    """The reported evaluation by a rule; None if it cannot be chosen, because the run held out no classes."""
    end = int(run.read_facts()["steps"])
    if rule == "last":
        return Checkpoint(end, run.read_values(), True, run.weights)
    try:
        steps, values = best(run, CHOSEN_BY[RULES[rule]])
    except ValueError:
        return None
    return Checkpoint(steps, values, steps == end, run.weights if steps == end else run.best)


def measure(run: Run, metric: str, rule: str, test: Sequence[str] = ()) -> float | None:
    """A metric of a finished run in the units of the papers' tables; None if the run does not have it.

    All metrics of a run are those of the same weights, which the rule chooses.

    Args:
        run: finished run.
        metric: R@K, mAP@R, NMI (per cent), dists@intra, dists@inter (0 .. 2), minutes_per_epoch, DG_AP (per cent); for
            a detector one of `AP` (per cent).
        rule: "best": the evaluation with the best R@1 on the test set; "held_out": with the best R@1 on classes held
            out of training; "last": after the last epoch.
        test: settings of another test set.
    """
    if metric == MINUTES:
        return minutes_per_epoch(run)
    if metric in AP:  # after the last epoch under every rule
        value = read_json(run.after, "values")["values"].get(metric)
        return None if value is None else 100 * float(value)
    chosen = checkpoint(run, rule)
    if chosen is None:
        return None
    if metric in (GAP, NMI) or test:
        if not chosen.there:
            return None
        if metric in (GAP, NMI):
            return 100 * (gap_of_run if metric == GAP else nmi_of_run)(run, chosen)
    name = DISTANCES.get(metric, metric)
    values = other_test(run, test, chosen).values if test else chosen.values
    if name not in values:
        return None
    return values[name] if metric in DISTANCES else 100 * values[name]


def relative(metric: str, ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """A metric of `RELATIVE` for each common seed, in per cent of the other method's value.

    >>> relative("mAP@R_relative_increase_percent", {0: 22.0, 1: 30.0}, {0: 20.0})
    {0: 10.0}
    """
    sign = RELATIVE[metric][1]
    return {seed: 100 * sign * (ours[seed] - theirs[seed]) / theirs[seed] for seed in ours if theirs.get(seed)}


def minutes_per_epoch(run: Run) -> float:
    """Minutes of training per epoch, including evaluations."""
    from rankgrad_workbench.settings import load

    seconds = read_json(run.facts, "train_seconds")["train_seconds"]
    return float(seconds) / int(load(run.config).trainer.max_epochs) / 60


def other_test(run: Run, test: Sequence[str], chosen: Checkpoint) -> Report:
    """The report of a run's weights on another test set. It is computed once and stored in the folder of the run.

    Args:
        run: finished run.
        test: data settings of the test set, such as ["data.load.test=medium"].
        chosen: the weights.
    """
    path = chosen.beside(run, f"after-{'-'.join(test)}")
    if path.exists():
        return Report.from_json(path)
    report, _, _ = _evaluated(run, chosen, test)
    report.to_json(path)
    return report


def off_counts(run: Run, rule: str, test: Sequence[str] = ()) -> str:
    """A sentence if a number of a run cannot be compared with the paper's, because its data has other counts.

    Args:
        run: finished run.
        rule: see `measure`.
        test: settings of another test set.
    """
    text: str = run.read_facts().get(OFF_COUNTS, f"{run.folder.name} does not say which counts its data has")
    chosen = checkpoint(run, rule) if test else None
    if text or chosen is None or not chosen.there:
        return text
    return next((note for note in other_test(run, test, chosen).notes if NOT_COMPARABLE in note), "")


def _evaluated(run: Run, chosen: Checkpoint, test: Sequence[str] = ()) -> tuple[Report, Tensor, Tensor]:
    """(report, embeddings, labels) for weights of a run, on its test set or on that of other settings."""
    from omegaconf import OmegaConf

    from rankgrad_workbench import training
    from rankgrad_workbench.settings import load, make
    from rankgrad_workbench.tasks.retrieval.evaluating import evaluate_model

    config = OmegaConf.merge(load(run.config), OmegaConf.from_dotlist(list(test)))
    model, _ = load_weights(chosen.weights)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    whole = make(config.data.load, slot="data")
    table = whole.select(config.evaluation.split)
    report, embeddings = evaluate_model(
        model,
        table,
        make(config.data.eval_transform, slot="transform"),
        training.plain(config.evaluation),
        workers=config.data.workers,
        seed=config.seed,
    )
    if whole.off_counts:
        report = replace(report, notes=(*report.notes, whole.off_counts))
    return report, embeddings, table.label


def _embedded(run: Run, chosen: Checkpoint) -> tuple[Tensor, Tensor]:
    """(test embeddings, labels): read from the run, or computed again from its weights."""
    if not chosen.last:
        return _evaluated(run, chosen)[1:]
    file = read_npz(run.embeddings, "embeddings", "labels")
    return torch.from_numpy(file["embeddings"]), torch.from_numpy(file["labels"])


def nmi_of_run(run: Run, chosen: Checkpoint) -> float:
    """NMI of the test embeddings. It is computed once and stored in the folder of the run."""
    path = chosen.beside(run, "nmi")
    if path.exists():
        return float(read_json(path, "NMI")["NMI"])
    from rankgrad_workbench.settings import load

    drawing = Bootstrap(0, seed=load(run.config).seed)
    report = evaluate(*_embedded(run, chosen), metrics=["NMI"], intervals=drawing)
    value = report.values["NMI"]
    write_text(path, json.dumps({"NMI": value, "clusters": report.settings["clusters"]}))
    return value


def gap_of_run(run: Run, chosen: Checkpoint) -> float:
    """Mean decomposability gap of AP on the test set. It is computed once and stored in the folder of the run."""
    path = chosen.beside(run, "decomposability")
    if path.exists():
        return float(read_json(path, "gap")["gap"])
    embeddings, labels = _embedded(run, chosen)
    batch = class_batches(labels, GAP_BATCH, GAP_PER_CLASS)
    gap = float(gaps(embeddings.double(), labels, batch).nanmean())
    content = {"gap": gap, "batch": GAP_BATCH, "per_class": GAP_PER_CLASS}
    write_text(path, json.dumps(content))
    return gap
