"""A LoRA adapter of any kind of peft is merged into the weights of a model of texts, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="sentence-transformers comes with an extra")
pytest.importorskip("peft", reason="peft comes with an extra")

import peft
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from small_runs import make_texts, small_texts, train
from text_models import bert_model, static_model

from rankgrad_workbench.models import sentence_transformer_model
from rankgrad_workbench.models.weights import load_weights, save_weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # peft uses names that transformers has replaced
    pytest.mark.filterwarnings("ignore:Adapter 'default'"),  # it takes the bias of a change for a cut matrix
]

TEXTS = ["card transfer balance", "pin refund"]
LORA = {"r": 4, "lora_alpha": 6, "target_modules": ["query", "value", "dense"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("bert")
    bert_model(root / "body").float().save(str(root / "model"), create_model_card=False)
    return root / "model"


def adapter(folder: Path, out: Path, **settings: Any) -> tuple[Path, torch.Tensor]:
    """The folder of an adapter whose weights were all changed, and the embeddings of its network in peft."""
    model = SentenceTransformer(str(folder), device="cpu")
    body = peft.get_peft_model(model[0].auto_model, peft.LoraConfig(**{**LORA, **settings}))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in (each for each in body.parameters() if each.requires_grad):
            parameter += 0.3 * torch.randn_like(parameter)
    body.save_pretrained(str(out))
    with torch.no_grad():
        return out, model.eval().encode(TEXTS, convert_to_tensor=True).clone()


def settings_of(of: Path, **changed: Any) -> None:
    file = of / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gaussian": {"init_lora_weights": "gaussian"},
    "pissa": {"init_lora_weights": "pissa"},
    "olora": {"init_lora_weights": "olora"},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "patterns": {"rank_pattern": {"query": 2}, "alpha_pattern": {"value": 3}},
    "biases": {"bias": "lora_only"},
    "all biases": {"bias": "all"},
    "bias of the change": {"lora_bias": True},
    "modules to save": {"modules_to_save": ["LayerNorm"]},
    "embedding": {"target_modules": ["word_embeddings", "query"]},
    "token": {"trainable_token_indices": {"word_embeddings": [3, 5]}},
    "some layers": {"layers_to_transform": [0], "layers_pattern": "layer"},
    "by an expression": {"target_modules": r".*\.(query|key)"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_the_embeddings_of_peft(folder, tmp_path, kind):
    of, expected = adapter(folder, tmp_path / "lora", **KINDS[kind])
    model = sentence_transformer_model(str(folder), lora=of).eval()
    before = sentence_transformer_model(str(folder)).eval()
    again, _ = load_weights(save_weights(tmp_path / "model.pt", model))
    with torch.no_grad():
        torch.testing.assert_close(model(TEXTS), expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(again(TEXTS), model(TEXTS))
        assert not torch.allclose(before(TEXTS), expected, atol=1e-4)
    assert model.state_dict().keys() == before.state_dict().keys()
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.usefixtures("no_page")
def test_a_run_begins_with_the_adapter(folder, tmp_path):
    of, texts = adapter(folder, tmp_path / "lora")[0], make_texts(tmp_path / "texts.csv")
    run = train(
        *small_texts(texts, "model=sentence_transformer", f"model.name={folder}", "optimizer.average=0"),
        f"model.lora={of}",
        f"out={tmp_path / 'run'}",
    )
    kept, begun = load_weights(run.weights)[0].state_dict(), sentence_transformer_model(str(folder), lora=of)
    assert all(torch.equal(value, kept[name]) for name, value in begun.state_dict().items())


def fewer(of: Path) -> None:
    tensors = load_file(of / "adapter_model.safetensors")
    save_file({name: value for name, value in tensors.items() if "value" not in name}, of / "adapter_model.safetensors")


def with_nan(of: Path) -> None:
    tensors = load_file(of / "adapter_model.safetensors")
    next(iter(tensors.values()))[0, 0] = torch.nan
    save_file(tensors, of / "adapter_model.safetensors")


def scrambled(of: Path) -> None:
    (of / "adapter_model.safetensors").write_bytes(b"\x07" * 40)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ({"peft_type": "IA3"}, "has peft_type='IA3', which is not supported"),
        ({"init_lora_weights": "corda"}, "has init_lora_weights='corda', which is not supported"),
        ({"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights='pissa_niter_4', which is not supported"),
        ({"init_lora_weights": ["pissa"]}, "has init_lora_weights="),
        ({"layer_replication": [[0, 1], [0, 1]]}, "has layer_replication="),
        ({"alora_invocation_tokens": [1]}, "has alora_invocation_tokens="),
        ({"megatron_config": {"a": 1}}, "has megatron_config="),
        ({"of_a_later_version": True}, "has of_a_later_version=True, which is not supported"),
        ({"r": 0}, "does not fit the network, or is damaged"),
        ({"r": "many"}, "does not fit the network, or is damaged"),
        ({"r": 10**9}, "does not fit the network, or is damaged"),
        ({"r": 3}, "is [4, 16] in the file and [3, 16] in the model"),
        ({"lora_alpha": float("nan")}, "finite|NaN"),
        ({"lora_alpha": 1e300}, "finite|NaN|does not fit"),
        ({"target_modules": ["query", "value", "dense", "key"]}, "missing in the file"),
        ({"target_modules": ["query"]}, "unknown to the model"),
        ({"target_modules": ["other"]}, "does not fit the network"),
        (fewer, "missing in the file"),
        (with_nan, "finite|NaN"),
        (scrambled, "is damaged"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_in_one_line(folder, tmp_path, harm, told):
    of, _ = adapter(folder, tmp_path / "lora")
    harm(of) if isinstance(harm, Callable) else settings_of(of, **harm)
    with pytest.raises(ValueError, match=told.replace("[", r"\[")) as error:
        sentence_transformer_model(str(folder), lora=of)
    assert "\n" not in str(error.value)


def test_an_adapter_without_tensors_or_with_pickled_ones_is_refused(folder, tmp_path):
    of, _ = adapter(folder, tmp_path / "lora")
    torch.save(load_file(of / "adapter_model.safetensors"), of / "adapter_model.bin")
    (of / "adapter_model.safetensors").unlink()
    for place in (of, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"adapter_model\.safetensors|adapter_config\.json"):
            sentence_transformer_model(str(folder), lora=place)
    static_model().save(str(tmp_path / "static"), create_model_card=False)
    with pytest.raises(ValueError, match="has no network of transformers"):
        sentence_transformer_model(str(tmp_path / "static"), lora=of)


def test_nothing_that_the_settings_name_is_imported(folder, tmp_path, monkeypatch):
    of, _ = adapter(folder, tmp_path / "lora")
    (tmp_path / "named.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    auto = {"base_model_class": "Some", "parent_library": "named"}
    settings_of(of, megatron_core="named", auto_mapping=auto)
    sentence_transformer_model(str(folder), lora=of)
    assert not (tmp_path / "ran").exists()
