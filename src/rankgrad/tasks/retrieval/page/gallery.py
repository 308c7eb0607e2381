"""The queries that a page shows, and their retrieved items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ....common.checks import integer
from . import numbers
from .numbers import mean_of
from .retrieved import Space

TITLES = {"random": "Random queries", "worst": "Lowest AP", "best": "Highest AP"}
CANDIDATES = 2000  # `retrieval_gallery` searches this many queries for the best and the worst


@dataclass(frozen=True)
class RetrievedItem:
    """One retrieved image.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        class_name: its class.
        score: similarity to the query.
        rank: 1 is the nearest.
        correct: whether it is relevant to the query.
    """

    image: Tensor
    class_name: str
    score: float
    rank: int
    correct: bool


@dataclass(frozen=True)
class QueryExample:
    """One query and its retrieved images.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        name: name of the image.
        class_name: its class.
        items: the nearest items, best first.
        average_precision: AP of the whole ranking, NaN if the query has no relevant item.
        group: the reason why it was chosen.
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
    """Queries to show, by reason: random, worst, best, failures, and where several runs disagree.

    Args:
        ap: [run][query] AP, NaN for a query without a relevant item, which is never chosen. For several runs, the mean
            over the runs is used.
        margin: [run][query] score of the nearest item minus that of the nearest relevant one, if the nearest is wrong;
            else NaN. Of the queries that `failures` names, those with the largest margin are chosen.
        counts: reason -> largest number of queries, for "random", "worst", "best", "failures", "disagree" (largest
            range of AP).
        seed: of the random queries.

    Returns:
        Reason -> queries, in the order of `counts`. No query is both worst and best, and a random query has no other
        reason. Equal queries are in the order of their rows.

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
    chosen = {reason: [] if reason == "random" else ways[reason](most) for reason, most in counts.items()}
    if "random" in counts:
        taken = {query for of_reason in chosen.values() for query in of_reason}
        order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed)).tolist()
        chosen["random"] = [q for q in order if not math.isnan(mean[q]) and q not in taken][: counts["random"]]
    return chosen


def failures(right: Sequence[Sequence[bool]]) -> list[bool]:
    """[query] whether its nearest item is wrong in every run.

    Args:
        right: [run][query] whether the nearest item is relevant.

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
        queries: rows to show; None: queries are chosen by the following arguments.
        k: items per query; fewer if there are fewer.
        random: number of random queries with a relevant item.
        worst: number of queries with the lowest AP. If `average_precision` is None, 2000 random queries are searched.
        best: number of queries with the highest AP, likewise. No query is shown twice; of equal AP the lower row comes
            first.
        names: name of each image; None: its row number.
        average_precision: [image] AP of each query, if it is known; NaN for a query without a relevant item.
        seed: of the random choice.

    Returns:
        One record per query, in the order random, worst, best (or that of `queries`). The AP is that of the whole
        ranking without the query, with pessimistic ties, as in `metrics.average_precision`.

    Raises:
        ValueError: the length of labels, names or `average_precision` is not that of the embeddings; there are fewer
            than two images; rows or labels are out of range; embeddings are not finite.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> blank = lambda row: torch.zeros(1, 4, 4, dtype=torch.uint8)
    >>> example = retrieval_gallery(blank, points, torch.tensor([0, 1, 0]), ["a", "b"], queries=[0], k=2)[0]
    >>> [(item.rank, item.class_name, item.correct) for item in example.items], example.average_precision
    ([(1, 'b', False), (2, 'a', True)], 0.5)
    """
    _check_gallery(embeddings, labels, class_names, names, average_precision)
    integer(k, "k is the number of items per query", low=1)
    called = [f"#{row}" for row in range(len(embeddings))] if names is None else names
    unit = F.normalize(embeddings.detach().float().cpu(), dim=1)
    space = Space(unit, labels.cpu(), tuple(called), tuple(class_names))
    if queries is None:
        groups = _chosen_groups(space, average_precision, {"random": random, "worst": worst, "best": best}, seed)
    elif all(0 <= query < len(embeddings) for query in queries):
        groups = {"": [int(query) for query in queries]}
    else:
        raise ValueError(f"queries must be rows 0 .. {len(embeddings) - 1}; got {sorted(queries)}")
    return _examples(space, image, groups, k)


def _check_gallery(
    embeddings: Tensor,
    labels: Tensor,
    class_names: Sequence[str],
    names: Sequence[str] | None,
    average_precision: Tensor | None,
) -> None:
    count = len(embeddings)
    if embeddings.ndim != 2 or count < 2:
        raise ValueError(f"a gallery needs embeddings [row, dim] of at least two rows; got {list(embeddings.shape)}")
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(f"labels must be [{count}] long, one class per row; got {list(labels.shape)} {labels.dtype}")
    if int(labels.min()) < 0 or int(labels.max()) >= len(class_names):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but there are {len(class_names)} class names"
        )
    if names is not None and len(names) != count:
        raise ValueError(f"names needs one entry per row ({count}); got {len(names)}")
    if average_precision is not None and average_precision.shape != (count,):
        raise ValueError(f"average_precision must be [{count}]; got {list(average_precision.shape)}")


def _chosen_groups(
    space: Space, average_precision: Tensor | None, counts: Mapping[str, int], seed: int
) -> dict[str, list[int]]:
    """Title of each reason -> rows of its queries."""
    if average_precision is None:
        rows = numbers.sample(len(space.queries), CANDIDATES, seed)
        known = numbers.ranked(space, rows).ap
    else:
        rows, known = torch.arange(len(space.queries)), average_precision.detach().double().cpu()
    chosen = choose([known.tolist()], [[math.nan] * len(rows)], counts, seed)
    return {TITLES[reason]: rows[places].tolist() for reason, places in chosen.items()}


def _examples(
    space: Space, image: Callable[[int], Tensor], groups: Mapping[str, Sequence[int]], k: int
) -> list[QueryExample]:
    """The retrieved items of the queries of each group."""
    asked = [(row, group) for group, rows in groups.items() for row in rows]
    if not asked:
        return []
    queries = torch.tensor([row for row, _ in asked], dtype=torch.long)
    unique, back = torch.unique(queries, return_inverse=True)
    ranked = numbers.ranked(space, unique)
    scores, items = (column.tolist() for column in numbers.nearest(space, queries, k))
    ap, first, label = ranked.ap[back].tolist(), ranked.first[back].tolist(), space.labels.tolist()
    return [
        QueryExample(
            image=image(row),
            name=space.names[row],
            class_name=space.class_names[label[row]],
            items=tuple(
                RetrievedItem(image(item), space.class_names[label[item]], score, rank, label[item] == label[row])
                for rank, (item, score) in enumerate(zip(items[place], scores[place], strict=True), 1)
            ),
            average_precision=ap[place],
            group=group,
            first_right=None if math.isnan(first[place]) else round(first[place]),
        )
        for place, (row, group) in enumerate(asked)
    ]
