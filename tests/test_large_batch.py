"""Embedding in parts: the gradient is that of the whole batch, dropout, autocast and buffers included."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils.parametrizations import spectral_norm

from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.losses import LOSSES, SmoothAPLoss

ROWS = 12
LABELS = torch.arange(ROWS) // 3


def images(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(ROWS, 3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=dtype)


def network(*middle: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)]
    return nn.Sequential(*layers).to(dtype)


def gradients(model: nn.Module, loss: nn.Module, embeddings: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss(embeddings, LABELS).backward()
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad.clone())
    return found


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [1, 5, ROWS, 100])
def test_the_gradient_is_that_of_the_whole_batch(name: str, size: int) -> None:
    model, loss = network(nn.GroupNorm(2, 8)), LOSSES[name]()
    whole = gradients(model, loss, model(images()))
    parts = gradients(model, loss, embed_in_parts(model, images(), size))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("autocast", [False, True])
def test_dropout_and_autocast_are_the_same_in_the_second_pass(autocast: bool) -> None:
    """The reference embeds the same parts with their graphs kept, from the same state of the generator."""
    model, loss = network(nn.Dropout2d(0.4), nn.Dropout(0.3), dtype=torch.float32), SmoothAPLoss()
    pictures = images(torch.float32)
    found = []
    for in_parts in (False, True):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            if in_parts:
                embeddings = embed_in_parts(model, pictures, 5)
            else:
                embeddings = torch.cat([model(part) for part in torch.split(pictures, 5)])
            after = torch.rand(1)
        found.append((gradients(model, loss, embeddings), embeddings.detach(), after, torch.rand(1)))
    (whole, kept, *numbers), (parts, made, *others) = found
    assert torch.equal(made, kept) and made.dtype == (torch.bfloat16 if autocast else torch.float32)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)
    assert numbers == others  # and the generator goes on as if there were one pass


def test_dropout_differs_between_the_parts() -> None:
    model = nn.Sequential(nn.Dropout(0.5))
    embeddings = embed_in_parts(model, torch.ones(2, 64), 1)
    assert not torch.equal(embeddings[0], embeddings[1])


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_updated_once(momentum: float | None) -> None:
    model = network(nn.BatchNorm2d(8, momentum=momentum))
    other = copy.deepcopy(model)
    whole = gradients(other, SmoothAPLoss(), torch.cat([other(part) for part in torch.split(images(), 4)]))
    parts = gradients(model, SmoothAPLoss(), embed_in_parts(model, images(), 4))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    for (name, buffer), kept in zip(model.named_buffers(), other.buffers(), strict=True):
        assert torch.equal(buffer, kept), name
    assert int(model[1].num_batches_tracked) == 3  # type: ignore[arg-type]


def test_running_statistics_of_a_layer_that_the_model_has_twice_are_kept() -> None:
    norm = nn.BatchNorm2d(8)
    model = network(norm, nn.ReLU(), norm)
    other = copy.deepcopy(model)
    whole = gradients(other, SmoothAPLoss(), torch.cat([other(part) for part in torch.split(images(), 4)]))
    parts = gradients(model, SmoothAPLoss(), embed_in_parts(model, images(), 4))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    for (name, buffer), kept in zip(model.named_buffers(), other.buffers(), strict=True):
        assert torch.equal(buffer, kept), name


def test_frozen_batch_norm_gives_the_embeddings_of_the_whole_batch() -> None:
    model = network(nn.BatchNorm2d(8))
    model[1].eval()
    whole = gradients(model, SmoothAPLoss(), model(images()))
    parts = gradients(model, SmoothAPLoss(), embed_in_parts(model, images(), 5))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)


def test_buffers_that_change_what_is_computed_are_those_of_the_first_pass() -> None:
    """Spectral norm improves its estimate in every forward pass: a second pass would see other weights."""
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 3)).double()
    other = copy.deepcopy(model)
    x = torch.randn(ROWS, 6, dtype=torch.float64)
    whole = gradients(other, SmoothAPLoss(), torch.cat([other(part) for part in torch.split(x, 4)]))
    parts = gradients(model, SmoothAPLoss(), embed_in_parts(model, x, 4))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)


class CentredByFirstBatches(nn.Module):
    """Subtracts a running mean of the inputs, which is None until the first forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", None)

    def forward(self, x: Tensor) -> Tensor:
        now = x.detach().mean(0)
        self.mean = now if self.mean is None else (self.mean + now) / 2
        embedded: Tensor = self.layer(x - self.mean)
        return embedded


def test_a_buffer_that_is_none_until_the_first_pass_is_none_again_in_the_second_and_updated_once() -> None:
    torch.manual_seed(0)
    model = CentredByFirstBatches().double()
    other = copy.deepcopy(model)
    x = torch.randn(ROWS, 6, dtype=torch.float64)
    whole = gradients(other, SmoothAPLoss(), torch.cat([other(part) for part in torch.split(x, 4)]))
    parts = gradients(model, SmoothAPLoss(), embed_in_parts(model, x, 4))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    assert torch.equal(model.mean, other.mean)


def test_a_memory_inside_the_loss_is_written_once() -> None:
    model = network()
    memory = CrossBatchMemory(SmoothAPLoss(), size=100, need_ids=False)
    gradients(model, memory, embed_in_parts(model, images(), 5))
    assert memory.filled == ROWS


def test_a_retained_graph_can_be_gone_through_again() -> None:
    model = network(nn.BatchNorm2d(8))
    value = SmoothAPLoss()(embed_in_parts(model, images(), 5), LABELS)
    value.backward(retain_graph=True)
    first = model[0].weight.grad.clone()  # type: ignore[union-attr]
    model.zero_grad()
    value.backward()
    assert torch.equal(model[0].weight.grad, first)  # type: ignore[arg-type]


def test_only_one_part_has_its_activations_at_a_time() -> None:
    model = network()
    activations: list[StorageWeakRef] = []
    alive: list[int] = []

    def count(module: nn.Module, inputs: object, output: Tensor) -> None:
        activations.append(StorageWeakRef(output.untyped_storage()))
        alive.append(sum(not ref.expired() for ref in activations))

    model[1].register_forward_hook(count)  # a ReLU's graph keeps its output
    gradients(model, SmoothAPLoss(), torch.cat([model(part) for part in torch.split(images(), 4)]))
    assert alive == [1, 2, 3]  # graphs that are kept
    alive.clear()
    activations.clear()
    gradients(model, SmoothAPLoss(), embed_in_parts(model, images(), 4))
    assert alive == [1] * 6


def test_inputs_may_wait_elsewhere_and_without_gradient_there_is_one_pass() -> None:
    model = network()
    with torch.no_grad():
        embeddings = embed_in_parts(model, images(), 5, device="cpu")
    assert not embeddings.requires_grad
    torch.testing.assert_close(embeddings, model(images()))


def test_a_dict_is_divided_by_rows_like_the_batches_of_transformers() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(9, 4)

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            return (self.words(batch["input_ids"]) * batch["attention_mask"].unsqueeze(2)).sum(1)

    model = Reader()
    tokens = {"input_ids": torch.arange(15).view(5, 3) % 9, "attention_mask": torch.ones(5, 3)}
    embedded = embed_in_parts(model, tokens, 2, device="cpu")
    torch.testing.assert_close(embedded, model(tokens))
    embedded.square().sum().backward()
    parts = model.words.weight.grad.clone()
    model.zero_grad()
    model(tokens).square().sum().backward()
    torch.testing.assert_close(parts, model.words.weight.grad)
    with pytest.raises(ValueError, match="same number of rows.*'attention_mask': 4"):
        embed_in_parts(model, tokens | {"attention_mask": torch.ones(4, 3)}, 2)


def test_a_model_that_returns_no_tensor_is_named() -> None:
    class Output(nn.Module):
        def forward(self, rows: Tensor) -> dict[str, Tensor]:
            return {"embeddings": rows}

    with pytest.raises(TypeError, match="tensor .*got dict"):
        embed_in_parts(Output(), torch.eye(4), 2)
    with pytest.raises(TypeError, match="torch.nn.Module.*got function"):
        embed_in_parts(lambda rows: rows, torch.eye(4), 2)  # type: ignore[arg-type]


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="an integer >= 1; got 0"):
        embed_in_parts(nn.Identity(), torch.zeros(2, 2), 0)
    with pytest.raises(ValueError, match="at least one row; got none"):
        embed_in_parts(nn.Identity(), torch.zeros(0, 2), 4)
