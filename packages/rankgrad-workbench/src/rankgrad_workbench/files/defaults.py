"""What a training takes where nothing is said: one table, which `rankgrad.fit`, the commands and the pages read.

What a user gives always wins. After a change here run `make tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankgrad.common.defaults import CLASSES_PER_BATCH as CLASSES_PER_BATCH
from rankgrad.common.defaults import LOSSES as LOSSES
from rankgrad.common.defaults import SAMPLES_PER_CLASS as SAMPLES_PER_CLASS
from rankgrad.common.defaults import SHORT_CLASSES as SHORT_CLASSES

#: Kind of rows -> another loss -> its settings that differ from the defaults of its class. A temperature of 1 is for
#: logits, but the scores of documents are cosines: docs/search-documents.md#what-is-trained
OTHER_LOSSES: dict[str, Mapping[str, Mapping[str, float | str]]] = {
    "documents": {
        **{loss: {"tau": 0.1} for loss in ("list_net", "lambda", "roc_auc", "margin_mse")},
        "grade_bce": {"highest": "auto"},  # the highest grade of the data
    }
}

# Steps of a training whose epochs are not given: passes over the data, but not fewer and not more steps than these.
# Passes alone leave small data untrained. papers/docs/results-scores.md#steps
PASSES = 60  # over the rows of a table; other data have data.epochs
FEWEST_STEPS, MOST_STEPS = 250, 50_000  # of embeddings
FEWEST_STEPS_OF_ROWS, MOST_STEPS_OF_ROWS = 2_000, 20_000
PASSES_OF_QUERIES = 30  # over the queries of a search, from scratch
PATIENCE = 0.25  # share of the steps without a better epoch after which a training on rows ends


# Of the fine-tuning of a pretrained network: docs/fine-tuning.md
# Share of the trained weights in the model that is kept. After many steps they are far from the pretrained ones, and on
# classes that these know, a share of .75 was below the untouched network.
AVERAGE, AVERAGE_LONG, MANY_STEPS = 0.75, 0.5, 500
SAMPLES_FINE_TUNED = 4  # rows of a class in a batch, as in the measurements
# A network is used on larger images than those of its training, up to the size of its pretraining. Groceries and
# animals gain still more from a factor of 2 to 2.5, but icons lose by it: papers/results/fine-tuning/sizes.csv
LARGER = 1.5
PASSES_FINE_TUNED, FEWEST_STEPS_FINE_TUNED = 5, 100


def epochs_for(batches: int, passes: int, fewest: int, most: int) -> int:
    """Number of epochs: `passes`, but at least `fewest` and at most `most` steps, and at least one epoch.

    Args:
        batches: steps of an epoch.
        passes: epochs for data of a usual size.
        fewest: steps.
        most: steps.

    >>> epochs_for(1, 60, 2000, 20000), epochs_for(100, 60, 2000, 20000), epochs_for(1250, 60, 2000, 20000)
    (2000, 60, 16)
    """
    return max(min(max(passes, -(-fewest // batches)), most // batches), 1)


def share_kept(steps: int) -> float:
    """Default share of the trained weights in the model that is kept, after a number of steps of fine-tuning.

    >>> share_kept(100), share_kept(2000)
    (0.75, 0.5)
    """
    return AVERAGE if steps <= MANY_STEPS else AVERAGE_LONG


# Of the optimiser and its schedule.
WEIGHT_DECAY = 1e-4
FACTOR = 0.3  # of each fall of schedule=steps: ROADMAP and RaMBO, "a drop by 70 %"
RESTART = 0.3  # share of the rate that an extended cosine schedule warms to again


@dataclass(frozen=True)
class Rate:
    """With which rate a training begins.

    Attributes:
        lr: of the backbone, or of a head that is trained alone.
        head_lr_factor: rate of a head beside a backbone, as a multiple of that.
        of: what it is the rate of, for whoever reads it.
    """

    lr: float
    head_lr_factor: float
    of: str


#: Kind of model -> rates of AdamW and Adam, from scratch and for a pretrained model. docs/training.md has the
#: sources.
RATES: dict[str, tuple[float | None, float | None]] = {
    "convnet": (2.5e-3, 1e-3),
    "timm": (1e-3, 3e-4),
    "ngrams": (3e-2, 3e-2),
    "sentence_transformer": (None, 2e-5),
    "vectors": (1e-3, 1e-3),
    "mlp": (3e-3, None),  # of rows of a table, as the next: papers/docs/results-scores.md#steps
    "linear": (3e-2, None),
    "given": (1e-3, 1e-4),
}
FROZEN = 1e-3  # of a new head on features of a frozen backbone, and on vectors: the same task
TRAINED_HEAD = 2.0  # rate of a head beside a backbone that was trained before, as a multiple of the backbone's
SGD = 40.0  # rate of SGD with momentum, as a multiple of AdamW's


def trained_before(model: Mapping[str, Any]) -> bool:
    """Whether the backbone of a model with these settings begins with weights that were trained before.

    >>> trained_before({"kind": "timm", "pretrained": True}), trained_before({"kind": "timm", "pretrained": False})
    (True, False)
    """
    always = RATES.get(model["kind"], RATES["given"])[0] is None
    return bool(always or model.get("pretrained") or model.get("weights"))


def rate_of(kind: str, optimizer: str = "adamw", *, trained: bool = False, frozen: bool = False) -> Rate:
    """The rate for a kind of model.

    Args:
        kind: a key of `RATES`; any other is "given".
        optimizer: "adamw", "adam" or "sgd".
        trained: whether the model, or its backbone, was trained before.
        frozen: whether a head alone is trained, on features.

    >>> rate_of("timm", trained=True)
    Rate(lr=0.0003, head_lr_factor=2.0, of='timm trained before')
    """
    scratch, after = RATES.get(kind, RATES["given"])
    trained = (trained or scratch is None) and after is not None
    rate, of = (after if trained else scratch), f"{kind} {'trained before' if trained else 'from scratch'}"
    if frozen:
        rate, of = FROZEN, "a head on frozen features"
    elif kind == "given":
        of = f"a module of your own{', trained before' if trained else ' (was it trained before? pretrained=True)'}"
    assert rate is not None
    factor = TRAINED_HEAD if trained and not frozen else 1.0
    return Rate(rate * (SGD if optimizer == "sgd" else 1.0), factor, of)
