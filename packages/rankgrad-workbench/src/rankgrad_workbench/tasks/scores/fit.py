"""A network, or any module, on a table of rows as a run: `rankgrad.fit_scores`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from rankgrad.losses.called import CalledLoss

from ...runs.folder import Run
from ...settings import GIVEN, GROUPS, ConfigError, compose, replaced
from ...settings.spelling import as_word
from ...training import runner
from ...training.runner import begun, own_settings
from .model import load_ranker
from .table import ScoreTable, load_table
from .task import TASK, Evaluated, GivenScorer, build, summary

if TYPE_CHECKING:
    from omegaconf import DictConfig


@runner.undisturbed()
def fit_scores(
    table: ScoreTable | str | Path,
    model: nn.Module | Callable[[int], nn.Module] | None = None,
    loss: str | nn.Module = "auto",
    *,
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    queries_per_batch: int | None = None,
    validation: float | None = None,
    test_fraction: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Run:
    """Train a network on a table, like `rankgrad train task=scores`. Keywords that are None are as in the command.

    A module of your own is trained in place, and ends with the weights of the best epoch. The folder of the run has the
    model, the scores of the test rows, the numbers and report.html. If the training is interrupted, make the module and
    the table again with the same code, and call this function with the same `out` and resume=True.

    Args:
        table: a table with relevance, see `ScoreTable.of` and `load_table`, or a file that `load_table` reads without
            further arguments. If it has no split, a fraction of the rows or queries is held out for the test.
        model: a module, encoded rows [row, width] -> scores [row]; or a function that makes such a module for a width.
            None: the network of the command.
        loss: a loss with `from_lists`, such as those of `rankgrad.losses`; or the name of a loss of the command.
        epochs: passes over the training rows; None: their number follows from the rows.
        lr: highest learning rate.
        batch_size: rows in a batch, if all rows are one list.
        queries_per_batch: queries in a batch, with all their rows.
        validation: fraction of the training rows or queries that choose the epoch, in [0, 1).
        test_fraction: fraction of the rows or queries for the test, if the table has no split, in (0, 1).
        seed: seed of weights, batches and held-out rows.
        out: folder of the run; None: a new one in runs/.
        resume: resume the run in `out`, if there is one.
        settings: settings of the command that have no keyword here, by name: {"optimizer.weight_decay": 0.1}.
        quiet: show no progress bars, and no table of the result.

    Returns:
        The folder: `read_values()` has the metrics, and `load_ranker(run.weights)` scores other tables (with the
        module, if it is your own).

    Raises:
        ConfigError: a setting does not exist or does not fit, or the folder holds another run.
        TypeError, ValueError: the model or the table does not fit.

    >>> import tempfile, torch
    >>> rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> table = ScoreTable.of(rows, rows[:, 0] > 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     net = lambda width: nn.Sequential(nn.Linear(width, 1), nn.Flatten(0))
    ...     run = fit_scores(table, net, epochs=2, out=folder, quiet=True)
    ...     print(sorted(run.read_values()))
    train  table: 128 rows, 3 features; 17 relevant (13.3 %)
    choose table: 32 rows, 3 features; 4 relevant (12.5 %)
    test   table: 40 rows, 3 features; 5 relevant (12.5 %)
    3 columns encoded as 3 numbers
    batches of 128 rows, 17 of them relevant; 1 an epoch
    loss InfoNCELoss with tau=0.1, the default for one list; loss=NAME takes another
    trainer.max_epochs 2, as given; at most 2 steps
    ['AP', 'P@100', 'ROC AUC', 'ROC AUC@FPR=0.05']
    """
    keywords = {
        "trainer.max_epochs": epochs,
        "optimizer.lr": lr,
        "sampler.batch_size": batch_size,
        "sampler.queries_per_batch": queries_per_batch,
        "data.validation": validation,
        "data.load.test_fraction": test_fraction,
        "seed": seed,
    }
    if isinstance(table, (str, Path)):
        table = load_table(table, test_fraction=None)
    if not isinstance(table, ScoreTable) or table.relevance is None:
        raise TypeError("table must be a ScoreTable with relevance, see ScoreTable.of and load_table")
    own = own_settings(settings) | {name: value for name, value in keywords.items() if value is not None}
    own |= {"trainer.enable_progress_bar": False} if quiet else {}
    config = _settings(loss, out, own, model is None)
    load = config.data.load
    given = GivenScorer(model, table.with_test(load.test_fraction, load.seed), None if isinstance(loss, str) else loss)
    chosen = ("loss.", "loss", "evaluation.select", "evaluation.patience")
    config, changes = begun(config, out, resume, left_out=chosen)
    kind = runner.TaskType[Evaluated](TASK.kind, TASK.name, partial(build, given=given))
    run = runner.train(kind, config, changes=changes, quiet=quiet)
    if isinstance(model, nn.Module):
        load_ranker(run.weights, model)  # needed if the run was finished before
    if not quiet:
        print(summary(run))
    return run


def _settings(loss: str | nn.Module, out: str | Path | None, own: dict[str, Any], network: bool) -> DictConfig:
    """The settings of the run, composed as for `rankgrad train task=scores`."""
    for name in {*own} & {"resume", "out", "model", "data", "loss", "task"}:
        raise ConfigError(f"settings: {name} is an argument of fit_scores")
    words = [f"data={GIVEN}"] if network else [f"data={GIVEN}", f"model={GIVEN}"]
    words += [f"loss={loss}"] if isinstance(loss, str) else []
    words += [f"{name}={as_word(value)}" for name, value in sorted(own.items(), key=lambda s: s[0] not in GROUPS)]
    values: dict[str, Any] = {"out": None if out is None else str(out)}
    if not isinstance(loss, str):
        values["loss"] = {"_target_": f"{CalledLoss.__module__}.{CalledLoss.__name__}", "name": repr(loss)}
    return replaced(compose(words, "scores"), values)


__all__ = ["fit_scores"]
