"""`retrieve`: ids in, run out; the same for every form of input and every size of block."""

from __future__ import annotations

from rankgrad import trec
from rankgrad.search import retrieve
from rankgrad_workbench.models.ngrams import ngram_model

DOCUMENTS = {f"d{number}": f"a note on {word} and {word}s" for number, word in enumerate("fox dog cat cow ox".split())}
QUERIES = {"q1": "fox", "q2": "two cows", 7: "ox"}


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
