"""Use the model of an interrupted run, as it was when the state was saved.

Three files are written at the first use: weights, embeddings of the evaluated images, and the report. Their names have
the step of the state. They stay when the run continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rankgrad._version import __version__
from rankgrad.batches.distributed import on_first

from ...files import write_text
from ...models import build_model, load_weights, save_weights
from ...models.state_dicts import misfits, no_larger_than, one_line
from ...runs.embeddings import save_embeddings
from ...runs.folder import Run
from ...settings import ConfigError, load, make, plain
from ...training.state import read_state
from .building import load_table
from .evaluating import evaluate_model
from .settings import settings_of


def saved_weights(run: Run, trust: Sequence[str] = ()) -> Path:
    """Write the weights of a run's state to step-N.pt, a file like model.pt, and return its path.

    Args:
        run: a run that was interrupted or is still training.
        trust: packages whose classes its settings may name.

    Raises:
        FileNotFoundError: the run has no state.
        ConfigError: the state cannot be read, does not fit the model, or holds only a head.
    """
    if not run.state.is_file():
        raise FileNotFoundError(f"{run.folder} has no trained model and no saved state; train it first")
    state = read_state(run.state)
    path = run.folder / f"step-{state['global_step']}.pt"
    if path.exists():
        return path
    config = load(run.config, trust)
    if config.frozen:
        raise ConfigError(f"{run.state} holds only a head (frozen=true); finish the run with resume={run.folder}")
    prefix = "model."
    weights = {k.removeprefix(prefix): v for k, v in state["state_dict"].items() if k.startswith(prefix)}
    try:
        options = dict(state["model"])
        with no_larger_than(weights):
            model = build_model(options.pop("kind"), **options)
        model.pixel_mean, model.pixel_std = map(tuple, state["pixels"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{run.state} describes a model that cannot be built: {one_line(error)}") from None
    wrong = misfits(model.state_dict(), weights)
    if wrong:
        raise ConfigError(f"{run.state} does not fit the model that it describes: {'; '.join(wrong)}")
    model.load_state_dict(weights)
    return save_weights(path, model, {"data": plain(config.data), "version": __version__})


def evaluated(run: Run, trust: Sequence[str] = ()) -> tuple[Path, Path]:
    """Evaluate a run's state by the protocol of its data. Write step-N.npz (embeddings) and step-N.json (report).

    Args:
        run: a run that was interrupted or is still training.
        trust: packages whose classes its settings may name.

    Returns:
        The paths of both files.

    Raises:
        FileNotFoundError, ConfigError: see `saved_weights`.
        OSError, ValueError: the data cannot be read.
    """
    weights = on_first(partial(saved_weights, run, trust))
    embeddings, result = weights.with_suffix(".npz"), weights.with_suffix(".json")
    if not on_first(lambda: embeddings.exists() and result.exists()):
        settings = replace(settings_of(load(run.config, trust)), trust=tuple(trust))
        table = load_table(settings).select(settings.evaluation.split)
        model, _ = load_weights(weights)
        transform = make(settings.data.eval_transform, slot="transform", trust=trust)
        how: dict[str, Any] = {"workers": settings.data.workers, "seed": settings.seed, "progress": True}
        report, rows = evaluate_model(model, table, transform, vars(settings.evaluation), **how)
        on_first(partial(save_embeddings, embeddings, rows, table))
        on_first(lambda: write_text(result, report.to_json()))
    return embeddings, result


__all__ = ["evaluated", "saved_weights"]
