"""A model of texts as a folder that plain sentence-transformers loads with the same embeddings."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from text_models import bert_folder

from rankgrad_workbench.cli import main
from rankgrad_workbench.index.export import export_texts
from rankgrad_workbench.models import EmbeddingModel, convnet
from rankgrad_workbench.models.ngrams import ngram_model
from rankgrad_workbench.models.sentence_transformer import sentence_transformer_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.tasks.search.encoders import Encoders

theirs = pytest.importorskip("sentence_transformers")
TEXTS = ["my card", "a limit on cash", "phone"]


def rounding(wanted: torch.Tensor) -> float:
    """1e-6 of the largest entry of an embedding, as `export_texts` allows; of unit vectors, 1e-6."""
    return 1e-6 * max(1.0, float(wanted.abs().max()))


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
    assert main(["export", str(weights), "-o", str(out), *([] if normalize else ["--no-normalize"])]) == 0, capsys
    wanted = model(TEXTS).detach()
    wanted = torch.nn.functional.normalize(wanted, dim=1) if normalize else wanted
    found = theirs.SentenceTransformer(str(out), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=rounding(wanted))
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
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=rounding(wanted))
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
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=rounding(wanted))


def moved(model: EmbeddingModel) -> EmbeddingModel:
    """Another model of the same kind."""
    other = copy.deepcopy(model)
    for weights in other.parameters():
        torch.nn.init.normal_(weights)
    return other.eval()


@pytest.mark.parametrize("kind", ["ngrams", "bert"])
def test_two_encoders_are_one_folder_that_takes_the_right_one(bert, tmp_path: Path, capsys, kind):
    torch.manual_seed(1)
    ours = kind == "ngrams"
    made = ngram_model(6, 500, (1, 2), (0, 0), 4, head="linear") if ours else sentence_transformer_model(bert, 5)
    document = started(made)
    both = Encoders(document, moved(document), {"query": "ask ", "document": "the "})
    both.save(tmp_path / "model.pt")
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "model.pt"), "-o", str(out)]) == 0
    told, card = capsys.readouterr().out, (out / "README.md").read_text("utf-8")
    assert "encode_query" in told and "encode_query" in card and "encode_document" in card
    again = theirs.SentenceTransformer(str(out), device="cpu", trust_remote_code=ours)
    found = {"query": again.encode_query(TEXTS), "document": again.encode_document(TEXTS)}
    for side, rows in found.items():
        torch.testing.assert_close(torch.as_tensor(rows), both.embed(TEXTS, side), rtol=0, atol=1e-6)
    assert abs(found["query"] - found["document"]).max() > 0.01
    plain = again.encode(TEXTS, prompt="the ")
    torch.testing.assert_close(torch.as_tensor(plain), both.embed(TEXTS, "document"), rtol=0, atol=1e-6)
    again.save(str(tmp_path / "saved again"))
    kept = theirs.SentenceTransformer(str(tmp_path / "saved again"), device="cpu", trust_remote_code=ours)
    assert (kept.encode_query(TEXTS) == found["query"]).all()


def test_the_encoder_of_the_queries_must_be_that_of_the_run(tmp_path: Path, capsys):
    document = started(ngram_model(6, 500))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Encoders(document, moved(document), {"query": "", "document": ""}).save(tmp_path / name / "model.pt")
    weights = tmp_path / "one" / "model.pt"
    (tmp_path / "two" / "queries.pt").replace(tmp_path / "one" / "queries.pt")
    assert main(["export", str(weights), "-o", str(tmp_path / "out")]) == 2
    assert "copy both from one run" in capsys.readouterr().err
    (tmp_path / "one" / "queries.pt").unlink()
    assert main(["export", str(weights), "-o", str(tmp_path / "out")]) == 2
    assert "queries.pt, the encoder of the queries, does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_of_texts_is_no_folder_with_the_name_of_a_file(tmp_path: Path, capsys):
    weights = save_weights(tmp_path / "model.pt", ngram_model(4, 50).eval(), {"data": {}})
    for name in ("a.pt2", "a.PT", "a.safetensors", "a.zip"):
        assert main(["export", str(weights), "-o", str(tmp_path / name)]) == 2
        assert "a model of texts is a folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]
