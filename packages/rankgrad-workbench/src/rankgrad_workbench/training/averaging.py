"""Average the weights of a fine-tuned network with those that it had before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Averaging:
    r"""share * trained + (1 - share) * before, weight by weight, for the backbone of a pretrained network.

    Wortsman et al., "Robust fine-tuning of zero-shot models" (CVPR 2022, arXiv:2109.01903), equation 1. The average
    keeps what the network knew of all other images, and is usually better on classes that it has not seen. Training
    itself does not change: the weights are averaged for an evaluation and when the model is written, never in the state
    of a run.

    Args:
        module: the part whose weights are averaged. Its present weights are the ones before.
        share: of the trained weights, 0 .. 1.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> averaging = Averaging(layer, share=0.75)
    >>> with torch.no_grad():
    ...     before, trained = layer.weight.clone(), layer.weight.add_(4).clone()
    >>> with averaging.applied():
    ...     bool(torch.isclose(layer.weight, before + 3))
    True
    >>> bool(torch.equal(layer.weight, trained))
    True
    """

    def __init__(self, module: nn.Module, share: float) -> None:
        self.module, self.share = module, share
        self._before = {} if share == 1 else {name: value.clone() for name, value in _floats(module).items()}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module has the averaged weights inside the context, and the trained ones after it."""
        weights = _floats(self.module) if self._before else {}
        trained = {name: value.clone() for name, value in weights.items()}
        with torch.no_grad():
            for name, value in weights.items():
                value.copy_(torch.lerp(self._before[name].to(value), value, self.share))
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in weights.items():
                    value.copy_(trained[name])


def _floats(module: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of floating point, without a copy."""
    return {name: value for name, value in module.state_dict().items() if value.is_floating_point()}
