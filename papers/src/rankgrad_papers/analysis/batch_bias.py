r"""RaMBO, Fig. 2: mean average precision inside random batches is higher than that of the whole set.

Construction [ours, the paper gives none]: N items with uniformly random labels of C classes, one list per class. The
score of item i for class c is N(0, 1) + signal [label_i = c]. A batch is a random set of items; its mAP is over the
classes in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.common.text import aligned
from rankgrad.metrics import mean_average_precision

from .. import figure_style as style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class BatchBias:
    """mAP of batches against their size.

    Attributes:
        sizes: batch sizes.
        values: [size, batch] float64, mAP of each random batch.
        full: mAP of the whole set.
        items: its size.
        classes: number of lists.
    """

    sizes: tuple[int, ...]
    values: Tensor
    full: float
    items: int
    classes: int

    @property
    def means(self) -> Tensor:
        """[size] mean over the batches."""
        return self.values.mean(1)

    @property
    def spreads(self) -> Tensor:
        """[size] standard deviation over the batches."""
        return self.values.std(1)

    def __str__(self) -> str:
        """Mean and spread for each size."""
        rows = [
            (str(size), f"{mean:.3f} ± {spread:.3f}")
            for size, mean, spread in zip(self.sizes, self.means.tolist(), self.spreads.tolist(), strict=True)
        ]
        return "\n".join([aligned(rows, left=0), f"all {self.items}: {self.full:.3f}"])


def compute(
    sizes: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    *,
    items: int = 4000,
    classes: int = 20,
    signal: float = 1.5,
    batches: int = 40,
    seed: int = 0,
) -> BatchBias:
    """Draw a set and random batches of it.

    Args:
        sizes: batch sizes, at most `items`.
        items: N.
        classes: C.
        signal: added to the score of an item for its own class, in units of the noise.
        batches: per size, >= 2.
        seed: of all random numbers.

    >>> result = compute([16, 64], items=400, classes=10)
    >>> bool(result.means[0] > result.means[1] > result.full)
    True
    """
    if not sizes or min(sizes) < 1 or max(sizes) > items:
        raise ValueError(f"batch sizes must lie in 1 .. {items}, the size of the set; got {list(sizes)}")
    if batches < 2:
        raise ValueError(f"a spread needs at least 2 batches per size; got {batches}")
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (items,), generator=g)
    own = F.one_hot(labels, classes).T
    scores = torch.randn(classes, items, generator=g, dtype=torch.float64) + signal * own
    relevant = own.bool()

    def value(columns: Tensor) -> Tensor:
        return mean_average_precision(scores[:, columns], relevant[:, columns])

    values = [[value(torch.randperm(items, generator=g)[:size]) for _ in range(batches)] for size in sizes]
    full = float(value(torch.arange(items)))
    return BatchBias(tuple(sizes), torch.tensor(values, dtype=torch.float64), full, items, classes)


@style.styled
def draw(results: BatchBias) -> Figure:
    """Mean and spread against the batch size, with the value of the whole set as a line."""
    drawing = style.figure(style.ONE, 2.3)
    axes = drawing.subplots()
    means, spreads = results.means, results.spreads
    axes.axhline(results.full, color=style.BLACK, linewidth=1, linestyle="--")
    axes.annotate(
        f"all {results.items} items: {results.full:.3f}",
        (results.sizes[0], results.full),
        (0, -4),
        textcoords="offset points",
        va="top",
    )
    axes.fill_between(results.sizes, means - spreads, means + spreads, color=style.BLUE, alpha=0.18, linewidth=0)
    label = f"mean of {results.values.shape[1]} batches ± std"
    axes.plot(results.sizes, means, "o-", color=style.BLUE, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(results.sizes, [str(size) for size in results.sizes])
    axes.minorticks_off()
    axes.set(xlabel="batch size", ylabel="mAP inside the batch")
    axes.margins(y=0.14)
    axes.legend(loc="upper right")
    return drawing
