"""A corpus that is larger than memory: texts and embeddings are in files, and are read by blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_searches import beir, texts

from rankgrad.search import topk
from rankgrad_workbench.models.ngrams import ngram_model
from rankgrad_workbench.tasks.search.collection import NamedTexts, StoredTexts
from rankgrad_workbench.tasks.search.encoders import Encoders, StoredRows, encoders, retrieve
from rankgrad_workbench.tasks.search.reading import read


@pytest.fixture(scope="module")
def model() -> Encoders:
    torch.manual_seed(0)
    return encoders(ngram_model(16, 512, embedding_size=8), 1, None, None).eval()


@pytest.mark.parametrize("block", [1, 7, 96, 1000])
def test_blocks_of_any_size_give_the_same_embeddings_and_lists(model, block):
    documents, asked, _ = texts()
    named, queries = NamedTexts(tuple(documents), tuple(documents.values())), [*asked.values()]
    whole = model.embed(named.texts, "document")
    stored = StoredRows(model.embed_in_blocks(named.texts, 32, block=block))
    assert len(stored) == len(whole) and torch.equal(stored.take([5, 0]), torch.cat([*stored.blocks(7)])[[5, 0]])
    torch.testing.assert_close(torch.cat([*stored.blocks(block)]), whole, rtol=0, atol=1e-6)
    score, row = topk(model.embed(queries, "query"), whole, 10)
    for corpus in (None, stored):
        found = retrieve(model, queries, named, 10, corpus=corpus, block=block)
        np.testing.assert_allclose(found.score, score, atol=1e-6)
        assert np.array_equal(found.document, row)


def test_texts_in_a_file_are_those_that_were_read(tmp_path):
    given = ["", "red fox", "dépôt 漢字 🦊", "x" * 100_000, "\ud800 alone", "red fox"]
    stored = StoredTexts()
    for text in given:
        stored.append(text)
        assert stored[-1] == text  # reading between two texts does not disturb
    assert [*stored] == given and stored[1:3] == given[1:3] and len(stored) == 6
    with pytest.raises(IndexError):
        stored[6]
    documents, asked, _ = texts()
    found = read(beir(tmp_path / "data"))
    assert [*found.documents.texts] == [*documents.values()] and [*found.queries.texts] == [*asked.values()]
