"""Runs of a second, for tests: a folder of coloured tiles, a tiny network, two epochs of three batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankgrad_workbench import training
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval import task as runs

CONVNET = ("model.widths=[8,8,8,8]", "model.embedding_size=8")
QUICK = (
    *("sampler.classes_per_batch=4", "sampler.samples_per_class=2", "sampler.batches_per_epoch=3"),
    *("trainer.max_epochs=2", "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1", "threads=1"),
    *("evaluation.bootstrap=0", "evaluation.clusters=none"),
)
# of runs on glyphs
FEW_WEIGHTS = (
    *("model.widths=[4,4,4,4]", "model.embedding_size=4", "sampler.classes_per_batch=4", "sampler.batches_per_epoch=1"),
    *("trainer.max_epochs=1", "trainer.enable_progress_bar=false", "threads=1", "checkpoint_minutes=0"),
)


def make_photos(root: Path, classes: int = 10, per_class: int = 5, side: int = 36) -> Path:
    """A folder of classes; half of them, whole, are for the test."""
    g = np.random.RandomState(0)
    for name in (f"class {number}" for number in range(classes)):
        (root / name).mkdir(parents=True)
        colours = g.randint(0, 256, (4, 4, 3))
        for number in range(per_class):
            pixels = np.clip(colours + g.randint(-60, 60, (4, 4, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((side, side)).save(root / name / f"{number}.png")
    return root


def small(photos: Path, *settings: str) -> list[str]:
    """Settings of a small run on these photos; later ones win."""
    given = [
        f"data.root={photos}",
        "data=folder",
        "data.size=32",
        "data.workers=0",
        "evaluation.untouched=same",
        *QUICK,
    ]
    given += [] if any(s.startswith("model=") for s in settings) else CONVNET
    keys = [s.split("=")[0] for s in settings]
    return [s for s in given if s.split("=")[0] not in keys] + list(settings)


def train(*settings: str) -> Run:
    """The run of these settings."""
    return runs.train(compose(settings), quiet=True)


class Killed(Exception):
    """Stands for a death of the process; nothing in the library knows it."""


def die_after_writes(patch: pytest.MonkeyPatch, count: int, die: Callable[[], object] | None = None) -> None:
    """Let training die as soon as its state has been written `count` times."""
    write, done = training.SaveState.write, [0]

    def write_and_die(self: training.SaveState, trainer: object) -> None:
        write(self, trainer)  # type: ignore[arg-type]
        done[0] += 1
        if done[0] == count:
            if die is None:
                raise Killed
            die()

    patch.setattr(training.SaveState, "write", write_and_die)


def cut_off(settings: list[str], writes: int, die: Callable[[], object] | None = None) -> None:
    """Begin a run that saves its state after every batch, and let it die after so many times."""
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, writes, die)
        with pytest.raises(Killed if die is None else KeyboardInterrupt):
            train(*settings, "checkpoint_minutes=0")


def same_results(one: Path, other: Path) -> bool:
    """Are the numbers and the embeddings of two runs equal, byte by byte?"""
    files = ("after.json", "embeddings.npz")
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in files)


WORDS = ("card", "loan", "rent", "tax", "phone", "train", "meal", "song", "game", "shoe")


def make_texts(path: Path, classes: int = 10, per_class: int = 6) -> Path:
    """A csv of sentences; each class has two words of its own among others."""
    g = np.random.RandomState(0)
    others = [f"w{number}" for number in range(30)]
    lines = ["text,label"]
    for word in WORDS[:classes]:
        for _ in range(per_class):
            chosen = [f"{word}s" if g.rand() < 0.5 else word, *g.choice(others, 4)]
            lines.append(f"{' '.join(g.permutation(chosen))},{word}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


NGRAMS = ("model.dim=8", "model.buckets=512")


def small_texts(file: Path, *settings: str) -> list[str]:
    """Settings of a small run on these texts; later ones win."""
    given = [f"data.root={file}", "data=text", *QUICK]
    given += [] if any(s.startswith("model=") for s in settings) else NGRAMS
    keys = [s.split("=")[0] for s in settings]
    return [s for s in given if s.split("=")[0] not in keys] + list(settings)
