"""Settings: every loss can be had with every option, and what is misspelt is answered with what would fit."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.errors import HydraException
from hydra.utils import get_class, get_object
from kept_runs import kept
from omegaconf import OmegaConf

from rankgrad import config, losses
from rankgrad.checks import setting
from rankgrad.config import GROUPS, PATHS, ConfigError, check_paths, compose, load, make, options
from rankgrad.datasets import DATASETS
from rankgrad.losses.base import Common

LOSSES = options("loss")


def settings_of(name: str) -> dict[str, Any]:
    node = OmegaConf.to_container(compose([f"loss={name}"]).loss, resolve=True)
    assert isinstance(node, dict)
    return node


# --------------------------------------------------------------------------------------------------------- losses


def test_every_loss_of_the_library_has_a_file_of_its_name():
    assert {name for name in losses.LOSSES if name not in LOSSES} == set()
    for name, kind in losses.LOSSES.items():
        assert get_class(settings_of(name)["_target_"]) is kind


@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_a_loss_file_holds_exactly_the_options_of_its_class_with_their_defaults(name):
    given = settings_of(name)
    kind = get_class(given.pop("_target_"))
    known = {
        p.name: list(p.default) if isinstance(p.default, tuple) else p.default
        for p in inspect.signature(kind).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name not in Common.__annotations__
    }
    assert given == {**known, "include_self": False}


def nodes(node: Any) -> list[dict[str, Any]]:
    """All mappings with a class to make, at any depth."""
    if not isinstance(node, dict):
        return []
    return ([node] if "_target_" in node else []) + [found for child in node.values() for found in nodes(child)]


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in losses.LOSSES])
def test_the_files_of_baselines_name_options_that_exist(name):
    if "/" in name:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[name.split("/")[0]])
    for node in nodes(settings_of(name)):
        known = inspect.signature(get_object(node["_target_"])).parameters
        takes_more = any(p.kind is p.VAR_KEYWORD for p in known.values())
        assert {key for key in node if key != "_target_" and key not in known} == set() or takes_more
        needed = {p.name for p in known.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
        assert needed <= set(node)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_file_makes_a_loss_that_trains_for_a_step(name):
    if "/" in name:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[name.split("/")[0]])
    config = compose([f"loss={name}"])
    config.derived.num_classes, config.derived.embedding_size = 4, 6
    loss = make(config.loss, slot="loss")
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 6, generator=g).repeat_interleave(4, 0)
    embeddings = (centres + 1.5 * torch.randn(16, 6, generator=g)).requires_grad_()
    torch.manual_seed(0)  # distance-weighted sampling draws from torch's generator: let it draw the same twice
    value = loss(embeddings, torch.arange(4).repeat_interleave(4))
    value.backward()
    assert value.shape == () and value > 0
    assert embeddings.grad is not None and embeddings.grad.isfinite().all() and embeddings.grad.abs().sum() > 0
    step = embeddings.detach() - 0.02 * embeddings.grad / embeddings.grad.norm()
    if name == "st/batch_all_triplet":
        return  # its mean is over the triplets that cost something, and a step may make the cheap ones free
    # the gradient of a blackbox loss is no derivative: its step may change nothing
    torch.manual_seed(0)
    after = loss(step, torch.arange(4).repeat_interleave(4))
    assert after <= value if name.startswith("rambo") else after < value


def test_options_that_all_losses_share_can_be_added():
    config = compose(["loss=pnp", "+loss.normalize=false", "+loss.check_finite=false"])
    loss = make(config.loss, slot="loss")
    assert loss.normalize is False and loss.check_finite is False


# ---------------------------------------------------------------------------------------------- what does not exist


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["loss=smoothap"],
            "unknown loss 'smoothap'; did you mean 'smooth_ap'? Known: adaptive_roadmap, adaptive_triplet, auc, ",
        ),
        (
            ["data=glyph"],
            "unknown data 'glyph'; did you mean 'glyphs'? Known: folder, glyphs, ",
        ),
        (["model=tim"], "unknown model 'tim'; did you mean 'timm'?"),
        (["recipe=smal"], "unknown recipe 'smal'; did you mean 'small'?"),
        (["loss="], "unknown loss ''. Known: "),
        (["los=pnp"], "unknown setting 'los'; did you mean 'loss'?"),
        (
            ["loss.tua=0.1"],
            "unknown setting 'loss.tua'; did you mean 'loss.tau'? Known in loss: loss.tau, ",
        ),
        (["loss=pnp", "loss.rho=1"], "unknown setting 'loss.rho'"),
        (["optimizer.learning_rate=1"], "unknown setting 'optimizer.learning_rate'"),
        (["trainer.max_epoch=1"], "unknown setting 'trainer.max_epoch'; did you mean 'trainer.max_epochs'?"),
        (["data=folder", "data.root=x", "data.sise=3"], "unknown setting 'data.sise'; did you mean 'data.size'?"),
        (["data=folder"], "data.root must be given; add data.root=... to the command"),
        (["pnp"], "settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got 'pnp'"),
        (["data=folder", "data.root="], "data.root= is empty"),
        (["data.size=64", "data.root=x"], "data.root also needs the kind of the data: data=folder data.root=x"),
        (["data.root=x", "data.load.seed=1"], "the kind of the data: data=folder data.root=x"),
        (["data=glyphs", "data.root=x.npz"], "the kind of the data: data=table data.root=x.npz"),
        (["optimizer.lr=fast"], "optimizer.lr is a number; got 'fast'"),
        (["trainer.max_epochs=many"], "trainer.max_epochs is a number; got 'many'"),
        (["seed=x"], "seed is a number; got 'x'"),
        (["frozen=maybe"], "frozen is true or false; got 'maybe'"),
        (["evaluation.ks=3"], "evaluation.ks is a list such as evaluation.ks=[1,2,4,8]; got 3"),
        (["loggers=csv"], "loggers is a list such as loggers=['csv']; got 'csv'"),
        (["data.workers=[1]"], "data.workers is a number; got [1]"),
        (["optimizer=adam"], "optimizer is a section of settings, such as optimizer.name; got 'adam'"),
        (["seed=1.5"], "seed chooses the random numbers and must be an integer in 0 .. 4294967295; got 1.5"),
        (["seed=-1"], "in 0 .. 4294967295; got -1"),
        (["seed=null"], "in 0 .. 4294967295; got None"),
        (["data.workers=1.5"], "data.workers counts processes that read the data and must be an integer >= 0; got 1.5"),
        (["epochs=5"], "unknown setting 'epochs'; did you mean 'trainer.max_epochs'?"),
        (["Num-Epochs=5"], "unknown setting 'Num-Epochs'; did you mean 'trainer.max_epochs'?"),
        (["batch_size=64"], "did you mean 'sampler.classes_per_batch' and 'sampler.samples_per_class'?"),
        (["model.backbone=x"], "did you mean 'model=timm' and 'model.name'?"),
        (["model=timm", "model.name=x", "pretrained=true"], "did you mean 'model.pretrained'?"),
        (["pretrained=true"], "did you mean 'model=timm' and 'model.pretrained'?"),
        (["loss=pnp", "margin=1"], "unknown setting 'margin'. Known in loss: loss.variant, loss.tau, loss.alpha, "),
        (["path=nosuch"], "did you mean 'data=folder' and 'data.root'?"),
        (["gpu"], "got 'gpu'; did you mean 'trainer.accelerator=gpu'?"),
        (["supap"], "got 'supap'; did you mean 'loss=supap'?"),
        (["model=resnet50"], "For a network of timm: model=timm model.name=resnet50; of sentence-transformers: "),
        (["loss=pnp:alpha=1+variant=Ds"], "are given after it: loss=pnp loss.alpha=1 loss.variant=Ds; got"),
        (["loss=recall_at_k(k=[1,2])"], "are given after it: loss=recall_at_k loss.k=[1,2]; got"),
        (["loss=pnp:optimizer.lr=1"], "are given after it: loss=pnp optimizer.lr=1; got"),
        (["loss=pnp,supap"], "a run trains one loss; got loss=pnp,supap. To compare: rankgrad compare loss=pnp,supap"),
        (["seed=0,1"], "seed=0,1 has several values. A list needs brackets: seed=[0,1]. To train with several"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(settings, message):
    with pytest.raises(ConfigError) as error:
        compose(settings)
    assert message in str(error.value) and "\n" not in str(error.value)


def named_settings(row: str) -> list[str]:
    """The names of the settings in a row of MEANT."""
    return [part.partition("=")[0] for part in row.split()]


@pytest.mark.parametrize("row", config.MEANT)
def test_every_setting_that_a_common_word_is_explained_by_exists(row):
    data = {"train": "data=folder", "detect": "data=voc_folder", "scores": "data=table"}
    chosen = [part for part in row.split() if part.partition("=")[0] in GROUPS and "=" in part]
    for tree in data:
        groups = [data[tree], *(chosen if tree == "train" else ["loss=supap"])]
        if "model.pretrained" in row and tree == "train":
            groups.append("model=timm")
        if set(named_settings(row)) <= set(config.keys(config._composed(tuple(dict.fromkeys(groups)), tree))):
            return
    pytest.fail(f"no command has {row}")


def test_no_common_word_is_a_setting_itself_and_every_word_is_answered():
    own = {tree: set(config.keys(config._composed((), tree))) for tree in config.TREES}
    for words in config.MEANT.values():
        for word in words.split():
            assert not any(word in known for known in own.values()), word
            with pytest.raises(ConfigError) as error:
                compose([f"{word}=1"])
            said = str(error.value)
            assert "did you mean" in said or "Known in" in said


@pytest.mark.parametrize("wrong", ["target=1", "loss.target=1", "_targt_=1", "loss._taget_=1", "derive=1", "extend=[]"])
def test_no_hint_names_a_setting_of_our_own(wrong):
    with pytest.raises(ConfigError) as error:
        compose([wrong])
    hints = str(error.value).partition(wrong.partition("=")[0] + "'")[2]
    assert not re.search(r"\b_\w+|derived|extended|\blean\b", hints)


@pytest.mark.parametrize("word", ["{}", "data={}", "path={}", "images={}"])
def test_a_path_in_the_place_of_a_setting_is_answered_with_the_settings_for_it(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    (tmp_path / "x.csv").touch()
    for path, told in (("my photos", "data=folder 'data.root=my photos'"), ("x.csv", "data=text data.root=x.csv for")):
        with pytest.raises(ConfigError) as error:
            compose([word.format(path)])
        assert told in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        "loss=recall_at_k loss.k=[1,2] optimizer.lr=1e-3 optimizer.lr=${seed} out=null",
        "loss=roadmap+pml/triplet loss.weights.triplet=0.3 loss.losses.triplet.loss.margin=0.2 evaluation={every: 1}",
        "recipe=small data.eval_transform.resize=null trainer.max_epochs=a b seed=",
        "loss=pnp loss.alhpa=1",
        "optimizer.lr=choice(1,2)",
        "loss={a: 1}",
    ],
)
def test_a_setting_is_written_as_hydra_writes_it_or_left_to_hydra(settings):
    words = tuple(re.split(r" (?=[a-z_.]+=)", settings))
    try:
        wanted = config._by_hydra(words, "train")
    except HydraException as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            config._composed(words, "train")
    else:
        found = config._composed(words, "train")
        assert OmegaConf.to_yaml(found) == OmegaConf.to_yaml(wanted) and OmegaConf.is_struct(found)
        assert config._composed(words[:1], "train") == config._by_hydra(
            words[:1], "train"
        )  # it was written into a copy


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


# ---------------------------------------------------------------------------------------------------------- values


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


@pytest.mark.parametrize(
    ("name", "means"), [("null", "no path"), ("~", "HOME"), ("'a'", "a"), ('"a"', "a"), ("???", ""), ("a ${seed}", "")]
)
def test_a_name_that_settings_read_in_another_way_is_refused_and_never_taken_for_another(
    name, means, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "HOME")
    (tmp_path / name).mkdir()
    for key in ("data.root", "out"):
        with pytest.raises(ConfigError) as error:
            compose(["data=folder", "data.root=x", f"{key}={name}"])
        if means:
            assert str(error.value).startswith(f"{key}={name} means {means};")
            assert str(error.value).endswith(f"{key}=./{name}")
        else:
            assert str(error.value).startswith(f"{key} cannot be '{name}'")
    if means:
        assert compose(["data=folder", f"data.root=./{name}"]).data.root == f"./{name}"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "damaged, or not YAML of plain values: expected .* in line 1"),
        ("- 1", "holds no settings"),
        ("", "holds no settings"),
        ("seed: 0\n", "it has no setting task; the file is damaged"),
        ("task: retrieval\n", "lacks seed, out, resume and .* more, which every run has; the file is damaged"),
        ("a: &a [1]\nb: *a\n", "YAML alias"),
        ("a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor for the tag"),
        ("x" * 2**21, "not a settings file: it has 2097152 bytes"),
        ("a: \xff", "damaged, or not YAML"),
        ("[" * 2**20, "damaged, or not YAML of plain values: .* nested too deeply"),
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
    (tmp_path / "config.yaml").write_text(text.replace("rankgrad.penalties.Log", "small_runs.Killed"))
    with pytest.raises(ConfigError, match="loss.penalty._target_.*small_runs.Killed"):
        load(tmp_path / "config.yaml")
    assert load(tmp_path / "config.yaml", ["small_runs"]).loss.penalty._target_ == "small_runs.Killed"


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
    *_, advice = shlex.split(str(caught.value).split(": ", 2)[2])
    assert compose([advice]).data.name == "a;b"


def test_what_is_made_of_settings_names_them_as_they_are_typed():
    class Stop(ValueError):
        pass

    def load_text(root, text, **_):
        raise Stop(f"{setting('root')} {setting('text', 'sentence')} {setting('delimiter', ';')}")

    config = compose(["data=text", "data.root=x"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "text", load_text)
        with pytest.raises(Stop, match="data.load.text=sentence 'data.load.delimiter=;'"):
            make(config.data.load, slot="data")
    assert setting("text", "sentence") == "text='sentence'"
