"""Retrieval runs: the content of their page, read from a folder or from a file of embeddings."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad.evaluation import Report, evaluate
from rankgrad.evaluation.measures import MAIN
from rankgrad.ranks.normalize import unit_rows

from ....datasets.images import number_of, read_image
from ....datasets.rows import Rows
from ....datasets.vectors import embedding_columns
from ....files import inside
from ....models.build import GIVEN
from ....report.content import Extent, RunContent, Section, read_common
from ....report.html.images import THUMBNAIL, Images
from ....runs.embeddings import evaluated_columns, joined_classes
from ....runs.folder import Run

OTHER_GALLERY = (
    "The metrics are of galleries that were drawn, or without the query's own group. For the examples, histograms, map "
    "and precision-recall curve, every item is ranked against all others."
)


@dataclass(frozen=True, eq=False)
class Space:
    """Embeddings of the queries, and the gallery that they search.

    Attributes:
        embeddings: [row, dim] float, rows of length 1.
        labels: [row] long, index of the class in class_names.
        names: [row] name of the image.
        class_names: of all classes.
        gallery: the items, likewise; None: leave-one-out, each query against all others.
        super_labels: [row] long, index in super_names; or None.
        super_names: of all super-labels.
        texts: [row] the texts of the rows; empty if the rows are not texts.
        several: [row, class] bool, if rows have several classes; rows that share a class are relevant to each other.
            Each entry of `class_names` then joins the names of all classes of a row.
    """

    embeddings: Tensor
    labels: Tensor
    names: tuple[str, ...]
    class_names: tuple[str, ...]
    gallery: Space | None = None
    super_labels: Tensor | None = None
    super_names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    several: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "names", "super_labels", "texts", "several"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.embeddings) and (name != "texts" or self.texts):
                raise ValueError(f"{len(column)} {name} do not fit {len(self.embeddings)} embeddings")

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.embeddings)

    @property
    def items(self) -> Space:
        """What the queries search: the gallery, or the queries themselves."""
        return self.gallery or self

    @property
    def classes(self) -> list[str]:
        """[row] name of the class."""
        return [self.class_names[label] for label in self.labels.tolist()]

    def class_of(self, row: int) -> str:
        """Name of the class of a row."""
        return self.class_names[int(self.labels[row])]

    def same_gallery(self, other: Space) -> bool:
        """Whether both galleries have the same names with the same classes, in any order."""
        own, others = (Counter(zip(of.items.names, of.items.classes, strict=True)) for of in (self, other))
        return own == others

    @property
    def truth(self) -> Tensor:
        """Classes of the rows: long labels; or bool [row, class], where rows may have several classes."""
        return self.labels if self.several is None else self.several

    def relevant(self, rows: Tensor, items: Tensor) -> Tensor:
        """Whether items are relevant to queries: rows [row] long, items [row, ...] long -> bool, shape of items."""
        asked, found = self.truth[rows], self.items.truth[items]
        asked = asked.reshape(len(rows), *(1,) * (items.ndim - 1), *asked.shape[1:])
        return asked == found if self.several is None else (asked & found).any(-1)

    @property
    def noun(self) -> str:
        """Plural noun for the rows: texts, images, or rows (if only their names are known)."""
        return "images" if not self.texts else "rows" if self.texts == self.names else "texts"

    def by_name(self) -> Space:
        """The same embeddings with names in place of texts, for rows without text and picture."""
        gallery = None if self.gallery is None else self.gallery.by_name()
        return replace(self, texts=self.names, gallery=gallery)

    @classmethod
    def load(cls, path: Path) -> Space:
        """Read a file of `runs.embeddings.save_embeddings`, or any npz or parquet with embeddings and labels.

        Rows without names are named by their number. Labels may be texts, or integers with or without class_names.

        Raises:
            ValueError: the file lacks a column, or the lengths of its columns differ.
            OSError: the file cannot be read.
        """
        columns = embedding_columns(path, "embeddings", "labels")
        sides = [side for side in ("", "ref_") if f"{side}embeddings" in columns]
        if f"{sides[-1]}labels" not in columns:
            raise ValueError(f"{path.name} has ref_embeddings and no ref_labels")
        several: list[Tensor | None] = [None, None]
        if columns["labels"].dtype.kind == "b" and columns["labels"].ndim == 2:
            called = _texts(columns, "class_names") or tuple(map(str, range(columns["labels"].shape[1])))
            several = [torch.from_numpy(columns[f"{side}labels"]) for side in sides]
            columns |= {f"{side}labels": np.array(joined_classes(columns[f"{side}labels"], called)) for side in sides}
        class_names, labels = _numbered(columns, "class_names", [f"{side}labels" for side in sides])
        made = []
        for side, of, classes in zip(sides, labels, several, strict=False):
            embeddings = unit_rows(torch.from_numpy(columns[f"{side}embeddings"]).float())
            names = _texts(columns, f"{side}names") or tuple(f"row {row}" for row in range(len(embeddings)))
            made.append(cls(embeddings, of, names, class_names, texts=_texts(columns, f"{side}texts"), several=classes))
        space = replace(made[0], gallery=made[1]) if len(made) > 1 else made[0]
        if "super_labels" not in columns:
            return space
        super_names, (super_labels,) = _numbered(columns, "super_names", ["super_labels"])
        return replace(space, super_labels=super_labels, super_names=super_names)


def _texts(columns: Mapping[str, npt.NDArray[Any]], name: str) -> tuple[str, ...]:
    return tuple(map(str, columns[name].tolist())) if name in columns else ()


def _numbered(
    columns: Mapping[str, npt.NDArray[Any]], names: str, of: Sequence[str]
) -> tuple[tuple[str, ...], list[Tensor]]:
    """(names of the classes, numbers of the classes for each column of `of`)."""
    given, known = [columns[name] for name in of], _texts(columns, names)
    if not (known and given[0].dtype.kind in "iu"):
        values, flat = np.unique(np.concatenate(given), return_inverse=True)
        known = tuple(map(str, values.tolist()))
        given = np.split(flat.reshape(-1), np.cumsum([len(each) for each in given])[:-1])
    return known, [torch.from_numpy(each.astype(np.int64)) for each in given]


class Pictures:
    """The images of an evaluated split, or those of a folder, by their names.

    Args:
        source: the rows; or the folder that the names are relative to.

    Attributes:
        failed: name of each image that could not be read -> the reason.
    """

    def __init__(self, source: Rows | Path) -> None:
        self.source = source
        self.failed: dict[str, str] = {}
        names = () if isinstance(source, Path) else source.names
        times = Counter(names)
        # a repeated name is not used: no picture is better than a wrong one
        self._row = {name: row for row, name in enumerate(names) if times[name] == 1}

    def get(self, name: str) -> Tensor | None:
        """The image, uint8 [channel, height, width], a thumbnail if read from a file; None: it cannot be read."""
        try:
            if isinstance(self.source, Path):
                return read_image(inside(self.source, name), 3, THUMBNAIL, draft=True)
            return self.source.picture(self._row[name], THUMBNAIL)
        except KeyError:
            self.failed[name] = "the data set has no row with this name, or several"
        except (OSError, ValueError) as error:
            self.failed[name] = str(error)
        return None

    def show(self, images: Images, name: str, budget: float = math.inf) -> str | None:
        """CSS class of an image on a page; None: it cannot be read, or the pictures would exceed `budget` bytes."""
        return images.get((id(self), name), lambda: self.get(name), budget)


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
    headline = ("R@1", "mAP@R", "AP")
    main = MAIN

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
        known: cache over several calls: settings of the data -> its images.
        pictures: False: only metrics and curves.
        trust: packages whose classes its settings may name.

    >>> import tempfile, torch
    >>> from omegaconf import OmegaConf
    >>> from rankgrad_workbench.settings import compose
    >>> from rankgrad_workbench.tasks.retrieval.page import read as read_run
    >>> after = evaluate(torch.eye(2)[[0, 0, 1, 1]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run(Path(folder))
    ...     OmegaConf.save(compose(["loss=pnp"]), run.config, resolve=True)
    ...     _ = run.after.write_text(after.to_json())
    ...     content = read_run(run)
    >>> content.after.values["R@1"], content.config["data"]["name"]
    (1.0, 'glyphs')
    """
    embeddings, state, notes = run.embeddings, None, []
    if after is None and not run.after.exists() and run.saved:  # not finished: use its last saved evaluation
        state = Report.from_json(run.saved[-1])
        embeddings = run.saved[-1].with_suffix(".npz")
        notes.append(f"Results and examples are those of {embeddings.stem.replace('-', ' ')}.")
    elif after is None and run.after.exists():
        after = Report.from_json(run.after)
    common = read_common(run, after, trust)
    config, after = common["config"], after or state
    space, held = None, None if table is None else Pictures(table)
    if pictures and after is not None:
        try:
            space = Space.load(embeddings)
        except (ValueError, OSError) as error:
            notes.append(f"No examples, histograms and map: {embeddings.name} cannot be read ({error}).")
    if space is not None and held is None and not space.texts:
        known = {} if known is None else known
        data = json.dumps([config.get("data"), config.get("evaluation", {}).get("split")], sort_keys=True, default=str)
        try:
            if data not in known:
                known[data] = _images(run, trust)
            held = known[data]
        except (OSError, ValueError, MemoryError) as error:
            given = config.get("model", {}).get("kind") == GIVEN
            notes.append(f"No pictures: the {'rows' if given else 'images'} of the run cannot be read ({error}).")
            space = space.by_name() if given else space
    if skipped := getattr(held and held.source, "skipped", ()):
        notes.append(f"Not read: {number_of(skipped)}.")
    settings = {} if after is None else after.settings
    if settings.get("groups") or str(settings.get("protocol")).startswith("one-gallery"):
        notes.append(OTHER_GALLERY)
    if config.get("evaluation", {}).get("split") == "train":
        notes.append("The model was evaluated on its training rows. Expect lower metrics on other data.")
    notes = [*common["notes"], *notes]
    common |= {"after": after, "before": run.read_before(), "untouched": run.read_untouched(), "notes": tuple(notes)}
    return Content(**common, space=space, pictures=held)


def _images(run: Run, trust: Sequence[str]) -> Pictures:
    """The images of the evaluated split of a run."""
    from ....settings import load
    from ..building import load_table
    from ..settings import settings_of

    settings = settings_of(load(run.config, trust))
    return Pictures(load_table(settings).select(settings.evaluation.split))


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
    after = evaluate(columns["embeddings"], columns["labels"], progress=True, **how)
    space = Space.load(path)
    space = space if space.texts or images is not None else space.by_name()
    return Content(path.stem, after=after, space=space, pictures=None if images is None else Pictures(images))
