"""The losses of rankgrad as losses of pytorch-metric-learning, for its reducers, miners, wrappers and trainers.

`AccuracyCalculator` is the exact evaluation for its testers. `pml_losses.PMLLoss` is the reverse: it makes a loss of
that library a loss of rankgrad.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

try:
    from pytorch_metric_learning import distances
    from pytorch_metric_learning import losses as theirs
    from pytorch_metric_learning.utils import accuracy_calculator
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("pytorch_metric_learning"):
        raise
    raise ModuleNotFoundError(
        "rankgrad.adapters.pml needs pytorch-metric-learning: pip install pytorch-metric-learning", name=error.name
    ) from None

from ..batches import memory
from ..common.checks import Numbers
from ..common.checks import tensor as as_tensor
from ..evaluation import Protocol, Report, evaluate
from ..evaluation.measures import listed
from ..losses import RetrievalLoss, SumLoss

Pairs = tuple[Tensor, ...]


class PMLAdapter(theirs.BaseMetricLossFunction):  # type: ignore[misc]  # the library has no types
    r"""A loss of rankgrad with the arguments of pytorch-metric-learning: embeddings, labels, pairs, references.

    The reducer of that library gets one value for each counted query ("element"; the indices are the queries). It does
    not get queries without a relevant item, so MeanReducer gives the value and the gradient of the rankgrad loss.
    Calibration and ROADMAP count every query. If no query is counted, the loss is 0.

    If `indices_tuple` is given, it defines the relevant and the irrelevant pairs, and the labels are not used. Without
    it, and without references, each query is compared with all others of the batch.

    Args:
        loss: a rankgrad loss. The adapter uses a shallow copy with reduction="none": the parameters are shared, and
            `adapter.loss.stats` are the statistics of the last call.
        options: `reducer`, `embedding_regularizer`, `embedding_reg_weight`, `collect_stats` of that library. Not
            `distance`: the `normalize` of the loss decides between cosine and inner product.

    Raises:
        TypeError: the loss is a sum, a memory or a baseline, or a distance is given.
        ValueError: in a call, the labels are not one class per row.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> loss = PMLAdapter(SmoothAPLoss())
    >>> embeddings, labels = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> loss(embeddings, labels)  # the queries cost 1/2 and 0; nothing can match the third
    tensor(0.2500)
    >>> loss.loss.stats["counted"]
    tensor([ True,  True, False])
    """

    def __init__(self, loss: RetrievalLoss, **options: Any) -> None:
        if not isinstance(loss, RetrievalLoss):
            raise TypeError(
                "PMLAdapter takes a single loss with a value for each query, one of rankgrad.losses.LOSSES; got "
                f"{type(loss).__name__}.{_instead(loss)}"
            )
        if "distance" in options:
            raise TypeError(
                "leave out distance=: a rankgrad loss uses the cosine (normalize=True) or the inner product "
                "(normalize=False)"
            )
        self._normalize = loss.normalize  # before the base class calls get_default_distance
        super().__init__(**options)
        each = copy.copy(loss)
        each.reduction = "none"
        self.loss = each

    def get_default_distance(self) -> nn.Module:
        """The similarity of the loss. The library needs a distance, but computes nothing with it."""
        distance: nn.Module = distances.DotProductSimilarity(normalize_embeddings=self._normalize)
        return distance

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Pairs | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The reduced loss of a batch: against itself, or against references."""
        for name, given in (("labels", labels), ("ref_labels", ref_labels)):
            if given is not None and (given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool):
                raise ValueError(
                    f"inside pytorch-metric-learning, {name} must be integers [row], one class per row; got "
                    f"{given.dtype} {tuple(given.shape)}. For multi-hot or hierarchical labels, call the "
                    "rankgrad loss directly."
                )
        reduced: Tensor = super().forward(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        return reduced

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Pairs | None, ref_emb: Tensor, ref_labels: Any
    ) -> dict[str, dict[str, Any]]:
        """Values of the counted queries, for the reducer."""
        if indices_tuple is not None:
            indices_tuple = tuple(index.to(embeddings.device) for index in indices_tuple)
        # without references, the base class passes the batch itself
        references = () if ref_emb is embeddings else (ref_emb, ref_labels)
        values = self.loss(embeddings, labels, indices_tuple, *references)
        counted = self.loss.stats["counted"].nonzero().squeeze(1)
        if len(counted) == 0:
            none: dict[str, dict[str, Any]] = self.zero_losses()  # the mean of no values would be NaN
            return none
        return {
            "loss": {
                "losses": values[counted],
                "indices": counted,
                "reduction_type": "element",
                "divisor": len(counted),
            }
        }


def _instead(loss: object) -> str:
    """A hint on what to use for a module of rankgrad that `PMLAdapter` does not take."""
    if isinstance(loss, memory.Memory):
        return (
            " Put the memory outside: rankgrad.adapters.pml.CrossBatchMemory(PMLAdapter(loss), ...). The memory of "
            "rankgrad needs sample ids, which that library does not pass on"
        )
    if isinstance(loss, SumLoss):
        return " Adapt each part, and add them up with pytorch_metric_learning.losses.MultipleLosses"
    return ""


class CrossBatchMemory(theirs.CrossBatchMemory):  # type: ignore[misc]
    """pytorch-metric-learning's CrossBatchMemory, which also takes a `PMLAdapter`.

    The class of that library has a list of the names of allowed losses. Nothing else differs. docs/frameworks.md
    describes it with a rank loss. `memory.CrossBatchMemory` is the memory of rankgrad.

    >>> from rankgrad.losses import SupAPLoss
    >>> memory = CrossBatchMemory(PMLAdapter(SupAPLoss()), embedding_size=2, memory_size=8)
    >>> memory(torch.eye(2), torch.tensor([0, 1]))  # nothing to find yet
    tensor(0.)
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Names of the classes that may be wrapped."""
        return [*theirs.CrossBatchMemory.supported_losses(), PMLAdapter.__name__]


class SelfSupervisedLoss(theirs.SelfSupervisedLoss):  # type: ignore[misc]
    """pytorch-metric-learning's SelfSupervisedLoss (two views of each image), which also takes a `PMLAdapter`.

    >>> from rankgrad.losses import SupAPLoss
    >>> loss = SelfSupervisedLoss(PMLAdapter(SupAPLoss()))
    >>> loss(torch.eye(2), torch.eye(2))
    tensor(0.)
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Names of the classes that may be wrapped."""
        return [*theirs.SelfSupervisedLoss.supported_losses(), PMLAdapter.__name__]


# name of a metric in that library -> its name in rankgrad
METRICS = {
    "precision_at_1": "P@1",
    "r_precision": "R-precision",
    "mean_average_precision_at_r": "mAP@R",
    "mean_average_precision": "AP",
    "mean_reciprocal_rank": "MRR",
    "NMI": "NMI",
    "AMI": "AMI",
}


class AccuracyCalculator(accuracy_calculator.AccuracyCalculator):  # type: ignore[misc]
    """The exact metrics of rankgrad for the testers of pytorch-metric-learning, with its names and without faiss.

    It ranks the whole gallery for every query, in blocks, so the memory is bounded: 60 000 queries against 60 000 items
    need less than 2 GiB. Queries without a relevant item are left out, as in that library. `evaluate` describes the
    order of ties; in the calculator of that library, it depends on the search. NMI and AMI use scikit-learn's k-means.

    Args:
        include: names of that library; empty: all metrics. NMI and AMI need a k-means. To save time, exclude them.
        exclude: names of metrics to leave out.
        avg_of_avgs: the value is the mean over the classes of their means.
        return_per_class: the value is a list with one number for each class that has a counted query, in the order of
            the labels.
        metrics: more metrics by their names in rankgrad, such as "R@4", "NDCG" or "AP@10".
        similarity: "euclidean", the default of that library (for embeddings of length 1, the same order as "cosine"),
            "cosine" or "inner product".
        k: not allowed, because lists are not cut. The error says what to use instead.
        device: where to compute; None: the GPU if there is one.

    Attributes:
        report: the whole `Report` of the last call.

    Raises:
        ValueError: a k is given, or a name is unknown; in a call: the labels are not one class per row, or no query has
            a relevant item.

    >>> calculator = AccuracyCalculator(include=("precision_at_1", "mean_average_precision_at_r"), metrics=["R@2"])
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
    >>> calculator.get_accuracy(embeddings, torch.tensor([0, 0, 1, 1]))
    {'mean_average_precision_at_r': 0.5, 'precision_at_1': 0.5, 'R@2': 1.0}
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        avg_of_avgs: bool = False,
        return_per_class: bool = False,
        *,
        metrics: Sequence[str] = (),
        similarity: str = "euclidean",
        k: None = None,
        device: torch.device | None = None,
    ) -> None:
        if k is not None:
            raise ValueError(
                f"k={k!r} would cut the lists, which changes some metrics. rankgrad ranks whole lists and still needs "
                "little memory. Leave k out. For a metric of the first 10 items, use metrics=['AP@10']"
            )
        # the two functions are not called; without them, the base class would need faiss
        super().__init__(
            tuple(include), tuple(exclude), avg_of_avgs, return_per_class, device=device, knn_func=len, kmeans_func=len
        )
        self.metrics, self.similarity = listed(metrics, "metrics", least=0), similarity
        self.report: Report | None = None

    def get_curr_metrics(self) -> list[str]:
        """Names of the metrics of `get_accuracy`."""
        return [*self.curr_function_dict, *self.metrics]

    def get_accuracy(
        self,
        query: Numbers,
        query_labels: Numbers,
        reference: Numbers | None = None,
        reference_labels: Numbers | None = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, float | list[float]]:
        """Metric -> value, or a list of one value per class.

        Args:
            query: [query, dim].
            query_labels: [query] or [query, 1] integers.
            reference: [item, dim]; None: the queries are compared with each other.
            reference_labels: of the references.
            ref_includes_query: the first rows of reference are the queries. A query is not compared with itself.
            include: for this call only.
            exclude: for this call only.
        """
        self.curr_function_dict = self.get_function_dict(include, exclude)
        queries, labels = as_tensor(query, "query"), _one_class(query_labels, "query_labels")
        gallery: dict[str, Any] = {}
        if reference is not None:
            if reference_labels is None:
                raise ValueError("reference needs reference_labels; got none")
            items, of_items = as_tensor(reference, "reference"), _one_class(reference_labels, "reference_labels")
            start = slice(len(queries))
            if ref_includes_query and not (
                items[start].shape == queries.shape
                and torch.allclose(items[start], queries)
                and torch.equal(of_items[start], labels)
            ):
                raise ValueError(
                    "with ref_includes_query, the first rows of reference must equal the rows of query, but they differ"
                )
            if not ref_includes_query or len(items) != len(queries):
                gallery = {"ref_embeddings": items, "ref_labels": of_items}
            if ref_includes_query and gallery:
                gallery["protocol"] = Protocol(ids=torch.arange(len(queries)), ref_ids=torch.arange(len(items)))
        wanted = {name: METRICS[name] for name in self.curr_function_dict} | {name: name for name in self.metrics}
        report = evaluate(
            queries,
            labels,
            **gallery,
            metrics=[*wanted.values()],
            similarity=self.similarity,  # type: ignore[arg-type]  # evaluate says what it may be
            intervals=0,
            device=self.device,
        )
        self.report = report
        return {name: self._averaged(report, ours) for name, ours in wanted.items()}

    def _averaged(self, report: Report, name: str) -> float | list[float]:
        if name not in report.per_query or not (self.avg_of_avgs or self.return_per_class):
            return report.values[name]
        means = [float(row[name]) for row in report.per_class if row["counted"]]
        return means if self.return_per_class else sum(means) / len(means)


def _one_class(labels: Numbers, name: str) -> Tensor:
    """[row] labels from [row] or [row, 1]; the testers use the latter."""
    numbers = as_tensor(labels, name)
    numbers = numbers.squeeze(1) if numbers.ndim == 2 and numbers.shape[1] == 1 else numbers
    if numbers.ndim != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise ValueError(
            f"{name} must be integers [row], one class per row; got {numbers.dtype} {tuple(numbers.shape)}"
        )
    return numbers
