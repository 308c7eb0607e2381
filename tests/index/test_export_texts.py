"""A model of texts as a folder that plain sentence-transformers loads with the same embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from text_models import bert_folder

from rankgrad.models.ngrams import ngram_model
from rankgrad.models.sentence_transformer import sentence_transformer_model
from rankgrad.models.weights import save_weights
from rankgrad.workbench.cli import main

theirs = pytest.importorskip("sentence_transformers")
TEXTS = ["my card", "a limit on cash", "phone"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("head", ["none", "linear", "layer_norm"])
def test_folder_gives_the_embeddings_of_the_run(bert, tmp_path, capsys, head, normalize):
    torch.manual_seed(1)
    model = sentence_transformer_model(bert, None if head == "none" else 5, head=head).eval()
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


def test_model_that_sentence_transformers_cannot_build_is_refused(tmp_path: Path, capsys):
    weights = save_weights(tmp_path / "model.pt", ngram_model(dim=4, buckets=50), {"data": {}})
    from rankgrad.workbench.index.export_texts import export_texts

    with pytest.raises(ValueError, match="model=sentence_transformer"):
        export_texts(weights, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_model_of_a_search_keeps_its_prompts_and_has_length_one(bert, tmp_path: Path):
    from rankgrad.workbench.index.export_texts import export_texts

    model = sentence_transformer_model(bert, 5).eval()
    prompts = {"query": "the limit ", "document": ""}
    weights = save_weights(tmp_path / "model.pt", model, {"task": "search", "prompts": prompts})
    assert export_texts(weights, tmp_path / "out") <= 1e-6
    again = theirs.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    for found, given in ((again.encode_query(TEXTS), prompts["query"]), (again.encode_document(TEXTS), "")):
        wanted = torch.nn.functional.normalize(model([given + text for text in TEXTS]).detach(), dim=1)
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=1e-6)
