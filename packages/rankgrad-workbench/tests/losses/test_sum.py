"""A weighted sum of losses: its value and gradient, what its parts are given, how settings name it."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from small_runs import make_photos, small, train

from rankgrad.adapters.pml_losses import PMLLoss
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import LOSSES, CalibrationLoss, SmoothAPLoss, SumLoss, SupAPLoss
from rankgrad_workbench.runs.history import read_rows
from rankgrad_workbench.settings import ConfigError, compose, make, plain
from rankgrad_workbench.tuning.space import space_of

pytestmark = pytest.mark.usefixtures("no_page")

G = torch.Generator().manual_seed(0)
EMBEDDINGS = torch.randn(12, 6, generator=G, dtype=torch.float64)
LABELS = torch.arange(4).repeat_interleave(3)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_value_and_gradient_are_the_weighted_sums_of_the_parts(name):
    rank, pairs = LOSSES[name](), PMLLoss(MultiSimilarityLoss(), MultiSimilarityMiner())
    both = SumLoss({name: rank, "multi_similarity": pairs}, {name: 0.3, "multi_similarity": 2})
    x = EMBEDDINGS.clone().requires_grad_()
    value = both(x, LABELS)
    expected = 0.3 * rank(x, LABELS) + 2 * pairs(x, LABELS)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(each, x)[0] for each in (value, expected)))
    assert both.components().keys() == {name, "multi_similarity"}
    torch.testing.assert_close(sum(both.components().values()), value.detach())


def test_each_part_is_given_what_it_takes():
    class Plain(torch.nn.Module):
        def forward(self, embeddings, labels):
            return embeddings.sum()

    seen = []

    class WithIds(torch.nn.Module):
        def forward(self, embeddings, labels, *, ids=None):
            seen.append(ids)
            return embeddings.sum()

    loss = SumLoss({"a": Plain(), "b": WithIds()}, {"a": 1, "b": 0})
    ids = torch.arange(12)
    assert loss(EMBEDDINGS, LABELS, ids=ids) == EMBEDDINGS.sum() and seen[0] is ids
    with pytest.raises(ValueError, match="a, b can't use references"):
        loss(EMBEDDINGS, LABELS, ref_emb=EMBEDDINGS, ref_labels=LABELS)


def test_a_memory_is_refused_for_the_part_that_cannot_have_one_and_serves_all_others():
    words = ["loss=supap+cross_entropy", "derived.num_classes=4", "derived.embedding_size=6"]
    classifier = make(compose(words).loss, slot="loss")
    with pytest.raises(TypeError, match="CrossEntropyLoss .*memory: .*ref_emb"):
        CrossBatchMemory(classifier, 24)
    x, ids = EMBEDDINGS.float(), torch.arange(12)
    parts = {"supap": SupAPLoss(), "calibration": CalibrationLoss()}
    memories = [CrossBatchMemory(each, 24) for each in (*parts.values(), SumLoss(parts, dict.fromkeys(parts, 0.5)))]
    for turn in range(3):
        values = [memory(x.roll(turn, 1), LABELS, ids=ids + 12 * turn) for memory in memories]
        torch.testing.assert_close(values[2], (values[0] + values[1]) / 2)
    assert memories[2].stats["memory_counted"] == 1
    for memory in memories[1:]:  # calibration counts every query, also one without a relevant entry
        memory(x, LABELS + 7 * (LABELS == 0), ids=ids + 50)
        assert memory.stats["memory_counted"] == (LABELS != 0).float().mean()
        assert memory.stats["has_relevant"].all() and memory.stats["has_irrelevant"].all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "each loss needs one weight; got losses a and weights of none"),
        ({"a": -1}, r"weights.a"),
        ({"b": 1}, "of b"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        SumLoss({"a": SmoothAPLoss()}, weights)


def test_lists_in_place_of_dicts_are_refused():
    with pytest.raises(TypeError, match="dicts with the same names.*got list and list"):
        SumLoss([SupAPLoss()], [1.0])


def test_a_plus_sign_names_a_sum_with_equal_weights():
    found = plain(compose(["loss=supndcg+pml/multi_similarity", "loss.losses.supndcg.tau=0.002"]).loss)
    assert found["weights"] == {"supndcg": 0.5, "multi_similarity": 0.5}
    assert found["losses"]["supndcg"]["tau"] == 0.002 and found["losses"]["multi_similarity"]["miner"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss=supap+multi_similarity"], "unknown loss 'multi_similarity'"),
        (["loss=supap+"], "unknown loss ''"),
        (["loss=_sum"], "unknown loss '_sum'"),
        (["loss=supap+supap"], "a sum may name each loss only once; got loss=supap.supap"),
        (["loss=supap+pnp", "loss.weights.smooth_ap=1"], "unknown setting 'loss.weights.smooth_ap'"),
    ],
)
def test_a_sum_that_is_misspelt_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        compose(words)


def test_a_run_shows_each_part_and_its_proxies_learn(tmp_path):
    photos = make_photos(tmp_path / "photos")
    run = train(*small(photos, "loss=supap+pml/normalized_softmax"), f"out={tmp_path / 'run'}")
    rows = read_rows(run.logs / "metrics.csv")
    assert all({"supap", "normalized_softmax"} <= row.keys() for row in rows if "loss" in row)
    state = train(*small(photos, "loss=supap+pml/normalized_softmax", "trainer.max_epochs=0"), f"out={tmp_path / 'no'}")
    assert run.read_values() != state.read_values()


def test_the_space_of_a_sum_is_that_of_its_parts_and_the_weights():
    words = ["loss=supap+pml/normalized_softmax", "data=folder", "data.root=."]
    space = space_of("supap+pml/normalized_softmax", words, compose(words), {})
    assert {"loss.weights.normalized_softmax", "loss.losses.supap.tau", "optimizer.loss_lr_factor"} <= space.keys()
    assert "loss.losses.normalized_softmax.loss.temperature" in space and "memory" not in space
    assert "loss.weights.supap" not in space
    words[0] = "loss=supap+pml/multi_similarity"
    assert "memory" in space_of("supap+pml/multi_similarity", words, compose(words), {})
