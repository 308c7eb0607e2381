"""The study of fine-tuning: every part of it on a network with random weights and a few tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from rankgrad_papers.studies import fine_tuning
from rankgrad_papers.values import read


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Six classes of three grey tiles, and weights for the network."""
    root = tmp_path_factory.mktemp("data")
    for number in range(6):
        (root / "grocery" / f"c{number}").mkdir(parents=True)
        for image in range(3):
            pixels = np.full((32, 32, 3), 40 * number + image, np.uint8)
            Image.fromarray(pixels).save(root / "grocery" / f"c{number}" / f"{image}.png")
    torch.manual_seed(0)
    torch.save(timm.create_model("tf_efficientnet_lite0").state_dict(), root / "w.pth")
    return root


@pytest.mark.slow
def test_each_change_is_measured_untouched_and_with_all_shares_and_a_second_call_goes_on(given, tmp_path, monkeypatch):
    short = {name: replace(recipe, steps=1) for name, recipe in fine_tuning.PHOTOGRAPHS.items()}
    some = ["base", "new layer from components", "norm=recalibrated", "last 4 parts"]
    short = {name: replace(short[name], size=short[name].size and 4) for name in some}
    monkeypatch.setattr(fine_tuning, "PHOTOGRAPHS", short)
    monkeypatch.setattr(fine_tuning, "FOLDS", 2)
    monkeypatch.setitem(fine_tuning.IMAGES, "grocery", 32)
    values = tmp_path / "v.csv"
    words = ["--data-root", str(given), "--weights", str(given / "w.pth"), "--encoder", "x", "--values", str(values)]
    fine_tuning.main([*words, "--data", "grocery", "--changed", "base"])
    fine_tuning.main([*words, "--data", "grocery"])
    found = read(values)
    assert [(each["changed"], each["share"]) for each in found.settings[:4]] == [
        ("base", share) for share in ("0.5", "0.75", "1", "0")
    ]
    assert len(found.values) == len(some) * 4 * 2 * len(fine_tuning.METRICS)
    untouched = [found.units({"changed": name, "share": "0"}, "AP") for name in some]
    assert all(each == untouched[0] for each in untouched) and set(untouched[0]) == {"1", "2"}


def test_folds_of_classes_share_no_class_and_cover_all():
    labels = torch.arange(10).repeat(2)
    parts = [fine_tuning.held_out(labels, fold) for fold in range(fine_tuning.FOLDS)]
    assert torch.stack(parts).sum(0).eq(1).all()
