"""A model of texts as a folder that plain sentence-transformers loads with the same embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from text_models import bert_folder

from rankgrad.models import EmbeddingModel, convnet
from rankgrad.models.ngrams import ngram_model
from rankgrad.models.sentence_transformer import sentence_transformer_model
from rankgrad.models.weights import save_weights
from rankgrad.workbench.cli import main
from rankgrad.workbench.index.export_texts import export_texts

theirs = pytest.importorskip("sentence_transformers")
TEXTS = ["my card", "a limit on cash", "phone"]


def started(model: EmbeddingModel) -> EmbeddingModel:
    """The model in eval mode; the layers that start at 0 are drawn, so that they matter."""
    for weights in model.head.parameters():
        torch.nn.init.normal_(weights)
    return model.eval()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("head", ["none", "linear", "layer_norm", "mlp"])
def test_folder_gives_the_embeddings_of_the_run(bert, tmp_path, capsys, head, normalize):
    torch.manual_seed(1)
    model = started(sentence_transformer_model(bert, None if head == "none" else 5, head=head))
    weights = save_weights(tmp_path / "model.pt", model, {"data": {}})
    out = tmp_path / "out"
    assert main(["export", str(weights), "-o", str(out), *(["--normalize"] if normalize else [])]) == 0, capsys
    wanted = model(TEXTS).detach()
    wanted = torch.nn.functional.normalize(wanted, dim=1) if normalize else wanted
    found = theirs.SentenceTransformer(str(out), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert "library_name: sentence-transformers" in (out / "README.md").read_text("utf-8")
    assert main(["export", str(weights), "-o", str(out)]) == 2
    assert "does not exist yet" in capsys.readouterr().err


@pytest.mark.parametrize("head", ["none", "mlp"])
def test_folder_of_ngrams_is_loaded_by_sentence_transformers_with_rankgrad(tmp_path, capsys, head):
    torch.manual_seed(1)
    model = started(ngram_model(6, 500, (1, 3), (0, 0), None if head == "none" else 4, head=head))
    prompts = {"query": "ask ", "document": ""}
    weights = save_weights(tmp_path / "model.pt", model, {"task": "search", "prompts": prompts})
    out = tmp_path / "out"
    assert main(["export", str(weights), "-o", str(out)]) == 0
    assert f"SentenceTransformer({str(out)!r}, trust_remote_code=True)" in capsys.readouterr().out
    assert "trust_remote_code=True" in (out / "README.md").read_text("utf-8")
    again = theirs.SentenceTransformer(str(out), device="cpu", trust_remote_code=True)
    for found, prompt in ((again.encode_query([*TEXTS, ""]), "ask "), (again.encode_document([*TEXTS, ""]), "")):
        wanted = torch.nn.functional.normalize(model([prompt + text for text in [*TEXTS, ""]]).detach(), dim=1)
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=1e-6)
    assert again.get_embedding_dimension() == model.embedding_size
    again.save(str(tmp_path / "saved again"))
    kept = theirs.SentenceTransformer(str(tmp_path / "saved again"), device="cpu", trust_remote_code=True)
    assert (kept.encode(TEXTS) == again.encode(TEXTS)).all()


def test_folder_of_ngrams_is_trained_further_by_sentence_transformers(tmp_path):
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    weights = save_weights(tmp_path / "model.pt", ngram_model(6, 500), {"data": {}})
    assert export_texts(weights, tmp_path / "out") <= 1e-6
    model = theirs.SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    before = model.encode(TEXTS)
    options = theirs.SentenceTransformerTrainingArguments(
        str(tmp_path / "trained"), max_steps=2, use_cpu=True, report_to=[], learning_rate=0.1, disable_tqdm=True
    )
    pairs = Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[::-1]})
    loss = MultipleNegativesRankingLoss(model)
    theirs.SentenceTransformerTrainer(model, options, pairs, loss=loss).train()
    assert not (model.encode(TEXTS) == before).all()


def test_model_of_images_is_no_folder(tmp_path: Path):
    weights = save_weights(tmp_path / "model.pt", convnet(widths=(4,)), {"data": {}})
    with pytest.raises(ValueError, match="model of images; only one of texts"):
        export_texts(weights, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_model_of_a_search_keeps_its_prompts_and_has_length_one(bert, tmp_path: Path):
    model = sentence_transformer_model(bert, 5).eval()
    prompts = {"query": "the limit ", "document": ""}
    weights = save_weights(tmp_path / "model.pt", model, {"task": "search", "prompts": prompts})
    assert export_texts(weights, tmp_path / "out") <= 1e-6
    again = theirs.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    for found, given in ((again.encode_query(TEXTS), prompts["query"]), (again.encode_document(TEXTS), "")):
        wanted = torch.nn.functional.normalize(model([given + text for text in TEXTS]).detach(), dim=1)
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=1e-6)
