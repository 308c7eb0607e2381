"""Backbone, pooling and head as one model, its parameter groups, and its features over a loader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from .heads import EmbeddingHead


class EmbeddingModel(nn.Module):
    """Backbone -> pooling -> head: images [image, channel, height, width] -> embeddings [image, dim], not normalised.

    Usually built by `convnet`, `timm_model` or `build_model`, which also fill in `config`. Weights and images are
    kept in channels_last order: it halves the time of the convolutions on CPU and changes no number's meaning.

    Args:
        backbone: images -> map or tokens.
        pool: map or tokens -> [image, feature].
        head: features -> embeddings.
        in_channels: channels of an image.
        smallest: smallest height and width the backbone can take.
        image_size: the only (height, width) it takes, or None if any will do.
        freeze_batch_norm: keep the backbone's batch norm in eval mode, also after `model.train()`: the running mean
            and variance stay as they are; scale and shift still learn, as in the published code.
        config: arguments for `build_model`, with the kind under "kind"; needed by `save_weights`.

    Attributes:
        embedding_size: dim of the embeddings.
        feature_size: size of the pooled features.
        pixel_mean: per channel, what the images must be normalised with: (0, ...) unless the weights say otherwise.
        pixel_std: likewise, (1, ...).

    >>> from rankgrad.models import convnet
    >>> model = convnet(widths=(8, 16), embedding_size=4)
    >>> model(torch.zeros(2, 1, 28, 28)).shape, model.features(torch.zeros(2, 1, 28, 28)).shape
    (torch.Size([2, 4]), torch.Size([2, 16]))
    """

    def __init__(
        self,
        backbone: nn.Module,
        pool: nn.Module,
        head: EmbeddingHead,
        in_channels: int,
        *,
        smallest: int = 1,
        image_size: tuple[int, int] | None = None,
        freeze_batch_norm: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.pool, self.head = backbone, pool, head
        self.in_channels, self.smallest, self.image_size = in_channels, smallest, image_size
        self.freeze_batch_norm = freeze_batch_norm
        self.config: dict[str, Any] | None = None if config is None else dict(config)
        self.pixel_mean: tuple[float, ...] = (0.0,) * in_channels
        self.pixel_std: tuple[float, ...] = (1.0,) * in_channels
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

    def _check(self, images: Tensor) -> None:
        if images.ndim != 4 or images.shape[1] != self.in_channels:
            raise ValueError(
                f"the model takes images [image, {self.in_channels}, height, width]; got {list(images.shape)}. "
                f"Build it with in_channels= as many as the images have, or convert the images"
            )
        if not images.is_floating_point():
            raise TypeError(f"the model takes float images; got {images.dtype}. Convert with images.float() / 255")
        height, width = images.shape[2:]
        if self.image_size is not None and (height, width) != self.image_size:
            raise ValueError(
                f"the backbone takes images of exactly {self.image_size[0]} x {self.image_size[1]} pixels; got "
                f"{height} x {width}. Resize them, or build the model with image_size={height}"
            )
        if min(height, width) < self.smallest:
            raise ValueError(f"images must be at least {self.smallest} x {self.smallest}; got {height} x {width}")

    def features(self, images: Tensor) -> Tensor:
        """[image, feature] pooled features before the head.

        Args:
            images: [image, channel, height, width] float.

        Raises:
            ValueError: other channels or size than the model takes.
            TypeError: images that are not floats.
        """
        self._check(images)
        maps = self.backbone(images.contiguous(memory_format=torch.channels_last))
        if not isinstance(maps, Tensor):
            raise ValueError(f"this backbone gives a {type(maps).__name__}, not one map or token tensor; use another")
        return cast(Tensor, self.pool(maps))

    def embed(self, features: Tensor) -> Tensor:
        """[image, dim] embeddings of pooled features: the head."""
        return cast(Tensor, self.head(features))

    def forward(self, images: Tensor) -> Tensor:
        """[image, channel, height, width] -> [image, dim]; errors as in `features`."""
        return self.embed(self.features(images))

    def train(self, mode: bool = True) -> EmbeddingModel:
        """As `nn.Module.train`, but frozen batch norm stays in eval mode."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def with_head(self, head: EmbeddingHead) -> EmbeddingModel:
        """Put the same backbone and pooling (shared, not copied) under another head, such as one from `head_only`.

        Raises:
            ValueError: the head takes features of another size.
        """
        if head.feature_size != self.feature_size:
            raise ValueError(f"the head takes {head.feature_size} features but the backbone gives {self.feature_size}")
        config = None
        if self.config is not None:
            config = {**self.config, "head": head.kind, "embedding_size": head.embedding_size}
        model = EmbeddingModel(
            self.backbone,
            self.pool,
            head,
            self.in_channels,
            smallest=self.smallest,
            image_size=self.image_size,
            freeze_batch_norm=self.freeze_batch_norm,
            config=config,
        )
        model.pixel_mean, model.pixel_std = self.pixel_mean, self.pixel_std
        return model.train(self.training)


def parameter_groups(
    model: EmbeddingModel,
    lr: float,
    head_lr_factor: float = 1.0,
    weight_decay: float = 1e-4,
    *,
    decay_vectors: bool = True,
) -> list[dict[str, Any]]:
    """Optimiser groups: the backbone at `lr`, pooling and head at `lr * head_lr_factor`.

    Every parameter that requires a gradient is in exactly one group; empty groups are left out.

    Args:
        model: the model to train.
        lr: learning rate of the backbone.
        head_lr_factor: factor for pooling and head, which usually start untrained (ROADMAP: 2).
        weight_decay: decay of both.
        decay_vectors: also decay biases, norm scales and GeM's exponent (parameters with fewer than 2 dimensions).
            The published recipes decay everything, so that is the default.

    Returns:
        Dicts with "params", "lr", "weight_decay" and "name".

    >>> from rankgrad.models import convnet
    >>> groups = parameter_groups(convnet(widths=(8, 8)), lr=1e-3, head_lr_factor=10)
    >>> [(g["name"], g["lr"]) for g in groups]
    [('backbone', 0.001), ('head', 0.01)]
    """
    if not (lr >= 0 and head_lr_factor >= 0 and weight_decay >= 0):
        raise ValueError(f"need lr, head_lr_factor, weight_decay >= 0; got {lr}, {head_lr_factor}, {weight_decay}")
    parts = (("backbone", (model.backbone,), lr), ("head", (model.pool, model.head), lr * head_lr_factor))
    groups = []
    for name, modules, rate in parts:
        learned = [p for module in modules for p in module.parameters() if p.requires_grad]
        decayed = [p for p in learned if decay_vectors or p.ndim > 1]
        kept = [p for p in learned if not (decay_vectors or p.ndim > 1)]
        for suffix, params, decay in (("", decayed, weight_decay), ("/no_decay", kept, 0.0)):
            if params:
                groups.append({"params": params, "lr": rate, "weight_decay": decay, "name": name + suffix})
    return groups


def extract_features(
    model: EmbeddingModel,
    batches: Iterable[Sequence[Tensor]],
    device: torch.device | str | None = None,
    progress: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Pooled features of every image, in eval mode: computed once, so that a head can be trained on them in seconds.

    Args:
        model: its mode (train or eval) is restored afterwards.
        batches: (images, labels, index), or (images, labels) with the index then counting from 0: a DataLoader or
            any iterable. Images without augmentation, since each is seen once.
        device: where to compute; the model is moved there and stays. None: where the model is.
        progress: show a progress bar on stderr.

    Returns:
        features [N, feature] float32, labels [N, ...] and index [N] long, all on the CPU.

    Raises:
        ValueError: no batch at all, or labels or index out of step with the images.

    >>> from rankgrad.models import convnet
    >>> batches = [(torch.zeros(2, 1, 28, 28), torch.tensor([0, 1]), torch.tensor([7, 9]))]
    >>> features, labels, index = extract_features(convnet(), batches)
    >>> features.shape, labels.tolist(), index.tolist()
    (torch.Size([2, 128]), [0, 1], [7, 9])
    """
    if device is not None:
        model.to(device)
    where = next(model.parameters()).device
    if progress:
        from tqdm import tqdm

        batches = tqdm(batches, desc="features", unit="batch", leave=False)
    features: list[Tensor] = []
    labels: list[Tensor] = []
    index: list[Tensor] = []
    done = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for number, batch in enumerate(batches):
                images = batch[0]
                count = len(images)
                rows = batch[2] if len(batch) > 2 else torch.arange(done, done + count)
                if len(batch[1]) != count or len(rows) != count:
                    raise ValueError(
                        f"batch {number} holds {count} images, {len(batch[1])} labels and {len(rows)} indices; "
                        f"all three must have one row per image"
                    )
                features.append(model.features(images.to(where, non_blocking=True)).float().cpu())
                labels.append(batch[1].cpu())
                index.append(rows.cpu())
                done += count
    finally:
        model.train(was_training)
    if not features:
        raise ValueError("no batch came from the loader: is the data set empty, or smaller than one batch?")
    # clone: tensors made in inference mode could not enter a training step
    return torch.cat(features).clone(), torch.cat(labels), torch.cat(index)
