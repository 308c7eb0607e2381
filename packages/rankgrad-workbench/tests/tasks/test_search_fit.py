"""`rankgrad.fit_search` is the command with keywords."""

from __future__ import annotations

import pytest
from small_searches import beir, settings

import rankgrad
from rankgrad_workbench.settings import ConfigError, compose
from rankgrad_workbench.tasks.search import task

pytest.importorskip("bm25s")
SMALL = {"model.dim": 16, "model.buckets": 512, "trainer.max_epochs": 4, "evaluation.bootstrap": 50}
SMALL |= {"loggers": ["csv"], "sampler.queries_per_batch": 8}


def test_it_gives_the_numbers_of_the_command_and_goes_on(tmp_path, capsys):
    root = beir(tmp_path / "a folder, with=signs")
    run = rankgrad.fit_search(root, out=tmp_path / "run", settings=SMALL)
    assert f"run:    {run.folder}" in capsys.readouterr().out and run.page.is_file()
    beir(tmp_path / "data")
    words = settings(tmp_path / "data", f"out={tmp_path / 'command'}")
    assert task.train(compose(words), quiet=True).read_values() == run.read_values()
    with pytest.raises(ConfigError, match="holds a run already: resume it with resume=True"):
        rankgrad.fit_search(root, out=tmp_path / "run", settings=SMALL)
    more = {**SMALL, "trainer.max_epochs": 5}
    again = rankgrad.fit_search(root, out=tmp_path / "run", settings=more, resume=True, quiet=True)
    assert again.read_facts()["epochs"] == 5
    with pytest.raises(ConfigError, match=r"other settings: model\.dim"):
        rankgrad.fit_search(root, out=tmp_path / "run", settings={**more, "model.dim": 8}, resume=True, quiet=True)


def test_a_loss_by_name_and_what_is_no_setting(tmp_path):
    root = beir(tmp_path / "data")
    run = rankgrad.fit_search(root, loss="ndcg", out=tmp_path / "run", settings=SMALL, quiet=True)
    assert "NDCG" in run.config.read_text()
    for wrong, told in (
        ({"data.root": "x"}, "data.root is an argument of fit_search"),
        ({"model": "ngrams"}, "model is an argument"),
        ({"sampler.queries": 3}, "sampler.queries"),
    ):
        with pytest.raises(ConfigError, match=told):
            rankgrad.fit_search(root, settings=wrong, quiet=True)
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        rankgrad.fit_search(tmp_path / "none", quiet=True)
    with pytest.raises(ValueError, match="resume=True needs the folder"):
        rankgrad.fit_search(root, resume=True)
