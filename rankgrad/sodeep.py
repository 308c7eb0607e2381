r"""SoDeep: ranks by a network that was trained to sort (Engilberge et al., CVPR 2019, arXiv:1904.04272).

A recurrent network reads the scores of a list one after the other, twice, and says the rank of each. It is trained
once, on drawn vectors whose ranks are known, and then stays as it is: differentiable ranks, with the gradient of the
network. `Learned(sorter)` makes ranks of the relevant items of it, for any `RankLoss`; `SpearmanLoss(ranks=sorter)`
takes the ranks of all items.

What differs from the paper: a list is first mapped to [-1, 1] by its own least and largest score (ranks do not change
under such a map, and now the network's do not either); a quarter of the lists drawn have absent items, so that lists
with a `valid` mask and shorter ones are no surprise; and the default network is small enough for minutes on a CPU. No
weights are shipped: `load_sorter` trains and keeps them.

What it costs, and how far off its ranks are, is in docs/sodeep.md. It depends on the order of the items: the same list
in another order has slightly other ranks.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from .metrics import spearman
from .ranks import blackbox_rank, computed, exact_ranks
from .replacing import replacing
from .types import Mask, Ranks, Scores

# ---------------------------------------------------------------------------------------------------------- networks


@dataclass(frozen=True)
class Architecture:
    """How a sorter is built.

    Attributes:
        cell: the recurrent network that reads the list in both directions; None: hidden layers of all scores at once.
        hidden: width of a direction, or of a hidden layer.
        layers: how many.
        mixes: the rank of an item is read off the states at all positions, by weights for each pair of positions, so
            that the list has a fixed length; otherwise it is the sum of the states at its own.
        squashed: a sigmoid at the end.
    """

    cell: Literal["lstm", "gru"] | None
    hidden: int
    layers: int
    mixes: bool
    squashed: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    "lstm_small": Architecture("lstm", 32, 2, mixes=True),  # ours: the paper's, narrow enough for a CPU
    "lstm": Architecture("lstm", 128, 2, mixes=True),
    "lstmla": Architecture("lstm", 512, 2, mixes=True),  # the paper's default
    "grup": Architecture("gru", 128, 6, mixes=True, squashed=True),
    "gruc": Architecture("gru", 32, 6, mixes=False, squashed=True),
    "grus": Architecture("gru", 4, 1, mixes=False),
    "mlp": Architecture(None, 2048, 2, mixes=True),
}

# Where absent items are put: below all scores, which lie in [-1, 1].
ABSENT = -1.5


def _plan(items: int, architecture: str) -> Architecture:
    if isinstance(items, bool) or not isinstance(items, int) or items < 2:
        raise ValueError(f"items is the length of the lists to be sorted, an integer >= 2; got {items!r}")
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}. Known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[architecture]


class Sorter(nn.Module):
    r"""A network from scores to ranks, trained by `train_sorter`.

    Args:
        items: length of the lists that it is for. Shorter ones are filled up with absent items.
        architecture: one of `ARCHITECTURES`.

    Attributes:
        facts: what is known of its training: "steps", "seconds", "error" (mean distance to the exact rank on vectors
            not trained on, in ranks).
    """

    def __init__(self, items: int = 20, architecture: str = "lstm_small") -> None:
        super().__init__()
        self.plan = plan = _plan(items, architecture)
        self.items, self.architecture = items, architecture
        self.facts: dict[str, float] = {}
        self.recurrent: nn.LSTM | nn.GRU | None = None
        if plan.cell is None:
            widths = [items] + [plan.hidden] * plan.layers
            layers: list[nn.Module] = []
            for before, after in zip(widths, widths[1:], strict=False):
                layers += [nn.Linear(before, after), nn.ReLU()]
            self.head: nn.Module = nn.Sequential(*layers, nn.Linear(plan.hidden, items))
            return
        kind = nn.LSTM if plan.cell == "lstm" else nn.GRU
        self.recurrent = kind(1, plan.hidden, plan.layers, batch_first=True, bidirectional=True)
        # a convolution over all states with a channel for each position, in the paper's words
        self.head = nn.Linear(items * 2 * plan.hidden, items) if plan.mixes else nn.Identity()

    def forward(self, scores: Scores, valid: Mask | None = None) -> Tensor:
        """Ranks of every item of every list.

        Args:
            scores: [list, item] float, at most `items` items unless the architecture takes any number.
            valid: [list, item] bool; absent items stand below all others, and get rank 0 here.

        Returns:
            [list, item] ranks, about 1 (largest score) .. n, not whole numbers; float32, float64 for float64 scores.

        Raises:
            ValueError: too many items.
        """
        if scores.dim() != 2 or not scores.is_floating_point():
            raise ValueError(f"scores must be a float tensor [list, item]; got {scores.dtype} {tuple(scores.shape)}")
        columns = scores.shape[1]
        if self.plan.mixes and columns > self.items:
            raise ValueError(
                f"this sorter ranks lists of at most {self.items} items, and these have {columns}: its weights belong "
                f"to positions. Train one for them, sodeep.load_sorter(items={columns}); take an architecture that has "
                f"no length ({', '.join(n for n, a in ARCHITECTURES.items() if not a.mixes)}); or use blackbox ranks, "
                "which are exact at any length"
            )
        wide = computed(scores)
        rows = unit_range(wide, valid).to(next(self.parameters()).dtype)
        if self.plan.mixes and columns < self.items:
            rows = nn.functional.pad(rows, (0, self.items - columns), value=ABSENT)
        share = self._share(rows)[:, :columns]
        ranks = (share * rows.shape[1]).to(wide.dtype)
        return ranks if valid is None else ranks.masked_fill(~valid, 0)

    def _share(self, rows: Tensor) -> Tensor:
        """[list, item] rank / n, from scores in [-1, 1]."""
        if self.recurrent is None:
            share: Tensor = self.head(rows)
        elif not len(rows) or not rows.shape[1]:  # recurrent networks refuse lists of nothing
            return rows
        else:
            states = self.recurrent(rows.unsqueeze(2))[0]
            share = self.head(states.flatten(1)) if self.plan.mixes else states.sum(2)
        return share.sigmoid() if self.plan.squashed else share

    def train(self, mode: bool = True) -> Sorter:
        """As usual, but for the recurrent part: on a GPU cuDNN has a gradient in training mode only.

        Without dropout or batch norm the two modes compute the same.
        """
        super().train(mode)
        if self.recurrent is not None:
            self.recurrent.train()
        return self

    def __repr__(self) -> str:
        return f"Sorter(items={self.items}, architecture={self.architecture!r})"


def unit_range(scores: Scores, valid: Mask | None = None) -> Scores:
    """Lists mapped to [-1, 1] by their least and largest valid score; absent items are put at `ABSENT`.

    >>> unit_range(torch.tensor([[3.0, 5.0, 4.0], [7.0, 7.0, 7.0]]))
    tensor([[-1.,  1.,  0.],
            [-1., -1., -1.]])
    """
    if not scores.shape[1]:
        return scores
    if valid is None:
        low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    else:
        low = scores.masked_fill(~valid, torch.inf).amin(1, keepdim=True)
        high = scores.masked_fill(~valid, -torch.inf).amax(1, keepdim=True)
    differ = high > low  # neither in a list of one item nor in an empty one
    low, span = torch.where(differ, low, scores), torch.where(differ, high - low, 1)
    rows = 2 * (scores - low) / span - 1
    return rows if valid is None else rows.masked_fill(~valid, ABSENT)


class Learned(nn.Module):
    r"""Ranks of the relevant items by a sorter, for `RankLoss`; see `ranks.Soft`, `ranks.Blackbox` for other ranks.

        above_neg_i = max(0, rank_i - 1 - above_pos_i)
    with rank_i of the sorter among all valid items, and above_pos_i, the items of at least its gain above it, exact and
    without gradient, as in RaMBO and SupAP. (Ours; the paper sums the ranks of relevant items and has no AP.) Ranks of
    a network may contradict one another; where rank_i is less than the exact count allows, nothing is above, and
    there is no gradient.

    Args:
        sorter: (scores, valid) -> [query, item] ranks, from `load_sorter`.

    >>> exact = Learned(lambda scores, valid: blackbox_rank(scores, 1.0))  # anything that ranks
    >>> exact(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, True]])).rank
    tensor([2., 3.])
    """

    def __init__(self, sorter: Callable[[Scores, Mask | None], Tensor]) -> None:
        super().__init__()
        self.sorter = sorter

    def forward(self, scores: Scores, relevant: Tensor, valid: Mask | None = None) -> Ranks:
        """Ranks of the relevant items of a batch of lists."""
        exact = exact_ranks(scores, relevant, valid, ties="index")
        rank = self.sorter(scores, valid)[exact.query, exact.item]
        above_pos = exact.above_pos.to(rank.dtype)
        above_gain = None if exact.above_gain is None else exact.above_gain.to(rank.dtype)
        above_neg = (rank - 1 - above_pos).clamp(min=0)
        return replace(exact, above_pos=above_pos, above_neg=above_neg, above_gain=above_gain)

    def __repr__(self) -> str:
        return f"Learned({self.sorter!r})"


# ---------------------------------------------------------------------------------------- vectors of known ranks

Draw = Callable[[int, int, Generator], Tensor]


def _uniform(rows: int, items: int, g: Generator) -> Tensor:
    return 2 * torch.rand(rows, items, generator=g) - 1


def _normal(rows: int, items: int, g: Generator) -> Tensor:
    return torch.randn(rows, items, generator=g)


def _even(rows: int, items: int, g: Generator) -> Tensor:
    """Evenly spaced from a to b, so rising or falling."""
    ends = torch.rand(2, rows, 1, generator=g)
    return torch.lerp(ends[0], ends[1], torch.linspace(0, 1, items))


def _shuffled(rows: int, items: int, g: Generator) -> Tensor:
    return _even(rows, items, g).gather(1, torch.rand(rows, items, generator=g).argsort(1))


def _rising(rows: int, items: int, g: Generator) -> Tensor:
    return torch.linspace(-1, 1, items).expand(rows, items)


@dataclass(frozen=True)
class _Joined:
    """One kind up to a random position, another from there on."""

    first: Draw
    second: Draw

    def __call__(self, rows: int, items: int, g: Generator) -> Tensor:
        split = torch.randint(1, items, (rows, 1), generator=g)
        return torch.where(torch.arange(items) < split, self.first(rows, items, g), self.second(rows, items, g))


def _few_above(rows: int, items: int, g: Generator) -> Tensor:
    """A narrow crowd and a few items far above it: what a list of a trained retrieval model looks like."""
    crowd = 0.15 * torch.randn(rows, items, generator=g)
    few = torch.rand(rows, items, generator=g) < torch.rand(rows, 1, generator=g) / 4
    return torch.where(few, 0.6 + 0.2 * torch.randn(rows, items, generator=g), crowd)


# What a sorter is trained on: kind -> (share, how it is drawn). The paper's, and the last, which is ours.
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
    """[row, item] vectors of all `KINDS`, in their shares."""
    shares = torch.tensor([share for share, _ in KINDS.values()], dtype=torch.float64)
    chosen = torch.multinomial(shares, rows, replacement=True, generator=generator)
    counts = torch.bincount(chosen, minlength=len(KINDS)).tolist()
    makers = [make for _, make in KINDS.values()]
    return torch.cat([make(count, items, generator) for make, count in zip(makers, counts, strict=True) if count])


def draw_valid(rows: int, items: int, generator: Generator) -> Mask:
    """[row, item] bool: an eighth of the rows lack one item, an eighth end early; at least two items are there."""
    kind = torch.rand(rows, 1, generator=generator)
    one = torch.randint(items, (rows, 1), generator=generator)
    end = torch.randint(2, items + 1, (rows, 1), generator=generator)
    place = torch.arange(items)
    lacks_one = (kind < 1 / 8) & (place == one) & (items > 2)
    ends_early = (kind > 7 / 8) & (place >= end)
    return ~(lacks_one | ends_early)


# ---------------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class Recipe:
    """What a sorter is and how it is trained: the same recipe gives the same sorter, on the same machine.

    Args:
        items: length of the lists. The default architecture has some 64 items^2 weights.
        architecture: one of `ARCHITECTURES`.
        steps: of Adam, with a cosine schedule.
        batch_size: vectors drawn for each.
        lr: learning rate at the start; it falls to nothing.
        seed: of weights and vectors.
    """

    items: int = 20
    architecture: str = "lstm_small"
    steps: int = 3000
    batch_size: int = 32
    lr: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        _plan(self.items, self.architecture)
        if self.steps < 1 or self.batch_size < 1 or not self.lr > 0:
            raise ValueError(f"steps and batch_size must be >= 1 and lr > 0; got {self!r}")


def train_sorter(recipe: Recipe, *, progress: bool = True) -> Sorter:
    """Train a sorter on drawn vectors, to the least mean |rank by the network - exact rank|.

    Args:
        recipe: what and how.
        progress: show a bar.

    Returns:
        The sorter; its weights want no gradient any more. The global generator of torch is left alone.
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
    """Mean distance to the exact rank, as a share of the length of the lists that the sorter is for."""
    scores, valid = draw(rows, sorter.items, generator), draw_valid(rows, sorter.items, generator)
    exact = blackbox_rank(scores.masked_fill(~valid, -torch.inf), 1.0)
    ranks: Tensor = sorter(scores, valid)
    return (ranks - exact)[valid].abs().mean() / sorter.items


def _shown(numbers: Iterable[int], what: str, show: bool) -> Iterable[int]:
    if show and importlib.util.find_spec("tqdm") is not None:
        from tqdm import tqdm

        numbers = tqdm(numbers, desc=what, unit="step")
    return numbers


# ------------------------------------------------------------------------------------------------------ kept on disk

# Another number wherever the same settings would give other weights: no older file is then taken for a newer one.
FORMAT = 1


def default_folder() -> Path:
    """Where sorters are kept if nobody says otherwise: sodeep/ in $XDG_CACHE_HOME/rankgrad, else ~/.cache/rankgrad."""
    from .datasets import cache

    return cache.default_folder() / "sodeep"


def sorter_file(recipe: Recipe, folder: Path | None = None) -> Path:
    """The file of the sorter of a recipe.

    >>> sorter_file(Recipe(items=30), Path("sorters")).name
    'lstm_small-30-...sorter'
    """
    settings = repr((FORMAT, recipe, ARCHITECTURES[recipe.architecture]))
    name = f"{recipe.architecture}-{recipe.items}-{sha256(settings.encode()).hexdigest()[:10]}.sorter"
    return (default_folder() if folder is None else folder) / name


def load_sorter(
    items: int = 20,
    architecture: str = "lstm_small",
    *,
    steps: int = 3000,
    batch_size: int = 32,
    lr: float = 1e-2,
    seed: int = 0,
) -> Sorter:
    """The sorter of a recipe from the cache; the first time it is trained, which it says, and kept. See `load`.

    Args:
        items: see `Recipe`; for a batch of B images against itself, B.
        architecture: see `Recipe`.
        steps: see `Recipe`.
        batch_size: see `Recipe`.
        lr: see `Recipe`.
        seed: see `Recipe`.
    """
    return load(Recipe(items, architecture, steps, batch_size, lr, seed))


def load(recipe: Recipe, folder: Path | None = None, *, progress: bool = True) -> Sorter:
    """`load_sorter` for a recipe.

    Processes that want the same sorter at the same time wait for the first. A damaged file is a warning, and the sorter
    is trained again.

    Args:
        recipe: of the sorter.
        folder: of the cache; None: `default_folder`.
        progress: say that one is trained, and show a bar.
    """
    from .datasets.cache import alone  # the networks themselves need no data sets

    path = sorter_file(recipe, folder)
    kept = read_sorter(path)
    if kept is not None:
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_suffix(".lock")):
        kept = read_sorter(path, warn=False)
        if kept is None:
            if progress:
                what = f"no sorter of {recipe.items} items is kept yet; training it, once, for {path}"
                print(f"rankgrad: {what}", file=sys.stderr)
            kept = train_sorter(recipe, progress=progress)
            _write(kept, path)
    return kept


def _write(sorter: Sorter, path: Path) -> None:
    """The file begins with the digest of the rest."""
    memory = io.BytesIO()
    about = {"items": sorter.items, "architecture": sorter.architecture, "facts": sorter.facts}
    torch.save({**about, "weights": sorter.state_dict()}, memory)
    content = memory.getvalue()
    with replacing(path) as temporary:
        temporary.write_bytes(sha256(content).digest() + content)


def read_sorter(path: Path, *, warn: bool = True) -> Sorter | None:
    """The sorter of a file; None if there is none, or if it is damaged.

    Args:
        path: see `sorter_file`.
        warn: warn of a damaged file.
    """
    from .datasets.cache import CacheWarning

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if sha256(content[32:]).digest() != content[:32]:
        if warn:
            warnings.warn(f"the sorter {path} is damaged and is trained again", CacheWarning, stacklevel=3)
        return None
    kept = torch.load(io.BytesIO(content[32:]), weights_only=True, map_location="cpu")
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, to be overwritten
        sorter = Sorter(kept["items"], kept["architecture"])
    sorter.load_state_dict(kept["weights"])
    sorter.facts = kept["facts"]
    return sorter.requires_grad_(False).eval()


# ------------------------------------------------------------------------------------------------------- how far off


@dataclass(frozen=True)
class RankError:
    """How far the ranks of some lists are from the exact ones.

    Attributes:
        kind: what the scores were drawn from.
        mean: mean distance, in ranks.
        most: largest distance, in ranks.
        correlation: Spearman's correlation with the exact order, mean over the lists.
        sigmoid: mean distance of sigmoid ranks (tau .01 of scores that span 2, as cosines do), for comparison.
        moved: mean distance between the ranks of an item in a list and in the same list shuffled.
    """

    kind: str
    mean: float
    most: float
    correlation: float
    sigmoid: float
    moved: float


def cosines(rows: int, items: int, generator: Generator) -> Tensor:
    """[row, item] cosines in a batch of classes of four, as they stand there: no sorter has been trained on these."""
    classes = -(-items // 4)
    found = []
    for _ in range(rows):
        centres = torch.randn(classes, 16, generator=generator).repeat_interleave(4, 0)[:items]
        unit = nn.functional.normalize(centres + 0.7 * torch.randn(items, 16, generator=generator), dim=1)
        query = unit[torch.randint(items, (1,), generator=generator)] + 0.2 * torch.randn(1, 16, generator=generator)
        found.append(nn.functional.normalize(query, dim=1) @ unit.T)
    return torch.cat(found)


@torch.no_grad()
def rank_errors(sorter: Sorter, items: int | None = None, *, rows: int = 256, seed: int = 1) -> list[RankError]:
    """Distance to the exact ranks, for each kind of scores and for cosines, on vectors not trained on.

    Args:
        sorter: to be judged.
        items: length of the lists; None: the sorter's own.
        rows: lists of each kind.
        seed: of the lists.
    """
    items = sorter.items if items is None else items
    kinds = {name: make for name, (_, make) in KINDS.items()} | {"cosines (not trained on)": cosines}
    found = []
    for name, make in kinds.items():
        generator = torch.Generator().manual_seed(seed)
        scores = make(rows, items, generator)
        exact, ranks = blackbox_rank(scores, 1.0), sorter(scores)
        order = torch.rand(rows, items, generator=generator).argsort(1)
        moved = sorter(scores.gather(1, order)) - ranks.gather(1, order)
        away = (ranks - exact).abs()
        found.append(
            RankError(
                name,
                float(away.mean()),
                float(away.max()),
                float(spearman(-ranks, scores).mean()),
                float((sigmoid_ranks(unit_range(scores), 0.01) - exact).abs().mean()),
                float(moved.abs().mean()),
            )
        )
    return found


def sigmoid_ranks(scores: Scores, tau: float) -> Tensor:
    """[list, item] ranks of all items by sigmoid steps, 1 + sum_{j != i} sigmoid((s_j - s_i) / tau): O(n^2) a list.

    >>> sigmoid_ranks(torch.tensor([[0.0, 9.0]]), 0.1)
    tensor([[2., 1.]])
    """
    differences = scores.unsqueeze(1) - scores.unsqueeze(2)
    return 0.5 + torch.sigmoid(differences / tau).sum(2)  # each is half above itself


def table(sorter: Sorter, lengths: Iterable[int]) -> str:
    """`rank_errors` as text, for lists of some lengths."""
    rows = [("scores", "items", "mean error", "% of n", "largest", "correlation", "sigmoid's mean", "shuffled: moves")]
    for items in dict.fromkeys(lengths):
        rows += [
            (
                *(e.kind, str(items), f"{e.mean:.2f}", f"{100 * e.mean / items:.1f}", f"{e.most:.1f}"),
                *(f"{e.correlation:.4f}", f"{e.sigmoid:.2f}", f"{e.moved:.2f}"),
            )
            for e in rank_errors(sorter, items)
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    about = f"{sorter!r}: {sum(p.numel() for p in sorter.parameters()):,} weights"
    if sorter.facts:
        about += f", {sorter.facts['steps']:,.0f} steps in {sorter.facts['seconds']:.0f} s"
    return "\n".join([about, "", *lines])
