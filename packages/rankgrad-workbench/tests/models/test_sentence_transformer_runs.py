"""A model of sentence-transformers as the model of a run: trained, kept in one file without code, built again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="sentence-transformers comes with an extra")

from small_runs import cut_off, make_texts, same_results, small_texts, train
from text_models import bert_model, static_model

from rankgrad_workbench.models import sentence_transformer_model
from rankgrad_workbench.models.weights import load_weights, save_weights
from rankgrad_workbench.settings import ConfigError, compose

pytestmark = pytest.mark.usefixtures("no_page")

TEXTS = ["the card is lost", "my loan", "a refund of the fee in cash"]


@pytest.fixture(scope="module", params=["static", "bert"])
def folder(request, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    made = static_model() if request.param == "static" else bert_model(root / "body").float()
    made.save(str(root / "model"), create_model_card=False)
    return root / "model"


def test_it_gives_the_embeddings_of_the_model_also_after_a_file_alone(folder, tmp_path):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True).clone()
    model = sentence_transformer_model(str(folder)).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(TEXTS), expected, atol=1e-6, rtol=0)
    file = save_weights(tmp_path / "model.pt", model)
    moved = folder.rename(folder.with_name("moved"))  # the file needs nothing beside it
    try:
        again, _ = load_weights(file)
    finally:
        moved.rename(folder)
    with torch.no_grad():
        torch.testing.assert_close(again(TEXTS), expected, atol=1e-6, rtol=0)


def test_texts_are_cut_after_max_tokens_also_after_a_file_alone(tmp_path):
    bert_model(tmp_path / "body").float().save(str(tmp_path / "model"), create_model_card=False)
    whole, short = (sentence_transformer_model(str(tmp_path / "model"), max_tokens=most).eval() for most in (None, 5))
    again, _ = load_weights(save_weights(tmp_path / "model.pt", short))
    long = "card transfer balance pin refund cash"
    with torch.no_grad():
        expected = whole(["card transfer balance"])  # beside them are the marks of start and end
        assert not torch.allclose(whole([long]), expected)
        for model in (short, again.eval()):
            torch.testing.assert_close(model([long]), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("most", "message"),
    [(0, "max_tokens is a number of tokens"), (33, "max_tokens=33 cannot .* which reads at most 32 tokens")],
)
def test_a_limit_of_tokens_that_the_model_does_not_have(most, message, tmp_path):
    bert_model(tmp_path / "body").float().save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(ValueError, match=message):
        sentence_transformer_model(str(tmp_path / "model"), max_tokens=most)


def test_a_model_that_reads_texts_of_any_length_cannot_cut_them(tmp_path):
    static_model().save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(ValueError, match="which reads texts of any length"):
        sentence_transformer_model(str(tmp_path / "model"), max_tokens=5)


def test_a_run_trains_it_and_goes_on_where_it_was_cut_off(folder, tmp_path):
    file = make_texts(tmp_path / "a.csv")
    settings = small_texts(file, "model=sentence_transformer", f"model.name={folder}", "optimizer.lr=0.01")
    run = train(*settings, f"out={tmp_path / 'run'}")
    before, after = run.read_before(), run.read_values()
    assert before is not None and before.values != after
    model, _ = load_weights(run.weights)
    assert model.inputs.takes == "texts" and model.config["name"] == str(folder)
    cut_off([*settings, f"out={tmp_path / 'cut'}"], 3)
    assert same_results(train(f"resume={tmp_path / 'cut'}").folder, run.folder)


def test_a_language_model_begins_with_a_small_rate():
    settings = ["data=text", "data.root=a.csv", "model=sentence_transformer", "model.name=some/name"]
    assert compose(settings).optimizer.lr == 2e-5
    with pytest.raises(ConfigError, match="model.name must be given"):
        compose(settings[:-1])


class Touch:
    """What a pickle can do: anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Touch(folder / "ran")}, folder / "pytorch_model.bin")


def _coded(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "own.Module"}]')
    (folder / "own.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")


def _second_module(folder: Path, kind: str, settings: dict[str, Any]) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": "1", "path": "1", "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text(json.dumps(settings))


def _whole(folder: Path) -> None:
    """A model as a module of itself: sentence-transformers would read the folder again, with the trust of its files."""
    _second_module(folder, "sentence_transformers.SentenceTransformer", {})


def _trusting(folder: Path) -> None:
    _second_module(folder, "sentence_transformers.models.Dense", {"deep": [{"trust_remote_code": True}]})


def _active(folder: Path) -> None:
    """The module `this` prints a poem when it is imported."""
    dense = {"in_features": 4, "out_features": 4, "activation_function": "this.s"}
    _second_module(folder, "sentence_transformers.base.modules.dense.Dense", dense)


def _settings(folder: Path, **settings: Any) -> None:
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))


def _unpickled(folder: Path) -> None:
    _settings(folder, model_args={"weights_only": False, "dtype": "auto"})


def _kernel(folder: Path) -> None:
    """Attention from a package of the hub."""
    _settings(folder, config_kwargs={"attn_implementation": "somebody/kernels"})


def _method(folder: Path) -> None:
    _settings(folder, modality_config={"text": {"method": "save_pretrained", "method_output_name": "x"}})


def _elsewhere(folder: Path) -> None:
    _settings(folder, tokenizer_name_or_path="/elsewhere")


def _unknown(folder: Path) -> None:
    """A setting that no list has, at any depth, of a later version or of somebody else's class."""
    _second_module(folder, "sentence_transformers.models.Dense", {"later": [{"loader": "this.s"}]})


def _quantised(folder: Path) -> None:
    _second_module(folder, "sentence_transformers.models.Transformer", {"quantization_config": {"quant_method": "x"}})


def _adapter(folder: Path) -> None:
    """The package peft imports the module that `megatron_core` names."""
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "megatron_core": "this"}')


def _words(folder: Path) -> None:
    settings = {"tokenizer_class": "sentence_transformers.SentenceTransformer"}
    _second_module(folder, "sentence_transformers.models.WordEmbeddings", settings)


def _linked(folder: Path) -> None:
    _active(folder)
    (folder / "1").rename(folder.with_name("hidden"))
    (folder / "1").symlink_to(folder.with_name("hidden"))


def _deep(folder: Path) -> None:
    (folder / "modules.json").write_text("[" * 10**5)


def _scrambled(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_pickled, "can be read safely: it wants to run .*. Nothing was run.* safetensors"),
        (_coded, "has the setting type='own.Module' .modules.json.*never runs code"),
        (_whole, "has the setting type='sentence_transformers.SentenceTransformer'.*never runs code"),
        (_trusting, "has the setting trust_remote_code=True .1/config.json.* never runs code"),
        (_active, "has the setting activation_function='this.s'.* never runs code"),
        (_unpickled, "has the setting model_args=.*weights_only.* never runs code"),
        (_kernel, "has the setting attn_implementation='somebody/kernels'.* never runs code"),
        (_method, "has the setting method='save_pretrained' .* never runs code"),
        (_elsewhere, "has the setting tokenizer_name_or_path='/elsewhere' .* never runs code"),
        (_unknown, "has the setting loader='this.s' .1/config.json.* never runs code"),
        (_quantised, "has the setting quantization_config=.* never runs code"),
        (_adapter, "is an adapter .adapter_config.json."),
        (_words, "has the setting tokenizer_class='sentence_transformers.SentenceTransformer'.* never runs code"),
        (_deep, "is damaged: modules.json .* Download or copy it again"),
        (_scrambled, "is damaged .* Download or copy it again"),
    ],
)
def test_a_folder_of_somebody_else_is_refused_in_one_line_and_runs_nothing(tmp_path, harm, told):
    folder = tmp_path / "model"
    static_model().save(str(folder), create_model_card=False)
    harm(folder)
    with pytest.raises(ValueError, match=f"^{folder} .*{told}") as error:
        sentence_transformer_model(str(folder))
    assert "\n" not in str(error.value)
    assert harm is _trusting or "trust_remote_code" not in str(error.value)  # which nobody can set
    assert not (folder / "ran").exists()


def test_a_linked_folder_in_a_model_is_refused(tmp_path):
    static_model().save(str(tmp_path / "model"), create_model_card=False)
    _linked(tmp_path / "model")
    with pytest.raises(ValueError, match="the folder 1 of .* is a link"):
        sentence_transformer_model(str(tmp_path / "model"))


@pytest.mark.parametrize(
    "spelling",
    [
        "sentence_transformers.models.StaticEmbedding",
        "sentence_transformers.models.StaticEmbedding.StaticEmbedding",
        "sentence_transformers.sentence_transformer.modules.StaticEmbedding",
    ],
)
def test_modules_of_older_versions_are_read(tmp_path, spelling):
    static_model().save(str(tmp_path), create_model_card=False)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["type"] = spelling
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert sentence_transformer_model(str(tmp_path)).embedding_size == 16


def test_what_only_describes_a_model_is_no_reason_to_refuse_it(tmp_path):
    from rankgrad_workbench.models.foreign_settings import check_files

    bert_model(tmp_path / "body").save(str(tmp_path / "model"), create_model_card=False)
    prompts = {"query": "Represent: ", "passage": "passage:", "other": "a/b"}
    said: dict[str, dict[str, Any]] = {
        "config.json": {"_name_or_path": "/home/me/bert", "rope_scaling": {"type": "linear"}, "torch_dtype": "float32"},
        "tokenizer_config.json": {"cls_token": "</s>", "eos_token": {"content": "a.b"}, "name_or_path": "./x"},
        "config_sentence_transformers.json": {"prompts": prompts, "__version__": {"torch": "2.6.0.dev0"}},
    }
    for name, more in said.items():
        file = tmp_path / "model" / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **more, "auto_map": {"A": "modeling.B"}}))
    check_files(tmp_path / "model", "a model")


def test_every_module_of_the_list_is_a_class_of_its_name():
    from sentence_transformers.sentence_transformer import modules

    from rankgrad_workbench.models.foreign_settings import LISTS, TYPE

    for name in LISTS["modules"]:
        kind = getattr(modules, name)
        assert kind.__name__ == name and re.fullmatch(TYPE, f"{kind.__module__}.{name}")


def test_word_embeddings_are_read(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = WordEmbeddings(WhitespaceTokenizer("the card is lost my loan".split()), torch.eye(6, 4))
    made = SentenceTransformer(modules=[words, Pooling(4), Dense(4, 3)], device="cpu")
    made.save(str(tmp_path / "model"), create_model_card=False)
    model = sentence_transformer_model(str(tmp_path / "model"))
    again, _ = load_weights(save_weights(tmp_path / "model.pt", model))
    with torch.no_grad():
        torch.testing.assert_close(again(TEXTS[:2]), made.encode(TEXTS[:2], convert_to_tensor=True).clone())


def _on_the_hub(folder: Path, cache: Path, name: str) -> None:
    """Put a model into a cache of the hub, as a download leaves it."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("a" * 40)
    (place / "snapshots").mkdir()
    folder.rename(place / "snapshots" / ("a" * 40))


def test_a_model_of_the_hub_is_checked_before_it_is_read(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    for name in ("somebody/good", "sentence-transformers/short", "somebody/bad"):
        static_model().save(str(tmp_path / "model"), create_model_card=False)
        if name == "somebody/bad":
            _active(tmp_path / "model")
        _on_the_hub(tmp_path / "model", tmp_path, name)
    assert sentence_transformer_model("somebody/good").embedding_size == 16
    assert sentence_transformer_model("short").embedding_size == 16
    with pytest.raises(ValueError, match="^somebody/bad has the setting activation_function='this.s'"):
        sentence_transformer_model("somebody/bad")
    with pytest.raises(OSError, match="somebody/else is no folder, and it cannot be read from the hub"):
        sentence_transformer_model("somebody/else")


def test_a_file_that_names_code_of_its_own_is_refused(tmp_path):
    model = static_model()
    model.save(str(tmp_path / "model"), create_model_card=False)
    ours = sentence_transformer_model(str(tmp_path / "model"))
    files = dict(ours.config["files"])
    modules = json.loads(files["modules.json"])
    modules[0]["type"] = "os.path.join"
    for changed, told in (
        ({**files, "modules.json": json.dumps(modules)}, "has the setting type='os.path.join'"),
        ({**files, "./modules.json": json.dumps(modules)}, "has the setting type='os.path.join'"),  # the same file
        ({**files, "own.py": ""}, "its own code, own.py"),
        ({**files, "odd.bin": 3}, "is damaged: odd.bin"),
        (None, "requests other weights"),
        ({**files, "1/config.json": '{"trust_remote_code": 1}'}, "has the setting trust_remote_code=1"),
        ({name: text for name, text in files.items() if name != "modules.json"}, "modules.json is missing"),
        ({**files, "../outside.json": "{}"}, "outside"),
    ):
        ours.config["files"] = changed
        file = save_weights(tmp_path / "model.pt", ours)
        with pytest.raises(ValueError, match=told):
            load_weights(file)
    assert not (tmp_path / "outside.json").exists()
