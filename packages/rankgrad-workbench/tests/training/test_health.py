"""Sick trainings are told as what they are, healthy ones are let alone, and looking changes nothing."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import cut_off, make_photos, same_results, small, train
from torch import nn

from rankgrad import losses
from rankgrad.batches.distributed import GlobalBatch
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.ranks.relaxations import Heaviside, Sigmoid, SupStep
from rankgrad_workbench.cli import main
from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.training.diagnosis import Facts, diagnose
from rankgrad_workbench.training.health import HealthWarning, as_text, report
from rankgrad_workbench.training.measuring import Sample, look, step_of

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"), classes=16)


def told(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.health.read_text())
    return found


def names(found: dict[str, Any]) -> set[str]:
    return {finding["name"] for finding in found["findings"] if finding["level"] == "warning"}


# ---------------------------------------------------------------------------------------------------- what is measured


def slow_look(embeddings: torch.Tensor, labels: list[int], slope: Callable[[float], float]) -> dict[str, float]:
    """The same numbers by loops over pairs and triplets."""
    rows = [row / row.norm() for row in embeddings]
    n = len(rows)
    cosine = [[float(a @ b) for b in rows] for a in rows]
    within = [cosine[i][j] for i in range(n) for j in range(n) if i != j and labels[i] == labels[j]]
    between = [cosine[i][j] for i in range(n) for j in range(n) if labels[i] != labels[j]]
    triplets = [
        cosine[q][j] - cosine[q][i]
        for q in range(n)
        for i in range(n)
        for j in range(n)
        if q != i and labels[q] == labels[i] and labels[q] != labels[j]
    ]
    wrong = [difference for difference in triplets if difference >= 0]
    flat = [difference for difference in wrong if slope(difference) < 0.01 * slope(0.0)]
    values = torch.linalg.eigvalsh(torch.cov(torch.stack(rows).T, correction=0))
    return {
        "no_positive": sum(labels.count(label) == 1 for label in labels) / n,
        "positive": sum(within) / len(within),
        "negative": sum(between) / len(between),
        "dimensions": float(values.sum() ** 2 / values.square().sum()),
        "wrong": len(wrong) / len(triplets),
        "saturated": len(flat) / len(wrong),
        "zero": 0.0,
    }


@pytest.mark.parametrize("tau", [0.01, 0.1])
def test_a_look_at_a_batch_is_what_loops_count(tau):
    g = torch.Generator().manual_seed(3)
    embeddings, labels = torch.randn(14, 4, generator=g), [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 0]

    def slope(difference: float) -> float:
        value = 1 / (1 + math.exp(-difference / tau))
        return value * (1 - value) / tau

    found = look(embeddings, torch.tensor(labels), Sigmoid(tau))
    assert found == pytest.approx(slow_look(embeddings, labels, slope), abs=1e-5)
    assert 0 < found["saturated"] < 1


def test_steps_with_a_tail_never_saturate_and_losses_without_a_step_say_nothing():
    embeddings, labels = torch.randn(20, 4), torch.arange(5).repeat(4)
    assert look(embeddings, labels, SupStep())["saturated"] == 0
    assert math.isnan(look(embeddings, labels, Heaviside())["saturated"])
    assert math.isnan(look(embeddings, labels)["saturated"])


def test_batches_at_the_edges_are_looked_at():
    alone = look(torch.randn(4, 3), torch.arange(4), Sigmoid())
    assert alone["no_positive"] == 1 and math.isnan(alone["wrong"]) and math.isnan(alone["positive"])
    one_class = look(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    assert one_class["no_positive"] == 0 and math.isnan(one_class["negative"])
    zeros = look(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), Sigmoid())
    assert zeros["zero"] == 1 and zeros["wrong"] == 1 and math.isnan(zeros["dimensions"])
    many = look(torch.randn(900, 3).half(), torch.arange(30).repeat_interleave(30), Sigmoid())
    assert math.isfinite(many["wrong"])
    levels = torch.tensor([[0, 0], [0, 0], [0, 1]])
    assert look(torch.randn(3, 2), levels)["no_positive"] == pytest.approx(1 / 3)


def test_the_step_of_a_loss_is_found_wherever_it_is():
    assert step_of(losses.SmoothAPLoss(0.02)) == Sigmoid(0.02)
    assert step_of(losses.ROADMAPLoss()) == SupStep()
    assert step_of(GlobalBatch(CrossBatchMemory(losses.PNPLoss(), size=3))) == Sigmoid(0.01)
    assert step_of(losses.RaMBOAPLoss()) is None and step_of(losses.FastAPLoss()) is None
    assert step_of(nn.Linear(2, 2)) is None


# ------------------------------------------------------------------------------------------------------ what it means

WELL = Sample(
    step=0, loss=1.0, no_positive=0.0, positive=0.6, negative=0.1, dimensions=20.0, wrong=0.1, saturated=0.5, zero=0.0,
    grad_norm=1.0, grad_rms=1e-3, update=0.01, drift=math.nan,
)  # fmt: skip
FACTS = Facts(steps=400, dim=64)


def course(**ends: tuple[float, float] | float) -> list[Sample]:
    """Forty samples of a run in which these numbers go from one value to another: evenly, or by equal factors.

    Numbers that are not given fall in the first half only, as in a training that is done.
    """

    def at(end: tuple[float, float] | float, place: float) -> float:
        if not isinstance(end, tuple):
            return end
        low, high = sorted(end)
        if low > 0 and high > 100 * low:
            return float(end[0] * (end[1] / end[0]) ** place)
        return end[0] + (end[1] - end[0]) * place

    falling = {"loss": (1.0, 0.3), "wrong": (0.2, 0.02)} | ends

    def place(name: str, i: int) -> float:
        return i / 39 if name in ends else min(i / 20, 1)

    return [
        replace(WELL, step=10 * i, **{name: at(end, place(name, i)) for name, end in falling.items()})
        for i in range(40)
    ]


def test_a_run_that_goes_well_has_nothing_to_be_told():
    assert diagnose(course(), FACTS) == []
    assert report(course(), FACTS)["verdict"] == "healthy"


ILLNESSES = [
    ("no_positive", dict(no_positive=0.2), "20 % of the queries have no other row of their class"),
    ("collapsed", dict(positive=0.99, negative=0.98), "cosine is 0.980 between different classes, and 0.990"),
    ("few_dimensions", dict(dimensions=1.2), "1.2 of 64 dimensions"),
    ("zero_embeddings", dict(zero=0.1), "10 % of the embeddings are zero"),
    ("saturated", dict(saturated=0.99), "99 % of the pairs in the wrong order get no gradient"),
    ("memory_drift", dict(drift=0.4), r"of a row is 0.40"),
    ("vanishing", dict(grad_rms=(1e-4, 1e-12), wrong=0.1), "the gradient has vanished"),
    ("exploding", dict(grad_norm=(1.0, 1e6)), "the gradient grew"),
    ("fast", dict(update=0.3), "changes the weights by up to 30 %"),
    ("slow", dict(update=1e-8), "hardly change"),
    ("rising", dict(loss=(0.3, 1.0), wrong=0.1), "the loss rose: the loss is 0.408"),
    ("no_progress", dict(loss=1.0, wrong=0.1), "nothing was learned"),
]


@pytest.mark.parametrize(("name", "ends", "text"), ILLNESSES, ids=[name for name, *_ in ILLNESSES])
def test_each_illness_is_told_with_its_number_and_what_to_do(name, ends, text):
    found = [finding for finding in diagnose(course(**ends), FACTS) if finding.name == name]
    assert len(found) == 1 and found[0].level == "warning"
    assert re.search(text, found[0].text) and found[0].advice.endswith(".")


def test_what_looks_like_an_illness_and_is_none_is_not_told():
    solved = course(grad_rms=(1e-4, 1e-12), wrong=(0.2, 1e-4), loss=(0.1, 0.0))
    assert not {"vanishing", "no_progress"} & {finding.name for finding in diagnose(solved, FACTS)}
    # a memory comes in: the loss rises because its lists grow, the order of the pairs goes on improving
    assert diagnose(course(loss=(0.5, 1.5)), FACTS) == []
    assert diagnose(course(dimensions=1.5), replace(FACTS, dim=2)) == []
    assert diagnose(course(positive=0.999, negative=0.93), FACTS) == []  # alike, but the classes are told apart


def test_clipping_nearly_every_step_is_a_note_and_no_illness():
    found = report(course(grad_norm=5.0), replace(FACTS, clip=1.0))
    assert [(f["name"], f["level"]) for f in found["findings"]] == [("clipped", "note")]
    assert found["verdict"] == "healthy" and "5" in found["findings"][0]["advice"]
    assert diagnose(course(grad_norm=0.5), replace(FACTS, clip=1.0)) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_no_numbers_are_told_alone(value):
    samples = course(update=0.5)
    samples[30] = replace(samples[30], loss=value)
    assert [finding.name for finding in diagnose(samples, FACTS)] == ["not_finite"]
    assert "step 300" in diagnose(samples, FACTS)[0].text
    failed = replace(FACTS, failed="embeddings: it holds NaN or infinity, first in row 3")
    assert [finding.name for finding in diagnose(course(), failed)] == ["not_finite"]
    assert json.loads(json.dumps(report(samples, FACTS), allow_nan=False))["samples"]["loss"][30] is None


def test_a_short_run_is_not_judged_by_trends():
    assert report(course(loss=1.0, wrong=0.3)[:5], replace(FACTS, steps=30))["verdict"] == "too short"
    assert names(report(course(no_positive=1.0)[:1], replace(FACTS, steps=3))) == {"no_positive"}
    empty = report([], replace(FACTS, steps=0))
    assert empty["verdict"] == "too short" and "too few steps to judge (0 of 0" in as_text(empty)


def test_the_table_shows_where_numbers_began_and_ended_and_the_advice():
    text = as_text(report(course(saturated=0.99), FACTS))
    assert "health: problems found, see below (40 of 400 steps measured)" in text
    assert all(f"\n  {row}" in text for row in ("loss", "pairs in the wrong order", "effective dimensions"))
    assert "drift" not in text and " of 64" in text  # there is no memory
    assert text.endswith("loss=roadmap or loss=supap.") and "\n  ! 99 %" in text


# ------------------------------------------------------------------------------------------- trainings, sick on purpose

LONG = (
    "trainer.max_epochs=12",
    "sampler.batches_per_epoch=4",
    "sampler.classes_per_batch=8",
    "sampler.samples_per_class=4",
    "loss=smooth_ap",
)


def long(photos: Path, *settings: str) -> list[str]:
    """Settings of 48 steps on batches of 8 x 4; later ones win."""
    keys = [s.split("=")[0] for s in settings]
    return small(photos, *(s for s in LONG if s.split("=")[0] not in keys), *settings)


def test_a_healthy_training_is_not_warned(photos, tmp_path):
    found = told(train(*long(photos), f"out={tmp_path}"))
    assert found["verdict"] == "healthy" and found["findings"] == []
    assert found["steps"] == 48 and found["samples"]["step"] == list(range(0, 48, 5))


@pytest.mark.slow
def test_one_image_per_class_is_told_at_the_first_step(photos, tmp_path):
    alone = ("sampler.samples_per_class=1", "loss=pnp")
    with pytest.warns(HealthWarning, match="100 % of the queries") as seen:
        found = told(train(*long(photos, *alone), f"out={tmp_path}"))
    assert "no_positive" in names(found) and "samples_per_class=2" in str(seen[0].message)
    assert len([w for w in seen if "no other row" in str(w.message)]) == 1  # once, not at every step


@pytest.mark.slow
def test_a_rate_that_is_far_too_high_is_told(photos, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        found = told(train(*long(photos, "optimizer.lr=3"), f"out={tmp_path}"))
    assert "fast" in names(found) and found["verdict"] == "ill"
    assert any("optimizer.lr" in finding["advice"] for finding in found["findings"])


def test_a_collapsed_network_that_stays_so_is_told(photos, tmp_path):
    torch.manual_seed(0)
    model = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8)
    with torch.no_grad():
        model.head.layers.weight.mul_(1e-3)
        model.head.layers.bias.fill_(1.0)
    save_weights(tmp_path / "collapsed.pt", model, {})
    settings = long(photos, f"init={tmp_path / 'collapsed.pt'}", "optimizer.lr=1e-12")
    with pytest.warns(HealthWarning):
        found = told(train(*settings, f"out={tmp_path / 'run'}"))
    assert {"collapsed", "slow"} <= names(found)


@pytest.mark.slow
def test_a_temperature_that_is_far_too_small_is_told(photos, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        found = told(train(*long(photos, "loss.tau=1e-6"), f"out={tmp_path}"))
    assert "saturated" in names(found)


def test_a_training_that_breaks_leaves_its_diagnosis(photos, tmp_path, monkeypatch):
    from rankgrad_workbench import training

    real, calls = training.RetrievalModule.training_step, [0]

    def breaking(self: Any, batch: Any, batch_idx: int) -> Any:
        calls[0] += 1
        if calls[0] > 12:
            next(self.model.parameters()).data.fill_(math.nan)
        return real(self, batch, batch_idx)

    monkeypatch.setattr(training.RetrievalModule, "training_step", breaking)
    with pytest.raises(ValueError, match="NaN or infinity"):
        train(*long(photos), f"out={tmp_path}")
    found = told(Run(tmp_path))
    assert names(found) == {"not_finite"} and "NaN or infinity" in found["failed"]


def test_looking_changes_nothing_and_can_be_switched_off(photos, tmp_path):
    watched = train(*small(photos), f"out={tmp_path / 'watched'}")
    alone = train(*small(photos, "health=false"), f"out={tmp_path / 'alone'}")
    assert same_results(watched.folder, alone.folder)
    assert watched.health.exists() and not alone.health.exists()
    assert told(watched)["verdict"] == "too short"


def test_a_resumed_training_remembers_what_was_seen(photos, tmp_path):
    settings = long(photos, "trainer.max_epochs=3")
    whole = told(train(*settings, f"out={tmp_path / 'whole'}"))
    cut_off([*settings, f"out={tmp_path / 'cut'}"], 8)
    found = told(train(f"resume={tmp_path / 'cut'}"))
    assert found == whole


def test_a_memory_is_looked_at(photos, tmp_path):
    run = train(*long(photos, "trainer.max_epochs=4", "memory=sum", "memory.warmup=2"), f"out={tmp_path}")
    drift = told(run)["samples"]["drift"]
    assert drift[0] is None and all(0 < value < 2 for value in drift[1:])


@pytest.mark.slow
def test_the_command_ends_with_the_table(photos, tmp_path, capsys):
    assert main(["train", *long(photos, "trainer.max_epochs=6"), f"out={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "health: too few steps to judge (5 of 24 steps measured)" in shown
    assert shown.index("health:") < shown.index("report:")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["roadmap", "smooth_ap", "pnp", "rambo_recall", "fastap"])
def test_the_default_training_on_glyphs_is_healthy(tmp_path, loss):
    settings = ["data=glyphs", "recipe=small", f"loss={loss}", "trainer.max_epochs=4", "evaluation.clusters=none"]
    found = told(train(*settings, f"out={tmp_path}"))
    assert found["verdict"] == "healthy" and not names(found), found["findings"]
