"""How long a training is if its epochs are not given: a floor and a cap of steps, and early stopping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from marks import slow_unless
from small_runs import make_photos, make_texts, small, small_texts
from small_tables import by_query, one_list
from small_tables import settings as of_table

from rankgrad_workbench.files import defaults
from rankgrad_workbench.files.defaults import epochs_for
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose, load
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.tasks.scores import task as scores
from rankgrad_workbench.tasks.scores.fit import fit_scores
from rankgrad_workbench.tasks.scores.table import ScoreTable
from rankgrad_workbench.training.callbacks import KeepBest
from rankgrad_workbench.training.diagnosis import Facts, diagnose
from rankgrad_workbench.training.measuring import Sample


@pytest.mark.parametrize("batches", [1, 2, 3, 7, 50, 333, 1250, 15_000, 10**6])
@pytest.mark.parametrize("passes", [1, 20, 60, 400])
def test_steps_are_within_floor_and_cap_up_to_an_epoch(batches, passes):
    steps = batches * epochs_for(batches, passes, 2000, 20_000)
    assert steps >= min(2000, 20_000 - batches) and steps <= max(20_000, batches)
    if 2000 <= batches * passes <= 20_000:
        assert steps == batches * passes


def without_epochs(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith("trainer.max_epochs")]


@pytest.mark.parametrize("kind", slow_unless({"texts"}, ["photos", "texts"]))
def test_few_images_and_texts_are_trained_for_the_fewest_steps_and_the_summary_says_so(tmp_path, kind):
    made = (
        small(make_photos(tmp_path / "photos")) if kind == "photos" else small_texts(make_texts(tmp_path / "texts.csv"))
    )
    for more, wanted in (([], None), (["trainer.max_epochs=3"], 3), (["trainer.max_epochs=0"], 0)):
        lines: list[str] = []
        config = compose([*without_epochs(made), *more, f"out={tmp_path / 'run'}"])
        task = retrieval.build(config, quiet=True, say=lines.append)
        epochs, batches = task.settled["trainer.max_epochs"], len(task.data.sampler)
        if wanted is None:
            assert defaults.FEWEST_STEPS <= epochs * batches < defaults.FEWEST_STEPS + batches
            assert lines[-1].startswith(f"trainer.max_epochs {epochs}, for this number of batches; at most ")
        else:
            assert epochs == wanted and "as given" in lines[-1]


@pytest.mark.parametrize("kind", ["list", "queries"])
def test_few_rows_are_trained_for_the_fewest_steps(tmp_path, kind):
    table = one_list(tmp_path / "a.csv") if kind == "list" else by_query(tmp_path / "a.npz")
    lines: list[str] = []
    words = without_epochs(of_table(table))
    task = scores.build(compose(words, "scores"), True, lines.append)
    steps = task.epochs * len(task.data.sampler)
    assert defaults.FEWEST_STEPS_OF_ROWS <= steps < defaults.FEWEST_STEPS_OF_ROWS + len(task.data.sampler)
    assert task.patience is not None and 4 * task.patience >= steps
    assert f"trainer.max_epochs {task.epochs}" in lines[-1] and str(steps) in lines[-1]
    task = scores.build(compose([*words, "trainer.max_epochs=5"], "scores"), True, lines.append)
    assert task.epochs == 5 and task.patience is None and "as given" in lines[-1]


def test_a_training_ends_when_the_validation_rows_bring_no_better_epoch(tmp_path):
    rows = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    table = ScoreTable.of(rows, rows[:, 0] > 1)  # one weight orders these rows perfectly after a few steps

    def train(place: Path, **more: object) -> Run:
        settings = {"evaluation.bootstrap": 0, "threads": 1, **more}
        return fit_scores(table, lambda width: torch.nn.Sequential(torch.nn.Linear(width, 1), torch.nn.Flatten(0)),
                          "cross_entropy", out=place, settings=settings, resume=True, quiet=True)  # fmt: skip

    run = train(tmp_path / "run", **{"evaluation.patience": 20})
    facts, config = run.read_facts(), load(run.config)
    assert facts["steps"] < defaults.FEWEST_STEPS_OF_ROWS and run.finished
    assert config.trainer.max_epochs == facts["epochs"] and config.evaluation.patience == 20
    before = run.weights.read_bytes()
    assert train(tmp_path / "run", **{"evaluation.patience": 20}).weights.read_bytes() == before  # it is finished


def test_the_best_epoch_says_how_much_the_end_gained():
    best = KeepBest("AP", lambda model: 0.0)
    assert best.gained() is None
    best.curve = [[float(step), min(step, 60) / 100] for step in range(1, 101)]
    assert best.gained() == 0.0
    best.curve = [[float(step), step / 100] for step in range(1, 101)]
    assert best.gained() == pytest.approx(0.25)


class Measured:
    """A trainer and its module, of which only the step and the model are read."""

    def __init__(self) -> None:
        self.global_step, self.loggers = 0, []
        self.model = torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([2.0, 2.0, 2.1, 1.9], 1),  # far more than its standard error
        ([9.0, -1.0, -1.0, -1.0], 0),  # one question alone: the mean is 1.5, its standard error 2.5
        ([1.0], 0),  # one question has no standard error
        ([-1.0, -1.1], 0),
        ([0.0, 0.0], 0),
    ],
)
def test_an_epoch_replaces_the_untrained_model_only_if_it_is_surely_better(gains, kept):
    found = iter([np.ones(len(gains)), 1 + np.array(gains)])
    best, trainer = KeepBest("NDCG@10", lambda model: next(found), first=True, errors=2.0), Measured()
    best._judge(trainer, trainer, 0)
    best._judge(trainer, trainer, 1)
    assert best.epoch == kept and best.value == pytest.approx(1 + kept * np.mean(gains))
    assert best.gain[0] == pytest.approx(np.mean(gains))
    again = KeepBest("NDCG@10", lambda model: 0.0, first=True, errors=2.0)
    again.load_state_dict(best.state_dict())
    assert again.gain == best.gain and again._untrained == [1.0] * len(gains)


def test_without_errors_the_highest_value_is_kept():
    found = iter([np.ones(4), np.array([4.0, 1.0, 1.0, 1.0]), np.array([1.5, 1.0, 1.0, 1.0])])
    best, trainer = KeepBest("NDCG@10", lambda model: next(found), first=True), Measured()
    for epoch in range(3):
        best._judge(trainer, trainer, epoch)
    assert best.epoch == 1 and best.gain is None


def samples(losses: list[float]) -> list[Sample]:
    rng = np.random.RandomState(0)
    return [
        Sample(step=5 * at, loss=loss + 1e-3 * rng.randn(), update=1e-3, grad_norm=1.0, grad_rms=1e-3)
        for at, loss in enumerate(losses)
    ]


@pytest.mark.parametrize(
    ("losses", "gained", "improving"),
    [
        (np.linspace(1, 0.1, 80), None, True),
        (np.maximum(np.linspace(1, -1, 80), 0.2), None, False),
        (np.linspace(1, 0.1, 80), 0.0, False),  # it learns its rows by heart
        (np.linspace(1, 0.1, 80), 0.05, True),
        (np.linspace(1, 0.1, 80), 0.004, False),
    ],
)
def test_health_says_that_a_training_was_still_improving(losses, gained, improving):
    found = diagnose(samples(list(losses)), Facts(400, 0, gained=gained))
    assert ("still_improving" in [each.name for each in found]) == improving
    assert all("trainer.max_epochs" in each.advice for each in found if each.name == "still_improving")
