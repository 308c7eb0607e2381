"""The report of an evaluation as a metric of torchmetrics: collected batch by batch, gathered across processes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
    from torchmetrics.utilities.distributed import gather_all_tensors
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "torchmetrics"), name=error.name) from None

from ..batches.distributed import world
from ..common.checks import tensor
from ..evaluation import Report, evaluate
from ..ranks.relevance import check_ids, check_labels

NO_ID = -1


class RetrievalReport(Metric):
    """All retrieval metrics of `rankgrad.evaluation.evaluate`, over all rows since the last reset.

    Every embedding is a query against all others. With several processes, the embeddings and labels of all of them are
    gathered, and every process computes the metrics of the whole set. The processes may have different numbers of rows,
    also none. A row that two processes add is its own perfect match. So divide the rows among the processes, or give
    `update` the ids of the rows: then each row counts once.

    Call `update` for each batch, and `compute` once at the end. The metrics of a single batch say little about
    retrieval. If you call the metric object itself, it also computes the metrics of that batch, and fails if no two of
    its rows match.

    Args:
        prefix: text in front of every name that `compute` returns.
        options: options of `torchmetrics.Metric`, and of `rankgrad.evaluation.evaluate`, such as metrics, similarity
            and intervals, which are 0 by default, to save time.

    Attributes:
        report: the whole `Report` of the last `compute`. It has intervals if `intervals` is not 0.

    Raises:
        ValueError: in `update`, the labels are not integers or bools, their number differs from that of the embeddings,
            or width or dtype differ from those of an earlier call. In `compute`, as in `evaluate`; also if two
            processes added the same rows without ids, if the ids do not fit, or if width or dtype differ between
            processes.

    >>> metric = RetrievalReport(metrics=["R@1", "mAP@R"])
    >>> metric.update(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([0, 0]))
    >>> metric.update(torch.tensor([[0.0, 1.0], [0.6, 0.8]]), torch.tensor([1, 1]))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}["R@1"]
    0.5
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    embeddings: list[Tensor]
    labels: list[Tensor]
    ids: list[Tensor]
    process: list[Tensor]

    def __init__(self, *, prefix: str = "", **options: Any) -> None:
        known = inspect.signature(evaluate).parameters
        others = {name: options.pop(name) for name in list(options) if name not in known}
        super().__init__(**{"dist_sync_fn": _of_every_process, **others})
        self.prefix, self.options = prefix, {"intervals": 0, **options}
        self.report: Report | None = None
        for name in ("embeddings", "labels", "ids", "process"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Add the rows of a batch.

        Args:
            embeddings: [row, dim] float.
            labels: [row] integers, [row, label] bool (multi-hot) or [row, level] integers (a hierarchy).
            ids: [row] integers >= 0, such as the number of each row in the data set; in every call or in none. Rows of
                the same id count once, also if different processes added them.
        """
        embeddings, labels = tensor(embeddings, "embeddings"), tensor(labels, "labels")
        check_labels(labels)
        labels = labels if labels.dtype == torch.bool else labels.long()
        if embeddings.ndim != 2 or len(embeddings) != len(labels):
            raise ValueError(
                f"embeddings must be [row, dim] with one label per row; got {tuple(embeddings.shape)} and "
                f"{len(labels)} labels"
            )
        for name, mine, before in (("embeddings", embeddings, self.embeddings), ("labels", labels, self.labels)):
            if before and (mine.shape[1:], mine.dtype) != (before[0].shape[1:], before[0].dtype):
                raise ValueError(
                    f"{name} must have the same width and dtype in every call; got {mine.dtype} {tuple(mine.shape)} "
                    f"after {before[0].dtype} {tuple(before[0].shape)}"
                )
        # all processes must gather the same states, so there are ids in any case
        numbers = torch.full((len(labels),), NO_ID, device=embeddings.device)
        if ids is not None:
            given = tensor(ids, "ids")
            check_ids(given, len(labels))
            if bool((given < 0).any()):
                raise ValueError(f"ids must be >= 0; got {int(given.min())}")
            numbers = given.to(numbers)
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels)
        self.ids.append(numbers)
        self.process.append(torch.full_like(numbers, world()[0]))

    def compute(self) -> dict[str, Tensor]:
        """Metric -> scalar, of all rows of all processes."""
        if not len(self.embeddings):
            raise ValueError("there are no embeddings since the last reset; call update first")
        self.report = evaluate(*self._rows(), **self.options)
        return {
            self.prefix + name: torch.tensor(value, dtype=torch.float64) for name, value in self.report.values.items()
        }

    def _rows(self) -> tuple[Tensor, Tensor]:
        """Embeddings and labels of all processes, each row once."""
        embeddings, labels = dim_zero_cat(self.embeddings), dim_zero_cat(self.labels)
        ids, process = dim_zero_cat(self.ids), dim_zero_cat(self.process)
        without = ids == NO_ID
        if bool(without.all()):
            _refuse_copies(embeddings, labels, process)
            return embeddings, labels
        if bool(without.any()):
            raise ValueError("ids must be given in every call of update, on all processes, or in none")
        found, inverse = torch.unique(ids, return_inverse=True)
        place = torch.arange(len(ids), device=ids.device)
        first = place.new_full((len(found),), len(ids)).scatter_reduce(0, inverse, place, "amin")
        at, whose = first.to(labels.device), inverse.to(labels.device)
        other = (labels != labels[at[whose]]).reshape(len(labels), -1).any(1)
        if bool(other.any()):
            raise ValueError(
                f"rows with the id {int(ids[other.to(ids.device)][0])} have different labels. An id must name one row "
                "of the whole data set, such as its number there; a number within the batch does not"
            )
        return embeddings[first], labels[at]  # by ascending id, so the order does not depend on the processes


def _of_every_process(rows: Tensor, group: Any = None) -> list[Tensor]:
    """The rows of each process of the group. torchmetrics calls this for every state.

    Its own function needs the same dtype and number of dimensions on all processes, which a process without rows cannot
    know: the network would hang or fail.
    """
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, (len(rows), (rows.dtype, rows.shape[1:])), group=group)
    kinds = list(dict.fromkeys(kind for count, kind in everyone if count))
    if len(kinds) > 1:
        raise ValueError(
            "embeddings, labels and ids must have the same width and dtype on all processes; got rows of "
            f"{' and '.join(f'{dtype} {tuple(shape)}' for dtype, shape in kinds)}"
        )
    if kinds and not len(rows):
        dtype, shape = kinds[0]
        rows = torch.zeros(0, *shape, dtype=dtype, device=rows.device)
    gathered: list[Tensor] = gather_all_tensors(rows, group)
    return gathered


def _refuse_copies(embeddings: Tensor, labels: Tensor, process: Tensor) -> None:
    """Raise if one process added exactly the rows of another."""
    numbers = torch.unique(process).tolist()
    earlier: dict[int, tuple[Tensor, Tensor]] = {}
    for number in numbers if len(numbers) > 1 else ():
        its = process == number
        rows, of_rows = embeddings[its], labels[its.to(labels.device)]
        if torch.equal(rows, rows[:1].expand_as(rows)):
            continue  # a network that maps all rows to one point makes equal rows of different images
        for other, (theirs, of_theirs) in earlier.items():
            if torch.equal(rows, theirs) and torch.equal(of_rows, of_theirs):
                raise ValueError(
                    f"process {number} added exactly the {len(rows)} rows of process {other}, so each row would find "
                    "its own copy as a perfect match. Divide the validation loader among the processes, or give the "
                    "number of each row in the data set: update(embeddings, labels, ids)"
                )
        earlier[number] = rows, of_rows
