"""Rank losses, class batches and exact evaluation in the Trainer of transformers.

There are four parts. `EmbeddingModel` pools the tokens of a text model to one embedding per text. `TransformersLoss` is
the loss. `RetrievalMetrics` computes the metrics. `ClassBatchTrainer` is a Trainer with class batches, which also saves
the state of the loss (`SavesLoss`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Sampler

try:
    from transformers import utils
except ModuleNotFoundError as error:
    from ..common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "transformers"), name=error.name) from None

from ..batches.distributed import GlobalBatch, gather_rows
from ..batches.samplers import MPerClassBatchSampler
from ..common.checks import integer, unknown
from ..evaluation import evaluate
from ..ranks import computed
from .class_batches import batches_of_step
from .trainer_loss import SavesLoss as SavesLoss
from .trainer_loss import checked_loss

Pooling = Literal["mean", "first", "last"]
POOLINGS = ("mean", "first", "last")


@dataclass
class EmbeddingOutput(utils.ModelOutput):  # type: ignore[misc]  # the library is not followed by mypy
    """The output of an `EmbeddingModel`.

    Attributes:
        embeddings: [row, dim].
    """

    embeddings: Tensor | None = None


class EmbeddingModel(nn.Module):
    """A text model of transformers and a pooling of its tokens: one vector per text.

    Args:
        body: a model whose output has `last_hidden_state`, such as one of `AutoModel.from_pretrained(...)`.
        pooling: "mean" over the tokens of the text; "first" token (BERT's [CLS]); "last" token (for models that read
            from left to right).

    Shape:
        input_ids, attention_mask, token_type_ids: [row, token]; embeddings: [row, dim]. `labels` are not used. The
        Trainer keeps only those columns of the data set that are arguments of the model, so `labels` must be one.

    >>> from transformers import BertConfig, BertModel
    >>> size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = EmbeddingModel(BertModel(BertConfig(vocab_size=10, **size), add_pooling_layer=False))
    >>> model(torch.tensor([[1, 2, 3], [4, 5, 6]])).embeddings.shape
    torch.Size([2, 8])
    """

    def __init__(self, body: nn.Module, pooling: Pooling = "mean") -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(unknown("pooling", pooling, POOLINGS))
        self.body, self.pooling = body, pooling

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> EmbeddingOutput:
        """Embed the tokenized texts of a batch."""
        extra = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        tokens: Tensor = self.body(input_ids=input_ids, attention_mask=mask, **extra).last_hidden_state
        if self.pooling == "mean":
            weight = mask.unsqueeze(-1).to(tokens.dtype)
            pooled = (tokens * weight).sum(1) / weight.sum(1).clamp(min=1)
        else:
            place = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
            there = mask.bool()
            at = place.masked_fill(~there, -1).amax(1) if self.pooling == "last" else there.int().argmax(1)
            pooled = tokens[torch.arange(len(tokens), device=tokens.device), at.clamp(min=0)]
        return EmbeddingOutput(embeddings=pooled)


class TransformersLoss:
    """A loss of `rankgrad.losses` as `compute_loss_func=` of a Trainer. Each row is ranked against its batch.

    The Trainer adds up the losses of accumulated batches, and multiplies by the number of processes. This class divides
    by both, so that the gradient is the mean. Each accumulated batch is ranked on its own, so the result is not that of
    one larger batch.

    The loss is not a part of the model. So a Trainer does not train weights of the loss. It saves the state of the loss
    only if it is a `SavesLoss`, such as `ClassBatchTrainer`.

    Args:
        loss: a loss of `rankgrad.losses` with reduction="mean", a SumLoss, a loss of `losses.baselines` without
            weights, or a `GlobalBatch` of one of them.
        output: the name of the embeddings among the model's outputs: "embeddings" of `EmbeddingModel`, "pooler_output",
            "image_embeds", ...
        gather_across_devices: rank the batches of all processes as one, with the gradient of one process that holds
            them all. A `GlobalBatch` does the same.

    Raises:
        TypeError: a module of another kind, or a memory.
        ValueError: reduction="none", a loss with weights, or a `GlobalBatch` with gather_across_devices.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> loss = TransformersLoss(SmoothAPLoss())
    >>> loss({"embeddings": torch.eye(2)[[0, 0, 1, 1]]}, torch.tensor([0, 0, 1, 1])) < 1e-6  # each class is a point
    tensor(True)
    """

    def __init__(self, loss: nn.Module, *, output: str = "embeddings", gather_across_devices: bool = False) -> None:
        inner = checked_loss(loss)
        if next(inner.parameters(), None) is not None:
            raise ValueError(
                f"{type(inner).__name__} has weights of its own, but this Trainer trains only those of the model. "
                "Use a loss without weights, or train with sentence-transformers, rankgrad.fit or a loop of your own"
            )
        if isinstance(loss, GlobalBatch) and gather_across_devices:
            raise ValueError(
                "GlobalBatch already gathers the batch; give either GlobalBatch or gather_across_devices=True, not both"
            )
        self.loss, self.output, self.gather_across_devices = loss, output, gather_across_devices

    def __call__(
        self, outputs: Mapping[str, Any], labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """The loss of a batch, times the fraction of the step's rows that the batch has.

        Args:
            outputs: outputs of the model.
            labels: [row] classes, [row, level] a hierarchy or [row, class] bool.
            num_items_in_batch: number of labels of the whole step: of all accumulated batches and processes.
        """
        if not isinstance(outputs, Mapping):  # the Trainer reads metrics from outputs by name, too
            raise TypeError(
                "the model must return its embeddings by name, in a dict or a ModelOutput such as EmbeddingOutput; got "
                f"{type(outputs).__name__}"
            )
        if self.output not in outputs:
            raise ValueError(
                f"the model has no output {self.output!r}; it has {', '.join(outputs)}. Wrap the model in "
                "EmbeddingModel, or give the name of the embeddings as output="
            )
        if labels is None:
            raise ValueError("a rank loss needs classes: the data set must have a column label or labels")
        embeddings = outputs[self.output]
        share = 1.0 if num_items_in_batch is None else labels.ne(-100).sum() / num_items_in_batch
        if self.gather_across_devices:
            embeddings, labels = gather_rows(computed(embeddings)), gather_rows(labels)
        value: Tensor = self.loss(embeddings, labels) * share
        return value


class RetrievalMetrics:
    """`compute_metrics=` of a Trainer: exact metrics of the evaluation set. Every row is a query against all others.

    metric_for_best_model is then for example "eval_mAP@R".

    Args:
        options: options of `rankgrad.evaluation.evaluate`, such as metrics. By default there are no intervals.

    >>> from transformers import EvalPrediction
    >>> metrics = RetrievalMetrics(metrics=["R@1"])
    >>> metrics(EvalPrediction(np.eye(2)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])))["R@1"]
    1.0
    """

    def __init__(self, **options: Any) -> None:
        self.options = {"intervals": 0, **options}

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Metric -> value.

        Args:
            prediction: the Trainer's EvalPrediction.
        """
        embeddings, labels = prediction.predictions, prediction.label_ids
        if not isinstance(embeddings, np.ndarray) or labels is None:
            raise TypeError(
                "the predictions must be one array, the embeddings, and there must be labels. Wrap the model in "
                "EmbeddingModel, or select the embeddings with preprocess_logits_for_metrics="
            )
        return evaluate(embeddings, labels, **self.options).values


class ClassBatchTrainer(SavesLoss):
    """The Trainer, with batches of exactly P classes x K rows each.

    P is the batch size per device / K. With W processes, the batches of a step have W P classes together. Each class is
    in the batch of one process only. The batches depend only on (labels, seed, epoch), also after a checkpoint.
    `rankgrad.batches.samplers.MPerClassBatchSampler` describes how classes and rows are chosen. The checkpoints have
    the state of the loss, if it has one (`SavesLoss`).

    Args:
        arguments: arguments of the Trainer.
        samples_per_class: K, >= 2.
        named: arguments of the Trainer.

    Raises:
        ValueError: when training starts: an iterable data set, no column of labels, too few classes, a batch size that
            is no multiple of K; when it resumes, see `SavesLoss`.

    >>> import tempfile
    >>> from datasets import Dataset
    >>> from transformers import TrainingArguments
    >>> from rankgrad.losses import SmoothAPLoss
    >>> data = Dataset.from_dict({"input": [[float(row)] for row in range(8)], "label": [0, 1] * 4})
    >>> model, loss = nn.Linear(1, 2), TransformersLoss(SmoothAPLoss())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     args = TrainingArguments(folder, per_device_train_batch_size=4, report_to="none", use_cpu=True)
    ...     trainer = ClassBatchTrainer(model, args, train_dataset=data, compute_loss_func=loss, samples_per_class=2)
    ...     print([batch["labels"].bincount() for batch in trainer.get_train_dataloader()])
    [tensor([2, 2]), tensor([2, 2])]
    """

    def __init__(self, *arguments: Any, samples_per_class: int = 4, **named: Any) -> None:
        self.samples_per_class = integer(samples_per_class, "samples_per_class counts rows of a class", low=2)
        super().__init__(*arguments, **named)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The class batches of an epoch."""
        if isinstance(self.train_dataset, IterableDataset):  # the Trainer uses no sampler for it
            raise ValueError(
                f"class batches need a data set whose rows can be chosen; got {type(self.train_dataset).__name__}. "
                "Load it as a datasets.Dataset (without streaming=True). If its rows already come in class batches, "
                "use the plain Trainer"
            )
        loader: DataLoader[Any] = super().get_train_dataloader()
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        # the Trainer removes columns that the model does not take, but never the labels
        names = getattr(dataset, "column_names", None) or []
        name = next((name for name in ("labels", "label", "label_ids") if name in names), None)
        if name is None:
            raise ValueError(
                "class batches need a datasets.Dataset with a column named label, labels or label_ids; got "
                f"{type(dataset).__name__} with {', '.join(names) or 'no columns'}"
            )
        labels = np.asarray(dataset[name][:])
        if labels.ndim > 1:  # a hierarchy: rows of one class agree in all levels
            labels = np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return _ClassOrder(batches_of_step(labels, self._train_batch_size, self.samples_per_class, seed))


class _ClassOrder(Sampler[int]):
    """The rows in an order in which consecutive batches are whole class batches."""

    def __init__(self, steps: MPerClassBatchSampler) -> None:
        self._steps, self.epoch = steps, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._steps) * self._steps.batch_size

    def __iter__(self) -> Iterator[int]:
        for batch in self._steps.batches(self.epoch):
            yield from batch


__all__ = ["EmbeddingModel", "EmbeddingOutput", "TransformersLoss", "RetrievalMetrics", "ClassBatchTrainer"]
