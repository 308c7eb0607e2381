"""Rank losses, class batches and exact evaluation inside the trainer of sentence-transformers.

The classes follow the conventions of that library: a loss has the model, the training arguments take the class of a
batch sampler, and an evaluator returns a dict.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

try:
    from sentence_transformers import SentenceTransformer, SparseEncoder
    from sentence_transformers.base.evaluation import BaseEvaluator
    from sentence_transformers.base.losses import CachedLossMixin, has_static_embedding_input
    from sentence_transformers.base.losses.merged_forward import embed_columns
    from sentence_transformers.base.sampler import DefaultBatchSampler
except ModuleNotFoundError as error:
    from ..extras import missing

    raise ModuleNotFoundError(missing(error.name or "sentence_transformers"), name=error.name) from None

from ..checks import integer
from ..datasets.samplers import ShortClasses
from ..distributed import GlobalBatch, gather_rows, world
from ..evaluation import Report, evaluate, ranked
from ..evaluation.graded import NAMES, evaluate_graded
from ..evaluation.ranked.given import Run
from ..evaluation.ranked.measures import USUAL, asked
from ..losses import RetrievalLoss, SumLoss
from ..losses.checked import CheckedLoss
from ..losses.sum import missing_references
from ..normalize import unit_rows
from ..ranks import computed
from ..search.scores import Scorer
from .class_batches import batches_of_step
from .trainer_loss import SavesLoss as SavesLoss
from .trainer_loss import checked_loss

Meaning = Literal["classes", "grades"]
LABEL_COLUMNS = ("label", "labels", "score", "scores")  # columns that the library's collator takes for labels
SIMILARITIES = {"cosine": "cosine", "dot": "inner product", "euclidean": "euclidean"}  # its names -> our names
PAIRS = 2**25  # scores of queries and documents that are in memory at once


# -------------------------------------------------------------------------------------------------------------- losses


class Components(dict[str, Tensor]):
    """The terms of a loss by name. The trainer logs each term, and trains on their sum.

    A wrapper such as MatryoshkaLoss multiplies the result of a loss by a weight. The product is the weighted sum.

    >>> 2.0 * Components(first=torch.tensor(1.0), second=torch.tensor(0.5))
    tensor(3.)
    """

    def __mul__(self, weight: float) -> Tensor:
        return weight * torch.stack(list(self.values())).sum()

    __rmul__ = __mul__


class RankLoss(nn.Module):
    r"""A loss of `rankgrad.losses` as a loss of sentence-transformers. The columns of the data set decide what is ranked.

    | columns | label column | what is ranked |
    |---|---|---|
    | text | class, hierarchy (a list of integers, coarse to fine), multi-hot (a list of bools) | each text against the others of the batch |
    | anchor, positive | none | each anchor against all positives; its own positive is relevant |
    | anchor, positive | class (`labels="classes"`), hierarchy, multi-hot | the same; all positives of its class are relevant |
    | anchor, positive, negative_1 ... | none or class | the same; all negatives of the batch are irrelevant |
    | query, doc_1 ... doc_n | a list of n grades >= 0 (or of n bools) | each query's own n documents, by their grades |
    | first, second | a grade >= 0 (integers: `labels="grades"`) | all pairs of the batch as one list, by their grades (as in Spearman's correlation of a similarity benchmark) |

    A loss takes grades if its `graded` is True, such as NDCGLoss, HAPLoss and SpearmanLoss.

    The trainer does not save the state of a loss, such as running thresholds. `SavesLoss` does.

    Args:
        model: a SentenceTransformer or a SparseEncoder.
        loss: a loss with reduction="mean", a SumLoss or a loss of `losses.baselines`; for one column of texts also a
            `GlobalBatch` of one. A SumLoss and a baseline need classes: they take one column of texts, or an anchor and
            a positive if they take references. The loss uses the cosine, or with normalize=False the inner product. The
            similarity of the model makes no difference.
        labels: content of the label column: "classes" or "grades". None: as in the table. With two columns of texts, an
            integer may be a class or a grade, so this argument is needed.
        gather_across_devices: rank the batches of all processes as one batch. Value and gradient are those of one
            process with the whole batch. Each process computes the whole loss.

    Returns (of a call):
        A scalar. For a loss of several terms (ROADMAP): a dict of the terms, which this trainer logs.

    Raises:
        TypeError: the model gives token vectors (MultiVectorEncoder) or scores of pairs (CrossEncoder), or the loss is
            a memory or not a loss of rankgrad.
        ValueError: in a call: the columns and the labels do not fit. Or the loss has weights and several processes
            train it without gathering, so that their weights would become different.

    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> from rankgrad.losses import SmoothAPLoss
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> loss = RankLoss(model, SmoothAPLoss())
    >>> loss([model.preprocess(["red", "red", "green", "green"])], torch.tensor([0, 0, 1, 1])) < 1e-6
    tensor(True)
    """  # noqa: E501  # rows of a table

    def __init__(
        self,
        model: nn.Module,
        loss: CheckedLoss | SumLoss | GlobalBatch,
        *,
        labels: Meaning | None = None,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, (SentenceTransformer, SparseEncoder)):
            raise TypeError(
                f"{type(self).__name__} needs one vector per text, from a SentenceTransformer or a SparseEncoder; "
                f"got {type(model).__name__}. If this model returns scores [query, item], call the loss directly: "
                "loss.from_scores(scores, relevant)."
            )
        checked_loss(loss)
        if isinstance(loss, GlobalBatch) and gather_across_devices:
            raise ValueError(
                "GlobalBatch already gathers the batch; give either GlobalBatch or gather_across_devices=True, not both"
            )
        if labels not in (None, "classes", "grades"):
            raise ValueError(f"labels must be 'classes', 'grades' or None; got {labels!r}")
        self.model, self.loss, self.labels, self.gather_across_devices = model, loss, labels, gather_across_devices

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | Components:
        """The loss of a batch of tokenized columns."""
        return self.compute_loss_from_embeddings(embed_columns(self.model, sentence_features), labels)

    def compute_loss_from_embeddings(
        self, embeddings: Sequence[Tensor], labels: Tensor | None = None
    ) -> Tensor | Components:
        """The loss of the embeddings, one [row, dim] for each column. Wrappers such as SpladeLoss call this method."""
        value = self.value(embeddings, labels)
        inner = self._inner
        parts = inner.components() if isinstance(inner, (RetrievalLoss, SumLoss)) else {}
        if not parts:
            return value
        # the terms have no gradient: add the gradient of the whole loss to the first term
        first = next(iter(parts))
        return Components({**parts, first: parts[first] + (value - value.detach())})

    def value(self, columns: Sequence[Tensor], labels: Tensor | None) -> Tensor:
        """The loss as a scalar, from one [row, dim] for each column."""
        together = self.gather_across_devices or isinstance(self.loss, GlobalBatch)
        if world()[1] > 1 and not together and next(self.loss.parameters(), None) is not None:
            raise ValueError(
                f"{type(self.loss).__name__} has weights of its own. Without gathering, each process would train them "
                "on its own batches only: give gather_across_devices=True"
            )
        if self.gather_across_devices:
            columns = [gather_rows(computed(column)) for column in columns]
            labels = None if labels is None else gather_rows(labels)
        if len(columns) == 1:
            return self._in_batch(columns[0], labels)
        if isinstance(self.loss, GlobalBatch):
            raise ValueError(
                f"GlobalBatch needs one column of texts, but the data has {len(columns)}. Instead of GlobalBatch(loss) "
                "give the loss and gather_across_devices=True."
            )
        if self._labels_are_grades(columns, labels):
            with torch.autocast(columns[0].device.type, enabled=False):  # half precision is coarser than a temperature
                return self._lists(columns, cast(Tensor, labels))
        return self._references(columns, labels)

    def _labels_are_grades(self, columns: Sequence[Tensor], labels: Tensor | None) -> bool:
        """Whether the labels of two or more columns are grades. False: they are classes, or there are none."""
        if labels is None:
            if self.labels is not None:
                raise ValueError(f"labels={self.labels!r} needs a label column; the data has none")
            return False
        fraction, several = labels.is_floating_point(), len(columns) > 2
        if self.labels == "classes" and (fraction or (several and labels.ndim > 1)):
            raise ValueError(
                f"labels='classes' with {len(columns)} columns of texts needs one integer per row (with two columns "
                "also a list of bools, or a list of integers from coarse to fine); got labels "
                f"{labels.dtype} {tuple(labels.shape)}"
            )
        if self.labels is None and not fraction and labels.ndim == 1 and not several:
            raise ValueError(
                "with two columns of texts, an integer label may be the class of both texts or the grade of the pair. "
                f"Choose: {type(self).__name__}(model, loss, labels='classes') or labels='grades'"
            )
        return self.labels == "grades" if self.labels is not None else fraction or (several and labels.ndim == 2)

    def _in_batch(self, texts: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None or labels.is_floating_point() or self.labels == "grades":
            kind = "no label column" if labels is None else "a column of grades"
            raise ValueError(
                f"with one column of texts, each text needs a class: an integer in the column label; got {kind}. "
                "dataset.class_encode_column('label') changes strings to integers."
            )
        value: Tensor = self.loss(texts, labels)
        return value

    def _references(self, columns: Sequence[Tensor], labels: Tensor | None) -> Tensor:
        anchors, positives, *negatives = columns
        if negatives:
            self._listwise("negatives")
        elif missing_references(self.loss):
            raise ValueError(
                f"{type(self.loss).__name__} compares the texts of one column with each other, so it needs one column "
                "of texts and their classes. For an anchor and a positive use a loss of rankgrad.losses.LOSSES"
            )
        if labels is None:
            labels = torch.arange(len(anchors), device=anchors.device)
        if not negatives:
            value: Tensor = self.loss(anchors, labels, ref_emb=positives, ref_labels=labels)
            return value
        relevant = labels.unsqueeze(1) == labels
        relevant = torch.cat([relevant, torch.zeros_like(relevant).repeat(1, len(negatives))], dim=1)
        value = self.loss(anchors, ref_emb=torch.cat([positives, *negatives]), relevant=relevant)
        return value

    def _lists(self, columns: Sequence[Tensor], labels: Tensor) -> Tensor:
        loss = self._listwise("grades")
        queries, *documents = (
            unit_rows(computed(column)) if loss.normalize else computed(column) for column in columns
        )
        if labels.dtype != torch.bool:
            labels = labels.to(queries.dtype)
        if labels.ndim == 1 and len(documents) == 1:  # one list of pairs
            scores, labels = (queries * documents[0]).sum(1).unsqueeze(0), labels.unsqueeze(0)
        elif labels.shape == (len(queries), len(documents)) and len(documents) > 1:
            scores = torch.stack([(queries * document).sum(1) for document in documents], dim=1)
        else:
            raise ValueError(
                f"with {len(documents)} columns of documents, each query needs a list of {len(documents)} scores (with "
                f"one column: a single number); got labels {tuple(labels.shape)} for {len(queries)} queries"
            )
        value: Tensor = loss.from_scores(scores, labels)
        return value

    def _listwise(self, given: str) -> RetrievalLoss:
        """The loss, if it takes what the data has: "negatives" or "grades"."""
        if not isinstance(self.loss, RetrievalLoss):
            raise ValueError(
                f"{type(self.loss).__name__} takes only classes, but the data has {given}: use a single loss of "
                "rankgrad.losses.LOSSES"
            )
        return self.loss

    @property
    def _inner(self) -> CheckedLoss | SumLoss:
        """The loss behind a GlobalBatch."""
        return checked_loss(self.loss)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        inner = self._inner
        return {
            "loss": f"{type(inner).__name__}({inner.extra_repr()})",
            "labels": self.labels,
            "gather_across_devices": self.gather_across_devices or isinstance(self.loss, GlobalBatch),
        }

    @property
    def citation(self) -> str:
        """BibTeX of the paper of the loss, for the model card. Without a paper there is no such attribute."""
        return citation_of(self._inner)


def citation_of(loss: nn.Module) -> str:
    """BibTeX of the paper of a loss; for a SumLoss, of the papers of its parts.

    Raises:
        AttributeError: there is no paper. The model card then has no entry for the loss, instead of an empty one.
    """
    if not (citation := _bibtex(loss)):
        raise AttributeError(f"{type(loss).__name__} has no paper to cite")
    return citation


def _bibtex(loss: nn.Module) -> str:
    if isinstance(loss, SumLoss):
        return "".join(dict.fromkeys(_bibtex(part) for part in loss.losses.values()))
    source = loss.source if isinstance(loss, RetrievalLoss) else ""
    year = re.search(r"\b(19|20)\d\d\b", source)
    if year is None:
        return ""
    *names, rest = source[: year.start()].split(",")  # the rest is the venue, if there is one
    authors = re.sub(r"\s*[,&]\s*", " and ", ",".join(names or [rest]).strip().replace(" et al.", " and others"))
    number = re.search(r"arxiv\.org/abs/([\d.]+)", source)
    paper = f"\n    eprint={{{number[1]}}},\n    archivePrefix={{arXiv}}," if number else ""
    return (
        f"\n@misc{{rankgrad_{type(loss).__name__.lower()},\n    author={{{authors}}},\n"
        f"    note={{{re.sub(r'[][]|[(]http[^)]*[)]', '', source)}}},\n    year={{{year[0]}}},{paper}\n}}\n"
    )


class CachedRankLoss(CachedLossMixin, RankLoss):  # type: ignore[misc]  # the library is not followed by mypy
    """`RankLoss` for batches whose activations do not fit into memory.

    It embeds the texts in parts, and once more in the backward pass. The gradient is that of `RankLoss`. The cost is a
    second forward pass. Dropout uses the same masks both times. It works inside MatryoshkaLoss.

    Args:
        model: a SentenceTransformer or SparseEncoder, but not with a StaticEmbedding: its inputs cannot be divided, and
            it needs little memory.
        loss: see `RankLoss`.
        mini_batch_size: number of texts of a column that are embedded at once.
        mini_batch_num_tokens: number of tokens that are embedded at once, in place of a number of texts.
        labels: see `RankLoss`.
        gather_across_devices: see `RankLoss`.
        show_progress_bar: show the progress over the parts.

    Returns (of a call):
        A scalar, also for a loss of several terms. The values of the terms are in `loss.loss.stats`.

    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> from rankgrad.losses import SmoothAPLoss
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> loss = CachedRankLoss(model, SmoothAPLoss(), mini_batch_size=2)
    >>> loss([model.preprocess(["red", "red", "green", "green"])], torch.tensor([0, 0, 1, 1])) < 1e-6
    tensor(True)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: CheckedLoss | SumLoss | GlobalBatch,
        mini_batch_size: int = 32,
        *,
        mini_batch_num_tokens: int | None = None,
        labels: Meaning | None = None,
        gather_across_devices: bool = False,
        show_progress_bar: bool = False,
    ) -> None:
        super().__init__(model, loss, labels=labels, gather_across_devices=gather_across_devices)
        if has_static_embedding_input(model):
            raise ValueError(
                "a StaticEmbedding has almost no activations, and its batches cannot be divided: use RankLoss"
            )
        self.mini_batch_size = integer(mini_batch_size, "mini_batch_size counts texts embedded at once", low=1)
        self.mini_batch_num_tokens = (
            None
            if mini_batch_num_tokens is None
            else integer(mini_batch_num_tokens, "mini_batch_num_tokens counts tokens embedded at once", low=1)
        )
        self.show_progress_bar = show_progress_bar

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """The loss of a batch from its parts [column][part]. With `with_backward`, the parts get their gradients."""
        value = self.value([torch.cat(parts) for parts in reps], labels)
        if with_backward:
            value.backward()  # type: ignore[no-untyped-call]
            value = value.detach()
        return value

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch of tokenized columns."""
        value: Tensor = self.forward_cached(sentence_features, labels)  # type: ignore[operator]  # of the mixin
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card."""
        mine = {"mini_batch_size": self.mini_batch_size, "mini_batch_num_tokens": self.mini_batch_num_tokens}
        return {**super().get_config_dict(), **mine}


# ------------------------------------------------------------------------------------------------------------- batches


class ClassBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of exactly P classes with K texts each, for `batch_sampler=` of the training arguments.

    Pass the class itself (K = 4, P = batch size / 4), or `ClassBatchSampler.of(samples_per_class=8)`.
    `rankgrad.datasets.samplers.MPerClassBatchSampler` describes how classes and texts are chosen. The batches depend
    only on (labels, seed, epoch), so a training that resumes from a checkpoint gets the same batches.

    With W processes, the batches of a step have W P classes together. Each class is in the batch of one process only.
    So a loss that gathers the batches ranks exactly W P x K texts.

    Args:
        dataset: a `datasets.Dataset` with a column of classes: integers, strings, or lists of integers (a hierarchy,
            balanced by its finest level).
        batch_size: texts per process, a multiple of K.
        drop_last: has no effect, because all batches are whole.
        valid_label_columns: possible names of the label column; the first one that exists is used.
        generator: not used.
        seed: 0 .. 2**32 - 1.
        samples_per_class: K, >= 2.
        short_classes: "drop" leaves out classes with fewer than K texts. With "fewer", they give the texts that they
            have, and their batches are smaller. This works with one process only: with several, Accelerate drops
            smaller batches.

    Raises:
        ValueError: there are no classes or too few, or the batch size is not a multiple of K.

    >>> from datasets import Dataset
    >>> data = Dataset.from_dict({"text": list("abcdefgh"), "label": [0, 1] * 4})
    >>> [sorted(batch) for batch in ClassBatchSampler(data, batch_size=8)]  # 2 classes with 4 texts each
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool = False,
        valid_label_columns: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        samples_per_class: int = 4,
        short_classes: ShortClasses = "drop",
    ) -> None:
        super().__init__(
            dataset,
            batch_size=batch_size,
            drop_last=drop_last,
            valid_label_columns=valid_label_columns,
            generator=generator,
            seed=seed,
        )
        self.samples_per_class = integer(samples_per_class, "samples_per_class counts texts of a class", low=2)
        self.classes_per_batch = batch_size // samples_per_class
        self.processes = world()[1]
        if short_classes == "repeat":
            raise ValueError(
                "short_classes='repeat' puts a text into a batch twice. The loss would need row numbers to keep it "
                "from being its own match, but this trainer does not pass them on. Use 'drop' or 'fewer'"
            )
        if short_classes == "fewer" and self.processes > 1:
            raise ValueError(
                "short_classes='fewer' makes batches of different sizes, and Accelerate drops some of them. Use 'drop'"
            )
        self._labels = _classes(dataset, valid_label_columns or LABEL_COLUMNS)
        self._steps = batches_of_step(self._labels, batch_size, samples_per_class, seed, short_classes, "texts")

    @classmethod
    def of(cls, **settings: Any) -> partial[ClassBatchSampler]:
        """The sampler with other settings: samples_per_class, short_classes.

        >>> ClassBatchSampler.of(samples_per_class=8).keywords
        {'samples_per_class': 8}
        """
        return partial(cls, **settings)

    def __len__(self) -> int:
        """Batches of an epoch, of all processes together."""
        return len(self._steps) * self.processes

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch. The batches of a step follow each other. Accelerate gives one to each process."""
        for step in self._steps.batches(self.epoch):
            of_row = self._labels[step]
            starts = np.flatnonzero(np.r_[True, of_row[1:] != of_row[:-1]])  # the texts of a class stand together
            for part in np.split(np.asarray(step), starts[self.classes_per_batch :: self.classes_per_batch]):
                yield part.tolist()


def _classes(dataset: Any, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """[row] classes of a data set, numbered from 0."""
    name = next((name for name in columns if name in dataset.column_names), None)
    if name is None:
        raise ValueError(
            f"class batches need a column of classes named {' or '.join(columns)}; the data set has "
            f"{', '.join(dataset.column_names)}"
        )
    try:
        labels = np.asarray(dataset[name][:])
    except ValueError:
        labels = np.zeros((0, 0, 0))
    if labels.dtype.kind not in "iuU" or labels.ndim not in (1, 2):
        raise ValueError(
            f"column {name!r} must hold one class per text, an integer or a string, or a list of integers from coarse "
            f"to fine; got {dataset.features[name]}"
        )
    numbers: npt.NDArray[np.int64] = np.unique(labels, axis=0, return_inverse=True)[1]
    return numbers.reshape(-1)


# ---------------------------------------------------------------------------------------------------------- evaluation


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


def measure_names(measures: Sequence[str], primary_metric: str) -> tuple[list[str], str]:
    """Names of the measures and of the primary one, as `ranked.evaluate` writes them.

    Raises:
        ValueError: a measure is unknown, or the primary one is not among the measures.
    """
    names = [str(measure) for measure in asked(measures)]
    [primary] = map(str, asked([primary_metric]))
    if primary not in names:
        raise ValueError(f"primary_metric {primary!r} must be one of the measures: {', '.join(names)}")
    return names, primary


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
        options: options of `rankgrad.evaluation.evaluate`, such as ks, extra, groups, bootstrap. The default of
            clusters is "none", because k-means takes longer than all else.

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
        options = {"clusters": "none", **options}
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


class _OfCorpus(Evaluator):
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


class GradedRetrievalEvaluator(_OfCorpus):
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
        options: options of `rankgrad.evaluation.graded.evaluate_graded`: bootstrap, confidence, seed.

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
        metrics: Sequence[str] = NAMES,
        primary_metric: str = "NDCG@10",
        batch_size: int = 32,
        truncate_dim: int | None = None,
        write_csv: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        options = {"names": tuple(metrics), **options}
        shared = (name, primary_metric, batch_size, truncate_dim, write_csv, show_progress_bar, options)
        super().__init__(queries, corpus, qrels, *shared)

    def measured(self, model: Any, similarity: str) -> Report:
        """See `Evaluator`."""
        row = {key: place for place, key in enumerate(self.corpus)}
        gains = [{row[name]: gain for name, gain in self.qrels.get(query, {}).items()} for query in self.queries]
        return evaluate_graded(*self.sides(model), gains, **{"similarity": similarity, **self.options})


class RankedRetrievalEvaluator(_OfCorpus):
    """Queries against a corpus by the measures of trec_eval, with the page of `rankgrad.evaluation.ranked`.

    The page and its csv and json files are in the folder `ranked_retrieval_evaluation_NAME` of the output folder. Each
    evaluation replaces them. The page compares the model with the runs of other systems, and tests the differences.

    Args:
        queries: id -> text. Queries without judgements are not embedded.
        corpus: id -> text.
        qrels: id of a query -> id of a document -> integer grade; or id of a query -> a set of relevant documents.
        name: name of the model's run on the page, and first part of the metrics' names: with "dev",
            metric_for_best_model is "eval_dev_ndcg_cut_10".
        measures: see `ranked.evaluate`.
        primary_metric: one of the measures.
        depth: number of documents in a list.
        others: name -> run of another system, see `ranked.evaluate`, such as {"bm25": "bm25.run"}.
        batch_size: number of texts that are embedded at once.
        truncate_dim: use only this number of first dimensions of the embeddings.
        write_csv: write a line with all measures and intervals for every evaluation.
        write_page: write the page of each evaluation.
        show_progress_bar: show the progress of the embedding.
        options: options of `ranked.evaluate`, such as level, groups, bootstrap.

    Attributes:
        report: the whole `ranked.Evaluation` of the last call.

    Raises:
        ValueError: qrels have a query or a document that does not exist, or a measure is unknown; in a call: see
            `ranked.evaluate`.

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
        measures: Sequence[str] = USUAL,
        primary_metric: str = "ndcg_cut_10",
        depth: int = 1000,
        others: Mapping[str, Run] | None = None,
        batch_size: int = 32,
        truncate_dim: int | None = None,
        write_csv: bool = True,
        write_page: bool = True,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> None:
        names, primary = measure_names(measures, primary_metric)
        self.run, self.others = name or "model", dict(others or {})
        if self.run in self.others:
            raise ValueError(
                f"the model and one of the others have the same name {self.run!r}; give the model another name="
            )
        self.depth = integer(depth, "depth counts the documents of a list", low=1)
        self.write_page = write_page
        options = {"measures": names, **options}
        grades = {
            query: judged if isinstance(judged, Mapping) else dict.fromkeys(judged, 1)
            for query, judged in qrels.items()
        }
        grades = {query: judged for query, judged in grades.items() if judged}
        shared = (name, primary, batch_size, truncate_dim, write_csv, show_progress_bar, options)
        super().__init__(queries, corpus, grades, *shared)
        self.queries = {query: text for query, text in self.queries.items() if query in grades}

    def measured(self, model: Any, similarity: str) -> ranked.Evaluation:
        """The measures of the model and of the other runs."""
        queries, corpus = (side.to(torch.promote_types(side.dtype, torch.float32)) for side in self.sides(model))
        if similarity == "cosine":
            queries, corpus = unit_rows(queries), unit_rows(corpus)
        scorer = Scorer(queries, corpus, "euclidean" if similarity == "euclidean" else "inner product")
        depth, names = min(self.depth, len(corpus)), np.array(list(map(str, self.corpus)), dtype=object)
        scores, documents = [], []
        for rows in torch.split(torch.arange(len(queries), device=scorer.device), max(1, PAIRS // len(corpus))):
            best, index = scorer(rows).topk(depth)
            scores.append(scorer.scores(best, rows).cpu())
            documents.append(names[index.cpu().numpy()])
        run = ranked.from_matrix(np.concatenate(documents), torch.cat(scores), list(map(str, self.queries)), self.run)
        return ranked.evaluate({self.run: run, **self.others}, self.qrels, **self.options)

    def numbers(self) -> tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]:
        """(measure -> value, measure -> interval) of the model's run."""
        return self.report.values[self.run], self.report.intervals[self.run]

    def write(self, folder: str, epoch: float, steps: int) -> None:
        """Add a line to the csv file, and write the page."""
        super().write(folder, epoch, steps)
        if self.write_page:
            ranked.write(self.report, os.path.join(folder, self.csv_file.removesuffix("_results.csv")))


__all__ = [
    "RankLoss",
    "CachedRankLoss",
    "ClassBatchSampler",
    "RetrievalEvaluator",
    "GradedRetrievalEvaluator",
    "RankedRetrievalEvaluator",
]
