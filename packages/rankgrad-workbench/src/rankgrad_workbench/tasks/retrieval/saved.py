"""Saved models and embeddings, used again: a run evaluated with other metrics or on other data, the model of a run that
was interrupted, and a pretrained network without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from rankgrad._version import __version__
from rankgrad.batches.distributed import on_first, world
from rankgrad.common.checks import spelled
from rankgrad.common.text import shown
from rankgrad.evaluation import Bootstrap, Report, evaluate

from ...datasets.known import known_rows
from ...datasets.rows import Rows
from ...datasets.vectors import embedding_columns
from ...files import write_text
from ...files.defaults import trained_before
from ...models import build_model, load_weights, save_weights
from ...models.state_dicts import misfits, no_larger_than, one_line
from ...runs.embeddings import by_levels, evaluated_columns, save_embeddings
from ...runs.folder import Run
from ...settings import ConfigError, compose, load, make, plain
from ...settings.spelling import of_saved
from ...training.state import other_data, read_state
from .building import check_pixels, load_table, model_of
from .evaluating import evaluate_model
from .settings import RetrievalSettings, asked, settings_of

OF_TEXT = (".run", ".trec", ".res", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".gz")  # no file of embeddings
WHOLE = {"test_fraction": 0.0, "val_fraction": 0.0, "cache": "none"}  # other data is not divided


def evaluate_run(
    source: Path,
    *,
    root: Path | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    extra: Sequence[str] = (),
    similarity: Literal["cosine", "inner product", "euclidean"] = "cosine",
    clusters: Literal["auto", "none"] = "auto",
    levels: bool = False,
    bootstrap: int = 1000,
    device: torch.device | str = "cpu",
    trust: Sequence[str] = (),
) -> Report:
    """Evaluate the embeddings of a run, or those of a file.

    Args:
        source: folder of a run, or an npz or parquet of embeddings. The state of an unfinished run is evaluated.
        root: other data like that of the run: a folder of images, or a file. Its test rows are evaluated; if it has no
            split, all its rows. Rows of the training are left out, and `notes` has their number. None: the embeddings.
        ks: see `evaluation.evaluate`.
        extra: likewise.
        similarity: likewise.
        clusters: likewise.
        bootstrap: likewise.
        levels: use super-labels as a second, weaker level of relevance.
        device: where the rows are compared.
        trust: packages whose classes the settings of an unfinished run may name.

    Raises:
        FileNotFoundError: there is no such run or file.
        ValueError: a file is damaged, its rows cannot be evaluated, or all rows of other data were trained on.
    """
    how: dict[str, Any] = {"ks": ks, "extra": extra, "similarity": similarity, "bootstrap": bootstrap}
    how |= {"clusters": clusters, "device": device}
    run, file = Run(source), source
    if root is not None:
        if not run.config.exists():
            raise ValueError(f"{shown(source)} is no run, so it has no model for the data of --root")
        own = settings_of(load(run.config, trust)).data.load.get("root")
        if own is None or Path(str(own)).resolve() != root.resolve():
            return _on_other_data(run, root, trust, levels=levels, **how)
    if source.is_dir():
        file = _of_state(run, trust) if run.interrupted else run.embeddings
    if not file.exists():
        raise FileNotFoundError(
            f"{shown(file)} does not exist; give the folder of a finished run, or an npz or parquet of embeddings. For "
            f"data of your own: rankgrad evaluate RUN --root {shown(source)}"
        )
    if file.suffix.lower() in OF_TEXT:
        raise ValueError(
            f"{shown(file)} is no npz or parquet of embeddings. A TREC run file needs its judgements: --qrels FILE. "
            'For scores of rows, see docs/scores.md, "Evaluate scores"'
        )
    columns = embedding_columns(file, "embeddings", "labels")
    if "class_names" in columns and columns["class_names"].tolist() == [""]:
        raise ValueError(f"the rows of {shown(file)} have no classes, so there is nothing to measure")
    columns = by_levels(columns) if levels else columns
    # a run's seed gives the same k-means and intervals as in its own report
    seed = Report.from_json(run.after).settings.get("seed", 0) if run.after.exists() else 0
    how |= {"metrics": asked(how.pop("ks"), how.pop("extra"), how.pop("clusters"))}
    how |= {"intervals": Bootstrap(resamples=how.pop("bootstrap"), seed=seed)}
    how |= {"progress": True, "shared": True, **evaluated_columns(columns)}
    return evaluate(columns["embeddings"], columns["labels"], **how)


# ------------------------------------------------------------------------------------------------- an interrupted run


def saved_weights(run: Run, trust: Sequence[str] = ()) -> Path:
    """Write the weights of a run's state to step-N.pt, a file like model.pt, and return its path. It stays when the run
    continues.

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
    if wrong := misfits(model.state_dict(), weights):
        raise ConfigError(f"{run.state} does not fit the model that it describes: {'; '.join(wrong)}")
    model.load_state_dict(weights)
    return save_weights(path, model, {"data": plain(config.data), "version": __version__})


def _of_state(run: Run, trust: Sequence[str]) -> Path:
    """The embeddings of a run that is not finished: its state is evaluated by the protocol of its data, and step-N.npz
    (embeddings) and step-N.json (report) are written, once.
    """
    weights = on_first(partial(saved_weights, run, trust))
    embeddings, result = weights.with_suffix(".npz"), weights.with_suffix(".json")
    if not on_first(lambda: embeddings.exists() and result.exists()):
        settings = replace(settings_of(load(run.config, trust)), trust=tuple(trust))
        table = load_table(settings).select(settings.evaluation.split)
        report, rows = _evaluated(settings, load_weights(weights)[0], table, vars(settings.evaluation))
        on_first(partial(save_embeddings, embeddings, rows, table))
        on_first(lambda: write_text(result, report.to_json()))
    if world()[0] == 0:
        print(f"{shown(run.folder)} is not finished; its model at {embeddings.stem.replace('-', ' ')} is evaluated\n")
    return embeddings


def _evaluated(settings: RetrievalSettings, model: Any, table: Rows, how: Any, **where: Any) -> tuple[Report, Any]:
    transform = make(settings.data.eval_transform, slot="transform", trust=settings.trust)
    workers, seed = settings.data.workers, settings.seed
    return evaluate_model(model, table, transform, how, workers=workers, seed=seed, progress=True, **where)


# -------------------------------------------------------------------------------------------------------- other data


def _on_other_data(run: Run, root: Path, trust: Sequence[str], device: torch.device | str, **how: Any) -> Report:
    """Evaluate the model of a run on the test rows of other data, or on all its rows if it has no split."""
    weights = (
        on_first(lambda: saved_weights(run, trust)) if run.interrupted or not run.weights.exists() else run.weights
    )
    settings = replace(settings_of(load(run.config, trust)), trust=tuple(trust), init=str(weights))
    table, notes = _new_rows(settings, run, root)
    model = model_of(settings, table).eval().to(device)
    report, _ = _evaluated(settings, model, table, {"batch_size": settings.evaluation.batch_size, **how})
    return replace(report, notes=(*report.notes, *notes))


def _new_rows(settings: RetrievalSettings, run: Run, root: Path) -> tuple[Rows, list[str]]:
    """The rows that the run was not trained on, and what to know about the others.

    Raises:
        ValueError: there are none, or the run's data has no place.
    """
    loader = settings.data.load
    if "root" not in loader:
        raise ValueError(f"{shown(run.folder)} was trained on {settings.data.name}, which no other place can hold")
    given = {**loader, **{name: value for name, value in WHOLE.items() if name in loader}, "root": str(root)}
    with spelled(of_saved("root")):
        table: Rows = make(given, slot="data", trust=settings.trust)
    table = table.select("test" if "test" in table.splits else table.splits[0])
    what, own = table.takes, shown(loader["root"])
    doubt = f"{what} of the training may be among these: {own}"
    try:
        whole = load_table(settings)
    except (OSError, ValueError) as error:
        return table, [f"{doubt} cannot be read ({shown(one_line(error))})"]
    then = {name: value for name, value in on_first(run.read_facts).get("data", {}).items() if name != "times"}
    changed = other_data(then, whole.fingerprint())
    notes = [f"{doubt} has changed since the training: {changed}"] if changed else []
    known = known_rows(table, whole.take([row for row, split in enumerate(whole.split) if split != "test"]))
    if known.all():
        raise ValueError(f"all {len(table)} {what} of {shown(root)} are training {what} of the run. Give new {what}")
    if known.any():
        notes.append(f"{int(known.sum())} of {len(table)} {what} are training {what} of the run and are left out.")
        table = table.take((~known).nonzero().flatten().tolist())
    return table, notes


# ------------------------------------------------------------------------------------------- a network without a run


def untouched_weights(words: Sequence[str], data: Path, out: Path) -> Path:
    """Write a pretrained network as it is to a file like model.pt. A file that holds the same network is kept.

    Args:
        words: settings of the model, such as model=timm model.name=NAME model.weights=FILE.
        data: folder of images, or file of texts, that the network shall embed.
        out: the file.

    Raises:
        ConfigError: the settings name no trained weights.
        FileExistsError: the file holds another network.
        ValueError, OSError: the weights cannot be read.
    """
    config = compose(["data=folder" if data.is_dir() else "data=text", f"data.root={data}", *words])
    settings = settings_of(config)
    if not trained_before(settings.model):
        raise ConfigError(
            f"model={settings.model['kind']} has no trained weights: name them, or give the folder of a run"
        )
    options = {**({"in_channels": 3} if data.is_dir() else {}), **settings.model}
    model = build_model(options.pop("kind"), **options)
    check_pixels(settings, model)
    if out.exists():
        mine, theirs = model.state_dict(), load_weights(out)[0].state_dict()
        if mine.keys() == theirs.keys() and all(value.equal(theirs[name]) for name, value in mine.items()):
            return out
        raise FileExistsError(f"{out} exists, and holds another network; choose another file with -o")
    return save_weights(out, model, {"data": plain(config.data), "version": __version__})
