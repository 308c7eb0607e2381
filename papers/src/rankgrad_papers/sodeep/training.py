"""Training of a sorter on drawn lists."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from rankgrad.common.progress import bar
from rankgrad.ranks import blackbox_rank
from rankgrad.ranks.types import Mask

from .networks import Sorter, architecture_of

Draw = Callable[[int, int, Generator], Tensor]


def _uniform(rows: int, items: int, g: Generator) -> Tensor:
    return 2 * torch.rand(rows, items, generator=g) - 1


def _normal(rows: int, items: int, g: Generator) -> Tensor:
    return torch.randn(rows, items, generator=g)


def _even(rows: int, items: int, g: Generator) -> Tensor:
    """Evenly spaced from a to b, increasing or decreasing."""
    ends = torch.rand(2, rows, 1, generator=g)
    return torch.lerp(ends[0], ends[1], torch.linspace(0, 1, items))


def _shuffled(rows: int, items: int, g: Generator) -> Tensor:
    return _even(rows, items, g).gather(1, torch.rand(rows, items, generator=g).argsort(1))


def _rising(rows: int, items: int, g: Generator) -> Tensor:
    return torch.linspace(-1, 1, items).expand(rows, items)


@dataclass(frozen=True)
class _Joined:
    """One kind up to a random position, another kind after it."""

    first: Draw
    second: Draw

    def __call__(self, rows: int, items: int, g: Generator) -> Tensor:
        split = torch.randint(1, items, (rows, 1), generator=g)
        return torch.where(torch.arange(items) < split, self.first(rows, items, g), self.second(rows, items, g))


def _few_above(rows: int, items: int, g: Generator) -> Tensor:
    """Many close scores and a few far above them, as in a list of a trained retrieval model."""
    crowd = 0.15 * torch.randn(rows, items, generator=g)
    few = torch.rand(rows, items, generator=g) < torch.rand(rows, 1, generator=g) / 4
    return torch.where(few, 0.6 + 0.2 * torch.randn(rows, items, generator=g), crowd)


# The training data: kind -> (proportion, function that draws it). The paper's kinds, and the last, which is ours.
KINDS: dict[str, tuple[float, Draw]] = {
    "uniform": (2, _uniform),
    "normal": (1, _normal),
    "even, sorted": (1, _even),
    "even, shuffled": (1, _shuffled),
    "rising from -1 to 1": (1, _rising),
    "uniform | normal": (2, _Joined(_uniform, _normal)),
    "uniform | uniform": (1, _Joined(_uniform, _uniform)),
    "even, shuffled | uniform": (1, _Joined(_shuffled, _uniform)),
    "few above a crowd": (2, _few_above),
}


def draw(rows: int, items: int, generator: Generator) -> Tensor:
    """[row, item] vectors of all `KINDS`, in their proportions."""
    shares = torch.tensor([share for share, _ in KINDS.values()], dtype=torch.float64)
    chosen = torch.multinomial(shares, rows, replacement=True, generator=generator)
    counts = torch.bincount(chosen, minlength=len(KINDS)).tolist()
    makers = [make for _, make in KINDS.values()]
    return torch.cat([make(count, items, generator) for make, count in zip(makers, counts, strict=True) if count])


def draw_valid(rows: int, items: int, generator: Generator) -> Mask:
    """[row, item] bool: an eighth of the rows lack one item, an eighth end early. Each row has at least two items."""
    kind = torch.rand(rows, 1, generator=generator)
    one = torch.randint(items, (rows, 1), generator=generator)
    end = torch.randint(2, items + 1, (rows, 1), generator=generator)
    place = torch.arange(items)
    lacks_one = (kind < 1 / 8) & (place == one) & (items > 2)
    ends_early = (kind > 7 / 8) & (place >= end)
    return ~(lacks_one | ends_early)


@dataclass(frozen=True)
class Recipe:
    """The settings of a sorter and of its training. The same recipe gives the same sorter on the same machine.

    Args:
        items: length of the lists. The default architecture has about 64 items^2 weights.
        architecture: one of `ARCHITECTURES`.
        steps: of Adam, with a cosine schedule.
        batch_size: vectors drawn for each.
        lr: learning rate at the start; it falls to 0.
        seed: of weights and vectors.
    """

    items: int = 20
    architecture: str = "lstm_small"
    steps: int = 3000
    batch_size: int = 32
    lr: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        architecture_of(self.items, self.architecture)
        if self.steps < 1 or self.batch_size < 1 or not self.lr > 0:
            raise ValueError(f"steps and batch_size must be >= 1 and lr > 0; got {self!r}")


def train_sorter(recipe: Recipe, *, progress: bool = True) -> Sorter:
    """Train a sorter on random vectors: minimise the mean |rank by the network - exact rank|.

    Args:
        recipe: settings of the sorter and of its training.
        progress: show a progress bar.

    Returns:
        The sorter, without gradients of its weights. The global generator of torch is not changed.
    """
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        sorter = Sorter(recipe.items, recipe.architecture)
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizer = torch.optim.Adam(sorter.parameters(), lr=recipe.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps)
    for _ in _shown(range(recipe.steps), f"training a sorter of {recipe.items} items", progress):
        with torch.enable_grad():
            error = _error(sorter, recipe.batch_size, generator)
            optimizer.zero_grad()
            error.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(sorter.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    sorter.requires_grad_(False).eval()
    generator.manual_seed(recipe.seed + 1)
    error = _error(sorter, 1024, generator) * recipe.items
    sorter.facts = {"steps": recipe.steps, "seconds": time.perf_counter() - started, "error": float(error)}
    return sorter


def _error(sorter: Sorter, rows: int, generator: Generator) -> Tensor:
    """Mean distance to the exact rank, as a fraction of the length of the sorter's lists."""
    scores, valid = draw(rows, sorter.items, generator), draw_valid(rows, sorter.items, generator)
    exact = blackbox_rank(scores.masked_fill(~valid, -torch.inf), 1.0)
    ranks: Tensor = sorter(scores, valid)
    return (ranks - exact)[valid].abs().mean() / sorter.items


def _shown(numbers: Iterable[int], what: str, show: bool) -> Iterable[int]:
    if show and importlib.util.find_spec("tqdm") is not None:
        numbers = bar(numbers, desc=what, unit="step")
    return numbers
