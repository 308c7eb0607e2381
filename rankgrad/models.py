r"""Embedding models: images -> backbone -> pooling -> head -> [image, dim] embeddings.

The embeddings are not normalised: losses and evaluation do that, each in its own precision. A model remembers the
arguments it was built from (`EmbeddingModel.config`), so a weights file is enough to build it again.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from .replacing import replacing

Head = Literal["linear", "none", "layer_norm"]
Pooling = Literal["avg", "max", "gem", "token"]

_FORMAT = "rankgrad-weights-1"


def _did_you_mean(kind: str, name: object, known: Iterable[str], limit: int = 12) -> str:
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else "."
    listed = f" Known: {', '.join(known)}" if len(known) <= limit else ""
    return f"unknown {kind} {name!r}{hint}{listed}"


# ---------------------------------------------------------------------------------------------------------- pooling


class AvgPool(nn.Module):
    """Mean over the positions of a map: [image, channel, ...] -> [image, channel].

    >>> AvgPool()(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[3.]])
    """

    def forward(self, maps: Tensor) -> Tensor:
        """[image, channel, ...] -> [image, channel]."""
        return maps.flatten(2).mean(2)


class MaxPool(nn.Module):
    """Largest value over the positions of a map: [image, channel, ...] -> [image, channel].

    >>> MaxPool()(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[6.]])
    """

    def forward(self, maps: Tensor) -> Tensor:
        """[image, channel, ...] -> [image, channel]."""
        return maps.flatten(2).amax(2)


class GeM(nn.Module):
    r"""Generalised mean over the positions x of a map, with one learnable exponent p.

        f_c = ( mean_x max(map[c, x], eps)^p )^(1/p)          p = 1: the mean; p -> infinity: the maximum

    Source: Radenovic, Tolias and Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019,
    arXiv:1711.02512, eq. 3 (one p for all channels, as they recommend). We divide by the maximum before raising to p
    and multiply afterwards: the same number, but no overflow or underflow for any p. Computed in float32 whatever
    comes in; the result has the input's dtype. Values below eps, negative ones included, count as eps and get no
    gradient.

    Args:
        p: starting exponent, > 0 (3 in the paper).
        eps: floor of the map's values, > 0.

    >>> round(GeM(p=2.0)(torch.tensor([[[3.0, 4.0]]])).item() ** 2, 4)     # (9 + 16) / 2
    12.5
    """

    def __init__(self, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        if not (p > 0 and eps > 0):
            raise ValueError(f"GeM needs an exponent p > 0 and a floor eps > 0; got p={p}, eps={eps}")
        self.p = nn.Parameter(torch.tensor(float(p)))
        self.eps = eps

    def forward(self, maps: Tensor) -> Tensor:
        """[image, channel, ...] -> [image, channel]."""
        values = maps.flatten(2).float().clamp(min=self.eps)
        p = self.p.float()
        largest = values.detach().amax(2, keepdim=True)  # a constant is enough: f is homogeneous of degree 1
        mean = (values / largest).pow(p).mean(2).pow(1 / p)
        return (mean * largest.squeeze(2)).to(maps.dtype)

    def extra_repr(self) -> str:
        """Current exponent."""
        return f"p={self.p.item():.4g}, eps={self.eps:g}"


class _ChannelsLastMap(nn.Module):
    """A pooling for backbones whose map is [image, height, width, channel] (Swin and its kin)."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.pool(maps.permute(0, 3, 1, 2)))


class TokenPool(nn.Module):
    """Pooling of a transformer's tokens [image, token, channel] -> [image, channel].

    Args:
        pool: pooling of the patch tokens; None takes the mean of the class tokens instead.
        prefix: leading tokens that are no patches (class, distillation, registers).
        class_tokens: how many of them, from the front, describe the image: 1, or 2 with a distillation token.
        norm: what the backbone applies to pooled features (timm's `fc_norm`).
    """

    def __init__(self, pool: nn.Module | None, prefix: int, class_tokens: int, norm: nn.Module) -> None:
        super().__init__()
        self.pool, self.norm = pool, norm
        self.prefix, self.class_tokens = prefix, class_tokens

    def forward(self, tokens: Tensor) -> Tensor:
        """[image, token, channel] -> [image, channel]."""
        if self.pool is None:
            pooled = tokens[:, : self.class_tokens].mean(1)
        else:
            pooled = self.pool(tokens[:, self.prefix :].transpose(1, 2))
        return cast(Tensor, self.norm(pooled))

    def extra_repr(self) -> str:
        """Number of tokens of each kind."""
        return f"prefix={self.prefix}, class_tokens={self.class_tokens}"


class _Tokens(nn.Module):
    """A timm transformer stopped before its own pooling: images -> tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.model.forward_features(images))  # type: ignore[operator]


_POOLINGS: dict[str, type[nn.Module]] = {"avg": AvgPool, "max": MaxPool, "gem": GeM}


# ------------------------------------------------------------------------------------------------------------ heads


class EmbeddingHead(nn.Module):
    """Features [image, feature] -> embeddings [image, dim], not normalised.

    Args:
        feature_size: size of the features that come in.
        embedding_size: dim; None keeps `feature_size`.
        head: "linear" (one affine map), "layer_norm" (layer norm without scale and shift, then the affine map:
            ROADMAP's recipe on CUB), "none" (features as they are; embedding_size must then be None or feature_size).

    Raises:
        ValueError: unknown head, or "none" with another size than the features have.

    >>> EmbeddingHead(64, 16, head="layer_norm")(torch.randn(2, 64)).shape
    torch.Size([2, 16])
    """

    def __init__(self, feature_size: int, embedding_size: int | None = 128, head: Head = "linear") -> None:
        super().__init__()
        size = feature_size if embedding_size is None else embedding_size
        if size < 1:
            raise ValueError(f"embedding_size must be >= 1 or None (the backbone's own size); got {embedding_size}")
        self.feature_size, self.embedding_size, self.kind = feature_size, size, head
        self.layers: nn.Module
        if head == "none":
            if size != feature_size:
                raise ValueError(
                    f"head 'none' keeps the {feature_size} features of the backbone, but embedding_size={size} was "
                    f"asked for; give embedding_size=None, or head='linear'"
                )
            self.layers = nn.Identity()
        elif head == "linear":
            self.layers = nn.Linear(feature_size, size)
        elif head == "layer_norm":
            norm = nn.LayerNorm(feature_size, elementwise_affine=False)
            self.layers = nn.Sequential(norm, nn.Linear(feature_size, size))
        else:
            raise ValueError(_did_you_mean("head", head, ("linear", "none", "layer_norm")))

    def forward(self, features: Tensor) -> Tensor:
        """[image, feature] -> [image, dim]."""
        if features.ndim != 2 or features.shape[1] != self.feature_size:
            raise ValueError(f"the head needs features [image, {self.feature_size}]; got {list(features.shape)}")
        return cast(Tensor, self.layers(features))


def head_only(feature_size: int, embedding_size: int | None = 128, head: Head = "linear") -> EmbeddingHead:
    """A head to train on features from `extract_features`; `EmbeddingModel.with_head` puts it back on the model.

    See `EmbeddingHead` for the arguments.

    >>> head_only(64, 8)(torch.randn(5, 64)).shape
    torch.Size([5, 8])
    """
    return EmbeddingHead(feature_size, embedding_size, head)


# ------------------------------------------------------------------------------------------------------------ model


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
        """The same backbone and pooling (shared, not copied) under another head, such as one from `head_only`.

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


def convnet(
    in_channels: int = 1,
    widths: Sequence[int] = (32, 64, 64, 128),
    embedding_size: int | None = 128,
    *,
    head: Head = "linear",
    pooling: Literal["avg", "max", "gem"] = "avg",
    freeze_batch_norm: bool = False,
) -> EmbeddingModel:
    """A small convnet for small images: conv3x3 - batch norm - ReLU - maxpool2 for each width, pooled, then a head.

    With the default four widths a 28 x 28 image ends as a 1 x 1 map; larger images are pooled to one. 180 k
    parameters; 114 k with `widths=(16, 32, 64, 128)`.

    Args:
        in_channels: channels of an image.
        widths: channels after each block; each block halves height and width.
        embedding_size: dim of the embeddings; None keeps the last width (with head "none" or a square linear map).
        head: see `EmbeddingHead`.
        pooling: "avg", "max" or "gem" of the last map.
        freeze_batch_norm: see `EmbeddingModel`; of use only with loaded weights.

    Raises:
        ValueError: no width, a width below 1, an unknown pooling or head.

    >>> model = convnet(widths=(16, 32, 64, 128))
    >>> sum(p.numel() for p in model.parameters())
    113904
    """
    widths = tuple(int(width) for width in widths)
    if not widths or min(widths) < 1 or in_channels < 1:
        raise ValueError(f"convnet needs in_channels >= 1 and widths >= 1; got {in_channels} and {widths}")
    if pooling not in _POOLINGS:
        raise ValueError(_did_you_mean("pooling", pooling, _POOLINGS))
    blocks = [
        nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False),  # batch norm brings the shift
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        for before, after in zip((in_channels, *widths), widths, strict=False)
    ]
    return EmbeddingModel(
        nn.Sequential(*blocks),
        _POOLINGS[pooling](),
        EmbeddingHead(widths[-1], embedding_size, head),
        in_channels,
        smallest=2 ** len(widths),
        freeze_batch_norm=freeze_batch_norm,
        config={
            "kind": "convnet",
            "in_channels": in_channels,
            "widths": list(widths),
            "embedding_size": embedding_size,
            "head": head,
            "pooling": pooling,
            "freeze_batch_norm": freeze_batch_norm,
        },
    )


def timm_model(
    name: str,
    in_channels: int = 3,
    embedding_size: int | None = 512,
    *,
    pooling: Pooling = "avg",
    head: Head = "linear",
    pretrained: bool = False,
    weights: str | os.PathLike[str] | None = None,
    freeze_batch_norm: bool = False,
    drop_rate: float = 0.0,
    drop_path_rate: float = 0.0,
    image_size: int | None = None,
) -> EmbeddingModel:
    """Any image backbone of timm by name, with our pooling and head.

    Transformers without a spatial map pool their patch tokens with "avg" or "max"; "token" takes the class token
    (the mean of class and distillation token where there are both, as DeiT does at test time). GeM needs a spatial
    map, whose values are mostly positive; on tokens it is refused.

    Args:
        name: timm's name, such as "resnet50" or "deit_small_distilled_patch16_224" (`timm.list_models()`).
        in_channels: channels of an image; timm adapts its own pretrained weights, a local file must fit.
        embedding_size: dim of the embeddings; None is the backbone's own size.
        pooling: "avg", "max", "gem" or, for transformers with a class token, "token".
        head: see `EmbeddingHead`.
        pretrained: download timm's weights. Needs the network.
        weights: local .pth, .pt or .safetensors file of the backbone: a state dict, or a training checkpoint that
            holds one as `state_dict` or `model` (the averaged copy is preferred), read without unpickling code. The
            classifier's keys, named by timm's own configuration of the backbone (`fc.*` of a resnet), are left out,
            because the model has none; every other key must fit.
        freeze_batch_norm: see `EmbeddingModel`.
        drop_rate: dropout inside the backbone.
        drop_path_rate: stochastic depth inside the backbone.
        image_size: side in pixels for backbones of a fixed size, when it is not timm's default.

    Raises:
        ValueError: unknown name or option, a pooling that the backbone has no tokens or map for, both `pretrained`
            and `weights`, weights that do not fit.
        FileNotFoundError: no file at `weights`.

    >>> model = timm_model("resnet18", in_channels=1, embedding_size=64, pooling="gem")
    >>> model(torch.zeros(2, 1, 32, 32)).shape, model.feature_size
    (torch.Size([2, 64]), 512)
    """
    import timm

    if pooling not in (*_POOLINGS, "token"):
        raise ValueError(_did_you_mean("pooling", pooling, (*_POOLINGS, "token")))
    if pretrained and weights is not None:
        raise ValueError("give pretrained=True (timm's weights) or weights=FILE (yours), not both")
    if not timm.is_model(name):
        raise ValueError(_did_you_mean("timm model", name, timm.list_models()))
    defaults = timm.get_pretrained_cfg(name, allow_unregistered=True)
    # timm gives a pool size to backbones that end in a map; the others end in tokens and keep their own last norm.
    has_map = defaults is None or defaults.pool_size is not None
    if not has_map and pooling == "gem":
        raise ValueError(
            f"pooling 'gem' needs a spatial map, but {name!r} ends in tokens; use 'avg' or 'max' of the patch tokens, "
            f"or 'token' for the class token"
        )
    if has_map and pooling == "token":
        raise ValueError(f"pooling 'token' needs a class token, but {name!r} ends in a map; use 'avg', 'max' or 'gem'")

    options: dict[str, Any] = {"global_pool": ""} if has_map else {}
    options |= {"drop_rate": drop_rate} if drop_rate else {}
    options |= {"drop_path_rate": drop_path_rate} if drop_path_rate else {}
    options |= {"img_size": image_size} if image_size is not None else {}
    try:
        backbone = timm.create_model(name, pretrained=pretrained, in_chans=in_channels, num_classes=0, **options)
    except TypeError as error:
        given = ", ".join(f"{key}={value}" for key, value in options.items() if key != "global_pool")
        raise ValueError(f"{name!r} does not take every one of these options: {given or 'none'} ({error})") from error
    if weights is not None:
        _load_backbone(backbone, name, Path(weights))

    pool: nn.Module
    if has_map:
        pool = _POOLINGS[pooling]()
        if str(getattr(backbone, "output_fmt", "NCHW")) == "NHWC":
            pool = _ChannelsLastMap(pool)
    else:
        prefix = int(getattr(backbone, "num_prefix_tokens", 0))
        if pooling == "token" and prefix == 0:
            raise ValueError(f"{name!r} has no class token; use pooling 'avg' or 'max' of its patch tokens")
        # The norm moves with the pooling it follows. Taken after loading: in a file it is called fc_norm.
        norm = getattr(backbone, "fc_norm", None) or nn.Identity()
        if hasattr(backbone, "fc_norm"):
            backbone.fc_norm = nn.Identity()
        inner = None if pooling == "token" else _POOLINGS[pooling]()
        pool = TokenPool(inner, prefix, 2 if hasattr(backbone, "head_dist") and prefix > 1 else 1, norm)

    exact_size: tuple[int, int] | None = None
    if defaults is not None and defaults.fixed_input_size:
        _, height, width = defaults.input_size
        exact_size = (image_size, image_size) if image_size is not None else (height, width)
    feature_size = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    model = EmbeddingModel(
        backbone if has_map else _Tokens(backbone),
        pool,
        EmbeddingHead(int(cast(int, feature_size)), embedding_size, head),
        in_channels,
        image_size=exact_size,
        freeze_batch_norm=freeze_batch_norm,
        config={
            "kind": "timm",
            "name": name,
            "in_channels": in_channels,
            "embedding_size": embedding_size,
            "pooling": pooling,
            "head": head,
            "freeze_batch_norm": freeze_batch_norm,
            "drop_rate": drop_rate,
            "drop_path_rate": drop_path_rate,
            "image_size": image_size,
        },
    )
    if defaults is not None and (pretrained or weights is not None):
        mean, std = list(defaults.mean), list(defaults.std)
        if in_channels != len(mean):  # timm sums or repeats the first layer's filters: the channels become alike
            mean, std = [sum(mean) / len(mean)] * in_channels, [sum(std) / len(std)] * in_channels
        model.pixel_mean, model.pixel_std = tuple(mean), tuple(std)
    return model


MODELS: dict[str, Callable[..., EmbeddingModel]] = {"convnet": convnet, "timm": timm_model}


def build_model(kind: str, /, **options: Any) -> EmbeddingModel:
    """The model of `MODELS[kind]` with these options, misspelt ones refused with a suggestion.

    Args:
        kind: a key of `MODELS`.
        options: keyword arguments of that function.

    Raises:
        ValueError: unknown kind or option, or whatever the function itself refuses.

    >>> build_model("convnet", widths=(8, 8), embedding_size=3).embedding_size
    3
    >>> build_model("convnet", width=(8, 8))
    Traceback (most recent call last):
    ValueError: unknown option of model 'convnet' 'width'; did you mean 'widths'? Known: embedding_size, ...
    """
    if kind not in MODELS:
        raise ValueError(_did_you_mean("model", kind, MODELS))
    known = inspect.signature(MODELS[kind]).parameters
    for option in options:
        if option not in known:
            raise ValueError(_did_you_mean(f"option of model {kind!r}", option, known))
    missing = [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in options]
    if missing:
        raise ValueError(f"model {kind!r} needs {', '.join(missing)}")
    return MODELS[kind](**options)


# --------------------------------------------------------------------------------------------------------- training


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


# ------------------------------------------------------------------------------------------------------------ files


def _sample(keys: Iterable[str]) -> str:
    keys = list(keys)
    return ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")


def _misfits(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """Sentences on what differs between a model's state and a file's, empty if they fit."""
    shapes = [
        f"{key} is {list(found[key].shape)} in the file and {list(expected[key].shape)} in the model"
        for key in expected
        if key in found and found[key].shape != expected[key].shape
    ]
    missing = [key for key in expected if key not in found]
    surplus = [key for key in found if key not in expected]
    sentences = shapes[:4] + ([f"{len(shapes) - 4} more differ in shape"] if len(shapes) > 4 else [])
    if missing:
        sentences.append(f"{len(missing)} missing in the file: {_sample(missing)}")
    if surplus:
        sentences.append(f"{len(surplus)} unknown to the model: {_sample(surplus)}")
    return sentences


def _load_backbone(backbone: nn.Module, name: str, path: Path) -> None:
    """Load a local weights file into a timm backbone; see `timm_model` for what is left out."""
    from timm.models import load_state_dict

    if not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    try:
        found = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # torch, pickle, zip and safetensors each raise their own
        raise ValueError(f"{path} is no weights file that can be read safely: {error}") from error
    if not all(isinstance(value, Tensor) for value in found.values()):
        other = _sample(str(key) for key, value in found.items() if not isinstance(value, Tensor))
        raise ValueError(
            f"{path} holds no state dict of a backbone (not tensors: {other}); a file from rankgrad is "
            f"read by rankgrad.models.load_weights"
        )
    classifier = cast(Any, backbone).pretrained_cfg.get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    found = {key: value for key, value in found.items() if not key.startswith(tuple(f"{head}." for head in heads))}
    misfits = _misfits(backbone.state_dict(), found)
    if misfits:
        raise ValueError(f"{path} does not fit the backbone {name!r}: {'; '.join(misfits)}")
    backbone.load_state_dict(found)


def _check_plain(value: object, where: str) -> None:
    """Raise unless `value` consists of what `torch.load(weights_only=True)` reads back."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if type(value) in (list, tuple):
        for position, item in enumerate(cast(Sequence[object], value)):
            _check_plain(item, f"{where}[{position}]")
    elif type(value) is dict:
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys must be strings")
            _check_plain(item, f"{where}[{key!r}]")
    else:
        raise TypeError(
            f"{where} is a {type(value).__name__}; a weights file takes None, bool, int, float, str, list, tuple "
            f"and dict only (OmegaConf: OmegaConf.to_container(config, resolve=True))"
        )


def save_weights(path: str | os.PathLike[str], model: EmbeddingModel, config: Mapping[str, Any] | None = None) -> Path:
    """Write a model's weights, the arguments that build it and your own `config` to one file, atomically.

    A reader sees the old file or the new one, never half of one, whenever the process dies: the file is written
    beside its place, flushed to disk and renamed. Plain tensors and plain Python values, so
    `torch.load(path, weights_only=True)` reads it without rankgrad.

    Args:
        path: file to write, replaced if it is there; its folder must exist.
        model: built by `convnet`, `timm_model` or `build_model` (it then knows its own `config`).
        config: anything to keep beside the weights (data set, image size, class names): plain values and containers.

    Returns:
        The path written.

    Raises:
        ValueError: the model does not know what it was built from.
        TypeError: `config` holds something that is not plain.
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if model.config is None:
        raise ValueError("the model has no config to build it from; build it with rankgrad.models.build_model")
    extra = {} if config is None else dict(config)
    _check_plain(extra, "config")
    _check_plain(model.config, "model.config")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    record = {
        "format": _FORMAT,
        "model": model.config,
        "pixels": {"mean": list(model.pixel_mean), "std": list(model.pixel_std)},
        "config": extra,
        "state_dict": model.state_dict(),
    }
    with replacing(path) as temporary:
        torch.save(record, temporary)
    return path


def load_weights(
    path: str | os.PathLike[str], model: EmbeddingModel | None = None
) -> tuple[EmbeddingModel, dict[str, Any]]:
    """Build a model from a file of `save_weights`, on the CPU and in eval mode; or load it into a model you have.

    Args:
        path: the file.
        model: load into this model, whose mode and device stay; None builds the model the file describes.

    Returns:
        The model, and the `config` that was saved beside it.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file, or one of another model: the message says which layers differ.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save_weights(folder + "/weights.pt", convnet(widths=(8, 8)), {"data": "glyphs"})
    ...     model, config = load_weights(file)
    >>> model.config["widths"], config
    ([8, 8], {'data': 'glyphs'})
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}")
    try:
        record = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle and zip each raise their own
        raise ValueError(f"{path} is no weights file of rankgrad, or it is damaged: {error}") from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError(
            f"{path} was not written by rankgrad.models.save_weights (or by another version of it); the weights of "
            f"a timm backbone go into timm_model(weights=...)"
        )
    state = record["state_dict"]
    built = model is None
    if model is None:
        options = dict(record["model"])
        model = build_model(options.pop("kind"), **options)
        stated = f"{path} does not fit the model that it describes"
    else:
        stated = f"{path} holds another model"
    misfits = _misfits(model.state_dict(), state)
    if misfits:
        size = _embedding_size(state, record["model"])
        if size is not None and size != model.embedding_size:
            misfits.insert(0, f"checkpoint holds {size}-d embeddings but the model has {model.embedding_size}-d")
        raise ValueError(f"{stated}: {'; '.join(misfits)}")
    model.load_state_dict(state)
    model.pixel_mean, model.pixel_std = tuple(record["pixels"]["mean"]), tuple(record["pixels"]["std"])
    return (model.eval() if built else model), record["config"]


def _embedding_size(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> int | None:
    """Dim of the embeddings in a file: the last weight of the head, or what the config says."""
    weights = [value for key, value in state.items() if key.startswith("head.") and value.ndim == 2]
    return len(weights[-1]) if weights else config.get("embedding_size")
