"""Backbone, pooling and head as one model, its parameter groups, and its features over a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, cast

import torch
from torch import Tensor, nn

from rankgrad.common.progress import bar

from ..files.defaults import WEIGHT_DECAY
from .heads import EmbeddingHead
from .inputs import Input

Given = ParamSpec("Given")


class EmbeddingModel(nn.Module):
    """Backbone -> pooling -> head: images, texts or vectors -> embeddings [row, dim], not normalised.

    Images are [image, channel, height, width] float, texts a list of strings, vectors [row, width] float. `convnet`,
    `timm_model` and `build_model` build such a model and set `config`. Weights and images have the memory format
    channels_last, which halves the time of the convolutions on CPU and does not change the result.

    Args:
        backbone: images -> map or tokens; texts or vectors -> features.
        pool: map or tokens -> [row, feature].
        head: features -> embeddings.
        inputs: kind and size of the inputs, see `inputs`.
        freeze_batch_norm: keep the backbone's batch norm in eval mode, also after `model.train()`: the running mean
            and variance do not change. Scale and shift are still trained, as in the published code.

    Attributes:
        config: arguments for `build_model`, with the kind under "kind", see `described`; `save_weights` needs it.
        embedding_size: dim of the embeddings.
        feature_size: size of the pooled features.
        origin: what was loaded from a file of weights, one line; "": nothing.
        pixel_mean: mean of each channel, to normalise images; 0 unless the weights need another value.
        pixel_std: standard deviation of each channel, to normalise images; 1 unless the weights need another value.

    >>> from rankgrad_workbench.models import convnet
    >>> model = convnet(widths=(8, 16), embedding_size=4)
    >>> model(torch.zeros(2, 1, 28, 28)).shape, model.features(torch.zeros(2, 1, 28, 28)).shape
    (torch.Size([2, 4]), torch.Size([2, 16]))
    """

    def __init__(
        self, backbone: nn.Module, pool: nn.Module, head: EmbeddingHead, inputs: Input, freeze_batch_norm: bool = False
    ) -> None:
        super().__init__()
        self.backbone, self.pool, self.head = backbone, pool, head
        self.inputs = inputs
        self.freeze_batch_norm = freeze_batch_norm
        self.config: dict[str, Any] | None = None
        self.origin = ""
        self.pixel_mean: tuple[float, ...] = (0.0,) * self.in_channels
        self.pixel_std: tuple[float, ...] = (1.0,) * self.in_channels
        self.to(memory_format=torch.channels_last)
        self.train()

    @property
    def embedding_size(self) -> int:
        """Dim of the embeddings."""
        return self.head.embedding_size

    @property
    def feature_size(self) -> int:
        """Size of the pooled features."""
        return self.head.feature_size

    @property
    def in_channels(self) -> int:
        """Channels of an image; 0 if the model takes no images."""
        return self.inputs.asks.get("in_channels", 0)

    def features(self, given: Any) -> Tensor:
        """[row, feature] pooled features before the head.

        Args:
            given: images [image, channel, height, width] float; or texts or vectors, if the model takes these.

        Raises:
            ValueError: wrong number of channels, size or width.
            TypeError: images that are not floats; or another kind of input than the model takes.
        """
        return cast(Tensor, self.pool(self.backbone(self.inputs.ready(given))))

    def embed(self, features: Tensor) -> Tensor:
        """Apply the head to pooled features: [row, feature] -> [row, dim]."""
        return cast(Tensor, self.head(features))

    def forward(self, given: Any) -> Tensor:
        """Images, texts or vectors -> [row, dim]; errors as in `features`."""
        return self.embed(self.features(given))

    def train(self, mode: bool = True) -> EmbeddingModel:
        """Like `nn.Module.train`, but frozen batch norm stays in eval mode."""
        super().train(mode)
        if self.freeze_batch_norm:
            freeze_batch_norms(self.backbone)
        return self

    def with_head(self, head: EmbeddingHead) -> EmbeddingModel:
        """A model with the same backbone and pooling (shared, not copied) and another head."""
        model = EmbeddingModel(self.backbone, self.pool, head, self.inputs, self.freeze_batch_norm)
        if self.config is not None:
            model.config = {**self.config, "head": head.kind, "embedding_size": head.embedding_size}
        model.pixel_mean, model.pixel_std = self.pixel_mean, self.pixel_std
        return model.train(self.training)


def described(
    kind: str, *left_out: str
) -> Callable[[Callable[Given, EmbeddingModel]], Callable[Given, EmbeddingModel]]:
    """Decorator of a function that builds a model: its arguments become the `config` of the model.

    Args:
        kind: name of the function in `MODELS`.
        left_out: arguments that say where the first weights are: those of the model are in its file.
    """

    def decorate(build: Callable[Given, EmbeddingModel]) -> Callable[Given, EmbeddingModel]:
        @wraps(build)
        def building(*args: Given.args, **options: Given.kwargs) -> EmbeddingModel:
            model, bound = build(*args, **options), signature(build).bind(*args, **options)
            bound.apply_defaults()
            plain = {name: list(v) if isinstance(v, tuple) else v for name, v in bound.arguments.items()}
            kept = {name: value for name, value in plain.items() if name not in left_out}
            model.config = {"kind": kind, **kept, **(model.config or {}), "head": model.head.kind}
            return model

        return building

    return decorate


def parameter_groups(
    model: EmbeddingModel, lr: float, head_lr_factor: float = 1.0, weight_decay: float = WEIGHT_DECAY
) -> list[dict[str, Any]]:
    """Optimiser groups: the backbone at `lr`, pooling and head at `lr * head_lr_factor`.

    Every parameter that requires a gradient is in exactly one group; empty groups are left out.

    Args:
        model: the model to train.
        lr: learning rate of the backbone.
        head_lr_factor: factor for pooling and head, which usually start untrained (ROADMAP: 2).
        weight_decay: weight decay of all parameters, including biases and norm scales, as in the published recipes.

    Returns:
        Dicts with "params", "lr", "weight_decay" and "name".

    >>> from rankgrad_workbench.models import convnet
    >>> groups = parameter_groups(convnet(widths=(8, 8)), lr=1e-3, head_lr_factor=10)
    >>> [(g["name"], g["lr"]) for g in groups]
    [('backbone', 0.001), ('head', 0.01)]
    """
    groups: list[dict[str, Any]] = []
    parts = (("backbone", (model.backbone,), lr), ("head", (model.pool, model.head), lr * head_lr_factor))
    for name, modules, rate in parts:
        if learned := [p for module in modules for p in module.parameters() if p.requires_grad]:
            groups.append({"params": learned, "lr": rate, "weight_decay": weight_decay, "name": name})
    return groups


def place_of(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """(device, dtype) of a model's first weight; (CPU, float32) for a model without weights."""
    weight = next(model.parameters(), None)
    return (torch.device("cpu"), torch.float32) if weight is None else (weight.device, weight.dtype)


def moved(given: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move all tensors of a batch to a device and all floats to a dtype. Texts and numbers do not change."""
    if isinstance(given, Tensor):
        return given.to(device, dtype) if given.is_floating_point() else given.to(device)
    if isinstance(given, Mapping):
        return {name: moved(part, device, dtype) for name, part in given.items()}
    if isinstance(given, (list, tuple)):
        return [moved(part, device, dtype) for part in given]
    return given


def freeze_batch_norms(model: nn.Module) -> None:
    """Set all batch norm to eval mode: it uses the statistics that it has, and does not change them."""
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Each part of the model is in training or eval mode after the context as it was before.

    Parts may differ: a caller's own batch norm in eval mode stays there, whatever the mode of the whole is.
    """
    was_training = {part: part.training for part in model.modules()}
    try:
        yield
    finally:
        model.train(was_training[model])  # first, as a part may do more than to set the mode
        for part in model.modules():
            part.training = was_training.get(part, part.training)


@contextmanager
def evaluating(
    model: nn.Module, device: torch.device | str | None = None
) -> Iterator[tuple[torch.device, torch.dtype]]:
    """Eval mode on a device, without gradients; the mode of each part is restored afterwards.

    Args:
        model: the model.
        device: device to move the model to; None: the model stays where it is.

    Yields:
        (device, dtype) for the inputs, see `moved`.
    """
    where, dtype = place_of(model)
    where = where if device is None else torch.device(device)
    with modes_kept(model):
        model.to(where).eval()
        with torch.inference_mode():
            yield where, dtype


def extract_features(model: EmbeddingModel, batches: Iterable[Sequence[Any]], progress: bool = False) -> Tensor:
    """Pooled features of every image, computed once in eval mode. A head can then be trained on them in seconds.

    Args:
        model: its mode (train or eval) is restored afterwards.
        batches: a DataLoader or any iterable of (images, ...). Do not augment the images: each is used once.
        progress: show a progress bar on stderr.

    Returns:
        features [image, feature] float32, on the CPU.

    Raises:
        ValueError: there is no batch.

    >>> from rankgrad_workbench.models import convnet
    >>> extract_features(convnet(), [(torch.zeros(2, 1, 28, 28), torch.tensor([0, 1]))]).shape
    torch.Size([2, 128])
    """
    if progress:
        batches = bar(batches, desc="features", unit="batch", leave=False)
    with evaluating(model) as place:
        parts = [model.features(moved(batch[0], *place)).float().cpu() for batch in batches]
    if not parts:
        raise ValueError("the loader gave no batch: is the data set empty, or smaller than one batch?")
    return torch.cat(parts).clone()  # tensors made in inference mode cannot be used in training
