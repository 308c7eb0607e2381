"""What the formulas say, as plain loops: one query at a time, one pair at a time, no tensors inside.

Written from the papers' formulas and not from the package, so slow and obvious on purpose. A list is `(s, g)`: the
scores and the gains (1 or 0 where relevance is binary) of the items that exist for one query.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import fmean

import torch
from torch import Tensor

List = tuple[list[float], list[float]]
Step = Callable[[float], float]


def lists(scores: Tensor, relevance: Tensor, valid: Tensor | None = None) -> list[List]:
    """The valid entries of each row."""
    rows = []
    exists = torch.ones_like(scores, dtype=torch.bool) if valid is None else valid
    for s, g, v in zip(scores.tolist(), relevance.tolist(), exists.tolist(), strict=True):
        kept = [j for j, here in enumerate(v) if here]
        rows.append(([s[j] for j in kept], [float(g[j]) for j in kept]))
    return rows


def relevant_of(g: Sequence[float]) -> list[int]:
    return [i for i, gain in enumerate(g) if gain > 0]


def mean_over_queries(cost: Callable[[list[float], list[float]], float], rows: list[List]) -> float:
    """Mean over the queries that have a relevant item; 0 if none has."""
    costs = [cost(s, g) for s, g in rows if relevant_of(g)]
    return fmean(costs) if costs else 0.0


# ------------------------------------------------------------------------------------------------------------- steps


def heaviside(t: float) -> float:
    return 1.0 if t >= 0 else 0.0


def sigmoid(tau: float) -> Step:
    def step(t: float) -> float:
        x = t / tau
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

    return step


def exponential(tau: float, cap: float = 60.0) -> Step:
    return lambda t: math.exp(min(t / tau, cap)) * (1 + max(t / tau - cap, 0.0))


def h_minus(
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    offset: float | None = None,
    start: float = 0.5,
    tie: str = "upper",
) -> Step:
    """ROADMAP eq. 4."""
    logistic = sigmoid(tau)
    joint = logistic(delta) + start if offset is None else offset

    def step(t: float) -> float:
        if t > delta:
            return rho * (t - delta) + joint
        if t > 0 or (t == 0 and tie == "upper"):
            return logistic(t) + start
        return logistic(t)

    return step


# ----------------------------------------------------------------------------------------- relaxed ranks, and losses


def counts(s: list[float], g: list[float], i: int, pos: Step, neg: Step) -> tuple[float, float, float]:
    """(items of at least i's gain above i, items of less gain above i, sum of min(gain) over the relevant above i)."""
    above_pos = above_neg = shared = 0.0
    for j in range(len(s)):
        if j == i:
            continue
        if g[j] >= g[i]:
            above_pos += pos(s[j] - s[i])
        else:
            above_neg += neg(s[j] - s[i])
        if g[j] > 0:
            shared += pos(s[j] - s[i]) * min(g[i], g[j])
    return above_pos, above_neg, shared


def ap_loss(pos: Step, neg: Step) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        precisions = []
        for i in relevant_of(g):
            above_pos, above_neg, _ = counts(s, g, i, pos, neg)
            precisions.append((1 + above_pos) / (1 + above_pos + above_neg))
        return 1 - fmean(precisions)

    return cost


def penalty_loss(f: Callable[[float], float], neg: Step) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        return fmean(f(counts(s, g, i, heaviside, neg)[1]) for i in relevant_of(g))

    return cost


def pnp(variant: str, alpha: float = 4.0, b: float = 2.0) -> Callable[[float], float]:
    return {
        "O": lambda r: r,
        "Iu": lambda r: (1 + r) * math.log(1 + r),
        "Ib": lambda r: (b * r - math.log(1 + b * r)) / b**2,
        "Ds": lambda r: math.log(1 + r),
        "Dq": lambda r: 1 - (1 + r) ** -alpha,
    }[variant]


def recall_loss(
    ks: Sequence[int],
    tau1: float,
    tau2: float | Sequence[float],
    steps: tuple[Step, Step] | None = None,
    clip: bool = True,
) -> Callable[[list[float], list[float]], float]:
    pos, neg = steps or (sigmoid(tau1), sigmoid(tau1))
    temperatures = [tau2] * len(ks) if isinstance(tau2, float) else list(tau2)

    def cost(s: list[float], g: list[float]) -> float:
        recalls = []
        for k, tau in zip(ks, temperatures, strict=True):
            found = 0.0
            for i in relevant_of(g):
                above_pos, above_neg, _ = counts(s, g, i, pos, neg)
                found += sigmoid(tau)(k - (1 + above_pos + above_neg))
            recalls.append((min(k, found) if clip else found) / min(k, len(relevant_of(g))))
        return 1 - fmean(recalls)

    return cost


def ndcg_loss(pos: Step, neg: Step, gain: str = "linear") -> Callable[[list[float], list[float]], float]:
    def value(g: float) -> float:
        return g if gain == "linear" else 2**g - 1

    def cost(s: list[float], g: list[float]) -> float:
        got = 0.0
        for i in relevant_of(g):
            above_pos, above_neg, _ = counts(s, g, i, pos, neg)
            got += value(g[i]) / math.log2(2 + above_pos + above_neg)
        best = sum(value(x) / math.log2(2 + place) for place, x in enumerate(sorted(g, reverse=True)))
        return 1 - got / best

    return cost


def logistic(tau: float) -> Step:
    return lambda t: (max(t / tau, 0.0) + math.log1p(math.exp(-abs(t / tau)))) / math.log(2)


def pairs_loss(rows: list[List], tau: float = 1.0, fpr: float = 1.0) -> float:
    """Mean over the lists that have a pair of items of different gain; with fpr < 1 of the hardest irrelevant ones."""
    costs = []
    for s, g in rows:
        rest = sorted((j for j in range(len(s)) if g[j] == 0), key=lambda j: (-s[j], j))
        left_out = rest[max(math.floor(fpr * len(rest)), 1) :]
        kept = [j for j in range(len(s)) if j not in left_out]
        pairs = [logistic(tau)(s[j] - s[i]) for i in kept for j in kept if g[i] > g[j]]
        costs += [fmean(pairs)] if pairs else []
    return fmean(costs) if costs else 0.0


def list_net_loss(tau: float = 1.0) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        whole = sum(math.exp((x - max(s)) / tau) for x in s)
        return -sum(g[i] / sum(g) * math.log(math.exp((s[i] - max(s)) / tau) / whole) for i in relevant_of(g))

    return cost


def sl_at_k_loss(k: int = 20, tau: float = 0.2, steep: float = 1.0) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        beta = sorted(s, reverse=True)[k - 1] if k <= len(s) else -math.inf
        total = 0.0
        for i in relevant_of(g):
            weight = 1 / (1 + math.exp(-(s[i] - beta) / steep)) if beta > -math.inf else 1.0
            total += g[i] / sum(g) * weight * math.log(sum(math.exp((x - s[i]) / tau) for x in s))
        return total

    return cost


def list_distillation_loss(tau: float = 0.05, temperature: float = 1.0) -> Callable[[list[float], list[float]], float]:
    def softmax(x: list[float], unit: float) -> list[float]:
        powers = [math.exp((each - max(x)) / unit) for each in x]
        return [power / sum(powers) for power in powers]

    def cost(s: list[float], t: list[float]) -> float:
        pairs = zip(softmax(t, temperature), softmax(s, tau), strict=True)
        return sum(p * math.log(p / q) for p, q in pairs)

    return cost


def margin_mse_loss(tau: float = 1.0) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], t: list[float]) -> float:
        pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if t[i] == max(t) > t[j]]
        return fmean(((s[i] - s[j]) / tau - (t[i] - t[j])) ** 2 for i, j in pairs)

    return cost


def over_lists_told_apart(cost: Callable[[list[float], list[float]], float], rows: list[List]) -> float:
    """Mean over the lists of a teacher that tells two of their items apart."""
    costs = [cost(s, t) for s, t in rows if len(set(t)) > 1]
    return fmean(costs) if costs else 0.0


def grade_bce_loss(rows: list[List], tau: float = 0.1, center: float = 0.5, highest: float = 1.0) -> float:
    costs = []
    for s, g in rows:
        chances = [1 / (1 + math.exp((center - x) / tau)) for x in s]
        terms = [
            -(y / highest * math.log(z) + (1 - y / highest) * math.log(1 - z)) for y, z in zip(g, chances, strict=True)
        ]
        costs += [fmean(terms)] if terms else []
    return fmean(costs) if costs else 0.0


def lambda_loss(
    metric: str = "ndcg", k: int | None = None, tau: float = 1.0, gain: str = "exp2"
) -> Callable[[list[float], list[float]], float]:
    """Every pair is swapped, and the metric of the whole list read again."""

    def value(order: list[float]) -> float:
        if metric == "ndcg":
            return ndcg([-float(place) for place in range(len(order))], order, k, gain)
        places = [place for place, gain in enumerate(order, start=1) if gain > 0]
        if metric == "mrr":
            return 1 / places[0]
        if metric == "precision":
            return sum(place <= k for place in places) / k
        return fmean((found + 1) / place for found, place in enumerate(places))

    def cost(s: list[float], g: list[float]) -> float:
        order = ranking(s)
        present, total = value([g[j] for j in order]), 0.0
        for a, i in enumerate(order):
            for b, j in enumerate(order):
                if g[i] > g[j]:
                    swapped = list(order)
                    swapped[a], swapped[b] = j, i
                    change = abs(value([g[x] for x in swapped]) - present)
                    total += change * logistic(tau)(s[j] - s[i])
        return total

    return cost


def hap_loss(neg: Step) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        total = 0.0
        for i in relevant_of(g):
            above_pos, above_neg, shared = counts(s, g, i, heaviside, neg)
            total += (g[i] + shared) / (1 + above_pos + above_neg)
        return 1 - total / sum(g)

    return cost


def hap_loss_by_level(neg: Step) -> Callable[[list[float], list[int]], float]:
    """With HAPPIER's gains of these levels, and levels to say who is of less relevance (both published codes)."""

    def cost(s: list[float], levels: list[int]) -> float:
        g = [level / levels.count(level) for level in levels]
        total = 0.0
        for i in relevant_of(g):
            rank, hrank = 1.0, g[i]
            for j in range(len(s)):
                if j != i:
                    step = neg if levels[j] < levels[i] else heaviside
                    rank += step(s[j] - s[i])
                    hrank += heaviside(s[j] - s[i]) * min(g[i], g[j])
            total += hrank / rank
        return 1 - total / sum(g)

    return cost


def fastap_loss(bins: int = 10) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        width = 4 / bins
        hits, every = [0.0] * (bins + 1), [0.0] * (bins + 1)
        for score, gain in zip(s, g, strict=True):
            for b in range(bins + 1):
                share = max(0.0, 1 - abs(2 - 2 * score - b * width) / width)
                every[b] += share
                hits[b] += share * (gain > 0)
        return 1 - _histogram_ap(hits, every) / len(relevant_of(g))

    return cost


def softbin_loss(bins: int = 20, low: float = -1.0, high: float = 1.0) -> Callable[[list[float], list[float]], float]:
    def cost(s: list[float], g: list[float]) -> float:
        width = (high - low) / (bins - 1)
        hits, every = [0.0] * bins, [0.0] * bins
        for score, gain in zip(s, g, strict=True):
            score = min(max(score, low), high)
            for b in range(bins):
                share = max(0.0, 1 - abs(score - (high - b * width)) / width)
                every[b] += share
                hits[b] += share * (gain > 0)
        return 1 - _histogram_ap(hits, every) / len(relevant_of(g))

    return cost


def _histogram_ap(hits: list[float], every: list[float]) -> float:
    """sum_l h+_l H+_l / H_l, terms of empty H_l are 0."""
    total = 0.0
    for b in range(len(hits)):
        below = sum(every[: b + 1])
        if below > 0:
            total += hits[b] * sum(hits[: b + 1]) / below
    return total


def calibration(rows: list[List], alpha: float = 0.9, beta: float = 0.6, aggregation: str = "query") -> float:
    """ROADMAP eq. 7; every query counts."""
    costs, short, over = [], [], []
    for s, g in rows:
        pos = [max(0.0, alpha - x) for x, gain in zip(s, g, strict=True) if gain > 0]
        neg = [max(0.0, x - beta) for x, gain in zip(s, g, strict=True) if gain == 0]
        costs.append((fmean(pos) if pos else 0.0) + (fmean(neg) if neg else 0.0))
        short += [x for x in pos if x > 0]
        over += [x for x in neg if x > 0]
    if aggregation == "avg_non_zero":
        return (fmean(short) if short else 0.0) + (fmean(over) if over else 0.0)
    return fmean(costs) if costs else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The value at this share of the way from the least to the largest, linear between two; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def thresholds(rows: list[List], quantiles: tuple[float, float] = (0.5, 0.99), margin: float = 0.1) -> dict[str, float]:
    """The quantiles of all relevant and of all irrelevant scores of a batch, at least a margin apart."""
    near = [x for s, g in rows for x, gain in zip(s, g, strict=True) if gain > 0]
    far = [x for s, g in rows for x, gain in zip(s, g, strict=True) if gain == 0]
    alpha, beta = quantile(near, quantiles[0]), quantile(far, quantiles[1])
    return {"alpha": alpha, "beta": beta if math.isnan(alpha) else min(beta, alpha - margin)}


def hardest(rows: list[List]) -> tuple[list[float], list[float]]:
    """Lowest relevant and highest irrelevant score of the queries that have both."""
    low, high = [], []
    for s, g in rows:
        pos = [x for x, gain in zip(s, g, strict=True) if gain > 0]
        neg = [x for x, gain in zip(s, g, strict=True) if gain == 0]
        if pos and neg:
            low.append(min(pos))
            high.append(max(neg))
    return low, high


def adaptive_triplet(rows: list[List], margin: float = 0.2, weight: float = 0.5) -> float:
    """The hardest triplets in Euclidean distances of unit vectors, and thresholds that follow the scores."""

    def distance(cosine: float) -> float:
        return math.sqrt(max(2 - 2 * cosine, 1e-6))

    pairs = zip(*hardest(rows), strict=True)
    hinges = [max(0.0, margin + distance(low) - distance(high)) for low, high in pairs]
    return (1 - weight) * (fmean(hinges) if hinges else 0.0) + weight * calibration(rows, **thresholds(rows))


def auc_loss(
    low: list[float],
    high: list[float],
    step: float = 0.1,
    slope: float | None = None,
    t_min: float = -1.0,
    t_max: float = 1.0,
    pad_steps: int = 0,
) -> float:
    """Algorithm 1 of the AUC_BH supplement, typos resolved; 0 where no query is kept."""
    n = len(low)
    if n == 0:
        return 0.0
    slope = 5.3 / step if slope is None else slope
    steps = round((t_max - t_min) / step) + 2 * pad_steps
    thresholds = [t_min + (m - pad_steps) * step for m in range(steps + 1)]
    tp = [sum(sigmoid(1 / slope)(x - t) for x in low) for t in thresholds]
    fp = [sum(sigmoid(1 / slope)(x - t) for x in high) for t in thresholds]
    return 1 - sum((tp[m] + tp[m + 1]) * (fp[m] - fp[m + 1]) for m in range(steps)) / (2 * n * n)


# ---------------------------------------------------------------------------------------------------------- blackbox


def rk(y: list[float]) -> list[int]:
    """Ranks 1 .. n, 1 the largest; of level entries the lower index ranks first. Two sorts, as in Algorithm 1."""
    order = sorted(range(len(y)), key=lambda j: (-y[j], j))
    ranks = [0] * len(y)
    for place, j in enumerate(order):
        ranks[j] = place + 1
    return ranks


def algorithm_1(y: list[float], g: list[float], lambda_: float) -> list[float]:
    """-(rk(y) - rk(y + lambda g)) / lambda, entry by entry."""
    before = rk(y)
    after = rk([a + lambda_ * b for a, b in zip(y, g, strict=True)])
    return [-(a - b) / lambda_ for a, b in zip(before, after, strict=True)]


def rambo(
    scores: Tensor,
    relevance: Tensor,
    valid: Tensor | None,
    cost: Callable[[float, float], tuple[float, float]],
    lambda_: float,
    margin: float,
    normalized: bool,
    aggregation: str = "query",
) -> tuple[float, Tensor, Tensor]:
    """(loss, gradient by scores, g = d loss / d rk) of a blackbox loss.

    `cost(above_pos, above_neg)` gives what a relevant item costs and its derivative by its rank, of which the part
    among the items of at least its gain is a constant. Only the mean over the queries that count is perturbed.
    """
    rows, n_items = lists(scores, relevance, valid), scores.shape[1]
    counted = sum(1 for _, g in rows if relevant_of(g))
    pairs = sum(len(relevant_of(g)) for _, g in rows)
    loss = 0.0
    gradient, upstream = ([[0.0] * n_items for _ in rows] for _ in range(2))
    exists = torch.ones_like(scores, dtype=torch.bool) if valid is None else valid
    for q, (s, g) in enumerate(rows):
        kept = [j for j, here in enumerate(exists[q].tolist()) if here]
        y = [x - margin / 2 if gain > 0 else x + margin / 2 for x, gain in zip(s, g, strict=True)]
        ranks = rk(y)
        weights = [0.0] * len(s)
        for i in relevant_of(g):
            above = [j for j in range(len(s)) if ranks[j] < ranks[i]]
            value, slope = cost(
                sum(1 for j in above if g[j] >= g[i]),
                sum(1 for j in above if g[j] < g[i]),
            )
            share = 1 / (counted * len(relevant_of(g))) if aggregation == "query" else 1 / pairs
            loss += share * value
            weights[i] = share * slope
        size = lambda_ * len(s) if normalized else lambda_
        for j, change, weight in zip(kept, algorithm_1(y, weights, size), weights, strict=True):
            gradient[q][j], upstream[q][j] = change, weight
    return loss, torch.tensor(gradient, dtype=torch.float64), torch.tensor(upstream, dtype=torch.float64)


def recall_cost(weight: str | Sequence[float]) -> Callable[[float, float], tuple[float, float]]:
    """W(r) and W'(r): (1/(1 + r)), (1/((1 + r)(1 + log(1 + r)))), or w_{r+1} for weights w_1 .. w_K."""

    def cost(_: float, r: float) -> tuple[float, float]:
        if weight == "log":
            return math.log(1 + r), 1 / (1 + r)
        if weight == "loglog":
            return math.log(1 + math.log(1 + r)), 1 / ((1 + r) * (1 + math.log(1 + r)))
        k = int(r)
        return sum(weight[:k]), (weight[k] if k < len(weight) else 0.0)

    return cost


def ap_cost(above_pos: float, above_neg: float) -> tuple[float, float]:
    """1 - rk+ / rk, and rk+ / rk^2."""
    rank = 1 + above_pos + above_neg
    return 1 - (1 + above_pos) / rank, (1 + above_pos) / rank**2


def average_ranks(values: Sequence[float]) -> list[float]:
    """1 + the larger ones + half of the other level ones."""
    return [1 + sum(y > x for y in values) + (sum(y == x for y in values) - 1) / 2 for x in values]


def pearson(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = fmean(a), fmean(b)
    shared = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return shared / math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))


def spearman(rows: list[List]) -> float:
    """1 - Pearson of ranks (level scores by index) and average ranks of the gains, mean where gains differ."""
    costs = [1 - pearson(rk(s), average_ranks(g)) for s, g in rows if len(set(g)) > 1]
    return fmean(costs) if costs else 0.0


def spearman_gradient(
    scores: Tensor, relevance: Tensor, valid: Tensor | None, lambda_: float, normalized: bool
) -> Tensor:
    """Algorithm 1 of the mean over the queries that count: Pearson is a . b / |a| / |b|, and |a| that of 1 .. n."""
    rows, exists = lists(scores, relevance, valid), valid if valid is not None else torch.ones_like(scores).bool()
    counted = sum(len(set(g)) > 1 for _, g in rows)
    gradient = torch.zeros(scores.shape, dtype=torch.float64)
    for q, (s, g) in enumerate(rows):
        if len(set(g)) < 2:
            continue
        a, b = ([x - fmean(ranks) for x in ranks] for ranks in (rk(s), average_ranks(g)))
        size_a, size_b = (math.sqrt(sum(x * x for x in centred)) for centred in (a, b))
        slopes = [-y / (size_a * size_b * counted) for y in b]
        kept = [j for j, here in enumerate(exists[q].tolist()) if here]
        size = lambda_ * len(s) if normalized else lambda_
        gradient[q, kept] = torch.tensor(algorithm_1(s, slopes, size), dtype=torch.float64)
    return gradient


# ----------------------------------------------------------------------------------------------------------- metrics


def ranking(s: list[float]) -> list[int]:
    """Items best first; of level ones the lower index first."""
    return sorted(range(len(s)), key=lambda j: (-s[j], j))


def hit_at_k(s: list[float], g: list[float], k: int) -> float:
    return float(any(g[j] > 0 for j in ranking(s)[:k]))


def recall_at_k(s: list[float], g: list[float], k: int) -> float:
    return sum(g[j] > 0 for j in ranking(s)[:k]) / len(relevant_of(g))


def refined_recall(s: list[float], g: list[float], k: int) -> float:
    """RaMBO eq. 16: relevant items with less than k irrelevant ones above."""
    order = ranking(s)
    good = 0
    for i in relevant_of(g):
        good += sum(1 for j in order[: order.index(i)] if g[j] == 0) < k
    return good / len(relevant_of(g))


def precision_at_k(s: list[float], g: list[float], k: int) -> float:
    return sum(g[j] > 0 for j in ranking(s)[:k]) / k


def ap_at_k(s: list[float], g: list[float], k: int, over: str) -> float:
    """Precision at each relevant item among the first k; over the most there can be, or over those that are there."""
    found, total = 0, 0.0
    for place, j in enumerate(ranking(s)[:k]):
        if g[j] > 0:
            found += 1
            total += found / (place + 1)
    return total / (min(k, len(relevant_of(g))) if over == "relevant" else max(found, 1))


def fall_out(s: list[float], g: list[float], k: int) -> float:
    irrelevant = [j for j in range(len(s)) if g[j] == 0]
    return sum(j in irrelevant for j in ranking(s)[:k]) / max(len(irrelevant), 1)


def fnmr(pos: list[float], neg: list[float], fmr: float) -> float:
    """Least share of relevant pairs below a threshold that at most the share fmr of the irrelevant ones reach."""
    above_all = max(pos + neg) + 1
    allowed = [t for t in (*pos, *neg, above_all) if sum(x >= t for x in neg) <= fmr * len(neg) + 1e-9]
    return min(sum(x < t for x in pos) / len(pos) for t in allowed)


def reciprocal_rank(s: list[float], g: list[float], k: int | None = None) -> float:
    return next((1 / (1 + place) for place, j in enumerate(ranking(s)[:k]) if g[j] > 0), 0.0)


def map_at_r(s: list[float], g: list[float]) -> float:
    """(1/R) sum over the first R places of [relevant] precision; without level scores."""
    r, found, total = len(relevant_of(g)), 0, 0.0
    for place, j in enumerate(ranking(s)[:r]):
        if g[j] > 0:
            found += 1
            total += found / (place + 1)
    return total / r


def expected_ap(s: list[float], g: list[float], orders: Sequence[Sequence[int]]) -> float:
    """Mean AP over orders of the items, each of which must be sorted by score."""
    values = []
    for order in orders:
        found, total = 0, 0.0
        for place, j in enumerate(order):
            if g[j] > 0:
                found += 1
                total += found / (place + 1)
        values.append(total / found)
    return fmean(values)


def roc_auc(s: list[float], g: list[float]) -> float:
    pos = [x for x, gain in zip(s, g, strict=True) if gain > 0]
    neg = [x for x, gain in zip(s, g, strict=True) if gain == 0]
    return fmean((p > n) + 0.5 * (p == n) for p in pos for n in neg)


def partial_roc_auc(s: list[float], g: list[float], fpr: float) -> float:
    """The area below the curve by trapezoids between thresholds, up to fpr, over fpr."""
    pos, neg = sum(gain > 0 for gain in g), sum(gain == 0 for gain in g)
    points = [(0.0, 0.0)]
    for threshold in sorted(set(s), reverse=True):
        above = [gain > 0 for x, gain in zip(s, g, strict=True) if x >= threshold]
        points.append((above.count(False) / neg, above.count(True) / pos))
    area = 0.0
    for (x, y), (end, top) in itertools.pairwise(points):
        if x < fpr and end > x:
            part = (min(end, fpr) - x) / (end - x)
            area += part * (end - x) * (y + part * (top - y) / 2)
    return area / fpr


def ndcg(s: list[float], g: list[float], k: int | None = None, gain: str = "linear") -> float:
    """DCG over that of the best order."""
    return dcg(s, g, k, gain) / dcg([float(-place) for place in range(len(g))], sorted(g, reverse=True), k, gain)


def dcg(s: list[float], g: list[float], k: int | None = None, gain: str = "linear") -> float:
    """Level items share the mean discount of their places."""

    def value(x: float) -> float:
        return x if gain == "linear" else 2**x - 1

    discount = [1 / math.log2(2 + place) if k is None or place < k else 0.0 for place in range(len(s))]
    got = 0.0
    for i in range(len(s)):
        above, level = sum(x > s[i] for x in s), sum(x == s[i] for x in s)
        got += value(g[i]) * fmean(discount[above : above + level])
    return got


def happier_gains(labels: Tensor, ref_labels: Tensor, valid: Tensor | None) -> Tensor:
    """(l / L) / |valid items that share exactly l levels with the query|."""
    gains = torch.zeros(len(labels), len(ref_labels), dtype=torch.float64)
    depth = labels.shape[1]
    for q in range(len(labels)):
        shared = []
        for j in range(len(ref_labels)):
            level = 0
            while level < depth and labels[q, level] == ref_labels[j, level]:
                level += 1
            shared.append(level if valid is None or bool(valid[q, j]) else None)
        for j, level in enumerate(shared):
            if level:
                gains[q, j] = (level / depth) / shared.count(level)
    return gains


def cosines(rows: Tensor, refs: Tensor) -> Tensor:
    """Cosine of each row with each reference; 0 for a zero row."""
    scores = torch.zeros(len(rows), len(refs), dtype=torch.float64)
    for q, a in enumerate(rows.tolist()):
        for j, b in enumerate(refs.tolist()):
            size = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
            scores[q, j] = sum(x * y for x, y in zip(a, b, strict=True)) / size if size else 0.0
    return scores
