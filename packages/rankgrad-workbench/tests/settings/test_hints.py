"""What is misspelt, or said in the words of another program, is answered with what would fit."""

from __future__ import annotations

import re

import pytest

from rankgrad_workbench.settings import GROUPS, ConfigError, compose, keys, options
from rankgrad_workbench.settings.hints import synonyms
from rankgrad_workbench.settings.hydra import composed
from rankgrad_workbench.settings.kinds import TASKS


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
        (["data=folder"], "data.root must be given; add the setting data.root=..."),
        (["data=folder", "data.root=null"], "data.root must be given and must not be null; add the setting data.root="),
        (
            ["model=sentence_transformer", "model.name=null"],
            "model.name must be given and must not be null; add the setting model.name=",
        ),
        (["task=scores", "data.root=null"], "data.root must be given and must not be null"),
        (["task=search", "data.root=null"], "data.root must be given and must not be null"),
        (["pnp"], "settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got 'pnp'"),
        (["data=folder", "data.root="], "data.root= is empty"),
        (["data.root=null"], "data.root also needs the kind of the data: data=folder data.root=DIR"),
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
        (["loss=pnp", "margin=1"], "unknown setting 'margin'. Known: task, "),
        (["path=nosuch"], "did you mean 'data=folder' and 'data.root'?"),
        (["gpu"], "got 'gpu'; did you mean 'trainer.accelerator=gpu'?"),
        (["supap"], "got 'supap'; did you mean 'loss=supap'?"),
        (["data=images"], "unknown data 'images'; did you mean 'data=folder'? Known: "),
        (["data=beir"], "unknown data 'beir'; did you mean 'task=search'? Known: "),
        (["data=qrels"], "did you mean 'task=search'?"),
        (["task=search", "data=beir"], "unknown data 'beir'. Known: documents"),
        (["loggers=null"], "loggers is a list such as loggers=['csv']; got None"),
        (["evaluation.extra=null"], "evaluation.extra is a list such as"),
        (["loss=infonce"], "unknown loss 'infonce'; did you mean 'loss=info_nce'?"),
        (["model=resnet50"], "For a network of timm: model=timm model.name=resnet50; of sentence-transformers: "),
        (["loss=pnp:alpha=1+variant=Ds"], "Its settings follow it: loss=NAME loss.SETTING=VALUE"),
        (["loss=recall_at_k(k=[1,2])"], "Its settings follow it"),
        (["loss=pnp,supap"], "A run trains one loss"),
        (["seed=0,1"], "Ambiguous value for argument 'seed=0,1'. Signs such as"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(settings, message):
    with pytest.raises(ConfigError) as error:
        compose(settings)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["foo", "smoothap", "pml/tripet"])
def test_the_list_after_an_unknown_loss_is_cut_and_says_where_the_whole_is(name):
    with pytest.raises(ConfigError) as error:
        compose([f"loss={name}"])
    text = str(error.value)
    assert len(text) < 400 and text.endswith("others: rankgrad train --help")
    left = int(re.search(r"and (\d+) others", text)[1])
    assert len(text.partition("Known: ")[2].split(", ")) - 1 + left == len(options("loss"))


def test_a_folder_of_queries_and_documents_is_not_taken_for_a_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "photos/cats/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for words in (["data=beir"], ["beir"], ["data.root=beir"], ["path=beir"]):
        with pytest.raises(ConfigError) as error:
            compose(words)
        text = str(error.value)
        assert "task=search data.root=beir" in text
        assert "data=folder" not in text and "data=text" not in text
    with pytest.raises(ConfigError, match="Use: data=folder data.root=photos$"):
        compose(["data=photos"])


def test_the_task_in_the_settings_chooses_the_settings_in_python():
    assert compose(["task=scores", "data.root=rows.csv"]).task == "scores"
    with pytest.raises(ConfigError, match="unknown task 'score'; did you mean 'scores'"):
        compose(["task=score"])
    with pytest.raises(ConfigError, match="settings .train. have no task=scores: `rankgrad train` has it"):
        compose(["task=scores"], "train")


def test_an_unknown_section_is_answered_with_the_known_sections():
    with pytest.raises(ConfigError) as error:
        compose(["train.epochs=3"], "scores")  # this tree has no section `train`
    assert "did you mean 'trainer.max_epochs'? Known: data, model, loss, " in str(error.value)


def named_settings(row: str) -> list[str]:
    """The names of the settings in a row of synonyms."""
    return [part.partition("=")[0] for part in row.split()]


@pytest.mark.parametrize("row", synonyms())
def test_every_setting_that_a_common_word_is_explained_by_exists(row):
    data = {"train": "data=folder", "scores": "data=table"}
    chosen = [part for part in row.split() if part.partition("=")[0] in GROUPS and "=" in part]
    for tree in data:
        groups = [data[tree], *(chosen if tree == "train" else ["loss=supap"])]
        if any(part.partition("=")[2] not in options(part.partition("=")[0]) for part in chosen):
            break
        if "model.pretrained" in row and tree == "train":
            groups.append("model=timm")
        if set(named_settings(row)) <= set(keys(composed(tuple(dict.fromkeys(groups)), tree))):
            return
    pytest.fail(f"no command has {row}")


def test_no_common_word_is_a_setting_itself_and_every_word_is_answered():
    own = {tree: set(keys(composed((), tree))) for tree in (row.settings for row in TASKS.values())}
    for words in synonyms().values():
        for word in words:
            assert not any(word in known for known in own.values()), word
            with pytest.raises(ConfigError, match="did you mean|Known"):
                compose([f"{word}=1"])


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
    for path, told in (
        ("my photos", "data=folder 'data.root=my photos'"),
        ("x.csv", "data=text data.root=x.csv for texts"),
        ("x.csv", "task=scores data.root=x.csv for rows with a label"),
    ):
        with pytest.raises(ConfigError) as error:
            compose([word.format(path)])
        assert told in str(error.value)
