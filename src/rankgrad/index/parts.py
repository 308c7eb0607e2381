"""Embedding many rows in parts: each is a file as soon as it is done, and a command that was cut off goes on.

Beside NAME.npz lies the folder NAME.npz.parts while it is being made: what it is of, and the embeddings of some
thousand rows per file. When all are there they become the npz, and the folder goes.

Several processes, of one machine or of several that see the folder, take turns at the parts. Nothing else goes between
them. A part is embedded by one process, in the batches in which a process alone would embed it. So the npz is the same,
byte by byte, however many there are and however often they were cut off; as long as the machines compute alike, with
equally many threads.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..datasets.rows import Rows
from ..distributed import gather_objects, on_first, share, world
from ..files import Pieces, load_json, read_npz, remove_leftovers, write_npz, write_text
from ..files.folders import lock, make_folder, remove_folder
from ..training.inference import embed_alone
from .embedder import Embedder

PART = 2**14  # rows of a part, at most: minutes of work are lost when a process is killed


@dataclass(frozen=True)
class Parts:
    """The folder of the parts, the same for all processes. See `begun`.

    Attributes:
        folder: where they are.
    """

    folder: Path

    @property
    def root(self) -> Path:
        """The folder that the npz is to be in."""
        return self.folder.parent

    def remove(self) -> None:
        """Remove the folder."""
        remove_folder(self.folder, self.root)

    def kept(self, name: str, make: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
        """What was found out when the parts were begun; if that is now, find it out and keep it.

        Args:
            name: of it.
            make: called on all processes; what it gives on the first, plain values for json, is kept.
            fits: whether it is of the right kind.

        Raises:
            ValueError: what was kept is damaged.
        """
        path = self.folder / f"{name}.json"
        there = on_first(lambda: [load_json(path)] if path.exists() else [])
        if there:
            if not fits(there[0]):
                raise ValueError(f"{path} is damaged. Delete {self.folder}, and the same command begins again")
            return there[0]
        value = make()
        on_first(lambda: write_text(path, json.dumps(value), self.root))
        return value

    def embed(
        self,
        embedder: Embedder,
        table: Rows,
        *,
        batch_size: int = 256,
        workers: int = 0,
        device: torch.device | str | None = None,
    ) -> Pieces:
        """Embeddings [row, dim] of a table: those that are there, and those that are embedded now.

        Args:
            embedder: the model.
            table: the rows.
            batch_size: rows at once.
            workers: of the DataLoader.
            device: where the model computes; None: where it is.

        Raises:
            ValueError: a file of a part is damaged.
        """
        rank, processes = world()
        batches = math.ceil(math.ceil(len(table) / batch_size) / processes)  # few rows are shared, too
        rows = self.kept(
            *("rows", lambda: batch_size * max(1, min(batches, PART // batch_size))),
            lambda kept: type(kept) is int and kept > 0,
        )
        count = math.ceil(len(table) / rows)
        missing = on_first(lambda: [number for number in range(count) if not self._file(number).exists()])
        if rank == 0 and len(missing) < count:
            print(f"going on: {count - len(missing)} of {count} parts are there", file=sys.stderr)
        for number in missing[share(len(missing))]:
            name = "embedding" if count == 1 else f"embedding, part {number + 1} of {count}"
            here = table.take(range(number * rows, min((number + 1) * rows, len(table))))
            embedded = embed_alone(
                *(embedder.model, here, embedder.transform),
                batch_size=batch_size,
                workers=workers,
                progress=name if rank == 0 else "",
                device=device,
            )
            write_npz(self._file(number), {"embeddings": embedded.numpy()}, self.root)
        gather_objects(None)  # all have come so far: the parts are there
        width = self._read(0, rows if count > 1 else len(table)).shape[1]
        sizes = [min(rows, len(table) - number * rows) for number in range(count)]
        pieces = (self._read(number, size, width) for number, size in enumerate(sizes))
        return Pieces((len(table), width), np.dtype(np.float32), pieces)

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.npz"

    def _read(self, number: int, rows: int, width: int | None = None) -> npt.NDArray[Any]:
        path = self._file(number)
        try:
            saved = read_npz(path, "embeddings")["embeddings"]
            if saved.dtype != np.float32 or saved.ndim != 2 or saved.shape != (rows, width or saved.shape[1]):
                raise ValueError(f"{path} is damaged: it holds {saved.dtype} {saved.shape}, for {rows} rows")
        except ValueError as error:
            raise ValueError(f"{error}. Or delete it and give the same command again, which embeds its rows") from None
        return saved


@contextmanager
def begun(out: Path, of: Mapping[str, object]) -> Iterator[Parts]:
    """The parts of an npz, to begin or to go on with; their folder goes when this ends without an error.

    Args:
        out: the npz that is to be.
        of: what decides about the embeddings, plain values; parts of something else are refused.

    Raises:
        LockedError: another command makes the same npz.
        ValueError: the parts that are there are of other rows or of another model.
    """
    parts = Parts(out.with_name(f"{out.name}.parts"))
    folder = parts.folder

    def first(held: ExitStack) -> None:
        make_folder(folder, parts.root)
        held.enter_context(lock(folder, f"{out} is being made, and its folder of parts", root=parts.root))
        remove_leftovers(folder, root=parts.root)

    with ExitStack() as held:
        on_first(lambda: first(held))
        there = parts.kept("of", lambda: dict(of), lambda kept: isinstance(kept, dict))
        if there != of:
            differ = ", ".join(name for name in of if there.get(name) != of[name])
            raise ValueError(
                f"{folder} holds parts of other embeddings (another {differ}), which were cut off: finish those, "
                "choose another file with -o, or delete the folder"
            )
        yield parts
        on_first(parts.remove)


__all__ = ["PART", "Parts", "begun"]
