"""Checks whether a run or an index is complete and undamaged: reads all files and compares checksums."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankgrad.common.files import read_text

from ..datasets.vectors import embedding_columns
from ..files import check_archive, load_json, sha256_of
from ..files.folders import LOCK
from ..settings import parsed
from ..settings.kinds import TASKS
from .folder import Run
from .log import TABLE


@dataclass(frozen=True)
class Checked:
    """The result of checking a folder.

    Attributes:
        folder: the folder.
        what: "finished run (retrieval)", "unfinished run (scores)", "index".
        files: file -> "ok", or what is wrong with it.
        notes: further information that is no error.
    """

    folder: Path
    what: str
    files: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> dict[str, str]:
        """The files that are missing or damaged."""
        return {name: said for name, said in self.files.items() if said != "ok"}

    def __str__(self) -> str:
        """A line per file."""
        width = max((len(name) for name in self.files), default=0)
        lines = [f"{self.folder}: {self.what}", *(f"  {name:{width}}  {said}" for name, said in self.files.items())]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def check(folder: Path) -> Checked:
    """Check every file of a run, or an index.

    Raises:
        FileNotFoundError: it is neither a run nor a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.index")
    ...     _ = file.write_text("{}")
    ...     print("not an npz" in check(file).wrong["a.index"])
    True
    """
    if folder.is_file():
        return Checked(folder, "index", {folder.name: _said(lambda: embedding_columns(folder, "embeddings", "names"))})
    run = Run(folder)
    if not run.config.is_file():
        raise FileNotFoundError(f"{folder} is neither a run nor an index: it is no file, and has no config.yaml")
    files = {run.config.name: _said(lambda: parsed(run.config))}
    if files[run.config.name] != "ok":
        return Checked(folder, "run", files)
    kind, finished = run.kind, run.finished
    sums = _sums(run)
    for path in (folder / name for name in TASKS[kind].files):
        if path.exists():
            files[path.name] = _read(path, sums.get(path.name))
        elif finished:
            files[path.name] = "missing"
    for path in (run.state, run.features, run.health, run.logs / TABLE):
        if path.exists():
            files[path.relative_to(folder).as_posix()] = _read(path, sums.get(path.name))
    notes = []
    if finished and not sums:
        files[run.checksums.name] = "missing"
    if not finished:
        goes_on = "continue it with resume=" if run.state.exists() else "nothing is saved yet; resume= starts it again"
        notes.append(f"not finished: {goes_on}{folder if run.state.exists() else ''}")
    if (folder / LOCK).exists():
        notes.append("another process is using it, or was killed while it used it")
    return Checked(folder, f"{'finished' if finished else 'unfinished'} run ({kind})", files, tuple(notes))


def _sums(run: Run) -> dict[str, str]:
    if not run.checksums.exists():
        return {}
    lines = read_text(run.checksums, "replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _read(path: Path, digest: str | None) -> str:
    try:
        if digest is not None and sha256_of(path) != digest:
            return "damaged or changed: its checksum is wrong"
    except OSError as error:
        return f"damaged: {error}"
    readers: dict[str, Callable[[], object]] = {
        ".json": lambda: load_json(path),
        ".yaml": lambda: parsed(path),
        ".csv": lambda: [*csv.DictReader(read_text(path).splitlines())],
        ".html": lambda: _whole_page(path),
    }
    return _said(readers.get(path.suffix, lambda: check_archive(path)))


def _whole_page(path: Path) -> None:
    if not read_text(path).rstrip().endswith("</html>"):
        raise ValueError("the end of the file is missing")


def _said(read: Callable[[], object]) -> str:
    try:
        read()
    except (ValueError, OSError) as error:
        return f"damaged: {str(error).splitlines()[0]}"
    return "ok"


__all__ = ["Checked", "check"]
