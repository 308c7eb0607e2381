"""`retrieve`: ids in, run out; the same for every form of input and every size of block."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rankgrad.search import retrieve

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
