"""The study of the papers' claims on pretrained networks: its settings, and its differences fold by fold."""

from __future__ import annotations

from pathlib import Path

import pytest
from marks import slow_unless
from torch import nn

from rankgrad_papers.studies import fine_tuned, fine_tuned_claims
from rankgrad_papers.studies.fine_tuned_claims import CHANGED, difference, verdicts
from rankgrad_papers.values import append, read
from rankgrad_workbench.settings import compose, make


@pytest.mark.parametrize("changed", slow_unless({"no margin"}, CHANGED))
def test_every_change_is_a_setting_of_the_command_and_changes_something(changed):
    settings, losses = CHANGED[changed]
    for data in fine_tuned.DATA:
        shared = [*fine_tuned.SHARED, *fine_tuned.settings_of(data, Path("data"), "w.pth", "minilm")]
        for loss in losses:
            base, other = compose([*shared, f"loss={loss}"]), compose([*shared, f"loss={loss}", *settings])
            assert (base == other) == (changed == "base")
            assert loss.startswith("pml/") or isinstance(make(other.loss, slot="loss"), nn.Module)
            assert loss in CHANGED["base"][1], "nothing to compare with"


def test_a_change_is_compared_on_the_folds_that_both_have(tmp_path):
    values = tmp_path / "claims.csv"
    for changed, folds in (("base", {"1/3": 50, "2/3": 60}), ("batch 32", {"1/3": 47})):
        for fold, number in folds.items():
            key = {"data": "grocery", "loss": "supap", "changed": changed}
            append(values, key, {"R@1": number + 1, "mAP@R": number, "DG_AP": 2}, unit=fold)
    found = difference(read(values), "mAP@R", ("supap", "batch 32"), ("supap", "base"))
    assert found == {"grocery 1/3": -3}
    assert difference(read(values), "R@1", ("roadmap", "batch 32"), ("supap", "batch 32")) == {}
    lines = list(verdicts(values))
    assert len(lines) == 3 and any("mAP@R" in line and "-3.0" in line for line in lines)


def test_without_weights_nothing_is_trained(capsys):
    with pytest.raises(SystemExit):
        fine_tuned_claims.main([])
    assert "--weights" in capsys.readouterr().err
