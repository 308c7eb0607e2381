"""Runs that retrieve: read from their folder, drawn by the sections that are theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..datasets.vectors import embedding_columns
from ..evaluation import Report, evaluate
from ..html.images import Images
from ..models.build import GIVEN
from ..runs.embeddings import evaluated_columns
from ..runs.folder import Run
from .content import Extent, Section, read_common
from .retrieved import FolderPictures, Pictures, RetrievalRun, Space
from .sections import sections

if TYPE_CHECKING:
    from ..datasets.rows import Rows


class Content(RetrievalRun):
    """A run that retrieves, as a page shows it: what `RetrievalRun` holds, and how it is drawn."""

    @classmethod
    def sections(cls, runs: Sequence[RetrievalRun], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """Paired differences, similarities, retrieved images, confused classes, tables of classes, a map."""
        return sections(runs, images, extent)


def read(
    run: Run,
    *,
    after: Report | None = None,
    table: Rows | None = None,
    known: dict[str, Any] | None = None,
    pictures: bool = True,
    trust: Sequence[str] = (),
) -> Content:
    """What is there of a run, finished or not. What is missing is said in the notes.

    Args:
        run: the folder.
        after: evaluation of the trained network, if it is not written yet.
        table: the evaluated split, if it is at hand.
        known: images that earlier calls have found (or the reason why they could not), by their settings.
        pictures: False: numbers and curves alone.
        trust: packages whose classes its settings may name.
    """
    embeddings, saved = run.embeddings, run.saved
    if after is None and run.after.exists():
        after = Report.from_json(run.after)
    elif after is None and saved:  # of a run that is not finished, a state that was evaluated
        after, embeddings = Report.from_json(saved[-1]), saved[-1].with_suffix(".npz")
    common = read_common(run, None if embeddings != run.embeddings else after, trust)
    config, notes = common["config"], list(common["notes"])
    if embeddings != run.embeddings:
        common["after"] = after
        notes.insert(
            0, f"The run is not finished: results and pictures are of its {embeddings.stem.replace('-', ' ')}."
        )
    space = None
    if pictures and embeddings.exists():
        try:
            space = Space.load(embeddings)
        except (ValueError, OSError) as error:
            notes.append(f"No pictures, histograms and map: {embeddings.name} cannot be read ({error}).")
    elif pictures and after is not None:
        notes.append(f"No pictures, histograms and map: the run has no {embeddings.name} any more.")
    held = None if table is None else Pictures(table)
    if space is not None and held is None and not space.texts:
        known = {} if known is None else known
        data = json.dumps([config.get("data"), config.get("evaluation", {}).get("split")], sort_keys=True, default=str)
        if data not in known:
            known[data] = _images(run, trust)
        if isinstance(known[data], str):
            what = "rows" if config.get("model", {}).get("kind") == GIVEN else "images"
            notes.append(f"No pictures: the {what} of the run cannot be read ({known[data]}).")
            space = space.by_name() if what == "rows" else space
        else:
            held = known[data]
    if held is not None and held.table.skipped:
        notes.append(f"{len(held.table.skipped)} files and folders could not be read and were left out.")
    if after is not None and str(after.settings.get("protocol", "")).startswith("one-gallery"):
        notes.append(
            "The metrics are means over drawn galleries of one image per class; pictures, histograms, map and the "
            "precision-recall curve rank every image against all others."
        )
    if after is not None and after.settings.get("groups"):
        notes.append(
            "The metrics leave out relevant items of the query's own group; pictures, histograms and map show them."
        )
    if config.get("evaluation", {}).get("split") == "train":
        notes.append("The model was evaluated on the rows that it was trained on: other data will be found less well.")
    before = Report.from_json(run.before) if run.before.exists() else None
    return Content(**{**common, "before": before, "space": space, "pictures": held, "notes": tuple(notes)})


def read_embeddings(path: Path, images: Path | None = None) -> Content:
    """What is there of embeddings that were made elsewhere: an npz or a parquet, evaluated here.

    Args:
        path: file with embeddings and labels, and what else `rankgrad evaluate` takes; names, texts.
        images: folder that the names are relative to; None: no pictures, unless the file holds texts.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: another file, a damaged one, or columns that do not fit together.
    """
    if images is not None and not images.is_dir():
        raise FileNotFoundError(f"no folder of images at {images}")
    columns = embedding_columns(path, "embeddings", "labels")
    after = evaluate(columns["embeddings"], columns["labels"], clusters="none", **evaluated_columns(columns))
    space = Space.load(path)
    return Content(
        name=path.stem,
        after=after,
        space=space if space.texts or images is not None else space.by_name(),
        pictures=None if images is None else FolderPictures(images),
    )


def _images(run: Run, trust: Sequence[str]) -> Pictures | str:
    """The images of the evaluated split of a run, or why they cannot be had."""
    from ..config import load, make
    from ..datasets.folds import held_out

    config = load(run.config, trust)
    try:
        table: Rows = held_out(make(config.data.load, slot="data", trust=trust), config.get("fold"))
        return Pictures(table.select(config.evaluation.split))
    except (OSError, ValueError, MemoryError) as error:
        return str(error)
