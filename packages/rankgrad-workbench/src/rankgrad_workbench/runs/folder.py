"""The folder of a run: the names of its files, the kind of the run, whether it is finished, and its checksums.

Only this module and the table of `tasks` define these names. Files are written atomically (`files`), and one process at
a time uses a folder.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankgrad.common.files import AGAIN, read_text
from rankgrad.common.text import shown
from rankgrad.evaluation import Report
from rankgrad.evaluation.json_report import NUMBERS, fits

from ..files import read_json, remove_leftovers, sha256_of, write_text
from ..files.elsewhere import of_laboratory
from ..files.folders import HOLDER, lock, refuse_links
from ..settings.allowed import ConfigError
from ..settings.kinds import TASKS

TABLE = "metrics.csv"  # of the logs
# The fact that the data does not have its published counts: a sentence, or an empty text.
OFF_COUNTS = "off_counts"
# The fact with what else matters for the numbers: a list of sentences, such as copies between train and test.
REMARKS = "remarks"
# The facts that are used in computations, and their shapes.
FACTS: Mapping[str, Any] = {
    **{"steps": int, "epochs": int, "train_seconds": (float, None), "train_cpu_seconds": (float, None)},
    **{OFF_COUNTS: str, REMARKS: [str]},
}

# Files that some runs have beside those of their kind (`kinds.TaskRow.files`): with a checksum, and without.
_SUMMED = (
    *("state.ckpt", "best.pt", "before.json", "untouched.json", "health.json", "queries.pt"),
    *("before.trec", "before-fusion.trec", "trained.trec", "bm25.trec", "fusion.trec", "qrels.trec"),
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


class _File:
    """A file or folder of a run, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, _: object) -> Path:
        return run.folder / self.name


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        folder: the folder.
        config: settings. A folder with this file is a run.
        state: state from which training can resume, see `training.state`.
        weights: model after training.
        best: model at the best evaluation during training (only with `evaluation.keep_best`).
        before: report of the untrained model. Of a pretrained one, at the size of images at which it is best.
        untouched: report of a pretrained model at the other size.
        facts: steps, time, versions and the data's fingerprint.
        embeddings: embeddings of the evaluated images, see `runs.embeddings`.
        scores: scores of the test rows, see `scores.task`.
        features: features of the training images, if only a head is trained.
        health: statistics of the training, see `training.health`.
        page: report of the run as a web page, see `report`.
        logs: folder of the logs, see `training.log`.
        checksums: SHA-256 of every file of a finished run, in the format of the command sha256sum.
    """

    folder: Path
    config = _File("config.yaml")
    state = _File("state.ckpt")
    weights = _File("model.pt")
    best = _File("best.pt")
    before = _File("before.json")
    untouched = _File("untouched.json")
    facts = _File("facts.json")
    embeddings = _File("embeddings.npz")
    scores = _File("scores.npz")
    features = _File("features.pt")
    health = _File("health.json")
    page = _File("report.html")
    logs = _File("logs")
    checksums = _File("checksums.sha256")

    @property
    def after(self) -> Path:
        """Result of the trained model; the file that a run writes last."""
        return self.folder / TASKS[self.kind].result

    @property
    def saved(self) -> list[Path]:
        """Reports of the saved evaluations, earliest first: step-N.json, with step-N.npz and step-N.pt beside them."""
        return sorted(self.folder.glob("step-*.json"), key=lambda path: int(path.stem.removeprefix("step-")))

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
        return read_parts(self.facts, FACTS, "steps", "train_seconds") if self.facts.exists() else {}

    def read_values(self) -> dict[str, float]:
        """The metrics of a finished run, such as R@1.

        Raises:
            FileNotFoundError: the run is not finished.
            ValueError: the file is damaged.
        """
        values: dict[str, float] = read_parts(self.after, {"values": NUMBERS}, "values")["values"]
        return values

    def read_untrained(self) -> dict[str, float]:
        """The metrics of the untrained model; {} if it was not evaluated.

        Raises:
            ValueError: the file is damaged.
        """
        found = read_parts(self.before, {"values": NUMBERS}, "values") if self.before.exists() else {"values": {}}
        values: dict[str, float] = found["values"]
        return values

    def read_before(self) -> Report | None:
        """The report of the untrained model; None: there is none."""
        return Report.from_json(self.before) if self.before.exists() else None

    def read_untouched(self) -> Report | None:
        """The report of a pretrained model at the size of images at which it is worse; None: there is none."""
        return Report.from_json(self.untouched) if self.untouched.exists() else None

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


def read_parts(path: Path, shapes: Mapping[str, Any], *needed: str) -> dict[str, Any]:
    """The content of a json file of a run.

    Args:
        path: the file.
        shapes: name -> shape of the value, see `json_report.fits`, if the file has it.
        needed: names that it must have.

    Raises:
        ValueError: the file is damaged.
    """
    content = read_json(path, *needed)
    for name, shape in shapes.items():
        if name in content and not fits(content[name], shape):
            raise ValueError(f"{path} is damaged: {name} is not as a run writes it. {AGAIN}")
    return content


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
    wanted.mkdir(parents=True, exist_ok=True)
    run, killed = Run(wanted), (wanted / HOLDER).exists()
    try:
        with lock(wanted, "this folder"):
            # a killed process left its files, which are written anew
            there = set() if killed else {path.name for path in wanted.iterdir() if written(path.name)}
            if run.config.exists():
                raise ConfigError(f"{wanted} holds a run already: continue it with resume={wanted}, or choose out=")
            if there:
                raise ConfigError(
                    f"{wanted} is not a run, and holds {min(there)}, which a run would replace: choose another out="
                )
            run.remove_leftovers()
            try:
                yield run
            finally:
                if not run.config.exists():  # the run stopped before training began
                    shutil.rmtree(run.logs, ignore_errors=True)
                    for path in (run.before, run.untouched, run.features, run.health):
                        path.unlink(missing_ok=True)
    finally:
        for path in missing:  # folders that were made for the run, the innermost first; those with files stay
            with suppress(OSError):
                path.rmdir()


def _new_folder(wanted: Path) -> Path:
    """Make a new folder. If the name exists, for example from the same second, a number is added."""
    for number in itertools.count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder


__all__ = ["Run"]
