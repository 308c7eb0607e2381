"""Exact evaluation inside the trainer of sentence-transformers: an evaluator returns a dict."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor

from ...evaluation import Report, evaluate
from ...evaluation.graded import METRICS, evaluate_graded

SIMILARITIES = {"cosine": "cosine", "dot": "inner product", "euclidean": "euclidean"}  # its names -> our names


class Evaluator(BaseEvaluator):  # type: ignore[misc]
    """Base class of the evaluators. It writes the csv file and the metrics for the model card.

    A subclass defines `measured`, or `report_of` if its model does not embed single texts.
    """

    kind = ""  # first part of the file's name
    takes: tuple[type, ...] = (SentenceTransformer, SparseEncoder)  # kinds of models

    def __init__(
        self,
        name: str,
        primary_metric: str,
        batch_size: int,
        truncate_dim: int | None,
        write_csv: bool,
        show_progress_bar: bool,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self.name, self.primary_metric, self.options = name, primary_metric, options
        self.encoding: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        self.truncate_dim, self.write_csv = truncate_dim, write_csv
        self.csv_file = f"{self.kind}_evaluation{'_' + name if name else ''}_results.csv"
        self.report: Any = None

    def report_of(self, model: Any) -> Any:
        """The report of a model that embeds texts."""
        if model.similarity_fn_name not in SIMILARITIES:
            raise ValueError(
                f"the model's similarity is {model.similarity_fn_name}; it must be one of {', '.join(SIMILARITIES)}"
            )
        return self.measured(model, SIMILARITIES[model.similarity_fn_name])

    def measured(self, model: Any, similarity: str) -> Any:
        """The report of a model. `similarity` is one of those of `evaluate`."""
        raise NotImplementedError

    def numbers(self) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
        """(metric -> value, metric -> interval) of the report."""
        return self.report.values, self.report.intervals

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Metrics by name, and the interval of the primary metric (`..._low`, `..._high`).

        Args:
            model: a model of one of the classes in `takes`.
            output_path: folder for the files; None: no file is written.
            epoch: for the line in the csv file.
            steps: for the line in the csv file.
        """
        if not isinstance(model, self.takes):
            known = " or a ".join(kind.__name__ for kind in self.takes)
            raise TypeError(f"{type(self).__name__} evaluates a {known}; got {type(model).__name__}")
        self.report = self.report_of(model)
        values, intervals = self.numbers()
        primary = self.primary_metric.removeprefix(f"{self.name}_")
        if primary not in values:
            raise ValueError(f"primary_metric {primary!r} was not computed; the metrics are {', '.join(values)}")
        if output_path is not None:
            self.write(output_path, epoch, steps)
        ends = dict(zip((f"{primary}_low", f"{primary}_high"), intervals.get(primary, ()), strict=False))
        metrics: dict[str, float] = self.prefix_name_to_metrics({**values, **ends}, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def encoded(self, model: Any, texts: list[str], method: str = "encode", **prompt: Any) -> Tensor:
        """[text, dim] embeddings.

        Args:
            model: a SentenceTransformer or SparseEncoder.
            texts: the texts.
            method: name of the method of the model that embeds them.
            prompt: prompt_name and prompt, for this method.
        """
        if isinstance(model, SparseEncoder):
            if self.truncate_dim is not None:
                raise ValueError("truncate_dim is for dense embeddings; this model is sparse")
            options: dict[str, Any] = {"convert_to_sparse_tensor": False}
        else:
            options = {"truncate_dim": self.truncate_dim, "convert_to_tensor": True}
        embeddings: Tensor = getattr(model, method)(texts, **self.encoding, **options, **prompt)
        return embeddings

    def write(self, folder: str, epoch: float, steps: int) -> None:
        """Add a line with all metrics and intervals to the csv file."""
        if not self.write_csv:
            return
        path = os.path.join(folder, self.csv_file)
        row: dict[str, Any] = {"epoch": epoch, "steps": steps}
        values, intervals = self.numbers()
        for name, value in values.items():
            row[name] = value
            if name in intervals:
                row[f"{name}_low"], row[f"{name}_high"] = intervals[name]
        os.makedirs(folder or ".", exist_ok=True)
        new = not os.path.isfile(path)
        if not new:
            with open(path, encoding="utf-8", newline="") as file:
                if next(csv.reader(file), None) != list(row):
                    raise ValueError(
                        f"{path} exists and has other columns than {', '.join(row)}. Move the file, or choose another "
                        "name="
                    )
        with open(path, "a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


class RetrievalEvaluator(Evaluator):
    """Exact retrieval metrics of texts with classes: every text is a query against all others.

    Args:
        texts: the texts.
        labels: their classes, of any kind that `rankgrad.evaluation.evaluate` takes.
        name: first part of the metrics' names: with "dev", metric_for_best_model is "eval_dev_mAP@R".
        primary_metric: the metric that chooses the best model. Its interval is returned, too.
        batch_size: number of texts that are embedded at once.
        prompt_name: name of one of the model's prompts.
        prompt: text of a prompt.
        truncate_dim: use only this number of first dimensions of the embeddings, for Matryoshka models.
        write_csv: write a line with all metrics and intervals for every evaluation.
        show_progress_bar: show the progress of the embedding.
        options: options of `rankgrad.evaluation.evaluate`, such as metrics, protocol and intervals.

    Attributes:
        report: the whole `Report` of the last call.

    Raises:
        ValueError: the numbers of texts and labels differ; in a call: see `evaluate`.

    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> evaluator = RetrievalEvaluator(["red", "red", "green", "green"], [0, 0, 1, 1], name="dev")
    >>> evaluator(model)["dev_R@1"]
    1.0
    """

    kind = "retrieval"

    def __init__(
        self,
        texts: Sequence[str],
        labels: Any,
        name: str = "",
        *,
        primary_metric: str = "mAP@R",
        batch_size: int = 32,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, primary_metric, batch_size, truncate_dim, write_csv, show_progress_bar, options)
        self.texts, self.labels = list(texts), labels
        if len(self.texts) != len(labels):
            raise ValueError(
                f"there must be as many labels as texts; got {len(labels)} labels and {len(self.texts)} texts"
            )
        self.prompt: dict[str, Any] = {"prompt_name": prompt_name, "prompt": prompt}

    def measured(self, model: Any, similarity: str) -> Report:
        """See `Evaluator`."""
        embeddings = self.encoded(model, self.texts, **self.prompt)
        return evaluate(embeddings, self.labels, **{"similarity": similarity, **self.options})

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        return {name: value for name, value in self.options.items() if isinstance(value, (str, int, float))}


class OfCorpus(Evaluator):
    """Base class of the evaluators of queries against a corpus."""

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, float]],
        *shared: Any,
    ) -> None:
        super().__init__(*shared)
        self.queries, self.corpus, self.qrels = dict(queries), dict(corpus), qrels
        for query, judged in qrels.items():
            if query not in queries:
                raise ValueError(f"qrels have the query {query!r}, which is missing in queries")
            missing = next((document for document in judged if document not in corpus), None)
            if missing is not None:
                raise ValueError(
                    f"qrels of the query {query!r} have the document {missing!r}, which is missing in corpus"
                )

    def sides(self, model: Any) -> tuple[Tensor, Tensor]:
        """[query, dim] and [document, dim] embeddings."""
        queries, documents = list(self.queries.values()), list(self.corpus.values())
        return self.encoded(model, queries, "encode_query"), self.encoded(model, documents, "encode_document")


class GradedRetrievalEvaluator(OfCorpus):
    """Exact retrieval metrics of queries against a corpus, where the relevance of a document is a number >= 0.

    Args:
        queries: id -> text.
        corpus: id -> text.
        qrels: id of a query -> id of a document -> gain >= 0. A document without an entry has gain 0. A query without a
            positive gain is left out of the means.
        name: first part of the metrics' names: with "dev", metric_for_best_model is "eval_dev_NDCG@10".
        metrics: names of metrics. NDCG, NDCG@k and H-AP use the gains. For all other metrics of
            `rankgrad.evaluation.Report`, a document is relevant if its gain is above 0.
        primary_metric: one of the metrics.
        batch_size: number of texts that are embedded at once.
        truncate_dim: use only this number of first dimensions of the embeddings.
        write_csv: write a line with all metrics and intervals for every evaluation.
        show_progress_bar: show the progress of the embedding.
        options: options of `rankgrad.evaluation.evaluate_graded`, such as intervals.

    Attributes:
        report: the whole `Report` of the last call.

    Raises:
        ValueError: qrels have a query or a document that does not exist, or a negative gain.

    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> queries, corpus, gains = {"q": "red"}, {"d1": "red", "d2": "green"}, {"q": {"d1": 0.5}}
    >>> GradedRetrievalEvaluator(queries, corpus, gains, name="dev")(model)["dev_NDCG@10"]
    1.0
    """

    kind = "graded_retrieval"

    def __init__(
        self,
        queries: Mapping[str, str],
        corpus: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, float]],
        name: str = "",
        *,
        metrics: Sequence[str] = METRICS,
        primary_metric: str = "NDCG@10",
        batch_size: int = 32,
        truncate_dim: int | None = None,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        options = {"metrics": tuple(metrics), **options}
        shared = (name, primary_metric, batch_size, truncate_dim, write_csv, show_progress_bar, options)
        super().__init__(queries, corpus, qrels, *shared)

    def measured(self, model: Any, similarity: str) -> Report:
        """See `Evaluator`."""
        row = {key: place for place, key in enumerate(self.corpus)}
        gains = [{row[name]: gain for name, gain in self.qrels.get(query, {}).items()} for query in self.queries]
        return evaluate_graded(*self.sides(model), gains, **{"similarity": similarity, **self.options})
