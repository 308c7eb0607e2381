"""Embeds a folder of images, or a file of texts or vectors, with the model of a run, into one npz or parquet.

Many rows are embedded in parts. A finished part is written to a file at once, so an interrupted command can continue.

While NAME.npz is being made, the folder NAME.npz.parts is beside it. It holds a description of the rows and the model,
and the embeddings of some thousand rows per file. When all parts are finished, they are written to the npz and the
folder is removed.

Several processes, on one or several machines that share the folder, divide the parts among them. They exchange nothing
else. One process embeds a whole part, in the same batches as a single process would. So the npz has the same bytes for
any number of processes and interruptions, if the machines compute alike with the same number of threads.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rankgrad.batches.distributed import gather_objects, on_all, on_first, share, world
from rankgrad.common.progress import steps
from rankgrad.ranks.normalize import unit_rows

from ..datasets.fingerprint import of_files, of_texts
from ..datasets.folder import look_at, read_folder
from ..datasets.rows import Rows
from ..datasets.tabular import AUTO
from ..datasets.text import TextTable, read_texts, text_table
from ..datasets.vectors import has_labels, load_table
from ..files import Pieces, read_json, read_npz, remove_leftovers, write_npz, write_text
from ..files.folders import lock, refuse_links
from ..files.tables.text import stem_of
from ..runs.embeddings import save_embeddings
from ..tasks.search.reading import beginning, read_named
from ..tasks.search.sizes import first
from ..training.inference import embed
from .embedder import Embedder
from .gallery import Origin, check_place, threshold_of

PART = 2**14  # largest number of rows of a part, so that a killed process loses only minutes of work


def rows_of_a_part(rows: int, batch_size: int) -> int:
    """The number of rows of a part: whole batches; of a small table fewer, so that all processes have work."""
    batches = math.ceil(math.ceil(rows / batch_size) / world()[1])
    return batch_size * max(1, min(batches, PART // batch_size))


@dataclass(frozen=True)
class Parts:
    """The folder of the parts, which all processes share. See `begun`.

    Attributes:
        folder: the folder.
        plan: what was decided when the parts were begun; with "rows", the number of rows of a part.
    """

    folder: Path
    plan: Mapping[str, Any]

    def embed(
        self,
        embedder: Embedder,
        table: Rows,
        *,
        batch_size: int = 256,
        workers: int = 0,
        device: torch.device | str | None = None,
    ) -> Pieces:
        """Embeddings [row, dim] of a table, of length 1: finished parts are read, missing parts are computed.

        Args:
            embedder: the model.
            table: the rows.
            batch_size: rows at once.
            workers: of the DataLoader.
            device: where the model computes; None: the model's device.

        Raises:
            ValueError: a file of a part is damaged.
        """
        rows = self.plan["rows"]
        count = math.ceil(len(table) / rows)

        def embedded(part: range) -> npt.NDArray[np.float32]:
            name = "embedding" if count == 1 else f"embedding, part {part.start // rows + 1} of {count}"
            found = embed(
                *(embedder.model, table.take(part), embedder.transform),
                batch_size=batch_size,
                workers=workers,
                progress=name if world()[0] == 0 else "",
                device=device,
                alone=True,
            )
            return unit_rows(found).numpy()

        return self.filled(len(table), embedded)

    def filled(
        self, total: int, compute: Callable[[range], npt.NDArray[np.float32]], what: str = "", unit: str = "row"
    ) -> Pieces:
        """Numbers [row, column]: finished parts are read, missing parts are computed and written.

        Args:
            total: number of rows.
            compute: the numbers of some rows.
            what: label of a progress bar over all parts; empty: there is none.
            unit: name of a row.

        Raises:
            ValueError: a file of a part is damaged.
        """
        speaks, rows = world()[0] == 0, self.plan["rows"]
        parts = [range(start, min(start + rows, total)) for start in range(0, total, rows)]
        files = [self.folder / f"part-{number:06}.npz" for number in range(len(parts))]
        missing = on_first(lambda: [number for number, file in enumerate(files) if not file.exists()])
        if speaks and len(missing) < len(parts):
            print(f"continuing: {len(parts) - len(missing)} of {len(parts)} parts are finished", file=sys.stderr)
        mine = missing[share(len(missing))]
        with steps(sum(len(parts[number]) for number in mine), what, unit, bool(what) and speaks) as advance:
            for number in mine:
                write_npz(files[number], {"embeddings": compute(parts[number])})
                advance(len(parts[number]))
        gather_objects(None)  # wait for all processes: then all parts are finished
        width = _read(files[0], len(parts[0])).shape[1]
        pieces = (_read(file, len(part), width) for file, part in zip(files, parts, strict=True))
        return Pieces((total, width), np.dtype(np.float32), pieces)


@contextmanager
def begun(out: Path, of: Mapping[str, object], plan: Callable[[], dict[str, Any]]) -> Iterator[Parts]:
    """Context with the parts of an npz, new or existing. If it ends without an error, their folder is removed.

    Args:
        out: the npz to make.
        of: everything that the embeddings depend on, as plain values. Existing parts with other values are an error.
        plan: makes the plan of new parts, as plain values; called on all processes. If it raises, nothing was begun.

    Raises:
        LockedError: another command makes the same npz.
        ValueError: the existing parts are of other rows or of another model, or their description is damaged.
    """
    folder = out.with_name(f"{out.name}.parts")
    about = folder / "of.json"

    def opened(held: ExitStack) -> dict[str, Any] | None:
        refuse_links(folder)
        folder.mkdir(exist_ok=True)
        held.enter_context(lock(folder, f"{out} is being made, and its folder of parts"))
        remove_leftovers(folder)
        return read_json(about, "of", "plan") if about.exists() else None

    with ExitStack() as held:
        there = on_first(lambda: opened(held))
        if there is None:
            try:
                there = {"of": dict(of), "plan": plan()}
            except BaseException:
                held.close()  # the lock is a file of the folder
                with suppress(OSError):
                    folder.rmdir()
                raise
            on_first(lambda: write_text(about, json.dumps(there)))
        if there["of"] != of:
            differ = ", ".join(name for name in of if there["of"].get(name) != of[name])
            raise ValueError(f"{folder} has parts of another {differ}: finish or delete them, or give another -o")
        yield Parts(folder, there["plan"])
        on_first(lambda: shutil.rmtree(folder))


def embed_folder(
    source: Path,
    images: Path,
    out: Path,
    batch_size: int = 256,
    *,
    invert: bool = False,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
    workers: int = 0,
) -> tuple[int, tuple[tuple[str, str], ...], str]:
    """Embed the images below a folder with the model of a run.

    Returns the number of images, (path, reason) of the skipped files, and a sentence on how the folder was understood.
    Folders are read as in training: see `datasets.folder.read_folder`.

    The work is done in parts. If the call is interrupted, call it again and it continues after the last finished part.
    In a torch.distributed group, all processes make the same call and share the work; they must see the same files.

    The file holds embeddings of length 1, names (paths relative to the folder) and labels with class_names, and for
    queries its `Origin`.

    Args:
        source: folder of a run, or its model.pt.
        images: the folder.
        out: npz or parquet to write.
        batch_size: images at once.
        invert: invert the images (255 - pixel) first, see `Embedder`.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.
        workers: number of additional processes that read images.

    >>> import tempfile
    >>> from PIL import Image
    >>> from rankgrad_workbench.models import convnet, save_weights
    >>> transform = {"_target_": "rankgrad_workbench.datasets.transforms.InkEval", "size": 28}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     photo, weights = Path(folder, "a", "0.png"), Path(folder, "model.pt")
    ...     photo.parent.mkdir()
    ...     Image.new("L", (28, 28)).save(photo)
    ...     _ = save_weights(weights, convnet(embedding_size=2), {"data": {"eval_transform": transform}})
    ...     count, skipped, understood = embed_folder(weights, photo.parent, Path(folder, "photos.npz"))
    >>> count, skipped
    (1, ())
    """
    check_place(out)
    embedder = Embedder.load(source, invert=invert, trust=trust)
    if embedder.model.inputs.takes != "images":
        raise ValueError(f"{source} takes {embedder.model.inputs.takes}: give a file of them; {images} is a folder")
    root = Path(os.path.abspath(images))  # without . and .., but links are not resolved
    folder = on_first(partial(read_folder, root))
    paths = [path for _, _, path in folder.images]
    names = [path.relative_to(root).as_posix() for path in paths]

    def plan() -> dict[str, Any]:
        unreadable = _unreadable(paths)
        if len(unreadable) == len(paths):
            raise ValueError(f"no readable image below {images}; {len(folder.skipped) + len(paths)} files skipped")
        return {"unreadable": unreadable, "rows": rows_of_a_part(len(paths) - len(unreadable), batch_size)}

    of = on_first(lambda: {**of_texts("names", names), **of_files(paths)})
    with begun(out, {"model": embedder.sha256, "inverted": invert, "folder": str(root), **of}, plan) as parts:
        reason_of = dict(parts.plan["unreadable"])
        kept = [row for row in range(len(paths)) if row not in reason_of]
        table = embedder.table([paths[row] for row in kept], root, [folder.images[row][1] for row in kept])
        pieces = parts.embed(embedder, table, batch_size=batch_size, workers=workers, device=device)
        on_first(lambda: _save(out, pieces, table, root, embedder))
    broken = ((str(paths[row]), reason) for row, reason in reason_of.items())
    return len(kept), tuple(sorted((*folder.skipped, *broken))), str(folder)


def _unreadable(paths: Sequence[Path]) -> list[tuple[int, str]]:
    """(row, reason) of the files that cannot be used, in order; the processes share the work."""
    mine = range(len(paths))[share(len(paths))]
    reasons = on_all(lambda: look_at([paths[row] for row in mine])[0])
    told = gather_objects([(row, reason) for row, reason in zip(mine, reasons, strict=True) if reason is not None])
    return sorted(entry for part in told for entry in part)


def _save(out: Path, pieces: Pieces, table: Rows, root: Path, embedder: Embedder) -> None:
    """Write the file, with its origin."""
    classes = [table.class_names[label] for label in table.label.tolist()]
    threshold = threshold_of(embedder.weights, classes)
    origin = Origin(root, embedder.weights, embedder.sha256, embedder.invert, threshold)
    save_embeddings(out, pieces, table, {"origin": str(origin)})


def embed_file(
    source: Path,
    file: Path,
    out: Path,
    batch_size: int = 256,
    *,
    text: str = "text",
    label: str | None = AUTO,
    embeddings: str = AUTO,
    delimiter: str | None = None,
    queries: bool = False,
    width: int | None = None,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Embed the rows of a file with the model of a run, in parts as `embed_folder`.

    A run of task=search embeds the documents, or the queries, of a file or of a collection, each with its prompt; see
    `tasks.search.reading.read_named`. Of long texts, the file holds the beginning.

    The file holds embeddings of length 1, names (the lines of the file), labels with class_names, the texts, and for
    queries its `Origin`.

    Args:
        source: folder of a run on texts or vectors, or its model.pt.
        file: for a model of texts csv, tsv, jsonl, parquet, or txt with a text per line; for a model of vectors npz or
            parquet.
        out: npz or parquet to write.
        batch_size: rows at once.
        text: column of the texts.
        label: column of the classes; "auto": the usual column, if it exists; None: no classes.
        embeddings: column of the vectors, see `load_table`.
        delimiter: of a csv, see `read_texts`.
        queries: for a run of task=search: embed queries, not documents.
        width: for a run of task=search: write the first columns; None: all columns.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.

    Returns:
        The number of rows; what was left out of the file, one sentence each.

    Raises:
        FileNotFoundError: the file, the run, or the folder of `out` does not exist.
        ValueError: the model takes images; or the file is wrong (the message names the row).
    """
    check_place(out)
    embedder = Embedder.load(source, trust=trust)
    takes, of_search, size = embedder.model.inputs.takes, embedder.asked is not None, embedder.model.embedding_size
    if takes == "images":
        raise ValueError(f"{source} takes images: give a folder of images; {file} is a file")
    if queries and not of_search:
        raise ValueError(f"--queries is for a run of task=search; {source} embeds all texts alike")
    if width is not None and not (of_search and width in range(1, size + 1)):
        raise ValueError(f"--width is for a run of task=search, and a number of its {size} columns; got {width}")
    table: Rows
    notes: tuple[str, ...] = ()
    if of_search:
        named = read_named(file, "queries" if queries else "corpus", AUTO if text == "text" else text, delimiter)
        notes = named.notes
        table = text_table(stem_of(file), named.texts, None, ["test"] * len(named), named.names)
        embedder = embedder.asked or embedder if queries else embedder
    elif takes == "texts":
        table = read_texts(file, text, label, delimiter)
    else:
        table = load_table(file, embeddings, None if label == AUTO and not has_labels(file) else label, split=None)
    root = Path(os.path.abspath(file))
    side = {"side": "query" if queries else "document", "width": width} if of_search else {}
    of = on_first(lambda: {"model": embedder.sha256, "file": str(root), **side, **table.fingerprint()})
    with begun(out, of, lambda: {"rows": rows_of_a_part(len(table), batch_size)}) as parts:
        pieces = parts.embed(embedder, table, batch_size=batch_size, device=device)
        if width is not None:
            narrow = (first(torch.from_numpy(piece), width).numpy() for piece in pieces.pieces)
            pieces = Pieces((len(table), width), pieces.dtype, narrow)
        if of_search and isinstance(table, TextTable):
            table = replace(table, texts=tuple(map(beginning, table.texts)))
        on_first(lambda: _save(out, pieces, table, root, embedder))
    return len(table), notes


def embeddings_file(images: Path) -> Path:
    """The default file for the embeddings of a folder: NAME.npz in the working directory, NAME from the folder.

    >>> embeddings_file(Path("photos/birds/")).name
    'birds.npz'
    """
    return Path(f"{Path(os.path.abspath(images)).name or 'embeddings'}.npz")


def _read(path: Path, rows: int, width: int | None = None) -> npt.NDArray[Any]:
    try:
        saved = read_npz(path, "embeddings")["embeddings"]
        if saved.dtype != np.float32 or saved.ndim != 2 or saved.shape != (rows, width or saved.shape[1]):
            raise ValueError(f"{path} is damaged: it holds {saved.dtype} {saved.shape}, for {rows} rows")
    except ValueError as error:
        raise ValueError(f"{error}. Or delete it and run the same command again, which embeds its rows") from None
    return saved
