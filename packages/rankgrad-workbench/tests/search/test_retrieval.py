"""`retrieve`: ids in, run out; the same for every form of input and every size of block."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rankgrad import trec
from rankgrad.search import retrieve
from rankgrad_workbench.models.ngrams import ngram_model

DOCUMENTS = {f"d{number}": f"a note on {word} and {word}s" for number, word in enumerate("fox dog cat cow ox".split())}
QUERIES = {"q1": "fox", "q2": "two cows", 7: "ox"}


@pytest.fixture
def drawn() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(7, 16, generator=g), torch.randn(300, 16, generator=g)


@pytest.mark.parametrize("block", [1, 7, 100, 300, 1000])
def test_blocks_give_the_lists_of_the_whole_matrix(drawn, block, tmp_path):
    queries, documents = drawn
    documents[200] = documents[20]  # equal scores: the earlier document comes first
    np.save(tmp_path / "rows.npy", documents.numpy())
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    run = retrieve(None, (range(7), queries), (range(300), mapped), 30, block=block)
    cosines = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(documents).T
    cosines[:, 200] = cosines[:, 20]
    wanted = cosines.sort(dim=1, descending=True, stable=True).indices[:, :30]
    assert [list(map(int, listed)) for listed in run.values()] == wanted.tolist()
    for query, listed in run.items():
        torch.testing.assert_close(list(listed.values()), cosines[int(query)].sort(descending=True)[0][:30].tolist())


def test_a_model_of_texts_takes_mappings_pairs_and_lists(tmp_path):
    model = ngram_model(dim=8, buckets=500).train()
    model.head.eval()
    run = retrieve(model, QUERIES, DOCUMENTS, 3)
    assert model.training and not model.head.training
    assert {*run} == {"q1", "q2", "7"} and all(len(listed) == 3 for listed in run.values())
    for corpus in ((pair for pair in DOCUMENTS.items()), (list(DOCUMENTS), list(DOCUMENTS.values()))):
        other = retrieve(model, list(QUERIES.items()), corpus, 3, block=2, batch_size=1)
        assert [list(listed) for listed in other.values()] == [list(listed) for listed in run.values()]
    prompted = retrieve(model, QUERIES, DOCUMENTS, query_model=lambda texts: model([f"note {text}" for text in texts]))
    assert prompted != run and all(len(listed) == 5 for listed in prompted.values())
    assert trec.evaluate({"mine": run}, {"q1": {"d0": 1}}, ["num_ret"], intervals=0).values["mine"]["num_ret"] == 3


def test_a_model_of_sentence_transformers_is_one_too():
    theirs = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate("a note on fox dog".split())}, "a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    model = theirs.SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=4)], device="cpu")
    run = retrieve(model, {"q": "fox"}, {"d1": "dog", "d2": "fox"})
    assert next(iter(run["q"])) == "d2" and run["q"]["d2"] == pytest.approx(1)


def test_a_module_of_vectors_and_inner_products(drawn):
    queries, documents = drawn
    model = nn.Linear(16, 4)
    run = retrieve(
        lambda rows: model(torch.stack(rows)),
        (range(7), queries),
        (range(300), documents),
        5,
        normalize=False,
        block=40,
    )
    wanted = (model(queries) @ model(documents).T).topk(5).indices
    assert [list(map(int, listed)) for listed in run.values()] == wanted.tolist()


@pytest.mark.parametrize(
    ("queries", "corpus", "message"),
    [
        (([], torch.zeros(0, 2)), (["d"], torch.ones(1, 2)), "there are no queries"),
        ((["q"], torch.ones(1, 2)), ([], torch.zeros(0, 2)), "the corpus has no documents"),
        ((["q", "q"], torch.ones(2, 2)), (["d"], torch.ones(1, 2)), "query 'q' occurs twice"),
        ((["q"], torch.ones(1, 2)), (["d", "e", "d"], torch.ones(3, 2)), "document 'd' occurs twice"),
        ((["q"], torch.ones(1, 2)), (["d"], torch.ones(2, 2)), "equally many; got 1 and 2"),
        ({"q": [1.0, 0.0]}, (["d"], torch.ones(1, 2)), r"tuples \(ids, embeddings"),
        ((["q"], torch.ones(1, 2)), (["d"], torch.tensor([[1.0, torch.nan]])), "must be finite"),
    ],
)
def test_wrong_input_is_named(queries, corpus, message):
    with pytest.raises(ValueError, match=message):
        retrieve(None, queries, corpus, block=2)
