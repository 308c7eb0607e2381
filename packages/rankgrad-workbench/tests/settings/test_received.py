"""A settings file that somebody else wrote is read as plain values, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept_runs import kept
from omegaconf import OmegaConf

from rankgrad_workbench.settings import ConfigError, load


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "damaged, or not YAML of plain values: expected .* in line 1"),
        ("- 1", "holds no settings"),
        ("", "holds no settings"),
        ("3", "holds no settings"),
        ("word", "holds no settings"),
        ("seed: 0\n", "it has no setting task; the file is damaged"),
        ("task: retrieval\n", "lacks seed, out, resume .* in all.*, which every run has; the file is damaged"),
        ("a: &a [1]\nb: *a\n", "YAML alias"),
        ("a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor for the tag"),
        ("x" * 2**21, "not a settings file: it has more than 1048576 bytes"),
        ("a: \xff", "damaged, or not YAML"),
        ("a: " + "[" * 2**19, "damaged, or not YAML of plain values: .* nested too deeply"),
    ],
)
def test_a_settings_file_that_is_none_is_named(tmp_path: Path, text, message):
    (tmp_path / "config.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=f"config.yaml: .*{message}") as error:
        load(tmp_path / "config.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sampler=3", "sampler is a section of settings, such as sampler.classes_per_batch; got 3"),
        ("optimizer.lr=fast", "optimizer.lr is a number; got 'fast'"),
        ("evaluation.ks=3", r"evaluation.ks is a list such as evaluation.ks=\[1,2,4,8\]; got 3"),
        ("data.root='${oc.env:HOME}'", "data.root is .* settings of a run are plain values"),
        ("data.root='${oc.decode:${seed}}'", "data.root is .* settings of a run are plain values"),
        ("data.root='${data.name}${data.name}'", "data.root is .* settings of a run are plain values"),
        ("optimizer._target_=torch.optim.SGD", "optimizer._target_ is 'torch.optim.SGD', but nothing is made"),
    ],
)
def test_settings_that_no_run_writes_are_named_with_the_file(tmp_path: Path, setting, message):
    config = load(kept("retrieval") / "config.yaml")
    key, _, value = setting.partition("=")
    OmegaConf.update(config, key, value.strip("'") if "'" in value else int(value) if value.isdigit() else value)
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config))
    with pytest.raises(ConfigError, match=f"config.yaml: {message}"):
        load(tmp_path / "config.yaml")


def test_a_file_cannot_trust_for_its_reader(tmp_path: Path):
    text = (kept("retrieval") / "config.yaml").read_text().replace("trust: null", "trust: small_runs")
    (tmp_path / "config.yaml").write_text(text)
    assert "trust" not in load(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text(text.replace("rankgrad.losses.penalties.Log", "small_runs.Killed"))
    with pytest.raises(ConfigError, match="loss.penalty._target_.*small_runs.Killed"):
        load(tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml", ["small_runs"]).loss.penalty._target_ == "small_runs.Killed"
