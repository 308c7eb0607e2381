"""Train any module on any labelled data: `rankgrad.fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn

from rankgrad.batches.memory import Memory
from rankgrad.losses import RetrievalLoss
from rankgrad.losses.called import CalledLoss

from ...datasets.given import Given as Data
from ...datasets.given import given_table
from ...datasets.rows import Rows
from ...files.defaults import LOSSES
from ...models import load_weights
from ...models.build import kind_of
from ...models.embedding_model import evaluating, freeze_batch_norms, modes_kept, moved
from ...runs.folder import Run
from ...settings import GIVEN, GROUPS, ConfigError, compose, make, of_kind, replaced
from ...settings.spelling import as_word
from ...training import runner
from ...training.runner import begun, own_settings
from .building import Given, read_table
from .settings import RetrievalSettings, settings_of
from .task import TASK, EvaluatedEmbeddings, build, summary

Loss = str | nn.Module | Callable[[Tensor, Tensor], Tensor]
OWN = ("init", "frozen", "resume", "out", "model", "data", "loss")  # settings that `fit` does not accept


@runner.undisturbed()
def fit(
    model: nn.Module,
    data: Data | str,
    loss: Loss | None = None,
    *,
    test: Data | float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    pretrained: bool = False,
    quiet: bool = False,
) -> Run:
    """Train a module of your own as `rankgrad train` trains its models: with class-balanced batches, a log, a saved
    state, an exact evaluation before and after, and a page.

    The module is trained in place. The folder of the run gets the weights, the embeddings of the test rows, the metrics
    and report.html. `fit` restores the state of the process: random states, number of threads, warning filters and log
    levels.

    To continue after an interruption, call `fit` again with resume=True, the same `out`, and a module and data made by
    the same code. The run then ends with the numbers of a run that was not interrupted, if the data gives the same
    input for a row each time. If the run is already finished, its weights are loaded.

    Args:
        model: inputs -> embeddings [row, dim]. Their length may differ from 1, because the cosine compares them.
        data: training data: (inputs, labels), a Dataset of (input, label) pairs, or the name of a data set of rankgrad
            with its settings (settings={"data.root": ...}); see `datasets.given.given_table`.
        loss: a name that `rankgrad train` takes, with its settings (settings={"loss.tau": 0.05}); a loss object of
            rankgrad; or any function of embeddings [row, dim] and labels [row]. None: the default of `rankgrad train`
            for this kind of data.
        test: test data of the same kind as `data`, or a fraction of the classes to hold out for the test. None: the
            training rows are evaluated, and the page says so. A data set of rankgrad has its own test rows.
        out: folder of the run; None: a new one in runs/.
        resume: continue the run in `out`, if there is one, with the same settings. trainer.max_epochs may be larger.
        settings: settings of `rankgrad train` by name: {"trainer.max_epochs": 5, "optimizer.lr": 1e-3}. Defaults are
            those of the command. A model of rankgrad has the rate of its kind.
        collate: list of inputs -> batch for the model; None: as in torch's DataLoader.
        pretrained: whether the module was trained before, on other data. It then has the defaults of `rankgrad train`
            for pretrained weights: rate, number of steps, and `optimizer.average`, with which the weights that are kept
            are an average of those after and before. Its batch norm stays in eval mode during the training.
        quiet: show no progress bars, and print no table of the result.

    Returns:
        The run's folder. Its `read_values()` returns the metrics, and its `page` is the path of the page.

    Raises:
        ConfigError: a setting does not exist or does not fit, or the folder holds another run.
        TypeError, ValueError: data, model or loss has the wrong kind, or the embeddings are not [row, dim].

    >>> import tempfile, torch, rankgrad
    >>> inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.arange(64) % 8
    >>> few = {"trainer.max_epochs": 1, "sampler.classes_per_batch": 4, "evaluation.clusters": "none"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = rankgrad.fit(
    ...         torch.nn.Linear(8, 4), (inputs, labels), "smooth_ap", test=0.5, out=folder, settings=few, quiet=True
    ...     )
    ...     print(sorted(run.read_values())[:3])
    fit: 64 inputs, 8 classes (each [8])
    split  inputs  classes  inputs/class
    train      32        4             8
    test       32        4             8
    batches of 4 classes x 8 inputs
    loss SmoothAPLoss
    optimizer.lr 0.001, for a module of your own (was it trained before? pretrained=True), with adamw
    trainer.max_epochs 1, as given; at most 1 step
    ['AP', 'AUC_hardest', 'MRR']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    own = own_settings(settings)
    table: Rows | None = None
    if not isinstance(data, str):
        table = given_table(data, test, collate=collate, seed=int(own.get("seed", 0)))
    elif test is not None or collate is not None:
        raise ValueError(f"the data set {data!r} has its own test rows and batches; leave out test= and collate=")
    chosen = loss if loss is None or isinstance(loss, str) else _module(loss)
    words = ["model.pretrained=true"] if pretrained else []
    if (like := kind_of(model)) is not None:
        words = [f"model.like={like[0]}", f"model.trained={as_word(like[1])}", *words]
    config = _settings(words, data, table, chosen, own)
    config = replaced(config, {"out": None if out is None else str(out)})
    if quiet:
        config = replaced(config, {"trainer.enable_progress_bar": False})
    typed = settings_of(config)
    table = read_table(typed) if table is None else table
    given = Given(model, _width(model, table, typed), table, chosen if isinstance(chosen, nn.Module) else None)
    if not any(weights.requires_grad for weights in model.parameters()):
        raise ValueError("the model has nothing to train: none of its parameters has requires_grad=True")
    task = runner.TaskType[EvaluatedEmbeddings](TASK.kind, TASK.name, partial(build, given=given))
    config, changes = begun(config, out, resume)
    with modes_kept(model):
        if pretrained:
            freeze_batch_norms(model)
        run = runner.train(task, config, changes=changes, quiet=quiet)
    if run.weights.exists():
        load_weights(run.weights, model)  # the run may have been finished before this call
    if not quiet:
        print(summary(run))
    return run


def _settings(
    words: Sequence[str], data: Data | str, table: Rows | None, loss: str | nn.Module | None, own: Mapping[str, Any]
) -> DictConfig:
    """The settings of the run, composed as by `rankgrad train`. `words` are settings of the model."""
    for name in own:
        if name in OWN:
            raise ConfigError(f"settings: {name} is an argument of fit, or for models that rankgrad builds")
    words = [f"data={data if isinstance(data, str) else GIVEN}", f"model={GIVEN}", *words]
    if table is not None and table.captions is not None and not isinstance(loss, nn.Module):
        loss = loss or LOSSES["texts"][0]
        words += of_kind(loss, "texts")
    if isinstance(loss, str):
        words.append(f"loss={loss}")
    # groups first, as on a command line
    words += [f"{name}={as_word(value)}" for name, value in sorted(own.items(), key=lambda s: s[0] not in GROUPS)]
    values: dict[str, Any] = {}
    if table is not None and "test" not in table.splits:
        values["evaluation.split"] = "train"
    if isinstance(loss, nn.Module):
        name = loss.name if isinstance(loss, CalledLoss) else repr(loss)
        values["loss"] = {"_target_": f"{CalledLoss.__module__}.{CalledLoss.__name__}", "name": name}
    return replaced(compose(words), values)


def _module(loss: nn.Module | Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    """A loss object. A function is wrapped in one.

    Raises:
        TypeError, ValueError: it is not a loss, or it returns a number for each query.
    """
    if isinstance(loss, RetrievalLoss) and loss.reduction != "mean":
        raise ValueError("training needs one number from the loss; create it with reduction='mean'")
    if isinstance(loss, (RetrievalLoss, CalledLoss)):
        return loss
    if not callable(loss) or isinstance(loss, (type, Tensor, Memory)):
        raise TypeError(
            "loss must be a name, a loss object such as SmoothAPLoss(), or a function of embeddings and labels; got "
            f"{(loss if isinstance(loss, type) else type(loss)).__name__}; "
            'a memory is a setting: settings={"memory": "sum"}'
        )
    return CalledLoss(getattr(loss, "__qualname__", type(loss).__qualname__), loss)


def _width(model: nn.Module, table: Rows, settings: RetrievalSettings) -> int:
    """Dimension of the embeddings, measured on the first two rows.

    Raises:
        TypeError: the rows cannot be joined, or the output of the model is not a float tensor [row, dim].
    """
    transform = make(settings.data.eval_transform, slot="transform", trust=settings.trust)
    rows = table.dataset()
    first = [rows[row] for row in range(min(2, len(table)))]
    try:
        inputs, _, _ = table.batches(transform)(first)
    except TypeError as error:
        raise TypeError(
            f"the inputs cannot be joined to a batch: {error}. Let the Dataset return tensors (for images: "
            "transform=torchvision.transforms.ToTensor()), or give collate="
        ) from None
    with evaluating(model) as place:
        output = model(moved(inputs, *place))
    tensor = isinstance(output, Tensor)
    if not tensor or output.ndim != 2 or len(output) != len(first) or not output.is_floating_point():
        got = f"{output.dtype} {list(output.shape)}" if tensor else type(output).__name__
        raise TypeError(
            f"the model must return embeddings, float [row, dim]; for {len(first)} inputs it returned {got}"
        )
    return int(output.shape[1])


__all__ = ["fit"]
