"""A LoRA adapter of peft is added to the weights of a model of texts, and nothing else of its folder is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="sentence-transformers comes with an extra")

from safetensors.torch import save_file
from small_runs import make_texts, small_texts, train
from text_models import bert_model

from rankgrad.models import sentence_transformer_model
from rankgrad.models.lora import merge_lora
from rankgrad.models.weights import load_weights, save_weights

QUERY = "encoder.layer.0.attention.self.query"
TEXTS = ["card transfer balance", "pin refund"]
LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "use_dora": False, "rank_pattern": {}}


def adapter(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **settings: object) -> Path:
    """The folder of an adapter of one layer, with a module that must not be imported."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({**LORA, "megatron_core": "this", **settings}))
    (folder / "this.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    if tensors is None:
        g = torch.Generator().manual_seed(0)
        shapes = {"A": (2, 16), "B": (16, 2)}
        tensors = {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}
    named = {
        f"base_model.model.{QUERY}.lora_{name}.weight" if len(name) == 1 else name: m for name, m in tensors.items()
    }
    save_file(named, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("bert")
    bert_model(root / "body").float().save(str(root / "model"), create_model_card=False)
    return root / "model"


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}


@pytest.mark.parametrize(("rslora", "scale"), [(False, 6 / 2), (True, 6 / 2**0.5)])
def test_the_change_of_a_matrix_is_alpha_over_r_b_a_and_no_other_weight_changes(folder, tmp_path, rslora, scale):
    of = adapter(tmp_path / "lora", use_rslora=rslora)
    before, after = weights(sentence_transformer_model(str(folder))), sentence_transformer_model(str(folder), lora=of)
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn((2, 16), generator=g), torch.randn((16, 2), generator=g)
    [changed] = [name for name, value in weights(after).items() if not torch.equal(value, before[name])]
    assert changed.endswith(f"{QUERY}.weight")
    torch.testing.assert_close(weights(after)[changed], before[changed] + scale * b @ a)
    again, _ = load_weights(save_weights(tmp_path / "model.pt", after))
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(TEXTS), after.eval()(TEXTS))
    assert not (of / "ran").exists()


@pytest.mark.usefixtures("no_page")
def test_a_run_begins_with_the_adapter(folder, tmp_path):
    of, texts = adapter(tmp_path / "lora"), make_texts(tmp_path / "texts.csv")
    words = ["model=sentence_transformer", f"model.name={folder}", "train.average=0"]
    runs = [
        train(*small_texts(texts, *words, *more), f"out={tmp_path / name}")
        for name, more in (("with", [f"model.lora={of}"]), ("without", []))
    ]
    kept = [load_weights(run.weights)[0] for run in runs]
    start = [sentence_transformer_model(str(folder), lora=lora) for lora in (of, None)]
    for model, begun in zip(kept, start, strict=True):
        assert all(torch.equal(value, weights(begun)[name]) for name, value in weights(model).items())


@pytest.mark.parametrize(
    ("settings", "tensors", "told"),
    [
        ({"peft_type": "IA3"}, None, "has the kind 'IA3', which is not supported"),
        ({"use_dora": True}, None, "has use_dora=True, which is not supported"),
        ({"rank_pattern": {"query": 4}}, None, "has rank_pattern="),
        ({"modules_to_save": ["classifier"]}, None, "has modules_to_save="),
        ({"r": 0}, None, "is not that of a LoRA adapter"),
        ({"r": "many"}, None, "is not that of a LoRA adapter"),
        ({"r": 3}, None, "does not fit"),
        ({}, {"A": torch.zeros(2, 16)}, "one matrix of two"),
        ({}, {"A": torch.zeros(2, 16), "B": torch.zeros(17, 2)}, "does not fit"),
        ({}, {"base_model.model.x.lora_embedding_A": torch.zeros(2)}, "is no matrix of a linear layer"),
        ({}, {f"base_model.model.other.lora_{side}.weight": torch.zeros(2, 2) for side in "AB"}, "has 0 such layers"),
        ({}, {f"base_model.model.encoder.lora_{side}.weight": torch.zeros(2, 2) for side in "AB"}, "has a BertEncoder"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(folder, tmp_path, settings, tensors, told):
    of, network = adapter(tmp_path / "lora", tensors, **settings), sentence_transformer_model(str(folder))
    before = {name: value.clone() for name, value in weights(network).items()}
    with pytest.raises(ValueError, match=told):
        merge_lora(network, of)
    assert all(torch.equal(value, before[name]) for name, value in weights(network).items())


def test_a_folder_without_tensors_is_refused(folder, tmp_path):
    of, network = adapter(tmp_path / "lora"), sentence_transformer_model(str(folder))
    (of / "adapter_model.safetensors").write_bytes(b"\x07" * 40)
    with pytest.raises(ValueError, match="is damaged"):
        merge_lora(network, of)
    (of / "adapter_model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"adapter_model\.safetensors"):
        merge_lora(network, of)
    with pytest.raises(FileNotFoundError):
        merge_lora(network, tmp_path / "none")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft uses names that transformers has replaced
def test_it_gives_the_embeddings_of_peft(folder, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not among the packages of the tests")
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(0)
    model = SentenceTransformer(str(folder), device="cpu")
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value", "dense"], init_lora_weights=False)
    body = peft.get_peft_model(model[0].auto_model, settings)
    body.save_pretrained(str(tmp_path / "lora"))
    expected = model.encode(TEXTS, convert_to_tensor=True).clone()
    with torch.no_grad():
        merged = sentence_transformer_model(str(folder), lora=tmp_path / "lora").eval()(TEXTS)
    torch.testing.assert_close(merged, expected, atol=1e-5, rtol=0)
