"""Listwise rank losses and graded evaluation for the cross-encoders of sentence-transformers.

A cross-encoder reads a query and a document together and returns one score. The scores of a query are a list. So every
loss with `from_lists` can train it. `adapters.sentence_transformers` is for models that embed single texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .sentence_transformers.evaluation import Evaluator, measure_names
from .sentence_transformers.losses import citation_of

try:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.util import batch_to_device
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "sentence_transformers"), name=error.name) from None

from ..common.checks import integer
from ..losses import RetrievalLoss
from ..workbench import trec
from ..workbench.trec.measures import USUAL


class RankLoss(nn.Module):
    """A loss of `rankgrad.losses` for a CrossEncoder: each query's documents are a list.

    Columns of the data set: a query, a list of documents, and a label column with a list of grades >= 0 (or of bools),
    one for each document. Lists may have different lengths. The value is `loss.from_lists` of the model's scores
    without its activation function.

    Args:
        model: a CrossEncoder with one output.
        loss: a loss with reduction="mean". The temperatures of most losses are for cosines; see docs/scores.md for
            scores without bounds, such as `LambdaLoss(k=10)` or `LogSumExpLoss(tau=1.0)`.
        mini_batch_size: (query, document) pairs in one forward pass; None: all pairs of the batch. Smaller passes need
            less memory at a time, but the graph of all of them is kept.

    Raises:
        TypeError: the model is no CrossEncoder, or the loss is none of this library.
        ValueError: a model with several outputs; labels that do not fit the documents (when called); grades above 1
            for a loss that knows only relevant and irrelevant (when called).
    """

    def __init__(self, model: nn.Module, loss: RetrievalLoss, *, mini_batch_size: int | None = None) -> None:
        super().__init__()
        if not isinstance(model, CrossEncoder):
            raise TypeError(f"the model must be a CrossEncoder; got {type(model).__name__}")
        if model.num_labels != 1:
            raise ValueError(
                f"the model must have one output, but it has {model.num_labels}; create it with num_labels=1"
            )
        if not isinstance(loss, RetrievalLoss):
            raise TypeError(
                "loss must be a loss with from_lists, one of rankgrad.losses.LOSSES such as LambdaLoss(k=10). A "
                "SumLoss, a baseline or a memory compares embeddings, which a CrossEncoder does not give; got "
                f"{type(loss).__name__}"
            )
        if loss.reduction != "mean":
            raise ValueError(
                f"training needs one number from the loss; create it with reduction='mean', not {loss.reduction!r}"
            )
        if mini_batch_size is not None:
            integer(mini_batch_size, "mini_batch_size counts pairs of a forward pass", low=1)
        self.model, self.loss, self.mini_batch_size = model, loss, mini_batch_size

    def forward(
        self,
        inputs: Sequence[Sequence[Any]],
        labels: Sequence[Tensor] | Tensor,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """The loss of a batch of queries.

        Args:
            inputs: (queries, list of documents of each query).
            labels: grades of each query's documents.
            prompt: of the model's preprocessing.
            task: of the model's preprocessing.
        """
        if len(inputs) != 2 or any(isinstance(documents, str) for documents in inputs[1]):
            raise ValueError(
                "the data set needs two columns besides the labels: a query, and a list of documents; "
                f"got {len(inputs)} columns" + (" and single documents" if len(inputs) == 2 else "")
            )
        queries, documents = inputs
        counts = [len(each) for each in documents]
        if [len(each) for each in labels] != counts:
            given = [tuple(each.shape) for each in labels]
            raise ValueError(f"each document needs a grade: there are {counts} documents and labels of shapes {given}")
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        scores = self._scores(pairs, prompt, task)
        grades = torch.cat([each.reshape(-1) for each in labels]).to(scores.device).float()
        query = torch.arange(len(counts), device=scores.device).repeat_interleave(
            torch.tensor(counts, device=scores.device)
        )
        value: Tensor = self.loss.from_lists(scores, self._relevance(grades), query)
        return value

    def _scores(self, pairs: list[tuple[str, str]], prompt: str | None, task: str | None) -> Tensor:
        size = self.mini_batch_size or max(len(pairs), 1)
        parts = []
        for start in range(0, len(pairs), size):
            tokens = self.model.preprocess(pairs[start : start + size], prompt=prompt, task=task)
            parts.append(self.model(batch_to_device(tokens, self.model.device))["scores"].reshape(-1))
        return torch.cat(parts)

    def _relevance(self, grades: Tensor) -> Tensor:
        """Bools if all grades are 0 or 1, else the grades."""
        if bool(((grades == 0) | (grades == 1)).all()):
            return grades.bool()
        if not self.loss.graded:
            raise ValueError(
                f"{type(self.loss).__name__} takes only the grades 0 and 1, but the grades go up to "
                f"{float(grades.max()):g}. Use a loss for grades such as LambdaLoss, or give only 0 and 1"
            )
        return grades

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {
            "loss": f"{type(self.loss).__name__}({self.loss.extra_repr()})",
            "mini_batch_size": self.mini_batch_size,
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper of the loss, for the model card. Without a paper there is no such attribute."""
        return citation_of(self.loss)


FIRST = "first stage"
INCOMPLETE = (
    "Relevant documents outside the lists are not known, so these values are too high for the whole collection. Give "
    "qrels, or the number of relevant documents of each query."
)


class GradedRerankingEvaluator(Evaluator):
    """Reranked lists of documents by the measures of trec_eval, beside the lists of the first stage.

    A first stage, such as BM25, has made the lists. Relevant documents that it missed cannot be ranked, but they count:
    give `qrels`, or the number of relevant documents of each query as "relevant". Otherwise the values are those of the
    best order of the list itself, a note says so, and queries without a relevant document in their list are left out.

    Args:
        samples: for each query a mapping with "query" (its text), "documents" (texts, in the order of the first stage)
            and "grades" (integers >= 0, one for each document); and "relevant", the number of its relevant documents,
            also outside the list (those count as grade 1). With qrels: "query_id" and "document_ids" instead of
            "grades" and "relevant".
        name: first part of the metrics' names: with "dev", metric_for_best_model is "eval_dev_ndcg_cut_10".
        qrels: query id -> document id -> grade, for all judged documents. A query without a list counts 0.
        measures: see `rankgrad.trec.evaluate`.
        primary_metric: one of them.
        first_stage: whether to measure the given order too, and to test the difference. In the metrics it is
            "first_stage_" and the primary metric. False: the documents are in no order.
        batch_size: pairs scored at once.
        write_csv: write a line with all numbers and intervals for every evaluation.
        show_progress_bar: while scoring.
        options: of `trec.evaluate`, such as bootstrap.

    Attributes:
        report: the `trec.Evaluation` of the last call, of the runs "model" and "first stage", with paired tests.
        left_out: number of queries without a known relevant document.

    Raises:
        ValueError: no query with a relevant document; a sample without one of the keys, with another number of grades
            or ids than documents, or with fewer relevant documents than its list; an unknown measure.

    >>> samples = [
    ...     {"query": "red", "documents": ["crimson", "green"], "grades": [2, 0], "relevant": 3},
    ...     {"query": "blue", "documents": ["green"], "grades": [0], "relevant": 0},
    ... ]
    >>> evaluator = GradedRerankingEvaluator(samples, name="dev")
    >>> evaluator.left_out  # the second query has no relevant document
    1
    """

    kind = "graded_reranking"
    takes = (CrossEncoder,)

    def __init__(
        self,
        samples: Sequence[Mapping[str, Any]],
        name: str = "",
        *,
        qrels: Mapping[str, Mapping[str, int]] | None = None,
        measures: Sequence[str] = USUAL,
        primary_metric: str = "ndcg_cut_10",
        first_stage: bool = True,
        batch_size: int = 32,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        names, primary = measure_names(measures, primary_metric)
        for number, sample in enumerate(samples):
            _check_sample(f"samples[{number}]", sample, qrels is not None)
        lists = [_Judged.of(str(number), sample, qrels) for number, sample in enumerate(samples)]
        self.lists = [each for each in lists if any(grade > 0 for grade in each.grades.values())]
        self.left_out = len(samples) - len(self.lists)
        if not self.lists:
            raise ValueError(f"none of {len(samples)} samples has a relevant document: give at least one grade above 0")
        others = set(qrels or ()) - {each.query for each in lists}
        self.qrels = {each.query: each.grades for each in self.lists} | {
            query: (qrels or {})[query] for query in others
        }
        self.complete = qrels is not None or all("relevant" in sample for sample in samples)
        if first_stage:
            options = {"baseline": FIRST, **options}
        super().__init__(name, primary, batch_size, None, write_csv, show_progress_bar, {"measures": names, **options})
        self.first_stage = first_stage

    def report_of(self, model: Any) -> trec.Evaluation:
        """The measures of the lists as the model ranks them, and as they were given."""
        pairs = [(each.text, document) for each in self.lists for document in each.documents.values()]
        given = iter(model.predict(pairs, activation_fn=nn.Identity(), convert_to_numpy=True, **self.encoding).tolist())
        runs = {"model": {each.query: {name: next(given) for name in each.documents} for each in self.lists}}
        if self.first_stage:
            runs[FIRST] = {
                each.query: {name: -float(place) for place, name in enumerate(each.documents)} for each in self.lists
            }
        report = trec.evaluate(runs, self.qrels, **self.options)
        return report if self.complete else replace(report, notes=(*report.notes, INCOMPLETE))

    def numbers(self) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
        """Values and intervals by measure, of the model; and the primary metric of the first stage."""
        values, primary = self.report.values, self.primary_metric.removeprefix(f"{self.name}_")
        first = {f"first_stage_{primary}": values[FIRST][primary]} if self.first_stage else {}
        return values["model"] | first, self.report.intervals["model"]


class _Judged(NamedTuple):
    """A query, its list, and all its judgements.

    Attributes:
        query: its name.
        text: its text.
        documents: name -> text, in the order of the first stage.
        grades: name -> grade, also of documents that are not in the list.
    """

    query: str
    text: str
    documents: dict[str, str]
    grades: Mapping[str, int]

    @classmethod
    def of(cls, name: str, sample: Mapping[str, Any], qrels: Mapping[str, Mapping[str, int]] | None) -> _Judged:
        if qrels is not None:
            query = sample["query_id"]
            listed = dict(zip(sample["document_ids"], sample["documents"], strict=True))
            return cls(query, sample["query"], listed, qrels.get(query, {}))
        listed = {str(place): text for place, text in enumerate(sample["documents"])}
        grades = dict(zip(listed, sample["grades"], strict=True))
        missing = sample.get("relevant", 0) - sum(grade > 0 for grade in grades.values())
        return cls(name, sample["query"], listed, grades | {f"outside {number}": 1 for number in range(missing)})


def _check_sample(place: str, sample: Mapping[str, Any], judged: bool) -> None:
    each = "document_ids" if judged else "grades"
    absent = {"query", "documents", each, *(("query_id",) if judged else ())} - set(sample)
    if absent:
        raise ValueError(f"{place} has no {sorted(absent)[0]!r}; it has {', '.join(sample)}")
    count = len(sample["documents"])
    if count != len(sample[each]):
        raise ValueError(f"{place} has {count} documents and {len(sample[each])} {each}")
    if judged and len(set(sample[each])) < count:
        raise ValueError(f"{place} has a document twice: its document_ids must be different")
    if not judged and "relevant" in sample:
        least = sum(grade > 0 for grade in sample["grades"])
        integer(sample["relevant"], f"the number of relevant documents of {place} counts those of its list", low=least)


__all__ = ["RankLoss", "GradedRerankingEvaluator"]
