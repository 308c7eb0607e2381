"""Any module on any labelled data as a run: `rankgrad.fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from ..config import GIVEN, GROUPS, ConfigError, compose, load, make, packages, plain
from ..datasets.given import Given as Data
from ..datasets.given import given_table
from ..datasets.rows import Rows
from ..losses import RetrievalLoss
from ..losses.called import CalledLoss
from ..models import load_weights
from ..models.embedding_model import moved, place_of
from ..runs.folder import Run
from . import runner
from .retrieval import TASK, EvaluatedEmbeddings, Given, RetrievalTask, read_table, summary
from .state import EPOCHS, MAY_CHANGE

Loss = str | nn.Module | Callable[[Tensor, Tensor], Tensor]
OWN = ("init", "frozen", "resume", "out", "model", "data", "loss")  # settings that are arguments here, or make no sense


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
    quiet: bool = False,
) -> Run:
    """Train a module of your own as `rankgrad train` trains one of ours: batches of classes, a log, a state to go on
    from, an exact evaluation before and after, a page.

    The module is trained in place, and the process is afterwards as it was: random numbers, number of threads, filters
    of warnings, levels of logs. The folder of the run gets its weights, its embeddings of the test rows, the numbers
    and report.html. To go on after an interruption, call this again with a module and data made by the same code, the
    same `out` and resume=True: the run ends with the numbers of one that was not interrupted, if what the data gives
    for a row does not change from one reading to the next. Of a run that is finished the weights are loaded.

    Args:
        model: inputs -> embeddings [row, dim], not necessarily of length 1: they are compared by their cosine.
        data: to train on: (inputs, labels), a Dataset of (input, label) pairs, or the name of a data set of ours, with
            its settings (settings={"data.root": ...}); see `datasets.given.given_table`.
        loss: a name that `rankgrad train` takes, with its settings (settings={"loss.tau": 0.05}); a loss of ours; or
            any function of embeddings [row, dim] and labels [row]. None: what `rankgrad train` takes for such data.
        test: to evaluate on, of the same kind as data, or a share of its classes that are then held out; None: the rows
            that are trained on, and the page says so. Not with a data set of ours, which has its own division.
        out: folder of the run; None: a new one in runs/.
        resume: go on with the run in `out`, if there is one, with the same settings. trainer.max_epochs may be more.
        settings: of `rankgrad train`, by their names and with its defaults: {"trainer.max_epochs": 5, "optimizer.lr":
            1e-3}. The rate is one for a module that was not trained before; give a pretrained one about 1e-5.
        collate: list of inputs -> batch for the model; None: as torch's own DataLoader does it.
        quiet: no progress bars, and no table of the result.

    Returns:
        The folder: `read_values()` has the metrics, `page` the path of the page.

    Raises:
        ConfigError: settings that do not exist or do not fit; a folder that holds another run.
        TypeError, ValueError: data or a model of another kind; a model whose embeddings are no [row, dim].

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
    optimizer.lr 0.001, for a module of your own (if it was trained before, take about 1e-5), with adamw
    ['AP', 'AUC_hardest', 'MRR']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a torch.nn.Module; got {type(model).__name__}")
    if isinstance(loss, Tensor):
        raise TypeError("loss is a tensor. Are these the labels? Data is one pair: fit(model, (inputs, labels))")
    own = own_settings(settings)
    config = _settings(data, loss, out, own, quiet)
    if out is not None and not resume and Run(Path(out)).config.exists():
        raise ConfigError(f"{out} holds a run already: give resume=True to go on with it, or another out=")
    if isinstance(data, str):
        if test is not None or collate is not None:
            raise ValueError(f"data={data!r} has its own division and batches: leave out test and collate")
        table = read_table(config)
    else:
        table = given_table(data, test, collate=collate, seed=config.seed)
        if loss is None and table.captions is not None:
            config = _settings(data, "_texts", out, own, quiet)
        if "test" not in table.splits:
            config.evaluation.split = "train"
    module = None if loss is None or isinstance(loss, str) else _module(loss)
    given = Given(model, _width(model, table, config), table, module)
    if not any(weights.requires_grad for weights in model.parameters()):
        raise ValueError("the model has nothing to train: no parameter of it has requires_grad=True")

    def make_task(settled: DictConfig, quiet: bool, say: runner.Say) -> RetrievalTask:
        return RetrievalTask(settled, quiet, say, given)

    task: runner.TaskType[EvaluatedEmbeddings] = runner.TaskType("retrieval", TASK.name, make_task)
    changes: list[str] = []
    if resume:
        if out is None:
            raise ValueError("resume=True goes on with the run in a folder: say which one, out=FOLDER")
        if Run(Path(out)).config.exists():
            config, changes = resumed(Path(out), config)
    run = runner.train(task, config, changes=changes, quiet=quiet)
    if run.weights.exists():
        load_weights(run.weights, model)  # of a run that was finished before
    if not quiet:
        print(summary(run))
    return run


def own_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of the caller.

    Raises:
        TypeError: they are no settings by dotted names.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f'settings is a dict such as {{"trainer.max_epochs": 5}}; got {type(settings).__name__}')
    for name, value in (settings or {}).items():
        if isinstance(value, Mapping):
            inner = next(iter(value.items()), ("NAME", "VALUE"))
            raise TypeError(f"settings have dotted names: {{'{name}.{inner[0]}': {inner[1]!r}}}, not a dict as {name}")
    return dict(settings or {})


def _settings(
    data: Data | str, loss: Loss | None, out: str | Path | None, settings: dict[str, Any], quiet: bool
) -> DictConfig:
    """The settings of the run, as `rankgrad train` would have composed them."""
    for name in settings:
        if name in OWN:
            why = "is an argument of fit" if name not in ("init", "frozen") else "is for models that rankgrad builds"
            raise ConfigError(f"settings: {name} {why}")
    words = [f"data={data if isinstance(data, str) else GIVEN}", f"model={GIVEN}"]
    words += [f"loss={loss}"] if isinstance(loss, str) else []
    # groups first, as on a command line
    words += [f"{name}={word(value)}" for name, value in sorted(settings.items(), key=lambda s: s[0] not in GROUPS)]
    config = compose(words if not quiet else [*words, "trainer.enable_progress_bar=false"])
    config.out = None if out is None else str(out)
    if loss is not None and not isinstance(loss, str):
        module = _module(loss)
        name = module.name if isinstance(module, CalledLoss) else repr(module)
        config.loss = {"_target_": f"{CalledLoss.__module__}.{CalledLoss.__name__}", "name": name}
    return config


def word(value: object) -> str:
    """A value as a command line has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(word, value))}]"
    return str(value)


def _module(loss: nn.Module | Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    """A loss object, or a function as one.

    Raises:
        TypeError, ValueError: it is no loss, or gives a number for each query.
    """
    if isinstance(loss, type):
        raise TypeError(f"loss is a class: give an object of it, {loss.__name__}()")
    if isinstance(loss, RetrievalLoss):
        if loss.reduction != "mean":
            raise ValueError("training needs one number: build the loss with reduction='mean'")
        return loss
    if not callable(loss):
        raise TypeError(
            f"loss is a name, a loss object, or a function of embeddings and labels; got {type(loss).__name__}"
        )
    if isinstance(loss, CalledLoss):
        return loss
    return CalledLoss(getattr(loss, "__qualname__", type(loss).__qualname__), loss)


def _width(model: nn.Module, table: Rows, config: DictConfig) -> int:
    """Dim of the embeddings, by those of the first two rows.

    Raises:
        TypeError, ValueError: what the model gives are no output.
    """
    transform = make(config.data.eval_transform, slot="transform", trust=packages(config.get("trust")))
    rows = table.dataset()
    first = [rows[row] for row in range(min(2, len(table)))]
    try:
        inputs, _, _ = table.batches(transform)(first)
    except TypeError as error:
        raise TypeError(
            f"the inputs can't be joined to a batch: {error}. Make tensors of them in the Dataset (of images: "
            "transform=torchvision.transforms.ToTensor()), or give collate="
        ) from None
    was_training = model.training
    try:
        with torch.no_grad():
            output = model.eval()(moved(inputs, *place_of(model)))
    finally:
        model.train(was_training)
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the model must give embeddings, a tensor [row, dim]; got {type(output).__name__}. Wrap it in a module "
            "whose forward returns them"
        )
    if output.ndim != 2 or len(output) != min(2, len(table)) or not output.is_floating_point():
        raise ValueError(
            f"the model must give embeddings, float [row, dim]; for {min(2, len(table))} inputs it gave {output.dtype} "
            f"{list(output.shape)}"
        )
    return output.shape[1]


def resumed(folder: Path, config: DictConfig, left_out: tuple[str, ...] = ()) -> tuple[DictConfig, list[str]]:
    """The settings by which `runner.train` goes on with a run, and those that are to be others.

    Args:
        folder: of the run.
        config: settings of now.
        left_out: beginnings of the names of settings that are not compared.

    Raises:
        ConfigError: the run was begun with other settings.
    """
    then = runner.settings_of(load(Run(folder).config))
    now = runner.settings_of(config)
    differ = [
        name
        for name in {**then, **now}
        if then.get(name) != now.get(name) and not name.startswith(("derived.", "extended", "out", "resume", *left_out))
    ]
    other = [name for name in differ if name not in (*MAY_CHANGE, EPOCHS)]
    if other:
        told = ", ".join(f"{name} (then {then.get(name)}, now {now.get(name)})" for name in other)
        raise ConfigError(f"{folder} holds a run of other settings: {told}. Take these, or another folder")
    config.resume = str(folder)
    return config, [f"{name}={word(plain(now.get(name)))}" for name in differ]


__all__ = ["fit", "own_settings", "resumed", "word"]
