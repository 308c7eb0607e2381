"""The gallery of a run as an index in memory: its evaluated rows can be searched without writing an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...common.files import read_npz, sha256_of
from ...datasets.rows import numbered
from ...ranks.normalize import unit_rows
from ...search import topk
from ..config import load
from ..runs.embeddings import joined_classes
from ..runs.folder import Run
from .embedder import Origin, check_inside
from .gallery import Index
from .threshold import threshold_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Exact search with the interface of a faiss index."""

    rows: Tensor

    @property
    def d(self) -> int:
        return self.rows.shape[1]

    def search(self, asked: Array, k: int) -> tuple[Array, Array]:
        scores, items = topk(torch.from_numpy(asked), self.rows, k)
        return scores.numpy(), items.numpy()


def index_of_run(folder: str | Path, trust: Sequence[str] = ()) -> Index:
    """The evaluated rows of a run as an index in memory. It does not need faiss.

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
    rows = torch.from_numpy(np.ascontiguousarray(columns[f"{of}embeddings"], np.float32))
    texts = columns.get(f"{of}texts")
    labels, class_names = columns[f"{of}labels"], tuple(map(str, columns["class_names"].tolist()))
    if labels.dtype.kind == "b":
        class_names, numbers = numbered(joined_classes(labels, class_names))
        labels = numbers.numpy()
    names = tuple(map(str, columns[f"{of}names"].tolist()))
    check_inside(run.embeddings, names)
    data = load(run.config, trust).data
    root = data.get("root")
    for name, value in (("root", root), ("load.images", data.load.get("images"))):
        if not isinstance(value, (str, type(None))):
            raise ValueError(f"{run.config} is damaged: data.{name} must be a path; got {value!r}")
    if "images" in data.get("load", {}):  # root is a list of images, and their folder is beside or above it
        root = data.load.images or Path(root).parent
    return Index(
        _Rows(unit_rows(rows)),
        names,
        labels,
        class_names,
        origin=Origin(
            Path("." if root is None else root),
            run.weights.absolute(),
            sha256_of(run.weights),
            threshold=threshold_of(run.weights),
        ),
        texts=() if texts is None else tuple(map(str, texts.tolist())),
    )


__all__ = ["index_of_run"]
