"""The study of losses for a pretrained network: its settings, and the choice of a trial without the judged fold."""

from __future__ import annotations

from pathlib import Path

import pytest
from marks import slow_unless
from torch import nn

from rankgrad_papers.studies import fine_tuned
from rankgrad_papers.studies.fine_tuned import LOSSES, RATES, kind_of
from rankgrad_papers.values import append, read
from rankgrad_workbench.settings import compose, make


@pytest.mark.parametrize("loss", slow_unless({"supap", "pml/supcon"}, LOSSES))
@pytest.mark.parametrize("data", slow_unless({"animals"}, fine_tuned.DATA))
def test_every_trial_is_a_setting_of_the_command_and_one_is_the_default(data, loss):
    shared = [*fine_tuned.SHARED, *fine_tuned.settings_of(data, Path("data"), "w.pth", "minilm"), f"loss={loss}"]
    default = compose(shared)
    trials = [compose([*shared, f"loss.{each}"]) for each in LOSSES[loss]]
    assert [trial.loss == default.loss for trial in trials] in ([True, False], [False, True])
    assert float(RATES[kind_of(data)][0]) == default.optimizer.lr
    if not loss.startswith("pml/"):  # the others need the number of classes
        assert all(isinstance(make(trial.loss, slot="loss"), nn.Module) for trial in trials)


def test_a_fold_is_judged_by_the_trial_that_is_the_best_on_the_others(tmp_path):
    values = tmp_path / "losses.csv"
    rows = {("tau=0.01", "3e-4"): (50, 60, 90), ("tau=0.05", "3e-4"): (70, 58, 10)}
    rows |= {("tau=0.01", "1e-4"): (1, 1, 1), ("tau=0.05", "1e-4"): (2, 2, 2)}
    for (setting, rate), numbers in rows.items():
        for fold, number in zip(fine_tuned.FOLDS, numbers, strict=True):
            key = {"data": "grocery", "loss": "supap", "setting": setting, "rate": rate}
            append(values, key, {"mAP@R": number, "R@1": number + 1, "AP": number}, unit=fold)
    found = read(values)
    # in the mean of two folds the first trial is ahead by 75 to 34 and 70 to 40, and behind by 55 to 64
    assert fine_tuned.tuned(found, "grocery", "supap", "R@1") == {"1/3": 51, "2/3": 61, "3/3": 11}
    assert fine_tuned.tuned(found, "grocery", "smooth_ap", "R@1") == {}
    assert list(fine_tuned.verdicts(values)) == []


def test_with_one_trial_each_loss_has_its_defaults_and_shared_folds_are_compared(tmp_path):
    values = tmp_path / "losses.csv"
    for loss, setting, numbers in (("supap", "tau=0.01", (50, 60)), ("info_nce", "tau=0.1", (40, 52, 99))):
        for fold, number in zip(fine_tuned.FOLDS, numbers, strict=False):
            key = {"data": "banking77", "loss": loss, "setting": setting, "rate": "2e-5"}
            append(values, key, dict.fromkeys(fine_tuned.METRICS, number), unit=fold)
    found = read(values)
    assert fine_tuned.tuned(found, "banking77", "info_nce", "AP", 1) == {"1/3": 40, "2/3": 52, "3/3": 99}
    assert fine_tuned.tuned(found, "banking77", "info_nce", "AP") == {}
    lines = list(fine_tuned.verdicts(values, 1))
    assert len(lines) == 2 * len(fine_tuned.METRICS)
    assert all("supap − info_nce" in line and "+9.00" in line for line in lines)
    assert all("sets: 1 " in line for line in lines[::2]) and all("folds: 2 " in line for line in lines[1::2])
    folds = {"banking77 1/3": 50, "banking77 2/3": 60}, {"banking77 1/3": 40, "banking77 2/3": 52}
    assert fine_tuned.paired(found, "supap", "info_nce", "AP", 1, by_fold=True) == folds


def test_the_table_has_the_folds_of_the_loss_with_most_of_them_and_the_untouched_network(tmp_path):
    values = tmp_path / "losses.csv"
    for loss, setting, numbers in (
        ("supap", "tau=0.01", (50, 60)),
        ("info_nce", "tau=0.1", (40, 52, 99)),
        ("roadmap", "weight=0.5", (7,)),
    ):
        for fold, number in zip(fine_tuned.FOLDS, numbers, strict=False):
            key = {"data": "banking77", "loss": loss, "setting": setting, "rate": "2e-5"}
            after = dict.fromkeys(fine_tuned.METRICS, number)
            append(values, key, {**after, "R@1 before": 30, "mAP@R before": 20, "AP before": 1}, unit=fold)
    found = read(values)
    assert fine_tuned.paired(found, "supap", "untouched", "mAP@R", 1) == ({"banking77": 55}, {"banking77": 20})
    assert fine_tuned.paired(found, "roadmap", "supap", "R@1", 1) == ({"banking77": 7}, {"banking77": 50})
    assert fine_tuned.compared(found) == [
        ["loss", "banking77, 3 folds", "mean mAP@R"],
        ["untouched", "30.0 / 20.0", "20.0"],
        ["info_nce", "63.7 / 63.7", "63.7"],
    ]
    assert fine_tuned.compared(found, ["1/3"]) == [
        ["loss", "banking77, 1 fold", "mean mAP@R"],
        ["untouched", "30.0 / 20.0", "20.0"],
        ["supap", "50.0 / 50.0", "50.0"],
        ["info_nce", "40.0 / 40.0", "40.0"],
        ["roadmap", "7.0 / 7.0", "7.0"],
    ]
