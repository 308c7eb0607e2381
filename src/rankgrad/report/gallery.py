"""Which queries a page shows, and what the runs find for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from . import numbers
from .numbers import mean_of
from .retrieved import Space

CANDIDATES = 2000  # queries among which `retrieval_gallery` looks for the best and the worst


@dataclass(frozen=True)
class RetrievedItem:
    """One image that was found for a query.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        class_name: its class.
        score: similarity to the query.
        rank: 1 is the nearest.
        correct: it is relevant to the query.
    """

    image: Tensor
    class_name: str
    score: float
    rank: int
    correct: bool


@dataclass(frozen=True)
class QueryExample:
    """One query and what was found for it.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        name: what a person calls the image.
        class_name: its class.
        items: the nearest items, best first.
        average_precision: AP of the whole ranking, NaN if the query has no relevant item.
        group: why it was chosen.
        first_right: rank of the first relevant item in the whole ranking, None if there is none.
    """

    image: Tensor
    name: str
    class_name: str
    items: tuple[RetrievedItem, ...]
    average_precision: float
    group: str = ""
    first_right: int | None = None


def choose(
    ap: Sequence[Sequence[float]],
    margin: Sequence[Sequence[float]],
    counts: Mapping[str, int],
    seed: int = 0,
) -> dict[str, list[int]]:
    """Queries to show, by the reason for each: random, worst, best, failures, and where several runs disagree.

    Args:
        ap: [run][query] AP, NaN for a query without a relevant item, which is never chosen. Over several runs the mean
            counts.
        margin: [run][query] score of the nearest item minus that of the nearest relevant one, where the nearest is
            wrong; NaN elsewhere, or where it is not known. The widest are the failures, see `failures`.
        counts: reason -> how many at most, of "random", "worst", "best", "failures", "disagree" (largest range of AP).
        seed: of the random ones.

    Returns:
        Reason -> queries, in the order of `counts`. The worst are not among the best, and random ones are chosen for
        no other reason; equal queries come in the order of their rows.

    >>> choose([[0.1, 0.9, float("nan"), 0.5]], [[0.3, float("nan"), float("nan"), 0.4]], {"worst": 1, "failures": 2})
    {'worst': [0], 'failures': [3, 0]}
    """
    queries = range(len(ap[0]) if ap else 0)
    mean = [mean_of([run[query] for run in ap]) for query in queries]
    known = [query for query in queries if not math.isnan(mean[query])]
    wide = [mean_of([run[query] for run in margin]) for query in queries]
    failed = failures([[math.isnan(value) for value in run] for run in margin])
    spread = [_range(ap, query) for query in queries]
    worst = sorted(known, key=lambda query: mean[query])[: counts.get("worst", 0)]
    ways: dict[str, Callable[[int], list[int]]] = {
        "worst": lambda most: worst,
        "best": lambda most: sorted(set(known).difference(worst), key=lambda query: (-mean[query], query))[:most],
        "failures": lambda most: sorted((q for q in known if failed[q]), key=lambda q: -wide[q])[:most],
        "disagree": lambda most: sorted((q for q in known if spread[q] > 0), key=lambda q: -spread[q])[:most],
    }
    found = {reason: [] if reason == "random" else ways[reason](most) for reason, most in counts.items()}
    if "random" in counts:
        taken = {query for chosen in found.values() for query in chosen}
        order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed)).tolist()
        found["random"] = [q for q in order if not math.isnan(mean[q]) and q not in taken][: counts["random"]]
    return found


def failures(right: Sequence[Sequence[bool]]) -> list[bool]:
    """[query] is it a failure: is its nearest item wrong in every run?

    Args:
        right: [run][query] is the nearest item relevant?

    >>> failures([[True, False, False], [False, False, True]])
    [False, True, False]
    """
    return [not any(of_query) for of_query in zip(*right, strict=True)]


def _range(values: Sequence[Sequence[float]], query: int) -> float:
    known = [run[query] for run in values if not math.isnan(run[query])]
    return max(known) - min(known) if known else 0.0


def retrieval_gallery(
    image: Callable[[int], Tensor],
    embeddings: Tensor,
    labels: Tensor,
    class_names: Sequence[str],
    queries: Sequence[int] | None = None,
    k: int = 10,
    *,
    random: int = 12,
    worst: int = 10,
    best: int = 6,
    names: Sequence[str] | None = None,
    average_precision: Tensor | None = None,
    seed: int = 0,
) -> list[QueryExample]:
    """Queries with the k nearest other images, by cosine: random ones, then the worst and the best by AP.

    Args:
        image: index of a row of `embeddings` -> its image, uint8 [channel, height, width].
        embeddings: [image, dim] float, need not be normalised.
        labels: [image] long; relevant = same label.
        class_names: name of each label.
        queries: rows to show, instead of the choice below.
        k: items per query; as many as there are, if fewer.
        random: queries drawn by `seed` among those with a relevant item.
        worst: queries of lowest AP. With `average_precision` None they are looked for among 2000 drawn by `seed`.
        best: queries of highest AP, likewise. No query is shown twice; of equal AP the lower row comes first.
        names: what a person calls each image; its row if None.
        average_precision: [image] AP of each query, NaN where it has no relevant item, if already at hand.
        seed: of the random choice.

    Returns:
        One record per query, in the order random, worst, best (or that of `queries`). The AP in a record is over the
        whole ranking, query left out, ties pessimistic: as `metrics.average_precision`.

    Raises:
        ValueError: labels, names or `average_precision` out of step with the embeddings, fewer than two images, rows
            or labels out of range; from `search`, embeddings that are not finite.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> blank = lambda row: torch.zeros(1, 4, 4, dtype=torch.uint8)
    >>> example = retrieval_gallery(blank, points, torch.tensor([0, 1, 0]), ["a", "b"], queries=[0], k=2)[0]
    >>> [(item.rank, item.class_name, item.correct) for item in example.items], example.average_precision
    ([(1, 'b', False), (2, 'a', True)], 0.5)
    """
    count = len(embeddings)
    if embeddings.ndim != 2 or count < 2:
        raise ValueError(
            f"a gallery needs embeddings [image, dim] of at least two images; got {list(embeddings.shape)}"
        )
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(f"labels must be [{count}] long, one class per image; got {list(labels.shape)} {labels.dtype}")
    if int(labels.min()) < 0 or int(labels.max()) >= len(class_names):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but there are {len(class_names)} class names"
        )
    if names is not None and len(names) != count:
        raise ValueError(f"names needs one entry per image ({count}); got {len(names)}")
    if average_precision is not None and average_precision.shape != (count,):
        raise ValueError(f"average_precision must be [{count}]; got {list(average_precision.shape)}")
    if k < 1:
        raise ValueError(f"k is a number of items and must be >= 1; got {k}")
    called = tuple(f"#{row}" for row in range(count)) if names is None else tuple(names)
    unit = F.normalize(embeddings.detach().float().cpu(), dim=1)
    space = Space(unit, labels.cpu(), called, tuple(class_names))
    if queries is not None:
        if not all(0 <= query < count for query in queries):
            raise ValueError(f"queries must be rows 0 .. {count - 1}; got {sorted(queries)}")
        groups = {"": [int(query) for query in queries]}
    else:
        if average_precision is None:
            rows = numbers.sample(count, CANDIDATES, seed)
            known = numbers.ranked(space, rows).ap
        else:
            rows, known = torch.arange(count), average_precision.detach().double().cpu()
        counts = {"random": random, "worst": worst, "best": best}
        chosen = choose([known.tolist()], [[math.nan] * len(rows)], counts, seed)
        titles = {"random": "Random queries", "worst": "Lowest AP", "best": "Highest AP"}
        groups = {title: rows[chosen[reason]].tolist() for reason, title in titles.items()}
    shown = [(row, group) for group, members in groups.items() for row in members]
    if not shown:
        return []
    asked = torch.tensor([row for row, _ in shown], dtype=torch.long)
    unique, back = torch.unique(asked, return_inverse=True)
    ranked = numbers.ranked(space, unique)
    scores, items = (column.tolist() for column in numbers.nearest(space, asked, k))
    ap, first, label = ranked.ap[back].tolist(), ranked.first[back].tolist(), labels.tolist()
    return [
        QueryExample(
            image=image(row),
            name=called[row],
            class_name=class_names[label[row]],
            items=tuple(
                RetrievedItem(image(item), class_names[label[item]], score, rank, label[item] == label[row])
                for rank, (item, score) in enumerate(zip(items[place], scores[place], strict=True), 1)
            ),
            average_precision=ap[place],
            group=group,
            first_right=None if math.isnan(first[place]) else round(first[place]),
        )
        for place, (row, group) in enumerate(shown)
    ]
