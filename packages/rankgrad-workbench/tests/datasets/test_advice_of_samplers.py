"""Who follows the advice of a refused sampler comes to batches, and never to the setting that was refused."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch

from rankgrad.batches.sampler_settings import named_as_settings
from rankgrad.batches.samplers import class_batches

COUNTS = ([1] * 6, [1, 1, 1, 5, 5], [2] * 3, [4] * 4, [3, 4, 5, 6], [1, 8], [50] * 2, [1, 2, 3, 4])


def refused(counts: list[int], settings: dict[str, Any]) -> str:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    try:
        with named_as_settings():
            class_batches(labels, None, seed=0, **settings)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_advice_does_not_lead_back(counts):
    for classes, each, short in itertools.product((1, 2, 4, 16), (1, 2, 4, 8, "all"), ("repeat", "fewer", "drop")):
        settings = {"classes_per_batch": classes, "samples_per_class": each, "short_classes": short}
        tried = []
        while message := refused(counts, settings):
            advice = dict(re.findall(r"sampler\.(\w+)=(\w+)", message))
            if not advice:
                break  # more rows are needed
            tried.append(settings)
            settings = {**settings, **{name: int(v) if v.isdigit() else v for name, v in advice.items()}}
            assert settings not in tried, message
