"""The evaluator that measures a model of sentence-transformers as trec_eval does."""

from __future__ import annotations

import csv

import pytest

pytest.importorskip("sentence_transformers", reason="sentence-transformers is an extra")

from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from text_models import sentences, static_model

from rankgrad_workbench.trec.evaluators import RankedRetrievalEvaluator

TEXTS, LABELS = sentences(each=4, classes=6)


CORPUS = {f"d{place}": text for place, text in enumerate(TEXTS)}
QUERIES = {f"q{place}": text for place, text in enumerate(sentences(each=2, classes=6, seed=1)[0])}
RELEVANT = {f"q{place}": {f"d{4 * (place // 2) + each}" for each in range(4)} for place in range(12)}


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_ranked_evaluation_has_the_numbers_of_the_library_s_own_evaluator(similarity):
    model = static_model()
    model.similarity_fn_name = similarity
    wanted = ["ndcg_cut_10", "map_cut_100", "recip_rank_10", "P_3", "recall_5", "success_1"]
    found = RankedRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, metrics=wanted, intervals=0)(model)
    expected = InformationRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, write_csv=False)(model)
    names = ["ndcg@10", "map@100", "mrr@10", "precision@3", "recall@5", "accuracy@1"]
    for ours, theirs in zip(wanted, names, strict=True):
        assert found[ours] == pytest.approx(expected[f"{similarity}_{theirs}"], abs=1e-9)


def test_ranked_evaluation_writes_a_page_with_other_runs_beside_the_model(tmp_path):
    (tmp_path / "bm25.run").write_text("".join(f"{query} Q0 d0 1 3.5 bm25\n" for query in QUERIES), encoding="utf-8")
    grades = {query: dict.fromkeys(sorted(judged), 2) for query, judged in RELEVANT.items()}
    others = {"bm25": tmp_path / "bm25.run"}
    evaluator = RankedRetrievalEvaluator(QUERIES, CORPUS, {**grades, "q0": {}}, "dev", others=others, depth=5)
    metrics = evaluator(static_model(), str(tmp_path), epoch=1, steps=4)
    assert evaluator.primary_metric == "dev_ndcg_cut_10"
    assert metrics["dev_ndcg_cut_10_low"] < metrics["dev_ndcg_cut_10"] < metrics["dev_ndcg_cut_10_high"]
    assert evaluator.report.runs == ("dev", "bm25") and len(evaluator.report.queries) == 11
    assert evaluator.report.differences[0].other == "dev"
    page = tmp_path / "ranked_retrieval_evaluation_dev" / "evaluation.html"
    assert "bm25" in page.read_text(encoding="utf-8")
    with (tmp_path / "ranked_retrieval_evaluation_dev_results.csv").open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["epoch"], float(row["map"])) == ("1", metrics["dev_map"])


def test_mistakes_of_a_ranked_evaluation_are_told_before_texts_are_embedded():
    for wrong, told in (
        ({"metrics": ["nope"]}, "nope"),
        ({"primary_metric": "P_7"}, "P_7"),
        ({"others": {"model": {}}}, "'model'"),
    ):
        with pytest.raises(ValueError, match=told):
            RankedRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, **wrong)
    with pytest.raises(ValueError, match="'d99'"):
        RankedRetrievalEvaluator(QUERIES, CORPUS, {"q0": {"d99"}})


# --- training ---------------------------------------------------------------------------------------------------------
