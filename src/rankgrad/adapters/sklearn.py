"""Estimators of scikit-learn with losses of lists: a classifier of rare rows, and a ranker. Also scorers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import average_precision_score, make_scorer
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    from ..common.extras import install

    raise ModuleNotFoundError(
        f"rankgrad.adapters.sklearn needs scikit-learn: {install('sklearn')}", name=error.name
    ) from None

from ..common.checks import integer, unmasked
from ..common.defaults import LOSSES as DEFAULTS
from ..evaluation import measures
from ..evaluation.statistics import FEW_DRAWN
from ..losses import LOSSES, RetrievalLoss, find, settings
from ..scores.baselines import CrossEntropy, SquaredError, begin_at_the_best_constant
from ..scores.batches import usual_positives
from ..scores.columns import Scaling, odd_values
from ..scores.division import held_out
from ..scores.evaluation import values_of
from ..scores.network import build_ranker
from ..scores.one_list import check_name
from ..scores.rows import JudgedRows, has_order, numbered_queries
from .boosting import checked_loss

Array = npt.NDArray[Any]
OF_ROWS = {"cross_entropy": CrossEntropy, "squared_error": SquaredError}
HELD_OUT = 0.2  # of the rows or queries, with early_stopping
ROWS: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}  # what validate_data takes
EVERY, PATIENCE = 20, 20  # steps between two evaluations; evaluations without a better value that end the training


class _Network(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A network on standardised columns, trained by a loss of lists."""

    _takes = "rows"

    def __init__(
        self,
        loss: RetrievalLoss | str | None = None,
        *,
        hidden: int | Sequence[int] = (64, 64),
        steps: int = 400,
        batch: int = 512,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        early_stopping: bool = True,
        random_state: Any = None,
    ) -> None:
        self.loss, self.hidden, self.steps, self.batch = loss, hidden, steps, batch
        self.learning_rate, self.weight_decay, self.random_state = learning_rate, weight_decay, random_state
        self.early_stopping = early_stopping

    def _train(self, rows: Array, relevance: Tensor, query: Tensor | None, sample_weight: Any) -> None:
        batch = integer(self.batch, "batch is a number of rows", low=2)
        steps = integer(self.steps, "steps counts steps of AdamW", low=1)
        if not has_order(relevance, query):
            raise ValueError("no query has rows of different relevance, so no order can be learned")
        hidden = (self.hidden,) if isinstance(self.hidden, (int, Integral)) else tuple(self.hidden)
        loss, weights = self._loss(relevance), _weights(sample_weight, len(rows))
        if weights is not None and not isinstance(loss, (CrossEntropy, SquaredError)):
            raise ValueError(
                f"{type(loss).__name__} compares the rows of both classes with each other, and cannot weigh single "
                "rows. Give no sample_weight, or loss='cross_entropy' or 'squared_error', which take it"
            )
        self.scaling_ = Scaling.fitted(rows)
        _warn_of_odd(rows, getattr(self, "feature_names_in_", [f"x{place}" for place in range(rows.shape[1])]))
        inputs = self._encoded(rows)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        chosen_on = self._held_out(relevance, query, seed)
        train, kept = ~chosen_on, _Best()
        own = None if query is None else _ids(query[train].numpy(), int(train.sum()))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network_ = build_ranker(inputs.shape[1], hidden).double()
            of_train = None if weights is None else weights[train]
            begin_at_the_best_constant(self.network_, loss, relevance[train], of_train)
            optimizer = torch.optim.AdamW(
                self.network_.parameters(), self.learning_rate, weight_decay=self.weight_decay
            )
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=steps)
            part, grades = inputs[train], relevance[train]
            for step, chosen in enumerate(_batches(grades, own, batch, steps), 1):
                optimizer.zero_grad()
                ids = None if own is None else own[chosen]
                own_weights = {} if of_train is None else {"weights": of_train[chosen]}
                value = loss.from_lists(self.network_(part[chosen]), grades[chosen], ids, **own_weights)
                value.backward()
                optimizer.step()
                schedule.step()
                if bool(chosen_on.any()) and (step % EVERY == 0 or step == steps):
                    with torch.no_grad():
                        scores = self.network_(inputs[chosen_on]).numpy()
                    ids = None if query is None else query[chosen_on]
                    if not kept.better(self._judged(relevance[chosen_on], scores, ids), self.network_):
                        break
        self.n_iter_ = step
        kept.restore(self.network_)

    def _loss(self, relevance: Tensor) -> Any:
        """A loss with `from_lists`."""
        if isinstance(self.loss, str) and self.loss in OF_ROWS:
            made = OF_ROWS[self.loss]()
            if relevance.dtype != torch.bool and not made.graded:
                raise ValueError(
                    f"{self.loss} takes only relevant and irrelevant rows, but y has grades; give grades > 0"
                )
            return made
        loss = self._named_loss() if self.loss is None or isinstance(self.loss, str) else copy.deepcopy(self.loss)
        return checked_loss(loss)  # a copy, as running statistics belong to this training

    def _named_loss(self, **settings: Any) -> RetrievalLoss:
        """The loss that `loss` names, or the default one, with its settings as `rankgrad train` takes them."""
        default, own = DEFAULTS[self._takes]
        name = default if self.loss is None else self.loss
        try:
            kind = find(str(name))
        except ValueError as error:
            raise ValueError(f"{error}, {', '.join(OF_ROWS)}") from None
        return kind(**{**(own if name == default else {}), **settings})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep`, also the settings of a loss object: loss__tau."""
        own = _settings(self.loss) if deep else {}
        return {**super().get_params(deep=False), **{f"loss__{name}": value for name, value in own.items()}}

    def set_params(self, **params: Any) -> _Network:
        """Set parameters; loss__tau=0.1 sets the temperature of the loss, which is made anew."""
        own = {name.removeprefix("loss__"): params.pop(name) for name in [*params] if name.startswith("loss__")}
        super().set_params(**params)
        if own:
            try:
                if self.loss is None or isinstance(self.loss, str):
                    self.loss = self._named_loss(**own)
                else:
                    self.loss = type(self.loss)(**{**_settings(self.loss), **own})
            except TypeError as error:
                raise ValueError(f"loss={self.loss!r} does not take {', '.join(own)}: {error}") from None
        return self

    def _held_out(self, relevance: Tensor, query: Tensor | None, seed: int) -> Tensor:
        """[row] bool, the rows that choose the weights; none if they would be few, or without early_stopping."""
        none = torch.zeros(len(relevance), dtype=torch.bool)
        hits = relevance > 0
        kinds = [hits, ~hits] if query is None else [torch.bincount(query, weights=hits.double()) > 0]
        if not self.early_stopping or min(int(kind.sum()) for kind in kinds) * HELD_OUT < FEW_DRAWN:
            return none
        drawn = held_out(relevance.double().numpy(), None if query is None else query.numpy(), HELD_OUT, seed)
        train = torch.from_numpy(~drawn)
        left = has_order(relevance[train], None if query is None else query[train])
        return ~train if left else none

    def _judged(self, relevance: Any, scores: Array, query: Any) -> float:
        return _value(relevance, scores, query, "AP")

    def _encoded(self, rows: Array) -> Tensor:
        return torch.from_numpy(self.scaling_(rows))

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._scored(_dense(validate_data(self, unmasked(X, "X"), **ROWS, reset=False)))

    def _scored(self, rows: Array) -> Array:
        with torch.no_grad():
            scores: Array = self.network_(self._encoded(rows)).numpy()
        return scores

    def __sklearn_tags__(self) -> Any:
        """Tags of scikit-learn: X may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _settings(loss: Any) -> dict[str, Any]:
    """The settings of a loss of rankgrad; {} for a name, or a loss that is composed of parts."""
    name = next((name for name, kind in LOSSES.items() if type(loss) is kind), None)
    return {} if name is None else {each: getattr(loss, each) for each in settings(name) if each != "_target_"}


class _Best:
    """The weights with the highest value."""

    def __init__(self) -> None:
        self.value, self.since = -np.inf, 0
        self.weights: dict[str, Tensor] = {}

    def better(self, value: float, network: torch.nn.Module) -> bool:
        """Keep the weights if the value is the highest; False if none of the last `PATIENCE` values was."""
        self.since += 1
        if value > self.value:
            self.value, self.since = value, 0
            self.weights = {name: weight.clone() for name, weight in network.state_dict().items()}
        return self.since < PATIENCE

    def restore(self, network: torch.nn.Module) -> None:
        """Load the weights, if there are any."""
        if self.weights:
            network.load_state_dict(self.weights)


def _dense(rows: Any) -> Array:
    dense: Array = rows.toarray() if hasattr(rows, "toarray") else rows
    return dense


def _warn_of_odd(rows: Array, names: Sequence[str]) -> None:
    """One warning with the columns whose values may stand for a missing one."""
    odd = [f"{name} ({what})" for name, column in zip(names, rows.T, strict=True) if (what := odd_values(column))]
    if odd:
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        warnings.warn(
            f"{len(odd)} of {len(names)} columns have values apart from the others: {'; '.join(odd[:3])}{more}. "
            "If they stand for a missing value, put SimpleImputer(missing_values=VALUE) before this estimator",
            stacklevel=4,
        )


def _weights(given: Any, rows: int) -> Tensor | None:
    """[row] weights with the mean 1; None: all are alike."""
    if given is None:
        return None
    weights = np.asarray(column_or_1d(unmasked(given, "sample_weight")), dtype=np.float64)
    check_consistent_length(weights, range(rows))
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0")
    if not weights.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")  # the words of scikit-learn
    return None if (weights == weights[0]).all() else torch.from_numpy(weights / weights.mean())


def _batches(relevance: Tensor, query: Tensor | None, size: int, steps: int) -> Iterator[Tensor]:
    """Rows of each step: whole queries; or rows of one list, with the usual fraction of relevant rows, at least one."""
    hits, others = (part.nonzero().squeeze(1) for part in (relevance > 0, relevance <= 0))
    few = min(usual_positives(size, len(hits), len(relevance)), size - 1)
    queries = 0 if query is None else int(query.max()) + 1
    for _ in range(steps):
        if query is None:
            yield torch.cat([part[torch.randperm(len(part))[:n]] for part, n in ((hits, few), (others, size - few))])
        else:
            chosen = torch.zeros(queries, dtype=torch.bool)
            chosen[torch.randperm(queries)[: max(1, round(size * queries / len(query)))]] = True
            yield chosen[query].nonzero().squeeze(1)


class RankClassifier(ClassifierMixin, _Network):  # type: ignore[misc]
    """A classifier of two classes for rare positives. It is trained on the ranking of the rows, such as AP.

    The network does not estimate probabilities. The threshold of `predict` is set so that as many training rows are
    above it as are positive.

    Args:
        loss: a loss of `rankgrad.losses`, or its name in `losses.LOSSES`. None: InfoNCELoss(tau=0.1). Or
            "cross_entropy" or "squared_error". Its settings are parameters, too: set_params(loss__tau=0.1).
        hidden: number of units of each hidden layer; an integer for one layer, () for a linear model.
        steps: largest number of steps of AdamW, with a cycle of the learning rate.
        batch: number of rows in a step, >= 2. Positives have their fraction of all rows, at least one row.
        learning_rate: highest learning rate of the cycle.
        weight_decay: weight decay of AdamW.
        early_stopping: hold out a fifth of the rows, keep the weights with the highest AP on them, measured every 20
            steps, and stop if 20 values in a row are not higher. Nothing is held out if it would have fewer than ten
            rows of a class.
        random_state: seed, as in scikit-learn.
        positive: label of the positive class; None: the second one of `classes_`, in sorted order.

    Attributes:
        positive_: label of the positive class.

    >>> rows = np.random.default_rng(0).normal(size=(1000, 4))
    >>> rare = (rows[:, 0] + rows[:, 1] > 2.9).astype(int)  # about 2 %
    >>> model = RankClassifier(random_state=0, steps=50).fit(rows, rare)
    >>> bool(model.score(rows, rare) > 0.9)  # average precision
    True
    """

    def __init__(
        self,
        loss: RetrievalLoss | str | None = None,
        *,
        hidden: int | Sequence[int] = (64, 64),
        steps: int = 400,
        batch: int = 512,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        early_stopping: bool = True,
        random_state: Any = None,
        positive: Any = None,
    ) -> None:
        super().__init__(
            loss,
            hidden=hidden,
            steps=steps,
            batch=batch,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            random_state=random_state,
        )
        self.positive = positive

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RankClassifier:
        """Train on rows [row, feature] and their classes [row]; cross-entropy and the squared error take weights [row].

        Warns if the positive class is the larger one and `positive` does not name it.
        """
        X, y = validate_data(self, unmasked(X, "X"), unmasked(y, "y"), **ROWS)
        X = _dense(X)
        check_classification_targets(y)
        self.classes_, classes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            number = f"{len(self.classes_)} class{'es' * (len(self.classes_) > 1)}"
            raise ValueError(f"Only binary classification is supported: y must have 2 classes; got {number}")
        if self.positive is not None and self.positive not in self.classes_.tolist():
            raise ValueError(f"positive must be one of the classes {self.classes_.tolist()}; got {self.positive!r}")
        self.positive_ = self.classes_[1] if self.positive is None else self.positive
        hits = torch.from_numpy(self.classes_[classes] == self.positive_)
        count = int(hits.sum())
        if self.positive is None and 2 * count > len(hits):
            warnings.warn(
                f"the positive class is {self.positive_!s}, which {count} of {len(hits)} rows have. RankClassifier is "
                f"for rare positives: name the positive class, positive={self.classes_.tolist()[0]!r}",
                stacklevel=2,
            )
        self._train(X, hits, None, sample_weight)
        ordered = np.sort(self._scored(X))[::-1]
        self.threshold_ = float(ordered[count - 1] + ordered[count]) / 2
        return self

    def _above(self, X: Any) -> Array:
        """[row] score minus threshold. Above 0 is the positive class."""
        above: Array = self._scores(X) - self.threshold_
        return above

    def decision_function(self, X: Any) -> Array:
        """[row] score minus threshold. Above 0 is the second class, as everywhere in scikit-learn.

        If the positive class is the first class, the sign is reversed.
        """
        above = self._above(X)
        return above if self.positive_ == self.classes_[1] else -above

    def predict(self, X: Any) -> Array:
        """[row] classes."""
        second = self.decision_function(X) > 0
        classes: Array = self.classes_[second.astype(int)]
        return classes

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Average precision of the positive class, in (0, 1]. With weights, the value of scikit-learn."""
        hits, scores = column_or_1d(unmasked(y, "y")) == self.positive_, self._above(X)
        weights = None if sample_weight is None else column_or_1d(unmasked(sample_weight, "sample_weight"))
        if weights is None:
            return self._judged(hits, scores, None)
        return float(average_precision_score(hits, scores, sample_weight=weights))

    def __sklearn_tags__(self) -> Any:
        """Tags of scikit-learn: the classifier takes two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class Ranker(_Network):
    """A network that scores the documents of queries. A loss of lists trains it on grades.

    Args:
        loss: a loss of `rankgrad.losses`, or its name in `losses.LOSSES`. None: LambdaLoss(). Or "squared_error"; for
            y of 0 and 1 also "cross_entropy". Its settings are parameters, too: set_params(loss__tau=0.1).
        hidden: number of units of each hidden layer; an integer for one layer, () for a linear model.
        steps: largest number of steps of AdamW, with a cycle of the learning rate.
        batch: approximate number of rows in a step, which has whole queries.
        learning_rate: highest learning rate of the cycle.
        weight_decay: weight decay of AdamW.
        early_stopping: hold out a fifth of the queries, keep the weights with the highest NDCG@10 on them, measured
            every 20 steps, and stop if 20 values in a row are not higher. Nothing is held out if fewer than ten queries
            of it would have a relevant row.
        random_state: seed, as in scikit-learn.

    >>> g = np.random.default_rng(0)
    >>> rows, query = g.normal(size=(400, 3)), np.repeat(np.arange(40), 10)
    >>> model = Ranker(random_state=0, steps=50).fit(rows, rows[:, 0] > 1, query=query)
    >>> bool(model.score(rows, rows[:, 0] > 1, query=query) > 0.9)  # NDCG@10
    True
    """

    _takes = "queries"

    def fit(self, X: Any, y: Any, query: Any = None, sample_weight: Any = None) -> Ranker:
        """Train on rows [row, feature], grades [row] >= 0 and query ids [row]; without ids all rows are one list.

        Cross-entropy and the squared error take weights [row].
        """
        X, y = validate_data(self, unmasked(X, "X"), unmasked(y, "y"), **ROWS, y_numeric=True, ensure_min_samples=2)
        X = _dense(X)
        negative = np.flatnonzero(y < 0)
        if len(negative):
            raise ValueError(f"y must be grades >= 0; row {negative[0]} has {y[negative[0]]:g}")
        self.has_queries_ = query is not None
        grades = torch.from_numpy(np.array(y, dtype=np.float64))  # a copy: pandas' y is read-only
        hits = bool(((grades == 0) | (grades == 1)).all())  # every loss takes bool, only some take grades
        self._train(X, grades > 0 if hits else grades, _ids(query, len(X)), sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """[row] scores; higher is more relevant."""
        return self._scores(X)

    def score(self, X: Any, y: Any, query: Any = None, sample_weight: Any = None) -> float:
        """Mean NDCG@10 of the queries that have a relevant row; without ids, NDCG@10 of the one list.

        Raises:
            ValueError: `fit` got query ids but this call has none, or there are weights.
        """
        check_is_fitted(self)
        if sample_weight is not None:
            raise ValueError("Ranker.score takes no sample_weight: NDCG@10 is not weighted. Give None")
        if self.has_queries_ and query is None:
            raise ValueError(
                "fit got query ids but score has none: give score(X, y, query=ids). Searches, cross-validation and "
                "pipelines pass them on by metadata routing: sklearn.set_config(enable_metadata_routing=True) and "
                "Ranker().set_fit_request(query=True).set_score_request(query=True)"
            )
        return self._judged(y, self.predict(X), query)

    def _judged(self, relevance: Any, scores: Array, query: Any) -> float:
        return _value(relevance, scores, np.zeros(len(scores)) if query is None else query, "NDCG@10")

    def __sklearn_tags__(self) -> Any:
        """Tags of scikit-learn: grades are needed, and are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        return tags


def scorer(metric: str, *, positive: Any = None) -> Callable[..., float]:
    """A metric of rankgrad for `scoring=` of `cross_val_score`, `GridSearchCV` and others; higher is better.

    With query ids, the value is a mean over queries. The ids are metadata. scikit-learn passes them on after
    `sklearn.set_config(enable_metadata_routing=True)` and `scorer("NDCG@10").set_score_request(query=True)`.

    Args:
        metric: without queries "AP", "ROC AUC", "ROC AUC@FPR=0.05", "P@100"; with queries "NDCG@10", "AP", "MRR",
            "P@10"; see `rankgrad.scores.evaluation.evaluate_scores`.
        positive: label of the positive class, as for `RankClassifier`; None: the second one of two classes in sorted
            order, or y has grades.

    Raises:
        ValueError: the metric is unknown.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = LogisticRegression().fit(rows, rows[:, 0] > 1)
    >>> bool(scorer("AP")(model, rows, rows[:, 0] > 1) > 0.9)
    True
    """
    # cross_val_score turns an error of a scorer into NaN, so the name is checked here
    try:
        check_name(metric)
    except ValueError:
        measures.reading(metric)  # of a list for each query
    own = {} if positive is None else {"pos_label": positive}
    made: Callable[..., float] = make_scorer(
        _measured, response_method=("decision_function", "predict"), metric=metric, **own
    )
    return made


def _measured(y: Any, scores: Array, query: Any = None, *, metric: str, pos_label: Any = None) -> float:
    labels = np.asarray(column_or_1d(unmasked(y, "y")))
    values = np.unique(labels)
    if pos_label is not None:
        labels = labels == pos_label
    elif query is None and len(values) == 2:
        labels = labels == values[1]  # classes, which may be strings
    elif labels.dtype.kind not in "biuf":
        raise ValueError(
            f"y has the classes {values.tolist()[:5]}, but {metric} needs two classes. If these are the rows of a "
            "fold, divide with StratifiedKFold; or name the positive class: scorer(metric, positive=LABEL)"
        )
    return _value(labels, scores, query, metric)


def _value(relevance: Any, scores: Array, query: Any, metric: str) -> float:
    grades = torch.from_numpy(np.asarray(unmasked(relevance, "y"), dtype=np.float32))
    rows = JudgedRows(grades, _ids(query, len(grades)), name="the data set")
    return values_of(scores, rows, [metric])[metric]


def _ids(query: Any, rows: int) -> Tensor | None:
    """[row] numbers of the queries, from 0 on."""
    if query is None:
        return None
    ids = column_or_1d(unmasked(query, "query"))
    check_consistent_length(ids, range(rows))
    return numbered_queries(ids)[0]


__all__ = ["RankClassifier", "Ranker", "scorer"]
