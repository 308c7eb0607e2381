"""A loss of lists as an objective of LightGBM, and our metrics for its early stopping."""

from __future__ import annotations

try:
    import lightgbm  # noqa: F401  # without it, say how to install it
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "lightgbm"), name=error.name) from None

from ..losses import RetrievalLoss
from .boosting import Array, BoostedMetrics, DataSet, Objective, checked_loss


class Metrics(BoostedMetrics):
    """What `metrics` returns."""

    def __call__(
        self, first: Array, second: Array | DataSet, weight: Array | None = None, group: Array | None = None
    ) -> list[tuple[str, float, bool]]:
        """(name, value, True: higher is better) of each metric."""
        return [(name, value, True) for name, value in self.values(first, second, weight, group)]


def objective(loss: RetrievalLoss, *, one_list: bool = False) -> Objective:
    """A loss as `objective` of LightGBM: in the parameters of `lightgbm.train`, or of `LGBMRanker` and `LGBMModel`.

    The lists are the groups of the data set. The model's predictions are scores: higher is more relevant.

    Args:
        loss: of `rankgrad.losses`, such as LambdaLoss(k=10), with reduction="mean".
        one_list: True: all rows are one list, such as those of a classifier of something rare; groups are not read.

    Raises:
        TypeError, ValueError: the loss is none, or has no gradient. During training: no groups, labels that are NaN.

    >>> import lightgbm
    >>> import numpy as np
    >>> from rankgrad.losses import LambdaLoss
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> data = lightgbm.Dataset(rows, rows[:, 0] > 1, group=[10] * 20)
    >>> model = lightgbm.train({"objective": objective(LambdaLoss(k=10)), "verbose": -1}, data, 10)
    >>> int(model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).argmax())
    0
    """
    return Objective(checked_loss(loss), one_list)


def metrics(*names: str, one_list: bool = False) -> Metrics:
    """Our metrics as `feval` of `lightgbm.train`, or as `eval_metric` of an estimator; 0 to 1, higher is better.

    The values are not weighted, whatever the weights of the data set.

    For early stopping give `lightgbm.early_stopping(rounds, first_metric_only=True)`: the first name decides. LightGBM
    puts a metric of its own before it, which then decides, unless you choose none: metric="None". `LGBMRanker`,
    `LGBMClassifier` and the other estimators have such a metric even with an objective of ours.

    Args:
        names: such as "NDCG@10", "AP", "MRR", "P@10"; of one list "AP", "ROC AUC", "P@100". See
            `rankgrad.scores.evaluation.evaluate_scores`. Without names: all that it reports.
        one_list: True: all rows are one list; groups are not read.

    >>> import numpy as np
    >>> metrics("AP", one_list=True)(np.array([0, 1]), np.array([0.9, 0.8]))  # the relevant row is second
    [('AP', 0.5, True)]
    """
    return Metrics(names, one_list)


__all__ = ["Metrics", "Objective", "metrics", "objective"]
