"""Poolings: a feature map or tokens -> one vector per image."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

Pooling = Literal["avg", "max", "gem", "token"]


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
    and multiply by it afterwards: the result is equal, without overflow or underflow for any p. All inputs are computed
    in float32; the result has the input's dtype. Values below eps, also negative ones, are replaced by eps and get no
    gradient.

    Args:
        p: initial exponent, > 0 (3 in the paper).
        eps: lower bound of the map's values, > 0.

    >>> round(GeM(p=2.0)(torch.tensor([[[3.0, 4.0]]])).item() ** 2, 4)     # (9 + 16) / 2
    12.5
    """

    def __init__(self, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(float(p)))
        self.eps = eps

    def forward(self, maps: Tensor) -> Tensor:
        """[image, channel, ...] -> [image, channel]."""
        values = maps.flatten(2).float().clamp(min=self.eps)
        p = self.p.float()
        largest = values.detach().amax(2, keepdim=True)  # needs no gradient: f is homogeneous of degree 1
        mean = (values / largest).pow(p).mean(2).pow(1 / p)
        return (mean * largest.squeeze(2)).to(maps.dtype)


class ChannelsLastMap(nn.Module):
    """A pooling for backbones whose map is [image, height, width, channel], such as Swin."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, maps: Tensor) -> Tensor:
        """[image, height, width, channel] -> [image, feature]."""
        return cast(Tensor, self.pool(maps.permute(0, 3, 1, 2)))


class TokenPool(nn.Module):
    """Pooling of a transformer's tokens [image, token, channel] -> [image, channel].

    Args:
        pool: pooling of the patch tokens; None: the mean of the class tokens instead.
        prefix: number of leading tokens that are not patches (class, distillation, registers).
        class_tokens: number of leading tokens that describe the image: 1, or 2 with a distillation token.
        norm: norm that the backbone applies to pooled features (timm's `fc_norm`).

    >>> tokens = torch.tensor([[[9.0], [1.0], [3.0]]])  # a class token and two patches
    >>> TokenPool(nn.AdaptiveAvgPool1d(1), prefix=1, class_tokens=1, norm=nn.Flatten())(tokens)
    tensor([[2.]])
    >>> TokenPool(None, prefix=1, class_tokens=1, norm=nn.Identity())(tokens)
    tensor([[9.]])
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


class Tokens(nn.Module):
    """A timm transformer without its own pooling: images -> tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """[image, channel, height, width] -> [image, token, feature]."""
        return cast(Tensor, self.model.forward_features(images))  # type: ignore[operator]


POOLINGS: dict[str, type[nn.Module]] = {"avg": AvgPool, "max": MaxPool, "gem": GeM}
