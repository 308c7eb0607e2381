"""The settings of a run of retrieval as typed records. configs/train.yaml describes each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from rankgrad.common.checks import integer, list_length, number, one_of
from rankgrad.evaluation import METRICS

from ...datasets.folds import read_fold
from ...datasets.rows import SPLITS
from ...files.defaults import Rate, trained_before
from ...runs.history import CHOSEN_BY
from ...settings import ConfigError, packages, plain, rate, typed

BEST = "best"  # optimizer.average: the share is chosen on held-out classes


def asked(ks: Sequence[int], extra: Sequence[str] = (), clusters: str = "none") -> list[str]:
    """The metrics of a report of embeddings: R@k, the usual ones, NMI and AMI if clusters is "auto", and others.

    >>> asked([1], ["AP@5"])[:2], asked([1], ["AP@5"])[-1]
    (['R@1', 'mAP@R'], 'AP@5')
    """
    usual = [name for name in METRICS if not name.startswith("R@")]
    of_clusters = ("NMI", "AMI") if one_of(clusters, "clusters", ("auto", "none")) == "auto" else ()
    return [*(f"R@{list_length(k, 'ks are list lengths')}" for k in ks), *usual, *of_clusters, *extra]


@dataclass(frozen=True)
class RetrievalData:
    """`data`: the rows, and how they are given to the model.

    Attributes:
        name: kind of data.
        load: `_target_` of a loader, and its arguments.
        train_transform: `_target_` of a transform, and its arguments.
        eval_transform: the same for evaluation.
        workers: processes that read the data.
        epochs: passes over data of a usual size.
        size: of images in training, pixels.
        resize: shorter side of an image before the crop, pixels; or (height, width); None: the data are no photographs,
            or are not resized.
    """

    name: str
    load: Mapping[str, Any]
    train_transform: Mapping[str, Any]
    eval_transform: Mapping[str, Any]
    workers: int
    epochs: int = 20
    size: int | None = None
    resize: Any = None


@dataclass(frozen=True)
class RetrievalEvaluation:
    """`evaluation`: the evaluated rows, and the metrics.

    Attributes:
        split: evaluated part of the data.
        size: of the images, pixels; None: the data are no photographs.
        untouched: at which sizes a pretrained network is measured before training: "own", "same" or "both".
        ks: list lengths of R@k.
        extra: names of more metrics.
        batch_size: rows embedded at a time.
        bootstrap: number of resamples for the intervals.
        clusters: "auto" or "none".
        levels: whether to use the super-labels, too.
        before: whether to evaluate the untrained model; "auto": only on few rows.
        every: number of epochs between two evaluations during training; 0: none.
        keep_best: the rows that choose the best evaluation, "test" or "val"; None: none is chosen.
    """

    split: str
    size: int | None
    untouched: str
    ks: tuple[int, ...]
    extra: tuple[str, ...]
    batch_size: int
    bootstrap: int
    clusters: str
    levels: bool
    before: bool | str
    every: int
    keep_best: str | None

    def __post_init__(self) -> None:
        one_of(self.split, "evaluation.split", SPLITS)
        one_of(self.untouched, "evaluation.untouched", ("own", "same", "both"))
        one_of(self.keep_best, "evaluation.keep_best", (None, *CHOSEN_BY))
        one_of(self.before, "evaluation.before", (True, False, "auto"))
        integer(self.batch_size, "evaluation.batch_size counts rows", low=1)
        integer(self.every, "evaluation.every counts epochs", low=0)


@dataclass(frozen=True)
class RetrievalSettings:
    """The settings of a run that `tasks.retrieval` uses.

    Attributes:
        seed: seed of weights, batches and transforms.
        fold: "1/3" evaluates on the first third of the training classes, and leaves the test out; None: it does not.
        held_out: fraction of the training classes that become the split val; None: no class does.
        label_noise: fraction of wrong labels in training.
        sub_batch: rows embedded at a time; None: all.
        hierarchy: whether the labels are (super-label, class).
        lean: keep only the numbers.
        init: run or file of weights to start from.
        frozen: train only a new head, on features that are computed once.
        trust: packages whose classes the settings may name.
        data: see `RetrievalData`.
        model: `kind` of the model, and arguments of `models.build_model`.
        loss: `_target_` and its arguments.
        memory: `_target_` and its arguments; {}: no memory.
        sampler: arguments of `samplers.class_batches`.
        optimizer: see `training.module.RetrievalModule`. `only` are patterns of the weights to train (None: all);
            `average` is the share of the trained weights in the model that is kept. "best": the one that is best
            on the held-out classes; None: "best" if there are enough of these, else it follows from the steps.
        evaluation: see `RetrievalEvaluation`.
        extended: numbers of epochs at which the run ended before it was extended.
        trainer: arguments of `lightning.Trainer`.
    """

    seed: int
    fold: str | None
    held_out: float | None
    label_noise: float
    sub_batch: int | None
    hierarchy: bool
    lean: bool
    init: str | None
    frozen: bool
    trust: tuple[str, ...]
    data: RetrievalData
    model: Mapping[str, Any]
    loss: Mapping[str, Any]
    memory: Mapping[str, Any]
    sampler: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    evaluation: RetrievalEvaluation
    extended: tuple[int, ...]
    trainer: Mapping[str, Any]

    def __post_init__(self) -> None:
        read_fold(self.fold)
        if self.held_out is not None:
            number(self.held_out, "held_out is a fraction of the training classes", low=0, high=0.9)
            if self.fold is not None:
                raise ConfigError("fold= and held_out= both make a split val of training classes: give one of them")
        number(self.label_noise, "label_noise is a fraction of the training rows", low=0, high=1)
        if self.sub_batch is not None:
            integer(self.sub_batch, "sub_batch is a number of rows, or null", low=1)
        if (share := self.optimizer["average"]) not in (None, BEST):
            number(share, "optimizer.average is a share of the trained weights, best, or null", low=0, high=1)

    @property
    def pretrained(self) -> bool:
        """Whether the backbone begins with weights that were trained before, and not those of a whole run (`init`)."""
        return self.init is None and trained_before(self.model)

    @property
    def usual_rate(self) -> Rate:
        """The default learning rate."""
        return rate(self.model, self.optimizer["name"], self.init, self.frozen)


def settings_of(config: DictConfig) -> RetrievalSettings:
    """The settings of a run, typed.

    Raises:
        TypeError, ValueError: the setting that is refused.
    """
    return typed(RetrievalSettings, {**plain(config), "trust": packages(config.get("trust"))})
