"""Evaluators of sentence-transformers that measure as trec_eval does, of models and of cross-encoders that rerank."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from sentence_transformers import CrossEncoder
from torch import nn

from rankgrad.adapters.sentence_transformers.evaluation import Evaluator, OfCorpus
from rankgrad.common.checks import integer
from rankgrad.search import retrieve

from .. import trec
from .names import USUAL, metrics_of
from .sources import Run

FIRST = "first stage"
INCOMPLETE = (
    "Relevant documents outside the lists are not known, so these values are too high for the whole collection. Give "
    "qrels, or the number of relevant documents of each query."
)


def metric_names(metrics: Sequence[str], primary_metric: str) -> tuple[list[str], str]:
    """Names of the metrics and of the primary one, as `trec.evaluate` writes them.

    Raises:
        ValueError: a metric is unknown, or the primary one is not among the metrics.
    """
    names = [str(metric) for metric in metrics_of(metrics)]
    [primary] = map(str, metrics_of([primary_metric]))
    if primary not in names:
        raise ValueError(f"primary_metric {primary!r} must be one of the metrics: {', '.join(names)}")
    return names, primary


class RankedRetrievalEvaluator(OfCorpus):
    """Queries against a corpus by the metrics of trec_eval, with the page of `rankgrad.trec`.

    The page and its csv and json files are in the folder `ranked_retrieval_evaluation_NAME` of the output folder. Each
    evaluation replaces them. The page compares the model with the runs of other systems, and tests the differences.

    Args:
        queries: id -> text. Queries without judgements are not embedded.
        corpus: id -> text.
        qrels: id of a query -> id of a document -> integer grade; or id of a query -> a set of relevant documents.
        name: name of the model's run on the page, and first part of the metrics' names: with "dev",
            metric_for_best_model is "eval_dev_ndcg_cut_10".
        metrics: see `trec.evaluate`.
        primary_metric: one of the metrics.
        depth: number of documents in a list.
        others: name -> run of another system, see `trec.evaluate`, such as {"bm25": "bm25.run"}.
        batch_size: number of texts that are embedded at once.
        truncate_dim: use only this number of first dimensions of the embeddings.
        write_csv: write a line with all metrics and intervals for every evaluation.
        show_progress_bar: show the progress of the embedding.
        options: options of `trec.evaluate`, such as level, groups, intervals.

    Attributes:
        report: the whole `trec.Evaluation` of the last call.

    Raises:
        ValueError: qrels have a query or a document that does not exist, or a metric is unknown; in a call: see
            `trec.evaluate`.

    >>> from sentence_transformers import SentenceTransformer
    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> queries, corpus, judged = {"q": "red"}, {"d1": "red", "d2": "green"}, {"q": {"d1"}}
    >>> RankedRetrievalEvaluator(queries, corpus, judged, name="dev")(model)["dev_ndcg_cut_10"]
    1.0
    """

    kind = "ranked_retrieval"

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int] | Collection[str]],
        name: str = "",
        *,
        metrics: Sequence[str] = USUAL,
        primary_metric: str = "ndcg_cut_10",
        depth: int = 1000,
        others: Mapping[str, Run] | None = None,
        batch_size: int = 32,
        truncate_dim: int | None = None,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        names, primary = metric_names(metrics, primary_metric)
        options = {"metrics": names, **options}
        self.run, self.others = name or "model", dict(others or {})
        if self.run in self.others:
            raise ValueError(f"the model and another run are named {self.run!r}; give the model another name=")
        self.depth = integer(depth, "depth counts the documents of a list", low=1)
        grades = {
            query: judged if isinstance(judged, Mapping) else dict.fromkeys(judged, 1)
            for query, judged in qrels.items()
            if judged
        }
        shared = (name, primary, batch_size, truncate_dim, write_csv, show_progress_bar, options)
        super().__init__(queries, corpus, grades, *shared)
        self.queries = {query: text for query, text in self.queries.items() if query in grades}

    def measured(self, model: Any, similarity: str) -> trec.Evaluation:
        """The metrics of the model and of the other runs."""
        queries, corpus = (side.to(torch.promote_types(side.dtype, torch.float32)) for side in self.sides(model))
        if similarity == "euclidean":  # 2 q d - d d is largest for the nearest document d
            queries, corpus = nn.functional.pad(queries.double(), (0, 1), value=1.0), corpus.double()
            corpus = torch.cat([2 * corpus, -corpus.square().sum(1, keepdim=True)], 1)
        sides = (list(self.queries), queries), (list(self.corpus), corpus)
        run = retrieve(None, *sides, self.depth, normalize=similarity == "cosine")
        return trec.evaluate({self.run: run, **self.others}, self.qrels, **self.options)

    def numbers(self) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
        """(metric -> value, metric -> interval) of the model's run."""
        return self.report.values[self.run], self.report.intervals[self.run]

    def write(self, folder: str, epoch: float, steps: int) -> None:
        """Add a line to the csv file, and write the page."""
        super().write(folder, epoch, steps)
        self.report.write(os.path.join(folder, self.csv_file.removesuffix("_results.csv")))


class GradedRerankingEvaluator(Evaluator):
    """Reranked lists of documents by the metrics of trec_eval, beside the lists of the first stage.

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
        metrics: see `rankgrad.trec.evaluate`.
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
            or ids than documents, or with fewer relevant documents than its list; an unknown metric.

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
        metrics: Sequence[str] = USUAL,
        primary_metric: str = "ndcg_cut_10",
        first_stage: bool = True,
        batch_size: int = 32,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        names, primary = metric_names(metrics, primary_metric)
        lists = [_Judged.of(number, sample, qrels) for number, sample in enumerate(samples)]
        self.lists = [each for each in lists if any(grade > 0 for grade in each.grades.values())]
        self.left_out = len(samples) - len(self.lists)
        if not self.lists:
            raise ValueError(f"none of {len(samples)} samples has a relevant document: give at least one grade above 0")
        judged, listed = qrels or {}, {each.query for each in lists}
        self.qrels = {each.query: each.grades for each in self.lists}
        self.qrels |= {query: grades for query, grades in judged.items() if query not in listed}
        self.complete = qrels is not None or all("relevant" in sample for sample in samples)
        if first_stage:
            options = {"baseline": FIRST, **options}
        super().__init__(name, primary, batch_size, None, write_csv, show_progress_bar, {"metrics": names, **options})
        self.first_stage = first_stage

    def report_of(self, model: Any) -> trec.Evaluation:
        """The metrics of the lists as the model ranks them, and as they were given."""
        pairs = [(each.text, document) for each in self.lists for document in each.documents.values()]
        given = iter(model.predict(pairs, activation_fn=nn.Identity(), convert_to_numpy=True, **self.encoding).tolist())
        runs = {"model": {each.query: {name: next(given) for name in each.documents} for each in self.lists}}
        if self.first_stage:
            runs[FIRST] = {each.query: {name: -at for at, name in enumerate(each.documents)} for each in self.lists}
        report = trec.evaluate(runs, self.qrels, **self.options)
        return report if self.complete else replace(report, notes=(*report.notes, INCOMPLETE))

    def numbers(self) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
        """Values and intervals by metric, of the model; and the primary metric of the first stage."""
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
    def of(cls, number: int, sample: Mapping[str, Any], qrels: Mapping[str, Mapping[str, int]] | None) -> _Judged:
        keys = ("query", "documents", "grades") if qrels is None else ("query", "documents", "document_ids", "query_id")
        sizes = [len(sample[key]) for key in keys[1:3] if key in sample]
        if not {*keys} <= {*sample} or sizes[0] != sizes[1]:
            raise ValueError(f"samples[{number}] must have {', '.join(keys)}, equally many; it has {', '.join(sample)}")
        if qrels is not None:
            listed = dict(zip(sample["document_ids"], sample["documents"], strict=True))
            if len(listed) < sizes[0]:
                raise ValueError(f"samples[{number}] has a document twice: its document_ids must be different")
            return cls(sample["query_id"], sample["query"], listed, qrels.get(sample["query_id"], {}))
        grades = dict(zip(map(str, range(sizes[0])), sample["grades"], strict=True))
        least = sum(grade > 0 for grade in grades.values())
        what = f"the number of relevant documents of samples[{number}] counts those of its list"
        outside = range(integer(sample.get("relevant", least), what, low=least) - least)
        listed = dict(zip(grades, sample["documents"], strict=True))
        return cls(str(number), sample["query"], listed, grades | {f"outside {each}": 1 for each in outside})


__all__ = ["GradedRerankingEvaluator", "RankedRetrievalEvaluator"]
