"""Rank losses for the trainer of sentence-transformers: a loss has the model and gets tokenised texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.losses import CachedLossMixin, has_static_embedding_input
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor, nn

from ...batches.distributed import GlobalBatch, gather_rows, world
from ...common.checks import integer
from ...losses import RetrievalLoss, SumLoss
from ...losses.checked import CheckedLoss
from ...losses.sum import missing_references
from ...ranks import computed
from ...ranks.normalize import unit_rows
from ..trainer_loss import checked_loss

Meaning = Literal["classes", "grades"]


class Components(dict[str, Tensor]):
    """The terms of a loss by name. The trainer logs each term, and trains on their sum.

    A wrapper such as MatryoshkaLoss multiplies the result of a loss by a weight. The product is the weighted sum.

    >>> 2.0 * Components(first=torch.tensor(1.0), second=torch.tensor(0.5))
    tensor(3.)
    """

    def __mul__(self, weight: float) -> Tensor:
        return weight * torch.stack(list(self.values())).sum()

    __rmul__ = __mul__


class SentenceTransformersLoss(nn.Module):
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
    >>> loss = SentenceTransformersLoss(model, SmoothAPLoss())
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


class CachedSentenceTransformersLoss(CachedLossMixin, SentenceTransformersLoss):  # type: ignore[misc]  # untyped
    """`SentenceTransformersLoss` for batches whose activations do not fit into memory.

    It embeds the texts in parts, and once more in the backward pass. The gradient is that of the other class. The cost
    is a second forward pass. Dropout uses the same masks both times. It works inside MatryoshkaLoss.

    Args:
        model: a SentenceTransformer or SparseEncoder, but not with a StaticEmbedding: its inputs cannot be divided, and
            it needs little memory.
        loss: see `SentenceTransformersLoss`.
        mini_batch_size: number of texts of a column that are embedded at once.
        mini_batch_num_tokens: number of tokens that are embedded at once, in place of a number of texts.
        labels: see `SentenceTransformersLoss`.
        gather_across_devices: see `SentenceTransformersLoss`.
        show_progress_bar: show the progress over the parts.

    Returns (of a call):
        A scalar, also for a loss of several terms. The values of the terms are in `loss.loss.stats`.

    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> from rankgrad.losses import SmoothAPLoss
    >>> model = SentenceTransformer(modules=[BoW(["red", "green"])], device="cpu")
    >>> loss = CachedSentenceTransformersLoss(model, SmoothAPLoss(), mini_batch_size=2)
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
                "a StaticEmbedding has almost no activations, and its batches cannot be divided: use "
                "SentenceTransformersLoss"
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
