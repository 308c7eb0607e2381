"""The gallery of a run as an index in memory: its evaluated rows can be searched without writing an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import read_npz, sha256_of
from ..runs.embeddings import joined_classes
from ..runs.folder import Run
from ..settings import load
from .gallery import Index, Origin, check_inside, classes_of
from .threshold import threshold_of


def index_of_run(folder: str | Path, trust: Sequence[str] = ()) -> Index:
    """The evaluated rows of a run as an index in memory.

    If the run has separate queries and a gallery, the index holds the gallery.

    Args:
        folder: of a finished run.
        trust: packages whose classes its settings may name.

    Raises:
        FileNotFoundError: the folder is not a run, or it has no embeddings or no model.
        ValueError: a file is damaged.
    """
    run = Run(Path(folder))
    if not run.config.is_file():
        raise FileNotFoundError(f"{folder} is not a run: it has no {run.config.name}")
    lacking = [path.name for path in (run.embeddings, run.weights) if not path.is_file()]
    if lacking:
        why = (
            f"the run is not finished, continue it with rankgrad train resume={folder}"
            if run.interrupted
            else "train it without lean=true"
        )
        raise FileNotFoundError(f"{folder} holds no {' and no '.join(lacking)}: {why}")
    columns = read_npz(run.embeddings, "embeddings", "labels", "names", "class_names")
    of = "ref_" if "ref_embeddings" in columns else ""
    labels, class_names = columns[f"{of}labels"], columns["class_names"]
    if labels.dtype.kind == "b":
        classes = joined_classes(labels, list(map(str, class_names.tolist())))
    else:
        classes = classes_of({"labels": labels, "class_names": class_names}) or []
    names = list(map(str, columns[f"{of}names"].tolist()))
    check_inside(names)
    threshold = threshold_of(run.weights)
    origin = Origin(_root(run, trust), run.weights.absolute(), sha256_of(run.weights), threshold=threshold)
    texts = columns.get(f"{of}texts")
    told = [] if texts is None else list(map(str, texts.tolist()))
    return Index.of(columns[f"{of}embeddings"], names, classes, origin, told)


def _root(run: Run, trust: Sequence[str]) -> Path:
    """The folder of the images of a run, or the file of its texts."""
    data = load(run.config, trust).data
    root = data.get("root")
    for name, value in (("root", root), ("load.images", data.load.get("images"))):
        if not isinstance(value, (str, type(None))):
            raise ValueError(f"{run.config} is damaged: data.{name} must be a path; got {value!r}")
    if "images" in data.get("load", {}):  # root is a list of images, and their folder is beside or above it
        root = data.load.images or Path(root).parent
    return Path("." if root is None else root)


__all__ = ["index_of_run"]
