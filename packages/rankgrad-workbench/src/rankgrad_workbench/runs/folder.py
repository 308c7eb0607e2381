"""The folder of a run: the names of its files, the kind of the run, whether it is finished, and its checksums.

Only this module and the table of `tasks` define these names. Files are written atomically (`files`), and one process at
a time uses a folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankgrad.common.files import AGAIN, read_text
from rankgrad.common.text import shown
from rankgrad.evaluation import Report

from ..files import read_json, remove_leftovers, sha256_of, write_text
from ..files.elsewhere import of_laboratory
from ..files.folders import HOLDER, lock, refuse_links
from ..settings.allowed import ConfigError
from ..settings.kinds import TASKS
from .log import TABLE

# The fact that the data does not have its published counts: a sentence, or an empty text.
OFF_COUNTS = "off_counts"
# The fact with what else matters for the numbers: a list of sentences, such as copies between train and test.
REMARKS = "remarks"
# The facts that are used in computations, and their types.
FACTS: dict[str, tuple[type, ...]] = {
    "steps": (int,),
    "epochs": (int,),
    "train_seconds": (int, float, type(None)),
    "train_cpu_seconds": (int, float, type(None)),
    OFF_COUNTS: (str,),
    REMARKS: (list,),
}

# Files that some runs have beside those of their kind (`kinds.TaskRow.files`): with a checksum, and without.
_SUMMED = (
    *("state.ckpt", "best.pt", "before.json", "health.json", "queries.pt"),
    *("before.trec", "trained.trec", "bm25.trec", "fusion.trec", "qrels.trec"),
)
_OTHERS = ("features.pt", "logs", "checksums.sha256")
_STEP = re.compile(r"step-\d+\.(json|npz|pt)")  # of a saved evaluation


def written(name: str) -> bool:
    """Whether a run writes a file or folder of this name in its folder.

    >>> written("model.pt"), written("step-20.json"), written("notes.txt")
    (True, True, False)
    """
    known = {*_SUMMED, *_OTHERS, *(file for row in TASKS.values() for file in row.files)}
    return name in known or _STEP.fullmatch(name) is not None


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        folder: the folder.
    """

    folder: Path

    def __post_init__(self) -> None:
        folder: object = self.folder
        if not isinstance(folder, Path):
            kind = type(folder).__name__
            raise TypeError(f"Run needs the folder as a pathlib.Path, such as Run(Path({str(folder)!r})); got a {kind}")

    @property
    def config(self) -> Path:
        """Settings. A folder with this file is a run."""
        return self.folder / "config.yaml"

    @property
    def state(self) -> Path:
        """State from which training can resume, see `training.state`."""
        return self.folder / "state.ckpt"

    @property
    def weights(self) -> Path:
        """Model after training."""
        return self.folder / "model.pt"

    @property
    def best(self) -> Path:
        """Model at the best evaluation during training (only with `evaluation.keep_best`)."""
        return self.folder / "best.pt"

    @property
    def before(self) -> Path:
        """Report of the untrained model."""
        return self.folder / "before.json"

    @property
    def after(self) -> Path:
        """Result of the trained model; the file that a run writes last."""
        return self.folder / TASKS[self.kind].result

    @property
    def facts(self) -> Path:
        """Steps, time, versions and the data's fingerprint."""
        return self.folder / "facts.json"

    @property
    def embeddings(self) -> Path:
        """Embeddings of the evaluated images, see `runs.embeddings`."""
        return self.folder / "embeddings.npz"

    @property
    def saved(self) -> list[Path]:
        """Reports of the saved evaluations, earliest first: step-N.json, with step-N.npz and step-N.pt beside them."""
        return sorted(self.folder.glob("step-*.json"), key=lambda path: int(path.stem.removeprefix("step-")))

    @property
    def scores(self) -> Path:
        """Scores of the test rows, see `scores.task`."""
        return self.folder / "scores.npz"

    @property
    def features(self) -> Path:
        """Features of the training images, if only a head is trained."""
        return self.folder / "features.pt"

    @property
    def health(self) -> Path:
        """Statistics of the training, see `training.health`."""
        return self.folder / "health.json"

    @property
    def page(self) -> Path:
        """Report of the run as a web page, see `report`."""
        return self.folder / "report.html"

    @property
    def logs(self) -> Path:
        """Folder of the logs, see `runs.log`."""
        return self.folder / "logs"

    @property
    def checksums(self) -> Path:
        """SHA-256 of every file of a finished run, in the format of the command sha256sum."""
        return self.folder / "checksums.sha256"

    @property
    def kind(self) -> str:
        """Kind of the run, a key of `tasks.TASKS`; "retrieval" for a folder without settings.

        Raises:
            ConfigError: the package that adds this kind is not installed.
        """
        if not self.config.exists():
            return "retrieval"
        text = read_text(self.config, "replace")
        match = re.search(r"^task: (\w+)$", text, re.MULTILINE)  # not parsed, since parsing may raise
        if match and match[1] not in TASKS and (hint := of_laboratory("task", match[1])):
            raise ConfigError(f"{shown(self.folder)} holds a run of task={match[1]}{hint}")
        return match[1] if match and match[1] in TASKS else "retrieval"

    @property
    def finished(self) -> bool:
        """Whether the last file is written."""
        return self.after.exists()

    @property
    def interrupted(self) -> bool:
        """Whether there is a state to resume from and no result: interrupted, extended, or still training."""
        return self.state.exists() and not self.finished

    def remove_leftovers(self) -> None:
        """Remove temporary files of killed processes.

        Raises:
            LinkError: a file or folder that the run writes is a link.
        """
        refuse_links(*(path for path in self.folder.iterdir() if written(path.name)))
        remove_leftovers(self.folder, ours=written)
        remove_leftovers(self.logs, TABLE)

    def read_facts(self) -> dict[str, Any]:
        """The facts of a finished run; {} if they are not written yet.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.facts.exists():
            return {}
        facts = read_json(self.facts, "steps", "train_seconds")
        wrong = [name for name, kinds in FACTS.items() if not isinstance(facts.get(name, kinds[0]()), kinds)]
        wrong += [] if wrong or all(isinstance(each, str) for each in facts.get(REMARKS, ())) else [REMARKS]
        if wrong:
            raise ValueError(f"{self.facts} is damaged: {wrong[0]} has another type; got {facts[wrong[0]]!r}. {AGAIN}")
        return facts

    def read_values(self) -> dict[str, float]:
        """The metrics of a finished run, such as R@1.

        Raises:
            FileNotFoundError: the run is not finished.
            ValueError: the file is damaged.
        """
        return _values_in(self.after)

    def read_untrained(self) -> dict[str, float]:
        """The metrics of the untrained model; {} if it was not evaluated.

        Raises:
            ValueError: the file is damaged.
        """
        return _values_in(self.before) if self.before.exists() else {}

    def read_before(self) -> Report | None:
        """The report of the untrained model; None: there is none."""
        return Report.from_json(self.before) if self.before.exists() else None

    def finish(self, result: str) -> None:
        """Write the checksums of all files, then the result. The run is then finished.

        Args:
            result: content of the file `after`.
        """
        names = [name for name in dict.fromkeys((*_SUMMED, *TASKS[self.kind].files)) if name != self.after.name]
        paths = [self.folder / name for name in names]
        sums = [(sha256_of(path), path.name) for path in paths if path.exists()]
        sums.append((hashlib.sha256(result.encode()).hexdigest(), self.after.name))
        write_text(self.checksums, "".join(f"{digest}  {name}\n" for digest, name in sums))
        write_text(self.after, result)


def _values_in(path: Path) -> dict[str, float]:
    """The metrics in the file of an evaluation."""
    values = read_json(path, "values")["values"]
    if not isinstance(values, dict) or not all(isinstance(value, (int, float)) for value in values.values()):
        raise ValueError(f"{path} is damaged: its values are not numbers. {AGAIN}")
    return values


def existing(folder: Path) -> Run:
    """The run in a folder, to resume it.

    Raises:
        ConfigError: the folder holds no run.
    """
    run = Run(folder)
    if not run.config.exists():
        raise ConfigError(f"nothing to resume: {run.config} does not exist. resume= needs the folder of a run")
    return run


def check_kind(folder: Path, kind: str) -> None:
    """Raise if a folder holds a run of another kind. A folder without settings passes.

    Raises:
        ValueError: the kind of the run, and the kind that is needed.
    """
    has = Run(folder).kind
    if Run(folder).config.exists() and has != kind:
        raise ValueError(f"{shown(folder)} holds a run of task={has}; this command needs a run of task={kind}")


@contextmanager
def opened(folder: Path, kind: str) -> Iterator[Run]:
    """An existing run, locked for this process, to resume it. Temporary files of killed processes are removed.

    Raises:
        ConfigError: the folder holds no run, or a run of another kind.
        LockedError: another process uses it.
    """
    run = existing(folder)
    if run.kind != kind:
        again = f"rankgrad {TASKS[run.kind].command} resume={folder}"
        raise ConfigError(f"{folder} holds a run of task={run.kind}: continue it with {again}")
    with lock(folder, "this run"):
        run.remove_leftovers()
        yield run


@contextmanager
def created(folder: Path | None, name: str) -> Iterator[Run]:
    """A new run, locked for this process. If no settings are written to it, the folder is removed at the end.

    Args:
        folder: folder of the run; None: a new folder in runs/, named after `name` and the time.
        name: data and loss.

    Raises:
        ConfigError: the folder holds a run already, or other files with names that a run writes.
        LockedError: another process starts a run there.
    """
    wanted = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}" if folder is None else folder
    missing = [path for path in (wanted, *wanted.parents) if not path.exists()]
    if folder is None:
        wanted = _new_folder(wanted)
        missing = [wanted, *missing[1:]]
    else:
        wanted.mkdir(parents=True, exist_ok=True)
    run, there = Run(wanted), set(os.listdir(wanted))
    killed, ours = HOLDER in there, False
    try:
        with lock(wanted, "this folder"):
            ours = True
            if killed:  # it left this file, and files of its run, which are written anew
                there.clear()
            if run.config.exists():
                raise ConfigError(f"{wanted} holds a run already: continue it with resume={wanted}, or choose out=")
            others = sorted(filter(written, there))
            if others:
                raise ConfigError(
                    f"{wanted} is not a run, and holds {others[0]}, which a run would replace: choose another out="
                )
            run.remove_leftovers()
            yield run
    finally:
        if not run.config.exists():
            _discard(run, there if ours else set(os.listdir(wanted)), missing)


def _new_folder(wanted: Path) -> Path:
    """Make a new folder. If the name exists, for example from the same second, a number is added."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise ConfigError(f"{wanted} and thousands of folders {wanted.name}-N exist; choose another out=")


def _discard(run: Run, there: set[str], folders: list[Path]) -> None:
    """Remove the files of a run that stopped before training began. Files that were `there` before stay."""
    for path in (run.before, run.features, run.health):
        if path.name not in there:
            path.unlink(missing_ok=True)
    if run.logs.name not in there:
        shutil.rmtree(run.logs, ignore_errors=True)
    for folder in folders:  # folders that were made for the run, the innermost first
        try:
            os.rmdir(folder)
        except OSError:  # not empty
            break


__all__ = ["Run"]
