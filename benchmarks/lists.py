"""Lists without padding: `from_lists` of rows against `from_scores` of the same lists with padding; and long lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankgrad.losses import (
    InfoNCELoss,
    LambdaLoss,
    ListNetLoss,
    NDCGLoss,
    RetrievalLoss,
    SLatKLoss,
    SmoothAPLoss,
    SupAPLoss,
    SupNDCGLoss,
)
from rankgrad_papers.timing.clocks import Action, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

LOSSES = {"smooth_ap": SmoothAPLoss, "supap": SupAPLoss}
#: Losses of a recommender, of which most items of a list are irrelevant. The scores are logits.
OF_LONG_LISTS = {
    "list_net": ListNetLoss(),
    "info_nce": InfoNCELoss(tau=1.0),
    "sl_at_k": SLatKLoss(tau=1.0),
    "ndcg": NDCGLoss(tau=0.1),
    "supndcg": SupNDCGLoss(),
    "lambda, k=10": LambdaLoss(k=10),
    "lambda": LambdaLoss(),
    "lambda of AP": LambdaLoss("map"),
    "lambda of MRR": LambdaLoss("mrr"),
}
OF_NDCG = ("ndcg", "supndcg", "lambda, k=10", "lambda")
SOFTMAX = "softmax of torch"


class Rows(NamedTuple):
    """Rows of lists; `lengths` are those of the lists."""

    scores: Tensor
    relevant: Tensor
    query: Tensor | None
    lengths: Tensor


def lists(options: Options) -> Result:
    """Rows with query ids, compared with lists that were padded before, forward and backward."""
    many, most = (20, 100) if options.quick else (10_000, 1_000_000)
    even, uneven = torch.full((many,), 10), (many // (3 * torch.arange(1, many // 3))).clamp(min=1)
    between = torch.randint(1, 20, (many,), generator=torch.Generator().manual_seed(0))
    cases = {
        f"{many:,} lists of 10, in order": (even, True),
        f"{many:,} lists of 10, mixed": (even, False),
        f"{many:,} lists of 1 to 19, mixed": (between, False),
        f"{len(uneven):,} lists, the k-th of {int(uneven[0]):,} / k, mixed": (uneven, False),
        f"1 list of {most:,}": (torch.tensor([most]), True),
    }
    rows: list[list[Cell]] = []
    ratios = {}
    for about, (lengths, in_order) in cases.items():
        given = _rows(lengths, in_order, options.device)
        cells: list[Cell] = [about]
        for name, make in LOSSES.items():
            loss = make()
            actions = {
                "lists": _step(given.scores, partial(_from_rows, loss, given)),
                "padded": _padded(loss, given),
            }
            times = alternate(actions, options.rounds, f"lists {name}: {about}", clock_of(options.device))
            ratios[name, about] = times["lists"].over(times["padded"])
            cells += [times["lists"].ms, ratios[name, about]]
        rows.append(cells)
    heads = tuple(text for name in LOSSES for text in (f"{name}: ms", "x padded"))
    note = (
        "Scores [row] float32. 3 rows of 10 are relevant; in the single list 2 of 100. 'Padded' is `from_scores` of "
        "[list, longest list] tensors that exist already. `from_lists` also has to find the lists of mixed rows."
    )
    free = [about for about, (_, in_order) in cases.items() if in_order]
    worst = max(ratio for (_, about), ratio in ratios.items() if about in free)
    checks = [Check("Rows over padded lists where padding is free, the slowest", worst, 1.3)]
    long, more = _long_lists(options)
    return Result([ResultTable("Lists without padding", ("lists", *heads), rows, note), *long], [*checks, *more])


def _long_lists(options: Options) -> tuple[list[ResultTable], list[Check]]:
    """Losses of lists with few relevant items, over the softmax in plain torch and over our losses with a softmax."""
    sizes = [(4, 40, 3)] if options.quick else [(256, 1_200, 10)] + [(15_000, 8_700, 10)] * options.long
    tables, checks = [], []
    for many, items, hits in sizes:
        g = torch.Generator().manual_seed(0)
        scores = torch.randn(many, items, generator=g).to(options.device)
        relevant = torch.zeros(many, items, dtype=torch.bool)
        relevant.scatter_(1, torch.rand(many, items, generator=g).topk(hits).indices, True)
        relevant = relevant.to(options.device)
        actions = {SOFTMAX: _step(scores, partial(_softmax, relevant))}
        chosen = OF_LONG_LISTS if many < 10_000 else {"list_net": OF_LONG_LISTS["list_net"]}
        actions |= {name: _step(scores, partial(_from_scores, loss, relevant)) for name, loss in chosen.items()}
        times = alternate(actions, options.rounds, f"lists of {items}", clock_of(options.device))
        over = [name for name in (SOFTMAX, "list_net", "info_nce") if name in times]
        rows: list[list[Cell]] = [
            [name, time.ms, *(time.over(times[other]) for other in over)] for name, time in times.items()
        ]
        title = f"{many:,} lists of {items:,} with {hits} relevant items"
        columns = ("loss", "ms", *(f"x {other}" for other in over))
        tables.append(ResultTable(title, columns, rows, "Scores float32; forward and backward to them."))
        slow = {name: times[name].over(times["info_nce"]) for name in OF_NDCG if name in times}
        checks += [Check(f"{name} over info_nce, {title}", ratio, 3.0) for name, ratio in slow.items()]
    return tables, checks


def _softmax(relevant: Tensor, scores: Tensor) -> Tensor:
    return -(scores.log_softmax(1) * (relevant / relevant.sum(1, keepdim=True))).sum(1).mean()


def _from_scores(loss: RetrievalLoss, relevant: Tensor, scores: Tensor) -> Tensor:
    return loss.from_scores(scores, relevant)


def _rows(lengths: Tensor, in_order: bool, device: torch.device) -> Rows:
    g = torch.Generator().manual_seed(1)
    query = torch.arange(len(lengths)).repeat_interleave(lengths)
    order = torch.arange(len(query)) if in_order else torch.randperm(len(query), generator=g)
    scores = torch.randn(len(query), generator=g)
    relevant = torch.rand(len(query), generator=g) < (0.02 if len(lengths) == 1 else 0.3)
    ids = None if len(lengths) == 1 else query[order].to(device)
    return Rows(scores[order].to(device), relevant[order].to(device), ids, lengths.to(device))


def _from_rows(loss: SmoothAPLoss | SupAPLoss, given: Rows, scores: Tensor) -> Tensor:
    return loss.from_lists(scores, given.relevant, given.query)


def _padded(loss: SmoothAPLoss | SupAPLoss, given: Rows) -> Action:
    lengths = given.lengths
    valid = torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(1)
    order = slice(None) if given.query is None else given.query.argsort(stable=True)
    scores, relevant = given.scores.new_zeros(valid.shape), torch.zeros_like(valid)
    scores[valid], relevant[valid] = given.scores[order], given.relevant[order]
    exists = None if bool(valid.all()) else valid
    return _step(scores, lambda s: loss.from_scores(s, relevant, exists))


def _step(scores: Tensor, loss: Callable[[Tensor], Tensor]) -> Action:
    leaf = scores.detach().requires_grad_()

    def act() -> None:
        leaf.grad = None
        loss(leaf).backward()  # type: ignore[no-untyped-call]

    return act
