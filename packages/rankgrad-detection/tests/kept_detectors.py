"""Detectors of a second that several tests start from, each trained once in a process: copy one with `copied`.

Their settings say /voc where the images lie, as those of somebody else's run name a folder that is not here.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from kept_runs import trained
from small_detectors import settings
from voc_trees import shapes

from rankgrad_detection.run import train
from rankgrad_workbench.settings import compose


@cache
def kept(name: str) -> Path:
    """The folder of a run: detector, detector-interrupted."""
    assert name in ("detector", "detector-interrupted")
    home = Path(tempfile.mkdtemp(prefix="kept-detectors-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    voc, folder = shapes(home / "voc"), home / name
    every = "evaluation.every=0" if name.endswith("interrupted") else "evaluation.every=1"
    given = compose(settings(voc, every, "checkpoint_minutes=0", f"out={folder}"), "detect")
    trained(lambda: train(given, quiet=True), name)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(str(voc), "/voc"))
    return folder


def copied(name: str, folder: Path, voc: Path | None = None) -> Path:
    """A run of one's own, whose images are where they are said to be."""
    shutil.copytree(kept(name), folder)
    if voc is not None:
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("/voc", str(voc)))
    return folder
