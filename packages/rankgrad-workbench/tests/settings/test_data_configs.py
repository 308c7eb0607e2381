"""What the files of configs/data compose to: the settings that published runs and saved folders were made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rankgrad_workbench.settings import compose, options

# As composed before the files had a common base. A difference here is a change of what `data=NAME` means.
SETTLED = json.loads(Path(__file__).with_name("data_configs.json").read_text(encoding="utf-8"))
PHOTOS = [name for name in SETTLED if name != "glyphs"]


def composed(name: str, *settings: str) -> dict[str, object]:
    root = [] if name == "glyphs" else ["data.root=DIR"]
    plain = OmegaConf.to_container(compose([f"data={name}", *root, *settings]).data, resolve=True)
    return json.loads(json.dumps(plain))


@pytest.mark.parametrize("name", SETTLED)
def test_a_data_set_is_composed_to_the_same_settings_as_ever(name):
    changed = ["data.size=96", "data.cache=disk", "data.cache_dir=KEPT"] if name in PHOTOS else []
    assert composed(name) == SETTLED[name][""]
    assert composed(name, "seed=3", *changed) == SETTLED[name]["changed"]


def test_a_base_is_no_data_set_of_its_own():
    assert not [name for name in options("data") if "base" in name]
    assert set(SETTLED) <= set(options("data"))
