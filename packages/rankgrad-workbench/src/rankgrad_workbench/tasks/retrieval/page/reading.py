"""Retrieval runs: the content of their page, read from a folder or from a file of embeddings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankgrad.evaluation import Report, evaluate
from rankgrad.evaluation.measures import MAIN
from rankgrad.losses import CalibrationLoss, ROADMAPLoss

from ....datasets.images import number_of
from ....datasets.vectors import embedding_columns
from ....models.build import GIVEN
from ....report.content import Extent, RunContent, Section, read_common
from ....report.html.images import Images
from ....runs.embeddings import evaluated_columns
from ....runs.folder import Run
from .pictures import Pictures
from .space import Space

if TYPE_CHECKING:
    from ....datasets.rows import Rows


@dataclass(frozen=True, eq=False)
class Content(RunContent):
    """A retrieval run, as a page shows it.

    Attributes:
        name, config, facts, curves, latest, notes, siblings: see `RunContent`.
        before: evaluation of the network before training, or None.
        after: evaluation of the trained network; None: the run is not finished.
        space: embeddings of the evaluated split, or None.
        pictures: images of the same split, or None.
    """

    before: Report | None = None
    after: Report | None = None
    space: Space | None = None
    pictures: Pictures | None = None

    kind = "retrieval"

    @property
    def headline(self) -> tuple[str, ...]:
        """Metrics of the tiles, see `RunContent`."""
        return ("R@1", "mAP@R", "AP")

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return MAIN

    @property
    def thresholds(self) -> dict[str, float]:
        """Thresholds α and β of the calibration loss; empty if the loss has none, or they are unknown.

        If the thresholds adapt during training, these are the last logged values.
        """
        loss = self.config.get("loss", {})
        own = self.loss in (ROADMAPLoss.__name__, CalibrationLoss.__name__)
        logged = {name: points[-1][1] for name in ("alpha", "beta") if (points := self.curves.get(name))}
        found = logged if len(logged) == 2 or not own else {n: float(loss[n]) for n in ("alpha", "beta") if n in loss}
        return {"\u03b1": found["alpha"], "\u03b2": found["beta"]} if len(found) == 2 else {}

    @classmethod
    def sections(cls, runs: Sequence[Content], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """Paired differences, similarities, retrieved images, confused classes, tables of classes, a map."""
        from .sections import sections

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
    r"""Read the content of a run, finished or not. Notes name what is missing.

    Args:
        run: the folder.
        after: evaluation of the trained network, if it is not in the folder yet.
        table: the evaluated split, if it is loaded already.
        known: cache over several calls: settings of the data -> its images, or the reason why they cannot be read.
        pictures: False: only metrics and curves.
        trust: packages whose classes its settings may name.

    >>> import tempfile, torch
    >>> from omegaconf import OmegaConf
    >>> from rankgrad_workbench.settings import compose
    >>> from rankgrad_workbench.tasks.retrieval.page import read as read_run
    >>> after = evaluate(torch.eye(2)[[0, 0, 1, 1]], [0, 0, 1, 1], clusters="none")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     OmegaConf.save(compose(["loss=pnp"]), run.config, resolve=True)
    ...     _ = run.after.write_text(after.to_json())
    ...     content = read_run(run)
    >>> content.after.values["R@1"], content.config["data"]["name"]
    (1.0, 'glyphs')
    """
    embeddings, saved = run.embeddings, run.saved
    if after is None and run.after.exists():
        after = Report.from_json(run.after)
    elif after is None and saved:  # the run is not finished: use its last saved evaluation
        after, embeddings = Report.from_json(saved[-1]), saved[-1].with_suffix(".npz")
    unfinished = embeddings != run.embeddings
    common = read_common(run, None if unfinished else after, trust)
    config, notes = common["config"], list(common["notes"])
    if unfinished:
        what = embeddings.stem.replace("-", " ")
        notes.insert(0, f"The run is not finished: results and examples are those of {what}.")
    space = None
    if pictures and embeddings.exists():
        try:
            space = Space.load(embeddings)
        except (ValueError, OSError) as error:
            notes.append(f"No examples, histograms and map: {embeddings.name} cannot be read ({error}).")
    elif pictures and after is not None:
        notes.append(f"No examples, histograms and map: the file {embeddings.name} of the run is missing.")
    held = None if table is None else Pictures(table)
    if space is not None and held is None and not space.texts:
        known = {} if known is None else known
        data = json.dumps([config.get("data"), config.get("evaluation", {}).get("split")], sort_keys=True, default=str)
        if data not in known:
            known[data] = _images(run, trust)
        if isinstance(known[data], Pictures):
            held = known[data]
        else:
            rows = config.get("model", {}).get("kind") == GIVEN
            notes.append(f"No pictures: the {'rows' if rows else 'images'} of the run cannot be read ({known[data]}).")
            space = space.by_name() if rows else space
    skipped = getattr(held and held.source, "skipped", ())
    notes += [f"Not read: {number_of(skipped)}."] if skipped else []
    notes += [] if after is None else _about(after)
    if config.get("evaluation", {}).get("split") == "train":
        notes.append("The model was evaluated on its training rows. Expect lower metrics on other data.")
    found = {"after": after, "before": run.read_before(), "space": space, "pictures": held, "notes": tuple(notes)}
    return Content(**{**common, **found})


def _about(after: Report) -> list[str]:
    """How the evaluation differs from what the examples show."""
    notes = []
    if str(after.settings.get("protocol", "")).startswith("one-gallery"):
        notes.append(
            "The metrics are means over random galleries of one item per class. For the examples, histograms, map and "
            "precision-recall curve, every item is ranked against all others."
        )
    if after.settings.get("groups"):
        notes.append(
            "The metrics ignore relevant items of the query's own group. The examples, histograms and map show them."
        )
    return notes


def read_embeddings(path: Path, images: Path | None = None) -> Content:
    """The content of a page about a file of embeddings (npz or parquet), which is evaluated here.

    Args:
        path: file with embeddings and labels, and the optional columns of `rankgrad evaluate`, names and texts.
        images: folder of the images, the base of the names; None: no pictures.

    Raises:
        FileNotFoundError: the file or the folder does not exist.
        ValueError: the file has another format, is damaged, or its columns do not fit together.
    """
    if images is not None and not images.is_dir():
        raise FileNotFoundError(f"no folder of images at {images}")
    columns = embedding_columns(path, "embeddings", "labels")
    how = evaluated_columns(columns)
    after = evaluate(columns["embeddings"], columns["labels"], clusters="none", progress=True, **how)
    space = Space.load(path)
    space = space if space.texts or images is not None else space.by_name()
    return Content(path.stem, after=after, space=space, pictures=None if images is None else Pictures(images))


def _images(run: Run, trust: Sequence[str]) -> Pictures | str:
    """The images of the evaluated split of a run, or the reason why they cannot be read."""
    from ....settings import load
    from ..building import load_table
    from ..settings import settings_of

    config = load(run.config, trust)
    try:
        settings = settings_of(config)
        return Pictures(load_table(settings).select(settings.evaluation.split))
    except (OSError, ValueError, MemoryError) as error:
        return str(error)
