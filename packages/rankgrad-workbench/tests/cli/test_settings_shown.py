"""`--cfg` shows each setting with the comment that explains it; --device and --threads are read in one way."""

from __future__ import annotations

import argparse

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from rankgrad_workbench.cli import main
from rankgrad_workbench.cli.arguments import add_machine, machine
from rankgrad_workbench.cli.settings import commented
from rankgrad_workbench.settings import compose


@pytest.mark.parametrize(
    ("overrides", "tree", "told"),
    [
        ([], "train", []),
        (
            ["data=folder", "data.root=X"],
            "train",
            ["height of the network's input", "if there are no train/"],
        ),
        (["loss=info_nce", "memory=sum"], "train", []),
    ],
)
def test_settings_keep_their_values_and_gain_their_comments(overrides, tree, told):
    config = compose(overrides, tree)
    text = commented(config, overrides, tree)
    assert yaml.safe_load(text) == OmegaConf.to_container(config, resolve=True)
    lines = text.splitlines()
    assert sum(" # " in line for line in lines) > 15

    assert [words for words in told if not any(words in line for line in lines)] == []


def test_a_comment_stands_behind_its_own_setting():
    text = commented(compose([]), [], "train")
    assert next(line for line in text.splitlines() if line.startswith("  name: adamw")).endswith("# adamw, adam, sgd")
    assert next(line for line in text.splitlines() if line.startswith("  split: test")) == "  split: test"


def read(*words: str) -> torch.device:
    parser = argparse.ArgumentParser()
    add_machine(parser)
    return machine(parser.parse_args(words))


def test_threads_and_device_are_set():
    before = torch.get_num_threads()
    assert read("--threads", "1") == torch.device("cpu") and torch.get_num_threads() == 1
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "words", [("--threads", "0"), ("--device", "gpu"), ("--device", "meta"), ("--device", "cuda:99")]
)
def test_a_machine_that_is_not_there_is_one_line(words):
    with pytest.raises(ValueError, match=words[0]) as caught:
        read(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "command", [("embed", "run", "."), ("search", "a.png", "--index", "i"), ("evaluate", __file__)]
)
def test_embed_search_and_evaluate_know_both(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("i", "a.png"):
        (tmp_path / name).touch()
    (tmp_path / "run").mkdir()
    assert main([*command, "--device", "nowhere", "--threads", "1"]) == 2
    assert "--device nowhere" in capsys.readouterr().err
