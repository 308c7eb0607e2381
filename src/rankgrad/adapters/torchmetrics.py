"""The report of an evaluation as a metric of torchmetrics: collected batch by batch, gathered across processes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as error:
    from ..extras import missing

    raise ModuleNotFoundError(missing(error.name or "torchmetrics"), name=error.name) from None

from ..checks import tensor
from ..evaluation import Report, evaluate
from ..relevance import check_labels


class RetrievalReport(Metric):
    """All retrieval metrics of `rankgrad.evaluation.evaluate`, over all rows since the last reset.

    Every embedding is a query against all others. With several processes, the embeddings and labels of all of them are
    gathered, and every process computes the metrics of the whole set. The processes may have different numbers of rows.

    Call `update` for each batch, and `compute` once at the end. The metrics of a single batch say little about
    retrieval. If you call the metric object itself, it also computes the metrics of that batch, and fails if no two of
    its rows match.

    Args:
        prefix: text in front of every name that `compute` returns.
        options: options of `torchmetrics.Metric`, and of `rankgrad.evaluation.evaluate`, such as ks, extra, similarity
            and bootstrap. Two defaults differ from those of `evaluate`, to save time: clusters is "none", bootstrap 0.

    Attributes:
        report: the whole `Report` of the last `compute`. It has intervals if bootstrap is not 0.

    Raises:
        ValueError: in `update`, the labels are not integers or bools, or their number differs from that of the
            embeddings. In `compute`, as in `evaluate`.

    >>> metric = RetrievalReport(ks=[1])
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

    def __init__(self, *, prefix: str = "", **options: Any) -> None:
        known = inspect.signature(evaluate).parameters
        super().__init__(**{name: options.pop(name) for name in list(options) if name not in known})
        self.prefix, self.options = prefix, {"clusters": "none", "bootstrap": 0, **options}
        self.report: Report | None = None
        self.add_state("embeddings", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add the rows of a batch.

        Args:
            embeddings: [row, dim] float.
            labels: [row] integers, [row, label] bool (multi-hot) or [row, level] integers (a hierarchy).
        """
        embeddings, labels = tensor(embeddings, "embeddings"), tensor(labels, "labels")
        check_labels(labels)
        if embeddings.ndim != 2 or len(embeddings) != len(labels):
            raise ValueError(
                f"embeddings must be [row, dim] with one label per row; got {tuple(embeddings.shape)} and "
                f"{len(labels)} labels"
            )
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels)

    def compute(self) -> dict[str, Tensor]:
        """Metric -> scalar, of all rows of all processes."""
        if not len(self.embeddings):
            raise ValueError("there are no embeddings since the last reset; call update first")
        self.report = evaluate(dim_zero_cat(self.embeddings), dim_zero_cat(self.labels), **self.options)
        return {
            self.prefix + name: torch.tensor(value, dtype=torch.float64) for name, value in self.report.values.items()
        }
