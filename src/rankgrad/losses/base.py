"""Base class of all losses: the call, the scores of embeddings, the reduction, the statistics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor, nn

from ..common.checks import Numbers, closest, flag, integer, one_of, tensor
from ..ranks import check_lists, computed
from ..ranks.first_order import first_order
from ..ranks.lists import has_kinds, require_positives
from ..ranks.normalize import unit_rows
from ..ranks.relevance import EVERY, MOST_LEVELS, Labels, from_indices_tuple, from_labels, validity
from ..ranks.types import Mask, PerQuery, Scores
from .by_class import checked_targets
from .by_query import Rectangles, checked_rows
from .checked import Batch, CheckedLoss, held, tensor_on
from .tiles import Tiles, costs_by_tiles, worth_tiles

if TYPE_CHECKING:
    from typing_extensions import NotRequired

Reduction = Literal["mean", "none"]
Hierarchy = Literal["gains", "levels", "finest"]

# Scores and gains up to these limits give a finite loss and gradient: slopes and sums do not overflow.
LARGEST = {torch.float32: 1e30, torch.float64: 1e300}


class Common(TypedDict):
    """Keyword arguments that every loss takes (see `RetrievalLoss`)."""

    reduction: NotRequired[Reduction]
    include_self: NotRequired[bool]
    normalize: NotRequired[bool]
    check_finite: NotRequired[bool | None]
    positives: NotRequired[int | None]


class RetrievalLoss(CheckedLoss):
    """Base of all losses. A subclass computes the cost of each query (`per_query`); this class does the rest.

    Queries without a relevant item are left out of the mean and have a zero gradient row; `stats["counted"]` shows
    which queries count. If no query counts, the loss is 0, attached to the graph. Computation is in float32 (float64
    for float64 input), also inside autocast.

    Args:
        reduction: "mean": a scalar, the mean over the counted queries. "none": [query] the cost of each query, 0 where
            it does not count.
        include_self: without references, keep each query in its own list as a relevant item, as published codes do.
        normalize: L2-normalise the rows of the embeddings first. A zero row stays zero and has cosine 0 with every
            item; `stats["zero_rows"]` counts such rows.
        check_finite: check the input for NaN, infinity, and numbers so large that sums overflow (`LARGEST`). None:
            ValueError on CPU, an asynchronous assertion on CUDA and in compiled code. True: ValueError everywhere.
            False: no check.
        positives: a promise that every query has exactly this many relevant valid items: K - 1 in batches of P classes
            x K images (K with include_self). Then the host never waits for a GPU, and torch.compile needs no value of
            a tensor. A broken promise is a ValueError on CPU, an asynchronous assertion elsewhere. None: the numbers
            may differ, and each call reads them once.

    Attributes:
        stats: detached tensors of the last call: "counted", "has_relevant" and "has_irrelevant" [query] bool,
            "zero_rows", and what a loss adds. Without a relevant and an irrelevant item there is no order to learn: a
            loss of 0 then does not mean that the batch is solved. The next call replaces `stats`. They are not part of
            the state_dict.
        tiles: the parts in which `per_query` gets a large batch, during the call; None: it gets all queries at once.
        graded: whether the loss uses float gains (hierarchical labels). If not, it reads hierarchical labels at their
            finest level and raises on float gains.
        levels: whether the loss also takes integers: the number of levels that query and item share, 0 .. 64. It then
            gets hierarchical labels in this form.
        soft: whether relevance may be negative: the scores of a teacher, whose order and differences are the targets.
        differences_only: whether the loss depends only on score differences: a constant added to a row changes nothing.
        separate: whether a query's cost, and its gradient times the number of counted queries, depend only on its own
            list. Then `from_lists` may compute lists in groups of similar length.
        by_parts: whether `per_query` may get the queries of a batch in several parts, because it asks `over_batch` for
            what it needs of the others. Large batches then take little memory, see `tiles`. True if it is `separate`.
        takes: which of `log_q` and `weights` the loss takes, see `from_scores`. `per_query` gets them by name.
        optimises: what the loss optimises, in a few words.
        source: authors, venue, year and number in Markdown, for citation in a model card.

    >>> class HardestMargin(RetrievalLoss):  # best irrelevant score minus best relevant score
    ...     graded = False
    ...     def per_query(self, scores, relevant, valid):
    ...         exists = torch.ones_like(relevant) if valid is None else valid
    ...         best, own = (scores.masked_fill(~(side & exists), -1).amax(1) for side in (~relevant, relevant))
    ...         return best - own, (relevant & exists).any(1)
    >>> HardestMargin()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))  # cosines 0 and 1
    tensor(-1.)
    """

    graded: ClassVar[bool] = True
    soft: ClassVar[bool] = False
    differences_only: ClassVar[bool] = False
    separate: bool = False
    takes: ClassVar[tuple[str, ...]] = ()
    optimises: ClassVar[str] = ""
    source: ClassVar[str] = ""
    levels: ClassVar[bool] = False
    stats: dict[str, Tensor]

    def __init__(
        self,
        *,
        reduction: Reduction = "mean",
        include_self: bool = False,
        normalize: bool = True,
        check_finite: bool | None = None,
        positives: int | None = None,
        **unknown: object,
    ) -> None:
        super().__init__()
        if unknown:
            given, known = next(iter(unknown)), self._options()
            raise TypeError(
                f"{type(self).__name__} has no option {given!r}{closest(given, known)} It has {', '.join(known)}"
            )
        self.reduction: Reduction = one_of(reduction, "reduction", ("mean", "none"))
        self.include_self, self.normalize = flag(include_self, "include_self"), flag(normalize, "normalize")
        self.check_finite = None if check_finite is None else flag(check_finite, "check_finite")
        self.positives = positives
        if positives is not None:
            self.positives = integer(positives, "positives is the number of relevant items of every query", low=1)
        self.stats = {}
        self._still = False
        self.tiles: Tiles | None = None

    # ------------------------------------------------------------------ what a loss defines

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """([query] cost, [query] bool: True where the query counts). Scores are finite float32 or float64.

        `relevant` is bool, float gains if the loss is `graded`, or integers if it takes `levels`.
        """
        raise NotImplementedError

    def components(self) -> dict[str, Tensor]:
        """The terms whose sum is the last value: name -> detached scalar. {} if the loss has only one term."""
        return {}

    def remember(self) -> None:
        """Update the running statistics with the values of the last call, if the loss has such statistics.

        It is called once per training pass (see `moves`), at the end of the pass, and only if no check failed.
        """

    @property
    def moves(self) -> bool:
        """Whether the current call updates the running statistics: in training mode, with gradients enabled.

        No call inside `still` updates them. No call in a backward pass does: there, checkpointing repeats a forward
        pass.
        """
        return self.training and torch.is_grad_enabled() and not self._still and not in_backward()

    @property
    def by_parts(self) -> bool:
        """Whether the queries of a batch may be computed in parts, see the attributes of the class."""
        return self.separate

    def over_batch(self, name: str, count: Callable[..., Tensor], *part: Tensor | None) -> Tensor:
        """A sum over all queries of the batch, without gradient.

        Args:
            name: a name of the sum, unique in the loss.
            count: (relevant, valid) or (relevant, valid, scores) of some queries -> their sum.
            part: the arguments for the queries that `per_query` got.
        """
        tiles = self.tiles
        if tiles is None:
            with torch.no_grad():
                return count(*part)
        return tiles.once((self, name), lambda: tiles.sum(count, scored=len(part) > 2))

    def with_value(self, name: str, value: object) -> AbstractContextManager[None]:
        """A context in which an attribute of the loss, and of the losses inside it, has this value."""
        return held(self, name, value)

    def queries(self, scores: Scores) -> int:
        """Number of queries of the whole batch, from the scores that `per_query` got."""
        return len(scores) if self.tiles is None else self.tiles.queries

    # ------------------------------------------------------------------ what a user calls

    def forward(
        self,
        embeddings: Numbers,
        labels: Labels | None = None,
        indices_tuple: Sequence[Numbers] | None = None,
        ref_emb: Numbers | None = None,
        ref_labels: Labels | None = None,
        *,
        ids: Numbers | None = None,
        ref_ids: Numbers | None = None,
        relevant: Numbers | None = None,
        valid: Numbers | None = None,
    ) -> Tensor:
        """Loss of a batch of embeddings against itself, or against references.

        Each argument may be a tensor, a numpy array or a list. Arrays and lists become tensors (`checks.tensor`,
        `relevance.as_labels`) on the device of the embeddings. Tensors are never moved.

        Args:
            embeddings: [query, dim] float.
            labels: long [query] or strings, one class each; bool [query, class] multi-hot (an item is relevant if it
                shares a class); or long [query, level], a hierarchy from coarse to fine (gains as in HAPPIER if the
                loss is graded). Not needed with `relevant` or `indices_tuple`.
            indices_tuple: pairs or triplets of pytorch-metric-learning: the loss uses only these pairs.
            ref_emb: [item, dim] references, e.g. a memory. Without them, every query is compared with the other rows.
            ref_labels: labels of the references, of the same kind.
            ids: [query] integer sample ids. A query is never compared with an item of its own id.
            ref_ids: [item] sample ids of the references.
            relevant: [query, item] bool or gains (for some losses integer `levels`). It is used instead of the
                labels, if both are given.
            valid: [query, item] bool; False removes an item from that query's list.

        Returns:
            Scalar, or [query] with reduction="none".

        Raises:
            ValueError: a shape or dtype is wrong, the number of labels differs from the number of embeddings, or a
                value is NaN or infinite.
            TypeError: an argument does not hold numbers, or labels are floats.
        """
        batch = self.checked(
            embeddings,
            labels,
            indices_tuple=indices_tuple,
            ref_emb=ref_emb,
            ref_labels=ref_labels,
            ids=ids,
            ref_ids=ref_ids,
            relevant=relevant,
            valid=valid,
        )
        batch = self.prepared(batch)
        zero_rows = self.stats["zero_rows"]
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            found = costs_by_tiles(self, batch) if worth_tiles(self, batch) else None
            loss = self._reduced(*self.score_rows(batch)) if found is None else self.reduced(*found)
        self.stats["zero_rows"] = zero_rows
        return loss

    def prepared(self, batch: Batch) -> Batch:
        """The batch with the rows whose products are the scores; `stats` has "zero_rows" afterwards."""
        rows, items = self._prepare(batch.embeddings), None if batch.ref_emb is None else self._prepare(batch.ref_emb)
        self.stats = {"zero_rows": (rows.detach() == 0).all(1).sum()}
        if items is not None:
            kind = torch.promote_types(rows.dtype, items.dtype)
            rows, items = rows.to(kind), items.to(kind)
        return replace(batch, embeddings=rows, ref_emb=items)

    def score_rows(self, batch: Batch, rows: slice = EVERY) -> tuple[Scores, Tensor, Mask | None]:
        """The scores of a `prepared` batch, its relevance and its valid entries, as `from_scores` takes them.

        Args:
            batch: the queries and what they are compared with.
            rows: the queries of the result, consecutive.
        """
        relevant, allowed = self.relevance(batch, rows)
        # autocast would round the scores to half precision, which is coarser than a temperature of 0.01
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            scores = batch.embeddings[rows] @ batch.items.T
        check_lists(scores, relevant, allowed, levels=self.levels)
        if not self.normalize:
            first, *_ = rows.indices(len(batch.embeddings))
            self._require_computable("products of embeddings that are not normalised", scores, first)
        return scores, relevant, allowed

    def relevance(self, batch: Batch, rows: slice = EVERY) -> tuple[Tensor, Mask | None]:
        """Relevance and validity [query, item] of some rows of a batch."""
        device, same = batch.embeddings.device, batch.ref_emb is None
        allowed: Mask | None
        if batch.indices_tuple is not None:
            relevant, allowed = from_indices_tuple(batch.indices_tuple, *batch.shape)
            relevant, allowed = relevant[rows], allowed[rows]
        else:
            own: dict[str, Any] = {"ids": batch.ids, "ref_ids": batch.ref_ids, "include_self": self.include_self}
            if batch.relevant is not None:
                relevant = batch.relevant[rows]
                allowed = validity(*batch.shape, same=same, device=device, rows=rows, **own)
            elif batch.labels is None:
                raise ValueError("labels are needed: pass labels, relevant or indices_tuple")
            else:
                kind: Hierarchy = "levels" if self.levels else "gains" if self.graded else "finest"
                relevant, allowed = from_labels(batch.labels, batch.ref_labels, hierarchy=kind, rows=rows, **own)
            if same:
                relevant, allowed = self._with_query(relevant, allowed, rows)
        if batch.valid is not None:
            allowed = batch.valid[rows] if allowed is None else allowed & batch.valid[rows]
        return relevant, allowed

    def from_scores(
        self,
        scores: Numbers,
        relevant: Numbers,
        valid: Numbers | None = None,
        *,
        log_q: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> Tensor:
        """Loss of any score matrix: tensors, numpy arrays or lists.

        Args:
            scores: [query, item] float, higher is closer. Losses that use absolute scores (FastAP, SoftBinAP, AUC,
                calibration) expect cosine similarities.
            relevant: [query, item] bool, or float gains >= 0, or integers if the loss takes `levels`. Gains are rounded
                to the precision of the scores; an item whose gain rounds to 0 is irrelevant.
            valid: [query, item] bool; False removes an item from that query's list.
            log_q: [query, item], if lists are samples: the log of the probability that an item was drawn into its list
                (of the expected number of times, if it may be there twice), 0 for items that are always in it, such as
                the relevant ones. In the sum over the items of a softmax, each is divided by its probability, so the
                sum is, in the mean, that of the whole list: the log_q correction (Bengio and Senécal, IEEE Trans.
                Neural Networks 2008; Yi et al., RecSys 2019).
            weights: [query, item] >= 0, factors of the costs of the relevant items, such as inverse propensities of
                clicks, clipped (Joachims, Swaminathan and Schnabel, WSDM 2017). Those of other items have no effect.
                Nothing is divided by their sum.

        Returns:
            Scalar, or [query] with reduction="none".

        Raises:
            ValueError, TypeError: shapes or dtypes do not fit, a value is out of its range, or the loss does not take
                `log_q` or `weights` (see `takes`).
        """
        scores = tensor(scores, "scores")
        relevant = tensor_on(scores.device, relevant, "relevant")
        valid = None if valid is None else tensor_on(scores.device, valid, "valid")
        check_lists(scores, relevant, valid, levels=self.levels)
        self._require_computable("scores", scores)
        given = self._taken(scores, log_q=log_q, weights=weights)
        with torch.autocast(scores.device.type, enabled=False):
            return self._reduced(scores, relevant, valid, **given)

    def from_lists(
        self,
        scores: Numbers,
        relevance: Numbers,
        query: Labels | None = None,
        *,
        log_q: Numbers | None = None,
        weights: Numbers | None = None,
    ) -> Tensor:
        """Loss of lists of any lengths, given as rows with a query id: documents of a query, or rows of a table.

        The value equals `from_scores` of all lists, with the shorter ones padded by items that are not valid. If the
        loss is `separate`, memory grows with the number of rows only. For other losses the cost of a query depends on
        all lists, and memory is queries x longest list.

        Args:
            scores: [row] float, higher is more relevant.
            relevance: [row] bool, or float gains >= 0, or integers if the loss takes `levels`.
            query: [row] integers or strings, in any order: rows of the same id form a list. None: all rows are one
                list.
            log_q: [row], see `from_scores`.
            weights: [row], see `from_scores`.

        Returns:
            Scalar. With reduction="none": [query] by ascending id.

        Raises:
            ValueError, TypeError: shapes or dtypes do not fit, or a value is NaN or infinite; the message names the
                row.

        >>> from rankgrad.losses import SmoothAPLoss
        >>> scores, hits = torch.tensor([0.9, 0.3, 0.5, 0.1]), torch.tensor([False, True, True, False])
        >>> SmoothAPLoss().from_lists(scores, hits, query=[7, 4, 7, 4])  # list 4 is in order, list 7 is not
        tensor(0.2500)
        """
        scores = tensor(scores, "scores")
        relevance = tensor_on(scores.device, relevance, "relevance")
        ids = checked_rows(scores, relevance, query, levels=self.levels)
        self._require_computable("scores", scores.unsqueeze(1))
        given = self._taken(scores, log_q=log_q, weights=weights)
        scores = computed(scores)
        if relevance.dtype != torch.bool:
            self._check_gains(relevance.unsqueeze(1), scores, "relevance")
        one = Rectangles([(1, len(scores))], None, None)
        shape = one if ids is None else Rectangles.of(ids, self.separate)
        with torch.autocast(scores.device.type, enabled=False):
            parts = {name: shape.cut(values) for name, values in given.items()}
            return self._mean_of(shape, shape.cut(scores), shape.cut(relevance), shape.valid(), **parts)

    def from_classes(
        self, logits: Numbers, targets: Numbers, valid: Numbers | None = None, *, one_list: bool = False
    ) -> Tensor:
        r"""Loss of a classifier. Each class is a query, and its logits rank the rows.

            L = 1/|C+| sum_{c in C+} l(logits_c, targets_c)        C+: the classes that have a positive row

        With l = 1 - AP it is 1 - mAP of RaMBO (Rolínek et al., CVPR 2020, section 3.1.1, eq. 6). Classes without a
        positive row have no AP and are left out. A row may belong to any number of classes, also to none. To weight
        the classes, use reduction="none" and multiply its values by the weights.

        Args:
            logits: [row, class] float, higher is more likely.
            targets: [row, class] bool, or 0 and 1 in any dtype. torch.nn.functional.one_hot makes them from class
                indices.
            valid: [row, class] bool; False where the label is missing. Such a row is not in the list of that class,
                and its target is ignored.
            one_list: True: all entries form one list, so the logits of different classes are also compared (AP^C of
                RaMBO, section 4.6).

        Returns:
            Scalar. With reduction="none": [class], or [1] with one_list.

        Raises:
            ValueError: shapes or dtypes do not fit, a value is NaN or infinite, or a target is neither 0 nor 1.

        >>> from rankgrad.losses import SmoothAPLoss
        >>> logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 3.0, 2.0]])
        >>> targets = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0]])  # class 0 is in order, class 1 is not
        >>> SmoothAPLoss(reduction="none").from_classes(logits, targets)
        tensor([0.0000, 0.5000, 0.0000])
        >>> SmoothAPLoss().from_classes(logits, targets)  # nothing is of class 2
        tensor(0.2500)
        """
        logits = tensor(logits, "logits")
        targets = tensor_on(logits.device, targets, "targets")
        valid = None if valid is None else tensor_on(logits.device, valid, "valid")
        targets = checked_targets(logits, targets, valid)
        self._require_computable("logits", logits)
        shape = (1, -1) if one_list else logits.T.shape
        logits, targets = logits.T.reshape(shape), targets.T.reshape(shape)
        with torch.autocast(logits.device.type, enabled=False):
            return self._reduced(logits, targets, None if valid is None else valid.T.reshape(shape))

    # ------------------------------------------------------------------ how

    def _with_query(self, relevant: Tensor, valid: Mask | None, rows: slice) -> tuple[Tensor, Mask | None]:
        """Relevance and validity of a batch compared with itself. A loss may put each query into its own list."""
        return relevant, valid

    def _prepare(self, embeddings: Tensor) -> Tensor:
        rows = computed(embeddings)
        return unit_rows(rows) if self.normalize else rows

    def _taken(self, scores: Tensor, **given: Numbers | None) -> dict[str, Tensor]:
        """`log_q` and `weights`, if they are given, in the precision of the computation."""
        found = {}
        for name, values in given.items():
            if values is None:
                continue
            if name not in self.takes:
                raise TypeError(
                    f"{type(self).__name__} does not take {name}: it is for losses that are sums over items, such as "
                    "ListNetLoss, SLatKLoss and InfoNCELoss (weights: also LambdaLoss)"
                )
            factors = tensor_on(scores.device, values, name)
            if factors.shape != scores.shape or not factors.is_floating_point():
                raise ValueError(
                    f"{name} must be floats with the shape of scores {tuple(scores.shape)}; "
                    f"got {factors.dtype} {tuple(factors.shape)}"
                )
            most = _largest(scores)
            low, what = (-most, "it must be finite") if name == "log_q" else (0, "weights must be finite, >= 0")
            self._require_between(name, factors.reshape(len(factors), -1), low, most, what)
            found[name] = factors.detach().to(computed(scores).dtype)
        return found

    def _reduced(self, scores: Scores, relevant: Tensor, valid: Mask | None, **given: Tensor) -> Tensor:
        scores = computed(scores)
        if relevant.dtype != torch.bool:
            self._check_gains(relevant, scores)
        one = Rectangles([(len(scores), scores.shape[1])], None, None)
        return self._mean_of(one, [scores], [relevant], [valid], **{name: [values] for name, values in given.items()})

    def _mean_of(
        self,
        shape: Rectangles,
        scores: list[Scores],
        relevant: list[Tensor],
        valid: list[Mask | None],
        **given: list[Tensor],
    ) -> Tensor:
        """The reduction over the lists of one or more rectangles."""
        self.stats = {}
        parts = [
            self.costs(*part, **{name: values[at] for name, values in given.items()})
            for at, part in enumerate(zip(scores, relevant, valid, strict=True))
        ]
        return self.reduced(*(shape.by_id(list(values)) for values in zip(*parts, strict=True)))

    def costs(
        self, scores: Scores, relevant: Tensor, valid: Mask | None, **given: Tensor
    ) -> tuple[PerQuery, Tensor, Tensor, Tensor]:
        """`per_query` with a cost of 0 where a query does not count; and whether a query has an item of either kind."""
        # a gain that rounds to 0 in the precision of the scores is irrelevant
        seen = relevant.to(scores.dtype) if relevant.is_floating_point() else relevant
        if self.positives is not None:
            require_positives(seen, valid, self.positives)
        per_query: Callable[..., tuple[PerQuery, Tensor]] = self.per_query  # only some losses take what is `given`
        values, counts = per_query(scores, relevant, valid, **given)
        values = values.to(scores.dtype)
        if not values.requires_grad:
            values = values + 0 * scores.sum(1)  # attach a constant loss to the graph, too
        return torch.where(counts, values, 0), counts, *has_kinds(seen, valid)

    def reduced(self, costs: PerQuery, counted: Tensor, has_relevant: Tensor, has_irrelevant: Tensor) -> Tensor:
        """The value of a call, from what `costs` returns for all queries."""
        costs = first_order(costs)
        self._require_no_overflow(costs)
        if self.moves:
            self.remember()
        self.stats |= {"counted": counted.detach(), "has_relevant": has_relevant, "has_irrelevant": has_irrelevant}
        if self.reduction == "none":
            return costs
        return costs.sum() / counted.sum().clamp(min=1)

    def _check_gains(self, gains: Tensor, scores: Scores, name: str = "relevant") -> None:
        if not self.graded:
            raise ValueError(
                f"{type(self).__name__} needs bool relevance, but got float gains: pass e.g. gains > 0, "
                "or use a loss for gains such as HAPLoss or NDCGLoss"
            )
        if not gains.is_floating_point():
            self._require_between(name, gains, 0, MOST_LEVELS, f"levels must lie in 0 .. {MOST_LEVELS}")
            return
        most = min(_largest(gains), _largest(scores))
        low, what = (-most, "targets must be finite") if self.soft else (0, "gains must be finite, >= 0")
        self._require_between(name, gains, low, most, f"{what} and at most {most:g}")

    def _require_computable(self, name: str, scores: Scores, first: int = 0) -> None:
        most = _largest(scores)
        self._require_between(name, scores, -most, most, f"it holds NaN, infinity or numbers beyond {most:g}", first)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the statistics of the last call."""
        return {**self.__dict__, "stats": {}}

    def extra_repr(self) -> str:
        """The constructor's arguments, as they appear in the printed loss."""
        names = [n for n in self._options() if n != "positives" or self.positives is not None]
        return ", ".join(f"{n}={getattr(self, n)!r}" for n in names)

    @classmethod
    def _options(cls) -> list[str]:
        """Names of the constructor's arguments, the common ones last."""
        own = inspect.signature(cls.__init__).parameters.values()
        names = [p.name for p in own if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        return names + [n for n in Common.__annotations__ if n not in names]


@contextmanager
def still(module: nn.Module) -> Iterator[None]:
    """A context in which no call updates the running statistics of the losses of a module.

    Use it where a step calls a loss more than once: on parts of a batch, on a memory, or again on the same batch.

    >>> from rankgrad.losses import AdaptiveROADMAPLoss
    >>> loss = AdaptiveROADMAPLoss()
    >>> with still(loss):
    ...     value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> loss.calibration.running
    tensor([nan, nan])
    """
    with held(module, "_still", True):
        yield


def in_backward() -> bool:
    """Whether autograd is running a backward pass in this thread. False in compiled code, which cannot find out."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _largest(values: Tensor) -> float:
    """The limit of `LARGEST` for the precision in which numbers of this dtype are computed."""
    wide = LARGEST[torch.float64 if values.dtype == torch.float64 else torch.float32]
    return min(wide, torch.finfo(values.dtype).max)
