"""The model of a run on other data than its own, without the rows that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankgrad.batches.distributed import on_first
from rankgrad.common.checks import spelled
from rankgrad.common.text import shown
from rankgrad.evaluation import Report

from ...datasets.known import known_rows
from ...datasets.rows import Rows
from ...runs.folder import Run
from ...settings import load, make
from ...settings.spelling import of_saved
from ...training.state import other_data
from .building import load_table, model_of
from .evaluating import evaluate_model
from .settings import RetrievalSettings, settings_of

WHOLE: Mapping[str, Any] = {"test_fraction": 0.0, "val_fraction": 0.0, "cache": "none"}  # other data is not divided


def is_own_data(run: Run, root: Path, trust: Sequence[str] = ()) -> bool:
    """Whether a place is the data of a run."""
    own = settings_of(load(run.config, trust)).data.load.get("root")
    return own is not None and Path(str(own)).exists() and root.exists() and root.samefile(str(own))


def evaluate_on(run: Run, weights: Path, root: Path, trust: Sequence[str] = (), **how: Any) -> Report:
    """Evaluate the model of a run on the test rows of other data, or on all its rows if it has no split.

    Args:
        run: the run.
        weights: file of the model.
        root: folder or file like the data of the run.
        trust: packages whose classes the settings may name.
        how: see `evaluate_model`.

    Raises:
        FileNotFoundError: there is nothing at the place.
        ValueError: the data cannot be read, does not suit the model, or was trained on as a whole.
    """
    settings = replace(settings_of(load(run.config, trust)), trust=tuple(trust), init=str(weights))
    table, notes = _new_rows(settings, run, root)
    model = model_of(settings, table).eval()
    transform = make(settings.data.eval_transform, slot="transform", trust=trust)
    how = {"batch_size": settings.evaluation.batch_size, **how}
    device = how.pop("device")
    report, _ = evaluate_model(
        model.to(device), table, transform, how, workers=settings.data.workers, seed=settings.seed, progress=True
    )
    return replace(report, notes=(*report.notes, *notes))


def _new_rows(settings: RetrievalSettings, run: Run, root: Path) -> tuple[Rows, list[str]]:
    """The rows that the run was not trained on, and what to know about the others.

    Raises:
        ValueError: there are none, or the run's data has no place.
    """
    if "root" not in settings.data.load:
        raise ValueError(f"{shown(run.folder)} was trained on {settings.data.name}, which no other place can hold")
    given = {"root": str(root), **{name: value for name, value in WHOLE.items() if name in settings.data.load}}
    with spelled(of_saved("root")):
        table: Rows = make({**settings.data.load, **given}, slot="data", trust=settings.trust)
    table = table.select("test" if "test" in table.splits else table.splits[0])
    what, own = table.takes, settings.data.load["root"]
    doubt = f"{what} of the training may be among these"
    try:
        whole = load_table(settings)
    except (OSError, ValueError) as error:
        return table, [f"{doubt}: {shown(own)} cannot be read ({shown(str(error).splitlines()[0])})"]
    notes, then = [], on_first(run.read_facts).get("data", {})
    changed = other_data({name: value for name, value in then.items() if name != "times"}, whole.fingerprint())
    if changed:
        notes.append(f"{doubt}: {shown(own)} has changed since the training: {changed}")
    known = known_rows(table, whole.take([row for row, split in enumerate(whole.split) if split != "test"]))
    if known.all():
        raise ValueError(f"all {len(table)} {what} of {shown(root)} are training {what} of the run. Give new {what}")
    if known.any():
        notes.append(f"{int(known.sum())} of {len(table)} {what} are training {what} of the run and are left out.")
        table = table.take((~known).nonzero().flatten().tolist())
    return table, notes


__all__ = ["evaluate_on", "is_own_data"]
