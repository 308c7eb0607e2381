"""One training run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

HELP = """\
Train a retrieval model, evaluate it before and after, and write a folder with the model, its numbers and report.html.

  rankgrad train                                    the built-in glyphs, a few minutes on two CPU cores
  rankgrad train data=folder data.root=PHOTOS       your images: one sub-folder per class
  rankgrad train data=omniglot data.root=DIR loss=pnp loss.alpha=1 seed=1
  rankgrad train model=timm model.name=resnet50 model.pretrained=true data=folder data.root=PHOTOS
  rankgrad train trainer.devices=4                  one batch divided between four processes (GPUs, or CPU)
  rankgrad train memory=sum train.sub_batch=64      earlier batches in the lists; a batch that does not fit, in parts
  rankgrad train resume=runs/glyphs-...             continue where a run stopped
  rankgrad train data=omniglot data.root=DIR init=RUN frozen=true     a new head on frozen features, in seconds
"""
SETTINGS = True  # takes KEY=VALUE settings


def details() -> str:
    """What stands below the text: the groups of settings."""
    try:
        from ..config import GROUPS, options
    except ModuleNotFoundError:  # evaluation works without the extras
        return "Training needs the extras: pip install 'rankgrad[all]'"
    lines = [f"  {group + '=':8}{', '.join(options(group))}" for group in GROUPS]
    return "\n".join(["groups:", *lines, "", "All settings of a run with these: rankgrad train --cfg [KEY=VALUE ...]"])


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--cfg", action="store_true", help="print the settings and stop")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train a model, or go on with a run."""
    from ..config import ConfigError, compose

    config = compose(settings)
    if arguments.cfg:
        from omegaconf import OmegaConf

        print(OmegaConf.to_yaml(config), end="")
        return
    extra = [s for s in settings if not s.startswith("resume=")]
    if config.resume is not None and extra:
        raise ConfigError(f"a resumed run keeps its own settings; leave out {' '.join(extra)}")
    from ..training import launch
    from ..training import runner as runs

    if not launch.started():
        settled = config if config.resume is None else runs.open_run(config)[1]
        if launch.wanted(settled) > 1:
            sys.exit(launch.launch(settled, ["train", *settings]))
    where: list[Path] = []
    try:
        finished = runs.train(config, started=where.append)
    except KeyboardInterrupt:
        if where:
            command = shlex.join(["rankgrad", "train", f"resume={where[0]}"])
            print(f"\ninterrupted; continue with: {command}", file=sys.stderr)
        raise
    if launch.first():
        print(runs.summary(finished))
