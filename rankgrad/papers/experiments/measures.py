"""What a run reports: its metrics by either rule, its time, its decomposability gap, another test set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch

from ...evaluation import Report, evaluate
from ...files import read_json, read_npz
from ...runs.folder import Run
from ...runs.history import best
from ..analysis.decomposability import class_batches, gaps

AP = ("AP50", "AP50_11", "AP75", "AP75_11")  # of a detector
DISTANCES = {"dists@intra": "dists_intra", "dists@inter": "dists_inter"}
NMI = "NMI"
MINUTES, GAP, GAP_DECREASE = "minutes_per_epoch", "DG_AP", "DG_AP_relative_decrease_percent"
INCREASE = "mAP@R_relative_increase_percent"
# Metric of two methods -> that of each, and whether more of it counts (1) or less (-1).
RELATIVE = {GAP_DECREASE: (GAP, -1), INCREASE: ("mAP@R", 1)}
# The batches of DG_AP: ROADMAP's table 9 does not say its own [ours].
GAP_BATCH, GAP_PER_CLASS = 64, 4


def measure(run: Run, metric: str, rule: str, test: Sequence[str] = ()) -> float | None:
    """A metric of a finished run in the units of the papers' tables; None if the run does not have it.

    Args:
        run: finished.
        metric: R@K, mAP@R, NMI (per cent), dists@intra, dists@inter (0 .. 2), minutes_per_epoch, DG_AP (per cent); of
            a detector those of `AP` (per cent).
        rule: "best": of the evaluation with the best R@1; "last": after the last epoch. NMI, DG_AP and other test
            sets are always those of the last epoch, whose weights and embeddings are kept.
        test: settings of another test set.
    """
    if metric == MINUTES:
        return minutes_per_epoch(run)
    if metric in AP:  # after the last epoch under either rule
        value = read_json(run.after, "values")["values"].get(metric)
        return None if value is None else 100 * float(value)
    if metric == GAP:
        return 100 * gap_of_run(run)
    if metric == NMI:
        return 100 * nmi_of_run(run)
    name = DISTANCES.get(metric, metric)
    if test:
        values = other_test(run, test).values
    else:
        values = best(run, "R@1")[1] if rule == "best" else Report.from_json(run.after).values
    if name not in values:
        return None
    return values[name] if metric in DISTANCES else 100 * values[name]


def relative(metric: str, ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """A metric of `RELATIVE` seed by seed, in per cent of theirs; seeds that only one has are left out.

    >>> relative("mAP@R_relative_increase_percent", {0: 22.0, 1: 30.0}, {0: 20.0})
    {0: 10.0}
    """
    sign = RELATIVE[metric][1]
    return {seed: 100 * sign * (ours[seed] - theirs[seed]) / theirs[seed] for seed in ours if theirs.get(seed)}


def minutes_per_epoch(run: Run) -> float | None:
    """Of training, with the evaluations inside it; None for a run that was resumed, whose time is not known."""
    from ...config import load

    seconds = read_json(run.facts, "train_seconds")["train_seconds"]
    return None if seconds is None else float(seconds) / int(load(run.config).trainer.max_epochs) / 60


def other_test(run: Run, test: Sequence[str]) -> Report:
    """The report of a run's weights on the test set of other data settings; computed once, kept in the run.

    Args:
        run: finished.
        test: such as ["data.load.test=medium"].
    """
    path = run.folder / f"after-{'-'.join(test)}.json"
    if path.exists():
        return Report.from_json(path)
    from omegaconf import OmegaConf

    from ... import training
    from ...config import load, make
    from ...models.weights import load_weights

    config = OmegaConf.merge(load(run.config), OmegaConf.from_dotlist(list(test)))
    model, _ = load_weights(run.weights)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    report, _ = training.evaluate_model(
        model,
        make(config.data.load, slot="data").select(config.evaluation.split),
        make(config.data.eval_transform, slot="transform"),
        training.plain(config.evaluation),
        workers=config.data.workers,
        seed=config.seed,
    )
    report.to_json(path)
    return report


def nmi_of_run(run: Run) -> float:
    """NMI of the test embeddings after training; k-means runs once, its result is kept in the run."""
    path = run.folder / "nmi.json"
    if path.exists():
        return float(read_json(path, "NMI")["NMI"])
    from ...config import load

    file = read_npz(run.embeddings, "embeddings", "labels")
    report = evaluate(file["embeddings"], file["labels"], ks=[1], bootstrap=0, seed=load(run.config).seed)
    value = report.values["NMI"]
    path.write_text(json.dumps({"NMI": value, "clusters": report.settings["clusters"]}), encoding="utf-8")
    return value


def gap_of_run(run: Run) -> float:
    """Mean decomposability gap of AP over the test set of a run; computed once, kept in the run."""
    path = run.folder / "decomposability.json"
    if path.exists():
        return float(read_json(path, "gap")["gap"])
    file = read_npz(run.embeddings, "embeddings", "labels")
    embeddings, labels = torch.from_numpy(file["embeddings"]), torch.from_numpy(file["labels"])
    batch = class_batches(labels, GAP_BATCH, GAP_PER_CLASS)
    gap = float(gaps(embeddings.double(), labels, batch).nanmean())
    content = {"gap": gap, "batch": GAP_BATCH, "per_class": GAP_PER_CLASS}
    path.write_text(json.dumps(content), encoding="utf-8")
    return gap
