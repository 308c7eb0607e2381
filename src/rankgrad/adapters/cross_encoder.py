"""Listwise rank losses for the cross-encoders of sentence-transformers.

A cross-encoder reads a query and a document together and returns one score. The scores of a query are a list. So every
loss with `from_lists` can train it. `adapters.sentence_transformers` is for models that embed single texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .sentence_transformers.losses import citation_of

try:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.util import batch_to_device
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "sentence_transformers"), name=error.name) from None

from ..common.checks import integer
from ..losses import RetrievalLoss


class CrossEncoderLoss(nn.Module):
    """A loss of `rankgrad.losses` for a CrossEncoder: each query's documents are a list.

    Columns of the data set: a query, a list of documents, and a label column with a list of grades >= 0 (or of bools),
    one for each document. Lists may have different lengths. The value is `loss.from_lists` of the model's scores
    without its activation function.

    Args:
        model: a CrossEncoder with one output.
        loss: a loss with reduction="mean". The temperatures of most losses are for cosines; see docs/scores.md for
            scores without bounds, such as `LambdaLoss(k=10)` or `InfoNCELoss(tau=1.0)`.
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


__all__ = ["CrossEncoderLoss"]
