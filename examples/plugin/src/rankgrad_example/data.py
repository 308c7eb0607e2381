"""A data set: striped tiles that are drawn by a seed. A class is a direction and a width of the stripes."""

from __future__ import annotations

import math

import torch

from rankgrad_workbench.datasets import Table


def load_stripes(per_class: int = 12, seed: int = 0) -> Table:
    """Striped tiles of 28 x 28 pixels in 16 classes; every second class is for the test.

    Args:
        per_class: tiles of each class.
        seed: of the draw.
    """
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    images, labels = [], []
    for label in range(16):
        angle, width = math.pi * (label // 2) / 8, 3 + 3 * (label % 2)
        for phase in torch.rand(per_class, generator=g) * 2 * math.pi:
            wave = torch.sin((x * math.cos(angle) + y * math.sin(angle)) * 2 * math.pi / width + phase)
            noise = 40 * torch.randn(28, 28, generator=g)
            images.append((127 + 90 * wave + noise).clamp(0, 255).to(torch.uint8)[None])
            labels.append(label)
    return Table(
        name="stripes",
        label=torch.tensor(labels),
        class_names=tuple(f"{label // 2 * 22.5:g} degrees, {'wide' if label % 2 else 'narrow'}" for label in range(16)),
        split=tuple("train" if label // 2 % 2 == 0 else "test" for label in labels),
        names=tuple(f"{label}/{row}" for row, label in enumerate(labels)),
        channels=1,
        images=torch.stack(images),
    )
