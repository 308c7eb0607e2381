"""Embeds many rows in parts. A finished part is written to a file at once, so an interrupted command can continue.

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
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rankgrad.batches.distributed import gather_objects, on_first, share, world
from rankgrad.common.progress import steps
from rankgrad.ranks.normalize import unit_rows

from ..datasets.rows import Rows
from ..files import Pieces, load_json, read_npz, remove_leftovers, write_npz, write_text
from ..files.folders import lock, refuse_links
from ..training.inference import embed_alone
from .embedder import Embedder

PART = 2**14  # largest number of rows of a part, so that a killed process loses only minutes of work


@dataclass(frozen=True)
class Parts:
    """The folder of the parts, which all processes share. See `begun`.

    Attributes:
        folder: the folder.
    """

    folder: Path

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)

    def kept(self, name: str, make: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
        """A value that was computed when the parts were started and is stored in a json; computed now if it is not.

        Args:
            name: of the json file.
            make: computes the value; called on all processes. The value of the first process is stored, as json.
            fits: whether a stored value has the right type.

        Raises:
            ValueError: the json file is damaged.
        """
        path = self.folder / f"{name}.json"
        there = on_first(lambda: [load_json(path)] if path.exists() else [])
        if there:
            if not fits(there[0]):
                raise ValueError(f"{path} is damaged. Delete {self.folder} and run the same command again")
            return there[0]
        value = make()
        on_first(lambda: write_text(path, json.dumps(value)))
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
        rank, processes = world()
        batches = math.ceil(math.ceil(len(table) / batch_size) / processes)  # a small table is divided, too
        rows = self.kept(
            *("rows", lambda: batch_size * max(1, min(batches, PART // batch_size))),
            lambda kept: type(kept) is int and kept > 0,
        )
        count = math.ceil(len(table) / rows)

        def embedded(part: range) -> npt.NDArray[np.float32]:
            name = "embedding" if count == 1 else f"embedding, part {part.start // rows + 1} of {count}"
            found = embed_alone(
                *(embedder.model, table.take(part), embedder.transform),
                batch_size=batch_size,
                workers=workers,
                progress=name if rank == 0 else "",
                device=device,
            )
            return unit_rows(found).numpy()

        return self.filled(len(table), rows, embedded)

    def filled(
        self,
        total: int,
        rows: int,
        compute: Callable[[range], npt.NDArray[np.float32]],
        what: str = "",
        unit: str = "row",
    ) -> Pieces:
        """Numbers [row, column]: finished parts are read, missing parts are computed and written.

        Args:
            total: number of rows.
            rows: number of rows of a part.
            compute: the numbers of some rows.
            what: label of a progress bar over all parts; empty: there is none.
            unit: name of a row.

        Raises:
            ValueError: a file of a part is damaged.
        """
        rank, _ = world()
        parts = [range(start, min(start + rows, total)) for start in range(0, total, rows)]
        missing = on_first(lambda: [number for number in range(len(parts)) if not self._file(number).exists()])
        if rank == 0 and len(missing) < len(parts):
            print(f"continuing: {len(parts) - len(missing)} of {len(parts)} parts are finished", file=sys.stderr)
        mine = missing[share(len(missing))]
        with steps(sum(len(parts[number]) for number in mine), what, unit, bool(what) and rank == 0) as advance:
            for number in mine:
                write_npz(self._file(number), {"embeddings": compute(parts[number])})
                advance(len(parts[number]))
        gather_objects(None)  # wait for all processes: then all parts are finished
        width = self._read(0, len(parts[0])).shape[1]
        pieces = (self._read(number, len(part), width) for number, part in enumerate(parts))
        return Pieces((total, width), np.dtype(np.float32), pieces)

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.npz"

    def _read(self, number: int, rows: int, width: int | None = None) -> npt.NDArray[Any]:
        path = self._file(number)
        try:
            saved = read_npz(path, "embeddings")["embeddings"]
            if saved.dtype != np.float32 or saved.ndim != 2 or saved.shape != (rows, width or saved.shape[1]):
                raise ValueError(f"{path} is damaged: it holds {saved.dtype} {saved.shape}, for {rows} rows")
        except ValueError as error:
            raise ValueError(f"{error}. Or delete it and run the same command again, which embeds its rows") from None
        return saved


@contextmanager
def begun(out: Path, of: Mapping[str, object]) -> Iterator[Parts]:
    """Context with the parts of an npz, new or existing. If it ends without an error, their folder is removed.

    Args:
        out: the npz to make.
        of: everything that the embeddings depend on, as plain values. Existing parts with other values are an error.

    Raises:
        LockedError: another command makes the same npz.
        ValueError: the existing parts are of other rows or of another model.
    """
    parts = Parts(out.with_name(f"{out.name}.parts"))
    folder = parts.folder

    def first(held: ExitStack) -> None:
        refuse_links(folder)
        folder.mkdir(exist_ok=True)
        held.enter_context(lock(folder, f"{out} is being made, and its folder of parts"))
        remove_leftovers(folder)

    with ExitStack() as held:
        on_first(lambda: first(held))
        there = parts.kept("of", lambda: dict(of), lambda kept: isinstance(kept, dict))
        if there != of:
            differ = ", ".join(name for name in of if there.get(name) != of[name])
            raise ValueError(
                f"{folder} holds parts of other unfinished embeddings (another {differ}): finish those, choose another "
                "file with -o, or delete the folder"
            )
        yield parts
        on_first(parts.remove)


__all__ = ["PART", "Parts", "begun"]
