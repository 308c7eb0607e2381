"""What holds for every loss that settings can name, of this library or another's: the same checks, the same edges."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import LOSSES
from rankgrad.losses.sum import missing_references
from rankgrad_workbench.settings import compose, make, options

CLASSES, DIM = 4, 5
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


@cache
def settings_of(name: str) -> DictConfig:
    config = compose([f"loss={name}"])
    config.derived.num_classes, config.derived.embedding_size = CLASSES, DIM
    return config


@pytest.fixture(params=options("loss"))
def loss(request) -> nn.Module:
    """A loss in eval mode, so that nothing of a call is left for the next one; it may draw."""
    name = request.param
    if "/" in name:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[name.split("/")[0]])
    torch.manual_seed(0)
    made: nn.Module = LOSSES[name]() if name in LOSSES else make(settings_of(name).loss, slot="loss")
    return made.eval()


def rows(count: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))


def value_of(loss: nn.Module, *given, **references) -> Tensor:
    torch.manual_seed(1)  # some losses draw pairs
    value: Tensor = loss(*given, **references)
    return value


def test_labels_out_of_step_are_an_error_that_counts_both(loss):
    with pytest.raises(ValueError, match=r"\blabels .*got 5 and 6"):
        loss(rows(), LABELS[:5])
    if not missing_references(loss):
        with pytest.raises(ValueError, match="ref_labels .*got 6 and 5"):
            loss(rows(), LABELS, ref_emb=rows(5), ref_labels=LABELS)
        for half in ({"ref_emb": rows()}, {"ref_labels": LABELS}, {"ref_emb": rows(), "ref_labels": None}):
            with pytest.raises(ValueError, match="ref_emb"):
                loss(rows(), LABELS, **half)


def test_nan_or_infinity_is_an_error_that_names_the_tensor_and_the_row(loss):
    for bad in (math.nan, math.inf, -math.inf):
        broken = rows()
        broken[3, 1] = broken[5, 0] = bad
        with pytest.raises(ValueError, match="embeddings: .*row 3"):
            loss(broken, LABELS)
        if not missing_references(loss):
            with pytest.raises(ValueError, match="ref_emb: .*row 3"):
                loss(rows(), LABELS, ref_emb=broken, ref_labels=LABELS)


def test_what_is_no_embedding_or_no_class_is_an_error_that_names_it(loss):
    for wrong in (rows().long(), rows()[0], [["a"] * DIM] * 6):
        with pytest.raises((TypeError, ValueError), match="^embeddings must"):
            loss(wrong, LABELS)
    for wrong in (LABELS.float(), [None] * 6, LABELS.view(6, 1, 1)):
        with pytest.raises((TypeError, ValueError), match="^labels (must|has no value)"):
            loss(rows(), wrong)


def test_a_hierarchy_and_several_classes_are_taken_or_refused_in_words(loss):
    for labels, named in (
        (torch.stack([LABELS // 2, LABELS], 1), "hierarchy"),
        (nn.functional.one_hot(LABELS).bool(), "multi-hot"),
    ):
        try:
            assert value_of(loss, rows(), labels).isfinite()
        except ValueError as error:
            assert named in str(error) and "one class per row" in str(error)


@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        (rows(0), LABELS[:0]),
        (rows(1), LABELS[:1]),
        (rows(2), LABELS[:2]),
        (rows(2), LABELS[1:3]),
        (rows(4), torch.arange(4)),
        (rows(), 0 * LABELS),
        (torch.zeros(6, DIM), LABELS),
        (torch.ones(6, DIM), LABELS),
        (1e-20 * rows(), LABELS),
    ],
    ids=["none", "one", "pair", "two classes", "no pair", "one class", "zero", "alike", "short"],
)
def test_small_and_degenerate_batches_have_a_finite_value_and_gradient(loss, embeddings, labels):
    leaf = embeddings.clone().requires_grad_()
    value = value_of(loss, leaf, labels)
    value.backward()
    assert value.shape == () and value.isfinite() and leaf.grad.isfinite().all()
    assert len(labels) or value == 0


def test_transforms_of_torch_func_are_refused_by_name_and_functional_call_works(loss):
    one = rows()
    for transformed in (
        lambda: torch.func.grad(lambda each: loss(each, LABELS))(one),
        lambda: torch.func.vmap(lambda each: loss(each, LABELS))(one.unsqueeze(0)),
        lambda: torch.func.jacrev(lambda each: loss(each, LABELS))(one),
    ):
        with pytest.raises(RuntimeError, match=r"torch\.func.*torch\.autograd\.grad"):
            transformed()
    torch.manual_seed(1)
    parts = dict(loss.named_parameters()) | dict(loss.named_buffers())
    assert torch.equal(torch.func.functional_call(loss, parts, (one, LABELS)), value_of(loss, one, LABELS))


def test_lists_arrays_and_half_precision_serve(loss):
    want = value_of(loss, rows().double(), LABELS)  # lists have double precision, as in numpy
    for given in (rows().tolist(), rows().double().numpy()):
        torch.testing.assert_close(value_of(loss, given, LABELS.tolist()), want)
    half = rows().half()
    got = value_of(loss, half, LABELS.to(torch.int16))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, value_of(loss, half.float(), LABELS), rtol=1e-4, atol=1e-4)


def test_strings_are_classes_but_not_where_each_class_has_weights(loss):
    words = [f"class {label}" for label in LABELS.tolist()]
    if list(loss.parameters()):
        with pytest.raises(TypeError, match="strings"):
            loss(rows(), words)
    else:
        assert torch.equal(value_of(loss, rows(), words), value_of(loss, rows(), LABELS))


def test_a_memory_of_another_precision_serves_every_loss_with_references(loss):
    if missing_references(loss):
        with pytest.raises(TypeError, match="can't use a memory"):
            CrossBatchMemory(loss, 20)
        return
    for dtype in (torch.float64, torch.bfloat16):
        memory = CrossBatchMemory(loss, 20, dtype=dtype).train()
        for step in range(3):
            leaf = rows(seed=step).requires_grad_()
            value = memory(leaf, LABELS, ids=torch.arange(6) + 6 * step)
            value.backward()
            assert value.isfinite() and leaf.grad.dtype == torch.float32 and leaf.grad.isfinite().all()
    assert value_of(loss, rows(), LABELS, ref_emb=rows(0), ref_labels=LABELS[:0]).isfinite()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in options("loss") if name not in LOSSES and not name.startswith("pml/")]
)
def test_a_baseline_on_several_threads_has_the_same_gradient_each_time_to_the_bit(name):
    if name.startswith("st/"):
        pytest.importorskip("sentence_transformers")
    config = compose([f"loss={name}"])
    config.derived.num_classes, config.derived.embedding_size = 64, 384
    made, labels = make(config.loss, slot="loss").eval(), torch.arange(256) // 4
    x = torch.randn(256, 384, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        gradients = []
        for _ in range(5):
            leaf = x.clone().requires_grad_()
            value_of(made, leaf, labels).backward()
            gradients.append(leaf.grad)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
