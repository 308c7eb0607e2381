"""What is taken where nothing is said: the same in classes, `rankgrad.fit`, the commands and the pages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marks import slow_unless
from omegaconf import OmegaConf
from small_runs import QUICK, make_photos, make_texts, small, small_texts
from torch import nn

import rankgrad
import rankgrad_workbench
from rankgrad import losses
from rankgrad.batches.sampler_settings import check_settings
from rankgrad.batches.samplers import HierarchicalBatchSampler, MPerClassBatchSampler
from rankgrad.evaluation import evaluate
from rankgrad_workbench.files import defaults
from rankgrad_workbench.files.defaults import LOSSES, OTHER_LOSSES, RATES, rate_of
from rankgrad_workbench.models import MODELS, TAKES, build_model, save_weights
from rankgrad_workbench.models.build import kind_of
from rankgrad_workbench.models.embedding_model import parameter_groups
from rankgrad_workbench.models.ngrams import NGrams
from rankgrad_workbench.runs.compare import own_settings
from rankgrad_workbench.settings import ConfigError, compose, default_loss, options, plain
from rankgrad_workbench.settings.allowed import find
from rankgrad_workbench.settings.hydra import composed
from rankgrad_workbench.tasks.retrieval.fit import _settings
from rankgrad_workbench.tasks.retrieval.task import build
from rankgrad_workbench.training.module import Schedule

# --- one table -------------------------------------------------------------------------------------------------------

# Where the settings of a run and the arguments in Python differ on purpose, and why.
DIFFER = {
    "model/convnet.head": "in Python embedding_size asks for the layer, which a run has only if it is asked for",
    "model/convnet.embedding_size": "likewise",
    "memory/sum.warmup": "a training has a start, where embeddings drift fast",
    "data/text.test_fraction": "in Python a file is read whole; a run holds classes out",
    "data/table.test_fraction": "likewise",
}


def used() -> Iterator[tuple[str, dict[str, Any], Callable[..., Any]]]:
    """(name, settings of a run, the class or function that takes them), for all there are."""
    root = Path(rankgrad_workbench.__file__).parent / "settings" / "files"
    for path in (path for group in ("loss", "memory", "model", "data") for path in (root / group).rglob("*.yaml")):
        name, node = str(path.relative_to(root).with_suffix("")), OmegaConf.load(path)
        content = OmegaConf.to_container(node, resolve=False)
        if path.parent.name == "model" and content["kind"] in MODELS:
            yield name, content, MODELS[content["kind"]]
        elif path.parent.name not in ("pml", "st"):  # whose arguments have the defaults of their authors
            for part in made(content):
                yield name, part, find(part["_target_"], "")
    settings = plain(compose([]))
    for taker in (MPerClassBatchSampler, HierarchicalBatchSampler):
        yield "sampler", {**settings["sampler"], "batches_per_pair": 10}, taker  # which only one of them has
    optimizer = {name: value for name, value in settings["optimizer"].items() if name not in ("name", "warmup")}
    yield "optimizer", optimizer, Schedule
    yield "optimizer", {**optimizer, "lr": None}, parameter_groups
    yield "evaluation", settings["evaluation"], evaluate


def made(content: Any) -> Iterator[dict[str, Any]]:
    """All settings of something that is made of them, at any depth."""
    if isinstance(content, dict):
        if "_target_" in content:
            yield content
        for value in content.values():
            yield from made(value)


def test_the_settings_of_a_run_are_the_defaults_of_the_classes_that_take_them():
    def plainly(value: Any) -> Any:
        return list(map(plainly, value)) if isinstance(value, (list, tuple)) else value

    differ, compared = {}, 0
    for where, node, taker in used():
        for name, argument in inspect.signature(taker).parameters.items():
            given = plainly(node.get(name, argument.empty))
            if argument.empty in (given, argument.default) or (isinstance(given, str) and "${" in given):
                continue  # nothing to compare, or it follows another setting
            compared += 1
            if given != plainly(argument.default):
                differ[f"{where}.{name}"] = (given, argument.default)
    assert compared > 90 and differ.keys() == DIFFER.keys(), {
        name: differ.get(name) for name in differ.keys() ^ DIFFER.keys()
    }


def test_fit_takes_what_the_command_takes():
    ours, theirs = plain(_settings([], ([], []), None, None, {})), plain(compose([]))
    assert ours["optimizer"].pop("lr") == RATES["given"][0] and theirs["optimizer"].pop("lr") == RATES["convnet"][0]
    for section in ("loss", "memory", "sampler", "optimizer", "evaluation", "train"):
        assert ours.get(section) == theirs.get(section)
    assert plain(_settings([], "text", None, None, {"data.root": "x"}))["loss"] == default_loss("texts")


@pytest.mark.parametrize("data", options("data"))
def test_data_brings_the_loss_that_is_recommended_for_what_its_rows_are_and_a_given_one_wins(data):
    words = [f"data={data}", *([] if data == "glyphs" else ["data.root=x"])]
    settled = compose(words)
    name, own = LOSSES[TAKES[settled.model.kind][0]]
    assert plain(settled.loss) == {**plain(compose([f"loss={name}"]).loss), **own}
    assert plain(compose([*words, "loss=pnp"]).loss) == plain(compose(["loss=pnp"]).loss)


@pytest.mark.parametrize("data", slow_unless({"glyphs", "text"}, options("data")))
def test_a_loss_that_is_named_keeps_the_defaults_of_the_data(data):
    words = [f"data={data}", *([] if data == "glyphs" else ["data.root=x"])]
    settled = compose(words)
    name, _ = LOSSES[TAKES[settled.model.kind][0]]
    assert compose([*words, f"loss={name}"]).loss == settled.loss
    assert compose([f"loss={name}", *reversed(words)]).loss == settled.loss
    both = compose([*words, f"loss=pnp+{name}"]).loss
    assert both.losses[name] == settled.loss and list(both.weights) == ["pnp", name]


def test_a_named_loss_keeps_the_defaults_of_rows_and_texts_and_what_is_given_wins():
    assert compose(["loss=info_nce", "data.root=x"], "scores").loss == default_loss("rows")
    texts = ["data=text", "data.root=x", "loss=info_nce"]
    assert compose([*texts, "loss.tau=0.3"]).loss.tau == 0.3
    assert compose(["loss=info_nce"]).loss == losses.settings("info_nce")  # of images
    assert own_settings("info_nce:tau=0.2", texts[:2], "train") == ["loss=info_nce", "loss.tau=0.2"]


@pytest.mark.parametrize("name", sorted({*OTHER_LOSSES["documents"], "info_nce"}))
def test_a_loss_for_logits_has_a_temperature_for_cosines_in_a_search_alone_and_what_is_given_wins(name):
    words, usual = [f"loss={name}", "data.root=x"], losses.settings(name)
    loss = compose(words, "search").loss
    own = {**usual, **OTHER_LOSSES["documents"].get(name, {"tau": 0.1})}
    assert loss == own != usual
    key = "highest" if name == "grade_bce" else "tau"
    assert (
        compose([*words, f"loss.{key}=1"], "search").loss[key]
        == compose([f"loss.{key}=1", *words], "search").loss[key]
        == 1
    )
    assert compose([f"loss={name}"]).loss == usual


def test_one_line_of_the_table_changes_the_default_loss(monkeypatch):
    monkeypatch.setitem(defaults.LOSSES, "images", ("supap", {"tau": 0.5}))
    composed.cache_clear()
    try:
        for settled in (compose([]), _settings([], ([], []), None, None, {})):
            assert settled.loss._target_.endswith("SupAPLoss") and settled.loss.tau == 0.5
        assert compose(["data=text", "data.root=x"]).loss._target_.endswith("InfoNCELoss")
    finally:
        composed.cache_clear()


# --- rates -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind of model -> a file of weights of one."""
    folder = tmp_path_factory.mktemp("weights")
    models = {
        "convnet": build_model("convnet", widths=[4]),
        "timm": build_model("timm", name="resnet10t", embedding_size=4),
        "ngrams": build_model("ngrams", dim=4, buckets=64),
        "vectors": build_model("vectors", width=4),
    }
    return {kind: save_weights(folder / f"{kind}.pt", model) for kind, model in models.items()}


STARTS = [  # settings, kind of model, was it trained before
    ([], "convnet", False),
    (["model.weights=x"], "convnet", True),
    (["init=convnet"], "convnet", True),
    (["model=timm"], "timm", False),
    (["model=timm", "model.pretrained=true"], "timm", True),
    (["model=timm", "model.weights=x"], "timm", True),
    (["init=timm"], "timm", True),
    (["data=text", "data.root=x"], "ngrams", False),
    (["data=text", "data.root=x", "init=ngrams"], "ngrams", True),
    (["data=text", "data.root=x", "model=sentence_transformer", "model.name=x"], "sentence_transformer", True),
    (["data=table", "data.root=x"], "vectors", False),
    (["data=table", "data.root=x", "init=vectors"], "vectors", True),
]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize(("start", "kind", "trained"), STARTS, ids=[" ".join(start) for start, _, _ in STARTS])
def test_a_rate_follows_the_model_its_start_and_the_optimiser(files, start, kind, trained, optimizer):
    words = [f"init={files[word[5:]]}" if word.startswith("init=") else word for word in start]
    found = compose([*words, f"optimizer.name={optimizer}"]).optimizer
    wanted = rate_of(kind, optimizer, trained=trained)
    factor = defaults.SGD if optimizer == "sgd" else 1
    assert (found.lr, found.head_lr_factor) == (wanted.lr, wanted.head_lr_factor)
    assert found.lr == RATES[kind][trained] * factor and found.head_lr_factor == (
        defaults.TRAINED_HEAD if trained else 1
    )
    assert compose([*words, f"optimizer.name={optimizer}", "optimizer.lr=0.5"]).optimizer.lr == 0.5
    if trained:
        assert compose([*words, f"optimizer.name={optimizer}", "frozen=true"]).optimizer.lr == defaults.FROZEN * factor


def test_what_was_trained_before_is_not_trained_faster_than_from_scratch():
    assert all(before <= scratch for scratch, before in RATES.values() if None not in (scratch, before))


@pytest.mark.parametrize("kind", ["convnet", "timm", "ngrams", "vectors"])
def test_a_model_of_ours_brings_its_rate_to_fit(files, kind):
    options = {"timm": {"name": "resnet10t"}, "vectors": {"width": 4}, "ngrams": {"buckets": 64}}.get(kind, {})
    ours = build_model(kind, **options)
    inside = nn.Sequential(ours, nn.Linear(4, 2))
    for model in (ours, inside):
        assert kind_of(model) == (kind, False)
    settled = _settings([f"model.like={kind}"], ([], []), None, None, {})
    assert settled.optimizer.lr == RATES[kind][0]


def test_fit_and_command_train_n_grams_with_the_same_loss_and_rate(tmp_path, capsys):
    texts = [f"{word} {number}" for word in ("card", "loan", "tax", "rent") for number in range(3)]
    labels = [text.split()[0] for text in texts]
    few = {"trainer.max_epochs": 0, "evaluation.bootstrap": 0, "evaluation.clusters": "none", "threads": 1}
    for place, model in enumerate((NGrams(4, 64), build_model("ngrams", dim=4, buckets=64))):
        rankgrad.fit(model, (texts, labels), "info_nce", test=0.5, out=tmp_path / str(place), settings=few, quiet=True)
        told = capsys.readouterr().out
        assert "optimizer.lr 0.03, for ngrams from scratch" in told and "InfoNCELoss with tau=0.1" in told


def test_models_of_rows_bring_their_rates():
    for model in ("mlp", "linear"):
        assert compose([f"model={model}", "data.root=x"], "scores").optimizer.lr == RATES[model][0]
    assert compose(["model=linear", "data.root=x", "optimizer.lr=0.5"], "scores").optimizer.lr == 0.5


def test_a_folder_of_a_run_stands_for_its_weights(files, tmp_path):
    (tmp_path / "model.pt").write_bytes(files["timm"].read_bytes())
    assert compose([f"init={tmp_path}"]).optimizer.lr == RATES["timm"][1]


# --- what a run says before it trains --------------------------------------------------------------------------------


def said(words: list[str]) -> str:
    """What a run says before it trains, up to what refuses it."""
    lines: list[str] = []
    try:
        build(compose([*words, "out=x"]), quiet=True, say=lines.append)
    except ValueError as error:
        lines.append(f"refused: {error}")
    return "\n".join(lines)


def test_a_run_says_which_loss_and_rate_it_takes_and_why(files, tmp_path):
    photos, texts = make_photos(tmp_path / "photos"), make_texts(tmp_path / "texts.csv")
    told = said(small(photos, "model=timm", "model.name=resnet10t", "model.embedding_size=4"))
    assert "loss AdaptiveROADMAPLoss" in told and "default for images" in told
    assert "optimizer.lr 0.001" in told and "timm from scratch" in told
    fine = small(photos, f"init={files['timm']}", "model=timm", "loss=cross_entropy")
    told = said(fine)
    assert "loss CrossEntropyLoss" in told and "default for" not in told
    assert "optimizer.lr 0.0003" in told and "timm trained before" in told
    assert "0.0006 for the head" in told and "0.003 for the loss" in told
    told = said([*fine, "optimizer.lr=0.01"])
    assert "optimizer.lr 0.01" in told and "as given" in told and "0.0003" in told
    told = said(small_texts(texts))
    assert "loss InfoNCELoss" in told and "default for texts" in told and "optimizer.lr 0.03" in told


def test_batches_have_all_classes_where_there_are_few_and_the_summary_says_so(tmp_path):
    photos, texts = make_photos(tmp_path / "photos"), make_texts(tmp_path / "texts.csv")
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, embeddings=np.eye(20, dtype=np.float32), labels=np.repeat(np.arange(10), 2))
    many = "sampler.classes_per_batch=16"
    for words, classes in (
        (small(photos, many), 5),
        (small(photos, many, "fold=1/2", "evaluation.split=val"), 2),
        (small_texts(texts, many), 5),
        (small_texts(texts, many, "fold=2/2", "evaluation.split=val"), 3),
        ([*QUICK, "data=table", f"data.root={vectors}", many], 5),
    ):
        assert f"batches of {classes} classes" in (told := said(words)) and many in told and "refused" not in told
    assert many not in said(small(photos, "sampler.classes_per_batch=4"))


def test_the_data_is_shown_before_anything_of_it_is_refused(tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,label,split\none,a,train\ntwo,a,train\nthree,b,test\nfour,b,test\n")
    of_a_fold = ("fold=1/2", "evaluation.split=val")
    for settings, wrong in (((), "a batch needs 2 classes"), (of_a_fold, "2 folds need at least 4 training classes")):
        table, _, refusal = said(small_texts(texts, *settings)).partition("refused: ")
        assert "classes" in table and "train" in table and wrong in refusal


def test_a_module_of_ones_own_is_trained_by_the_same_rules(tmp_path, capsys):
    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(128, 4)

        def forward(self, texts: list[str]) -> torch.Tensor:
            return torch.stack([self.table(torch.tensor(list(text.encode()))).mean(0) for text in texts])

    texts = [f"{word} {number}" for word in ("card", "loan", "tax", "rent") for number in range(3)]
    labels = [text.split()[0] for text in texts]
    few = {"trainer.max_epochs": 0, "evaluation.bootstrap": 0, "evaluation.clusters": "none", "threads": 1}
    rankgrad.fit(Letters(), (texts, labels), test=0.5, out=tmp_path / "run", settings=few, quiet=True)
    told = capsys.readouterr().out
    assert "batches of 2 classes" in told and "sampler.classes_per_batch=16" in told
    assert "loss InfoNCELoss" in told and "optimizer.lr 0.001" in told
    with pytest.raises(ConfigError, match="resume=True"):
        rankgrad.fit(Letters(), (texts, labels), test=0.5, out=tmp_path / "run", settings=few, quiet=True)


# --- what messages ask for can be typed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["lr=1e-3"], "optimizer.lr"),
        (["sampler.lr=1e-3"], "optimizer.lr"),
        (["classes_per_batch=8"], "sampler.classes_per_batch"),
        (["data=folder", "data.root=x", "test_fraction=0.3"], "data.load.test_fraction"),
        (["data=folder", "data.root=x", "data.test_fraction=0.3"], "data.load.test_fraction"),
        (["data.root=my photos"], "data=folder 'data.root=my photos'"),
        (["data.root=mine.csv"], "data=text data.root=mine.csv"),
        (["data.root=mine.npz"], "data=table data.root=mine.npz"),
    ],
)
def test_a_setting_without_its_section_is_answered_with_the_whole_one(words, typed):
    with pytest.raises(ConfigError) as error:
        compose(words)
    assert typed in str(error.value)


def test_settings_of_batches_are_checked_by_the_names_that_are_typed():
    with pytest.raises(ValueError, match="^classes_per_batch counts classes"):
        check_settings(classes_per_batch=0)  # an argument
    assert "refused: sampler.classes_per_batch counts classes" in said(["sampler.classes_per_batch=0"])
    assert "refused: optimizer.head_lr_factor" in said(["optimizer.head_lr_factor=-1"])
