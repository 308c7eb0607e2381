"""Baselines: each trains, and with references each does what it does in a batch, without a sample's own copies."""

from __future__ import annotations

import itertools
import math
from functools import cache
from importlib import resources
from typing import Any

import pytest
import torch
import yaml
from omegaconf import DictConfig
from small_runs import make_photos, small, train
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad.adapters.pml_losses import PMLBatchLoss, PMLLoss
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import AdaptiveTripletLoss, CalibrationLoss, SoftBinAPLoss
from rankgrad.losses.baselines import (
    BinomialDevianceLoss,
    CrossEntropyLoss,
    HistogramLoss,
    TieAwareAPLoss,
)
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import compose, make, options

pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an extra")

from pytorch_metric_learning import distances, miners, reducers  # after the check that it is there
from pytorch_metric_learning import losses as theirs

pytestmark = pytest.mark.usefixtures("no_page")

OURS = ["cross_entropy", "histogram", "binomial_deviance", "tie_aware_ap"]
BASELINES = [*OURS, *(name for name in options("loss") if name.startswith("pml/"))]
CLASSES, PER_CLASS, DIM = 5, 4, 6
LABELS = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
IDS = torch.arange(len(LABELS))


@cache
def settings_of(name: str) -> DictConfig:
    config = compose([f"loss={name}"])
    config.derived.num_classes, config.derived.embedding_size = CLASSES, DIM
    return config


def baseline(name: str) -> nn.Module:
    loss: nn.Module = make(settings_of(name).loss, slot="loss")
    return loss


def target(name: str) -> str:
    """The class that the file of a loss names, which is read in no time."""
    file = resources.files("rankgrad_workbench.settings.files") / "loss" / f"{name}.yaml"
    return str(yaml.safe_load(file.read_text(encoding="utf-8"))["_target_"]).rpartition(".")[2]


KINDS = {kind.__name__ for kind in (PMLLoss, HistogramLoss, BinomialDevianceLoss, TieAwareAPLoss)}
WITH_REFERENCES = [name for name in BASELINES if target(name) in KINDS]


def rows(count: int = len(LABELS), seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, DIM, dtype=torch.float64, generator=g)


# ----------------------------------------------------------------------------------------------------- they all train


def between(embeddings: Tensor) -> float:
    """Mean cosine within classes minus that of different classes."""
    unit = F.normalize(embeddings.detach(), dim=1)
    same = LABELS.unsqueeze(1) == LABELS
    return float((unit @ unit.T)[same & ~torch.eye(len(unit), dtype=torch.bool)].mean() - (unit @ unit.T)[~same].mean())


# Inner products also grow by length; and a class may settle at several of its ten centres.
GATHERS = {"pml/n_pair": 0.1, "pml/soft_triple": -0.1}


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_pulls_classes_together_and_moves_its_own_weights(name):
    torch.manual_seed(0)  # of proxies, and of distance-weighted sampling
    loss = baseline(name)
    embeddings = nn.Parameter(torch.randn(len(LABELS), DIM))
    before = {key: value.clone() for key, value in loss.state_dict().items()}
    optimizer = torch.optim.Adam([embeddings, *loss.parameters()], lr=0.05)
    values, apart = [], [between(embeddings)]
    for _ in range(100):
        value = loss(embeddings, LABELS)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    apart.append(between(embeddings))
    assert sum(values[-5:]) < 0.7 * sum(values[:5])
    assert apart[1] > apart[0] + GATHERS.get(name, 0.2)
    assert all((value != before[key]).any() for key, value in loss.state_dict().items())


def test_label_smoothing_spreads_a_share_of_the_probability_over_all_classes():
    batch, classes = rows(), int(LABELS.max()) + 1
    smooth, plain = (
        CrossEntropyLoss(classes, DIM, label_smoothing=0.2).double(),
        CrossEntropyLoss(classes, DIM).double(),
    )
    plain.load_state_dict(smooth.state_dict())
    log_p = smooth.logits(batch).log_softmax(1)
    expected = -0.8 * log_p[torch.arange(len(LABELS)), LABELS].mean() - 0.2 * log_p.mean()
    torch.testing.assert_close(smooth(batch, LABELS), expected)
    assert smooth(batch, LABELS) != plain(batch, LABELS)
    with pytest.raises(ValueError, match="label_smoothing .*2"):
        CrossEntropyLoss(classes, DIM, label_smoothing=2)


def test_losses_with_weights_know_the_training_classes_and_the_width_of_the_embeddings():
    shapes = {name: [tuple(p.shape) for p in baseline(name).parameters()] for name in BASELINES}
    assert {name: found for name, found in shapes.items() if found} == {
        "cross_entropy": [(CLASSES, DIM), (CLASSES,)],
        "pml/arcface": [(DIM, CLASSES)],
        "pml/margin": [(CLASSES,)],
        "pml/normalized_softmax": [(DIM, CLASSES)],
        "pml/proxy_anchor": [(CLASSES, DIM)],
        "pml/proxy_nca_pp": [(CLASSES, DIM)],
        "pml/soft_triple": [(DIM, 10 * CLASSES)],
    }


def test_the_loss_of_proxy_nca_pp_is_a_softmax_over_all_proxies_at_temperature_one_ninth():
    loss = baseline("pml/proxy_nca_pp").double()
    embeddings, proxies = F.normalize(rows(), dim=1), F.normalize(next(loss.parameters()).detach(), dim=1)
    expected = 0.0
    for row, label in zip(embeddings, LABELS.tolist(), strict=True):
        near = [math.exp(-9 * float((row - proxy).square().sum())) for proxy in proxies]
        expected -= math.log(near[label] / sum(near)) / len(LABELS)
    torch.testing.assert_close(loss(rows(), LABELS).item(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", BASELINES)
def test_under_autocast_a_baseline_computes_in_full_precision(name):
    loss = baseline(name)
    embeddings = rows().float().bfloat16()
    torch.manual_seed(0)
    expected = loss(embeddings.float(), LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(0)
        found = loss(embeddings, LABELS)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


# -------------------------------------------------------------------------------------------------------- references


class Listed(nn.Module):
    """Stands for a loss of the library and keeps the pairs that it is given."""

    def forward(self, embeddings: Tensor, labels: Tensor, pairs: Any, ref_emb: Tensor, ref_labels: Tensor) -> Tensor:
        self.pairs = pairs
        return embeddings.sum()


MINERS = [
    miners.BatchHardMiner(),
    miners.MultiSimilarityMiner(0.1),
    miners.DistanceWeightedMiner(),
    miners.TripletMarginMiner(0.2),
    miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="semihard"),
]


def references(seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The batch itself, two older generations of its first twelve images, and images that are not in it."""
    older = rows(12, seed)
    refs = torch.cat([rows(), older, rows(12, seed + 1), rows(10, seed + 2)])
    labels = torch.cat([LABELS, LABELS[:12], LABELS[:12], torch.arange(10) % (CLASSES + 1)])
    ids = torch.cat([IDS, IDS[:12], IDS[:12], torch.arange(100, 110)])
    return refs, labels, ids


def test_without_a_miner_every_pair_is_listed_but_those_with_own_copies():
    refs, ref_labels, ref_ids = references()
    loss = PMLLoss(Listed())
    loss(rows(), LABELS, ref_emb=refs, ref_labels=ref_labels, ids=IDS, ref_ids=ref_ids)
    a, p, b, n = (column.tolist() for column in loss.loss.pairs)
    every = list(itertools.product(range(len(LABELS)), range(len(refs))))
    alike = {(i, j): bool(LABELS[i] == ref_labels[j]) for i, j in every}
    assert list(zip(a, p, strict=True)) == [(i, j) for i, j in every if alike[i, j] and IDS[i] != ref_ids[j]]
    assert list(zip(b, n, strict=True)) == [(i, j) for i, j in every if not alike[i, j]]


@pytest.mark.parametrize("miner", MINERS, ids=lambda miner: type(miner).__name__)
def test_a_miner_never_pairs_a_sample_with_its_own_copies(miner):
    refs, ref_labels, ref_ids = references()
    loss = PMLLoss(Listed(), miner)
    torch.manual_seed(0)
    loss(rows(), LABELS, ref_emb=refs, ref_labels=ref_labels, ids=IDS, ref_ids=ref_ids)
    pairs = loss.loss.pairs
    anchors = [pairs[0], pairs[2]] if len(pairs) == 4 else [pairs[0], pairs[0]]
    assert len(pairs[0]) and (IDS[anchors[0]] != ref_ids[pairs[1]]).all()
    assert (LABELS[anchors[0]] == ref_labels[pairs[1]]).all()
    assert (LABELS[anchors[1]] != ref_labels[pairs[-1]]).all()
    without = miner(rows(), LABELS, refs, ref_labels)
    assert (IDS[without[0]] == ref_ids[without[1]]).any(), "the library alone would have paired some"


@pytest.mark.parametrize("miner", [m for m in MINERS if not isinstance(m, miners.DistanceWeightedMiner)])
def test_what_a_miner_takes_is_what_it_takes_for_each_query_from_a_list_without_its_copies(miner):
    refs, ref_labels, ref_ids = references()
    loss = PMLLoss(Listed(), miner)
    loss(rows(), LABELS, ref_emb=refs, ref_labels=ref_labels, ids=IDS, ref_ids=ref_ids)
    expected = set()
    for i in range(len(LABELS)):
        kept = [j for j in range(len(refs)) if ref_ids[j] != IDS[i]]
        found = [
            column.tolist() for column in miner(rows()[i : i + 1], LABELS[i : i + 1], refs[kept], ref_labels[kept])
        ]
        if len(found) == 4:
            expected |= {(i, kept[p], None) for p in found[1]} | {(i, None, kept[n]) for n in found[3]}
        else:
            expected |= {(i, kept[p], kept[n]) for p, n in zip(found[1], found[2], strict=True)}
    pairs = [column.tolist() for column in loss.loss.pairs]
    if len(pairs) == 4:
        taken = {(a, p, None) for a, p in zip(*pairs[:2], strict=True)}
        taken |= {(a, None, n) for a, n in zip(*pairs[2:], strict=True)}
    else:
        taken = set(zip(*pairs, strict=True))
    assert taken == expected


@pytest.mark.parametrize("name", [name for name in WITH_REFERENCES if name != "pml/margin"])  # draws
def test_the_batch_as_its_own_references_is_the_batch(name):
    loss = baseline(name)
    values = []
    for more in ({}, {"ref_emb": None, "ref_labels": LABELS, "ids": IDS, "ref_ids": IDS}):
        embeddings = rows().requires_grad_()
        if more:
            more["ref_emb"] = embeddings
        value = loss(embeddings, LABELS, **more)
        value.backward()
        values.append((value.detach(), embeddings.grad))
    torch.testing.assert_close(values[1], values[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_memory_works_around_it_and_has_no_graph(name):
    torch.manual_seed(0)
    memory = CrossBatchMemory(baseline(name), size=30)
    for step in range(3):
        embeddings = rows(seed=step).float().requires_grad_()
        value = memory(embeddings, LABELS, ids=IDS)  # the same images again
        value.backward()
        assert value.isfinite() and value > 0
        assert embeddings.grad.isfinite().all() and embeddings.grad.abs().sum() > 0
    assert memory.filled == 30


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in WITH_REFERENCES])
def test_a_memory_refuses_what_has_no_use_for_references_before_training(name):
    with pytest.raises(TypeError, match="memory: .*ref_emb"):
        CrossBatchMemory(baseline(name), size=30)


def contrastive_by_hand(batch: Tensor, batch_ids: list[int], items: Tensor, item_ids: list[int], labels: Any) -> float:
    """Mean of (1 - s) over relevant pairs with s < 1, plus mean of (s - 1/2) over irrelevant pairs with s > 1/2."""
    pull, push = [], []
    for i, j in itertools.product(range(len(batch)), range(len(items))):
        if batch_ids[i] == item_ids[j]:
            continue
        s = float(F.cosine_similarity(batch[i], items[j], dim=0))
        if labels[batch_ids[i]] == labels[item_ids[j]]:
            pull.append(max(0.0, 1 - s))
        else:
            push.append(max(0.0, s - 0.5))
    return sum(sum(part) / max(sum(p > 0 for p in part), 1) for part in (pull, push))


def test_xbm_is_the_contrastive_loss_of_the_batch_and_of_the_batch_against_the_memory():
    labels = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    batches = [[0, 1, 3, 4], [2, 5, 6, 7], [1, 0, 8, 9], [3, 2, 6, 4]]  # images come again: 1 and 0, then 3, 2, 6, 4
    memory = CrossBatchMemory(baseline("pml/contrastive"), size=8, dtype=torch.float64)
    held: list[tuple[Tensor, int]] = []
    for step, ids in enumerate(batches):
        batch = rows(4, seed=step)
        value = memory(batch, torch.tensor([labels[i] for i in ids]), ids=torch.tensor(ids))
        expected = contrastive_by_hand(batch, ids, batch, ids, labels)
        if held:
            items = torch.stack([row for row, _ in held])
            expected += contrastive_by_hand(batch, ids, items, [number for _, number in held], labels)
        assert expected > 0
        torch.testing.assert_close(float(value), expected, rtol=1e-12, atol=0)
        held = [*held, *zip(batch, ids, strict=True)][-8:]  # two batches


def test_a_run_of_xbm_remembers_the_whole_training_set(tmp_path):
    photos = make_photos(tmp_path / "photos")
    xbm = ["loss=pml/contrastive", "memory=sum", "memory.warmup=0"]
    run = train(*small(photos, *xbm, f"out={tmp_path / 'run'}"))
    assert [value for _, value in curves(run)["memory_entries"]] == [0, 8, 16, 24, 25, 25]  # 25 images, batches of 8


def test_a_run_with_a_miner_and_a_memory_comes_to_its_end(tmp_path):
    photos = make_photos(tmp_path / "photos")
    run = train(
        *small(photos, "loss=pml/batch_hard_triplet", "memory=sum", "memory.warmup=0", f"out={tmp_path / 'run'}")
    )
    assert run.finished
    assert all(math.isfinite(value) for _, value in curves(run)["loss"])


def test_what_cannot_work_is_refused_with_a_reason():
    batch, refs = rows(), {"ref_emb": rows(seed=1), "ref_labels": LABELS}
    for kind, reason in (
        (theirs.NCALoss, "reads the labels itself"),
        (theirs.LiftedStructureLoss, "uses indices"),
    ):
        with pytest.raises(ValueError, match=f"{kind.__name__} can't use references: it {reason}"):
            PMLLoss(kind())(batch, LABELS, **refs)
    for loss in (PMLLoss(theirs.ContrastiveLoss()), HistogramLoss()):
        with pytest.raises(ValueError, match="ids without ref_ids"):
            loss(batch, LABELS, **refs, ids=IDS)
    with pytest.raises(ValueError, match="need num_classes >= 2"):
        CrossEntropyLoss(1, 4)
    with pytest.raises(ValueError, match=r"labels: .*0 \.\. 3, first in row 16"):
        CrossEntropyLoss(4, DIM)(batch, LABELS)
    with pytest.raises(ValueError, match="bins is the number of intervals"):
        HistogramLoss(0)


def test_a_miner_and_a_reducer_of_the_library_are_used_as_they_are():
    loss = PMLBatchLoss(theirs.TripletMarginLoss(0.2, reducer=reducers.MeanReducer()), miners.BatchHardMiner())
    embeddings = F.normalize(rows(), dim=1)
    far = torch.cdist(embeddings, embeddings)
    same = LABELS.unsqueeze(1) == LABELS
    hardest = [float(row[same[i]].max() - row[~same[i]].min()) for i, row in enumerate(far)]
    expected = sum(max(0.0, value + 0.2) for value in hardest) / len(hardest)
    torch.testing.assert_close(float(loss(rows(), LABELS)), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(float(baseline("pml/batch_hard_triplet")(rows(), LABELS)), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("margin", [0.2, 0.7])
def test_the_triplet_loss_takes_the_semi_hard_triplets_of_facenet_in_squared_distances(margin):
    loss = make(compose(["loss=pml/triplet", f"loss.loss.margin={margin}"]).loss, slot="loss")
    far = torch.cdist(*2 * (F.normalize(rows(), dim=1),)) ** 2
    n = range(len(LABELS))
    found = [
        float(far[a, p] - far[a, m]) + margin
        for a, p, m in itertools.product(n, n, n)
        if a != p and LABELS[a] == LABELS[p] != LABELS[m] and far[a, p] < far[a, m] <= far[a, p] + margin
    ]
    assert len(found) > 5
    torch.testing.assert_close(float(loss(rows(), LABELS)), sum(found) / len(found), rtol=1e-6, atol=0)


def test_adaptive_triplet_is_the_triplet_loss_of_that_library_and_adaptive_thresholds():
    own, thresholds = AdaptiveTripletLoss(weight=0.3), CalibrationLoss(quantiles=(0.5, 0.99))
    for seed in (0, 1):  # the thresholds move from call to call
        x, y = (rows(seed=seed).requires_grad_() for _ in range(2))
        value = own(x, LABELS)
        expected = 0.7 * baseline("pml/batch_hard_triplet")(y, LABELS) + 0.3 * thresholds(y, LABELS)
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(*(torch.autograd.grad(each, leaf)[0] for each, leaf in ((value, x), (expected, y))))


# --------------------------------------------------------------------------------------------------------- histogram


def histogram_by_hand(cosines: list[tuple[float, bool]], bins: int) -> float:
    """Loops over bins and pairs; each value counts 1 - distance / step in the bins that are nearer than a step."""
    step = 2 / bins
    centres = [-1 + r * step for r in range(bins + 1)]

    def density(values: list[float]) -> list[float]:
        return [sum(max(0.0, 1 - abs(v - c) / step) for v in values) / len(values) for c in centres]

    of_relevant = density([v for v, relevant in cosines if relevant])
    of_others = density([v for v, relevant in cosines if not relevant])
    return sum(h * sum(of_relevant[: r + 1]) for r, h in enumerate(of_others))


@pytest.mark.parametrize("name", OURS)
def test_the_length_of_an_embedding_does_not_matter_and_a_zero_row_has_no_huge_gradient(name):
    """A length below 1e-12 was taken as 1e-12, so the gradient of a row of zeros was 1e11."""
    torch.manual_seed(0)
    loss, rows = baseline(name), torch.randn(len(LABELS), DIM)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(loss(scale * rows, LABELS), loss(rows, LABELS))
    rows[0] = 0
    loss(rows.requires_grad_(), LABELS).backward()
    assert rows.grad[0].abs().max() < 100


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_the_histogram_loss_is_its_double_sum_over_bins_with_and_without_references(bins):
    refs, ref_labels, ref_ids = references()
    for items, labels, ids, more in (
        (rows(), LABELS, IDS, {}),
        (refs, ref_labels, ref_ids, {"ref_emb": refs, "ref_labels": ref_labels, "ids": IDS, "ref_ids": ref_ids}),
    ):
        cosine = F.normalize(rows(), dim=1) @ F.normalize(items, dim=1).T
        pairs = [(i, j) for i in range(len(LABELS)) for j in range(len(items)) if IDS[i] != ids[j]]
        listed = [(float(cosine[i, j]), bool(LABELS[i] == labels[j])) for i, j in pairs]
        value = HistogramLoss(bins)(rows(), LABELS, **more)
        torch.testing.assert_close(float(value), histogram_by_hand(listed, bins), rtol=1e-12, atol=1e-12)


def test_the_gradient_of_the_histogram_loss_is_its_derivative_and_equal_images_are_no_trouble():
    assert torch.autograd.gradcheck(lambda e: HistogramLoss(10)(e, LABELS), rows().requires_grad_())
    twins = torch.eye(DIM)[LABELS].requires_grad_()  # cosines of exactly 1 and 0
    value = HistogramLoss()(twins, LABELS)
    value.backward()
    assert value == 0 and twins.grad.isfinite().all()


@pytest.mark.parametrize("labels", [torch.zeros(20, dtype=torch.long), torch.arange(20)])
def test_the_histogram_loss_is_zero_where_pairs_of_one_kind_are_missing(labels):
    embeddings = rows().requires_grad_()
    value = HistogramLoss()(embeddings, labels)
    value.backward()
    assert value == 0 and (embeddings.grad == 0).all()


def test_cosine_similarity_is_what_the_contrastive_loss_compares():
    loss = baseline("pml/contrastive")
    assert isinstance(loss.loss.distance, distances.CosineSimilarity)
    torch.testing.assert_close(loss(7 * rows(), LABELS), loss(rows(), LABELS))


# ---------------------------------------------------------------------------- the other baselines of the papers' tables


def loops(batch: Tensor) -> list[tuple[float, bool]]:
    """(cosine, relevant) of all pairs of different images, in both directions."""
    unit = F.normalize(batch, dim=1)
    pairs = itertools.permutations(range(len(unit)), 2)
    return [(float(unit[i] @ unit[j]), bool(LABELS[i] == LABELS[j])) for i, j in pairs]


def test_binomial_deviance_is_its_formula_pair_by_pair():
    near = [math.log(1 + math.exp(-2 * (s - 0.5))) for s, relevant in loops(rows()) if relevant]
    far = [math.log(1 + math.exp(2 * 25 * (s - 0.5))) for s, relevant in loops(rows()) if not relevant]
    expected = sum(near) / len(near) + sum(far) / len(far)
    torch.testing.assert_close(float(baseline("binomial_deviance")(rows(), LABELS)), expected, rtol=1e-12, atol=0)
    alone = BinomialDevianceLoss()(rows(3), torch.arange(3))
    assert alone.isfinite() and float(alone) == float(BinomialDevianceLoss()(rows(3), torch.arange(3)))
    for given, word in (({"alpha": 0.0}, "alpha"), ({"beta": 2.0}, "beta"), ({"cost": -1.0}, "cost")):
        with pytest.raises(ValueError, match=word):
            BinomialDevianceLoss(**given)


def tie_aware_by_hand(scores: list[float], relevant: list[bool], bins: int) -> float:
    """Loops over bins; each item is divided between the two bins next to it."""
    step = 2 / (bins - 1)

    def share(score: float, bin_: int) -> float:
        return max(0.0, 1 - abs(score - (1 - bin_ * step)) / step)

    total = items_before = hits_before = 0.0
    for each in range(bins):
        items = sum(share(s, each) for s in scores)
        hits = sum(share(s, each) for s, r in zip(scores, relevant, strict=True) if r)
        total += hits * (2 * hits_before + hits + 1) / (2 * items_before + items + 1)
        items_before, hits_before = items_before + items, hits_before + hits
    return 1 - total / sum(relevant)


@pytest.mark.parametrize("bins", [3, 20, 101])
def test_tie_aware_ap_is_its_sum_over_bins(bins):
    g = torch.Generator().manual_seed(bins)
    scores, relevant = 2 * torch.rand(5, 30, dtype=torch.float64, generator=g) - 1, torch.rand(5, 30, generator=g) > 0.6
    found = TieAwareAPLoss(bins=bins, reduction="none").from_scores(scores, relevant)
    expected = [tie_aware_by_hand(s.tolist(), r.tolist(), bins) for s, r in zip(scores, relevant, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_tie_aware_ap_is_ap_without_ties_and_between_best_and_worst_order_with_them():
    centres = torch.linspace(1, -1, 11, dtype=torch.float64)
    relevant = torch.tensor([[True, False, False, True, False, True, False, False, False, False, True]])
    exact = 1 - (1 / 1 + 2 / 4 + 3 / 6 + 4 / 11) / 4
    alone = TieAwareAPLoss(bins=11).from_scores(centres.unsqueeze(0), relevant)
    torch.testing.assert_close(float(alone), exact, rtol=1e-12, atol=0)
    tied = torch.tensor([[0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    half = torch.tensor([[True, True, False, False]])
    best, worst = 0.0, 1 - (1 / 3 + 2 / 4) / 2
    value = float(TieAwareAPLoss(bins=11).from_scores(tied, half))
    at_the_end = float(SoftBinAPLoss(bins=11).from_scores(tied, half))
    assert best < value < worst and value < at_the_end


def test_n_pair_is_a_softmax_over_one_pair_of_each_class():
    loss = baseline("pml/n_pair")
    two = torch.cat([torch.arange(CLASSES), torch.arange(CLASSES)])
    batch = rows(2 * CLASSES)
    anchors, positives = batch[:CLASSES], batch[CLASSES:]
    one = F.cross_entropy(anchors @ positives.T, torch.arange(CLASSES))
    other = F.cross_entropy(positives @ anchors.T, torch.arange(CLASSES))  # which of a pair is the anchor is drawn
    penalty = 0.002 * batch.square().sum(1).mean()
    torch.manual_seed(0)
    value = float(loss(batch, two))
    low, high = sorted((float(one + penalty), float(other + penalty)))
    assert low / 2 < value < 2 * high and math.isfinite(value)


def test_the_angular_loss_is_its_formula_on_embeddings_of_length_one():
    unit, tan2 = F.normalize(rows(), dim=1), math.tan(math.radians(40)) ** 2
    expected = []
    for a, p in itertools.permutations(range(len(unit)), 2):
        if LABELS[a] == LABELS[p]:
            terms = [
                math.exp(4 * tan2 * float((unit[a] + unit[p]) @ unit[n]) - 2 * (1 + tan2) * float(unit[a] @ unit[p]))
                for n in range(len(unit))
                if LABELS[n] != LABELS[a]
            ]
            expected.append(math.log(1 + sum(terms)))
    found = float(baseline("pml/angular")(3 * rows(), LABELS))  # whatever their length
    torch.testing.assert_close(found, sum(expected) / len(expected), rtol=1e-6, atol=0)


def test_soft_triple_is_a_softmax_over_classes_with_ten_centres_each():
    loss = baseline("pml/soft_triple").double()
    centres = F.normalize(next(loss.parameters()).detach().T, dim=1).view(CLASSES, 10, DIM)
    total = 0.0
    for row, label in zip(F.normalize(rows(), dim=1), LABELS.tolist(), strict=True):
        near = centres @ row
        logits = 20 * ((near / 0.1).softmax(1) * near).sum(1)
        logits[label] -= 20 * 0.01
        total -= float(logits.log_softmax(0)[label]) / len(LABELS)
    without = PMLBatchLoss(type(loss.loss)(CLASSES, DIM)).double()
    without.load_state_dict({"loss.fc": loss.state_dict()["loss.fc"]}, strict=False)
    torch.testing.assert_close(without(rows(), LABELS).item(), total, rtol=1e-9, atol=0)
    assert loss(rows(), LABELS).item() > total  # and what draws centres of a class together
