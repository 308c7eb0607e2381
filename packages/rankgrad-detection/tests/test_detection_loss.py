"""The detection loss: against Algorithm 1 list by list, its memory, its filter, and the promises of all our losses."""

from __future__ import annotations

import copy
import pickle
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import reference
import torch
import torch.distributed as dist
from forks import forked, wait
from pretended import pretended
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rankgrad import losses
from rankgrad.batches.distributed import GlobalBatch
from rankgrad.losses import RankLoss
from rankgrad.losses.score_memory import Scored
from rankgrad.ranks import Blackbox, Lists, Soft, blackbox, exact_ranks
from rankgrad.ranks import prefilter as prefilter_room
from rankgrad.ranks.prefilter import shortened
from rankgrad.ranks.relaxations import Sigmoid
from rankgrad_detection.losses import (
    DETECTION_LOSSES,
    DetectionAPLoss,
    DetectionRankLoss,
    DetectionSmoothAPLoss,
    DetectionSupAPLoss,
    ScoreMemory,
    one_hot_targets,
)

CLASSES = 3


class Batch(NamedTuple):
    """Proposals of one step."""

    scores: Tensor
    targets: Tensor
    valid: Tensor | None = None


def batches(steps: int = 4, *, valid: bool = False, ties: bool = False, dtype=torch.float64) -> list[Batch]:
    """Batches of 9 .. 12 proposals; class 2 has a positive in the second batch only."""
    g = torch.Generator().manual_seed(0)
    found = []
    for step in range(steps):
        rows = 9 + step
        scores = torch.randn(rows, CLASSES, generator=g, dtype=torch.float64)
        if ties:
            scores = (scores * 2).round() / 2
        labels = torch.randint(0, 3, (rows,), generator=g)
        labels[0] = 3 if step == 1 else 0
        mask = torch.rand(rows, CLASSES, generator=g) > 0.2 if valid else None
        found.append(Batch(scores.to(dtype), one_hot_targets(labels, CLASSES, "first"), mask))
    return found


def run(loss: torch.nn.Module, given: list[Batch]) -> list[tuple[Tensor, Tensor]]:
    """Value and gradient of each batch in turn."""
    found = []
    for batch in given:
        scores = batch.scores.clone().requires_grad_()
        value = loss(scores, *batch[1:]) if batch.valid is not None else loss(scores, batch.targets)
        (gradient,) = torch.autograd.grad(value, scores)
        found.append((value.detach(), gradient))
    return found


def assert_same(got: list[tuple[Tensor, Tensor]], wanted: list[tuple[Tensor, Tensor]], atol: float = 1e-12) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=atol)


# ------------------------------------------------------------------------------------------- against plain loops


class Entry(NamedTuple):
    """One (proposal, class) of a list; `at` is its row and class if it is of the current batch."""

    score: float
    relevant: bool
    at: tuple[int, int] | None


def list_by_hand(entries: list[Entry], lambda_: float, margin: float, upstream: float) -> tuple[float, list[float]]:
    """(1 - AP, gradient of `upstream` times that) of one list by Algorithm 1."""
    y = [e.score - margin / 2 if e.relevant else e.score + margin / 2 for e in entries]
    of_relevant = [j for j, e in enumerate(entries) if e.relevant]
    ranks, among = reference.rk(y), reference.rk([y[j] for j in of_relevant])
    g, precision = [0.0] * len(y), 0.0
    for j, above in zip(of_relevant, among, strict=True):
        precision += above / ranks[j] / len(of_relevant)
        g[j] = upstream * above / ranks[j] ** 2 / len(of_relevant)
    return 1 - precision, reference.algorithm_1(y, g, lambda_ * len(y))


def by_hand(
    given: list[Batch], lambda_: float, margin: float, memory: int, weights: tuple[float, float], memory_for: str
) -> list[tuple[Tensor, Tensor]]:
    """Value and gradient of each batch, entry by entry; the memory is a Python list of batches."""
    held: list[Batch] = []
    found = []
    for batch in given:
        parts = [batch, *reversed(held)]
        lists: list[tuple[float, list[list[Entry]]]] = []
        per_class: list[list[Entry]] = [[] for _ in range(CLASSES)]
        whole: list[Entry] = []
        for age, part in enumerate(parts):
            for row in range(len(part.scores)):
                for c in range(CLASSES):
                    if part.valid is not None and not part.valid[row, c]:
                        continue
                    at = (row, c) if age == 0 else None
                    entry = Entry(part.scores[row, c].item(), bool(part.targets[row, c]), at)
                    per_class[c].append(entry)
                    if age == 0 or memory_for == "both":
                        whole.append(entry)
        lists = [(weights[0] / sum(weights), per_class), (weights[1] / sum(weights), [whole])]
        value, gradient = 0.0, torch.zeros_like(batch.scores)
        for weight, term in lists:
            counted = [entries for entries in term if any(e.relevant for e in entries)]
            for entries in counted:
                share = weight / len(counted)
                cost, change = list_by_hand(entries, lambda_, margin, share)
                value += share * cost
                for entry, move in zip(entries, change, strict=True):
                    if entry.at is not None:
                        gradient[entry.at] += move
        found.append((torch.tensor(value, dtype=torch.float64), gradient))
        held = [*held, batch][-memory:] if memory else []
    return found


@pytest.mark.parametrize("prefilter", [True, False])
@pytest.mark.parametrize("memory_for", ["map", "both"])
@pytest.mark.parametrize(("memory", "weights"), [(0, (2, 1)), (2, (2, 1)), (7, (1, 3)), (2, (1, 0)), (2, (0, 1))])
@pytest.mark.parametrize("kind", [{}, {"valid": True}, {"ties": True}], ids=str)
def test_loss_and_gradient_equal_algorithm_1_list_by_list(kind, memory, weights, memory_for, prefilter):
    given = batches(**kind)
    loss = DetectionAPLoss(0.5, 0.25, memory, weights, memory_for, prefilter=prefilter)
    got, wanted = run(loss, given), by_hand(given, 0.5, 0.25, memory, weights, memory_for)
    assert any(gradient.abs().max() > 1e-3 for _, gradient in wanted)
    assert_same(got, wanted)


def test_lambda_in_plain_ranks_is_algorithm_1_as_printed():
    (batch,) = batches(1)
    plain = DetectionAPLoss(4.5, memory=0, weights=(1, 0), normalized_ranks=False)
    assert_same(run(plain, [batch]), run(DetectionAPLoss(4.5 / 9, memory=0, weights=(1, 0)), [batch]))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (DetectionSmoothAPLoss(0.3, memory=2), losses.SmoothAPLoss(0.3)),
        (DetectionSupAPLoss(0.3, 5.0, 0.4, memory=2), losses.SupAPLoss(0.3, 5.0, 0.4)),
    ],
    ids=["smooth_ap", "supap"],
)
def test_relaxed_losses_are_the_retrieval_losses_of_classes_and_of_one_list(ours, theirs):
    given, held, wanted = batches(valid=True), [], []
    for batch in given:
        scores = batch.scores.clone().requires_grad_()
        parts = [Batch(scores, batch.targets, batch.valid), *reversed(held)]
        rows = [torch.cat([part[k] for part in parts]).T for k in range(3)]
        value = 2 / 3 * theirs.from_scores(*rows)
        value = value + 1 / 3 * theirs.from_scores(scores.view(1, -1), *(t.view(1, -1) for t in batch[1:]))
        wanted.append((value.detach(), torch.autograd.grad(value, scores)[0]))
        held = [*held, batch][-2:]
    assert_same(run(ours, given), wanted)


# ------------------------------------------------------------------------------------------------- the exact filter


def spread_lists(seed: int, kind: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Lists of which most irrelevant items are far below; one has none relevant, one is all relevant."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(5, 60, generator=g, dtype=torch.float64)
    relevant = torch.rand(5, 60, generator=g) < 0.1
    relevant[:, 0] = True
    relevant[3] = False
    scores[relevant] = scores[relevant].abs() + 1.5
    if kind == "level":  # irrelevant items level with the lowest relevant one after the margin has moved it
        scores = (scores * 4).round() / 4
    valid = None
    if kind == "valid":
        valid = torch.rand(5, 60, generator=g) > 0.2
        relevant[4] = relevant[4] | ~valid[4]  # relevant, but not there
        relevant[2] |= ~relevant[2] & valid[2] & (torch.rand(60, generator=g) < 0.5)
    return (scores.float() if kind == "float32" else scores), relevant, valid


@pytest.mark.parametrize("kind", ["plain", "level", "valid", "float32"])
@pytest.mark.parametrize("margin", [0.0, 0.25])
@pytest.mark.parametrize("lambda_", [5.0, 500.0])
def test_filter_changes_no_bit_of_value_or_gradient(kind, margin, lambda_, monkeypatch):
    for name in ("WORTH_IT", "ROOM"):
        monkeypatch.setattr(prefilter_room, name, 1.0)  # used whatever it drops
    moved = False
    for seed in range(10):
        scores, relevant, valid = spread_lists(seed, kind)
        short = shortened(scores, Lists.of(scores, relevant, valid), margin)
        assert len(short.at) < 0.6 * scores.numel()
        found = []
        for prefilter in (True, False):
            leaf = scores.clone().requires_grad_()
            box = Blackbox(lambda_, margin, prefilter=prefilter)
            loss = RankLoss(box, penalty=lambda above: (above / 60) ** 2, reduction="none")
            values = loss.from_scores(leaf, relevant, valid)
            (gradient,) = torch.autograd.grad(values @ torch.arange(5.0, dtype=values.dtype), leaf)
            found.append((values.detach(), gradient))
        moved |= bool(found[1][1].any())
        for a, b in zip(*found, strict=True):
            assert torch.equal(a, b)
    assert moved


def test_filter_keeps_what_is_level_with_or_above_the_lowest_relevant_item():
    scores = torch.cat([torch.tensor([0.5, 0.4, 0.25, 0.2, 0.1]), torch.full((75,), -1.0)]).unsqueeze(0)
    relevant = torch.zeros(1, 80, dtype=torch.bool)
    relevant[0, 0] = True
    short = shortened(scores, Lists.of(scores, relevant, None), margin=0.25)
    assert short.at.tolist() == [0, 1, 2] and torch.equal(short.scores, scores[:, :3])
    assert short.lists.length.tolist() == [80] and short.lists.item.tolist() == [0]
    assert short.spread(torch.tensor([[1.0, 2.0, 3.0]]), scores).tolist() == [[1.0, 2.0, 3.0] + [0.0] * 77]
    assert short.spread(torch.tensor([[1.0, 2.0, 3.0]]), scores[:, :2]).tolist() == [[1.0, 2.0]]
    most = scores[:, :40]  # of which three are too many
    assert shortened(most, Lists.of(most, relevant[:, :40], None), margin=0.25) is None
    assert shortened(scores, Lists.of(scores, torch.zeros_like(relevant), None), margin=0.25) is None


def test_ranks_behind_the_filter_name_the_items_of_the_whole_list():
    scores, relevant, _ = spread_lists(0, "plain")
    for prefilter in (True, False):
        _, ranks = Blackbox(prefilter=prefilter).values(lambda r: r.mean_per_query(r.above_neg), scores, relevant)
        assert torch.equal(torch.stack([ranks.query, ranks.item]).T, relevant.nonzero())


def test_filter_refuses_a_cost_that_falls_when_an_irrelevant_item_rises():
    scores, relevant, _ = spread_lists(0, "plain")
    loss = RankLoss(Blackbox(prefilter=True), penalty=lambda above: -above)
    with pytest.raises(ValueError, match="never falls"):
        loss.from_scores(scores.requires_grad_(), relevant)


def test_long_lists_are_filtered_too(monkeypatch):
    g = torch.Generator().manual_seed(1)
    scores = torch.randn(30_000, 10, generator=g)
    targets = torch.rand(30_000, 10, generator=g) < 0.001
    scores[targets] = scores[targets].abs() + 2.0
    found, share = [], []
    monkeypatch.setattr(blackbox, "shortened", lambda *a: share.append(shortened(*a)) or share[-1])
    for prefilter in (True, False):
        found.append(run(DetectionAPLoss(lambda_=50.0, prefilter=prefilter), [Batch(scores, targets)] * 3))
    assert len(share) == 6 and None not in share  # of the classes and of all in one list, three times
    assert found[0][-1][1].count_nonzero() > 100
    for mine, theirs in zip(*found, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a, b)


# ------------------------------------------------------------------------------------------------------- the margin


def test_random_margin_moves_relevant_scores_down_and_others_up_by_half_normal_amounts():
    targets = torch.rand(200, 500, generator=torch.Generator().manual_seed(0)) < 0.5
    (moved,) = DetectionAPLoss(margin=0.3, random_margin=True).moved([Scored(torch.zeros(200, 500), targets, None)])
    assert (moved[targets] <= 0).all() and (moved[~targets] >= 0).all()
    share = moved.abs() / 0.15
    assert share.mean().item() == pytest.approx((2 / torch.pi) ** 0.5, abs=0.01)  # E|z|
    assert share.square().mean().item() == pytest.approx(1.0, abs=0.02)


def test_random_margin_is_drawn_anew_for_each_batch_from_seed_and_step():
    (batch,) = batches(1)

    def values(loss: DetectionAPLoss, steps: int) -> list[float]:
        return [value.item() for value, _ in run(loss, [batch] * steps)]

    first = values(DetectionAPLoss(margin=2.0, memory=0, random_margin=True), 6)
    assert len(set(first)) > 2
    assert values(DetectionAPLoss(margin=2.0, memory=0, random_margin=True), 6) == first
    assert values(DetectionAPLoss(margin=2.0, memory=0, random_margin=True, seed=1), 6) != first
    torch.manual_seed(5)  # nobody else's draws matter, and none of theirs change
    state = torch.get_rng_state()
    resumed = DetectionAPLoss(margin=2.0, memory=0, random_margin=True)
    run(resumed, [batch] * 2)
    other = DetectionAPLoss(margin=2.0, memory=0, random_margin=True)
    other.load_state_dict(resumed.state_dict())
    assert values(other, 4) == first[2:]
    assert torch.equal(torch.get_rng_state(), state)


def test_random_margin_of_zero_is_no_margin():
    given = batches()
    assert_same(
        run(DetectionAPLoss(margin=0.0, random_margin=True), given), run(DetectionAPLoss(margin=0.0), given), atol=0
    )


def test_scores_within_the_margin_get_no_gradient_but_from_a_random_margin():
    g = torch.Generator().manual_seed(0)
    scores = 0.02 * torch.randn(512, 3, generator=g)
    targets = one_hot_targets((torch.rand(512, generator=g) < 0.2).long(), 3, "first")
    size = {
        name: run(DetectionAPLoss(memory=0, **options), [Batch(scores, targets)])[0][1].norm().item()
        for name, options in (("constant", {}), ("random", {"random_margin": True}), ("none", {"margin": 0.0}))
    }
    assert size["constant"] < size["random"] < size["none"]
    assert size["constant"] < 0.01 * size["none"]


# ------------------------------------------------------------------------------------------------------- the memory


def test_training_goes_on_after_loading_as_if_nothing_had_happened():
    given = batches(valid=True)
    whole, first = DetectionAPLoss(memory=2), DetectionAPLoss(memory=2)
    expected = run(whole, given)
    run(first, given[:2])
    second = DetectionAPLoss(memory=2)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert second.memory.rows == 19 and second.memory.count == 2
    assert_same(run(second, given[2:]), expected[2:], atol=0)
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert_same(run(copied, given[2:]), expected[2:], atol=0)


def test_a_state_is_loaded_over_a_memory_that_is_in_use():
    given = batches(3)
    used, fresh = DetectionAPLoss(memory=2), DetectionAPLoss(memory=2)
    run(used, given)
    used.load_state_dict(fresh.state_dict())
    assert_same(run(used, given), run(fresh, given), atol=0)


def test_memory_holds_the_last_batches_and_forgets_them():
    given = batches(4)
    loss = DetectionAPLoss(memory=2)
    first = run(loss, given[:1])
    run(loss, given[1:])
    held = loss.memory.held()
    assert [torch.equal(h.scores, b.scores.T) for h, b in zip(held, given[:1:-1], strict=True)] == [True, True]
    assert not any(buffer.requires_grad for buffer in loss.buffers())
    loss.reset()
    assert loss.memory.rows == loss.memory.count == 0
    assert_same(run(loss, given[:1]), first, atol=0)


def test_memory_does_not_change_with_the_scores_that_were_written():
    memory, scores = ScoreMemory(1), torch.zeros(1, 3)
    memory.write(Scored(scores, torch.zeros(1, 3, dtype=torch.bool), None))
    scores += 1
    assert memory.held()[0].scores.tolist() == [[0, 0, 0]]


def test_nothing_is_written_in_evaluation_mode():
    loss = DetectionAPLoss(memory=2).eval()
    run(loss, batches())
    assert loss.memory.count == 0


@pytest.mark.parametrize("loss", [DetectionSmoothAPLoss(), DetectionAPLoss(memory=0, random_margin=True)])
def test_a_loss_that_checkpointing_computes_again_is_refused_and_not_another_one(loss):
    for step, batch in enumerate(batches()):
        loss.train(step < 2)
        scores = batch.scores.clone().requires_grad_()
        if loss.training:
            with pytest.raises(RuntimeError, match=r"can't be inside torch\.utils\.checkpoint"):
                checkpoint(loss, scores, batch.targets, use_reentrant=False).backward()
            loss.memory.write(Scored(batch.scores.T, batch.targets.T, None))
        else:  # nothing is written
            checkpoint(loss, scores, batch.targets, use_reentrant=False).backward()
            assert torch.equal(scores.grad, torch.autograd.grad(loss(scores, batch.targets), scores)[0])


def test_a_loss_without_memory_may_be_computed_again():
    loss, batch = DetectionAPLoss(memory=0), batches()[0]
    scores = batch.scores.clone().requires_grad_()
    checkpoint(loss, scores, batch.targets, use_reentrant=False).backward()
    assert torch.equal(scores.grad, run(loss, [batch])[0][1])


def test_memory_moves_with_the_loss():
    loss = DetectionAPLoss(memory=1)
    run(loss, batches(1))
    assert {buffer.device.type for buffer in loss.to("meta").buffers()} == {"meta"}


def test_relevant_entries_of_the_memory_alone_still_push_irrelevant_ones_down():
    loss = DetectionAPLoss(lambda_=5.0, margin=0.0, memory=1, weights=(1, 0))
    none, some = torch.tensor([[False], [False]]), torch.tensor([[True], [False]])
    run(loss, [Batch(torch.tensor([[0.5], [0.0]]), some)])
    ((value, gradient),) = run(loss, [Batch(torch.tensor([[0.6], [-1.0]]), none)])
    assert value == 0.5 and gradient[0, 0] > 0 and gradient[1, 0] == 0


def test_a_batch_without_proposals_has_the_value_of_the_memory_and_an_empty_gradient(monkeypatch):
    for name in ("WORTH_IT", "ROOM"):
        monkeypatch.setattr(prefilter_room, name, 1.0)
    loss = DetectionAPLoss(memory=1, weights=(1, 0))
    first, second = run(loss, [batches(1)[0], Batch(torch.zeros(0, 3).double(), torch.zeros(0, 3, dtype=torch.bool))])
    assert second[0] == first[0] > 0 and second[1].shape == (0, 3)


def test_misuse_of_the_memory_is_refused():
    loss = DetectionAPLoss(memory=2)
    run(loss, batches(1))
    with pytest.raises(ValueError, match=r"3 classes but got 2.*reset\(\)"):
        loss(torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="2 batches.*3"):
        DetectionAPLoss(memory=3).load_state_dict(loss.state_dict())
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="number of batches"):
            ScoreMemory(wrong)


# --------------------------------------------------------------------------------------- what all our losses promise


@pytest.mark.parametrize("name", DETECTION_LOSSES)
def test_no_weight_outside_the_loss_changes_the_direction_of_the_gradient(name):
    (batch,) = batches(1)
    gradients = []
    for factor in (1.0, 1e-3, 1024.0):
        scores = batch.scores.clone().requires_grad_()
        (factor * DETECTION_LOSSES[name](memory=0)(scores, batch.targets)).backward()
        gradients.append(scores.grad / factor)
    assert gradients[0].any()
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", DETECTION_LOSSES)
def test_only_differences_of_scores_matter(name):
    given = batches()
    moved = [batch._replace(scores=batch.scores - 3) for batch in given]
    assert_same(run(DETECTION_LOSSES[name](), moved), run(DETECTION_LOSSES[name](), given))


def test_gradient_of_each_class_adds_up_to_zero():
    ((_, gradient),) = run(DetectionAPLoss(memory=0, weights=(1, 0)), batches(1))
    torch.testing.assert_close(gradient.sum(0), torch.zeros(CLASSES, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", DETECTION_LOSSES)
@pytest.mark.parametrize("rows", [0, 5])
def test_no_relevant_proposal_gives_zero_attached_to_the_graph(name, rows):
    scores = torch.randn(rows, CLASSES, requires_grad=True)
    loss = DETECTION_LOSSES[name]()
    for _ in range(2):
        value = loss(scores, torch.zeros(rows, CLASSES, dtype=torch.bool))
        value.backward()
        assert value == 0 and not scores.grad.any()
    assert not loss.stats["counted"].any() and loss.stats["positives"] == 0


@pytest.mark.parametrize("name", DETECTION_LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_are_computed_in_float32(name, dtype):
    (batch,) = batches(1, dtype=dtype)
    exact = run(DETECTION_LOSSES[name](memory=0), [batch._replace(scores=batch.scores.float())])[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, gradient = run(DETECTION_LOSSES[name](memory=0), [batch])[0]
    assert value.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(value, exact[0])
    torch.testing.assert_close(gradient, exact[1].to(dtype))


def test_any_ranks_and_any_metric_make_a_loss():
    (batch,) = batches(1)
    value = DetectionRankLoss(exact_ranks, memory=0)(batch.scores.clone().requires_grad_(), batch.targets)
    exact = DetectionAPLoss(margin=0.0, memory=0)(batch.scores, batch.targets)
    assert value.item() == pytest.approx(exact.item()) and value.requires_grad
    from rankgrad.metrics import ndcg

    step = Sigmoid(0.5)
    loss = DetectionRankLoss(Soft(step, step), metric=ndcg, memory=0, weights=(1, 0))
    wanted = losses.NDCGLoss(tau=0.5).from_scores(batch.scores.T, batch.targets.T)
    torch.testing.assert_close(loss(batch.scores, batch.targets), wanted)


def test_statistics_are_of_the_last_call_and_no_part_of_the_state():
    loss = DetectionAPLoss(memory=3)
    values = run(loss, batches(2))
    assert loss.stats["counted"].tolist() == [True, True, True] and loss.stats["memory_rows"] == 9
    total = 2 / 3 * loss.stats["map_loss"] + 1 / 3 * loss.stats["apc_loss"]
    torch.testing.assert_close(total, values[1][0])
    assert not any("stats" in key for key in loss.state_dict())
    assert pickle.loads(pickle.dumps(loss)).stats == {}


def test_a_printed_loss_shows_its_arguments():
    shown = repr(DetectionAPLoss(0.2, margin=0.1, memory=3, weights=(1, 1), memory_for="both"))
    for part in ("lambda_=0.2", "margin=0.1", "memory=3", "weights=(1, 1)", "memory_for='both'", "random_margin=False"):
        assert part in shown
    assert "tau=0.25" in repr(DetectionSmoothAPLoss(0.25)) and "rho=7.0" in repr(DetectionSupAPLoss(rho=7.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores": torch.zeros(9)}, "float tensor"),
        ({"scores": torch.zeros(9, 3, dtype=torch.long)}, "float tensor"),
        ({"targets": torch.zeros(9, 3)}, "targets must be bool.*one_hot_targets"),
        ({"targets": torch.zeros(9, 4, dtype=torch.bool)}, r"\(9, 4\)"),
        ({"valid": torch.ones(9, 3)}, "valid must be bool"),
    ],
)
def test_wrong_input_is_refused(change, words):
    (batch,) = batches(1)
    with pytest.raises(ValueError, match=words):
        DetectionAPLoss()(*batch._replace(**change))


def test_scores_and_targets_may_be_arrays_and_lists():
    (batch,) = batches(1, valid=True)
    wanted = DetectionAPLoss()(*batch)
    assert DetectionAPLoss()(*(part.numpy() for part in batch)) == wanted
    assert DetectionAPLoss()(*(part.tolist() for part in batch)) == wanted


def test_a_memory_on_another_device_is_named_with_what_to_do():
    (batch,) = batches(1)
    saved, loss = DetectionAPLoss(memory=2), DetectionAPLoss(memory=2)
    with pretended() as there:
        on_device = Batch(*(None if part is None else part.to(there) for part in batch))
        saved(*on_device)
        loss.load_state_dict({name: value.cpu() for name, value in saved.state_dict().items()})
        with pytest.raises(ValueError, match="memory is on cpu but scores are on lazy; move the loss"):
            loss(*on_device)
        loss.to(there)(*on_device)


def test_targets_on_another_device_are_named():
    (batch,) = batches(1)
    with pretended() as there, pytest.raises(ValueError, match="targets is on lazy but scores are on cpu"):
        DetectionAPLoss()(batch.scores, batch.targets.to(there))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_are_named_with_their_row(bad):
    (batch,) = batches(1)
    batch.scores[4, 1] = bad
    with pytest.raises(ValueError, match="first in row 4"):
        DetectionAPLoss()(*batch)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": (0, 0)}, "weights"),
        ({"weights": (1, -1)}, "weights"),
        ({"weights": (1,)}, "weights"),
        ({"weights": 2}, "weights"),
        ({"weights": ("2", "1")}, "weights"),
        ({"random_margin": "no"}, "random_margin"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"memory_for": "apc"}, "memory_for"),
        ({"lambda_": 0}, "lambda_"),
        ({"margin": -1}, "margin"),
        ({"margin": -1, "random_margin": True}, "margin"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        DetectionAPLoss(**options)


# ----------------------------------------------------------------------------------------------------------- targets


def test_background_may_be_the_first_label_the_last_or_none():
    wanted = [[False, False], [True, False], [False, True]]
    assert one_hot_targets(torch.tensor([0, 1, 2]), 2, "first").tolist() == wanted
    assert one_hot_targets(torch.tensor([2, 0, 1]), 2, "last").tolist() == wanted
    assert one_hot_targets(torch.tensor([0, 1]), 2, None).tolist() == wanted[1:]
    assert one_hot_targets(torch.tensor([], dtype=torch.long), 2, "first").shape == (0, 2)


@pytest.mark.parametrize(
    ("labels", "background", "words"),
    [
        ([0, 3], "first", "0 .. 2"),
        ([0, 3], "last", "0 .. 2"),
        ([0, 2], None, "0 .. 1"),
        ([-1, 0], "first", "ignored"),
        ([0.0], "first", "integers"),
        ([[0]], "first", "integers"),
        ([0], "middle", "background"),
    ],
)
def test_wrong_labels_are_refused(labels, background, words):
    with pytest.raises(ValueError, match=words):
        one_hot_targets(torch.tensor(labels), 2, background)


@pytest.mark.parametrize("count", [0, 3.0, True])
def test_the_number_of_foreground_classes_is_an_integer_of_at_least_one(count):
    with pytest.raises(ValueError, match="num_classes"):
        one_hot_targets(torch.tensor([0]), count, "first")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_labels_may_be_any_integers_arrays_and_lists(dtype):
    labels = torch.tensor([0, 2, 1], dtype=dtype)
    for given in (labels, labels.numpy(), labels.tolist()):
        assert one_hot_targets(given, 2, "first").tolist() == [[False, False], [False, True], [True, False]]


# --------------------------------------------------------------------------------------------------------- processes

SHARES = [(4, 5), (10, 0), (1, 10), (6, 6)]


def work(rank: int, folder: str) -> dict[str, Any]:
    """What one of two processes finds with its share of each batch."""
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=120))
    found: dict[str, Any] = {}
    try:
        for random in (False, True):
            loss = GlobalBatch(DetectionAPLoss(memory=2, random_margin=random))
            mine = []
            for batch, sizes in zip(batches(), SHARES, strict=True):
                start = sum(sizes[:rank])
                mine.append(Batch(*(t[start : start + sizes[rank]] for t in batch[:2])))
            found[str(random)] = run(loss, mine)
            found[f"memory {random}"] = dict(loss.loss.memory.state_dict())
    finally:
        dist.destroy_process_group()
    return found


def second(folder: str) -> None:
    warnings.simplefilter("error")
    torch.save(work(1, folder), Path(folder) / "1.pt")


def test_two_processes_have_the_loss_gradient_and_memory_of_one_with_all_proposals():
    with tempfile.TemporaryDirectory() as folder:
        other = forked(lambda: second(folder), Path(folder) / "log")
        found = [work(0, folder)]
        assert wait(other) == 0, (Path(folder) / "log").read_text()
        found.append(torch.load(Path(folder) / "1.pt", weights_only=False))
    for random in (False, True):
        alone = DetectionAPLoss(memory=2, random_margin=random)
        for step, (value, gradient) in enumerate(run(alone, batches())):
            for mine in found:
                torch.testing.assert_close(mine[str(random)][step][0], value, rtol=0, atol=1e-12)
            # the sum over both processes, of which DistributedDataParallel takes the mean
            together = torch.cat([mine[str(random)][step][1] for mine in found]) / 2
            torch.testing.assert_close(together, gradient, rtol=0, atol=1e-12)
        for mine in found:
            torch.testing.assert_close(mine[f"memory {random}"], dict(alone.memory.state_dict()))


def test_scores_of_validation_are_not_written_to_the_memory():
    loss, scores = DetectionAPLoss(memory=2), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(6).unsqueeze(1) % 3 == torch.arange(3)
    loss(scores, targets)
    with torch.no_grad():
        loss(scores + 1, targets)
    assert loss.memory.count == 1
