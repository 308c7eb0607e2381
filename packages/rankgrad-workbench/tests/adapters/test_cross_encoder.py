"""Listwise losses and graded evaluation for cross-encoders, with the real package and a small model made here."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from text_models import bert_folder, static_model

from rankgrad import losses, metrics, trec
from rankgrad.adapters.cross_encoder import CrossEncoderLoss
from rankgrad_workbench.trec.evaluators import GradedRerankingEvaluator

QUERIES = ["my card", "a refund", "the pin"]
DOCUMENTS = [
    ["card of the app", "fee", "a card is in my phone"],
    ["refund it", "cash"],
    ["limit", "my pin", "pin", "rate"],
]
GRADES = [[2, 0, 1], [1, 0], [0, 3, 2, 0]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    return CrossEncoder(bert_folder(tmp_path_factory.mktemp("bert")), num_labels=1, device="cpu").eval()


def labels(grades=GRADES) -> list[torch.Tensor]:
    return [torch.tensor(each) for each in grades]


def scores_of(model) -> list[torch.Tensor]:
    """The logits of each list by the package's own prediction."""
    pairs = [[(query, text) for text in texts] for query, texts in zip(QUERIES, DOCUMENTS, strict=True)]
    found = [model.predict(each, activation_fn=torch.nn.Identity(), convert_to_tensor=True) for each in pairs]
    return [scores.clone() for scores in found]


@pytest.mark.parametrize("size", [None, 1, 4])
def test_the_value_is_the_mean_over_the_lists_of_the_queries(model, size):
    loss = losses.LambdaLoss(k=10)
    value = CrossEncoderLoss(model, loss, mini_batch_size=size)([QUERIES, DOCUMENTS], labels())
    one_by_one = [
        loss.from_lists(scores, grades.float()) for scores, grades in zip(scores_of(model), labels(), strict=True)
    ]
    assert value.item() == pytest.approx(torch.stack(one_by_one).mean().item(), rel=1e-5)


def test_grades_of_0_and_1_are_hits_for_a_loss_without_grades(model):
    hits = [[1, 0, 1], [1, 0], [0, 1, 0, 0]]
    loss = losses.InfoNCELoss(tau=1.0)
    value = CrossEncoderLoss(model, loss)([QUERIES, DOCUMENTS], labels(hits))
    one_by_one = [
        loss.from_lists(scores, right.bool()) for scores, right in zip(scores_of(model), labels(hits), strict=True)
    ]
    assert value.item() == pytest.approx(torch.stack(one_by_one).mean().item(), rel=1e-5)


def test_it_trains_in_the_trainer_of_the_package(tmp_path):
    torch.manual_seed(0)
    own = CrossEncoder(bert_folder(tmp_path / "bert"), num_labels=1, device="cpu")
    before = [weight.clone() for weight in own.parameters()]
    data = Dataset.from_dict({"query": QUERIES, "docs": DOCUMENTS, "labels": GRADES})
    evaluator = GradedRerankingEvaluator(
        [{"query": q, "documents": d, "grades": g} for q, d, g in zip(QUERIES, DOCUMENTS, GRADES, strict=True)],
        name="dev",
        intervals=20,
    )
    arguments = CrossEncoderTrainingArguments(
        str(tmp_path / "out"),
        per_device_train_batch_size=3,
        max_steps=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        use_cpu=True,
        dataloader_pin_memory=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    loss = CrossEncoderLoss(own, losses.LambdaLoss(k=10))
    trainer = CrossEncoderTrainer(model=own, args=arguments, train_dataset=data, loss=loss, evaluator=evaluator)
    trainer.train()
    assert all(np.isfinite(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry)
    assert any("eval_dev_ndcg_cut_10" in entry for entry in trainer.state.log_history)
    assert any(not torch.equal(old, new) for old, new in zip(before, own.parameters(), strict=True))


def test_the_evaluator_measures_the_lists_as_the_model_orders_them(model, tmp_path):
    samples = [
        *({"query": q, "documents": d, "grades": g} for q, d, g in zip(QUERIES, DOCUMENTS, GRADES, strict=True)),
        {"query": "cash", "documents": ["fee", "loan"], "grades": [0, 0]},
    ]
    evaluator = GradedRerankingEvaluator(samples, metrics=["ndcg", "map"], primary_metric="ndcg", intervals=50)
    values = evaluator(model, str(tmp_path))
    assert evaluator.left_out == 1
    expected = [
        metrics.ndcg(scores.unsqueeze(0).double(), grades.unsqueeze(0).float()).item()
        for scores, grades in zip(scores_of(model), labels(), strict=True)
    ]
    assert values["ndcg"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert values["ndcg_low"] <= values["ndcg"] <= values["ndcg_high"]
    with (tmp_path / "graded_reranking_evaluation_results.csv").open() as file:
        [row] = csv.DictReader(file)
    assert float(row["map"]) == pytest.approx(values["map"])


def test_relevant_documents_outside_the_lists_count_and_the_first_stage_stands_beside(model):
    count = len(QUERIES)
    names = [[f"{q}-{d}" for d in range(len(documents))] for q, documents in enumerate(DOCUMENTS)]
    qrels = {f"q{q}": dict(zip(names[q], GRADES[q], strict=True)) | {"outside": 1, "far": 1} for q in range(count)}
    qrels |= {"empty": {"far": 1}, "unlisted": {"far": 2}}
    by_id = [
        *(
            {"query_id": f"q{q}", "query": QUERIES[q], "documents": DOCUMENTS[q], "document_ids": names[q]}
            for q in range(count)
        ),
        {"query_id": "empty", "query": "cash", "documents": ["fee", "loan"], "document_ids": ["a", "b"]},
    ]
    options = {"metrics": ["ndcg", "map", "recall_10"], "primary_metric": "map", "intervals": 0}
    evaluator = GradedRerankingEvaluator(by_id, qrels=qrels, **options)
    values, report = evaluator(model), evaluator.report
    assert set(report.queries) == set(qrels) and evaluator.left_out == 0
    run = {f"q{q}": dict(zip(names[q], s.tolist(), strict=True)) for q, s in enumerate(scores_of(model))}
    alone = trec.evaluate({"a": run | {"empty": {"a": 1.0}}}, qrels, options["metrics"], intervals=0)
    for name, value in alone.values["a"].items():
        assert values[name] == pytest.approx(value, abs=1e-6)
    first = {query: {name: -place for place, name in enumerate(listed)} for query, listed in run.items()}
    expected = trec.evaluate({"a": first}, qrels, ["map"], intervals=0).values["a"]["map"]
    assert values["first_stage_map"] == pytest.approx(expected)
    assert {(each.run, each.other) for each in report.differences} == {("model", "first stage")}

    relevant = [sum(grade > 0 for grade in grades) + 2 for grades in GRADES]
    counted = [
        *(
            {"query": QUERIES[q], "documents": DOCUMENTS[q], "grades": GRADES[q], "relevant": relevant[q]}
            for q in range(count)
        ),
        {"query": "cash", "documents": ["fee", "loan"], "grades": [0, 0], "relevant": 1},
        {"query": "none", "documents": ["fee"], "grades": [0], "relevant": 0},
    ]
    of_numbers = GradedRerankingEvaluator(counted, **options)
    found = of_numbers(model)
    assert of_numbers.left_out == 1 and not any("outside the lists" in note for note in of_numbers.report.notes)
    for name in options["metrics"]:  # there is one query more without a list above
        assert found[name] * (count + 1) == pytest.approx(values[name] * (count + 2), abs=1e-6)


def test_values_of_lists_alone_are_called_too_high(model):
    samples = [{"query": q, "documents": d, "grades": g} for q, d, g in zip(QUERIES, DOCUMENTS, GRADES, strict=True)]
    evaluator = GradedRerankingEvaluator(samples, first_stage=False, intervals=0)
    values = evaluator(model)
    assert any("outside the lists are not known" in note for note in evaluator.report.notes)
    assert evaluator.report.runs == ("model",) and "first_stage_ndcg_cut_10" not in values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda model: CrossEncoderLoss(static_model(), losses.LambdaLoss()), "CrossEncoder; got SentenceTransformer"),
        (lambda model: CrossEncoderLoss(model, torch.nn.MSELoss()), "got MSELoss"),
        (
            lambda model: CrossEncoderLoss(model, losses.SumLoss({"a": losses.LambdaLoss()}, {"a": 1.0})),
            "loss with from_lists.*A SumLoss, a baseline or a memory compares embeddings.*got SumLoss",
        ),
        (lambda model: CrossEncoderLoss(model, losses.LambdaLoss(reduction="none")), "'none'"),
        (lambda model: CrossEncoderLoss(model, losses.LambdaLoss(), mini_batch_size=0), "mini_batch_size"),
        (lambda model: GradedRerankingEvaluator([]), "none of 0 samples"),
        (lambda model: GradedRerankingEvaluator([{"query": "a", "documents": []}]), r"samples\[0\] must have"),
        (
            lambda model: GradedRerankingEvaluator(
                [{"query": "a", "documents": ["b", "c"], "grades": [1, 1], "relevant": 1}]
            ),
            r"relevant documents of samples\[0\] counts those of its list and must be an integer >= 2; got 1",
        ),
        (
            lambda model: GradedRerankingEvaluator([{"query": "a", "documents": ["b"]}], qrels={}),
            r"samples\[0\] must have query, documents, document_ids",
        ),
        (
            lambda model: GradedRerankingEvaluator([{"query": "a", "documents": ["b"], "grades": [1, 0]}]),
            "equally many",
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_made(model, make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(model)


def test_labels_and_columns_that_do_not_fit_are_refused_when_they_come(model):
    loss = CrossEncoderLoss(model, losses.InfoNCELoss(tau=1.0))
    with pytest.raises(ValueError, match=r"\[3, 2, 4\]"):
        loss([QUERIES, DOCUMENTS], labels([[1], [1, 0], [0, 1, 0, 0]]))
    with pytest.raises(ValueError, match="go up to 3"):
        CrossEncoderLoss(model, losses.FastAPLoss())([QUERIES, DOCUMENTS], labels())
    with pytest.raises(ValueError, match="single documents"):
        loss([QUERIES, ["a", "b", "c"]], labels())
    with pytest.raises(TypeError, match="got SentenceTransformer"):
        GradedRerankingEvaluator([{"query": "a", "documents": ["b"], "grades": [1]}])(static_model())


def test_the_card_of_the_model_names_the_loss(model):
    loss = CrossEncoderLoss(model, losses.LambdaLoss(k=10))
    assert "LambdaLoss" in loss.get_config_dict()["loss"] and "2010" in loss.citation
