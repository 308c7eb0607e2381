"""Runs of a second that several tests start from, each trained once in a process: copy one with `copied`.

Their settings say /photos where the images lie, as those of somebody else's run name a folder that is not
here. Those of a run of scores say /rows.csv.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from small_runs import Killed, die_after_writes, make_photos, small
from small_tables import one_list
from small_tables import settings as of_table

from rankgrad_workbench.index import Index
from rankgrad_workbench.index.embed import embed_folder
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.tasks.scores.task import train as train_scores

#: A loss in which every kind of part is named: ranks, steps and a penalty.
LOSS = {
    "_target_": "rankgrad.losses.RankLoss",
    "ranks": {
        "_target_": "rankgrad.ranks.Soft",
        "pos": {"_target_": "rankgrad.ranks.relaxations.Heaviside"},
        "neg": {"_target_": "rankgrad.ranks.relaxations.Exponential", "tau": 0.04},
        "pull": 0.9,
    },
    "penalty": {"_target_": "rankgrad.losses.penalties.Log"},
    "include_self": False,
}


@cache
def _home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="kept-runs-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    make_photos(home / "photos")
    one_list(home / "rows.csv")
    return home


@cache
def kept(name: str) -> Path:
    """The folder of a run: retrieval, multi, frozen, interrupted, scores."""
    home, folder = _home(), _home() / name
    out = f"out={folder}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "write_report", lambda path, _: path.write_text(""))  # a third of the time
        if name == "retrieval":
            config = compose(small(home / "photos", "memory=sum", "memory.warmup=0", "evaluation.every=1", out))
            config.loss = OmegaConf.create(LOSS)
            retrieval.train(config, quiet=True)
        elif name == "scores":
            train_scores(compose(of_table(home / "rows.csv", out), "scores"), quiet=True)
        else:
            own = {
                "multi": ["loss=pml/multi_similarity"],
                "frozen": ["loss=roadmap", "frozen=true", f"init={kept('retrieval')}"],
                "interrupted": ["loss=roadmap", "memory=sum", "memory.warmup=0", "checkpoint_minutes=0"],
            }[name]
            given = compose(small(home / "photos", *own, out))
            trained(lambda: retrieval.train(given, quiet=True), name)
    text = (folder / "config.yaml").read_text()
    for place in ("photos", "rows.csv"):
        text = text.replace(str(home / place), f"/{place}")
    (folder / "config.yaml").write_text(text)
    return folder


def trained(train: Callable[[], object], name: str) -> None:
    """Train to the end, or until the state has been written four times."""
    if not name.endswith("interrupted"):
        train()
        return
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 4)
        with pytest.raises(Killed):
            train()


@cache
def kept_index() -> Path:
    """An index of the photographs, of the run `retrieval`."""
    home = _home()
    embed_folder(kept("retrieval"), home / "photos", home / "photos.npz")
    return Index.load(home / "photos.npz").at("/photos").save(home / "photos.index")


def copied(name: str, folder: Path, photos: Path | None = None, rows: Path | None = None) -> Path:
    """A run of one's own, whose images or rows are where they are said to be."""
    shutil.copytree(kept(name), folder)
    text = (folder / "config.yaml").read_text()
    for there, here in (("/photos", photos), ("/rows.csv", rows)):
        text = text if here is None else text.replace(there, str(here))
    (folder / "config.yaml").write_text(text)
    return folder
