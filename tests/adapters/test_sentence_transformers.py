"""Inside sentence-transformers: our value and gradient, exact batches, exact numbers, in its own trainer."""

from __future__ import annotations

import copy
import csv
import json
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import slow_unless

pytest.importorskip("sentence_transformers", reason="sentence-transformers is an extra")

from datasets import ClassLabel, Dataset, Features, Value  # after the check that it is there
from sentence_transformers import (
    MultiVectorEncoder,
    SentenceTransformerModelCardData,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sparse_encoder.losses import SpladeLoss
from sklearn.metrics import ndcg_score
from text_models import CLASSES, bert_folder, bert_model, sentences, splade_model, static_model

from rankgrad import losses
from rankgrad.adapters.sentence_transformers import (
    CachedSentenceTransformersLoss as CachedLoss,
)
from rankgrad.adapters.sentence_transformers import (
    ClassBatchSampler,
    GradedRetrievalEvaluator,
    RetrievalEvaluator,
    SavesLoss,
)
from rankgrad.adapters.sentence_transformers import (
    SentenceTransformersLoss as Loss,
)
from rankgrad.batches.distributed import GlobalBatch
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.evaluation import METRICS, evaluate
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.losses import baselines

TEXTS, LABELS = sentences(each=4, classes=6)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return bert_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory):
    return bert_model(tmp_path_factory.mktemp("dropping"), dropout=0.3)


def features(model, *columns):
    """What the collator makes of columns of texts."""
    return [model.preprocess(list(column)) for column in columns]


def gradients(model, loss, columns, labels=None):
    """(value, gradients of the weights); a dict of terms is added up, as its trainer does."""
    model.zero_grad()
    value = loss(features(model, *columns), labels)
    if isinstance(value, dict):
        value = torch.stack(list(value.values())).sum()
    value.backward()
    return value.detach(), [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


def embedded(model, *columns):
    return [model(each)["sentence_embedding"] for each in features(model, *columns)]


# --- the columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in losses.LOSSES if name != "spearman"])
def test_one_column_with_classes_is_our_loss_of_the_same_embeddings(name, bert):
    labels = torch.tensor(LABELS)
    value, found = gradients(bert, Loss(bert, losses.LOSSES[name]()), [TEXTS], labels)
    bert.zero_grad()
    wanted = losses.LOSSES[name]()(*embedded(bert, TEXTS), labels)
    wanted.backward()
    expected = [weight.grad for weight in bert.parameters() if weight.grad is not None]
    torch.testing.assert_close(value, wanted.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert name == "auc" or any(each.abs().max() > 1e-8 for each in found)


def test_hierarchical_and_multi_hot_labels_are_those_of_the_loss(bert):
    fine = torch.tensor(LABELS)
    hierarchy = torch.stack([fine // 3, fine], dim=1)
    several = torch.nn.functional.one_hot(fine, 7).bool()
    several[:, 6] = fine == 0
    several[5, 6] = True
    (rows,) = embedded(bert, TEXTS)
    for labels in (hierarchy, several):
        for kind in (losses.HAPLoss, losses.NDCGLoss, losses.SmoothAPLoss):
            assert gradients(bert, Loss(bert, kind()), [TEXTS], labels)[0] == kind()(rows, labels)


def test_pairs_without_labels_rank_the_positives_of_all_for_each_anchor(bert):
    anchors, positives = TEXTS[::2], TEXTS[1::2]
    rows = embedded(bert, anchors, positives)
    value, _ = gradients(bert, Loss(bert, losses.SmoothAPLoss()), [anchors, positives])
    unit = [torch.nn.functional.normalize(each) for each in rows]
    wanted = losses.SmoothAPLoss().from_scores(unit[0] @ unit[1].T, torch.eye(len(anchors), dtype=torch.bool))
    torch.testing.assert_close(value, wanted.detach())
    own = torch.arange(len(anchors))
    assert value == losses.SmoothAPLoss()(rows[0], own, ref_emb=rows[1], ref_labels=own)


def test_pairs_with_classes_have_several_positives_per_anchor(bert):
    anchors, positives, labels = TEXTS[::2], TEXTS[1::2], torch.tensor(LABELS[::2])
    rows = embedded(bert, anchors, positives)
    for given in (labels, torch.stack([labels // 3, labels], 1), torch.nn.functional.one_hot(labels).bool()):
        value, _ = gradients(bert, Loss(bert, losses.HAPLoss(), labels="classes"), [anchors, positives], given)
        assert value == losses.HAPLoss()(rows[0], given, ref_emb=rows[1], ref_labels=given)
    assert len(labels.unique()) < len(labels)


@pytest.mark.parametrize("classes", [False, True])
def test_negatives_are_irrelevant_to_all(classes, bert):
    anchors, positives, hard, harder = (TEXTS[i::4] for i in range(4))
    labels = torch.tensor([0, 0, 1, 1, 2, 3]) if classes else None
    rows = embedded(bert, anchors, positives, hard, harder)
    value, _ = gradients(bert, Loss(bert, losses.SupAPLoss()), [anchors, positives, hard, harder], labels)
    unit = [torch.nn.functional.normalize(each) for each in rows]
    match = torch.eye(6, dtype=torch.bool) if labels is None else labels[:, None] == labels
    relevant = torch.cat([match, torch.zeros(6, 12, dtype=torch.bool)], dim=1)
    wanted = losses.SupAPLoss().from_scores(unit[0] @ torch.cat(unit[1:]).T, relevant)
    torch.testing.assert_close(value, wanted.detach())


@pytest.mark.parametrize("name", ["ndcg", "h_ap", "spearman", "supndcg"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_list_of_scores_grades_each_query_s_own_documents(name, normalize, bert):
    columns = [TEXTS[i::4] for i in range(4)]
    scores = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    loss = losses.LOSSES[name](normalize=normalize)
    value, found = gradients(bert, Loss(bert, loss), columns, scores)
    query, *documents = embedded(bert, *columns)
    table = torch.empty(6, 3, dtype=torch.float64)
    for row in range(6):
        for place in range(3):
            one, other = query[row], documents[place][row]
            table[row, place] = one @ other / ((one.norm() * other.norm()) if normalize else 1)
    torch.testing.assert_close(value, loss.from_scores(table, scores.double()).detach(), rtol=0, atol=1e-9)
    assert any(each.abs().max() > 0 for each in found)


def test_scores_that_are_integers_or_bools_are_gains_too(bert):
    columns = [TEXTS[i::4] for i in range(4)]
    grades = torch.tensor([[0, 1, 3]] * 6)
    loss = Loss(bert, losses.NDCGLoss())
    assert gradients(bert, loss, columns, grades)[0] == gradients(bert, loss, columns, grades.double())[0]
    ap = Loss(bert, losses.SmoothAPLoss())
    assert gradients(bert, ap, columns, grades > 0)[0] > 0
    with pytest.raises(ValueError, match="SmoothAPLoss|graded|gains|relevant"):
        gradients(bert, Loss(bert, losses.CalibrationLoss()), columns, grades.double())


def test_scored_pairs_are_one_list(bert):
    first, second = TEXTS[::2], TEXTS[1::2]
    scores = torch.rand(12, generator=torch.Generator().manual_seed(0)).double()
    value, _ = gradients(bert, Loss(bert, losses.SpearmanLoss()), [first, second], scores)
    cosines = torch.nn.functional.cosine_similarity(*embedded(bert, first, second))
    from scipy.stats import spearmanr

    assert 1 - float(value) == pytest.approx(spearmanr(cosines.detach().numpy(), scores.numpy())[0], abs=1e-9)


@pytest.mark.parametrize("cached", [False, True])
def test_a_whole_number_beside_two_columns_is_what_it_is_said_to_be(cached, bert):
    made, columns = CachedLoss if cached else Loss, [TEXTS[::2], TEXTS[1::2]]
    numbers = torch.tensor(LABELS[::2])
    rows = embedded(bert, *columns)
    cosines = torch.nn.functional.cosine_similarity(*rows).unsqueeze(0)
    wanted = {
        "grades": losses.NDCGLoss().from_scores(cosines, numbers.double().unsqueeze(0)),
        "classes": losses.NDCGLoss()(rows[0], numbers, ref_emb=rows[1], ref_labels=numbers),
    }
    for meaning, value in wanted.items():
        found = made(bert, losses.NDCGLoss(), labels=meaning)(features(bert, *columns), numbers)
        torch.testing.assert_close(found, value)
    assert (wanted["grades"] - wanted["classes"]).abs() > 0.01
    with pytest.raises(ValueError, match="labels='classes'.*labels='grades'"):
        made(bert, losses.NDCGLoss())(features(bert, *columns), numbers)
    fractions = made(bert, losses.NDCGLoss())(features(bert, *columns), numbers.double())
    torch.testing.assert_close(fractions, wanted["grades"])  # they can be nothing else


def test_labels_that_can_not_be_what_they_are_said_to_be_are_refused(bert):
    with pytest.raises(ValueError, match="labels must be .*'grade'"):
        Loss(bert, losses.NDCGLoss(), labels="grade")
    for meaning, columns, labels in (
        ("classes", [TEXTS[:8]] * 2, torch.rand(8)),
        ("classes", [TEXTS[:8]] * 3, torch.ones(8, 2, dtype=torch.long)),
        ("classes", [TEXTS[:8]] * 2, None),
        ("grades", [TEXTS[:8]] * 2, None),
        ("grades", [TEXTS], torch.tensor(LABELS)),
        ("grades", [TEXTS[:8]] * 3, torch.ones(8, dtype=torch.long)),
    ):
        with pytest.raises(ValueError, match="class|grades|scores"):
            Loss(bert, losses.NDCGLoss(), labels=meaning)(features(bert, *columns), labels)


def test_the_terms_of_a_loss_come_by_name_and_add_up_to_it(bert):
    labels = torch.tensor(LABELS)
    loss = losses.ROADMAPLoss(weight=0.3)
    terms = Loss(bert, loss)(features(bert, TEXTS), labels)
    assert isinstance(terms, dict) and list(terms) == ["supap", "calibration"]
    (rows,) = embedded(bert, TEXTS)
    torch.testing.assert_close(terms["supap"].detach(), 0.7 * losses.SupAPLoss()(rows, labels).detach())
    torch.testing.assert_close(terms["calibration"].detach(), 0.3 * losses.CalibrationLoss()(rows, labels).detach())
    value = loss(rows, labels)
    torch.testing.assert_close(sum(terms.values()).detach(), value.detach())
    assert torch.allclose(2 * terms, 2 * value) and torch.allclose(terms * 2, 2 * value)


def test_a_sum_of_losses_comes_by_its_terms(bert):
    labels = torch.tensor(LABELS)
    parts = {"rank": losses.SupAPLoss(), "pairs": baselines.BinomialDevianceLoss()}
    loss = losses.SumLoss(parts, {"rank": 0.3, "pairs": 0.7})
    terms = Loss(bert, loss)(features(bert, TEXTS), labels)
    (rows,) = embedded(bert, TEXTS)
    assert list(terms) == ["rank", "pairs"]
    torch.testing.assert_close(terms["rank"].detach(), 0.3 * losses.SupAPLoss()(rows, labels).detach())
    plain = gradients(bert, Loss(bert, loss), [TEXTS], labels)
    torch.testing.assert_close(plain[0], loss(rows, labels).detach())
    cached = gradients(bert, CachedLoss(bert, loss, 7), [TEXTS], labels)
    torch.testing.assert_close(cached, plain, rtol=0, atol=1e-9)
    assert "SumLoss" in Loss(bert, loss).get_config_dict()["loss"]
    assert Loss(bert, loss).citation == Loss(bert, losses.SupAPLoss()).citation != ""
    # an anchor and a positive are a batch and its references
    columns, own = [TEXTS[::2], TEXTS[1::2]], torch.tensor(LABELS[::2])
    value, _ = gradients(bert, Loss(bert, loss, labels="classes"), columns, own)
    anchors, positives = embedded(bert, *columns)
    torch.testing.assert_close(value, loss(anchors, own, ref_emb=positives, ref_labels=own).detach())


def test_a_baseline_trains_its_weights_too(bert):
    torch.manual_seed(0)
    labels, loss = torch.tensor(LABELS), baselines.CrossEntropyLoss(6, 16).double()
    value, _ = gradients(bert, Loss(bert, loss), [TEXTS], labels)
    (rows,) = embedded(bert, TEXTS)
    torch.testing.assert_close(value, loss(rows, labels).detach())
    assert loss.classifier.weight.grad.abs().max() > 0
    assert not hasattr(Loss(bert, loss), "citation")


def test_what_a_sum_a_baseline_or_a_memory_can_not_do_is_said(bert, monkeypatch):
    total = losses.SumLoss({"rank": losses.SupAPLoss()}, {"rank": 1.0})
    with pytest.raises(ValueError, match="SumLoss takes only classes, but the data has negatives"):
        Loss(bert, total)(features(bert, TEXTS[::3], TEXTS[1::3], TEXTS[2::3]))
    with pytest.raises(ValueError, match="SumLoss takes only classes, but the data has grades"):
        Loss(bert, total)(features(bert, TEXTS[::2], TEXTS[1::2]), torch.rand(12))
    classifier = baselines.CrossEntropyLoss(6, 16).double()
    with pytest.raises(ValueError, match="CrossEntropyLoss compares the texts of one column.*needs one column"):
        Loss(bert, classifier)(features(bert, TEXTS[::2], TEXTS[1::2]))
    memory = CrossBatchMemory(losses.SmoothAPLoss(), 8)
    for loss in (memory, GlobalBatch(memory), losses.SumLoss({"memory": memory}, {"memory": 1.0})):
        with pytest.raises(TypeError, match="CrossBatchMemory needs the sample id of each row"):
            Loss(bert, loss)
    monkeypatch.setattr("rankgrad.adapters.sentence_transformers.losses.world", lambda: (0, 2))
    with pytest.raises(ValueError, match="has weights of its own.*gather_across_devices=True"):
        Loss(bert, classifier)(features(bert, TEXTS), torch.tensor(LABELS))


def test_columns_and_labels_that_do_not_fit_are_refused_with_what_to_do(bert):
    loss = Loss(bert, losses.NDCGLoss())
    for columns, labels, told in (
        ([TEXTS], None, "no label column. dataset.class_encode_column.* changes strings"),
        ([TEXTS], torch.rand(24), "with one column of texts, each text needs a class.*got a column of grades"),
        ([TEXTS[:8]] * 3, torch.rand(8), r"2 columns of documents, each query needs a list of 2 scores.*labels \(8,\)"),
        ([TEXTS[:8]] * 3, torch.rand(8, 3), r"needs a list of 2 scores.*got labels \(8, 3\) for 8 queries"),
        (
            [TEXTS[:8]] * 2,
            torch.rand(8, 1),
            "1 columns of documents, each query needs .* .with one column: a single number",
        ),
    ):
        with pytest.raises(ValueError, match=told):
            loss(features(bert, *columns), labels)
    with pytest.raises(ValueError, match="gather_across_devices=True"):
        Loss(bert, GlobalBatch(losses.NDCGLoss()))(features(bert, TEXTS[:4], TEXTS[4:8]), None)
    with pytest.raises(ValueError, match="reduction='mean'"):
        Loss(bert, losses.NDCGLoss(reduction="none"))
    with pytest.raises(ValueError, match="not both"):
        Loss(bert, GlobalBatch(losses.NDCGLoss()), gather_across_devices=True)
    with pytest.raises(TypeError, match="SmoothAPLoss.*got CosineSimilarity"):
        Loss(bert, torch.nn.CosineSimilarity())
    with pytest.raises(TypeError, match="a loss of rankgrad.losses.*got GlobalBatch of a CosineSimilarity"):
        Loss(bert, GlobalBatch(torch.nn.CosineSimilarity()))
    with pytest.raises(TypeError, match="SparseEncoder.*got Linear"):
        Loss(torch.nn.Linear(2, 2), losses.NDCGLoss())


# --- cached gradients -------------------------------------------------------------------------------------------------

LAYOUTS = {
    "classes": ([TEXTS], torch.tensor(LABELS)),
    "negatives": ([TEXTS[i::3] for i in range(3)], None),
    "scores": ([TEXTS[i::4] for i in range(4)], torch.rand(6, 3, generator=torch.Generator().manual_seed(0))),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["smooth_ap", "h_ap", "rambo_ap"])
@pytest.mark.parametrize("how", [{"mini_batch_size": 5}, {"mini_batch_num_tokens": 17}])
def test_the_cached_gradient_is_the_plain_one(layout, name, how, bert):
    columns, labels = LAYOUTS[layout]
    if layout == "scores" and name == "rambo_ap":
        labels = labels > 0.5
    plain = gradients(bert, Loss(bert, losses.LOSSES[name]()), columns, labels)
    cached = gradients(bert, CachedLoss(bert, losses.LOSSES[name](), **how), columns, labels)
    torch.testing.assert_close(cached, plain, rtol=0, atol=1e-9)
    assert max(float(each.abs().max()) for each in plain[1]) > 1e-4


def test_a_loss_of_several_terms_is_cached_as_one_number(bert):
    labels = torch.tensor(LABELS)
    plain = gradients(bert, Loss(bert, losses.ROADMAPLoss()), [TEXTS], labels)
    loss = CachedLoss(bert, losses.ROADMAPLoss(), 7)
    torch.testing.assert_close(gradients(bert, loss, [TEXTS], labels), plain, rtol=0, atol=1e-9)
    assert set(loss.loss.stats) >= {"supap", "calibration"}


def test_both_passes_of_a_cached_loss_draw_the_same_dropout(dropping):
    """Parts of the whole batch's size make the same draws as no parts."""
    dropping.train()
    labels = torch.tensor(LABELS)
    outcomes = []
    for loss in (Loss(dropping, losses.SmoothAPLoss()), CachedLoss(dropping, losses.SmoothAPLoss(), 64)):
        torch.manual_seed(5)
        outcomes.append(gradients(dropping, loss, [TEXTS], labels))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=1e-9)
    torch.manual_seed(6)
    other = gradients(dropping, Loss(dropping, losses.SmoothAPLoss()), [TEXTS], labels)
    assert other[0] != outcomes[0][0]  # dropout is there
    # in small parts the masks are others; the loss is still one function of the weights, and this its gradient
    loss, weight, step = CachedLoss(dropping, losses.SmoothAPLoss(tau=0.5), 5), next(dropping.parameters()), 1e-6

    def value(change: float) -> float:
        with torch.no_grad():
            weight[at] += change
        torch.manual_seed(7)
        found = gradients(dropping, loss, [TEXTS], labels)[0].item()
        with torch.no_grad():
            weight[at] -= change
        return found

    torch.manual_seed(7)
    slope = gradients(dropping, loss, [TEXTS], labels)[1][0]
    at = divmod(int(slope.abs().argmax()), slope.shape[1])
    assert (value(step) - value(-step)) / (2 * step) == pytest.approx(float(slope[at]), rel=1e-5)
    dropping.eval()


@pytest.mark.parametrize("name", ["smooth_ap", "roadmap"])
def test_inside_matryoshka_the_cached_gradient_is_the_plain_one_of_all_widths(name, bert):
    labels = torch.tensor(LABELS)
    outcomes = []
    for loss in (Loss(bert, losses.LOSSES[name]()), CachedLoss(bert, losses.LOSSES[name](), 5)):
        wrapped = MatryoshkaLoss(bert, loss, [16, 8, 4], [1, 0.5, 0.25])
        outcomes.append(gradients(bert, wrapped, [TEXTS], labels))
    bert.zero_grad()
    (rows,) = embedded(bert, TEXTS)
    wanted = sum(
        weight * losses.LOSSES[name]()(rows[:, :dim], labels) for dim, weight in ((16, 1), (8, 0.5), (4, 0.25))
    )
    wanted.backward()
    expected = wanted.detach(), [weight.grad for weight in bert.parameters() if weight.grad is not None]
    for outcome in outcomes:
        torch.testing.assert_close(outcome, expected, rtol=0, atol=1e-9)


def test_without_gradients_a_cached_loss_is_its_value(bert):
    labels = torch.tensor(LABELS)
    with torch.no_grad():
        cached = CachedLoss(bert, losses.SmoothAPLoss(), 5)(features(bert, TEXTS), labels)
        assert cached == Loss(bert, losses.SmoothAPLoss())(features(bert, TEXTS), labels)


def test_what_cannot_be_cached_is_refused():
    with pytest.raises(ValueError, match="StaticEmbedding .*: use SentenceTransformersLoss"):
        CachedLoss(static_model(), losses.SmoothAPLoss())


def test_settings_of_parts_are_checked(bert):
    with pytest.raises(ValueError, match="mini_batch_size.*>= 1; got 0"):
        CachedLoss(bert, losses.SmoothAPLoss(), 0)
    with pytest.raises(ValueError, match="mini_batch_num_tokens.*>= 1; got -1"):
        CachedLoss(bert, losses.SmoothAPLoss(), mini_batch_num_tokens=-1)


# --- other encoders ---------------------------------------------------------------------------------------------------


def test_a_sparse_encoder_trains_and_is_evaluated(tmp_path):
    model = splade_model(tmp_path / "splade")
    labels = torch.tensor(LABELS)
    (rows,) = embedded(model, TEXTS)
    loss = losses.SmoothAPLoss(normalize=False)  # it compares by inner products
    value, found = gradients(model, Loss(model, loss), [TEXTS], labels)
    assert value == loss(rows, labels) and any(each.abs().max() > 0 for each in found)

    wrapped = SpladeLoss(model, Loss(model, losses.ROADMAPLoss()), 0.1, use_document_regularizer_only=True)
    terms = wrapped(features(model, TEXTS), labels)
    assert list(terms) == ["supap", "calibration", "document_regularizer_loss"]
    cached = gradients(model, CachedLoss(model, loss, 5), [TEXTS], labels)
    torch.testing.assert_close(cached, (value, found), rtol=0, atol=1e-4)

    metrics = RetrievalEvaluator(TEXTS, LABELS)(model)
    wanted = evaluate(rows, LABELS, similarity="inner product").values
    assert metrics["mAP@R"] == pytest.approx(wanted["mAP@R"], abs=1e-6)


def test_token_vectors_are_refused_by_loss_and_evaluators(tmp_path):
    from sentence_transformers.base.modules import Transformer

    model = MultiVectorEncoder(modules=[Transformer(bert_folder(tmp_path / "tokens"))], device="cpu")
    with pytest.raises(TypeError, match="got MultiVectorEncoder.*loss.from_scores"):
        Loss(model, losses.SmoothAPLoss())
    with pytest.raises(TypeError, match="RetrievalEvaluator.*got MultiVectorEncoder"):
        RetrievalEvaluator(TEXTS, LABELS)(model)


# --- class batches ----------------------------------------------------------------------------------------------------


def sampled(labels, batch_size=12, **settings):
    dataset = Dataset.from_dict({"text": [str(i) for i in range(len(labels))], "label": labels})
    return ClassBatchSampler(dataset, batch_size, **settings)


def test_every_batch_has_exactly_p_classes_with_k_texts_each():
    labels = np.repeat(np.arange(10), 7).tolist()
    for each in (2, 3, 4, 6):
        sampler = sampled(labels, 12, samples_per_class=each)
        batches = list(sampler)
        assert len(batches) == len(sampler) == 70 // 12
        for batch in batches:
            classes, counts = np.unique(np.array(labels)[batch], return_counts=True)
            assert len(classes) == 12 // each and (counts == each).all() and len(set(batch)) == 12
    assert sampled(labels).samples_per_class == 4


def test_batches_follow_from_labels_seed_and_epoch():
    labels = np.repeat(np.arange(10), 7).tolist()
    one, other = sampled(labels, seed=1), sampled(labels, seed=1, generator=torch.Generator().manual_seed(9))
    assert list(one) == list(other) == list(one)
    one.set_epoch(1)
    assert list(one) != list(other)
    other.set_epoch(1)
    assert list(one) == list(other) and list(one) != list(sampled(labels, seed=2))


def test_on_several_processes_a_step_holds_distinct_classes(monkeypatch):
    labels = np.repeat(np.arange(10), 7).tolist()
    for module in ("sentence_transformers.batches", "class_batches"):
        monkeypatch.setattr(f"rankgrad.adapters.{module}.world", lambda: (1, 3))
    sampler = sampled(labels)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 3
    classes, counts = np.unique(np.array(labels)[sum(batches, [])], return_counts=True)
    assert len(classes) == 9 and (counts == 4).all() and all(len(batch) == 12 for batch in batches)
    with pytest.raises(ValueError, match="3 processes, 4 .* 12 classes .* 10 of 10 classes"):
        sampled(labels, 16)
    with pytest.raises(ValueError, match="Accelerate drops"):
        sampled(labels, short_classes="fewer")


def test_labels_may_be_strings_or_a_hierarchy():
    numbers = np.repeat(np.arange(6), 5)
    expected = list(sampled(numbers.tolist()))
    assert list(sampled([f"class {i}" for i in numbers])) == expected
    assert list(sampled(np.stack([numbers // 3, numbers], 1).tolist())) == expected
    encoded = Dataset.from_dict(
        {"text": ["x"] * 30, "scores": numbers.tolist()},
        features=Features({"text": Value("string"), "scores": ClassLabel(num_classes=6)}),
    )
    assert list(ClassBatchSampler(encoded, 12)) == expected


def test_short_classes_are_dropped_or_bring_what_they_have():
    labels = [0] * 9 + [1] * 9 + [2] * 9 + [3] * 2 + [4]
    with pytest.warns(UserWarning, match="2 of 5 classes"):
        dropped = sampled(labels)
    assert not {3, 4} & {labels[row] for batch in dropped for row in batch}
    fewer = sampled(labels, short_classes="fewer")
    assert {3, 4} & {
        labels[row] for epoch in range(4) for batch in (fewer.set_epoch(epoch), *fewer)[1:] for row in batch
    }
    with pytest.raises(ValueError, match="'repeat' puts a text into a batch twice"):
        sampled(labels, short_classes="repeat")


def test_too_few_classes_are_one_error_with_both_numbers():
    told = (
        "batches of 12 texts, 4 per class, need 3 classes with at least 4 texts, but only 2 of 4 classes have so many"
    )
    with pytest.raises(ValueError, match=told):
        sampled([0] * 5 + [1] * 4 + [2] * 3 + [3])
    with pytest.raises(ValueError, match="samples_per_class=4.* got 10"):
        sampled([0, 1] * 8, 10)
    with pytest.raises(ValueError, match="at least 8; got 4"):
        sampled([0, 1] * 8, 4)
    with pytest.raises(ValueError, match="samples_per_class.*>= 2; got 1"):
        sampled([0, 1] * 8, samples_per_class=1)
    with pytest.raises(ValueError, match="label or labels.*has text, intent"):
        ClassBatchSampler(Dataset.from_dict({"text": ["a"], "intent": [0]}), 8)
    several = Dataset.from_dict({"text": ["a", "b"], "intent": [0, 1], "dataset_name": ["quora", "quora"]})
    told = r"the data set 'quora' of 2 rows that begins with {'text': 'a', .* has text, intent, dataset_name. Rename"
    with pytest.raises(ValueError, match=told):
        ClassBatchSampler(several, 8)
    for wrong, kind in (([0.5] * 8, "float64"), ([[0.5, 0.1]] * 8, "float64"), ([[1], [1, 2]] * 4, "List")):
        with pytest.raises(ValueError, match=f"'label' must hold one class per text.*got .*{kind}"):
            sampled(wrong)


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_the_evaluator_gives_our_numbers_with_the_interval_of_the_first(tmp_path):
    model = static_model()
    evaluator = RetrievalEvaluator(TEXTS, LABELS, "dev", metrics=[*METRICS, "AP@3"])
    assert evaluator.primary_metric == "mAP@R" and evaluator.greater_is_better
    metrics = evaluator(model, str(tmp_path), epoch=1, steps=10)
    wanted = evaluate(model.encode(TEXTS), LABELS, metrics=[*METRICS, "AP@3"])
    low, high = wanted.intervals["mAP@R"]
    expected = {f"dev_{name}": value for name, value in wanted.values.items()}
    assert metrics == pytest.approx({**expected, "dev_mAP@R_low": low, "dev_mAP@R_high": high})
    assert evaluator.primary_metric == "dev_mAP@R" and evaluator.report.values == wanted.values
    evaluator(model, str(tmp_path), epoch=2, steps=20)
    with open(tmp_path / "retrieval_evaluation_dev_results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"] and [row["steps"] for row in rows] == ["10", "20"]
    assert float(rows[1]["AP@3"]) == wanted.values["AP@3"]
    assert float(rows[1]["R@1_low"]) == wanted.intervals["R@1"][0]
    with pytest.raises(ValueError, match="columns.*name="):
        RetrievalEvaluator(TEXTS, LABELS, "dev")(model, str(tmp_path))
    assert model.model_card_data.eval_results_dict[evaluator] == metrics


def test_evaluation_goes_by_the_model_s_similarity_prompts_and_width():
    model = static_model()
    model.similarity_fn_name = "euclidean"
    model.prompts = {"topic": "card loan "}
    metrics = RetrievalEvaluator(TEXTS, LABELS, prompt_name="topic", truncate_dim=5, metrics=[*METRICS, "R@3"])(model)
    rows = model.encode([f"card loan {text}" for text in TEXTS])[:, :5]
    wanted = evaluate(rows, LABELS, similarity="euclidean", metrics=[*METRICS, "R@3"]).values
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted)
    model.similarity_fn_name = "manhattan"
    with pytest.raises(ValueError, match="manhattan.*cosine, dot, euclidean"):
        RetrievalEvaluator(TEXTS, LABELS)(model)


def test_mistakes_of_an_evaluation_are_told():
    with pytest.raises(ValueError, match="got 3 labels and 24 texts"):
        RetrievalEvaluator(TEXTS, LABELS[:3])
    with pytest.raises(ValueError, match="primary_metric 'mAP'.*R@1, "):
        RetrievalEvaluator(TEXTS, LABELS, primary_metric="mAP")(static_model())
    queries, corpus = {"q": "card"}, {"a": "card pin", "b": "loan"}
    for qrels, told in (
        ({"p": {"a": 1}}, "qrels have the query 'p', which is missing in queries"),
        ({"q": {"c": 1}}, "query 'q' have the document 'c', which is missing in corpus"),
    ):
        with pytest.raises(ValueError, match=told):
            GradedRetrievalEvaluator(queries, corpus, qrels)
    for gains, told in (
        ({"a": -1}, "in 0 .. 1e.300; that of query 0 and row 0 is -1"),
        ({"b": 0}, "none of the 1 queries"),
    ):
        with pytest.raises(ValueError, match=told):
            GradedRetrievalEvaluator(queries, corpus, {"q": gains})(static_model())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_graded_ndcg_is_scikit_learn_s(dtype):
    g = torch.Generator().manual_seed(0)
    queries, corpus = torch.randn(40, 8, generator=g, dtype=dtype), torch.randn(70, 8, generator=g, dtype=dtype)
    corpus[11] = corpus[12] = corpus[13]  # ties
    gains = (torch.rand(40, 70, generator=g, dtype=torch.float64) * 3 - 1.5).clamp(min=0)
    gains[3] = 0
    unit = [torch.nn.functional.normalize(side) for side in (queries, corpus)]
    scores = (unit[0] @ unit[1].T).double().numpy()
    scores[:, 11] = scores[:, 12] = scores[:, 13]
    sparse = [{int(at): float(row[at]) for at in row.nonzero()} for row in gains]
    names = ["NDCG@10", "NDCG", "H-AP", "AP", "R@1", "MRR@10", "Recall@10", "ROC AUC", "fall-out@5"]
    report = evaluate_graded(queries, corpus, sparse, metrics=names)
    for name, k in (("NDCG@10", 10), ("NDCG", None)):
        for row in range(40):
            if row != 3:
                wanted = ndcg_score(gains[row : row + 1], scores[row : row + 1], k=k)
                assert report.per_query[name][row] == pytest.approx(wanted, abs=1e-9)
    assert report.without_relevant.tolist() == [3] and report.counts["counted"] == 39 and "1 queries" in report.notes[0]
    assert all(low <= report.values[name] <= high for name, (low, high) in report.intervals.items())
    # what asks only who is relevant is that of evaluate, with a class for every set of relevant documents
    relevant = gains > 0
    from rankgrad import metrics

    for name, metric in {
        "AP": metrics.average_precision,
        "MRR@10": lambda *a: metrics.reciprocal_rank(*a, k=10),
    }.items():
        np.testing.assert_allclose(report.per_query[name], metric(torch.tensor(scores), relevant).numpy(), atol=1e-12)
    np.testing.assert_allclose(
        report.per_query["H-AP"], metrics.hierarchical_ap(torch.tensor(scores), gains).numpy(), atol=1e-12
    )
    np.testing.assert_allclose(
        report.per_query["fall-out@5"], metrics.fall_out_at_k(torch.tensor(scores), relevant, k=5).numpy(), atol=1e-12
    )
    assert str(report).startswith("39 queries, graded, gallery of 70, ")


def test_blocks_of_queries_make_no_difference(monkeypatch):
    g = torch.Generator().manual_seed(0)
    queries, corpus = torch.randn(9, 4, generator=g), torch.randn(7, 4, generator=g)
    gains = [{query % 7: 1.0, (query + 2) % 7: 0.5} for query in range(9)]
    whole = evaluate_graded(queries, corpus, gains)
    monkeypatch.setattr("rankgrad.evaluation.graded.PAIRS", 20)
    assert evaluate_graded(queries, corpus, gains) == whole


def test_a_metric_that_is_named_twice_is_measured_once():
    twice, once = (evaluate_graded(torch.eye(2), torch.eye(2), [{0: 1}, {1: 1}], metrics=["AP"] * n) for n in (2, 1))
    assert twice == once


def test_the_graded_evaluator_embeds_queries_and_documents_in_their_own_ways(tmp_path):
    model = static_model()
    model.prompts = {"query": "card ", "document": "loan "}
    queries = {f"q{i}": text for i, text in enumerate(TEXTS[::6])}
    corpus = {f"d{i}": text for i, text in enumerate(TEXTS)}
    qrels = {"q0": {"d0": 1.0, "d1": 0.25}, "q2": {"d12": 2.0}, "q1": {"d3": 0.0}}
    evaluator = GradedRetrievalEvaluator(queries, corpus, qrels, "test", intervals=20)
    metrics = evaluator(model, str(tmp_path))
    rows = [model.encode_query(list(queries.values())), model.encode_document(TEXTS)]
    wanted = evaluate_graded(*rows, [{0: 1.0, 1: 0.25}, {3: 0.0}, {12: 2.0}, {}], intervals=20)
    assert metrics["test_NDCG@10"] == wanted.values["NDCG@10"] and evaluator.report == wanted
    assert evaluator.primary_metric == "test_NDCG@10" and "test_NDCG@10_low" in metrics
    assert (tmp_path / "graded_retrieval_evaluation_test_results.csv").exists()
    plain = static_model().encode(TEXTS[:1])
    assert not np.allclose(rows[1][:1], plain)


CORPUS = {f"d{place}": text for place, text in enumerate(TEXTS)}
QUERIES = {f"q{place}": text for place, text in enumerate(sentences(each=2, classes=6, seed=1)[0])}
RELEVANT = {f"q{place}": {f"d{4 * (place // 2) + each}" for each in range(4)} for place in range(12)}


class ResumableTrainer(SavesLoss, SentenceTransformerTrainer):
    """As the documentation shows it."""


def train(folder, model, loss, kind=SentenceTransformerTrainer, **settings):
    texts, labels = sentences()
    settings = {
        "batch_sampler": ClassBatchSampler,
        "per_device_train_batch_size": 16,
        "num_train_epochs": 2,
        "eval_strategy": "steps",
        "eval_steps": 6,
        "save_steps": 6,
        "logging_steps": 3,
        "learning_rate": 0.05,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 3,
        **settings,
    }
    resume = settings.pop("resume", None)
    evaluator = RetrievalEvaluator(*sentences(each=5, seed=1), "dev", intervals=20)
    trainer = kind(
        model=model,
        args=SentenceTransformerTrainingArguments(output_dir=str(folder), **settings),
        train_dataset=Dataset.from_dict({"text": texts, "label": labels}),
        loss=loss,
        evaluator=evaluator,
    )
    batches = []
    collect = trainer.collect_features
    trainer.collect_features = lambda inputs: (batches.append(inputs["label"].tolist()), collect(inputs))[1]
    trainer.train(resume_from_checkpoint=resume)
    return trainer, batches


def test_its_trainer_learns_by_our_loss_from_our_batches_and_keeps_the_best_model(tmp_path):
    model = static_model()
    before = RetrievalEvaluator(*sentences(each=5, seed=1))(model)["mAP@R"]
    trainer, batches = train(
        tmp_path,
        model,
        Loss(model, losses.ROADMAPLoss()),
        load_best_model_at_end=True,
        metric_for_best_model="eval_dev_mAP@R",
    )
    assert len(batches) == 2 * (12 * CLASSES // 16)
    for batch in batches:
        assert np.unique(batch, return_counts=True)[1].tolist() == [4, 4, 4, 4]
    assert batches[: len(batches) // 2] != batches[len(batches) // 2 :]  # another epoch, other batches
    history = trainer.state.log_history
    measured = {entry["step"]: entry["eval_dev_mAP@R"] for entry in history if "eval_dev_mAP@R" in entry}
    best = max(measured, key=measured.get)
    assert trainer.state.best_metric == measured[best]
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{best}")
    after = RetrievalEvaluator(*sentences(each=5, seed=1))(trainer.model)["mAP@R"]
    assert after == pytest.approx(measured[best]) and after > before + 0.05
    logged = [entry for entry in history if "supap" in entry]
    assert logged and all(
        entry["loss"] == pytest.approx(entry["supap"] + entry["calibration"], abs=2e-4) for entry in logged
    )
    card = Path(trainer.state.best_model_checkpoint, "README.md").read_text(encoding="utf-8")
    assert "ROADMAPLoss(tau=0.01" in card and "eprint={2110.01445}" in card and "mAP@R" in card
    with open(tmp_path / "eval" / "retrieval_evaluation_dev_results.csv", newline="") as file:
        assert [int(row["steps"]) for row in csv.DictReader(file)] == list(measured)


def test_a_training_that_goes_on_after_a_checkpoint_sees_the_batches_that_were_to_come(tmp_path):
    model = static_model()
    _, whole = train(tmp_path / "a", model, Loss(model, losses.SmoothAPLoss()), save_steps=5)
    again = static_model()
    trainer, rest = train(
        tmp_path / "b",
        again,
        Loss(again, losses.SmoothAPLoss()),
        save_steps=5,
        resume=str(tmp_path / "a" / "checkpoint-15"),
    )
    assert rest[-(len(whole) - 15) :] == whole[15:]
    torch.testing.assert_close(trainer.model.state_dict(), model.state_dict())


STATES = {
    "thresholds": lambda model: Loss(model, losses.AdaptiveROADMAPLoss()),
    "margins": lambda model: Loss(model, losses.AdaptiveTripletLoss()),
    "gathered": lambda model: Loss(model, GlobalBatch(losses.CalibrationLoss(quantiles=(0.5, 0.99)))),
    "matryoshka": lambda model: MatryoshkaLoss(model, Loss(model, losses.AdaptiveROADMAPLoss()), [16, 8]),
    "weights": lambda model: Loss(model, baselines.CrossEntropyLoss(CLASSES, 16)),
}


@pytest.mark.parametrize("name", slow_unless({"weights"}, STATES))
def test_a_training_that_goes_on_has_the_state_of_its_loss(name, tmp_path):
    def run(folder, **settings):
        model = static_model()
        loss = STATES[name](model)
        options = {"eval_strategy": "no", "save_steps": 6, "lr_scheduler_type": "constant", **settings}
        train(tmp_path / folder, model, loss, ResumableTrainer, **options)
        return loss.state_dict()

    whole = run("a")
    rest = run("b", resume=str(tmp_path / "a" / "checkpoint-12"))
    assert len(whole) > len(static_model().state_dict())
    torch.testing.assert_close(rest, whole, rtol=0, atol=0)


def test_losses_of_several_data_sets_have_their_states_by_name(tmp_path):
    texts, labels = sentences()

    def trainer(folder):
        model = static_model()
        kinds = {"a": losses.AdaptiveROADMAPLoss(), "b": losses.SmoothAPLoss(), "c": losses.AdaptiveTripletLoss()}
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / folder),
            batch_sampler=ClassBatchSampler,
            multi_dataset_batch_sampler="round_robin",
            per_device_train_batch_size=16,
            max_steps=6,
            save_steps=3,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        wrapped = {key: Loss(model, loss) for key, loss in kinds.items()}
        data = {key: Dataset.from_dict({"text": texts, "label": labels}) for key in kinds}
        return ResumableTrainer(model=model, args=arguments, train_dataset=data, loss=wrapped)

    whole, rest = trainer("one"), trainer("two")
    whole.train()
    saved = torch.load(tmp_path / "one" / "checkpoint-3" / "rankgrad_loss.pt", weights_only=True)
    assert list(saved) == ["a.loss", "c.loss"]
    rest.train(resume_from_checkpoint=str(tmp_path / "one" / "checkpoint-3"))
    for key in whole.loss:
        torch.testing.assert_close(rest.loss[key].loss.state_dict(), whole.loss[key].loss.state_dict(), rtol=0, atol=0)


def test_the_sampler_s_settings_travel_with_the_arguments(tmp_path):
    model = static_model()
    factory = ClassBatchSampler.of(samples_per_class=8)
    _, batches = train(
        tmp_path,
        model,
        Loss(model, losses.SmoothAPLoss()),
        batch_sampler=pickle.loads(pickle.dumps(factory)),
        max_steps=3,
        eval_strategy="no",
        save_strategy="no",
    )
    assert [np.unique(batch, return_counts=True)[1].tolist() for batch in batches] == [[8, 8]] * 3


def test_a_cached_loss_trains_a_bert(tmp_path):
    model = bert_model(tmp_path / "bert").float()
    loss = CachedLoss(model, losses.SmoothAPLoss(tau=0.1), mini_batch_size=6)
    trainer, _ = train(tmp_path, model, loss, max_steps=8, learning_rate=0.01, save_strategy="no", logging_steps=4)
    seen = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(seen) == 2 and seen[1] < seen[0]


# --- the object -------------------------------------------------------------------------------------------------------


def test_the_model_card_s_words_about_a_loss(bert):
    loss = CachedLoss(bert, losses.SmoothAPLoss(tau=0.02), 8)
    config = loss.get_config_dict()
    assert json.loads(json.dumps(config)) == config and config["mini_batch_size"] == 8
    assert config["loss"].startswith("SmoothAPLoss(tau=0.02, ") and config["gather_across_devices"] is False
    assert Loss(bert, GlobalBatch(losses.SmoothAPLoss())).get_config_dict()["gather_across_devices"]
    for name, kind in losses.LOSSES.items():
        cites = Loss(bert, kind())
        if name in ("spearman", "adaptive_roadmap"):  # of no paper
            assert not hasattr(cites, "citation")
            continue
        assert cites.citation.count("{") == cites.citation.count("}") and "](" not in cites.citation
        assert cites.citation.startswith("\n@misc{rankgrad_")
        names = re.search(r"author=\{(.*)\}", cites.citation)[1].split(" and ")
        assert names and all(re.fullmatch(r"(van den )?[A-Z]\w+|others", each) for each in names), (
            f"{name} cites {names}"
        )


def test_a_model_card_has_no_entry_for_a_loss_without_a_paper(bert):
    card = SentenceTransformerModelCardData()
    card.set_losses([Loss(bert, losses.AdaptiveROADMAPLoss())])
    assert list(card.citations) == ["Sentence Transformers"]
    card.set_losses([Loss(bert, losses.SupAPLoss())])
    assert list(card.citations) == ["Sentence Transformers", "SentenceTransformersLoss"]


def test_thresholds_that_follow_the_scores_move_once_a_step_with_cached_gradients_too(bert):
    moved = []
    for made in (Loss, CachedLoss):
        loss = losses.AdaptiveROADMAPLoss()
        for _ in range(2):
            gradients(bert, made(bert, loss), [TEXTS], torch.tensor(LABELS))
        with torch.no_grad():
            made(bert, loss)(features(bert, TEXTS[:12]), torch.tensor(LABELS[:12]))
        moved.append(loss.calibration.running)
    torch.testing.assert_close(moved[0], moved[1])


def test_a_loss_copies_with_its_model():
    model = static_model()
    loss = copy.deepcopy(Loss(model, losses.SmoothAPLoss()))
    assert loss.model is not model
    labels = torch.tensor(LABELS)
    assert (
        gradients(loss.model, loss, [TEXTS], labels)[0]
        == gradients(model, Loss(model, losses.SmoothAPLoss()), [TEXTS], labels)[0]
    )


def test_without_the_library_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    for name in [name for name in sys.modules if name.startswith("rankgrad.adapters.sentence_transformers")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="sentence-transformers.*pip install"):
        import rankgrad.adapters.sentence_transformers  # noqa: F401
