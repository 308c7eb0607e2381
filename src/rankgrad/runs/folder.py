"""The folder of a run: the names of its files, what kind of run it is, whether it is finished and as it was written.

No other file knows these names. Writing is whole or not at all (`files`), and one process at a time uses a folder.
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

from ..evaluation import Report
from ..files import AGAIN, read_json, remove_leftovers, sha256_of, write_text
from ..files.folders import lock
from ..targets import ConfigError
from ..tasks import TASKS

# The facts that are counted with, and their kinds.
FACTS: dict[str, tuple[type, ...]] = {
    "steps": (int,),
    "epochs": (int,),
    "train_seconds": (int, float, type(None)),
    "train_cpu_seconds": (int, float, type(None)),
}


@dataclass(frozen=True)
class Run:
    """The folder of a run.

    Attributes:
        folder: where everything is.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """Settings; with this file the folder holds a run."""
        return self.folder / "config.yaml"

    @property
    def state(self) -> Path:
        """What it takes to go on, see `training.state`."""
        return self.folder / "state.ckpt"

    @property
    def weights(self) -> Path:
        """Model after training."""
        return self.folder / "model.pt"

    @property
    def best(self) -> Path:
        """Model at the best evaluation during training, if it was to be kept (`evaluation.keep_best`)."""
        return self.folder / "best.pt"

    @property
    def before(self) -> Path:
        """Report of the untrained model."""
        return self.folder / "before.json"

    @property
    def after(self) -> Path:
        """Result of the trained model, the last file of a run."""
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
        """Reports of states that were evaluated, earliest first: step-N.json, beside them step-N.npz and step-N.pt."""
        return sorted(self.folder.glob("step-*.json"), key=lambda path: int(path.stem.removeprefix("step-")))

    @property
    def detections(self) -> Path:
        """What a detector found in the evaluated images."""
        return self.folder / "detections.npz"

    @property
    def scores(self) -> Path:
        """Scores of the test rows, see `scores.task`."""
        return self.folder / "scores.npz"

    @property
    def features(self) -> Path:
        """Features of the training images, where a head alone is trained."""
        return self.folder / "features.pt"

    @property
    def health(self) -> Path:
        """What was seen of the training itself, see `training.health`."""
        return self.folder / "health.json"

    @property
    def page(self) -> Path:
        """The page about the run, see `report`."""
        return self.folder / "report.html"

    @property
    def logs(self) -> Path:
        """Folder of what was logged, see `runs.log`."""
        return self.folder / "logs"

    @property
    def checksums(self) -> Path:
        """SHA-256 of every file of a finished run, as the command sha256sum writes and checks them."""
        return self.folder / "checksums.sha256"

    @property
    def kind(self) -> str:
        """What was trained, a key of `tasks.TASKS`. A folder without settings counts as retrieval."""
        if not self.config.exists():
            return "retrieval"
        text = self.config.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^task: (\w+)$", text, re.MULTILINE)  # without parsing, which may be refused
        return match[1] if match and match[1] in TASKS else "retrieval"

    @property
    def finished(self) -> bool:
        """True once the last file is written."""
        return self.after.exists()

    @property
    def interrupted(self) -> bool:
        """Whether there is a state to go on from and no result: cut off, extended, or still training."""
        return self.state.exists() and not self.finished

    def remove_leftovers(self) -> None:
        """Remove what a killed process left."""
        for place in (self.folder, self.logs):
            remove_leftovers(place, root=self.folder)

    def read_facts(self) -> dict[str, Any]:
        """The facts of a finished run; {} before.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.facts.exists():
            return {}
        facts = read_json(self.facts, "steps", "train_seconds")
        wrong = [name for name, kinds in FACTS.items() if not isinstance(facts.get(name, 0), kinds)]
        if wrong:
            raise ValueError(f"{self.facts} is damaged: {wrong[0]} is no number but {facts[wrong[0]]!r}. {AGAIN}")
        return facts

    def read_values(self) -> dict[str, float]:
        """The metrics of a finished run: Recall@K and the like, or AP of a detector.

        Raises:
            FileNotFoundError: the run is not finished.
            ValueError: the file is damaged.
        """
        values = read_json(self.after, "values")["values"]
        if not isinstance(values, dict) or not all(isinstance(value, (int, float)) for value in values.values()):
            raise ValueError(f"{self.after} is damaged: its values are no numbers. {AGAIN}")
        return values

    def read_before(self) -> Report | None:
        """The report of the untrained model, if there is one."""
        return Report.from_json(self.before) if self.before.exists() else None

    def finish(self, result: str) -> None:
        """Write the checksums of all files, then the result: from here on the run is finished.

        Args:
            result: text of `after`.
        """
        listed = (
            self.config,
            self.state,
            self.weights,
            self.best,
            self.before,
            self.facts,
            self.embeddings,
            self.detections,
            self.scores,
        )
        sums = [(sha256_of(path), path.name) for path in (*listed, self.health, self.page) if path.exists()]
        sums.append((hashlib.sha256(result.encode()).hexdigest(), self.after.name))
        write_text(self.checksums, "".join(f"{digest}  {name}\n" for digest, name in sums))
        write_text(self.after, result)


@contextmanager
def opened(folder: Path, kind: str) -> Iterator[Run]:
    """The run in a folder, held for this process alone, to go on with it. What a killed process left is removed.

    Raises:
        ConfigError: the folder holds no run, or one of another kind.
        LockedError: another process has it.
    """
    run = Run(folder)
    if not run.config.exists():
        raise ConfigError(f"nothing to resume: {run.config} does not exist. resume= takes the folder of a run")
    if run.kind != kind:
        again = f"rankgrad {TASKS[run.kind].command} resume={folder}"
        raise ConfigError(f"{folder} holds a run of task={run.kind}: continue it with {again}")
    with lock(folder, "this run"):
        run.remove_leftovers()
        yield run


@contextmanager
def created(folder: Path | None, name: str) -> Iterator[Run]:
    """A new run, held for this process alone. If no settings were written to it in the end, the folder goes again.

    Args:
        folder: where; None: a new one in runs/, called after `name` and the time, which nobody else has.
        name: data and loss.

    Raises:
        ConfigError: the folder holds a run.
        LockedError: another process is beginning one there.
    """
    wanted = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}" if folder is None else folder
    missing = [path for path in (wanted, *wanted.parents) if not path.exists()]
    if folder is None:
        wanted = _new_folder(wanted)
        missing = [wanted, *missing[1:]]
    else:
        wanted.mkdir(parents=True, exist_ok=True)
    run, there = Run(wanted), set(os.listdir(wanted))
    try:
        with lock(wanted, "this folder"):
            if run.config.exists():
                raise ConfigError(f"{wanted} holds a run already: continue it with resume={wanted}, or choose out=")
            run.remove_leftovers()
            yield run
    finally:
        if not run.config.exists():
            _discard(run, there, missing)


def _new_folder(wanted: Path) -> Path:
    """A folder that this call has made: of two processes in the same second, one gets another name."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise ConfigError(f"{wanted} and thousands of its like exist: choose out=")


def _discard(run: Run, there: set[str], folders: list[Path]) -> None:
    """Take back what was begun of a run before anything was trained. What was `there` before stays."""
    for path in (run.before, run.features, run.health):
        if path.name not in there:
            path.unlink(missing_ok=True)
    if run.logs.name not in there:
        shutil.rmtree(run.logs, ignore_errors=True)
    for folder in folders:  # made for it, the innermost first
        try:
            os.rmdir(folder)
        except OSError:  # not empty
            break


__all__ = ["Run", "created", "opened"]
