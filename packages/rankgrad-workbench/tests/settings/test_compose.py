"""Settings are composed as Hydra does it; paths, columns and signs are taken as they are."""

from __future__ import annotations

import re
import shlex

import pytest

from rankgrad.common.checks import setting, spelled
from rankgrad_workbench.settings import GROUPS, PATHS, ConfigError, check_paths, compose, keys, make, options
from rankgrad_workbench.settings.spelling import as_keys


def test_every_group_can_be_listed_and_every_option_composes():
    for group in GROUPS:
        assert options(group)
    for data in options("data"):
        root = [] if data == "glyphs" else ["data.root=x"]
        assert compose([f"data={data}", *root]).data.name
    for model in options("model"):
        name = ["model.name=x"] if model == "sentence_transformer" else []
        assert compose(["data=text", "data.root=x", f"model={model}", *name]).model.kind == model
    assert compose(["recipe=small"]).trainer.max_epochs == 12


@pytest.mark.parametrize(
    "path",
    [
        "a b (2)",
        "a,b",
        "a=b",
        "{a}",
        "[a]",
        "it's",
        'say "x"',
        "fötos 写真",
        "a:b",
        "a;b&c",
        "#1",
        "a\\b",
        "a\\'b",
        "a\\",
        "@!*",
    ],
)
def test_a_path_is_taken_as_it_is(path):
    config = compose(["data=folder", f"data.root={path}", f"out={path}"])
    assert config.data.load.root == path and config.out == path


def test_a_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert compose(["data=folder", "data.root=~/photos"]).data.root == "/home/me/photos"


@pytest.mark.parametrize("name", ["???", "a ${seed}"])
def test_a_name_that_files_of_settings_read_in_another_way_is_refused(name):
    for key in ("data.root", "out", "data.load.text"):
        with pytest.raises(ConfigError, match=re.escape(f"{key} cannot be '{name}'")):
            compose(["data=text", "data.root=x", f"{key}={name}"])


def test_paths_that_do_not_exist_are_named_with_their_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    settings = ["data=folder", "data.root=photos", "model=timm", "model.name=resnet18"]
    check_paths(compose(settings))
    for key in ("data.root", "init", "model.weights"):
        with pytest.raises(FileNotFoundError, match=f"^{key}=nosuch does not exist in {re.escape(str(tmp_path))}$"):
            check_paths(compose([*settings, f"{key}=nosuch"]))
    fetched = compose([*settings, "data.root=nosuch"])
    fetched.data.load._target_ = "others.load"  # it may fetch what does not exist
    check_paths(fetched)


def test_null_stands_for_no_path():
    for key in PATHS:
        if key.startswith(("data.", "model.")):
            continue
        assert compose([f"{key}=null"])[key] is None
    assert compose(["model=timm", "model.weights=null"]).model.weights is None


def test_sizes_that_belong_together_follow_one_another():
    config = compose(["data=folder", "data.root=x", "data.size=112", "data.train_transform.mean=[0,0,0]", "seed=5"])
    assert config.data.resize == 128 and config.data.eval_transform.resize == 128
    assert config.data.eval_transform.mean == [0, 0, 0] and config.data.train_transform.seed == 5
    assert compose(["data=folder", "data.root=x", "data.size=112", "data.resize=120"]).data.eval_transform.resize == 120


def test_an_error_of_the_thing_that_is_made_comes_as_it_is():
    with pytest.raises(ValueError, match="tau is a temperature .* got -1"):
        make(compose(["loss.tau=-1"]).loss, slot="loss")
    with pytest.raises(TypeError, match="'tua'; did you mean 'tau'"):
        make(compose(["+loss.tua=1"]).loss, slot="loss")


@pytest.mark.parametrize("sign", [";", ",", "|", r"\t", ":", "a,b", "my text (en)", "#"])
def test_columns_and_signs_of_a_file_are_taken_as_they_are(sign):
    load = compose(["data=text", "data.root=x", f"data.load.delimiter={sign}", f"data.load.text={sign}"]).data.load
    assert (load.delimiter, load.text) == (sign, sign)


def test_a_sign_that_hydra_reads_is_named_with_the_quotes_that_it_needs():
    with pytest.raises(ConfigError) as caught:
        compose(["data.name=a;b"])
    advice = shlex.split(str(caught.value))[-1].replace("KEY", "data.name")
    assert compose([advice]).data.name == "a;b"


@pytest.mark.parametrize("key", ["positive", "label"])
@pytest.mark.parametrize(
    "word",
    [
        "null",
        "NULL",
        "true",
        "nan",
        "N/A",
        "a,b",
        "it's",
        'say "x"',
        "x=y",
        "[a]",
        "(3)",
        "$3",
        "a\\b",
        "a b",
        "é",
        "ok",
    ],
)
def test_a_setting_that_a_message_advises_gives_the_word(key, word):
    with spelled(as_keys("data.load", {})):
        advised = setting(key, word)
    assert compose(["data.root=x", *shlex.split(advised)], "scores").data.load[key] == word


@pytest.mark.parametrize("tree", ["train", "scores", "search"])
@pytest.mark.parametrize(
    "wrong",
    [
        *("trainer.accelerator=foo", "trainer.precision=foo", "trainer.devices=-2", "loggers=[foo]", "fold=3"),
        *("fold=4/3x", "data.load.test_fraction=2", "health=3", "seed=-1"),
    ],
)
def test_a_value_out_of_range_is_refused_before_any_data_is_looked_for(tree, wrong):
    words = [*(["data=folder"] if tree == "train" else []), "data.root=nowhere"]
    key = wrong.partition("=")[0]
    if key not in keys(compose(words, tree)):
        pytest.skip("no such setting")
    with pytest.raises(ConfigError, match=re.escape(key)):
        compose([*words, wrong], tree)
