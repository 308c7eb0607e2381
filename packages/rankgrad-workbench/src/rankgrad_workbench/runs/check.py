"""Checks whether a run or an index is complete and undamaged: reads all files and compares checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankgrad.common.files import read_text

from ..datasets.vectors import embedding_columns
from ..files import check_archive, load_json, sha256_of
from ..settings import parsed
from ..settings.kinds import TASKS
from .folder import TABLE, Run
from .history import read_rows


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
    kind, finished, sums = run.kind, run.finished, _sums(run)
    expected = [*(folder / name for name in TASKS[kind].files), *([run.checksums] if finished else [])]
    for path in (*expected, run.state, run.features, run.health, run.logs / TABLE):
        if path.exists() and path != run.checksums:
            files[path.relative_to(folder).as_posix()] = _read(path, sums.get(path.name))
        elif finished and path in expected and not path.exists():
            files[path.name] = "missing"
    notes = []
    if not finished:
        saved = run.state.exists()
        begins = f"continue it with resume={folder}" if saved else "nothing is saved yet; resume= starts it again"
        notes.append(f"not finished: {begins}")
    return Checked(folder, f"{'finished' if finished else 'unfinished'} run ({kind})", files, tuple(notes))


def _sums(run: Run) -> dict[str, str]:
    lines = read_text(run.checksums, "replace").splitlines() if run.checksums.exists() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _read(path: Path, digest: str | None) -> str:
    if path.name == TABLE:
        return _said(lambda: read_rows(path.parent))
    if digest is not None:
        return _said(lambda: sha256_of(path), digest, "damaged or changed: its checksum is wrong")
    readers: dict[str, Callable[[Path], object]] = {".json": load_json, ".yaml": parsed, ".html": read_text}
    return _said(lambda: readers.get(path.suffix, check_archive)(path))


def _said(read: Callable[[], object], wanted: object = None, otherwise: str = "") -> str:
    try:
        found = read()
    except (ValueError, OSError) as error:
        return f"damaged: {str(error).splitlines()[0]}"
    return "ok" if wanted in (None, found) else otherwise


__all__ = ["Checked", "check"]
