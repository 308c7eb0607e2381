"""What users can name, and how trainings begin, stays as it is unless tests/inventory.json is changed with it."""

from __future__ import annotations

import json
from functools import cache

import pytest
from inventory import FILE, losses_of, names, trainings
from marks import slow_unless

all_names = cache(names)
KEPT = json.loads(FILE.read_text(encoding="utf-8"))
#: Losses whose settings are composed in `make test-all` alone, which takes seconds: all but one.
LOSSES = {name for name in KEPT["settings"] if name.startswith("loss=")} - {"loss=supap"}


def compared(part, known):
    now = {**all_names(known=known)[part], **{name: KEPT[part][name] for name in known if name in KEPT[part]}}
    changed = {name: (KEPT[part].get(name), now.get(name)) for name in {*KEPT[part], *now}}
    changed = {name: pair for name, pair in changed.items() if pair[0] != pair[1]}
    assert not changed, "if it is meant: python tests/inventory.py --write"


@pytest.mark.parametrize("part", ["commands", "settings", "tables", "public"])
def test_every_name_is_as_it_was(part):
    compared(part, frozenset(LOSSES))


@pytest.mark.slow
def test_every_setting_of_every_loss_is_as_it_was():
    compared("settings", frozenset())


ALWAYS = ("photographs, rambo_ap, memory", "texts, default loss")


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("name", slow_unless(ALWAYS, KEPT["trainings"]))
def test_each_kind_of_training_begins_with_the_same_loss(tmp_path, name):
    runs = trainings(tmp_path, "trainer.max_epochs=1")
    assert set(runs) == set(KEPT["trainings"])
    # the first step alone: in the second, AdamW has made much of rounding
    assert losses_of(runs[name]())[0] == pytest.approx(KEPT["trainings"][name][0], rel=1e-3)
