"""The files of an index: what they must hold, and what faiss may read of them.

On disk, an index is a folder with two files: `index.json` (the model with its hash, the images, the settings of the
index) and a file of vectors, written by faiss. The json names the vectors by their hash; it is written last and
atomically. So if the writer dies, a reader finds the complete old or new index.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ...common.extras import install
from ...common.files import atomic_write, open_file, read_json
from ...common.files.folders import HOLDER, LOCK
from .embedder import Origin, check_inside, sha256_of

Kind = Literal["exact", "hnsw"]
KINDS: tuple[Kind, ...] = ("exact", "hnsw")

# Name of each class in faiss.
TYPES = {"exact": "IndexFlat", "hnsw": "IndexHNSWFlat"}

KNOWN = (b"IxFI", b"IHNf")  # the first four bytes of a file of faiss name the class of the index

FORMAT = "rankgrad-index-1"
HEAD = "index.json"
COPY = "Copy the whole folder, or write it again with rankgrad index"
AGAIN = "Write it again with rankgrad index"


@dataclass(frozen=True)
class Measured:
    """Quality of an approximate index, measured with rows of its gallery as queries.

    Attributes:
        recall: fraction of the k exact nearest other rows that it finds; a row as close as the k-th one counts.
        k: length of the lists.
        queries: number of queries.
        faster: time of the exact search divided by its own time, one query at a time.
    """

    recall: float
    k: int
    queries: int
    faster: float


def read_head(folder: Path) -> dict[str, Any]:
    """The content of `index.json`, checked.

    Raises:
        FileNotFoundError: there is no index.
        ValueError: the path is not an index, or the file is damaged.
    """
    make = f"make one with rankgrad index EMB.npz -o {folder}"
    if folder.is_file():
        hint = f"make an index with rankgrad index {folder}" if folder.suffix == ".npz" else "an index is a folder"
        raise ValueError(f"{folder} is a file and not an index: {hint}")
    path = folder / HEAD
    if not path.is_file():
        raise FileNotFoundError(f"no index at {folder}: {make}")
    try:
        head = read_json(path)
        if head.get("format") != FORMAT:
            raise ValueError(f"{path} was not written by this version of rankgrad index")
        _check_head(path, head)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{error}. Write the index again with rankgrad index") from None
    return head


def _check_head(path: Path, head: dict[str, Any]) -> None:
    """Raise unless the head has all entries with the right types; converts origin and measured to their classes."""
    known = ("vectors", "images", "dim", "kind", "normalized", "measured", "origin", "class_names", "labels", "names")
    missing = [name for name in known if name not in head]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    vectors, labels = head["vectors"], head["labels"]
    texts = [head["class_names"], head["names"], *([head["texts"]] if "texts" in head else [])]
    fits = {
        "vectors": _names_file(vectors, r"vectors-[0-9a-f]+\.faiss"),
        "images, dim": all(type(head[name]) is int and head[name] > 0 for name in ("images", "dim")),
        "kind": head["kind"] in KINDS,
        "normalized": isinstance(head["normalized"], bool),
        "class_names, names": all(isinstance(row, list) and all(isinstance(t, str) for t in row) for row in texts),
        "labels": isinstance(labels, list) and all(type(label) is int for label in labels),
        "measured": head["measured"] is None or isinstance(head["measured"], Mapping),
        "origin": head["origin"] is None or isinstance(head["origin"], Mapping),
    }
    wrong = [name for name, fit in fits.items() if not fit]
    classes = 0 if wrong else len(head["class_names"])
    if not wrong and len(head.get("texts", head["names"])) != len(head["names"]):
        wrong = ["texts"]
    if not wrong and (len(labels) != head["images"] or not all(0 <= label < classes for label in labels)):
        wrong = ["labels"]
    if wrong:
        raise ValueError(f"{path} is damaged: {'; '.join(wrong)} has a wrong type or value")
    if head["origin"] is not None:
        head["origin"] = Origin.from_columns(head["origin"])
        if not head.get("texts"):
            check_inside(path, head["names"])
    if head["measured"] is not None:
        head["measured"] = Measured(**head["measured"])


def _names_file(about: object, names: str) -> bool:
    """Whether an entry of the head has the name, size and hash of a file, with a name of this form."""
    return (
        isinstance(about, dict)
        and isinstance(about.get("bytes"), int)
        and isinstance(about.get("sha256"), str)
        and isinstance(about.get("file"), str)
        and re.fullmatch(names, about["file"]) is not None
    )


def read_vectors(path: Path, head: Mapping[str, Any]) -> Any:
    """The faiss index in a file. Its size, SHA-256, kind and content are checked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or it makes faiss open another file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} lacks {path.name}, the file of its vectors. {COPY}")
    size = path.stat().st_size
    if size != head["vectors"]["bytes"]:
        raise ValueError(f"{path} is damaged: it has {size} bytes and should have {head['vectors']['bytes']}. {AGAIN}")
    if sha256_of(path) != head["vectors"]["sha256"]:
        raise ValueError(f"{path} is damaged: its SHA-256 is wrong. {AGAIN}")
    faiss = faiss_module()
    try:
        outside = _outside(path)
        vectors = None if outside else faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} is damaged: faiss cannot read it ({str(error).splitlines()[-1]})") from None
    if outside:
        raise ValueError(f"{path} is refused: {outside}. rankgrad does not write such files. {AGAIN}")
    if not isinstance(vectors, getattr(faiss, TYPES[head["kind"]])):
        raise ValueError(f"{path} must be an index of the kind {head['kind']}; got a {type(vectors).__name__}")
    if vectors.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ValueError(f"{path} is damaged: its scores are not inner products. {AGAIN}")
    return vectors


def _outside(path: Path) -> str:
    """Why faiss would open another file than `path` to read an index, or may do so; "" if it opens no other file.

    A file of faiss can name a second file, at any place, which faiss opens for writing.
    """
    with path.open("rb") as file:
        head = file.read(4)
    if head not in KNOWN:
        return "it is an unknown kind of index"
    faiss = faiss_module()
    vectors = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)  # this opens no second file
    if isinstance(vectors, faiss.IndexHNSW) and not isinstance(faiss.downcast_index(vectors.storage), faiss.IndexFlat):
        return "its vectors are in another index"
    return ""


def store(folder: Path, part: str, ending: str, write: Callable[[IO[bytes]], object]) -> dict[str, Any]:
    """Write a file and name it after its hash; returns its name, size and hash for the head."""
    path = folder / f"{part}.{ending}"
    with atomic_write(path) as file:
        write(file)
    digest = sha256_of(path)
    name = f"{part}-{digest[:16]}.{ending}"
    os.replace(path, folder / name)
    return {"file": name, "bytes": (folder / name).stat().st_size, "sha256": digest}


def vector_files(folder: Path) -> set[Path]:
    """The files of vectors in the folder of an index."""
    return {path for path in folder.iterdir() if path.name != HEAD and ours(path.name)}


def ours(name: str) -> bool:
    """Whether an index has a file of this name. The name of complete vectors has their hash."""
    return re.fullmatch(r"index\.json|vectors(-[0-9a-f]{16})?\.faiss", name) is not None


def need_own(folder: Path) -> None:
    """Raise if an index at this path would be among files of another program, or would replace one.

    Raises:
        FileExistsError: naming the folder.
    """
    if not os.path.lexists(folder):
        return
    there = set(os.listdir(folder)) if folder.is_dir() else {folder.name}
    # a killed process leaves its HOLDER; and an index of ours may have lost one of its two files
    own = there <= {LOCK} or HOLDER in there or any(name != HEAD and ours(name) for name in there)
    if not own and HEAD in there:
        with open_file(folder / HEAD) as file:
            own = b'"rankgrad-index-' in file.read(100)
    if not own:
        raise FileExistsError(f"{folder} exists and is not an index: choose another name with -o")


def faiss_module() -> Any:
    """The module faiss.

    Raises:
        ModuleNotFoundError: it is not installed; the message has the command that installs it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from its generated bindings on newer Python versions
            import faiss
    except ModuleNotFoundError as error:
        if error.name != "faiss":
            raise
        raise ModuleNotFoundError(
            f"an index needs faiss: {install('search')}. Without it, search.topk gives the same exact lists from "
            "embeddings in memory",
            name="faiss",
        ) from None
    return faiss
