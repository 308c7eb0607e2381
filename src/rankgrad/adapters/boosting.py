"""Losses and metrics for boosted trees: gradient and curvature of a loss for each row, and metrics of the scores."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from ..losses import RetrievalLoss
from ..losses.base import still
from ..scores.evaluation import OF_ONE_LIST, OF_QUERIES, values_of
from ..scores.rows import JudgedRows, has_order

Array = npt.NDArray[Any]
ROUNDING = 1e-6  # largest value of a loss of lists that are in order
LEAST = 1e-3  # curvature of a row without a gradient; the mean over all rows is 1


class BoostedRows(NamedTuple):
    """The rows of a data set, one list after another.

    Attributes:
        labels: [row] 0 and 1, or grades.
        sizes: [list] number of rows of each list; None: unknown.
        weights: [row] or [list] (XGBoost has weights of groups), >= 0. None: all weights are equal.
    """

    labels: Array
    sizes: Array | None
    weights: Array | None = None

    def query(self, one_list: bool) -> torch.Tensor | None:
        """[row] number of its list, not counting lists without rows; None: all rows are one list.

        Raises:
            ValueError: there are no lists, and one_list is False; or the sizes do not fit the rows.
        """
        if one_list:
            return None
        if self.sizes is None or not len(self.sizes):
            raise ValueError(
                "the data set has no groups, so the loss cannot know which rows are ranked against one another. Give "
                "the number of rows of each query as group=. If all rows are one list, give one_list=True"
            )
        sizes = torch.as_tensor(np.asarray(self.sizes, dtype=np.int64))
        if int(sizes.sum()) != len(self.labels):
            raise ValueError(f"the groups have {int(sizes.sum())} rows, but there are {len(self.labels)} labels")
        sizes = sizes[sizes != 0]  # metrics number the lists that have rows
        return torch.arange(len(sizes)).repeat_interleave(sizes)

    def row_weights(self) -> Array | None:
        """[row] weights. Weights of lists are repeated for their rows.

        Raises:
            ValueError: the number of weights is neither that of the rows nor that of the lists.
        """
        if self.weights is None or not len(self.weights):
            return None
        if len(self.weights) == len(self.labels):
            return self.weights
        lists = 0 if self.sizes is None else len(self.sizes)
        if self.sizes is None or len(self.weights) != lists:
            raise ValueError(
                f"there must be one weight for each of {len(self.labels)} rows, or one for each of {lists} lists; "
                f"got {len(self.weights)} weights"
            )
        repeated: Array = np.repeat(self.weights, np.asarray(self.sizes, dtype=np.int64))
        return repeated


def checked_loss(loss: RetrievalLoss) -> RetrievalLoss:
    """The loss, if it can train a model that ranks rows.

    Raises:
        TypeError: it is not a loss of rankgrad.
        ValueError: its value is not one number, or it has no gradient.
    """
    if not isinstance(loss, RetrievalLoss):
        raise TypeError(f"loss must be one of rankgrad.losses, such as LambdaLoss(k=10); got {type(loss).__name__}")
    if loss.reduction != "mean":
        raise ValueError("training needs one number from the loss; create it with reduction='mean'")
    scores = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    with still(loss):
        value = loss.from_lists(scores, torch.tensor([False, True, False]))
    (gradient,) = torch.autograd.grad(value, scores)
    if not gradient.any():
        raise ValueError(f"{loss} has no gradient, so nothing can be learned; use exact ranks only for evaluation")
    return loss


def slopes(loss: RetrievalLoss, scores: Array, rows: BoostedRows, one_list: bool = False) -> tuple[Array, Array]:
    """([row] gradient, [row] curvature > 0) of the loss at these scores, both float64.

    Both are divided by the mean curvature, so that limits such as `min_child_weight` have the same scale for every
    loss. The step of a leaf is the ratio of two sums, so the division does not change it.

    Warns if no row has a gradient although the loss is not 0, and if no list has both a relevant and an irrelevant
    row.
    """
    relevance = torch.as_tensor(np.asarray(rows.labels, dtype=np.float32))
    if bool(((relevance == 0) | (relevance == 1)).all()):
        relevance = relevance > 0  # every loss takes bool, only some take grades
    at = torch.as_tensor(np.asarray(scores, dtype=np.float32)).requires_grad_()
    query = rows.query(one_list)
    value = loss.from_lists(at, relevance, query)
    (gradient,) = torch.autograd.grad(value, at)
    slope = gradient.double().numpy()
    curvature = np.abs(slope)
    mean = curvature.mean()
    if mean > 0:
        slope, curvature = slope / mean, curvature / mean
    elif float(value.detach()) > ROUNDING:
        warnings.warn(
            f"{loss} has no gradient at these scores although lists are out of order, so the next tree learns nothing. "
            "Choose a larger temperature; for RaMBO's losses a larger lambda_, whose effect is divided by the number "
            "of lists",
            stacklevel=3,
        )
    elif not has_order(relevance > 0, query):
        warnings.warn(
            "no list has both a relevant and an irrelevant row, so the trees learn nothing; only the label 0 is "
            "irrelevant. Check the labels",
            stacklevel=3,
        )
    curvature = curvature + LEAST
    weights = rows.row_weights()
    if weights is not None:
        slope, curvature = slope * weights, curvature * weights
    return slope, curvature


def measured(names: Sequence[str], scores: Array, rows: BoostedRows, one_list: bool = False) -> list[tuple[str, float]]:
    """(name, value) of each metric, see `scores.evaluation.evaluate_scores`; higher is better. Weights are not used.

    Args:
        names: such as "NDCG@10"; empty: the default metrics of `evaluate_scores`.
        scores: [row] floats.
        rows: labels and lists.
        one_list: all rows are one list.

    Raises:
        ValueError: see `scores.evaluation.values_of`.
    """
    labels = torch.as_tensor(np.asarray(rows.labels, dtype=np.float32))
    judged = JudgedRows(labels, rows.query(one_list), name="the data set")
    wanted = names or (OF_ONE_LIST if one_list else OF_QUERIES)
    return list(values_of(scores, judged, wanted).items())


@runtime_checkable
class DataSet(Protocol):
    """`lightgbm.Dataset` or `xgboost.DMatrix`."""

    def get_label(self) -> Any:
        """[row] labels."""

    def get_group(self) -> Any:
        """[list] numbers of rows."""

    def get_weight(self) -> Any:
        """[row] or [list] weights."""


def _read(
    first: Array, second: Array | DataSet, weight: Array | None, group: Array | None
) -> tuple[Array, BoostedRows]:
    """(scores, rows). A library's own training gives (scores, data set), its estimators give (labels, scores, ...)."""
    if isinstance(second, DataSet):
        return first, BoostedRows(second.get_label(), second.get_group(), second.get_weight())
    return second, BoostedRows(first, group, weight)


@dataclass(frozen=True)
class Objective:
    """What `objective` returns: a function of scores and data set, or of labels, scores, weights and groups.

    Attributes:
        loss: a loss of lists.
        one_list: whether all rows are one list.
    """

    loss: RetrievalLoss
    one_list: bool = False

    # LightGBM counts the parameters, XGBoost looks for the name sample_weight
    def __call__(
        self, first: Array, second: Array | DataSet, sample_weight: Array | None = None, group: Array | None = None
    ) -> tuple[Array, Array]:
        """(gradient, curvature) of each row."""
        return slopes(self.loss, *_read(first, second, sample_weight, group), self.one_list)


@dataclass(frozen=True)
class BoostedMetrics:
    """Metrics of scores and data set, or of labels, scores, weights and groups.

    Attributes:
        names: of the metrics.
        one_list: whether all rows are one list.
    """

    names: tuple[str, ...]
    one_list: bool = False

    def values(
        self, first: Array, second: Array | DataSet, weight: Array | None = None, group: Array | None = None
    ) -> list[tuple[str, float]]:
        """(name, value) of each metric, see `measured`."""
        return measured(self.names, *_read(first, second, weight, group), self.one_list)
