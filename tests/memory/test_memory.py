"""Cross-batch memory: against lists put together by hand, through saving and resuming, and through misuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankgrad.batches.memory import CrossBatchMemory, memory_buffers
from rankgrad.losses import LOSSES, CalibrationLoss, RaMBOAPLoss, RetrievalLoss, ROADMAPLoss, SmoothAPLoss, SupAPLoss

STEPS, ROWS, DIM = 5, 8, 4


def batches(seed: int = 0) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of 4 classes x 2; samples come again in later batches, with other embeddings."""
    g = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(STEPS):
        ids = torch.randperm(12, generator=g)[:ROWS]
        found.append((torch.randn(ROWS, DIM, generator=g, dtype=torch.float64), ids % 4, ids))
    return found


def make(name: str, **kwargs: Any) -> RetrievalLoss:
    if name == "fastap" or name == "softbin_ap":
        kwargs["bins"] = 5
    loss = LOSSES[name](**kwargs)
    assert isinstance(loss, RetrievalLoss)
    return loss


def by_hand(loss: RetrievalLoss, size: int, weight: float, warmup: int) -> list[tuple[Tensor, Tensor]]:
    """Value and gradient of each batch, the memory being a Python list of (embedding, label, id)."""
    held: list[tuple[Tensor, Tensor, Tensor]] = []
    found = []
    for step, (embeddings, labels, ids) in enumerate(batches()):
        x = embeddings.clone().requires_grad_()
        items = [torch.stack(column) for column in zip(*held, strict=True)]
        value = loss(x, labels, ids=ids)
        if held and step >= warmup:
            loss.eval()  # thresholds that follow the scores move once in a step
            more = loss(x, labels, ref_emb=items[0], ref_labels=items[1], ids=ids, ref_ids=items[2])
            loss.train()
            value = value + weight * more
        (gradient,) = torch.autograd.grad(value, x)
        found.append((value.detach(), gradient))
        if step >= warmup:
            held = (held + list(zip(embeddings, labels, ids, strict=True)))[-size:]
    return found


def trained(memory: CrossBatchMemory, steps: slice = slice(None)) -> list[tuple[Tensor, Tensor]]:
    found = []
    for embeddings, labels, ids in batches()[steps]:
        x = embeddings.clone().requires_grad_()
        value = memory(x, labels, ids=ids)
        value.backward()
        assert x.grad is not None
        found.append((value.detach(), x.grad))
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_those_of_lists_put_together_by_hand(name: str) -> None:
    memory = CrossBatchMemory(make(name), size=13, weight=0.3, dtype=torch.float64)
    expected = by_hand(make(name), 13, 0.3, 0)
    for (value, gradient), (wanted, slope) in zip(trained(memory), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient, slope, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [3, ROWS, 2 * ROWS, 100])
@pytest.mark.parametrize("warmup", [0, 2])
def test_the_ring_keeps_the_newest_entries_after_the_warm_up(size: int, warmup: int) -> None:
    loss = SupAPLoss()
    memory = CrossBatchMemory(loss, size=size, warmup=warmup, dtype=torch.float64)
    for (value, _), (wanted, _) in zip(trained(memory), by_hand(loss, size, 1.0, warmup), strict=True):
        torch.testing.assert_close(value, wanted, rtol=0, atol=1e-12)
    kept = [row for embeddings, _, _ in batches()[warmup:] for row in embeddings][-size:]
    assert memory.filled == len(kept)
    mine = {tuple(row.tolist()) for row in memory.embeddings[: memory.filled]}
    assert mine == {tuple(row.tolist()) for row in kept}


def test_a_query_never_meets_its_own_older_embedding() -> None:
    embeddings, labels = torch.eye(3)[[0, 1, 2]], torch.tensor([0, 1, 2])
    memory = CrossBatchMemory(CalibrationLoss(), size=9)
    for _ in range(3):
        # each class has one sample: if a query met itself in the memory, it would have a relevant item
        memory(embeddings, labels, ids=torch.tensor([5, 6, 7]))
    memory.loss = SmoothAPLoss()
    assert memory(embeddings, labels, ids=torch.tensor([5, 6, 7])) == 0
    assert not memory.loss.stats["counted"].any()
    memory(embeddings, labels, ids=torch.tensor([15, 16, 17]))
    assert memory.loss.stats["counted"].all()


def test_a_saved_memory_goes_on_where_it_stopped() -> None:
    whole = trained(CrossBatchMemory(ROADMAPLoss(), size=13, warmup=1, dtype=torch.float64))
    first = CrossBatchMemory(ROADMAPLoss(), size=13, warmup=1, dtype=torch.float64)
    trained(first, slice(0, 3))
    second = CrossBatchMemory(ROADMAPLoss(), size=13, warmup=1, dtype=torch.float64)
    second.load_state_dict(first.state_dict())
    for (value, gradient), (wanted, slope) in zip(trained(second, slice(3, None)), whole[3:], strict=True):
        assert torch.equal(value, wanted) and torch.equal(gradient, slope)
    assert second.summary() == pytest.approx({**first.summary(), **second.summary()})


def test_an_untouched_memory_is_saved_and_loaded_too() -> None:
    first, second = (CrossBatchMemory(SupAPLoss(), size=4) for _ in range(2))
    second.load_state_dict(first.state_dict())
    assert second.filled == 0


def test_nothing_is_written_in_eval_mode() -> None:
    memory = CrossBatchMemory(SupAPLoss(), size=16)
    trained(memory, slice(0, 1))
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    memory.eval()
    trained(memory, slice(1, 3))
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("first", [False, True])
def test_a_batch_of_validation_is_not_written(off, first) -> None:
    """Under no_grad in training mode too; and a first call in inference mode does not spoil the buffers."""
    plain, checked = (CrossBatchMemory(SupAPLoss(), size=16) for _ in range(2))
    found = [] if first else [trained(memory, slice(0, 2)) for memory in (plain, checked)]
    with off():
        embeddings, labels, ids = batches(seed=1)[0]
        checked(embeddings, labels, ids=ids)
    found += [trained(memory, slice(2, 4)) for memory in (plain, checked)]
    for one, other in zip(found[-2], found[-1], strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    torch.testing.assert_close(plain.state_dict(), checked.state_dict(), rtol=0, atol=0, equal_nan=True)


def test_blackbox_perturbation_does_not_see_the_weight_of_the_memory() -> None:
    embeddings, labels, ids = batches()[1]
    gradients = []
    for weight in (1.0, 0.5):
        memory = CrossBatchMemory(RaMBOAPLoss(), size=16, weight=weight, dtype=torch.float64)
        trained(memory, slice(0, 1))
        x = embeddings.clone().requires_grad_()
        memory(x, labels, ids=ids).backward()
        alone = torch.autograd.grad(RaMBOAPLoss()(x, labels, ids=ids), x)[0]
        assert x.grad is not None
        gradients.append((x.grad - alone) / weight)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
def test_writing_the_batch_does_not_disturb_its_backward_pass(normalize: bool) -> None:
    loss = SmoothAPLoss(normalize=normalize)
    memory = CrossBatchMemory(loss, size=ROWS, dtype=torch.float64)
    wanted = by_hand(loss, ROWS, 1.0, 0)
    for (_, gradient), (_, slope) in zip(trained(memory), wanted, strict=True):
        torch.testing.assert_close(gradient, slope, rtol=0, atol=1e-12)


def test_a_loss_that_checkpointing_computes_again_is_refused_and_not_another_one() -> None:
    memory = CrossBatchMemory(CalibrationLoss(), size=ROWS)
    for step, (embeddings, labels, ids) in enumerate(batches()):
        memory.train(step < 2)
        x = embeddings.clone().requires_grad_()
        value = checkpoint(lambda x, labels=labels, ids=ids: memory(x, labels, ids=ids), x, use_reentrant=False)
        if memory.training:
            with pytest.raises(RuntimeError, match=r"can't be inside torch\.utils\.checkpoint"):
                value.backward()
        else:  # nothing is written
            value.backward()
            assert x.grad is not None and torch.equal(x.grad, torch.autograd.grad(memory(x, labels, ids=ids), x)[0])
    assert memory.clock.tolist() == [2, 2 * ROWS]


@pytest.mark.parametrize("kind", ["multi-hot", "hierarchy"])
def test_multi_hot_and_hierarchical_labels_are_kept_as_they_are(kind: str) -> None:
    g = torch.Generator().manual_seed(1)
    if kind == "multi-hot":
        labels = torch.rand(ROWS, 5, generator=g) > 0.5
    else:
        labels = torch.stack([torch.arange(ROWS) // 4, torch.arange(ROWS) // 2], 1)
    memory = CrossBatchMemory(LOSSES["h_ap"](), size=ROWS)
    embeddings = torch.randn(ROWS, DIM, generator=g)
    memory(embeddings, labels, ids=torch.arange(ROWS))
    assert memory.labels.dtype == labels.dtype and torch.equal(memory.labels, labels)
    again = CrossBatchMemory(LOSSES["h_ap"](), size=ROWS)
    again.load_state_dict(memory.state_dict())
    other = torch.arange(ROWS) + ROWS
    assert torch.equal(again(embeddings, labels, ids=other), memory(embeddings, labels, ids=other))


def test_half_precision_entries_give_nearly_the_same_loss() -> None:
    values = []
    for dtype in (torch.float32, torch.bfloat16):
        memory = CrossBatchMemory(LOSSES["fastap"](), size=16, dtype=dtype)
        values.append(torch.stack([value for value, _ in trained(memory)]))
        assert memory.embeddings.dtype == dtype
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0.02)
    assert not torch.equal(values[0], values[1])


def test_statistics_say_how_full_how_old_and_how_far_drifted() -> None:
    memory = CrossBatchMemory(SupAPLoss(), size=4)
    embeddings, labels, ids = torch.eye(2)[[0, 0]], torch.tensor([0, 0]), torch.tensor([3, 4])
    memory(embeddings, labels, ids=ids)
    assert memory.stats["memory_entries"] == 0 and "memory_drift" not in memory.stats
    memory(embeddings, labels, ids=ids + 10)
    assert memory.stats["memory_entries"] == 2 and memory.stats["memory_age"] == 1
    assert memory.stats["memory_drift"].isnan()  # none of these samples was there
    memory(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), labels, ids=ids)
    assert memory.stats["memory_entries"] == 4 and memory.stats["memory_age"] == 1.5
    assert memory.stats["memory_drift"] == 0.5  # one turned by a right angle, one stayed
    assert memory.stats["memory_counted"] == 1
    assert memory.summary() == {
        "entries": 4.0,
        "mean_age": 1.5,
        "oldest": 2.0,
        "classes": 1.0,
        "least_per_class": 4.0,
        "most_per_class": 4.0,
    }
    memory.reset()
    assert memory.filled == 0 and memory.summary() == {"entries": 0.0}


def test_its_buffers_are_found_inside_a_model() -> None:
    memory = CrossBatchMemory(SupAPLoss(), size=4)
    inside = nn.Sequential(nn.BatchNorm1d(2), memory)
    assert set(memory_buffers(inside)) == {f"1.{name}" for name in ("embeddings", "labels", "ids", "written", "clock")}
    assert set(memory_buffers(memory)) == {"embeddings", "labels", "ids", "written", "clock"}


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    loss, labels, ids = SupAPLoss(), torch.tensor([0, 0]), torch.arange(2)
    for options, word in (
        ({"size": 0}, "size is"),
        ({"size": 1, "warmup": -1}, "warmup is"),
        ({"size": 1, "weight": -1.0}, "weight"),
        ({"size": 1, "dtype": torch.int8}, "dtype"),
    ):
        with pytest.raises(ValueError, match=word):
            CrossBatchMemory(loss, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="CrossEntropyLoss can't use a memory"):
        CrossBatchMemory(nn.CrossEntropyLoss(), size=2)
    memory = CrossBatchMemory(loss, size=4)
    with pytest.raises(ValueError, match="needs ids"):
        memory(torch.eye(2), labels)
    with pytest.raises(ValueError, match="ids must be integers"):
        memory(torch.eye(2), labels, ids=torch.arange(3))
    with pytest.raises(ValueError, match="one label per row"):
        memory(torch.eye(3), labels, ids=ids)
    assert memory.filled == 0
    memory(torch.eye(2), labels, ids=ids)
    with pytest.raises(ValueError, match="holds 2-d embeddings but got 3-d"):
        memory(torch.eye(3)[:2], labels, ids=ids)
    with pytest.raises(ValueError, match="memory holds labels"):
        memory(torch.eye(2), torch.stack([labels, labels], 1), ids=ids)
    with pytest.raises(ValueError, match="size 4, this one has size 5"):
        CrossBatchMemory(loss, size=5).load_state_dict(memory.state_dict())
    assert memory.filled == 2


CONVERSIONS = {
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "double": lambda module: module.double(),
    "to": lambda module: module.to(torch.float16),
}


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_converted_memory_stores_the_new_type_and_goes_on(conversion, when):
    convert = CONVERSIONS[conversion]
    model = nn.ModuleDict({"loss": CrossBatchMemory(SmoothAPLoss(tau=0.1), size=12)})
    plain = CrossBatchMemory(SmoothAPLoss(tau=0.1), size=12)
    if when == "before":
        convert(model)
    for step, (embeddings, labels, ids) in enumerate(batches()):
        if step == 2 and when == "between":
            convert(model)
        memory = model["loss"]
        value, wanted = memory(embeddings, labels, ids=ids), plain(embeddings, labels, ids=ids)
        torch.testing.assert_close(value.double(), wanted.double(), rtol=0.05, atol=0.02)
    assert memory.embeddings.dtype == memory.dtype and len(memory.embeddings) == 12 and memory.dtype != torch.float32
    assert memory.labels.dtype == memory.ids.dtype == memory.written.dtype == memory.clock.dtype == torch.long
    assert f"dtype={memory.dtype}" in repr(memory)
    memory.reset()
    assert memory.dtype == memory.embeddings.dtype != torch.float32  # what it was converted to


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_embeddings_of_the_models_precision_meet_a_memory_of_the_same(kind):
    memory = CrossBatchMemory(SupAPLoss(), size=12).to(kind)
    for embeddings, labels, ids in batches():
        x = embeddings.to(kind).requires_grad_()
        value = memory(x, labels, ids=ids)
        value.backward()
        assert x.grad.dtype == kind and x.grad.isfinite().all()
        assert value.dtype == (torch.float64 if kind == torch.float64 else torch.float32)
    again = CrossBatchMemory(SupAPLoss(), size=12).to(kind)
    again.load_state_dict(memory.state_dict())
    assert torch.equal(again.embeddings, memory.embeddings) and again.dtype == kind
