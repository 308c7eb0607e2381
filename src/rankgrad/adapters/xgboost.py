"""A loss of lists as an objective of XGBoost, and our metrics for its early stopping."""

from __future__ import annotations

try:
    import xgboost  # noqa: F401  # without it, say how to install it
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "xgboost"), name=error.name) from None

from ..losses import RetrievalLoss
from .boosting import Array, BoostedMetrics, DataSet, Objective, checked_loss


class Metrics(BoostedMetrics):
    """What `metrics` returns."""

    @property
    def __name__(self) -> str:
        """By which an estimator records its values."""
        return self.names[0].replace(" ", "_") if self.names else "metrics"

    def __call__(
        self, first: Array, second: Array | DataSet, sample_weight: Array | None = None
    ) -> list[tuple[str, float]] | float:
        """(name, value) of each metric, or the value of the only one for (labels, scores) of an estimator.

        XGBoost separates names by spaces, so they have underscores here.

        Raises:
            ValueError: an estimator takes one metric only.
        """
        if isinstance(second, DataSet):
            return [(name.replace(" ", "_"), value) for name, value in self.values(first, second)]
        if len(self.names) != 1:
            raise ValueError(f"eval_metric of an estimator is one metric; got {len(self.names)} names")
        return self.values(first, second)[0][1]


def objective(loss: RetrievalLoss, *, one_list: bool = False) -> Objective:
    """A loss as `obj` of `xgboost.train`, or with one_list=True as `objective` of `XGBClassifier`.

    The lists are the groups or query ids of the `DMatrix`. `XGBRanker` takes no objective of one's own. The model's
    predictions are scores: higher is more relevant; predict with output_margin=True.

    Args:
        loss: of `rankgrad.losses`, such as LambdaLoss(k=10), with reduction="mean".
        one_list: True: all rows are one list, such as those of a classifier of something rare; groups are not read.

    Raises:
        TypeError, ValueError: the loss is none, or has no gradient. During training: no groups, labels that are NaN.

    >>> import numpy as np
    >>> import xgboost
    >>> from rankgrad.losses import LambdaLoss
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> data = xgboost.DMatrix(rows, rows[:, 0] > 1, group=[10] * 20)
    >>> model = xgboost.train({"disable_default_eval_metric": True}, data, 10, obj=objective(LambdaLoss(k=10)))
    >>> int(model.predict(xgboost.DMatrix([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])).argmax())
    0
    """
    return Objective(checked_loss(loss), one_list)


def metrics(*names: str, one_list: bool = False) -> Metrics:
    """Our metrics as `custom_metric` of `xgboost.train`; 0 to 1, higher is better: give it maximize=True.

    One metric with one_list=True is also an `eval_metric` of `XGBClassifier`. Its early stopping takes the lowest value
    unless you give callbacks=[xgboost.callback.EarlyStopping(rounds=10, maximize=True)] in place of
    `early_stopping_rounds`. The values are not weighted, whatever the weights of the data.

    Args:
        names: such as "NDCG@10", "AP", "MRR", "P@10"; of one list "AP", "ROC AUC", "P@100". See
            `rankgrad.scores.evaluation.evaluate_scores`. Without names: all that it reports.
        one_list: True: all rows are one list; groups are not read.

    >>> import numpy as np
    >>> import xgboost
    >>> data = xgboost.DMatrix(np.zeros((4, 1)), [1, 0, 0, 1], group=[2, 2])
    >>> metrics("MRR", "P@1")(np.array([2.0, 1.0, 2.0, 1.0]), data)
    [('MRR', 0.75), ('P@1', 0.5)]
    """
    return Metrics(names, one_list)


__all__ = ["Metrics", "metrics", "objective"]
